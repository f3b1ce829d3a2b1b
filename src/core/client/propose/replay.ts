/** `replay`: the saved bytes again, where nothing is known yet (R7, contract §6). */
import {
  ConflictError,
  type ProposerError,
  UnavailableError,
  UncertainError,
  UsageError,
} from '../../protocol/errors.js'
import { outcomeOf } from '../../protocol/proposal.js'
import { type Authorization, classOf, stateOf } from '../journal/authorizations.js'
import type { SubmitParts } from './attempt.js'
import { type CurrentRound, sendInRound } from './round-over.js'
import type { SubmissionResult, SubmitOptions } from './sending.js'

export interface Elsewhere {
  readonly authorization: Authorization
  readonly origin: string
  /** What sends it. */
  readonly flag: string
  readonly error: ProposerError
}

/** Open, and left alone by `--all`, with the command that goes on with it. */
export interface Skipped {
  readonly authorization: Authorization
  readonly reason: 'superseded' | 'failed_retryably'
  readonly command: string
}

/** What a replay would do. */
export interface ReplayPlan {
  /** What goes to this gateway. */
  readonly chosen: readonly Authorization[]
  /** Not sent: their attempts went to another origin. */
  readonly elsewhere: readonly Elsewhere[]
  /** Only of `all`. */
  readonly skipped: readonly Skipped[]
}

export interface ReplayResult extends Omit<ReplayPlan, 'chosen'> {
  readonly results: readonly SubmissionResult[]
}

export interface ReplayOptions extends SubmitOptions {
  readonly redirect?: boolean
  /**
   * Tells the round that is open now, where an answer leaves it open whether the authorization's
   * own is over.
   */
  readonly round?: CurrentRound
}

/**
 * Sends every unknown or deferred authorization, or the named ones, one after the other. Throws
 * what `planReplay` throws, before anything is sent.
 */
export async function replay(
  parts: SubmitParts,
  which: readonly string[] | 'all',
  options: ReplayOptions = {},
): Promise<ReplayResult> {
  const { chosen, ...rest } = await planReplay(parts, which, options)
  const results: SubmissionResult[] = []
  for (const one of chosen) results.push(await sendInRound(parts, one, options))
  return { results, ...rest }
}

/**
 * What `replay` would send; sends nothing. One whose attempts went to another origin is only
 * listed, with the flag to use (exit 6, deferred: 75), unless `redirect`: the gateway was given as
 * a flag together with ids. Named ones may also be accepted. UsageError `unknown_journal_id`,
 * `authorization_closed`, `never_sent`; ConflictError `superseded`, for what was replaced must
 * never execute beside what replaced it (R8).
 */
export async function planReplay(
  parts: SubmitParts,
  which: readonly string[] | 'all',
  { redirect = false }: Pick<ReplayOptions, 'redirect'>,
): Promise<ReplayPlan> {
  const view = await parts.journal.load()
  const nowMs = parts.ports.clock.nowMs()
  const kindOf = (one: Authorization) => stateOf(one, nowMs).kind
  const isOwed = (one: Authorization) => kindOf(one) === 'unknown' || kindOf(one) === 'deferred'
  const owed = which === 'all' ? view.authorizations.filter(isOwed) : []
  const wanted =
    which === 'all'
      ? owed.filter((one) => one.supersededBy === undefined)
      : which.map((id) => view.find(id) ?? refuse(id))
  for (const one of wanted) refuseUnsendable(one, kindOf(one))
  const awayOf = (one: Authorization) =>
    redirect ? undefined : sentElsewhere(one, parts.gateway.origin, nowMs)
  return {
    chosen: wanted.filter((one) => awayOf(one) === undefined),
    elsewhere: wanted.flatMap((one) => awayOf(one) ?? []),
    skipped: which === 'all' ? skippedOf(view.authorizations, owed, nowMs) : [],
  }
}

function refuseUnsendable(one: Authorization, kind: ReturnType<typeof stateOf>['kind']): void {
  const { id, signed } = one
  if (kind === 'closed') {
    throw new UsageError(
      'authorization_closed',
      `${id} is closed: sending it again changes nothing`,
      {
        hint: `see \`proposer journal show ${id}\``,
      },
    )
  }
  refuseSuperseded(one)
  if (kind !== 'signed') return
  throw new UsageError(
    'never_sent',
    `${id} was signed and never sent: there is nothing to send again`,
    {
      hint: `send it with \`proposer submit ${signed.identifier} --outcome ${outcomeOf(signed.terms.price) ?? '<p1|p2|p3>'}\``,
    },
  )
}

/** Throws `supersededError`. */
export function refuseSuperseded(authorization: Authorization): void {
  const error = supersededError(authorization)
  if (error !== undefined) throw error
}

/**
 * ConflictError `superseded` where another authorization took its place: two of one round must
 * never both be sent (R8).
 */
export function supersededError({
  id,
  signed,
  supersededBy,
}: Authorization): ConflictError | undefined {
  if (supersededBy === undefined) return undefined
  return new ConflictError(
    'superseded',
    `${supersededBy} has replaced ${id}, which is not sent any more`,
    {
      hint: `see both with \`proposer reconcile ${signed.questionId}\`; \`proposer revoke ${id}\` makes sure that it can never execute`,
    },
  )
}

/** What may still execute and is not sent by `all`, so that it is not forgotten. */
function skippedOf(
  all: readonly Authorization[],
  owed: readonly Authorization[],
  nowMs: number,
): readonly Skipped[] {
  const replaced = owed
    .filter((one) => one.supersededBy !== undefined)
    .map((authorization) => ({
      authorization,
      reason: 'superseded' as const,
      command: `proposer revoke ${authorization.id}`,
    }))
  const failed = all
    .filter(
      (one) =>
        stateOf(one, nowMs).kind === 'accepted' &&
        one.terminal?.outcome === 'failed' &&
        one.supersededBy === undefined,
    )
    .map((authorization) => ({
      authorization,
      reason: 'failed_retryably' as const,
      command: `proposer replay ${authorization.id}`,
    }))
  return [...replaced, ...failed]
}

/**
 * Where the bytes went that nothing is known of; else where they were accepted, `here` if that is
 * one of several; else where they went last.
 */
function originOf({ attempts, candidateId }: Authorization, here: string): string | undefined {
  const accepted =
    candidateId === undefined ? [] : attempts.filter((one) => classOf(one) === 'accepted')
  const holder = accepted.find(({ start }) => start.origin === here) ?? accepted.at(-1)
  return (holder ?? attempts.findLast((one) => classOf(one) === 'uncertain') ?? attempts.at(-1))
    ?.start.origin
}

/**
 * The other gateway that the bytes went to, and the flag that names it; `undefined` where they went
 * `here` or nowhere.
 */
export function otherGateway(
  authorization: Authorization,
  here: string,
): Pick<Elsewhere, 'origin' | 'flag'> | undefined {
  const origin = originOf(authorization, here)
  if (origin === undefined || origin === here) return undefined
  // The path of a base URL is not journaled (R5), so the origin is what can be named.
  return {
    origin,
    flag: origin.startsWith('local:') ? '--local <gateway.json>' : `--gateway ${origin}`,
  }
}

/**
 * What is to be told where the bytes of an open authorization went to another gateway than `here`;
 * `undefined` where they did not. Its error is an UncertainError (exit 6) where the outcome is
 * unknown, else an UnavailableError (75). Source: contract §6, R7.
 */
export function sentElsewhere(
  authorization: Authorization,
  here: string,
  nowMs: number,
): Elsewhere | undefined {
  const { kind } = stateOf(authorization, nowMs)
  const other = kind === 'closed' ? undefined : otherGateway(authorization, here)
  if (other === undefined) return undefined
  const detail = `${authorization.id} was sent to ${other.origin}, which is not the configured gateway`
  const hint = `\`proposer replay ${authorization.id} ${other.flag}\``
  const error =
    kind === 'unknown'
      ? new UncertainError('other_origin', detail, { hint, retryable: true })
      : new UnavailableError('other_origin', detail, { hint })
  return { authorization, ...other, error }
}

/** UsageError for an id that no run of this home has given. */
export const unknownId = (id: string): UsageError =>
  new UsageError('unknown_journal_id', `the journal has no authorization ${JSON.stringify(id)}`, {
    hint: 'see `proposer journal list`',
  })

function refuse(id: string): never {
  throw unknownId(id)
}
