/** §2.7, §4.2 and §9: gateways that take, order or answer the items of a batch wrongly. */
import { at, listAt } from '#conformance/answer'
import {
  answer,
  answers,
  type Call,
  codeIn,
  type Fault,
  fault,
  isBatch,
  isContexts,
  isStatuses,
  type Json,
  put,
  refusal,
  takes,
  tells,
} from '../between.js'
import type { Wrong } from '../world.js'

const listIn = (body: unknown): readonly unknown[] =>
  Object.values((body ?? {}) as object).find(Array.isArray) ?? []

/** Acknowledges items that were refused with this code. */
const admitsItems =
  (code: string, when: (item: unknown) => boolean = () => true) =>
  () =>
    tells(isBatch, (json, { body }) => {
      for (const [index, result] of listAt(json, 'results').entries()) {
        if (codeIn(result) !== code || !when(listIn(body)[index])) continue
        const id = crypto.randomUUID()
        put(result, {
          status_code: 202,
          error: undefined,
          candidate: {
            candidate_id: id,
            status: 'received',
            received_at: '2026-11-20T05:38:00.000Z',
            status_url: `/propose/status/${id}`,
          },
        })
        put(json.summary, {
          accepted: Number(at(json, 'summary.accepted')) + 1,
          rejected: Number(at(json, 'summary.rejected')) - 1,
        })
      }
    })
const recoded = (code: string, status: number) => () =>
  tells(isBatch, (json) => {
    for (const result of listAt(json, 'results'))
      if (codeIn(result) === code) put(result, { status_code: status })
  })

const decisions: readonly Fault[] = [
  fault(
    '§2.7',
    'admits an item with a deadline a minute ahead',
    admitsItems('permit_deadline_too_soon'),
  ),
  fault('§2.1', 'admits an item below the bond', admitsItems('permit_amount_below_required_bond')),
  fault(
    '§2.7',
    'admits an item with a bond but for a unit',
    admitsItems('permit_amount_below_required_bond', (item) => at(item, 'permit.amount') !== '1'),
  ),
  fault(
    '§2.2',
    'admits an item with a price that is not allowed',
    admitsItems('price_not_allowed'),
  ),
  fault(
    '§2.2',
    'admits an item with the index of a winner',
    admitsItems('price_not_allowed', (item) => at(item, 'proposed_price') === '1'),
  ),
  fault('§7', 'has another code for an item below the bond', () =>
    tells(isBatch, (json) => {
      for (const result of listAt(json, 'results'))
        if (codeIn(result) === 'permit_amount_below_required_bond')
          put(at(result, 'error'), { code: 'too_little' })
    }),
  ),
  fault('§5', 'admits items with any signature', admitsItems('signature_not_authorized')),
  fault(
    '§5',
    'answers 401 to an item whose signature does not',
    recoded('signature_not_authorized', 401),
  ),
  fault('§5', 'admits items of any wallet', admitsItems('proposer_not_eligible')),
  fault('§4.1 rule 3', 'admits a rival in a batch', admitsItems('candidate_conflict')),
  fault('§4.1 rule 3', 'answers 422 to a rival in a batch', recoded('candidate_conflict', 422)),
]

const sized = (
  which: (call: Call) => boolean,
  does: string,
  count: (items: number) => boolean,
  status: number,
): Fault =>
  fault('§4.2 rule 1', does, () =>
    answers(
      (call) => which(call) && Object.keys(call.body).length > 0 && count(listIn(call.body).length),
      () =>
        status === 200
          ? answer(200, { results: [], summary: { accepted: 0, replayed: 0, rejected: 0 } })
          : refusal(status, 'too_many'),
    ),
  )
const capped = (which: (call: Call) => boolean, name: string) => () =>
  takes(which, (body) =>
    listIn(body).length > 100 ? { [name]: listIn(body).slice(0, 100) } : body,
  )
const reversed = (which: (call: Call) => boolean, does: string): Fault =>
  fault('§4.2 rule 1', does, () =>
    tells(which, (json) =>
      Array.isArray(json.results) ? { ...json, results: [...json.results].reverse() } : json,
    ),
  )
/** Malformed entries are left out before the gateway looks. */
const picked =
  (which: (call: Call) => boolean, name: string, fits: (one: unknown) => boolean) => () =>
    takes(which, (body) => {
      const good = listIn(body).filter(fits)
      return good.length === 0 ? body : { [name]: good }
    })
const isIdentifier = (one: unknown) => /^(0x[0-9a-f]{64}|[a-z0-9-]+)$/.test(String(one))
const isUuid = (one: unknown) => /^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/.test(String(one))
const isWhole = (one: unknown) => /^0x[0-9a-f]{40}$/.test(String(at(one, 'proposer')))
const merged = (which: (call: Call) => boolean, does: string): Fault =>
  fault('§4.2 rule 1', does, () =>
    tells(which, (json, { body }) => {
      const keys = listIn(body).map((one) => JSON.stringify(one))
      return {
        ...json,
        results: listAt(json, 'results').filter(
          (_one, index) => keys.indexOf(keys[index] ?? '') === index,
        ),
      }
    }),
  )

const calls: readonly Fault[] = [
  sized(isContexts, 'takes no identifiers at all', (count) => count === 0, 200),
  sized(isBatch, 'takes no proposals at all', (count) => count === 0, 200),
  sized(isStatuses, 'takes no candidate ids at all', (count) => count === 0, 200),
  sized(isContexts, 'takes 50 identifiers at most', (count) => count > 50, 422),
  sized(isBatch, 'takes 50 proposals at most', (count) => count > 50, 413),
  sized(isStatuses, 'takes 99 candidate ids at most', (count) => count > 99, 422),
  fault('§4.2 rule 1', 'takes 101 identifiers', capped(isContexts, 'identifiers')),
  fault('§4.2 rule 1', 'takes 101 proposals', capped(isBatch, 'proposals')),
  fault('§4.2 rule 1', 'takes 101 candidate ids', capped(isStatuses, 'candidate_ids')),
  reversed(isContexts, 'answers contexts in reverse'),
  reversed(isBatch, 'answers proposals in reverse'),
  reversed(isStatuses, 'answers statuses in reverse'),
  merged(isContexts, 'merges contexts that are asked for twice'),
  merged(isBatch, 'merges items that are sent twice'),
  merged(isStatuses, 'merges statuses that are asked for twice'),
  fault(
    '§4.2 rule 2',
    'leaves malformed identifiers out',
    picked(isContexts, 'identifiers', isIdentifier),
  ),
  fault('§4.2 rule 2', 'leaves malformed items out', picked(isBatch, 'proposals', isWhole)),
  fault(
    '§4.2 rule 2',
    'leaves malformed candidate ids out',
    picked(isStatuses, 'candidate_ids', isUuid),
  ),
  fault(
    '§4.2 rule 2',
    'processes the items before a malformed one',
    () => async (request, next) => {
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
  ),
  fault('§4.2 rule 4', 'refuses a whole call with results', () =>
    answers(
      (call, code) => (isBatch(call) || isContexts(call) || isStatuses(call)) && code === 422,
      (json, _call, headers) => answer(422, { ...json, results: [] }, headers),
    ),
  ),
  fault('§4.2 rule 3', 'answers 202 to a batch that admits', () =>
    answers(
      (call, code, json) =>
        isBatch(call) && code === 200 && Number(at(json, 'summary.accepted')) > 0,
      (json) => answer(202, json),
    ),
  ),
  fault('§4.2 rule 3', 'fails a call whose items all fail', () =>
    answers(
      (call, code, json) =>
        isBatch(call) &&
        code === 200 &&
        Number(at(json, 'summary.rejected')) === listAt(json, 'results').length,
      () => refusal(403, 'signature_not_authorized'),
    ),
  ),
  fault('§4.2 rule 3', 'fails every item where one fails', () =>
    answers(
      (call, _code, json) => isBatch(call) && Number(at(json, 'summary.rejected')) > 0,
      (json) =>
        answer(200, {
          results: listAt(json, 'results').map((one) => ({
            client_ref: at(one, 'client_ref'),
            status_code: at(one, 'error') === undefined ? 409 : at(one, 'status_code'),
            error: at(one, 'error') ?? { code: 'rolled_back', detail: 'a sibling failed' },
          })),
          summary: { accepted: 0, replayed: 0, rejected: listAt(json, 'results').length },
        }),
    ),
  ),
  fault('§4.2 rule 3', 'forgets what it admitted where a sibling fails', forgetful),
]

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
      gone.has(at(one, 'candidate_id'))
        ? {
            candidate_id: at(one, 'candidate_id'),
            status_code: 404,
            error: { code: 'candidate_not_found', detail: 'gone' },
          }
        : one,
    )
    return answer(response.status, { ...json, results }, response.headers)
  }
}

const each = (
  section: string,
  does: string,
  change: (result: unknown, index: number, json: Json) => unknown,
): Fault =>
  fault(section, does, () =>
    tells(isBatch, (json) => {
      for (const [index, result] of listAt(json, 'results').entries()) change(result, index, json)
    }),
  )
const isRefused = (result: unknown) => at(result, 'error') !== undefined

const results: readonly Fault[] = [
  each(
    '§4.2 rule 5',
    'answers new items with 200',
    (one) => at(one, 'status_code') === 202 && put(one, { status_code: 200 }),
  ),
  each(
    '§4.2 rule 5',
    'answers replayed items with 202',
    (one) => at(one, 'status_code') === 200 && put(one, { status_code: 202 }),
  ),
  each(
    '§4.2 rule 5',
    'answers replayed items with 409',
    (one) =>
      at(one, 'status_code') === 200 &&
      put(one, {
        status_code: 409,
        candidate: undefined,
        error: { code: 'known', detail: 'known' },
      }),
  ),
  each(
    '§4.2 rule 5',
    'makes another candidate of a replayed item',
    (one) =>
      at(one, 'status_code') === 200 &&
      put(at(one, 'candidate'), { candidate_id: crypto.randomUUID() }),
  ),
  each(
    '§4.2 rule 5',
    'tells another received_at of a replayed item',
    (one) =>
      at(one, 'status_code') === 200 &&
      put(at(one, 'candidate'), { received_at: '2026-11-20T05:38:00.000Z' }),
  ),
  each(
    '§2.7',
    'tells an error beside each candidate',
    (one) => !isRefused(one) && put(one, { error: { code: 'none', detail: 'none' } }),
  ),
  each(
    '§2.7',
    'tells a candidate beside each error',
    (one) =>
      isRefused(one) &&
      put(one, {
        candidate: {
          candidate_id: crypto.randomUUID(),
          status: 'failed',
          received_at: '2026-11-20T05:38:00.000Z',
          status_url: '/x',
        },
      }),
  ),
  each(
    '§2.7',
    'drops the client_ref of admitted items',
    (one) => !isRefused(one) && put(one, { client_ref: null }),
  ),
  each(
    '§2.7',
    'drops the client_ref of failed items',
    (one) => isRefused(one) && put(one, { client_ref: null }),
  ),
  each(
    '§2.7',
    'leaves the client_ref of failed items out',
    (one) => isRefused(one) && put(one, { client_ref: undefined }),
  ),
  each('§2.7', 'takes client_ref for a key', (one, _index, json) => {
    const first = listAt(json, 'results').find(
      (other) =>
        at(other, 'client_ref') === at(one, 'client_ref') && at(other, 'candidate') !== undefined,
    )
    put(at(one, 'candidate'), { candidate_id: at(first, 'candidate.candidate_id') })
  }),
  fault('§2.7', 'counts replays as accepted', () =>
    tells(isBatch, (json) =>
      put(json.summary, {
        accepted: Number(at(json, 'summary.accepted')) + Number(at(json, 'summary.replayed')),
        replayed: 0,
      }),
    ),
  ),
  fault('§2.7', 'serves the status_url of a batch', () =>
    answers(
      ({ path }) => path.startsWith('/propose/status/'),
      () => answer(200, {}),
    ),
  ),
  fault('§2.6', 'shows the signatures of a batch', () =>
    tells(isBatch, (json, { body }) => {
      for (const [index, one] of listAt(json, 'results').entries())
        put(at(one, 'candidate'), { signature: at(listIn(body)[index], 'signature') })
    }),
  ),
]

export const batchFaults: readonly Fault[] = [...decisions, ...calls, ...results]
