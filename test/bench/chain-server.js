import { createServer } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  decodeFunctionData,
  encodeEventTopics,
  encodeFunctionResult,
  keccak256,
  parseAbi,
  stringToHex,
  toFunctionSelector,
  toHex,
} from 'viem'

const address = (digit) => `0x${digit.repeat(40)}`
const contracts = {
  id: 31337,
  permit2: '0x000000000022d473030f116ddee9f6b43ac78ba3',
  signed_proposer: address('5'),
  oracles: [address('a')],
  requesters: [{ address: address('b'), kind: 'uma-ctf-adapter' }],
  tokens: [address('c')],
}
const [oracle] = contracts.oracles
const [token] = contracts.tokens
const adapter = contracts.requesters[0].address
const multicall = '0xca11bde05977b3631167028862be2a173976ca11'
const timestamp = 1_760_000_000n

const abi = parseAbi([
  'struct QuestionData { uint256 requestTimestamp; uint256 reward; uint256 proposalBond; uint256 liveness; uint256 manualResolutionTimestamp; bool resolved; bool paused; bool reset; bool refund; address rewardToken; address creator; bytes ancillaryData; }',
  'function getQuestion(bytes32 questionID) view returns (QuestionData)',
  'function isFlagged(bytes32 questionID) view returns (bool)',
  'function optimisticOracle() view returns (address)',
  'struct RequestSettings { bool eventBased; bool refundOnDispute; bool callbackOnPriceProposed; bool callbackOnPriceDisputed; bool callbackOnPriceSettled; uint256 bond; uint256 customLiveness; }',
  'struct Request { address proposer; address disputer; address currency; bool settled; RequestSettings requestSettings; int256 proposedPrice; int256 resolvedPrice; uint256 expirationTime; uint256 reward; uint256 finalFee; uint256 proposalTime; }',
  'function getRequest(address requester, bytes32 identifier, uint256 timestamp, bytes ancillaryData) view returns (Request)',
  'function getState(address requester, bytes32 identifier, uint256 timestamp, bytes ancillaryData) view returns (uint8)',
  'function customBonds(bytes32 managedRequestId, address currency) view returns (uint256 amount, bool isSet)',
  'function nonceBitmap(address owner, uint256 wordPos) view returns (uint256)',
  'function symbol() view returns (string)',
  'function decimals() view returns (uint8)',
  'struct Call3 { address target; bool allowFailure; bytes callData; }',
  'struct Result { bool success; bytes returnData; }',
  'function aggregate3(Call3[] calls) payable returns (Result[] results)',
  'event QuestionUnflagged(bytes32 indexed questionID)',
])
const settings = {
  eventBased: true,
  refundOnDispute: true,
  callbackOnPriceProposed: false,
  callbackOnPriceDisputed: true,
}
const nobody = address('0')
const answers = {
  isFlagged: false,
  optimisticOracle: oracle,
  getState: 1,
  customBonds: [0n, false],
  nonceBitmap: 0n,
  symbol: 'USDC.e',
  decimals: 6,
  getRequest: {
    proposer: nobody,
    disputer: nobody,
    currency: token,
    settled: false,
    requestSettings: {
      ...settings,
      callbackOnPriceSettled: false,
      bond: 500_000_000n,
      customLiveness: 0n,
    },
    proposedPrice: 0n,
    resolvedPrice: 0n,
    expirationTime: 0n,
    reward: 0n,
    finalFee: 250_000_000n,
    proposalTime: 0n,
  },
}
const encode = (functionName, result) => encodeFunctionResult({ abi, functionName, result })
const encoded = new Map(
  Object.entries(answers).map(([name, result]) => [selectorOf(name), encode(name, result)]),
)
const getQuestion = selectorOf('getQuestion')
const aggregate3 = selectorOf('aggregate3')

function selectorOf(name) {
  return toFunctionSelector(abi.find((item) => item.type === 'function' && item.name === name))
}

const rules =
  'This market resolves by the official announcement; where there is none, by the consensus of credible reporting. '.repeat(
    9,
  )

export function makeQuestions(count) {
  return Array.from({ length: count }, (_, n) => {
    const text = stringToHex(
      `q: title: Question ${n}, description: ${rules}res_data: p1: 0, p2: 1. Where p1 corresponds to No, p2 to Yes.`,
    )
    return { question_id: keccak256(text), text }
  })
}

/**
 * A node on loopback with open questions, a block every `blockMs`, and answers that take `delayMs`,
 * as those of a far node do. `logsOf(number)` tells which questions a block names. It counts: `calls` by method, `requests` of HTTP, `inner` calls of aggregates, and `read`,
 * the questions that were read.
 */
export async function serveChain(questions, { blockMs, delayMs, logsOf }) {
  const stored = new Map(
    questions.map(({ question_id, text }) => {
      const flags = { resolved: false, paused: false, reset: false, refund: false }
      const numbers = {
        reward: 0n,
        proposalBond: 500_000_000n,
        liveness: 7200n,
        manualResolutionTimestamp: 0n,
      }
      const data = {
        requestTimestamp: timestamp,
        ...numbers,
        ...flags,
        rewardToken: token,
        creator: nobody,
        ancillaryData: text,
      }
      return [question_id, encode('getQuestion', data)]
    }),
  )
  const chain = {
    contracts,
    url: '',
    head: 0,
    requests: 0,
    inner: 0,
    calls: new Map(),
    read: new Set(),
    close: async () => {},
  }
  const start = Math.floor(Date.now() / 1000)
  const headOf = () => Math.floor(((Date.now() / 1000 - start) * 1000) / blockMs) + 3
  const hashOf = (number) => keccak256(toHex(number, { size: 32 }))
  const header = (number) => ({
    number: toHex(number),
    hash: hashOf(number),
    parentHash: hashOf(Math.max(0, number - 1)),
    timestamp: toHex(start + Math.floor(((number - 3) * blockMs) / 1000)),
    baseFeePerGas: '0x1',
  })
  const numberOf = (tag) => {
    if (tag === 'latest' || tag === 'pending') return headOf()
    return tag === 'finalized' ? headOf() - 2 : Number(tag)
  }
  const call = ({ to, data }) => {
    const selector = data.slice(0, 10)
    if (to === multicall && selector === aggregate3) {
      const { args } = decodeFunctionData({ abi, data })
      const result = args[0].map(({ target, callData }) => ({
        success: true,
        returnData: call({ to: target.toLowerCase(), data: callData }),
      }))
      chain.inner += result.length
      return encode('aggregate3', result)
    }
    if (selector !== getQuestion) return encoded.get(selector) ?? '0x'
    const questionId = `0x${data.slice(10)}`
    chain.read.add(questionId)
    return stored.get(questionId)
  }
  const logs = ({ fromBlock, toBlock }) => {
    const found = []
    for (let number = Number(fromBlock); number <= Number(toBlock); number += 1) {
      for (const [index, questionID] of logsOf(number).entries()) {
        found.push({
          address: adapter,
          topics: encodeEventTopics({ abi, eventName: 'QuestionUnflagged', args: { questionID } }),
          data: '0x',
          blockNumber: toHex(number),
          blockHash: hashOf(number),
          transactionHash: keccak256(toHex(index, { size: 32 })),
          logIndex: toHex(index),
        })
      }
    }
    return found
  }
  const methods = {
    eth_chainId: () => toHex(contracts.id),
    eth_blockNumber: () => toHex(headOf()),
    eth_getBlockByNumber: ([tag]) => (numberOf(tag) > headOf() ? null : header(numberOf(tag))),
    eth_call: ([asked]) => call(asked),
    eth_getLogs: ([filter]) => logs(filter),
    eth_getCode: ([at]) => (at === multicall ? '0x60' : '0x'),
    eth_getBalance: () => '0x0',
  }
  const close = await serveNode(chain, methods, delayMs)
  chain.blocks = headOf
  chain.close = close
  return chain
}

export async function serveNode(chain, methods, delayMs) {
  const answer = ({ id, method, params }) => {
    chain.calls.set(method, (chain.calls.get(method) ?? 0) + 1)
    const work = methods[method]
    if (work === undefined)
      return { jsonrpc: '2.0', id, error: { code: -32601, message: `no method ${method}` } }
    try {
      return { jsonrpc: '2.0', id, result: work(params) }
    } catch ({ message }) {
      return { jsonrpc: '2.0', id, error: { code: -32000, message } }
    }
  }
  const server = createServer((incoming, response) => {
    const parts = []
    incoming.on('data', (part) => parts.push(part))
    incoming.on('end', async () => {
      chain.requests += 1
      const body = JSON.parse(Buffer.concat(parts).toString())
      const text = JSON.stringify(Array.isArray(body) ? body.map(answer) : answer(body))
      await sleep(delayMs)
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(text)
    })
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  chain.url = `http://127.0.0.1:${server.address().port}`
  return () => {
    server.closeAllConnections()
    server.close()
  }
}
