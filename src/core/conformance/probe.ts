/**
 * Sends what the client proper never would, and keeps what came. Every call waits for the budget
 * that all processes of this home share (§8); 429 and 503 are waited for by what they say (§7).
 */
import type { Planner } from '../client/budget/planner.js'
import type { CallResult } from '../client/budget/window.js'
import { maxRetryAfterMs, rateLimitOf, retryHintMs } from '../client/gateway/answer.js'
import { type Clock, type Fetch, TransportError } from '../ports.js'
import { readCapped } from '../protocol/capped.js'
import { UnavailableError } from '../protocol/errors.js'
import { at, came, NotSeen, type Seen } from './rule.js'

export interface ProbeCall {
  readonly method: 'GET' | 'POST' | 'OPTIONS'
  readonly path: string
  readonly body?: unknown
  /** An empty Content-Type is left out. */
  readonly headers?: Readonly<Record<string, string>>
  /** What it is charged (§8 rule 2); default 1. */
  readonly items?: number
  readonly wrong?: string | undefined
}

/** The batch routes: the list of a call, and what a result says of its item (§2.7). */
export const batches = {
  contexts: { path: '/propose/batch/signing-data', field: 'identifiers', echo: 'identifier' },
  proposals: { path: '/propose/batch', field: 'proposals', echo: 'client_ref' },
  statuses: { path: '/propose/batch/status', field: 'candidate_ids', echo: 'candidate_id' },
} as const
export type Batch = keyof typeof batches

export const routes = {
  eligibility: (address: string, wrong?: string): ProbeCall => ({
    method: 'GET',
    path: `/v1/proposals/eligibility/${address}`,
    wrong,
  }),
  prepare: (identifier: string, body: unknown, wrong?: string): ProbeCall => ({
    method: 'POST',
    path: `/v1/proposals/${identifier}/signing-data`,
    body,
    wrong,
  }),
  submit: (identifier: string, body: unknown, wrong?: string): ProbeCall => ({
    method: 'POST',
    path: `/v1/proposals/${identifier}`,
    body,
    wrong,
  }),
  status: (identifier: string, candidateId: string, wrong?: string): ProbeCall => ({
    method: 'GET',
    path: `/v1/proposals/${identifier}/status/${candidateId}`,
    wrong,
  }),
  batch(batch: Batch, list: readonly unknown[], wrong?: string): ProbeCall {
    const { path, field } = batches[batch]
    return {
      method: 'POST',
      path,
      body: { [field]: list },
      items: Math.max(1, list.length),
      wrong,
    }
  },
}

export interface Noticed {
  answers: number
  cookie?: string
  badError?: string
  signature?: string
}

export type Probe = ReturnType<typeof createProbe>

export interface ProbeParts {
  readonly fetch: Fetch
  readonly base: string
  readonly clock: Clock
  readonly planner: Planner
  readonly signal?: AbortSignal
}

/** As the client's cap on a batch's answer (robustness §6). */
const capBytes = 4 * 1024 * 1024
/** A gateway that is busy (503) is given time; a 429 comes but once where nobody else spends. */
const tries = 10
const shortestPauseMs = 1_000

/** Milliseconds that a 429 or 503 asks for, by header or detail (§7). */
export function retryMs(seen: Seen, clock: Pick<Clock, 'nowMs'>): number | undefined {
  const detail = at(seen.json, 'error', 'detail')
  return retryHintMs(seen.headers, typeof detail === 'string' ? detail : '', clock)
}

function outcomeOf(seen: Seen, clock: Pick<Clock, 'nowMs'>): CallResult {
  const refused = seen.status === 429
  return {
    answered: true,
    refused,
    rateLimit: rateLimitOf(seen.headers),
    retryAfterMs: refused ? retryMs(seen, clock) : undefined,
  }
}

const unanswered: CallResult = {
  answered: false,
  refused: false,
  rateLimit: undefined,
  retryAfterMs: undefined,
}

/** A probe of one gateway. */
export function createProbe(parts: ProbeParts) {
  const { fetch, base, clock, planner, signal } = parts
  const noticed: Noticed = { answers: 0 }
  let kept: Seen | undefined

  async function exchange(url: string, init: RequestInit, sent: string): Promise<Seen> {
    const response = await fetch(url, { ...init, redirect: 'manual', ...(signal && { signal }) })
    const { status, headers } = response
    const text = await readCapped(response.body, capBytes)
    if (text === undefined) throw new NotSeen(`an answer is longer than ${capBytes} bytes`)
    const seen: Seen = { sent, status, headers, text, json: parsed(headers, text) }
    noticed.answers++
    if (headers.get('set-cookie') !== null) noticed.cookie ??= sent
    if (signaturesIn(init.body).some((hex) => text.toLowerCase().includes(hex)))
      noticed.signature ??= sent
    // Gateway bodies are not the application's own refusals (§7 rule 1).
    if (status >= 400 && seen.json !== undefined && !hasErrorBody(seen))
      noticed.badError ??= `sent ${sent}; got ${came(seen)}`
    return seen
  }

  function overrun({ method, path, body, headers, wrong }: ProbeCall): Promise<Seen> {
    const accept = { accept: 'application/json' }
    const sent = `${method} ${path}${wrong === undefined ? '' : ` with ${wrong}`}`
    if (body === undefined)
      return exchange(base + path, { method, headers: { ...accept, ...headers } }, sent)
    const text = typeof body === 'string' ? body : JSON.stringify(body)
    const all = { ...accept, 'content-type': 'application/json', ...headers }
    // `fetch` labels text by itself, bytes it does not.
    const { 'content-type': type, ...unlabelled } = all
    const init =
      type === ''
        ? { method, headers: unlabelled, body: new TextEncoder().encode(text) }
        : { method, headers: all, body: text }
    return exchange(base + path, init, sent)
  }

  async function sendOnce(call: ProbeCall): Promise<Seen> {
    const reservation = await planner.reserve(call.items ?? 1, signal ? { signal } : {})
    let outcome = unanswered
    try {
      const seen = await overrun(call)
      outcome = outcomeOf(seen, clock)
      return seen
    } finally {
      await reservation.settle(outcome)
    }
  }

  return {
    base,
    noticed,
    /** At once, whatever the budget says: for the rules about the budget only. */
    overrun: (call: ProbeCall) => reached(() => overrun(call)),
    async send(call: ProbeCall): Promise<Seen> {
      for (let attempt = 1; ; attempt++) {
        const seen = await reached(() => sendOnce(call))
        if (seen.status !== 429 && seen.status !== 503) return seen
        const waitMs = retryMs(seen, clock) ?? shortestPauseMs
        if (attempt === tries || waitMs > maxRetryAfterMs)
          throw new NotSeen(`${seen.sent} was answered ${came(seen)} ${attempt} times`)
        // The planner waits out a 429 itself.
        if (seen.status === 503) await clock.sleep(Math.max(waitMs, shortestPauseMs), signal)
      }
    },
    /** Its exchanges are kept: for calls that the client proper makes. */
    async fetch(input: Parameters<Fetch>[0], init?: RequestInit): Promise<Response> {
      const { pathname } = new URL(
        typeof input === 'string' || input instanceof URL ? input : input.url,
      )
      const method = init?.method ?? 'GET'
      kept = undefined
      const seen = await exchange(String(input), init ?? {}, `${method} ${pathname}`)
      kept = seen
      // Only 200 to 599 make a Response; anything else has failed already.
      return new Response(seen.text === '' ? null : seen.text, {
        status: seen.status,
        headers: seen.headers,
      })
    },
    last: () => kept,
  }

  /** Without an answer nothing can be said of a gateway (contract §6, exit 75). */
  async function reached(call: () => Promise<Seen>): Promise<Seen> {
    try {
      return await call()
    } catch (error) {
      if (!(error instanceof TransportError)) throw error
      throw new UnavailableError(
        'gateway_unreachable',
        error.message,
        'check the URL and the gateway, then rerun the checks',
      )
    }
  }
}

/** The digits of the signatures in what is sent; those too short to be one may be anywhere. */
function signaturesIn(body: unknown): readonly string[] {
  if (typeof body !== 'string') return []
  return [...body.matchAll(/"signature":"0x([0-9a-fA-F]{64,})"/g)].map(([, hex = '']) =>
    hex.toLowerCase().slice(0, 120),
  )
}

function hasErrorBody({ json }: Seen): boolean {
  const errors = at(json, 'errors')
  const isText = (name: string) => typeof at(json, 'error', name) === 'string'
  return isText('code') && isText('detail') && (errors === undefined || Array.isArray(errors))
}

function parsed(headers: Headers, text: string): unknown {
  // What type an answer has the spec does not say: `application/problem+json` is JSON too.
  if (!/^application\/([\w.+-]+\+)?json *(;|$)/i.test(headers.get('content-type') ?? ''))
    return undefined
  try {
    return JSON.parse(text)
  } catch {
    // Said to be JSON and is not: as good as none.
    return undefined
  }
}
