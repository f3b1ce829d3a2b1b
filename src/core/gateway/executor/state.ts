/** What the executor knows beside ledger and chain. All of it may be lost in a restart. */
import type { BlockHeader, ChainErrorKind, ChainReceipt, Clock, Hex, Random, Signer } from '#ports'
import { boundedCache } from '#protocol/bounded-cache'
import type { Candidate } from '#protocol/candidate'
import type { ProposerError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import type { Ledger, Slot } from '../ledger/ledger.js'
import type { QuestionChain } from '../validation/contract-reads.js'
import type { Judgement, ProposalCall } from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import type { ChainFacts } from './slot.js'
import { type GasCeilings, gasStandingOf } from './transaction.js'

export interface ExecutorConfig {
  readonly enabled: boolean
  readonly max_fee_gwei: number
  readonly batch: number
  readonly in_flight: number
  readonly max_proposal_gas?: number
  readonly failed_gas_per_wallet?: number
}

export interface Load {
  readonly carried: readonly ProposalCall[]
  readonly data: Hex
  readonly gas: bigint
  readonly isUsual: boolean
}

export interface Resend {
  tries: number
  /** On the monotonic clock (R13). */
  dueAtMs: number
  pending?: { readonly since: bigint; readonly sinceMs: number }
  /** The last one; `since` the head of the first of its kind. */
  refusal?: { readonly kind: ChainErrorKind; readonly since: bigint } | undefined
}

export type Failpoint = (
  name: 'selected' | 'reserved' | 'prepared' | 'sent' | 'confirmed',
) => Promise<void>

export interface ExecutorPorts extends QuestionChain {
  readonly clock: Clock
  readonly random: Random
  readonly signer: Signer
  readonly ledger: Ledger
  readonly config: ExecutorConfig
  readonly ceilings: GasCeilings
  readonly failpoint: Failpoint
  turn(): Promise<void>
  newestHeads(): Heads
  judge(candidate: Candidate, heads: Heads): Promise<Judgement>
  isProven(data: Hex, at: BlockHeader): boolean
  maybeDead(candidate: Candidate): boolean
  noteSpent(candidate: Candidate, at: BlockHeader): void
}

/** What the operator has to see to, by a slot's id or the opening of new ones (/readyz). */
function createFaults() {
  const subjects = new Map<string, Subject>()
  const subjectOf = (about: string) => {
    const subject = subjects.get(about) ?? { noted: new Set() }
    subjects.set(about, subject)
    return subject
  }
  return {
    /** What is noted meanwhile replaces what the look before it noted, unless `work` rejects. */
    async look<T>(about: string, work: () => Promise<T>): Promise<T> {
      const subject = subjectOf(about)
      subject.looking = new Set()
      try {
        const result = await work()
        subject.noted = subject.looking
        return result
      } finally {
        subject.looking = undefined
      }
    },
    note(about: string, sentence: string) {
      const { looking, noted } = subjectOf(about)
      const found = looking ?? noted
      found.add(sentence)
    },
    /** `undefined`: the slot's transaction is taken. */
    refuse(about: string, sentence?: string) {
      subjectOf(about).refused = sentence
    },
    drop: (about: string) => void subjects.delete(about),
    all: (): readonly string[] =>
      [...subjects.values()].flatMap(({ refused, noted }) => [
        ...(refused ? [refused] : []),
        ...noted,
      ]),
  }
}

interface Subject {
  noted: Set<string>
  looking?: Set<string> | undefined
  refused?: string | undefined
}

export type Executor = ReturnType<typeof createExecutor>

const rememberedIsolated = 10_000

export const createExecutor = (ports: ExecutorPorts) => ({
  ports,
  faults: createFaults(),
  resends: new Map<Hex, Resend>(),
  loads: new Map<string, Load>(),
  /** Go alone, for a transaction with several reverted; wallets are in the ledger (domain §2.2). */
  isolated: boundedCache<string, true>(rememberedIsolated),
  /** Of each slot, at the head that is followed; and the candidates that can only revert by it. */
  shown: new Map() as ReadonlyMap<string, ChainFacts>,
  doomed: new Set() as ReadonlySet<string>,
  /** Wallets of which a transaction has reverted and is not closed yet. */
  reverting: new Set() as ReadonlySet<Address>,
  doubts: new Map<string, bigint>(),
  gap: undefined as { readonly nonce: number; readonly since: bigint } | undefined,
  unsigned: undefined as { readonly head: bigint; readonly error: ProposerError } | undefined,
  refusedGas: undefined as { readonly gas: bigint; readonly head: bigint } | undefined,
})

/** One node's word counts once a block after the head that first showed it is final (R27). */
export function isDoubtOver({ doubts }: Executor, about: string, { latest, finalized }: Heads) {
  const since = doubts.get(about) ?? latest.number
  doubts.set(about, since)
  return finalized.number > since
}

export interface SlotLook {
  readonly executor: Executor
  readonly slot: Slot
  readonly alive: readonly Candidate[]
  readonly heads: Heads
  readonly shown: ChainFacts
}

const sendMarginSeconds = 5n

export function isTooLate({ ports }: Executor, { deadline }: Candidate) {
  const { timestamp } = ports.newestHeads().latest
  const wall = BigInt(Math.floor(ports.clock.nowMs() / 1000))
  return (timestamp > wall ? timestamp : wall) + sendMarginSeconds > BigInt(deadline)
}

export const isDoomed = (executor: Executor, candidate: Candidate) =>
  isTooLate(executor, candidate) || executor.doomed.has(candidate.id)

export const standingNow = ({ ports }: Executor, wallet: Address) => {
  const { timestamp } = ports.newestHeads().latest
  return gasStandingOf(ports.ledger, wallet, ports.ceilings, Number(timestamp))
}

export const isSuspect = (executor: Executor, { candidate, walletHasCode }: ProposalCall) =>
  walletHasCode || standingNow(executor, candidate.proposer)?.isAlone === true

/** A revert that is final is in the ledger (domain §2.2). */
export const isIsolated = (executor: Executor, call: ProposalCall) =>
  isSuspect(executor, call) ||
  executor.isolated.has(call.candidate.id) ||
  executor.reverting.has(call.candidate.proposer)

export const isMined = ({ shown }: Executor, { id }: Slot, as: ChainReceipt['status']) =>
  [...(shown.get(id)?.receipts.values() ?? [])].some(({ status }) => status === as)

export const ownSlots = ({ ports }: Executor) =>
  ports.ledger.slots().filter(({ executor }) => executor === ports.signer.address)

/** A round has one slot (R3), whoever its candidate is. */
export function busyRounds(ledger: Pick<Ledger, 'slots' | 'byId'>): ReadonlySet<string> {
  const carried = ledger.slots().flatMap(({ candidateIds }) => candidateIds)
  return new Set(carried.flatMap((id) => ledger.byId(id)?.roundKey ?? []))
}
