/**
 * What this machine sent to one gateway lately, and so may send now (§8, docs/design/budget.md).
 * All times are of the monotonic clock, which its processes share.
 */
import * as z from 'zod/mini'
import { UsageError } from '#protocol/errors'
import { limits } from '#protocol/words'
import { maxRetryAfterMs, type RateLimit } from '../gateway/answer.js'

const Count = z.int().check(z.minimum(0))
const Ms = z.number()

const Charge = z.object({
  id: z.string(),
  items: Count,
  sentMs: Ms,
  /** Its answer; in flight its time-out. */
  endMs: Ms,
})
type Charge = z.infer<typeof Charge>

/** Also the shape on disk. */
export const ChargeLog = z.object({
  format: z.literal(2),
  boot: z.string(),
  writtenMs: Ms,
  limitItems: z.int().check(z.minimum(1)),
  /** `assumed`: responses came without it. */
  source: z.enum(['default', 'assumed', 'told']),
  windowMs: z.number().check(z.minimum(1_000)),
  charges: z.array(Charge).check(z.maxLength(1_024)),
  /** By headers, which know what strangers behind the same address spend. */
  told: z.nullable(z.object({ remainingItems: Count, endsByMs: Ms })),
  blockedUntilMs: Ms,
  refusals: Count,
  /** Strangers were seen: one call at a time, and the first of a window is small. */
  waryUntilMs: Ms,
  changedMs: Ms,
})
export type ChargeLog = z.infer<typeof ChargeLog>

const defaultBudget = { limitItems: 120, windowMs: 60_000 }

/** A call has ended by then (robustness §6: 45 s an attempt). */
const flightMs = 60_000
/** What broke off may still be on its way. While the limit is unknown, others wait for the first. */
const [lingerMs, learningMs] = [5_000, 5_000]
const [maxInFlight, windowParts] = [256, 100]

export const emptyLog = (
  boot: string,
  writtenMs: number,
  { limitItems, windowMs } = defaultBudget,
): ChargeLog => ({
  format: 2,
  boot,
  writtenMs,
  limitItems,
  windowMs,
  source: 'default',
  charges: [],
  told: null,
  blockedUntilMs: 0,
  refusals: 0,
  waryUntilMs: 0,
  changedMs: 0,
})

/** Nobody knows when that of another boot was written: all was sent just now. */
export function ofThisBoot(log: ChargeLog, boot: string, nowMs: number): ChargeLog {
  if (log.boot === boot && log.writtenMs <= nowMs + 1_000) return log
  const charges = log.charges.map((charge) => ({ ...charge, sentMs: nowMs, endMs: nowMs }))
  return { ...emptyLog(boot, nowMs, log), source: log.source, charges, changedMs: nowMs }
}

/** Clocks are read in whole milliseconds; those of one pace differ by under one in a thousand. */
const marginMs = (windowMs: number) => 2 + windowMs / 1_000

const freeAtMs = ({ endMs }: Charge, { windowMs }: ChargeLog) =>
  endMs + windowMs + marginMs(windowMs)

const toldEndMs = ({ told, windowMs }: ChargeLog) => (told ? told.endsByMs + marginMs(windowMs) : 0)

const itemsOf = (some: readonly { readonly items: number }[]) =>
  some.reduce((sum, { items }) => sum + items, 0)

const inFlight = ({ charges }: ChargeLog, nowMs: number) =>
  charges.filter(({ endMs }) => endMs > nowMs)

const liveAt = (log: ChargeLog, nowMs: number) =>
  log.charges.filter((charge) => freeAtMs(charge, log) > nowMs)

function roomAt(log: ChargeLog, nowMs: number) {
  const own = log.limitItems - itemsOf(liveAt(log, nowMs))
  return !log.told || nowMs >= toldEndMs(log)
    ? own
    : Math.min(own, log.told.remainingItems - itemsOf(inFlight(log, nowMs)))
}

/** If the calls in flight are answered at once; `null`: as soon as they are. */
function fitsAtMs(log: ChargeLog, items: number, nowMs: number) {
  const charges = log.charges.map((one) => ({ ...one, endMs: Math.min(one.endMs, nowMs) }))
  const answered = { ...log, charges }
  if (roomAt(answered, nowMs) >= items) return null
  return (
    [toldEndMs(log), ...charges.map((charge) => freeAtMs(charge, log))]
      .sort((a, b) => a - b)
      .find((atMs) => atMs > nowMs && roomAt(answered, atMs) >= items) ?? nowMs + log.windowMs
  )
}

interface Ask {
  readonly id: string
  readonly wantItems: number
  readonly minItems: number
}

export type Decision = ReturnType<typeof decide>

/**
 * While the limit is unknown, or strangers were seen, one call goes at a time, and the first of a
 * window is as small as can be. UsageError `batch_over_budget`: it never fits.
 */
export function decide(log: ChargeLog, { id, wantItems, minItems }: Ask, nowMs: number) {
  const { source, charges, limitItems, blockedUntilMs } = log
  /** `null`: until another call is answered. */
  const wait = (untilMs: number | null) => ({ kind: 'wait' as const, untilMs })
  if (minItems > limitItems && source !== 'default')
    throw new UsageError(
      'batch_over_budget',
      `a call of ${minItems} items never fits the gateway's rate limit of ${limitItems} in a window`,
      `send at most ${limitItems} items in one call`,
    )
  if (nowMs < blockedUntilMs) return wait(blockedUntilMs)
  const flying = inFlight(log, nowMs)
  const isWary = nowMs < log.waryUntilMs
  const isLearning = flying.some(({ sentMs }) => sentMs > nowMs - learningMs)
  if (flying.length >= maxInFlight || (isLearning && (isWary || source === 'default')))
    return wait(null)
  // Where none is told, a call answered since the last 429 says that one is open.
  const isOpen =
    source === 'told'
      ? nowMs < toldEndMs(log)
      : charges.some(({ sentMs, endMs }) => sentMs >= blockedUntilMs && endMs <= nowMs)
  const mostItems = source === 'default' || (isWary && !isOpen) ? minItems : wantItems
  const room = roomAt(log, nowMs)
  if (room < minItems) {
    // An eighth of the window is worth a call; fewer items wait a little for more.
    const enough = Math.min(mostItems, Math.max(minItems, Math.floor(limitItems / 8)))
    const enoughMs = fitsAtMs(log, enough, nowMs)
    const someMs = fitsAtMs(log, minItems, nowMs) ?? nowMs
    return wait(enoughMs && Math.min(enoughMs, someMs + log.windowMs / 40))
  }
  const sent = { id, items: Math.min(mostItems, room), sentMs: nowMs, endMs: nowMs + flightMs }
  return { kind: 'granted' as const, log: { ...log, charges: [...charges, sent] } }
}

export const released = (log: ChargeLog, id: string): ChargeLog => ({
  ...log,
  charges: log.charges.filter((one) => one.id !== id),
})

/** Without an HTTP response the call may still be on its way. */
export interface CallResult {
  readonly httpStatus?: number | undefined
  readonly rateLimit?: RateLimit | undefined
  readonly retryAfterMs?: number | undefined
  readonly detail?: string | undefined
}

/** `jitter` in [0, 1) spreads those who wait for the end of a 429 (§7). */
export function afterCall(
  log: ChargeLog,
  id: string,
  result: CallResult,
  nowMs: number,
  jitter: number,
): ChargeLog {
  const { httpStatus } = result
  const refused = httpStatus === 429
  const call = log.charges.find((one) => one.id === id)
  const endMs = httpStatus ? nowMs : Math.min(call?.endMs ?? 0, nowMs + lingerMs)
  const charges = log.charges.map((one) => (one === call ? { ...one, endMs } : one))
  if (httpStatus === undefined) return { ...log, charges }
  const limit = plausible(result.rateLimit)
  // Of a call long timed out nobody knows what its response counts.
  const learnt =
    call &&
    (limit ? learning(log, call, limit, refused, nowMs) : assuming(log, call, refused, nowMs))
  return refused
    ? // It was charged, if at all, to a window that is over when the wait is.
      { ...released(log, id), ...learnt, ...refusal(log, result, limit, nowMs, jitter) }
    : { ...log, charges, ...learnt, refusals: 0 }
}

function plausible(limit: RateLimit | undefined) {
  if (!limit || limit.limit < 1 || limit.remaining > limit.limit) return undefined
  const resetSeconds = Math.min(Math.max(1, limit.resetSeconds), 3_600)
  return { ...limit, resetSeconds }
}

function learning(
  log: ChargeLog,
  call: Charge,
  { limit, remaining, resetSeconds }: RateLimit,
  refused: boolean,
  nowMs: number,
): Partial<ChargeLog> {
  const { source, limitItems, windowMs, told, waryUntilMs } = log
  const resetMs = resetSeconds * 1_000
  const spentItems = limit - remaining
  // It opened the window; any other lasts at least as long as what is left.
  const isOpener = spentItems === call.items && !refused
  // A larger one may be another window's, unless more is left of it than the lower one has.
  const isOwn = source !== 'told' || limit < limitItems || remaining >= limitItems
  const now = { remainingItems: remaining, endsByMs: nowMs + resetMs + 1 }
  // Headers round up to whole seconds: what surely ends later is another window.
  const before = told && call.sentMs + resetMs - 1_000 <= told.endsByMs ? told : now
  return {
    source: 'told',
    limitItems: isOwn ? limit : limitItems,
    windowMs: isOpener ? resetMs : Math.max(windowMs, resetMs),
    waryUntilMs: spentItems > itemsOf(liveAt(log, nowMs)) ? nowMs + 2 * windowMs : waryUntilMs,
    // Of two about one window the one that leaves less was charged later.
    told: {
      remainingItems: Math.min(before.remainingItems, remaining),
      endsByMs: Math.min(before.endsByMs, now.endsByMs),
    },
  }
}

/**
 * Without headers. After a 429 half of the call is tried, or what went through in this window. What
 * has held for ten windows is doubled again.
 */
function assuming(
  log: ChargeLog,
  call: Charge,
  refused: boolean,
  nowMs: number,
): Partial<ChargeLog> {
  const { limitItems, windowMs, changedMs } = log
  const source = log.source === 'default' ? 'assumed' : log.source
  // A single item tells nothing of the size of calls.
  if (refused && call.items > 1) {
    const through = liveAt(log, nowMs).filter(({ endMs }) => endMs <= nowMs)
    const likely = Math.max(itemsOf(through), Math.floor(call.items / 2))
    const lowered = Math.max(1, Math.min(Math.floor(0.75 * limitItems), likely))
    return { source, limitItems: lowered, changedMs: nowMs }
  }
  const isOld = source === 'assumed' && nowMs - changedMs > 10 * windowMs
  const grown = Math.min(defaultBudget.limitItems, 2 * limitItems)
  return refused || grown <= limitItems || !isOld
    ? { source }
    : { source, limitItems: grown, changedMs: nowMs }
}

function refusal(
  { windowMs, refusals, blockedUntilMs }: ChargeLog,
  { retryAfterMs }: CallResult,
  limit: RateLimit | undefined,
  nowMs: number,
  jitter: number,
): Partial<ChargeLog> {
  // One wait was too short, and nothing tells the window's end.
  const leastMs = refusals > 0 && limit === undefined ? windowMs : 0
  const wantedMs = Math.max(leastMs, retryAfterMs ?? (limit?.resetSeconds ?? 1) * 1_000)
  // After longer (robustness §6) the next 429 tells the caller.
  const waitMs = Math.min(Math.max(maxRetryAfterMs, windowMs), wantedMs)
  const spreadMs = jitter * Math.min(1_000, windowMs / 20)
  return {
    blockedUntilMs: Math.max(blockedUntilMs, nowMs + waitMs + spreadMs),
    waryUntilMs: nowMs + 2 * windowMs,
    refusals: refusals + 1,
  }
}

/** Without what is over; what ended in one part of a window is added up. */
export function compacted(log: ChargeLog, nowMs: number) {
  const charges = new Map<string, Charge>()
  for (const one of liveAt(log, nowMs)) {
    const id = one.endMs > nowMs ? one.id : ''
    const key = id || `${Math.floor((one.endMs * windowParts) / log.windowMs)}`
    const { items, endMs } = charges.get(key) ?? { items: 0, endMs: 0 }
    const sum = { items: items + one.items, endMs: Math.max(endMs, one.endMs) }
    charges.set(key, { id, sentMs: one.sentMs, ...sum })
  }
  return { ...log, writtenMs: nowMs, charges: [...charges.values()] }
}

export type BudgetView = ReturnType<typeof viewOf>

export function viewOf(log: ChargeLog, nowMs: number) {
  const { limitItems, windowMs } = log
  const roomItems = Math.max(0, roomAt(log, nowMs))
  return {
    learnt: log.source === 'told',
    limitItems,
    windowMs,
    spentItems: limitItems - roomItems,
    roomItems,
    endsInMs: Math.max(0, (fitsAtMs(log, limitItems, nowMs) ?? nowMs) - nowMs),
  }
}

export type BatchPlan = ReturnType<typeof planBatch>

const newCall = (call: 'context' | 'submit' | 'status') => ({
  call,
  items: 0,
  calls: 0,
  firstWindow: 0,
  lastWindow: 0,
})

/**
 * In the order of `batch submit --wait`: context and submission by groups, then one polling pass.
 * Calls are split at a window's end (§8 rule 5).
 */
export function planBatch(
  cost: Readonly<Record<'contextItems' | 'submitItems' | 'statusItems', number>>,
  { roomItems, endsInMs, limitItems, windowMs }: Omit<BudgetView, 'learnt' | 'spentItems'>,
) {
  const calls = [newCall('context'), newCall('submit'), newCall('status')] as const
  const [context, submit, status] = calls
  const newWindow = (startsSeconds: number) => ({
    startsSeconds,
    items: { context: 0, submit: 0, status: 0 },
  })
  const windows: ReturnType<typeof newWindow>[] = []
  let [atMs, room, window] = [0, roomItems, newWindow(0)]
  const send = (one: ReturnType<typeof newCall>, wanted: number) => {
    for (let left = wanted; left > 0; ) {
      if (room === 0) {
        atMs = atMs === 0 ? endsInMs || windowMs : atMs + windowMs
        room = limitItems
        window = newWindow(Math.ceil(atMs / 1_000))
      }
      if (windows.at(-1) !== window) windows.push(window)
      const items = Math.min(left, room, limits.batchItems)
      window.items[one.call] += items
      one.items += items
      one.calls++
      one.firstWindow ||= windows.length
      one.lastWindow = windows.length
      room -= items
      left -= items
    }
  }
  for (let at = 0; at < cost.submitItems; at += limits.batchItems) {
    const group = Math.min(cost.submitItems - at, limits.batchItems)
    send(context, Math.min(cost.contextItems - at, group))
    send(submit, group)
  }
  send(status, cost.statusItems)
  return {
    items: itemsOf(calls),
    seconds: windows.at(-1)?.startsSeconds ?? 0,
    calls: calls.filter(({ items }) => items > 0),
    windows,
  }
}
