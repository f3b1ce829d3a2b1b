/**
 * The words of a command line: blanks part what is written, what is filled in stays whole, and a
 * list is several words.
 */
export function argvOf(
  text: TemplateStringsArray,
  ...values: readonly (string | number | readonly string[])[]
): string[] {
  const words: string[] = []
  let isOpen = false
  const add = (piece: string) => {
    if (isOpen) words.push(`${words.pop()}${piece}`)
    else words.push(piece)
    isOpen = true
  }
  for (const [index, part] of text.entries()) {
    for (const [n, piece] of part.split(/\s+/).entries()) {
      if (n > 0) isOpen = false
      if (piece !== '') add(piece)
    }
    const value = values[index]
    if (typeof value === 'object') {
      words.push(...value)
      isOpen = false
    } else if (value !== undefined) add(`${value}`)
  }
  return words
}
