/**
 * Gateways that answer wrongly in one place each, made from the response schemas: each status, body
 * and member of each route's answers, left out, null, of another type, emptied or changed.
 */
import type * as z from 'zod/mini'
import { ErrorBody } from '#protocol/schema'
import { operations } from '#protocol/service'
import { patterns } from '#protocol/words'
import {
  alter,
  type Call,
  callOf,
  isBatch,
  isContexts,
  isEligibility,
  isSigningData,
  isSingle,
  isStatus,
  isStatuses,
} from './between.js'
import type { Wrong } from './world.js'

/** One that is wrong in one place. */
export interface Generated {
  /** Route and place, then what is done to it: what the lists of exceptions are read by. */
  readonly name: string
  /** Ids of the checks that look at this route; the others follow. */
  readonly first: RegExp
  /** Anew for each run. `hasChanged`: whether any answer has come out otherwise. */
  readonly make: () => { readonly wrong: Wrong; readonly hasChanged: () => boolean }
}

interface Route {
  readonly which: (call: Call) => boolean
  readonly schema: z.ZodMiniType
  readonly first: RegExp
  readonly isRefusal?: boolean
}

const { eligibility, signingData, submit, status, batchSigningData, batchSubmit, batchStatus } =
  operations

const routes: Readonly<Record<string, Route>> = {
  eligibility: {
    which: isEligibility,
    schema: eligibility.answers[200][0],
    first: /eligib|wallet/,
  },
  'signing-data': {
    which: isSigningData,
    schema: signingData.answers[200][0],
    first: /^2\.[248]-|^4\.1-|signing-data|^1-integers/,
  },
  submit: {
    which: isSingle,
    schema: submit.answers[202][0],
    first: /^2\.5-|acknowledgement|^4\.1\.3-(new|replay)/,
  },
  status: { which: isStatus, schema: status.answers[200][0], first: /^2\.6-|status|^4\.1\.4|^6-/ },
  'batch signing-data': {
    which: isContexts,
    schema: batchSigningData.answers[200][0],
    first: /^2\.[78]-|^4\.2(-|\.1-order|\.3-signing)|as-pinned/,
  },
  'batch submit': {
    which: isBatch,
    schema: batchSubmit.answers[200][0],
    first: /^2\.7-(summary|candidate|client)|^4\.2\.(1-order|3|5)|item-errors/,
  },
  'batch status': {
    which: isStatuses,
    schema: batchStatus.answers[200][0],
    first: /^2\.7-batch|^4\.2\.(1-order|6|7)/,
  },
  refusal: { which: () => true, schema: ErrorBody, first: /^7-|^4\.1\.3/, isRefusal: true },
}

interface Place {
  /** Dotted, with `*` for each member of a list or record. */
  readonly path: string
  readonly type: string
}

/** All members, outside in. */
function placesIn(schema: z.core.$ZodType, path = ''): readonly Place[] {
  const { def } = (schema as z.core.$ZodTypes)._zod
  const below = (name: string) => (path === '' ? name : `${path}.${name}`)
  const own = path === '' ? [] : [{ path, type: def.type }]
  if (def.type === 'optional' || def.type === 'nullable') return placesIn(def.innerType, path)
  if (def.type === 'array') return [...own, ...placesIn(def.element, below('*'))]
  if (def.type === 'record') return [...own, ...placesIn(def.valueType, below('*'))]
  if (def.type !== 'object') return own
  const members = Object.entries(def.shape)
  return [...own, ...members.flatMap(([name, one]) => placesIn(one, below(name)))]
}

const isList = Array.isArray
const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null

/** Of another JSON type, but saying the same where it can. */
function otherType(value: unknown): unknown {
  if (typeof value === 'string') return patterns.uint256.test(value) ? Number(value) : { value }
  return isObject(value) ? JSON.stringify(value) : value === null ? false : String(value)
}
function emptied(value: unknown): unknown {
  if (typeof value === 'string') return ''
  if (isList(value)) return []
  return isObject(value) ? {} : value
}
/** Of the same form, saying something else. */
function changed(value: unknown): unknown {
  if (typeof value === 'number') return value + 1
  if (typeof value === 'boolean') return !value
  if (isList(value)) return value.slice(1)
  if (typeof value !== 'string' || value === '') return value
  if (patterns.uint256.test(value)) return String(BigInt(value) + 1n)
  if (/^\d{4}-.*Z$/.test(value)) return new Date(Date.parse(value) - 86_400_000).toISOString()
  const other = value.at(-1) === '1' ? '2' : '1'
  return /^(0x[0-9a-f]+|[0-9a-f-]{36}|p[1-3])$/.test(value)
    ? value.slice(0, -1) + other
    : `${value}x`
}

/** What no value of a type can be made. */
const isIdle = (type: string, does: string) =>
  does === 'changed'
    ? type === 'object' || type === 'record'
    : does === 'emptied' && (type === 'number' || type === 'boolean')

const changes: Readonly<Record<string, (value: unknown) => unknown>> = {
  'left out': () => undefined,
  null: () => null,
  'of another type': otherType,
  emptied,
  changed,
}

/** What is done to whole answers. */
const wholes: Readonly<
  Record<string, (text: string, headers: Headers, status: number) => Response>
> = {
  ...Object.fromEntries(
    [201, 207, 302, 404, 500].map((code) => [
      `status ${code}`,
      (text: string, headers: Headers) => new Response(text, { status: code, headers }),
    ]),
  ),
  'status 204': (_text, headers) => new Response(null, { status: 204, headers }),
  'a page of HTML': (_text, headers, code) => typed('<h1>hello</h1>', headers, code, 'text/html'),
  'plain text': (text, headers, code) => typed(text, headers, code, 'text/plain'),
  'an empty body': (_text, headers, code) => new Response('', { status: code, headers }),
  'half of the body': (text, headers, code) =>
    new Response(text.slice(0, text.length / 2), { status: code, headers }),
  'an empty object': (_text, headers, code) => new Response('{}', { status: code, headers }),
  'an empty list': (_text, headers, code) => new Response('[]', { status: code, headers }),
  'JSON null': (_text, headers, code) => new Response('null', { status: code, headers }),
}
function typed(text: string, headers: Headers, code: number, type: string): Response {
  const response = new Response(text, { status: code, headers })
  response.headers.set('content-type', type)
  return response
}

/** Changes answers of this kind, and remembers whether it did. */
function changing(
  { which, isRefusal = false }: Route,
  change: (response: Response, request: Request) => Promise<Response>,
): ReturnType<Generated['make']> {
  let has = false
  const wrong: Wrong = async (request, next) => {
    const call = await callOf(request)
    const response = await next(request)
    if (!which(call) || response.status >= 400 !== isRefusal) return response
    const [before, after] = [response.clone(), await change(response.clone(), request)]
    const [one, other] = [await before.text(), await after.clone().text()]
    const type = (of: Response) => of.headers.get('content-type')
    has ||= one !== other || before.status !== after.status || type(before) !== type(after)
    return after
  }
  return { wrong, hasChanged: () => has }
}

/** All of them, in the order of the routes. */
export const generated: readonly Generated[] = Object.entries(routes).flatMap(([name, route]) => {
  const { schema, first } = route
  const fields = placesIn(schema).flatMap(({ path, type }) =>
    Object.entries(changes)
      .filter(([does]) => !isIdle(type, does))
      .map(([does, to]) => ({
        name: `${name} ${path}: ${does}`,
        first,
        make: () => {
          const altering = alter(() => true, path, to)(() => 0)
          return changing(route, (response, { url }) =>
            altering(new Request(url), async () => response),
          )
        },
      })),
  )
  const bodies = Object.entries(wholes).map(([does, to]) => ({
    name: `${name}: ${does}`,
    first,
    make: () =>
      changing(route, async (response) =>
        to(await response.text(), response.headers, response.status),
      ),
  }))
  return [...bodies, ...fields]
})

const batchData = 'batch signing-data results.*.signing_data'

/** Which of them nobody outside can call wrong, by the beginning of their names, and why. */
const leftOpen: readonly (readonly [why: string, ...beginnings: string[]])[] = [
  ['§2.4 names key, label and price of a proposal', 'signing-data proposal.max_payment'],
  [
    '§2.2: the labels of a request are the word of the gateway',
    'signing-data proposal.label: changed',
    'signing-data outcomes.*.label: changed',
  ],
  ['§2.2: an outcome that is not listed is not available', 'signing-data outcomes: changed'],
  [
    '§2.4: pins have the token by its address',
    'signing-data token.symbol: changed',
    'signing-data token.symbol: emptied',
  ],
  [
    '§2.4: how far the maximum is above the amount is left open',
    'signing-data economics.max_authorization: changed',
  ],
  [
    '§3: the words of stages are not shown',
    'submit status: changed',
    'status status: changed',
    'status submission.status: changed',
    'status failure.stage: changed',
    'batch submit results.*.candidate.status: changed',
    'batch status results.*.candidate.status: changed',
  ],
  [
    '§2.6: identity, by whatever member',
    'status candidate_id: of another type',
    'status question_id: left out',
    'status proposer: left out',
    'status proposer: null',
  ],
  [
    '§2.6: only the gateway knows when it was and what it advises',
    'status submission.proposal_event_index: changed',
    'status submission.transaction_hash: changed',
    'status failure.retryable: changed',
    'status failure.can_resubmit: changed',
    'status failure.next_action: changed',
  ],
  [
    '§7: the words of codes and details are not shown',
    'status failure.code: changed',
    'status failure.detail: changed',
    'status failure.detail: emptied',
    'batch signing-data results.*.error.code: changed',
    'batch signing-data results.*.error.detail: changed',
    'batch signing-data results.*.error.detail: emptied',
    'batch submit results.*.error.detail: changed',
    'batch submit results.*.error.detail: emptied',
    'batch status results.*.error.code: changed',
    'batch status results.*.error.detail: changed',
    'batch status results.*.error.detail: emptied',
    'batch status results.*.candidate.failure.code: changed',
    'batch status results.*.candidate.failure.detail: changed',
    'batch status results.*.candidate.failure.detail: emptied',
    'refusal error.detail: changed',
    'refusal error.detail: emptied',
  ],
  [
    '§2.7: the question is named beside the request',
    `${batchData}.request.question_id: left out`,
    `${batchData}.request.question_id: null`,
    `${batchData}.request.question_id: of another type`,
  ],
  [
    '§2.7, §2.8: identifier.raw stands beside the request, or in it',
    `${batchData}.request.identifier: left out`,
    `${batchData}.request.identifier: null`,
    `${batchData}.request.identifier: of another type`,
    `${batchData}.request.identifier: emptied`,
    `${batchData}.request.identifier.raw: left out`,
    `${batchData}.request.identifier.raw: null`,
    `${batchData}.identifier: left out`,
    `${batchData}.identifier: null`,
    `${batchData}.identifier: of another type`,
    `${batchData}.identifier: emptied`,
    `${batchData}.identifier.raw: left out`,
    `${batchData}.identifier.raw: null`,
  ],
  [
    '§1: integers are text in v1; the batch form is older',
    `${batchData}.request.timestamp: of another type`,
    `${batchData}.bond.required_bond: of another type`,
    `${batchData}.signing.max_payment: of another type`,
    `${batchData}.signing.chain_id: of another type`,
  ],
  ['§2.7 names chain, payment and types of signing', `${batchData}.signing.primary_type`],
  [
    '§2.7: the status_url of a batch leads nowhere',
    'batch submit results.*.candidate.status_url: null',
    'batch submit results.*.candidate.status_url: of another type',
    'batch submit results.*.candidate.status_url: emptied',
    'batch submit results.*.candidate.status_url: changed',
  ],
  [
    '§2.7: a batch status has status, submission and failure',
    'batch status results.*.candidate.candidate_id: left out',
    'batch status results.*.candidate.candidate_id: null',
    'batch status results.*.candidate.received_at: left out',
    'batch status results.*.candidate.received_at: null',
    'batch status results.*.candidate.submission.',
    'batch status results.*.candidate.submission: emptied',
  ],
  [
    '§7: errors is optional, and what it lists is not shown',
    'refusal errors: left out',
    'refusal errors: emptied',
    'refusal errors: changed',
    'refusal errors.*',
  ],
]

/** Why this gateway may be right; `undefined` where it is wrong. */
export const permission = (name: string): string | undefined =>
  leftOpen.find(([, ...beginnings]) => beginnings.some((one) => name.startsWith(one)))?.[0]

/** Each beginning, to be looked for. */
export const beginnings: readonly string[] = leftOpen.flatMap(([, ...names]) => names)
