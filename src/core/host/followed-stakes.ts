/**
 * What became of executed candidates' bonds, from the disputes and settlements that the view has
 * followed (domain §10). Asks no node.
 */
import { type Contracts, roundRef } from '../chain/round.js'
import { resultFor } from '../chain/stakes.js'
import type { Ledger } from '../gateway/ledger/ledger.js'
import type { StakeNews } from '../gateway/view/final-stakes.js'
import type { LiveView } from '../gateway/view/view.js'
import { ProposerError } from '../protocol/errors.js'
import type { Observation } from '../protocol/vitals.js'

/** A dispute of the proposal of an executed candidate. */
export interface DisputeNews {
  readonly candidateId: string
  readonly news: StakeNews
}

export interface FollowedStakes {
  /** Called once for each dispute, once it is final. */
  onDispute(listener: (dispute: DisputeNews) => void): () => void
  stop(): void
}

/** Executed candidates whose settlement is waited for: the newest (R17). */
const mostWaiting = 20_000

/** Counts settlements from now on, also of candidates that were executed before. */
export function followStakes(
  ledger: Pick<Ledger, 'newest' | 'byId' | 'get' | 'onChange'>,
  view: Pick<LiveView, 'onStake'>,
  contracts: Contracts,
  observe: (observation: Observation) => void,
): FollowedStakes {
  /** Candidates by the key of their round, the newest last. */
  const waiting = new Map<string, string>()
  const listeners = new Set<(dispute: DisputeNews) => void>()
  const wait = (roundKey: string, id: string) => {
    waiting.set(roundKey, id)
    const [oldest] = waiting.keys()
    if (waiting.size > mostWaiting && oldest !== undefined) waiting.delete(oldest)
  }
  const before = [...ledger.newest(mostWaiting)].filter(({ status }) => status === 'executed')
  for (const { roundKey, id } of before.reverse()) wait(roundKey, id)
  const unfollow = ledger.onChange((events) => {
    for (const event of events) {
      if (event.kind !== 'candidate.progress') continue
      const roundKey = ledger.byId(event.id)?.roundKey ?? ''
      if (event.progress.status === 'executed') wait(roundKey, event.id)
      // A reorganisation has undone it (R14).
      else if (waiting.get(roundKey) === event.id) waiting.delete(roundKey)
    }
  })
  const unhear = view.onStake((news) => {
    // The key of a round has no part of the question.
    const { key } = roundRef(contracts, news.text, news, news.text)
    const candidateId = waiting.get(key)
    if (candidateId === undefined) return
    if (news.kind === 'disputed') {
      for (const listener of listeners) listener({ candidateId, news })
      return
    }
    waiting.delete(key)
    const ended = async () => {
      const price = news.disputer && (await ledger.get(candidateId))?.price
      const outcome = resultFor(price, news)
      if (outcome !== undefined) observe({ kind: 'stake', outcome })
    }
    ended().catch((error: unknown) => {
      // The store cannot be read now, and says so itself: the count is of what is known.
      if (!(error instanceof ProposerError)) throw error
    })
  })
  return {
    onDispute(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    stop() {
      unfollow()
      unhear()
    },
  }
}
