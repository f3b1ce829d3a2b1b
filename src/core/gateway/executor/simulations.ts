/**
 * What is asked for at the same moment is run as the transactions that would carry it, and one by
 * one only where that fails (domain §2.2).
 */
import { gathered } from '#chain/aggregate'
import type { Contracts } from '#chain/round'
import { type BlockHeader, type Chain, ChainError, type Hex } from '#ports'
import { type BoundedCache, boundedCache } from '#protocol/bounded-cache'
import type { Address } from '#protocol/schema'
import type { JudgePorts, ProposalCall } from '../validation/validation.js'
import { chunks, usualGas } from './packing.js'
import { carrying, type FeeOffer } from './transaction.js'

interface SimulationPorts {
  readonly chain: Chain
  readonly contracts: Contracts
  readonly executor: Address
  readonly maxBatch: number
  offer(): Promise<FeeOffer | undefined>
  turn(): Promise<void>
  isAlone(call: ProposalCall): boolean
}

interface Asked {
  readonly call: ProposalCall
  readonly calldata: Hex
  readonly resolve: (outcome: Hex | undefined | Promise<Hex | undefined>) => void
  readonly reject: (error: unknown) => void
}

/** Of calldata of runs that succeeded (R17). */
const keptCharacters = 32 * 1024 * 1024

export interface Simulations extends Pick<JudgePorts, 'simulate'> {
  /** Whether the usual gas was enough for it at that block. */
  isProven(data: Hex, at: BlockHeader): boolean
}

export function createSimulations(ports: SimulationPorts): Simulations {
  const { turn } = ports
  const proven: Proven = boundedCache(keptCharacters, undefined, ({ length }) => length)
  let waiting = new Map<BlockHeader, Asked[]>()
  const countWaiting = () => [...waiting.values()].reduce((sum, { length }) => sum + length, 0)
  const flush = () => {
    const asked = waiting
    waiting = new Map()
    for (const [at, all] of asked) runAll(ports, proven, all, at)
  }
  return {
    isProven: (data, { hash }) => proven.has(`${hash} ${data}`),
    simulate: (call, at) =>
      new Promise((resolve, reject) => {
        const asked = { call, calldata: call.calldata, resolve, reject }
        const sameBlock = waiting.get(at)
        // Not caught: what is no ChainError is a bug and has to end the process.
        if (waiting.size === 0) void gathered(turn, countWaiting).then(flush)
        if (sameBlock) sameBlock.push(asked)
        else waiting.set(at, [asked])
      }),
  }
}

type Proven = BoundedCache<string, true>

function runAll(ports: SimulationPorts, proven: Proven, all: readonly Asked[], at: BlockHeader) {
  const rounds = new Set<string>()
  const isRival = new Map(
    all.map((asked) => {
      const { roundKey } = asked.call
      const isSecond = rounds.has(roundKey)
      rounds.add(roundKey)
      return [asked, isSecond] as const
    }),
  )
  const isAlone = (asked: Asked) => isRival.get(asked) === true || ports.isAlone(asked.call)
  for (const group of chunks(all, ports.maxBatch, isAlone))
    void runTogether(ports, proven, group, at)
}

async function runTogether(
  ports: SimulationPorts,
  proven: Proven,
  group: readonly Asked[],
  at: BlockHeader,
) {
  const alone = ({ call, resolve }: Asked) => resolve(runOne(ports, call, at))
  const { chain, contracts, executor } = ports
  const calls = group.map(({ call }) => call)
  if (calls.some(({ walletHasCode }) => walletHasCode)) return group.forEach(alone)
  const data = carrying(calls.map(({ calldata }) => calldata))
  const gas = usualGas(calls.length)
  try {
    await chain.call({ to: contracts.signedProposer, data, from: executor, gas }, at.number)
    proven.set(`${at.hash} ${data}`, true)
    for (const { resolve } of group) resolve(undefined)
  } catch (error) {
    if (error instanceof ChainError && error.kind !== 'unavailable') group.forEach(alone)
    else for (const { reject } of group) reject(error)
  }
}

async function runOne(
  { chain, contracts, executor, offer }: SimulationPorts,
  { calldata, walletHasCode }: ProposalCall,
  at: BlockHeader,
) {
  const offered = walletHasCode ? await offer() : undefined
  const call = { to: contracts.signedProposer, data: calldata, from: executor, ...offered }
  try {
    await chain.call(call, at.number)
    return undefined
  } catch (error) {
    if (error instanceof ChainError && error.kind === 'reverted') return error.data
    throw error
  }
}
