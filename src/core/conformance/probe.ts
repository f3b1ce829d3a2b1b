/**
 * Sends what the client proper never would, and keeps what came. Every call waits for the budget
 * that all processes of this home share (§8); 429 and 503 are waited for by what they say (§7).
 */
import type { Planner } from '#client/budget/planner'
import {
  type Answer,
  answerError,
  maxRetryAfterMs,
  rateLimitOf,
  retryHintMs,
} from '#client/gateway/answer'
import { type Clock, type Fetch, type HttpAnswer, type HttpCall, TransportError } from '#ports'
import { jsonOf, readCapped } from '#protocol/capped'
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
  readonly wrong?: string | undefined
}

/** The batch routes: the list of a call, and what a result says of its item (§2.7). */
export const batches = {
  contexts: { path: '/propose/batch/signing-data', field: 'identifiers', echo: 'identifier' },
  proposals: { path: '/propose/batch', field: 'proposals', echo: 'client_ref' },
  statuses: { path: '/propose/batch/status', field: 'candidate_ids', echo: 'candidate_id' },
} as const
export type Batch = keyof typeof batches

const get = (path: string): ProbeCall => ({ method: 'GET', path })
const post = (path: string, body: unknown, wrong?: string): ProbeCall => {
  return { method: 'POST', path, body, wrong }
}

export const routes = {
  get,
  eligibility: (address: string) => get(`/v1/proposals/eligibility/${address}`),
  prepare: (identifier: string, body: unknown, wrong?: string) =>
    post(`/v1/proposals/${identifier}/signing-data`, body, wrong),
  submit: (identifier: string, body: unknown, wrong?: string) =>
    post(`/v1/proposals/${identifier}`, body, wrong),
  status: (identifier: string, candidateId: string) =>
    get(`/v1/proposals/${identifier}/status/${candidateId}`),
  batch(batch: Batch, list: readonly unknown[], wrong?: string): ProbeCall {
    const { path, field } = batches[batch]
    return { ...post(path, { [field]: list }, wrong), items: Math.max(1, list.length) }
  },
}

type Noticed = Partial<Record<'last' | 'cookie' | 'badError' | 'signature', Seen>>

export type Probe = ReturnType<typeof createProbe>

/** Robustness §6. */
const capBytes = 4 * 1024 * 1024
/** A gateway that is busy (503) is given time; a 429 comes but once where nobody else spends. */
const tries = 10
const shortestPauseMs = 1_000
const longestPauseMs = 30_000

interface ProbeParts {
  readonly fetch: Fetch
  readonly base: string
  readonly clock: Clock
  readonly planner: Planner
  readonly signal?: AbortSignal | undefined
}

function openExchange({ fetch, base, signal }: ProbeParts) {
  const noticed: Noticed = {}

  async function exchange(url: string, init: HttpCall, sent: string): Promise<Seen> {
    const response = await fetch(url, { ...init, redirect: 'manual', ...(signal && { signal }) })
    const { status, headers } = response
    const text = await readCapped(response.body, capBytes)
    if (text === undefined) throw new NotSeen(`an answer is longer than ${capBytes} bytes`)
    // The spec does not say what type an answer has: `application/problem+json` is JSON too.
    const isJson = /^application\/([\w.+-]+\+)?json *(;|$)/i.test(headers.get('content-type') ?? '')
    const seen = new Seen({ sent, status, headers, text, json: isJson ? jsonOf(text) : undefined })
    if (headers.get('set-cookie') !== null) noticed.cookie ??= seen
    if (holdsSignature(text, init.body)) noticed.signature ??= seen
    // Gateway bodies are not the application's own refusals (§7 rule 1).
    if (status >= 400 && seen.json !== undefined && !hasErrorBody(seen)) noticed.badError ??= seen
    noticed.last = seen
    return seen
  }

  /** At once, whatever the budget says. Without an answer nothing can be said of a gateway (75). */
  async function overrun({ method, path, body, headers, wrong }: ProbeCall) {
    const all = { accept: 'application/json', 'content-type': 'application/json', ...headers }
    const { 'content-type': type, ...unlabelled } = all
    const text = body === undefined || is.text(body) ? body : JSON.stringify(body)
    const init: HttpCall = {
      method,
      headers: text === undefined || type === '' ? unlabelled : all,
      // `fetch` labels text by itself, bytes it does not.
      ...(text !== undefined && { body: type === '' ? new TextEncoder().encode(text) : text }),
    }
    const sent = `${method} ${path}${wrong === undefined ? '' : ` with ${wrong}`}`
    try {
      return await exchange(base + path, init, sent)
    } catch (error) {
      if (error instanceof TransportError) throw unreachable(error.message)
      throw error
    }
  }

  return {
    noticed,
    overrun,
    async fetch(to: string | URL, init: HttpCall = {}): Promise<HttpAnswer> {
      const url = String(to)
      const sent = `${init.method ?? 'GET'} ${new URL(url).pathname}`
      const { status, headers, text } = await exchange(url, init, sent)
      const { body } = new Response(text === '' ? null : text)
      return { status, headers, body }
    },
  }
}

export function createProbe(parts: ProbeParts) {
  const { clock, planner, signal } = parts
  const exchange = openExchange(parts)
  const { noticed, overrun } = exchange

  const retryMs = (seen: Seen) =>
    retryHintMs(seen.headers, String(seen.at('error.detail') ?? ''), clock)

  async function sendOnce(call: ProbeCall) {
    const reservation = await planner.reserve(call.items ?? 1, { signal })
    let seen: Seen | undefined
    try {
      seen = await overrun(call)
      return seen
    } finally {
      const refused = seen?.status === 429
      await reservation.settle({
        ...{ answered: seen !== undefined, refused },
        rateLimit: seen && rateLimitOf(seen.headers),
        retryAfterMs: seen && refused ? retryMs(seen) : undefined,
      })
    }
  }

  /** Asks again after a 503, and after a 429, which is waited for by what asks. */
  async function untilServed(
    call: () => Promise<Seen>,
    longestPauseMs = Number.POSITIVE_INFINITY,
    isFinal: (seen: Seen, tried: number) => boolean = () => false,
  ): Promise<Seen> {
    for (let tried = 1; ; tried++) {
      const seen = await call()
      if (![429, 503].includes(seen.status) || isFinal(seen, tried)) return seen
      const waitMs = Math.min(retryMs(seen) ?? 0, longestPauseMs)
      if (tried === tries || waitMs > maxRetryAfterMs) throw seen.unanswered(` ${tried} times`)
      if (seen.status === 503) await clock.sleep(Math.max(waitMs, shortestPauseMs), signal)
    }
  }

  return {
    ...exchange,
    retryMs,
    untilServed,
    send: (call: ProbeCall) => untilServed(() => sendOnce(call)),
    /** What came while the client proper made a call by `fetch`. */
    sendBy: (call: () => Promise<Answer<unknown> | undefined>) =>
      untilServed(async () => {
        delete noticed.last
        const answer = await call()
        if (noticed.last !== undefined) return noticed.last
        if (answer !== undefined && answer.kind !== 'accepted') throw answerError(answer, 'submit')
        throw new UnavailableError('no_answer', 'no response', 'run `proposer replay`')
      }, longestPauseMs),
  }
}

export const unreachable = (why: string) =>
  new UnavailableError(
    'gateway_unreachable',
    why,
    'check the URL and the gateway, then rerun the checks',
  )

/** The beginning of a signature that was sent; one too short to be one may be anywhere. */
function holdsSignature(text: string, body: unknown) {
  const sent = is.text(body) ? [...body.matchAll(/"signature":"0x([0-9a-f]{64,120})/gi)] : []
  return sent.some(([, digits = '']) => text.toLowerCase().includes(digits.toLowerCase()))
}

function hasErrorBody(seen: Seen) {
  const errors = seen.at('errors')
  const isError = is.text(seen.at('error.code')) && is.text(seen.at('error.detail'))
  return isError && (errors === undefined || Array.isArray(errors))
}
