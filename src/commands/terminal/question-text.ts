/**
 * A question's text for people: outside text, so every line is escaped by whoever prints it (R20).
 */
import { plainText } from '#chain/ancillary'
import { fromHex } from '#protocol/witness'
import type { Screen } from './output.js'
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
export const textInShort =
  (text: string, whole: string) =>
  ({ columns }: Screen): string => {
    const meaningAt = text.lastIndexOf('res_data:')
    const cut = meaningAt < 0 ? text.length : meaningAt
    const parts = [text.slice(0, cut), text.slice(cut)].map((part) => [...part])
    const over = parts.reduce((sum, { length }) => sum + Math.max(0, length - shownLength), 0)
    if (over === 0) return fold(text, columns)
    return [
      ...parts.map((part) => {
        const shown = part.slice(0, shownLength).join('')
        return part.length > shownLength ? `${shown}…` : shown
      }),
      `[${over} characters left out; the whole text: \`${whole}\`]`,
    ]
      .filter((line) => line !== '')
      .map((line) => foldAround(line.trim(), columns))
      .join('\n')
  }
