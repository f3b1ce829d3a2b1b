/** A command line as far as it is typed, as a shell takes it apart; nothing in it is ever run. */

export interface TypedLine {
  /** Whole words before the one at the cursor, the program's name among them. */
  readonly words: readonly string[]
  readonly current: TypedWord
}

/** The word at the cursor without its quotes. */
export interface TypedWord {
  readonly text: string
  /**
   * The beginning of `text` that readline keeps: it replaces only what follows a break such as `=`,
   * or an opening quote.
   */
  readonly kept: string
  /** The quote that is still open. */
  readonly quote: '' | '"' | "'"
}

type Variables = Readonly<Record<string, string | undefined>>

/**
 * Splits what stands before the cursor. `breaks` are the characters, besides spaces, at which
 * readline begins a new word (COMP_WORDBREAKS). Of expansions only `~/` and `$NAME` are made, from
 * `variables`: a folder is often written so. Throws nothing.
 */
export function splitLine(line: string, breaks: string, variables: Variables): TypedLine {
  const words: string[] = []
  let text = ''
  let kept = ''
  let quote: TypedWord['quote'] = ''
  let begun = false
  for (let index = 0; index < line.length; index++) {
    const character = line[index] ?? ''
    if (quote === '' && /\s/.test(character)) {
      if (begun) words.push(text)
      text = kept = ''
      begun = false
      continue
    }
    const opening = !begun
    begun = true
    const variable =
      quote === "'" ? null : /^\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})/.exec(line.slice(index))
    if (character === quote) quote = ''
    else if (quote === '' && (character === '"' || character === "'")) {
      quote = character
      kept = text
    } else if (character === '\\' && quote !== "'" && index + 1 < line.length) {
      index++
      // Between double quotes a backslash is itself before all but these.
      text += quote === '' || /["\\$`]/.test(line[index] ?? '') ? line[index] : `\\${line[index]}`
    } else if (variable) {
      text += variables[variable[1] ?? variable[2] ?? ''] ?? ''
      index += variable[0].length - 1
    } else if (opening && line.startsWith('~/', index)) text += variables.HOME ?? '~'
    else {
      text += character
      if (quote === '' && breaks.includes(character)) kept = text
    }
  }
  return { words, current: { text, kept, quote } }
}

/**
 * What readline puts in place of the word at the cursor so that the shell reads `value`;
 * `undefined` where quotes cannot hold it.
 */
export function replacement(value: string, { kept, quote }: TypedWord): string | undefined {
  if (!value.startsWith(kept)) return undefined
  const rest = value.slice(kept.length)
  if (quote === '"') return rest.replace(/["\\$`]/g, '\\$&')
  if (quote === "'") return rest.includes("'") ? undefined : rest
  return rest.replace(/[^\w./:=@%+,\-\u0080-\uffff]/g, '\\$&')
}
