/** §1, §2.3, §4.1 rule 1, §7 and §9: gateways that are wrong whatever is asked. */
import { at, listAt } from '#conformance/answer'
import {
  alter,
  answer,
  answers,
  type Call,
  type Fault,
  fault,
  isBatch,
  isContexts,
  isEligibility,
  isSigningData,
  isSingle,
  isStatus,
  isStatuses,
  type Json,
  refusal,
  resent,
  serves,
  takes,
} from '../between.js'
import type { Wrong } from '../world.js'

const withHeader =
  (
    which: (call: Call, status: number) => boolean,
    name: string,
    value: (request: Request) => string,
  ) =>
  (): Wrong =>
  async (request, next) => {
    const response = await next(request)
    const call = { method: request.method, path: new URL(request.url).pathname, body: {} }
    if (!which(call, response.status)) return response
    const headers = new Headers(response.headers)
    headers.append(name, value(request))
    return new Response(await response.text(), { status: response.status, headers })
  }
/** Answers of this status get another. */
const status =
  (which: (call: Call, json: Json) => boolean, from: number | readonly number[], to: number) =>
  () =>
    answers(
      (call, code, json) => [from].flat().includes(code) && which(call, json),
      (json, _call, headers) => answer(to, json, headers),
    )
const text =
  (which: (call: Call, status: number) => boolean, type = 'text/plain') =>
  (): Wrong =>
  async (request, next) => {
    const response = await next(request)
    const call = { method: request.method, path: new URL(request.url).pathname, body: {} }
    return which(call, response.status)
      ? new Response('<p>no</p>', { status: response.status, headers: { 'content-type': type } })
      : response
  }
const all = () => true
const lower = (path: string) => path.toLowerCase()
const isOf = (code: string) => (_call: Call, json: Json) => at(json, 'error.code') === code
const slugged = ({ path }: Call) => path.includes('/question-')
const inBatch = (which: (value: string) => boolean, to: (value: string) => string) => () =>
  takes(isContexts, ({ identifiers }) => ({
    identifiers: listAt({ identifiers }, 'identifiers').map((one) =>
      typeof one === 'string' && which(one) ? to(one) : one,
    ),
  }))

const paths: readonly Fault[] = [
  fault('§1', 'serves a trailing slash everywhere', () =>
    serves((path) => path.replace(/(.)\/$/, '$1')),
  ),
  fault('§1', 'serves a trailing slash of the batch routes', () =>
    serves((path) => path.replace(/^(\/propose\/.*)\/$/, '$1')),
  ),
  fault('§1', 'redirects a trailing slash', () => async (request, next) => {
    const { pathname } = new URL(request.url)
    if (!pathname.endsWith('/')) return next(request)
    return new Response(null, { status: 308, headers: { location: pathname.slice(0, -1) } })
  }),
  fault('§1', 'serves paths in capitals', () =>
    serves((path) => path.replace(/^\/(v1\/proposals|propose\/batch)/i, lower)),
  ),
  fault('§1', 'decodes paths', () => serves(decodeURIComponent)),
  fault('§1', 'decodes the address of eligibility', () =>
    serves((path) =>
      path.startsWith('/v1/proposals/eligibility/') ? decodeURIComponent(path) : path,
    ),
  ),
  fault('§1', 'takes any content type', () =>
    serves((path) => path, { 'content-type': 'application/json' }),
  ),
  fault(
    '§1',
    'takes any content type on the single routes',
    () => async (request, next) =>
      request.method === 'POST' && request.url.includes('/v1/')
        ? next(
            new Request(request.url, {
              method: 'POST',
              headers: { 'content-type': 'application/json' },
              body: await request.text(),
            }),
          )
        : next(request),
  ),
  fault(
    '§1',
    'takes a body that has no content type',
    () => async (request, next) =>
      request.headers.has('content-type')
        ? next(request)
        : serves((path) => path, { 'content-type': 'application/json' })(request, next),
  ),
  fault('§1', 'answers 500 to a body that is none', status(isOf('invalid_json'), [400, 422], 500)),
  fault('§1', 'answers 200 to a body that is none', () =>
    answers(
      (_call, _status, json) => at(json, 'error.code') === 'invalid_json',
      () => answer(200, { results: [] }),
    ),
  ),
  fault('§1', 'takes an address in capitals', () =>
    serves((path) => (path.includes('eligibility') ? lower(path) : path)),
  ),
  fault('§1', 'takes a question id in capitals, preparing', () =>
    serves((path) => (path.endsWith('signing-data') ? lower(path) : path)),
  ),
  fault('§1', 'takes a question id in capitals, submitting', () => async (request, next) => {
    const { pathname } = new URL(request.url)
    return /^\/v1\/proposals\/0x[^/]+$/.test(pathname) && request.method === 'POST'
      ? next(
          new Request(new URL(lower(pathname), request.url), {
            method: 'POST',
            headers: request.headers,
            body: await request.text(),
          }),
        )
      : next(request)
  }),
  fault(
    '§1',
    'takes a question id in capitals in a batch of contexts',
    inBatch((id) => /^0x/i.test(id), lower),
  ),
  fault('§1', 'takes a question id in capitals in a batch item', () =>
    takes(isBatch, ({ proposals }) => ({
      proposals: listAt({ proposals }, 'proposals').map((one) => ({
        ...(one as Json),
        identifier: lower(String(at(one, 'identifier'))),
      })),
    })),
  ),
  fault('§1', 'takes a slug in capitals', () =>
    serves((path) =>
      path.replace(
        /^(\/v1\/proposals\/)([^0/][^/]*)(\/signing-data)?$/,
        (_all, a, b, c) => a + lower(b) + (c ?? ''),
      ),
    ),
  ),
  fault('§1', 'takes a slug with underscores for hyphens', () =>
    serves((path) => path.replaceAll('_', '-')),
  ),
  fault(
    '§1',
    'takes a slug in capitals in a batch',
    inBatch((id) => !id.startsWith('0x'), lower),
  ),
  fault('§1', 'knows no slug, preparing', () =>
    answers(
      (call) => slugged(call) && isSigningData(call),
      () => refusal(404, 'question_not_found'),
    ),
  ),
  fault('§1', 'knows no slug, submitting', () =>
    answers(
      (call) => slugged(call) && isSingle(call),
      () => refusal(404, 'question_not_found'),
    ),
  ),
  fault('§1', 'knows no slug in a status', () =>
    answers(
      (call) => slugged(call) && isStatus(call),
      () => refusal(404, 'question_not_found'),
    ),
  ),
  fault(
    '§1',
    'takes a slug for another question',
    alter(
      (call) => isSigningData(call) && slugged(call),
      'question_id',
      () => `0x${'1'.repeat(64)}`,
    ),
  ),
  fault('§1', 'puts hyphens in', () =>
    serves((path) =>
      path.replace(/\/status\/(.{8})(.{4})(.{4})(.{4})(.{12})$/, '/status/$1-$2-$3-$4-$5'),
    ),
  ),
  fault('§1', 'puts hyphens in, in a batch', () =>
    takes(isStatuses, ({ candidate_ids }) => ({
      candidate_ids: listAt({ candidate_ids }, 'candidate_ids').map((id) =>
        typeof id === 'string'
          ? id.replace(
              /^([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$/,
              '$1-$2-$3-$4-$5',
            )
          : id,
      ),
    })),
  ),
]

const origins: readonly Fault[] = [
  fault(
    '§1',
    'sets a cookie with eligibility',
    withHeader(isEligibility, 'set-cookie', () => 'a=b'),
  ),
  fault(
    '§1',
    'sets a cookie with an acknowledgement',
    withHeader(isSingle, 'set-cookie', () => 'a=b'),
  ),
  fault(
    '§1',
    'sets a cookie with a refusal',
    withHeader(
      (_call, code) => code === 404,
      'set-cookie',
      () => 'a=b',
    ),
  ),
  fault(
    '§1',
    'allows every origin',
    withHeader(all, 'access-control-allow-origin', () => '*'),
  ),
  fault(
    '§1',
    'allows whatever origin asks',
    withHeader(
      all,
      'access-control-allow-origin',
      (request) => request.headers.get('origin') ?? 'null',
    ),
  ),
  fault(
    '§1',
    'allows every origin in a preflight',
    () => async (request, next) =>
      request.method === 'OPTIONS'
        ? new Response(null, {
            status: 204,
            headers: { 'access-control-allow-origin': '*', 'access-control-allow-methods': 'POST' },
          })
        : next(request),
  ),
]

const eligibility: readonly Fault[] = [
  fault(
    '§2.3',
    'tells the address in capitals',
    alter(isEligibility, 'address', (value) => `0x${String(value).slice(2).toUpperCase()}`),
  ),
  fault(
    '§4.1 rule 1',
    'calls everybody eligible',
    alter(isEligibility, 'eligible', () => true),
  ),
  fault('§4.1 rule 1', 'answers 404 for an unknown wallet', () =>
    answers(
      (call, _code, json) => isEligibility(call) && json.eligible === false,
      () => refusal(404, 'wallet_not_found'),
    ),
  ),
  fault('§4.1 rule 1', 'answers 403 for an unknown wallet', () =>
    answers(
      (call, _code, json) => isEligibility(call) && json.eligible === false,
      () => refusal(403, 'proposer_not_eligible'),
    ),
  ),
  fault(
    '§4.1 rule 1',
    'calls nobody eligible',
    alter(isEligibility, 'eligible', () => false),
  ),
]

const errors: readonly Fault[] = [
  fault('§7', 'makes up unknown questions', () =>
    answers(
      (call, code) => isSigningData(call) && code === 404,
      () => answer(200, {}),
    ),
  ),
  fault('§7', 'answers 422 for an unknown question', status(isOf('question_not_found'), 404, 422)),
  fault(
    '§7',
    'answers 500 for an unknown question that is submitted for',
    status((call, json) => isSingle(call) && isOf('question_not_found')(call, json), 404, 500),
  ),
  fault('§7', 'answers an unknown route', () =>
    answers(
      (_call, _code, json) => isOf('route_not_found')(_call, json),
      () => answer(200, {}),
    ),
  ),
  fault('§7', 'answers 403 on an unknown route', status(isOf('route_not_found'), 404, 403)),
  fault('§7', 'calls a wrong method an unknown route', () =>
    answers(
      (_call, code) => code === 405,
      () => refusal(404, 'route_not_found'),
    ),
  ),
  fault(
    '§7',
    'takes POST for eligibility',
    () => async (request, next) =>
      request.method === 'POST' && request.url.includes('/eligibility/')
        ? next(new Request(request.url))
        : next(request),
  ),
  fault(
    '§7',
    'calls a wrong method of a single route malformed',
    status(({ path }) => path.startsWith('/v1/'), 405, 400),
  ),
  fault(
    '§7',
    'refuses a malformed body as plain text',
    text((_call, code) => code === 422),
  ),
  fault(
    '§7',
    'refuses a signature as plain text',
    text((call, code) => isSingle(call) && code === 403),
  ),
  fault(
    '§7',
    'tells a 409 without JSON',
    text((call, code) => isSingle(call) && code === 409),
  ),
  fault(
    '§7',
    'repeats the body with its signature in errors',
    echo((body) => [{ path: 'body', code: JSON.stringify(body) }]),
  ),
  fault(
    '§7',
    'repeats the value that is wrong in errors',
    echo((body) =>
      Object.entries(body).map(([path, value]) => ({ path, code: 'invalid', received: value })),
    ),
  ),
  fault(
    '§7',
    'repeats the body of a batch in errors',
    echo((body) => [{ path: 'proposals', received: body }], isBatch),
  ),
  fault('§7', 'repeats a signature in the detail of a 403', () =>
    answers(
      (call, code) => isSingle(call) && code === 403,
      (_json, { body }, headers) =>
        answer(
          403,
          { error: { code: 'signature_not_authorized', detail: `not ${body.signature}` } },
          headers,
        ),
    ),
  ),
  fault(
    '§7',
    'answers 500 for every fault of a body',
    status((call) => isSingle(call) || isBatch(call), [400, 422], 500),
  ),
  fault(
    '§7',
    'answers 409 for every fault of a body',
    status((call) => isSingle(call) || isBatch(call), [400, 422], 409),
  ),
  fault('§7', 'calls ancillary data a fault of the schema', status(isSingle, 413, 422)),
  fault('§7', 'ignores ancillary data', () =>
    takes(
      (call) => isSingle(call),
      ({ ancillary_data: _data, ...body }) => body,
    ),
  ),
  fault('§7', 'ignores ancillary data of a batch item', () =>
    takes(isBatch, ({ proposals }) => ({
      proposals: listAt({ proposals }, 'proposals').map((one) => without(one, 'ancillary_data')),
    })),
  ),
  fault('§7', 'answers 403 to ancillary data of a batch item', status(isBatch, 413, 403)),
]

function echo(errorsOf: (body: Json) => unknown, which: (call: Call) => boolean = isSingle) {
  return () =>
    answers(
      (call, code) => which(call) && code === 422,
      (json, { body }, headers) => answer(422, { ...json, errors: errorsOf(body) }, headers),
    )
}

function without(value: unknown, field: string): Json {
  const { [field]: _gone, ...rest } = value as Json
  return rest
}

const access: readonly Fault[] = [
  fault(
    '§5',
    'asks for an API key where something is submitted',
    () => async (request, next) =>
      request.method === 'POST' &&
      request.headers.get('authorization') === null &&
      /\/v1\/proposals\/[^/]+$/.test(new URL(request.url).pathname)
        ? refusal(401, 'api_key_required')
        : next(request),
  ),
  fault('§1', 'wants signing data to be asked for before a submission', () => {
    const prepared = new Set<unknown>()
    return async (request, next) => {
      if (request.method !== 'POST' || !request.url.includes('/v1/')) return next(request)
      const nonce = at(await bodyOf(request), 'permit.nonce')
      if (request.url.endsWith('/signing-data')) prepared.add(nonce)
      else if (!prepared.has(nonce)) return refusal(409, 'not_prepared')
      return next(request)
    }
  }),
  fault('§4.1 rule 3', 'gives the same answer under the same Idempotency-Key', () => {
    const known = new Map<string, string>()
    return async (request, next) => {
      const key = request.headers.get('idempotency-key')
      const before = key === null ? undefined : known.get(key)
      if (before !== undefined) return answer(200, JSON.parse(before))
      const response = await next(request)
      if (key !== null) known.set(key, await response.clone().text())
      return response
    }
  }),
  fault('§4.1', 'takes submissions with PUT only', () => async (request, next) => {
    const { pathname } = new URL(request.url)
    if (!/^\/v1\/proposals\/[^/]+$/.test(pathname)) return next(request)
    return request.method === 'POST'
      ? refusal(405, 'method_not_allowed')
      : next(resent(request, {}))
  }),
]

async function bodyOf(request: Request): Promise<unknown> {
  try {
    return await request.clone().json()
  } catch {
    // The gateway will say what is wrong with it.
    return {}
  }
}

export const conventionFaults: readonly Fault[] = [
  ...paths,
  ...origins,
  ...eligibility,
  ...errors,
  ...access,
]
