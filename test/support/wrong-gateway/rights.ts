/**
 * Gateways of other builders: each does something otherwise than ours, which the spec leaves open.
 * None may be accused.
 */
import { at, listAt } from '#conformance/probe'
import { priceOf } from '#protocol/proposal'
import {
  all,
  alter,
  and,
  answer,
  answers,
  both,
  callOf,
  codeIn,
  drop,
  headed,
  isBatch,
  isContexts,
  isSigningData,
  isSingle,
  isStatus,
  isStatuses,
  type Json,
  type Make,
  on,
  or,
  pages,
  put,
  refusal,
  refuses,
  resent,
  restated,
  results,
  takes,
  tells,
  type Which,
} from './between.js'
import { type Meter, meter } from './meter.js'
import { slugs, type WrongWorldOptions } from './world.js'

export interface Right {
  readonly does: string
  readonly make: Make
  readonly world?: WrongWorldOptions
}

const through: Make = () => (request, next) => next(request)
/**
 * Answers 422 to such payloads before the gateway has seen them, to items of a batch one by one
 * where all of them are such.
 */
const refusedBefore =
  (which: (body: Json) => boolean, code: string): Make =>
  () =>
  async (request, next) => {
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

const reviving = (which: Which, to: (key: string, value: string) => unknown) =>
  tells(which, (json) =>
    JSON.parse(JSON.stringify(json), (key, value) =>
      typeof value === 'string' ? to(key, value) : value,
    ),
  )
/** Every time in an answer in another form. */
const times = (to: (iso: string, ms: number) => unknown) =>
  reviving(all, (key, value) => (/_at$/.test(key) ? to(value, Date.parse(value)) : value))
/** Other words for the stages of a candidate. */
const words = (to: (word: string) => string) =>
  reviving(or(isSingle, isStatus, isBatch, isStatuses), (key, value) =>
    key === 'status' ? to(value) : value,
  )
type Names = Readonly<Record<string, string>>
const renamed = (which: Which, names: Names) => tells(which, (json) => rename(json, names))
function rename(value: unknown, names: Names): unknown {
  if (Array.isArray(value)) return value.map((one) => rename(one, names))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, member]) => [names[key] ?? key, rename(member, names)]),
  )
}
const withoutNull = (json: object, ...kept: readonly string[]) =>
  Object.fromEntries(
    Object.entries(json).filter(([key, value]) => value !== null || kept.includes(key)),
  )
const item = (path: string, to: (value: unknown) => unknown) =>
  alter(isContexts, `results.*.signing_data.${path}`, to)
/** A member of each context under another name. */
const moved = (holder: string, from: string, to: string, as = (value: unknown) => value) =>
  item(holder, (members) => {
    const { [from]: value, ...rest } = members as Json
    return { ...rest, [to]: as(value) }
  })
const refusals = (change: (json: Json, status: number, headers: Headers) => Response) =>
  answers(
    (_call, status) => status >= 400,
    (json, _call, headers) => change(json, statusIn(json), headers),
  )
/** Refusals that ours answers with `from` have another status. */
const recoded = (from: number, to: number, isSuch = (_json: Json) => true) =>
  refusals((json, status, headers) =>
    answer(status === from && isSuch(json) ? to : status, json, headers),
  )
const statuses: Readonly<Record<string, number>> = {
  method_not_allowed: 405,
  signature_not_authorized: 403,
  proposer_not_eligible: 403,
  candidate_conflict: 409,
  request_not_open: 409,
  ancillary_data_not_allowed: 413,
  unsupported_media_type: 415,
  rate_limited: 429,
  invalid_identifier: 400,
  invalid_json: 400,
}
/** What our own codes are answered with. */
function statusIn(json: Json): number {
  const code = String(codeIn(json))
  return code.endsWith('not_found') ? 404 : (statuses[code] ?? 422)
}
const batches = or(isBatch, isStatuses, isContexts)

type Types = Record<string, readonly { readonly name: string; readonly type: string }[]>
const typeText = (types: unknown) =>
  Object.entries(types as Types)
    .map(
      ([name, members]) => `${name}(${members.map((one) => `${one.type} ${one.name}`).join(',')})`,
    )
    .join('')

/** A member in every object of an answer. */
function grown(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(grown)
  if (typeof value !== 'object' || value === null) return value
  const isKept = (key: string) => ['version', 'types', 'typed_data'].includes(key)
  const members = Object.entries(value)
  return {
    ...Object.fromEntries(members.map(([key, one]) => [key, isKept(key) ? one : grown(one)])),
    x_extra: 'more',
  }
}

const stageWords: Names = {
  received: 'accepted',
  validated: 'checked',
  selected: 'chosen',
  executed: 'done',
  failed: 'rejected',
  indexed: 'recorded',
  confirmed: 'final',
  submitted: 'sent',
  prepared: 'built',
}

const others: Readonly<Record<string, Make>> = {
  'tells times without fractions': times((iso) => iso.replace(/\.\d+Z/, 'Z')),
  'tells times with an offset of +00:00': times((iso) => iso.replace('Z', '+00:00')),
  'tells times with microseconds': times((iso) => iso.replace('Z', '123Z')),
  'tells times with nanoseconds and an offset': times((iso) => iso.replace('Z', '123456+00:00')),
  'tells times in another zone': times((_iso, ms) =>
    new Date(ms + 7_200_000).toISOString().replace('Z', '+02:00'),
  ),
  'tells times as Unix seconds': times((_iso, ms) => Math.floor(ms / 1_000)),
  'tells times as Unix milliseconds in text': times((_iso, ms) => String(ms)),
  'names the times of a submission otherwise': renamed(isStatus, {
    submitted_at: 'submission_at',
    confirmed_at: 'confirmation_at',
    indexed_at: 'indexing_at',
  }),
  'names the times of a submission as timestamps': renamed(isStatus, {
    submitted_at: 'submitted_timestamp',
    confirmed_at: 'confirmed_timestamp',
    indexed_at: 'indexed_timestamp',
  }),
  'names the times of stages as timestamps': renamed(isStatus, {
    received_at: 'receipt_timestamp',
    validated_at: 'validation_timestamp',
    selected_at: 'selection_timestamp',
  }),
  'leaves out the times of stages that are not reached': tells(isStatus, (json) =>
    withoutNull(json, 'submission', 'failure'),
  ),
  'leaves out the times of a submission that are not reached': alter(
    isStatus,
    'submission',
    (value) => value && withoutNull(value),
  ),
  'names the identity otherwise': renamed(isStatus, {
    candidate_id: 'id',
    question_id: 'question',
  }),
  'leaves question and proposer out of a status': both(
    drop(isStatus, 'question_id'),
    drop(isStatus, 'proposer'),
  ),
  'says queued for received': words((word) => (word === 'received' ? 'queued' : word)),
  'says mined for executed': words((word) => (word === 'executed' ? 'mined' : word)),
  'has its own word for every stage': words((word) => stageWords[word] ?? word),
  'writes stages in capitals': words((word) =>
    /^(received|validated|selected|executed|failed)$/.test(word) ? word.toUpperCase() : word,
  ),
  'has other codes and actions for failures': alter(
    isStatus,
    'failure',
    (value) =>
      value && { ...(value as Json), code: 'E_FUNDS', next_action: 'top_up', stage: 'checking' },
  ),
  'tells chain_id as text': item('signing.chain_id', String),
  'tells the timestamp of a context as a number': item('request.timestamp', Number),
  'tells the bond of a context as a number': item('bond.required_bond', Number),
  'tells no primary type': item('signing.primary_type', () => undefined),
  'tells the question by another name in request': moved('request', 'question_id', 'question'),
  'tells no question in request': item('request.question_id', () => undefined),
  'tells identifier.raw beside request alone': item('request.identifier', () => undefined),
  'tells identifier.raw in request alone': item('identifier', () => undefined),
  'tells ancillary bytes by that name': moved('request', 'ancillary_data', 'ancillary_bytes'),
  'names the types witness_types': moved('signing', 'types', 'witness_types'),
  'tells the types as one text': moved('signing', 'types', 'witness_type', typeText),
  'tells the domain of the types too': item('signing.types', (types) => ({
    ...(types as object),
    EIP712Domain: [
      { name: 'name', type: 'string' },
      { name: 'chainId', type: 'uint256' },
      { name: 'verifyingContract', type: 'address' },
    ],
  })),
  'tells the maximum payment as a number': item('signing.max_payment', Number),
  'names the maximum payment otherwise': moved('signing', 'max_payment', 'maximum_payment'),
  'tells a maximum authorization of its own': alter(
    isSigningData,
    'economics.max_authorization',
    () => String(2n ** 255n),
  ),
  'names the members of economics otherwise': renamed(isSigningData, {
    total_bond: 'current_total_bond',
    max_authorization: 'maximum_authorization',
  }),
  'names the oracle identifier otherwise': alter(isSigningData, 'request', (request) => ({
    ...(request as Json),
    identifier: undefined,
    oracle_identifier: at(request, 'identifier'),
  })),
  'tells the identifier of signing data under raw': alter(
    isSigningData,
    'request.identifier',
    (raw) => ({ raw }),
  ),
  'tells availability as a word': alter(isSigningData, 'outcomes.*', (one) => ({
    ...(one as Json),
    allowed: undefined,
    availability: at(one, 'allowed') === true ? 'available' : 'unavailable',
  })),
  'lists the available outcomes alone': alter(isSigningData, 'outcomes', (list) =>
    (list as Json[]).filter(({ allowed }) => allowed === true),
  ),
  'tells outcomes by their key': alter(isSigningData, 'outcomes', (list) =>
    Object.fromEntries((list as Json[]).map(({ outcome, ...one }) => [String(outcome), one])),
  ),
  'names the key of an outcome otherwise': alter(isSigningData, 'outcomes.*', (one) => ({
    ...(one as Json),
    outcome: undefined,
    key: at(one, 'outcome'),
  })),
  'gives questions labels of their own': both(
    alter(isSigningData, 'proposal.label', () => 'Chelsea'),
    alter(isSigningData, 'outcomes.*.label', () => 'Chelsea'),
  ),
  'leaves the domain out of the types': drop(isSigningData, 'typed_data.types.EIP712Domain'),
  'adds members everywhere': tells(all, grown),
  'orders members otherwise': tells(all, (json) =>
    Object.fromEntries(Object.entries(json).reverse()),
  ),
  'has other error codes': refusals((json, status, headers) => {
    const isKept = codeIn(json) === 'permit_amount_below_required_bond'
    const error = { code: 'E42', detail: at(json, 'error.detail') }
    return answer(status, isKept ? json : { error }, headers)
  }),
  'has other texts': alter(all, 'error.detail', () => 'Das geht nicht.'),
  'has empty texts': alter(all, 'error.detail', () => ''),
  'names what is wrong in the detail': answers(
    and(isSingle, on(422)),
    (json, { body }, headers) => {
      const detail = `outcome ${String(body.outcome)} and proposer ${String(body.proposer)} will not do`
      return answer(422, { error: { ...(json.error as Json), detail } }, headers)
    },
  ),
  'tells no errors': drop(all, 'errors'),
  'tells errors of another form': alter(all, 'errors', (list) =>
    (list as unknown[]).map((one) => String(at(one, 'path'))),
  ),
  'answers 400 where ours answers 422': recoded(422, 400),
  'answers 422 where ours answers 400': recoded(400, 422),
  'answers 404 to malformed paths': recoded(
    400,
    404,
    (json) => codeIn(json) === 'invalid_identifier',
  ),
  'sends headers of its own': headed(all, () => ({
    server: 'nginx',
    'x-request-id': '1',
    'content-digest': 'sha-256=:AA==:',
    'content-type': 'application/json; charset=utf-8',
    vary: 'Origin',
  })),
  'prints JSON over several lines': () => async (request, next) => {
    const response = await next(request)
    const text = JSON.stringify(await response.clone().json(), null, 2)
    return restated(response, () => undefined, text)
  },
  'lets a proxy answer 404 and 405 for routes': pages(
    ({ path }, status) => status === 405 || (status === 404 && !path.startsWith('/v1/proposals')),
  ),
  'lets a proxy answer 413': pages((_call, status) => status === 413),
  'lets a proxy answer 429': pages((_call, status) => status === 429),
  'names its own site to CORS': headed(all, () => ({
    'access-control-allow-origin': 'https://app.example',
  })),
  'tells a status_url without its first slash': alter(isSingle, 'status_url', (url) =>
    String(url).slice(1),
  ),
  'tells a status_url with the slug': alter(isSingle, 'status_url', (url) =>
    String(url).replace(/0x[0-9a-f]{64}/, (id) => slugs.get(id) ?? id),
  ),
  'tells a batch status_url as a whole URL': alter(
    isBatch,
    'results.*.candidate.status_url',
    (url) => `https://inner.example${url}`,
  ),
  'tells no client_ref where none was sent': results(
    isBatch,
    (one) => one.client_ref === null && put(one, { client_ref: undefined }),
  ),
  'tells null where there is no error': both(
    results(batches, (one) => one.error === undefined && put(one, { error: null })),
    results(isContexts, (one) => one.error && put(one, { signing_data: null })),
    results(or(isBatch, isStatuses), (one) => one.error && put(one, { candidate: null })),
  ),
  'numbers its results': tells(batches, ({ results, ...json }) => ({
    ...json,
    results: (results as Json[] | undefined)?.map((one, index) => ({ ...one, index })),
  })),
  'does not judge amounts and deadlines, preparing': () => async (request, next) => {
    const response = await next(request.clone())
    const code = String(codeIn(await response.clone().json()))
    if (
      !request.url.endsWith('/signing-data') ||
      !/^permit_(amount_below_required_bond|deadline_too_soon)$/.test(code)
    )
      return response
    const body = (await request.json()) as Json
    const permit = { ...(body.permit as Json), amount: String(2n ** 128n), deadline: '99999999999' }
    const told = (await (await next(resent(request, { body: { ...body, permit } }))).json()) as Json
    return answer(200, { ...told, permit: body.permit })
  },
  'takes more fields where it prepares': takes(
    isSigningData,
    ({ version, proposer, outcome, max_payment, permit }) =>
      JSON.parse(JSON.stringify({ version, proposer, outcome, max_payment, permit })),
  ),
  'asks for eligibility first': refuses(
    (call, status) => isSingle(call) && status === 404 && call.body.proposer !== undefined,
    403,
    'proposer_not_eligible',
  ),
  'takes only what is funded': refusedBefore(
    (body) =>
      body.signature !== undefined && BigInt(String(at(body, 'permit.amount'))) >= 2n ** 128n,
    'insufficient_funds',
  ),
  'is busy now and then': () => {
    let count = 0
    return async (request, next) =>
      ++count % 7 === 0
        ? answer(503, { error: { code: 'server_busy', detail: 'busy' } }, { 'retry-after': '1' })
        : next(request)
  },
}

const elsewhere: readonly Right[] = [
  {
    does: 'has p3 disabled though the text allows it',
    make: both(
      alter(isSigningData, 'outcomes.2.allowed', () => false),
      item('price.allowed_values', (values) => (values as string[]).slice(0, 2)),
      refuses(
        (call) => isSigningData(call) && call.body.outcome === 'p3',
        422,
        'outcome_not_allowed',
      ),
      refusedBefore(
        (body) => body.outcome === 'p3' || body.proposed_price === priceOf.p3,
        'outcome_not_allowed',
      ),
    ),
    world: { half: true },
  },
  { does: 'allows p3 where the text does', make: through, world: { half: true } },
  { does: 'never gets on with its candidates', make: through, world: { pipeline: false } },
  { does: 'takes long to validate', make: through, world: { slow: true } },
]

const limited = (headers: Record<string, string>, detail = 'too many items') =>
  answer(429, { error: { code: 'too_many_requests', detail } }, headers)
const silent = { windowMs: 60_000, headers: () => ({}) }
const budgets: Readonly<Record<string, Partial<Meter>>> = {
  'has 150 items a minute': { limit: 150, windowMs: 60_000 },
  'has 120 items a minute and tells none of it': { ...silent, limit: 120 },
  'has 130 items a minute and tells when to come back by date': {
    ...silent,
    limit: 130,
    refusal: (seconds, nowMs) =>
      limited({ 'retry-after': new Date(nowMs + seconds * 1_000).toUTCString() }),
  },
  'tells the delay in the detail alone': {
    refusal: (seconds) => limited({}, `too many items; retry in ${seconds} seconds`),
  },
  'tells the delay as text of its own': {
    refusal: (seconds) => limited({}, `rate limited, try again after ${seconds}s`),
  },
  'has 1,500 items a window': { limit: 1_500 },
  'has 100,000 items a window': { limit: 100_000 },
  'tells no budget': { headers: () => ({}) },
  'tells its budget in other headers': {
    headers: (limit, left) => ({
      'x-ratelimit-limit': String(limit),
      'x-ratelimit-remaining': String(left),
    }),
  },
  'has a window that ends just before a call that is over it': { ends: 'before the refusal' },
  'has a window that ends right after it has refused': { ends: 'after the refusal' },
  'charges unknown routes too': { cost: (_call, _status, items) => Math.max(1, items) },
}

export const rights: readonly Right[] = [
  ...Object.entries(others).map(([does, make]) => ({ does, make })),
  ...elsewhere,
  ...Object.entries(budgets).map(([does, changes]) => ({
    ...{ does, make: through },
    world: { meter: { ...meter, ...changes } },
  })),
]
