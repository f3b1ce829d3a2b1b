/**
 * Moves candidates on: received → validated → selected → the executor (contract §5). One loop, one step at a time; everything it knows
 * is in the ledger, so that it can be killed anywhere and started again (R23).
 */
import pLimit from 'p-limit'
import { permit2Abi } from '../../chain/contracts.js'
import { readContract } from '../../chain/reading.js'
import type { Contracts } from '../../chain/round.js'
import { type Chain, ChainError, type Clock, type Hex, type Random, type Signer } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import { ProposerError, StorageError } from '../../protocol/errors.js'
import { nonceBit, nonceUsed } from '../../protocol/permit.js'
import { createExecutor } from '../executor/executor.js'
import type { Failpoint } from '../executor/sender.js'
import { adopted } from '../executor/slot-changes.js'
import type { Change, Ledger, LedgerEvent } from '../ledger/ledger.js'
import { type Heads, type LiveView, pause } from '../view/view.js'
import { commitOn } from './commit-on.js'
import { operatorFaults } from './preconditions.js'
import { checkedChange, failed, failureOf, progressChange, selected, stepsToExecuted } from './progress.js'
import { roundEnd } from './round-end.js'
import { deadFailure, endingOf, select } from './selection.js'
import { isOpen, type Verdict, validate } from './validation.js'

/** Candidates validated in one step, and at once; a longer queue goes on in the next step, after the slots were looked at. */
const validatedPerStep = 64
const validatedAtOnce = 8
/** Without a new head or an admission the loop looks around this often: resending has a clock of its own. */
const idleMs = 1_000
/** The operator's part is looked at this often, and at every step while something is wrong with it. */
const preconditionsMs = 30_000
/** The finalized mark is for a restart on a lagging node (R16); a record a minute is enough for that. */
const finalizedMarkMs = 60_000
/** Spending a nonce through another application leaves no log: waiting candidates' bitmaps are read in turn, so many a finalized block. */
const sweptPerBlock = 64

export interface PipelineConfig {
  readonly pipeline: { readonly enabled: boolean }
  readonly executor: { readonly enabled: boolean; readonly max_fee_gwei: number; readonly batch: number }
  readonly chain: { readonly confirmations: 'finalized' | number }
}

export interface PipelineParts {
  readonly ports: { readonly clock: Clock; readonly random: Random }
  readonly ledger: Ledger
  readonly view: LiveView
  readonly chain: Chain
  /** Absent where the executor is switched off: candidates stop at selected. */
  readonly signer: Signer | undefined
  readonly contracts: Contracts
  readonly config: PipelineConfig
  /** Called after each durable step of the executor; for crash tests. */
  readonly failpoint?: Failpoint | undefined
}

export interface Pipeline {
  start(): void
  /** Lets the step that is running end, and takes no other. */
  stop(): Promise<void>
  /** What keeps candidates from moving on; one sentence each. Empty while switched off by configuration. */
  faults(): readonly string[]
  wake(): void
  /** One step; `start` repeats it. Rejects with what is no fault of the chain. */
  step(): Promise<void>
}

/** Source: contract §5, robustness §3, R13–R16. */
export function createPipeline(parts: PipelineParts): Pipeline {
  const { ledger, view, chain, contracts, config } = parts
  const { clock } = parts.ports
  const failpoint = parts.failpoint ?? (async () => undefined)
  const signer = config.executor.enabled ? parts.signer : undefined
  const ports = { chain, contracts, rounds: view.rounds, entry: view.entry, executor: signer?.address, noteNonces: view.noteNonces }
  const judge = (candidate: Candidate, heads: Heads) => validate(ports, candidate, aheadOf(candidate), heads)
  const executor =
    signer &&
    createExecutor({
      ...parts.ports,
      chain,
      signer,
      contracts,
      ledger,
      confirmations: config.chain.confirmations,
      maxFeeGwei: config.executor.max_fee_gwei,
      most: config.executor.batch,
      judge,
      isOpen: (candidate) => stillOpen(candidate) && !view.nonceKnownUsed(candidate.proposer, BigInt(candidate.nonce)),
      failpoint,
    })

  let operator: readonly string[] = ['the contracts have not been looked at yet']
  let operatorAtMs = Number.NEGATIVE_INFINITY
  let halted: string | undefined
  let haltedAt: Hex | undefined
  let stopped: string | undefined
  let markedAtMs = Number.NEGATIVE_INFINITY
  let sweptTo = 0
  let sweptAt: Hex | undefined
  /** Head at which a candidate was last judged, or its round's end last looked for: the same head gives the same answer. */
  const judgedAt = new Map<string, Hex>()
  const endedAt = new Map<string, Hex>()
  /** What a candidate was last found to wait for. */
  const waitsFor = new Map<string, string>()
  let running: AbortController | undefined
  let sleeper: AbortController | undefined
  let woken = false
  let loop: Promise<void> = Promise.resolve()
  let unsubscribe: (() => void)[] = []

  const inSlots = () => new Set(ledger.slots().flatMap(({ candidateIds }) => candidateIds))
  const busyRounds = () => new Set([...inSlots()].flatMap((id) => ledger.byId(id)?.roundKey ?? []))
  /** Active candidates that no slot carries. */
  const waiting = () => {
    const carried = inSlots()
    return ledger.active().filter(({ id, progress }) => progress.status !== 'executed' && !carried.has(id))
  }

  /** The wallet's candidates whose amounts may be taken before this one's: earlier ones, and those on their way (contract §5). */
  const aheadOf = ({ id, proposer, sequence }: Candidate): readonly Candidate[] => {
    const carried = inSlots()
    return ledger.active().filter((other) => {
      if (other.id === id || other.proposer !== proposer || other.progress.status === 'executed') return false
      if (carried.has(other.id)) return true
      // What cannot execute any more takes nothing; it waits for that to be final.
      return other.sequence < sequence && stillOpen(other)
    })
  }
  const stillOpen = (candidate: Candidate): boolean => {
    const question = view.known(candidate.round.questionId)
    return question === undefined || isOpen(contracts, question.round, candidate)
  }

  /** Ends a candidate by what finalized state shows of its round; false while the round is open. */
  const endByRound = async (candidate: Candidate, heads: Heads): Promise<boolean> => {
    const end = await roundEnd(ports, candidate, heads)
    if (end.kind === 'open') return false
    const ending = endingOf(candidate, end)
    const changes =
      ending.kind === 'executed'
        ? stepsToExecuted(candidate, clock.nowMs(), adopted(ending.proposal, clock.nowMs()))
        : [progressChange(candidate, failed(candidate.progress, ending.failure))]
    await commitOn(ledger, [candidate], changes)
    return true
  }

  /** The next ones by sequence, from where the last turn ended, round and round. */
  const turnOf = (candidates: readonly Candidate[]): ReadonlySet<string> => {
    const later = candidates.filter(({ sequence }) => sequence > sweptTo)
    const turn = (later.length > 0 ? later : candidates).slice(0, sweptPerBlock)
    sweptTo = turn.at(-1)?.sequence ?? 0
    return new Set(turn.map(({ id }) => id))
  }

  /** Waiting candidates whose deadline has passed or whose nonce is gone, in finalized state, fail at once, pipeline on or off. */
  const sweep = async (heads: Heads) => {
    if (sweptAt === heads.finalized.hash) return
    const candidates = waiting()
    const inTurn = turnOf(candidates)
    const bitmaps = new Map<string, Promise<bigint>>()
    const isUsed = async ({ id, proposer, nonce }: Candidate) => {
      if (!inTurn.has(id) && !view.nonceKnownUsed(proposer, BigInt(nonce))) return false
      const { word } = nonceBit(BigInt(nonce))
      const key = `${proposer}|${word}`
      const read =
        bitmaps.get(key) ?? readContract(chain, heads.finalized.number, contracts.permit2, permit2Abi, 'nonceBitmap', [proposer, word])
      bitmaps.set(key, read)
      return nonceUsed(BigInt(nonce), await read)
    }
    const used = await Promise.all(candidates.map(isUsed))
    for (const [index, candidate] of candidates.entries()) {
      const failure = deadFailure(candidate, { finalizedSeconds: heads.finalized.timestamp, nonceUsed: used[index] === true })
      if (failure === undefined) continue
      // Executed by somebody else's transaction, its nonce is used too: the round tells (domain §9).
      if ((await tolerant(endByRound(candidate, heads))) !== false) continue
      await commitOn(ledger, [candidate], [progressChange(candidate, failed(candidate.progress, failure))])
    }
    sweptAt = heads.finalized.hash
  }

  const closeRounds = async (heads: Heads) => {
    const busy = busyRounds()
    for (const candidate of waiting()) {
      const { key, questionId } = candidate.round
      // A round with a slot of ours ends with that slot.
      if (busy.has(key) || endedAt.get(candidate.id) === heads.finalized.hash) continue
      const question = view.known(questionId) ?? (await tolerant(view.question(questionId)))
      if (question && isOpen(contracts, question.round, candidate)) continue
      if ((await tolerant(endByRound(candidate, heads))) === false) endedAt.set(candidate.id, heads.finalized.hash)
    }
  }

  /** True where candidates are left for the next step. */
  const validateReceived = async (heads: Heads): Promise<boolean> => {
    const received = waiting().filter(({ id, progress }) => progress.status === 'received' && judgedAt.get(id) !== heads.latest.hash)
    const now = received.slice(0, validatedPerStep)
    const limit = pLimit(validatedAtOnce)
    await Promise.all(now.map((candidate) => limit(async () => settle(candidate, await judge(candidate, heads), 'validation', heads))))
    return received.length > now.length
  }

  /** What was found goes on record with what follows from it; a wait only when its reason is new. */
  const settle = async (candidate: Candidate, verdict: Verdict, stage: 'validation' | 'submission', heads: Heads) => {
    const found = checkedChange(candidate, verdict)
    switch (verdict.kind) {
      case 'valid':
        await commitOn(ledger, [candidate], [progressChange(candidate, { status: 'validated', validatedAtMs: clock.nowMs() }), ...found])
        return
      case 'failed': {
        const failure = failureOf(stage, verdict.code, verdict.detail, verdict.retryable)
        await commitOn(ledger, [candidate], [...found, progressChange(candidate, failed(candidate.progress, failure))])
        return
      }
      case 'operator':
        halted = verdict.fault
        haltedAt = heads.latest.hash
        await noteWait(candidate, verdict.fault, found)
        return
      case 'closed':
      case 'wait':
        judgedAt.set(candidate.id, heads.latest.hash)
        await noteWait(candidate, verdict.kind === 'wait' ? verdict.why : 'closed', found)
        return
      case 'unknown':
        // Asked again at the next step, which a new head or the idle time brings.
        return
    }
  }

  const noteWait = async (candidate: Candidate, why: string, found: readonly Change[]) => {
    if (waitsFor.get(candidate.id) === why) return
    waitsFor.set(candidate.id, why)
    await commitOn(ledger, [candidate], found)
  }

  const selectNow = async () => {
    const chosen = select(ledger.active(), busyRounds())
    if (chosen.length === 0) return
    const changes: Change[] = chosen.map((candidate) => progressChange(candidate, selected(candidate.progress, clock.nowMs(), null)))
    if (await commitOn(ledger, chosen, changes)) await failpoint('selected')
  }

  const execute = async (heads: Heads) => {
    if (executor === undefined) return
    const ready = waiting().filter(({ id, progress }) => progress.status === 'selected' && judgedAt.get(id) !== heads.latest.hash)
    const verdicts = await tolerant(executor.open(ready, heads, () => running?.signal.aborted === true))
    for (const candidate of ready) {
      const verdict = verdicts?.get(candidate.id)
      if (verdict) await settle(candidate, verdict, 'submission', heads)
    }
  }

  const checkOperator = async (heads: Heads) => {
    if (operator.length === 0 && clock.monotonicMs() - operatorAtMs < preconditionsMs) return
    operator = await operatorFaults(chain, contracts, signer?.address, heads.latest)
    operatorAtMs = clock.monotonicMs()
  }

  const markFinalized = async ({ finalized }: Heads) => {
    if (finalized.number <= (ledger.finalized?.number ?? -1n) || clock.monotonicMs() - markedAtMs < finalizedMarkMs) return
    markedAtMs = clock.monotonicMs()
    await ledger.commit([{ kind: 'chain.finalized', number: String(finalized.number), hash: finalized.hash }])
  }

  const forgetGone = () => {
    if (judgedAt.size + endedAt.size + waitsFor.size < 10_000) return
    const live = new Set(ledger.active().map(({ id }) => id))
    for (const memory of [judgedAt, endedAt, waitsFor]) for (const id of memory.keys()) if (!live.has(id)) memory.delete(id)
  }

  const advance = async () => {
    const heads = view.heads()
    // Unknown or old state closes everything (R16).
    if (heads === undefined || view.faults().length > 0) return
    if (haltedAt !== heads.latest.hash) halted = undefined
    forgetGone()
    await markFinalized(heads)
    if (executor) await executor.follow(heads, config.pipeline.enabled)
    await sweep(heads)
    if (!config.pipeline.enabled) return
    await checkOperator(heads)
    await closeRounds(heads)
    if (operator.length > 0 || halted !== undefined) return
    if (await validateReceived(heads)) woken = true
    if (halted !== undefined) return
    await selectNow()
    await execute(heads)
  }

  const step = async () => {
    try {
      await tolerant(advance())
    } catch (error) {
      // Nothing was written; space may come back (robustness §2, Write error).
      if (error instanceof StorageError && (error.code === 'store_unavailable' || error.code === 'server_busy')) return
      throw error
    }
  }

  /** SignedProposer's event names no nonce: what is known of executions comes from the ledger. */
  const noteSpent = (event: LedgerEvent) => {
    if (event.kind !== 'candidate.progress' || event.progress.status !== 'executed') return
    const executed = ledger.active().find(({ id }) => id === event.id)
    if (executed === undefined) return
    const { word, mask } = nonceBit(BigInt(executed.nonce))
    view.noteNonces(executed.proposer, word, mask)
  }
  const unsubscribeSpent = ledger.onChange((events) => events.forEach(noteSpent))

  const wake = () => {
    woken = true
    sleeper?.abort()
  }
  const isNews = (event: LedgerEvent) =>
    event.kind === 'candidate.received' ||
    (event.kind === 'candidate.progress' && (event.progress.status === 'received' || event.progress.status === 'failed'))

  const run = async (signal: AbortSignal) => {
    while (!signal.aborted) {
      woken = false
      try {
        await step()
      } catch (error) {
        if (!(error instanceof StorageError)) throw error
        // The store takes no more writes (R10, R12): whoever owns it ends the process.
        stopped = `the pipeline has stopped: ${error.detail}`
        return
      }
      if (woken || signal.aborted) continue
      sleeper = new AbortController()
      await pause(clock, idleMs, sleeper.signal)
    }
  }

  return {
    start() {
      if (running) return
      const controller = new AbortController()
      running = controller
      unsubscribe = [
        view.onHead(wake),
        ledger.onChange((events) => {
          if (config.pipeline.enabled && events.some(isNews)) wake()
        }),
      ]
      // Not caught here: what is no fault of chain or store is a bug and has to end the process.
      loop = run(controller.signal)
    },
    async stop() {
      running?.abort()
      wake()
      for (const end of [...unsubscribe, unsubscribeSpent]) end()
      unsubscribe = []
      await loop
      running = undefined
    },
    faults() {
      if (stopped !== undefined) return [stopped]
      if (!config.pipeline.enabled) return []
      return [...new Set([...operator, ...(halted === undefined ? [] : [halted]), ...(executor?.faults() ?? [])])]
    },
    wake,
    step,
  }
}

/**
 * `undefined` where the chain did not answer: nothing is lost, the next step asks again, and one candidate that cannot be judged holds up
 * no other. A chain that stays silent shows in the view's faults (R16).
 */
async function tolerant<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work
  } catch (error) {
    if (error instanceof ChainError) return undefined
    if (error instanceof ProposerError && error.code === 'state_unavailable') return undefined
    throw error
  }
}
