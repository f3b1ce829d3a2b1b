/** Records of the journal (robustness §2). Signatures are in `signed.body` only (R5). */
import * as z from 'zod/mini'
import { StorageError } from '#protocol/errors'
import { KeptReceipt } from '#protocol/receipt'
import { Address, Bytes32, TypedData, Uint256 } from '#protocol/schema'
import { patterns } from '#protocol/words'

/** What only a chain can tell of an authorization before it is signed (robustness §6). */
export const chainChecks = [
  'round',
  'bond',
  'nonce',
  'balance',
  'allowance',
  'implementations',
] as const
export type ChainCheck = (typeof chainChecks)[number]

export const uncheckedOf = (record: {
  readonly unchecked?: readonly ChainCheck[] | undefined
}): readonly ChainCheck[] => record.unchecked ?? chainChecks

/** `<12 hex of the run>-<number>`: short, stable, ours. */
const journalId = z.string().check(z.regex(/^[0-9a-f]{12}-[1-9]\d{0,8}$/))

const attemptClass = z.enum(['accepted', 'refused', 'deferred', 'reconcile', 'uncertain'])
export type AttemptClass = z.infer<typeof attemptClass>

const unchecked = z.optional(z.array(z.enum(chainChecks)))

const form = z.enum(['single', 'batch'])
export type Form = z.infer<typeof form>

const terms = z.object({
  proposer: Address,
  price: Uint256,
  amount: Uint256,
  nonce: Uint256,
  deadline: Uint256,
})

/** What was wanted, before anything is signed. `supersedes` is an override of R8. */
const intent = z.object({
  id: journalId,
  identifier: z.string(),
  questionId: Bytes32,
  terms,
  supersedes: z.optional(journalId),
})

/** A Permit2 nonce taken for good (R6), a decimal string. */
const nonceReserved = z.object({ id: journalId, proposer: Address, nonce: Uint256 })

const authorizes = {
  id: journalId,
  identifier: z.string(),
  questionId: Bytes32,
  chainId: z.int().check(z.minimum(1)),
  /** Absent in records of 0.1 and of payloads signed elsewhere. */
  requester: z.optional(Address),
  clientRef: z.optional(z.string()),
  /** For people; earlier versions read over it, as over `slug`. */
  title: z.optional(z.string()),
  /** By the sheet that it came from. */
  slug: z.optional(z.string()),
  terms,
  /** As `requester`. */
  labels: z.optional(z.object({ p1: z.string(), p2: z.string(), p3: z.string() })),
  supersedes: z.optional(journalId),
  unchecked,
  rules: z.optional(Bytes32),
  /** It may fall, and the signature does not cover it (domain §10). */
  reward: z.optional(Uint256),
}

/**
 * Typed data given to a wallet outside, which may sign it: it keeps its nonce and question until
 * it can no longer execute.
 */
const offered = z.object({
  ...authorizes,
  timestamp: Uint256,
  round: z.string(),
  digest: Bytes32,
  token: Address,
  spender: Address,
  typedData: TypedData,
  offeredAtMs: z.number(),
})
export type Offered = z.infer<typeof offered>

/** It authorizes nothing by itself, and is secret like a signature (R5). */
const safePart = z.object({
  id: journalId,
  owner: Address,
  signature: z.templateLiteral(['0x', z.string().check(z.regex(/^[0-9a-f]{130}$/))]),
})

/** What is optional is absent of a payload signed elsewhere. */
const signed = z.object({
  ...authorizes,
  timestamp: z.optional(Uint256),
  /** Key of the round (R3). */
  round: z.optional(z.string()),
  digest: z.optional(Bytes32),
  token: z.optional(Address),
  spender: z.optional(Address),
  /** Payload identity (R22). */
  identity: z.string(),
  form,
  body: z.string(),
  sha256: z.string(),
  signedAtMs: z.number(),
})
export type Signed = z.infer<typeof signed>

/** Durable before connect (R4). `body`: where it is not `signed.body`. */
const attemptStart = z.object({
  attempt: z.string(),
  ids: z.array(journalId).check(z.minLength(1)),
  origin: z.string(),
  form,
  sha256: z.string(),
  body: z.optional(z.string()),
  /** `--resume` finishes exactly this input. */
  batch: z.optional(z.string()),
})
export type AttemptStart = z.infer<typeof attemptStart>

const attemptEnd = z.object({
  id: journalId,
  class: attemptClass,
  status: z.optional(z.int()),
  code: z.optional(z.string()),
})
export type AttemptEnd = z.infer<typeof attemptEnd>

/**
 * The gateway's own words, '' for none (contract §9). `candidate_id` in lower case: version 0.1
 * reads no other.
 */
const ack = z.object({
  id: journalId,
  candidate_id: z.string().check(z.regex(new RegExp(patterns.uuid, 'i'))),
  status: z.string(),
  received_at: z.string(),
  replayed: z.boolean(),
  answer: z.optional(z.unknown()),
})

/** As its gateway spelt it: its routes may tell capitals from small letters. */
export function spelledId({ candidate_id: id, answer }: z.infer<typeof ack>) {
  const spelled =
    typeof answer === 'object' && answer !== null && 'candidate_id' in answer
      ? answer.candidate_id
      : undefined
  return typeof spelled === 'string' && spelled.toLowerCase() === id.toLowerCase() ? spelled : id
}

const terminal = z.object({
  id: journalId,
  outcome: z.enum(['executed', 'failed', 'nonce_used', 'expired']),
  code: z.optional(z.string()),
  retryable: z.optional(z.boolean()),
  transaction_hash: z.optional(z.nullable(Bytes32)),
  event_index: z.optional(z.nullable(z.int().check(z.minimum(0)))),
  /** The status that reported the end, where its own word did not. */
  answer: z.optional(z.unknown()),
})
export type TerminalRecord = z.infer<typeof terminal>

const attemptEnded = z.object({
  attempt: z.string(),
  results: z.array(attemptEnd).check(z.minLength(1)),
  /** What makes the answer prove itself; earlier versions read over it. */
  receipt: z.optional(KeptReceipt),
})
export type AttemptEndRecord = z.infer<typeof attemptEnded>

const recordShapes = {
  intent,
  'nonce.reserved': nonceReserved,
  offered,
  'safe.part': safePart,
  signed,
  'attempt.start': attemptStart,
  'attempt.end': attemptEnded,
  ack,
  terminal,
  abandoned: z.object({ id: journalId, reason: z.string() }),
} as const
type Shapes = typeof recordShapes

type JournalKind = keyof Shapes
export type JournalEntry = {
  [K in JournalKind]: { readonly kind: K; readonly data: z.infer<Shapes[K]> }
}[JournalKind]
/** What is read back; `timeMs` is Unix milliseconds and orders nothing. */
export type JournalRecord = JournalEntry & { readonly timeMs: number }

export const isJournalKind = (kind: string): kind is JournalKind =>
  Object.hasOwn(recordShapes, kind)

/** `undefined`: of another kind. */
export function readRecord(
  kind: string,
  data: unknown,
  timeMs: number,
  where: string,
): JournalRecord | undefined {
  if (!isJournalKind(kind)) return undefined
  const read = recordShapes[kind].safeParse(data)
  if (read.success) return { kind, data: read.data, timeMs } as JournalRecord
  throw new StorageError(
    'journal_damaged',
    `${where}: a ${kind} record is malformed`,
    'restore the journal folder from a backup; until then do not sign again for its questions',
  )
}

/** Of a receipt only how it was judged (R17). */
export function withoutReceiptBytes<T extends JournalEntry>(record: T): T {
  if (record.kind !== 'attempt.end' || record.data.receipt === undefined) return record
  const { method, path, status, result, code } = record.data.receipt
  const receipt = { method, path, status, result, ...(code !== undefined && { code }) }
  return { ...record, data: { ...record.data, receipt } }
}
