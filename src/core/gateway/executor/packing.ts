/**
 * `multicall` is atomic, and its revert does not say whose it was: each is judged alone, those that
 * hold are tried together, and halved until they hold (domain §2.2, §9). What is asked for at the
 * same moment is run as the transactions that would carry it, and one by one only where that fails.
 */
import { gathered } from '#chain/aggregate'
import { unlessRefused } from '#chain/reading'
import type { Contracts } from '#chain/round'
import { type BlockHeader, type Chain, ChainError, type Hex } from '#ports'
import { type BoundedCache, boundedCache } from '#protocol/bounded-cache'
import type { Candidate } from '#protocol/candidate'
import type { Address } from '#protocol/schema'
import {
  inParts,
  type Judgement,
  type JudgePorts,
  judgedAtOnce,
  type ProposalCall,
} from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import { newSlots } from './sending.js'
import { type Executor, type ExecutorPorts, isTooLate, type Load, type ValidCall } from './state.js'
import { carrying, type FeeOffer, gasLimit, mostGas } from './transaction.js'

/** Well below the 128 KiB that a pool takes (domain §8). */
const mostCalldataBytes = 96 * 1024
/** Blocks for which a refused gas limit is not tried again. */
const refusalHolds = 100n

export type Unsendable = Map<string, Judgement>

/** What is not valid goes to `unsendable`. */
export async function judgeAll(
  executor: Executor,
  candidates: readonly Candidate[],
  heads: Heads,
  unsendable: Unsendable,
): Promise<readonly ValidCall[]> {
  const { judge, turn } = executor.ports
  const judgements = new Map<Candidate, Judgement>()
  await inParts(candidates, judgedAtOnce, turn, async (candidate) =>
    judgements.set(candidate, await judge(candidate, heads)),
  )
  return candidates.flatMap((candidate) => {
    const judgement = judgements.get(candidate)
    if (judgement?.kind === 'valid' && !isTooLate(executor, candidate, heads))
      return [{ candidate, ...judgement.call }]
    const late = { kind: 'wait', detail: 'too late to send' } as const
    if (judgement) unsendable.set(candidate.id, judgement.kind === 'valid' ? late : judgement)
    return []
  })
}

export function chunks<T extends Pick<ProposalCall, 'calldata'>>(
  calls: readonly T[],
  most: number,
  isAlone: (call: T) => boolean,
): readonly (readonly T[])[] {
  const groups: T[][] = []
  let open: { readonly group: T[]; bytes: number } | undefined
  for (const call of calls) {
    if (isAlone(call)) {
      groups.push([call])
      continue
    }
    const bytes = call.calldata.length / 2 + 96
    if (open === undefined || open.group.length >= most || open.bytes + bytes > mostCalldataBytes) {
      open = { group: [], bytes: 0 }
      groups.push(open.group)
    }
    open.group.push(call)
    open.bytes += bytes
  }
  return groups
}

export function halves<T>(group: readonly T[]): readonly (readonly T[])[] {
  const middle = Math.ceil(group.length / 2)
  return [group.slice(0, middle), group.slice(middle)]
}

/**
 * A group that reverts together or needs too much gas is halved. A single proposal may have less
 * than the margin. One that needs more than a transaction should have fails, for its nonce would
 * jam the queue; one that reverts now, or has no room now, waits. `mayGuess` false: by the node's
 * estimate.
 */
export async function fitTogether(
  executor: Executor,
  group: readonly ValidCall[],
  at: BlockHeader,
  unsendable: Unsendable,
  mayGuess = true,
): Promise<readonly Load[]> {
  const [first] = group
  if (first === undefined) return []
  const data = carrying(group.map(({ calldata }) => calldata))
  const most = mostGasOf(executor, at, group.length)
  const usual = mayGuess ? await usualLimit(executor, group, data, at, most) : undefined
  const load = { carried: group, data, isUsual: usual !== undefined }
  if (usual !== undefined) return [{ ...load, gas: usual }]
  const estimate = await estimated(executor, group, data)
  if (estimate !== undefined && gasLimit(estimate) <= most)
    return [{ ...load, gas: gasLimit(estimate) }]
  if (group.length === 1) {
    if (estimate !== undefined && estimate <= most) return [{ ...load, gas: most }]
    unsendable.set(first.candidate.id, misfit(executor, estimate, most))
    return []
  }
  const loads: Load[] = []
  for (const half of halves(group))
    loads.push(...(await fitTogether(executor, half, at, unsendable, mayGuess)))
  return loads
}

/**
 * Some room below the block's, which the next may lower, and a tenth below what nodes refused
 * lately.
 */
function mostGasOf(
  { refusedGas, ports }: Executor,
  { number, gasLimit = mostGas }: BlockHeader,
  items: number,
) {
  const { proposal, failedADay } = ports.ceilings
  const isRefused = refusedGas !== undefined && number - refusedGas.head < refusalHolds
  const limits = [
    mostGas,
    gasLimit - gasLimit / 64n,
    isRefused ? (refusedGas.gas * 9n) / 10n : mostGas,
    proposal * BigInt(items),
    failedADay,
  ]
  return limits.reduce((one, other) => (one < other ? one : other))
}

function misfit({ faults, ports }: Executor, gas: bigint | undefined, most: bigint): Judgement {
  if (gas === undefined) {
    const detail = 'The proposal reverts during gas estimation, although the same call succeeds.'
    return { kind: 'wait', detail }
  }
  const { proposal } = ports.ceilings
  if (gas <= mostGas && gas <= proposal) {
    const detail = `propose needs ${gas} gas, more than the ${most} that nodes take now.`
    faults.note(newSlots, detail)
    return { kind: 'wait', detail }
  }
  const detail = `propose needs ${gas} gas, more than the ${proposal} that executor.max_proposal_gas allows one proposal.`
  return { kind: 'failed', code: 'simulation_reverted', detail, retryable: false }
}

/**
 * On Polygon one takes 530,000, each of many less (domain §8). Proven by a run; longer texts are
 * estimated.
 */
const usualGas = (items: number) => 120_000n + 410_000n * BigInt(items)

/** Code at a wallet may need any amount of gas. */
const isOrdinary = (calls: readonly ProposalCall[]) =>
  !calls.some(({ walletHasCode }) => walletHasCode)

const transactionOf = ({ ports }: Executor, data: Hex) => ({
  to: ports.contracts.signedProposer,
  data,
  from: ports.signer.address,
})

async function usualLimit(
  executor: Executor,
  calls: readonly ValidCall[],
  data: Hex,
  at: BlockHeader,
  most: bigint,
) {
  const gas = usualGas(calls.length)
  const limit = gasLimit(gas)
  if (!isOrdinary(calls) || limit > most) return undefined
  const { chain, isProven } = executor.ports
  if (isProven(data, at)) return limit
  const run = chain.call({ ...transactionOf(executor, data), gas }, at.number)
  return (await unlessRefused(run)) === undefined ? undefined : limit
}

async function estimated(executor: Executor, calls: readonly ValidCall[], data: Hex) {
  const { chain, offer } = executor.ports
  try {
    const offered = isOrdinary(calls) ? undefined : await offer()
    return await chain.estimateGas({ ...transactionOf(executor, data), ...offered })
  } catch (error) {
    if (error instanceof ChainError && error.kind === 'reverted') return undefined
    throw error
  }
}

interface SimulationPorts {
  readonly chain: Chain
  readonly contracts: Contracts
  readonly executor: Address
  readonly maxBatch: number
  offer(): Promise<FeeOffer | undefined>
  turn(): Promise<void>
  isAlone(call: ProposalCall): boolean
}

interface Asked extends ProposalCall {
  readonly resolve: (outcome: Hex | undefined | Promise<Hex | undefined>) => void
  readonly reject: (error: unknown) => void
}

/** Of calldata of runs that succeeded (R17). */
const keptCharacters = 32 * 1024 * 1024

export function createSimulations(
  ports: SimulationPorts,
): Pick<JudgePorts, 'simulate'> & Pick<ExecutorPorts, 'isProven'> {
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
        const asked = { ...call, resolve, reject }
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
      const isSecond = rounds.has(asked.roundKey)
      rounds.add(asked.roundKey)
      return [asked, isSecond] as const
    }),
  )
  const isAlone = (asked: Asked) => isRival.get(asked) === true || ports.isAlone(asked)
  for (const group of chunks(all, ports.maxBatch, isAlone))
    void runTogether(ports, proven, group, at)
}

async function runTogether(
  ports: SimulationPorts,
  proven: Proven,
  group: readonly Asked[],
  at: BlockHeader,
) {
  const alone = (asked: Asked) => asked.resolve(runOne(ports, asked, at))
  const { chain, contracts, executor } = ports
  if (!isOrdinary(group)) return group.forEach(alone)
  const data = carrying(group.map(({ calldata }) => calldata))
  const gas = usualGas(group.length)
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
