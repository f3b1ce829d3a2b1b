/** What the executor knows beside ledger and chain. All of it may be lost in a restart. */

import type { BlockHeader, ChainErrorKind, Clock, Hex, Random, Signer } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import type { Candidate } from '#protocol/candidate'
import type { ProposerError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import type { Ledger, Slot } from '../ledger/ledger.js'
import type { NoncePorts, QuestionChain } from '../validation/contract-reads.js'
import type { Judgement, ProposalCall } from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import type { ChainFacts } from './slot.js'
import {
  type FeeOffer,
  type GasCeilings,
  gasStandingOf,
  type WalletStanding,
} from './transaction.js'

export interface ValidCall extends ProposalCall {
  readonly candidate: Candidate
}

export interface Load {
  readonly carried: readonly ValidCall[]
  readonly data: Hex
  readonly gas: bigint
  readonly isUsual: boolean
}

/** What nodes said to one transaction. */
export interface Resend {
  tries: number
  /** On the monotonic clock (R13). */
  dueAtMs: number
  /** Since it was seen in a pool, and is not mined. */
  pending?: { readonly since: bigint; readonly sinceMs: number } | undefined
  /** The last one, and the head of the first of its kind in a row. */
  refusal?: { readonly kind: ChainErrorKind; readonly since: bigint } | undefined
}

export type Failpoint = (
  name: 'selected' | 'reserved' | 'prepared' | 'sent' | 'confirmed',
) => Promise<void>

export interface ExecutorPorts extends QuestionChain, Pick<NoncePorts, 'noteNonces'> {
  readonly clock: Clock
  readonly random: Random
  readonly signer: Signer
  readonly ledger: Ledger
  readonly maxFeeGwei: number
  readonly ceilings: GasCeilings
  offer(): Promise<FeeOffer | undefined>
  readonly maxBatch: number
  /** A node keeps few pending ones of one account. */
  readonly maxInFlight: number
  turn(): Promise<void>
  /** The head of a step may have a successor by now. */
  newestHeads(): Heads
  readonly failpoint: Failpoint
  judge(candidate: Candidate, heads: Heads): Promise<Judgement>
  /** Whether the usual gas was enough for it at that block. */
  isProven(data: Hex, at: BlockHeader): boolean
  maybeOpen(candidate: Candidate): boolean
  maybeSpent(candidate: Candidate): boolean
}

/**
 * What the operator has to see to, by a slot's id or the opening of new ones; it goes with its
 * subject (contract §2, /readyz).
 */
function createFaults() {
  const noted = new Map<string, Set<string>>()
  const looking = new Map<string, Set<string>>()
  const refused = new Map<string, string>()
  return {
    /**
     * What is noted during a look replaces what the look before it noted; one that rejects changes
     * nothing.
     */
    async look<T>(about: string, work: () => Promise<T>): Promise<T> {
      looking.set(about, new Set())
      try {
        const result = await work()
        const found = looking.get(about)
        if (found) noted.set(about, found)
        return result
      } finally {
        looking.delete(about)
      }
    },
    note(about: string, sentence: string) {
      const found = looking.get(about) ?? noted.get(about) ?? new Set()
      if (!looking.has(about)) noted.set(about, found)
      found.add(sentence)
    },
    /** What a node said to the slot's transaction: it stands until that is taken or gone. */
    refuse: (about: string, sentence: string) => void refused.set(about, sentence),
    taken: (about: string) => void refused.delete(about),
    drop(about: string) {
      for (const sentences of [noted, looking, refused]) sentences.delete(about)
    },
    all: (): readonly string[] => [
      ...refused.values(),
      ...[...noted.values()].flatMap((sentences) => [...sentences]),
    ],
  }
}

export type Executor = ReturnType<typeof createExecutor>

/** Forgetting one costs one more reverted transaction. */
const rememberedIsolated = 10_000

export const createExecutor = (ports: ExecutorPorts) => ({
  ports,
  faults: createFaults(),
  resends: new Map<Hex, Resend>(),
  loads: new Map<string, Load>(),
  /**
   * Go alone, because a transaction with several reverted (domain §2.2); wallets are in the
   * ledger.
   */
  isolated: boundedCache<string, true>(rememberedIsolated),
  /** Of transactions that reverted and are not final; the ledger has them after that. */
  reverting: new Set() as ReadonlySet<Address>,
  /** Mined with success, at the head that is examined. */
  succeeded: new Set() as ReadonlySet<string>,
  doomed: new Set() as ReadonlySet<string>,
  takenSince: new Map<string, bigint>(),
  /** The lowest nonce that nothing uses. */
  gap: undefined as { readonly nonce: number; readonly since: bigint } | undefined,
  unsigned: undefined as { readonly head: bigint; readonly error: ProposerError } | undefined,
  refusedGas: undefined as { readonly gas: bigint; readonly head: bigint } | undefined,
  unknownNoncesSince: undefined as bigint | undefined,
})

export interface SlotLook {
  readonly executor: Executor
  readonly slot: Slot
  readonly alive: readonly Candidate[]
  readonly heads: Heads
  readonly shown: ChainFacts
}

export const mostFilled = 16

/** A permit that ends sooner than this after the head would likely be mined too late. */
const sendMarginSeconds = 5n

export function isTooLate({ ports }: Executor, { deadline }: Candidate, { latest }: Heads) {
  const wall = BigInt(Math.floor(ports.clock.nowMs() / 1000))
  const next = latest.timestamp > wall ? latest.timestamp : wall
  return next + sendMarginSeconds > BigInt(deadline)
}

export function isDoomed(executor: Executor, candidate: Candidate, heads: Heads) {
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

export const ownSlots = ({ ports }: Executor) =>
  ports.ledger.slots().filter(({ executor }) => executor === ports.signer.address)

/** A round has one slot (R3), whoever its candidate is. */
export function busyRounds(ledger: Pick<Ledger, 'slots' | 'byId'>): ReadonlySet<string> {
  const carried = ledger.slots().flatMap(({ candidateIds }) => candidateIds)
  return new Set(carried.flatMap((id) => ledger.byId(id)?.roundKey ?? []))
}
