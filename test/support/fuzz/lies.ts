/**
 * What a node may tell off by one step, a method and a direction each: plausible answers, of the
 * right shape, that are not true. `chain` is the truth. A lie that does not apply to a call returns
 * the outcome as it is.
 */
import { toFunctionSelector } from 'viem'
import type { RpcCall } from '#io/rpc/transport'
import { ChainError, type Hex } from '#ports'
import type { FakeChain } from '../fake-chain.js'

export interface Lie {
  readonly name: string
  readonly seen?: RegExp
  tell(call: RpcCall, outcome: unknown, chain: FakeChain): unknown
}

type Block = Readonly<Record<string, string>>
const quantity = (value: bigint | number): string => `0x${value.toString(16)}`
const off = (outcome: unknown, by: bigint) => {
  const value = BigInt(String(outcome)) + by
  return quantity(value < 0n ? 0n : value)
}
const other = (n: number): Hex => `0x${String(n).padStart(64, 'e')}`

const about = (
  method: string,
  name: string,
  change: (outcome: never, call: RpcCall, chain: FakeChain) => unknown,
  seen?: RegExp,
): Lie => ({
  name: `${method}: ${name}`,
  ...(seen ? { seen } : {}),
  tell: (call, outcome, chain) =>
    call.method === method && !(outcome instanceof ChainError)
      ? change(outcome as never, call, chain)
      : outcome,
})

const ifAt =
  (tag: string, change: (outcome: never, call: RpcCall, chain: FakeChain) => unknown) =>
  (outcome: never, call: RpcCall, chain: FakeChain) =>
    call.params[call.method === 'eth_getBlockByNumber' ? 0 : 1] === tag
      ? change(outcome, call, chain)
      : outcome

const count = 'eth_getTransactionCount'
const counts: readonly Lie[] = (['latest', 'finalized'] as const).flatMap((tag) => [
  about(
    count,
    `${tag}, one too high`,
    ifAt(tag, (told) => off(told, 1n)),
  ),
  about(
    count,
    `${tag}, one too low`,
    ifAt(tag, (told) => off(told, -1n)),
  ),
])

const header = 'eth_getBlockByNumber'
const below = (by: bigint) => (block: Block, _call: RpcCall, chain: FakeChain) => {
  const found = chain.truth.header(BigInt(block.number ?? 0) - by)
  return found
    ? {
        ...block,
        number: quantity(found.number),
        hash: found.hash,
        parentHash: found.parentHash,
        timestamp: quantity(found.timestamp),
      }
    : block
}
const above = (block: Block) => ({
  ...block,
  number: off(block.number, 1n),
  hash: other(Number(block.number)),
  parentHash: block.hash,
  timestamp: off(block.timestamp, 2n),
})
const heads: readonly Lie[] = [
  about(
    header,
    'a head that is one too high',
    ifAt('latest', above),
    /the newest block|not on the chain|changed its block|has not been read/,
  ),
  about(header, 'a head that is one too low', ifAt('latest', below(1n))),
  about(
    header,
    'no head',
    ifAt('latest', () => null),
    /has no latest block/,
  ),
  about(
    header,
    'a finalized block that is one too high',
    ifAt('finalized', (block: Block, call, chain) => below(-1n)(block, call, chain)),
  ),
  about(header, 'a finalized block that is one too low', ifAt('finalized', below(1n))),
  about(
    header,
    'no finalized block',
    ifAt('finalized', () => null),
    /no finalized block/,
  ),
  about(
    header,
    'another finalized block',
    ifAt('finalized', (block: Block) => block && { ...block, hash: other(1) }),
  ),
  about(
    header,
    'a base fee that is twice as high',
    ((block: Block) =>
      block && {
        ...block,
        baseFeePerGas: off(block.baseFeePerGas, BigInt(block.baseFeePerGas ?? 0)),
      }) as never,
  ),
  about(
    header,
    'a base fee of nothing',
    ((block: Block) => block && { ...block, baseFeePerGas: '0x0' }) as never,
  ),
]

interface Receipt {
  readonly blockNumber: string
  readonly status: string
  readonly gasUsed: string
  readonly logs: readonly unknown[]
}
const receipt = 'eth_getTransactionReceipt'
const receipts: readonly Lie[] = [
  about(receipt, 'missing', () => null),
  about(
    receipt,
    'one too many: of a transaction that is not mined',
    ((found: Receipt | null, call: RpcCall, chain: FakeChain) =>
      found ?? {
        transactionHash: call.params[0],
        blockNumber: quantity(chain.head.number),
        blockHash: chain.head.hash,
        status: '0x1',
        gasUsed: '0x1',
        logs: [],
      }) as never,
  ),
  about(
    receipt,
    'a success told as a revert',
    ((found: Receipt | null) => found && { ...found, status: '0x0', logs: [] }) as never,
  ),
  about(
    receipt,
    'a revert told as a success',
    ((found: Receipt | null) => found && { ...found, status: '0x1' }) as never,
  ),
  about(
    receipt,
    'a block too high',
    ((found: Receipt | null) =>
      found && { ...found, blockNumber: off(found.blockNumber, 1n) }) as never,
  ),
  about(
    receipt,
    'a block too low',
    ((found: Receipt | null) =>
      found && { ...found, blockNumber: off(found.blockNumber, -1n) }) as never,
  ),
  about(
    receipt,
    'logs missing',
    ((found: Receipt | null) => found && { ...found, logs: [] }) as never,
  ),
]

const transaction = 'eth_getTransactionByHash'
const transactions: readonly Lie[] = [
  about(transaction, 'missing', () => null),
  about(
    transaction,
    'one too many',
    ((found: unknown, call: RpcCall) => found ?? { hash: call.params[0], input: '0x' }) as never,
  ),
]

const logs: readonly Lie[] = [
  about('eth_getLogs', 'all missing', () => []),
  about('eth_getLogs', 'the last missing', ((found: readonly unknown[]) =>
    found.slice(0, -1)) as never),
  about('eth_getLogs', 'one too many', ((found: readonly unknown[]) => [
    ...found,
    ...found.slice(-1),
  ]) as never),
]

const others: readonly Lie[] = [
  about('eth_chainId', 'one too high', (told) => off(told, 1n), /is on chain \d+/),
  about('eth_getCode', 'too much', () => '0xef01'),
  about('eth_getBalance', 'nothing', () => '0x0', /fund it/),
  about('eth_getBalance', 'too much', (told) => off(told, 10n ** 18n)),
  about('eth_maxPriorityFeePerGas', 'ten times too high', (told) =>
    off(told, 9n * BigInt(String(told))),
  ),
  about('eth_maxPriorityFeePerGas', 'nothing', () => '0x0'),
  about('eth_estimateGas', 'twice too high', (told) => off(told, BigInt(String(told)))),
  about(
    'eth_estimateGas',
    'a revert',
    () => new ChainError('reverted', 'eth_estimateGas: execution reverted'),
  ),
  about('eth_sendRawTransaction', 'taken, and forgotten', (told, _call, chain) => {
    chain.clearPool()
    return told
  }),
  about(
    'eth_sendRawTransaction',
    'nonce too low',
    () => new ChainError('nonce_too_low', 'nonce too low'),
  ),
  about(
    'eth_sendRawTransaction',
    'nonce too high',
    () => new ChainError('nonce_too_high', 'nonce too high'),
  ),
]

const called = (signature: string, name: string, answer: string, seen?: RegExp): Lie =>
  about(
    'eth_call',
    `${signature.split('(')[0]} ${name}`,
    ((told: unknown, { params }: RpcCall) =>
      String((params[0] as { data?: string }).data).startsWith(toFunctionSelector(signature))
        ? answer
        : told) as never,
    seen,
  )
const word = (value: bigint): Hex => `0x${value.toString(16).padStart(64, '0')}`

/**
 * Answers of contracts: what one node alone tells of them for as long as it likes cannot be told
 * from the truth.
 */
export const contractLies: readonly Lie[] = [
  called('nonceBitmap(address,uint256)', 'all used', word(2n ** 256n - 1n)),
  called('getState(address,bytes32,uint256,bytes)', 'proposed', word(2n)),
  called('getState(address,bytes32,uint256,bytes)', 'settled', word(6n)),
  called('balanceOf(address)', 'nothing', word(0n)),
  called('allowance(address,address)', 'nothing', word(0n)),
  called('customBonds(bytes32,address)', 'higher', `${word(10n ** 12n)}${word(0n).slice(2)}`),
  called('hasRole(bytes32,address)', 'no', word(0n), /lacks DELEGATED_PROPOSER_ROLE/),
  called('isOnWhitelist(address)', 'no', word(0n), /list it/),
]

/** What a node answers to everything: as one that is overloaded, and one that is none. */
const whole = (name: string, answer: unknown, seen: RegExp): Lie => ({
  name,
  seen,
  tell: () => answer,
})
const wholes: readonly Lie[] = [
  whole(
    'every call is refused',
    new ChainError('unavailable', 'HTTP 429'),
    /does not report its chain/,
  ),
  whole('every result is of another shape', { nonsense: true }, /does not report its chain/),
]

export const lies: readonly Lie[] = [
  ...wholes,
  ...counts,
  ...heads,
  ...receipts,
  ...transactions,
  ...logs,
  ...others,
]
