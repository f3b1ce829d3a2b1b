/**
 * Signed, durable, then sent, and sent again. When, is in memory alone: after a restart everything
 * is due at once, which is safe for the same bytes (R3). Times on the monotonic clock (R13).
 */
import { ordinaryGas } from '#chain/profiles'
import { ChainError, type ChainErrorKind, type Hex, type UnsignedTransaction } from '#ports'
import { ProposerError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import type { Slot, SlotAttempt } from '../ledger/ledger.js'
import type { Heads } from '../view/state.js'
import { attemptChanges, sentChanges, stuckWhy } from './slot.js'
import { type Executor, type Load, ownSlots, type Resend, type SlotLook } from './state.js'
import {
  canRaise,
  type Fees,
  failedGasOf,
  feesFor,
  gasLimit,
  readTransaction,
  signTransaction,
  weiOf,
} from './transaction.js'

const leastPauseMs = 1_000
const mostPauseMs = 30_000
/** Pending so long, with every lower nonce mined, before the fee is raised. */
const pendingBlocks = 10n
const pendingMs = 30_000

function resendOf({ resends }: Executor, hash: Hex) {
  const resend = resends.get(hash) ?? { tries: 0, dueAtMs: 0 }
  resends.set(hash, resend)
  return resend
}

/** Of its newest transaction: what is due by what nodes said of it, and for how long. */
export function resendDue({ executor, slot, heads, shown }: SlotLook, { hash, kind }: SlotAttempt) {
  const resend = resendOf(executor, hash)
  const { refusal, dueAtMs } = resend
  const head = heads.latest.number
  const nowMs = executor.ports.clock.monotonicMs()
  // One that nodes take and drop again pays too little all the same.
  const isHeld = shown.held.has(hash)
  if (isHeld) resend.pending ??= { since: head, sinceMs: nowMs }
  const { pending } = resend
  const isPendingLong =
    pending !== undefined &&
    shown.nonceLatest === slot.nonce &&
    (head - pending.since >= pendingBlocks || (isHeld && nowMs - pending.sinceMs >= pendingMs))
  // One whose fee was raised, and is refused again, waits for the next head.
  const isFirst = slot.attempts.filter((attempt) => attempt.kind === kind).length === 1
  return {
    send: nowMs >= dueAtMs,
    refit: refusal?.kind === 'too_much_gas',
    renew: refusal?.kind === 'refused' && head - refusal.since >= pendingBlocks,
    bump: refusal?.kind === 'underpriced' ? isFirst || head > refusal.since : isPendingLong,
  }
}

/** It was mined: should a reorganisation undo that, the wait begins again. */
export function noteMined({ resends }: Executor, hash: Hex) {
  const resend = resends.get(hash)
  if (resend) resend.pending = undefined
}

function noteTaken(executor: Executor, hash: Hex, head: bigint) {
  const resend = resendOf(executor, hash)
  resend.pending ??= { since: head, sinceMs: executor.ports.clock.monotonicMs() }
  resend.refusal = undefined
  postpone(executor, resend)
}

/** The number of blocks since the first refusal of its kind in a row. */
function noteRefused(executor: Executor, hash: Hex, head: bigint, kind: ChainErrorKind) {
  const resend = resendOf(executor, hash)
  const since = resend.refusal?.kind === kind ? resend.refusal.since : head
  resend.refusal = { kind, since }
  postpone(executor, resend)
  return head - since
}

function postpone({ ports }: Executor, resend: Resend) {
  const range = Math.min(mostPauseMs, leastPauseMs * 2 ** resend.tries) - leastPauseMs
  const [high = 0, low = 0] = ports.random.bytes(2)
  resend.dueAtMs = ports.clock.monotonicMs() + leastPauseMs + (range * (high * 256 + low)) / 65_535
  resend.tries += 1
}

/** What a transaction is to carry; none is a transfer to ourselves, which gives the nonce back. */
interface Wanted {
  readonly candidateIds: readonly string[]
  readonly data: Hex
  readonly gas: bigint
}

export const newSlots = 'opening'

const ceilingOf = ({ ports }: Executor) => weiOf(ports.maxFeeGwei)
const ceilingName = ({ ports }: Executor) => `executor.max_fee_gwei ${ports.maxFeeGwei}`

async function fees(
  executor: Executor,
  about: string,
  kind: SlotAttempt['kind'],
  { latest }: Heads,
  replaced?: SlotAttempt,
) {
  const { chain, contracts } = executor.ports
  const replacing = replaced && {
    maxFeePerGas: BigInt(replaced.maxFeePerGas),
    maxPriorityFeePerGas: BigInt(replaced.maxPriorityFeePerGas),
  }
  const ceilingWei = ceilingOf(executor)
  const options = { kind, replacing }
  const found = feesFor(contracts.chainId, latest, await chain.tip(), ceilingWei, options)
  if (!found)
    executor.faults.note(
      about,
      `gas costs ${latest.baseFeePerGas} wei and the tip, more than ${ceilingName(executor)} allows: waiting`,
    )
  return found
}

/**
 * False where fee ceiling or key holds it back, which is noted, or a candidate has moved on; true
 * where the slot may go on, though the key was found to be out.
 */
export async function sign(
  { executor, slot, alive, heads }: SlotLook,
  wanted: Wanted | undefined,
  replaced?: SlotAttempt,
): Promise<boolean> {
  const { clock, contracts, ledger } = executor.ports
  const kind = wanted ? 'propose' : 'cancel'
  const found = await fees(executor, slot.id, kind, heads, replaced)
  if (found === undefined) return false
  const call = wanted
    ? { to: contracts.signedProposer, data: wanted.data, gas: wanted.gas }
    : await selfTransfer(executor)
  const terms: Pick<SlotAttempt, 'kind' | 'candidateIds' | keyof Fees> = {
    kind,
    candidateIds: wanted?.candidateIds ?? [],
    maxFeePerGas: String(found.maxFeePerGas),
    maxPriorityFeePerGas: String(found.maxPriorityFeePerGas),
  }
  const same = slot.attempts.find((attempt) => isSame(attempt, terms, call))
  // The same transaction, with another signature at most: the bytes that are there go on.
  if (same !== undefined) {
    resendOf(executor, same.hash).refusal = undefined
    return false
  }
  const unsigned = { chainId: contracts.chainId, nonce: slot.nonce, ...call, ...found }
  const wasOut = isOut(executor, heads)
  const signed = await signedNow(executor, slot.id, heads, unsigned)
  if (signed === undefined) return replaced !== undefined && !wasOut
  const { raw, hash } = signed
  const attempt: SlotAttempt = {
    ...{ hash, raw, ...terms },
    preparedAtMs: clock.nowMs(),
    sentAtMs: null,
  }
  if (!(await ledger.commit(attemptChanges(slot, attempt, alive, clock.nowMs()), alive)))
    return false
  await executor.ports.failpoint('prepared')
  return true
}

function isSame(
  { kind, maxFeePerGas, maxPriorityFeePerGas, raw }: SlotAttempt,
  terms: Pick<SlotAttempt, 'kind' | 'maxFeePerGas' | 'maxPriorityFeePerGas'>,
  call: Pick<UnsignedTransaction, 'to' | 'data' | 'gas'>,
) {
  if (kind !== terms.kind || maxFeePerGas !== terms.maxFeePerGas) return false
  if (maxPriorityFeePerGas !== terms.maxPriorityFeePerGas) return false
  const { to, data, gas } = readTransaction(raw)
  return to === call.to && data === call.data && gas === call.gas
}

/** A key that does not sign is asked once a head: its time limit is not waited for slot by slot. */
async function signedNow(
  executor: Executor,
  about: string,
  heads: Heads,
  unsigned: UnsignedTransaction,
) {
  try {
    if (!mayAsk(executor, about, heads)) return undefined
    const signed = await signTransaction(executor.ports.signer, unsigned)
    executor.unsigned = undefined
    return signed
  } catch (error) {
    if (!(error instanceof ProposerError)) throw error
    executor.unsigned = { head: heads.latest.number, error }
    mayAsk(executor, about, heads)
    return undefined
  }
}

const isOut = ({ unsigned }: Executor, { latest }: Heads) => unsigned?.head === latest.number

export function mayAsk(executor: Executor, about: string, heads: Heads) {
  const { unsigned, faults, ports } = executor
  if (unsigned === undefined || !isOut(executor, heads)) return true
  const why = `does not sign: ${unsigned.error.detail}: waiting`
  faults.note(about, `the key of the executor ${ports.signer.address} ${why}`)
  return false
}

async function selfTransfer({ ports: { chain, signer } }: Executor) {
  const call = { to: signer.address, data: '0x' as const }
  const gas = gasLimit(await chain.estimateGas({ ...call, from: signer.address }))
  return { ...call, gas }
}

export function mayRaise({ executor, slot }: SlotLook, { kind, maxFeePerGas }: SlotAttempt) {
  if (canRaise({ maxFeePerGas: BigInt(maxFeePerGas) }, kind, ceilingOf(executor))) return true
  const stuck = `a transaction that pays ${maxFeePerGas} wei for gas at most is not mined`
  const sentence = `${stuck}, and ${ceilingName(executor)} allows no higher fee: waiting`
  executor.faults.note(slot.id, sentence)
  return false
}

export async function send(look: SlotLook, attempt: SlotAttempt): Promise<boolean> {
  const { executor, slot, alive } = look
  const { latest } = look.heads
  const { chain, clock, ledger } = executor.ports
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
  noteTaken(executor, attempt.hash, latest.number)
  executor.faults.drop(slot.id)
  const stuck = stuckWhy(slot)
  if (stuck !== undefined) executor.faults.note(slot.id, stuck)
  await ledger.commit(sentChanges(slot, attempt, alive, clock.nowMs()), alive)
  await executor.ports.failpoint('sent')
  return false
}

function noteRefusal(
  { executor, slot, heads }: SlotLook,
  { kind: of, hash, raw }: SlotAttempt,
  { kind, message }: ChainError,
) {
  const { faults, ports } = executor
  const refusedBlocks = noteRefused(executor, hash, heads.latest.number, kind)
  // Stored bytes are sent for a former executor too: it is the slot's own that pays.
  const former = slot.executor === ports.signer.address ? '' : 'former '
  const account = `the ${former}executor ${slot.executor}`
  if (kind === 'insufficient_funds')
    faults.refuse(slot.id, `${account} cannot pay for its transaction: fund it`)
  const { gas } = readTransaction(raw)
  if (kind === 'too_much_gas' && of === 'propose')
    executor.refusedGas = { gas, head: heads.latest.number }
  if (kind === 'refused' || kind === 'too_much_gas')
    faults.refuse(slot.id, `the node refuses the transaction of nonce ${slot.nonce}: ${message}`)
  // A lower nonce is missing. Ours are sent before; if it lasts, this store does not know it.
  if (kind === 'nonce_too_high' && refusedBlocks >= 3n)
    faults.refuse(slot.id, `the node waits for a nonce below ${slot.nonce} of ${account}`)
}

/**
 * Whether nodes refuse the stored bytes because the nonce is used. Where they take them, or refuse
 * them for another reason, the nonce may yet be ours.
 */
export async function confirmsUsed({ executor, slot, shown }: SlotLook, { raw }: SlotAttempt) {
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
  executor.faults.note(
    slot.id,
    `the node says that nonce ${slot.nonce} of ${slot.executor} is used, and ${but}`,
  )
  return false
}

/**
 * `no` is the operator's matter, and noted. A suspect wallet's leaves enough for another's
 * proposal; where an ordinary one could be paid it `waits`, which is nobody's fault.
 */
export async function canPay(
  executor: Executor,
  { gas, isUsual }: Pick<Load, 'gas' | 'isUsual'>,
  isSuspect: boolean,
  { heads, nonceLatest }: { heads: Heads; nonceLatest: number },
): Promise<'yes' | 'no' | 'waits'> {
  const { chain, signer } = executor.ports
  const [found, balanceWei] = await Promise.all([
    fees(executor, newSlots, 'propose', heads),
    chain.balance(signer.address),
  ])
  if (found === undefined) return 'no'
  const costWei = gas * found.maxFeePerGas
  const pendingWei = pendingCost(executor, nonceLatest, found)
  const leftWei = isSuspect ? executor.ports.ceilings.proposal * found.maxFeePerGas : 0n
  if (balanceWei >= costWei + pendingWei + leftWei) return 'yes'
  if (isSuspect && balanceWei >= ordinaryGas * found.maxFeePerGas) return 'waits'
  if (isUsual) return 'no'
  const beside = pendingWei === 0n ? '' : ` beside ${pendingWei} of those that are not mined yet`
  executor.faults.note(
    newSlots,
    `the executor ${signer.address} holds ${balanceWei} wei, its transaction may cost ${costWei}${beside}: fund it`,
  )
  return 'no'
}

/**
 * Whatever the wallet does, all that is on its way may fail with it, at the limit. `isIdle`:
 * nothing is.
 */
export function roomFor(
  executor: Executor,
  wallet: Address,
  { latest }: Heads,
): { readonly gas: bigint; readonly isIdle: boolean } {
  const { ledger, ceilings } = executor.ports
  const failed = failedGasOf(ledger.failures.get(wallet) ?? [], Number(latest.timestamp))
  const own = ledger.active().filter(({ proposer }) => proposer === wallet)
  const live = [...new Set(own.flatMap(({ id }) => ledger.slotOf(id) ?? []))].filter(
    ({ id }) => !executor.succeeded.has(id),
  )
  const limits = live.map((slot) => highestLimit(executor, slot))
  const used = limits.reduce((sum, limit) => sum + limit, failed)
  return { gas: ceilings.failedADay - used, isIdle: live.length === 0 }
}

function highestLimit({ loads }: Executor, { id, attempts }: Slot) {
  const limits = [loads.get(id)?.gas ?? 0n, ...attempts.map(({ raw }) => readTransaction(raw).gas)]
  return limits.reduce((one, other) => (one > other ? one : other))
}

function pendingCost(executor: Executor, nonceLatest: number, fresh: Fees) {
  const { loads } = executor
  const pending = ownSlots(executor).filter(({ nonce }) => nonce >= nonceLatest)
  return pending.reduce((sum, { id, attempts }) => {
    const newest = attempts.at(-1)
    const gas = newest ? readTransaction(newest.raw).gas : (loads.get(id)?.gas ?? 0n)
    const feeWei = newest ? BigInt(newest.maxFeePerGas) : fresh.maxFeePerGas
    return sum + gas * feeWei
  }, 0n)
}
