const slipsAllowed = (word: string) => Math.min(3, Math.max(1, Math.floor(word.length / 3)))

/** Case is no slip. */
export function nearest(word: string, names: readonly string[]) {
  const distances = names.map((name) => ({
    name,
    slips: slipsBetween(word.toLowerCase(), name.toLowerCase()),
  }))
  const least = Math.min(slipsAllowed(word), ...distances.map(({ slips }) => slips))
  return distances.filter(({ slips }) => slips === least).map(({ name }) => name)
}

export function didYouMean(names: readonly string[]) {
  const last = names.at(-1)
  if (last === undefined) return ''
  return names.length === 1
    ? `Did you mean ${last}?`
    : `Did you mean ${names.slice(0, -1).join(', ')} or ${last}?`
}

function slipsBetween(one: string, other: string) {
  let before: readonly number[] = []
  let row: readonly number[] = Array.from({ length: other.length + 1 }, (_, index) => index)
  for (let i = 1; i <= one.length; i++) {
    const next = [i]
    for (let j = 1; j <= other.length; j++) {
      const same = one[i - 1] === other[j - 1]
      const swapped = i > 1 && j > 1 && one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1]
      next.push(
        Math.min(
          (row[j] ?? 0) + 1,
          (next[j - 1] ?? 0) + 1,
          (row[j - 1] ?? 0) + (same ? 0 : 1),
          swapped ? (before[j - 2] ?? 0) + 1 : Number.POSITIVE_INFINITY,
        ),
      )
    }
    before = row
    row = next
  }
  return row[other.length] ?? 0
}
