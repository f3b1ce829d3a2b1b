/** Finalized state proves an end (contract §1); latest state only tells that one is near (R14). */

import {
  cameThroughSignedProposer,
  findProposed,
  locateProposal,
  notShownYet,
} from '#chain/propose'
import { createRoundReader } from '#chain/questions'
import { heldState } from '#chain/reading'
import { keccakHex, type Round, requestStates, roundRef } from '#chain/round'
import { readRequest, standingIn } from '#chain/stakes'
import { onChain } from '#chain/unavailable'
import type { BlockHeader, Chain, Hex } from '#ports'
import { type OpenClaim, pinnedHeads, spentNonces } from '../funds/funds.js'
import type { TerminalRecord } from '../journal/records.js'
import { contractsOf, roundPins, type Trust } from '../trust/trust.js'

export type AuthorizationStanding = NonNullable<ReturnType<QuestionStanding['of']['get']>>
export type QuestionStanding = Awaited<ReturnType<typeof readStanding>>
export type RoundStanding = NonNullable<Awaited<ReturnType<typeof roundStanding>>>

interface Reading {
  readonly chain: Chain
  readonly trust: Trust
  readonly latest: BlockHeader
  readonly finalized: BlockHeader
  readonly claims: readonly OpenClaim[]
  readonly spentFinal: ReadonlySet<string>
}

export async function readStanding(
  chain: Chain,
  trust: Trust,
  questionId: Hex,
  all: readonly OpenClaim[],
) {
  const { latest, finalized } = await pinnedHeads(chain, trust)
  return onChain(async () => {
    const claims = all.filter(
      (one) => one.questionId === questionId && one.chainId === trust.chain_id,
    )
    const [known, spent, spentFinal] = await Promise.all([
      createRoundReader(chain, contractsOf(trust)).readAll(questionId, undefined, latest.number),
      spentNonces(chain, trust.permit2, latest.number, claims),
      spentNonces(chain, trust.permit2, finalized.number, claims),
    ])
    const reading = { chain, trust, latest, finalized, claims, spentFinal }
    const standings = new Map<string, ReturnType<typeof roundStanding>>()
    const standingAt = (round: Round | undefined, timestamp = round?.timestamp) => {
      if (round === undefined || timestamp === undefined) return undefined
      const key = `${round.requester} ${timestamp}`
      const standing = standings.get(key) ?? roundStanding(reading, { ...round, timestamp })
      standings.set(key, standing)
      return standing
    }
    const nowAt = async (round: Round | undefined) => ({
      round,
      current: await standingAt(round),
      isOneOfSeveral: known.length > 1,
    })
    const standingOf = async (one: OpenClaim) => {
      // The one text may be asked by two requesters, in rounds of their own (R3).
      const pinned = roundPins(trust, one).requesters
      const now = known.find(({ requester }) => pinned.some(({ address }) => address === requester))
      const round = await standingAt(now, one.timestamp)
      const isOver =
        now && one.timestamp ? BigInt(now.timestamp) > BigInt(one.timestamp) : undefined
      const nonceSpentFinal = spentFinal.has(one.id)
      return {
        nonceSpent: spent.has(one.id) || nonceSpentFinal,
        nonceSpentFinal,
        now: await nowAt(now),
        round,
        roundIsOver: isOver,
        stake: round && stakeOf(one, round, isOver === true, latest.timestamp),
        proof: proofOf(reading, one, round?.proposal),
      }
    }
    const current = await nowAt(known[0])
    const of = await Promise.all(
      claims.map(async (one) => [one.id, await standingOf(one)] as const),
    )
    return { latest, finalized, ...current, of: new Map(of) }
  })
}

async function roundStanding(reading: Reading, round: Round) {
  const { chain, latest } = reading
  const state = requestStates[await heldState(chain, latest.number, round)] ?? 'invalid'
  if (state === 'invalid') return undefined
  const isRequested = state === 'requested'
  const [proposal, terms] = await Promise.all([
    isRequested ? undefined : proposalIn(reading, round),
    readRequest(chain, latest.number, round),
  ])
  return {
    ...{ state, proposal, terms: isRequested ? undefined : terms },
    rewardRaw: isRequested || state === 'proposed' ? terms.rewardRaw : undefined,
  }
}

async function proposalIn({ chain, trust, latest, finalized, claims }: Reading, round: Round) {
  const held = await locateProposal(chain, round, trust.signed_proposer, latest, undefined)
  if (held === undefined) return undefined
  const { proposer, price, transactionHash } = held
  const receipt = transactionHash === null ? null : await chain.receipt(transactionHash)
  const contracts = { chainId: trust.chain_id }
  const ref = roundRef(contracts, round.questionId, round, keccakHex(round.ancillaryData))
  const found = receipt && findProposed(receipt.logs, { round: ref, proposer, price })
  if (!found) {
    // "Not ours" must not be concluded from a node that shows the state and not yet the log.
    if (claims.some((one) => one.owner === proposer && one.price === price))
      throw notShownYet(proposer)
    return { proposer, price, isFinal: false, bySignature: false }
  }
  const { transactionHash: hash, blockNumber } = receipt
  return {
    proposer,
    price,
    isFinal: blockNumber <= finalized.number,
    bySignature: cameThroughSignedProposer(receipt.logs, trust.signed_proposer, found),
    mined: { transactionHash: hash, blockNumber, eventIndex: found.log.logIndex },
  }
}

function proofOf(
  { claims, spentFinal, finalized }: Reading,
  one: OpenClaim,
  proposal: RoundStanding['proposal'],
): Omit<TerminalRecord, 'id'> | undefined {
  if (!spentFinal.has(one.id))
    return finalized.timestamp > one.deadlineSeconds ? { outcome: 'expired' } : undefined
  const { owner, price, timestamp } = one
  // Of several that say the same, nothing tells whose the proposal is.
  const alike = claims.filter(
    (other) =>
      spentFinal.has(other.id) &&
      other.owner === owner &&
      other.price === price &&
      other.timestamp === timestamp,
  )
  const isOwn = proposal?.proposer === owner && proposal.price === price && alike.length === 1
  if (!isOwn || !proposal.isFinal || !proposal.bySignature || proposal.mined === undefined)
    return { outcome: 'nonce_used' }
  const { transactionHash, eventIndex } = proposal.mined
  return { outcome: 'executed', transaction_hash: transactionHash, event_index: eventIndex }
}

export type StakePosition = NonNullable<ReturnType<typeof stakeOf>>

/** Where the round holds the claim's proposal, as far as the node shows. */
function stakeOf(
  { owner, price }: OpenClaim,
  { state, terms, proposal }: RoundStanding,
  hasNewRound: boolean,
  nowSeconds: bigint,
) {
  const isOwn = proposal?.proposer === owner && proposal.price === price
  if (!isOwn || terms === undefined || (proposal.mined && !proposal.bySignature)) return undefined
  const round = { ...terms, state, isDisputed: terms.disputer !== undefined }
  return { ...standingIn(round, hasNewRound, nowSeconds), terms, hasNewRound }
}
