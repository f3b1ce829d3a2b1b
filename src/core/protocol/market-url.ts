import { UsageError } from './errors.js'
import { isIdentifier, isSlug } from './words.js'

export interface NamedQuestion {
  /** Of an event its own slug. */
  readonly identifier: string
  readonly isEvent: boolean
}

const hosts = ['polymarket.com', 'www.polymarket.com']

/**
 * `/event/<event>/<market>` and `/market/<market>` name a market, `/event/<event>` an event; a
 * language may stand before.
 */
export function namedQuestion(text: string): NamedQuestion | undefined {
  if (isIdentifier(text)) return { identifier: text, isEvent: false }
  const whole = /^(www\.)?polymarket\.com\//i.test(text) ? `https://${text}` : text
  const url = /^https?:/i.test(whole) && URL.canParse(whole) ? new URL(whole) : undefined
  if (url === undefined || !hosts.includes(url.host)) return undefined
  const [kind, first = '', second, ...rest] = url.pathname
    .replace(/^\/[a-z]{2}(-[a-z]{2,4})?(?=\/(event|market)\/)/i, '')
    .split('/')
    .filter((part) => part !== '')
  const slug = second ?? first
  const isOne = second === undefined
  if (kind !== 'event' && (kind !== 'market' || !isOne)) return undefined
  if (rest.length > 0 || !isSlug(slug)) return undefined
  return { identifier: slug, isEvent: kind === 'event' && isOne }
}

export function identifierHint(text: string) {
  const lower = text.trim().toLowerCase()
  return namedQuestion(lower) === undefined
    ? 'a question id is 0x and 64 lowercase hex digits; a slug consists of lowercase letters, digits and hyphens'
    : `write it in lowercase: ${lower}`
}

export function requireIdentifier(text: string) {
  const named = namedQuestion(text)
  if (named !== undefined) return named.identifier
  throw new UsageError(
    'invalid_identifier',
    `"${text}" is neither a question id, nor a slug, nor a URL of Polymarket`,
    identifierHint(text),
  )
}

export const eventUrl = (slug: string) => `https://polymarket.com/event/${slug}`

export const plainIdentifier = (text: string) => namedQuestion(text)?.identifier ?? text
