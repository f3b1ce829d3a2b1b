/** §2.7, §4.2 and §9: gateways that take, order or answer the items of a batch wrongly. */
import { at, listAt } from '#conformance/probe'
import {
  admitsItems,
  alter,
  and,
  answer,
  answers,
  type Call,
  codeIn,
  counted,
  type Faults,
  instead,
  isBatch,
  isContexts,
  isStatuses,
  type Json,
  listIn,
  type Make,
  on,
  or,
  put,
  recodes,
  refusal,
  refuses,
  results,
  takesList,
  tells,
  type Which,
} from './between.js'
import type { Wrong } from './world.js'

type Route = (call: Call) => boolean
const recoded = (code: string, status: number) =>
  results(isBatch, (one) => codeIn(one) === code && put(one, { status_code: status }))
const sized =
  (route: Route, fits: (items: number) => boolean): Which =>
  (call) =>
    route(call) && Object.keys(call.body).length > 0 && fits(listIn(call.body).length)
const none = (route: Route) =>
  instead(
    sized(route, (count) => count === 0),
    200,
    { results: [], summary: { accepted: 0, replayed: 0, rejected: 0 } },
  )
const atMost = (route: Route, most: number, status: number) =>
  refuses(
    sized(route, (count) => count > most),
    status,
    'too_many',
  )
const capped = (route: Route) => takesList(route, (list) => list.slice(0, 100))
const reversed = (route: Route) =>
  tells(route, (json) =>
    Array.isArray(json.results) ? { ...json, results: [...json.results].reverse() } : json,
  )
const merged = (route: Route) =>
  tells(route, (json, { body }) => {
    const keys = listIn(body).map((one) => JSON.stringify(one))
    const isFirst = (_one: unknown, index: number) => keys.indexOf(keys[index] ?? '') === index
    return { ...json, results: listAt(json, 'results').filter(isFirst) }
  })
/** Malformed entries are left out before the gateway looks. */
const picked = (route: Route, fits: (one: unknown) => boolean) =>
  takesList(route, (list) => {
    const good = list.filter(fits)
    return good.length === 0 ? list : good
  })
const isIdentifier = (one: unknown) => /^(0x[0-9a-f]{64}|[a-z0-9-]+)$/.test(String(one))
const isUuid = (one: unknown) => /^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/.test(String(one))
const isWhole = (one: unknown) => /^0x[0-9a-f]{40}$/.test(String(at(one, 'proposer')))
const itemRoute = or(isBatch, isContexts, isStatuses)

/** Candidates of a call of which an item failed are gone afterwards. */
function forgetful(): Wrong {
  const gone = new Set<unknown>()
  return async (request, next) => {
    const response = await next(request)
    const json = (await response.clone().json()) as Json
    const { pathname } = new URL(request.url)
    if (pathname === '/propose/batch' && Number(at(json, 'summary.rejected')) > 0) {
      for (const one of listAt(json, 'results')) gone.add(at(one, 'candidate.candidate_id'))
    }
    if (gone.has(pathname.split('/').at(-1))) return refusal(404, 'candidate_not_found')
    if (pathname !== '/propose/batch/status') return response
    const results = listAt(json, 'results').map((one) =>
      gone.has(at(one, 'candidate_id')) ? lost(one) : one,
    )
    return answer(response.status, { ...json, results }, response.headers)
  }
}
const lost = (one: unknown) => ({
  candidate_id: at(one, 'candidate_id'),
  status_code: 404,
  error: { code: 'candidate_not_found', detail: 'gone' },
})
const hasBoth: Which = (call, _status, json) =>
  isStatuses(call) &&
  [200, 404].every((code) => listAt(json, 'results').some((one) => at(one, 'status_code') === code))

/** Results of a batch of proposals that are of this kind. */
const each = (which: (one: Json) => boolean, change: (one: Json) => unknown): Make =>
  results(isBatch, (one) => which(one) && change(one))
const isNew = (one: Json) => one.status_code === 202
const isReplayed = (one: Json) => one.status_code === 200
const isRefused = (one: Json) => one.error !== undefined
const isTaken = (one: Json) => one.error === undefined
const sets = (changes: Json) => (one: Json) => put(one, changes)
const setsOfCandidate = (changes: () => Json) => (one: Json) => put(one.candidate, changes())

const status = (path: string, to: (value: unknown) => unknown) =>
  alter(isStatuses, `results.*.${path}`, to)
const failure = (more: Json) =>
  status('candidate.failure', (value) => value && { ...(value as Json), ...more })

export const batchFaults: Faults = {
  '§2.1': {
    'admits an item below the bond': admitsItems('permit_amount_below_required_bond'),
  },
  '§2.2': {
    'admits an item with a price that is not allowed': admitsItems('price_not_allowed'),
    'admits an item with the index of a winner': admitsItems(
      'price_not_allowed',
      (item) => at(item, 'proposed_price') === '1',
    ),
  },
  '§2.6': {
    'shows the signatures of a batch': results(isBatch, ({ candidate }, item) =>
      put(candidate, { signature: at(item, 'signature') }),
    ),
    'shows a signature in a batch of statuses': status('candidate', (value) => ({
      ...(value as Json),
      note: `0x${'5a'.repeat(65)}`,
    })),
  },
  '§2.7': {
    'admits an item with a deadline a minute ahead': admitsItems('permit_deadline_too_soon'),
    'admits an item with a bond but for a unit': admitsItems(
      'permit_amount_below_required_bond',
      (item) => at(item, 'permit.amount') !== '1',
    ),
    'tells an error beside each candidate': each(
      isTaken,
      sets({ error: { code: 'none', detail: 'none' } }),
    ),
    'tells a candidate beside each error': each(isRefused, (one) =>
      put(one, {
        candidate: {
          candidate_id: crypto.randomUUID(),
          status: 'failed',
          received_at: '2026-11-20T05:38:00.000Z',
          status_url: '/x',
        },
      }),
    ),
    'drops the client_ref of admitted items': each(isTaken, sets({ client_ref: null })),
    'drops the client_ref of failed items': each(isRefused, sets({ client_ref: null })),
    'leaves the client_ref of failed items out': each(isRefused, sets({ client_ref: undefined })),
    'takes client_ref for a key': results(isBatch, (one, _item, json) => {
      const first = listAt(json, 'results').find(
        (other) =>
          at(other, 'client_ref') === one.client_ref && at(other, 'candidate') !== undefined,
      )
      put(one.candidate, { candidate_id: at(first, 'candidate.candidate_id') })
    }),
    'counts replays as accepted': tells(isBatch, ({ summary }) =>
      put(summary, {
        accepted: Number(at(summary, 'accepted')) + Number(at(summary, 'replayed')),
        replayed: 0,
      }),
    ),
    'serves the status_url of a batch': instead(
      ({ path }) => path.startsWith('/propose/status/'),
      200,
      {},
    ),
    'tells retryable in a batch of statuses': failure({ retryable: true }),
    'tells the stage in a batch of statuses': failure({ stage: 'validation' }),
  },
  '§5': {
    'admits items with any signature': admitsItems('signature_not_authorized'),
    'answers 401 to an item whose signature does not': recoded('signature_not_authorized', 401),
    'admits items of any wallet': admitsItems('proposer_not_eligible'),
  },
  '§7': {
    'has another code for an item below the bond': results(
      isBatch,
      (one) =>
        codeIn(one) === 'permit_amount_below_required_bond' &&
        put(one.error, { code: 'too_little' }),
    ),
  },
  '§4.1 rule 3': {
    'admits a rival in a batch': admitsItems('candidate_conflict'),
    'answers 422 to a rival in a batch': recoded('candidate_conflict', 422),
  },
  '§4.2 rule 1': {
    'takes no identifiers at all': none(isContexts),
    'takes no proposals at all': none(isBatch),
    'takes no candidate ids at all': none(isStatuses),
    'takes 50 identifiers at most': atMost(isContexts, 50, 422),
    'takes 50 proposals at most': atMost(isBatch, 50, 413),
    'takes 99 candidate ids at most': atMost(isStatuses, 99, 422),
    'takes 101 identifiers': capped(isContexts),
    'takes 101 proposals': capped(isBatch),
    'takes 101 candidate ids': capped(isStatuses),
    'answers contexts in reverse': reversed(isContexts),
    'answers proposals in reverse': reversed(isBatch),
    'answers statuses in reverse': reversed(isStatuses),
    'merges contexts that are asked for twice': merged(isContexts),
    'merges items that are sent twice': merged(isBatch),
    'merges statuses that are asked for twice': merged(isStatuses),
  },
  '§4.2 rule 2': {
    'leaves malformed identifiers out': picked(isContexts, isIdentifier),
    'leaves malformed items out': picked(isBatch, isWhole),
    'leaves malformed candidate ids out': picked(isStatuses, isUuid),
    'processes the items before a malformed one': () => async (request, next) => {
      const response = await next(request.clone())
      if (response.status !== 422 || new URL(request.url).pathname !== '/propose/batch')
        return response
      const proposals = listIn(await request.json().catch(() => ({})))
      const good = proposals.filter(isWhole)
      if (good.length > 0 && good.length < proposals.length) {
        await next(
          new Request(request.url, {
            method: 'POST',
            headers: { 'content-type': 'application/json' },
            body: JSON.stringify({ proposals: good }),
          }),
        )
      }
      return response
    },
  },
  '§4.2 rule 3': {
    'fails a whole call for one unknown question': refuses(
      (call, _status, json) =>
        isContexts(call) &&
        listAt(json, 'results').some((one) => codeIn(one) === 'question_not_found'),
      404,
      'question_not_found',
    ),
    'answers 202 to a batch that admits': recodes(and(isBatch, on(200), counted('accepted')), 202),
    'fails a call whose items all fail': refuses(
      (call, code, json) =>
        isBatch(call) &&
        code === 200 &&
        Number(at(json, 'summary.rejected')) === listAt(json, 'results').length,
      403,
      'signature_not_authorized',
    ),
    'fails every item where one fails': answers(and(isBatch, counted('rejected')), (json) =>
      answer(200, {
        results: listAt(json, 'results').map((one) => ({
          client_ref: at(one, 'client_ref'),
          status_code: at(one, 'error') === undefined ? 409 : at(one, 'status_code'),
          error: at(one, 'error') ?? { code: 'rolled_back', detail: 'a sibling failed' },
        })),
        summary: { accepted: 0, replayed: 0, rejected: listAt(json, 'results').length },
      }),
    ),
    'forgets what it admitted where a sibling fails': forgetful,
  },
  '§4.2 rule 4': {
    'refuses a whole call with results': answers(and(itemRoute, on(422)), (json, _call, headers) =>
      answer(422, { ...json, results: [] }, headers),
    ),
  },
  '§4.2 rule 5': {
    'answers new items with 200': each(isNew, sets({ status_code: 200 })),
    'answers replayed items with 202': each(isReplayed, sets({ status_code: 202 })),
    'answers replayed items with 409': each(
      isReplayed,
      sets({
        status_code: 409,
        candidate: undefined,
        error: { code: 'known', detail: 'known' },
      }),
    ),
    'makes another candidate of a replayed item': each(
      isReplayed,
      setsOfCandidate(() => ({ candidate_id: crypto.randomUUID() })),
    ),
    'tells another received_at of a replayed item': each(
      isReplayed,
      setsOfCandidate(() => ({ received_at: '2026-11-20T05:38:00.000Z' })),
    ),
  },
  '§4.2 rule 6': {
    'answers 200 for an unknown candidate in a batch': status('status_code', (value) =>
      value === 404 ? 200 : value,
    ),
    'answers 422 for an unknown candidate in a batch': status('status_code', (value) =>
      value === 404 ? 422 : value,
    ),
    'fails a whole call for one unknown candidate': refuses(hasBoth, 404, 'candidate_not_found'),
    'answers 404 to all where one is unknown': answers(hasBoth, (json) =>
      answer(200, { results: listAt(json, 'results').map(lost) }),
    ),
  },
  '§4.2 rule 7': {
    'tells next_action in a batch of statuses': failure({ next_action: 'wait' }),
  },
}
