import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import {
  type Abi,
  createPublicClient,
  createWalletClient,
  defineChain,
  encodeFunctionData,
  getAddress,
  http,
  parseAbi,
  parseEventLogs,
  zeroAddress,
} from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { devRpc, sendAsDev } from '#devchain/dev-contracts'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { pathOf } from './components.js'

interface Artifact {
  readonly abi: Abi
  readonly bytecode: Hex
}

function artifact(path: string): Artifact {
  const folder = join(dirname(pathOf('Safe contracts')), 'build/artifacts/contracts')
  return JSON.parse(readFileSync(join(folder, path), 'utf8')) as Artifact
}

export async function safeContracts(rpcUrl: string, chainId: number, key: Hex) {
  const chain = defineChain({
    id: chainId,
    name: 'dev',
    nativeCurrency: { name: 'dev', symbol: 'DEV', decimals: 18 },
    rpcUrls: { default: { http: [rpcUrl] } },
  })
  const account = privateKeyToAccount(key)
  const client = createWalletClient({ account, chain, transport: http(rpcUrl) })
  const reader = createPublicClient({ chain, transport: http(rpcUrl), pollingInterval: 100 })
  const deploy = async ({ abi, bytecode }: Artifact) => {
    const hash = await client.deployContract({ abi, bytecode, args: [] })
    const { contractAddress } = await reader.waitForTransactionReceipt({ hash })
    if (!contractAddress) throw new Error('the contract was not deployed')
    return contractAddress
  }
  const safeArtifact = artifact('Safe.sol/Safe.json')
  const factoryArtifact = artifact('proxies/SafeProxyFactory.sol/SafeProxyFactory.json')
  const singleton = await deploy(safeArtifact)
  const factory = await deploy(factoryArtifact)
  const handler = await deploy(
    artifact('handler/CompatibilityFallbackHandler.sol/CompatibilityFallbackHandler.json'),
  )
  let salt = 0n

  const actAs = async (safe: Address, to: Address, data: Hex) => {
    const rpc = devRpc(rpcUrl)
    await rpc.request('anvil_setBalance', [safe, '0xde0b6b3a7640000'])
    await rpc.request('anvil_impersonateAccount', [safe])
    await sendAsDev(rpc, [{ from: safe, to, data }])
  }
  return {
    client,
    reader,
    actAs,
    async newSafe(
      owners: readonly Address[],
      threshold: number,
      withHandler = true,
    ): Promise<Address> {
      const setup = encodeFunctionData({
        abi: safeArtifact.abi,
        functionName: 'setup',
        args: [
          owners.map((owner) => getAddress(owner)),
          BigInt(threshold),
          zeroAddress,
          '0x',
          withHandler ? handler : zeroAddress,
          zeroAddress,
          0n,
          zeroAddress,
        ],
      })
      const hash = await client.writeContract({
        address: factory,
        abi: factoryArtifact.abi,
        functionName: 'createProxyWithNonce',
        args: [singleton, setup, salt++],
      })
      const { logs } = await reader.waitForTransactionReceipt({ hash })
      const [made] = parseEventLogs({ abi: factoryArtifact.abi, eventName: 'ProxyCreation', logs })
      const { proxy } = (made as unknown as { args: { proxy: Hex } }).args
      return proxy.toLowerCase() as Address
    },
    messageData: (safe: Address, digest: Hex) =>
      reader.readContract({
        address: safe,
        abi: parseAbi([
          'function encodeMessageDataForSafe(address safe, bytes message) view returns (bytes)',
        ]),
        functionName: 'encodeMessageDataForSafe',
        args: [safe, digest],
      }),
    async removeOwner(safe: Address, before: Address, owner: Address, threshold: number) {
      const args = [getAddress(before), getAddress(owner), BigInt(threshold)]
      const { abi } = safeArtifact
      await actAs(safe, safe, encodeFunctionData({ abi, functionName: 'removeOwner', args }))
    },
  }
}
