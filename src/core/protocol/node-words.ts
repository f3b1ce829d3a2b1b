/** A provider may repeat the key of its URL, or whose account is out of credit (R5). */
import type { Conceal } from './url-secrets.js'

/** So that what goes to everybody can leave them out. */
export const quoteWords = (words: string) => `“${words.replace(/[“”]/g, '"')}”`

export const withoutNodeWords = (message: string) => message.replace(/:? ?“[^”]*(?:”|$)/g, '')

const longestShown = 160
/** A secret that a cut goes through would not be known any more. */
const longestSearched = 65_536

/** Long hex may be a signed transaction. */
export function safeText(text: string, conceal: Conceal = (same) => same) {
  return conceal(text.slice(0, longestSearched))
    .slice(0, 4096)
    .replace(/[a-z][a-z0-9+.-]{0,30}:\/\/\S+/gi, '[url]')
    .replace(/0x[0-9a-f]{65,}/gi, '[data]')
    .replace(
      /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2066-\u2069]+/g,
      ' ',
    )
    .slice(0, longestShown)
}
