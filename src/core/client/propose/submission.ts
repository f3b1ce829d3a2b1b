/** `submit`: journal first, sign only where it must, and send (contract §6). */
import { UnavailableError, UsageError } from '#protocol/errors'
import { outcomeOf } from '#protocol/proposal'
import { newPatience } from '../gateway/answer.js'
import {
  type Elsewhere,
  type JournaledAuthorization,
  sentElsewhere,
  stateOf,
  supersededError,
  unknownId,
} from '../journal/authorizations.js'
import type { Trust } from '../trust/trust.js'
import type { SubmitParts } from './attempt.js'
import { type Authorized, authorize, sourceOf } from './authorize.js'
import { executedBefore, type IntentInWords } from './intent.js'
import type { SubmissionResult } from './outcome.js'
import { importRecord, readPayload } from './payload.js'
import type { AuthorizeParts } from './plan.js'
import {
  type CurrentRound,
  isRoundOver,
  roundsOf,
  sendAllInRound,
  sendInRound,
} from './round-over.js'
import { type SubmitOptions, submitAuthorization } from './send.js'
import { newAuthorization } from './sign.js'

/**
 * Saved bytes of an earlier round are settled, and a new one is signed and sent, once (contract
 * §6). `timeoutMs` is for contexts of a busy gateway too.
 */
export async function submitIntent(
  given: SubmitParts & AuthorizeParts,
  intent: IntentInWords,
  limits: SubmitOptions = {},
): Promise<SubmissionResult> {
  const options = { ...limits }
  const parts = { ...given, context: patientContext(given, options) }
  let first: Authorized
  try {
    first = await authorize(parts, intent)
  } catch (error) {
    const executed = await executedBefore(parts, intent, error)
    if (executed === undefined) throw error
    const result = await submitAuthorization(parts, executed, options)
    // Of an earlier round: then it is the current one that is not open.
    if (result.outcome === 'conflict') throw error
    return result
  }
  refuseElsewhere(parts, first.authorization)
  const result = await sendInRound(parts, first.authorization, options)
  const now = { contexts: sourceOf(parts, intent), trust: parts.trust }
  const round = roundsOf(now, [first.authorization], false, parts.signal)
  if (!first.reused || !(await isRoundOver(result, round))) return result
  parts.note?.(`${first.journalId} is of an earlier round`)
  // A superseding intent that was reused has done its work.
  const named = (await parts.journal.load()).find(intent.supersede ?? '')
  const isDone = named?.supersededBy !== undefined
  const wanted = isDone ? { ...intent, supersede: undefined } : intent
  const next = await authorize(parts, wanted, { isRetry: true })
  return submitAuthorization(parts, next.authorization, options)
}

/** While a time was given; sending has the rest. */
function patientContext(
  { context, ports, note, signal }: AuthorizeParts,
  limits: { timeoutMs?: number | undefined },
): AuthorizeParts['context'] {
  const { timeoutMs } = limits
  if (timeoutMs === undefined) return context
  const patience = newPatience(ports, timeoutMs)
  return async () => {
    for (;;) {
      try {
        return await context()
      } catch (error) {
        const isBusy = error instanceof UnavailableError && error.meta.httpStatus === 503
        const waitMs = isBusy ? patience(error.meta.retryAfterMs) : undefined
        if (!isBusy || waitMs === undefined) throw error
        note?.(`${error.detail}; asking for the context again in ${Math.ceil(waitMs / 1_000)} s`)
        await ports.clock.sleep(waitMs, signal)
        limits.timeoutMs = Math.max(1, (limits.timeoutMs ?? 0) - waitMs)
      }
    }
  }
}

function refuseElsewhere(
  { ports, gateway }: SubmitParts,
  authorization: JournaledAuthorization,
): void {
  const nowMs = ports.clock.nowMs()
  if (stateOf(authorization, nowMs).kind !== 'unknown') return
  const away = sentElsewhere(authorization, gateway.origin, nowMs)
  if (away !== undefined) throw away.error
}

/** The file's exact bytes; a payload that the journal holds goes by its own record. */
export async function submitPayload(
  parts: SubmitParts & { readonly trust: Trust },
  identifier: string,
  body: string,
  options: SubmitOptions & {
    readonly supersede?: string | undefined
    readonly round?: CurrentRound | undefined
  } = {},
): Promise<SubmissionResult> {
  const { supersede, ...sending } = options
  const authorization = await parts.journal.exclusive(async (view) => {
    const payload = readPayload(parts, identifier, body, view)
    const { same } = payload
    const replaced = same && supersededError(same)
    if (replaced !== undefined) throw replaced
    if (same !== undefined) return same
    const signed = importRecord(parts, view, { ...payload, supersede })
    await parts.journal.append([{ kind: 'signed', data: signed }])
    return newAuthorization(signed)
  })
  refuseElsewhere(parts, authorization)
  return sendInRound(parts, authorization, sending)
}

export interface Skipped {
  readonly authorization: JournaledAuthorization
  readonly reason: 'superseded' | 'failed_retryably'
  readonly command: string
}

export interface ReplayPlan {
  readonly chosen: readonly JournaledAuthorization[]
  readonly elsewhere: readonly Elsewhere[]
  readonly skipped: readonly Skipped[]
}

export interface ReplayResult extends Omit<ReplayPlan, 'chosen'> {
  readonly results: readonly SubmissionResult[]
}

export interface ReplayOptions extends SubmitOptions {
  readonly redirect?: boolean
  /** Where an answer leaves open whether the own one is over. */
  readonly round?: CurrentRound
}

export async function replay(
  parts: SubmitParts,
  which: readonly string[] | 'all',
  options: ReplayOptions = {},
): Promise<ReplayResult> {
  const { chosen, ...rest } = await planReplay(parts, which, options)
  return { results: await sendAllInRound(parts, chosen, options), ...rest }
}

/**
 * What went to another origin is only listed, but with `redirect`: the gateway was named together
 * with ids.
 */
export async function planReplay(
  { ports, journal, gateway }: SubmitParts,
  which: readonly string[] | 'all',
  { redirect = false }: Pick<ReplayOptions, 'redirect'>,
): Promise<ReplayPlan> {
  const view = await journal.load()
  const nowMs = ports.clock.nowMs()
  const isAll = which === 'all'
  const wanted = isAll
    ? view.authorizations.filter((one) => isOwed(one, nowMs) && one.supersededBy === undefined)
    : which.map((id) => sendable(view.find(id), id, nowMs))
  const chosen: JournaledAuthorization[] = []
  const elsewhere: Elsewhere[] = []
  for (const one of wanted) {
    const away = redirect ? undefined : sentElsewhere(one, gateway.origin, nowMs)
    if (away === undefined) chosen.push(one)
    else elsewhere.push(away)
  }
  return { chosen, elsewhere, skipped: isAll ? skippedOf(view.authorizations, nowMs) : [] }
}

const isOwed = (one: JournaledAuthorization, nowMs: number) =>
  ['unknown', 'deferred'].includes(stateOf(one, nowMs).kind)

function sendable(
  one: JournaledAuthorization | undefined,
  id: string,
  nowMs: number,
): JournaledAuthorization {
  if (one === undefined) throw unknownId(id)
  const { kind } = stateOf(one, nowMs)
  if (kind === 'closed')
    throw new UsageError(
      'authorization_closed',
      `${id} is closed: sending it again changes nothing`,
      `see \`proposer journal show ${id}\``,
    )
  const superseded = supersededError(one)
  if (superseded !== undefined) throw superseded
  if (kind !== 'signed') return one
  const { identifier, terms } = one.signed
  throw new UsageError(
    'never_sent',
    `${id} was signed and never sent: there is nothing to send again`,
    `send it with \`proposer submit ${identifier} --outcome ${outcomeOf(terms.price) ?? '<answer>'}\``,
  )
}

/** So that it is not forgotten. */
function skippedOf(all: readonly JournaledAuthorization[], nowMs: number): readonly Skipped[] {
  const isReplaced = (one: JournaledAuthorization) => one.supersededBy !== undefined
  const replaced = all.filter((one) => isOwed(one, nowMs) && isReplaced(one))
  const failed = all.filter(
    (one) =>
      stateOf(one, nowMs).kind === 'accepted' &&
      one.terminal?.outcome === 'failed' &&
      !isReplaced(one),
  )
  return [
    ...replaced.map((authorization) => ({
      authorization,
      reason: 'superseded' as const,
      command: `proposer revoke ${authorization.id}`,
    })),
    ...failed.map((authorization) => ({
      authorization,
      reason: 'failed_retryably' as const,
      command: `proposer replay ${authorization.id}`,
    })),
  ]
}
