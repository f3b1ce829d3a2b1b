const unitMs = [86_400_000, 3_600_000, 60_000, 1000]

/** Each unit once and in this order: `2h30m`. A bare number is seconds. */
export function durationMs(text: string) {
  const parts =
    /^(?!$)(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,12}(?:\.\d{1,3})?)s)?$/.exec(
      /^[\d.]+$/.test(text) ? `${text}s` : text,
    )
  if (parts === null) return undefined
  const [, ...numbers] = parts
  return Math.round(
    numbers.reduce((sum, number, index) => sum + Number(number ?? 0) * (unitMs[index] ?? 0), 0),
  )
}

/** For flags where a bare number is a time. */
export const spanMs = (text: string) => (/[dhms]$/.test(text) ? durationMs(text) : undefined)

/** A date begins at midnight UTC. */
export function instantMs(text: string) {
  if (!/^\d{4}-\d{2}-\d{2}(T[\d:.]+(Z|[+-]\d{2}:\d{2}))?$/.test(text)) return undefined
  const ms = Date.parse(text)
  return Number.isNaN(ms) ? undefined : ms
}

const units = [
  ['d', 86_400, Number.POSITIVE_INFINITY],
  ['h', 3_600, 24],
  ['min', 60, 60],
  ['s', 1, 60],
] as const

/** In its largest units: `45 s`, `11 min 25 s`, `2 h`, `3 d 4 h`. */
export function durationText(seconds: number, most = 2) {
  const counts = units.map(
    ([unit, size, whole]) => [Math.floor(seconds / size) % whole, unit] as const,
  )
  const first = counts.findIndex(([count]) => count > 0)
  const told = counts.slice(first, first + most).filter(([count]) => count > 0)
  return told.map((one) => one.join(' ')).join(' ') || '0 s'
}
