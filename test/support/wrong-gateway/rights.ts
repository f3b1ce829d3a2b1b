/**
 * Gateways of other builders: each does something otherwise than ours, which the spec leaves open.
 * None may be accused.
 */
import { at, listAt } from '#conformance/answer'
import { priceOf } from '#protocol/proposal'
import {
  alter,
  answer,
  answers,
  type Call,
  callOf,
  codeIn,
  drop,
  isBatch,
  isContexts,
  isSigningData,
  isSingle,
  isStatus,
  isStatuses,
  type Json,
  pages,
  put,
  refusal,
  resent,
  takes,
  tells,
} from './between.js'
import { type Meter, meter } from './meter.js'
import { slugs, type Wrong, type WrongWorldOptions } from './world.js'

export interface Right {
  readonly does: string
  readonly make: () => Wrong
  readonly world?: WrongWorldOptions
}

const all = () => true
const through = (): Wrong => (request, next) => next(request)
const right = (
  does: string,
  make: () => Wrong = through,
  world: WrongWorldOptions = {},
): Right => ({ does, make, world })
const metered = (does: string, changes: Partial<Meter>): Right =>
  right(does, through, { meter: { ...meter, ...changes } })
/**
 * Answers 422 to such payloads before the gateway has seen them, to items of a batch one by one
 * where all of them are such.
 */
const refusedBefore =
  (which: (body: Json) => boolean, code: string) => (): Wrong => async (request, next) => {
    if (request.method !== 'POST') return next(request)
    const { path, body } = await callOf(request)
    const list = listAt(body, 'proposals')
    const isWhole = (one: unknown) => /^\d+$/.test(String(at(one, 'permit.amount')))
    const isSuch = (one: unknown) => isWhole(one) && which(one as Json)
    if (list.length > 0 && list.every(isSuch)) {
      const error = { code, detail: 'because' }
      const results = list.map((one) => ({
        client_ref: at(one, 'client_ref') ?? null,
        status_code: 422,
        error,
      }))
      return answer(200, { results, summary: { accepted: 0, replayed: 0, rejected: list.length } })
    }
    return path.startsWith('/v1/') && isSuch(body) ? refusal(422, code) : next(request)
  }
/** Several changes of one answer. */
const both =
  (...wrongs: readonly (() => Wrong)[]) =>
  (): Wrong =>
    wrongs
      .map((make) => make())
      .reduce((outer, inner) => (request, next) => outer(request, (one) => inner(one, next)))

/** Every time in an answer in another form. */
const times = (to: (ms: number) => unknown) => () =>
  tells(all, (json) =>
    JSON.parse(JSON.stringify(json), (key, value) =>
      /_at$/.test(key) && typeof value === 'string' ? to(Date.parse(value)) : value,
    ),
  )
const iso = (ms: number) => new Date(ms).toISOString()
const renamed = (which: (call: Call) => boolean, names: Readonly<Record<string, string>>) => () =>
  tells(which, (json) => rename(json, names))
function rename(value: unknown, names: Readonly<Record<string, string>>): unknown {
  if (Array.isArray(value)) return value.map((one) => rename(one, names))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, member]) => [names[key] ?? key, rename(member, names)]),
  )
}
/** Other words for the stages of a candidate. */
const words = (map: Readonly<Record<string, string>>) => () =>
  tells(
    (call) => isSingle(call) || isStatus(call) || isBatch(call) || isStatuses(call),
    (json) =>
      JSON.parse(JSON.stringify(json), (key, value) =>
        key === 'status' && typeof value === 'string' ? (map[value] ?? value) : value,
      ),
  )
const item = (path: string, to: (value: unknown) => unknown) =>
  alter(isContexts, `results.*.signing_data.${path}`, to)
const contexts = (change: (data: Json) => unknown) => () =>
  tells(isContexts, (json) => {
    for (const one of listAt(json, 'results')) {
      const data = at(one, 'signing_data')
      if (typeof data === 'object' && data !== null) change(data as Json)
    }
  })
const refusals =
  (change: (json: Json, status: number, headers: Headers, call: Call) => Response) => () =>
    answers(
      (_call, status) => status >= 400,
      (json, call, headers) => change(json, statusIn(json), headers, call),
    )
/** What our own codes are answered with. */
function statusIn(json: Json): number {
  const code = String(codeIn(json))
  if (code.endsWith('not_found')) return 404
  if (code === 'method_not_allowed') return 405
  if (code === 'signature_not_authorized' || code === 'proposer_not_eligible') return 403
  if (code === 'candidate_conflict' || code === 'request_not_open') return 409
  if (code === 'ancillary_data_not_allowed') return 413
  if (code === 'unsupported_media_type') return 415
  if (code === 'rate_limited') return 429
  return code === 'invalid_identifier' || code === 'invalid_json' ? 400 : 422
}
const kept = new Set(['permit_amount_below_required_bond'])
const formats: readonly Right[] = [
  right(
    'tells times without fractions',
    times((ms) => iso(ms).replace(/\.\d+Z/, 'Z')),
  ),
  right(
    'tells times with an offset of +00:00',
    times((ms) => iso(ms).replace('Z', '+00:00')),
  ),
  right(
    'tells times with microseconds',
    times((ms) => iso(ms).replace('Z', '123Z')),
  ),
  right(
    'tells times with nanoseconds and an offset',
    times((ms) => iso(ms).replace('Z', '123456+00:00')),
  ),
  right(
    'tells times in another zone',
    times((ms) => iso(ms + 7_200_000).replace('Z', '+02:00')),
  ),
  right(
    'tells times as Unix seconds',
    times((ms) => Math.floor(ms / 1_000)),
  ),
  right(
    'tells times as Unix milliseconds in text',
    times((ms) => String(ms)),
  ),
  right(
    'names the times of a submission otherwise',
    renamed(isStatus, {
      submitted_at: 'submission_at',
      confirmed_at: 'confirmation_at',
      indexed_at: 'indexing_at',
    }),
  ),
  right(
    'names the times of a submission as timestamps',
    renamed(isStatus, {
      submitted_at: 'submitted_timestamp',
      confirmed_at: 'confirmed_timestamp',
      indexed_at: 'indexed_timestamp',
    }),
  ),
  right(
    'names the times of stages as timestamps',
    renamed(isStatus, {
      received_at: 'receipt_timestamp',
      validated_at: 'validation_timestamp',
      selected_at: 'selection_timestamp',
    }),
  ),
  right('leaves out the times of stages that are not reached', () =>
    tells(isStatus, (json) =>
      Object.fromEntries(
        Object.entries(json).filter(
          ([key, value]) => value !== null || key === 'submission' || key === 'failure',
        ),
      ),
    ),
  ),
  right('leaves out the times of a submission that are not reached', () =>
    tells(isStatus, (json) => ({
      ...json,
      ...(json.submission
        ? {
            submission: Object.fromEntries(
              Object.entries(json.submission).filter(([, value]) => value !== null),
            ),
          }
        : {}),
    })),
  ),
  right(
    'names the identity otherwise',
    renamed(isStatus, { candidate_id: 'id', question_id: 'question' }),
  ),
  right(
    'leaves question and proposer out of a status',
    both(drop(isStatus, 'question_id'), drop(isStatus, 'proposer')),
  ),
]

const stages: readonly Right[] = [
  right('says queued for received', words({ received: 'queued' })),
  right('says mined for executed', words({ executed: 'mined' })),
  right(
    'has its own word for every stage',
    words({
      received: 'accepted',
      validated: 'checked',
      selected: 'chosen',
      executed: 'done',
      failed: 'rejected',
      indexed: 'recorded',
      confirmed: 'final',
      submitted: 'sent',
      prepared: 'built',
    }),
  ),
  right(
    'writes stages in capitals',
    words({
      received: 'RECEIVED',
      validated: 'VALIDATED',
      selected: 'SELECTED',
      executed: 'EXECUTED',
      failed: 'FAILED',
    }),
  ),
  right(
    'has other codes and actions for failures',
    both(
      alter(
        isStatus,
        'failure',
        (value) =>
          value && {
            ...(value as Json),
            code: 'E_FUNDS',
            next_action: 'top_up',
            stage: 'checking',
          },
      ),
    ),
  ),
  right('never gets on with its candidates', through, { pipeline: false }),
  right('takes long to validate', through, { slow: true }),
]

const shapes: readonly Right[] = [
  right('tells chain_id as text', item('signing.chain_id', String)),
  right('tells the timestamp of a context as a number', item('request.timestamp', Number)),
  right('tells the bond of a context as a number', item('bond.required_bond', Number)),
  right(
    'tells no primary type',
    item('signing.primary_type', () => undefined),
  ),
  right(
    'tells the question by another name in request',
    contexts(({ request }) =>
      put(request, { question_id: undefined, question: at(request, 'question_id') }),
    ),
  ),
  right(
    'tells no question in request',
    item('request.question_id', () => undefined),
  ),
  right(
    'tells identifier.raw beside request alone',
    item('request.identifier', () => undefined),
  ),
  right(
    'tells identifier.raw in request alone',
    item('identifier', () => undefined),
  ),
  right(
    'tells ancillary bytes by that name',
    contexts(({ request }) =>
      put(request, { ancillary_data: undefined, ancillary_bytes: at(request, 'ancillary_data') }),
    ),
  ),
  right(
    'names the types witness_types',
    contexts(({ signing }) =>
      put(signing, { types: undefined, witness_types: at(signing, 'types') }),
    ),
  ),
  right(
    'tells the types as one text',
    contexts(({ signing }) =>
      put(signing, { types: undefined, witness_type: typeText(at(signing, 'types') as Types) }),
    ),
  ),
  right(
    'tells the domain of the types too',
    contexts(({ signing }) =>
      put(at(signing, 'types'), {
        EIP712Domain: [
          { name: 'name', type: 'string' },
          { name: 'chainId', type: 'uint256' },
          { name: 'verifyingContract', type: 'address' },
        ],
      }),
    ),
  ),
  right('tells the maximum payment as a number', item('signing.max_payment', Number)),
  right(
    'names the maximum payment otherwise',
    contexts(({ signing }) => put(signing, { max_payment: undefined, maximum_payment: '0' })),
  ),
  right(
    'tells a maximum authorization of its own',
    alter(isSigningData, 'economics.max_authorization', () => String(2n ** 255n)),
  ),
  right(
    'names the members of economics otherwise',
    renamed(isSigningData, {
      total_bond: 'current_total_bond',
      max_authorization: 'maximum_authorization',
    }),
  ),
  right('names the oracle identifier otherwise', () =>
    tells(isSigningData, (json) => ({
      ...json,
      ...(json.request
        ? {
            request: {
              ...(json.request as Json),
              identifier: undefined,
              oracle_identifier: at(json.request, 'identifier'),
            },
          }
        : {}),
    })),
  ),
  right(
    'tells the identifier of signing data under raw',
    alter(isSigningData, 'request.identifier', (raw) => ({ raw })),
  ),
  right(
    'tells availability as a word',
    alter(isSigningData, 'outcomes.*', (one) => ({
      ...(one as Json),
      allowed: undefined,
      availability: at(one, 'allowed') === true ? 'available' : 'unavailable',
    })),
  ),
  right(
    'lists the available outcomes alone',
    alter(isSigningData, 'outcomes', (list) =>
      (list as Json[]).filter(({ allowed }) => allowed === true),
    ),
  ),
  right(
    'tells outcomes by their key',
    alter(isSigningData, 'outcomes', (list) =>
      Object.fromEntries((list as Json[]).map(({ outcome, ...one }) => [String(outcome), one])),
    ),
  ),
  right(
    'names the key of an outcome otherwise',
    alter(isSigningData, 'outcomes.*', (one) => ({
      ...(one as Json),
      outcome: undefined,
      key: at(one, 'outcome'),
    })),
  ),
  right(
    'gives questions labels of their own',
    both(
      alter(isSigningData, 'proposal.label', () => 'Chelsea'),
      alter(isSigningData, 'outcomes.*.label', () => 'Chelsea'),
    ),
  ),
  right(
    'leaves the domain out of the types',
    alter(isSigningData, 'typed_data.types.EIP712Domain', () => undefined),
  ),
  right(
    'has p3 disabled though the text allows it',
    both(
      alter(isSigningData, 'outcomes.2.allowed', () => false),
      item('price.allowed_values', (values) => (values as string[]).slice(0, 2)),
      () =>
        answers(
          (call) => isSigningData(call) && call.body.outcome === 'p3',
          () => refusal(422, 'outcome_not_allowed'),
        ),
      refusedBefore(
        (body) => body.outcome === 'p3' || body.proposed_price === priceOf.p3,
        'outcome_not_allowed',
      ),
    ),
    { half: true },
  ),
  right('allows p3 where the text does', through, { half: true }),
]

type Types = Record<string, readonly { readonly name: string; readonly type: string }[]>
const typeText = (types: Types) =>
  Object.entries(types)
    .map(
      ([name, members]) => `${name}(${members.map((one) => `${one.type} ${one.name}`).join(',')})`,
    )
    .join('')

/** A member in every object of an answer. */
function grown(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(grown)
  if (typeof value !== 'object' || value === null) return value
  return {
    ...Object.fromEntries(
      Object.entries(value).map(([key, member]) => [
        key,
        ['version', 'types', 'typed_data'].includes(key) ? member : grown(member),
      ]),
    ),
    x_extra: 'more',
  }
}

const answersOfOthers: readonly Right[] = [
  right('adds members everywhere', () => tells(all, (json) => grown(json))),
  right('orders members otherwise', () =>
    tells(all, (json) => Object.fromEntries(Object.entries(json).reverse())),
  ),
  right(
    'has other error codes',
    refusals((json, status, headers) =>
      answer(
        status,
        kept.has(String(codeIn(json)))
          ? json
          : { error: { code: 'E42', detail: at(json, 'error.detail') } },
        headers,
      ),
    ),
  ),
  right(
    'has other texts',
    alter(all, 'error.detail', () => 'Das geht nicht.'),
  ),
  right(
    'has empty texts',
    alter(all, 'error.detail', () => ''),
  ),
  right('names what is wrong in the detail', () =>
    answers(
      (call, status) => status === 422 && isSingle(call),
      (json, { body }, headers) =>
        answer(
          422,
          {
            error: {
              ...(json.error as Json),
              detail: `outcome ${String(body.outcome)} and proposer ${String(body.proposer)} will not do`,
            },
          },
          headers,
        ),
    ),
  ),
  right('tells no errors', drop(all, 'errors')),
  right(
    'tells errors of another form',
    alter(all, 'errors', (list) => (list as unknown[]).map((one) => String(at(one, 'path')))),
  ),
  right(
    'answers 400 where ours answers 422',
    refusals((json, status, headers) => answer(status === 422 ? 400 : status, json, headers)),
  ),
  right(
    'answers 422 where ours answers 400',
    refusals((json, status, headers) => answer(status === 400 ? 422 : status, json, headers)),
  ),
  right(
    'answers 404 to malformed paths',
    refusals((json, status, headers) =>
      answer(codeIn(json) === 'invalid_identifier' ? 404 : status, json, headers),
    ),
  ),
  right('sends headers of its own', () => async (request, next) => {
    const response = await next(request)
    const headers = new Headers(response.headers)
    for (const [name, value] of Object.entries({
      server: 'nginx',
      'x-request-id': '1',
      'content-digest': 'sha-256=:AA==:',
      'content-type': 'application/json; charset=utf-8',
      vary: 'Origin',
    }))
      headers.set(name, value)
    return new Response(response.body, { status: response.status, headers })
  }),
  right('prints JSON over several lines', () => async (request, next) => {
    const response = await next(request)
    return new Response(JSON.stringify(await response.json(), null, 2), {
      status: response.status,
      headers: response.headers,
    })
  }),
  right('lets a proxy answer 404 and 405 for routes', () =>
    pages(
      ({ path }, status) => status === 405 || (status === 404 && !path.startsWith('/v1/proposals')),
    ),
  ),
  right('lets a proxy answer 413', () => pages((_call, status) => status === 413)),
  right('lets a proxy answer 429', () => pages((_call, status) => status === 429)),
  right('names its own site to CORS', () => async (request, next) => {
    const response = await next(request)
    const headers = new Headers(response.headers)
    headers.set('access-control-allow-origin', 'https://app.example')
    return new Response(response.body, { status: response.status, headers })
  }),
  right(
    'tells a status_url without its first slash',
    alter(isSingle, 'status_url', (url) => String(url).slice(1)),
  ),
  right(
    'tells a status_url with the slug',
    alter(isSingle, 'status_url', (url) =>
      String(url).replace(/0x[0-9a-f]{64}/, (id) => slugs.get(id) ?? id),
    ),
  ),
  right(
    'tells a batch status_url as a whole URL',
    alter(isBatch, 'results.*.candidate.status_url', (url) => `https://inner.example${url}`),
  ),
  right('tells no client_ref where none was sent', () =>
    tells(isBatch, (json) => {
      for (const one of listAt(json, 'results'))
        if (at(one, 'client_ref') === null) put(one, { client_ref: undefined })
    }),
  ),
  right('tells null where there is no error', () =>
    tells(
      (call) => isBatch(call) || isStatuses(call) || isContexts(call),
      (json, call) => {
        const absent = isContexts(call) ? 'signing_data' : 'candidate'
        for (const one of listAt(json, 'results'))
          put(one, at(one, 'error') === undefined ? { error: null } : { [absent]: null })
      },
    ),
  ),
  right('numbers its results', () =>
    tells(
      (call) => isBatch(call) || isStatuses(call) || isContexts(call),
      (json) => {
        for (const [index, one] of listAt(json, 'results').entries()) put(one, { index })
      },
    ),
  ),
]

const decisions: readonly Right[] = [
  right('does not judge amounts and deadlines, preparing', () => async (request, next) => {
    const response = await next(request.clone())
    if (
      !request.url.endsWith('/signing-data') ||
      !['permit_amount_below_required_bond', 'permit_deadline_too_soon'].includes(
        String(codeIn(await response.clone().json())),
      )
    )
      return response
    const body = (await request.json()) as Json
    const permit = { ...(body.permit as Json), amount: String(2n ** 128n), deadline: '99999999999' }
    const told = (await (await next(resent(request, { body: { ...body, permit } }))).json()) as Json
    return answer(200, { ...told, permit: body.permit })
  }),
  right('takes more fields where it prepares', () =>
    takes(isSigningData, ({ version, proposer, outcome, max_payment, permit }) =>
      JSON.parse(JSON.stringify({ version, proposer, outcome, max_payment, permit })),
    ),
  ),
  right('asks for eligibility first', () =>
    answers(
      (call, status) => isSingle(call) && status === 404 && call.body.proposer !== undefined,
      () => refusal(403, 'proposer_not_eligible'),
    ),
  ),
  right(
    'takes only what is funded',
    refusedBefore(
      (body) =>
        body.signature !== undefined && BigInt(String(at(body, 'permit.amount'))) >= 2n ** 128n,
      'insufficient_funds',
    ),
  ),
  right('is busy now and then', () => {
    let count = 0
    return async (request, next) =>
      ++count % 7 === 0
        ? answer(503, { error: { code: 'server_busy', detail: 'busy' } }, { 'retry-after': '1' })
        : next(request)
  }),
]

const budgets: readonly Right[] = [
  metered('has 150 items a minute', { limit: 150, windowMs: 60_000 }),
  metered('has 120 items a minute and tells none of it', {
    limit: 120,
    windowMs: 60_000,
    headers: () => ({}),
  }),
  metered('has 130 items a minute and tells when to come back by date', {
    limit: 130,
    windowMs: 60_000,
    headers: () => ({}),
    refusal: (seconds, nowMs) =>
      limited({ 'retry-after': new Date(nowMs + seconds * 1_000).toUTCString() }),
  }),
  metered('tells the delay in the detail alone', {
    refusal: (seconds) => limited({}, `too many items; retry in ${seconds} seconds`),
  }),
  metered('tells the delay as text of its own', {
    refusal: (seconds) => limited({}, `rate limited, try again after ${seconds}s`),
  }),
  metered('has 1,500 items a window', { limit: 1_500 }),
  metered('has 100,000 items a window', { limit: 100_000 }),
  metered('tells no budget', { headers: () => ({}) }),
  metered('tells its budget in other headers', {
    headers: (limit, left) => ({
      'x-ratelimit-limit': String(limit),
      'x-ratelimit-remaining': String(left),
    }),
  }),
  metered('has a window that ends just before a call that is over it', {
    ends: 'before the refusal',
  }),
  metered('has a window that ends right after it has refused', { ends: 'after the refusal' }),
  metered('charges unknown routes too', { cost: (_call, _status, items) => Math.max(1, items) }),
]
const limited = (headers: Record<string, string>, detail = 'too many items') =>
  answer(429, { error: { code: 'too_many_requests', detail } }, headers)

export const rights: readonly Right[] = [
  ...formats,
  ...stages,
  ...shapes,
  ...answersOfOthers,
  ...decisions,
  ...budgets,
]
