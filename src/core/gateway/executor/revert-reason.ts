/**
 * Why one of our mined transactions reverted, and what follows for its candidate (domain §7, §9
 * After sending; contract §5).
 */
import { roles, signedProposerAbi } from '../../chain/contracts.js'
import { locateProposal } from '../../chain/propose.js'
import { type RegistryEntry, type RoundReader, readTerms } from '../../chain/questions.js'
import { readContract, told } from '../../chain/reading.js'
import { causeOf } from '../../chain/reverts.js'
import type { Contracts } from '../../chain/round.js'
import { type Address, type Chain, ChainError, type ChainReceipt, type Hex } from '../../ports.js'
import type { Candidate, Failure } from '../../protocol/candidate.js'
import type { SlotAttempt } from '../ledger/ledger.js'
import { failureOf } from '../pipeline/progress.js'
import { isOwn, movedTo, type OwnProposal, supersededBy } from '../pipeline/selection.js'
import { readFunds, readWhitelist } from '../pipeline/validation.js'
import type { Heads } from '../view/view.js'
import { carriedBy, readProposeCalldata, readTransaction } from './transaction.js'

export type RevertEnd =
  | { readonly kind: 'failed'; readonly failure: Failure }
  /** The candidate's proposal is on chain all the same, by another transaction. */
  | { readonly kind: 'executed'; readonly proposal: OwnProposal }
  /** Not the candidate's fault: it stands in again. */
  | { readonly kind: 'again'; readonly why: string }

/** Blocks whose state a usual node still has; of older ones the finalized state has to tell. */
const rememberedStates = 100n

export interface RevertPorts {
  readonly chain: Chain
  readonly contracts: Contracts
  readonly rounds: RoundReader
  entry(questionId: Hex): RegistryEntry | undefined
}

/**
 * Replays the candidate's own proposal at the block of the transaction and reads what the cause
 * depends on there: in a `multicall` one that would have passed alone is not to blame. Rejects with
 * `ChainError`.
 */
export async function explainRevert(
  { chain, contracts, rounds, entry }: RevertPorts,
  candidate: Candidate,
  executor: Address,
  attempt: SlotAttempt,
  receipt: ChainReceipt,
  heads: Heads,
): Promise<RevertEnd> {
  const transaction = readTransaction(attempt.raw)
  const proposals = carriedBy(transaction.data)
  const own = proposals[attempt.candidateIds.indexOf(candidate.id)]
  if (own === undefined) return { kind: 'again', why: 'the transaction did not carry it' }
  const { request, token } = readProposeCalldata(own)
  const at =
    receipt.blockNumber + rememberedStates > heads.latest.number
      ? await chain.block(receipt.blockNumber)
      : null
  const last = at ?? heads.finalized
  const found = await replay(
    chain,
    { to: transaction.to, data: own, from: executor, gas: transaction.gas },
    last.number,
  )
  if (found === undefined) {
    if (proposals.length > 1)
      return { kind: 'again', why: 'another proposal of the same transaction reverted' }
    const isWallet = (await chain.code(candidate.proposer, last.number)) !== '0x'
    const because = isWallet
      ? 'the wallet may answer otherwise when it is mined'
      : 'another transaction stood in its way'
    const detail = `The transaction ${attempt.hash} reverted, and the same call succeeds at its block: ${because}.`
    return {
      kind: 'failed',
      failure: failureOf('confirmation', 'execution_reverted', detail, !isWallet),
    }
  }
  // What the cause depends on may have changed within the block too.
  const header = found.block === last.number ? last : ((await chain.block(found.block)) ?? last)
  const asked = [roles.delegatedProposer, executor] as const
  const [list, funds, terms, code, executorHasRole] = await Promise.all([
    told(readWhitelist(chain, contracts, request, candidate.proposer, header)),
    told(readFunds(chain, contracts, token, candidate.proposer, header)),
    told(readTerms({ chain, contracts, at: header.number }, request)),
    chain.code(candidate.proposer, header.number),
    told(
      readContract(
        chain,
        header.number,
        contracts.signedProposer,
        signedProposerAbi,
        'hasRole',
        asked,
      ),
    ),
  ])
  const cause = causeOf(found.data, {
    stage: 'execution',
    signedProposer: contracts.signedProposer,
    oracle: request.oracle,
    hasCustomWhitelist: list?.custom ?? false,
    neededRaw: BigInt(candidate.amount),
    ...funds,
    ...(terms && { roundState: terms.state, bondRaw: terms.totalBondRaw }),
    proposerHasCode: code !== '0x',
    ...(executorHasRole === undefined ? {} : { executorHasRole }),
    ...(list === undefined ? {} : { spenderListed: list.spenderListed }),
    // Nearly all of the limit: the last 64th stays with the caller when an inner call runs out
    // (EIP-150).
    gasExhausted: proposals.length === 1 && receipt.gasUsed * 100n >= transaction.gas * 97n,
  })
  if (cause.kind === 'operator') {
    if (cause.code !== 'out_of_gas') return { kind: 'again', why: cause.detail }
    return {
      kind: 'failed',
      failure: failureOf('confirmation', 'execution_reverted', cause.detail, true),
    }
  }
  if (cause.code === 'request_not_open' || cause.code === 'permit_nonce_used') {
    const proposal = await locateProposal(
      chain,
      request,
      contracts.signedProposer,
      heads.finalized,
      candidate,
    )
    if (proposal && isOwn(candidate, proposal)) return { kind: 'executed', proposal }
    if (proposal)
      return {
        kind: 'failed',
        failure: failureOf('confirmation', 'superseded', supersededBy(proposal)),
      }
    const { questionId } = candidate.round
    const current = await told(rounds.read(questionId, entry(questionId), heads.finalized.number))
    const moved = current && movedTo(candidate, current)
    if (moved)
      return { kind: 'failed', failure: failureOf('confirmation', 'round_advanced', moved) }
  }
  return {
    kind: 'failed',
    failure: failureOf('confirmation', cause.code, cause.detail, cause.retryable),
  }
}

/**
 * The revert data of a call at the state after a block, else before it, and which; `undefined`
 * where it succeeds at both.
 */
async function replay(
  chain: Chain,
  call: { to: Address; data: Hex; from: Address; gas: bigint },
  blockNumber: bigint,
): Promise<{ readonly data: Hex; readonly block: bigint } | undefined> {
  for (const block of [blockNumber, blockNumber - 1n]) {
    try {
      await chain.call(call, block)
    } catch (error) {
      if (error instanceof ChainError && error.kind === 'reverted')
        return { data: error.data, block }
      throw error
    }
  }
  return undefined
}
