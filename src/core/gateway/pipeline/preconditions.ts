/**
 * What has to be true of contracts and executor before anything is sent: the operator's part
 * (contract §5, domain §2).
 */
import { oracleAbi, roles, signedProposerAbi, whitelistAbi } from '../../chain/contracts.js'
import { lowercase, readContract } from '../../chain/reading.js'
import type { Contracts } from '../../chain/round.js'
import { type Address, type BlockHeader, type Chain, ChainError } from '../../ports.js'
import { proposalTypeHash } from '../../protocol/witness.js'
import { spenderUnlisted } from './validation.js'

/**
 * The operator's faults as of one block, a sentence each; empty when all is well. Without an
 * executor, its role and funds are not asked for. Rejects with `ChainError` where the chain gave no
 * answer.
 */
export async function operatorFaults(
  chain: Chain,
  contracts: Contracts,
  executor: Address | undefined,
  at: BlockHeader,
): Promise<readonly string[]> {
  const spender = contracts.signedProposer
  const checks = [
    contractFault(chain, contracts, at),
    ...contracts.oracles.map((oracle) => listFault(chain, spender, oracle, at)),
    ...(executor === undefined
      ? []
      : [roleFault(chain, spender, executor, at), fundsFault(chain, executor)]),
  ]
  return (await Promise.all(checks)).flatMap((fault) => fault ?? [])
}

async function contractFault(
  chain: Chain,
  contracts: Contracts,
  at: BlockHeader,
): Promise<string | undefined> {
  const address = contracts.signedProposer
  try {
    const [typeHash, permit2] = await Promise.all([
      readContract(chain, at.number, address, signedProposerAbi, 'PROPOSAL_TYPEHASH', []),
      readContract(chain, at.number, address, signedProposerAbi, 'permit2', []),
    ])
    if (typeHash !== proposalTypeHash)
      return `SignedProposer at ${address} has another PROPOSAL_TYPEHASH than ${proposalTypeHash}`
    if (lowercase(permit2) !== contracts.permit2)
      return `SignedProposer at ${address} uses Permit2 at ${lowercase(permit2)}, not ${contracts.permit2}`
    return undefined
  } catch (error) {
    return otherContract(error, `the contract at ${address} is no SignedProposer`)
  }
}

async function roleFault(
  chain: Chain,
  spender: Address,
  executor: Address,
  at: BlockHeader,
): Promise<string | undefined> {
  try {
    const granted = await readContract(chain, at.number, spender, signedProposerAbi, 'hasRole', [
      roles.delegatedProposer,
      executor,
    ])
    return granted
      ? undefined
      : `the executor ${executor} lacks DELEGATED_PROPOSER_ROLE on SignedProposer: grant it`
  } catch (error) {
    return otherContract(error, `the contract at ${spender} knows no roles`)
  }
}

async function fundsFault(chain: Chain, executor: Address): Promise<string | undefined> {
  return (await chain.balance(executor)) > 0n
    ? undefined
    : `the executor ${executor} holds nothing to pay gas with: fund it`
}

async function listFault(
  chain: Chain,
  spender: Address,
  oracle: Address,
  at: BlockHeader,
): Promise<string | undefined> {
  try {
    const list = lowercase(
      await readContract(chain, at.number, oracle, oracleAbi, 'defaultProposerWhitelist', []),
    )
    const listed = await readContract(chain, at.number, list, whitelistAbi, 'isOnWhitelist', [
      spender,
    ])
    return listed ? undefined : spenderUnlisted(oracle)
  } catch (error) {
    return otherContract(
      error,
      `the oracle at ${oracle} has no proposer whitelist: it is not a managed one`,
    )
  }
}

/**
 * A contract that answers otherwise is a wrong configuration; a node that does not answer says
 * nothing.
 */
function otherContract(error: unknown, fault: string): string {
  if (error instanceof ChainError && error.kind !== 'unavailable') return fault
  throw error
}
