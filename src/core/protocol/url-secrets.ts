/**
 * Everything but scheme, host and port may be a credential, and whoever is asked there may repeat
 * it (R5).
 */

export type Conceal = (text: string) => string

/** Shorter path segments are words like `v2`; keys are longer. */
const segmentAtLeast = 6
/** Else every message would be full of holes. */
const anywhereAtLeast = 4

/** Percent-decoded too, the longest first (R5). */
export function urlSecrets(urls: readonly string[]) {
  const secrets = new Set<string>()
  const add = (text: string, atLeast = 1) => {
    for (const form of [text, decoded(text)]) if (form.length >= atLeast) secrets.add(form)
  }
  for (const text of urls) {
    if (!URL.canParse(text)) continue
    const { username, password, pathname, search, hash } = new URL(text)
    for (const part of [
      username,
      password,
      ...search.slice(1).split('&').flatMap(queryValues),
      hash.slice(1),
    ])
      add(part)
    for (const segment of pathname.split('/')) add(segment, segmentAtLeast)
    if (password !== '') add(base64Of(`${decoded(username)}:${decoded(password)}`))
  }
  return [...secrets].sort((one, other) => other.length - one.length)
}

export function concealing(urls: readonly string[]): Conceal {
  const secrets = urlSecrets(urls)
  if (secrets.length === 0) return (same) => same
  const pattern = new RegExp(secrets.map(patternOf).join('|'), 'giu')
  return (text) => text.replace(pattern, '[hidden]')
}

/** Also where a path has one slash left of two (R5). */
export const withoutPasswords = (text: string) =>
  text.replace(/(:\/{1,2}[^\s/:@]*):[^\s@]*@/g, '$1:[hidden]@')

/** Configurations are copied about, and everybody on the machine sees arguments (R5). */
export const hasPassword = (url: string) => /^[^:]*:\/\/[^/@]*:[^/@]*@/.test(url)

/** Another URL (contract §9) is a slip: a folder of that name would be a second, empty store. */
export const isStorePlace = (text: string) =>
  isDatabaseUrl(text) ? !hasPassword(text) : !/^\s*[a-z][\w+.-]*:\/\//i.test(text)

export const isDatabaseUrl = (text: string) => /^postgres(ql)?:/.test(text)

const queryValues = (pair: string) => {
  const split = pair.indexOf('=')
  return [pair.slice(split + 1), pair.slice(split + 1).replaceAll('+', ' ')]
}

function patternOf(secret: string) {
  const literal = secret.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')
  return secret.length >= anywhereAtLeast
    ? literal
    : `(?<![\\p{L}\\p{N}])${literal}(?![\\p{L}\\p{N}])`
}

export function decoded(text: string) {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

export const base64Of = (text: string) =>
  btoa(String.fromCharCode(...new TextEncoder().encode(text)))
