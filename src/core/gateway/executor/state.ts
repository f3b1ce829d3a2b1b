/** What the executor knows beside ledger and chain. All of it may be lost in a restart. */

import type { Clock, Hex, Random, Signer } from '../../ports.js'
import { boundedCache } from '../../protocol/bounded-cache.js'
import type { Candidate } from '../../protocol/candidate.js'
import type { ProposerError } from '../../protocol/errors.js'
import type { Address } from '../../protocol/schema.js'
import type { Ledger, Slot } from '../ledger/ledger.js'
import type { QuestionChain } from '../validation/contract-reads.js'
import type { Judgement } from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import { createFaults } from './faults.js'
import type { Load } from './packing.js'
import type { Resend } from './resending.js'
import type { ChainFacts } from './slot.js'
import type { FeeOffer } from './transaction.js'
import { type GasCeilings, gasStandingOf, type WalletStanding } from './wallet-gas.js'

/** Called by name after each durable step, for crash tests (R23). */
export type Failpoint = (
  name: 'selected' | 'reserved' | 'prepared' | 'sent' | 'confirmed',
) => Promise<void>

export interface ExecutorPorts extends QuestionChain {
  /** The same without memory, for what ends a candidate. */
  readonly afresh: QuestionChain
  readonly clock: Clock
  readonly random: Random
  readonly signer: Signer
  readonly ledger: Ledger
  readonly maxFeeGwei: number
  readonly ceilings: GasCeilings
  offer(): Promise<FeeOffer | undefined>
  readonly maxBatch: number
  /** Transactions that are not mined, at most: a node keeps few pending ones of one account. */
  readonly maxInFlight: number
  turn(): Promise<void>
  /** The newest heads that were followed: the head of a step may have a successor by now. */
  newestHeads(): Heads
  readonly failpoint: Failpoint
  judge(candidate: Candidate, heads: Heads): Promise<Judgement>
  /** False where the candidate's round may be taken or over, as far as memory tells. */
  maybeOpen(candidate: Candidate): boolean
  /** Whether its permit nonce was once seen spent; a reorganisation may have undone that. */
  maybeSpent(candidate: Candidate): boolean
}

export type Executor = ReturnType<typeof createExecutor>

/** Isolated candidates; forgetting one costs one more reverted transaction. */
const rememberedIsolated = 10_000

export const createExecutor = (ports: ExecutorPorts) => ({
  ports,
  faults: createFaults(),
  /** By hashes of transactions. */
  resends: new Map<Hex, Resend>(),
  /** What a slot's first transaction is to carry. */
  loads: new Map<string, Load>(),
  /**
   * Candidates that go in a transaction of their own, because one with several proposals reverted
   * (domain §2.2); wallets that do are in the ledger.
   */
  isolated: boundedCache<string, true>(rememberedIsolated),
  /** Wallets of transactions that reverted and are not final; the ledger has them after that. */
  reverting: new Set() as ReadonlySet<Address>,
  /** Open slots whose transaction is mined and succeeded, at the head that is examined. */
  succeeded: new Set() as ReadonlySet<string>,
  doomed: new Set() as ReadonlySet<string>,
  takenSince: new Map<string, bigint>(),
  /** The lowest nonce that nothing uses, and the head at which it was first seen. */
  gap: undefined as { readonly nonce: number; readonly since: bigint } | undefined,
  /** The head at which the signer last gave no signature, and why; gone once it signs. */
  unsigned: undefined as { readonly head: bigint; readonly error: ProposerError } | undefined,
  /** The gas limit that nodes refused as too high, and the head at which they did. */
  refusedGas: undefined as { readonly gas: bigint; readonly head: bigint } | undefined,
  /** Head at which the count first held nonces that neither final state nor the ledger knows. */
  unknownNoncesSince: undefined as bigint | undefined,
})

export interface SlotLook {
  readonly executor: Executor
  readonly slot: Slot
  /** The slot's candidates that no operator has rejected. */
  readonly alive: readonly Candidate[]
  readonly heads: Heads
  readonly shown: ChainFacts
}

export const mostFilled = 16

/** A permit that ends sooner than this after the head would likely be mined too late. */
const sendMarginSeconds = 5n

/** Whether a permit ends too soon. The next block's time is at least the head's and the clock's. */
export function isTooLate(
  { ports }: Executor,
  { deadline }: Candidate,
  { latest }: Heads,
): boolean {
  const wall = BigInt(Math.floor(ports.clock.nowMs() / 1000))
  const next = latest.timestamp > wall ? latest.timestamp : wall
  return next + sendMarginSeconds > BigInt(deadline)
}

export function isDoomed(executor: Executor, candidate: Candidate, heads: Heads): boolean {
  return isTooLate(executor, candidate, heads) || executor.doomed.has(candidate.id)
}

export function lookAtSlot(
  executor: Executor,
  slotId: string,
  heads: Heads,
  shown: ChainFacts,
): SlotLook | undefined {
  const { ledger } = executor.ports
  const slot = ledger.slots().find(({ id }) => id === slotId)
  if (slot === undefined) return undefined
  const alive = ledger.active().filter(({ id }) => slot.candidateIds.includes(id))
  return { executor, slot, alive, heads, shown }
}

export function gasStandingIn({ ports }: Executor, wallet: Address): WalletStanding | undefined {
  const recorded = ports.ledger.failures.get(wallet)
  if (recorded === undefined) return undefined
  const { latest } = ports.newestHeads()
  return gasStandingOf(wallet, recorded, ports.ceilings, Number(latest.timestamp))
}

/** Keys of the rounds with an open slot, whoever its candidate is: a round has one slot (R3). */
export function busyRounds(ledger: Pick<Ledger, 'slots' | 'byId'>): ReadonlySet<string> {
  const carried = ledger.slots().flatMap(({ candidateIds }) => candidateIds)
  return new Set(carried.flatMap((id) => ledger.byId(id)?.roundKey ?? []))
}
