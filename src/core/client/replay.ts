/** `replay`: the saved bytes again, where nothing is known yet (R7, contract §6). */
import { type ProposerError, UnavailableError, UncertainError, UsageError } from '../protocol/errors.js'
import type { SubmitParts } from './attempt.js'
import { type Authorization, classOf, stateOf } from './authorizations.js'
import { type SubmissionResult, type SubmitOptions, submitAuthorization } from './sending.js'

export interface Elsewhere {
  readonly authorization: Authorization
  readonly origin: string
  /** What sends it. */
  readonly flag: string
  readonly error: ProposerError
}

export interface ReplayResult {
  readonly results: readonly SubmissionResult[]
  /** Not sent: their attempts went to another origin. */
  readonly elsewhere: readonly Elsewhere[]
}

/**
 * Sends every unknown or deferred authorization, or the named ones, one after the other. One whose attempts went to another origin is
 * only listed, with the flag to use (exit 6, deferred: 75), unless `redirect`: the gateway was given as a flag together with ids. Named
 * ones may also be accepted or never sent. UsageError `unknown_journal_id`, `authorization_closed`.
 */
export async function replay(
  parts: SubmitParts,
  which: readonly string[] | 'all',
  options: SubmitOptions & { readonly redirect?: boolean } = {},
): Promise<ReplayResult> {
  const view = await parts.journal.load()
  const nowMs = parts.ports.clock.nowMs()
  const kindOf = (one: Authorization) => stateOf(one, nowMs).kind
  const chosen =
    which === 'all'
      ? view.authorizations.filter((one) => kindOf(one) === 'unknown' || kindOf(one) === 'deferred')
      : which.map((id) => view.find(id) ?? refuse(id))
  const closed = chosen.find((one) => kindOf(one) === 'closed')
  if (closed !== undefined) {
    throw new UsageError('authorization_closed', `${closed.id} is closed: sending it again changes nothing`, {
      hint: 'see `proposer journal show`',
    })
  }
  const results: SubmissionResult[] = []
  const elsewhere: Elsewhere[] = []
  for (const one of chosen) {
    const origin = originOf(one)
    if (origin === undefined || origin === parts.gateway.origin || options.redirect === true) {
      results.push(await submitAuthorization(parts, one, options))
    } else elsewhere.push(listed(one, origin, kindOf(one) === 'unknown'))
  }
  return { results, elsewhere }
}

/** Where the bytes went that nothing is known of, else where they went last. */
function originOf(authorization: Authorization): string | undefined {
  const { attempts } = authorization
  return (attempts.findLast((one) => classOf(one) === 'uncertain') ?? attempts.at(-1))?.start.origin
}

function listed(authorization: Authorization, origin: string, isUnknown: boolean): Elsewhere {
  // The path of a base URL is not journaled (R5), so the origin is what can be named.
  const flag = origin.startsWith('local:') ? '--local <gateway.json>' : `--gateway ${origin}`
  const detail = `${authorization.id} was sent to ${origin}, which is not the configured gateway`
  const hint = `\`proposer replay ${authorization.id} ${flag}\``
  const error = isUnknown
    ? new UncertainError('other_origin', detail, { hint, retryable: true })
    : new UnavailableError('other_origin', detail, { hint })
  return { authorization, origin, flag, error }
}

/** UsageError for an id that no run of this home has given. */
export const unknownId = (id: string): UsageError =>
  new UsageError('unknown_journal_id', `the journal has no authorization ${JSON.stringify(id)}`, { hint: 'see `proposer journal list`' })

function refuse(id: string): never {
  throw unknownId(id)
}
