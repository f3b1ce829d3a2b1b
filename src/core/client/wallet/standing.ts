/**
 * What the chain says of authorizations. Finalized state proves an end (contract §1); latest
 * state only tells that one is near (R14).
 */

import {
  cameThroughSignedProposer,
  isOfRound,
  locateProposal,
  proposedPriceOf,
} from '#chain/propose'
import { createRoundReader } from '#chain/questions'
import { heldState } from '#chain/reading'
import { keccakHex, type RequestState, type Round, requestStates } from '#chain/round'
import { type OracleRequest, readRequest, type StakeStanding, standingIn } from '#chain/stakes'
import { onChain } from '#chain/unavailable'
import { type BlockHeader, type Chain, ChainError, type Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { claimOf, pinnedHeads, spentNonces } from '../funds/funds.js'
import { journalRecordOf } from '../journal/authorizations.js'
import type { JournalView } from '../journal/fold.js'
import type { TerminalRecord } from '../journal/records.js'
import { contractsOf, roundPins, type Trust } from '../trust/trust.js'

export type RoundClaim = ReturnType<typeof claimsIn>[number]

export interface AuthorizationStanding {
  readonly nonceSpent: boolean
  readonly nonceSpentFinal: boolean
  readonly now: CurrentStanding
  readonly round: RoundStanding | undefined
  readonly roundIsOver: boolean | undefined
  readonly proof: Omit<TerminalRecord, 'id'> | undefined
}

export interface CurrentStanding {
  readonly round: Round | undefined
  readonly current: RoundStanding | undefined
  readonly isOneOfSeveral: boolean
}

export type QuestionStanding = Awaited<ReturnType<typeof readStanding>>

export const claimsIn = ({
  authorizations,
  offers,
}: Pick<JournalView, 'authorizations' | 'offers'>) =>
  [...authorizations, ...offers].map((one) => {
    const record = journalRecordOf(one)
    const { questionId, timestamp, requester, terms } = record
    return { ...claimOf(one.id, record), questionId, timestamp, requester, price: terms.price }
  })

interface Reading {
  readonly chain: Chain
  readonly trust: Trust
  readonly latest: BlockHeader
  readonly finalized: BlockHeader
  readonly claims: readonly RoundClaim[]
  readonly spentFinal: ReadonlySet<string>
}

/** Closed claims too. */
export async function readStanding(
  chain: Chain,
  trust: Trust,
  questionId: Hex,
  all: readonly RoundClaim[],
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
    // The one text may be asked by two requesters, in rounds of their own (R3).
    const roundOf = (one: RoundClaim) => {
      const pinned = roundPins(trust, one).requesters
      return known.find(({ requester }) => pinned.some(({ address }) => address === requester))
    }
    const standings = new Map<string, RoundStanding>()
    const keyOf = (round: Round | undefined, timestamp = round?.timestamp) =>
      `${round?.requester} ${timestamp}`
    for (const round of known) {
      const own = claims.filter((one) => roundOf(one) === round)
      const timestamps = [round.timestamp, ...own.flatMap((one) => one.timestamp ?? [])]
      for (const timestamp of new Set(timestamps)) {
        const standing = await roundStanding(reading, { ...round, timestamp }, own)
        if (standing !== undefined) standings.set(keyOf(round, timestamp), standing)
      }
    }
    const nowAt = (round: Round | undefined): CurrentStanding => ({
      round,
      current: standings.get(keyOf(round)),
      isOneOfSeveral: known.length > 1,
    })
    const of = new Map<string, AuthorizationStanding>()
    for (const one of claims) {
      const round = roundOf(one)
      const own = standings.get(keyOf(round, one.timestamp))
      const nonceSpentFinal = spentFinal.has(one.id)
      const isRoundKnown = round !== undefined && one.timestamp !== undefined
      of.set(one.id, {
        nonceSpent: spent.has(one.id) || nonceSpentFinal,
        nonceSpentFinal,
        now: nowAt(round),
        round: own,
        roundIsOver: isRoundKnown
          ? BigInt(round.timestamp) > BigInt(one.timestamp ?? 0)
          : undefined,
        proof: proofOf(reading, one, own?.proposal),
      })
    }
    return { latest, finalized, ...nowAt(known[0]), of }
  })
}

async function roundStanding(reading: Reading, round: Round, ours: readonly RoundClaim[]) {
  const { chain, latest } = reading
  const at = latest.number
  const index = await heldState(chain, at, round)
  const state = requestStates[index] ?? 'invalid'
  if (state === 'invalid') return undefined
  const [proposal, terms] = await Promise.all([
    state === 'requested' ? undefined : proposalIn(reading, round, ours),
    readRequest(chain, at, round),
  ])
  const { rewardRaw } = terms
  if (state === 'requested') return { state, proposal: undefined, rewardRaw }
  return { state, proposal, terms, ...(state === 'proposed' && { rewardRaw }) }
}

async function proposalIn(
  { chain, trust, latest, finalized }: Reading,
  round: Round,
  ours: readonly RoundClaim[],
) {
  const { signed_proposer: signedProposer } = trust
  const held = await locateProposal(chain, round, signedProposer, latest, undefined)
  if (held === undefined) return undefined
  const { proposer, price, transactionHash } = held
  const receipt = transactionHash === null ? null : await chain.receipt(transactionHash)
  const wanted = { ...round, ancillaryHash: keccakHex(round.ancillaryData) }
  const found = receipt?.logs
    .map(proposedPriceOf)
    .find((one) => one !== undefined && isOfRound(one, wanted))
  if (receipt === null || found === undefined) {
    // "Not ours" must not be concluded from a node that shows the state and not yet the log.
    if (ours.some((one) => one.owner === proposer && one.price === price))
      throw new ChainError(
        'unavailable',
        `the node shows a proposal by ${proposer}, and not its transaction yet`,
      )
    return { proposer, price, isFinal: false, bySignature: false, mined: undefined }
  }
  const { transactionHash: hash, blockNumber } = receipt
  return {
    proposer,
    price,
    isFinal: blockNumber <= finalized.number,
    bySignature: cameThroughSignedProposer(receipt.logs, signedProposer, found),
    mined: { transactionHash: hash, blockNumber, eventIndex: found.log.logIndex },
  }
}

/** By the round's final proposal; else nonce or deadline. */
function proofOf(
  reading: Reading,
  one: RoundClaim,
  proposal: RoundProposal | undefined,
): Omit<TerminalRecord, 'id'> | undefined {
  if (!reading.spentFinal.has(one.id))
    return reading.finalized.timestamp > one.deadlineSeconds ? { outcome: 'expired' } : undefined
  const fits =
    proposal?.isFinal === true &&
    proposal.bySignature &&
    proposal.proposer === one.owner &&
    proposal.price === one.price
  // Of several that say the same, nothing tells whose the proposal is.
  const alike = reading.claims.filter(
    ({ id, owner, price, timestamp }) =>
      reading.spentFinal.has(id) &&
      owner === one.owner &&
      price === one.price &&
      timestamp === one.timestamp,
  )
  const mined = fits && alike.length === 1 ? proposal.mined : undefined
  if (mined === undefined) return { outcome: 'nonce_used' }
  const { transactionHash, eventIndex } = mined
  return { outcome: 'executed', transaction_hash: transactionHash, event_index: eventIndex }
}

export interface RoundProposal {
  readonly proposer: Address
  readonly price: string
  readonly isFinal: boolean
  readonly bySignature: boolean
  /** Absent where the node shows no log of it. `eventIndex`: of ProposePrice in its block. */
  readonly mined:
    | { readonly transactionHash: Hex; readonly blockNumber: bigint; readonly eventIndex: number }
    | undefined
}

export interface RoundStanding {
  readonly state: RequestState
  readonly proposal: RoundProposal | undefined
  readonly terms?: OracleRequest
  /** Raw token units; a dispute may have refunded it. */
  readonly rewardRaw?: bigint
}

export interface StakePosition extends StakeStanding {
  readonly terms: OracleRequest
  readonly hasNewRound: boolean
}

export function holdsProposal(
  { proposal }: RoundStanding,
  { proposer, price }: { readonly proposer: string; readonly price: string },
) {
  if (proposal?.proposer !== proposer || proposal.price !== price) return false
  return proposal.bySignature || proposal.mined === undefined
}

/** `undefined`: its round could not be read. */
export function stakeIn(
  own: RoundStanding | undefined,
  hasNewRound: boolean,
  nowSeconds: bigint,
): StakePosition | undefined {
  if (own?.terms === undefined) return undefined
  const { terms, state, proposal } = own
  const { resolvedPrice, disputableUntil } = terms
  const isDisputed = terms.disputer !== undefined
  const round = { state, price: proposal?.price, resolvedPrice, isDisputed, disputableUntil }
  return { ...standingIn(round, hasNewRound, nowSeconds), terms, hasNewRound }
}
