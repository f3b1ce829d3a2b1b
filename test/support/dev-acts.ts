import {
  contractOf,
  devAccount,
  devAddresses,
  devImplementations,
  devRpc,
  type Placed,
  placedAt,
} from '#devchain/dev-contracts'
import { find, oracleRequestOf, sendFrom } from '#devchain/dev-verbs'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'

const oracleV3 = () => placedAt('ManagedOracleV3', devAddresses.oracle)

const asAdmin = (rpcUrl: string, contract: Placed, name: string, args: readonly unknown[]) =>
  sendFrom(devRpc(rpcUrl), devAccount('admin').address, contract, name, args)

export async function upgradeOracle(
  rpcUrl: string,
  implementation = devImplementations.ManagedOracleV3 as Hex,
): Promise<void> {
  const { code } = oracleV3().artifact
  await devRpc(rpcUrl).request('anvil_setCode', [implementation, code])
  await asAdmin(rpcUrl, oracleV3(), 'upgradeToAndCall', [implementation, '0x'])
}

export async function setReward(rpcUrl: string, identifier: string, raw: bigint): Promise<bigint> {
  const found = await find(rpcUrl, identifier)
  const request = oracleRequestOf(found)
  await asAdmin(rpcUrl, oracleV3(), 'requestManagerSetReward', [...request, raw])
  return found.rpc.read<bigint>(oracleV3(), 'getRequestReward', request)
}

export const failTransfers = (rpcUrl: string, wallet: Address, fails: boolean) =>
  asAdmin(rpcUrl, contractOf('token'), 'setBlacklisted', [wallet, fails])
