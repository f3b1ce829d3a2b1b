/**
 * In memory alone: after a restart everything is due at once, which is safe for the same bytes
 * (R3).
 * Times on the monotonic clock (R13).
 */
import type { ChainErrorKind, Hex } from '#ports'
import { type Executor, newResend, type Resend } from './state.js'

const leastPauseMs = 1_000
const mostPauseMs = 30_000
/** Pending so long, with every lower nonce mined, before the fee is raised. */
const pendingBlocks = 10n
const pendingMs = 30_000

function resendOf({ resends }: Executor, hash: Hex) {
  const known = resends.get(hash)
  if (known) return known
  const fresh = newResend()
  resends.set(hash, fresh)
  return fresh
}

export function isSendDue({ resends, ports }: Executor, hash: Hex) {
  return ports.clock.monotonicMs() >= (resends.get(hash)?.dueAtMs ?? 0)
}

/**
 * `isNext`: every lower nonce is mined. `isHeld`: a node holds it now; one that nodes take and drop
 * again pays too little all the same. `isFirst`: no fee was raised yet; one that was, and is
 * refused again, waits for the next head.
 */
export function needsHigherFee(
  executor: Executor,
  hash: Hex,
  head: bigint,
  { isNext, isHeld, isFirst }: { isNext: boolean; isHeld: boolean; isFirst: boolean },
) {
  const resend = resendOf(executor, hash)
  if (resend.underpricedAt !== undefined) return isFirst || head > resend.underpricedAt
  const nowMs = executor.ports.clock.monotonicMs()
  if (isHeld) resend.pending ??= { since: head, sinceMs: nowMs }
  if (!isNext || resend.pending === undefined) return false
  const { since, sinceMs } = resend.pending
  return head - since >= pendingBlocks || (isHeld && nowMs - sinceMs >= pendingMs)
}

/** It was mined: should a reorganisation undo that, the wait begins again. */
export function noteMined({ resends }: Executor, hash: Hex) {
  const resend = resends.get(hash)
  if (resend) resend.pending = undefined
}

export function noteTaken(executor: Executor, hash: Hex, head: bigint) {
  const resend = resendOf(executor, hash)
  resend.pending ??= { since: head, sinceMs: executor.ports.clock.monotonicMs() }
  resend.refusedSince = undefined
  resend.rejectedSince = undefined
  resend.underpricedAt = undefined
  resend.isTooBig = false
  postpone(executor, resend)
}

/** The number of blocks since the first refusal in a row. */
export function noteRefused(executor: Executor, hash: Hex, head: bigint, kind: ChainErrorKind) {
  const resend = resendOf(executor, hash)
  resend.refusedSince ??= head
  resend.rejectedSince = kind === 'refused' ? (resend.rejectedSince ?? head) : undefined
  if (kind === 'underpriced') resend.underpricedAt ??= head
  resend.isTooBig = kind === 'too_much_gas'
  postpone(executor, resend)
  return head - resend.refusedSince
}

export function isTooBig({ resends }: Executor, hash: Hex) {
  return resends.get(hash)?.isTooBig === true
}

export function isRejected({ resends }: Executor, hash: Hex, head: bigint) {
  const since = resends.get(hash)?.rejectedSince
  return since !== undefined && head - since >= pendingBlocks
}

export function noteSigned({ resends }: Executor, hash: Hex) {
  const resend = resends.get(hash)
  if (!resend) return
  resend.rejectedSince = undefined
  resend.isTooBig = false
}

function postpone({ ports }: Executor, resend: Resend) {
  const range = Math.min(mostPauseMs, leastPauseMs * 2 ** resend.tries) - leastPauseMs
  const [high = 0, low = 0] = ports.random.bytes(2)
  resend.dueAtMs = ports.clock.monotonicMs() + leastPauseMs + (range * (high * 256 + low)) / 65_535
  resend.tries += 1
}
