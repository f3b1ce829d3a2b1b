/**
 * What of a URL a support bundle must not hold. Narrower than what is taken out of other people's
 * words (`url-secrets`). A bundle that is refused for every `proposer` in it, because a gateway's
 * path is `/proposer`, helps nobody.
 */
import { base64Of, decoded } from '../../protocol/url-secrets.js'

const schemes: ReadonlySet<string> = new Set(['http:', 'https:', 'ws:', 'wss:'])
/**
 * Parts this long are keys even without a digit; shorter ones, words such as `polygon` or
 * `mainnet`.
 */
const longAtLeast = 16
/** With digits among the letters; `v2` and `p2` are shorter. */
const mixedAtLeast = 6
/** A value of the query under a name that tells nothing. */
const valueAtLeast = 8
const tellingName = /key|secret|token|auth|pass|sig|cred|jwt/i
/** Under a telling name; shorter ones are in every text. */
const toldAtLeast = 4

const looksLikeKey = (text: string) =>
  text.length >= longAtLeast ||
  (text.length >= mixedAtLeast && /\d/.test(text) && /[a-z]/i.test(text))

/**
 * A URL of the web, or `undefined`. `user:password@host` is one to `URL`, whose scheme is the user.
 */
export function webUrl(text: string): URL | undefined {
  if (!URL.canParse(text)) return undefined
  const url = new URL(text)
  return schemes.has(url.protocol) ? url : undefined
}

/**
 * Passwords, also as Basic credentials; users without a password; of users, path segments, query
 * and fragment what looks like a key. What is no URL of the web counts as a whole, and by the parts
 * it has where only its scheme is missing. Throws nothing.
 */
export function urlCredentials(urls: readonly string[]): readonly string[] {
  const found = new Set<string>()
  for (const text of urls) {
    const url = webUrl(text)
    if (url !== undefined) {
      for (const one of credentialsOf(url)) found.add(one)
      continue
    }
    if (text === '') continue
    found.add(text)
    const completed = webUrl(`https://${text}`)
    // Whoever forgot the scheme may have written the user where it stands.
    if (completed !== undefined)
      for (const one of [completed.username, ...credentialsOf(completed)])
        if (one !== '') found.add(one)
  }
  return [...found].sort((one, other) => other.length - one.length)
}

function credentialsOf({ username, password, pathname, search, hash }: URL): readonly string[] {
  const isAlone = password === ''
  const parts = [
    password,
    ...(isAlone || looksLikeKey(username) ? [username] : []),
    ...pathname.split('/').filter(looksLikeKey),
    ...search.slice(1).split('&').flatMap(queryValue),
    hash.slice(1),
    ...(isAlone ? [] : [base64Of(`${decoded(username)}:${decoded(password)}`)]),
  ]
  return parts.filter((part) => part !== '').flatMap((part) => [part, decoded(part)])
}

function queryValue(pair: string): readonly string[] {
  const split = pair.indexOf('=')
  const value = pair.slice(split + 1)
  // Without a name it is the whole of what is asked for.
  const counts =
    value.length >=
      (split < 0 || tellingName.test(pair.slice(0, split)) ? toldAtLeast : valueAtLeast) ||
    looksLikeKey(value)
  return counts ? [value, value.replaceAll('+', ' ')] : []
}
