/**
 * What chain and ledger show of one executor nonce, what to do about it (robustness §3), and how it
 * ends (contract §5, R14, R27).
 */

import { findProposed, locateProposal } from '#chain/propose'
import { heldRequest, lowercase, revertOf, unlessRefused, zeroAddress } from '#chain/reading'
import { readProposeCalldata, readTransaction } from '#chain/transaction'
import type { Chain, ChainCall, ChainReceipt, Hex } from '#ports'
import type { Candidate, CandidateSubmission } from '#protocol/candidate'
import type { FailureCode } from '#protocol/codes'
import type { Address } from '#protocol/schema'
import type { WitnessRequest } from '#protocol/witness'
import type { Change, Slot, SlotAttempt, SlotOutcome, WalletFailure } from '../ledger/ledger.js'
import {
  endingOf,
  failed,
  failureOf,
  isSpentAt,
  progressChange,
  type QuestionChain,
  type RoundOutcome,
  readCause,
  stageOf,
  submissionOf,
} from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import {
  callIn,
  callOf,
  carries,
  confirmsUsed,
  executed,
  mostAttempts,
  resendDue,
  selected,
  standsInAgain,
  stepsToExecuted,
  stuckWhy,
  submissionChange,
  submitted,
} from './sending.js'
import {
  type ChainFacts,
  candidateMemory,
  type Executor,
  inParts,
  isDoomed,
  isDoubtOver,
  isTooLate,
  noteFault,
  type SlotLook,
} from './state.js'

/**
 * `hopes`: which that the newest attempt, else the slot, carries can still be executed.
 * `deadlineUnsettled`: of one that no mined transaction carries: passed, and not in final time.
 */
export type SlotFacts = Omit<ReturnType<typeof factsOf>, 'doomed' | 'reverting'>

/**
 * - `cancel`: a transfer to ourselves, so that later nonces go on.
 * - `record-executed`: final, while one that it does not carry waits for its deadline.
 * - `close-abandoned`: nothing of a former executor's can succeed any more.
 */
export type Action =
  /** `why`: nothing that this program does will change it. */
  | { readonly kind: 'wait'; readonly why?: string | undefined }
  | { readonly kind: 'prepare' }
  | { readonly kind: 'close-taken' | 'close-abandoned' }
  | { readonly kind: 'cancel'; readonly attempt?: SlotAttempt }
  | { readonly kind: 'send' | 'replace' | 'note-sent'; readonly attempt: SlotAttempt }
  | (Mined & {
      readonly kind: 'record-executed' | 'close-executed' | 'close-reverted' | 'close-cancelled'
    })

type Ending = Extract<Action, { kind: `close-${string}` | 'record-executed' }>

interface Mined {
  readonly attempt: SlotAttempt
  readonly receipt: ChainReceipt
}

const wait: Action = { kind: 'wait' }

const minedOf = (
  { attempts }: Slot,
  { receipts }: Pick<ChainFacts, 'receipts'>,
): Mined | undefined =>
  attempts.flatMap((attempt) => {
    const receipt = receipts.get(attempt.hash)
    return receipt ? [{ attempt, receipt }] : []
  })[0]

/**
 * Never a second nonce: whatever is sent carries the slot's own (R3). Receipts of *all* its hashes
 * come first, nonces after (robustness §3).
 */
export function next(slot: Slot, facts: SlotFacts): Action {
  const mined = minedOf(slot, facts)
  const newest = slot.attempts.at(-1)
  if (mined) return afterMined(slot, mined, facts)
  if (facts.nonceFinalized > slot.nonce) return { kind: 'close-taken' }
  if (newest) return afterPending(slot, newest, facts)
  if (!facts.maySign) return { kind: 'close-abandoned' }
  if (!facts.maySend) return wait
  return { kind: facts.hopes === 'none' ? 'cancel' : 'prepare' }
}

function afterPending(slot: Slot, newest: SlotAttempt, facts: SlotFacts): Action {
  const { hopes, maySign } = facts
  // Maybe by us, with a receipt that lags: only finalized state decides (R15).
  if (facts.nonceLatest > slot.nonce) return wait
  const isHeld = facts.held.has(newest.hash)
  if (isHeld && newest.sentAtMs === null) return { kind: 'note-sent', attempt: newest }
  if (!facts.maySend) return wait
  const isProposal = newest.kind === 'propose'
  const isSunk = isProposal && hopes !== 'all'
  const signed = slot.attempts.filter(({ kind }) => kind === newest.kind).length
  const anew: Action = { kind: isProposal && signed < mostAttempts ? 'prepare' : 'cancel' }
  if (maySign && isSunk) return { kind: hopes === 'none' ? 'cancel' : 'replace', attempt: newest }
  if (maySign && isProposal && facts.refitDue && !isHeld) return anew
  if (maySign && facts.bumpDue && signed < mostAttempts)
    return { kind: isProposal ? 'replace' : 'cancel', attempt: newest }
  if (isHeld) return { kind: 'wait', why: maySign ? stuckWhy(slot) : undefined }
  if (!maySign && facts.expired) return { kind: 'close-abandoned' }
  if (maySign && facts.renewDue && newest.sentAtMs === null) return anew
  return facts.sendDue && !isSunk ? { kind: 'send', attempt: newest } : wait
}

/** A receipt that is not final is waited for: nothing of it is recorded (R14). */
function afterMined(
  { minedIn }: Slot,
  mined: Mined,
  { finalizedNumber, deadlineUnsettled }: SlotFacts,
): Action {
  const { attempt, receipt } = mined
  if (receipt.blockNumber > finalizedNumber)
    return attempt.sentAtMs === null ? { kind: 'note-sent', attempt } : wait
  const isCancel = attempt.kind === 'cancel'
  if (!isCancel && receipt.status === 'reverted') return { ...mined, kind: 'close-reverted' }
  if (!deadlineUnsettled) return { ...mined, kind: isCancel ? 'close-cancelled' : 'close-executed' }
  const isRecorded = isCancel || minedIn === receipt.blockHash
  return isRecorded ? wait : { ...mined, kind: 'record-executed' }
}

const minedChange = (
  slot: Slot,
  { transactionHash: hash, blockNumber, blockHash, status, gasUsed, gasPriceWei }: ChainReceipt,
): Change => ({
  ...{ kind: 'slot.mined', slotId: slot.id, hash, blockNumber: String(blockNumber) },
  ...{ blockHash, status, gasUsed: String(gasUsed) },
  ...(gasPriceWei !== undefined && { gasPriceWei: String(gasPriceWei) }),
})

function executedChanges(
  { transactionHash: hash, logs }: ChainReceipt,
  carried: readonly Candidate[],
  nowMs: number,
  isOnRecord: boolean,
): Change[] {
  return carried.flatMap((candidate) => {
    const { progress } = candidate
    if (isOnRecord && progress.status === 'executed') return []
    const confirmed: CandidateSubmission = {
      ...submitted(hash, candidate, nowMs),
      status: 'confirmed',
      confirmedAtMs: (isOnRecord && submissionOf(progress)?.confirmedAtMs) || nowMs,
    }
    const found = findProposed(logs, candidate)
    const detail = `The transaction ${hash} succeeded without a ProposePrice for this proposal.`
    const end = found
      ? executed(progress, nowMs, {
          ...{ ...confirmed, status: 'indexed', indexedAtMs: nowMs },
          proposalEventIndex: found.log.logIndex,
        })
      : failed(
          selected(progress, nowMs, confirmed),
          failureOf('indexing', 'execution_reverted', detail),
        )
    return [submissionChange(candidate, nowMs, confirmed), progressChange(candidate, end)]
  })
}

type SlotEnd =
  | RoundOutcome
  /** `isUnexplained`: its own proposal would have passed, in a transaction that reverted. */
  | { readonly kind: 'again'; readonly isUnexplained?: true }

interface CandidateEnd {
  readonly candidate: Candidate
  readonly end: SlotEnd
}

function endChanges(
  { candidate, end }: CandidateEnd,
  without: 'reverted' | 'dropped',
  nowMs: number,
): Change[] {
  const { progress } = candidate
  if (progress.status === 'executed') {
    // Versions up to 0.2 could count it before it was final; the way back is through selected.
    const { transactionHash } = progress.submission
    const back = selected(progress, nowMs, submitted(transactionHash, candidate, nowMs))
    const onward = endChanges({ candidate: { ...candidate, progress: back }, end }, without, nowMs)
    return [progressChange(candidate, back), ...onward]
  }
  if (end.kind === 'executed') return stepsToExecuted(candidate, nowMs, end.proposal)
  if (end.kind === 'again') return [progressChange(candidate, standsInAgain(progress, nowMs))]
  const before = submissionOf(progress)
  const submission = before && { ...before, status: without }
  return [progressChange(candidate, failed(progress, end.failure, submission))]
}

export async function gather(
  executor: Executor,
  { latest }: Heads,
  maySend: boolean,
): Promise<ReadonlyMap<string, ChainFacts>> {
  const { chain, ledger, turn, maybeDead } = executor.ports
  /** Only canonical blocks count (R14), and none that the view has not followed yet. */
  const canonicalReceipt = async (hash: Hex): Promise<readonly [Hex, ChainReceipt][]> => {
    const receipt = await chain.receipt(hash)
    if (receipt === null || receipt.blockNumber > latest.number) return []
    const header = await chain.block(receipt.blockNumber)
    return header?.hash === receipt.blockHash ? [[receipt.transactionHash, receipt]] : []
  }
  const gathered = ledger.slots().map(async (slot) => {
    const own = ledger.active().filter(({ id }) => slot.candidateIds.includes(id))
    const hashes = slot.attempts.map(({ hash }) => hash)
    const isDead = (one: Candidate) => isDoomedAt(executor.ports, slot, one, latest.number)
    const [nonceLatest, nonceFinalized, found, seen, dead] = await Promise.all([
      chain.transactionCount(slot.executor, 'latest'),
      chain.transactionCount(slot.executor, 'finalized'),
      Promise.all(hashes.map(canonicalReceipt)),
      Promise.all(hashes.map((hash) => chain.hasTransaction(hash))),
      // Memory alone cancels nothing: what may be dead by it is read again.
      inParts(own.filter(maybeDead), turn, async (one) => ((await isDead(one)) ? [one.id] : [])),
    ])
    const receipts = new Map(found.flat())
    const held = new Set(receipts.size > 0 ? [] : hashes.filter((_, index) => seen[index]))
    const sunk = slot.attempts
      .filter(({ hash }) => receipts.get(hash)?.status === 'reverted')
      .flatMap(({ candidateIds }) => candidateIds)
    const culprits = own.filter(({ id }) => sunk.includes(id))
    const reverting = new Set(culprits.map(({ proposer }) => proposer))
    const counts = { maySend, nonceLatest, nonceFinalized }
    const doomed = new Set(dead.flat())
    return [slot.id, { ...counts, receipts, held, doomed, reverting }] as const
  })
  return new Map(await Promise.all(gathered))
}

export function factsOf(look: SlotLook) {
  const { executor, slot, alive, heads, shown } = look
  const newest = slot.attempts.at(-1)
  const mined = minedOf(slot, shown)
  const carriedIds = newest?.kind === 'propose' ? newest.candidateIds : slot.candidateIds
  const hopeful = alive.filter(
    (candidate) => carriedIds.includes(candidate.id) && !isDoomed(look, candidate),
  )
  const isSettled = ({ deadline }: Candidate) => heads.finalized.timestamp > BigInt(deadline)
  return {
    ...shown,
    ...resendDue(look),
    finalizedNumber: heads.finalized.number,
    maySign: slot.executor === executor.ports.signer.address,
    hopes: hopeful.length === 0 ? 'none' : hopeful.length === carriedIds.length ? 'all' : 'some',
    expired: alive.every(isSettled),
    deadlineUnsettled: alive.some(
      (candidate) =>
        !(mined && carries(mined.attempt, candidate)) &&
        isTooLate(executor, candidate) &&
        !isSettled(candidate),
    ),
  }
}

async function proposalOf(
  { executor, slot, heads }: SlotLook,
  candidate: Candidate,
  expected: Candidate | undefined,
) {
  const { chain, contracts } = executor.ports
  const request = callOf(slot, candidate)?.request
  if (request === undefined) return undefined
  return unlessRefused(
    locateProposal(chain, request, contracts.signedProposer, heads.finalized, expected),
  )
}

async function isShownMined(look: SlotLook, candidate: Candidate): Promise<boolean> {
  const { slot, memory } = look
  const proposal = await proposalOf(look, candidate, undefined)
  const attempt = slot.attempts.find(({ hash }) => hash === proposal?.transactionHash)
  if (attempt === undefined) return false
  const shown = `the node shows the proposal of transaction ${attempt.hash}`
  noteFault(memory, `${shown}, and contradicts it by the receipt`)
  return true
}

async function failsByReceipt(look: SlotLook, candidate: Candidate): Promise<boolean> {
  const { executor, slot, heads, memory } = look
  if (await isShownMined(look, candidate)) return false
  // A real success spends the permit nonce.
  if (await isSpentAt(executor.ports, candidate, heads.finalized.number)) return true
  const success = `the node contradicts a success of nonce ${slot.nonce}`
  noteFault(memory, `${success}: the permit nonce of ${candidate.id} is not spent`)
  return false
}

/**
 * Whether it can only revert. A round that holds the very proposal is not lost: the receipt of our
 * own transaction lags, or is on another node's branch (R14).
 */
async function isDoomedAt(
  ports: Executor['ports'],
  slot: Slot,
  candidate: Candidate,
  blockNumber: bigint,
) {
  const request = callOf(slot, candidate)?.request
  const [isSpent, held] = await Promise.all([
    isSpentAt(ports, candidate, blockNumber),
    request && heldRequest(ports.chain, blockNumber, request),
  ])
  if (held) {
    const holder = lowercase(held.proposer)
    if (holder === candidate.proposer && String(held.proposedPrice) === candidate.price)
      return false
    if (lowercase(held.currency) === zeroAddress || holder !== zeroAddress) return true
  }
  if (isSpent) return true
  // The requester may be in another round than the oracle would still take.
  const { questionId, timestamp } = candidate.round
  const current = await unlessRefused(ports.readRound(questionId, blockNumber))
  return current !== undefined && current.timestamp !== timestamp
}

const again: SlotEnd = { kind: 'again' }

const endsWithout = (candidates: readonly Candidate[], heads: Heads): CandidateEnd[] =>
  candidates.map((candidate) => ({ candidate, end: endOf(candidate, heads) }))

function endOf({ deadline }: Candidate, { finalized }: Heads): SlotEnd {
  if (finalized.timestamp <= BigInt(deadline)) return again
  const detail = `The transaction could not be mined before the permit deadline ${deadline}.`
  return { kind: 'failed', failure: failureOf('submission', 'submission_expired', detail) }
}

async function close(
  { executor, slot, alive, shown }: SlotLook,
  outcome: SlotOutcome,
  ends: readonly CandidateEnd[],
  before: readonly Change[] = [],
  failures: readonly WalletFailure[] = [],
): Promise<false> {
  const { ledger, clock } = executor.ports
  const basis = [...alive, ...ends.map(({ candidate }) => candidate)]
  const without = outcome.kind === 'reverted' ? 'reverted' : 'dropped'
  const closed = { kind: 'slot.closed', slotId: slot.id, outcome } as const
  const changes = [
    ...before,
    ...ends.flatMap((one) => endChanges(one, without, clock.nowMs())),
    failures.length > 0 ? { ...closed, failures } : closed,
  ]
  if (!(await ledger.commit(changes, basis))) return false
  executor.slots.set(slot.id, { noted: new Set(), shown })
  return false
}

/** Whether the slot is to be looked at once more. */
export async function end(look: SlotLook, action: Ending): Promise<boolean> {
  switch (action.kind) {
    case 'record-executed':
    case 'close-executed':
      return endExecuted(look, action, action.kind === 'record-executed')
    case 'close-reverted':
      return endReverted(look, action)
    case 'close-cancelled':
      return endWithout(look, action.receipt)
    case 'close-abandoned':
      return endWithout(look)
    case 'close-taken':
      return look.shown.maySend && endTaken(look)
  }
}

/** `isOpen`: another candidate waits for its deadline, and the slot with it. */
async function endExecuted(
  look: SlotLook,
  { attempt, receipt }: Mined,
  isOpen: boolean,
): Promise<boolean> {
  const { executor, slot, alive, heads } = look
  const { clock, ledger, failpoint, newestHeads, noteSpent } = executor.ports
  const isOnRecord = slot.minedIn === receipt.blockHash
  const carried = alive.filter((candidate) => carries(attempt, candidate))
  const lost = carried.filter(
    (candidate) =>
      !(isOnRecord && candidate.progress.status === 'executed') &&
      !findProposed(receipt.logs, candidate),
  )
  for (const candidate of lost) if (!(await failsByReceipt(look, candidate))) return false
  const changes = [
    ...(isOnRecord ? [] : [minedChange(slot, receipt)]),
    ...executedChanges(receipt, carried, clock.nowMs(), isOnRecord),
  ]
  // SignedProposer's event names no nonce.
  for (const candidate of carried) noteSpent(candidate, newestHeads().finalized)
  if (isOpen) return lost.length === 0 && ledger.commit(changes, alive)
  const isLost = lost.length > 0 && lost.length === carried.length
  // Also of a lost one: a round that a slot was executed for has no second transaction (R3).
  const rounds = new Set(isLost ? [] : carried.map(({ round }) => round.key))
  const standIns = ledger
    .active()
    .filter(
      ({ id, round, progress }) =>
        rounds.has(round.key) && !slot.candidateIds.includes(id) && progress.status !== 'executed',
    )
    .map((candidate): CandidateEnd => {
      const detail = 'Another candidate was executed for this round.'
      const failure = failureOf(stageOf(candidate.progress), 'not_selected', detail)
      return { candidate, end: { kind: 'failed', failure } }
    })
  const leftOut = alive.filter((candidate) => !carries(attempt, candidate))
  await failpoint('confirmed')
  return close(
    look,
    { kind: isLost ? 'reverted' : 'executed', hash: attempt.hash },
    [...endsWithout(leftOut, heads), ...standIns],
    changes,
  )
}

function endWithout(look: SlotLook, receipt?: ChainReceipt): Promise<false> {
  const ends = endsWithout(look.alive, look.heads)
  if (receipt === undefined) return close(look, { kind: 'foreign', hash: null }, ends)
  const outcome = { kind: 'cancelled', hash: receipt.transactionHash } as const
  // An allowed wallet may have made it worthless: it counts, and no more.
  const failures = failuresOf(look, receipt, ends, true)
  return close(look, outcome, ends, [minedChange(look.slot, receipt)], failures)
}

const ownCodes = new Set([
  'insufficient_balance',
  'insufficient_allowance',
  'permit_nonce_used',
  'signature_not_authorized',
  'execution_reverted',
])

/** Where it is neither one's own fault nor the operator's, it is every one's. */
function failuresOf(
  { heads }: SlotLook,
  { gasUsed }: ChainReceipt,
  ends: readonly CandidateEnd[],
  isCancelled = false,
): readonly WalletFailure[] {
  const isExplained = ends.some(({ end }) => end.kind !== 'again' || !end.isUnexplained)
  const kindOf = (end: SlotEnd) => {
    if (isCancelled) return 'cancelled'
    if (isExplained && end.kind === 'again') return undefined
    const isOwn = end.kind === 'failed' && ownCodes.has(end.failure.code)
    return isOwn ? 'own' : 'shared'
  }
  const found = new Map<Address, WalletFailure>()
  for (const { candidate, end } of ends) {
    const kind = kindOf(end)
    const wallet = candidate.proposer
    if (kind === undefined || found.get(wallet)?.kind === 'own') continue
    const atSeconds = Number(heads.latest.timestamp)
    found.set(wallet, { wallet, kind, gasUsed: String(gasUsed), atSeconds })
  }
  return [...found.values()]
}

async function endReverted(look: SlotLook, mined: Mined): Promise<false> {
  const { executor, slot, alive } = look
  const { attempt, receipt } = mined
  const ends: CandidateEnd[] = []
  for (const candidate of alive) {
    if (await isShownMined(look, candidate)) return false
    ends.push({ candidate, end: await explainRevert(look, candidate, mined) })
  }
  if (attempt.candidateIds.length > 1)
    for (const { id } of alive) candidateMemory(executor.candidates, id).isAlone = true
  const carried = ends.filter(({ candidate }) => carries(attempt, candidate))
  const failures = failuresOf(look, receipt, carried)
  // Versions up to 0.2 recorded a revert before it was final.
  const changes = slot.minedIn === receipt.blockHash ? [] : [minedChange(slot, receipt)]
  return close(look, { kind: 'reverted', hash: attempt.hash }, ends, changes, failures)
}

async function endTaken(look: SlotLook): Promise<false> {
  const { slot, alive, heads, memory } = look
  if (!isDoubtOver(memory, slot.nonce, heads)) return false
  const newest = slot.attempts.at(-1)
  if (newest && !(await confirmsUsed(look, newest))) return false
  const ends: CandidateEnd[] = []
  for (const candidate of alive) {
    if (await isShownMined(look, candidate)) return false
    const proposal = await proposalOf(look, candidate, candidate)
    const isOwn = proposal?.bySignature
    ends.push({
      candidate,
      end: isOwn ? { kind: 'executed', proposal } : endOf(candidate, heads),
    })
  }
  return close(look, { kind: 'foreign', hash: null }, ends)
}

const rememberedStates = 100n

const failedWith = (code: FailureCode, detail: string, retryable?: boolean): SlotEnd => ({
  kind: 'failed',
  failure: failureOf('confirmation', code, detail, retryable),
})

async function explainRevert(
  { executor: { ports }, slot: { executor }, heads }: SlotLook,
  candidate: Candidate,
  { attempt, receipt }: Mined,
): Promise<SlotEnd> {
  const { chain } = ports
  const { to, gas } = readTransaction(attempt.raw)
  const own = callIn(attempt, candidate.id)
  if (own === undefined) return again
  const isOne = attempt.candidateIds.length === 1
  const isRemembered = receipt.blockNumber + rememberedStates > heads.latest.number
  const last = isRemembered ? receipt.blockNumber : heads.finalized.number
  const revert = await replay(chain, { to, data: own, from: executor, gas }, last)
  if (revert === undefined) {
    if (!isOne) return { kind: 'again', isUnexplained: true }
    const isWallet = (await chain.code(candidate.proposer, last)) !== '0x'
    const because = isWallet
      ? 'the wallet may respond differently when it is mined'
      : 'another transaction interfered'
    const detail = `The transaction ${attempt.hash} reverted, and the same call succeeds at its block: ${because}.`
    return failedWith('execution_reverted', detail, !isWallet)
  }
  // The last 64th stays with the caller when an inner call runs out (EIP-150).
  const gasExhausted = isOne && receipt.gasUsed * 100n >= gas * 97n
  const call = { ...readProposeCalldata(own), executor }
  const known = { stage: 'execution', gasExhausted } as const
  const cause = await readCause(ports, candidate, call, revert.data, revert.block, known)
  if (cause.code === 'out_of_gas') return failedWith('execution_reverted', cause.detail, true)
  if (cause.kind === 'operator') return again
  if (cause.code === 'request_not_open' || cause.code === 'permit_nonce_used') {
    const overtaken = await overtakenBy(ports, candidate, call.request, heads)
    if (overtaken) return overtaken
  }
  return failedWith(cause.code, cause.detail, cause.retryable)
}

async function overtakenBy(
  { chain, contracts, readRound }: QuestionChain,
  candidate: Candidate,
  request: WitnessRequest,
  { finalized }: Heads,
): Promise<SlotEnd | undefined> {
  const { signedProposer } = contracts
  const proposal = await locateProposal(chain, request, signedProposer, finalized, candidate)
  const current = proposal
    ? undefined
    : await unlessRefused(readRound(candidate.round.questionId, finalized.number))
  if (!proposal && !current) return again
  const ending = endingOf(candidate, { proposal, current }, 'confirmation')
  const isNotOpen = ending.kind === 'failed' && ending.failure.code === 'request_not_open'
  return isNotOpen ? undefined : ending
}

async function replay(chain: Chain, call: ChainCall, blockNumber: bigint) {
  // What made it revert may have changed within the block.
  for (const block of [blockNumber, blockNumber - 1n]) {
    const data = await revertOf(chain, call, block)
    if (data !== undefined) return { data, block }
  }
  return undefined
}
