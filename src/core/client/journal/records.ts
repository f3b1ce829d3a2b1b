/** Records of the journal (robustness §2). Signatures are in `signed.body` only (R5). */
import * as z from 'zod/mini'
import { StorageError } from '#protocol/errors'
import { Address, Bytes32, TypedData, Uint256 } from '#protocol/fields'
import { objectOf } from '#protocol/json'
import { pick } from '#protocol/pick'
import { KeptReceipt } from '#protocol/receipt'
import { patterns } from '#protocol/words'

/** What only a chain can tell before a signature (robustness §6). */
export const chainChecks = [
  'round',
  'bond',
  'nonce',
  'balance',
  'allowance',
  'implementations',
] as const
export type ChainCheck = (typeof chainChecks)[number]

/** `<run>-<number>` */
const journalId = z.string().check(z.regex(/^[0-9a-f]{12}-[1-9]\d{0,8}$/))

const form = z.enum(['single', 'batch'])

const attemptEnd = z.object({
  id: journalId,
  class: z.enum(['accepted', 'refused', 'deferred', 'reconcile', 'uncertain']),
  status: z.optional(z.int()),
  code: z.optional(z.string()),
})

const terms = z.object({
  proposer: Address,
  price: Uint256,
  amount: Uint256,
  nonce: Uint256,
  deadline: Uint256,
})

const authorizes = {
  id: journalId,
  identifier: z.string(),
  questionId: Bytes32,
  chainId: z.int().check(z.minimum(1)),
  /** Absent in records of 0.1 and of payloads signed elsewhere. */
  requester: z.optional(Address),
  clientRef: z.optional(z.string()),
  title: z.optional(z.string()),
  slug: z.optional(z.string()),
  terms,
  labels: z.optional(z.object({ p1: z.string(), p2: z.string(), p3: z.string() })),
  /** An override of R8. */
  supersedes: z.optional(journalId),
  unchecked: z.optional(z.array(z.enum(chainChecks))),
  rules: z.optional(Bytes32),
  /** Not signed, and may fall (domain §10). */
  reward: z.optional(Uint256),
}

/** What a payload that was signed elsewhere does not tell. */
const ofContext = z.object({
  timestamp: Uint256,
  /** Key of the round (R3). */
  round: z.string(),
  digest: Bytes32,
  token: Address,
  spender: Address,
})

const recordShapes = {
  intent: z.object({
    id: journalId,
    identifier: z.string(),
    questionId: Bytes32,
    terms,
    supersedes: z.optional(journalId),
  }),
  'nonce.reserved': z.object({ id: journalId, proposer: Address, nonce: Uint256 }),
  /** A wallet outside may sign it: it holds nonce and question. */
  offered: z.object({
    ...authorizes,
    ...ofContext.shape,
    typedData: TypedData,
    offeredAtMs: z.number(),
  }),
  /** Secret like a whole signature (R5). */
  'safe.part': z.object({
    id: journalId,
    owner: Address,
    signature: z.templateLiteral(['0x', z.string().check(z.regex(/^[0-9a-f]{130}$/))]),
  }),
  signed: z.object({
    ...authorizes,
    ...z.partial(ofContext).shape,
    /** Payload identity (R22). */
    identity: z.string(),
    form,
    body: z.string(),
    sha256: z.string(),
    signedAtMs: z.number(),
  }),
  /** Durable before connect (R4). `body`: where it is not `signed.body`. */
  'attempt.start': z.object({
    attempt: z.string(),
    ids: z.array(journalId).check(z.minLength(1)),
    origin: z.string(),
    form,
    sha256: z.string(),
    body: z.optional(z.string()),
    /** `--resume` finishes exactly this input. */
    batch: z.optional(z.string()),
  }),
  'attempt.end': z.object({
    attempt: z.string(),
    results: z.array(attemptEnd).check(z.minLength(1)),
    receipt: z.optional(KeptReceipt),
  }),
  /** The gateway's words (contract §9); the id in lower case: version 0.1 reads no other. */
  ack: z.object({
    id: journalId,
    candidate_id: z.string().check(z.regex(new RegExp(patterns.uuid, 'i'))),
    status: z.string(),
    received_at: z.string(),
    replayed: z.boolean(),
    answer: z.optional(z.unknown()),
  }),
  terminal: z.object({
    id: journalId,
    outcome: z.enum(['executed', 'failed', 'nonce_used', 'expired']),
    code: z.optional(z.string()),
    retryable: z.optional(z.boolean()),
    transaction_hash: z.optional(z.nullable(Bytes32)),
    event_index: z.optional(z.nullable(z.int().check(z.minimum(0)))),
    answer: z.optional(z.unknown()),
  }),
  abandoned: z.object({ id: journalId, reason: z.string() }),
} as const

type Shapes = typeof recordShapes
type JournalKind = keyof Shapes
type Data = { readonly [K in JournalKind]: z.infer<Shapes[K]> }
export type Offered = Data['offered']
export type Signed = Data['signed']
export type Form = Signed['form']
export type AttemptStart = Data['attempt.start']
export type AttemptEndRecord = Data['attempt.end']
export type AttemptEnd = AttemptEndRecord['results'][number]
export type AttemptClass = AttemptEnd['class']
export type TerminalRecord = Data['terminal']
export type JournalEntry = {
  [K in JournalKind]: { readonly kind: K; readonly data: Data[K] }
}[JournalKind]
/** `timeMs` orders nothing (R13). */
export type JournalRecord = JournalEntry & { readonly timeMs: number }

export const uncheckedOf = ({ unchecked }: Pick<Signed, 'unchecked'>) => unchecked ?? chainChecks

/** Routes of its gateway may tell capitals from small letters. */
export function spelledId({ candidate_id: id, answer }: Data['ack']) {
  const spelled = objectOf(answer)?.candidate_id
  return typeof spelled === 'string' && spelled.toLowerCase() === id.toLowerCase() ? spelled : id
}

export const isJournalKind = (kind: string): kind is JournalKind =>
  Object.hasOwn(recordShapes, kind)

export function readRecord(kind: string, data: unknown, timeMs: number, where: string) {
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
  const receipt = pick(record.data.receipt, 'method', 'path', 'status', 'result', 'code')
  return { ...record, data: { ...record.data, receipt } }
}
