/**
 * Answers that a broken, hostile or foreign gateway may give, and what each means by robustness §6,
 * written down a second time.
 */
import fc from 'fast-check'
import { TransportError } from '#ports'
import { version } from '#protocol/words'
import { type Edit, edited, editedBytes, editedText, editsUpTo } from './mutate.js'

export type Route =
  | 'eligibility'
  | 'signingData'
  | 'submit'
  | 'status'
  | 'contexts'
  | 'submitBatch'
  | 'statuses'
export const routes: readonly Route[] = [
  'submit',
  'submit',
  'submitBatch',
  'status',
  'statuses',
  'eligibility',
  'signingData',
  'contexts',
]

const caps: Readonly<Record<Route, number>> = {
  eligibility: 65_536,
  signingData: 1_048_576,
  submit: 65_536,
  status: 65_536,
  contexts: 4_194_304,
  submitBatch: 4_194_304,
  statuses: 4_194_304,
}

export interface AnswerDraw {
  readonly route: number
  readonly status: number
  readonly type: number
  readonly base: number
  readonly form: number
  readonly edits: readonly Edit[]
  readonly heads: number
  readonly pieces: number
}

export const answerDraws: fc.Arbitrary<AnswerDraw> = fc.record({
  route: fc.nat(63),
  status: fc.nat(255),
  type: fc.nat(255),
  base: fc.nat(4_095),
  form: fc.nat(255),
  edits: editsUpTo(3, 1),
  heads: fc.nat(255),
  pieces: fc.nat(255),
})

const hex = (digit: string, count: number) => `0x${digit.repeat(count)}`
export const candidateId = '00000000-0000-4000-8000-000000000001'
const at = '2026-11-20T05:38:00.000Z'
const submission = {
  status: 'submitted',
  transaction_hash: hex('7', 64),
  submitted_at: at,
  confirmed_at: null,
  indexed_at: null,
  proposal_event_index: 4,
}
const failure = {
  stage: 'validation',
  code: 'permit_expired',
  detail: 'too late',
  retryable: false,
  can_resubmit: true,
  next_action: 'none',
}
const uint = { amount: '750000000', nonce: '7', deadline: '1800000000' }

export const soundBody: Readonly<Record<Route, unknown>> = {
  eligibility: { version, address: hex('1', 40), eligible: true },
  signingData: {
    version,
    question_id: hex('2', 64),
    request: {
      oracle: hex('a', 40),
      requester: hex('b', 40),
      identifier: hex('5', 64),
      timestamp: '1760000000',
      ancillary_data: '0x71',
    },
    proposal: { outcome: 'p2', label: 'Yes', price: '1000000000000000000', max_payment: '0' },
    outcomes: [{ outcome: 'p2', label: 'Yes', price: '1000000000000000000', allowed: true }],
    permit: uint,
    token: { address: hex('c', 40), symbol: 'USDC.e', decimals: 6 },
    economics: { total_bond: '750000000', max_authorization: '750000000' },
    contracts: { permit2: hex('2', 40), signed_proposer: hex('5', 40) },
    typed_data: {
      domain: { name: 'Permit2', chainId: '137', verifyingContract: hex('2', 40) },
      types: { TokenPermissions: [{ name: 'token', type: 'address' }] },
      primaryType: 'PermitWitnessTransferFrom',
      message: {
        permitted: { token: hex('c', 40), amount: '750000000' },
        spender: hex('5', 40),
        nonce: '7',
        deadline: '1800000000',
        witness: {
          oracle: hex('a', 40),
          requester: hex('b', 40),
          identifier: hex('5', 64),
          timestamp: '1760000000',
          ancillaryData: '0x71',
          proposedPrice: '0',
          maxPayment: '0',
        },
      },
    },
  },
  submit: {
    version,
    candidate_id: candidateId,
    status: 'received',
    received_at: at,
    status_url: `/v1/proposals/x/status/${candidateId}`,
  },
  status: {
    version,
    candidate_id: candidateId,
    question_id: hex('2', 64),
    proposer: hex('1', 40),
    outcome: 'p2',
    price: '0',
    status: 'selected',
    received_at: at,
    validated_at: at,
    selected_at: null,
    submission,
    failure,
  },
  contexts: {
    results: [
      { identifier: 'a-slug', status_code: 200, signing_data: { anything: 1 } },
      {
        identifier: 'b-slug',
        status_code: 404,
        error: { code: 'question_not_found', detail: 'no' },
      },
    ],
  },
  submitBatch: {
    results: [
      {
        client_ref: null,
        status_code: 202,
        candidate: {
          candidate_id: candidateId,
          status: 'received',
          received_at: at,
          status_url: `/propose/status/${candidateId}`,
        },
      },
      { client_ref: 'r', status_code: 409, error: { code: 'request_not_open', detail: 'closed' } },
    ],
    summary: { accepted: 1, replayed: 0, rejected: 1 },
  },
  statuses: {
    results: [
      {
        candidate_id: candidateId,
        status_code: 200,
        candidate: {
          candidate_id: candidateId,
          status: 'failed',
          received_at: at,
          submission: null,
          failure: { code: 'x', detail: 'y' },
        },
      },
      {
        candidate_id: candidateId,
        status_code: 404,
        error: { code: 'candidate_not_found', detail: 'no' },
      },
    ],
  },
}

export const terminalText =
  '\u001b[2J\u001b]0;title\u0007\u001b[31m\u202e\u2066\u2028\u0085\u009b31m\r\n\u0000\u007f\ufeff\u061c\ud800'
const longHex = `0x${'ab'.repeat(65)}`
const errorBody = (detail: string, more: object = {}) => ({
  error: { code: 'request_not_open', detail },
  ...more,
})

function baseOf(route: Route, draw: number): unknown {
  switch (draw % 8) {
    case 0:
    case 1:
    case 2:
      return soundBody[route]
    case 3:
      return errorBody(`no ${terminalText} more`)
    case 4:
      return {
        ...errorBody('wrong shape', {
          errors: [{ path: `proposals.0.${terminalText}`, code: terminalText }],
        }),
      }
    case 5:
      return errorBody(`it holds ${longHex}; retry in 3 seconds ${'x'.repeat(draw)}`)
    case 6:
      return soundBody[routes[(draw >> 3) % routes.length] as Route]
    default:
      return [null, [], 'text', 7, true, {}][(draw >> 3) % 6]
  }
}

const statuses = [
  200, 202, 201, 204, 301, 307, 308, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 409, 418,
  422, 425, 429, 429, 431, 500, 502, 503, 503, 504, 599,
]
const types = [
  'text/html',
  '',
  'application/jsonx',
  'text/plain; application/json',
  'application/problem+json',
  'image/png',
]

const deep = (levels: number) => `${'['.repeat(levels)}${']'.repeat(levels)}`

function bytesOf(route: Route, { base, form, edits }: AnswerDraw): Uint8Array<ArrayBuffer> {
  const encoder = new TextEncoder()
  const value = baseOf(route, base)
  const text = JSON.stringify(value)
  if (form < 90) return encoder.encode(text)
  if (form < 180) return encoder.encode(JSON.stringify(edited(value, edits)) ?? '')
  if (form < 205) return encoder.encode(editedText(text, edits))
  if (form < 230) return editedBytes(encoder.encode(text), edits)
  if (form < 236)
    return encoder.encode(
      text +
        ' '.repeat(
          Math.max(0, Math.min(caps[route], 70_000) + (form % 3) - 1 - encoder.encode(text).length),
        ),
    )
  if (form < 240) return encoder.encode(`{"x":${deep(13 + (base % 6))},${text.slice(1)}`)
  if (form < 244) return encoder.encode(deep(20_000))
  if (form < 248) return encoder.encode('<html><title>502 Bad Gateway</title></html>')
  return new Uint8Array(0)
}

export type Class = 'accepted' | 'refused' | 'deferred' | 'reconcile' | 'uncertain'

export interface GatewayAnswer {
  readonly route: Route
  readonly make: () => Promise<Response>
  readonly means: Class
  readonly httpStatus: number | undefined
}

export function answerOf(draw: AnswerDraw): GatewayAnswer {
  const route = routes[draw.route % routes.length] as Route
  if (draw.heads > 250) return failing(route, draw)
  const status =
    draw.status < 90
      ? draw.status % 2 === 0
        ? 200
        : 202
      : (statuses[draw.status % statuses.length] as number)
  const type =
    draw.type < 220
      ? ['application/json', 'application/json; charset=utf-8', 'Application/JSON'][draw.type % 3]
      : types[draw.type % types.length]
  const bytes = bytesOf(
    route,
    status >= 400 && draw.pieces % 4 > 0
      ? { ...draw, base: draw.base - (draw.base % 8) + 3 + (draw.pieces % 3) }
      : draw,
  )
  const breaks = draw.heads > 240
  const isBare = status === 204
  const body = isBare ? new Uint8Array(0) : bytes
  const make = async () =>
    new Response(isBare ? null : streamOf(bytes, 1 + draw.pieces, breaks), {
      status,
      headers: headersOf(type ?? '', draw.heads),
    })
  const isJson = /^application\/json *(;|$)/i.test(type ?? '')
  const means =
    breaks && !isBare && isJson && (status < 300 || status > 399)
      ? 'uncertain'
      : meaningOf(route, status, isJson, body)
  return { route, make, means, httpStatus: status }
}

function failing(route: Route, { heads, base }: AnswerDraw): GatewayAnswer {
  const phase = heads % 2 === 0 ? 'connect' : 'exchange'
  const error =
    base % 4 === 0
      ? Object.assign(new Error(`read ECONNRESET ${terminalText}`), { code: 'ECONNRESET' })
      : new TransportError(phase, 'ECONNRESET', 'it failed')
  const make = async () => {
    throw error
  }
  // A failure that does not say its phase proves nothing (robustness §6).
  return {
    route,
    make,
    means: error instanceof TransportError && phase === 'connect' ? 'deferred' : 'uncertain',
    httpStatus: undefined,
  }
}

function headersOf(type: string, draw: number): Headers {
  const headers = new Headers()
  if (type !== '') headers.set('content-type', type)
  const retry = [
    '3',
    '999999999999',
    '-1',
    'soon',
    'Fri, 20 Nov 2026 05:38:00 GMT',
    '1.5',
    '86400',
    '',
  ][draw % 8]
  if (draw % 3 === 0 && retry) headers.set('retry-after', retry)
  if (draw % 5 === 0) {
    headers.set('ratelimit-limit', ['120', 'x', '99999999999'][draw % 3] ?? '')
    headers.set('ratelimit-remaining', ['0', '-4', '5'][draw % 3] ?? '')
    headers.set('ratelimit-reset', '9')
  }
  if (draw % 7 === 0) headers.set('location', 'https://elsewhere.test/')
  return headers
}

function streamOf(
  bytes: Uint8Array<ArrayBuffer>,
  pieceBytes: number,
  breaks: boolean,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  let sent = 0
  const size = Math.max(pieceBytes * 4, Math.ceil(bytes.length / 20))
  return new ReadableStream({
    pull(controller) {
      if (sent < bytes.length && !(breaks && sent > 0)) {
        controller.enqueue(bytes.slice(sent, sent + size))
        sent += size
      } else if (breaks)
        controller.error(new TransportError('exchange', 'UND_ERR_SOCKET', 'the connection was cut'))
      else controller.close()
    },
  })
}

function meaningOf(route: Route, status: number, isJson: boolean, bytes: Uint8Array): Class {
  if (!isJson || (status >= 300 && status < 400) || bytes.length > caps[route]) return 'uncertain'
  const value = jsonOf(bytes)
  if (status === 200 || (status === 202 && route === 'submit'))
    return isSound(route, value) ? 'accepted' : 'uncertain'
  if (!isErrorBody(value)) return 'uncertain'
  if ([400, 403, 404, 405, 413, 422].includes(status)) return 'refused'
  if (status === 409) return 'reconcile'
  return status === 429 || status === 503 ? 'deferred' : 'uncertain'
}

function jsonOf(bytes: Uint8Array): unknown {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
    let [depth, deepest] = [0, 0]
    for (const bracket of text.replace(/"(?:[^"\\]|\\.)*"/g, '').matchAll(/[[\]{}]/g)) {
      depth += '[{'.includes(bracket[0]) ? 1 : -1
      deepest = Math.max(deepest, depth)
    }
    return deepest > 16 || hasTwins(text) ? undefined : JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Whether a name stands twice in an object: each member has a reviver's call, but for the later twin. */
function hasTwins(text: string): boolean {
  let members = 0
  JSON.parse(text, function (this: unknown, _name, value) {
    if (!Array.isArray(this)) members += 1
    return value
  })
  return members - 1 < (text.replace(/"(?:[^"\\]|\\.)*"/g, '').match(/:/g)?.length ?? 0)
}

type Check = (value: unknown) => boolean
const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const has =
  (shape: Record<string, Check>): Check =>
  (value) =>
    isObject(value) && Object.entries(shape).every(([key, check]) => check(value[key]))
const text =
  (pattern: RegExp): Check =>
  (value) =>
    typeof value === 'string' && pattern.test(value)
const anyText: Check = (value) => typeof value === 'string'
const oneOf =
  (...all: readonly unknown[]): Check =>
  (value) =>
    all.includes(value)
const uuid = text(/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i)
const isErrorBody = has({ error: has({ code: anyText, detail: anyText }) })
const isBatch = has({ results: Array.isArray })

const sound: Readonly<Record<Route, Check>> = {
  eligibility: (value) =>
    has({ eligible: oneOf(true, false) })(value) &&
    isObject(value) &&
    (typeof value.address !== 'string' || value.address.toLowerCase() === hex('1', 40)),
  signingData: has({ typed_data: isObject }),
  submit: has({ candidate_id: uuid }),
  status: (value) =>
    has({ candidate_id: uuid })(value) &&
    isObject(value) &&
    (typeof value.status === 'string' || isObject(value.submission) || isObject(value.failure)),
  contexts: isBatch,
  submitBatch: isBatch,
  statuses: isBatch,
}

const isSound = (route: Route, value: unknown): boolean => sound[route](value)
