/** `replay`: the saved bytes again, where nothing is known yet (R7, contract §6). */
import { UsageError } from '../../protocol/errors.js'
import { outcomeOf } from '../../protocol/proposal.js'
import { type JournaledAuthorization, stateOf } from '../journal/authorizations.js'
import { type Elsewhere, sentElsewhere, supersededError, unknownId } from '../journal/saved.js'
import type { SubmitParts } from './attempt.js'
import type { SubmissionResult } from './outcome.js'
import { type CurrentRound, sendAllInRound } from './round-over.js'
import type { SubmitOptions } from './send.js'

/** Open, and left alone by `--all`, with the command that goes on with it. */
export interface Skipped {
  readonly authorization: JournaledAuthorization
  readonly reason: 'superseded' | 'failed_retryably'
  readonly command: string
}

export interface ReplayPlan {
  readonly chosen: readonly JournaledAuthorization[]
  /** Not sent: their attempts went to another origin. */
  readonly elsewhere: readonly Elsewhere[]
  readonly skipped: readonly Skipped[]
}

export interface ReplayResult extends Omit<ReplayPlan, 'chosen'> {
  readonly results: readonly SubmissionResult[]
}

export interface ReplayOptions extends SubmitOptions {
  readonly redirect?: boolean
  /** The round that is open now, where an answer leaves open whether the own one is over. */
  readonly round?: CurrentRound
}

/** Unknown or deferred authorizations, or the named ones. `timeoutMs` is for all of them. */
export async function replay(
  parts: SubmitParts,
  which: readonly string[] | 'all',
  options: ReplayOptions = {},
): Promise<ReplayResult> {
  const { chosen, ...rest } = await planReplay(parts, which, options)
  return { results: await sendAllInRound(parts, chosen, options), ...rest }
}

/**
 * One whose attempts went to another origin is only listed, with the flag to use (exit 6, deferred:
 * 75), but with `redirect`: the gateway was given as a flag together with ids. UsageError
 * `unknown_journal_id`, `authorization_closed`, `never_sent`; ConflictError `superseded` (R8).
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
      { hint: `see \`proposer journal show ${id}\`` },
    )
  const superseded = supersededError(one)
  if (superseded !== undefined) throw superseded
  if (kind !== 'signed') return one
  const { identifier, terms } = one.signed
  throw new UsageError(
    'never_sent',
    `${id} was signed and never sent: there is nothing to send again`,
    {
      hint: `send it with \`proposer submit ${identifier} --outcome ${outcomeOf(terms.price) ?? '<answer>'}\``,
    },
  )
}

/** What may still execute and is not sent by `all`, so that it is not forgotten. */
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
