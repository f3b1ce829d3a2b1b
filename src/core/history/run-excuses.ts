/**
 * What came before what, as far as the records tell: whether of two authorizations the first had
 * ended when the second was made (R8).
 */

import type { Claim } from './facts.js'
import { authorizationKey, hasExpired } from './journal-rules.js'
import { never, type RunOrder, type StandingFact, tracesOf } from './run-traces.js'

/** Replacements of replacements that are followed. */
const longestChain = 16

/**
 * Whether one that came first stood in nobody's way: in every order that is left, in some, in none.
 */
export type Excuse = 'surely' | 'perhaps' | 'none'

/** Whether a record of the run names the authorization at that position or before. */
const isNamedBy = ({ traces }: RunOrder, id: string, log: string | undefined, at: number) =>
  log !== undefined && (traces.get(id)?.get(log)?.first ?? never) <= at

/** Whether one came before the other: by a record that names it, or by what it is to replace. */
export function isBefore(order: RunOrder, one: StandingFact, other: StandingFact): boolean {
  let later: StandingFact | undefined = other
  for (let step = 0; later !== undefined && step < longestChain; step += 1) {
    if (isNamedBy(order, one.claim.id, later.log, later.at)) return true
    const { supersedes }: Claim = later.claim
    later = supersedes === undefined ? undefined : order.standings.get(supersedes)
  }
  return false
}

/** Whether `at` of a run, where something ended, may have come before `second`. */
function cameBefore(order: RunOrder, second: StandingFact, log: string, at: number): Excuse {
  if (at === never) return 'none'
  if (log === second.log) return at < second.at ? 'surely' : 'none'
  return isNamedBy(order, second.claim.id, log, at) ? 'none' : 'perhaps'
}

const strongest = (excuses: readonly Excuse[]): Excuse =>
  excuses.includes('surely') ? 'surely' : excuses.includes('perhaps') ? 'perhaps' : 'none'

const endedBefore = (
  order: RunOrder,
  one: StandingFact,
  second: StandingFact,
  end: 'closedAt' | 'abandonedAt',
): Excuse[] =>
  tracesOf(order, one).map(([log, trace]) => cameBefore(order, second, log, trace[end]))

function wasRefused(order: RunOrder, first: StandingFact, second: StandingFact): Excuse {
  const all = tracesOf(order, first).filter(([, { marks }]) => marks.length > 0)
  const here = all
    .find(([log]) => log === second.log)?.[1]
    .marks.findLast(({ at }) => at < second.at)
  if (here?.isUnsettled === true || here?.isAccepted === true) return 'none'
  if (here?.isRefused === true) return all.length === 1 ? 'surely' : 'perhaps'
  const isElsewhere = all.some(
    ([log, { refusedAt }]) =>
      log !== second.log && cameBefore(order, second, log, refusedAt) === 'perhaps',
  )
  return isElsewhere ? 'perhaps' : 'none'
}

/**
 * Whether an offer that is still out was in nobody's way all the same: then it may have replaced
 * another until it was given up.
 */
function wasInNoWay(order: RunOrder, offer: StandingFact, second: StandingFact): boolean {
  const { id, round } = offer.claim
  const sharesRound =
    round === undefined || second.claim.round === undefined || round === second.claim.round
  return (
    second.claim.supersedes === id ||
    !sharesRound ||
    hasExpired(offer.claim, second.claim.atMs) ||
    order.replacers.has(id) ||
    endedBefore(order, offer, second, 'closedAt').some((excuse) => excuse !== 'none')
  )
}

function wasReplaced(order: RunOrder, first: StandingFact, second: StandingFact): Excuse {
  let found: Excuse = 'none'
  for (const replacer of order.replacers.get(first.claim.id) ?? []) {
    if (replacer === second) return 'surely'
    if (isBefore(order, second, replacer)) continue
    // An offer that was given up leaves what it was to replace as it was.
    const end = replacer.isSigned
      ? 'none'
      : strongest(endedBefore(order, replacer, second, 'abandonedAt'))
    if (end === 'surely') continue
    if (end === 'none' && isBefore(order, replacer, second)) return 'surely'
    if (end === 'none' || wasInNoWay(order, replacer, second)) found = 'perhaps'
  }
  return found
}

/** If `first` came first: whether it had ended, or been replaced, when `second` came. */
function excuseOf(order: RunOrder, first: StandingFact, second: StandingFact): Excuse {
  const excuses = [wasReplaced(order, first, second), wasRefused(order, first, second)]
  // What came in under two ids ends under either.
  for (const id of order.idsOf.get(authorizationKey(first.claim)) ?? [])
    for (const [log, { closedAt }] of order.traces.get(id) ?? [])
      excuses.push(cameBefore(order, second, log, closedAt))
  // What was signed stays signed, whatever became of its offer.
  if (!first.isSigned) excuses.push(...endedBefore(order, first, second, 'abandonedAt'))
  return strongest(excuses)
}

/** Whether an order that is left explains two authorizations of one round. */
export function excuseOfPair(order: RunOrder, one: StandingFact, other: StandingFact): Excuse {
  if (authorizationKey(one.claim) === authorizationKey(other.claim)) return 'surely'
  if (hasExpired(one.claim, other.claim.atMs) || hasExpired(other.claim, one.claim.atMs))
    return 'surely'
  const oneFirst = isBefore(order, other, one) ? undefined : excuseOf(order, one, other)
  const otherFirst = isBefore(order, one, other) ? undefined : excuseOf(order, other, one)
  if (oneFirst === undefined || otherFirst === undefined) return oneFirst ?? otherFirst ?? 'none'
  if (oneFirst === otherFirst) return oneFirst
  return 'perhaps'
}
