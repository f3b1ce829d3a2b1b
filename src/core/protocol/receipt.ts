/**
 * `Content-Digest` (RFC 9530), RFC 9421 with ed25519 (RFC 8032), an OKP JWK (RFC 8037) (contract
 * §9).
 */
import {
  type Dictionary,
  type InnerList,
  type Item,
  parseDictionary,
  parseItem,
  serializeByteSequence,
  serializeInnerList,
  serializeItem,
} from 'structured-headers'
import * as z from 'zod/mini'
import type { Ed25519, Hash } from '#ports'
import { jsonOf } from './capped.js'
import { base64UrlOf, type KeptReceipt, KeyId, keyBytes, receiptJwk } from './fields.js'
import { type Json, objectOf } from './json.js'
import { pick } from './pick.js'
import { fromHex, toHex } from './witness.js'

export { base64UrlOf, type KeptReceipt, keyBytes } from './fields.js'

export const receiptDirectory = '/.well-known/http-message-signatures-directory'
export const receiptTag = 'proposer-receipt'
const label = 'receipt'

export const receiptSkewSeconds = 300
const maxHeader = 4_096

export interface SignedAnswer extends Readonly<Omit<KeptReceipt, 'body' | 'result' | 'code'>> {
  readonly body: string
}

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

export const digestHeader = (sha256: string) =>
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
export function judgeDigest(hash: Hash, header: string, body: Uint8Array | string) {
  const members = header.length > maxHeader ? undefined : dictionaryOf(header)
  if (!members?.size || ![...members.values()].every(bytesIn)) return 'malformed'
  if (!members.has('sha-256')) return 'unknown'
  return digestSha256(header) === hash.sha256(body) ? 'same' : 'differs'
}

/** RFC 7638. */
export const thumbprintOf = (hash: Hash, x: string) =>
  base64UrlOf(fromHex(`0x${hash.sha256(`{"crv":"Ed25519","kty":"OKP","x":"${x}"}`)}`))

const ListedJwk = z.object({ ...receiptJwk, kid: KeyId })
export type ReceiptKey = Omit<z.infer<typeof ListedJwk>, 'kty' | 'crv'>
const JwkSet = z.object({ keys: z.array(z.unknown()).check(z.maxLength(100)) })

/** `undefined` for what is no JWK set. Keys of another kind are left out. */
export const readKeySet = (json: unknown) =>
  JwkSet.safeParse(json).data?.keys.flatMap((each) => ListedJwk.safeParse(each).data ?? [])

export const jwkOf = ({ kid, x, nbf, exp }: ReceiptKey) => ({
  kty: 'OKP' as const,
  crv: 'Ed25519' as const,
  kid,
  x,
  use: 'sig' as const,
  nbf,
  exp,
})

const needed = ['"@status"', '"content-digest"', '"@method";req', '"@path";req']
const requestBody = '"content-digest";req'
const namesIn = ([items]: InnerList) => items.map((item) => serializeItem(item))

function signatureBase(answer: SignedAnswer, input: InnerList): Uint8Array | undefined {
  const { status, contentDigest, method, path, requestDigest } = answer
  const values = [String(status), contentDigest, method, path, requestDigest?.trim()]
  const lines: string[] = []
  for (const name of namesIn(input)) {
    const value = values[[...needed, requestBody].indexOf(name)]
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
) {
  const contentDigest = digestHeader(hash.sha256(answer.body))
  const input: InnerList = [
    [...needed, ...(answer.requestDigest === undefined ? [] : [requestBody])].map(parseItem),
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

function receiptOf(input: string, signature: string) {
  const inputs = dictionaryOf(input)
  const signatures = dictionaryOf(signature)
  if (inputs === undefined || signatures === undefined) return 'receipt_malformed'
  const tagged = [...inputs].find(([, [, parameters]]) => parameters.get('tag') === receiptTag)
  if (tagged === undefined) return inputs.size === 0 ? 'receipt_malformed' : 'receipt_wrong_tag'
  const [name, member] = tagged
  const bytes = bytesIn(signatures.get(name))
  const isPlain = bytes && signature.includes(serializeByteSequence(bytes).replace(/=*:$/, ''))
  return isInnerList(member) && isPlain ? { input: member, bytes } : 'receipt_malformed'
}

const isInnerList = (member: Item | InnerList): member is InnerList => Array.isArray(member[0])

/** The request's digest may be left out. */
const isCovering = (names: readonly string[]) =>
  new Set(names).size === names.length &&
  needed.every((name) => names.includes(name)) &&
  names.every((name) => name === requestBody || needed.includes(name))

/** With `nowSeconds` (Unix) it must have been made about then. */
export function judgeReceipt(
  { hash, ed25519 }: Pick<ReceiptChecks, 'hash' | 'ed25519'>,
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
  const [, parameters] = found.input
  const names = namesIn(found.input)
  if (parameters.get('alg') !== 'ed25519') return unproven('receipt_wrong_algorithm')
  if (!isCovering(names)) return unproven('receipt_wrong_components')
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
  const isOver = typeof expires === 'number' && expires < (nowSeconds ?? created)
  if (created < from || created > until || isOver) return unproven('receipt_key_expired')
  if (nowSeconds !== undefined && Math.abs(created - nowSeconds) > receiptSkewSeconds)
    return unproven('receipt_clock_skew')
  return { result: 'proven', keyid, created, coversRequest: names.includes(requestBody) }
}

/** A line of a journal has a bound (robustness §2). */
const maxKeptBody = 128 * 1024

export interface ReceiptChecks {
  readonly hash: Hash
  readonly ed25519: Pick<Ed25519, 'verify'>
  readonly keys: readonly ReceiptKey[]
  /** Where an answer that should be signed by a pinned key proves nothing. */
  readonly onUnproven?: ((code: string, detail: string) => void) | undefined
}

/**
 * `paths`: with and without the path of the base URL, as a gateway behind a proxy may have seen it.
 */
export function keepReceipt(
  checks: ReceiptChecks,
  answer: Omit<SignedAnswer, 'path'>,
  paths: readonly string[],
  nowSeconds: number,
): KeptReceipt | undefined {
  const { keys } = checks
  const isSigned = answer.signature !== undefined || answer.signatureInput !== undefined
  const [first = ''] = paths
  if (!isSigned && keys.length === 0) return undefined
  const { body, ...rest } = answer
  const isLarge = new TextEncoder().encode(body).length > maxKeptBody
  const kept = (path: string) => ({ ...rest, path, ...(isSigned && !isLarge && { body }) })
  const unproven = (code: keyof typeof receiptFaults): KeptReceipt => {
    checks.onUnproven?.(code, receiptFaults[code])
    return { ...kept(first), result: 'unproven', code }
  }
  if (keys.length === 0)
    return { ...kept(first), result: 'unchecked', ...(isLarge && { code: 'receipt_too_large' }) }
  if (isLarge) return unproven('receipt_too_large')
  const verdicts = paths.map((path) => judgeReceipt(checks, { ...answer, path }, keys, nowSeconds))
  const at = verdicts.findIndex(({ result }) => result === 'proven')
  if (at >= 0) return { ...kept(paths[at] ?? first), result: 'proven' }
  const [verdict] = verdicts
  return unproven(verdict?.result === 'unproven' ? verdict.code : 'receipt_invalid')
}

const text = z.optional(z.string())

/** `gateway` and `sent_at` prove nothing. */
export const ReceiptFile = z.object({
  schema: z.literal('proposer.receipt/1'),
  gateway: text,
  sent_at: text,
  request: z.object({
    method: z.string(),
    path: z.string(),
    content_digest: text,
    body: text,
  }),
  answer: z.object({
    status: z.int(),
    content_digest: text,
    signature_input: text,
    signature: text,
    body: z.string(),
  }),
})
export type ReceiptFile = z.infer<typeof ReceiptFile>

export const signedAnswerOf = ({ request, answer }: ReceiptFile): SignedAnswer => ({
  ...pick(request, 'method', 'path'),
  ...pick(answer, 'status', 'body', 'signature'),
  requestDigest: request.content_digest,
  contentDigest: answer.content_digest,
  signatureInput: answer.signature_input,
})

export interface ReceiptProof {
  readonly verdict: ReceiptVerdict
  /** `not_covered`: the request had no digest. */
  readonly bytes: 'same' | 'differ' | 'not_covered' | 'not_given'
  readonly claims: ReturnType<typeof claimsOf>
}

export const isHolding = ({ verdict, bytes }: ReceiptProof) =>
  verdict.result === 'proven' && bytes !== 'differ'

export function proveReceipt(
  checks: Omit<ReceiptChecks, 'onUnproven'>,
  answer: SignedAnswer,
  sha256: string | undefined,
): ReceiptProof {
  const verdict = judgeReceipt(checks, answer, checks.keys)
  const isCovered = verdict.result === 'proven' && verdict.coversRequest
  const bytes = !isCovered
    ? 'not_covered'
    : sha256 === undefined
      ? 'not_given'
      : digestSha256(answer.requestDigest ?? '') === sha256
        ? 'same'
        : 'differ'
  return { verdict, bytes, claims: claimsOf(answer) }
}

const textOf = (value: unknown) => (typeof value === 'string' ? value : null)
const jsonIn = (value: unknown) => objectOf(value) ?? {}

/** Of one proposal, or of each of a batch (spec §2.5, §2.7). */
function claimsOf({ status, body }: Pick<SignedAnswer, 'status' | 'body'>) {
  const answer = jsonIn(jsonOf(body))
  if (!Array.isArray(answer.results)) return [claimOf(status, answer, answer, null)]
  return answer.results.map((each: unknown) => {
    const item = jsonIn(each)
    const code = typeof item.status_code === 'number' ? item.status_code : 0
    return claimOf(code, jsonIn(item.candidate), item, textOf(item.client_ref))
  })
}

const claimOf = (
  status_code: number,
  candidate: Json,
  { error }: Json,
  client_ref: string | null,
) => ({
  client_ref,
  status_code,
  candidate_id: textOf(candidate.candidate_id),
  status: textOf(candidate.status),
  received_at: textOf(candidate.received_at),
  code: textOf(jsonIn(error).code),
})
