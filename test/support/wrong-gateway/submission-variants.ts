/** Gateways that are wrong in one rule about what was admitted; see `variants.ts`. */
import { at, listAt } from '../../../src/core/client/conformance/rule.js'
import {
  admits,
  answer,
  answers,
  codeIn,
  isBatch,
  isSingle,
  isStatus,
  isStatuses,
  type Json,
  put,
  refusal,
  resent,
  serves,
  tells,
} from './between.js'
import type { Variant } from './variants.js'
import type { Wrong } from './world.js'

const of = (does: string, make: () => Wrong): Variant => ({ does, make })
const secret = { note: `0x${'5a'.repeat(65)}` }

const acknowledgement = (does: string, changes: (json: Json) => Json): Variant =>
  of(does, () => tells(isSingle, (json) => at(json, 'candidate_id') !== undefined && put(json, changes(json))))
const status = (does: string, change: (json: Json) => unknown): Variant =>
  of(does, () => tells(isStatus, (json) => at(json, 'candidate_id') !== undefined && change(json)))
const executed = (does: string, change: (json: Json) => unknown): Variant =>
  status(does, (json) => json.status === 'executed' && change(json))
const results = (which: typeof isBatch, does: string, change: (result: unknown, index: number, json: Json) => void): Variant =>
  of(does, () =>
    tells(which, (json) => {
      for (const [index, result] of listAt(json, 'results').entries()) change(result, index, json)
    }),
  )
const isReplay = (call: Parameters<typeof isSingle>[0], code: number, json: Json) =>
  isSingle(call) && code === 200 && at(json, 'candidate_id') !== undefined

/** Remembers which question each candidate was admitted for. */
function remembering(
  act: (request: Request, next: Parameters<Wrong>[1], questions: ReadonlyMap<string, string>) => Promise<Response>,
): Wrong {
  const questions = new Map<string, string>()
  return async (request, next) => {
    const response = await act(request, next, questions)
    const { pathname } = new URL(request.url)
    const json: unknown = await response.clone().json()
    const id = at(json, 'candidate_id')
    if (typeof id === 'string' && request.method === 'POST') questions.set(id, pathname)
    return response
  }
}

const candidateIn = (request: Request) => /^\/v1\/.*\/status\/([0-9a-f-]{36})$/.exec(new URL(request.url).pathname)?.[1]

const singles: Record<string, Variant> = {
  '2.1-bond-minimum': { ...of('admits less than the bond', () => admits('permit_amount_below_required_bond')), also: ['7-bond-code'] },
  '7-bond-code': of('has another code for it', () =>
    answers(
      (_call, _status, json) => codeIn(json) === 'permit_amount_below_required_bond',
      () => refusal(422, 'bond_too_small'),
    ),
  ),
  '2.1-deadline-minimum': of('admits a deadline two minutes ahead', () => admits('permit_deadline_too_soon')),
  '2.1-outcome-allowed': of('admits p3 where it is not allowed', () => admits('outcome_not_allowed', ({ body }) => body.outcome === 'p3')),
  '4.1.3-new': of('answers 201', () =>
    answers(
      (call, code) => isSingle(call) && code === 202,
      (json) => answer(201, json),
    ),
  ),
  '2.5-acknowledgement': acknowledgement('leaves received_at out', () => ({ received_at: undefined })),
  '2.5-status-url': acknowledgement('tells a whole URL', ({ status_url }) => ({ status_url: `https://elsewhere.invalid${status_url}` })),
  '9-acknowledgement-version': acknowledgement('leaves the version out', () => ({ version: undefined })),
  '4.1.3-replay': of('answers a replay with 202', () =>
    answers(
      (call, code, json) => isReplay(call, code, json) && json.status !== 'executed',
      (json) => answer(202, json),
    ),
  ),
  '4.1.3-conflict': of('admits a rival', () => admits('candidate_conflict')),
  '2.6-status-fields': status(
    'leaves a time out before selection',
    (json) => json.status !== 'executed' && put(json, { selected_at: undefined }),
  ),
  '9-status-version': status('leaves the version out of a status', (json) => put(json, { version: undefined })),
  '2.6-no-signature': status('shows the signature', (json) => put(json, secret)),
  '4.1.4-unknown-candidate': of('makes up a candidate it does not know', () =>
    remembering(async (request, next, questions) => {
      const response = await next(request)
      const id = candidateIn(request)
      return id !== undefined && response.status === 404 && !questions.has(id) ? answer(200, {}) : response
    }),
  ),
  '4.1.4-mismatched-pair': of('does not look at the identifier', () =>
    remembering((request, next, questions) => {
      const id = candidateIn(request)
      const question = id === undefined ? undefined : questions.get(id)
      return next(question === undefined ? request : resent(request, { path: `${question}/status/${id}` }))
    }),
  ),
  '4.1.4-status-by-slug': of('knows no slug in a status', () =>
    answers(
      (call) => isStatus(call) && !call.path.includes('0x'),
      () => refusal(404, 'question_not_found'),
    ),
  ),
  '1-candidate-uuid': of('puts hyphens in', () =>
    serves((path) => path.replace(/\/status\/(.{8})(.{4})(.{4})(.{4})(.{12})$/, '/status/$1-$2-$3-$4-$5')),
  ),
  '2.6-failure': status('leaves the stage of a failure out', ({ failure }) => put(failure, { stage: undefined })),
}

const executions: Record<string, Variant> = {
  '2.6-stages': executed('forgets when it was validated', (json) => put(json, { validated_at: null })),
  '2.6-submission': executed('cuts the hash', ({ submission }) => put(submission, { transaction_hash: '0x12' })),
  '6-event-index': executed('tells the index as text', ({ submission }) =>
    put(submission, { proposal_event_index: String(at(submission, 'proposal_event_index')) }),
  ),
  '3.2-replay-after-execution': of('takes a replay after the execution for new', () =>
    answers(
      (call, code, json) => isReplay(call, code, json) && json.status === 'executed',
      (json) => answer(202, json),
    ),
  ),
  '4.1.3-request-state': of('admits where the round is proposed already', () => admits('request_not_open')),
}

const batches: Record<string, Variant> = {
  '4.2.5-new': results(
    isBatch,
    'answers new items with 201',
    (result) => at(result, 'status_code') === 202 && put(result, { status_code: 201 }),
  ),
  '2.7-candidate-fields': results(isBatch, 'leaves received_at out', (result) => put(at(result, 'candidate'), { received_at: undefined })),
  '2.7-client-ref-echoed': results(
    isBatch,
    'drops the client_ref',
    (result) => at(result, 'client_ref') === 'conformance' && put(result, { client_ref: null }),
  ),
  '2.7-client-ref-no-key': results(isBatch, 'takes client_ref for a key', (result, _index, json) =>
    put(at(result, 'candidate'), { candidate_id: at(json, 'results', 0, 'candidate', 'candidate_id') }),
  ),
  '2.7-summary-accepted': of('does not count accepted items', () => tells(isBatch, (json) => put(json.summary, { accepted: 0 }))),
  '4.2.5-replay': results(
    isBatch,
    'answers replayed items with 202',
    (result) => at(result, 'status_code') === 200 && put(result, { status_code: 202 }),
  ),
  '2.7-status-url-unserved': of('serves the status_url of a batch', () =>
    answers(
      ({ path }) => path.startsWith('/propose/status/'),
      () => answer(200, {}),
    ),
  ),
  '2.7-batch-status-fields': results(isStatuses, 'leaves submission out', (result) =>
    put(at(result, 'candidate'), { submission: undefined }),
  ),
  '2.6-batch-no-signature': results(isStatuses, 'shows the signature', (result) => put(at(result, 'candidate'), secret)),
  '4.2.6-siblings': of('fails a call for one unknown candidate', () =>
    answers(
      (call, _code, json) =>
        isStatuses(call) && listAt(json, 'results').length === 2 && JSON.stringify(json).includes('candidate_not_found'),
      () => refusal(404, 'candidate_not_found'),
    ),
  ),
  '4.2.7-no-next-action': results(isStatuses, 'tells next_action', (result) =>
    put(at(result, 'candidate', 'failure'), { next_action: 'wait' }),
  ),
}

export const submissionVariants: Readonly<Record<string, Variant>> = { ...singles, ...executions, ...batches }
