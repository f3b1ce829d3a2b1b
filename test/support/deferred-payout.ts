import { yesOrNoQuery } from '#chain/contracts'
import type { DevChain } from '#devchain/dev-chain'
import {
  callData,
  contractOf,
  devAccount,
  devAddresses,
  devBondRaw,
  devFinalFeeRaw,
  devRpc,
  sendAsDev,
} from '#devchain/dev-contracts'
import { proposeDirectly } from '#devchain/dev-verbs'
import type { Hex } from '#ports'

const asAdmin = (dev: DevChain, to: 'oracle' | 'token', name: string, ...args: unknown[]) =>
  sendAsDev(devRpc(dev.rpcUrl), [
    {
      from: devAccount('admin').address,
      to: devAddresses[to],
      data: callData(contractOf(to), name, args),
    },
  ])

export async function deferPayout(dev: DevChain): Promise<bigint> {
  const slug = dev.description.questions[0]?.slug ?? ''
  const round = await proposeDirectly(dev.rpcUrl, slug, 10n ** 18n)
  const rpc = devRpc(dev.rpcUrl)
  const { ancillaryData } = await rpc.read<{ ancillaryData: Hex }>(
    contractOf('adapter'),
    'getQuestion',
    [round.question_id],
  )
  await rpc.request('evm_increaseTime', [7_300])
  await rpc.request('evm_mine', [])
  await asAdmin(dev, 'token', 'setBlacklisted', devAccount('rival').address, true)
  const key = [devAddresses.adapter, yesOrNoQuery, BigInt(round.timestamp), ancillaryData]
  const { reward } = await rpc.read<{ reward: bigint }>(contractOf('oracle'), 'getRequest', key)
  await asAdmin(dev, 'oracle', 'settle', ...key)
  return devBondRaw + devFinalFeeRaw + reward
}
