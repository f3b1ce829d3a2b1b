/** What of a wallet's money its other candidates may take (contract §5, validation). */
import type { Contracts } from '../../chain/round.js'
import type { Address } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import { carriedBy, readProposeCalldata, readTransaction } from '../executor/transaction.js'
import type { Ledger } from '../ledger/ledger.js'
import type { LiveView } from '../view/view.js'
import { isOpen } from './validation.js'

export interface Ahead {
  /**
   * The wallet's candidates whose amounts may be taken before this one's: earlier ones, and those
   * on their way.
   */
  of(candidate: Candidate): readonly Candidate[]
  /** The token of a candidate's amount; `undefined` where nothing at hand tells it. */
  tokenOf(candidate: Candidate): Address | undefined
  /** False where the view shows that the candidate's round is taken or over. */
  stillOpen(candidate: Candidate): boolean
}

/**
 * Reads nothing of the chain: what counts against a wallet must not cost another one's candidates
 * time.
 */
export function createAhead(
  ledger: Pick<Ledger, 'active' | 'slots'>,
  view: Pick<LiveView, 'known'>,
  contracts: Contracts,
): Ahead {
  const stillOpen = (candidate: Candidate): boolean => {
    const question = view.known(candidate.round.questionId)
    return question === undefined || isOpen(contracts, question.round, candidate)
  }

  /** Our own calldata names the token, whatever the view knows after a restart. */
  const signedToken = ({ id }: Candidate): Address | undefined => {
    for (const { attempts } of ledger.slots()) {
      for (const { raw, candidateIds } of attempts) {
        const at = candidateIds.indexOf(id)
        const call = at < 0 ? undefined : carriedBy(readTransaction(raw).data)[at]
        if (call !== undefined) return readProposeCalldata(call).token
      }
    }
    return undefined
  }

  return {
    of({ id, proposer, sequence }) {
      const carried = new Set(ledger.slots().flatMap(({ candidateIds }) => candidateIds))
      return ledger.active().filter((other) => {
        if (other.id === id || other.proposer !== proposer || other.progress.status === 'executed')
          return false
        if (carried.has(other.id)) return true
        // What cannot execute any more takes nothing; it waits for that to be final.
        return other.sequence < sequence && stillOpen(other)
      })
    },
    tokenOf(candidate) {
      const [only, second] = contracts.tokens
      if (second === undefined) return only
      const round = view.known(candidate.round.questionId)?.round
      // Another round of the question may be in another token.
      return round?.timestamp === candidate.round.timestamp
        ? round.token.address
        : signedToken(candidate)
    },
    stillOpen,
  }
}
