/** The operator's part (contract §5, domain §2). */

import { oracleAbi, signedProposerAbi, whitelistAbi } from '#chain/contracts'
import { lowercase, readContract } from '#chain/reading'
import { type BlockHeader, ChainError } from '#ports'
import type { Address } from '#protocol/schema'
import { proposalTypeHash } from '#protocol/witness'
import { type PinnedChain, readRole } from '../validation/contract-reads.js'
import { spenderUnlisted } from '../validation/validation.js'

type Ports = PinnedChain & { readonly executor: Address | undefined }

export async function operatorFaults(
  { chain, contracts, executor }: Ports,
  { number: at }: BlockHeader,
) {
  const { signedProposer: spender, oracles } = contracts
  const checks: Promise<string | false>[] = [
    orElse(
      contractFault({ chain, contracts }, at),
      `the contract at ${spender} is not a SignedProposer`,
    ),
    ...oracles.map((oracle) =>
      orElse(
        listFault({ chain, contracts }, oracle, at),
        `the oracle at ${oracle} has no proposer whitelist: it is not a managed oracle`,
      ),
    ),
  ]
  if (executor !== undefined) {
    const role = readRole({ chain, contracts }, executor, at).then(
      (isGranted) =>
        !isGranted &&
        `the executor ${executor} lacks DELEGATED_PROPOSER_ROLE on SignedProposer: grant it`,
    )
    const funds = chain
      .balance(executor)
      .then(
        (wei) => wei === 0n && `the executor ${executor} has no balance to pay for gas: fund it`,
      )
    checks.push(orElse(role, `the contract at ${spender} has no roles`), funds)
  }
  return (await Promise.all(checks)).flatMap((fault) => fault || [])
}

async function contractFault({ chain, contracts }: PinnedChain, at: bigint) {
  const address = contracts.signedProposer
  const [typeHash, permit2] = await Promise.all([
    readContract(chain, at, address, signedProposerAbi, 'PROPOSAL_TYPEHASH', []),
    readContract(chain, at, address, signedProposerAbi, 'permit2', []),
  ])
  if (typeHash !== proposalTypeHash)
    return `SignedProposer at ${address} has another PROPOSAL_TYPEHASH than ${proposalTypeHash}`
  return (
    lowercase(permit2) !== contracts.permit2 &&
    `SignedProposer at ${address} uses Permit2 at ${lowercase(permit2)}, not ${contracts.permit2}`
  )
}

async function listFault({ chain, contracts }: PinnedChain, oracle: Address, at: bigint) {
  const list = await readContract(chain, at, oracle, oracleAbi, 'defaultProposerWhitelist', [])
  const spender = [contracts.signedProposer] as const
  const isListed = readContract(chain, at, lowercase(list), whitelistAbi, 'isOnWhitelist', spender)
  return !(await isListed) && spenderUnlisted(oracle)
}

/** A contract that answers otherwise is wrongly configured; a silent node says nothing. */
async function orElse(check: Promise<string | false>, otherwise: string) {
  try {
    return await check
  } catch (error) {
    if (error instanceof ChainError && error.kind !== 'unavailable') return otherwise
    throw error
  }
}
