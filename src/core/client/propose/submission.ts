/** `submit`: journal first, sign only where it must, and send (contract §6). */
import {
  ProposerError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
} from '../../protocol/errors.js'
import { newPatience } from '../gateway/retry.js'
import { type JournaledAuthorization, stateOf } from '../journal/authorizations.js'
import { sentElsewhere, supersededError } from '../journal/saved.js'
import { atRequester, mayBeAt, type Trust } from '../trust/trust.js'
import type { SubmitParts } from './attempt.js'
import { type Authorized, authorize, signInRound } from './authorize.js'
import { executedBefore, type IntentInWords } from './intent.js'
import type { SubmissionResult } from './outcome.js'
import { importRecord, readPayload } from './payload.js'
import type { AuthorizeParts } from './prepare.js'
import { type CurrentRound, sendInRound } from './round-over.js'
import { type SubmitOptions, submitAuthorization } from './send.js'
import { newAuthorization } from './sign.js'

/**
 * `submit <identifier>` (contract §6): look-up, sign if need be, send. Saved bytes of an earlier
 * round are settled, and a new one is signed and sent, once. What was executed in this very round
 * is replayed. UncertainError `other_origin` where saved bytes of unknown outcome went to another
 * gateway (R7). `timeoutMs` is for contexts of a busy gateway too.
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
  if (!first.reused || !(await roundIsOver(parts, result))) return result
  parts.note?.(`${first.journalId} is of an earlier round`)
  // A superseding intent that was reused has done its work.
  const named = (await parts.journal.load()).find(intent.supersede ?? '')
  const isDone = named?.supersededBy !== undefined
  const next = await signInRound(parts, isDone ? { ...intent, supersede: undefined } : intent)
  return submitAuthorization(parts, next.authorization, options)
}

/**
 * Asked for again where the gateway was busy (503), as long as a time was given; sending has the
 * rest.
 */
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

export const mayNameOtherRound = (error: ProposerError): boolean =>
  error instanceof UnauthorizedError ||
  (error instanceof UncertainError && error.meta.httpStatus === 403)

async function roundIsOver(
  parts: AuthorizeParts,
  { authorization: { signed }, error }: SubmissionResult,
): Promise<boolean> {
  if (error === undefined) return false
  if (error.code === 'round_advanced' || error.code === 'round_over') return true
  if (!mayNameOtherRound(error) || signed.timestamp === undefined) return false
  try {
    const { request } = await parts.context()
    // Of another requester's round nothing follows for this one.
    const isOurs = mayBeAt(atRequester(parts.trust, request.requester), signed)
    return isOurs && request.timestamp !== signed.timestamp
  } catch (cause) {
    // Not learned: the refusal stands as it is.
    if (cause instanceof ProposerError) return false
    throw cause
  }
}

/**
 * `submit <identifier> <payload>`: the file's exact bytes; a payload that the journal holds goes by
 * its own record. ConflictError `authorization_open` unless `supersede` names it, `superseded`.
 */
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
