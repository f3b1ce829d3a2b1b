/**
 * Saved bytes until an answer settles them: a timeout is never a reason to sign again (R7, §7
 * rule 4).
 */
import type { ProposerError } from '#protocol/errors'
import { limits } from '#protocol/words'
import {
  certificateCode,
  isAborted,
  newPatience,
  slept,
  timeLimit,
  type Unaccepted,
} from '../gateway/answer.js'
import { isUnsettled, type JournaledAuthorization } from '../journal/authorizations.js'
import {
  attempt,
  itemsThatFit,
  mismatchCode,
  type SubmitAnswer,
  type SubmitParts,
} from './attempt.js'
import {
  acceptedOutcome,
  conflictOutcome,
  deferredOutcome,
  mismatchOutcome,
  refusedOutcome,
  type SentOutcome,
  stoppedOutcome,
  unknownOutcome,
} from './outcome.js'

export interface SubmitOptions {
  /** Bounds the whole call, retries included; without it 8 tries or 5 min. */
  readonly timeoutMs?: number | undefined
  /** Starts nothing more; without a `callSignal` it ends what is in flight too. */
  readonly signal?: AbortSignal | undefined
  /** Told before each wait: what happened and for how long. */
  readonly onRetry?: OnRetry | undefined
}

export type OnRetry = (event: { attempt: number; reason: string; waitMs: number }) => void

export interface SendOptions extends SubmitOptions {
  readonly callSignal?: AbortSignal
  readonly batch?: string | undefined
  /** Halved for the whole run where calls are too large. */
  readonly size?: { most: number }
}

export interface Sent {
  readonly results: readonly SentOutcome[]
  /** Nobody answered to the end. */
  readonly gone?: ProposerError | undefined
}

interface Sending {
  readonly authorization: JournaledAuthorization
  /** Some attempt may have been admitted. */
  uncertain: boolean
  last?: Unaccepted
  result?: SentOutcome
}

/**
 * 429, 503 and what is uncertain are tried again for 8 tries in vain, 5 min or `timeoutMs`. After
 * a 429 a call holds half as many (§8). A refusal does not settle an earlier uncertain attempt
 * (exit 6 stays); for the exit code a 409 does.
 */
export async function sendAll(
  parts: SubmitParts,
  authorizations: readonly JournaledAuthorization[],
  options: SendOptions,
): Promise<Sent> {
  const { signal, timeoutMs } = options
  const sendings = authorizations.map((authorization) => ({
    authorization,
    uncertain: isUnsettled(authorization),
  }))
  const limit = timeLimit(parts, { timeoutMs, signal: options.callSignal ?? signal })
  const either = signal === undefined ? limit.signal : AbortSignal.any([limit.signal, signal])
  let patience = newPatience(parts.ports, timeoutMs)
  const local = { most: options.size?.most ?? limits.batchItems }
  let tries = 0
  try {
    for (;;) {
      const { length: left } = pendingOf(sendings)
      if (left === 0) return { results: resultsOf(sendings) }
      if (isAborted(signal)) return stop(sendings, signal?.reason)
      const { reached, again, smaller } = await sendOnce(
        parts,
        sendings,
        local,
        limit.signal,
        options,
      )
      const waiting = pendingOf(sendings)
      if (waiting.length === 0 || again || isAborted(signal)) continue
      // What goes on, or is tried in smaller calls, is not the same in vain.
      if (smaller || waiting.length < left) patience = newPatience(parts.ports, timeoutMs)
      const isLasting = waiting.every(({ last }) => last?.code === certificateCode)
      const waitMs = isLasting || limit.signal.aborted ? undefined : patience(longestTold(waiting))
      if (waitMs === undefined) return giveUp(sendings, reached)
      const reason = waiting[0]?.last?.detail ?? 'no response'
      options.onRetry?.({ attempt: ++tries, reason, waitMs })
      const isOver = !(await slept(parts.ports, waitMs, either))
      if (isOver && !isAborted(signal)) return giveUp(sendings, reached)
    }
  } finally {
    limit.clear()
  }
}

const pendingOf = (sendings: readonly Sending[]) =>
  sendings.filter(({ result }) => result === undefined)

const longestTold = (waiting: readonly Sending[]) =>
  Math.max(...waiting.map(({ last }) => (last && 'retryAfterMs' in last && last.retryAfterMs) || 0))

/** Until a call finds the rate limit. `again`: at once, in other company. */
async function sendOnce(
  parts: SubmitParts,
  sendings: readonly Sending[],
  local: { most: number },
  callSignal: AbortSignal,
  { batch, size, signal }: SendOptions,
) {
  let [reached, again] = [false, false]
  const mostBefore = local.most
  const isSingle = (one: Sending) => one.authorization.signed.form === 'single'
  const pending = pendingOf(sendings)
  let rest = [...pending.filter(isSingle), ...pending.filter((one) => !isSingle(one))]
  while (rest.length > 0 && !isAborted(signal) && !isAborted(callSignal)) {
    const authorizations = rest.map(({ authorization }) => authorization)
    const isAlone = rest.some(isSingle)
    const count = isAlone ? 1 : itemsThatFit(authorizations, local.most)
    const some = rest.slice(0, count)
    rest = rest.slice(count)
    const options = { signal: callSignal, batch }
    const sent = await attempt(parts, authorizations.slice(0, count), options)
    const { wasAnswered, split } = sent
    reached ||= wasAnswered
    for (const [at, one] of some.entries()) take(one, sent.answers[at])
    if (isAlone) continue
    if (split !== undefined) local.most = Math.max(1, Math.floor(some.length / 2))
    if (split === 'limited') break
    if (!wasAnswered) continue
    if (split === 'too_large' && size !== undefined) size.most = Math.min(size.most, local.most)
    again ||= some.some(
      ({ last, result }) => result === undefined && [413, 422].includes(last?.httpStatus ?? 0),
    )
  }
  return { reached, again, smaller: local.most < mostBefore }
}

function take(one: Sending, answer: SubmitAnswer | undefined) {
  const { authorization } = one
  if (answer === undefined) return
  if (answer.kind === 'accepted') {
    one.result = acceptedOutcome(authorization, answer)
    return
  }
  // A call that was cut short tells less than the one before it.
  if (one.last === undefined || answer.code !== 'not_sent') one.last = answer
  if (answer.kind === 'reconcile') one.result = conflictOutcome(authorization, answer)
  // What has a candidate id is accepted, whatever another sending met (contract §1).
  if (answer.kind === 'uncertain') {
    one.uncertain ||= authorization.candidateId === undefined
    if (answer.code === mismatchCode) one.result = mismatchOutcome(authorization, answer)
  }
  if (answer.kind === 'refused')
    one.result = one.uncertain
      ? unknownOutcome(authorization, answer)
      : refusedOutcome(authorization, answer)
}

function stop(sendings: readonly Sending[], reason: unknown) {
  for (const one of pendingOf(sendings))
    one.result = stoppedOutcome(one.authorization, one.uncertain, one.last, reason)
  return { results: resultsOf(sendings) }
}

function giveUp(sendings: readonly Sending[], reached: boolean) {
  const left = pendingOf(sendings)
  for (const one of left) {
    const outcome = one.uncertain ? unknownOutcome : deferredOutcome
    one.result = outcome(one.authorization, one.last ?? unsent)
  }
  return { results: resultsOf(sendings), gone: reached ? undefined : left[0]?.result?.error }
}

const unsent: Unaccepted = {
  kind: 'deferred',
  code: 'not_sent',
  detail: 'the time limit was reached before it was sent',
}

const resultsOf = (sendings: readonly Sending[]) => sendings.flatMap(({ result }) => result ?? [])
