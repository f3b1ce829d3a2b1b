/** How rounds of waiting candidates have ended, in finalized state (contract §5, R14). */
import { locateProposal } from '../../chain/propose.js'
import type { RegistryEntry, RoundReader } from '../../chain/questions.js'
import { type Contracts, keccakHex, type Round } from '../../chain/round.js'
import type { Chain, Hex } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import type { Heads } from '../view/view.js'
import type { RoundEnd } from './selection.js'
import { isOpen } from './validation.js'

export interface RoundEndPorts {
  readonly chain: Chain
  readonly contracts: Contracts
  readonly rounds: RoundReader
  entry(questionId: Hex): RegistryEntry | undefined
}

/**
 * Whether a candidate's round is closed as of the finalized block, and by what. A round that
 * finalized state has not reached yet counts as open. Rejects with `ChainError`.
 */
export async function roundEnd(
  ports: RoundEndPorts,
  candidate: Candidate,
  heads: Heads,
): Promise<RoundEnd> {
  const { chain, contracts, rounds } = ports
  const { questionId } = candidate.round
  const entry = ports.entry(questionId)
  const current = await rounds.read(questionId, entry, heads.finalized.number)
  if (current === undefined) {
    // A question asked just now is not in finalized state; one that is in neither is gone.
    const newest = await rounds.read(questionId, entry, heads.latest.number)
    return newest === undefined
      ? { kind: 'closed', current: undefined, proposal: undefined }
      : { kind: 'open' }
  }
  // A round of a time that finalized state has passed, and that is not in it, was undone (R14).
  const isAhead = heads.finalized.timestamp < BigInt(candidate.round.timestamp)
  if (isOpen(contracts, current, candidate) || isAhead) return { kind: 'open' }
  return {
    kind: 'closed',
    current,
    proposal: await proposalOf(chain, contracts, current, candidate, heads),
  }
}

async function proposalOf(
  chain: Chain,
  contracts: Contracts,
  current: Round,
  candidate: Candidate,
  heads: Heads,
) {
  const { oracle, requester, identifier, timestamp, ancillaryHash } = candidate.round
  // The text stays the same over a question's rounds; where a registry gave it another one, the old
  // request cannot be asked for.
  if (keccakHex(current.ancillaryData) !== ancillaryHash) return undefined
  const request = { oracle, requester, identifier, timestamp, ancillaryData: current.ancillaryData }
  return locateProposal(chain, request, contracts.signedProposer, heads.finalized, candidate)
}
