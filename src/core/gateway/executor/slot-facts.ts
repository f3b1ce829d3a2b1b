/** What the chain shows of open slots, and how they end by it (robustness §3, contract §5, R14, R27). */
import { findProposed, locateProposal } from '#chain/propose'
import { heldRequest, lowercase, unlessRefused, zeroAddress } from '#chain/reading'
import type { Chain, ChainCall, ChainReceipt, Hex } from '#ports'
import type { Candidate } from '#protocol/candidate'
import type { FailureCode } from '#protocol/codes'
import type { Address } from '#protocol/schema'
import type { WitnessRequest } from '#protocol/witness'
import type { Change, Slot, SlotOutcome, WalletFailure } from '../ledger/ledger.js'
import {
  endingOf,
  isSpentAt,
  type QuestionChain,
  readCause,
  revertOf,
} from '../validation/contract-reads.js'
import { failureOf, stageOf } from '../validation/progress.js'
import { inParts } from '../validation/validation.js'
import type { Heads } from '../view/state.js'
import { confirmsUsed, resendDue } from './sending.js'
import {
  type CandidateEnd,
  type ChainFacts,
  carries,
  endChanges,
  executedChanges,
  type Mined,
  minedChange,
  minedOf,
  type SlotEnd,
  type SlotFacts,
} from './slot.js'
import { type Executor, isDoomed, isDoubtOver, isTooLate, type SlotLook } from './state.js'
import { callIn, callOf, readProposeCalldata, readTransaction } from './transaction.js'

export async function gather(
  chain: Chain,
  slots: readonly Slot[],
  { latest }: Heads,
  maySend: boolean,
): Promise<ReadonlyMap<string, ChainFacts>> {
  /** Only canonical blocks count (R14), and none that the view has not followed yet. */
  const canonicalReceipt = async (hash: Hex): Promise<readonly [Hex, ChainReceipt][]> => {
    const receipt = await chain.receipt(hash)
    if (receipt === null || receipt.blockNumber > latest.number) return []
    const header = await chain.block(receipt.blockNumber)
    return header?.hash === receipt.blockHash ? [[receipt.transactionHash, receipt]] : []
  }
  const gathered = slots.map(async ({ id, executor, attempts }) => {
    const hashes = attempts.map(({ hash }) => hash)
    const [nonceLatest, nonceFinalized, found, seen] = await Promise.all([
      chain.transactionCount(executor, 'latest'),
      chain.transactionCount(executor, 'finalized'),
      Promise.all(hashes.map(canonicalReceipt)),
      Promise.all(hashes.map((hash) => chain.hasTransaction(hash))),
    ])
    const receipts = new Map(found.flat())
    const held = new Set(receipts.size > 0 ? [] : hashes.filter((_, index) => seen[index]))
    return [id, { maySend, nonceLatest, nonceFinalized, receipts, held }] as const
  })
  return new Map(await Promise.all(gathered))
}

export function factsOf(look: SlotLook): SlotFacts {
  const { executor, slot, alive, heads, shown } = look
  const newest = slot.attempts.at(-1)
  const mined = minedOf(slot, shown)
  const carriedIds = newest?.kind === 'propose' ? newest.candidateIds : slot.candidateIds
  const hopeful = alive.filter(
    (candidate) => carriedIds.includes(candidate.id) && !isDoomed(executor, candidate),
  )
  const isSettled = ({ deadline }: Candidate) => heads.finalized.timestamp > BigInt(deadline)
  return {
    ...shown,
    ...resendDue(look, newest),
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

/** Of open slots. Memory alone cancels nothing: what may be dead by it is read again. */
export async function readDoomed(
  { ports }: Executor,
  { latest }: Heads,
): Promise<ReadonlySet<string>> {
  const { ledger, turn } = ports
  const suspects = ledger.active().flatMap((candidate) => {
    const slot = ledger.slotOf(candidate.id)
    if (slot === undefined) return []
    return ports.maybeDead(candidate) ? [{ slot, candidate }] : []
  })
  const found = await inParts(suspects, turn, async ({ slot, candidate }) =>
    (await isDoomedAt(ports, slot, candidate, latest.number)) ? [candidate.id] : [],
  )
  return new Set(found.flat())
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
  candidates.map((candidate) => ({ candidate, end: endWithout(candidate, heads) }))

function endWithout({ deadline }: Candidate, { finalized }: Heads): SlotEnd {
  if (finalized.timestamp <= BigInt(deadline)) return again
  const detail = `The transaction could not be mined before the permit deadline ${deadline}.`
  return { kind: 'failed', failure: failureOf('submission', 'submission_expired', detail) }
}

async function close(
  { executor, slot, alive }: SlotLook,
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
  executor.loads.delete(slot.id)
  executor.doubts.delete(slot.id)
  executor.faults.drop(slot.id)
  for (const { hash } of slot.attempts) executor.resends.delete(hash)
  return false
}

/** `isOpen`: another candidate waits for its deadline, and the slot with it. */
export async function closeExecuted(
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
    .filter(({ id, progress }) => progress.status !== 'executed' && !slot.candidateIds.includes(id))
    .filter(({ round }) => rounds.has(round.key))
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

export function closeWithout(look: SlotLook, receipt?: ChainReceipt): Promise<false> {
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

/** Where nobody's own proposal failed in it, nor the operator had a part, it is every one's. */
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

export async function closeReverted(look: SlotLook, mined: Mined): Promise<false> {
  const { executor, slot, alive } = look
  const { attempt, receipt } = mined
  const ends: CandidateEnd[] = []
  for (const candidate of alive) {
    if (await isShownMined(look, candidate)) return false
    ends.push({ candidate, end: await explainRevert(look, candidate, mined) })
  }
  if (attempt.candidateIds.length > 1) for (const { id } of alive) executor.isolated.set(id, true)
  const carried = ends.filter(({ candidate }) => carries(attempt, candidate))
  const failures = failuresOf(look, receipt, carried)
  // Versions up to 0.2 recorded a revert before it was final.
  const changes = slot.minedIn === receipt.blockHash ? [] : [minedChange(slot, receipt)]
  return close(look, { kind: 'reverted', hash: attempt.hash }, ends, changes, failures)
}

export async function closeTaken(look: SlotLook): Promise<false> {
  const { executor, slot, alive, heads } = look
  if (!isDoubtOver(executor, slot.id, heads)) return false
  const newest = slot.attempts.at(-1)
  if (newest && !(await confirmsUsed(look, newest))) return false
  const ends: CandidateEnd[] = []
  for (const candidate of alive) {
    if (await isShownMined(look, candidate)) return false
    const proposal = await proposalOf(look, candidate, candidate)
    const isOwn = proposal?.bySignature
    ends.push({
      candidate,
      end: isOwn ? { kind: 'executed', proposal } : endWithout(candidate, heads),
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
