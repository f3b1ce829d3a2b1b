/**
 * received → validated → selected → the executor, and the end of what waits (contract §5, R3, R13,
 * R14, domain §9). It can be killed anywhere (R23).
 */
import { createRoundReader } from '#chain/questions'
import type { Contracts } from '#chain/round'
import { readBitmap } from '#chain/wallets'
import {
  type BlockHeader,
  type Chain,
  ChainError,
  type Clock,
  type Hex,
  type Random,
  type Signer,
} from '#ports'
import type { Candidate, CandidateFailure, CandidateState } from '#protocol/candidate'
import { ProposerError, StorageError } from '#protocol/errors'
import type { RecoverPublicKey } from '#protocol/recovered'
import type { Address } from '#protocol/schema'
import { createSimulations, executorFaults, followSlots, openSlots } from '../executor/executor.js'
import { callOf, selected, stepsToExecuted } from '../executor/sending.js'
import {
  busyRounds,
  bySequence,
  type CandidateMemory,
  type Candidates,
  candidateMemory,
  createExecutor,
  createHead,
  type Executor,
  type ExecutorConfig,
  type Failpoint,
  gasCeilingsOf,
  heldBack,
  inParts,
  isIsolated,
  newSlots,
  sideBySide,
  slotMemory,
  smallest,
  takeTurn,
  whileLooking,
} from '../executor/state.js'
import type { Change, Ledger } from '../ledger/ledger.js'
import {
  bitOf,
  endingOf,
  failedChange,
  failureOf,
  isRoundOpen,
  isSpentAt,
  type Judgement,
  type JudgePorts,
  operatorFaults,
  type ProposalCall,
  progressChange,
  readRoundEnd,
  runs,
  stageOf,
  validate,
} from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import { type LiveView, pause } from '../view/view.js'

export type ClaimSources = Pick<PipelineParts, 'ledger' | 'view' | 'contracts'>

function maybeOpen({ view, contracts }: ClaimSources, candidate: Candidate) {
  const question = view.known(candidate.round.questionId)
  return question === undefined || isRoundOpen(contracts, question.round, candidate)
}

/** Which others may take of a wallet's money (contract §5). */
export function createClaims(sources: ClaimSources) {
  const { ledger } = sources
  const ofWallet = new Map<Address, Candidate[]>()
  let of: readonly Candidate[] | undefined
  const follow = (active: readonly Candidate[]) => {
    of = active
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
    const mayTake = (one: Candidate) =>
      ledger.slotOf(one.id) !== undefined || (one.sequence < sequence && maybeOpen(sources, one))
    return (ofWallet.get(proposer) ?? []).filter((one) => one.id !== id && mayTake(one))
  }
}

function tokenOf({ view, ledger }: ClaimSources, candidate: Candidate): Address | undefined {
  const { id, round } = candidate
  const known = view.known(round.questionId)?.round
  if (known?.timestamp === round.timestamp) return known.token.address
  const slot = ledger.slotOf(id)
  return slot && callOf(slot, candidate)?.token
}

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
  const memory = createHead(parts.chain, clock)
  const { chain, head } = memory
  const candidates: Candidates = new Map()
  const rounds = createRoundReader(chain, contracts, view.rounds.tokenOf)
  const shared = {
    ...{ ...parts.ports, ledger, chain, contracts, config, ceilings, turn, failpoint },
    proven: head.proven,
    newestHeads: () => view.heads() as Heads,
    readRound: (id: Hex, at: bigint) => rounds.read(id, view.entry(id), at),
    noteSpent(candidate: Candidate, at: BlockHeader) {
      const { word, mask } = bitOf(candidate)
      view.noteNonces(candidate.proposer, word, mask, at.hash)
    },
  }
  const isAlone = (call: ProposalCall) => executor !== undefined && isIsolated(executor, call)
  const ports: JudgePorts = {
    ...shared,
    bitmapAt: (owner, word, at) =>
      memory.once(`bitmap ${owner} ${word} ${at.hash}`, () =>
        readBitmap(chain, at.number, contracts.permit2, owner, word),
      ),
    peekRound: ({ round }) => view.peek(round.questionId)?.round,
    executor: signer?.address,
    recover,
    simulate: signer ? createSimulations({ ...shared, signer }, isAlone) : none,
    tokenOf: (candidate) => tokenOf(parts, candidate),
  }
  const claimsBefore = createClaims(parts)
  const judge: Executor['ports']['judge'] = async (candidate, heads) => {
    const held = heldBack(candidate, ledger, ceilings, heads)
    if (held !== undefined) return { kind: 'wait', detail: held }
    const competing = claimsBefore(candidate)
    const at = [heads.latest.hash, ...competing.map(({ id }) => id)].join(' ')
    const memo = candidateMemory(candidates, candidate.id)
    const known = memo.valid
    if (known?.at === at) return known.judgement
    const judgement = await validate(ports, candidate, competing, heads)
    if (judgement.kind === 'valid') memo.valid = { at, judgement }
    return judgement
  }
  const executor: Executor | undefined =
    signer &&
    createExecutor(
      {
        ...shared,
        ...{ signer, judge },
        maybeDead: (candidate) =>
          view.nonceKnownUsed(candidate.proposer, BigInt(candidate.nonce)) ||
          !maybeOpen(parts, candidate),
      },
      candidates,
    )
  return {
    ...{ clock, ledger, view, ports, turn, failpoint, ceilings, judge, executor, candidates, head },
    ...{ isOn: parts.config.pipeline.enabled, follow: memory.follow, isStopping: false },
    last: {
      operator: ['the contracts have not been checked yet'] as readonly string[],
      operatorAtMs: Number.NEGATIVE_INFINITY,
      markedAtMs: Number.NEGATIVE_INFINITY,
      sweptAt: undefined as Hex | undefined,
    },
  }
}

async function advance(state: PipelineState) {
  const { view, executor, ledger, clock, last } = state
  const heads = view.heads()
  state.head.look = view.looks().shown
  // Unknown or old state closes everything (R16).
  const unpinned = view.codeFaults().length
  if (heads === undefined || view.faults().length > unpinned) return false
  state.follow(heads)
  const { number, hash } = heads.finalized
  const nowMs = clock.monotonicMs()
  if (number > (ledger.finalized?.number ?? -1n) && nowMs - last.markedAtMs >= finalizedMarkMs) {
    last.markedAtMs = nowMs
    await ledger.commit([{ kind: 'chain.finalized', number: String(number), hash }])
  }
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

const mayMove = ({ last, head }: PipelineState) =>
  last.operator.length === 0 && head.halted === undefined

async function moveOn(state: PipelineState, heads: Heads) {
  const { clock, ports, last } = state
  const { latest } = heads
  const isRecent = clock.monotonicMs() - last.operatorAtMs < preconditionsMs
  if (last.operator.length > 0 || !isRecent) {
    last.operator = await operatorFaults(ports, latest)
    last.operatorAtMs = clock.monotonicMs()
  }
  if (!mayMove(state)) return false
  const received = dueOf(state, 'received', heads)
  const { turn, hasMore } = takeTurn(state, 'received', received, latest.hash)
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
  const { ledger, candidates } = state
  const { hash } = heads.latest
  const isKept = ({ id, progress }: Candidate) => {
    const held = candidates.get(id)?.held
    return progress.status === 'selected' && held?.progress === progress && held.at === hash
  }
  const kept = new Set(
    ledger
      .active()
      .filter(isKept)
      .map(({ round }) => round.key),
  )
  const standIns = dueOf(state, 'validated', heads).filter(({ round }) => !kept.has(round.key))
  const due = [...dueOf(state, 'selected', heads), ...standIns]
  const answered = due.filter(({ id }) => candidates.get(id)?.silentAt !== hash)
  return firstOfRounds([...answered, ...due], busyRounds(ledger))
}

async function sendSelected(state: PipelineState, heads: Heads) {
  await selectNow(state, heads)
  const { executor, candidates, head } = state
  if (executor === undefined) return false
  const due = nextOfRounds(state, heads)
  const hasWaited = ({ id }: Candidate) => candidates.get(id)?.wait !== undefined
  const waited = due.filter(hasWaited)
  const { turn, hasMore } = takeTurn(state, 'retried', waited, heads.latest.hash)
  let chosen = [...due.filter((candidate) => !hasWaited(candidate)), ...turn]
  const tried = new Set<Candidate>()
  const mayGoOn = () => head.halted === undefined && !state.isStopping
  const sending = whileLooking(slotMemory(executor, newSlots), async () => {
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
      for (const event of events) {
        const isFirst = event.kind === 'candidate.received'
        if (!isFirst && event.kind !== 'candidate.progress') continue
        const status = isFirst ? 'received' : event.progress.status
        const id = isFirst ? event.candidate.id : event.id
        if (status === 'received')
          candidateMemory(state.candidates, id).looksBefore = view.looks().begun
        else if (status === 'failed' || status === 'executed') state.candidates.delete(id)
        // Whoever comes or ends may let others go on.
        if (state.isOn && (status === 'received' || status === 'failed')) wake()
      }
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
        ...state.last.operator,
        failing && `the chain cannot be followed: ${failing}`,
        state.head.halted,
        state.head.contradiction,
        ...(state.executor ? executorFaults(state.executor) : []),
      ]
      return [...new Set(seen.flatMap((fault) => fault ?? []))]
    },
    wake,
    step,
  }
}

const longestQuietBlocks = 512n

const waitingIn = (ledger: Ledger): readonly Candidate[] =>
  ledger
    .active()
    .filter(({ id, progress }) => progress.status !== 'executed' && ledger.slotOf(id) === undefined)

const dueOf = ({ ledger, candidates }: PipelineState, status: CandidateState, { latest }: Heads) =>
  waitingIn(ledger).filter(
    ({ id, progress }) =>
      progress.status === status && candidates.get(id)?.wait?.at.hash !== latest.hash,
  )

/** A chain that stays silent shows in the view (R16). */
async function ifAnswered<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work
  } catch (error) {
    if (error instanceof ChainError) return undefined
    if (error instanceof ProposerError && error.code === 'state_unavailable') return undefined
    throw error
  }
}

async function settleJudgement(
  { ledger, view, clock, candidates, head }: PipelineState,
  candidate: Candidate,
  judgement: Judgement,
  { latest }: Heads,
) {
  const { id, round, progress } = candidate
  const { kind, read } = judgement
  const memory = candidateMemory(candidates, id)
  const settle = (...changes: readonly Change[]) => ledger.commit(changes, [candidate])
  if (memory.held?.progress !== progress) memory.held = { progress, at: latest.hash }
  if (kind === 'unknown') {
    memory.silentAt = latest.hash
    return
  }
  const detail = 'detail' in judgement ? judgement.detail : null
  const blockNumber = String(read?.blockNumber ?? latest.number)
  const check = { blockNumber, verdict: kind, detail, figures: read?.figures ?? {} }
  const checked: Change = { kind: 'candidate.checked', id, check }
  if (kind === 'valid') {
    const validated = { status: 'validated', validatedAtMs: clock.nowMs() } as const
    await settle(progressChange(candidate, validated), checked)
  } else if (kind === 'failed') {
    // Who approves and proposes at once is right, whatever the head before it says.
    if (head.look <= (memory.looksBefore ?? 0)) return view.doubt(round.questionId)
    const { code, retryable } = judgement
    const failure = failureOf(stageOf(progress), code, judgement.detail, retryable)
    await settle(...(read ? [checked] : []), failedChange(candidate, failure))
  } else {
    if (kind === 'closed') view.doubt(round.questionId)
    if (kind === 'operator') head.halted = judgement.detail
    if (kind === 'wait' && judgement.contradiction) head.contradiction = judgement.contradiction
    if (isNewReason(memory, detail ?? kind, latest)) await settle(checked)
  }
}

function isNewReason(memory: CandidateMemory, why: string, at: BlockHeader) {
  const before = memory.wait
  if (before && (before.why === why || at.number < before.quietUntil)) {
    memory.wait = { ...before, at }
    return false
  }
  // A wallet's code may answer otherwise at each block, and the store is not to grow with that.
  const doubled = 2n * (before?.quietBlocks ?? 0n) || 1n
  const quietBlocks = smallest(doubled, longestQuietBlocks)
  memory.wait = { at, why, quietBlocks, quietUntil: at.number + quietBlocks }
  return true
}

async function endWaiting(state: PipelineState, heads: Heads, isOn: boolean) {
  const { ledger, view, ports, turn, candidates, last } = state
  const { hash, timestamp } = heads.finalized
  const waiting = waitingIn(ledger)
  if (last.sweptAt !== hash) {
    const active = new Set(ledger.active().map(({ id }) => id))
    for (const id of candidates.keys()) if (!active.has(id)) candidates.delete(id)
    await sweep(state, waiting, heads)
    last.sweptAt = hash
  }
  const failureNow = (candidate: Candidate) => {
    const nonceUsed = candidates.get(candidate.id)?.spentAt === hash
    return deadFailure(candidate, { finalizedSeconds: timestamp, nonceUsed })
  }
  const busy = busyRounds(ledger)
  const isKnownOpen = (candidate: Candidate, question = view.known(candidate.round.questionId)) =>
    question !== undefined && isRoundOpen(ports.contracts, question.round, candidate)
  const isDue = (candidate: Candidate) =>
    candidates.get(candidate.id)?.openAt !== hash &&
    (failureNow(candidate) !== undefined ||
      (isOn && !busy.has(candidate.round.key) && !isKnownOpen(candidate)))
  const { turn: next, hasMore } = takeTurn(state, 'ended', waiting.filter(isDue), hash)
  await inParts(next, turn, async (candidate) => {
    const { questionId } = candidate.round
    const failure = failureNow(candidate)
    if (failure === undefined) {
      const question = view.known(questionId) ?? (await ifAnswered(view.question(questionId)))
      if (isKnownOpen(candidate, question)) return
    }
    const hasEnded = await ifAnswered(endByRound(state, candidate, heads))
    if (failure && hasEnded !== true) await endDead(state, candidate, failure, heads, hasEnded)
    if (hasEnded === false) candidateMemory(candidates, candidate.id).openAt = hash
  })
  return hasMore
}

/** Spending a nonce elsewhere leaves no log. */
async function sweep(state: PipelineState, waiting: readonly Candidate[], { finalized }: Heads) {
  const { view, ports, candidates } = state
  const { number, hash } = finalized
  const inTurn = new Set(takeTurn(state, 'swept', waiting, hash).turn)
  const mayBeSpent = waiting.filter(
    (one) => inTurn.has(one) || view.nonceKnownUsed(one.proposer, BigInt(one.nonce)),
  )
  const read = mayBeSpent.map(async (candidate) => {
    if (await isSpentAt(ports, candidate, number))
      candidateMemory(candidates, candidate.id).spentAt = hash
  })
  await Promise.all(read)
}

export function deadFailure(
  { deadline, nonce, progress }: Candidate,
  facts: { readonly finalizedSeconds: bigint; readonly nonceUsed: boolean },
): CandidateFailure | undefined {
  const stage = stageOf(progress)
  if (facts.finalizedSeconds > BigInt(deadline)) {
    const passed = `The permit deadline ${deadline} has passed`
    const detail = `${passed}: finalized time is ${facts.finalizedSeconds}.`
    return failureOf(stage, 'permit_expired', detail)
  }
  const detail = `The permit nonce ${nonce} is used or invalidated.`
  return facts.nonceUsed ? failureOf(stage, 'permit_nonce_used', detail) : undefined
}

async function endDead(
  { ledger, ports }: PipelineState,
  candidate: Candidate,
  failure: CandidateFailure,
  { finalized }: Heads,
  hasEnded: false | undefined,
) {
  // Where nobody can read the round, a nonce that is free after the deadline shows it (domain §9).
  if (
    hasEnded === undefined &&
    (finalized.timestamp <= BigInt(candidate.deadline) ||
      (await ifAnswered(isSpentAt(ports, candidate, finalized.number))) !== false)
  )
    return
  // A bitmap is one node's word: where the proposal succeeds at that block, it is wrong (R27).
  const isSuspect = failure.code === 'permit_nonce_used'
  if (isSuspect && (await ifAnswered(runs(ports, candidate, finalized))) !== false) return
  await ledger.commit([failedChange(candidate, failure)], [candidate])
}

async function endByRound(state: PipelineState, candidate: Candidate, heads: Heads) {
  const { ledger, clock, ports } = state
  const closed = await readRoundEnd(ports, candidate, heads)
  if (closed === undefined) return false
  const ending = endingOf(candidate, closed)
  const changes =
    ending.kind === 'executed'
      ? stepsToExecuted(candidate, clock.nowMs(), ending.proposal)
      : [failedChange(candidate, ending.failure)]
  await ledger.commit(changes, [candidate])
  return true
}

function firstOfRounds(candidates: readonly Candidate[], busy: ReadonlySet<string>) {
  const taken = new Set(busy)
  return candidates.filter(({ round }) => {
    const isFree = !taken.has(round.key)
    taken.add(round.key)
    return isFree
  })
}

/** Per round the lowest, where it has no selected candidate and no open slot (R3). */
export function select(
  active: readonly Candidate[],
  busy: ReadonlySet<string>,
): readonly Candidate[] {
  const holders = active.filter(
    ({ progress }) => progress.status === 'selected' || progress.status === 'executed',
  )
  const validated = active.filter(({ progress }) => progress.status === 'validated')
  return firstOfRounds(
    bySequence(validated),
    new Set([...busy, ...holders.map(({ round }) => round.key)]),
  )
}
