/**
 * Saved bytes until an answer settles them (R7, §7 rule 4), each call journaled before and after
 * (R4). A batch call joins the bytes of its items: each stays what it was in any company.
 */
import {
  ConflictError,
  InterruptedError,
  ProposerError,
  reworded,
  UnavailableError,
  UncertainError,
} from '#protocol/errors'
import { once } from '#protocol/once'
import { limits } from '#protocol/words'
import { endOf } from '../follow/look.js'
import {
  type Answer,
  answerError,
  anySignal,
  certificateCode,
  certificateHint,
  classifyRefusal,
  isAborted,
  newPatience,
  slept,
  timeLimit,
  type Unaccepted,
} from '../gateway/answer.js'
import type { CallOptions, GatewayClient } from '../gateway/gateway-client.js'
import { type Acknowledged, keptAnswer, type Results, type SubmitRead } from '../gateway/reading.js'
import {
  isUnsettled,
  type JournalEntry,
  type JournaledAuthorization,
  type OtherGateway,
  type OutOfBand,
  otherNamed,
  outOfBandLine,
  outOfBandOf,
  sentElsewhere,
  supersededError,
} from '../journal/authorizations.js'
import type { Journal, JournalPorts } from '../journal/journal.js'
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

type SubmitAnswer = Answer<Acknowledged>
type Unsettling = Extract<Unaccepted, { kind: 'deferred' | 'uncertain' }>

/** `undefined`: the same bytes are tried again. What is uncertain a 409 settles, a refusal not. */
function settledBy(answer: SubmitAnswer, sending: Sending) {
  const { authorization } = sending
  if (answer.kind === 'accepted') {
    const { candidate_id: candidateId, status, received_at: receivedAt } = answer.value
    const candidate = { candidateId, status, receivedAt, asOf: 'answer' } as const
    return { ...acknowledged(answer.httpStatus, candidate), authorization }
  }
  const { code, detail, httpStatus } = answer
  const { id, signed, candidateId } = authorization
  // What has a candidate id is accepted, whatever another sending met (contract §1).
  if (answer.kind === 'uncertain') sending.uncertain ||= candidateId === undefined
  if (answer.kind === 'uncertain' && code === 'candidate_mismatch') {
    const hint = `do not trust this gateway until the operator has explained it; then \`proposer replay ${id}\` sends the same bytes`
    const error = new ConflictError(code, `${id}: ${detail}`, { httpStatus, hint })
    return notAccepted(authorization, error, 'unknown')
  }
  if (answer.kind === 'uncertain' || answer.kind === 'deferred') {
    // A call that was cut short tells less than the one before it.
    if (code !== 'not_sent' || !sending.last) sending.last = answer
    return undefined
  }
  if (answer.kind === 'refused' && sending.uncertain) return unknownOutcome(authorization, answer)
  const refusal = answerError(answer, 'submit', signed.questionId)
  if (candidateId === undefined) return notAccepted(authorization, refusal)
  // No other sending of what has a candidate is a reason to sign again (R7, R8).
  const { known, hint } = standing(authorization)
  const again = `${known}; sent again, the same bytes were refused: ${detail}`
  return notAccepted(authorization, reworded(refusal, again, { ...refusal.meta, hint }))
}

const acknowledged = (statusCode: 200 | 202, candidate: NonNullable<RowOutcome['candidate']>) =>
  ({ outcome: statusCode === 202 ? 'accepted' : 'replayed', statusCode, candidate }) as const

export const wordOf = (error: ProposerError) =>
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

/** Exit 6 where an attempt is uncertain, else 130 where it was stopped, else 75 (contract §6). */
function openOutcome({ authorization, uncertain, last = unsent }: Sending, signal?: AbortSignal) {
  if (uncertain) return unknownOutcome(authorization, last)
  if (isAborted(signal)) {
    const reason = signal?.reason instanceof ProposerError ? signal.reason.detail : 'stopped'
    const { known, hint } = standing(authorization)
    const meta = { hint, retryable: true }
    const error = new InterruptedError('interrupted', `${reason}; ${known}`, meta)
    return notAccepted(authorization, error, 'deferred')
  }
  const { code, detail, retryAfterMs, httpStatus } = last
  const later = retryAfterMs ? ` in ${Math.ceil(retryAfterMs / 1_000)} seconds` : ' later'
  const { known, hint } = standing(authorization, later)
  const again = authorization.candidateId ? '; sent again, it was deferred' : ''
  const mending = code === certificateCode ? `${certificateHint}. Then ` : ''
  const meta = { hint: mending + hint, httpStatus, retryAfterMs }
  return notAccepted(authorization, new UnavailableError(code, `${known}${again}: ${detail}`, meta))
}

const standing = ({ id, candidateId }: JournaledAuthorization, later = '') => ({
  known: `${id} ${candidateId ? `is admitted already as ${candidateId}` : 'was not admitted'}`,
  hint: candidateId
    ? `follow its candidate with \`proposer poll ${candidateId}\``
    : `the same command, or \`proposer replay ${id}\`, sends the same bytes${later}`,
})

export function candidateInJournal(authorization: JournaledAuthorization) {
  const { candidateId, attempts, terminal, receivedAt = '' } = authorization
  if (candidateId === undefined) return undefined
  const end = terminal?.outcome
  // A 200 says that these bytes were known before.
  const wasReplayed = attempts.some(({ end }) => end?.class === 'accepted' && end.status === 200)
  const status = end === 'executed' || end === 'failed' ? end : 'received'
  const candidate = { candidateId, status, receivedAt, asOf: 'journal' } as const
  return acknowledged(wasReplayed ? 200 : 202, candidate)
}

type RoundCheck = ReturnType<typeof roundsOf>

export function roundsOf(
  { contexts, trust }: { contexts: ContextSource; trust: Trust },
  authorizations: readonly JournaledAuthorization[],
  signal?: AbortSignal,
) {
  const questionIds = [...new Set(authorizations.map(({ signed }) => signed.questionId))]
  const requests = once(async () => {
    const results = await contexts.contexts(questionIds, { signal }).catch((error: unknown) => {
      if (error instanceof ProposerError || isAborted(signal)) return []
      throw error
    })
    return new Map(results.map(({ identifier, context }) => [identifier, context?.request]))
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
async function foundOver(
  { journal }: SubmitParts,
  results: readonly SentOutcome[],
  isOver?: RoundCheck,
) {
  // It may have become uncertain just now.
  const view = once(() => journal.load())
  const checked = results.map(async (result) => {
    const { error, statusCode } = result
    const isTold = error?.code === 'round_advanced'
    if (!isTold && statusCode !== 403) return result
    const sent = (await view()).find(result.authorization.id)
    if (!sent || !isUnsettled(sent) || !(isTold || (await isOver?.(sent)))) return result
    const { id, attempts } = sent
    const refused = attempts.findLast(({ end }) => end?.class === 'refused')
    if (!isTold && refused !== undefined) {
      const end = { id, class: 'refused', status: 403, code: 'round_advanced' } as const
      const data = { attempt: refused.start.attempt, results: [end] }
      await journal.append([{ kind: 'attempt.end', data }])
    }
    return overOutcome(sent, statusCode ?? undefined)
  })
  return Promise.all(checked)
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
  { ports, gateway }: SubmitParts,
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
  signal?: AbortSignal,
): Promise<SettledEarlier | undefined> {
  const { candidateId, signed, id: journalId, attempts } = authorization
  const unknown = (why = '') => {
    const line = why + outOfBandLine(authorization)
    return { journalId, line, outcome: 'unknown', outOfBand: outOfBandOf(authorization) } as const
  }
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

export interface CallLimits {
  /** Milliseconds for the whole call, retries included; default: 8 tries or 5 minutes. */
  readonly timeoutMs?: number | undefined
  readonly signal?: AbortSignal | undefined
}

export interface SubmitOptions extends CallLimits {
  readonly onRetry?: OnRetry | undefined
}

export type OnRetry = (event: { attempt: number; reason: string; waitMs: number }) => void

interface SendOptions extends SubmitOptions {
  /** Ends what is in flight; default: `signal`. */
  readonly callSignal?: AbortSignal
  readonly batch?: string | undefined
  /** Halved for the whole run where calls are too large. */
  readonly size?: { most: number }
  readonly isOver?: RoundCheck | undefined
}

interface Sending {
  readonly authorization: JournaledAuthorization
  uncertain: boolean
  last?: Unsettling
  result?: SentOutcome | undefined
}

/** After a 429 a call holds half as many (§8). `gone`: nobody answered to the end. */
export async function sendAll(
  parts: SubmitParts,
  authorizations: readonly JournaledAuthorization[],
  options: SendOptions,
) {
  const { signal, timeoutMs } = options
  const sendings: readonly Sending[] = authorizations.map((authorization) => ({
    authorization,
    uncertain: isUnsettled(authorization),
  }))
  const limit = timeLimit(parts, { timeoutMs, signal: options.callSignal ?? signal })
  const either = anySignal(limit.signal, signal)
  let patience = newPatience(parts.ports, timeoutMs)
  const local = { most: options.size?.most ?? limits.batchItems }
  let tries = 0
  let isGone = false
  try {
    for (let left = sendings; left.length > 0 && !isAborted(signal); left = pendingOf(sendings)) {
      const { most } = local
      const { reached, again } = await sendOnce(parts, sendings, local, limit.signal, options)
      const waiting = pendingOf(sendings)
      if (waiting.length === 0 || again || isAborted(signal)) continue
      // With progress, or smaller calls, patience begins anew.
      if (local.most < most || waiting.length < left.length)
        patience = newPatience(parts.ports, timeoutMs)
      const isLasting = waiting.every(({ last }) => last?.code === certificateCode)
      const toldMs = Math.max(...waiting.map(({ last }) => last?.retryAfterMs ?? 0))
      const waitMs = isLasting || limit.signal.aborted ? undefined : patience(toldMs)
      const reason = waiting[0]?.last?.detail ?? 'no response'
      if (waitMs !== undefined) options.onRetry?.({ attempt: ++tries, reason, waitMs })
      const goesOn = waitMs !== undefined && (await slept(parts.ports, waitMs, either))
      if (goesOn || isAborted(signal)) continue
      isGone = !reached
      break
    }
  } finally {
    limit.clear()
  }
  const open = pendingOf(sendings)
  for (const one of open) one.result = openOutcome(one, signal)
  const results = sendings.flatMap(({ result }) => result ?? [])
  const gone = isGone ? open[0]?.result?.error : undefined
  return { results: await foundOver(parts, results, options.isOver), gone }
}

const pendingOf = (sendings: readonly Sending[]) =>
  sendings.filter(({ result }) => result === undefined)

const unsent: Unsettling = {
  kind: 'deferred',
  code: 'not_sent',
  detail: 'the time limit was reached, or the call was stopped, before it was sent',
}

/** Until one meets the rate limit. `again`: at once, in other company. */
async function sendOnce(
  parts: SubmitParts,
  sendings: readonly Sending[],
  local: { most: number },
  callSignal: AbortSignal,
  { batch, size, signal }: SendOptions,
) {
  let [reached, again] = [false, false]
  const isSingle = ({ authorization }: Sending) => authorization.signed.form === 'single'
  let rest = pendingOf(sendings).toSorted((a, b) => Number(isSingle(b)) - Number(isSingle(a)))
  while (rest.length > 0 && !isAborted(signal) && !isAborted(callSignal)) {
    const isAlone = rest.some(isSingle)
    const waiting = rest.map(({ authorization }) => authorization)
    const count = isAlone ? 1 : itemsThatFit(waiting, local.most)
    const some = rest.slice(0, count)
    rest = rest.slice(count)
    const call = { signal: callSignal, batch }
    const { answers, wasAnswered, split } = await attempt(parts, waiting.slice(0, count), call)
    reached ||= wasAnswered
    for (const [at, one] of some.entries()) one.result = settledBy(answers[at] ?? noResult, one)
    if (isAlone) continue
    if (split !== undefined) local.most = Math.max(1, Math.floor(count / 2))
    if (split === 'limited') break
    if (split === 'too_large' && size) size.most = local.most
    const isSplit = ({ last }: Sending) => [413, 422].includes(last?.httpStatus ?? 0)
    again ||= wasAnswered && pendingOf(some).some(isSplit)
  }
  return { reached, again }
}

/** No gateway needs to take more (§7). */
const maxBodyBytes = 1_900_000

interface Attempted extends Pick<SubmitAnswer, 'receipt'> {
  readonly answers: readonly SubmitAnswer[]
  /** By the gateway itself. */
  readonly wasAnswered: boolean
  /** No item is named: smaller calls may be taken. `limited`: a window may hold fewer (§8). */
  readonly split?: 'too_large' | 'unnamed_fault' | 'limited'
}

function itemsThatFit(authorizations: readonly JournaledAuthorization[], most: number) {
  let bytes = 0
  for (const [index, { signed }] of authorizations.entries()) {
    // Bodies are ASCII but for client_ref, which is short.
    bytes += signed.body.length + 1 + 3 * (signed.clientRef?.length ?? 0)
    if (index > 0 && (index >= most || bytes > maxBodyBytes)) return index
  }
  return authorizations.length
}

/** StorageError 74: nothing was sent, or what came counts as uncertain. */
export async function attempt(
  parts: SubmitParts,
  authorizations: readonly JournaledAuthorization[],
  { batch, ...call }: CallOptions & Pick<SendOptions, 'batch'>,
) {
  const { journal, gateway, ports } = parts
  const single = authorizations.find(({ signed }) => signed.form === 'single')?.signed
  const body =
    single?.body ?? `{"proposals":[${authorizations.map(({ signed }) => signed.body).join(',')}]}`
  const name = journal.nextAttempt()
  const sent = { attempt: name, ids: authorizations.map(({ id }) => id), origin: gateway.origin }
  const form = single?.form ?? 'batch'
  const sha256 = single?.sha256 ?? ports.hash.sha256(body)
  const start: JournalEntry = { kind: 'attempt.start', data: { ...sent, form, sha256, batch } }
  // What another run wrote may be in the page cache only (R4).
  const copied = authorizations.flatMap(({ id, signed }) =>
    journal.hasSigned(id) ? [] : ({ kind: 'signed', data: signed } as const),
  )
  await journal.append([...copied, start])
  const { receipt, ...attempted } =
    single === undefined
      ? readCall(await gateway.submitBatch(body, call), authorizations)
      : wholeCall(await gateway.submit(single.questionId, body, call), 1)
  const named = attempted.answers.map(
    (one) => one.kind === 'accepted' && one.value.candidate_id.toLowerCase(),
  )
  const acknowledged: JournalEntry[] = []
  const answers: SubmitAnswer[] = []
  const results = authorizations.map((authorization, at) => {
    const { id } = authorization
    const answer = judged(journal, authorization, attempted.answers[at] ?? noResult, named)
    answers.push(answer)
    const { kind, httpStatus: status } = answer
    if (kind !== 'accepted') return { id, class: kind, status, code: answer.code }
    const { candidate_id, answer: whole, ...told } = answer.value
    // Version 0.1 reads ids in lower case; `answer` keeps the gateway's spelling (contract §9).
    const ids = { id, candidate_id: candidate_id.toLowerCase() }
    const data = { ...ids, ...told, replayed: status === 200, ...keptAnswer(whole) }
    acknowledged.push({ kind: 'ack', data })
    return { id, class: kind, status }
  })
  const end: JournalEntry = { kind: 'attempt.end', data: { attempt: name, results, receipt } }
  await journal.append([end, ...acknowledged])
  return { ...attempted, answers }
}

/** About something else, it tells nothing of the bytes. */
function judged(
  journal: Journal,
  { id, signed }: JournaledAuthorization,
  answer: SubmitAnswer,
  named: readonly (string | false)[],
): SubmitAnswer {
  if (answer.kind !== 'accepted') return answer
  const { httpStatus, rateLimit, value } = answer
  const uncertain = { kind: 'uncertain', httpStatus, rateLimit } as const
  const other = otherNamed(signed, value.answer)
  if (other !== undefined) {
    const detail = `the gateway acknowledged another ${other.field} than ${other.own}`
    return { ...uncertain, code: 'candidate_mismatch', detail }
  }
  const told = value.candidate_id
  const own = told.toLowerCase()
  const isOwn = named.indexOf(own) === named.lastIndexOf(own)
  if (isOwn && (journal.holderOf(told) ?? id) === id) return answer
  const detail = `the gateway acknowledged it as candidate ${told}, which is another authorization's`
  return { ...uncertain, code: 'candidate_shared', detail }
}

const noResult: Unsettling = {
  kind: 'uncertain',
  code: 'gateway_body',
  detail: 'the gateway answered a batch without a result for its item',
}

function readCall(
  answer: Answer<Results<SubmitRead>>,
  authorizations: readonly JournaledAuthorization[],
): Attempted {
  if (answer.kind !== 'accepted') return wholeCall(answer, authorizations.length)
  const { results } = answer.value
  const answers = authorizations.map(({ signed }, at) => {
    const result = results.length === authorizations.length ? results[at] : undefined
    // In input order; another reference is another item's.
    const isOurs = result?.client_ref === undefined || result.client_ref === signed.clientRef
    return result === undefined || !isOurs ? noResult : itemAnswer(result)
  })
  return { answers, wasAnswered: true, receipt: answer.receipt }
}

/** §4.2 rule 5: as the same status of a single call. */
export function itemAnswer({ candidate, error, ...item }: SubmitRead): SubmitAnswer {
  const httpStatus = item.status_code
  if (httpStatus === undefined) return noResult
  if ((httpStatus === 200 || httpStatus === 202) && candidate !== undefined)
    return { kind: 'accepted', httpStatus, value: candidate }
  return error === undefined ? { ...noResult, httpStatus } : classifyRefusal(httpStatus, error)
}

/** It had no effect (R18). For shape (422) only the items it names are refused. */
function wholeCall(answer: SubmitAnswer, count: number): Attempted {
  const { kind, httpStatus, receipt } = answer
  const wasAnswered = kind !== 'deferred' && kind !== 'uncertain'
  const whole = { answers: Array<SubmitAnswer>(count).fill(answer), wasAnswered, receipt }
  if (count === 1) return whole
  if (httpStatus === 429 || (kind === 'deferred' && answer.code === 'batch_over_budget'))
    return { ...whole, split: 'limited' }
  if (kind !== 'refused' || ![413, 422].includes(httpStatus)) return whole
  const { code, errors = [] } = answer
  const detail = `the whole call was refused: ${answer.detail}`
  const later: SubmitAnswer = { kind: 'deferred', httpStatus, code, detail }
  const numbers = errors.map(({ path }) => Number(/^\/?proposals[.[/](\d{1,3})/.exec(path)?.[1]))
  const named = httpStatus === 422 ? numbers : []
  const answers = whole.answers.map((_, at) => (named.includes(at) ? answer : later))
  if (answers.includes(answer)) return { ...whole, answers }
  return { ...whole, answers, split: httpStatus === 422 ? 'unnamed_fault' : 'too_large' }
}
