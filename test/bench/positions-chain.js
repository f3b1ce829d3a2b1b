import {
  decodeFunctionData,
  encodeAbiParameters,
  encodeEventTopics,
  encodeFunctionData,
  encodeFunctionResult,
  erc20Abi,
  multicall3Abi,
  stringToHex,
  toFunctionSelector,
  toHex,
} from 'viem'
import { serveNode } from './chain-server.js'

const address = (digit) => `0x${digit.repeat(40)}`
const nobody = address('0')
const multicall = '0xca11bde05977b3631167028862be2a173976ca11'
const oracle = address('a')
const token = address('c')
const adapter = address('b')
export const trust = {
  chain_id: 31337,
  permit2: '0x000000000022d473030f116ddee9f6b43ac78ba3',
  signed_proposer: address('5'),
  oracles: [oracle],
  requesters: [{ address: adapter, kind: 'uma-ctf-adapter' }],
  tokens: [token],
}
const identifier = stringToHex('YES_OR_NO_QUERY', { size: 32 })
const yes = 10n ** 18n
const [bond, finalFee] = [500_000_000n, 250_000_000n]
const liveness = 7_200n
const blockSeconds = 2
const finalityLag = 100
/** Blocks from a proposal to the next, and to its own settlement. */
const [blocksApart, settledAfter] = [20, 4_000]

export const wallets = [1, 2, 3, 4, 5].map((n) => `0x${`a${n}`.repeat(20)}`)

const tokenMetadata = new Map(
  Object.entries({ symbol: 'USDC.e', decimals: 6 }).map(([functionName, result]) => [
    encodeFunctionData({ abi: erc20Abi, functionName }),
    encodeFunctionResult({ abi: erc20Abi, functionName, result }),
  ]),
)

const hashOf = (number) => toHex(number, { size: 32 })
const textOf = (n) => stringToHex(`q: title: Question ${n}, description: Did it?`)

/**
 * A node with so many executed proposals of five wallets, each in a block of its own, the older ones
 * settled undisputed. It allows `mostBlocks` a query of logs and answers after `delayMs`. `passBlocks`
 * moves its head on, with nothing new in the blocks but settlements.
 */
export async function servePositions(abi, { proposals, mostBlocks, delayMs }) {
  const item = (name) => abi.find((one) => one.name === name)
  const getRequest = toFunctionSelector(item('getRequest'))
  let head = proposals * blocksApart
  const start = Math.floor(Date.now() / 1000) - head * blockSeconds
  const timeOf = (number) => start + number * blockSeconds

  const logs = new Map()
  const add = (number, eventName, args) => {
    const event = item(eventName)
    const plain = event.inputs.filter(({ indexed }) => !indexed)
    const some = logs.get(number) ?? []
    some.push({
      address: oracle,
      topics: encodeEventTopics({ abi, eventName, args }),
      data: encodeAbiParameters(
        plain,
        plain.map(({ name }) => args[name]),
      ),
      blockNumber: toHex(number),
      blockHash: hashOf(number),
      transactionHash: hashOf(number * 8),
      logIndex: toHex(some.length),
    })
    logs.set(number, some)
  }
  for (let n = 0; n < proposals; n += 1) {
    const at = n * blocksApart
    const round = {
      requester: adapter,
      proposer: wallets[n % wallets.length],
      identifier,
      timestamp: BigInt(n),
      ancillaryData: textOf(n),
    }
    const expirationTimestamp = BigInt(timeOf(at)) + liveness
    const currency = token
    add(at, 'ProposePrice', { ...round, proposedPrice: yes, expirationTimestamp, currency })
    const settled = { disputer: nobody, price: yes, payout: bond + finalFee }
    add(at + settledAfter, 'Settle', { ...round, ...settled })
  }

  const requestOf = (n) => {
    const at = n * blocksApart
    const settled = at + settledAfter <= head
    return encodeFunctionResult({
      abi,
      functionName: 'getRequest',
      result: {
        proposer: wallets[n % wallets.length],
        disputer: nobody,
        currency: token,
        settled,
        requestSettings: {
          eventBased: false,
          refundOnDispute: true,
          callbackOnPriceProposed: false,
          callbackOnPriceDisputed: true,
          callbackOnPriceSettled: false,
          bond,
          customLiveness: 0n,
        },
        proposedPrice: yes,
        resolvedPrice: settled ? yes : 0n,
        expirationTime: BigInt(timeOf(at)) + liveness,
        reward: 0n,
        finalFee,
        proposalTime: BigInt(timeOf(at)),
      },
    })
  }
  const call = ({ to, data }) => {
    if (to === multicall) {
      const { args } = decodeFunctionData({ abi: multicall3Abi, data })
      const result = args[0].map(({ target, callData }) => ({
        success: true,
        returnData: call({ to: target.toLowerCase(), data: callData }),
      }))
      return encodeFunctionResult({ abi: multicall3Abi, functionName: 'aggregate3', result })
    }
    // requester, identifier, timestamp: the number of the proposal.
    if (data.startsWith(getRequest)) return requestOf(Number(`0x${data.slice(138, 202)}`))
    const metadata = tokenMetadata.get(data)
    if (metadata !== undefined) return metadata
    // Whatever else is asked of a contract here is a number that is 0.
    return hashOf(0)
  }
  const header = (number) => ({
    number: toHex(number),
    hash: hashOf(number),
    parentHash: hashOf(Math.max(0, number - 1)),
    timestamp: toHex(timeOf(number)),
    baseFeePerGas: '0x1',
  })
  const numberOf = (tag) =>
    tag === 'latest' ? head : tag === 'finalized' ? head - finalityLag : Number(tag)
  const matches = (wanted, topic) => wanted == null || [wanted].flat().includes(topic)
  const logsIn = ({ fromBlock, toBlock, topics = [] }) => {
    const [from, to] = [Number(fromBlock), Number(toBlock)]
    if (to - from >= mostBlocks) throw new Error(`query exceeds max block range ${mostBlocks}`)
    const found = []
    for (let number = from; number <= to; number += 1)
      for (const log of logs.get(number) ?? [])
        if (topics.every((wanted, place) => matches(wanted, log.topics[place]))) found.push(log)
    return found
  }
  const chain = { url: '', requests: 0, calls: new Map() }
  const methods = {
    eth_chainId: () => toHex(trust.chain_id),
    eth_blockNumber: () => toHex(head),
    eth_getBlockByNumber: ([tag]) => (numberOf(tag) > head ? null : header(numberOf(tag))),
    eth_call: ([asked]) => call(asked),
    eth_getLogs: ([filter]) => logsIn(filter),
    eth_getCode: ([at]) => (at === multicall ? '0x60' : '0x'),
    eth_getStorageAt: () => hashOf(0),
    eth_getBalance: () => '0x0',
  }
  const close = await serveNode(chain, methods, delayMs)
  return {
    chain,
    close,
    settled: () => Math.floor((head - settledAfter) / blocksApart) + 1,
    passBlocks(count) {
      head += count
    },
  }
}
