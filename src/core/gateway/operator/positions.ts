/**
 * What became of the proposals that a store has executed, read from the chain when somebody asks
 * (domain §10). The store keeps nothing of it.
 */
import { oracleAbi } from '../../chain/contracts.js'
import { logRanges } from '../../chain/log-ranges.js'
import { lowercase, readContract, zeroAddress } from '../../chain/reading.js'
import { type Contracts, roundRef } from '../../chain/round.js'
import {
  resultFor,
  type StakeEvent,
  type StakeResult,
  stakeEventOf,
  stakeFilter,
} from '../../chain/stakes.js'
import { type Chain, ChainError, type Hex } from '../../ports.js'
import type { Address } from '../../protocol/schema.js'

/** The proposal of an executed candidate. */
export interface Execution {
  readonly proposer: Address
  /** A decimal string. */
  readonly price: string
  /** Key of its round, which takes one proposal. */
  readonly roundKey: string
  /** Null where it was found on chain without its transaction. */
  readonly transactionHash: Hex | null
}

/** `open`: neither disputed nor settled. `disputed`: the end is not known yet. */
export type ExecutionState = 'unknown' | 'open' | 'disputed' | StakeResult

/** What was found out, by the key of the round. */
export interface ExecutionStates {
  readonly states: ReadonlyMap<string, ExecutionState>
  /** The blocks that were read, all final; null where there were none. */
  readonly fromBlock: bigint | null
  readonly throughBlock: bigint | null
  /** Why something could not be read. */
  readonly fault: string | undefined
}

export interface ExecutionParts {
  readonly chain: Chain
  readonly contracts: Contracts
  /** Told which block is read, and which is the last one. */
  readonly onProgress?: (block: bigint, last: bigint) => void
  readonly signal?: AbortSignal
}

/** Wallets in one question to a node, which bounds them. */
const walletsAtOnce = 500
/** Requests that are read in one go. */
const readAtOnce = 64
/** Executions whose receipts are asked for, to learn where to begin. */
const mostReceipts = 20

interface Reading extends ExecutionParts {
  readonly executions: ReadonlyMap<string, Execution>
  readonly states: Map<string, ExecutionState>
  /** Requests whose proposals were seen, while they are not settled. */
  readonly requests: Map<string, Extract<StakeEvent, { kind: 'proposed' }>>
}

/**
 * Reads the executions' logs up to the finalized block, then the requests that no log has settled:
 * a node may leave logs out. What a node does not tell is `unknown`, with the `fault`. Rejects with
 * the signal's reason, unless that is a `ChainError`. `executions`: the oldest first.
 */
export async function readExecutionStates(
  parts: ExecutionParts,
  executions: readonly Execution[],
): Promise<ExecutionStates> {
  const reading: Reading = {
    ...parts,
    executions: new Map(executions.map((one) => [one.roundKey, one])),
    states: new Map(executions.map(({ roundKey }) => [roundKey, 'unknown'])),
    requests: new Map(),
  }
  const { states } = reading
  let fromBlock: bigint | null = null
  let throughBlock: bigint | null = null
  let fault: string | undefined
  try {
    const last = await parts.chain.block('finalized')
    if (last === null) throw new ChainError('unavailable', 'the node has no finalized block')
    fromBlock = await firstBlock(parts.chain, executions)
    await readLogs(reading, fromBlock, last.number)
    await readRequests(reading, last.number)
    throughBlock = last.number
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    fault = error.message
    // Whether they are open still was not found out.
    for (const [key, state] of states) if (state === 'open') states.set(key, 'unknown')
  }
  return { states, fromBlock, throughBlock, fault }
}

/** The block of the first execution whose receipt the node has. */
async function firstBlock(chain: Chain, executions: readonly Execution[]): Promise<bigint> {
  const hashes = executions.flatMap(({ transactionHash }) => transactionHash ?? [])
  for (const hash of hashes.slice(0, mostReceipts)) {
    const receipt = await chain.receipt(hash)
    if (receipt !== null) return receipt.blockNumber
  }
  throw new ChainError('unavailable', 'the node has no receipts for the first executions')
}

async function readLogs(reading: Reading, from: bigint, to: bigint): Promise<void> {
  const { chain, contracts, executions, onProgress, signal } = reading
  const wallets = [...new Set([...executions.values()].map(({ proposer }) => proposer))]
  for (let at = 0; at < wallets.length; at += walletsAtOnce) {
    const filter = stakeFilter(contracts.oracles, wallets.slice(at, at + walletsAtOnce))
    for await (const range of logRanges(chain, filter, { from, to }, signal)) {
      onProgress?.(range.to, to)
      for (const log of range.logs) note(reading, stakeEventOf(log))
    }
  }
}

function note({ contracts, executions, states, requests }: Reading, event: StakeEvent | undefined) {
  if (event === undefined || 'amount' in event) return
  // The key of a round has no part of the question.
  const { key } = roundRef(contracts, event.text, event, event.text)
  const execution = executions.get(key)
  if (execution?.proposer !== event.wallet) return
  if (event.kind === 'settled') {
    states.set(key, resultFor(execution.price, event) ?? 'unknown')
    requests.delete(key)
    return
  }
  if (event.kind === 'proposed') requests.set(key, event)
  states.set(key, event.kind === 'proposed' ? 'open' : 'disputed')
}

/** What the oracle itself says of the rounds that no log has settled. */
async function readRequests(reading: Reading, at: bigint): Promise<void> {
  const { executions, states, requests, signal } = reading
  const left = [...requests]
  for (let first = 0; first < left.length; first += readAtOnce) {
    signal?.throwIfAborted()
    const some = left.slice(first, first + readAtOnce)
    const read = await Promise.all(
      some.map(([key, event]) => stateOf(reading.chain, event, executions.get(key)?.price, at)),
    )
    for (const [index, [key]] of some.entries()) states.set(key, read[index] ?? 'unknown')
  }
}

async function stateOf(
  chain: Chain,
  event: Extract<StakeEvent, { kind: 'proposed' }>,
  price: string | undefined,
  at: bigint,
): Promise<ExecutionState> {
  const { oracle, requester, identifier, timestamp, ancillaryData = '0x', wallet } = event
  const key = [requester, identifier, BigInt(timestamp), ancillaryData] as const
  const found = await readContract(chain, at, oracle, oracleAbi, 'getRequest', key)
  if (lowercase(found.proposer) !== wallet) return 'unknown'
  const disputer = lowercase(found.disputer)
  const isDisputed = disputer !== zeroAddress
  if (!found.settled) return isDisputed ? 'disputed' : 'open'
  const settled = { price: String(found.resolvedPrice), ...(isDisputed && { disputer }) }
  return resultFor(price, settled) ?? 'unknown'
}

/** How the executions of some wallets ended, counted. */
export interface PositionCounts {
  readonly executed: number
  readonly open: number
  readonly undisputed: number
  /** Disputed at all: won, lost, and those without an end yet. */
  readonly disputed: number
  readonly won: number
  readonly lost: number
  readonly unknown: number
}

/** Counts of these states. */
export function countStates(states: readonly ExecutionState[]): PositionCounts {
  const count = (state: ExecutionState) => states.filter((one) => one === state).length
  const [won, lost] = [count('won'), count('lost')]
  return {
    executed: states.length,
    open: count('open'),
    undisputed: count('undisputed'),
    disputed: count('disputed') + won + lost,
    won,
    lost,
    unknown: count('unknown'),
  }
}
