/**
 * A chain for tests: a tree of blocks with a state each, a mempool with a node's nonce rules, a
 * finalized pointer, reorganisations and faults per call (robustness §8, T8). Nothing moves by
 * itself: blocks come from `mine`.
 */

import { createHash } from 'node:crypto'
import { keccak256, parseTransaction, stringToHex, type TransactionSerializedEIP1559 } from 'viem'
import {
  type BlockHeader,
  type Chain,
  ChainError,
  type ChainErrorKind,
  type ChainLog,
  type ChainReceipt,
  type Clock,
  type Hex,
} from '#ports'
import type { Address } from '#protocol/schema'
import {
  callWorld,
  emptyWorld,
  type FakeLog,
  fakeContracts,
  Revert,
  runPropose,
  type World,
} from './fake-world.js'
import { senderOf } from './sender.js'

const baseFeeWei = 10_000_000_000n
const genesisTime = 1_800_000_000n
const blockSeconds = 2n
const proposeGas = 350_000n
const mostRunGas = 50_000_000n

interface PooledTransaction {
  readonly hash: Hex
  readonly raw: Hex
  readonly from: Address
  readonly to: Address
  readonly nonce: number
  readonly data: Hex
  readonly gas: bigint
  readonly maxFeePerGas: bigint
  readonly maxPriorityFeePerGas: bigint
}

interface Account {
  nonce: number
  wei: bigint
}

interface Block {
  readonly header: BlockHeader
  world: World
  accounts: Map<Address, Account>
  isIdle: boolean
  readonly receipts: readonly ChainReceipt[]
  readonly included: readonly PooledTransaction[]
  readonly logs: readonly ChainLog[]
}

/** Changes the state; an array is what it logs. */
type Happening = (world: World, time: bigint) => unknown

export interface FakeChain extends Chain {
  mine(count?: number, options?: { readonly empty?: boolean }): void
  /**
   * Undoes blocks; their transactions go back to the mempool unless `drop`. Final ones only where
   * finality is `lost`.
   */
  reorg(depth: number, options?: { readonly drop?: boolean; readonly lost?: boolean }): void
  finalityLag: number
  nextSeconds: bigint
  gasNeeded: (data: Hex) => bigint
  fault(
    method: keyof Chain,
    kind: ChainErrorKind,
    options?: { readonly times?: number; readonly applied?: boolean },
  ): void
  clearFaults(): void
  happen(happening: Happening, calldata?: Hex): void
  clearPool(): void
  readonly head: BlockHeader
  readonly world: World
  readonly taken: readonly {
    readonly hash: Hex
    readonly raw: Hex
    readonly nonce: number
    readonly from: Address
    readonly to: Address
    readonly data: Hex
  }[]
  readonly calls: Map<string, number>
  strictNonces: boolean
  minimumTipWei: bigint
  blockGas: bigint
  transactionGas: bigint | undefined
  fund(account: Address, wei: bigint): void
  readonly truth: {
    finalNonce(account: Address): number
    receipt(hash: Hex): ChainReceipt | undefined
    header(number: bigint): BlockHeader | undefined
  }
}

export function createFakeChain(): FakeChain {
  const faults: { method: string; kind: ChainErrorKind; times: number; applied: boolean }[] = []
  const happenings: { readonly happening: Happening; readonly calldata: Hex }[] = []
  const calldataOf = new Map<Hex, Hex>()
  const pool = new Map<Hex, PooledTransaction>()
  const taken: PooledTransaction[] = []
  const calls = new Map<string, number>()
  let salt = 0
  let finalized = 0
  const genesis: Block = {
    header: {
      number: 0n,
      hash: keccak256(stringToHex('genesis')),
      parentHash: `0x${'0'.repeat(64)}`,
      timestamp: genesisTime,
      baseFeePerGas: baseFeeWei,
    },
    world: emptyWorld(),
    accounts: new Map(),
    isIdle: false,
    receipts: [],
    included: [],
    logs: [],
  }
  const blocks: Block[] = [genesis]
  const top = () => blocks.at(-1) ?? genesis
  const ownTop = () => {
    const block = top()
    if (!block.isIdle) return block
    block.world = structuredClone(block.world)
    block.accounts = structuredClone(block.accounts)
    block.isIdle = false
    return block
  }

  const chain = {
    finalityLag: 2,
    nextSeconds: blockSeconds,
    gasNeeded: () => proposeGas,
    strictNonces: false,
    minimumTipWei: 0n,
    blockGas: 60_000_000n,
    transactionGas: undefined,
    taken,
    calls,
    get head() {
      return top().header
    },
    get world() {
      return ownTop().world
    },
    truth: {
      finalNonce: (account: Address) => blocks[finalized]?.accounts.get(account)?.nonce ?? 0,
      header: (number: bigint) => blocks[Number(number)]?.header,
      receipt: (hash: Hex) =>
        blocks
          .flatMap(({ receipts }) => receipts)
          .find(({ transactionHash }) => transactionHash === hash),
    },
  } as unknown as FakeChain

  const build = (empty: boolean) => {
    const parent = top()
    const number = parent.header.number + 1n
    const timestamp = parent.header.timestamp + chain.nextSeconds
    salt += 1
    const hash = digestOf(`${parent.header.hash}|${number}|${salt}`)
    const waiting = empty ? [] : [...pool.values()].sort((one, other) => one.nonce - other.nonce)
    const isIdle = happenings.length === 0 && waiting.length === 0
    const world = isIdle ? parent.world : structuredClone(parent.world)
    const accounts = isIdle ? parent.accounts : structuredClone(parent.accounts)
    const receipts: ChainReceipt[] = []
    const included: PooledTransaction[] = []
    const logs: ChainLog[] = []
    const write = (found: readonly FakeLog[], transactionHash: Hex) => {
      const made = found.map((log, index) => ({
        ...log,
        blockNumber: number,
        blockHash: hash,
        transactionHash,
        logIndex: logs.length + index,
      }))
      logs.push(...made)
      return made
    }
    for (const [index, { happening, calldata }] of happenings.splice(0).entries()) {
      const by = digestOf(`happening|${hash}|${index}`)
      calldataOf.set(by, calldata)
      const told = happening(world, timestamp)
      const made = write(Array.isArray(told) ? told : [], by)
      receipts.push({
        transactionHash: by,
        blockNumber: number,
        blockHash: hash,
        status: 'success',
        gasUsed: 0n,
        logs: made,
      })
    }
    for (const transaction of waiting) {
      const account = accountOf(accounts, transaction.from)
      if (transaction.nonce !== account.nonce || transaction.maxFeePerGas < baseFeeWei) continue
      if (transaction.gas > chain.blockGas) continue
      pool.delete(transaction.hash)
      account.nonce += 1
      account.wei -= 21_000n * baseFeeWei
      included.push(transaction)
      receipts.push(run(world, transaction, timestamp, number, hash, write))
    }
    blocks.push({
      header: {
        number,
        hash,
        parentHash: parent.header.hash,
        timestamp,
        baseFeePerGas: baseFeeWei,
        gasLimit: chain.blockGas,
      },
      world,
      accounts,
      isIdle,
      receipts,
      included,
      logs,
    })
    finalized = Math.max(finalized, blocks.length - 1 - chain.finalityLag)
  }

  const run = (
    world: World,
    transaction: PooledTransaction,
    time: bigint,
    blockNumber: bigint,
    blockHash: Hex,
    write: (logs: readonly FakeLog[], hash: Hex) => ChainLog[],
  ): ChainReceipt => {
    const base = { transactionHash: transaction.hash, blockNumber, blockHash }
    if (transaction.to !== fakeContracts.signedProposer)
      return { ...base, status: 'success', gasUsed: 21_000n, logs: [] }
    if (transaction.gas < chain.gasNeeded(transaction.data))
      return { ...base, status: 'reverted', gasUsed: transaction.gas, logs: [] }
    const attempt = structuredClone(world)
    try {
      const logs = runPropose(attempt, transaction.from, transaction.data, time)
      Object.assign(world, attempt)
      return {
        ...base,
        status: 'success',
        gasUsed: proposeGas,
        logs: write(logs, transaction.hash),
      }
    } catch (error) {
      if (!(error instanceof Revert)) throw error
      return { ...base, status: 'reverted', gasUsed: 100_000n, logs: [] }
    }
  }

  chain.mine = (count = 1, options = {}) => {
    for (let mined = 0; mined < count; mined += 1) build(options.empty === true)
  }
  chain.reorg = (depth, options = {}) => {
    if (options.lost) finalized = Math.min(finalized, blocks.length - 1 - depth)
    if (blocks.length - depth <= finalized) throw new Error('a final block cannot be undone')
    for (const block of blocks.splice(blocks.length - depth)) {
      if (!options.drop)
        for (const transaction of block.included) pool.set(transaction.hash, transaction)
    }
  }
  chain.fault = (method, kind, options = {}) => {
    faults.push({ method, kind, times: options.times ?? 1, applied: options.applied ?? false })
  }
  chain.clearFaults = () => {
    faults.length = 0
  }
  chain.happen = (happening, calldata = '0x') => {
    happenings.push({ happening, calldata })
  }
  chain.clearPool = () => pool.clear()
  chain.fund = (account, wei) => {
    accountOf(ownTop().accounts, account).wei = wei
  }

  const counted = (method: keyof Chain) => {
    calls.set(method, (calls.get(method) ?? 0) + 1)
    const index = faults.findIndex((fault) => fault.method === method && !fault.applied)
    const fault = faults[index]
    if (!fault) return
    fault.times -= 1
    if (fault.times === 0) faults.splice(index, 1)
    throw new ChainError(fault.kind, `${method}: made to fail`)
  }
  const blockAt = (at: 'latest' | 'pending' | 'finalized' | bigint): Block | undefined => {
    if (typeof at === 'bigint') return blocks[Number(at)]
    return at === 'finalized' ? blocks[finalized] : top()
  }
  const stateAt = (at: 'latest' | 'pending' | bigint): Block => {
    const block = blockAt(at)
    if (!block) throw new ChainError('unavailable', 'header not found')
    return block
  }

  chain.chainId = async () => {
    counted('chainId')
    return fakeContracts.chainId
  }
  chain.block = async (at) => {
    counted('block')
    return blockAt(at)?.header ?? null
  }
  chain.call = async (call, at = 'latest') => {
    counted('call')
    const { world, header } = stateAt(at)
    if (call.gas !== undefined && call.from !== undefined && call.gas < chain.gasNeeded(call.data))
      throw new ChainError('reverted', 'eth_call: out of gas')
    try {
      return callWorld(world, call, header.timestamp)
    } catch (error) {
      if (error instanceof Revert) throw new ChainError('reverted', error.message, error.data)
      throw error
    }
  }
  chain.logs = async ({ fromBlock, toBlock, addresses, topics, blockHash }) => {
    counted('logs')
    if (blockHash !== undefined && blocks[Number(toBlock)]?.header.hash !== blockHash)
      throw new ChainError('unavailable', 'eth_getLogs: unknown block')
    const matches = (log: ChainLog) =>
      addresses.includes(log.address) &&
      (topics ?? []).every((wanted, index) => {
        const topic = log.topics[index]
        return (
          wanted === null ||
          (topic !== undefined &&
            (Array.isArray(wanted) ? wanted.includes(topic) : wanted === topic))
        )
      })
    return blocks
      .slice(Number(fromBlock), Number(toBlock) + 1)
      .flatMap(({ logs }) => logs.filter(matches))
  }
  chain.code = async (address, at = 'latest') => {
    counted('code')
    const { wallets, codes } = stateAt(at).world
    return wallets.has(address) ? '0xef01' : (codes.get(address) ?? '0x')
  }
  chain.storage = async (address, slot, at = 'latest') => {
    counted('storage')
    return stateAt(at).world.storage.get(`${address}|${slot}`) ?? `0x${'0'.repeat(64)}`
  }
  chain.balance = async (address) => {
    counted('balance')
    return top().accounts.get(address)?.wei ?? 0n
  }
  chain.transactionCount = async (address, at) => {
    counted('transactionCount')
    return blockAt(at)?.accounts.get(address)?.nonce ?? 0
  }
  chain.estimateGas = async (call) => {
    counted('estimateGas')
    if (call.to !== fakeContracts.signedProposer) return 21_000n
    try {
      callWorld(top().world, call, top().header.timestamp)
    } catch (error) {
      if (error instanceof Revert) throw new ChainError('reverted', error.message, error.data)
      throw error
    }
    const needed = chain.gasNeeded(call.data)
    if (needed > mostRunGas || needed > chain.blockGas)
      throw new ChainError('reverted', 'gas required exceeds allowance')
    return needed
  }
  chain.tip = async () => {
    counted('tip')
    return 1_000_000_000n
  }
  chain.send = async (raw) => {
    counted('send')
    const hash = await accept(raw)
    const index = faults.findIndex(({ method, applied }) => method === 'send' && applied)
    const [fault] = index < 0 ? [] : faults.splice(index, 1)
    if (fault) throw new ChainError(fault.kind, 'send: taken, and the answer was lost')
    return hash
  }
  const accept = async (raw: Hex): Promise<Hex> => {
    const parsed = parseTransaction(raw as TransactionSerializedEIP1559)
    const from = await senderOf(raw as TransactionSerializedEIP1559)
    const transaction: PooledTransaction = {
      hash: keccak256(raw),
      raw,
      from,
      to: (parsed.to ?? '0x').toLowerCase() as Address,
      nonce: parsed.nonce ?? 0,
      data: parsed.data ?? '0x',
      gas: parsed.gas ?? 0n,
      maxFeePerGas: parsed.maxFeePerGas ?? 0n,
      maxPriorityFeePerGas: parsed.maxPriorityFeePerGas ?? 0n,
    }
    if (pool.has(transaction.hash)) throw new ChainError('already_known', 'already known')
    const account = top().accounts.get(from) ?? { nonce: 0, wei: 0n }
    if (transaction.nonce < account.nonce) throw new ChainError('nonce_too_low', 'nonce too low')
    if (chain.strictNonces && transaction.nonce > account.nonce)
      throw new ChainError('nonce_too_high', 'nonce too high')
    if (transaction.gas > (top().header.gasLimit ?? transaction.gas))
      throw new ChainError('too_much_gas', 'exceeds block gas limit')
    if (transaction.gas > (chain.transactionGas ?? transaction.gas))
      throw new ChainError('too_much_gas', 'transaction gas limit too high')
    if (transaction.maxPriorityFeePerGas < chain.minimumTipWei)
      throw new ChainError('underpriced', 'gas tip cap below minimum')
    if (account.wei < transaction.gas * transaction.maxFeePerGas)
      throw new ChainError('insufficient_funds', 'insufficient funds')
    const rival = [...pool.values()].find(
      (other) => other.from === from && other.nonce === transaction.nonce,
    )
    if (rival) {
      const raised = (mine: bigint, theirs: bigint) => mine * 10n >= theirs * 11n
      const pays =
        raised(transaction.maxFeePerGas, rival.maxFeePerGas) &&
        raised(transaction.maxPriorityFeePerGas, rival.maxPriorityFeePerGas)
      if (!pays)
        throw new ChainError('replacement_underpriced', 'replacement transaction underpriced')
      pool.delete(rival.hash)
    }
    pool.set(transaction.hash, transaction)
    if (!taken.some(({ hash }) => hash === transaction.hash)) taken.push(transaction)
    return transaction.hash
  }
  chain.receipt = async (hash) => {
    counted('receipt')
    for (const { receipts } of blocks) {
      const found = receipts.find(({ transactionHash }) => transactionHash === hash)
      if (found) return found
    }
    return null
  }
  chain.hasTransaction = async (hash) => {
    counted('hasTransaction')
    return (
      pool.has(hash) ||
      blocks.some(({ included }) => included.some((transaction) => transaction.hash === hash))
    )
  }
  chain.calldata = async (hash) => {
    counted('calldata')
    const sent = [...pool.values(), ...blocks.flatMap(({ included }) => included)].find(
      (transaction) => transaction.hash === hash,
    )
    return sent?.data ?? calldataOf.get(hash) ?? null
  }
  return chain
}

function digestOf(text: string): Hex {
  return `0x${createHash('sha256').update(text).digest('hex')}`
}

function accountOf(accounts: Map<Address, Account>, address: Address): Account {
  const account = accounts.get(address) ?? { nonce: 0, wei: 0n }
  accounts.set(address, account)
  return account
}

export interface FakeClock extends Clock {
  monotonic: number
}

export function createFakeClock(chain: FakeChain): FakeClock {
  const clock: FakeClock = {
    monotonic: 0,
    nowMs: () => Number(chain.head.timestamp) * 1000 + Math.floor(clock.monotonic % 1000),
    monotonicMs: () => clock.monotonic,
    sleep: (_ms, signal) =>
      new Promise((_resolve, reject) =>
        signal?.addEventListener('abort', () => reject(signal.reason), { once: true }),
      ),
  }
  return clock
}

export {
  ask,
  clarify,
  dispute,
  endow,
  invalidateNonces,
  questionText,
  rivalProposes,
  setCustomBond,
  setPaused,
  updateRules,
  upgrade,
} from './fake-events.js'
