/** `replay`: saved bytes of unknown or deferred outcome, sent again and never signed (R7). */
import { UsageError } from '#protocol/errors'
import { outcomeOf } from '#protocol/proposal'
import {
  type Elsewhere,
  type JournaledAuthorization,
  sentElsewhere,
  stateOf,
  supersededError,
  unknownId,
} from '../journal/authorizations.js'
import type { ContextSource } from '../trust/context.js'
import type { Trust } from '../trust/trust.js'
import type { SubmitParts } from './attempt.js'
import type { SentOutcome } from './outcome.js'
import { knownOver, roundsOf, sendInRound } from './round-over.js'
import type { SubmitOptions } from './send.js'

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
  readonly results: readonly SentOutcome[]
}

export interface ReplayOptions extends SubmitOptions {
  readonly redirect?: boolean
}

export interface ReplayParts extends SubmitParts {
  /** Where an answer leaves open whether the own round is over. */
  readonly contexts?: ContextSource
  readonly trust?: Trust
  readonly chain?: object | undefined
}

export async function replay(
  parts: ReplayParts,
  which: readonly string[] | 'all',
  { redirect, ...options }: ReplayOptions = {},
): Promise<ReplayResult> {
  const { chosen, ...rest } = await planReplay(parts, which, { redirect })
  const { contexts, trust, chain } = parts
  const round =
    contexts && trust && roundsOf({ contexts, trust }, chosen, chain !== undefined, options.signal)
  const known = await Promise.all(chosen.map((one) => knownOver(one, round)))
  const toSend = chosen.filter((_, at) => known[at] === undefined)
  const { results } = await sendInRound(parts, toSend, { ...options, roundOf: () => round })
  const sent = [...results]
  return { results: known.flatMap((over) => over ?? sent.shift() ?? []), ...rest }
}

/**
 * What went to another origin is only listed, but with `redirect`: the gateway was named together
 * with ids.
 */
export async function planReplay(
  { ports, journal, gateway }: SubmitParts,
  which: readonly string[] | 'all',
  { redirect = false }: { readonly redirect?: boolean | undefined },
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

function sendable(one: JournaledAuthorization | undefined, id: string, nowMs: number) {
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

function skippedOf(all: readonly JournaledAuthorization[], nowMs: number) {
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
