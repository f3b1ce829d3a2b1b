/**
 * Records of the client's journal (robustness §2, Journal). Signatures are in `signed.body` only; they leave by explicit reveal (R5).
 */
import { z } from 'zod'
import { StorageError } from '../../protocol/errors.js'
import { TypedData } from '../../protocol/schema-signing.js'
import { Address, Bytes32, Uint256, Uuid } from '../../protocol/schema-words.js'

/** `<12 hex of the run>-<number>`: short, stable, ours. */
export const JournalId = z.string().regex(/^[0-9a-f]{12}-[1-9]\d{0,8}$/)

/** What an attempt can have done (robustness §6): see `classify`. */
export const AttemptClass = z.enum(['accepted', 'refused', 'deferred', 'reconcile', 'uncertain'])
export type AttemptClass = z.infer<typeof AttemptClass>

/** What only a chain can tell of an authorization before it is signed (robustness §6). */
export const chainChecks = ['round', 'bond', 'nonce', 'balance', 'allowance'] as const
const Unchecked = z.array(z.enum(chainChecks))
export type ChainCheck = (typeof chainChecks)[number]

/** What no chain had confirmed when this was signed or given out; a record that does not say counts as all of it. */
export const uncheckedOf = (record: { readonly unchecked?: readonly ChainCheck[] | undefined }): readonly ChainCheck[] =>
  record.unchecked ?? chainChecks

const Form = z.enum(['single', 'batch'])
export type Form = z.infer<typeof Form>

const Terms = z.object({ proposer: Address, price: Uint256, amount: Uint256, nonce: Uint256, deadline: Uint256 })

/** What was wanted, before anything is signed. `supersedes` is an override of R8. */
const Intent = z.object({ id: JournalId, identifier: z.string(), questionId: Bytes32, terms: Terms, supersedes: JournalId.optional() })
export type Intent = z.infer<typeof Intent>

/** A Permit2 nonce taken for good (R6), a decimal string. */
const NonceReserved = z.object({ id: JournalId, proposer: Address, nonce: Uint256 })
export type NonceReserved = z.infer<typeof NonceReserved>

/**
 * Typed data that was given to a wallet outside (robustness §2, Journal): whoever holds it may sign, so it keeps its nonce and its
 * question until its signature is here, it is abandoned, or it can no longer execute. Everything of a `signed` but the bytes.
 */
const Offered = z.object({
  id: JournalId,
  identifier: z.string(),
  questionId: Bytes32,
  chainId: z.int().min(1),
  timestamp: Uint256,
  round: z.string(),
  digest: Bytes32,
  token: Address,
  spender: Address,
  clientRef: z.string().optional(),
  terms: Terms,
  typedData: TypedData,
  offeredAtMs: z.number(),
  supersedes: JournalId.optional(),
  unchecked: Unchecked.optional(),
})
export type Offered = z.infer<typeof Offered>

/** The bytes that may be sent, exactly. `round` and `digest` are absent where a payload was signed elsewhere. */
const Signed = z.object({
  id: JournalId,
  identifier: z.string(),
  questionId: Bytes32,
  chainId: z.int().min(1),
  /** Timestamp of the round that the witness names; decimal string of Unix seconds. */
  timestamp: Uint256.optional(),
  /** Key of the round (R3). */
  round: z.string().optional(),
  digest: Bytes32.optional(),
  token: Address.optional(),
  spender: Address.optional(),
  clientRef: z.string().optional(),
  terms: Terms,
  /** Payload identity (R22). */
  identity: z.string(),
  form: Form,
  /** Request body of the single route, or the item of a batch. */
  body: z.string(),
  sha256: z.string(),
  signedAtMs: z.number(),
  supersedes: JournalId.optional(),
  unchecked: Unchecked.optional(),
})
export type Signed = z.infer<typeof Signed>

/** Durable before connect (R4). `origin`: `local:<store id>` or the origin of the base URL. `body` only where it is not `signed.body`. */
const AttemptStart = z.object({
  attempt: z.string(),
  ids: z.array(JournalId).min(1),
  origin: z.string(),
  form: Form,
  sha256: z.string(),
  body: z.string().optional(),
  /** Fingerprint of the batch input that the items come from: `--resume` finishes exactly that one. */
  batch: z.string().optional(),
})
export type AttemptStart = z.infer<typeof AttemptStart>

const AttemptEnd = z.object({
  id: JournalId,
  class: AttemptClass,
  status: z.int().optional(),
  code: z.string().optional(),
})
export type AttemptEnd = z.infer<typeof AttemptEnd>
const AttemptEnds = z.object({ attempt: z.string(), results: z.array(AttemptEnd).min(1) })

const Ack = z.object({ id: JournalId, candidate_id: Uuid, status: z.string(), received_at: z.string(), replayed: z.boolean() })
export type Ack = z.infer<typeof Ack>

/** The end of an authorization: of its candidate, or by finalized chain state. */
const Terminal = z.object({
  id: JournalId,
  outcome: z.enum(['executed', 'failed', 'nonce_used', 'expired']),
  code: z.string().optional(),
  retryable: z.boolean().optional(),
  transaction_hash: Bytes32.nullable().optional(),
  /** Log index of the ProposePrice in its block. */
  event_index: z.int().min(0).nullable().optional(),
})
export type Terminal = z.infer<typeof Terminal>

/** An intent that will not be signed. */
const Abandoned = z.object({ id: JournalId, reason: z.string() })

const schemas = {
  intent: Intent,
  'nonce.reserved': NonceReserved,
  offered: Offered,
  signed: Signed,
  'attempt.start': AttemptStart,
  'attempt.end': AttemptEnds,
  ack: Ack,
  terminal: Terminal,
  abandoned: Abandoned,
} as const
type Schemas = typeof schemas

export type JournalKind = keyof Schemas
/** What is appended. */
export type JournalEntry = { [K in JournalKind]: { readonly kind: K; readonly data: z.infer<Schemas[K]> } }[JournalKind]
/** What is read back; `timeMs` is Unix milliseconds and orders nothing. */
export type JournalRecord = JournalEntry & { readonly timeMs: number }

export const isJournalKind = (kind: string): kind is JournalKind => Object.hasOwn(schemas, kind)

/** A stored record as its kind, or StorageError `journal_damaged` where its checksum held but its shape does not. */
export function readRecord(kind: string, data: unknown, timeMs: number, where: string): JournalRecord | undefined {
  // The log lets only known kinds and `x-` ones through; the latter are for later versions.
  if (!isJournalKind(kind)) return undefined
  const parsed = schemas[kind].safeParse(data)
  if (!parsed.success) {
    throw new StorageError('journal_damaged', `${where}: a ${kind} record does not have its shape`, {
      hint: 'restore the journal folder from a backup, and do not sign again for the questions in it before that',
    })
  }
  return { kind, data: parsed.data, timeMs } as JournalRecord
}
