/**
 * The shapes of the journal's records once more, as schemas: what the plain readers of records.ts
 * are held against.
 */
import { z } from 'zod'
import { chainChecks, type JournalKind } from '../../src/core/client/journal/records.js'
import { TypedData } from '../../src/core/protocol/schema-signing.js'
import { Address, Bytes32, Uint256 } from '../../src/core/protocol/schema-words.js'
import { patterns } from '../../src/core/protocol/words.js'

const JournalId = z.string().regex(/^[0-9a-f]{12}-[1-9]\d{0,8}$/)

const AttemptClass = z.enum(['accepted', 'refused', 'deferred', 'reconcile', 'uncertain'])

const Unchecked = z.array(z.enum(chainChecks))

const Form = z.enum(['single', 'batch'])

const Terms = z.object({
  proposer: Address,
  price: Uint256,
  amount: Uint256,
  nonce: Uint256,
  deadline: Uint256,
})

const Intent = z.object({
  id: JournalId,
  identifier: z.string(),
  questionId: Bytes32,
  terms: Terms,
  supersedes: JournalId.optional(),
})

const NonceReserved = z.object({ id: JournalId, proposer: Address, nonce: Uint256 })

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

const Signed = z.object({
  id: JournalId,
  identifier: z.string(),
  questionId: Bytes32,
  chainId: z.int().min(1),
  timestamp: Uint256.optional(),
  round: z.string().optional(),
  digest: Bytes32.optional(),
  token: Address.optional(),
  spender: Address.optional(),
  clientRef: z.string().optional(),
  terms: Terms,
  identity: z.string(),
  form: Form,
  body: z.string(),
  sha256: z.string(),
  signedAtMs: z.number(),
  supersedes: JournalId.optional(),
  unchecked: Unchecked.optional(),
})

const AttemptStart = z.object({
  attempt: z.string(),
  ids: z.array(JournalId).min(1),
  origin: z.string(),
  form: Form,
  sha256: z.string(),
  body: z.string().optional(),
  batch: z.string().optional(),
})

const AttemptEnd = z.object({
  id: JournalId,
  class: AttemptClass,
  status: z.int().optional(),
  code: z.string().optional(),
})
const AttemptEnds = z.object({ attempt: z.string(), results: z.array(AttemptEnd).min(1) })

const Ack = z.object({
  id: JournalId,
  candidate_id: z.string().regex(new RegExp(patterns.uuid, 'i')),
  status: z.string(),
  received_at: z.string(),
  replayed: z.boolean(),
  answer: z.unknown().optional(),
})

const Terminal = z.object({
  id: JournalId,
  outcome: z.enum(['executed', 'failed', 'nonce_used', 'expired']),
  code: z.string().optional(),
  retryable: z.boolean().optional(),
  transaction_hash: Bytes32.nullable().optional(),
  event_index: z.int().min(0).nullable().optional(),
  answer: z.unknown().optional(),
})

const Abandoned = z.object({ id: JournalId, reason: z.string() })

/** By kind. */
export const recordSchemas = {
  intent: Intent,
  'nonce.reserved': NonceReserved,
  offered: Offered,
  signed: Signed,
  'attempt.start': AttemptStart,
  'attempt.end': AttemptEnds,
  ack: Ack,
  terminal: Terminal,
  abandoned: Abandoned,
} as const satisfies Record<JournalKind, z.ZodType>
