/**
 * What chain and ledger show of open slots: receipts of all their hashes, the nonces of their
 * executors, and where their candidates stand (robustness §3); and how slots end by it in finalized
 * state, and their candidates with them (contract §5, R14, R27).
 */
import { findProposed, locateProposal } from '#chain/propose'
import { readTerms } from '#chain/questions'
import { heldRequest, lowercase, unlessRefused, zeroAddress } from '#chain/reading'
import { causeOf, type RevertCause } from '#chain/reverts'
import {
  type BlockHeader,
  type Chain,
  type ChainCall,
  ChainError,
  type ChainReceipt,
  type Hex,
} from '#ports'
import type { Candidate } from '#protocol/candidate'
import type { FailureCode } from '#protocol/codes'
import { nonceBit } from '#protocol/permit'
import type { Address } from '#protocol/schema'
import type { WitnessRequest } from '#protocol/witness'
import type { Change, Slot, SlotAttempt, SlotOutcome, WalletFailure } from '../ledger/ledger.js'
import {
  endingOf,
  isSpentAt,
  type OwnProposal,
  type QuestionChain,
  readFunds,
  readRole,
  readWhitelist,
} from '../validation/contract-reads.js'
import { failureOf } from '../validation/progress.js'
import { inParts } from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import { confirmsUsed, mayAsk, mayRaise, noteMined, resendDue } from './sending.js'
import {
  type CandidateEnd,
  type ChainFacts,
  closeChanges,
  executedChanges,
  type MinedAction,
  minedChange,
  notSelected,
  type SlotEnd,
  type SlotFacts,
  slotStateOf,
} from './slot.js'
import { type Executor, isDoomed, isTooLate, type SlotLook } from './state.js'
import { callIn, readProposeCalldata, readTransaction } from './transaction.js'

export async function gather(
  chain: Chain,
  slots: readonly Slot[],
  heads: Heads,
  maySend: boolean,
): Promise<Map<string, ChainFacts>> {
  const executors = [...new Set(slots.map(({ executor }) => executor))]
  const nonces = new Map(
    await Promise.all(
      executors.map(async (executor) => {
        const [nonceLatest, nonceFinalized] = await Promise.all([
          chain.transactionCount(executor, 'latest'),
          chain.transactionCount(executor, 'finalized'),
        ])
        return [executor, { nonceLatest, nonceFinalized }] as const
      }),
    ),
  )
  const headers = new Map<bigint, Promise<BlockHeader | null>>()
  /** Only canonical blocks count (R14), and none that the view has not followed yet. */
  const canonicalReceipt = async (hash: Hex): Promise<readonly [Hex, ChainReceipt][]> => {
    const receipt = await chain.receipt(hash)
    if (receipt === null || receipt.blockNumber > heads.latest.number) return []
    const header = headers.get(receipt.blockNumber) ?? chain.block(receipt.blockNumber)
    headers.set(receipt.blockNumber, header)
    return (await header)?.hash === receipt.blockHash ? [[receipt.transactionHash, receipt]] : []
  }
  const gathered = slots.map(async ({ id, executor, attempts }) => {
    const hashes = attempts.map(({ hash }) => hash)
    // Asked together: one after the other would cost each look another round trip.
    const [found, seen] = await Promise.all([
      Promise.all(hashes.map(canonicalReceipt)),
      Promise.all(hashes.map((hash) => chain.hasTransaction(hash))),
    ])
    const receipts = new Map(found.flat())
    const held = new Set(receipts.size > 0 ? [] : hashes.filter((_, index) => seen[index]))
    const { nonceLatest = 0, nonceFinalized = 0 } = nonces.get(executor) ?? {}
    return [id, { maySend, nonceLatest, nonceFinalized, receipts, held }] as const
  })
  return new Map(await Promise.all(gathered))
}

/**
 * All that a slot's next action depends on. What is seen of its transactions is noted: mined ones,
 * and that a refused one is taken.
 */
export function factsOf(look: SlotLook): SlotFacts {
  const { executor, slot, heads, shown } = look
  const { ports, faults } = executor
  const newest = slot.attempts.at(-1)
  for (const hash of shown.receipts.keys()) noteMined(executor, hash)
  const isHeld = newest !== undefined && shown.held.has(newest.hash)
  if (isHeld || shown.receipts.size > 0 || shown.nonceLatest > slot.nonce) faults.taken(slot.id)
  const due = newest && resendDue(look, newest)
  return {
    ...shown,
    finalizedNumber: heads.finalized.number,
    ...candidateFacts(look),
    sendDue: due?.send ?? true,
    refitDue: due?.refit ?? false,
    renewDue: due?.renew ?? false,
    bumpDue:
      newest !== undefined &&
      due?.bump === true &&
      mayRaise(look, newest) &&
      mayAsk(executor, slot.id, heads),
    maySign: slot.executor === ports.signer.address,
  }
}

function candidateFacts({
  executor,
  slot,
  alive,
  heads,
  shown,
}: SlotLook): Pick<SlotFacts, 'hopes' | 'deadlineUnsettled' | 'expired'> {
  const state = slotStateOf(slot, shown)
  const mined = state.kind === 'mined' ? state.attempt : undefined
  const newest = slot.attempts.at(-1)
  const carriedIds = newest?.kind === 'propose' ? newest.candidateIds : slot.candidateIds
  const hopeful = alive.filter(
    (candidate) => carriedIds.includes(candidate.id) && !isDoomed(executor, candidate, heads),
  )
  const isSettled = ({ deadline }: Candidate) => heads.finalized.timestamp > BigInt(deadline)
  return {
    hopes: hopeful.length === 0 ? 'none' : hopeful.length === carriedIds.length ? 'all' : 'some',
    expired: alive.every(isSettled),
    deadlineUnsettled: alive.some(
      (candidate) =>
        mined?.candidateIds.includes(candidate.id) !== true &&
        isTooLate(executor, candidate, heads) &&
        !isSettled(candidate),
    ),
  }
}

function requestOf({ attempts }: Slot, { id }: Candidate): WitnessRequest | undefined {
  const call = attempts.flatMap((attempt) => callIn(attempt, id) ?? [])[0]
  return call && readProposeCalldata(call).request
}

async function proposalOf(
  { executor, slot, heads }: SlotLook,
  candidate: Candidate,
  expected: Candidate | undefined,
) {
  const { chain, contracts } = executor.ports
  const request = requestOf(slot, candidate)
  if (request === undefined) return undefined
  // An oracle that does not answer as one shows nothing.
  return unlessRefused(
    locateProposal(chain, request, contracts.signedProposer, heads.finalized, expected),
  )
}

/** Whether the candidate's round holds, in final state, a proposal of the slot's own. */
async function isShownMined(look: SlotLook, candidate: Candidate): Promise<boolean> {
  const { executor, slot } = look
  const proposal = await proposalOf(look, candidate, undefined)
  const attempt = slot.attempts.find(({ hash }) => hash === proposal?.transactionHash)
  if (attempt === undefined) return false
  executor.faults.note(
    slot.id,
    `the node shows the proposal of transaction ${attempt.hash}, and contradicts it by the receipt`,
  )
  return true
}

/** Whether final state agrees with a receipt of success that lacks this candidate's proposal. */
async function failsByReceipt(look: SlotLook, candidate: Candidate): Promise<boolean> {
  const { executor, slot, heads } = look
  if (await isShownMined(look, candidate)) return false
  // A real success spends the permit nonce.
  if (await isSpentAt(executor.ports, candidate, heads.finalized.number)) return true
  executor.faults.note(
    slot.id,
    `the node contradicts a success of nonce ${slot.nonce}: the permit nonce of ${candidate.id} is not spent`,
  )
  return false
}

async function ownProposal(look: SlotLook, candidate: Candidate): Promise<OwnProposal | undefined> {
  const proposal = await proposalOf(look, candidate, candidate)
  return proposal?.bySignature ? proposal : undefined
}

/**
 * Candidates of open slots that can only revert when they are mined, as the head shows it. Memory
 * alone cancels nothing: what may be dead by it is read again.
 */
export async function readDoomed(
  { ports }: Executor,
  { latest }: Heads,
): Promise<ReadonlySet<string>> {
  const { ledger, turn } = ports
  const suspects = ledger.active().flatMap((candidate) => {
    const slot = ledger.slotOf(candidate.id)
    if (slot === undefined) return []
    return ports.maybeSpent(candidate) || !ports.maybeOpen(candidate) ? [{ slot, candidate }] : []
  })
  const found = await inParts(suspects, readAtOnce, turn, async ({ slot, candidate }) => {
    const request = requestOf(slot, candidate)
    return (await isDoomedAt(ports, request, candidate, latest.number)) ? [candidate.id] : []
  })
  return new Set(found.flat())
}

const readAtOnce = 8

/**
 * Whether the permit nonce is spent, or the round gone, taken or left by its requester. A round
 * that holds the very proposal is not lost: the receipt of our own transaction lags, or is on
 * another node's branch (R14).
 */
async function isDoomedAt(
  ports: Executor['ports'],
  request: WitnessRequest | undefined,
  candidate: Candidate,
  blockNumber: bigint,
) {
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
  // The requester may be in another round, while the oracle would still take a proposal of this one.
  const { questionId, timestamp } = candidate.round
  const current = await unlessRefused(ports.readRound(questionId, blockNumber))
  return current !== undefined && current.timestamp !== timestamp
}

const isCarried = ({ candidateIds }: SlotAttempt, { id }: Candidate) => candidateIds.includes(id)

function withoutTransaction({ deadline }: Candidate, { finalized }: Heads): SlotEnd {
  if (finalized.timestamp <= BigInt(deadline)) return { kind: 'again' }
  const detail = `The transaction could not be mined before the permit deadline ${deadline}.`
  return { kind: 'failed', failure: failureOf('submission', 'submission_expired', detail) }
}

const endsWithout = (candidates: readonly Candidate[], heads: Heads): CandidateEnd[] =>
  candidates.map((candidate) => ({ candidate, end: withoutTransaction(candidate, heads) }))

async function close(
  { executor, slot, alive }: SlotLook,
  outcome: SlotOutcome,
  ends: readonly CandidateEnd[],
  before: readonly Change[] = [],
  failures: readonly WalletFailure[] = [],
): Promise<false> {
  const { ledger, clock } = executor.ports
  const basis = [...alive, ...ends.map(({ candidate }) => candidate)]
  const changes = [...before, ...closeChanges(slot, outcome, ends, clock.nowMs(), failures)]
  if (!(await ledger.commit(changes, basis))) return false
  executor.loads.delete(slot.id)
  executor.takenSince.delete(slot.id)
  executor.faults.drop(slot.id)
  for (const { hash } of slot.attempts) executor.resends.delete(hash)
  return false
}

/**
 * Each that it carries is executed, or ends; where none is, the slot ends as reverted. `isOpen`:
 * another candidate waits for its deadline, and the slot with it.
 */
export async function closeExecuted(
  look: SlotLook,
  { attempt, receipt }: MinedAction,
  isOpen = false,
): Promise<boolean> {
  const { executor, slot, alive, heads } = look
  const { clock, ledger, failpoint, newestHeads, noteNonces } = executor.ports
  const isOnRecord = slot.minedIn === receipt.blockHash
  const carried = alive.filter((candidate) => isCarried(attempt, candidate))
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
  for (const { proposer, nonce } of carried) {
    const { word, mask } = nonceBit(BigInt(nonce))
    noteNonces(proposer, word, mask, newestHeads().finalized.hash)
  }
  if (isOpen) return lost.length === 0 && ledger.commit(changes, alive)
  const isLost = lost.length > 0 && lost.length === carried.length
  // Also of a lost one: a round that a slot was executed for has no second transaction (R3).
  const rounds = new Set(isLost ? [] : carried.map(({ round }) => round.key))
  const standIns = ledger
    .active()
    .filter(
      ({ id, round, progress }) =>
        progress.status !== 'executed' && rounds.has(round.key) && !slot.candidateIds.includes(id),
    )
    .map((candidate): CandidateEnd => {
      return { candidate, end: { kind: 'failed', failure: notSelected(candidate) } }
    })
  const leftOut = alive.filter((candidate) => !isCarried(attempt, candidate))
  await failpoint('confirmed')
  return close(
    look,
    { kind: isLost ? 'reverted' : 'executed', hash: attempt.hash },
    [...endsWithout(leftOut, heads), ...standIns],
    changes,
  )
}

export function closeWithout(look: SlotLook, receipt?: ChainReceipt): Promise<false> {
  const ends = endsWithout(look.alive, look.heads)
  if (receipt === undefined) return close(look, { kind: 'foreign', hash: null }, ends)
  const outcome = { kind: 'cancelled', hash: receipt.transactionHash } as const
  // Whoever made it worthless, an allowed wallet may have: it counts, and no more.
  const failures = failuresOf(look, receipt, ends, () => 'cancelled')
  return close(look, outcome, ends, [minedChange(look.slot, receipt)], failures)
}

const ownCodes = new Set([
  'insufficient_balance',
  'insufficient_allowance',
  'permit_nonce_used',
  'signature_not_authorized',
  'execution_reverted',
])

/**
 * Those are charged whose own proposal failed in it. Where none did, and the operator had no part
 * in it either, it is every one's.
 */
function revertKind(
  ends: readonly CandidateEnd[],
): (end: SlotEnd) => WalletFailure['kind'] | undefined {
  const isExplained = ends.some(({ end }) => end.kind !== 'again' || end.isUnexplained !== true)
  return (end) => {
    if (!isExplained) return 'shared'
    if (end.kind === 'again') return undefined
    return end.kind === 'failed' && ownCodes.has(end.failure.code) ? 'own' : 'shared'
  }
}

function failuresOf(
  { heads }: SlotLook,
  { gasUsed }: ChainReceipt,
  ends: readonly CandidateEnd[],
  kindOf: (end: SlotEnd) => WalletFailure['kind'] | undefined,
): readonly WalletFailure[] {
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

export async function closeReverted(look: SlotLook, action: MinedAction): Promise<false> {
  const { executor, slot, alive } = look
  const { attempt, receipt } = action
  const ends: CandidateEnd[] = []
  for (const candidate of alive) {
    if (await isShownMined(look, candidate)) return false
    ends.push({ candidate, end: await explainRevert(look, candidate, action) })
  }
  if (attempt.candidateIds.length > 1)
    for (const { candidate } of ends) executor.isolated.set(candidate.id, true)
  const carried = ends.filter(({ candidate }) => isCarried(attempt, candidate))
  const failures = failuresOf(look, receipt, carried, revertKind(carried))
  // Versions up to 0.2 recorded a revert before it was final.
  const mined = slot.minedIn === receipt.blockHash ? [] : [minedChange(slot, receipt)]
  return close(look, { kind: 'reverted', hash: attempt.hash }, ends, mined, failures)
}

export async function closeTaken(look: SlotLook): Promise<false> {
  const { executor, slot, alive, heads } = look
  const since = executor.takenSince.get(slot.id)
  if (since === undefined) executor.takenSince.set(slot.id, heads.latest.number)
  // That node may be ahead of the one that tells heads and receipts: its head has to be final
  // here.
  if (since === undefined || heads.finalized.number <= since) return false
  const newest = slot.attempts.at(-1)
  if (newest && !(await confirmsUsed(look, newest))) return false
  const ends: CandidateEnd[] = []
  for (const candidate of alive) {
    if (await isShownMined(look, candidate)) return false
    const proposal = await ownProposal(look, candidate)
    const end: SlotEnd = proposal
      ? { kind: 'executed', proposal }
      : withoutTransaction(candidate, heads)
    ends.push({ candidate, end })
  }
  return close(look, { kind: 'foreign', hash: null }, ends)
}

/** Blocks whose state a usual node still has. */
const rememberedStates = 100n

const again: SlotEnd = { kind: 'again' }
const failedWith = (code: FailureCode, detail: string, retryable?: boolean): SlotEnd => ({
  kind: 'failed',
  failure: failureOf('confirmation', code, detail, retryable),
})

async function explainRevert(
  { executor: { ports }, slot: { executor }, heads }: SlotLook,
  candidate: Candidate,
  { attempt, receipt }: MinedAction,
): Promise<SlotEnd> {
  const { chain } = ports
  const { to, gas } = readTransaction(attempt.raw)
  const own = callIn(attempt, candidate.id)
  if (own === undefined) return again
  const isOne = attempt.candidateIds.length === 1
  const isRemembered = receipt.blockNumber + rememberedStates > heads.latest.number
  const at = isRemembered ? await chain.block(receipt.blockNumber) : null
  const last = (at ?? heads.finalized).number
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
  // Nearly all of the limit: the last 64th stays with the caller when an inner call runs out
  // (EIP-150).
  const gasExhausted = isOne && receipt.gasUsed * 100n >= gas * 97n
  const call = { ...readProposeCalldata(own), executor, gasExhausted }
  const cause = await readCause(ports, candidate, call, revert)
  if (cause.kind === 'operator')
    return cause.code === 'out_of_gas'
      ? failedWith('execution_reverted', cause.detail, true)
      : again
  if (cause.code === 'request_not_open' || cause.code === 'permit_nonce_used') {
    const overtaken = await overtakenBy(ports, candidate, call.request, heads)
    if (overtaken) return overtaken
  }
  return failedWith(cause.code, cause.detail, cause.retryable)
}

/** It may have changed within the block too: it is read where it reverted. */
async function readCause(
  ports: QuestionChain,
  candidate: Candidate,
  call: ReturnType<typeof readProposeCalldata> & {
    readonly executor: Address
    readonly gasExhausted: boolean
  },
  { data, block: at }: { data: Hex; block: bigint },
): Promise<RevertCause> {
  const { chain, contracts } = ports
  const { request, token, executor, gasExhausted } = call
  const { proposer } = candidate
  const [list, funds, terms, code, executorHasRole] = await Promise.all([
    unlessRefused(readWhitelist(ports, request, proposer, at)),
    unlessRefused(readFunds(ports, token, proposer, at)),
    unlessRefused(readTerms({ chain, contracts, at }, request)),
    chain.code(proposer, at),
    unlessRefused(readRole(ports, executor, at)),
  ])
  return causeOf(data, {
    stage: 'execution',
    signedProposer: contracts.signedProposer,
    oracle: request.oracle,
    hasCustomWhitelist: list?.custom ?? false,
    neededRaw: BigInt(candidate.amount),
    ...funds,
    ...(terms && { roundState: terms.state, bondRaw: terms.totalBondRaw }),
    proposerHasCode: code !== '0x',
    ...(executorHasRole !== undefined && { executorHasRole }),
    ...(list && { spenderListed: list.spenderListed }),
    gasExhausted,
  })
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
  // Asked after the transaction, or gone: decided once that is final.
  if (!proposal && !current) return again
  const ending = endingOf(candidate, { proposal, current }, 'confirmation')
  const isNotOpen = ending.kind === 'failed' && ending.failure.code === 'request_not_open'
  return isNotOpen ? undefined : ending
}

/** At the state after a block, else before it; `undefined` where it succeeds at both. */
async function replay(
  chain: Chain,
  call: ChainCall,
  blockNumber: bigint,
): Promise<{ readonly data: Hex; readonly block: bigint } | undefined> {
  for (const block of [blockNumber, blockNumber - 1n]) {
    try {
      await chain.call(call, block)
    } catch (error) {
      if (error instanceof ChainError && error.kind === 'reverted')
        return { data: error.data, block }
      throw error
    }
  }
  return undefined
}
