import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { encodeFunctionData, keccak256, parseAbi, stringToHex, toHex } from 'viem'
import { privateKeyToAddress } from 'viem/accounts'
import { startLoad } from './children.js'
import { ask } from './distant.js'

const propose = [
  'struct Proposal { address oracle; address requester; bytes32 identifier; uint256 timestamp; bytes ancillaryData; int256 proposedPrice; uint256 maxPayment; }',
  'struct TokenPermissions { address token; uint256 amount; }',
  'struct PermitTransferFrom { TokenPermissions permitted; uint256 nonce; uint256 deadline; }',
  'function propose(Proposal proposal, address proposer, PermitTransferFrom permit, bytes signature, uint256 payment) returns (uint256 totalBond)',
]
const delegating = parseAbi(['function addDelegatedProposer(address proposer)'])

/** The arguments of `propose` for a signed proposal and the context it was signed for. */
function argumentsOf({ item, context: { request, bond } }) {
  const { proposer, proposed_price, max_payment, permit, signature } = item
  const proposal = {
    oracle: request.oracle,
    requester: request.requester,
    identifier: request.identifier.raw,
    timestamp: BigInt(request.timestamp),
    ancillaryData: request.ancillary_data,
    proposedPrice: BigInt(proposed_price),
    maxPayment: BigInt(max_payment),
  }
  const permitted = { token: bond.token, amount: BigInt(permit.amount) }
  const terms = { permitted, nonce: BigInt(permit.nonce), deadline: BigInt(permit.deadline) }
  return [proposal, proposer, terms, signature, 0n]
}

/**
 * Starts the plain bot of `peer/bot.js` with a key of its own that may propose, behind the world's
 * proxy. `propose(proposals)` has it send them, and resolves once all are sent with the moment at
 * which it was told to.
 */
export async function startBot({ root }, { dev, proxy }) {
  const key = keccak256(stringToHex('the key of the plain bot'))
  const address = privateKeyToAddress(key)
  const admin = dev.accounts.find(({ role }) => role === 'admin').address
  const signedProposer = dev.trust.signed_proposer
  await ask(dev.rpc_url, 'anvil_setBalance', [address, toHex(10n ** 21n)])
  const data = encodeFunctionData({
    abi: delegating,
    functionName: 'addDelegatedProposer',
    args: [address],
  })
  await ask(dev.rpc_url, 'eth_sendTransaction', [
    { from: admin, to: signedProposer, data, gas: toHex(1_000_000) },
  ])
  await ask(dev.rpc_url, 'evm_mine')
  const { send, stop } = startLoad(join(root, 'test', 'bench', 'peer', 'bot.js'))
  await send({ rpcUrl: proxy.url, chainId: dev.chain_id, key, signedProposer, abi: propose })
  return {
    async propose(proposals) {
      const all = proposals.map(argumentsOf)
      const beganMs = performance.now()
      await send(all)
      return beganMs
    },
    stop,
  }
}
