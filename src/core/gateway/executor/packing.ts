/**
 * Which proposals one transaction carries. `multicall` is atomic, and a revert does not say whose
 * it was: so each is judged alone, those that hold are tried together, and what does not hold
 * together is halved until it does (domain §2.2, §9).
 */
import type { Contracts } from '../../chain/round.js'
import { type Address, type Chain, ChainError, type Hex } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import type { Verdict } from '../pipeline/validation.js'
import { carrying, gasLimit } from './transaction.js'

/** Well below the 128 KiB that a pool takes and the gas that a transaction may have (domain §8). */
const mostCalldataBytes = 96 * 1024
const mostGas = 15_000_000n

/** A candidate with the calldata that was found valid for it. */
export interface Judged {
  readonly candidate: Candidate
  readonly calldata: Hex
  /** Code at the proposer may answer otherwise when it is mined than when it is tried. */
  readonly walletHasCode: boolean
}

/** What one transaction is to carry, in order, and the gas limit it needs. */
export interface Load {
  readonly carried: readonly Judged[]
  readonly data: Hex
  readonly gas: bigint
}

export interface PackingPorts {
  readonly chain: Chain
  readonly contracts: Contracts
  readonly executor: Address
  /** Candidates in one transaction at most. */
  readonly most: number
}

/** Splits by count and calldata, in order; `alone` go by themselves. */
export function chunks(
  judged: readonly Judged[],
  most: number,
  alone: (one: Judged) => boolean,
): readonly (readonly Judged[])[] {
  const groups: Judged[][] = []
  let open: { readonly group: Judged[]; bytes: number } | undefined
  for (const one of judged) {
    if (alone(one)) {
      groups.push([one])
      continue
    }
    const bytes = one.calldata.length / 2 + 96
    if (open === undefined || open.group.length >= most || open.bytes + bytes > mostCalldataBytes) {
      open = { group: [], bytes: 0 }
      groups.push(open.group)
    }
    open.group.push(one)
    open.bytes += bytes
  }
  return groups
}

/** What fits, and why the rest does not. */
export interface Fitting {
  readonly loads: readonly Load[]
  readonly refused: ReadonlyMap<string, Verdict>
}

/**
 * Loads that hold at the head: a group that reverts together or needs too much gas is halved. A
 * single proposal that needs more gas than a transaction should have fails, for its nonce would jam
 * the queue; one that reverts now, though it was judged valid, waits. Rejects with `ChainError`
 * where the node gives no answer.
 */
export async function fitTogether(ports: PackingPorts, group: readonly Judged[]): Promise<Fitting> {
  const [first] = group
  if (first === undefined) return { loads: [], refused: new Map() }
  const data = carrying(group.map(({ calldata }) => calldata))
  const gas = await gasOf(ports, data)
  if (gas !== undefined && gas <= mostGas)
    return { loads: [{ carried: group, data, gas }], refused: new Map() }
  if (group.length === 1)
    return { loads: [], refused: new Map([[first.candidate.id, misfit(gas)]]) }
  const middle = Math.ceil(group.length / 2)
  const [one, other] = [
    await fitTogether(ports, group.slice(0, middle)),
    await fitTogether(ports, group.slice(middle)),
  ]
  return {
    loads: [...one.loads, ...other.loads],
    refused: new Map([...one.refused, ...other.refused]),
  }
}

function misfit(gas: bigint | undefined): Verdict {
  if (gas === undefined)
    return {
      kind: 'wait',
      why: 'The proposal reverts when its gas is estimated, though it runs as a call.',
    }
  const detail = `propose needs ${gas} gas, more than the ${mostGas} that one proposal may have.`
  return { kind: 'failed', code: 'simulation_reverted', detail, retryable: false }
}

/** The gas limit for this calldata; `undefined` where it reverts: estimating runs it. */
async function gasOf(
  { chain, contracts, executor }: PackingPorts,
  data: Hex,
): Promise<bigint | undefined> {
  try {
    return gasLimit(await chain.estimateGas({ to: contracts.signedProposer, data, from: executor }))
  } catch (error) {
    if (error instanceof ChainError && error.kind === 'reverted') return undefined
    throw error
  }
}
