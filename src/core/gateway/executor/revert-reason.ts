/**
 * Why one of our mined transactions reverted, and what follows for its candidate (domain §7, §9;
 * contract §5).
 */

import { locateProposal } from '../../chain/propose.js'
import { readTerms } from '../../chain/questions.js'
import { unlessRefused } from '../../chain/reading.js'
import { causeOf, type RevertCause } from '../../chain/reverts.js'
import { type Chain, type ChainCall, ChainError, type ChainReceipt, type Hex } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import type { FailureCode } from '../../protocol/codes.js'
import type { Address } from '../../protocol/schema.js'
import type { WitnessRequest } from '../../protocol/witness.js'
import type { SlotAttempt } from '../ledger/ledger.js'
import {
  type QuestionChain,
  readFunds,
  readRole,
  readWhitelist,
} from '../validation/contract-reads.js'
import { failureOf } from '../validation/progress.js'
import { advancedFailure, isOwn, supersededFailure } from '../validation/round-end.js'
import type { Heads } from '../view/state.js'
import type { SlotEnd } from './slot-changes.js'
import { carriedBy, readProposeCalldata, readTransaction } from './transaction.js'

/** Blocks whose state a usual node still has; of older ones the finalized state has to tell. */
const rememberedStates = 100n

/** One of our transactions, by which executor, and its receipt. */
interface MinedTransaction {
  readonly executor: Address
  readonly attempt: SlotAttempt
  readonly receipt: ChainReceipt
}

const again: SlotEnd = { kind: 'again' }
const failedWith = (code: FailureCode, detail: string, retryable?: boolean): SlotEnd => ({
  kind: 'failed',
  failure: failureOf('confirmation', code, detail, retryable),
})

/**
 * Replays the candidate's own proposal at the block of the transaction and reads what the cause
 * depends on there. In a `multicall` one that would have passed alone is not to blame. Rejects with
 * `ChainError`.
 */
export async function explainRevert(
  ports: QuestionChain,
  candidate: Candidate,
  { executor, attempt, receipt }: MinedTransaction,
  heads: Heads,
): Promise<SlotEnd> {
  const { chain } = ports
  const { to, data, gas } = readTransaction(attempt.raw)
  const proposals = carriedBy(data)
  const own = proposals[attempt.candidateIds.indexOf(candidate.id)]
  if (own === undefined) return again
  const isRemembered = receipt.blockNumber + rememberedStates > heads.latest.number
  const at = isRemembered ? await chain.block(receipt.blockNumber) : null
  const last = (at ?? heads.finalized).number
  const revert = await replay(chain, { to, data: own, from: executor, gas }, last)
  if (revert === undefined) {
    if (proposals.length > 1) return { kind: 'again', isUnexplained: true }
    const isWallet = (await chain.code(candidate.proposer, last)) !== '0x'
    const because = isWallet
      ? 'the wallet may respond differently when it is mined'
      : 'another transaction interfered'
    const detail = `The transaction ${attempt.hash} reverted, and the same call succeeds at its block: ${because}.`
    return failedWith('execution_reverted', detail, !isWallet)
  }
  // Nearly all of the limit: the last 64th stays with the caller when an inner call runs out
  // (EIP-150).
  const gasExhausted = proposals.length === 1 && receipt.gasUsed * 100n >= gas * 97n
  const call = { ...readProposeCalldata(own), executor, gasExhausted }
  const cause = await readCause(ports, candidate, call, revert)
  if (cause.kind === 'operator')
    return cause.code === 'out_of_gas'
      ? failedWith('execution_reverted', cause.detail, true)
      : again
  if (cause.code === 'request_not_open' || cause.code === 'permit_nonce_used') {
    const overtaken = await overtakenBy(ports, candidate, call.request, heads)
    if (overtaken) return overtaken
  }
  return failedWith(cause.code, cause.detail, cause.retryable)
}

/**
 * What the cause depends on may have changed within the block too: it is read where it reverted.
 */
async function readCause(
  ports: QuestionChain,
  candidate: Candidate,
  call: {
    readonly request: WitnessRequest
    readonly token: Address
    readonly executor: Address
    readonly gasExhausted: boolean
  },
  { data, block: at }: { readonly data: Hex; readonly block: bigint },
): Promise<RevertCause> {
  const { chain, contracts } = ports
  const { request, token, executor, gasExhausted } = call
  const { proposer } = candidate
  const [list, funds, terms, code, executorHasRole] = await Promise.all([
    unlessRefused(readWhitelist(ports, request, proposer, at)),
    unlessRefused(readFunds(ports, token, proposer, at)),
    unlessRefused(readTerms({ chain, contracts, at }, request)),
    chain.code(proposer, at),
    unlessRefused(readRole(ports, executor, at)),
  ])
  return causeOf(data, {
    stage: 'execution',
    signedProposer: contracts.signedProposer,
    oracle: request.oracle,
    hasCustomWhitelist: list?.custom ?? false,
    neededRaw: BigInt(candidate.amount),
    ...funds,
    ...(terms && { roundState: terms.state, bondRaw: terms.totalBondRaw }),
    proposerHasCode: code !== '0x',
    ...(executorHasRole !== undefined && { executorHasRole }),
    ...(list && { spenderListed: list.spenderListed }),
    gasExhausted,
  })
}

/** How a candidate ends whose round or nonce was gone before its transaction. */
async function overtakenBy(
  { chain, contracts, readRound }: QuestionChain,
  candidate: Candidate,
  request: WitnessRequest,
  { finalized }: Heads,
): Promise<SlotEnd | undefined> {
  const { signedProposer } = contracts
  const proposal = await locateProposal(chain, request, signedProposer, finalized, candidate)
  if (proposal && isOwn(candidate, proposal)) return { kind: 'executed', proposal }
  if (proposal) return { kind: 'failed', failure: supersededFailure(proposal, 'confirmation') }
  const current = await unlessRefused(readRound(candidate.round.questionId, finalized.number))
  // A question that is not in finalized state was asked after the transaction, or is gone: what
  // becomes of its round is decided once that is final.
  if (current === undefined) return again
  const failure = advancedFailure(candidate, current, 'confirmation')
  return failure && { kind: 'failed', failure }
}

/**
 * The revert data of a call at the state after a block, else before it, and which; `undefined`
 * where it succeeds at both.
 */
async function replay(
  chain: Chain,
  call: ChainCall,
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
