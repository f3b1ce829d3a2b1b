/**
 * What final state shows of a slot's proposals, beside what receipts and counts say: those may be
 * wrong, or late (R14, R27).
 */
import { locateProposal } from '../../chain/propose.js'
import { told } from '../../chain/reading.js'
import type { Contracts } from '../../chain/round.js'
import type { Chain } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import type { Slot } from '../ledger/ledger.js'
import { isOwn, type OwnProposal } from '../pipeline/selection.js'
import type { Heads } from '../view/view.js'
import { calldataOf, isSpentAt } from './doomed.js'
import type { Faults } from './faults.js'
import { readProposeCalldata } from './transaction.js'

/**
 * All read the finalized block and reject with `ChainError`; a contradiction is noted of the slot.
 */
export interface Evidence {
  /** Whether the candidate's round holds the proposal of one of the slot's own transactions. */
  isShownMined(slot: Slot, candidate: Candidate, heads: Heads): Promise<boolean>
  /**
   * Whether state agrees with a receipt that tells a success, and not this candidate's proposal.
   */
  failsByReceipt(slot: Slot, candidate: Candidate, heads: Heads): Promise<boolean>
  /** The candidate's own proposal, whoever sent it. */
  ownProposal(slot: Slot, candidate: Candidate, heads: Heads): Promise<OwnProposal | undefined>
}

/** Source: domain §9, R14, R27. */
export function createEvidence(
  ports: { readonly chain: Chain; readonly contracts: Contracts },
  faults: Pick<Faults, 'note'>,
): Evidence {
  const held = async (
    slot: Slot,
    candidate: Candidate,
    { finalized }: Heads,
    expected: Candidate | undefined,
  ) => {
    const calldata = calldataOf(slot, candidate)
    if (calldata === undefined) return undefined
    const { request } = readProposeCalldata(calldata)
    // An oracle that does not answer as one shows nothing.
    return told(
      locateProposal(ports.chain, request, ports.contracts.signedProposer, finalized, expected),
    )
  }
  const evidence: Evidence = {
    async isShownMined(slot, candidate, heads) {
      const proposal = await held(slot, candidate, heads, undefined)
      const attempt = slot.attempts.find(({ hash }) => hash === proposal?.transactionHash)
      if (attempt === undefined) return false
      faults.note(
        slot.id,
        `the node shows the proposal of transaction ${attempt.hash}, and contradicts it by the receipt`,
      )
      return true
    },
    async failsByReceipt(slot, candidate, heads) {
      if (await evidence.isShownMined(slot, candidate, heads)) return false
      // A real success spends the permit nonce.
      if (await isSpentAt(ports, candidate, heads.finalized.number)) return true
      faults.note(
        slot.id,
        `the node contradicts a success of nonce ${slot.nonce}: the permit nonce of ${candidate.id} is not spent`,
      )
      return false
    },
    async ownProposal(slot, candidate, heads) {
      const proposal = await held(slot, candidate, heads, candidate)
      return proposal && isOwn(candidate, proposal) ? proposal : undefined
    },
  }
  return evidence
}
