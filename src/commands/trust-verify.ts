/** Asks the chain whether the pinned contracts are what they should be (contract §6 `trust verify`; domain §2). */

import { signedProposerAbi, typeHashes, witnessTypeString } from '../core/chain/contracts.js'
import { lowercase, readContract } from '../core/chain/reading.js'
import type { Trust } from '../core/client/signing/trust.js'
import { type Address, type Chain, ChainError } from '../core/ports.js'

export interface TrustCheck {
  readonly name: string
  readonly ok: boolean
  readonly detail: string
}

/** Every check with its outcome. Rejects with ChainError where the node does not answer: that says nothing about the pins. */
export async function verifyTrust(chain: Chain, trust: Trust): Promise<readonly TrustCheck[]> {
  const chainId = await chain.chainId()
  const sameChain = { name: 'chain id', ...compare(String(chainId), String(trust.chain_id)) }
  // On another chain the same addresses mean nothing: what they hold there is not worth telling.
  if (!sameChain.ok) return [sameChain]
  const head = await chain.block('latest')
  if (!head) throw new ChainError('unavailable', 'the node knows no latest block')
  const contracts: readonly (readonly [string, Address])[] = [
    ['permit2', trust.permit2 as Address],
    ['signed proposer', trust.signed_proposer as Address],
    ...trust.oracles.map((address) => ['oracle', address as Address] as const),
    ...trust.requesters.map(({ address, kind }) => [`requester (${kind})`, address as Address] as const),
    ...trust.tokens.map((address) => ['token', address as Address] as const),
  ]
  const code = await Promise.all(contracts.map(([name, address]) => codeCheck(chain, name, address, head.number)))
  const proposer = trust.signed_proposer as Address
  const answers = await Promise.all([
    answerCheck('PROPOSAL_TYPEHASH', typeHashes.proposal, () =>
      readContract(chain, head.number, proposer, signedProposerAbi, 'PROPOSAL_TYPEHASH', []),
    ),
    answerCheck('WITNESS_TYPE_STRING', witnessTypeString, () =>
      readContract(chain, head.number, proposer, signedProposerAbi, 'WITNESS_TYPE_STRING', []),
    ),
    answerCheck('permit2()', trust.permit2, () =>
      readContract(chain, head.number, proposer, signedProposerAbi, 'permit2', []).then(lowercase),
    ),
  ])
  return [sameChain, ...code, ...answers]
}

/** Requesters of kind `direct` may be plain wallets: a request of theirs is known from the registry, not from code. */
async function codeCheck(chain: Chain, name: string, address: Address, at: bigint): Promise<TrustCheck> {
  const present = (await chain.code(address, at)) !== '0x'
  const ok = present || name === 'requester (direct)'
  return { name: `${name} ${address}`, ok, detail: present ? 'has code' : 'has no code' }
}

async function answerCheck(name: string, expected: string, ask: () => Promise<string>): Promise<TrustCheck> {
  try {
    return { name, ...compare(await ask(), expected) }
  } catch (error) {
    // A revert or an answer of another shape is the finding; a node that is away is not.
    if (!(error instanceof ChainError) || error.kind === 'unavailable') throw error
    return { name, ok: false, detail: error.message }
  }
}

const compare = (found: string, expected: string) =>
  found === expected ? { ok: true, detail: found } : { ok: false, detail: `${found}, pinned ${expected}` }
