/**
 * Moves candidates on: received → validated → selected → the executor (contract §5). One loop, one
 * step at a time; everything it knows is in the ledger, so that it can be killed anywhere and
 * started again (R23).
 */
import pLimit from 'p-limit'
import type { Contracts } from '../../chain/round.js'
import type { Chain, Clock, Hex, Random, Signer } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import { StorageError } from '../../protocol/errors.js'
import { nonceBit } from '../../protocol/permit.js'
import { createExecutor } from '../executor/executor.js'
import type { Failpoint } from '../executor/sender.js'
import type { Change, Ledger, LedgerEvent } from '../ledger/ledger.js'
import { type Heads, type LiveView, pause } from '../view/view.js'
import { createAhead } from './ahead.js'
import { createClosing } from './closing.js'
import { commitOn } from './commit-on.js'
import { operatorFaults } from './preconditions.js'
import { checkedChange, failed, failureOf, progressChange, selected, stageOf } from './progress.js'
import { createRelief } from './relief.js'
import { select } from './selection.js'
import { tolerant } from './tolerant.js'
import { createTurns } from './turns.js'
import { type Verdict, validate } from './validation.js'

/**
 * Candidates validated in one step, and at once; a longer queue goes on in the next step, after the
 * slots were looked at.
 */
const validatedPerStep = 64
const validatedAtOnce = 8
/**
 * So many of them were never looked at before, where there are any: those that wait for something
 * do not keep others waiting.
 */
const freshPerStep = 48
/**
 * Reasons to wait that change all the time go on record ever more rarely, at last only after so
 * many blocks.
 */
const longestQuietBlocks = 512n
/**
 * Without a new head or an admission the loop looks around this often: resending has a clock of its
 * own.
 */
const idleMs = 1_000
/**
 * The operator's part is looked at this often, and at every step while something is wrong with it.
 */
const preconditionsMs = 30_000
/**
 * The finalized mark is for a restart on a lagging node (R16); a record a minute is enough for
 * that.
 */
const finalizedMarkMs = 60_000

export interface PipelineConfig {
  readonly pipeline: { readonly enabled: boolean }
  readonly executor: {
    readonly enabled: boolean
    readonly max_fee_gwei: number
    readonly batch: number
  }
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
  /**
   * What keeps candidates from moving on; one sentence each. Empty while switched off by
   * configuration.
   */
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
  const ahead = createAhead(ledger, view, contracts)
  const ports = {
    chain,
    contracts,
    rounds: view.rounds,
    entry: view.entry,
    executor: signer?.address,
    tokenOf: ahead.tokenOf,
    noteNonces: view.noteNonces,
  }
  const judge = (candidate: Candidate, heads: Heads) =>
    validate(ports, candidate, ahead.of(candidate), heads)
  /**
   * A wallet that the node gets no answer from is not told apart from a silent node, and not in the
   * verdicts: its stand-ins show which.
   */
  const judgeToSend = async (candidate: Candidate, heads: Heads) => {
    const verdict = await judge(candidate, heads)
    if (verdict.kind === 'unknown') relief.note(candidate, heads)
    return verdict
  }
  const executor =
    signer &&
    createExecutor({
      ...parts.ports,
      chain,
      signer,
      contracts,
      ledger,
      rounds: view.rounds,
      entry: view.entry,
      confirmations: config.chain.confirmations,
      maxFeeGwei: config.executor.max_fee_gwei,
      most: config.executor.batch,
      judge: judgeToSend,
      isOpen: ahead.stillOpen,
      maybeSpent: ({ proposer, nonce }) => view.nonceKnownUsed(proposer, BigInt(nonce)),
      failpoint,
    })

  let operator: readonly string[] = ['the contracts have not been looked at yet']
  let operatorAtMs = Number.NEGATIVE_INFINITY
  let halted: string | undefined
  let haltedAt: Hex | undefined
  /** What a node told at this head that cannot all be so. */
  let contradiction: string | undefined
  let contradictedAt: Hex | undefined
  let stopped: string | undefined
  let markedAtMs = Number.NEGATIVE_INFINITY
  const queue = createTurns(validatedPerStep, freshPerStep)
  /** Head at which a candidate was last judged: the same head gives the same answer. */
  const judgedAt = new Map<string, Hex>()
  /**
   * What a candidate was last found to wait for, and from which block on another reason goes on
   * record.
   */
  const waitsFor = new Map<
    string,
    { readonly why: string; readonly quietBlocks: bigint; readonly quietUntil: bigint }
  >()
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
    return ledger
      .active()
      .filter(({ id, progress }) => progress.status !== 'executed' && !carried.has(id))
  }

  const closing = createClosing({ ...ports, clock, ledger, view, waiting, busyRounds })
  const relief = createRelief({
    clock,
    ledger,
    judge,
    settle: (candidate, verdict, heads) => settle(candidate, verdict, heads),
    wasJudged: ({ id }, heads) => judgedAt.get(id) === heads.latest.hash,
    waiting,
    busyRounds,
  })

  /** True where candidates are left for the next step. */
  const validateReceived = async (heads: Heads): Promise<boolean> => {
    const received = waiting().filter(
      ({ id, progress }) =>
        progress.status === 'received' && judgedAt.get(id) !== heads.latest.hash,
    )
    const { turn, more } = queue.next(received, heads.latest.hash)
    const limit = pLimit(validatedAtOnce)
    await Promise.all(
      turn.map((candidate) =>
        limit(async () => settle(candidate, await judge(candidate, heads), heads)),
      ),
    )
    return more
  }

  /**
   * What was found goes on record with what follows from it; a wait only when its reason is new.
   */
  const settle = async (candidate: Candidate, verdict: Verdict, heads: Heads) => {
    const found = checkedChange(candidate, verdict, heads.latest.number)
    switch (verdict.kind) {
      case 'valid':
        await commitOn(
          ledger,
          [candidate],
          [
            progressChange(candidate, { status: 'validated', validatedAtMs: clock.nowMs() }),
            ...found,
          ],
        )
        return
      case 'failed': {
        const failure = failureOf(
          stageOf(candidate.progress),
          verdict.code,
          verdict.detail,
          verdict.retryable,
        )
        await commitOn(
          ledger,
          [candidate],
          [...found, progressChange(candidate, failed(candidate.progress, failure))],
        )
        return
      }
      case 'operator':
        halted = verdict.fault
        haltedAt = heads.latest.hash
        await noteWait(candidate, verdict.fault, found, heads)
        return
      case 'closed':
      case 'wait':
        if (verdict.kind === 'closed') view.doubt(candidate.round.questionId)
        else contradiction = verdict.contradiction ?? contradiction
        judgedAt.set(candidate.id, heads.latest.hash)
        await noteWait(candidate, verdict.kind === 'wait' ? verdict.why : 'closed', found, heads)
        return
      case 'unknown':
        // Asked again at the next step, which a new head or the idle time brings.
        return
    }
  }

  const noteWait = async (
    candidate: Candidate,
    why: string,
    found: readonly Change[],
    { latest }: Heads,
  ) => {
    const before = waitsFor.get(candidate.id)
    if (before?.why === why || (before !== undefined && latest.number < before.quietUntil)) return
    // A wallet's code may answer otherwise at each block, and the store is not to grow with that.
    const quietBlocks = before === undefined ? 1n : 2n * before.quietBlocks
    const blocks = quietBlocks < longestQuietBlocks ? quietBlocks : longestQuietBlocks
    waitsFor.set(candidate.id, { why, quietBlocks: blocks, quietUntil: latest.number + blocks })
    await commitOn(ledger, [candidate], found)
  }

  const selectNow = async (heads: Heads) => {
    const chosen = select(ledger.active(), busyRounds(), relief.putBackAt(heads))
    if (chosen.length === 0) return
    const changes: Change[] = chosen.map((candidate) =>
      progressChange(candidate, selected(candidate.progress, clock.nowMs(), null)),
    )
    if (await commitOn(ledger, chosen, changes)) await failpoint('selected')
  }

  /** True where the next step has to go on at once. */
  const execute = async (heads: Heads): Promise<boolean> => {
    if (executor === undefined) return false
    const selectedNow = waiting().filter(
      ({ id, progress }) =>
        progress.status === 'selected' && judgedAt.get(id) !== heads.latest.hash,
    )
    const { turn: ready, more } = relief.inTurn(selectedNow, heads)
    const verdicts = await tolerant(
      executor.open(ready, heads, () => running?.signal.aborted === true),
    )
    for (const candidate of ready) {
      const verdict = verdicts?.get(candidate.id)
      if (verdict === undefined) continue
      await settle(candidate, verdict, heads)
      if (verdict.kind === 'wait') relief.note(candidate, heads)
    }
    if (halted !== undefined || running?.signal.aborted === true) return false
    return (await relief.relieve(heads)) || more
  }

  const checkOperator = async (heads: Heads) => {
    if (operator.length === 0 && clock.monotonicMs() - operatorAtMs < preconditionsMs) return
    operator = await operatorFaults(chain, contracts, signer?.address, heads.latest)
    operatorAtMs = clock.monotonicMs()
  }

  const markFinalized = async ({ finalized }: Heads) => {
    if (
      finalized.number <= (ledger.finalized?.number ?? -1n) ||
      clock.monotonicMs() - markedAtMs < finalizedMarkMs
    )
      return
    markedAtMs = clock.monotonicMs()
    await ledger.commit([
      { kind: 'chain.finalized', number: String(finalized.number), hash: finalized.hash },
    ])
  }

  const forgetGone = () => {
    if (judgedAt.size + waitsFor.size < 10_000) return
    const live = new Set(ledger.active().map(({ id }) => id))
    for (const memory of [judgedAt, waitsFor])
      for (const id of memory.keys()) if (!live.has(id)) memory.delete(id)
    relief.forget((id) => !live.has(id))
  }

  const advance = async () => {
    const heads = view.heads()
    // Unknown or old state closes everything (R16).
    if (heads === undefined || view.faults().length > 0) return
    if (haltedAt !== heads.latest.hash) halted = undefined
    if (contradictedAt !== heads.latest.hash) contradiction = undefined
    contradictedAt = heads.latest.hash
    forgetGone()
    await markFinalized(heads)
    if (executor) await executor.follow(heads, config.pipeline.enabled)
    if (await closing.sweep(heads)) woken = true
    if (!config.pipeline.enabled) return
    await checkOperator(heads)
    if (await closing.closeRounds(heads)) woken = true
    if (operator.length > 0 || halted !== undefined) return
    if (await validateReceived(heads)) woken = true
    if (halted !== undefined) return
    await selectNow(heads)
    if (await execute(heads)) woken = true
  }

  const step = async () => {
    try {
      await tolerant(advance())
    } catch (error) {
      // Nothing was written; space may come back (robustness §2, Write error).
      if (
        error instanceof StorageError &&
        (error.code === 'store_unavailable' || error.code === 'server_busy')
      )
        return
      throw error
    }
  }

  /** SignedProposer's event names no nonce: what is known of executions comes from the ledger. */
  const noteSpent = (event: LedgerEvent) => {
    if (event.kind !== 'candidate.progress' || event.progress.status !== 'executed') return
    const executed = ledger.active().find(({ id }) => id === event.id)
    if (executed === undefined) return
    const { word, mask } = nonceBit(BigInt(executed.nonce))
    const heads = view.heads()
    if (heads) view.noteNonces(executed.proposer, word, mask, heads.latest.hash)
  }
  const unsubscribeSpent = ledger.onChange((events) => events.forEach(noteSpent))

  const wake = () => {
    woken = true
    sleeper?.abort()
  }
  const isNews = (event: LedgerEvent) =>
    event.kind === 'candidate.received' ||
    (event.kind === 'candidate.progress' &&
      (event.progress.status === 'received' || event.progress.status === 'failed'))

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
      const failing = view.faults().length > 0 ? undefined : view.failing()
      const seen = [failing && `the chain cannot be followed: ${failing}`, halted, contradiction]
      return [
        ...new Set([
          ...operator,
          ...seen.flatMap((fault) => fault ?? []),
          ...(executor?.faults() ?? []),
        ]),
      ]
    },
    wake,
    step,
  }
}
