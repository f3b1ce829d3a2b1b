/** received → validated → selected → the executor (contract §5). It can be killed anywhere (R23). */
import { createRoundReader } from '#chain/questions'
import type { Contracts } from '#chain/round'
import { wrapChain } from '#chain/wrap'
import type { BlockHeader, Chain, Clock, Hex, Random, Signer } from '#ports'
import { type BoundedCache, boundedCache } from '#protocol/bounded-cache'
import type { Candidate } from '#protocol/candidate'
import { StorageError } from '#protocol/errors'
import type { RecoverPublicKey } from '#protocol/recovered'
import type { Address } from '#protocol/schema'
import { executorFaults, followSlots, openSlots } from '../executor/executor.js'
import { createSimulations } from '../executor/packing.js'
import { newSlots } from '../executor/sending.js'
import {
  busyRounds,
  createExecutor,
  type Executor,
  type ExecutorConfig,
  type Failpoint,
  isIsolated,
} from '../executor/state.js'
import { callOf, gasCeilingsOf, heldBack } from '../executor/transaction.js'
import type { Ledger, LedgerEvent } from '../ledger/ledger.js'
import { bitOf, isRoundOpen, readBitmapOf } from '../validation/contract-reads.js'
import { progressChange, selected } from '../validation/progress.js'
import {
  inParts,
  type Judgement,
  type JudgePorts,
  operatorFaults,
  sideBySide,
  validate,
} from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import type { LiveView } from '../view/view.js'
import { pause } from '../view/view.js'
import {
  createQueue,
  dueOf,
  endWaiting,
  firstOfRounds,
  ifAnswered,
  newJudging,
  rememberedCandidates,
  select,
  settleJudgement,
} from './settling.js'

export interface ClaimSources {
  readonly ledger: Pick<Ledger, 'active' | 'slotOf'>
  readonly view: Pick<LiveView, 'known'>
  readonly contracts: Contracts
}

function maybeOpen({ view, contracts }: ClaimSources, candidate: Candidate) {
  const question = view.known(candidate.round.questionId)
  return question === undefined || isRoundOpen(contracts, question.round, candidate)
}

/** Which others may take of a wallet's money (contract §5). Many of a wallet are judged at once. */
export function createClaims(sources: ClaimSources) {
  const { ledger } = sources
  const claims = new Map<Address, readonly Candidate[]>()
  const ofWallet = new Map<Address, Candidate[]>()
  let of: readonly Candidate[] | undefined
  const isCarried = ({ id }: Candidate) => ledger.slotOf(id) !== undefined
  const find = (wallet: Address) =>
    (ofWallet.get(wallet) ?? []).filter(
      (candidate) => isCarried(candidate) || maybeOpen(sources, candidate),
    )
  const follow = (active: readonly Candidate[]) => {
    of = active
    claims.clear()
    ofWallet.clear()
    for (const candidate of active) {
      if (candidate.progress.status === 'executed') continue
      const own = ofWallet.get(candidate.proposer)
      if (own) own.push(candidate)
      else ofWallet.set(candidate.proposer, [candidate])
    }
  }
  return ({ id, proposer, sequence }: Candidate) => {
    if (of !== ledger.active()) follow(ledger.active())
    const found = claims.get(proposer) ?? find(proposer)
    if (claims.size === 0) queueMicrotask(() => claims.clear())
    claims.set(proposer, found)
    return found.filter((one) => one.id !== id && (one.sequence < sequence || isCarried(one)))
  }
}

function tokenOf({ view, ledger }: ClaimSources, candidate: Candidate): Address | undefined {
  const { id, round } = candidate
  const known = view.known(round.questionId)?.round
  if (known?.timestamp === round.timestamp) return known.token.address
  const slot = ledger.slotOf(id)
  return slot && callOf(slot, candidate)?.token
}

const keptMs = 4_000

/**
 * What does not change within a head is asked once in `keptMs`: tip, balance, counts, code, blocks
 * by number.
 * What fails or ends a candidate is read again each time: a node is not its own witness (R27).
 */
function createHeadMemory(chain: Chain, clock: Clock) {
  let head: string | undefined
  let answers = new Map<string, unknown>()
  let sinceMs = 0
  const forget = () => {
    answers = new Map()
    sinceMs = clock.monotonicMs()
  }
  const once = <T>(key: string, ask: () => T): T => {
    if (clock.monotonicMs() - sinceMs >= keptMs) forget()
    const answer = (answers.get(key) as T | undefined) ?? ask()
    answers.set(key, answer)
    return answer
  }
  return {
    once,
    follow({ latest, finalized }: Heads) {
      const newest = `${latest.hash} ${finalized.hash}`
      if (head === newest) return
      head = newest
      forget()
    },
    chain: wrapChain(chain, ({ method, args }, ask) => {
      const isKept =
        method === 'tip' ||
        method === 'balance' ||
        (method === 'transactionCount' && args[1] !== 'pending') ||
        (method === 'code' && typeof args[1] === 'bigint') ||
        (method === 'block' && typeof args[0] === 'bigint')
      if (!isKept) return ask()
      const key = `${method} ${args.join(' ')}`
      const answer = once(key, ask)
      const of = answers
      answer.catch(() => of.delete(key))
      return answer
    }),
  }
}

const validatedPerStep = 200
const freshPerStep = 150
const retriedPerStep = 64
const passesPerStep = 8
const idleMs = 1_000
const preconditionsMs = 30_000
/** For a restart on a lagging node (R16). */
const finalizedMarkMs = 60_000

export interface PipelineConfig {
  readonly pipeline: { readonly enabled: boolean }
  readonly executor: ExecutorConfig
}

interface PipelineParts {
  readonly ports: { readonly clock: Clock; readonly random: Random }
  readonly ledger: Ledger
  readonly view: LiveView
  readonly chain: Chain
  readonly signer: Signer | undefined
  readonly contracts: Contracts
  readonly config: PipelineConfig
  readonly recover?: RecoverPublicKey | undefined
  readonly turn?: (() => Promise<void>) | undefined
  readonly failpoint?: Failpoint | undefined
}

export type Pipeline = ReturnType<typeof createPipeline>

type PipelineState = ReturnType<typeof newState>

function newState(parts: PipelineParts) {
  const { ledger, view, contracts, recover } = parts
  const { clock } = parts.ports
  const none = async () => undefined
  const { turn = none, failpoint = none } = parts
  const config = parts.config.executor
  const ceilings = gasCeilingsOf(parts.config)
  const signer = config.enabled ? parts.signer : undefined
  const memory = createHeadMemory(parts.chain, clock)
  const { chain } = memory
  const rounds = createRoundReader(chain, contracts, view.rounds.tokenOf)
  const shared = {
    ...{ ...parts.ports, ledger, chain, contracts, config, ceilings, turn, failpoint },
    newestHeads: () => view.heads() as Heads,
    readRound: (id: Hex, at: bigint) => rounds.read(id, view.entry(id), at),
    noteSpent(candidate: Candidate, at: BlockHeader) {
      const { word, mask } = bitOf(candidate)
      view.noteNonces(candidate.proposer, word, mask, at.hash)
    },
  }
  const simulations =
    signer &&
    createSimulations(
      { ...shared, signer },
      (call) => executor !== undefined && isIsolated(executor, call),
    )
  const ports: JudgePorts = {
    ...shared,
    bitmapOf: (owner, at) =>
      memory.once(`bitmap ${owner} ${at.hash}`, () => readBitmapOf(shared, owner, at)),
    peekRound: ({ round }) => view.peek(round.questionId)?.round,
    executor: signer?.address,
    recover,
    simulate: simulations?.simulate ?? none,
    tokenOf: (candidate) => tokenOf(parts, candidate),
  }
  const claimsBefore = createClaims(parts)
  /** A head gives the same answer again, as long as the same ones claim of the wallet. */
  const valid: BoundedCache<string, { readonly at: string; readonly judgement: Judgement }> =
    boundedCache(rememberedCandidates)
  const judge: Executor['ports']['judge'] = async (candidate, heads) => {
    const held = heldBack(candidate, ledger, ceilings, heads)
    if (held !== undefined) return { kind: 'wait', detail: held }
    const competing = claimsBefore(candidate)
    const at = [heads.latest.hash, ...competing.map(({ id }) => id)].join(' ')
    const known = valid.get(candidate.id)
    if (known?.at === at) return known.judgement
    const judgement = await validate(ports, candidate, competing, heads)
    if (judgement.kind === 'valid') valid.set(candidate.id, { at, judgement })
    return judgement
  }
  const executor: Executor | undefined =
    signer &&
    simulations &&
    createExecutor({
      ...shared,
      ...{ signer, judge, isProven: simulations.isProven },
      maybeDead: (candidate) =>
        view.nonceKnownUsed(candidate.proposer, BigInt(candidate.nonce)) ||
        !maybeOpen(parts, candidate),
    })
  return {
    ...newJudging({ clock, ledger, view, ports, turn }),
    ...{ isOn: parts.config.pipeline.enabled, failpoint, memory, judge, ceilings, executor },
    received: createQueue(validatedPerStep, freshPerStep),
    retries: createQueue(retriedPerStep),
    operator: ['the contracts have not been checked yet'] as readonly string[],
    operatorAtMs: Number.NEGATIVE_INFINITY,
    markedAtMs: Number.NEGATIVE_INFINITY,
    headHash: undefined as Hex | undefined,
    isStopping: false,
  }
}

async function advance(state: PipelineState) {
  const { view, executor } = state
  const heads = view.heads()
  state.look = view.looks().shown
  // Unknown or old state closes everything (R16).
  const unpinned = view.codeFaults().length
  if (heads === undefined || view.faults().length > unpinned) return false
  if (state.headHash !== heads.latest.hash) {
    state.headHash = heads.latest.hash
    state.halted = undefined
    state.contradiction = undefined
  }
  state.memory.follow(heads)
  await markFinalized(state, heads)
  // Nothing is signed or sent for code that nobody has pinned; what is out is followed.
  const isOn = state.isOn && unpinned === 0
  const both = sideBySide<boolean>()
  if (executor) both.add(followSlots(executor, heads, isOn).then(() => false))
  if (isOn) both.add(moveOn(state, heads))
  const isBehind = (await both.ended()).includes(true)
  const isSending = isOn && mayMove(state) && (await sendSelected(state, heads))
  const isEnding = await endWaiting(state, heads, isOn)
  return isBehind || isSending || isEnding
}

const mayMove = ({ operator, halted }: PipelineState) =>
  operator.length === 0 && halted === undefined

async function moveOn(state: PipelineState, heads: Heads) {
  const { clock, ports } = state
  const isRecent = clock.monotonicMs() - state.operatorAtMs < preconditionsMs
  if (state.operator.length > 0 || !isRecent) {
    state.operator = await operatorFaults(ports, heads.latest)
    state.operatorAtMs = clock.monotonicMs()
  }
  return mayMove(state) && (await validateReceived(state, heads))
}

async function markFinalized(state: PipelineState, { finalized }: Heads) {
  const { ledger, clock } = state
  const isNew = finalized.number > (ledger.finalized?.number ?? -1n)
  if (!isNew || clock.monotonicMs() - state.markedAtMs < finalizedMarkMs) return
  state.markedAtMs = clock.monotonicMs()
  const { number, hash } = finalized
  await ledger.commit([{ kind: 'chain.finalized', number: String(number), hash }])
}

async function validateReceived(state: PipelineState, heads: Heads) {
  const received = dueOf(state, 'received', heads)
  const { turn, hasMore } = state.received.next(received, heads.latest.hash)
  await inParts(turn, state.turn, async (candidate) =>
    settleJudgement(state, candidate, await state.judge(candidate, heads), heads),
  )
  return hasMore
}

async function selectNow({ ledger, clock, failpoint, ceilings }: PipelineState, heads: Heads) {
  const mayGo = (candidate: Candidate) =>
    candidate.progress.status !== 'validated' || !heldBack(candidate, ledger, ceilings, heads)
  const chosen = select(ledger.active().filter(mayGo), busyRounds(ledger))
  if (chosen.length === 0) return
  const changes = chosen.map((candidate) =>
    progressChange(candidate, selected(candidate.progress, clock.nowMs(), null)),
  )
  if (await ledger.commit(changes, chosen)) await failpoint('selected')
}

/**
 * Of each round the first that does not only wait at this head: from the second such head of the
 * selected one on its stand-ins (contract §5). A silent wallet looks like a silent node: they show
 * which.
 */
function nextOfRounds(state: PipelineState, heads: Heads) {
  const { ledger, silent, heldSince } = state
  const { hash } = heads.latest
  const isKept = (one: Candidate) =>
    one.progress.status === 'selected' && heldSince.get(one) === hash
  const holders = ledger.active().filter(isKept)
  const kept = new Set(holders.map(({ round }) => round.key))
  const standIns = dueOf(state, 'validated', heads).filter(({ round }) => !kept.has(round.key))
  const due = [...dueOf(state, 'selected', heads), ...standIns]
  const answered = due.filter(({ id }) => silent.get(id) !== hash)
  return firstOfRounds([...answered, ...due], busyRounds(ledger))
}

async function sendSelected(state: PipelineState, heads: Heads) {
  await selectNow(state, heads)
  const { executor, waits } = state
  if (executor === undefined) return false
  const due = nextOfRounds(state, heads)
  const hasWaited = ({ id }: Candidate) => waits.has(id)
  const { turn, hasMore } = state.retries.next(due.filter(hasWaited), heads.latest.hash)
  let chosen = [...due.filter((candidate) => !hasWaited(candidate)), ...turn]
  const tried = new Set<Candidate>()
  const mayGoOn = () => state.halted === undefined && !state.isStopping
  const sending = executor.faults.look(newSlots, async () => {
    for (let pass = 0; pass < passesPerStep && chosen.length > 0 && mayGoOn(); pass += 1) {
      const rounds = new Set(chosen.map(({ round }) => round.key))
      const unsent = await openSlots(executor, chosen, heads, () => state.isStopping)
      for (const candidate of chosen) {
        tried.add(candidate)
        const refusal = unsent.get(candidate.id)
        if (refusal) await settleJudgement(state, candidate, refusal, heads)
      }
      const others = nextOfRounds(state, heads).filter(({ round }) => rounds.has(round.key))
      chosen = others.filter((candidate) => !tried.has(candidate))
    }
    return mayGoOn() && (hasMore || chosen.length > 0)
  })
  return (await ifAnswered(sending)) ?? false
}

/** Whoever comes or ends may let others go on. */
function newsOf(event: LedgerEvent) {
  if (event.kind === 'candidate.received') return [{ id: event.candidate.id, isNew: true }]
  if (event.kind !== 'candidate.progress') return []
  const { status } = event.progress
  return status === 'received' || status === 'failed'
    ? [{ id: event.id, isNew: status === 'received' }]
    : []
}

export function createPipeline(parts: PipelineParts) {
  const { view, ledger } = parts
  const { clock } = parts.ports
  const state = newState(parts)
  let isWoken = false
  let sleeper: AbortController | undefined
  let loop: Promise<void> | undefined
  let stopped: string | undefined
  const wake = () => {
    isWoken = true
    sleeper?.abort()
  }
  let listeners = [
    ledger.onChange((events) => {
      const news = events.flatMap(newsOf)
      for (const { id, isNew } of news) if (isNew) state.looksBefore.set(id, view.looks().begun)
      if (state.isOn && news.length > 0) wake()
    }),
  ]
  const step = async () => {
    try {
      if (await ifAnswered(advance(state))) isWoken = true
    } catch (error) {
      // Space may come back (robustness §2, Write error).
      const codes = ['store_unavailable', 'server_busy']
      if (!(error instanceof StorageError) || !codes.includes(error.code)) throw error
    }
  }
  const run = async () => {
    while (!state.isStopping) {
      isWoken = false
      await step()
      if (isWoken || state.isStopping) continue
      sleeper = new AbortController()
      await pause(clock, idleMs, sleeper.signal)
    }
  }
  return {
    start() {
      if (loop) return
      state.isStopping = false
      listeners.push(view.onHead(wake))
      // Not caught: a bug has to end the process.
      loop = run().catch((error: unknown) => {
        if (!(error instanceof StorageError)) throw error
        stopped = `the pipeline has stopped: ${error.detail}`
      })
    },
    async stop() {
      state.isStopping = loop !== undefined
      wake()
      for (const end of listeners) end()
      listeners = []
      await loop
      loop = undefined
      state.isStopping = false
    },
    get ended() {
      return stopped
    },
    faults() {
      if (stopped !== undefined) return [stopped]
      if (!state.isOn) return []
      const failing = view.faults().length > 0 ? undefined : view.failing()
      const seen = [
        ...state.operator,
        failing && `the chain cannot be followed: ${failing}`,
        state.halted,
        state.contradiction,
        ...(state.executor ? executorFaults(state.executor) : []),
      ]
      return [...new Set(seen.flatMap((fault) => fault ?? []))]
    },
    wake,
    step,
  }
}
