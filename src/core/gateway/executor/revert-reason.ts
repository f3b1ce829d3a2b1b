/** Why one of our mined transactions reverted, and what follows for its candidate (domain §7, §9 After sending; contract §5). */
import { oracleAbi } from '../../chain/contracts.js'
import { locateProposal } from '../../chain/propose.js'
import { readContract } from '../../chain/reading.js'
import { causeOf } from '../../chain/reverts.js'
import type { Contracts } from '../../chain/round.js'
import { type Address, type Chain, ChainError, type ChainReceipt, type Hex } from '../../ports.js'
import type { Candidate, Failure } from '../../protocol/candidate.js'
import type { SlotAttempt } from '../ledger/ledger.js'
import { failureOf } from '../pipeline/progress.js'
import { isOwn, type OwnProposal, supersededBy } from '../pipeline/selection.js'
import { readFunds, readWhitelist } from '../pipeline/validation.js'
import type { Heads } from '../view/view.js'
import { readProposeCalldata, readTransaction } from './transaction.js'

export type RevertEnd =
  | { readonly kind: 'failed'; readonly failure: Failure }
  /** The candidate's proposal is on chain all the same, by another transaction. */
  | { readonly kind: 'executed'; readonly proposal: OwnProposal }
  /** Not the candidate's fault: it stands in again. */
  | { readonly kind: 'again'; readonly fault: string }

export interface RevertPorts {
  readonly chain: Chain
  readonly contracts: Contracts
}

/** Replays the transaction at its block and reads what the cause depends on there. Rejects with `ChainError`. */
export async function explainRevert(
  { chain, contracts }: RevertPorts,
  candidate: Candidate,
  executor: Address,
  attempt: SlotAttempt,
  receipt: ChainReceipt,
  heads: Heads,
): Promise<RevertEnd> {
  const transaction = readTransaction(attempt.raw)
  const { request, token } = readProposeCalldata(transaction.data)
  const header = (await chain.block(receipt.blockNumber)) ?? heads.finalized
  const data = await replay(
    chain,
    { to: transaction.to, data: transaction.data, from: executor, gas: transaction.gas },
    receipt.blockNumber,
  )
  if (data === undefined) {
    const detail = `The transaction ${attempt.hash} reverted, and the same call succeeds at its block: another transaction stood in its way.`
    return { kind: 'failed', failure: failureOf('confirmation', 'execution_reverted', detail, true) }
  }
  const key = [request.requester, request.identifier, BigInt(request.timestamp), request.ancillaryData] as const
  const [list, funds, roundState, code] = await Promise.all([
    readWhitelist(chain, contracts, request, candidate.proposer, header),
    readFunds(chain, contracts, token, candidate.proposer, header),
    readContract(chain, header.number, request.oracle, oracleAbi, 'getState', key),
    chain.code(candidate.proposer, header.number),
  ])
  const cause = causeOf(data, {
    stage: 'execution',
    signedProposer: contracts.signedProposer,
    oracle: request.oracle,
    hasCustomWhitelist: list.custom,
    neededRaw: BigInt(candidate.amount),
    ...funds,
    roundState,
    proposerHasCode: code !== '0x',
    // Nearly all of the limit: the last 64th stays with the caller when an inner call runs out (EIP-150).
    gasExhausted: receipt.gasUsed * 100n >= transaction.gas * 97n,
  })
  if (cause.kind === 'operator') {
    if (cause.code !== 'out_of_gas') return { kind: 'again', fault: cause.detail }
    return { kind: 'failed', failure: failureOf('confirmation', 'execution_reverted', cause.detail, true) }
  }
  if (cause.code === 'request_not_open' || cause.code === 'permit_nonce_used') {
    const proposal = await locateProposal(chain, request, contracts.signedProposer, heads.finalized, candidate)
    if (proposal && isOwn(candidate, proposal)) return { kind: 'executed', proposal }
    if (proposal) return { kind: 'failed', failure: failureOf('confirmation', 'superseded', supersededBy(proposal)) }
  }
  return { kind: 'failed', failure: failureOf('confirmation', cause.code, cause.detail, cause.retryable) }
}

/** The revert data of a call at the state after a block, else before it; `undefined` where it succeeds at both. */
async function replay(
  chain: Chain,
  call: { to: Address; data: Hex; from: Address; gas: bigint },
  blockNumber: bigint,
): Promise<Hex | undefined> {
  for (const at of [blockNumber, blockNumber - 1n]) {
    try {
      await chain.call(call, at)
    } catch (error) {
      if (error instanceof ChainError && error.kind === 'reverted') return error.data
      throw error
    }
  }
  return undefined
}
