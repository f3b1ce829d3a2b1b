/** What a response means (robustness §6, contract §1): here and in `gateway-client.ts` alone. */
import { type Clock, type HttpAnswer, type Random, TransportError } from '#ports'
import { readCapped } from '#protocol/capped'
import { type WireCode, wireFailure, wireFailures } from '#protocol/codes'
import {
  ConflictError,
  type ExitCode,
  type FieldFault,
  type ProposerError,
  RejectedError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
} from '#protocol/errors'
import { codeText } from '#protocol/network-words'
import type { KeptReceipt } from '#protocol/receipt'
import type { Conceal } from '#protocol/url-secrets'
import { type Reader, type RefusalRead, readRefusal } from './reading.js'

export interface RateLimit {
  readonly limit: number
  readonly remaining: number
  readonly resetSeconds: number
}

interface Common {
  readonly rateLimit?: RateLimit | undefined
  /** Of a submission that was answered with a receipt, or should have been. */
  readonly receipt?: KeptReceipt | undefined
}
interface Unclear extends Common {
  readonly code: string
  /** Outside text, without long hex: escape before showing (R20). */
  readonly detail: string
}

export type Answer<Value> =
  | (Common & { readonly kind: 'accepted'; readonly httpStatus: 200 | 202; readonly value: Value })
  | Unaccepted

export type Unaccepted =
  | (Unclear & {
      readonly kind: 'refused'
      readonly httpStatus: number
      readonly errors?: readonly FieldFault[] | undefined
    })
  | (Unclear & { readonly kind: 'reconcile'; readonly httpStatus: 409 })
  /** `deferred`: not admitted, the same bytes later. `uncertain`: it may have been admitted. */
  | (Unclear & {
      readonly kind: 'deferred' | 'uncertain'
      readonly httpStatus?: number
      readonly retryAfterMs?: number | undefined
    })

export const certificateCode = 'certificate_not_accepted'
export const certificateHint =
  'check the gateway address; for a private authority name its certificate: NODE_EXTRA_CA_CERTS=<file.pem>'

/** Retry-After beyond this stops the retrying (robustness §6). */
export const maxRetryAfterMs = 120_000

const maxDepth = 16
/** `application/vnd.example+json` too (RFC 6839 §3.1); problem+json comes from what stands between (RFC 9457). */
const applicationJson = /^application\/(vnd\.[\w.+-]+\+)?json *(;|$)/i
const shownFaults = 5

interface Expected<Value> {
  readonly read: Reader<Value>
  readonly capBytes: number
  readonly admits?: boolean
  readonly onBody?: ((text: string) => void) | undefined
}

/** For a whole call as for one item of a batch (§4.2 rule 5). */
export function classifyRefusal(
  httpStatus: number,
  { errors, ...given }: RefusalRead,
  retryAfterMs?: number,
): Unaccepted {
  if ([400, 403, 404, 405, 413, 422].includes(httpStatus))
    return { kind: 'refused', httpStatus, ...given, errors }
  if (httpStatus === 409) return { kind: 'reconcile', httpStatus, ...given }
  const kind = httpStatus === 429 || httpStatus === 503 ? 'deferred' : 'uncertain'
  return { kind, httpStatus, ...given, retryAfterMs }
}

/** Rejects for nothing: a body that cannot be read is uncertain. `conceal` goes over free texts. */
export async function classifyResponse<Value>(
  response: HttpAnswer,
  expected: Expected<Value>,
  clock: Pick<Clock, 'nowMs'>,
  conceal: Conceal = (same) => same,
): Promise<Answer<Value>> {
  const { status: httpStatus, headers } = response
  const rateLimit = rateLimitOf(headers)
  const uncertain = (code: string, what: string): Unaccepted => {
    const detail = `the gateway answered ${httpStatus}${what}`
    const retryAfterMs = retryHintMs(headers, '', clock)
    return { rateLimit, kind: 'uncertain', httpStatus, code, detail, retryAfterMs }
  }
  if (httpStatus >= 300 && httpStatus < 400) {
    discard(response)
    return uncertain('gateway_redirect', '; redirects are never followed')
  }
  if (!applicationJson.test(headers.get('content-type') ?? '')) {
    discard(response)
    return uncertain('gateway_body', ' without application JSON')
  }
  let text: string | undefined
  const { capBytes } = expected
  try {
    const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
    text = await readCapped(response.body, capBytes, decoder)
    if (text === undefined) throw new RangeError(`over ${capBytes} bytes`)
  } catch (error) {
    const detail = `the gateway's response ${httpStatus} could not be read whole (${reasonOf(error)})`
    return { ...uncertain('gateway_body', ''), detail }
  }
  expected.onBody?.(text)
  const json = parseJson(text, conceal)
  if (httpStatus === 200 || (httpStatus === 202 && expected.admits)) {
    const value = expected.read(json)
    if (value !== undefined) return { rateLimit, kind: 'accepted', httpStatus, value }
  } else {
    const refusal = readRefusal(json)
    if (refusal !== undefined) {
      const retryAfterMs = retryHintMs(headers, refusal.detail, clock)
      return { rateLimit, ...classifyRefusal(httpStatus, refusal, retryAfterMs) }
    }
  }
  return uncertain('gateway_body', ' with an unexpected body')
}

/** `signal` is the caller's: its reason is what a `Fetch` rejects with before sending. */
export function classifyFailure(error: unknown, signal: AbortSignal | undefined): Unaccepted {
  if (error instanceof TransportError) {
    const { message: detail } = error
    if (error.phase !== 'connect') return { kind: 'uncertain', code: 'connection_lost', detail }
    const isOfCertificate = codeText(error.code)?.startsWith('certificate')
    return { kind: 'deferred', code: isOfCertificate ? certificateCode : 'no_connection', detail }
  }
  if (signal?.aborted === true && error === signal.reason) {
    const detail = 'the time limit was reached, or the call was stopped, before anything was sent'
    return { kind: 'deferred', code: 'not_sent', detail }
  }
  const detail = `the request to the gateway failed (${reasonOf(error)})`
  return { kind: 'uncertain', code: 'connection_lost', detail }
}

/** `read`: a call that admits nothing, so that what brought no answer is exit 75 (contract §6). */
export function answerError(
  answer: Unaccepted,
  call: 'read' | 'submit',
  question = '<identifier>',
): ProposerError {
  const { code, detail, httpStatus } = answer
  if (answer.kind === 'refused')
    return httpStatus === 403
      ? new UnauthorizedError(code, detail, { httpStatus, hint: unauthorizedHint(code) })
      : new RejectedError(code, detail, { httpStatus, ...faultsOf(answer) })
  if (answer.kind === 'reconcile') {
    const hint = `see \`proposer reconcile ${question}\` before signing again`
    return new ConflictError(code, detail, { httpStatus, hint })
  }
  if (answer.kind === 'uncertain' && call === 'submit') {
    const hint = 'replay the saved payload: `proposer replay`'
    return new UncertainError(code, detail, { httpStatus, retryable: true, hint })
  }
  const { retryAfterMs } = answer
  return new UnavailableError(code, detail, {
    httpStatus,
    retryAfterMs,
    hint:
      answer.kind === 'deferred'
        ? laterHint(code, retryAfterMs)
        : 'nothing was admitted by this call; retry later',
  })
}

/** A 403 does not always tell which of two things it means (§7). */
function unauthorizedHint(code: string) {
  const wallet = 'ask the operator to allow this wallet, or sign with the allowed one'
  return code === 'proposer_not_eligible'
    ? wallet
    : `the payload may be for another question or round, or by another key; else ${wallet}`
}

function faultsOf({ code, errors = [] }: Extract<Unaccepted, { kind: 'refused' }>) {
  const known = Object.hasOwn(wireFailures, code) ? wireFailure(code as WireCode) : undefined
  const hint = known?.next ?? 'fix what the detail names, then retry'
  if (errors.length === 0) return { hint }
  const named = errors
    .slice(0, shownFaults)
    .map(({ path, code }) => `${path === '' ? 'the body' : path}: ${code}`)
  const more = errors.length > shownFaults ? [`${errors.length - shownFaults} more`] : []
  return { errors, hint: `${hint} (${[...named, ...more].join('; ')})` }
}

/** Exit codes, gravest first (contract §6); 130 and 2 beside 1. */
export const gravity: readonly ExitCode[] = [1, 130, 2, 74, 6, 75, 5, 4, 3, 7, 8]

export function gravest(errors: readonly (ProposerError | undefined)[]): ProposerError | undefined {
  const rank = (error: ProposerError) => gravity.indexOf(error.meta.exitCode)
  return errors
    .filter((error) => error !== undefined)
    .toSorted((one, other) => rank(one) - rank(other))[0]
}

export function acceptedValue<Value>(answer: Answer<Value>, question?: string): Value {
  if (answer.kind === 'accepted') return answer.value
  throw answerError(answer, 'read', question)
}

/**
 * By Retry-After (digits or HTTP date), else by "retry in N seconds" (§7). Not bounded: more than
 * `maxRetryAfterMs` means to stop.
 */
export function retryHintMs(
  headers: HttpAnswer['headers'],
  detail: string,
  clock: Pick<Clock, 'nowMs'>,
) {
  const header = headers.get('retry-after')?.trim() ?? ''
  if (/^\d{1,9}$/.test(header)) return Number(header) * 1_000
  if (/^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/.test(header)) {
    const dateMs = Date.parse(header)
    if (!Number.isNaN(dateMs)) return Math.max(0, dateMs - clock.nowMs())
  }
  const seconds = /retry in (\d{1,9}) seconds?/i.exec(detail)?.[1]
  return seconds === undefined ? undefined : Number(seconds) * 1_000
}

function laterHint(code: string, retryAfterMs: number | undefined) {
  if (code === certificateCode) return certificateHint
  if (code === 'no_connection') return 'check the gateway address and the network, then retry'
  if (retryAfterMs === undefined) return 'retry later'
  return `retry in ${Math.ceil(retryAfterMs / 1_000)} seconds`
}

/** 2^64 - 1 has so many digits: what some gateways mean by no limit at all. */
const [countDigits, secondsDigits] = [20, 9]

/** More than anybody spends, and far from where counting ends to be exact. */
const mostItems = 1e12

/** A limit that is not read would leave the client at the documented 120 (§8). */
export function rateLimitOf(headers: HttpAnswer['headers']): RateLimit | undefined {
  const read = (name: string, digits: number) => {
    const text = headers.get(name) ?? ''
    return text.length <= digits && /^\d+$/.test(text)
      ? Math.min(Number(text), mostItems)
      : undefined
  }
  const limit = read('ratelimit-limit', countDigits)
  const remaining = read('ratelimit-remaining', countDigits)
  const resetSeconds = read('ratelimit-reset', secondsDigits)
  if (limit === undefined || remaining === undefined || resetSeconds === undefined) return undefined
  return { limit, remaining, resetSeconds }
}

function discard({ body }: HttpAnswer) {
  body?.cancel().catch(() => undefined)
}

/** JSON no deeper than 16 (robustness §6), its free texts concealed, no name twice in an object. */
function parseJson(text: string, conceal: Conceal): unknown {
  try {
    const json: unknown = JSON.parse(text.replace(/^\uFEFF/, ''))
    const told = text.replaceAll(/"(?:[^"\\]|\\.)*"/g, '').split(':').length - 1
    return concealIn(json, conceal, 0) === told ? json : undefined
  } catch {
    return undefined
  }
}

/** Fields whose text is shown as it is, at any depth (contract §2). No other text is free. */
const freeText: readonly string[] = ['detail', 'path']

/**
 * Before they are cut: half a secret is known no more. In place, for a copy of a hundred contexts
 * is dear. Counts the members of all objects; `NaN` where the value is too deep.
 */
function concealIn(json: unknown, conceal: Conceal, depth: number) {
  if (typeof json !== 'object' || json === null) return 0
  if (depth === maxDepth) return Number.NaN
  const held = json as Record<string, unknown>
  let members = 0
  for (const key in held) {
    const value = held[key]
    if (!Array.isArray(json)) members += 1
    if (typeof value === 'object') {
      members += concealIn(value, conceal, depth + 1)
    } else if (typeof value === 'string' && freeText.includes(key)) held[key] = conceal(value)
  }
  return members
}

function reasonOf(error: unknown) {
  if (error instanceof TransportError) return error.code
  if (error instanceof RangeError) return error.message
  return error instanceof Error && /^[A-Za-z0-9_]{1,64}$/.test(error.name) ? error.name : 'unknown'
}

const firstMs = 1_000
const longestMs = 30_000
const maxTries = 8
const maxReplayMs = 300_000

/** Full jitter over 1, 2, 4 … 30 s; `tries` counts from 1. Milliseconds. */
export function backoffMs(random: Random, tries: number) {
  const capMs = Math.min(longestMs, firstMs * 2 ** (tries - 1))
  const [high = 0, low = 0] = random.bytes(2)
  return Math.round((capMs * (high * 256 + low)) / 65_535)
}

/** Asked through a function, because the answer changes across an await. */
export const isAborted = (signal: AbortSignal | undefined) => signal?.aborted === true

/** `false`: the signal has ended it. */
export async function slept(
  { clock }: { readonly clock: Pick<Clock, 'sleep'> },
  ms: number,
  signal: AbortSignal | undefined,
) {
  try {
    await clock.sleep(ms, signal)
    return true
  } catch (error) {
    if (isAborted(signal)) return false
    throw error
  }
}

/** `undefined`: 8 tries, or `limitMs`, or more than two minutes were told. */
export function newPatience(
  ports: { readonly clock: Pick<Clock, 'monotonicMs'>; readonly random: Random },
  limitMs = maxReplayMs,
): (retryAfterMs: number | undefined) => number | undefined {
  const endMs = ports.clock.monotonicMs() + limitMs
  let tries = 0
  return (retryAfterMs = 0) => {
    tries++
    const waitMs = retryAfterMs + backoffMs(ports.random, tries)
    const late = ports.clock.monotonicMs() + waitMs >= endMs
    return tries >= maxTries || retryAfterMs > maxRetryAfterMs || late ? undefined : waitMs
  }
}

export function timeLimit(
  { ports }: { readonly ports: { readonly clock: Pick<Clock, 'sleep'> } },
  {
    timeoutMs,
    signal,
  }: { readonly timeoutMs?: number | undefined; signal?: AbortSignal | undefined },
): { readonly signal: AbortSignal; clear(): void } {
  const over = new AbortController()
  const done = new AbortController()
  if (timeoutMs !== undefined) {
    ports.clock.sleep(timeoutMs, done.signal).then(
      () => over.abort(new DOMException('the time limit was reached', 'TimeoutError')),
      () => undefined,
    )
  }
  return {
    signal: signal === undefined ? over.signal : AbortSignal.any([signal, over.signal]),
    clear: () => done.abort(),
  }
}
