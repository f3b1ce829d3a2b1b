import { locateProposal, type OnChainProposal } from '#chain/propose'
import { type Contracts, keccakHex, type Round, roundRef } from '#chain/round'
import type { Candidate, CandidateFailure } from '#protocol/candidate'
import { outcomeOf } from '#protocol/proposal'
import type { Heads } from '../view/state.js'
import type { QuestionChain } from './contract-reads.js'
import { failureOf, stageOf } from './progress.js'

/**
 * `current`: `undefined` where no trusted requester knows the question. `proposal`: what the
 * candidate's own round holds.
 */
interface ClosedRound {
  readonly current: Round | undefined
  readonly proposal: OnChainProposal | undefined
}

export type OwnProposal = Extract<OnChainProposal, { bySignature: true }>

export type RoundOutcome =
  | { readonly kind: 'executed'; readonly proposal: OwnProposal }
  | { readonly kind: 'failed'; readonly failure: CandidateFailure }

export function isRoundOpen(contracts: Contracts, round: Round, candidate: Candidate) {
  return round.state === 'requested' && isSameRound(contracts, round, candidate)
}

/** Hashing the text costs most. */
const roundKeys = new WeakMap<Round, string>()

export function isSameRound(contracts: Contracts, round: Round, candidate: Candidate) {
  const key =
    roundKeys.get(round) ??
    roundRef(contracts, round.questionId, round, keccakHex(round.ancillaryData)).key
  roundKeys.set(round, key)
  return key === candidate.round.key
}

/** As of the finalized block; `undefined` while it is open, or not reached yet. */
export async function readRoundEnd(
  ports: QuestionChain,
  candidate: Candidate,
  { latest, finalized }: Heads,
): Promise<ClosedRound | undefined> {
  const { questionId, oracle, requester, identifier, timestamp, ancillaryHash } = candidate.round
  const current = await ports.readRound(questionId, finalized.number)
  if (current === undefined) {
    // Asked just now; one that is in neither state is gone.
    const newest = await ports.readRound(questionId, latest.number)
    return newest === undefined ? { current: undefined, proposal: undefined } : undefined
  }
  // A round of a time that finalized state has passed, and not in it, was undone (R14).
  if (isRoundOpen(ports.contracts, current, candidate) || finalized.timestamp < BigInt(timestamp))
    return undefined
  const { ancillaryData } = current
  if (keccakHex(ancillaryData) !== ancillaryHash) return { current, proposal: undefined }
  const request = { oracle, requester, identifier, timestamp, ancillaryData }
  const { signedProposer } = ports.contracts
  const proposal = await locateProposal(ports.chain, request, signedProposer, finalized, candidate)
  return { current, proposal }
}

/** `bySignature`: it is its own, whoever sent it (domain §9). */
export function endingOf(
  candidate: Candidate,
  { proposal, current }: ClosedRound,
  stage = stageOf(candidate.progress),
): RoundOutcome {
  if (proposal?.bySignature) return { kind: 'executed', proposal }
  const advanced = current && advancedFailure(candidate, current, stage)
  if (advanced) return { kind: 'failed', failure: advanced }
  if (proposal) return { kind: 'failed', failure: supersededFailure(proposal, stage) }
  const detail = current
    ? `The request is ${current.state}.`
    : 'No trusted requester knows the question any more.'
  return { kind: 'failed', failure: failureOf(stage, 'request_not_open', detail) }
}

function advancedFailure(
  { round }: Candidate,
  current: Round,
  stage: CandidateFailure['stage'],
): CandidateFailure | undefined {
  if (current.timestamp === round.timestamp) return undefined
  const detail = `The question is in the round of ${current.timestamp}; this was signed for the round of ${round.timestamp}.`
  return failureOf(stage, 'round_advanced', detail)
}

function supersededFailure(
  { proposer, price, transactionHash }: OnChainProposal,
  stage: CandidateFailure['stage'],
): CandidateFailure {
  const where = transactionHash === null ? '' : `, in transaction ${transactionHash}`
  const detail = `${proposer} proposed ${outcomeOf(price) ?? `price ${price}`} first${where}.`
  return failureOf(stage, 'superseded', detail)
}
