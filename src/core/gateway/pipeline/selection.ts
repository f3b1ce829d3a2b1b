/** Which candidate a round takes, and how the others end (contract §5, robustness §3). Pure. */
import type { OnChainProposal } from '../../chain/propose.js'
import type { Round } from '../../chain/round.js'
import type { Candidate, Failure } from '../../protocol/candidate.js'
import { outcomeOf } from '../../protocol/proposal.js'
import { failureOf, stageOf } from './progress.js'

/**
 * The validated candidates that are to be selected now: per round the lowest sequence number, where
 * the round has no selected candidate and no open slot. `busyRounds`: keys of rounds with an open
 * slot (R3: never freed before finality). `putBack`: candidates that have just made room for
 * another one; they come after all others of their round.
 */
export function select(
  active: readonly Candidate[],
  busyRounds: ReadonlySet<string>,
  putBack: ReadonlySet<string> = new Set(),
): readonly Candidate[] {
  const taken = new Set(busyRounds)
  for (const { round, progress } of active)
    if (progress.status === 'selected' || progress.status === 'executed') taken.add(round.key)
  const chosen: Candidate[] = []
  const validated = active.filter(({ progress }) => progress.status === 'validated')
  const late = ({ id }: Candidate) => Number(putBack.has(id))
  for (const candidate of validated.toSorted(
    (one, other) => late(one) - late(other) || one.sequence - other.sequence,
  )) {
    if (taken.has(candidate.round.key)) continue
    taken.add(candidate.round.key)
    chosen.push(candidate)
  }
  return chosen
}

/**
 * What finalized state shows of a candidate's round: still open, or who took it and what the
 * question's round is now.
 */
export type RoundEnd =
  | { readonly kind: 'open' }
  | {
      readonly kind: 'closed'
      /**
       * The question's current round; `undefined` where no trusted requester knows the question any
       * more.
       */
      readonly current: Round | undefined
      /** The proposal that the candidate's own round holds. */
      readonly proposal: OnChainProposal | undefined
    }

/** A candidate's proposal on chain, put there by its signature. */
export type OwnProposal = Extract<OnChainProposal, { bySignature: true }>

export type Ending =
  | { readonly kind: 'executed'; readonly proposal: OwnProposal }
  | { readonly kind: 'failed'; readonly failure: Failure }

/**
 * How a waiting candidate of a closed round ends. A proposal by its proposer, at its price, through
 * SignedProposer is its own, whoever sent it (domain §9): comparing comes before failing.
 */
export function endingOf(candidate: Candidate, end: Extract<RoundEnd, { kind: 'closed' }>): Ending {
  const { proposal, current } = end
  if (proposal && isOwn(candidate, proposal)) return { kind: 'executed', proposal }
  const stage = stageOf(candidate.progress)
  const fail = (
    code: 'round_advanced' | 'superseded' | 'request_not_open',
    detail: string,
  ): Ending => ({
    kind: 'failed',
    failure: failureOf(stage, code, detail),
  })
  const moved = current && movedTo(candidate, current)
  if (moved) return fail('round_advanced', moved)
  if (proposal) {
    return fail('superseded', supersededBy(proposal))
  }
  return fail(
    'request_not_open',
    current
      ? `The request is ${current.state}.`
      : 'No trusted requester knows the question any more.',
  )
}

/**
 * That the question is in another round than the candidate's, in a sentence; `undefined` where it
 * is in the same one.
 */
export function movedTo({ round }: Candidate, current: Round): string | undefined {
  if (current.timestamp === round.timestamp) return undefined
  return `The question is in the round of ${current.timestamp}; this was signed for the round of ${round.timestamp}.`
}

/** Whether a proposal on chain is this candidate's, put there by its signature. */
export function isOwn(
  candidate: Pick<Candidate, 'proposer' | 'price'>,
  proposal: OnChainProposal,
): proposal is OwnProposal {
  return (
    proposal.bySignature &&
    proposal.proposer === candidate.proposer &&
    proposal.price === candidate.price
  )
}

/** Who was first, in a sentence. */
export function supersededBy({ proposer, price, transactionHash }: OnChainProposal): string {
  const where = transactionHash === null ? '' : `, in transaction ${transactionHash}`
  return `${proposer} proposed ${outcomeOf(price) ?? `price ${price}`} first${where}.`
}

/** The end of a stand-in whose round another candidate has executed. */
export function notSelected(candidate: Candidate): Failure {
  return failureOf(
    stageOf(candidate.progress),
    'not_selected',
    'Another candidate was executed for this round.',
  )
}

/**
 * Why a waiting candidate can never execute, in finalized state, or `undefined` (contract §5).
 * Times in Unix seconds.
 */
export function deadFailure(
  candidate: Candidate,
  facts: { finalizedSeconds: bigint; nonceUsed: boolean },
): Failure | undefined {
  const stage = stageOf(candidate.progress)
  if (facts.finalizedSeconds > BigInt(candidate.deadline)) {
    return failureOf(
      stage,
      'permit_expired',
      `The permit deadline ${candidate.deadline} has passed: finalized time is ${facts.finalizedSeconds}.`,
    )
  }
  if (facts.nonceUsed) {
    return failureOf(
      stage,
      'permit_nonce_used',
      `The permit nonce ${candidate.nonce} is used or invalidated.`,
    )
  }
  return undefined
}
