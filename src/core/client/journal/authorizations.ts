/**
 * Records of the journal (robustness §2), and where an authorization stands by them (contract §1).
 * Signatures are in `signed.body` only (R5).
 */
import * as z from 'zod/mini'
import { instant } from '#protocol/candidate'
import {
  ConflictError,
  StorageError,
  UnavailableError,
  UncertainError,
  UsageError,
} from '#protocol/errors'
import { Address, Bytes32, KeptReceipt, TypedData, Uint256 } from '#protocol/fields'
import { objectOf } from '#protocol/json'
import { answerText, outcomesNamed } from '#protocol/outcome-words'
import { pick } from '#protocol/pick'
import { conventionalLabel, outcomeOf } from '#protocol/proposal'
import { isCandidateId } from '#protocol/words'

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

/** Not told by a payload signed elsewhere. */
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
    candidate_id: z.string().check(z.refine(isCandidateId)),
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

/** Its gateway may tell capitals from small letters. */
export function spelledId({ candidate_id: id, answer }: Data['ack']) {
  const spelled = String(objectOf(answer)?.candidate_id)
  return spelled.toLowerCase() === id.toLowerCase() ? spelled : id
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
  if (record.kind !== 'attempt.end' || !record.data.receipt) return record
  const receipt = pick(record.data.receipt, 'method', 'path', 'status', 'result', 'code')
  return { ...record, data: { ...record.data, receipt } }
}

/** Without an `end` the process died: uncertain. */
export interface Attempt {
  readonly start: AttemptStart
  readonly startedAtMs: number
  readonly end?: AttemptEnd | undefined
  readonly receipt?: Pick<KeptReceipt, 'result' | 'code'> | undefined
}

export interface JournaledAuthorization {
  readonly id: string
  readonly signed: Signed
  readonly signedAtMs: number
  readonly attempts: readonly Attempt[]
  /** As the gateway spelt it; the newest of several. */
  readonly candidateId?: string | undefined
  readonly receivedAt?: string | undefined
  readonly terminal?: TerminalRecord | undefined
  readonly terminals: readonly TerminalRecord[]
  readonly terminalAtMs?: number | undefined
  readonly supersededBy?: string | undefined
}

/** It holds its question (R8) and its amount: the wallet may sign it. */
export interface Offer extends Pick<JournaledAuthorization, 'id' | 'terminals' | 'supersededBy'> {
  readonly offered: Offered
  readonly parts: readonly Pick<Data['safe.part'], 'owner' | 'signature'>[]
}

export type AuthorizationState =
  | { readonly kind: 'signed' }
  /** Sent, and no attempt can have been admitted. */
  | { readonly kind: 'deferred' }
  /** No id, and an attempt is uncertain. */
  | { readonly kind: 'unknown' }
  | { readonly kind: 'accepted'; readonly candidateId: string }
  /** 409, nothing uncertain and no id: reconcile. */
  | { readonly kind: 'conflict'; readonly code: string }
  | { readonly kind: 'closed'; readonly reason: ClosedReason; readonly code?: string | undefined }

export type ClosedReason = TerminalRecord['outcome'] | 'refused'

function closureOf(one: Recorded, nowMs: number): AuthorizationState | undefined {
  const end = one.terminals.find(closes)
  if (end) return { kind: 'closed', reason: end.outcome, code: end.code }
  // By the wall clock (contract §1).
  const endsAt = Number(journalRecordOf(one).terms.deadline) + 3600
  return nowMs / 1000 > endsAt ? { kind: 'closed', reason: 'expired' } : undefined
}

export function stateOf(authorization: JournaledAuthorization, nowMs: number): AuthorizationState {
  const { candidateId, attempts } = authorization
  const closure = closureOf(authorization, nowMs)
  if (closure) return closure
  if (candidateId !== undefined) return { kind: 'accepted', candidateId }
  if (attempts.length === 0) return { kind: 'signed' }
  const last = (kind: AttemptClass) => attempts.findLast((one) => classOf(one) === kind)
  if (last('uncertain')) return { kind: 'unknown' }
  const refusal = last('refused')
  if (refusal) return { kind: 'closed', reason: 'refused', code: refusal.end?.code }
  const conflict = last('reconcile')
  if (conflict) return { kind: 'conflict', code: conflict.end?.code ?? 'conflict' }
  return { kind: 'deferred' }
}

export type Recorded = JournaledAuthorization | Offer

export const journalRecordOf = (one: Recorded) => ('signed' in one ? one.signed : one.offered)

const standingOf = (one: Recorded, nowMs: number) =>
  'signed' in one ? stateOf(one, nowMs) : (closureOf(one, nowMs) ?? ({ kind: 'offered' } as const))

export const isOpen = (one: Recorded, nowMs: number) => standingOf(one, nowMs).kind !== 'closed'

export const isUnsettled = ({ candidateId, attempts }: JournaledAuthorization) =>
  candidateId === undefined && attempts.some((one) => classOf(one) === 'uncertain')

export const classOf = ({ end }: Pick<Attempt, 'end'>) => end?.class ?? 'uncertain'

export const closes = ({ outcome, retryable }: TerminalRecord) =>
  outcome !== 'failed' || retryable === false

/** `round`: where other questions may share it (domain §10). */
export interface Wanted
  extends Pick<Signed, 'questionId' | 'chainId' | 'round'>,
    Pick<Signed['terms'], 'proposer' | 'price'>,
    Readonly<Partial<Record<'amount' | 'nonce' | 'deadline', string | undefined>>> {
  /** At a requester that is meant (R3). */
  readonly mayBeAt?: ((record: Signed | Offered) => boolean) | undefined
}

type Whose = Omit<Wanted, 'price'>

export const isFor = (whose: Whose) => (record: Signed | Offered) =>
  (record.questionId === whose.questionId ||
    (whose.round !== undefined && record.round === whose.round)) &&
  record.terms.proposer === whose.proposer &&
  record.chainId === whose.chainId &&
  whose.mayBeAt?.(record) !== false

export const openFor = <T extends Recorded>(all: readonly T[], whose: Whose, nowMs: number) =>
  all.filter(
    (one) =>
      one.supersededBy === undefined && isFor(whose)(journalRecordOf(one)) && isOpen(one, nowMs),
  )

/** Without parsing a whole journal. */
export const signatureInBody = (body: string) =>
  /"signature"\s*:\s*"(0x[0-9a-f]*)"/i.exec(body)?.[1] ?? ''

type Answered = Pick<Signed, 'terms' | 'labels'>

export function labelOf({ terms, labels }: Answered) {
  const outcome = outcomeOf(terms.price)
  return (outcome && labels?.[outcome]) ?? null
}

export const questionOf = (record: Pick<Signed, 'title' | 'slug' | 'identifier'>) =>
  record.title ?? record.slug ?? record.identifier

export const answerOf = (record: Answered) =>
  answerText(outcomeOf(record.terms.price) ?? `price ${record.terms.price}`, labelOf(record))

export const executionOf = ({ terminals }: Recorded) =>
  terminals.find(({ outcome }) => outcome === 'executed')

export function executedText(one: JournaledAuthorization) {
  const end = executionOf(one)
  const where = end?.transaction_hash ? ` in ${end.transaction_hash}` : ''
  return end && `you proposed ${answerOf(one.signed)}: executed${where}`
}

export type Named = Partial<Pick<Signed, 'identifier' | 'timestamp' | 'labels'>> & {
  readonly questionId?: string | undefined
  readonly terms?: Pick<Signed['terms'], 'proposer' | 'price'>
}

/** Gateways may name it in an object of its own (§2.6). */
export function otherNamed(
  { questionId, identifier, timestamp, labels, terms }: Named,
  answer: Readonly<Record<string, unknown>>,
) {
  const outcome = terms && outcomeOf(terms.price)
  const isOutcome = (told: string) => {
    const named = [labels, conventionalLabel].map((words) => outcomesNamed(told, words))
    const meant = named.find((keys) => keys.length > 0)
    // Where labels are not known, a word may be one of them.
    return meant?.some((key) => key === outcome) ?? labels === undefined
  }
  const fields = {
    question_id: questionId,
    proposer: terms?.proposer,
    outcome,
    price: terms?.price,
    round_timestamp: timestamp,
  }
  const holders = [answer, answer.identity, answer.request, answer.proposal].map(objectOf)
  for (const [field, own] of Object.entries(fields))
    for (const [at, holder = {}] of holders.entries()) {
      // A timestamp of the answer itself may be of anything.
      const told = holder[field] ?? (field === 'round_timestamp' && at > 0 ? holder.timestamp : '')
      const isTold = told !== '' && ['string', 'number'].includes(typeof told)
      if (own === undefined || !isTold) continue
      const text = String(told).toLowerCase()
      const isSlug = field === 'question_id' && text === identifier
      if (field === 'outcome' ? !isOutcome(text) : text !== own && !isSlug) return { field, own }
    }
  return undefined
}

const differing = ({ terms }: Pick<Signed, 'terms'>, wanted: Wanted) =>
  (['amount', 'nonce', 'deadline'] as const).filter(
    (field) => wanted[field] !== undefined && wanted[field] !== terms[field],
  )

export function otherTerms(signed: Pick<Signed, 'terms'>, wanted: Wanted) {
  if (signed.terms.price !== wanted.price) return ''
  const fields = differing(signed, wanted).map(
    (field) => `${field} ${signed.terms[field]}, not ${wanted[field]}`,
  )
  return fields.length === 0 ? '' : `, with ${fields.join(' and ')}`
}

/** (contract §6) */
export const equalIntent = (
  { signed }: { readonly signed: Pick<Signed, 'terms' | 'questionId'> },
  wanted: Wanted,
) =>
  signed.questionId === wanted.questionId &&
  signed.terms.proposer === wanted.proposer &&
  signed.terms.price === wanted.price &&
  differing(signed, wanted).length === 0

export const unknownId = (id: string) =>
  new UsageError(
    'unknown_journal_id',
    `authorization ${JSON.stringify(id)} not found in the journal`,
    'see `proposer journal list`',
  )

/** Two of one round must never both be sent (R8). */
export function supersededError(one: Recorded) {
  const { id, supersededBy } = one
  if (!supersededBy) return undefined
  return new ConflictError(
    'superseded',
    `${id} was replaced by ${supersededBy} and is no longer sent`,
    `see both with \`proposer reconcile ${journalRecordOf(one).questionId}\`; \`proposer revoke ${id}\` makes sure that it can never execute`,
  )
}

export const nextOwner = ({ identifier, terms }: Offered) =>
  `proposer sign ${identifier} --outcome ${outcomeOf(terms.price)} --safe ${terms.proposer} --as-owner`

export interface OtherGateway {
  readonly origin: string
  readonly flag: string
}

export type Elsewhere = NonNullable<ReturnType<typeof sentElsewhere>>

/** Where it was accepted, else where its outcome is not known. */
export function otherGateway({ attempts }: JournaledAuthorization, here: string) {
  const accepted = attempts.filter((one) => classOf(one) === 'accepted')
  const holder =
    accepted.find(({ start }) => start.origin === here) ??
    accepted.at(-1) ??
    attempts.findLast((one) => classOf(one) === 'uncertain') ??
    attempts.at(-1)
  const origin = holder?.start.origin
  if (origin === undefined || origin === here) return undefined
  // The path of a base URL is not journaled (R5).
  return {
    origin,
    flag: origin.startsWith('local:') ? '--local <gateway.json>' : `--gateway ${origin}`,
  }
}

/** Exit 6 where the outcome is unknown, else 75 (contract §6, R7). */
export function sentElsewhere(authorization: JournaledAuthorization, here: string, nowMs: number) {
  const { kind } = stateOf(authorization, nowMs)
  const other = kind === 'closed' ? undefined : otherGateway(authorization, here)
  if (!other) return undefined
  const detail = `${authorization.id} was sent to ${other.origin}, which is not the configured gateway`
  const hint = `\`proposer replay ${authorization.id} ${other.flag}\``
  const Kind = kind === 'unknown' ? UncertainError : UnavailableError
  const error = new Kind('other_origin', detail, { hint, retryable: true })
  return { authorization, ...other, error }
}

export type OutOfBand = ReturnType<typeof outOfBandOf>

export function outOfBandOf({ signed, attempts, signedAtMs }: JournaledAuthorization) {
  const admitting = attempts.find((one) => ['uncertain', 'accepted'].includes(classOf(one)))
  return {
    questionId: signed.questionId,
    clientRef: signed.clientRef,
    /** Of the first that may have been admitted. */
    submittedAtMs: (admitting ?? attempts[0])?.startedAtMs ?? signedAtMs,
  }
}

export function outOfBandLine(authorization: JournaledAuthorization) {
  const { questionId, clientRef, submittedAtMs } = outOfBandOf(authorization)
  const ref = clientRef === undefined ? 'no client_ref' : `client_ref ${JSON.stringify(clientRef)}`
  return `the outcome of ${authorization.id} cannot be learned from here, its round has ended: ask the operator out of band about question ${questionId}, ${ref}, submitted at ${instant(submittedAtMs)} (never send the signature)`
}

/** No signature is part of it (R5). */
export function journalRow(one: Recorded, nowMs: number) {
  const record = journalRecordOf(one)
  const authorization = 'signed' in one ? one : undefined
  const { candidateId, receivedAt, signedAtMs, terminal, terminalAtMs } = authorization ?? {}
  const { proposer, price, amount, nonce, deadline } = record.terms
  return {
    journal_id: one.id,
    ...stateData(standingOf(one, nowMs)),
    question_id: record.questionId,
    identifier: record.identifier,
    title: record.title ?? null,
    client_ref: record.clientRef ?? null,
    chain_id: record.chainId,
    round: record.timestamp ?? null,
    proposer,
    outcome: outcomeOf(price) ?? null,
    label: labelOf(record),
    price,
    amount,
    token: record.token ?? null,
    nonce,
    deadline,
    digest: record.digest ?? null,
    candidate_id: candidateId ?? null,
    signed_at: instantOf(signedAtMs),
    received_at: receivedAt ?? null,
    ended_at: instantOf(terminalAtMs),
    transaction_hash: (authorization && (executionOf(one) ?? terminal)?.transaction_hash) ?? null,
    supersedes: record.supersedes ?? null,
    superseded_by: one.supersededBy ?? null,
    ...('parts' in one &&
      one.parts.length > 0 && { owners_signed: one.parts.map(({ owner }) => owner) }),
  }
}

type AnyState = Readonly<Record<'kind', string> & { [K in 'reason' | 'code']?: string | undefined }>

export const stateData = ({ kind, reason, code }: AnyState) => ({
  state: kind,
  reason: reason ?? null,
  code: code ?? null,
})

export const instantOf = (ms: number | undefined) => (ms === undefined ? null : instant(ms))

export const attemptRow = ({ start, startedAtMs, end, receipt }: Attempt) => ({
  started_at: instant(startedAtMs),
  origin: start.origin,
  class: classOf({ end }),
  http_status: end?.status ?? null,
  code: end?.code ?? null,
  receipt: receipt ? { result: receipt.result, code: receipt.code ?? null } : null,
})
