import { chainOver } from '#io/rpc/rpc'
import type { RpcCall, Transport } from '#io/rpc/transport'
import { ChainError, type Hex } from '#ports'
import { createTestClock, type TestClock } from './front.js'

export interface Node extends Transport {
  chainId: number
  head: bigint
  fork: number
  silent: string | undefined
  answers: Record<string, unknown>
  readonly asked: RpcCall[]
}

const finalLag = 2n
export const hashOf = (number: bigint, fork: number): Hex =>
  `0x${fork.toString(16).padStart(4, '0')}${number.toString(16).padStart(60, '0')}`
const quantity = (value: bigint | number) => `0x${value.toString(16)}`
export const headerAt = (number: bigint, fork: number, logsBloom?: string) => ({
  number: quantity(number),
  hash: hashOf(number, fork),
  parentHash: hashOf(number - 1n, fork),
  timestamp: quantity(1_000n + 2n * number),
  logsBloom,
})
export const noBloom = `0x${'00'.repeat(256)}`
const fullBloom = `0x${'ff'.repeat(256)}`

export function makeNode(head = 100n): Node {
  const answerOf = ({ method, params }: RpcCall): unknown => {
    if (method in node.answers) return node.answers[method]
    switch (method) {
      case 'eth_chainId':
        return quantity(node.chainId)
      case 'eth_getBlockByNumber': {
        const [tag] = params
        const number =
          tag === 'latest'
            ? node.head
            : tag === 'finalized'
              ? node.head - finalLag
              : BigInt(String(tag))
        return number > node.head ? null : headerAt(number, node.fork, fullBloom)
      }
      case 'eth_getLogs':
        return []
      case 'eth_sendRawTransaction':
        return hashOf(7n, 0)
      default:
        return '0x1'
    }
  }
  const node: Node = {
    chainId: 137,
    head,
    fork: 0,
    silent: undefined,
    answers: {},
    asked: [],
    async exchange(calls) {
      node.asked.push(...calls)
      if (node.silent !== undefined) throw new ChainError('unavailable', node.silent)
      return calls.map(answerOf)
    },
  }
  return node
}

export function chainOf(
  nodes: readonly Node[],
  clock: TestClock = createTestClock(),
  maxLagSeconds?: number,
) {
  return chainOver(nodes, {
    timeoutMs: 5_000,
    expectedChainId: 137,
    maxLagSeconds,
    clock,
    random: { bytes: (length) => new Uint8Array(length).fill(128) },
  })
}

export const timesAsked = (node: Node, method: string) =>
  node.asked.filter((call) => call.method === method).length
export const account: Hex = `0x${'1'.repeat(40)}`
export const hash = hashOf(7n, 0)
export const log = (number: bigint, fork = 0) => ({
  address: account,
  topics: [hash],
  data: '0x',
  blockNumber: quantity(number),
  blockHash: hashOf(number, fork),
  transactionHash: hash,
  logIndex: '0x0',
})
export const receipt = {
  transactionHash: hash,
  blockNumber: '0x5',
  blockHash: hash,
  status: '0x1',
  gasUsed: '0x1',
  logs: [],
}

export async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve))
}

export function withBloom(node: Node, bloom: string): Node['exchange'] {
  const whole = node.exchange
  return async (calls, timeoutMs) =>
    (await whole(calls, timeoutMs)).map((told) =>
      told !== null && typeof told === 'object' && 'logsBloom' in told
        ? { ...told, logsBloom: bloom }
        : told,
    )
}
