/** What the executor knows beside ledger and chain, all of which a restart may lose; fees and gas. */
import { defaultFailedGas, defaultProposalGas } from '#chain/profiles'
import { minimumTipWei } from '#chain/transaction'
import { wrapChain } from '#chain/wrap'
import {
  type BlockHeader,
  type Chain,
  ChainError,
  type ChainErrorKind,
  type ChainReceipt,
  type Clock,
  type Hex,
  type Random,
  type Signer,
} from '#ports'
import { type BoundedCache, boundedCache } from '#protocol/bounded-cache'
import { type Candidate, instant, type Progress } from '#protocol/candidate'
import type { ProposerError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import type { Ledger, LedgerFacts, Slot, WalletFailure } from '../ledger/ledger.js'
import type { Judgement, ProposalCall, QuestionChain } from '../validation/validation.js'
import type { Heads } from '../view/state.js'

export interface ChainFacts {
  readonly nonceLatest: number
  readonly nonceFinalized: number
  readonly receipts: ReadonlyMap<Hex, ChainReceipt>
  readonly held: ReadonlySet<Hex>
  /** Which of its candidates can only revert by the head. */
  readonly doomed: ReadonlySet<string>
  /** Whose proposals went down with it. */
  readonly reverting: ReadonlySet<Address>
  readonly maySend: boolean
}

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

interface Resend {
  readonly hash: Hex
  tries: number
  /** On the monotonic clock (R13). */
  dueAtMs: number
  pending?: { readonly since: bigint; readonly sinceMs: number } | undefined
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
  readonly proven: BoundedCache<string, true>
  maybeDead(candidate: Candidate): boolean
  noteSpent(candidate: Candidate, at: BlockHeader): void
}

export type RunPorts = Omit<ExecutorPorts, 'judge' | 'maybeDead'>

export interface SlotMemory {
  /** What the operator has to see to (/readyz); `refused`: until the slot's transaction is taken. */
  noted: Set<string>
  looking?: Set<string> | undefined
  refused?: string | undefined
  shown?: ChainFacts
  load?: Load | undefined
  doubt?: { readonly nonce: number; readonly since: bigint } | undefined
  resend?: Resend
}

export interface CandidateMemory {
  /** Goes alone, for a transaction with several reverted; wallets are in the ledger (domain §2.2). */
  isAlone?: boolean
  wait?: {
    readonly at: BlockHeader
    readonly why: string
    readonly quietBlocks: bigint
    readonly quietUntil: bigint
  }
  silentAt?: Hex
  /** The head that first did not let it go on: one look is not enough to lose a place (R27). */
  held?: { readonly progress: Progress; readonly at: Hex }
  /** Begun when it came, or came again: by none of them it fails. */
  looksBefore?: number
  /** A head gives the same answer again, as long as the same ones claim of the wallet. */
  valid?: { readonly at: string; readonly judgement: Judgement } | undefined
  /** In which final block its permit nonce is spent, or its round is open. */
  spentAt?: Hex
  openAt?: Hex
  readonly turns: Partial<
    Record<'received' | 'retried' | 'swept' | 'ended', { place: number; mark?: string }>
  >
}

export type Candidates = Map<string, CandidateMemory>

function recordIn<T>(records: Map<string, T>, id: string, fresh: T): T {
  const record = records.get(id) ?? fresh
  records.set(id, record)
  return record
}

export const candidateMemory = (candidates: Candidates, id: string) =>
  recordIn(candidates, id, { turns: {} })

export type Executor = ReturnType<typeof createExecutor>

export const createExecutor = (ports: ExecutorPorts, candidates: Candidates = new Map()) => ({
  ports,
  candidates,
  /** By id; `newSlots` and `missing` are subjects of the same kind. */
  slots: new Map<string, SlotMemory>(),
  /** What the key did not sign and the nodes did not take, each as of a head. */
  refused: {
    key: undefined as { readonly head: bigint; readonly error: ProposerError } | undefined,
    gas: undefined as { readonly limit: bigint; readonly head: bigint } | undefined,
  },
})

export const newSlots = 'opening'
export const missing = 'missing'

export const slotMemory = ({ slots }: Executor, id: string) =>
  recordIn<SlotMemory>(slots, id, { noted: new Set() })

/** What is noted meanwhile replaces what the look before it noted, unless `work` rejects. */
export async function whileLooking<T>(memory: SlotMemory, work: () => Promise<T>) {
  const looking = new Set<string>()
  memory.looking = looking
  try {
    const result = await work()
    memory.noted = looking
    return result
  } finally {
    memory.looking = undefined
  }
}

export function noteFault({ looking, noted }: SlotMemory, sentence: string | undefined) {
  if (sentence !== undefined) (looking ?? noted).add(sentence)
}

/** From which head on it is doubted that nonces up to `nonce` are used, or are not. */
export function doubtedSince(memory: SlotMemory, nonce: number, { latest }: Heads) {
  const { doubt } = memory
  const since = doubt && nonce >= doubt.nonce ? doubt.since : latest.number
  memory.doubt = { nonce, since }
  return since
}

/** One node's word counts once a block after the head that first showed it is final (R27). */
export const isDoubtOver = (memory: SlotMemory, nonce: number, heads: Heads) =>
  heads.finalized.number > doubtedSince(memory, nonce, heads)

export interface SlotLook {
  readonly executor: Executor
  readonly slot: Slot
  readonly alive: readonly Candidate[]
  readonly heads: Heads
  readonly shown: ChainFacts
  readonly memory: SlotMemory
}

const sendMarginSeconds = 5n

export function isTooLate({ ports }: Executor, { deadline }: Candidate) {
  const { timestamp } = ports.newestHeads().latest
  const wall = BigInt(Math.floor(ports.clock.nowMs() / 1000))
  return (timestamp > wall ? timestamp : wall) + sendMarginSeconds > BigInt(deadline)
}

export const isDoomed = ({ executor, shown }: SlotLook, candidate: Candidate) =>
  isTooLate(executor, candidate) || shown.doomed.has(candidate.id)

export const standingNow = ({ ports }: Executor, wallet: Address) => {
  const { timestamp } = ports.newestHeads().latest
  return gasStandingOf(ports.ledger, wallet, ports.ceilings, Number(timestamp))
}

export const isSuspect = (executor: Executor, { candidate, walletHasCode }: ProposalCall) =>
  walletHasCode || standingNow(executor, candidate.proposer)?.isAlone === true

/** A revert counts before it is final, and is in the ledger then (domain §2.2). */
export const isIsolated = (executor: Executor, call: ProposalCall) =>
  isSuspect(executor, call) ||
  executor.candidates.get(call.candidate.id)?.isAlone === true ||
  [...executor.slots.values()].some(({ shown }) => shown?.reverting.has(call.candidate.proposer))

export const ownSlots = ({ ports }: Executor) =>
  ports.ledger.slots().filter(({ executor }) => executor === ports.signer.address)

/** A round has one slot (R3), whoever its candidate is. */
export function busyRounds(ledger: Pick<Ledger, 'slots' | 'byId'>): ReadonlySet<string> {
  const carried = ledger.slots().flatMap(({ candidateIds }) => candidateIds)
  return new Set(carried.flatMap((id) => ledger.byId(id)?.roundKey ?? []))
}

export function sideBySide<T>() {
  const begun: Promise<readonly PromiseSettledResult<T>[]>[] = []
  return {
    add(work: Promise<T>) {
      begun.push(Promise.allSettled([work]))
    },
    /** When all has ended. Rejects with its first failure, a bug before those of the chain. */
    async ended(): Promise<readonly T[]> {
      const results = (await Promise.all(begun)).flat()
      const failures = results.filter((one) => one.status === 'rejected')
      const first = failures.find(({ reason }) => !(reason instanceof ChainError)) ?? failures[0]
      if (first) throw first.reason
      return results.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
    },
  }
}

/** A judgement takes a millisecond: others have their turn in between. */
const begunAtOnce = 4

export async function inParts<T, R>(
  all: readonly T[],
  turn: () => Promise<void>,
  work: (one: T) => Promise<R>,
): Promise<readonly R[]> {
  const begun = sideBySide<R>()
  for (const [at, one] of all.entries()) {
    if (at > 0 && at % begunAtOnce === 0) await turn()
    begun.add(work(one))
  }
  return begun.ended()
}

const keptMs = 4_000
/** Of hashes of blocks with calldata of runs that succeeded (R17). */
const keptCharacters = 32 * 1024 * 1024

const freshHead = (of: string, nowMs: number) => ({
  of,
  sinceMs: nowMs,
  answers: new Map<string, unknown>(),
})

/**
 * What does not change within a head is asked once in `keptMs`; what fails or ends a candidate each
 * time: a node is not its own witness (R27).
 */
export function createHead(chain: Chain, clock: Clock) {
  const head = {
    ...freshHead('', clock.monotonicMs()),
    /** The view's look that showed it. */
    look: 0,
    /** What stops all, and how the node contradicts itself, until the next block. */
    halted: undefined as string | undefined,
    contradiction: undefined as string | undefined,
    proven: boundedCache<string, true>(keptCharacters, undefined, ({ length }) => length),
  }
  const once = <T>(key: string, ask: () => Promise<T>): Promise<T> => {
    const nowMs = clock.monotonicMs()
    if (nowMs - head.sinceMs >= keptMs) Object.assign(head, { sinceMs: nowMs, answers: new Map() })
    const { answers } = head
    const known = answers.get(key) as Promise<T> | undefined
    if (known) return known
    const answer = ask()
    answers.set(key, answer)
    answer.catch(() => answers.delete(key))
    return answer
  }
  return {
    head,
    once,
    follow({ latest, finalized }: Heads) {
      const newest = `${latest.hash} ${finalized.hash}`
      if (head.of === newest) return
      if (!head.of.startsWith(latest.hash)) head.halted = head.contradiction = undefined
      Object.assign(head, freshHead(newest, clock.monotonicMs()))
    },
    chain: wrapChain(chain, ({ method, args }, ask) => {
      const isKept =
        method === 'tip' ||
        method === 'balance' ||
        (method === 'transactionCount' && args[1] !== 'pending') ||
        (method === 'code' && typeof args[1] === 'bigint') ||
        (method === 'block' && typeof args[0] === 'bigint')
      return isKept ? once(`${method} ${args.join(' ')}`, ask) : ask()
    }),
  }
}

/** How many a step, and how many of them that never had a turn. */
const queues: Readonly<Record<keyof CandidateMemory['turns'], readonly [number, number]>> = {
  received: [200, 150],
  retried: [64, 0],
  swept: [64, 0],
  ended: [32, 0],
}
/** Who waited longest comes first. `hasMore`: some have not had their turn at `mark`. */
export function takeTurn(
  { candidates: memories }: { readonly candidates: Candidates },
  name: keyof typeof queues,
  waiting: readonly Candidate[],
  mark: string,
  [most, fresh] = queues[name],
) {
  const known = waiting.map(({ id }) => candidateMemory(memories, id).turns)
  const last = known.reduce((place, turns) => Math.max(place, turns[name]?.place ?? 0), 0)
  const rows = waiting.map((candidate) => {
    const { turns } = candidateMemory(memories, candidate.id)
    const row = turns[name] ?? { place: last + 1 }
    turns[name] = row
    return { candidate, row }
  })
  const first = new Set(rows.filter(({ row }) => row.mark === undefined).slice(0, fresh))
  const others = rows
    .filter((one) => !first.has(one))
    .toSorted((one, other) => one.row.place - other.row.place)
  const chosen = [...first, ...others.slice(0, most - first.size)]
  for (const { row } of chosen) Object.assign(row, { place: last + 2, mark })
  return {
    turn: bySequence(chosen.map(({ candidate }) => candidate)),
    hasMore: rows.some(({ row }) => row.mark !== mark),
  }
}

export const bySequence = (candidates: readonly Candidate[]) =>
  candidates.toSorted((one, other) => one.sequence - other.sequence)

/** Where the chain has EIP-7825, and below what a block may have (domain §8). */
export const mostGas = 2n ** 24n

export interface Fees {
  readonly maxFeePerGas: bigint
  readonly maxPriorityFeePerGas: bigint
}

type FeeKind = 'propose' | 'cancel'

/**
 * The cap is twice the base fee and the tip. `replacing`: both at least 12.5 % above (robustness
 * §3). `undefined`: the ceiling does not cover the next block, for which a cancellation need not pay.
 */
export function feesFor(
  chainId: number,
  { baseFeePerGas }: Pick<BlockHeader, 'baseFeePerGas'>,
  nodeTipWei: bigint,
  ceilingWei: bigint,
  {
    kind,
    replacing,
  }: { kind: FeeKind; replacing?: Record<keyof Fees, bigint | string> | undefined },
): Fees | undefined {
  const mostWei = mostFor(kind, ceilingWei)
  const least = minimumTipWei[chainId] ?? 0n
  const leastCap = raised(replacing?.maxFeePerGas)
  const tip = largest(smallest(nodeTipWei, mostWei), least, raised(replacing?.maxPriorityFeePerGas))
  const cap = smallest(largest(2n * baseFeePerGas + tip, leastCap), mostWei)
  if (cap < leastCap || cap < tip || (kind === 'propose' && cap < baseFeePerGas + tip))
    return undefined
  return { maxFeePerGas: cap, maxPriorityFeePerGas: tip }
}

export async function feesNow(
  { chain, contracts, config, newestHeads }: RunPorts,
  kind: FeeKind,
  replacing?: Record<keyof Fees, string>,
) {
  const [tipWei, ceilingWei] = [await chain.tip(), weiOf(config.max_fee_gwei)]
  const { latest } = newestHeads()
  return feesFor(contracts.chainId, latest, tipWei, ceilingWei, { kind, replacing })
}

export const weiOf = (gwei: number) => BigInt(Math.floor(gwei * 1e9))

export const canRaise = (maxFeePerGas: string, kind: FeeKind, ceilingWei: bigint) =>
  raised(maxFeePerGas) <= mostFor(kind, ceilingWei)

/** A proposal stays an eighth below the ceiling: its cancellation can always replace it. */
const mostFor = (kind: FeeKind, ceilingWei: bigint) =>
  kind === 'propose' ? (ceilingWei * 8n) / 9n : ceilingWei
const raised = (wei: bigint | string = 0n) => (BigInt(wei) * 9n + 7n) / 8n

export const smallest = (...values: readonly bigint[]) =>
  values.reduce((one: bigint, other: bigint) => (one < other ? one : other))
export const largest = (...values: readonly bigint[]) =>
  values.reduce((one: bigint, other: bigint) => (one > other ? one : other))

type GasCeilings = ReturnType<typeof gasCeilingsOf>

export const gasCeilingsOf = ({
  executor: { max_proposal_gas, failed_gas_per_wallet },
}: {
  readonly executor: Pick<ExecutorConfig, 'max_proposal_gas' | 'failed_gas_per_wallet'>
}) => ({
  proposal: BigInt(max_proposal_gas ?? defaultProposalGas),
  failedADay: BigInt(failed_gas_per_wallet ?? defaultFailedGas),
})

const failureWindowSeconds = 86_400
/** So many of its own, and it is stopped for the window; from the second on it waits, doubling. */
const mostFailures = 6
const firstWaitSeconds = 60

type Recorded = Pick<LedgerFacts, 'failures'>

function gasStandingOf(
  { failures: recorded }: Recorded,
  wallet: Address,
  ceilings: GasCeilings,
  nowSeconds: number,
) {
  const failures = (recorded.get(wallet) ?? []).filter(
    ({ atSeconds }) => nowSeconds - atSeconds < failureWindowSeconds,
  )
  if (failures.length === 0) return undefined
  const own = failures.filter(({ kind }) => kind === 'own')
  const standing = {
    wallet,
    failures: own.length,
    failedGas: failures.reduce((sum, { gasUsed }) => sum + BigInt(gasUsed), 0n),
    isAlone: failures.some(({ kind }) => kind !== 'cancelled'),
  }
  const stoppedUntil = Math.max(
    freeAgain(failures, ({ gasUsed }) => BigInt(gasUsed), ceilings.failedADay - ceilings.proposal),
    freeAgain(own, () => 1n, BigInt(mostFailures - 1)),
  )
  const last = Math.max(0, ...own.map(({ atSeconds }) => atSeconds))
  const waitsUntil = own.length > 1 ? last + firstWaitSeconds * 2 ** (own.length - 2) : 0
  const state = stoppedUntil > nowSeconds ? 'stopped' : waitsUntil > nowSeconds ? 'waits' : 'sends'
  const untilSeconds = { stopped: stoppedUntil, waits: waitsUntil, sends: 0 }[state]
  return { ...standing, state, untilSeconds } as const
}

/** When so many have left the window that the others weigh `most` at most. */
function freeAgain(
  failures: readonly WalletFailure[],
  weigh: (failure: WalletFailure) => bigint,
  most: bigint,
) {
  let kept = 0n
  for (const failure of failures.toSorted((one, other) => other.atSeconds - one.atSeconds)) {
    kept += weigh(failure)
    if (kept > most) return failure.atSeconds + failureWindowSeconds
  }
  return 0
}

export function heldBack(
  { proposer, progress }: Pick<Candidate, 'proposer' | 'progress'>,
  recorded: Recorded,
  ceilings: GasCeilings,
  { latest }: Heads,
) {
  const standing = gasStandingOf(recorded, proposer, ceilings, Number(latest.timestamp))
  if (progress.status === 'received' || !standing || standing.state === 'sends') return undefined
  const { failures, failedGas, state, untilSeconds } = standing
  const found = `${failures} of this wallet's proposals failed on chain in 24 hours, and ${failedGas} gas was used for nothing, of ${ceilings.failedADay} that executor.failed_gas_per_wallet allows`
  const until = instant(untilSeconds * 1000)
  return `${found}: it ${state === 'waits' ? 'waits' : 'is stopped'} until ${until}, or until \`proposer operator allow ${proposer}\`.`
}

export const standingsOf = (recorded: Recorded, ceilings: GasCeilings, nowSeconds: number) =>
  [...recorded.failures.keys()].flatMap(
    (wallet) => gasStandingOf(recorded, wallet, ceilings, nowSeconds) ?? [],
  )
