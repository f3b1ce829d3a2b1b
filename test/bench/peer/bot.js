// The plain bot that the bench measures our way to the chain beside: viem, one key, every proposal
// simulated, then written as a transaction of its own, all at once. Takes {rpcUrl, chainId, key,
// signedProposer, abi} as its first job by IPC; then lists of the arguments of `propose`, each
// answered with the hashes once all are sent.
import { createPublicClient, createWalletClient, defineChain, http, parseAbi } from 'viem'
import { nonceManager, privateKeyToAccount } from 'viem/accounts'

let send

function begin({ rpcUrl, chainId, key, signedProposer, abi: signatures }) {
  const chain = defineChain({
    id: chainId,
    name: 'dev',
    nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
    rpcUrls: { default: { http: [rpcUrl] } },
  })
  const account = privateKeyToAccount(key, { nonceManager })
  const transport = http(rpcUrl)
  const reader = createPublicClient({ chain, transport })
  const writer = createWalletClient({ account, chain, transport })
  const call = { address: signedProposer, abi: parseAbi(signatures), functionName: 'propose' }
  send = (proposals) =>
    Promise.all(
      proposals.map(async (args) => {
        const { request } = await reader.simulateContract({ ...call, account, args })
        return writer.writeContract(request)
      }),
    )
}

process.on('message', async (job) => {
  try {
    process.send({ answer: Array.isArray(job) ? await send(job) : begin(job) })
  } catch (error) {
    process.send({ error: error.message })
  }
})
// The parent is gone: nobody waits for an answer.
process.on('disconnect', () => process.exit())
