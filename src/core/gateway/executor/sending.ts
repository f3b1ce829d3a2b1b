/** Signed, durable, then sent. After a restart everything is due at once: the same bytes (R3). */

import { ordinaryGas } from '#chain/profiles'
import {
  carriedBy,
  gasLimit,
  readProposeCalldata,
  readTransaction,
  signTransaction,
} from '#chain/transaction'
import { ChainError, type ChainLog, type Hex } from '#ports'
import type { Candidate, CandidateSubmission, Progress } from '#protocol/candidate'
import { ProposerError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import type { Change, Slot, SlotAttempt } from '../ledger/ledger.js'
import { progressChange, submissionOf, timesIn } from '../validation/validation.js'
import {
  canRaise,
  type Executor,
  type Fees,
  feesNow,
  type Load,
  largest,
  newSlots,
  noteFault,
  ownSlots,
  type SlotLook,
  type SlotMemory,
  slotMemory,
  standingNow,
  weiOf,
} from './state.js'

/** Of one kind a nonce: the first and five with higher fees (robustness §3). */
export const mostAttempts = 6

/** One raise may come too late for a price that rises; a second says it is not the fee alone. */
export function stuckWhy({ nonce, attempts }: Slot) {
  const newest = attempts.at(-1)
  const signed = attempts.filter(({ kind }) => kind === newest?.kind).length
  if (signed < 3) return undefined
  const raised = signed < mostAttempts ? `${signed - 1} times` : 'as often as allowed'
  return `the transaction of nonce ${nonce} is not mined, though its fee was raised ${raised}: it may be too low for this chain, or a lower nonce is missing`
}

const leastPauseMs = 1_000
const mostPauseMs = 30_000
/** Before the fee is raised; the time where the chain stands still. */
const pendingBlocks = 10n
const pendingMs = 30_000

function resendOf(memory: SlotMemory, hash: Hex) {
  if (memory.resend?.hash !== hash) memory.resend = { hash, tries: 0, dueAtMs: 0 }
  return memory.resend
}

const headOf = ({ ports }: Executor) => ports.newestHeads().latest

export function resendDue(look: SlotLook) {
  const { executor, slot, shown, memory } = look
  const newest = slot.attempts.at(-1)
  const isHeld = newest !== undefined && shown.held.has(newest.hash)
  if (isHeld || shown.receipts.size > 0 || shown.nonceLatest > slot.nonce)
    memory.refused = undefined
  if (newest === undefined)
    return { sendDue: true, refitDue: false, renewDue: false, bumpDue: false }
  const resend = resendOf(memory, newest.hash)
  const { refusal, dueAtMs } = resend
  const head = headOf(executor).number
  const nowMs = executor.ports.clock.monotonicMs()
  // Should a reorganisation undo that it was mined, the wait begins again.
  if (shown.receipts.has(newest.hash)) resend.pending = undefined
  // One that nodes take and drop again pays too little all the same.
  if (isHeld) resend.pending ??= { since: head, sinceMs: nowMs }
  const { pending = { since: head, sinceMs: nowMs } } = resend
  const isPendingLong =
    shown.nonceLatest === slot.nonce &&
    (head - pending.since >= pendingBlocks || (isHeld && nowMs - pending.sinceMs >= pendingMs))
  // One whose fee was raised, and is refused again, waits for the next head.
  const isFirst = slot.attempts.filter(({ kind }) => kind === newest.kind).length === 1
  const isLow = refusal?.kind === 'underpriced' ? isFirst || head > refusal.since : isPendingLong
  return {
    sendDue: nowMs >= dueAtMs,
    refitDue: refusal?.kind === 'too_much_gas',
    renewDue: refusal?.kind === 'refused' && head - refusal.since >= pendingBlocks,
    bumpDue: isLow && mayRaise(look, newest) && mayAsk(executor, memory),
  }
}

function postpone({ ports }: Executor, resend: ReturnType<typeof resendOf>) {
  const range = Math.min(mostPauseMs, leastPauseMs * 2 ** resend.tries) - leastPauseMs
  const [high = 0, low = 0] = ports.random.bytes(2)
  resend.dueAtMs = ports.clock.monotonicMs() + leastPauseMs + (range * (high * 256 + low)) / 65_535
  resend.tries += 1
}

type Wanted = Pick<Load, 'data' | 'gas'> & Pick<SlotAttempt, 'candidateIds'>

const ceilingName = ({ ports }: Executor) => `executor.max_fee_gwei ${ports.config.max_fee_gwei}`

async function fees(
  executor: Executor,
  memory: SlotMemory,
  kind: SlotAttempt['kind'],
  replacing?: SlotAttempt,
) {
  const found = await feesNow(executor.ports, kind, replacing)
  const gas = `gas costs ${headOf(executor).baseFeePerGas} wei and the tip`
  if (!found) noteFault(memory, `${gas}, more than ${ceilingName(executor)} allows: waiting`)
  return found
}

export async function sign(
  look: SlotLook,
  wanted: Wanted | undefined,
  replaced?: SlotAttempt,
): Promise<boolean> {
  const { executor, slot, memory } = look
  const { clock, contracts, signer, failpoint } = executor.ports
  const kind: SlotAttempt['kind'] = wanted ? 'propose' : 'cancel'
  const found = await fees(executor, memory, kind, replaced)
  if (found === undefined) return false
  const { candidateIds, data, gas } = wanted ?? (await selfTransfer(executor))
  const call = { to: wanted ? contracts.signedProposer : signer.address, data, gas }
  const terms = {
    ...{ kind, candidateIds },
    maxFeePerGas: String(found.maxFeePerGas),
    maxPriorityFeePerGas: String(found.maxPriorityFeePerGas),
  } as const
  const same = slot.attempts.find(
    (one) => termsText(one, readTransaction(one.raw)) === termsText(terms, call),
  )
  // The same transaction: the bytes that are there go on.
  if (same !== undefined) {
    if (memory.resend?.hash === same.hash) memory.resend.refusal = undefined
    return false
  }
  if (!mayAsk(executor, memory)) return false
  const unsigned = { chainId: contracts.chainId, nonce: slot.nonce, ...call, ...found }
  const signed = await signTransaction(signer, unsigned).catch((error: unknown) => {
    if (!(error instanceof ProposerError)) throw error
    executor.refused.key = { head: headOf(executor).number, error }
  })
  if (!signed) {
    mayAsk(executor, memory)
    return replaced !== undefined
  }
  executor.refused.key = undefined
  const attempt = { ...signed, ...terms, preparedAtMs: clock.nowMs(), sentAtMs: null }
  if (!(await recordAttempt(look, attempt, false))) return false
  await failpoint('prepared')
  return true
}

const termsText = (
  { kind, maxFeePerGas, maxPriorityFeePerGas }: Omit<SlotAttempt, 'hash' | 'raw' | `${string}AtMs`>,
  { to, data, gas }: ReturnType<typeof readTransaction>,
) => [kind, maxFeePerGas, maxPriorityFeePerGas, to, data, gas].join(' ')

/** Once a head: a key that does not sign has a time limit. */
function mayAsk({ refused: { key }, ports }: Executor, memory: SlotMemory) {
  if (key?.head !== ports.newestHeads().latest.number) return true
  const why = `does not sign: ${key.error.detail}: waiting`
  noteFault(memory, `the key of the executor ${ports.signer.address} ${why}`)
  return false
}

async function selfTransfer({ ports: { chain, signer } }: Executor): Promise<Wanted> {
  const { address } = signer
  const data = '0x'
  const gas = gasLimit(await chain.estimateGas({ to: address, data, from: address }))
  return { candidateIds: [], data, gas }
}

export function mayRaise({ executor, memory }: SlotLook, { kind, maxFeePerGas }: SlotAttempt) {
  if (canRaise(maxFeePerGas, kind, weiOf(executor.ports.config.max_fee_gwei))) return true
  const stuck = `a transaction that pays ${maxFeePerGas} wei for gas at most is not mined`
  noteFault(memory, `${stuck}, and ${ceilingName(executor)} allows no higher fee: waiting`)
  return false
}

export async function send(look: SlotLook, attempt: SlotAttempt): Promise<boolean> {
  const { executor, slot, memory } = look
  const { chain, clock, failpoint } = executor.ports
  try {
    await chain.send(attempt.raw)
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    // None of the responses leads to another nonce (robustness §3).
    if (error.kind !== 'already_known') {
      noteRefusal(look, attempt, error)
      return error.kind === 'underpriced' || error.kind === 'too_much_gas'
    }
  }
  const resend = resendOf(memory, attempt.hash)
  resend.pending ??= { since: headOf(executor).number, sinceMs: clock.monotonicMs() }
  resend.refusal = undefined
  postpone(executor, resend)
  memory.refused = undefined
  memory.looking?.clear()
  noteFault(memory, stuckWhy(slot))
  await recordAttempt(look, attempt, true)
  await failpoint('sent')
  return false
}

function noteRefusal(
  { executor, slot, memory }: SlotLook,
  attempt: SlotAttempt,
  { kind, message }: ChainError,
) {
  const head = headOf(executor).number
  const resend = resendOf(memory, attempt.hash)
  const since = resend.refusal?.kind === kind ? resend.refusal.since : head
  resend.refusal = { kind, since }
  postpone(executor, resend)
  const former = slot.executor === executor.ports.signer.address ? '' : 'former '
  const account = `the ${former}executor ${slot.executor}`
  if (kind === 'insufficient_funds')
    memory.refused = `${account} cannot pay for its transaction: fund it`
  if (kind === 'too_much_gas' && attempt.kind === 'propose')
    executor.refused.gas = { limit: readTransaction(attempt.raw).gas, head }
  if (kind === 'refused' || kind === 'too_much_gas')
    memory.refused = `the node refuses the transaction of nonce ${slot.nonce}: ${message}`
  if (kind === 'nonce_too_high' && head - since >= 3n)
    memory.refused = `the node waits for a nonce below ${slot.nonce} of ${account}`
}

/** Where nodes do not say so of the stored bytes too, the nonce may yet be ours. */
export async function confirmsUsed(
  { executor, slot, shown, memory }: SlotLook,
  { raw }: SlotAttempt,
) {
  let but = 'takes a transaction of that nonce'
  try {
    if (shown.held.size === 0) await executor.ports.chain.send(raw)
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    if (error.kind === 'unavailable') return false
    if (error.kind === 'nonce_too_low') return true
    if (error.kind !== 'already_known')
      but = `refuses a transaction of that nonce for another reason: ${error.message}`
  }
  noteFault(
    memory,
    `the node says that nonce ${slot.nonce} of ${slot.executor} is used, and ${but}`,
  )
  return false
}

/** A suspect wallet's leaves enough for another's proposal, else it `waits`: nobody's fault. */
export async function canPay(
  executor: Executor,
  { gas, isUsual }: Load,
  hasSuspects: boolean,
  nonceLatest: number,
): Promise<'yes' | 'no' | 'waits'> {
  const { chain, signer, ceilings } = executor.ports
  const { address } = signer
  const memory = slotMemory(executor, newSlots)
  const [found, balanceWei] = await Promise.all([
    fees(executor, memory, 'propose'),
    chain.balance(address),
  ])
  if (found === undefined) return 'no'
  const costWei = gas * found.maxFeePerGas
  const pendingWei = pendingCost(executor, nonceLatest, found)
  const leftWei = hasSuspects ? ceilings.proposal * found.maxFeePerGas : 0n
  if (balanceWei >= costWei + pendingWei + leftWei) return 'yes'
  if (hasSuspects && balanceWei >= ordinaryGas * found.maxFeePerGas) return 'waits'
  if (isUsual) return 'no'
  const beside = pendingWei === 0n ? '' : ` beside ${pendingWei} of those that are not mined yet`
  noteFault(
    memory,
    `the executor ${address} holds ${balanceWei} wei, its transaction may cost ${costWei}${beside}: fund it`,
  )
  return 'no'
}

/** All that is on its way may fail with the wallet, at the limit. `isIdle`: nothing is. */
export function roomFor(executor: Executor, wallet: Address) {
  const failed = standingNow(executor, wallet)?.failedGas ?? 0n
  const { ledger, ceilings } = executor.ports
  const own = ledger.active().filter(({ proposer }) => proposer === wallet)
  const slots = new Set(own.flatMap(({ id }) => ledger.slotOf(id) ?? []))
  const live = [...slots].filter(({ id }) => {
    const receipts = slotMemory(executor, id).shown?.receipts.values() ?? []
    return ![...receipts].some(({ status }) => status === 'success')
  })
  const used = live.reduce((sum, slot) => {
    const limits = slot.attempts.map(({ raw }) => readTransaction(raw).gas)
    return sum + largest(loadGas(executor, slot), ...limits)
  }, failed)
  return { gas: ceilings.failedADay - used, isIdle: live.length === 0 }
}

const loadGas = (executor: Executor, { id }: Slot) => slotMemory(executor, id).load?.gas ?? 0n

function pendingCost(executor: Executor, nonceLatest: number, fresh: Fees) {
  const pending = ownSlots(executor).filter(({ nonce }) => nonce >= nonceLatest)
  return pending.reduce((sum, slot) => {
    const newest = slot.attempts.at(-1)
    const gas = newest ? readTransaction(newest.raw).gas : loadGas(executor, slot)
    const feeWei = newest ? BigInt(newest.maxFeePerGas) : fresh.maxFeePerGas
    return sum + gas * feeWei
  }, 0n)
}

export function callIn({ raw, candidateIds }: SlotAttempt, candidateId: string): Hex | undefined {
  const index = candidateIds.indexOf(candidateId)
  return index < 0 ? undefined : carriedBy(readTransaction(raw).data)[index]
}

export function callOf({ attempts }: Slot, { id }: Candidate) {
  const [own] = attempts.flatMap((attempt) => callIn(attempt, id) ?? [])
  return own && readProposeCalldata(own)
}

export const carries = (attempt: SlotAttempt, { id }: Candidate) =>
  attempt.candidateIds.includes(id)

export const submissionChange = (
  candidate: Candidate,
  nowMs: number,
  submission: CandidateSubmission,
): Change => progressChange(candidate, selected(candidate.progress, nowMs, submission))

const prepared = (transactionHash: Hex | null): CandidateSubmission => ({
  status: 'prepared',
  transactionHash,
  submittedAtMs: null,
  confirmedAtMs: null,
  indexedAtMs: null,
  proposalEventIndex: null,
})

export const submitted = (
  hash: Hex | null,
  { progress }: Candidate,
  nowMs: number,
): CandidateSubmission => ({
  ...prepared(hash),
  status: 'submitted',
  submittedAtMs: submissionOf(progress)?.submittedAtMs ?? nowMs,
})

export function recordAttempt(
  { executor, slot, alive }: SlotLook,
  attempt: SlotAttempt,
  isSent: boolean,
): Promise<boolean> {
  const { ledger, clock } = executor.ports
  const nowMs = clock.nowMs()
  const { hash, kind, sentAtMs } = attempt
  const made: Change = isSent
    ? { kind: 'slot.sent', slotId: slot.id, hash, sentAtMs: nowMs }
    : { kind: 'slot.attempt', slotId: slot.id, attempt }
  const steps =
    kind === 'cancel'
      ? []
      : alive.flatMap((candidate) => {
          const before = submissionOf(candidate.progress)
          const step = (after: CandidateSubmission) => [submissionChange(candidate, nowMs, after)]
          if (!carries(attempt, candidate))
            return !isSent && before && before.status !== 'dropped'
              ? step({ ...before, status: 'dropped' })
              : []
          if (!isSent) return before ? [] : step(prepared(hash))
          const isKnown = before?.status === 'submitted' && before.transactionHash === hash
          return isKnown ? [] : step(submitted(hash, candidate, nowMs))
        })
  return ledger.commit([...(isSent && sentAtMs !== null ? [] : [made]), ...steps], alive)
}

function timesOf(progress: Progress, nowMs: number) {
  const { validatedAtMs, selectedAtMs } = timesIn(progress)
  return { validatedAtMs: validatedAtMs ?? nowMs, selectedAtMs: selectedAtMs ?? nowMs }
}

export const selected = (
  before: Progress,
  nowMs: number,
  submission: CandidateSubmission | null,
): Progress => ({ status: 'selected', ...timesOf(before, nowMs), submission })

export const executed = (before: Progress, nowMs: number, submission: CandidateSubmission) =>
  ({ status: 'executed', ...timesOf(before, nowMs), submission }) as const

export const standsInAgain = (before: Progress, nowMs: number): Progress => ({
  status: 'validated',
  validatedAtMs: timesOf(before, nowMs).validatedAtMs,
})

/** For one whose proposal another transaction has put on chain (domain §9). */
export function stepsToExecuted(
  candidate: Candidate,
  nowMs: number,
  { transactionHash, logIndex }: Pick<ChainLog, 'transactionHash' | 'logIndex'>,
): Change[] {
  const { progress } = candidate
  const steps: Progress[] = []
  if (progress.status === 'received') steps.push({ status: 'validated', validatedAtMs: nowMs })
  if (progress.status === 'received' || progress.status === 'validated')
    steps.push(selected(progress, nowMs, null))
  const submission: CandidateSubmission = {
    ...{ status: 'indexed', transactionHash, proposalEventIndex: logIndex },
    ...{ submittedAtMs: nowMs, confirmedAtMs: nowMs, indexedAtMs: nowMs },
  }
  steps.push(executed(progress, nowMs, submission))
  return steps.map((step) => progressChange(candidate, step))
}
