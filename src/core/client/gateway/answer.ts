/**
 * What an answer of the gateway means (robustness §6, contract §1). Together with
 * `gateway-client.ts` the only place that maps gateway HTML and socket failures.
 */
import { type Clock, TransportError } from '../../ports.js'
import {
  ConflictError,
  type FieldFault,
  type ProposerError,
  RejectedError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
} from '../../protocol/errors.js'
import type { Conceal } from '../../protocol/url-secrets.js'
import { type Reader, readRefusal } from './reading.js'

export { plainCode } from './reading.js'

/** The tighter budget window as the answer tells it; `resetSeconds` from now. */
export interface RateLimit {
  readonly limit: number
  readonly remaining: number
  readonly resetSeconds: number
}

interface Common {
  readonly rateLimit?: RateLimit
}
interface Told extends Common {
  readonly code: string
  /** Outside text, without long hex: escape before showing (R20). */
  readonly detail: string
}

/** Every outcome of one exchange; `Value` is the parsed body of a 200 or 202. */
export type Answer<Value> =
  /** 200 or 202 with a valid body. */
  | (Common & { readonly kind: 'accepted'; readonly httpStatus: 200 | 202; readonly value: Value })
  | Unaccepted

export type Unaccepted =
  /** Application JSON 400, 403, 404, 405, 413 or 422: definite. */
  | (Told & {
      readonly kind: 'refused'
      readonly httpStatus: number
      readonly errors?: readonly FieldFault[]
    })
  /** Application JSON 429 or 503, or no connection: not admitted, the same bytes later. */
  | (Told & {
      readonly kind: 'deferred'
      readonly httpStatus?: number
      readonly retryAfterMs?: number
    })
  /** Application JSON 409. */
  | (Told & { readonly kind: 'reconcile'; readonly httpStatus: 409 })
  /** Everything else: it may have been admitted. */
  | (Told & {
      readonly kind: 'uncertain'
      readonly httpStatus?: number
      readonly retryAfterMs?: number
    })

/** Retry-After beyond this stops the retrying (robustness §6). */
export const maxRetryAfterMs = 120_000

const refusals = new Set([400, 403, 404, 405, 413, 422])
const maxDepth = 16
/** Faults of fields that a hint shows. */
const shownFaults = 5

/**
 * What a call expects: what it needs of the body, its size cap in bytes, and whether 202 counts.
 */
export interface Expected<Value> {
  readonly read: Reader<Value>
  readonly capBytes: number
  readonly admits: boolean
}

/**
 * Reads the body up to the cap and classifies. Rejects for nothing: a body that cannot be read is
 * uncertain. `conceal` goes over what the answer says for people.
 */
export async function classifyResponse<Value>(
  response: Response,
  expected: Expected<Value>,
  clock: Pick<Clock, 'nowMs'>,
  conceal: Conceal = (same) => same,
): Promise<Answer<Value>> {
  const { status: httpStatus, headers } = response
  const rateLimit = rateLimitOf(headers)
  const common = rateLimit === undefined ? {} : { rateLimit }
  const uncertain = (code: string, detail: string): Unaccepted => {
    const retryAfterMs = retryHintMs(headers, '', clock)
    return {
      ...common,
      kind: 'uncertain',
      httpStatus,
      code,
      detail,
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    }
  }
  if (httpStatus >= 300 && httpStatus < 400) {
    discard(response)
    return uncertain(
      'gateway_redirect',
      `the gateway answered ${httpStatus}; redirects are never followed`,
    )
  }
  if (!/^application\/json *(;|$)/i.test(headers.get('content-type') ?? '')) {
    discard(response)
    return uncertain('gateway_body', `the gateway answered ${httpStatus} without application JSON`)
  }
  let text: string
  try {
    text = await readText(response, expected.capBytes)
  } catch (error) {
    return uncertain(
      'gateway_body',
      `the gateway's answer ${httpStatus} could not be read whole (${reasonOf(error)})`,
    )
  }
  const json = withConcealed(parseJson(text), conceal)
  if (httpStatus === 200 || (httpStatus === 202 && expected.admits)) {
    const value = expected.read(json)
    if (value !== undefined) return { ...common, kind: 'accepted', httpStatus, value }
    return uncertain(
      'gateway_body',
      `the gateway answered ${httpStatus} with a body of another shape`,
    )
  }
  const refusal = readRefusal(json)
  if (refusal === undefined)
    return uncertain(
      'gateway_body',
      `the gateway answered ${httpStatus} with a body of another shape`,
    )
  const { code, detail } = refusal
  if (refusals.has(httpStatus)) return { ...common, kind: 'refused', httpStatus, ...refusal }
  if (httpStatus === 409) return { ...common, kind: 'reconcile', httpStatus, code, detail }
  const retryAfterMs = retryHintMs(headers, detail, clock)
  const hint = retryAfterMs === undefined ? {} : { retryAfterMs }
  if (httpStatus === 429 || httpStatus === 503)
    return { ...common, kind: 'deferred', httpStatus, code, detail, ...hint }
  return { ...common, kind: 'uncertain', httpStatus, code, detail, ...hint }
}

/**
 * What an exchange that brought no answer means. `signal` is the caller's: its reason is what a
 * `Fetch` rejects with before sending.
 */
export function classifyFailure(error: unknown, signal: AbortSignal | undefined): Unaccepted {
  if (error instanceof TransportError) {
    return error.phase === 'connect'
      ? { kind: 'deferred', code: 'no_connection', detail: error.message }
      : { kind: 'uncertain', code: 'connection_lost', detail: error.message }
  }
  if (signal?.aborted === true && error === signal.reason) {
    return {
      kind: 'deferred',
      code: 'not_sent',
      detail: 'the time ran out, or the call was stopped, before anything was sent',
    }
  }
  return {
    kind: 'uncertain',
    code: 'connection_lost',
    detail: `the exchange with the gateway failed (${reasonOf(error)})`,
  }
}

/**
 * The error of an answer to a call that admits nothing (`read`: exit 75 for what brought no
 * application answer, contract §6), or of one attempt to submit (`submit`: uncertain is exit 6).
 * `question` is the identifier that the call was about, for the hint of a 409.
 */
export function answerError(
  answer: Unaccepted,
  call: 'read' | 'submit',
  question = '<identifier>',
): ProposerError {
  const { code, detail } = answer
  const status = answer.httpStatus === undefined ? {} : { httpStatus: answer.httpStatus }
  switch (answer.kind) {
    case 'refused':
      return answer.httpStatus === 403
        ? new UnauthorizedError(code, detail, { ...status, hint: unauthorizedHint(code) })
        : new RejectedError(code, detail, { ...status, ...faultsOf(answer) })
    case 'reconcile':
      return new ConflictError(code, detail, {
        ...status,
        hint: `see \`proposer reconcile ${question}\` before signing again`,
      })
    case 'deferred':
      return new UnavailableError(code, detail, {
        ...status,
        ...retryAfter(answer),
        hint: laterHint(answer),
      })
    case 'uncertain':
      return call === 'submit'
        ? new UncertainError(code, detail, {
            ...status,
            retryable: true,
            hint: 'replay the saved payload: `proposer replay`',
          })
        : new UnavailableError(code, detail, {
            ...status,
            ...retryAfter(answer),
            hint: 'nothing was admitted by this call; try again later',
          })
  }
}

/** A 403 does not always tell which of two things it means (§7). */
function unauthorizedHint(code: string): string {
  const wallet = 'ask the operator to allow this wallet, or sign with the allowed one'
  return code === 'proposer_not_eligible'
    ? wallet
    : `the payload may be for another question or round, or by another key; else ${wallet}`
}

/**
 * What mends a refusal whose code says it; the others are of a shape that only their detail tells.
 */
const refusalHints: ReadonlyMap<string, string> = new Map([
  [
    'question_not_found',
    'check the identifier, and whether this gateway (--gateway) serves that question',
  ],
  [
    'candidate_not_found',
    'check the candidate id, its question and the gateway: only the one that admitted it knows it',
  ],
  ['outcome_not_allowed', 'choose an answer that `proposer context <identifier>` shows as allowed'],
  ['price_not_allowed', 'choose an answer that `proposer context <identifier>` shows as allowed'],
  [
    'permit_amount_below_required_bond',
    'sign anew: without --amount the bond of now is authorized, `proposer context <identifier>` shows it',
  ],
  [
    'permit_deadline_too_soon',
    'sign anew with a later --deadline, or without one for an hour from now',
  ],
])

/** What a refusal says of fields, for programs as it is and for people in the hint. */
function faultsOf({ code, errors = [] }: Extract<Unaccepted, { kind: 'refused' }>) {
  const hint = refusalHints.get(code) ?? 'correct what the detail names, then try again'
  if (errors.length === 0) return { hint }
  const named = errors
    .slice(0, shownFaults)
    .map(({ path, code }) => `${path === '' ? 'the body' : path}: ${code}`)
  const more = errors.length > shownFaults ? [`${errors.length - shownFaults} more`] : []
  return { errors, hint: `${hint} (${[...named, ...more].join('; ')})` }
}

/**
 * The gravest of several errors by contract §6's order (1, 74, 6, 75, 5, 4, 3, 7, 8; 2 and 130
 * beside 1), or `undefined`.
 */
export function gravest(errors: readonly (ProposerError | undefined)[]): ProposerError | undefined {
  const order: readonly number[] = [1, 130, 2, 74, 6, 75, 5, 4, 3, 7, 8]
  const rank = (error: ProposerError) => order.indexOf(error.meta.exitCode)
  return errors.reduce(
    (worst, error) =>
      error !== undefined && (worst === undefined || rank(error) < rank(worst)) ? error : worst,
    undefined,
  )
}

/**
 * The value of an accepted answer to a call that admits nothing, else throws `answerError(answer,
 * 'read', question)`.
 */
export function acceptedValue<Value>(answer: Answer<Value>, question?: string): Value {
  if (answer.kind === 'accepted') return answer.value
  throw answerError(answer, 'read', question)
}

export { acceptedValue as valueOf }

/**
 * Milliseconds to wait by Retry-After (digits or HTTP date), else by "retry in N seconds" in the
 * detail (§7); `undefined` where neither says. Never negative; not bounded above, because more than
 * `maxRetryAfterMs` means to stop.
 */
export function retryHintMs(
  headers: Headers,
  detail: string,
  clock: Pick<Clock, 'nowMs'>,
): number | undefined {
  const header = headers.get('retry-after')?.trim()
  if (header !== undefined && /^\d{1,9}$/.test(header)) return Number(header) * 1_000
  if (
    header !== undefined &&
    /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/.test(header)
  ) {
    const dateMs = Date.parse(header)
    if (!Number.isNaN(dateMs)) return Math.max(0, dateMs - clock.nowMs())
  }
  const told = /retry in (\d{1,9}) seconds?/i.exec(detail)?.[1]
  return told === undefined ? undefined : Number(told) * 1_000
}

const retryAfter = (answer: { retryAfterMs?: number }) =>
  answer.retryAfterMs === undefined ? {} : { retryAfterMs: answer.retryAfterMs }

function laterHint(answer: { code: string; retryAfterMs?: number }): string {
  if (answer.code === 'no_connection')
    return 'check the gateway address and the network, then run the same command again'
  if (answer.retryAfterMs === undefined) return 'run the same command again later'
  return `run the same command again in ${Math.ceil(answer.retryAfterMs / 1_000)} seconds`
}

/** 2^64 - 1 has so many digits: what some gateways mean by no limit at all. */
const [countDigits, secondsDigits] = [20, 9]

/** More than anybody spends, and far from where counting ends to be exact. */
const mostItems = 1e12

/**
 * A limit that is told and not read would leave the client at the documented 120 (§8), so the
 * largest are read as `mostItems`.
 */
export function rateLimitOf(headers: Headers): RateLimit | undefined {
  const told = (name: string, digits: number) => {
    const text = headers.get(name) ?? ''
    return text.length <= digits && /^\d+$/.test(text)
      ? Math.min(Number(text), mostItems)
      : undefined
  }
  const limit = told('ratelimit-limit', countDigits)
  const remaining = told('ratelimit-remaining', countDigits)
  // An instant instead of a duration has more digits.
  const resetSeconds = told('ratelimit-reset', secondsDigits)
  if (limit === undefined || remaining === undefined || resetSeconds === undefined) return undefined
  return { limit, remaining, resetSeconds }
}

async function readText(response: Response, capBytes: number): Promise<string> {
  if (response.body === null) return ''
  const reader = response.body.getReader()
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  let text = ''
  let length = 0
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return text + decoder.decode()
    length += value.length
    if (length > capBytes) {
      reader.cancel().catch(() => {
        // As in `discard`.
      })
      throw new RangeError(`over ${capBytes} bytes`)
    }
    text += decoder.decode(value, { stream: true })
  }
}

/**
 * Not waited for: a body whose other half somebody still reads is never done cancelling, and the
 * answer is known already.
 */
function discard(response: Response): void {
  response.body?.cancel().catch(() => {
    // The connection is gone already, and nobody wants this body.
  })
}

/** JSON no deeper than 16 (robustness §6), or `undefined`, which no schema takes. */
function parseJson(text: string): unknown {
  if (isTooDeep(text)) return undefined
  try {
    return JSON.parse(text)
  } catch {
    // Not JSON: the caller takes it as a gateway body.
    return undefined
  }
}

function isTooDeep(text: string): boolean {
  let depth = 0
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index)
    if (unit === quote) index = closingQuote(text, index)
    else if (unit === 0x7b || unit === 0x5b) {
      if (++depth > maxDepth) return true
    } else if (unit === 0x7d || unit === 0x5d) depth--
  }
  return false
}

const quote = 0x22
const backslash = 0x5c

/**
 * Where the string that opens at `open` ends. Most of an answer is in strings: not to look at each
 * of their characters is six times as quick.
 */
function closingQuote(text: string, open: number): number {
  for (let at = text.indexOf('"', open + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let escapes = at
    while (text.charCodeAt(escapes - 1) === backslash) escapes--
    if ((at - escapes) % 2 === 0) return at
  }
  return text.length
}

/**
 * Fields of an answer whose text is shown as it is, at any depth (contract §2). No other text of an
 * answer is free.
 */
const freeText: readonly string[] = ['detail', 'path']

/**
 * Fresh JSON without what `conceal` takes out of the free texts; before they are cut, since half a
 * secret is known no more. In place: a copy of a hundred contexts costs more than all that is read
 * of them.
 */
function withConcealed(json: unknown, conceal: Conceal): unknown {
  if (typeof json !== 'object' || json === null) return json
  const held = json as Record<string, unknown>
  for (const key in held) {
    const value = held[key]
    if (typeof value === 'object') withConcealed(value, conceal)
    else if (typeof value === 'string' && freeText.includes(key)) held[key] = conceal(value)
  }
  return json
}

/** A code or a name; never a message, which may hold an address. */
function reasonOf(error: unknown): string {
  if (error instanceof TransportError) return error.code
  if (error instanceof RangeError) return error.message
  return error instanceof Error && /^[A-Za-z0-9_]{1,64}$/.test(error.name) ? error.name : 'unknown'
}
