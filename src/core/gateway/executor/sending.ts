/**
 * Signed, durable, then sent, and sent again. When, is in memory alone: after a restart everything
 * is due at once, which is safe for the same bytes (R3).
 */
import { ordinaryGas } from '#chain/profiles'
import { ChainError, type Hex } from '#ports'
import { ProposerError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import type { Slot, SlotAttempt } from '../ledger/ledger.js'
import { attemptChanges, type SlotFacts, sentChanges, stuckWhy } from './slot.js'
import {
  type Executor,
  isMined,
  type Load,
  ownSlots,
  type Resend,
  type SlotLook,
  standingNow,
} from './state.js'
import {
  canRaise,
  type Fees,
  feesFor,
  gasLimit,
  largest,
  readTransaction,
  signTransaction,
  weiOf,
} from './transaction.js'

const leastPauseMs = 1_000
const mostPauseMs = 30_000
/** Before the fee is raised; the time where the chain stands still. */
const pendingBlocks = 10n
const pendingMs = 30_000

function resendOf({ resends }: Executor, hash: Hex) {
  const resend = resends.get(hash) ?? { tries: 0, dueAtMs: 0 }
  resends.set(hash, resend)
  return resend
}

const headOf = ({ ports }: Executor) => ports.newestHeads().latest

export function resendDue(
  look: SlotLook,
  newest: SlotAttempt | undefined,
): Pick<SlotFacts, 'sendDue' | 'refitDue' | 'renewDue' | 'bumpDue'> {
  const { executor, slot, shown } = look
  const { resends, faults, ports } = executor
  // Should a reorganisation undo that it was mined, the wait begins again.
  for (const hash of shown.receipts.keys()) delete resends.get(hash)?.pending
  const isHeld = newest !== undefined && shown.held.has(newest.hash)
  if (isHeld || shown.receipts.size > 0 || shown.nonceLatest > slot.nonce) faults.refuse(slot.id)
  if (newest === undefined)
    return { sendDue: true, refitDue: false, renewDue: false, bumpDue: false }
  const resend = resendOf(executor, newest.hash)
  const { refusal, dueAtMs } = resend
  const head = headOf(executor).number
  const nowMs = ports.clock.monotonicMs()
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
    bumpDue: isLow && mayRaise(look, newest) && mayAsk(executor, slot.id),
  }
}

function postpone({ ports }: Executor, resend: Resend) {
  const range = Math.min(mostPauseMs, leastPauseMs * 2 ** resend.tries) - leastPauseMs
  const [high = 0, low = 0] = ports.random.bytes(2)
  resend.dueAtMs = ports.clock.monotonicMs() + leastPauseMs + (range * (high * 256 + low)) / 65_535
  resend.tries += 1
}

interface Wanted {
  readonly candidateIds: readonly string[]
  readonly data: Hex
  readonly gas: bigint
}

export const newSlots = 'opening'

const ceilingOf = ({ ports }: Executor) => weiOf(ports.config.max_fee_gwei)
const ceilingName = ({ ports }: Executor) => `executor.max_fee_gwei ${ports.config.max_fee_gwei}`

async function fees(
  executor: Executor,
  about: string,
  kind: SlotAttempt['kind'],
  replacing?: SlotAttempt,
) {
  const { chain, contracts } = executor.ports
  const head = headOf(executor)
  const [tipWei, ceilingWei] = [await chain.tip(), ceilingOf(executor)]
  const found = feesFor(contracts.chainId, head, tipWei, ceilingWei, { kind, replacing })
  if (!found)
    executor.faults.note(
      about,
      `gas costs ${head.baseFeePerGas} wei and the tip, more than ${ceilingName(executor)} allows: waiting`,
    )
  return found
}

export async function sign(
  { executor, slot, alive }: SlotLook,
  wanted: Wanted | undefined,
  replaced?: SlotAttempt,
): Promise<boolean> {
  const { clock, contracts, ledger, signer, failpoint } = executor.ports
  const kind: SlotAttempt['kind'] = wanted ? 'propose' : 'cancel'
  const found = await fees(executor, slot.id, kind, replaced)
  if (found === undefined) return false
  const { candidateIds, data, gas } = wanted ?? (await selfTransfer(executor))
  const call = { to: wanted ? contracts.signedProposer : signer.address, data, gas }
  const terms = {
    ...{ kind, candidateIds },
    maxFeePerGas: String(found.maxFeePerGas),
    maxPriorityFeePerGas: String(found.maxPriorityFeePerGas),
  } as const
  const same = slot.attempts.find(
    (one) => textOf(one, readTransaction(one.raw)) === textOf(terms, call),
  )
  // The same transaction: the bytes that are there go on.
  if (same !== undefined) {
    resendOf(executor, same.hash).refusal = undefined
    return false
  }
  if (!mayAsk(executor, slot.id)) return false
  const unsigned = { chainId: contracts.chainId, nonce: slot.nonce, ...call, ...found }
  const signed = await signTransaction(signer, unsigned).catch((error: unknown) => {
    if (!(error instanceof ProposerError)) throw error
    executor.unsigned = { head: headOf(executor).number, error }
  })
  if (!signed) {
    mayAsk(executor, slot.id)
    return replaced !== undefined
  }
  executor.unsigned = undefined
  const attempt: SlotAttempt = {
    ...{ ...signed, ...terms },
    preparedAtMs: clock.nowMs(),
    sentAtMs: null,
  }
  if (!(await ledger.commit(attemptChanges(slot, attempt, alive, clock.nowMs()), alive)))
    return false
  await failpoint('prepared')
  return true
}

const textOf = (
  { kind, maxFeePerGas, maxPriorityFeePerGas }: Omit<SlotAttempt, 'hash' | 'raw' | `${string}AtMs`>,
  { to, data, gas }: ReturnType<typeof readTransaction>,
) => [kind, maxFeePerGas, maxPriorityFeePerGas, to, data, gas].join(' ')

/** Once a head: a key that does not sign has a time limit. */
function mayAsk({ unsigned, faults, ports }: Executor, about: string) {
  if (unsigned?.head !== ports.newestHeads().latest.number) return true
  const why = `does not sign: ${unsigned.error.detail}: waiting`
  faults.note(about, `the key of the executor ${ports.signer.address} ${why}`)
  return false
}

async function selfTransfer({ ports: { chain, signer } }: Executor): Promise<Wanted> {
  const { address } = signer
  const data = '0x'
  const gas = gasLimit(await chain.estimateGas({ to: address, data, from: address }))
  return { candidateIds: [], data, gas }
}

export function mayRaise({ executor, slot }: SlotLook, { kind, maxFeePerGas }: SlotAttempt) {
  if (canRaise(maxFeePerGas, kind, ceilingOf(executor))) return true
  const stuck = `a transaction that pays ${maxFeePerGas} wei for gas at most is not mined`
  const sentence = `${stuck}, and ${ceilingName(executor)} allows no higher fee: waiting`
  executor.faults.note(slot.id, sentence)
  return false
}

export async function send(look: SlotLook, attempt: SlotAttempt): Promise<boolean> {
  const { executor, slot, alive } = look
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
  const resend = resendOf(executor, attempt.hash)
  resend.pending ??= { since: headOf(executor).number, sinceMs: clock.monotonicMs() }
  resend.refusal = undefined
  postpone(executor, resend)
  executor.faults.drop(slot.id)
  const stuck = stuckWhy(slot)
  if (stuck !== undefined) executor.faults.note(slot.id, stuck)
  await ledger.commit(sentChanges(slot, attempt, alive, clock.nowMs()), alive)
  await executor.ports.failpoint('sent')
  return false
}

function noteRefusal(
  { executor, slot }: SlotLook,
  attempt: SlotAttempt,
  { kind, message }: ChainError,
) {
  const { faults, ports } = executor
  const head = headOf(executor).number
  const resend = resendOf(executor, attempt.hash)
  const since = resend.refusal?.kind === kind ? resend.refusal.since : head
  resend.refusal = { kind, since }
  postpone(executor, resend)
  const former = slot.executor === ports.signer.address ? '' : 'former '
  const account = `the ${former}executor ${slot.executor}`
  if (kind === 'insufficient_funds')
    faults.refuse(slot.id, `${account} cannot pay for its transaction: fund it`)
  if (kind === 'too_much_gas' && attempt.kind === 'propose')
    executor.refusedGas = { gas: readTransaction(attempt.raw).gas, head }
  if (kind === 'refused' || kind === 'too_much_gas')
    faults.refuse(slot.id, `the node refuses the transaction of nonce ${slot.nonce}: ${message}`)
  if (kind === 'nonce_too_high' && head - since >= 3n)
    faults.refuse(slot.id, `the node waits for a nonce below ${slot.nonce} of ${account}`)
}

/** Where nodes do not say so of the stored bytes too, the nonce may yet be ours. */
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

/** A suspect wallet's leaves enough for another's proposal, else it `waits`: nobody's fault. */
export async function canPay(
  executor: Executor,
  { gas, isUsual }: Load,
  hasSuspects: boolean,
  nonceLatest: number,
): Promise<'yes' | 'no' | 'waits'> {
  const { chain, signer, ceilings } = executor.ports
  const { address } = signer
  const [found, balanceWei] = await Promise.all([
    fees(executor, newSlots, 'propose'),
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
  executor.faults.note(
    newSlots,
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
  const live = [...slots].filter((slot) => !isMined(executor, slot, 'success'))
  const used = live.reduce((sum, slot) => sum + highestLimit(executor, slot), failed)
  return { gas: ceilings.failedADay - used, isIdle: live.length === 0 }
}

const highestLimit = ({ loads }: Executor, { id, attempts }: Slot) =>
  largest(loads.get(id)?.gas ?? 0n, ...attempts.map(({ raw }) => readTransaction(raw).gas))

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
