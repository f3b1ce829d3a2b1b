/**
 * A question's text for people: outside text, so every line is escaped by whoever prints it (R20).
 */
import { plainText } from '../../core/chain/ancillary.js'
import { fromHex } from '../../core/protocol/witness.js'
import { fold, foldAround } from './render.js'

export const questionText = (ancillaryData: string): string =>
  plainText(new TextDecoder().decode(fromHex(ancillaryData)))

/**
 * The longest part of a text that is shown before signing, from its beginning and from its meaning;
 * in characters.
 */
const shownLength = 400

/**
 * How the text begins and what its answers mean, which stands at its end (domain §5.3: the last
 * `res_data:` counts).
 * `whole` is the command that shows all of it.
 */
export function textInShort(text: string, whole: string, columns: number): string {
  const meaningAt = text.lastIndexOf('res_data:')
  const [about, meaning] =
    meaningAt < 0 ? [[...text], []] : [[...text.slice(0, meaningAt)], [...text.slice(meaningAt)]]
  const leftOut =
    Math.max(0, about.length - shownLength) + Math.max(0, meaning.length - shownLength)
  if (leftOut === 0) return fold(text, columns)
  const short = (part: readonly string[]) =>
    part.length > shownLength ? `${part.slice(0, shownLength).join('')}…` : part.join('')
  return [
    short(about),
    ...(meaning.length === 0 ? [] : [short(meaning)]),
    `[${leftOut} characters left out; the whole text: \`${whole}\`]`,
  ]
    .map((line) => foldAround(line.trim(), columns))
    .join('\n')
}
