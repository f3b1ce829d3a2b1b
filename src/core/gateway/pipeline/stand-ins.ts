/**
 * A selected candidate that only waits does not keep its round from the stand-ins (contract §5,
 * Selection; R3).
 */

import pLimit from 'p-limit'
import type { Hex } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import type { Candidate } from '#protocol/candidate'
import { busyRounds } from '../executor/state.js'
import { progressChange, selected, standsInAgain } from '../validation/progress.js'
import type { Judgement } from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import {
  checkedChange,
  createRoundRobin,
  type Judging,
  rememberedCandidates,
  settleJudgement,
  waitingIn,
} from './settling.js'

const judgedPerStep = 32
const judgedAtOnce = 8
const retriedPerStep = 64
/** Twice as many blocks each time, up to this. */
const longestBlocks = 64

interface Replaced {
  readonly at: Hex
  readonly times: number
  readonly untilBlock: bigint
}

type StandIns = ReturnType<typeof newStandIns>

export const newStandIns = () => ({
  turns: createRoundRobin(judgedPerStep),
  retries: createRoundRobin(retriedPerStep),
  stuckAt: boundedCache<string, Hex>(rememberedCandidates),
  troubledAt: boundedCache<string, Hex>(rememberedCandidates),
  replaced: boundedCache<string, Replaced>(rememberedCandidates),
})

/** Through no fault of the operator: at the next head its stand-ins are judged. */
export function noteStuck(
  { stuckAt, troubledAt }: StandIns,
  { id, round }: Candidate,
  { latest }: Heads,
) {
  stuckAt.set(id, latest.hash)
  if (!troubledAt.has(round.key)) troubledAt.set(round.key, latest.hash)
}

/** Those that were found to wait before come last, a part of them at a time. */
export function sendingOrder(
  { stuckAt, retries }: StandIns,
  candidates: readonly Candidate[],
  { latest }: Heads,
) {
  const stuck = candidates.filter(({ id }) => stuckAt.has(id))
  const { turn, hasMore } = retries.next(stuck, latest.hash)
  const again = turn.toSorted((one, other) => one.sequence - other.sequence)
  return { turn: [...candidates.filter(({ id }) => !stuckAt.has(id)), ...again], hasMore }
}

export function replacedAt({ replaced }: StandIns, { latest }: Heads): ReadonlySet<string> {
  const now = [...replaced.entries()].filter(([, { at }]) => at === latest.hash)
  return new Set(now.map(([id]) => id))
}

/**
 * One that can be sent now takes the place, in one commit; nobody is replaced by one that would
 * wait as well. True where the next step has to go on at once.
 */
export async function replaceStuck(
  judging: Judging,
  standIns: StandIns,
  judge: (candidate: Candidate, heads: Heads) => Promise<Judgement>,
  heads: Heads,
) {
  const { ledger, judgedAt } = judging
  const { hash, number } = heads.latest
  for (const { candidateIds } of ledger.slots())
    for (const memory of [standIns.replaced, standIns.stuckAt])
      for (const id of candidateIds) memory.delete(id)
  const busy = busyRounds(ledger)
  for (const key of busy) standIns.troubledAt.delete(key)
  if (standIns.stuckAt.size === 0) return false
  const waiting = waitingIn(ledger)
  const holders = new Map(
    waiting
      .filter(
        ({ id, progress }) => progress.status === 'selected' && standIns.stuckAt.get(id) === hash,
      )
      // R3: a round with an open slot changes nothing. The node may be ahead of this head: one look
      // is not enough to lose a place.
      .filter(({ round }) => !busy.has(round.key) && standIns.troubledAt.get(round.key) !== hash)
      .map((candidate) => [candidate.round.key, candidate]),
  )
  if (holders.size === 0) return false
  const eligible = waiting.filter(
    ({ id, round, progress }) =>
      progress.status === 'validated' &&
      holders.has(round.key) &&
      judgedAt.get(id) !== hash &&
      (standIns.replaced.get(id)?.untilBlock ?? 0n) <= number,
  )
  const { turn, hasMore } = standIns.turns.next(eligible, hash)
  const limit = pLimit(judgedAtOnce)
  const judged = await Promise.all(
    turn.map((standIn) => limit(async () => ({ standIn, judgement: await judge(standIn, heads) }))),
  )
  const able = judged.filter(({ judgement }) => judgement.kind === 'valid')
  for (const { standIn, judgement } of judged)
    if (judgement.kind !== 'valid') await settleJudgement(judging, standIn, judgement, heads)
  let hasChanged = false
  for (const [key, holder] of holders) {
    const found = able
      .filter(({ standIn }) => standIn.round.key === key)
      .toSorted((one, other) => one.standIn.sequence - other.standIn.sequence)
    const next = found.find(({ standIn }) => standIn.sequence > holder.sequence) ?? found[0]
    if (next && (await replace(judging, standIns, holder, next, heads))) hasChanged = true
  }
  return hasMore || hasChanged
}

async function replace(
  { ledger, clock }: Judging,
  { replaced }: StandIns,
  holder: Candidate,
  { standIn, judgement }: { standIn: Candidate; judgement: Judgement },
  { latest }: Heads,
) {
  const nowMs = clock.nowMs()
  const changes = [
    progressChange(holder, standsInAgain(holder.progress, nowMs)),
    ...checkedChange(standIn, judgement, latest.number),
    progressChange(standIn, selected(standIn.progress, nowMs, null)),
  ]
  if (!(await ledger.commit(changes, [holder, standIn]))) return false
  const times = (replaced.get(holder.id)?.times ?? 0) + 1
  const blocks = Math.min(2 ** (times - 1), longestBlocks)
  replaced.set(holder.id, { at: latest.hash, times, untilBlock: latest.number + BigInt(blocks) })
  return true
}

/**
 * Per round the lowest sequence number, where it has no selected candidate and no open slot (R3).
 * `replaced` come last.
 */
export function select(
  active: readonly Candidate[],
  busy: ReadonlySet<string>,
  replaced: ReadonlySet<string> = new Set(),
): readonly Candidate[] {
  const taken = new Set(busy)
  for (const { round, progress } of active)
    if (progress.status === 'selected' || progress.status === 'executed') taken.add(round.key)
  const isLate = ({ id }: Candidate) => Number(replaced.has(id))
  return active
    .filter(({ progress }) => progress.status === 'validated')
    .toSorted((one, other) => isLate(one) - isLate(other) || one.sequence - other.sequence)
    .filter(({ round }) => {
      const isFree = !taken.has(round.key)
      taken.add(round.key)
      return isFree
    })
}
