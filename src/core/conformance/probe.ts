/**
 * Sends what the client proper never would. Every call waits for the budget that all processes of
 * this home share (§8); 429 and 503 are waited for by what they say (§7).
 */
import type { Planner } from '#client/budget/planner'
import {
  type Answer,
  answerError,
  maxRetryAfterMs,
  rateLimitOf,
  retryHintMs,
  type Unaccepted,
} from '#client/gateway/answer'
import { type Clock, type Fetch, type HttpAnswer, type HttpCall, TransportError } from '#ports'
import { jsonOf, readCapped } from '#protocol/capped'
import { UnavailableError } from '#protocol/errors'
import { is, notSeen, Seen } from './answer.js'

export interface ProbeCall {
  readonly method: 'GET' | 'POST' | 'OPTIONS'
  readonly path: string
  readonly body?: unknown
  /** An empty Content-Type is left out. */
  readonly headers?: Readonly<Record<string, string>>
  /** §8 rule 2; default 1. */
  readonly items?: number
  readonly wrong?: string | undefined
}

/** The list of a call, and what a result says of its item (§2.7). */
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

/** Robustness §6. */
const capBytes = 4 * 1024 * 1024
const tries = 10

export type Probe = ReturnType<typeof createProbe>

export function createProbe({
  fetch,
  base,
  clock,
  planner,
  signal,
}: {
  readonly fetch: Fetch
  readonly base: string
  readonly clock: Clock
  readonly planner: Planner
  readonly signal?: AbortSignal | undefined
}) {
  const noticed: Partial<Record<'last' | 'cookie' | 'badError' | 'signature', Seen>> = {}

  async function exchange(url: string, init: HttpCall, sent: string) {
    const response = await fetch(url, { ...init, redirect: 'manual', ...(signal && { signal }) })
    const { status, headers, body } = response
    const text =
      (await readCapped(body, capBytes)) ?? notSeen(`an answer is longer than ${capBytes} bytes`)
    // `application/problem+json` is JSON too.
    const isJson = /^application\/([\w.+-]+\+)?json *(;|$)/i.test(headers.get('content-type') ?? '')
    const seen = new Seen({ sent, status, headers, text, json: isJson ? jsonOf(text) : undefined })
    if (headers.get('set-cookie') !== null) noticed.cookie ??= seen
    if (holdsSignature(text, init.body)) noticed.signature ??= seen
    // Gateway bodies are not the application's own refusals (§7 rule 1).
    if (status >= 400 && seen.json !== undefined && !hasErrorBody(seen)) noticed.badError ??= seen
    noticed.last = seen
    return seen
  }

  /** At once, whatever the budget says. */
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
    return exchange(base + path, init, sent).catch((error: unknown) => {
      throw error instanceof TransportError ? unreachable(error.message) : error
    })
  }

  const retryMs = (seen: Seen) =>
    retryHintMs(seen.headers, String(seen.at('error.detail') ?? ''), clock)

  async function charged(call: ProbeCall) {
    const reservation = await planner.reserve(call.items ?? 1, { signal })
    let seen: Seen | undefined
    try {
      seen = await overrun(call)
      return seen
    } finally {
      await reservation.settle({
        httpStatus: seen?.status,
        ...(seen && { rateLimit: rateLimitOf(seen.headers), retryAfterMs: retryMs(seen) }),
      })
    }
  }

  /** A 503 is waited for here, a 429 by what asks. */
  async function untilServed(call: () => Promise<Seen>) {
    for (let tried = 1; ; tried++) {
      const seen = await call()
      if (![429, 503].includes(seen.status)) return seen
      const waitMs = retryMs(seen) ?? 0
      if (tried === tries || waitMs > maxRetryAfterMs) throw seen.unanswered(` ${tried} times`)
      if (seen.status === 503) await clock.sleep(Math.max(waitMs, 1_000), signal)
    }
  }

  return {
    noticed,
    overrun,
    retryMs,
    async fetch(to: string | URL, init: HttpCall = {}): Promise<HttpAnswer> {
      const url = String(to)
      const sent = `${init.method ?? 'GET'} ${new URL(url).pathname}`
      const { status, headers, text } = await exchange(url, init, sent)
      const { body } = new Response(text === '' ? null : text)
      return { status, headers, body }
    },
    send: (call: ProbeCall) => untilServed(() => charged(call)),
    /** What came while the client proper made a call by `fetch`. */
    sendBy: (call: () => Promise<readonly Answer<unknown>[]>) =>
      untilServed(async () => {
        delete noticed.last
        const [answer] = await call()
        if (noticed.last !== undefined) return noticed.last
        throw answerError(answer as Unaccepted, 'submit')
      }),
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
