import * as z from 'zod/mini'
import type { Ed25519, Hash } from '#ports'
import { jsonOf } from './capped.js'
import { type Json, objectOf } from './json.js'
import {
  digestSha256,
  judgeReceipt,
  type ReceiptKey,
  type ReceiptVerdict,
  receiptFaults,
  type SignedAnswer,
} from './receipt.js'

/** Answers beyond this are not kept: a line of a journal has a bound (robustness §2). */
const maxKeptBody = 128 * 1024

/** `unchecked`: no key was pinned. The body is absent where it was too large. */
export const KeptReceipt = z.object({
  method: z.string(),
  path: z.string(),
  status: z.int(),
  requestDigest: z.optional(z.string()),
  contentDigest: z.optional(z.string()),
  signatureInput: z.optional(z.string()),
  signature: z.optional(z.string()),
  body: z.optional(z.string()),
  result: z.enum(['proven', 'unproven', 'unchecked']),
  code: z.optional(z.string()),
})
export type KeptReceipt = z.infer<typeof KeptReceipt>

export interface ReceiptChecks {
  readonly hash: Hash
  readonly ed25519: Pick<Ed25519, 'verify'>
  readonly keys: readonly ReceiptKey[]
  /** Where keys are pinned, and an answer that should be signed by one of them proves nothing. */
  readonly onUnproven?: ((code: string, detail: string) => void) | undefined
}

/**
 * `paths`: as the gateway may have seen it, with and without the path of the base URL.
 * `undefined` where there is nothing to keep.
 */
export function keepReceipt(
  checks: ReceiptChecks,
  answer: Omit<SignedAnswer, 'path'>,
  paths: readonly string[],
  nowSeconds: number,
): KeptReceipt | undefined {
  const { hash, ed25519, keys } = checks
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
  const verdicts = paths.map((path) =>
    judgeReceipt({ hash, ed25519 }, { ...answer, path }, keys, nowSeconds),
  )
  const at = verdicts.findIndex(({ result }) => result === 'proven')
  if (at >= 0) return { ...kept(paths[at] ?? first), result: 'proven' }
  const [verdict] = verdicts
  return unproven(verdict?.result === 'unproven' ? verdict.code : 'receipt_invalid')
}

/** A receipt for others: what was sent, what was answered. `gateway` and `sent_at` prove nothing. */
export const ReceiptFile = z.object({
  schema: z.literal('proposer.receipt/1'),
  gateway: z.optional(z.string()),
  sent_at: z.optional(z.string()),
  request: z.object({
    method: z.string(),
    path: z.string(),
    content_digest: z.optional(z.string()),
    body: z.optional(z.string()),
  }),
  answer: z.object({
    status: z.int(),
    content_digest: z.optional(z.string()),
    signature_input: z.optional(z.string()),
    signature: z.optional(z.string()),
    body: z.string(),
  }),
})
export type ReceiptFile = z.infer<typeof ReceiptFile>

export const signedAnswerOf = ({ request, answer }: ReceiptFile): SignedAnswer => ({
  method: request.method,
  path: request.path,
  status: answer.status,
  body: answer.body,
  requestDigest: request.content_digest,
  contentDigest: answer.content_digest,
  signatureInput: answer.signature_input,
  signature: answer.signature,
})

export interface AdmissionClaim {
  readonly client_ref: string | null
  readonly status_code: number
  readonly candidate_id: string | null
  readonly status: string | null
  readonly received_at: string | null
  readonly code: string | null
}

export interface ReceiptProof {
  readonly verdict: ReceiptVerdict
  /** `not_covered`: the request had no digest; `not_given`: nobody has said which they are. */
  readonly bytes: 'same' | 'differ' | 'not_covered' | 'not_given'
  readonly claims: readonly AdmissionClaim[]
}

export const isHolding = ({ verdict, bytes }: ReceiptProof) =>
  verdict.result === 'proven' && bytes !== 'differ'

export function proveReceipt(
  { hash, ed25519, keys }: Omit<ReceiptChecks, 'onUnproven'>,
  answer: SignedAnswer,
  sha256: string | undefined,
): ReceiptProof {
  const verdict = judgeReceipt({ hash, ed25519 }, answer, keys)
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

/** What the body says: of one proposal, or of each of a batch (spec §2.5, §2.7). */
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
