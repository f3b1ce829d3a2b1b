/** Saved bytes until an answer settles them (R7, §7 rule 4). */
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
import { attempt, itemsThatFit, type SubmitAnswer, type SubmitParts } from './attempt.js'
import {
  deferredOutcome,
  type SentOutcome,
  settledBy,
  stoppedOutcome,
  unknownOutcome,
} from './outcome.js'
import { type CurrentRound, foundOver } from './round-over.js'

export interface SubmitOptions {
  /** For the whole call, retries included; default: 8 tries or 5 min. */
  readonly timeoutMs?: number | undefined
  /** Without a `callSignal` it ends what is in flight too. */
  readonly signal?: AbortSignal | undefined
  readonly onRetry?: OnRetry | undefined
}

export type OnRetry = (event: { attempt: number; reason: string; waitMs: number }) => void

interface SendOptions extends SubmitOptions {
  readonly callSignal?: AbortSignal
  readonly batch?: string | undefined
  /** Halved for the whole run where calls are too large. */
  readonly size?: { most: number }
  readonly round?: CurrentRound | undefined
}

interface Sending {
  readonly authorization: JournaledAuthorization
  uncertain: boolean
  last?: Unaccepted
  result?: SentOutcome | undefined
}

/**
 * 429, 503 and what is uncertain are tried again; after a 429 a call holds half as many (§8).
 * `gone`: nobody answered to the end.
 */
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
  const either = signal === undefined ? limit.signal : AbortSignal.any([limit.signal, signal])
  let patience = newPatience(parts.ports, timeoutMs)
  const local = { most: options.size?.most ?? limits.batchItems }
  let tries = 0
  let gone: ProposerError | undefined
  try {
    for (let left = sendings; left.length > 0 && !isAborted(signal); left = pendingOf(sendings)) {
      const { most } = local
      const { reached, again } = await sendOnce(parts, sendings, local, limit.signal, options)
      const waiting = pendingOf(sendings)
      if (waiting.length === 0 || again || isAborted(signal)) continue
      // What goes on, or is tried in smaller calls, is not the same in vain.
      if (local.most < most || waiting.length < left.length)
        patience = newPatience(parts.ports, timeoutMs)
      const isLasting = waiting.every(({ last }) => last?.code === certificateCode)
      const waitMs = isLasting || limit.signal.aborted ? undefined : patience(longestTold(waiting))
      const reason = waiting[0]?.last?.detail ?? 'no response'
      if (waitMs !== undefined) options.onRetry?.({ attempt: ++tries, reason, waitMs })
      const goesOn = waitMs !== undefined && (await slept(parts.ports, waitMs, either))
      if (goesOn || isAborted(signal)) continue
      for (const one of waiting) {
        const outcome = one.uncertain ? unknownOutcome : deferredOutcome
        one.result = outcome(one.authorization, one.last ?? unsent)
      }
      if (!reached) gone = waiting[0]?.result?.error
    }
  } finally {
    limit.clear()
  }
  // Stopped: exit 6 where an attempt is uncertain, else 130 (contract §6).
  for (const one of pendingOf(sendings))
    one.result = one.uncertain
      ? unknownOutcome(one.authorization, one.last ?? unsent)
      : stoppedOutcome(one.authorization, signal?.reason)
  const results = sendings.flatMap(({ result }) => result ?? [])
  return { results: await foundOver(parts, results, options.round), gone }
}

const pendingOf = (sendings: readonly Sending[]) =>
  sendings.filter(({ result }) => result === undefined)

const longestTold = (waiting: readonly Sending[]) =>
  Math.max(...waiting.map(({ last }) => (last && 'retryAfterMs' in last && last.retryAfterMs) || 0))

const unsent: Unaccepted = {
  kind: 'deferred',
  code: 'not_sent',
  detail: 'the time limit was reached, or the call was stopped, before it was sent',
}

/** Until a call meets the rate limit. `again`: at once, in other company. */
async function sendOnce(
  parts: SubmitParts,
  sendings: readonly Sending[],
  local: { most: number },
  callSignal: AbortSignal,
  { batch, size, signal }: SendOptions,
) {
  let [reached, again] = [false, false]
  const isSingle = ({ authorization }: Sending) => authorization.signed.form === 'single'
  const pending = pendingOf(sendings)
  let rest = [...pending.filter(isSingle), ...pending.filter((one) => !isSingle(one))]
  while (rest.length > 0 && !isAborted(signal) && !isAborted(callSignal)) {
    const isAlone = rest.some(isSingle)
    const waiting = rest.map(({ authorization }) => authorization)
    const count = isAlone ? 1 : itemsThatFit(waiting, local.most)
    const some = rest.slice(0, count)
    rest = rest.slice(count)
    const call = { signal: callSignal, batch }
    const { answers, wasAnswered, split } = await attempt(parts, waiting.slice(0, count), call)
    reached ||= wasAnswered
    for (const [at, one] of some.entries()) take(one, answers[at])
    if (isAlone) continue
    if (split !== undefined) local.most = Math.max(1, Math.floor(count / 2))
    if (split === 'limited') break
    if (!wasAnswered) continue
    if (split === 'too_large' && size !== undefined) size.most = Math.min(size.most, local.most)
    const isSplit = ({ last }: Sending) => [413, 422].includes(last?.httpStatus ?? 0)
    again ||= pendingOf(some).some(isSplit)
  }
  return { reached, again }
}

function take(one: Sending, answer: SubmitAnswer | undefined) {
  if (answer === undefined) return
  const { authorization } = one
  // What has a candidate id is accepted, whatever another sending met (contract §1).
  if (answer.kind === 'uncertain') one.uncertain ||= authorization.candidateId === undefined
  one.result = settledBy(authorization, answer, one.uncertain)
  // A call that was cut short tells less than the one before it.
  const tellsMore = answer.kind !== 'accepted' && answer.code !== 'not_sent'
  if (answer.kind !== 'accepted' && (tellsMore || one.last === undefined)) one.last = answer
}
