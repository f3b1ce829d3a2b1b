/**
 * `multicall` is atomic, and its revert does not say whose it was: those that are asked for together
 * are run as they would be sent, and one by one where that fails (domain §2.2, §9).
 */
import { gathered } from '#chain/aggregate'
import { unlessRefused } from '#chain/reading'
import { type BlockHeader, ChainError, type Hex } from '#ports'
import { type BoundedCache, boundedCache } from '#protocol/bounded-cache'
import type { Candidate } from '#protocol/candidate'
import { revertOf } from '../validation/contract-reads.js'
import {
  inParts,
  type Judgement,
  type JudgePorts,
  type ProposalCall,
} from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import { newSlots } from './sending.js'
import { type Executor, type ExecutorPorts, isTooLate, type Load } from './state.js'
import { carrying, feesFor, gasLimit, mostGas, smallest, weiOf } from './transaction.js'

/** Of the 128 KiB that a pool takes (domain §8). */
const mostCalldataBytes = 96 * 1024
const refusalHolds = 100n

export type Unsendable = Map<string, Judgement>

export async function judgeAll(
  executor: Executor,
  candidates: readonly Candidate[],
  heads: Heads,
  unsendable: Unsendable,
): Promise<readonly ProposalCall[]> {
  const { judge, turn } = executor.ports
  const calls = await inParts(candidates, turn, async (candidate) => {
    const judgement = await judge(candidate, heads)
    const isLate = judgement.kind === 'valid' && isTooLate(executor, candidate)
    if (judgement.kind === 'valid' && !isLate) return [{ ...judgement.call, candidate }]
    const late = { kind: 'wait', detail: 'too late to send' } as const
    unsendable.set(candidate.id, isLate ? late : judgement)
    return []
  })
  return calls.flat()
}

export function chunks<T extends Pick<ProposalCall, 'calldata'>>(
  calls: readonly T[],
  most: number,
  isAlone: (call: T) => boolean,
): readonly (readonly T[])[] {
  const groups: T[][] = []
  let open: T[] | undefined
  let left = 0
  for (const call of calls) {
    if (isAlone(call)) {
      groups.push([call])
      continue
    }
    const bytes = call.calldata.length / 2 + 96
    if (open === undefined || open.length >= most || bytes > left) {
      open = []
      left = mostCalldataBytes
      groups.push(open)
    }
    open.push(call)
    left -= bytes
  }
  return groups
}

export function halves<T>(group: readonly T[]): readonly (readonly T[])[] {
  const middle = Math.ceil(group.length / 2)
  return [group.slice(0, middle), group.slice(middle)]
}

export async function fitTogether(
  executor: Executor,
  group: readonly ProposalCall[],
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
  const isSingle = group.length === 1
  // A single one may have less than the margin.
  if (estimate !== undefined && (isSingle ? estimate : gasLimit(estimate)) <= most)
    return [{ ...load, gas: smallest(gasLimit(estimate), most) }]
  if (isSingle) {
    unsendable.set(first.candidate.id, misfit(executor, estimate, most))
    return []
  }
  const loads: Load[] = []
  for (const half of halves(group))
    loads.push(...(await fitTogether(executor, half, at, unsendable)))
  return loads
}

/** Some room below the block's, which the next may lower, and below what nodes refused lately. */
function mostGasOf({ refusedGas, ports }: Executor, at: BlockHeader, items: number) {
  const { proposal, failedADay } = ports.ceilings
  const { number, gasLimit: mostOfBlock = mostGas } = at
  const isRefused = refusedGas !== undefined && number - refusedGas.head < refusalHolds
  return smallest(
    mostGas,
    mostOfBlock - mostOfBlock / 64n,
    isRefused ? (refusedGas.gas * 9n) / 10n : mostGas,
    proposal * BigInt(items),
    failedADay,
  )
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
  // Its nonce would jam the queue.
  const detail = `propose needs ${gas} gas, more than the ${proposal} that executor.max_proposal_gas allows one proposal.`
  return { kind: 'failed', code: 'simulation_reverted', detail, retryable: false }
}

/** On Polygon one takes 530,000, each of many less (domain §8); longer texts are estimated. */
const usualGas = (items: number) => 120_000n + 410_000n * BigInt(items)

const isOrdinary = (calls: readonly ProposalCall[]) =>
  !calls.some(({ walletHasCode }) => walletHasCode)

type Trying = Pick<
  ExecutorPorts,
  'chain' | 'contracts' | 'signer' | 'config' | 'ceilings' | 'newestHeads' | 'turn'
>

const transactionOf = ({ contracts, signer }: Trying, data: Hex) => ({
  to: contracts.signedProposer,
  data,
  from: signer.address,
})

async function usualLimit(
  { ports }: Executor,
  calls: readonly ProposalCall[],
  data: Hex,
  at: BlockHeader,
  most: bigint,
) {
  const gas = usualGas(calls.length)
  const limit = gasLimit(gas)
  if (!isOrdinary(calls) || limit > most) return undefined
  if (ports.isProven(data, at)) return limit
  const run = ports.chain.call({ ...transactionOf(ports, data), gas }, at.number)
  return (await unlessRefused(run)) === undefined ? undefined : limit
}

async function estimated({ ports }: Executor, calls: readonly ProposalCall[], data: Hex) {
  try {
    const offered = isOrdinary(calls) ? undefined : await offerOf(ports)
    return await ports.chain.estimateGas({ ...transactionOf(ports, data), ...offered })
  } catch (error) {
    if (error instanceof ChainError && error.kind === 'reverted') return undefined
    throw error
  }
}

/** A wallet's code can see it. None where ceiling or balance allow none. */
async function offerOf({ chain, contracts, signer, config, ceilings, newestHeads }: Trying) {
  const [tipWei, balanceWei] = await Promise.all([chain.tip(), chain.balance(signer.address)])
  const ceilingWei = weiOf(config.max_fee_gwei)
  const head = newestHeads().latest
  const fees = feesFor(contracts.chainId, head, tipWei, ceilingWei, { kind: 'propose' })
  const gas = fees ? smallest(balanceWei / fees.maxFeePerGas, mostGas) : 0n
  return fees && gas >= ceilings.proposal ? { ...fees, gas } : undefined
}

interface Asked extends ProposalCall {
  readonly at: BlockHeader
  readonly resolve: (outcome: Hex | undefined | Promise<Hex | undefined>) => void
  readonly reject: (error: unknown) => void
}

/** Of calldata of runs that succeeded (R17). */
const keptCharacters = 32 * 1024 * 1024

export function createSimulations(
  ports: Trying,
  isIsolated: (call: ProposalCall) => boolean,
): Pick<JudgePorts, 'simulate'> & Pick<ExecutorPorts, 'isProven'> {
  const proven: Proven = boundedCache(keptCharacters, undefined, ({ length }) => length)
  let waiting: Asked[] = []
  const flush = () => {
    const asked = waiting
    waiting = []
    for (const at of new Set(asked.map((one) => one.at))) {
      const all = asked.filter((one) => one.at === at)
      const firsts = new Map(all.toReversed().map((one) => [one.candidate.round.key, one]))
      const isAlone = (one: Asked) => firsts.get(one.candidate.round.key) !== one || isIsolated(one)
      for (const group of chunks(all, ports.config.batch, isAlone))
        void runTogether(ports, proven, group, at)
    }
  }
  return {
    isProven: (data, { hash }) => proven.has(`${hash} ${data}`),
    simulate: (call, at) =>
      new Promise((resolve, reject) => {
        waiting.push({ ...call, at, resolve, reject })
        // Not caught: what is no ChainError is a bug and has to end the process.
        if (waiting.length === 1) void gathered(ports.turn, () => waiting.length).then(flush)
      }),
  }
}

type Proven = BoundedCache<string, true>

async function runTogether(
  ports: Trying,
  proven: Proven,
  group: readonly Asked[],
  at: BlockHeader,
) {
  const alone = (asked: Asked) => asked.resolve(runOne(ports, asked))
  if (!isOrdinary(group)) return group.forEach(alone)
  const data = carrying(group.map(({ calldata }) => calldata))
  const gas = usualGas(group.length)
  try {
    await ports.chain.call({ ...transactionOf(ports, data), gas }, at.number)
    proven.set(`${at.hash} ${data}`, true)
    for (const { resolve } of group) resolve(undefined)
  } catch (error) {
    if (error instanceof ChainError && error.kind !== 'unavailable') group.forEach(alone)
    else for (const { reject } of group) reject(error)
  }
}

async function runOne(ports: Trying, { calldata, walletHasCode, at }: Asked) {
  const offered = walletHasCode ? await offerOf(ports) : undefined
  return revertOf(ports.chain, { ...transactionOf(ports, calldata), ...offered }, at.number)
}
