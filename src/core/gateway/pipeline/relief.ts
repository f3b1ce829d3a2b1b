/**
 * A selected candidate that only waits does not keep its round from the stand-ins (contract §5,
 * Selection).
 */
import pLimit from 'p-limit'
import type { Clock, Hex } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import type { Ledger } from '../ledger/ledger.js'
import type { Heads } from '../view/view.js'
import { commitOn } from './commit-on.js'
import { checkedChange, progressChange, selected, standsInAgain } from './progress.js'
import { createTurns } from './turns.js'
import type { Verdict } from './validation.js'

/** Stand-ins judged in one step, and at once. */
const judgedPerStep = 32
const judgedAtOnce = 8
/** Selected candidates that waited before, tried again in one step. */
const triedAgainPerStep = 64
/**
 * One that was put back over and over is taken again after twice as many blocks each time, at most
 * after so many.
 */
const longestBlocks = 64

export interface ReliefPorts {
  readonly clock: Clock
  readonly ledger: Ledger
  judge(candidate: Candidate, heads: Heads): Promise<Verdict>
  /** Takes up any verdict but a valid one. */
  settle(candidate: Candidate, verdict: Verdict, heads: Heads): Promise<void>
  /** Whether a candidate was judged at this head already. */
  wasJudged(candidate: Candidate, heads: Heads): boolean
  /** Active candidates that no slot carries, by sequence number. */
  waiting(): readonly Candidate[]
  /** Keys of rounds with an open slot. */
  busyRounds(): ReadonlySet<string>
}

export interface Relief {
  /**
   * A selected candidate could not be sent at this head, through no fault of the operator: at the
   * next one its stand-ins are asked.
   */
  note(candidate: Candidate, heads: Heads): void
  /**
   * Selected candidates in the order in which they are to be sent: those that were found to wait
   * before come last, a part of them at a time. `more`: some have not had their turn at this head.
   */
  inTurn(
    candidates: readonly Candidate[],
    heads: Heads,
  ): { readonly turn: readonly Candidate[]; readonly more: boolean }
  /**
   * Stand-ins of such candidates are judged, and one that can be sent now takes the place, in one
   * commit: nobody is put back for one that would only wait as well. True where the next step has
   * to go on at once.
   */
  relieve(heads: Heads): Promise<boolean>
  /** Candidates that made room at this head: selection takes others first. */
  putBackAt(heads: Heads): ReadonlySet<string>
  forget(isGone: (id: string) => boolean): void
}

/** Source: contract §5, robustness R3. */
export function createRelief(ports: ReliefPorts): Relief {
  const { ledger, clock } = ports
  const standIns = createTurns(judgedPerStep)
  const waiters = createTurns(triedAgainPerStep)
  const heldAt = new Map<string, Hex>()
  /** Rounds of such candidates, and the first head at which one of them could not be sent. */
  const troubledAt = new Map<string, Hex>()
  const putBack = new Map<
    string,
    { readonly at: Hex; readonly times: number; readonly untilBlock: bigint }
  >()

  const notePutBack = ({ id }: Candidate, { latest }: Heads) => {
    const times = (putBack.get(id)?.times ?? 0) + 1
    const blocks = Math.min(2 ** (times - 1), longestBlocks)
    putBack.set(id, { at: latest.hash, times, untilBlock: latest.number + BigInt(blocks) })
  }

  const change = async (
    holder: Candidate,
    standIn: Candidate,
    verdict: Verdict,
    heads: Heads,
  ): Promise<boolean> => {
    const nowMs = clock.nowMs()
    const changes = [
      progressChange(holder, standsInAgain(holder.progress, nowMs)),
      ...checkedChange(standIn, verdict, heads.latest.number),
      progressChange(standIn, selected(standIn.progress, nowMs, null)),
    ]
    if (!(await commitOn(ledger, [holder, standIn], changes))) return false
    notePutBack(holder, heads)
    return true
  }

  return {
    note(candidate, heads) {
      heldAt.set(candidate.id, heads.latest.hash)
      if (!troubledAt.has(candidate.round.key))
        troubledAt.set(candidate.round.key, heads.latest.hash)
    },
    inTurn(candidates, heads) {
      const waited = waiters.next(
        candidates.filter(({ id }) => heldAt.has(id)),
        heads.latest.hash,
      )
      const again = waited.turn.toSorted((one, other) => one.sequence - other.sequence)
      return {
        turn: [...candidates.filter(({ id }) => !heldAt.has(id)), ...again],
        more: waited.more,
      }
    },
    async relieve(heads) {
      const { hash, number } = heads.latest
      for (const { candidateIds } of ledger.slots()) {
        for (const id of candidateIds) {
          putBack.delete(id)
          heldAt.delete(id)
        }
      }
      const busy = ports.busyRounds()
      for (const key of busy) troubledAt.delete(key)
      if (heldAt.size === 0) return false
      const waiting = ports.waiting()
      // R3: a round with an open slot changes nothing.
      const isHeld = ({ id, round, progress }: Candidate) =>
        progress.status === 'selected' &&
        heldAt.get(id) === hash &&
        !busy.has(round.key) &&
        // Gas is estimated at the node's newest block, which may be ahead of this head: one look is
        // not enough to lose a place.
        troubledAt.get(round.key) !== hash
      const holders = new Map(
        waiting.filter(isHeld).map((candidate) => [candidate.round.key, candidate]),
      )
      if (holders.size === 0) return false
      const mayStandIn = (candidate: Candidate) =>
        candidate.progress.status === 'validated' &&
        holders.has(candidate.round.key) &&
        !ports.wasJudged(candidate, heads) &&
        (putBack.get(candidate.id)?.untilBlock ?? 0n) <= number
      const { turn, more } = standIns.next(waiting.filter(mayStandIn), hash)
      const limit = pLimit(judgedAtOnce)
      const verdicts = await Promise.all(
        turn.map((candidate) => limit(() => ports.judge(candidate, heads))),
      )
      const able = new Map<string, { readonly standIn: Candidate; readonly verdict: Verdict }[]>()
      for (const [index, standIn] of turn.entries()) {
        const verdict = verdicts[index]
        if (verdict?.kind === 'valid')
          able.set(standIn.round.key, [
            ...(able.get(standIn.round.key) ?? []),
            { standIn, verdict },
          ])
        else if (verdict) await ports.settle(standIn, verdict, heads)
      }
      let changed = false
      for (const [key, found] of able) {
        const holder = holders.get(key)
        if (holder === undefined) continue
        const sorted = found.toSorted((one, other) => one.standIn.sequence - other.standIn.sequence)
        const next = sorted.find(({ standIn }) => standIn.sequence > holder.sequence) ?? sorted[0]
        if (next && (await change(holder, next.standIn, next.verdict, heads))) changed = true
      }
      return more || changed
    },
    putBackAt(heads) {
      return new Set(
        [...putBack].filter(([, { at }]) => at === heads.latest.hash).map(([id]) => id),
      )
    },
    forget(isGone) {
      for (const memory of [heldAt, putBack])
        for (const id of memory.keys()) if (isGone(id)) memory.delete(id)
      const rounds = new Set(ports.waiting().map(({ round }) => round.key))
      for (const key of troubledAt.keys()) if (!rounds.has(key)) troubledAt.delete(key)
    },
  }
}
