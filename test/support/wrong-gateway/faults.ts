/** Gateways that are wrong in one rule each, whatever is asked or for one proposal at a time. */
import { at } from '#conformance/probe'
import { priceOf } from '#protocol/proposal'
import { version } from '#protocol/words'
import { batchFaults } from './batch-faults.js'
import {
  acknowledged,
  admits,
  alter,
  and,
  anew,
  answer,
  answers,
  type Call,
  callOf,
  coded,
  codeIn,
  type Fault,
  type Faults,
  headed,
  instead,
  isBatch,
  isContexts,
  isEligibility,
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
  recodes,
  refusal,
  refuses,
  resent,
  results,
  rowsOf,
  serves,
  takes,
  takesItems,
  tells,
  type Which,
} from './between.js'
import { bodyFaults } from './body-faults.js'
import { type Meter, meter } from './meter.js'

const lower = (path: string) => path.toLowerCase()
const typed = (which?: (request: Request) => boolean) =>
  serves((path) => path, { 'content-type': 'application/json' }, which)
const slugged = ({ path }: Call) => path.includes('/question-')
const lowerIds = (form: RegExp) =>
  takesItems(isContexts, (one) => (typeof one === 'string' && form.test(one) ? lower(one) : one))
const hyphened = (text: string) =>
  text.replace(
    /(?<=^|\/status\/)([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$/,
    '$1-$2-$3-$4-$5',
  )
const cookie = () => ({ 'set-cookie': 'a=b' })
const cors = 'access-control-allow-origin'
const isStranger = and(isEligibility, (_call, _status, json) => json.eligible === false)
const posts = or(isSingle, isBatch)
const echo = (errorsOf: (body: Json) => unknown, which: Which = isSingle) =>
  answers(and(which, on(422)), (json, { body }, headers) =>
    answer(422, { ...json, errors: errorsOf(body) }, headers),
  )
function without(value: unknown, field: string): Json {
  const { [field]: _gone, ...rest } = value as Json
  return rest
}

const conventions: Faults = {
  '§1': {
    'serves a trailing slash everywhere': serves((path) => path.replace(/(.)\/$/, '$1')),
    'serves a trailing slash of the batch routes': serves((path) =>
      path.replace(/^(\/propose\/.*)\/$/, '$1'),
    ),
    'redirects a trailing slash': () => async (request, next) => {
      const { pathname } = new URL(request.url)
      if (!pathname.endsWith('/')) return next(request)
      return new Response(null, { status: 308, headers: { location: pathname.slice(0, -1) } })
    },
    'serves paths in capitals': serves((path) =>
      path.replace(/^\/(v1\/proposals|propose\/batch)/i, lower),
    ),
    'decodes paths': serves(decodeURIComponent),
    'decodes the address of eligibility': serves((path) =>
      path.startsWith('/v1/proposals/eligibility/') ? decodeURIComponent(path) : path,
    ),
    'takes any content type': typed(),
    'takes any content type on the single routes': typed(
      ({ method, url }) => method === 'POST' && url.includes('/v1/'),
    ),
    'takes a body that has no content type': typed(({ headers }) => !headers.has('content-type')),
    'answers 500 to a body that is none': recodes(coded('invalid_json'), 500),
    'answers 200 to a body that is none': instead(coded('invalid_json'), 200, { results: [] }),
    'takes an address in capitals': serves((path) =>
      path.includes('eligibility') ? lower(path) : path,
    ),
    'takes a question id in capitals, preparing': serves((path) =>
      path.endsWith('signing-data') ? lower(path) : path,
    ),
    'takes a question id in capitals, submitting': serves((path, { method }) =>
      /^\/v1\/proposals\/0x[^/]+$/.test(path) && method === 'POST' ? lower(path) : path,
    ),
    'takes a question id in capitals in a batch of contexts': lowerIds(/^0x/i),
    'takes a question id in capitals in a batch item': takesItems(isBatch, (one) => ({
      ...(one as Json),
      identifier: lower(String(at(one, 'identifier'))),
    })),
    'takes a slug in capitals': serves((path) =>
      path.replace(
        /^(\/v1\/proposals\/)([^0/][^/]*)(\/signing-data)?$/,
        (_all, a, b, c) => a + lower(b) + (c ?? ''),
      ),
    ),
    'takes a slug with underscores for hyphens': serves((path) => path.replaceAll('_', '-')),
    'takes a slug in capitals in a batch': lowerIds(/^(?!0x)/),
    'knows no slug, preparing': refuses(and(slugged, isSigningData), 404, 'question_not_found'),
    'knows no slug, submitting': refuses(and(slugged, isSingle), 404, 'question_not_found'),
    'knows no slug in a status': refuses(and(slugged, isStatus), 404, 'question_not_found'),
    'takes a slug for another question': alter(
      and(slugged, isSigningData),
      'question_id',
      () => `0x${'1'.repeat(64)}`,
    ),
    'puts hyphens in': serves(hyphened),
    'puts hyphens in, in a batch': takesItems(isStatuses, (id) =>
      typeof id === 'string' ? hyphened(id) : id,
    ),
    'sets a cookie with eligibility': headed(isEligibility, cookie),
    'sets a cookie with an acknowledgement': headed(isSingle, cookie),
    'sets a cookie with a refusal': headed((_call, status) => status === 404, cookie),
    'allows every origin': headed(
      () => true,
      () => ({ [cors]: '*' }),
    ),
    'allows whatever origin asks': headed(
      () => true,
      ({ headers }) => ({ [cors]: headers.get('origin') ?? 'null' }),
    ),
    'allows every origin in a preflight': () => async (request, next) =>
      request.method === 'OPTIONS'
        ? new Response(null, {
            status: 204,
            headers: { [cors]: '*', 'access-control-allow-methods': 'POST' },
          })
        : next(request),
    'wants signing data to be asked for before a submission': () => {
      const prepared = new Set<unknown>()
      return async (request, next) => {
        if (request.method !== 'POST' || !request.url.includes('/v1/')) return next(request)
        const nonce = at((await callOf(request)).body, 'permit.nonce')
        if (request.url.endsWith('/signing-data')) prepared.add(nonce)
        else if (!prepared.has(nonce)) return refusal(409, 'not_prepared')
        return next(request)
      }
    },
  },
  '§2.3': {
    'tells the address in capitals': alter(
      isEligibility,
      'address',
      (value) => `0x${String(value).slice(2).toUpperCase()}`,
    ),
  },
  '§4.1 rule 1': {
    'calls everybody eligible': alter(isEligibility, 'eligible', () => true),
    'answers 404 for an unknown wallet': refuses(isStranger, 404, 'wallet_not_found'),
    'answers 403 for an unknown wallet': refuses(isStranger, 403, 'proposer_not_eligible'),
    'calls nobody eligible': alter(isEligibility, 'eligible', () => false),
  },
  '§7': {
    'makes up unknown questions': instead(and(isSigningData, on(404)), 200, {}),
    'answers 422 for an unknown question': recodes(coded('question_not_found'), 422),
    'answers 500 for an unknown question that is submitted for': recodes(
      and(isSingle, coded('question_not_found')),
      500,
    ),
    'answers an unknown route': instead(coded('route_not_found'), 200, {}),
    'answers 403 on an unknown route': recodes(coded('route_not_found'), 403),
    'calls a wrong method an unknown route': refuses(on(405), 404, 'route_not_found'),
    'takes POST for eligibility': () => async (request, next) =>
      request.method === 'POST' && request.url.includes('/eligibility/')
        ? next(new Request(request.url))
        : next(request),
    'calls a wrong method of a single route malformed': recodes(
      and(({ path }) => path.startsWith('/v1/'), on(405)),
      400,
    ),
    'refuses a malformed body as plain text': pages(
      (_call, status) => status === 422,
      'text/plain',
    ),
    'refuses a signature as plain text': pages(
      (call, status) => isSingle(call) && status === 403,
      'text/plain',
    ),
    'tells a 409 without JSON': pages(
      (call, status) => isSingle(call) && status === 409,
      'text/plain',
    ),
    'repeats the body with its signature in errors': echo((body) => [
      { path: 'body', code: JSON.stringify(body) },
    ]),
    'repeats the value that is wrong in errors': echo((body) =>
      Object.entries(body).map(([path, value]) => ({ path, code: 'invalid', received: value })),
    ),
    'repeats the body of a batch in errors': echo(
      (body) => [{ path: 'proposals', received: body }],
      isBatch,
    ),
    'repeats a signature in the detail of a 403': answers(
      and(isSingle, on(403)),
      (_json, { body }, headers) =>
        answer(
          403,
          { error: { code: 'signature_not_authorized', detail: `not ${body.signature}` } },
          headers,
        ),
    ),
    'answers 500 for every fault of a body': recodes(and(posts, on(400, 422)), 500),
    'answers 409 for every fault of a body': recodes(and(posts, on(400, 422)), 409),
    'calls ancillary data a fault of the schema': recodes(and(isSingle, on(413)), 422),
    'ignores ancillary data': takes(isSingle, (body) => without(body, 'ancillary_data')),
    'ignores ancillary data of a batch item': takesItems(isBatch, (one) =>
      without(one, 'ancillary_data'),
    ),
    'answers 403 to ancillary data of a batch item': recodes(and(isBatch, on(413)), 403),
  },
  '§5': {
    'asks for an API key where something is submitted': () => async (request, next) =>
      request.method === 'POST' &&
      request.headers.get('authorization') === null &&
      /\/v1\/proposals\/[^/]+$/.test(new URL(request.url).pathname)
        ? refusal(401, 'api_key_required')
        : next(request),
  },
  '§4.1 rule 3': {
    'gives the same answer under the same Idempotency-Key': () => {
      const known = new Map<string, string>()
      return async (request, next) => {
        const key = request.headers.get('idempotency-key')
        const before = key === null ? undefined : known.get(key)
        if (before !== undefined) return answer(200, JSON.parse(before))
        const response = await next(request)
        if (key !== null) known.set(key, await response.clone().text())
        return response
      }
    },
  },
  '§4.1': {
    'takes submissions with PUT only': () => async (request, next) => {
      if (!/^\/v1\/proposals\/[^/]+$/.test(new URL(request.url).pathname)) return next(request)
      return request.method === 'POST'
        ? refusal(405, 'method_not_allowed')
        : next(resent(request, {}))
    },
  },
}

const plus = (more: bigint) => (value: unknown) => String(BigInt(String(value)) + more)
/** Of the v1 route. */
const told = (path: string, to: (value: unknown, call: Call, json: Json) => unknown) =>
  alter(isSigningData, path, to)
/** Of the batch route, in each item. */
const item = (path: string, to: (value: unknown) => unknown) =>
  alter(isContexts, `results.*.signing_data.${path}`, to)
/** One nonce, one preparation: whoever comes next with it is refused. */
const reserving = (isRefused: Which) =>
  anew(() => {
    const nonces = new Set<unknown>()
    const isKnown: Which = (call) => {
      const nonce = at(call.body, 'permit.nonce')
      const known = nonce !== undefined && nonces.has(nonce)
      if (isSigningData(call)) nonces.add(nonce)
      return known
    }
    return refuses(and(isKnown, isRefused), 409, 'nonce_reserved')
  })
const endsWithin =
  (seconds: number): Which =>
  ({ body }, _status, _json, now) =>
    Number(at(body, 'permit.deadline')) < now() + seconds

const preparation: Faults = {
  '§2.2': {
    'swaps the prices of p1 and p2': told('outcomes.*', (one) => ({
      ...(one as Json),
      price: { p1: priceOf.p2, p2: priceOf.p1 }[String(at(one, 'outcome'))] ?? priceOf.p3,
    })),
    'says that p3 is allowed where the text does not': told('outcomes.2.allowed', () => true),
    'tells null of p3': told('outcomes', (list) => ({ ...(list as Json[]), p3: null })),
    'allows 0.5 where the text does not': item('price.allowed_values', (list) => [
      ...(list as string[]),
      priceOf.p3,
    ]),
    'allows the index of a winner': item('price.allowed_values', () => ['0', '1', '2']),
  },
  '§2.4': {
    'tells the bond for the amount': told('permit.amount', (_amount, _call, json) =>
      at(json, 'economics.total_bond'),
    ),
    'tells half a decimal': told('token.decimals', () => 6.5),
    'tells a total bond of 1': told('economics.total_bond', () => '1'),
    'tells a maximum authorization of 0': told('economics.max_authorization', () => '0'),
    'tells a maximum authorization below the bond': told('economics.max_authorization', plus(-1n)),
  },
  '§1': {
    'tells the total bond in hex': told(
      'economics.total_bond',
      (value) => `0x${BigInt(String(value)).toString(16)}`,
    ),
  },
  '§2.8': {
    'witnesses another price for p1 alone': told(
      'typed_data.message.witness.proposedPrice',
      (price) => (price === priceOf.p1 ? priceOf.p2 : price),
    ),
    'gives the domain a version': told('typed_data.domain', (domain) => ({
      ...(domain as Json),
      version: '1',
    })),
    'leaves the witness out of the permit': item(
      'signing.types.PermitWitnessTransferFrom',
      (list) => (list as unknown[]).slice(0, -1),
    ),
  },
  '§4.1 rule 2': {
    'gives signing data once a nonce': reserving(isSigningData),
    'refuses to submit with a nonce that was prepared': reserving(isSingle),
    'takes a preparation for the payload of its wallet': anew(() => {
      const prepared = new Map<string, unknown>()
      return refuses(
        (call) => {
          const key = `${/0x[0-9a-f]{64}/.exec(call.path)?.[0]} ${call.body.proposer}`
          if (isSigningData(call)) prepared.set(key, call.body.outcome)
          return isSingle(call) && prepared.has(key) && prepared.get(key) !== call.body.outcome
        },
        409,
        'candidate_conflict',
      )
    }),
  },
  '§2.1': {
    'prepares for outcome p4': takes(isSigningData, (body) =>
      ['p1', 'p2', 'p3'].includes(String(body.outcome)) ? body : { ...body, outcome: 'p2' },
    ),
    'prepares p3 as p2': takes(isSigningData, (body) =>
      body.outcome === 'p3' ? { ...body, outcome: 'p2' } : body,
    ),
    'prepares without a version': takes(isSigningData, (body) => ({ version, ...body })),
    'prepares a payment': takes(isSigningData, (body) => ({ ...body, max_payment: '0' })),
    'wants a signature to prepare': refuses(
      (call) => isSigningData(call) && call.body.signature === undefined,
      422,
      'schema_violation',
    ),
    'prepares p2 only': refuses(
      (call) => isSigningData(call) && call.body.outcome === 'p1',
      422,
      'outcome_not_allowed',
    ),
    'wants ten minutes, preparing': refuses(
      and(isSigningData, endsWithin(600)),
      422,
      'permit_deadline_too_soon',
    ),
    'wants one unit more than the bond, preparing': anew(() => {
      let bond: unknown
      return refuses(
        (_call, _status, json) => {
          bond = at(json, 'economics.total_bond') ?? bond
          return bond !== undefined && at(json, 'permit.amount') === bond
        },
        422,
        'permit_amount_below_required_bond',
      )
    }),
  },
  '§2.7': {
    'tells a required bond that is lower': item('bond.required_bond', plus(-1n)),
    'tells another bond on both routes': (now) => {
      const [single, batch] = [
        told('economics.total_bond', plus(1_000n))(now),
        item('bond.required_bond', plus(1_000n))(now),
      ]
      return (request, next) => single(request, (one) => batch(one, next))
    },
    'allows outcome keys': item('price.allowed_values', () => ['p1', 'p2']),
    'tells the question id as identifier.raw': results(isContexts, ({ signing_data: data }) =>
      put(at(data, 'identifier'), { raw: at(data, 'question_id') }),
    ),
    'tells an older round in a context': item('request.timestamp', plus(-60n)),
    'tells question ids for slugs': results(isContexts, (one) =>
      put(one, { identifier: at(one, 'signing_data.question_id') ?? one.identifier }),
    ),
  },
}

const remembers = (path: string): Make => {
  /** Of two payloads under one signature the gateway takes the second for the first. */
  return () => {
    const known = new Map<unknown, { readonly json: unknown; readonly of: unknown }>()
    return async (request, next) => {
      const call = await callOf(request)
      if (!isSingle(call)) return next(request)
      const { signature } = call.body
      const [before, of] = [known.get(signature), at(call.body, path)]
      if (before !== undefined && before.of !== of) return answer(200, before.json)
      const response = await next(request)
      if (response.status === 202) known.set(signature, { json: await response.clone().json(), of })
      return response
    }
  }
}
const below = coded('permit_amount_below_required_bond')
const unsigned = and(isSingle, on(403), coded('signature_not_authorized'))
const single = (code: string) => and(isSingle, coded(code))
const isReplay = and(isSingle, on(200), (_call, _status, json) => json.candidate_id !== undefined)
const isDone = and(isReplay, (_call, _status, json) => json.status === 'executed')
const replayed = (change: (json: Json) => Json) =>
  answers(isReplay, (json) => answer(200, change(json)))

const admission: Faults = {
  '§8': {
    'takes 4,096 bytes of signature at most': refuses(
      (call) => isSingle(call) && String(call.body.signature).length > 8_194,
      422,
      'invalid_signature_format',
    ),
    'admits a deadline two minutes ahead': admits('permit_deadline_too_soon'),
    'admits a deadline four minutes ahead': admits(
      'permit_deadline_too_soon',
      (...given) => !endsWithin(181)(...given),
    ),
    'wants a deadline an hour ahead': refuses(
      and(isSingle, on(202), endsWithin(3_600)),
      422,
      'permit_deadline_too_soon',
    ),
  },
  '§2.1': {
    'admits less than the bond': admits('permit_amount_below_required_bond'),
    'admits a bond but for a unit': admits(
      'permit_amount_below_required_bond',
      ({ body }) => at(body, 'permit.amount') !== '1',
    ),
    'admits p3 where it is not allowed': admits(
      'outcome_not_allowed',
      ({ body }) => body.outcome === 'p3',
    ),
  },
  '§7': {
    'has another code for an amount below the bond': refuses(below, 422, 'bond_too_small'),
    'answers 403 to an amount below the bond': recodes(and(isSingle, below), 403),
  },
  '§5': {
    'admits any signature': admits('signature_not_authorized'),
    'admits any signature of 65 bytes': admits(
      'signature_not_authorized',
      ({ body }) => String(body.signature).length === 132,
    ),
    'answers 401 to a signature that does not': recodes(unsigned, 401),
    'answers 422 to a signature that does not': recodes(unsigned, 422),
    'admits any wallet that signs': admits('proposer_not_eligible'),
    'answers 404 to a wallet that is not': refuses(
      single('proposer_not_eligible'),
      404,
      'wallet_not_found',
    ),
  },
  '§4.1 rule 3': {
    ...Object.fromEntries(
      ['outcome', 'permit.amount', 'permit.deadline', 'permit.nonce'].map((path) => [
        `takes another ${path.replace('permit.', '')} under the same signature for a replay`,
        remembers(path),
      ]),
    ),
    'does not hold the outcome against the signature': anew(() => {
      const known = new Map<unknown, unknown>()
      return answers(
        (call, code) => {
          if (!isSingle(call)) return false
          const before = known.get(call.body.signature)
          if (code === 202) known.set(call.body.signature, call.body.outcome)
          return before !== undefined && before !== call.body.outcome
        },
        (_json, call) => acknowledged(call),
      )
    }),
    'answers 200 to a new candidate': recodes(and(isSingle, on(202)), 200),
    'forgets every candidate at once': anew(() => {
      const held = new Set<unknown>()
      return refuses(
        (call, code, json) => {
          if (code === 202 && isSingle(call)) held.add(json.candidate_id)
          return isStatus(call) && held.has(call.path.split('/').at(-1))
        },
        404,
        'candidate_not_found',
      )
    }),
    'admits a rival': admits('candidate_conflict'),
    'answers 422 to a rival': recodes(single('candidate_conflict'), 422),
    'answers 200 to a rival with the first candidate': anew(() => {
      let first: Json = {}
      return answers(
        (_call, status, json) => {
          if (status === 202) first = json
          return codeIn(json) === 'candidate_conflict'
        },
        () => answer(200, first),
      )
    }),
    'admits where the round is proposed already': admits('request_not_open'),
    'answers 422 where the round is proposed already': recodes(single('request_not_open'), 422),
  },
  '§2.5': {
    'tells a whole URL': alter(isSingle, 'status_url', (url) => `https://elsewhere.invalid${url}`),
    'tells a URL of another host': alter(
      isSingle,
      'status_url',
      (url) => `//elsewhere.invalid${url}`,
    ),
    'tells the URL of another candidate': alter(isSingle, 'status_url', (url) =>
      String(url).replace(/[^/]+$/, crypto.randomUUID()),
    ),
  },
  '§2.6': {
    'shows the signature in an acknowledgement': tells(
      and(isSingle, (_call, _status, json) => json.candidate_id !== undefined),
      (json, { body }) => ({ ...json, signature: body.signature }),
    ),
  },
  '§3 rule 2': {
    'answers a replay with 202': recodes(isReplay, 202),
    'answers a replay with 409': refuses(isReplay, 409, 'candidate_conflict'),
    'makes another candidate of a replay': replayed((json) => ({
      ...json,
      candidate_id: crypto.randomUUID(),
    })),
    'leaves status_url out on a replay': replayed((json) => without(json, 'status_url')),
    'tells another received_at on a replay': replayed((json) => ({
      ...json,
      received_at: '2026-11-20T05:38:00.000Z',
    })),
    'takes a replay after the execution for new': recodes(isDone, 202),
    'refuses a replay after the execution': refuses(isDone, 409, 'request_not_open'),
  },
}

const secret = `0x${'5a'.repeat(65)}`
const unknown = and(isStatus, on(404))
/** Remembers which question each candidate was admitted for. */
const remembering =
  (act: (id: string, question: string, request: Request) => Request | Response): Make =>
  () => {
    const questions = new Map<string, string>()
    return async (request, next) => {
      const { pathname } = new URL(request.url)
      const id = /^\/v1\/.*\/status\/([0-9a-f-]{36})$/.exec(pathname)?.[1] ?? ''
      const question = questions.get(id)
      const instead = question === undefined ? request : act(id, question, request)
      const response = await next(instead instanceof Request ? instead : request)
      const json: unknown = await response.clone().json()
      const admitted = at(json, 'candidate_id')
      if (typeof admitted === 'string' && request.method === 'POST')
        questions.set(admitted, pathname)
      return instead instanceof Response && response.status === 404 ? instead : response
    }
  }

const statuses: Faults = {
  '§9': {
    'adds a member to the version of a status': alter(isStatus, 'version', (told) => ({
      ...(told as Json),
      minor: '1',
    })),
  },
  '§2.6': {
    'shows a signature in a status': tells(
      and(isStatus, (_call, _status, json) => json.candidate_id !== undefined),
      (json) => ({ ...json, note: secret }),
    ),
    'shows the transaction in a submission': tells(isStatus, (json) =>
      put(json.submission, { raw: secret }),
    ),
  },
  '§4.1 rule 4': {
    'makes up a candidate it does not know': instead(unknown, 200, {}),
    'answers 422 for an unknown candidate': refuses(unknown, 422, 'candidate_not_found'),
    'answers 410 for an unknown candidate': refuses(unknown, 410, 'candidate_gone'),
    'does not look at the identifier': remembering((id, question, request) =>
      resent(request, { path: `${question}/status/${id}` }),
    ),
    'answers 403 for the candidate of another question': remembering(() =>
      refusal(403, 'other_question'),
    ),
  },
}

const charging = (does: string, changes: Partial<Meter>): Fault => ({
  ...{ section: '§8 rule 2', does, meter: { ...meter, ...changes } },
  make: () => (request, next) => next(request),
})
const charges: readonly Fault[] = [
  charging('charges nothing for what it refuses', { refusedCost: () => 0 }),
  charging('has a budget of its own for submissions', {
    account: (call) => (isSingle(call) || isBatch(call) ? 'submissions' : 'all'),
  }),
  charging('lets a batch through while an item is left', { lets: (_items, left) => left > 0 }),
  charging('never refuses for the budget', { lets: () => true }),
  charging('refuses no single call', { lets: (items, left) => items === 1 || items <= left }),
]
const limited = on(429)
const soon = (value?: string) =>
  answers(limited, (_json, _call, headers) => {
    const rest = [...headers].filter(([name]) => name !== 'retry-after')
    const more: [string, string][] = value === undefined ? [] : [['retry-after', value]]
    return answer(429, { error: { code: 'rate_limited', detail: 'too much' } }, [...rest, ...more])
  })

const budgets: Faults = {
  '§7': {
    'does not say when to come back': soon(),
    'says to come back soon': soon('soon'),
    'answers 503 for the budget': recodes(limited, 503),
    'answers 403 for the budget': recodes(limited, 403),
    'stays shut after the delay that it told': anew(() => {
      let shut = false
      return answers(
        (call, status) => {
          shut ||= status === 429
          return shut && isEligibility(call)
        },
        () => answer(429, { error: { code: 'rate_limited', detail: '' } }, { 'retry-after': '1' }),
      )
    }),
  },
  '§8': {
    'answers 200 with no results for the budget': instead(limited, 200, { results: [] }),
    'tells 429 as text': answers(
      limited,
      () => new Response('slow down', { status: 429, headers: { 'content-type': 'text/plain' } }),
    ),
  },
}

/** The whole table: gateways that are wrong in one rule each. */
export const faults: readonly Fault[] = [
  ...[conventions, preparation, bodyFaults, admission, statuses, batchFaults, budgets].flatMap(
    rowsOf,
  ),
  ...charges,
]

/** The row of this name. */
export function faultThat(does: string): Fault {
  const found = faults.find((one) => one.does === does)
  if (found === undefined) throw new Error(`no gateway ${does}`)
  return found
}
