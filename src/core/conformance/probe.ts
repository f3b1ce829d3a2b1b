/**
 * Sends what the client proper never would, and keeps what came. Every call waits for the budget
 * that all processes of this home share (§8); 429 and 503 are waited for by what they say (§7).
 */
import type { Planner } from '#client/budget/planner'
import type { CallResult } from '#client/budget/window'
import { maxRetryAfterMs, rateLimitOf, retryHintMs } from '#client/gateway/answer'
import { type Clock, type Fetch, TransportError } from '#ports'
import { readCapped } from '#protocol/capped'
import { UnavailableError } from '#protocol/errors'
import { is, NotSeen, Seen } from './answer.js'

export interface ProbeCall {
  readonly method: 'GET' | 'POST' | 'OPTIONS'
  readonly path: string
  readonly body?: unknown
  /** An empty Content-Type is left out. */
  readonly headers?: Readonly<Record<string, string>>
  /** What it is charged (§8 rule 2); default 1. */
  readonly items?: number
}

/** The batch routes: the list of a call, and what a result says of its item (§2.7). */
export const batches = {
  contexts: { path: '/propose/batch/signing-data', field: 'identifiers', echo: 'identifier' },
  proposals: { path: '/propose/batch', field: 'proposals', echo: 'client_ref' },
  statuses: { path: '/propose/batch/status', field: 'candidate_ids', echo: 'candidate_id' },
} as const
export type Batch = keyof typeof batches

const get = (path: string): ProbeCall => ({ method: 'GET', path })
const post = (path: string, body: unknown): ProbeCall => ({ method: 'POST', path, body })

export const routes = {
  get,
  eligibility: (address: string) => get(`/v1/proposals/eligibility/${address}`),
  prepare: (identifier: string, body: unknown) =>
    post(`/v1/proposals/${identifier}/signing-data`, body),
  submit: (identifier: string, body: unknown) => post(`/v1/proposals/${identifier}`, body),
  status: (identifier: string, candidateId: string) =>
    get(`/v1/proposals/${identifier}/status/${candidateId}`),
  batch(batch: Batch, list: readonly unknown[]): ProbeCall {
    const { path, field } = batches[batch]
    return { ...post(path, { [field]: list }), items: Math.max(1, list.length) }
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
export function retryMs(seen: Seen, clock: Pick<Clock, 'nowMs'>) {
  const detail = seen.at('error.detail')
  return retryHintMs(seen.headers, is.text(detail) ? detail : '', clock)
}

/** Asks until there is an answer; until then it is told how many milliseconds to wait. */
export async function patiently(
  { clock, signal }: Pick<ProbeParts, 'clock' | 'signal'>,
  ask: (tried: number) => Promise<Seen | number>,
): Promise<Seen> {
  for (let tried = 1; ; tried++) {
    const seen = await ask(tried)
    if (typeof seen !== 'number') return seen
    if (seen > 0) await clock.sleep(seen, signal)
  }
}

/** Asks again after a 503, and after a 429, which is waited for by what asks. */
export const untilServed = (
  parts: Pick<ProbeParts, 'clock' | 'signal'>,
  exchange: () => Promise<Seen>,
  isFinal: (seen: Seen, tried: number) => boolean = () => false,
  longestPauseMs = Number.POSITIVE_INFINITY,
): Promise<Seen> =>
  patiently(parts, async (tried) => {
    const seen = await exchange()
    if ((seen.status !== 429 && seen.status !== 503) || isFinal(seen, tried)) return seen
    const waitMs = Math.min(retryMs(seen, parts.clock) ?? 0, longestPauseMs)
    if (tried === tries || waitMs > maxRetryAfterMs) throw seen.unanswered(` ${tried} times`)
    return seen.status === 503 ? Math.max(waitMs, shortestPauseMs) : 0
  })

export function createProbe({ fetch, base, clock, planner, signal }: ProbeParts) {
  const noticed: Noticed = { answers: 0 }
  const waiting = signal ? { signal } : {}
  let kept: Seen | undefined

  async function exchange(url: string, init: RequestInit, sent: string): Promise<Seen> {
    const response = await fetch(url, { ...init, redirect: 'manual', ...waiting })
    const { status, headers } = response
    const text = await readCapped(response.body, capBytes)
    if (text === undefined) throw new NotSeen(`an answer is longer than ${capBytes} bytes`)
    const seen = new Seen({ sent, status, headers, text, json: parsed(headers, text) })
    noticed.answers++
    if (headers.get('set-cookie') !== null) noticed.cookie ??= sent
    if (signaturesIn(init.body).some((hex) => text.toLowerCase().includes(hex)))
      noticed.signature ??= sent
    // Gateway bodies are not the application's own refusals (§7 rule 1).
    if (status >= 400 && seen.json !== undefined && !hasErrorBody(seen))
      noticed.badError ??= `sent ${sent}; got ${seen.came}`
    return seen
  }

  function overrun({ method, path, body, headers }: ProbeCall, wrong?: string) {
    const all = { accept: 'application/json', 'content-type': 'application/json', ...headers }
    const { 'content-type': type, ...unlabelled } = all
    const text = is.text(body) ? body : JSON.stringify(body)
    // `fetch` labels text by itself, bytes it does not.
    const init =
      body === undefined
        ? { headers: unlabelled }
        : type === ''
          ? { headers: unlabelled, body: new TextEncoder().encode(text) }
          : { headers: all, body: text }
    const sent = `${method} ${path}${wrong === undefined ? '' : ` with ${wrong}`}`
    return exchange(base + path, { method, ...init }, sent)
  }

  async function sendOnce(call: ProbeCall, wrong?: string) {
    const reservation = await planner.reserve(call.items ?? 1, waiting)
    let outcome: CallResult = { answered: false, refused: false }
    try {
      const seen = await overrun(call, wrong)
      const refused = seen.status === 429
      outcome = {
        answered: true,
        refused,
        rateLimit: rateLimitOf(seen.headers),
        retryAfterMs: refused ? retryMs(seen, clock) : undefined,
      }
      return seen
    } finally {
      await reservation.settle(outcome)
    }
  }

  /** Without an answer nothing can be said of a gateway (contract §6, exit 75). */
  async function reached(call: () => Promise<Seen>) {
    try {
      return await call()
    } catch (error) {
      if (!(error instanceof TransportError)) throw error
      throw unreachable(error.message)
    }
  }

  return {
    base,
    noticed,
    /** At once, whatever the budget says: for the rules about the budget only. */
    overrun: (call: ProbeCall, wrong?: string) => reached(() => overrun(call, wrong)),
    send: (call: ProbeCall, wrong?: string) =>
      untilServed({ clock, ...waiting }, () => reached(() => sendOnce(call, wrong))),
    /** Its exchanges are kept: for calls that the client proper makes. */
    async fetch(input: Parameters<Fetch>[0], init: RequestInit = {}): Promise<Response> {
      const url = input instanceof Request ? input.url : String(input)
      kept = undefined
      const seen = await exchange(url, init, `${init.method ?? 'GET'} ${new URL(url).pathname}`)
      kept = seen
      // Only 200 to 599 make a Response; anything else has failed already.
      const { status, headers } = seen
      return new Response(seen.text === '' ? null : seen.text, { status, headers })
    },
    last: () => kept,
  }
}

export const unreachable = (why: string) =>
  new UnavailableError(
    'gateway_unreachable',
    why,
    'check the URL and the gateway, then rerun the checks',
  )

/** The digits of the signatures in what is sent; those too short to be one may be anywhere. */
function signaturesIn(body: unknown) {
  if (!is.text(body)) return []
  return [...body.matchAll(/"signature":"0x([0-9a-fA-F]{64,})"/g)].map(([, hex = '']) =>
    hex.toLowerCase().slice(0, 120),
  )
}

function hasErrorBody(seen: Seen) {
  const errors = seen.at('errors')
  const isError = is.text(seen.at('error.code')) && is.text(seen.at('error.detail'))
  return isError && (errors === undefined || Array.isArray(errors))
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
