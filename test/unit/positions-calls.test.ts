import {
  type Abi,
  decodeFunctionData,
  encodeFunctionResult,
  getAbiItem,
  multicall3Abi,
  stringToHex,
  toFunctionSelector,
} from 'viem'
import { aggregating, multicallAddress } from '#chain/aggregate'
import { oracleAbi, yesOrNoQuery } from '#chain/contracts'
import { newFold } from '#client/journal/journal'
import { readPositions } from '#client/positions/positions'
import { type Chain, ChainError, type ChainLog, type Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { zeroAddress } from '#protocol/words'
import { sha256 } from '#support/client-world'
import { createFakeChain, questionText } from '#support/fake-chain'
import {
  adapter,
  bondRaw,
  finalFeeRaw,
  logOf,
  oracle,
  token,
  fakeTrust as trust,
} from '#support/fake-world'
import { SimFiles } from '#support/sim-files'

const proposals = 10_000
const blocksApart = 20
const settledAfter = 4_000
const finalityLag = 100
const mostBlocks = 1_000n
const yes = 10n ** 18n
const begun = 1_800_000_000n
const wallets = [1, 2, 3, 4, 5].map((n): Address => `0x${`a${n}`.repeat(20)}`)
const getRequest = toFunctionSelector(getAbiItem({ abi: oracleAbi, name: 'getRequest' }))
const hashOf = (number: number | bigint): Hex => `0x${number.toString(16).padStart(64, '0')}`
const timeOf = (block: number | bigint) => begun + 2n * BigInt(block)

function history(): ReadonlyMap<number, readonly ChainLog[]> {
  const byBlock = new Map<number, ChainLog[]>()
  for (let n = 0; n < proposals; n++) {
    const block = n * blocksApart
    const text = stringToHex(questionText(`Question ${n}`))
    const round = { requester: adapter, proposer: wallets[n % 5], identifier: yesOrNoQuery }
    const args = { ...round, timestamp: BigInt(n), ancillaryData: text }
    const add = (at: number, name: string, more: object) => {
      const logs = byBlock.get(at) ?? []
      const place = { blockNumber: BigInt(at), blockHash: hashOf(at), logIndex: logs.length }
      const log = logOf(oracle, oracleAbi as Abi, name, { ...args, ...more })
      byBlock.set(at, [...logs, { ...log, ...place, transactionHash: hashOf(at * 8) }])
    }
    const expirationTimestamp = timeOf(block) + 7200n
    add(block, 'ProposePrice', { proposedPrice: yes, expirationTimestamp, currency: token })
    const payout = bondRaw + finalFeeRaw
    add(block + settledAfter, 'Settle', { disputer: zeroAddress, price: yes, payout })
  }
  return byBlock
}

function limitedNode() {
  const fake = createFakeChain()
  fake.mine()
  const byBlock = history()
  const none = () => ({ answered: [] as [number, number][], calls: 0, refused: 0, requests: 0 })
  const node = { head: proposals * blocksApart, mute: 0, ...none() }
  const requestAt = (timestamp: number) => {
    if (timestamp < node.mute) throw new ChainError('reverted', '')
    const proposed = timestamp * blocksApart
    const isSettled = proposed + settledAfter <= node.head
    const flags = { eventBased: false, refundOnDispute: true, callbackOnPriceProposed: false }
    const more = { callbackOnPriceDisputed: true, callbackOnPriceSettled: false }
    node.requests++
    return encodeFunctionResult({
      abi: oracleAbi,
      functionName: 'getRequest',
      result: {
        ...{ proposer: wallets[timestamp % 5] ?? zeroAddress, disputer: zeroAddress },
        ...{ currency: token, settled: isSettled, proposedPrice: yes },
        requestSettings: { ...flags, ...more, bond: bondRaw, customLiveness: 0n },
        ...{ resolvedPrice: isSettled ? yes : 0n, expirationTime: timeOf(proposed) + 7200n },
        ...{ reward: 0n, finalFee: finalFeeRaw, proposalTime: timeOf(proposed) },
      },
    })
  }
  const read = (to: Hex, data: Hex): Promise<Hex> | Hex =>
    data.startsWith(getRequest)
      ? requestAt(Number(BigInt(`0x${data.slice(10 + 128, 10 + 192)}`)))
      : fake.call({ to, data }, 'latest')
  const chain: Chain = {
    ...fake,
    async block(at) {
      node.calls++
      const final = node.head - finalityLag
      const number = at === 'finalized' ? final : typeof at === 'bigint' ? Number(at) : node.head
      const parentHash = hashOf(Math.max(0, number - 1))
      const header = { number: BigInt(number), hash: hashOf(number), parentHash }
      return number > node.head ? null : { ...header, timestamp: timeOf(number), baseFeePerGas: 1n }
    },
    async code(address) {
      node.calls++
      return address === multicallAddress ? '0x60' : '0x'
    },
    async call({ to, data }) {
      node.calls++
      if (to !== multicallAddress) return read(to, data)
      const [calls] = decodeFunctionData({ abi: multicall3Abi, data }).args as readonly [
        readonly { readonly target: Hex; readonly callData: Hex }[],
      ]
      const result = await Promise.all(
        calls.map(async ({ target, callData }) => ({
          success: true,
          returnData: await read(target.toLowerCase() as Hex, callData),
        })),
      )
      return encodeFunctionResult({ abi: multicall3Abi, functionName: 'aggregate3', result })
    },
    async logs({ fromBlock, toBlock, topics }) {
      node.calls++
      expect(topics?.[2]).toHaveLength(5)
      if (toBlock - fromBlock >= mostBlocks) {
        node.refused++
        throw new ChainError('refused', 'too many blocks')
      }
      node.answered.push([Number(fromBlock), Number(toBlock)])
      const found: ChainLog[] = []
      for (let block = Number(fromBlock); block <= Number(toBlock); block++)
        found.push(...(byBlock.get(block) ?? []))
      return found
    },
  }
  return { node, chain, forget: () => Object.assign(node, none()) }
}

test('issue 16: 10,000 proposals of five wallets at 1,000 blocks a query; then only what is new', async () => {
  const { node, chain, forget } = limitedNode()
  const files = new SimFiles().process()
  const turn = () => new Promise<void>((resolve) => setImmediate(resolve))
  const place = { trust, view: newFold().view(), files, hash: sha256, home: '/home' }
  const read = () => {
    forget()
    return readPositions({ ...place, chain: aggregating(chain, turn) }, wallets)
  }
  const final = () => node.head - finalityLag
  const open = settledAfter / blocksApart

  const first = await read()
  expect(first.positions).toHaveLength(proposals)
  expect(first.notes).toEqual([])
  expect(first.positions.filter(({ state }) => state === 'settled')).toHaveLength(
    proposals - open + 1,
  )
  const ranges = Math.ceil((node.head + 1) / Number(mostBlocks))
  const whole = Array.from({ length: ranges }, (_, n): [number, number] => [
    n * Number(mostBlocks),
    Math.min((n + 1) * Number(mostBlocks) - 1, node.head),
  ])
  expect(node.answered).toEqual(whole)
  // One proposal each, folded by 200; a wider range is tried after every eighth answer.
  expect(node.requests).toBe(proposals)
  expect(node.refused).toBeLessThanOrEqual(1 + ranges / 8)
  expect(node.calls).toBeLessThan(ranges + ranges / 8 + proposals / 200 + 100)

  const second = await read()
  expect(second.positions).toEqual(first.positions)
  expect(second.totals).toEqual(first.totals)
  expect(node.answered).toEqual([[final() + 1, node.head]])
  expect(node.refused).toBe(0)
  expect(node.requests).toBeLessThanOrEqual(open + finalityLag / blocksApart + 1)
  expect(node.calls).toBeLessThan(33)

  const seen = final()
  node.head += 500
  const third = await read()
  expect(node.answered).toEqual([[seen + 1, node.head]])
  const settled = third.positions.filter(({ state }) => state === 'settled')
  expect(settled).toHaveLength(proposals - open + 1 + 500 / blocksApart)

  // Of 301 the first 200 are refused.
  Object.assign(node, { head: 6_000, mute: 200 })
  await read()
  expect(node.requests).toBe(101)
}, 120_000)
