/** Sends what the client never would, within this home's budget (§8). */
import type { Planner } from '#client/budget/planner'
import {
  type Answer,
  answerError,
  maxRetryAfterMs,
  rateLimitOf,
  retryHintMs,
  type Unaccepted,
} from '#client/gateway/answer'
import { plainCode } from '#client/gateway/reading'
import { type Clock, type Fetch, type HttpAnswer, type HttpCall, TransportError } from '#ports'
import { jsonOf, readCapped } from '#protocol/capped'
import { UnavailableError, UsageError } from '#protocol/errors'
import { Version } from '#protocol/schema'
import { patterns } from '#protocol/words'

export class Fault extends Error {}

/** Not examined: any UsageError says so, ours where we refuse to send too. */
export function notSeen(why: string): never {
  throw new UsageError('usage', why, '')
}

/** Dotted. The spec names few: `~total|bond` is a name with `total`, or else `bond`. */
export const at = (json: unknown, path: string) =>
  path.split('.').reduce<unknown>((here, step) => {
    if (!is.structure(here)) return undefined
    const like = (form: string) =>
      Object.keys(here).find((name) => new RegExp(form, 'i').test(name))
    const name = step.startsWith('~') ? step.slice(1).split('|').map(like).find(is.text) : step
    return name && Object.getOwnPropertyDescriptor(here, name)?.value
  }, json)

export function listAt(json: unknown, path: string): readonly unknown[] {
  const found = at(json, path)
  return Array.isArray(found) ? found : []
}

/** With JSON: the application's own, never of what stands before it (§7 rule 1). */
const ownStatuses = [200, 202, 400, 403, 409, 422]
export const malformed = [400, 422]
/** What is malformed in a path may as well name nothing. */
export const notServed = [400, 404, 422]

/** By paths with spaces between: their value, or a test of it. */
export type Expected = Readonly<Record<string, unknown>>

export type Demand = readonly number[] | Expected | boolean | undefined

export class Seen {
  constructor(
    readonly sent: string,
    readonly status: number,
    readonly headers: HttpAnswer['headers'],
    readonly text: string,
    readonly json: unknown,
  ) {}

  at(path: string) {
    return at(this.json, path)
  }

  as(changes: Partial<Pick<Seen, 'sent' | 'status' | 'json'>>): Seen {
    return Object.assign(Object.create(Seen.prototype), this, changes)
  }

  with(wrong: string) {
    return this.as({ sent: `${this.sent} with ${wrong}` })
  }

  in(path: string) {
    return this.as({ sent: `${this.sent}: ${path}`, json: this.json && (this.at(path) ?? null) })
  }

  get results() {
    return listAt(this.json, 'results').map((json) => this.as({ json }))
  }

  get codes() {
    return this.results.map((one) => one.at('status_code'))
  }

  get candidate() {
    const id = this.at('candidate_id')
    return is.uuid(id) ? id : notSeen(`${this.sent} gave no candidate`)
  }

  get came() {
    const code = this.at('error.code')
    if (is.text(code)) return `${this.status} ${plainCode(code)}`
    return this.json === undefined ? `${this.status} without JSON` : String(this.status)
  }

  /** Another check tells the status. */
  given(...statuses: readonly number[]) {
    return statuses.includes(this.status) ? this : this.unanswered()
  }

  unanswered(more = ''): never {
    return notSeen(`${this.sent} was answered ${this.came}${more}`)
  }

  fault(what: string) {
    return new Fault(`sent ${this.sent}; got ${this.came}${what}`)
  }

  must(be: Demand) {
    if (be === false) throw this.fault(this.status < 300 ? `: ${shown(this.json)}` : '')
    if (Array.isArray(be)) {
      const isBare = ownStatuses.includes(this.status) && this.json === undefined
      if (isBare || !be.includes(this.status)) throw this.fault(`, expected ${be.join(' or ')}`)
      return
    }
    for (const [paths, wanted] of Object.entries(be ?? {}))
      for (const path of paths.split(' ')) {
        const value = this.at(path)
        if (!isSo(wanted, value))
          throw this.fault(`, in which ${path.replace(/~(.*\|)?/, '')} is ${shown(value)}`)
      }
  }
}

const isSo = (wanted: unknown, value: unknown) =>
  typeof wanted === 'function' ? wanted(value) : value === wanted

/** Without what may be of a signature (R5). */
const shown = (value: unknown) =>
  (JSON.stringify(value) ?? 'missing').replaceAll(/[0-9a-f]{64,}/gi, '…').slice(0, 200)

export const integer = (value: unknown) =>
  is.uint(value) || is.index(value) ? String(value) : undefined

/** RFC 3339 in any form, or Unix seconds or milliseconds; else `NaN`. */
export function timeMs(value: unknown) {
  const number = Number(integer(value))
  if (number >= 0) return number < 1e11 ? number * 1_000 : number
  // Date.parse reads no more than milliseconds everywhere.
  return is.text(value) ? Date.parse(value.replace(/(\.\d{3})\d+/, '$1')) : Number.NaN
}

/** Others may tell null for what is not there. */
export const absentOr = (own: unknown) => (told: unknown) => is.absent(told) || isSo(own, told)

/** Routes may differ in precision. */
export const sameInstant = (one: unknown) => (other: unknown) =>
  Math.abs(timeMs(one) - timeMs(other)) < 1_000

const fits =
  (form: RegExp) =>
  (value: unknown): value is string =>
    typeof value === 'string' && form.test(value)

export const is = {
  address: fits(patterns.address),
  hash: fits(patterns.bytes32),
  uuid: fits(new RegExp(patterns.uuid, 'i')),
  uint: fits(patterns.uint256),
  text: fits(/^/),
  word: fits(/./s),
  flag: (value: unknown) => typeof value === 'boolean',
  index: (value: unknown) => Number.isSafeInteger(value) && Number(value) >= 0,
  instant: (value: unknown) => !Number.isNaN(timeMs(value)),
  structure: (value: unknown): value is object => typeof value === 'object' && value !== null,
  nullable: (value: unknown) => value === null || (is.structure(value) && !Array.isArray(value)),
  there: (value: unknown) => value !== undefined,
  given: (value: unknown) => value != null,
  absent: (value: unknown) => value == null,
  version: (value: unknown) => Version.safeParse(value).success,
} as const

export type ProbeCall = Readonly<{
  method: 'GET' | 'POST' | 'OPTIONS'
  path: string
  body?: unknown
  headers?: Readonly<Record<string, string>>
  /** What it costs (§8 rule 2), if not 1. */
  items?: number
  wrong?: string | undefined
}>

export const batches = {
  contexts: { path: '/propose/batch/signing-data', field: 'identifiers', echo: 'identifier' },
  proposals: { path: '/propose/batch', field: 'proposals', echo: 'client_ref' },
  statuses: { path: '/propose/batch/status', field: 'candidate_ids', echo: 'candidate_id' },
} as const
export type Batch = keyof typeof batches

export const get = (path: string): ProbeCall => ({ method: 'GET', path })
export const post = (path: string, body: unknown, wrong?: string): ProbeCall => {
  return { method: 'POST', path, body, wrong, headers: { 'content-type': 'application/json' } }
}

export const eligibilityOf = (address: string) => get(`/v1/proposals/eligibility/${address}`)
export const statusOf = (identifier: string, candidateId: string) =>
  get(`/v1/proposals/${identifier}/status/${candidateId}`)
export function batchOf(batch: Batch, list: readonly unknown[], wrong?: string): ProbeCall {
  const { path, field } = batches[batch]
  return { ...post(path, { [field]: list }, wrong), items: Math.max(1, list.length) }
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
  fetch: Fetch
  base: string
  clock: Clock
  planner: Planner
  signal?: AbortSignal | undefined
}) {
  const noticed: Partial<Record<'last' | 'cookie' | 'badError' | 'signature', Seen>> = {}

  async function exchange(url: string, init: HttpCall, sent: string) {
    const call = { ...init, redirect: 'manual', ...(signal && { signal }) } as const
    const { status, headers, body } = await fetch(url, call)
    const text =
      (await readCapped(body, capBytes)) ?? notSeen(`an answer is longer than ${capBytes} bytes`)
    // Also `application/problem+json`.
    const isJson = /^application\/([\w.+-]+\+)?json *(;|$)/i.test(headers.get('content-type') ?? '')
    const seen = new Seen(sent, status, headers, text, isJson ? jsonOf(text) : undefined)
    if (headers.get('set-cookie') !== null) noticed.cookie ??= seen
    if (holdsSignature(text, init.body)) noticed.signature ??= seen
    // What is no JSON is not the application's (§7 rule 1).
    if (status >= 400 && seen.json !== undefined && !hasErrorBody(seen)) noticed.badError ??= seen
    noticed.last = seen
    return seen
  }

  /** At once, whatever the budget says. */
  async function overrun({ method, path, body, headers, wrong }: ProbeCall) {
    const sent = `${method} ${path}${wrong ? ` with ${wrong}` : ''}`
    const text = is.text(body) ? body : JSON.stringify(body)
    const call = {
      ...{ method, headers: { accept: 'application/json', ...headers } },
      // Text `fetch` would label by itself.
      ...(text && { body: headers?.['content-type'] ? text : new TextEncoder().encode(text) }),
    }
    return exchange(base + path, call, sent).catch((error: unknown) => {
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
        rateLimit: seen && rateLimitOf(seen.headers),
        retryAfterMs: seen && retryMs(seen),
      })
    }
  }

  /** Whatever reserves items waits out a 429. */
  async function untilServed(call: () => Promise<Seen>) {
    for (let tried = 1; ; tried++) {
      const seen = await call()
      if (![429, 503].includes(seen.status)) return seen
      const waitMs = retryMs(seen) ?? 0
      if (tried === tries || waitMs > maxRetryAfterMs) seen.unanswered(` ${tried} times`)
      if (seen.status === 503) await clock.sleep(Math.max(waitMs, 1_000), signal)
    }
  }

  return {
    noticed,
    overrun,
    retryMs,
    async fetch(to: string | URL, init: HttpCall = {}): Promise<HttpAnswer> {
      const { href, pathname } = new URL(to)
      const sent = `${init.method ?? 'GET'} ${pathname}`
      const { status, headers, text } = await exchange(href, init, sent)
      return { status, headers, body: new Response(text).body }
    },
    send: (call: ProbeCall) => untilServed(() => charged(call)),
    /** What came while the client made a call by `fetch`. */
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
    `the gateway gave no application response: ${why}`,
    'check the URL and the gateway, then rerun the checks',
  )

/** By its beginning; what is too short for one may be anywhere. */
const holdsSignature = (text: string, sent: unknown) =>
  [...String(sent).matchAll(/"signature":"0x([0-9a-f]{64,120})/gi)].some(([, digits = '']) =>
    new RegExp(digits, 'i').test(text),
  )

function hasErrorBody(seen: Seen) {
  const { errors = [] } = Object(seen.json)
  return is.text(seen.at('error.code')) && is.text(seen.at('error.detail')) && Array.isArray(errors)
}
