/**
 * Runs of `propose` without sending it, several in one: what is asked for at the same moment is run
 * as the transactions that would carry it, and one by one only where that fails (domain §2.2).
 */
import { gathered } from '../../chain/aggregate.js'
import type { Contracts } from '../../chain/round.js'
import { ChainError, type Hex } from '../../ports.js'
import type { Address } from '../../protocol/schema.js'
import type { HeadReads } from '../validation/head-reads.js'
import type { JudgePorts, ProposalCall } from '../validation/validation.js'
import type { GasBook } from './gas-book.js'
import { chunks, mostGas } from './packing.js'
import { carrying, type FeeOffer, gasLimit } from './transaction.js'

export interface SimulationPorts {
  readonly reads: Pick<HeadReads, 'chain' | 'once'>
  readonly contracts: Contracts
  readonly executor: Address
  readonly gas: GasBook
  /** Proposals in one transaction at most. */
  readonly maxBatch: number
  /** What a transaction offers for gas now; see `offerFor`. */
  offer(): Promise<FeeOffer | undefined>
  /** Resolves when whoever is asking at this moment has asked. */
  turn(): Promise<void>
  /** Those that go in a transaction of their own. */
  isAlone(call: ProposalCall): boolean
}

interface Asked {
  readonly call: ProposalCall
  /** The call's own, for packing. */
  readonly calldata: Hex
  readonly resolve: (outcome: Hex | undefined | Promise<Hex | undefined>) => void
  readonly reject: (error: unknown) => void
}

/** `JudgePorts.simulate`. */
export function createSimulations(ports: SimulationPorts): JudgePorts['simulate'] {
  const { reads, turn } = ports
  const learning = new Map<string, Promise<void>>()
  let waiting = new Map<bigint, Asked[]>()
  const countWaiting = () => [...waiting.values()].reduce((sum, { length }) => sum + length, 0)
  const flush = () => {
    const asked = waiting
    waiting = new Map()
    for (const [at, all] of asked) runAll(ports, learning, all, at)
  }
  return (call, at) =>
    reads.once(
      at,
      // A plain run says nothing of what code does that sees a price.
      `run ${call.walletHasCode} ${call.calldata}`,
      () =>
        new Promise((resolve, reject) => {
          const asked = { call, calldata: call.calldata, resolve, reject }
          const sameBlock = waiting.get(at)
          // Not caught: what is no ChainError is a bug and has to end the process.
          if (waiting.size === 0) void gathered(turn, countWaiting).then(flush)
          if (sameBlock) sameBlock.push(asked)
          else waiting.set(at, [asked])
        }),
    )
}

/** Estimates under way, by kind of proposal. */
type Learning = Map<string, Promise<void>>

function runAll(
  ports: SimulationPorts,
  learning: Learning,
  all: readonly Asked[],
  at: bigint,
): void {
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
    void runTogether(ports, learning, group, at)
}

async function runTogether(
  ports: SimulationPorts,
  learning: Learning,
  group: readonly Asked[],
  at: bigint,
): Promise<void> {
  const alone = ({ call, resolve }: Asked) => resolve(runOne(ports, call, at))
  const { reads, contracts, executor } = ports
  const calls = group.map(({ call }) => call)
  if (calls.some(({ walletHasCode }) => walletHasCode)) return group.forEach(alone)
  const needed = ports.gas.needed(calls)
  const data = carrying(calls.map(({ calldata }) => calldata))
  const gas = needed === undefined ? undefined : gasLimit(needed)
  // More than that is not sent together: only whether they succeed counts.
  const limit = gas === undefined || gas > mostGas ? {} : { gas }
  const run = reads.chain.call({ to: contracts.signedProposer, data, from: executor, ...limit }, at)
  try {
    await Promise.all([run, needed === undefined && learnGas(ports, learning, calls)])
    for (const { resolve } of group) resolve(undefined)
  } catch (error) {
    // Which of them it was, and why, each says for itself.
    if (error instanceof ChainError && error.kind !== 'unavailable') group.forEach(alone)
    else for (const { reject } of group) reject(error)
  }
}

/**
 * Asks for an estimate of the longest of these proposals alone, which covers the others: where its
 * kind is unknown, what carries them would otherwise have to be estimated whole.
 */
function learnGas(
  { reads, contracts, executor, gas }: SimulationPorts,
  learning: Learning,
  calls: readonly ProposalCall[],
): Promise<void> {
  const [longest] = calls.toSorted((one, other) => other.ancillaryBytes - one.ancillaryBytes)
  if (longest === undefined) return Promise.resolve()
  const kind = `${longest.oracle} ${longest.token} ${longest.ancillaryBytes}`
  const known = learning.get(kind)
  if (known !== undefined) return known
  const call = { to: contracts.signedProposer, data: longest.calldata, from: executor }
  const asked = reads.chain
    .estimateGas(call)
    .then(
      (estimate) => gas.learn([longest], estimate),
      (error: unknown) => {
        // Nothing is learned of a proposal that reverts, or of a silent node.
        if (!(error instanceof ChainError)) throw error
      },
    )
    .finally(() => learning.delete(kind))
  learning.set(kind, asked)
  return asked
}

async function runOne(
  { reads, contracts, executor, offer }: SimulationPorts,
  { calldata, walletHasCode }: ProposalCall,
  at: bigint,
): Promise<Hex | undefined> {
  // Code at a wallet sees what is offered for gas.
  const offered = walletHasCode ? await offer() : undefined
  const call = { to: contracts.signedProposer, data: calldata, from: executor, ...offered }
  try {
    await reads.chain.call(call, at)
    return undefined
  } catch (error) {
    if (error instanceof ChainError && error.kind === 'reverted') return error.data
    throw error
  }
}
