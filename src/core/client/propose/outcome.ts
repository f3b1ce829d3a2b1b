/** How a submission ended, the error that a command throws for it (contract §6), and ends of rounds. */

import {
  ConflictError,
  InterruptedError,
  ProposerError,
  RejectedError,
  reworded,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
} from '#protocol/errors'
import { once } from '#protocol/once'
import { outcomeOf } from '#protocol/proposal'
import { shellWord } from '#protocol/text'
import { endOf } from '../follow/look.js'
import {
  type Answer,
  answerError,
  certificateCode,
  certificateHint,
  isAborted,
  type Unaccepted,
} from '../gateway/answer.js'
import type { GatewayClient } from '../gateway/gateway-client.js'
import type { Acknowledged } from '../gateway/reading.js'
import type { BatchRow } from '../input/input.js'
import {
  isUnsettled,
  type JournaledAuthorization,
  type OtherGateway,
  type OutOfBand,
  outOfBandLine,
  outOfBandOf,
  sentElsewhere,
  stateOf,
  supersededError,
} from '../journal/authorizations.js'
import type { Journal, JournalPorts } from '../journal/journal.js'
import type { Form } from '../journal/records.js'
import type { ContextSource } from '../trust/context.js'
import { atRequester, mayBeAt, type Trust } from '../trust/trust.js'

export interface SubmitParts {
  readonly ports: JournalPorts
  readonly journal: Journal
  readonly gateway: GatewayClient
}

/** Accepted with an error: another gateway holds the candidate. */
export interface RowOutcome {
  readonly outcome: 'accepted' | 'replayed' | 'rejected' | 'unknown' | 'deferred'
  readonly statusCode: number | null
  readonly authorization?: JournaledAuthorization | undefined
  /** `asOf`: whose word it is. */
  readonly candidate?: {
    readonly candidateId: string
    readonly status: string
    readonly receivedAt: string
    readonly asOf: 'answer' | 'journal'
  }
  readonly error?: ProposerError | undefined
  /** Not sent to this gateway (contract §6). */
  readonly elsewhere?: OtherGateway | undefined
  readonly outOfBand?: OutOfBand | undefined
}

export interface SentOutcome extends RowOutcome {
  readonly authorization: JournaledAuthorization
}

/** Where it settles nothing, the same bytes are tried again. */
export type Unsettling = Extract<Unaccepted, { kind: 'deferred' | 'uncertain' }>

/** `uncertain`: an attempt may have been admitted, which a 409 settles and a refusal does not. */
export function settledBy(
  authorization: JournaledAuthorization,
  answer: Answer<Acknowledged>,
  uncertain: boolean,
) {
  if (answer.kind === 'accepted') {
    const { candidate_id: candidateId, status, received_at: receivedAt } = answer.value
    const candidate = { candidateId, status, receivedAt, asOf: 'answer' } as const
    return { ...acknowledged(answer.httpStatus, candidate), authorization }
  }
  const { kind, code, detail, httpStatus } = answer
  const { id, signed, candidateId } = authorization
  if (kind === 'uncertain' && code === 'candidate_mismatch') {
    const hint = `do not trust this gateway until the operator has explained it; then \`proposer replay ${id}\` sends the same bytes`
    const error = new ConflictError(code, `${id}: ${detail}`, { httpStatus, hint })
    return notAccepted(authorization, error, 'unknown')
  }
  if (kind === 'uncertain' || kind === 'deferred') return undefined
  if (kind === 'refused' && uncertain) return unknownOutcome(authorization, answer)
  const refusal = answerError(answer, 'submit', signed.questionId)
  if (candidateId === undefined) return notAccepted(authorization, refusal)
  // No other sending of what has a candidate is a reason to sign again (R7, R8).
  const again = `${admitted(authorization)}; sent again, the same bytes were refused: ${detail}`
  const meta = { ...refusal.meta, hint: goOn(authorization) }
  return notAccepted(authorization, reworded(refusal, again, meta))
}

const acknowledged = (statusCode: 200 | 202, candidate: NonNullable<RowOutcome['candidate']>) =>
  ({ outcome: statusCode === 202 ? 'accepted' : 'replayed', statusCode, candidate }) as const

const wordOf = (error: ProposerError) =>
  error instanceof UncertainError
    ? 'unknown'
    : error instanceof UnavailableError
      ? 'deferred'
      : 'rejected'

export const notAccepted = (
  authorization: JournaledAuthorization,
  error: ProposerError,
  outcome: RowOutcome['outcome'] = wordOf(error),
): SentOutcome => ({
  ...{ outcome, statusCode: error.meta.httpStatus ?? null, authorization, error },
  // An earlier run's acknowledgement stands (contract §1).
  ...(outcome === 'deferred' && candidateInJournal(authorization)),
})

/** Without `last` it was not sent by this run. */
export function unknownOutcome(authorization: JournaledAuthorization, last?: Unaccepted) {
  const { id } = authorization
  const [how, resume] = last
    ? [`: an attempt got no clear response (last: ${last.detail}); do not sign again`, '']
    : [' by an earlier attempt, and could not be asked about now', '--resume, or with ']
  const hint = `send the same bytes again with ${resume}\`proposer replay ${id}\``
  const meta = { hint, retryable: true, httpStatus: last?.httpStatus }
  const detail = `${id} may have been admitted${how}`
  return notAccepted(authorization, new UncertainError('outcome_unknown', detail, meta))
}

export function deferredOutcome(authorization: JournaledAuthorization, last: Unsettling) {
  const { code, retryAfterMs, httpStatus } = last
  const later = retryAfterMs ? ` in ${Math.ceil(retryAfterMs / 1_000)} seconds` : ' later'
  const again = authorization.candidateId === undefined ? '' : '; sent again, it was deferred'
  const mending = code === certificateCode ? `${certificateHint}. Then ` : ''
  const detail = `${admitted(authorization)}${again}: ${last.detail}`
  const hint = `${mending}${goOn(authorization, later)}`
  return notAccepted(
    authorization,
    new UnavailableError(code, detail, { hint, httpStatus, retryAfterMs }),
  )
}

const admitted = ({ id, candidateId }: JournaledAuthorization) =>
  candidateId === undefined
    ? `${id} was not admitted`
    : `${id} is admitted already as ${candidateId}`
const goOn = ({ id, candidateId }: JournaledAuthorization, later = '') =>
  candidateId === undefined
    ? `the same command, or \`proposer replay ${id}\`, sends the same bytes${later}`
    : `follow its candidate with \`proposer poll ${candidateId}\``

export function stoppedOutcome(authorization: JournaledAuthorization, why: unknown) {
  const reason = why instanceof ProposerError ? why.detail : 'stopped'
  const detail = `${reason}; ${admitted(authorization)}`
  const meta = { hint: goOn(authorization), retryable: true }
  return notAccepted(authorization, new InterruptedError('interrupted', detail, meta), 'deferred')
}

export const refusedHere = (row: BatchRow, error: ProposerError, form?: Form): RowOutcome => ({
  outcome: wordOf(error),
  statusCode: error.meta.httpStatus ?? null,
  error: form === 'single' ? error : asItemError(row, error),
})

function candidateInJournal(authorization: JournaledAuthorization) {
  const { candidateId, attempts, terminal, receivedAt = '' } = authorization
  if (candidateId === undefined) return undefined
  const end = terminal?.outcome
  // A 200 says that these bytes were known before.
  const wasReplayed = attempts.some(({ end }) => end?.class === 'accepted' && end.status === 200)
  const status = end === 'executed' || end === 'failed' ? end : 'received'
  const candidate = { candidateId, status, receivedAt, asOf: 'journal' } as const
  return acknowledged(wasReplayed ? 200 : 202, candidate)
}

export function fromJournal(authorization: JournaledAuthorization, nowMs: number) {
  const known = candidateInJournal(authorization)
  if (known !== undefined) return { ...known, authorization }
  const state = stateOf(authorization, nowMs)
  const { attempts, id } = authorization
  const httpStatus = attempts.findLast(({ end }) => end?.class === 'refused')?.end?.status
  const code = state.kind === 'closed' ? (state.code ?? state.reason) : state.kind
  const Kind = httpStatus === 403 ? UnauthorizedError : RejectedError
  const hint = 'run the batch without --resume to sign it anew'
  const detail = `${id} was closed before (${code}); nothing was sent`
  return notAccepted(authorization, new Kind(code, detail, { hint, httpStatus }))
}

export function unsentOutcome(
  authorization: JournaledAuthorization | undefined,
  why: ProposerError,
  nowMs: number,
  form?: Form,
): RowOutcome {
  if (authorization !== undefined) {
    const { kind } = stateOf(authorization, nowMs)
    if (authorization.candidateId !== undefined || kind === 'closed')
      return fromJournal(authorization, nowMs)
    if (isUnsettled(authorization)) return unknownOutcome(authorization)
  }
  const hint = 'run it again, `batch submit` with --resume'
  const detail = `it was not sent: ${why.detail}`
  const error = form === 'single' ? why : new UnavailableError('not_sent', detail, hint)
  return { outcome: 'deferred', statusCode: null, error, authorization }
}

/** Exit 3 (contract §6), but for what is graver. */
export function asItemError(row: BatchRow, error: ProposerError) {
  const isGraver = error instanceof UnavailableError || error instanceof UnauthorizedError
  // Exit 2 for a row too (contract §9).
  const isHeldBack = ['rules_changed', 'check_failed', 'other_question'].includes(error.code)
  if (isGraver || isHeldBack) return error
  const Kind = error instanceof ConflictError ? ConflictError : RejectedError
  const { hint } = error.meta
  return new Kind(error.code, error.detail, { ...error.meta, hint: hint && inBatch(row, hint) })
}

/** A row has no flags: its fields are named. */
function inBatch(row: BatchRow, hint: string) {
  const outcome =
    row.kind === 'intent' ? row.outcome : (outcomeOf(row.item.proposed_price) ?? '<p1|p2|p3>')
  const replace = `\`proposer submit ${row.identifier} --outcome ${shellWord(outcome)} --supersede`
  return hint.replace(
    /`[^`]*`|--supersede ([0-9a-f]{12}-\d+)|--(nonce|deadline|amount)\b/g,
    (same, id?: string, field?: string) => (id ? `${replace} ${id}\`` : (field ?? same)),
  )
}

export type RoundCheck = ReturnType<typeof roundsOf>

/** Contexts are asked for once, and only when needed. */
export function roundsOf(
  { contexts, trust }: { readonly contexts: ContextSource; readonly trust: Trust },
  authorizations: readonly JournaledAuthorization[],
  signal: AbortSignal | undefined,
) {
  const questionIds = [...new Set(authorizations.map(({ signed }) => signed.questionId))]
  const requests = once(async () => {
    try {
      const results = await contexts.contexts(questionIds, { signal })
      return new Map(results.map(({ identifier, context }) => [identifier, context?.request]))
    } catch (error) {
      if (error instanceof ProposerError || isAborted(signal)) return new Map()
      throw error
    }
  })
  /** `undefined`: nobody tells, or another requester's round. */
  return async ({ signed }: JournaledAuthorization) => {
    const request = signed.timestamp && (await requests()).get(signed.questionId)
    return request && mayBeAt(atRequester(trust, request.requester), signed)
      ? request.timestamp !== signed.timestamp
      : undefined
  }
}

/** `isOver` of a node sees a round that a reorg brings back (R14). */
export async function knownOver(authorization: JournaledAuthorization, isOver?: RoundCheck) {
  if (!isUnsettled(authorization)) return undefined
  const isTold = authorization.attempts.some(({ end }) => end?.code === 'round_advanced')
  return ((await isOver?.(authorization)) ?? isTold) ? overOutcome(authorization) : undefined
}

/** By a 409 `round_advanced`, or a 403 while the round is another one, which is journaled. */
export async function foundOver(
  { journal }: Pick<SubmitParts, 'journal'>,
  results: readonly SentOutcome[],
  isOver: RoundCheck | undefined,
) {
  // It may have become uncertain just now.
  const view = once(() => journal.load())
  const checked: SentOutcome[] = []
  for (const result of results) {
    const { error, statusCode } = result
    const isTold = error?.code === 'round_advanced'
    const sent =
      isTold || statusCode === 403 ? (await view()).find(result.authorization.id) : undefined
    if (!sent || !isUnsettled(sent) || !(isTold || (await isOver?.(sent)))) {
      checked.push(result)
      continue
    }
    const { id, attempts } = sent
    const refused = attempts.findLast(({ end }) => end?.class === 'refused')
    if (!isTold && refused !== undefined) {
      const end = { id, class: 'refused', status: 403, code: 'round_advanced' } as const
      const data = { attempt: refused.start.attempt, results: [end] }
      await journal.append([{ kind: 'attempt.end', data }])
    }
    checked.push(overOutcome(sent, statusCode ?? undefined))
  }
  return checked
}

/** Only a 409 gives exit 5 (contract §6), else it is 6. */
function overOutcome(authorization: JournaledAuthorization, httpStatus?: number) {
  const isAdvanced = authorization.attempts.some(
    ({ end }) => end?.class === 'reconcile' && end.code === 'round_advanced',
  )
  const Kind = isAdvanced ? ConflictError : UncertainError
  const hint = `see what is safe to do next with \`proposer reconcile ${authorization.signed.questionId}\``
  const error = new Kind('round_over', outOfBandLine(authorization), { hint, httpStatus })
  return { ...notAccepted(authorization, error), outOfBand: outOfBandOf(authorization) }
}

/** Replaced (R8), sent elsewhere (contract §6), or of a round that is over. */
export async function skippedOutcome(
  { ports, gateway }: Pick<SubmitParts, 'ports' | 'gateway'>,
  authorization: JournaledAuthorization,
  isOver?: RoundCheck,
): Promise<RowOutcome | undefined> {
  const superseded = supersededError(authorization)
  if (superseded !== undefined) return notAccepted(authorization, superseded)
  const away = sentElsewhere(authorization, gateway.origin, ports.clock.nowMs())
  if (away !== undefined) {
    const { error, origin, flag } = away
    return { ...notAccepted(authorization, error), elsewhere: { origin, flag } }
  }
  return knownOver(authorization, isOver)
}

/** A gateway that sees a round end fails its candidates within a block or two. */
const settleMs = 20_000

export type SettledEarlier = { readonly journalId: string; readonly line: string } & (
  | { readonly outcome: 'executed' | 'failed'; readonly code?: string | undefined }
  | { readonly outcome: 'unknown'; readonly outOfBand: OutOfBand }
)

/** While it is on its way, nothing new may be signed (§3 rule 3). */
export async function endOfEarlier(
  { gateway, ...parts }: Omit<SubmitParts, 'gateway'> & Partial<SubmitParts>,
  authorization: JournaledAuthorization,
  signal: AbortSignal | undefined,
): Promise<SettledEarlier | undefined> {
  const { candidateId, signed, id: journalId, attempts } = authorization
  const unknown = (why = '') => ({
    journalId,
    line: `${why}${outOfBandLine(authorization)}`,
    ...{ outcome: 'unknown' as const, outOfBand: outOfBandOf(authorization) },
  })
  if (candidateId === undefined || gateway === undefined)
    return attempts.length > 0 ? unknown() : undefined
  const { pollCandidates } = await import('../follow/follow.js')
  const target = { candidateId, identifier: signed.questionId }
  const options = { timeoutMs: settleMs, signal }
  const { candidates, error } = await pollCandidates({ ...parts, gateway }, [target], options)
  if (error instanceof InterruptedError || error?.code === 'candidate_mismatch') throw error
  const [status] = candidates
  if (status === undefined) {
    const code = error?.code ?? 'no response'
    return unknown(`the gateway does not report candidate ${candidateId} (${code}). `)
  }
  const outcome = endOf(status)
  const earlier = `${journalId}, of an earlier round,`
  if (outcome === undefined) {
    const detail = `${earlier} is still ${status.status} as candidate ${candidateId}`
    const hint = `wait for its end with \`proposer poll ${candidateId}\`, then retry`
    throw new ConflictError('authorization_open', detail, { hint, retryable: true })
  }
  const code = outcome === 'failed' ? status.failure?.code : undefined
  const why = code === undefined ? '' : ` (${code})`
  return { journalId, line: `${earlier} ended as ${outcome}${why}`, outcome, code }
}
