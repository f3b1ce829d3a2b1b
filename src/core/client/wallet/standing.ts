/**
 * What the chain says of authorizations: their nonces, their rounds, who proposed there. Finalized
 * state proves an end (contract §1); latest state only tells that one is near (R14).
 */
import { oracleAbi } from '../../chain/contracts.js'
import {
  cameThroughSignedProposer,
  isOfRound,
  locateProposal,
  proposedPriceOf,
} from '../../chain/propose.js'
import { createRoundReader } from '../../chain/questions.js'
import { readContract } from '../../chain/reading.js'
import { keccakHex, type RequestState, type Round, requestStates } from '../../chain/round.js'
import { onChain } from '../../chain/unavailable.js'
import { type Address, type BlockHeader, type Chain, ChainError, type Hex } from '../../ports.js'
import { claimOf, type OpenClaim, pinnedHeads, spentNonces } from '../funds/funds.js'
import type { JournalView } from '../journal/journal.js'
import type { Terminal } from '../journal/records.js'
import { contractsOf, type JournaledRound, pinsOf, type Trust } from '../trust/trust.js'
import { type RoundTerms, readTerms } from './position.js'

/** An authorization or an offer of the journal, as far as the chain can judge it. */
export interface Judged extends OpenClaim {
  readonly questionId: Hex
  /** Timestamp of its round; absent for a payload signed elsewhere. */
  readonly timestamp: string | undefined
  /** Absent in records of 0.1, and for a payload signed elsewhere. */
  readonly requester: string | undefined
  readonly price: string
}

/** The proposal that a round holds. */
export interface RoundProposal {
  readonly proposer: Address
  readonly price: string
  readonly isFinal: boolean
  /** It came through SignedProposer. */
  readonly bySignature: boolean
  /**
   * Absent where the node shows no log of it. `eventIndex`: log index of ProposePrice in its block.
   */
  readonly mined:
    | { readonly transactionHash: Hex; readonly blockNumber: bigint; readonly eventIndex: number }
    | undefined
}

export interface RoundStanding {
  readonly state: RequestState
  readonly proposal: RoundProposal | undefined
  /** Bond, dispute and end; absent while nothing is proposed. */
  readonly terms?: RoundTerms
}

export interface Standing {
  readonly nonceSpent: boolean
  readonly nonceSpentFinal: boolean
  /** The question's current round at its own requester. */
  readonly now: CurrentStanding
  /** Of its own round; `undefined` where that cannot be read. */
  readonly round: RoundStanding | undefined
  /** Whether a later round has begun; `undefined` where that cannot be read. */
  readonly roundIsOver: boolean | undefined
  /** The end that finalized state proves. */
  readonly proof: Omit<Terminal, 'id'> | undefined
}

export interface CurrentStanding {
  /** `undefined` for a question that the chain side cannot find (kind `direct`). */
  readonly round: Round | undefined
  readonly current: RoundStanding | undefined
  /** Other requesters know the question too. */
  readonly isOneOfSeveral: boolean
}

/** `round` and `current`: at the first requester that knows the question. */
export interface QuestionStanding extends CurrentStanding {
  readonly latest: BlockHeader
  readonly finalized: BlockHeader
  readonly of: ReadonlyMap<string, Standing>
}

/** Every authorization and offer of a view, open or not. */
export function judgedOf(view: Pick<JournalView, 'authorizations' | 'offers'>): readonly Judged[] {
  const judged = (
    id: string,
    record: Parameters<typeof claimOf>[1] &
      Pick<JournaledRound, 'questionId' | 'timestamp' | 'requester'>,
    price: string,
  ) => ({
    ...claimOf(id, record),
    questionId: record.questionId as Hex,
    timestamp: record.timestamp,
    requester: record.requester,
    price,
  })
  return [
    ...view.authorizations.map(({ id, signed }) => judged(id, signed, signed.terms.price)),
    ...view.offers.map(({ id, offered }) => judged(id, offered, offered.terms.price)),
  ]
}

/**
 * Reads how one question and the authorizations for it stand, latest and finalized. All of them
 * should be given, closed ones too: of two with one price only their nonces tell which was
 * executed. UsageError `untrusted_chain_id`, UnavailableError `chain_unavailable`.
 */
export async function standingOf(
  chain: Chain,
  trust: Trust,
  questionId: Hex,
  judged: readonly Judged[],
): Promise<QuestionStanding> {
  const { latest, finalized } = await pinnedHeads(chain, trust)
  return onChain(async () => {
    const permit2 = trust.permit2 as Address
    const here = judged.filter(
      (one) => one.questionId === questionId && one.chainId === trust.chain_id,
    )
    const [known, spent, spentFinal] = await Promise.all([
      createRoundReader(chain, contractsOf(trust)).readAll(questionId, undefined, latest.number),
      spentNonces(chain, permit2, latest.number, here),
      spentNonces(chain, permit2, finalized.number, here),
    ])
    // The one text may be asked by two requesters, in rounds of their own (R3).
    const roundOf = (one: Judged) => {
      const pinned = pinsOf(trust, one).requesters
      return known.find(({ requester }) => pinned.some(({ address }) => address === requester))
    }
    const rounds = new Map<string, RoundStanding>()
    const keyOf = (round: Round | undefined, timestamp: string | undefined) =>
      `${round?.requester} ${timestamp ?? round?.timestamp}`
    for (const round of known) {
      const own = here.filter((one) => roundOf(one) === round)
      for (const timestamp of new Set([
        round.timestamp,
        ...own.flatMap((one) => one.timestamp ?? []),
      ])) {
        const standing = await roundStanding(
          chain,
          trust,
          { ...round, timestamp },
          latest,
          finalized,
          own,
        )
        if (standing !== undefined) rounds.set(keyOf(round, timestamp), standing)
      }
    }
    const nowAt = (round: Round | undefined): CurrentStanding => ({
      round,
      current: rounds.get(keyOf(round, undefined)),
      isOneOfSeveral: known.length > 1,
    })
    const of = new Map<string, Standing>()
    for (const one of here) {
      const round = roundOf(one)
      const own = rounds.get(keyOf(round, one.timestamp))
      const nonceSpentFinal = spentFinal.has(one.id)
      of.set(one.id, {
        nonceSpent: spent.has(one.id) || nonceSpentFinal,
        nonceSpentFinal,
        now: nowAt(round),
        round: own,
        roundIsOver:
          round === undefined || one.timestamp === undefined
            ? undefined
            : BigInt(round.timestamp) > BigInt(one.timestamp),
        proof: nonceSpentFinal
          ? await spentProof(chain, permit2, one, own?.proposal, here, spentFinal)
          : finalized.timestamp > one.deadlineSeconds
            ? { outcome: 'expired' }
            : undefined,
      })
    }
    return { latest, finalized, ...nowAt(known[0]), of }
  })
}

/** `undefined` where the oracle knows no such round. */
async function roundStanding(
  chain: Chain,
  trust: Trust,
  round: Round,
  latest: BlockHeader,
  finalized: BlockHeader,
  ours: readonly Judged[],
): Promise<RoundStanding | undefined> {
  const key = [
    round.requester,
    round.identifier,
    BigInt(round.timestamp),
    round.ancillaryData,
  ] as const
  const state =
    requestStates[
      await readContract(chain, latest.number, round.oracle, oracleAbi, 'getState', key)
    ] ?? 'invalid'
  if (state === 'invalid') return undefined
  if (state === 'requested') return { state, proposal: undefined }
  const [proposal, terms] = await Promise.all([
    proposalOf(chain, trust, round, latest, finalized, ours),
    readTerms(chain, latest.number, round),
  ])
  return { state, proposal, terms }
}

async function proposalOf(
  chain: Chain,
  trust: Trust,
  round: Round,
  latest: BlockHeader,
  finalized: BlockHeader,
  ours: readonly Judged[],
): Promise<RoundProposal | undefined> {
  const signedProposer = trust.signed_proposer as Address
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
    if (ours.some((one) => one.owner === proposer && one.price === price)) {
      throw new ChainError(
        'unavailable',
        `the node shows a proposal by ${proposer}, and not its transaction yet`,
      )
    }
    return { proposer, price, isFinal: false, bySignature: false, mined: undefined }
  }
  return {
    proposer,
    price,
    isFinal: receipt.blockNumber <= finalized.number,
    bySignature: cameThroughSignedProposer(receipt.logs, signedProposer, found),
    mined: {
      transactionHash: receipt.transactionHash,
      blockNumber: receipt.blockNumber,
      eventIndex: found.log.logIndex,
    },
  }
}

/**
 * Executed where the round's final proposal says what it says and its nonce went with it; else used
 * or cancelled otherwise.
 */
async function spentProof(
  chain: Chain,
  permit2: Address,
  one: Judged,
  proposal: RoundProposal | undefined,
  all: readonly Judged[],
  spentFinal: ReadonlySet<string>,
): Promise<Omit<Terminal, 'id'>> {
  const fits =
    proposal?.isFinal === true &&
    proposal.bySignature &&
    proposal.proposer === one.owner &&
    proposal.price === one.price
  const mined = fits ? proposal.mined : undefined
  if (
    mined === undefined ||
    !(await wentWith(chain, permit2, one, mined.blockNumber, all, spentFinal))
  )
    return { outcome: 'nonce_used' }
  return {
    outcome: 'executed',
    transaction_hash: mined.transactionHash,
    event_index: mined.eventIndex,
  }
}

/**
 * Whether the nonce was spent in the very block of the proposal. A node that has forgotten that
 * block leaves it to what else fits.
 */
async function wentWith(
  chain: Chain,
  permit2: Address,
  one: Judged,
  blockNumber: bigint,
  all: readonly Judged[],
  spentFinal: ReadonlySet<string>,
): Promise<boolean> {
  try {
    const [before, then] = await Promise.all([
      spentNonces(chain, permit2, blockNumber - 1n, [one]),
      spentNonces(chain, permit2, blockNumber, [one]),
    ])
    return !before.has(one.id) && then.has(one.id)
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    const twins = all.filter(
      ({ id, owner, price, timestamp }) =>
        spentFinal.has(id) &&
        owner === one.owner &&
        price === one.price &&
        timestamp === one.timestamp,
    )
    return twins.length === 1
  }
}
