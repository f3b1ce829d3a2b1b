/** What went wrong in a batch, grouped by cause: a thousand rows of one fault take three lines. */
import type { ProposerError } from '../../core/protocol/errors.js'
import { counted, fold, foldAround } from '../terminal/render.js'

/** Rows that a cause names, and causes that are told apart: a gateway's codes have no end (R17). */
const [namedRows, tellableCauses] = [5, 20]

interface Cause {
  readonly word: string
  readonly error: ProposerError
  readonly names: string[]
  count: number
}

export interface Causes {
  add(word: string, name: string, error: ProposerError): void
  text(columns: number): string
}

export function newCauses(): Causes {
  const causes = new Map<string, Cause>()
  return {
    add(word, name, error) {
      const own = `${word} ${error.code}`
      const key = causes.has(own) || causes.size < tellableCauses ? own : 'more'
      const cause = causes.get(key) ?? { word, error, names: [], count: 0 }
      cause.count++
      if (cause.names.length < namedRows) cause.names.push(name)
      causes.set(key, cause)
    },
    text: (columns) =>
      [...causes]
        .sort(([, one], [, other]) => other.count - one.count)
        .map(([key, cause]) => causeText(key === 'more' ? 'other causes' : '', cause, columns))
        .join('\n'),
  }
}

function causeText(other: string, { word, error, names, count }: Cause, columns: number): string {
  const more = count > names.length ? ` and ${count - names.length} more` : ''
  const { hint } = error.meta
  return [
    fold(
      `${counted(count, 'row')} ${word} (${other || error.code}): ${names.join(', ')}${more}`,
      columns,
      '  ',
    ),
    ...(other === '' ? [`  ${fold(error.detail, columns - 2, '  ')}`] : []),
    ...(other === '' && hint !== undefined
      ? [`  ${foldAround(`hint: ${hint}`, columns - 2, '  ')}`]
      : []),
  ].join('\n')
}
