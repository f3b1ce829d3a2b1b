/**
 * received → validated → selected → the executor (contract §5). One loop; everything it knows is in
 * the ledger, so that it can be killed anywhere (R23).
 */
import { createRoundReader } from '#chain/questions'
import type { Contracts } from '#chain/round'
import { wrapChain } from '#chain/wrap'
import type { Chain, Clock, Hex, Random, Signer } from '#ports'
import { type BoundedCache, boundedCache } from '#protocol/bounded-cache'
import type { Candidate } from '#protocol/candidate'
import { StorageError } from '#protocol/errors'
import type { RecoverPublicKey } from '#protocol/recovered'
import type { Address } from '#protocol/schema'
import { executorFaults, followSlots, isIsolated, openSlots } from '../executor/executor.js'
import { createSimulations } from '../executor/packing.js'
import { newSlots } from '../executor/sending.js'
import { busyRounds, createExecutor, type Executor, type Failpoint } from '../executor/state.js'
import {
  callIn,
  gasCeilingsOf,
  heldBack,
  offerFor,
  readProposeCalldata,
} from '../executor/transaction.js'
import type { Ledger, LedgerEvent } from '../ledger/ledger.js'
import { isRoundOpen, readBitmapOf } from '../validation/contract-reads.js'
import { progressChange, selected } from '../validation/progress.js'
import {
  inParts,
  type Judgement,
  type JudgePorts,
  judgedAtOnce,
  operatorFaults,
  type ProposalCall,
  sideBySide,
  validate,
} from '../validation/validation.js'
import { pause } from '../view/lookups.js'
import type { Heads } from '../view/state.js'
import type { LiveView } from '../view/view.js'
import {
  createQueue,
  dueOf,
  endWaiting,
  ifAnswered,
  judgeStandIns,
  newClosing,
  newJudging,
  noteStuck,
  rememberedCandidates,
  select,
  settleHeld,
  settleJudgement,
} from './settling.js'

export interface ClaimSources {
  readonly ledger: Pick<Ledger, 'active' | 'slots' | 'slotOf'>
  readonly view: Pick<LiveView, 'known'>
  readonly contracts: Contracts
}

function maybeOpen({ view, contracts }: ClaimSources, candidate: Candidate) {
  const question = view.known(candidate.round.questionId)
  return question === undefined || isRoundOpen(contracts, question.round, candidate)
}

/**
 * Which other candidates may take of a wallet's money (contract §5): earlier ones, and those on
 * their way. For this moment: many of a wallet are judged at once. Reads nothing of the chain: it
 * must not cost another wallet's time.
 */
export function createClaims(sources: ClaimSources) {
  const { ledger } = sources
  const claims = new Map<Address, ReturnType<typeof find>>()
  let of = ledger.active()
  const find = (wallet: Address) =>
    ledger
      .active()
      .filter(({ proposer, progress }) => proposer === wallet && progress.status !== 'executed')
      .map((candidate) => ({ candidate, isCarried: ledger.slotOf(candidate.id) !== undefined }))
      .filter(({ candidate, isCarried }) => isCarried || maybeOpen(sources, candidate))
  return ({ id, proposer, sequence }: Candidate): readonly Candidate[] => {
    if (of !== ledger.active()) claims.clear()
    of = ledger.active()
    const found = claims.get(proposer) ?? find(proposer)
    if (claims.size === 0) queueMicrotask(() => claims.clear())
    claims.set(proposer, found)
    return found
      .filter(({ candidate, isCarried }) => isCarried || candidate.sequence < sequence)
      .map(({ candidate }) => candidate)
      .filter((candidate) => candidate.id !== id)
  }
}

function tokenOf(sources: ClaimSources, { id, round }: Candidate): Address | undefined {
  const [only, second] = sources.contracts.tokens
  if (second === undefined) return only
  const known = sources.view.known(round.questionId)?.round
  // Another round of the question may be in another token.
  if (known?.timestamp === round.timestamp) return known.token.address
  const attempts = sources.ledger.slots().flatMap((slot) => slot.attempts)
  const [own] = attempts.flatMap((attempt) => callIn(attempt, id) ?? [])
  return own && readProposeCalldata(own).token
}

/** Also where no new block comes. */
const keptMs = 4_000

/**
 * What does not change within a head is asked once: tip, balance, counts of transactions, code.
 * What fails or ends a candidate is read again each time: a node is not its own witness (R27).
 */
function createHeadMemory(chain: Chain, clock: Pick<Clock, 'monotonicMs'>) {
  let head: string | undefined
  let answers = new Map<string, unknown>()
  let sinceMs = Number.NEGATIVE_INFINITY
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
        (method === 'code' && typeof args[1] === 'bigint')
      if (!isKept) return ask()
      const key = `${method} ${args.join(' ')}`
      const of = answers
      const answer = once(key, ask)
      answer.catch(() => of.delete(key) || answers.delete(key))
      return answer
    }),
  }
}

const validatedPerStep = 200
/** Those that wait do not keep new ones waiting. */
const freshPerStep = 150
const retriedPerStep = 64
const standInsPerStep = 32
const idleMs = 1_000
const preconditionsMs = 30_000
/** For a restart on a lagging node (R16). */
const finalizedMarkMs = 60_000

export interface PipelineConfig {
  readonly pipeline: { readonly enabled: boolean }
  readonly executor: {
    readonly enabled: boolean
    readonly max_fee_gwei: number
    readonly batch: number
    readonly in_flight: number
    readonly max_proposal_gas?: number
    readonly failed_gas_per_wallet?: number
  }
}

interface PipelineParts {
  readonly ports: { readonly clock: Clock; readonly random: Random }
  readonly ledger: Ledger
  readonly view: LiveView
  readonly chain: Chain
  /** Without one candidates stop at selected. */
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
  const { ledger, view, config, contracts } = parts
  const { clock } = parts.ports
  const failpoint = parts.failpoint ?? (async () => undefined)
  const turn = parts.turn ?? (async () => undefined)
  const signer = config.executor.enabled ? parts.signer : undefined
  const memory = createHeadMemory(parts.chain, clock)
  const { chain } = memory
  const { batch: maxBatch, max_fee_gwei: maxFeeGwei, in_flight: maxInFlight } = config.executor
  const ceilings = gasCeilingsOf(config)
  const offer = async () => {
    const head = view.heads()?.latest
    if (head === undefined || signer === undefined) return undefined
    const { chainId } = contracts
    return offerFor(chain, chainId, signer.address, head, maxFeeGwei, ceilings.proposal)
  }
  const isAlone = (call: ProposalCall) => executor !== undefined && isIsolated(executor, call)
  // A token that stops answering is found by what is judged, not by its name.
  const rounds = createRoundReader(chain, contracts, view.rounds.tokenOf)
  const by = { chain, contracts, offer, maxBatch, turn, isAlone }
  const ports: JudgePorts & ReturnType<typeof createSimulations> = {
    chain,
    contracts,
    bitmapOf: (owner, at) =>
      memory.once(`bitmap ${owner} ${at.hash}`, () =>
        readBitmapOf({ chain, contracts }, owner, at),
      ),
    peekRound: ({ round }) => view.peek(round.questionId)?.round,
    readRound: (id, at) => rounds.read(id, view.entry(id), at),
    executor: signer?.address,
    recover: parts.recover,
    ...(signer
      ? createSimulations({ ...by, executor: signer.address })
      : { simulate: async () => undefined, isProven: () => false }),
    tokenOf: (candidate) => tokenOf(parts, candidate),
    noteNonces: view.noteNonces,
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
    createExecutor({
      ...ports,
      ...parts.ports,
      signer,
      ledger,
      turn,
      maxBatch,
      maxFeeGwei,
      ceilings,
      offer,
      maxInFlight,
      failpoint,
      newestHeads: () => view.heads() as Heads,
      maybeOpen: (candidate) => maybeOpen(parts, candidate),
      maybeSpent: ({ proposer, nonce }) => view.nonceKnownUsed(proposer, BigInt(nonce)),
      judge,
    })
  return {
    ...newJudging({ clock, ledger, view, ports }),
    config,
    failpoint,
    turn,
    memory,
    judge,
    ceilings,
    executor,
    closing: newClosing(),
    received: createQueue(validatedPerStep, freshPerStep),
    retries: createQueue(retriedPerStep),
    standIns: createQueue(standInsPerStep),
    operator: ['the contracts have not been checked yet'] as readonly string[],
    operatorAtMs: Number.NEGATIVE_INFINITY,
    markedAtMs: Number.NEGATIVE_INFINITY,
    headHash: undefined as Hex | undefined,
    isStopping: false,
  }
}

async function advance(state: PipelineState) {
  const { view, config, executor } = state
  const heads = view.heads()
  state.look = view.looks().shown
  // Unknown or old state closes everything (R16).
  const isHeld = view.codeFaults().length > 0
  if (heads === undefined || view.faults().length > view.codeFaults().length) return false
  if (state.headHash !== heads.latest.hash) {
    state.headHash = heads.latest.hash
    state.halted = undefined
    state.contradiction = undefined
  }
  state.memory.follow(heads)
  await markFinalized(state, heads)
  // Nothing is signed or sent for code that nobody has pinned; what is out is followed.
  const follow = async () => {
    if (executor) await followSlots(executor, heads, config.pipeline.enabled && !isHeld)
  }
  if (!config.pipeline.enabled || isHeld) {
    await follow()
    return endWaiting(state, state.closing, heads, false)
  }
  const both = sideBySide()
  both.add(follow())
  const moving = moveOn(state, heads)
  both.add(moving)
  await both.ended()
  const isBehind = await moving
  const isSending = mayMove(state) && (await sendSelected(state, heads))
  const isEnding = await endWaiting(state, state.closing, heads, true)
  return isBehind || isSending || isEnding
}

const mayMove = ({ operator, halted }: PipelineState) =>
  operator.length === 0 && halted === undefined

async function moveOn(state: PipelineState, heads: Heads) {
  await checkOperator(state, heads)
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

async function checkOperator(state: PipelineState, { latest }: Heads) {
  const { clock, ports } = state
  const isRecent = clock.monotonicMs() - state.operatorAtMs < preconditionsMs
  if (state.operator.length === 0 && isRecent) return
  state.operator = await operatorFaults(ports, latest)
  state.operatorAtMs = clock.monotonicMs()
}

async function validateReceived(state: PipelineState, heads: Heads) {
  const received = dueOf(state, 'received', heads)
  const { turn, hasMore } = state.received.next(received, heads.latest.hash)
  await inParts(turn, judgedAtOnce, state.turn, async (candidate) =>
    settleJudgement(state, candidate, await state.judge(candidate, heads), heads),
  )
  return hasMore
}

async function selectNow(state: PipelineState, heads: Heads) {
  const { ledger, clock } = state
  const held = await settleHeld(state, state.ceilings, heads)
  const active = ledger.active().filter(({ id }) => !held.has(id))
  const chosen = select(active, busyRounds(ledger))
  if (chosen.length === 0) return
  const changes = chosen.map((candidate) =>
    progressChange(candidate, selected(candidate.progress, clock.nowMs(), null)),
  )
  if (await ledger.commit(changes, chosen)) await state.failpoint('selected')
}

/** Rounds that are stuck come last, a part of them at a time; their stand-ins after them. */
async function sendSelected(state: PipelineState, heads: Heads) {
  await selectNow(state, heads)
  const { executor, stuck, ledger } = state
  if (executor === undefined) return false
  for (const key of busyRounds(ledger)) stuck.delete(key)
  const due = dueOf(state, 'selected', heads)
  const isStuck = ({ round }: Candidate) => stuck.has(round.key)
  const retries = state.retries.next(due.filter(isStuck), heads.latest.hash)
  const ready = due.filter((candidate) => !isStuck(candidate))
  const sending = executor.faults.look(newSlots, async () => {
    await send(state, executor, [...ready, ...retries.turn], heads)
    if (!mayGoOn(state)) return false
    const standIns = await judgeStandIns(state, state.standIns, state.judge, heads)
    if (standIns.chosen.length > 0) await send(state, executor, standIns.chosen, heads)
    return mayGoOn(state) && (retries.hasMore || standIns.hasMore)
  })
  return (await ifAnswered(sending)) ?? false
}

const mayGoOn = ({ halted, isStopping }: PipelineState) => halted === undefined && !isStopping

async function send(
  state: PipelineState,
  executor: Executor,
  candidates: readonly Candidate[],
  heads: Heads,
) {
  const unsent = await openSlots(executor, candidates, heads, () => state.isStopping)
  for (const candidate of candidates) {
    const refusal = unsent.get(candidate.id)
    if (refusal === undefined) continue
    await settleJudgement(state, candidate, refusal, heads)
    // A silent wallet looks like a silent node: its stand-ins show which.
    if (refusal.kind === 'wait' || refusal.kind === 'unknown') noteStuck(state, candidate, heads)
  }
}

function noteArrival({ looksBefore, view }: PipelineState, event: LedgerEvent) {
  const { begun } = view.looks()
  if (event.kind === 'candidate.received') looksBefore.set(event.candidate.id, begun)
  else if (event.kind === 'candidate.progress' && event.progress.status === 'received')
    looksBefore.set(event.id, begun)
}

const isNews = (event: LedgerEvent) =>
  event.kind === 'candidate.received' ||
  (event.kind === 'candidate.progress' &&
    (event.progress.status === 'received' || event.progress.status === 'failed'))

export function createPipeline(parts: PipelineParts) {
  const { view, ledger, config } = parts
  const { clock } = parts.ports
  const state = newState(parts)
  let isWoken = false
  let sleeper: AbortController | undefined
  let loop: Promise<void> | undefined
  let stopped: string | undefined
  let listeners = [
    ledger.onChange((events) => {
      for (const event of events) noteArrival(state, event)
    }),
  ]
  const wake = () => {
    isWoken = true
    sleeper?.abort()
  }
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
      try {
        await step()
      } catch (error) {
        if (!(error instanceof StorageError)) throw error
        stopped = `the pipeline has stopped: ${error.detail}`
        return
      }
      if (isWoken || state.isStopping) continue
      sleeper = new AbortController()
      await pause(clock, idleMs, sleeper.signal)
    }
  }
  return {
    start() {
      if (loop) return
      state.isStopping = false
      listeners.push(
        view.onHead(wake),
        ledger.onChange((events) => {
          if (config.pipeline.enabled && events.some(isNews)) wake()
        }),
      )
      // Not caught: a bug has to end the process.
      loop = run()
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
      if (!config.pipeline.enabled) return []
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
