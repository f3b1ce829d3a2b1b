/** A budget between client and gateway, whose decisions a test may change (§8). */
import type { Clock } from '#ports'
import { answer, type Call, callOf } from './between.js'
import type { Wrong } from './world.js'

export interface Meter {
  readonly limit: number
  readonly windowMs: number
  /** What an answered call costs; `items` is what it should. */
  readonly cost: (call: Call, status: number, items: number) => number
  /** What a refused call costs. */
  readonly refusedCost: (items: number) => number
  /** Whose window a call is charged to. */
  readonly account: (call: Call) => string
  /** Whether a call of so many items is let through. */
  readonly lets: (items: number, left: number) => boolean
  /** Whether time takes the window away around the first call that is over it. */
  readonly ends: 'in time' | 'before the refusal' | 'after the refusal'
  /** What tells the client of its window. */
  readonly headers: (limit: number, left: number, resetSeconds: number) => Record<string, string>
  /** How a refused call is told when to come back. */
  readonly refusal: (seconds: number, nowMs: number) => Response
}

/** Charges as the spec says, and tells it as our own gateway does. */
export const meter: Meter = {
  limit: 350,
  windowMs: 10_000,
  cost: (_call, _status, items) => items,
  refusedCost: (items) => items,
  account: () => 'all',
  lets: (items, left) => items <= left,
  ends: 'in time',
  headers: (limit, left, resetSeconds) => ({
    'ratelimit-limit': String(limit),
    'ratelimit-remaining': String(left),
    'ratelimit-reset': String(resetSeconds),
  }),
  refusal: (seconds) =>
    answer(
      429,
      { error: { code: 'rate_limited', detail: `retry in ${seconds} seconds` } },
      { 'retry-after': String(seconds) },
    ),
}

/** Items of a call: a batch's entries, else one; `undefined` for what no route takes. */
function itemsOf({ path, method, body }: Call, status: number): number {
  if (status === 405 || (status === 404 && !path.startsWith('/v1/proposals/'))) return 0
  const list =
    method === 'POST' && path.startsWith('/propose/')
      ? Object.values(body).find(Array.isArray)
      : undefined
  return Math.max(1, list?.length ?? 1)
}

/** Stands before a gateway that charges nothing itself. */
export function metering(
  { limit, windowMs, cost, refusedCost, account, lets, ends, headers, refusal }: Meter,
  clock: Clock,
): Wrong {
  const windows = new Map<string, { startMs: number; spent: number }>()
  let hasEnded = ends === 'in time'
  return async (request, next) => {
    const call = await callOf(request)
    const name = account(call)
    const nowMs = clock.monotonicMs()
    const open = windows.get(name)
    let window =
      open !== undefined && nowMs - open.startMs < windowMs ? open : { startMs: nowMs, spent: 0 }
    const expected = itemsOf(call, 200)
    const left = () => Math.max(0, limit - window.spent)
    const seconds = () => Math.max(1, Math.ceil((window.startMs + windowMs - nowMs) / 1_000))
    const told = (response: Response) => {
      for (const [header, value] of Object.entries(headers(limit, left(), seconds())))
        response.headers.set(header, value)
      return response
    }
    // What costs nothing is never refused.
    const isFree = cost(call, 0, expected) === 0
    if (!isFree && !lets(expected, left()) && !hasEnded && ends === 'before the refusal') {
      hasEnded = true
      window = { startMs: nowMs, spent: 0 }
    }
    if (!isFree && !lets(expected, left())) {
      windows.set(name, window)
      window.spent += refusedCost(expected)
      const refused = told(refusal(seconds(), clock.nowMs()))
      if (!hasEnded) windows.delete(name)
      hasEnded = true
      return refused
    }
    const response = await next(request)
    const charge = itemsOf(call, response.status) === 0 ? 0 : cost(call, response.status, expected)
    if (charge > 0) windows.set(name, window)
    window.spent += charge
    const copy = new Response(response.body, { status: response.status, headers: response.headers })
    for (const header of ['ratelimit-limit', 'ratelimit-remaining', 'ratelimit-reset'])
      copy.headers.delete(header)
    return told(copy)
  }
}
