/**
 * The chain of the simulated week: an anvil that mines only when told to, at the times it is told,
 * with all four kinds of requesters on it. Reads go by the contracts' own ABIs to any block, so
 * that what a test concludes owes nothing to the product's reading.
 */

import { decodeFunctionResult, keccak256, maxUint256, stringToHex } from 'viem'
import { yesOrNoQuery } from '#chain/contracts'
import { startAnvil } from '#devchain/dev-anvil'
import { artifact, exampleQuestion } from '#devchain/dev-artifacts'
import {
  callData,
  type DevReceipt,
  DevRpcError,
  devAccount,
  devAddresses,
  devBondRaw,
  devFinalFeeRaw,
  devRpc,
  type Placed,
  placedAt,
  placing,
} from '#devchain/dev-contracts'
import type { Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { type WeekWallet, weekAddress, weekWallets } from './week-wallets.js'

export const blockSeconds = 2n
const genesisSeconds = 1_800_000_000n
export const noAddress: Address = `0x${'0'.repeat(40)}`

/**
 * A question that is or will be asked. Its rounds are told apart by `timestamp`, which the chain
 * tells, or for `direct` the registry.
 */
export type WeekQuestion = ReturnType<typeof weekQuestion>

const registered = (contract: string, address: Address): Placed => placedAt(contract, address)

export const contracts = {
  permit2: registered('Permit2', devAddresses.permit2),
  token: registered('Token', devAddresses.token),
  oracle: registered('ManagedOracle', devAddresses.oracle),
  signedProposer: registered('SignedProposer', devAddresses.signedProposer),
  adapter: registered('CtfAdapter', devAddresses.adapter),
  negRisk: registered('CtfAdapter', weekAddress('negative risk adapter')),
  reporter: registered('Reporter', weekAddress('reporter')),
  proposers: registered('AddressWhitelist', devAddresses.proposers),
  requesters: registered('AddressWhitelist', devAddresses.requesters),
  nobody: registered('AddressWhitelist', devAddresses.nobody),
  everybody: registered('DisabledAddressWhitelist', devAddresses.everybody),
  /**
   * A custom whitelist that SignedProposer is on and does not own: who is on it too may propose.
   */
  club: registered('AddressWhitelist', weekAddress('club')),
} as const

export const actors = {
  admin: devAccount('admin').address,
  executor: devAccount('executor').address,
  disputer: devAccount('disputer').address,
  rival: devAccount('rival').address,
  relayer: devAccount('outsider').address,
  asker: devAccount('outsider', 1).address,
  vault: weekAddress('vault'),
} as const

export interface Sent {
  readonly hash: Hex
  readonly mayRevert: boolean
}

export type WeekChain = Awaited<ReturnType<typeof startWeekChain>>

const quantity = (value: bigint): Hex => `0x${value.toString(16)}`
const plenty = 10n ** 30n
/** Above any base fee that a test sets, so that only the executor ever waits for cheaper blocks. */
const worldMaxFeeWei = 10n ** 15n
const worldTipWei = 10n ** 9n
const firstTipWei = 10n ** 14n

export async function startWeekChain() {
  const anvil = await startAnvil(0, [
    ...[
      '--chain-id',
      '31337',
      '--no-mining',
      '--slots-in-an-epoch',
      '1',
      '--timestamp',
      String(genesisSeconds),
    ],
    ...[
      '--hardfork',
      'prague',
      '--accounts',
      '0',
      '--auto-impersonate',
      '--gas-limit',
      '300000000',
      '--no-request-size-limit',
    ],
  ])
  const rpc = devRpc(anvil.rpcUrl)
  let head = { number: 0n, seconds: genesisSeconds }
  let waiting: Sent[] = []
  const readHead = async () => {
    const block = await rpc.request<{ number: Hex; timestamp: Hex }>('eth_getBlockByNumber', [
      'latest',
      false,
    ])
    head = { number: BigInt(block.number), seconds: BigInt(block.timestamp) }
  }
  const chain = {
    rpcUrl: anvil.rpcUrl,
    request: rpc.request,
    async read<Result>(contract: Placed, name: string, args: readonly unknown[], block?: bigint) {
      const call = { to: contract.address, data: callData(contract, name, args) }
      const data = await rpc.request<Hex>('eth_call', [
        call,
        block === undefined ? 'latest' : quantity(block),
      ])
      return decodeFunctionResult({
        abi: contract.artifact.abi,
        functionName: name,
        data,
      }) as Result
    },
    async call(from: Address, to: Address, data: Hex, block?: bigint) {
      try {
        return await rpc.request<Hex>('eth_call', [
          { from, to, data, gas: '0x1000000' },
          block === undefined ? 'latest' : quantity(block),
        ])
      } catch (error) {
        if (error instanceof DevRpcError && /revert|OutOfGas/i.test(error.message)) return undefined
        throw error
      }
    },
    async send(
      from: Address,
      contract: Placed,
      name: string,
      args: readonly unknown[],
      how: { first?: boolean; mayRevert?: boolean } = {},
    ) {
      const call = {
        from,
        to: contract.address,
        data: callData(contract, name, args),
        gas: quantity(6_000_000n),
      }
      const fees = {
        maxFeePerGas: quantity(worldMaxFeeWei),
        maxPriorityFeePerGas: quantity(how.first === true ? firstTipWei : worldTipWei),
      }
      const hash = await rpc.request<Hex>('eth_sendTransaction', [{ ...call, ...fees }])
      waiting.push({ hash, mayRevert: how.mayRevert === true })
      return hash
    },
    /**
     * Mines what waits, at the head's time and these seconds. Fails where one of `send` reverted
     * that may not. The head then.
     */
    async mine(seconds: bigint = blockSeconds) {
      const time = head.seconds + seconds
      await rpc.request('evm_mine', [Number(time)])
      await readHead()
      if (head.seconds !== time) throw new Error(`the block's time is ${head.seconds}, not ${time}`)
      const sent = waiting
      waiting = []
      for (const { hash, mayRevert } of sent) {
        const receipt = await chain.receipt(hash)
        if (receipt === null) throw new Error(`the world's transaction ${hash} was not mined`)
        if (receipt.status !== '0x1' && !mayRevert)
          throw new Error(`the world's transaction ${hash} reverted`)
      }
      return head
    },
    async mineMany(blocks: number) {
      await rpc.request('anvil_mine', [blocks, Number(blockSeconds)])
      await readHead()
    },
    head: () => head,
    receipt: (hash: Hex) =>
      rpc.request<(DevReceipt & { readonly blockHash: Hex; readonly from: Address }) | null>(
        'eth_getTransactionReceipt',
        [hash],
      ),
    stop: anvil.stop,
  }
  try {
    await setUp(chain)
    return chain
  } catch (error) {
    await anvil.stop()
    throw error
  }
}

async function setUp(chain: WeekChain): Promise<void> {
  const { admin, executor, disputer, rival, relayer, asker } = actors
  const wallets = Object.values(weekWallets)
  await chain.request('anvil_setLoggingEnabled', [false])
  for (const { method, params } of Object.values(contracts).flatMap(placing))
    await chain.request(method, params)
  for (const wallet of wallets)
    if (wallet.contract)
      await chain.request('anvil_setCode', [wallet.address, artifact('Wallet').code])
  for (const address of [
    ...Object.values(actors),
    contracts.signedProposer.address,
    ...wallets.map((wallet) => wallet.address),
  ])
    await chain.request('anvil_setBalance', [
      address,
      quantity(address === executor ? 10n ** 20n : plenty),
    ])
  const {
    permit2,
    token,
    oracle,
    signedProposer,
    adapter,
    negRisk,
    reporter,
    proposers,
    requesters,
    nobody,
    everybody,
    club,
  } = contracts
  const run = (contract: Placed, name: string, ...args: unknown[]) =>
    chain.send(admin, contract, name, args)
  await run(token, 'setUp', admin)
  for (const list of [proposers, requesters, nobody, everybody, club])
    await run(list, 'setUp', admin)
  await run(oracle, 'setUp', admin, proposers.address, requesters.address)
  await run(oracle, 'setIdentifier', yesOrNoQuery, true)
  await run(
    oracle,
    'setCurrency',
    token.address,
    true,
    devFinalFeeRaw,
    100_000_000n,
    100_000_000_000n,
  )
  await run(signedProposer, 'setUp', admin, permit2.address)
  for (const account of [executor, relayer])
    await run(signedProposer, 'addDelegatedProposer', account)
  await run(adapter, 'setUp', admin, oracle.address)
  await run(negRisk, 'setUp', admin, oracle.address)
  await run(reporter, 'setUp', admin, oracle.address, token.address)
  for (const address of [adapter.address, negRisk.address, reporter.address, asker])
    await run(requesters, 'addToWhitelist', address)
  for (const address of [signedProposer.address, rival])
    await run(proposers, 'addToWhitelist', address)
  await run(proposers, 'transferOwnership', signedProposer.address)
  for (const address of [
    signedProposer.address,
    ...wallets.slice(0, 3).map((wallet) => wallet.address),
  ])
    await run(club, 'addToWhitelist', address)
  for (const address of [disputer, rival]) {
    await run(token, 'mint', address, 10n ** 15n)
    await chain.send(address, token, 'approve', [oracle.address, maxUint256])
  }
  for (const wallet of wallets) {
    await run(token, 'mint', wallet.address, wallet.fundsRaw)
    await chain.send(wallet.address, token, 'approve', [permit2.address, wallet.allowanceRaw])
    if (wallet.contract) await run(placedAt('Wallet', wallet.address), 'setOwner', wallet.signer)
  }
  await chain.mine()
  await chain.mine()
  await chain.mine()
}

const hexTail = (address: Address) => address.slice(2)

export function weekQuestion(n: number) {
  const kinds = [
    'uma-ctf-adapter',
    'uma-ctf-adapter-negrisk',
    'oo-reporter',
    'direct',
    'uma-ctf-adapter',
  ] as const
  const kind = kinds[n % kinds.length] ?? 'direct'
  const { text, outcomes } = exampleQuestion(n)
  const bytes = stringToHex(text)
  const isAdapter = kind === 'uma-ctf-adapter' || kind === 'uma-ctf-adapter-negrisk'
  const ancillaryData = isAdapter
    ? stringToHex(`${text},initializer:${hexTail(actors.admin)}`)
    : bytes
  const prices = [
    0n,
    10n ** 18n,
    ...(outcomes.includes('p3') && kind !== 'uma-ctf-adapter-negrisk' ? [5n * 10n ** 17n] : []),
  ]
  const requester = {
    'uma-ctf-adapter': contracts.adapter.address,
    'uma-ctf-adapter-negrisk': contracts.negRisk.address,
    'oo-reporter': contracts.reporter.address,
    direct: actors.asker,
  }[kind]
  const questionId = isAdapter
    ? keccak256(ancillaryData)
    : keccak256(stringToHex(`week question ${n}`))
  return { name: `q${n}`, kind, questionId, requester, ancillaryData, prices, text: bytes }
}

export const directTimestamp = genesisSeconds

export async function askOn(
  chain: WeekChain,
  question: WeekQuestion,
  timestamp = directTimestamp,
): Promise<void> {
  const { admin, asker } = actors
  switch (question.kind) {
    case 'uma-ctf-adapter':
    case 'uma-ctf-adapter-negrisk': {
      const adapter = placedAt('CtfAdapter', question.requester)
      await chain.send(admin, adapter, 'initialize', [
        question.text,
        contracts.token.address,
        0n,
        devBondRaw,
        0n,
      ])
      return
    }
    case 'oo-reporter':
      await chain.send(admin, contracts.reporter, 'register', [
        question.questionId,
        question.text,
        devBondRaw,
      ])
      await chain.send(admin, contracts.reporter, 'initialize', [question.questionId])
      return
    case 'direct': {
      const key = [yesOrNoQuery, timestamp, question.ancillaryData]
      await chain.send(asker, contracts.oracle, 'requestPrice', [
        ...key,
        contracts.token.address,
        0n,
      ])
      await chain.send(asker, contracts.oracle, 'setBond', [...key, devBondRaw])
      await chain.send(asker, contracts.oracle, 'setEventBased', key)
    }
  }
}

export function requestKey(
  question: WeekQuestion,
  timestamp: bigint,
): readonly [Address, Hex, bigint, Hex] {
  return [question.requester, yesOrNoQuery, timestamp, question.ancillaryData]
}

export async function delegate(
  chain: WeekChain,
  wallet: WeekWallet,
  to: Address | undefined,
): Promise<true> {
  await chain.request('anvil_setCode', [
    wallet.address,
    to === undefined ? '0x' : `0xef0100${hexTail(to)}`,
  ])
  return true
}
