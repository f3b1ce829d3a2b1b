/**
 * The last look at a document before it is given away (R5). It was put together from an allow-list,
 * and this proves that nothing secret got in by a field that was thought to be harmless. Findings
 * name the field and the kind, never the value.
 */

/**
 * Something that must not appear. `text` is compared without regard to case, in its percent, base64
 * and hex forms, hex as a number and by its bytes too. So is whatever stands between the pieces
 * that it was cut into.
 */
export interface Secret {
  /** What it is, for people, such as `the RPC URL`. */
  readonly kind: string
  readonly text: string
}

export interface FoundSecret {
  /** Dotted path in the document, such as `journal.authorizations.3.client_ref`. */
  readonly field: string
  readonly kind: string
}

/**
 * Shorter secrets count only where they stand alone: a password `a` would be found in every text.
 */
const anywhereAtLeast = 6
/**
 * Shorter ones, with what separates words taken out, would be found where one word ends and the
 * next begins.
 */
const cutAtLeast = 16
/** Hex digits of an address. Longer hex is a hash, a key, a token or a signature. */
const addressDigits = 40
/** Hex digits of a question id or a transaction hash, and of a key. */
const hashDigits = 64

/**
 * Every field, key names included, that holds one of the secrets, or hex of more than 40 digits
 * that is no public id. `publicIds` are the question ids and transaction hashes that the document
 * is about. A public id that is among the secrets is a finding. `isOurs` names what is not looked
 * at. Throws nothing.
 */
export function findSecrets(
  document: unknown,
  secrets: readonly Secret[],
  publicIds: ReadonlySet<string>,
  isOurs: (path: readonly string[], part: 'key' | 'value') => boolean = () => false,
): readonly FoundSecret[] {
  const sought = secrets
    .filter(({ text }) => text !== '')
    .map(({ kind, text }) => ({ kind, holds: holderOf(text) }))
  const known = new Set([...publicIds].map(digitsOf))
  const found: FoundSecret[] = []
  const look = (text: string, field: string) => {
    const inside = formsOf(text)
    const named = sought.find(({ holds }) => holds(inside))
    if (named !== undefined) found.push({ field, kind: named.kind })
    else if (hasUnknownHex(text, known)) found.push({ field, kind: unknownHex })
  }
  const walk = (value: unknown, path: readonly string[]): void => {
    // A number holds too few digits for a secret, and every short one.
    if ((typeof value === 'string' || typeof value === 'bigint') && !isOurs(path, 'value'))
      look(String(value), path.join('.'))
    if (typeof value !== 'object' || value === null) return
    for (const [index, [key, inner]] of Object.entries(value).entries()) {
      const before = found.length
      if (!Array.isArray(value) && !isOurs([...path, key], 'key'))
        look(key, [...path, `(key ${index + 1})`].join('.'))
      // A key that is a secret itself must not be reported as part of a path.
      walk(inner, [...path, found.length > before ? `(key ${index + 1})` : key])
    }
  }
  walk(document, [])
  return found
}

/** The kind of a finding that is none of the secrets. */
export const unknownHex = 'hex that may be a key, a token or a signature'

const digitsOf = (hex: string): string => hex.toLowerCase().replace(/^0x/, '')

function hasUnknownHex(text: string, known: ReadonlySet<string>): boolean {
  for (const match of text.matchAll(/[0-9a-f]+/gi)) {
    const [run] = match
    // The `0` of `0x` belongs to a run of its own, since `x` is no hex digit. Amounts and nonces
    // are decimals of up to 78 digits.
    const isDecimal = /^\d{1,78}$/.test(run) && text[match.index - 1] !== 'x'
    if (
      run.length > addressDigits &&
      !isDecimal &&
      !(run.length === hashDigits && known.has(run.toLowerCase()))
    )
      return true
  }
  return false
}

interface Inside {
  readonly lower: string
  /** Letters and digits alone. */
  readonly joined: string
}

const joinedOf = (lower: string): string => lower.replace(/[^\p{L}\p{N}]+/gu, '')

function formsOf(text: string): Inside {
  const lower = text.toLowerCase()
  return { lower, joined: joinedOf(lower) }
}

/** Whether a text holds the secret in one of the forms that programs, and people, write it in. */
function holderOf(secret: string): (inside: Inside) => boolean {
  const bytes = new TextEncoder().encode(secret)
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
  const isHex = /^(0x)?[0-9a-f]+$/i.test(secret)
  const forms = new Set([isHex ? digitsOf(secret) : secret, encodeURIComponent(wellFormed(secret))])
  const others = [...base64FormsOf(bytes), hex, ...(isHex ? numberFormsOf(digitsOf(secret)) : [])]
  for (const form of others) if (form.length >= anywhereAtLeast) forms.add(form)
  const lower = [...forms].map((form) => form.toLowerCase())
  const joined = lower.map(joinedOf).filter((form) => form.length >= cutAtLeast)
  const shortest = Math.min(
    ...lower.map(({ length }) => length),
    ...joined.map(({ length }) => length),
  )
  return (inside) =>
    // Most texts are shorter than most secrets, of which there may be thousands.
    inside.lower.length >= shortest &&
    (lower.some((form) =>
      form.length >= anywhereAtLeast
        ? inside.lower.includes(form)
        : standsAlone(inside.lower, form),
    ) ||
      joined.some((form) => inside.joined.includes(form)))
}

function base64FormsOf(bytes: Uint8Array): readonly string[] {
  const base64 = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join('')).replace(
    /=+$/,
    '',
  )
  return [base64, base64.replaceAll('+', '-').replaceAll('/', '_')]
}

/**
 * What hex digits are besides text: bytes, and a number, which short ones share with everything.
 */
function numberFormsOf(digits: string): readonly string[] {
  if (digits.length < cutAtLeast) return []
  const even = digits.length % 2 === 0 ? digits : `0${digits}`
  const bytes = Uint8Array.from({ length: even.length / 2 }, (_, n) =>
    Number.parseInt(even.slice(n * 2, n * 2 + 2), 16),
  )
  return [...base64FormsOf(bytes), BigInt(`0x${digits}`).toString()]
}

/** encodeURIComponent throws for half a surrogate pair. */
const wellFormed = (text: string): string =>
  new TextDecoder().decode(new TextEncoder().encode(text))

function standsAlone(text: string, word: string): boolean {
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
    const [before, after] = [text[at - 1] ?? ' ', text[at + word.length] ?? ' ']
    if (!/[\p{L}\p{N}]/u.test(before) && !/[\p{L}\p{N}]/u.test(after)) return true
  }
  return false
}
