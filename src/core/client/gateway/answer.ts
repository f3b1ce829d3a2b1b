/** What a response means (robustness §6, contract §1). */
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
  readonly receipt?: KeptReceipt | undefined
}
interface Unclear extends Common {
  readonly code: string
  /** Outside text without long hex (R20). */
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
  /** `deferred`: not admitted, send it later. `uncertain`: it may have been. */
  | (Unclear & {
      readonly kind: 'deferred' | 'uncertain'
      readonly httpStatus?: number
      readonly retryAfterMs?: number | undefined
    })

export const certificateCode = 'certificate_not_accepted'
export const certificateHint =
  'check the gateway address; for a private authority name its certificate: NODE_EXTRA_CA_CERTS=<file.pem>'

/** A longer Retry-After ends the retrying (robustness §6). */
export const maxRetryAfterMs = 120_000

const maxDepth = 16
/** RFC 6839; problem+json (RFC 9457) comes from what stands between. */
const applicationJson = /^application\/(vnd\.[\w.+-]+\+)?json *(;|$)/i
const shownFaults = 5

interface Expected<Value> {
  readonly read: Reader<Value>
  readonly capBytes: number
  readonly admits?: boolean
  readonly onBody?: (text: string) => void
}

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

export async function classifyResponse<Value>(
  response: HttpAnswer,
  expected: Expected<Value>,
  clock: Pick<Clock, 'nowMs'>,
  conceal: Conceal = (same) => same,
): Promise<Answer<Value>> {
  const { status: httpStatus, headers } = response
  const rateLimit = rateLimitOf(headers)
  const uncertain = (what: string, code = 'gateway_body'): Unaccepted => {
    const detail = `the gateway answered ${httpStatus}${what}`
    const retryAfterMs = retryHintMs(headers, '', clock)
    return { rateLimit, kind: 'uncertain', httpStatus, code, detail, retryAfterMs }
  }
  const isRedirect = httpStatus >= 300 && httpStatus < 400
  if (isRedirect || !applicationJson.test(headers.get('content-type') ?? '')) {
    response.body?.cancel().catch(() => undefined)
    return isRedirect
      ? uncertain('; redirects are never followed', 'gateway_redirect')
      : uncertain(' without application JSON')
  }
  let why = `over ${expected.capBytes} bytes`
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  const read = readCapped(response.body, expected.capBytes, decoder)
  const text = await read.catch((error: unknown) => {
    why = reasonOf(error)
    return undefined
  })
  if (text === undefined) return uncertain(` with a body that could not be read whole (${why})`)
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
  return uncertain(' with an unexpected body')
}

/** Before sending, a `Fetch` rejects with the reason of `signal`. */
export function classifyFailure(error: unknown, signal: AbortSignal | undefined): Unaccepted {
  if (error instanceof TransportError) {
    const { message: detail } = error
    if (error.phase !== 'connect') return { kind: 'uncertain', code: 'connection_lost', detail }
    const isOfCertificate = codeText(error.code)?.startsWith('certificate')
    return { kind: 'deferred', code: isOfCertificate ? certificateCode : 'no_connection', detail }
  }
  if (signal?.aborted && error === signal.reason) {
    const detail = 'the time limit was reached, or the call was stopped, before anything was sent'
    return { kind: 'deferred', code: 'not_sent', detail }
  }
  const detail = `the request to the gateway failed (${reasonOf(error)})`
  return { kind: 'uncertain', code: 'connection_lost', detail }
}

/** `read`: it admits nothing; unanswered it is exit 75 (contract §6). */
export function answerError(
  answer: Unaccepted,
  call: 'read' | 'submit',
  question = '<identifier>',
) {
  const { code, detail, httpStatus } = answer
  if (answer.kind === 'refused')
    return httpStatus === 403
      ? new UnauthorizedError(code, detail, { httpStatus, hint: walletHint(code) })
      : new RejectedError(code, detail, { httpStatus, ...faultsOf(answer) })
  if (answer.kind === 'reconcile') {
    const hint = `see \`proposer reconcile ${question}\` before signing again`
    return new ConflictError(code, detail, { httpStatus, hint })
  }
  if (answer.kind === 'uncertain' && call === 'submit') {
    const hint = 'replay the saved payload: `proposer replay`'
    return new UncertainError(code, detail, { httpStatus, retryable: true, hint })
  }
  const { kind, retryAfterMs } = answer
  const later = 'nothing was admitted by this call; retry later'
  const hint = kind === 'deferred' ? laterHint(code, retryAfterMs) : later
  return new UnavailableError(code, detail, { httpStatus, retryAfterMs, hint })
}

/** A 403 may mean either (§7). */
function walletHint(code: string) {
  const wallet = 'ask the operator to allow this wallet, or sign with the allowed one'
  return code === 'proposer_not_eligible'
    ? wallet
    : `the payload may be for another question or round, or by another key; else ${wallet}`
}

function faultsOf({ code, errors = [] }: Extract<Unaccepted, { kind: 'refused' }>) {
  const known = Object.hasOwn(wireFailures, code) ? wireFailure(code as WireCode) : undefined
  const hint = known?.next ?? 'fix what the detail names, then retry'
  if (errors.length === 0) return { hint }
  const named = errors.slice(0, shownFaults).map((one) => `${one.path || 'the body'}: ${one.code}`)
  const more = errors.length > shownFaults ? [`${errors.length - shownFaults} more`] : []
  return { errors, hint: `${hint} (${[...named, ...more].join('; ')})` }
}

/** Gravest first (contract §6); 130 and 2 beside 1. */
export const gravity: readonly ExitCode[] = [1, 130, 2, 74, 6, 75, 5, 4, 3, 7, 8]

export const gravest = (errors: readonly (ProposerError | undefined)[]) =>
  gravity.flatMap((code) => errors.find((one) => one?.meta.exitCode === code) ?? [])[0]

export function acceptedValue<Value>(answer: Answer<Value>) {
  if (answer.kind === 'accepted') return answer.value
  throw answerError(answer, 'read')
}

/** By Retry-After (digits or HTTP date), else by the detail (§7). */
export function retryHintMs(
  headers: HttpAnswer['headers'],
  detail: string,
  clock: Pick<Clock, 'nowMs'>,
) {
  const header = headers.get('retry-after')?.trim() ?? ''
  const dateMs = header.endsWith(' GMT') ? Date.parse(header) : Number.NaN
  if (!Number.isNaN(dateMs)) return Math.max(0, dateMs - clock.nowMs())
  const [, seconds] =
    /^(\d{1,9})$/.exec(header) ?? /retry in (\d{1,9}) seconds?/i.exec(detail) ?? []
  return seconds === undefined ? undefined : Number(seconds) * 1_000
}

function laterHint(code: string, retryAfterMs: number | undefined) {
  if (code === certificateCode) return certificateHint
  if (code === 'no_connection') return 'check the gateway address and the network, then retry'
  if (retryAfterMs === undefined) return 'retry later'
  return `retry in ${Math.ceil(retryAfterMs / 1_000)} seconds`
}

/** Still exact; some gateways say 2^64 - 1 for no limit. */
const mostItems = 1e12

export function rateLimitOf(headers: HttpAnswer['headers']) {
  const read = (name: string, form = /^\d{1,20}$/) => {
    const text = headers.get(`ratelimit-${name}`) ?? ''
    return form.test(text) ? Math.min(Number(text), mostItems) : Number.NaN
  }
  const [limit, remaining] = [read('limit'), read('remaining')]
  const resetSeconds = read('reset', /^\d{1,9}$/)
  if (Number.isNaN(limit + remaining + resetSeconds)) return undefined
  return { limit, remaining, resetSeconds }
}

/**
 * No deeper than 16 (robustness §6), no name twice in an object. Free texts (contract §2) are
 * concealed before they are cut: half a secret is not known.
 */
function parseJson(text: string, conceal: Conceal): unknown {
  let members = 0
  // A reviver takes several times as long.
  function conceals(holder: Record<string, unknown>, depth: number) {
    if (depth > maxDepth) throw new RangeError('too deep')
    for (const [name, value] of Object.entries(holder)) {
      if (!Array.isArray(holder)) members += 1
      if (typeof value === 'string' && /^(detail|path)$/.test(name)) holder[name] = conceal(value)
      else if (value !== null && typeof value === 'object')
        conceals(value as typeof holder, depth + 1)
    }
  }
  try {
    const json: unknown = JSON.parse(text.replace(/^\uFEFF/, ''))
    // After JSON.parse: for each string without an end the pattern would read all the rest.
    const bare = text.replaceAll(/"(?:[^"\\]|\\.)*"/g, '')
    conceals({ json }, 0)
    return members === bare.split(':').length ? json : undefined
  } catch {
    return undefined
  }
}

function reasonOf(error: unknown) {
  if (error instanceof TransportError) return error.code
  return error instanceof Error && /^\w{1,64}$/.test(error.name) ? error.name : 'unknown'
}

export const maxTries = 8

/** Full jitter over 1, 2, 4 … 30 s (robustness §6); `tries` counts from 1. */
export function backoffMs(random: Random, tries: number) {
  const capMs = Math.min(30_000, 1_000 * 2 ** (tries - 1))
  const [high = 0, low = 0] = random.bytes(2)
  return Math.round((capMs * (high * 256 + low)) / 65_535)
}

/** A function, as the answer changes across an await. */
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

/** `undefined`: 8 tries, or `limitMs`, or more than two minutes were told (robustness §6). */
export function newPatience(
  ports: { readonly clock: Pick<Clock, 'monotonicMs'>; readonly random: Random },
  limitMs = 300_000,
) {
  const endMs = ports.clock.monotonicMs() + limitMs
  let tries = 0
  return (retryAfterMs = 0) => {
    const waitMs = retryAfterMs + backoffMs(ports.random, ++tries)
    const late = ports.clock.monotonicMs() + waitMs >= endMs
    return tries >= maxTries || retryAfterMs > maxRetryAfterMs || late ? undefined : waitMs
  }
}

export const anySignal = (...signals: readonly (AbortSignal | undefined)[]) =>
  AbortSignal.any(signals.filter((signal) => signal !== undefined))

export function timeLimit(
  { ports }: { readonly ports: { readonly clock: Pick<Clock, 'sleep'> } },
  {
    timeoutMs,
    signal,
  }: { readonly timeoutMs?: number | undefined; readonly signal?: AbortSignal | undefined },
) {
  const [over, done] = [new AbortController(), new AbortController()]
  const end = () => over.abort(new DOMException('the time limit was reached', 'TimeoutError'))
  if (timeoutMs !== undefined) ports.clock.sleep(timeoutMs, done.signal).then(end, () => undefined)
  return {
    signal: anySignal(signal, over.signal),
    clear: () => done.abort(),
  }
}
