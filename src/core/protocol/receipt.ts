/**
 * Answers that a gateway signs (contract §9): `Content-Digest` (RFC 9530), RFC 9421 with ed25519
 * (RFC 8032), its key an OKP JWK (RFC 8037).
 */
import {
  type Dictionary,
  type InnerList,
  type Item,
  parseDictionary,
  serializeByteSequence,
  serializeInnerList,
  serializeItem,
} from 'structured-headers'
import type { Ed25519, Hash } from '#ports'
import { fromHex, toHex } from './witness.js'

export const receiptDirectory = '/.well-known/http-message-signatures-directory'
export const receiptTag = 'proposer-receipt'
/** Our label in the two dictionaries; those of others may have any. */
const label = 'receipt'

/** Seconds by which two clocks may differ. */
export const receiptSkewSeconds = 300
const maxHeader = 4_096

/** Times are Unix seconds, absent where there is no bound. */
export interface ReceiptKey {
  readonly kid: string
  readonly x: string
  readonly nbf?: number | undefined
  readonly exp?: number | undefined
}

export interface SignedAnswer {
  readonly method: string
  readonly path: string
  readonly status: number
  readonly body: string
  readonly requestDigest?: string | undefined
  readonly contentDigest?: string | undefined
  readonly signatureInput?: string | undefined
  readonly signature?: string | undefined
}

/** Why an answer proves nothing; the codes stand in journals. */
export const receiptFaults = {
  receipt_missing: 'the answer carries no receipt',
  receipt_too_large: 'a header of the receipt, or the answer, is too large to be kept',
  receipt_malformed: 'the receipt cannot be read',
  receipt_wrong_tag: `the signature has another tag than ${receiptTag}`,
  receipt_wrong_algorithm: 'the signature names another algorithm than ed25519',
  receipt_wrong_components: 'the signature covers other parts than a receipt must cover',
  receipt_digest_differs: 'the body is not the one that was signed',
  receipt_unknown_key: 'the key of the receipt is not pinned',
  receipt_key_expired: 'the receipt was made when its key was not valid',
  receipt_clock_skew: 'the receipt was made at another time than the answer came',
  receipt_invalid: 'the signature is not of these bytes',
} as const
export type ReceiptFault = keyof typeof receiptFaults

export type ReceiptVerdict =
  | {
      readonly result: 'proven'
      readonly keyid: string
      readonly created: number
      readonly coversRequest: boolean
    }
  | { readonly result: 'unproven'; readonly code: ReceiptFault; readonly detail: string }

/** By the SHA-256 in hex (RFC 9530). */
export const digestHeader = (sha256: string): string =>
  `sha-256=${serializeByteSequence(fromHex(`0x${sha256}`))}`

function dictionaryOf(header: string): Dictionary | undefined {
  try {
    return parseDictionary(header)
  } catch {
    return undefined
  }
}

const bytesIn = (member: Item | InnerList | undefined): Uint8Array | undefined =>
  member?.[0] instanceof ArrayBuffer ? new Uint8Array(member[0]) : undefined

export function digestSha256(header: string): string | undefined {
  const bytes = bytesIn(dictionaryOf(header)?.get('sha-256'))
  return bytes && toHex(bytes).slice(2)
}

/** `unknown` where it has no SHA-256. */
export function judgeDigest(
  hash: Hash,
  header: string,
  body: Uint8Array | string,
): 'same' | 'differs' | 'malformed' | 'unknown' {
  const members = header.length > maxHeader ? undefined : dictionaryOf(header)
  if (!members?.size || ![...members.values()].every(bytesIn)) return 'malformed'
  if (!members.has('sha-256')) return 'unknown'
  return digestSha256(header) === hash.sha256(body) ? 'same' : 'differs'
}

/** RFC 7638: the id of a key is its thumbprint. */
export const thumbprintOf = (hash: Hash, x: string): string =>
  base64UrlOf(fromHex(`0x${hash.sha256(`{"crv":"Ed25519","kty":"OKP","x":"${x}"}`)}`))

export const base64UrlOf = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replace(/=+$/, '')

export function keyBytes(text: string): Uint8Array | undefined {
  if (!/^[A-Za-z0-9_-]{43}$/.test(text)) return undefined
  const base64 = text.replaceAll('-', '+').replaceAll('_', '/')
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))
  // Bits that stand for nothing must be zero, else two texts would be the same key.
  return base64UrlOf(bytes) === text ? bytes : undefined
}

export const jwkOf = ({ kid, x, nbf, exp }: ReceiptKey) => ({
  kty: 'OKP' as const,
  crv: 'Ed25519' as const,
  kid,
  x,
  use: 'sig' as const,
  ...(nbf === undefined ? {} : { nbf }),
  ...(exp === undefined ? {} : { exp }),
})

const component = (name: string, ofRequest = false): Item => [
  name,
  new Map(ofRequest ? [['req', true]] : []),
]
const needed = [
  component('@status'),
  component('content-digest'),
  component('@method', true),
  component('@path', true),
]
const requestBody = component('content-digest', true)
const valuesOf = (answer: SignedAnswer): ReadonlyMap<string, string | undefined> =>
  new Map([
    ['"@status"', String(answer.status)],
    ['"content-digest"', answer.contentDigest],
    ['"@method";req', answer.method],
    ['"@path";req', answer.path],
    ['"content-digest";req', answer.requestDigest?.trim()],
  ])

function signatureBase(answer: SignedAnswer, input: InnerList): Uint8Array | undefined {
  const values = valuesOf(answer)
  const lines: string[] = []
  for (const item of input[0]) {
    const name = serializeItem(item)
    const value = values.get(name)
    if (value === undefined) return undefined
    lines.push(`${name}: ${value}`)
  }
  lines.push(`"@signature-params": ${serializeInnerList(input)}`)
  return new TextEncoder().encode(lines.join('\n'))
}

export function receiptHeaders(
  hash: Hash,
  answer: Pick<SignedAnswer, 'method' | 'path' | 'status' | 'body' | 'requestDigest'>,
  key: { readonly kid: string; readonly sign: (bytes: Uint8Array) => Uint8Array },
  created: number,
): Readonly<Record<'content-digest' | 'signature-input' | 'signature', string>> {
  const contentDigest = digestHeader(hash.sha256(answer.body))
  const input: InnerList = [
    answer.requestDigest === undefined ? needed : [...needed, requestBody],
    new Map<string, string | number>([
      ['created', created],
      ['keyid', key.kid],
      ['alg', 'ed25519'],
      ['tag', receiptTag],
    ]),
  ]
  const base = signatureBase({ ...answer, contentDigest }, input)
  if (base === undefined) throw new Error('a part of what is signed is missing')
  return {
    'content-digest': contentDigest,
    'signature-input': `${label}=${serializeInnerList(input)}`,
    signature: `${label}=${serializeByteSequence(key.sign(base))}`,
  }
}

const unproven = (code: ReceiptFault): ReceiptVerdict => ({
  result: 'unproven',
  code,
  detail: receiptFaults[code],
})

function receiptOf(
  input: string,
  signature: string,
): { readonly input: InnerList; readonly bytes: Uint8Array } | ReceiptFault {
  const inputs = dictionaryOf(input)
  const signatures = dictionaryOf(signature)
  if (inputs === undefined || signatures === undefined) return 'receipt_malformed'
  const tagged = [...inputs].find(([, [, parameters]]) => parameters.get('tag') === receiptTag)
  if (tagged === undefined) return inputs.size === 0 ? 'receipt_malformed' : 'receipt_wrong_tag'
  const [name, member] = tagged
  const bytes = bytesIn(signatures.get(name))
  // Bits that stand for nothing must be zero, else two texts would be the same signature.
  const isPlain = bytes && signature.includes(serializeByteSequence(bytes).replace(/=*:$/, ''))
  return isInnerList(member) && isPlain ? { input: member, bytes } : 'receipt_malformed'
}

const isInnerList = (member: Item | InnerList): member is InnerList => Array.isArray(member[0])

/** In any order; the request's digest may be left out. */
function isCovering([items]: InnerList) {
  const names = items.map((item) => serializeItem(item))
  const must = needed.map((item) => serializeItem(item))
  const may = [...must, serializeItem(requestBody)]
  return (
    new Set(names).size === names.length &&
    must.every((name) => names.includes(name)) &&
    names.every((name) => may.includes(name))
  )
}

/** With `nowSeconds` (Unix) it must have been made about now. */
export function judgeReceipt(
  { hash, ed25519 }: { hash: Hash; ed25519: Pick<Ed25519, 'verify'> },
  answer: SignedAnswer,
  keys: readonly ReceiptKey[],
  nowSeconds?: number,
): ReceiptVerdict {
  const { contentDigest, signatureInput, signature } = answer
  if (signatureInput === undefined && signature === undefined) return unproven('receipt_missing')
  if (signatureInput === undefined || signature === undefined || contentDigest === undefined)
    return unproven('receipt_malformed')
  if ([contentDigest, signatureInput, signature].some(({ length }) => length > maxHeader))
    return unproven('receipt_too_large')
  const found = receiptOf(signatureInput, signature)
  if (typeof found === 'string') return unproven(found)
  const [items, parameters] = found.input
  if (parameters.get('alg') !== 'ed25519') return unproven('receipt_wrong_algorithm')
  if (!isCovering(found.input)) return unproven('receipt_wrong_components')
  const [created, keyid] = [parameters.get('created'), parameters.get('keyid')]
  if (typeof created !== 'number' || created < 0 || typeof keyid !== 'string')
    return unproven('receipt_malformed')
  if (judgeDigest(hash, contentDigest, answer.body) !== 'same')
    return unproven('receipt_digest_differs')
  const key = keys.find(({ kid }) => kid === keyid)
  const publicKey = key && keyBytes(key.x)
  if (key === undefined || publicKey === undefined) return unproven('receipt_unknown_key')
  const base = signatureBase(answer, found.input)
  if (base === undefined || !ed25519.verify(publicKey, base, found.bytes))
    return unproven('receipt_invalid')
  const expires = parameters.get('expires')
  const [from, until] = [(key.nbf ?? 0) - receiptSkewSeconds, key.exp ?? Number.MAX_SAFE_INTEGER]
  if (created < from || created > until) return unproven('receipt_key_expired')
  if (typeof expires === 'number' && expires < (nowSeconds ?? created))
    return unproven('receipt_key_expired')
  if (nowSeconds !== undefined && Math.abs(created - nowSeconds) > receiptSkewSeconds)
    return unproven('receipt_clock_skew')
  const coversRequest = items.some((item) => serializeItem(item) === serializeItem(requestBody))
  return { result: 'proven', keyid, created, coversRequest }
}
