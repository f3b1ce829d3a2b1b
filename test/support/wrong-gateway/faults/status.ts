/**
 * §2.6, §4.1 rule 4, §4.2 rules 6 and 7, and §6: gateways that tell wrongly what became of a
 * candidate.
 */
import { at, listAt } from '../../../../src/core/conformance/rule.js'
import {
  alter,
  answer,
  answers,
  type Call,
  drop,
  type Fault,
  fault,
  isStatus,
  isStatuses,
  type Json,
  put,
  refusal,
  resent,
  tells,
} from '../between.js'
import type { Wrong } from '../world.js'

const secret = `0x${'5a'.repeat(65)}`
const isKnown = (json: Json) => json.candidate_id !== undefined
/** Where a status is one of these. */
const when = (which: (json: Json) => boolean, change: (json: Json) => unknown) => () =>
  tells(isStatus, (json) => (isKnown(json) && which(json) ? change(json) || json : json))
const isExecuted = (json: Json) => json.status === 'executed'
const isFailed = (json: Json) => json.status === 'failed'
const executed = (
  section: string,
  rule: string,
  does: string,
  path: string,
  to: (value: unknown) => unknown,
): Fault => fault(section, rule, does, () => guarded(isExecuted, alter(isStatus, path, to)()))
const failed = (rule: string, does: string, path: string, to: (value: unknown) => unknown): Fault =>
  fault('§2.6', rule, does, () => guarded(isFailed, alter(isStatus, path, to)()))
const gone = () => undefined

/** Only where the status that would be told is such a one. */
function guarded(which: (json: Json) => boolean, wrong: Wrong): Wrong {
  return async (request, next) => {
    let seen: Json = {}
    const told = await wrong(request, async (one) => {
      const response = await next(one)
      seen = (await response.clone().json()) as Json
      return response
    })
    return which(seen) ? told : answer(told.status, seen, told.headers)
  }
}

const status: readonly Fault[] = [
  ...['candidate_id', 'outcome', 'price', 'received_at', 'status', 'submission', 'failure'].map(
    (name) =>
      fault(
        '§2.6',
        'identity, outcome, price, times, status, submission, failure',
        `leaves ${name} out of a status`,
        drop(isStatus, name),
      ),
  ),
  fault(
    '§2.6',
    'failure is nullable',
    'leaves failure out where there is none',
    when(
      (json) => json.failure === null,
      ({ failure: _none, ...json }) => json,
    ),
  ),
  fault(
    '§2.6',
    'submission is nullable',
    'leaves submission out where there is none',
    when(
      (json) => json.submission === null,
      ({ submission: _none, ...json }) => json,
    ),
  ),
  fault(
    '§2.6',
    'failure is an object or null',
    'tells failure as text',
    alter(isStatus, 'failure', (value) => (value === null ? 'none' : value)),
  ),
  fault(
    '§2.6',
    'submission is an object or null',
    'tells no submission as false',
    alter(isStatus, 'submission', (value) => value ?? false),
  ),
  fault(
    '§2.6',
    'identity',
    'tells the status of another candidate',
    alter(isStatus, 'candidate_id', () => crypto.randomUUID()),
  ),
  fault(
    '§2.6',
    'identity',
    'tells another question',
    alter(isStatus, 'question_id', () => `0x${'1'.repeat(64)}`),
  ),
  fault('§2.6', 'outcome', 'tells another outcome than was signed', () =>
    tells(
      isStatus,
      (json) =>
        isKnown(json) &&
        put(
          json,
          json.outcome === 'p1'
            ? { outcome: 'p2', price: '1000000000000000000' }
            : { outcome: 'p1', price: '0' },
        ),
    ),
  ),
  fault(
    '§2.6',
    'price',
    'tells a price that the outcome has not',
    alter(isStatus, 'price', (price) => (price === '0' ? '1' : '0')),
  ),
  fault(
    '§2.6',
    'the time of receipt',
    'tells a time of receipt that is none',
    alter(isStatus, 'received_at', () => ''),
  ),
  fault(
    '§2.6',
    'the time of receipt',
    'tells another time of receipt than the acknowledgement',
    alter(isStatus, 'received_at', () => '2026-11-19T00:00:00.000Z'),
  ),
  fault(
    '§2.6',
    'status',
    'tells no word for a status',
    alter(isStatus, 'status', () => 3),
  ),
  fault(
    '§9',
    'status carries the version',
    'leaves the version out of a status',
    drop(isStatus, 'version'),
  ),
  fault(
    '§9',
    'status carries the version',
    'tells another api in a status',
    alter(isStatus, 'version.api', () => 'v2'),
  ),
  fault(
    '§9',
    'the version is this very object',
    'adds a member to the version of a status',
    alter(isStatus, 'version', (version) => ({ ...(version as Json), minor: '1' })),
  ),
  fault(
    '§2.6',
    'signatures are never returned',
    'shows a signature in a status',
    when(
      () => true,
      (json) => ({ ...json, note: secret }),
    ),
  ),
  fault(
    '§2.6',
    'executable transaction data is never returned',
    'shows the transaction in a submission',
    () => tells(isStatus, (json) => put(json.submission, { raw: secret })),
  ),
]

const ends: readonly Fault[] = [
  executed(
    '§2.6',
    'the time of validation',
    'forgets when it was validated',
    'validated_at',
    () => null,
  ),
  executed('§2.6', 'the time of selection', 'leaves out when it was selected', 'selected_at', gone),
  executed(
    '§2.6',
    'the times of stages',
    'was selected before it was received',
    'selected_at',
    () => '2020-01-01T00:00:00.000Z',
  ),
  executed(
    '§2.6',
    'submission: status',
    'leaves the status of a submission out',
    'submission.status',
    gone,
  ),
  executed(
    '§2.6',
    'submission: transaction_hash',
    'leaves the hash out',
    'submission.transaction_hash',
    gone,
  ),
  executed(
    '§2.6',
    'submission: transaction_hash',
    'cuts the hash',
    'submission.transaction_hash',
    (hash) => String(hash).slice(0, 10),
  ),
  ...['submitted_at', 'confirmed_at', 'indexed_at'].map((name) =>
    executed(
      '§2.6',
      'submission: three times',
      `leaves submission.${name} out`,
      `submission.${name}`,
      gone,
    ),
  ),
  executed(
    '§2.6',
    'submission: three times',
    'tells a time of confirmation that is none',
    'submission.confirmed_at',
    () => 'soon',
  ),
  executed(
    '§6',
    'proposal_event_index',
    'leaves the event index out',
    'submission.proposal_event_index',
    gone,
  ),
  executed(
    '§6',
    'proposal_event_index is a JSON number',
    'tells the event index as text',
    'submission.proposal_event_index',
    String,
  ),
  executed(
    '§6',
    'proposal_event_index is a JSON number',
    'tells half an event index',
    'submission.proposal_event_index',
    () => 0.5,
  ),
  executed(
    '§2.6',
    'submission is what was executed',
    'tells no submission of an execution',
    'submission',
    () => null,
  ),
  ...['stage', 'code', 'detail', 'retryable', 'can_resubmit', 'next_action'].map((name) =>
    failed(
      'failure: stage, code, detail, retryable, can_resubmit, next_action',
      `leaves failure.${name} out`,
      `failure.${name}`,
      gone,
    ),
  ),
  failed('failure: retryable', 'tells retryable as text', 'failure.retryable', (value) =>
    String(value),
  ),
  failed(
    'failure: can_resubmit',
    'tells can_resubmit as a number',
    'failure.can_resubmit',
    (value) => Number(value),
  ),
  failed('failure: next_action', 'tells a next_action of null', 'failure.next_action', () => null),
]

/** Remembers which question each candidate was admitted for. */
const remembering =
  (
    act: (
      request: Request,
      next: Parameters<Wrong>[1],
      questions: ReadonlyMap<string, string>,
    ) => Promise<Response>,
  ) =>
  (): Wrong => {
    const questions = new Map<string, string>()
    return async (request, next) => {
      const response = await act(request, next, questions)
      const json: unknown = await response.clone().json()
      const id = at(json, 'candidate_id')
      if (typeof id === 'string' && request.method === 'POST')
        questions.set(id, new URL(request.url).pathname)
      return response
    }
  }
const idIn = (request: Request) =>
  /^\/v1\/.*\/status\/([0-9a-f-]{36})$/.exec(new URL(request.url).pathname)?.[1]
const unknown = (to: (json: Json) => Response) => () =>
  answers((call, code) => isStatus(call) && code === 404, to)

const lookups: readonly Fault[] = [
  fault(
    '§4.1 rule 4',
    'an unknown candidate is 404',
    'makes up a candidate it does not know',
    unknown(() => answer(200, {})),
  ),
  fault(
    '§4.1 rule 4',
    'an unknown candidate is 404',
    'answers 422 for an unknown candidate',
    unknown(() => refusal(422, 'candidate_not_found')),
  ),
  fault(
    '§4.1 rule 4',
    'an unknown candidate is 404',
    'answers 410 for an unknown candidate',
    unknown(() => refusal(410, 'candidate_gone')),
  ),
  fault(
    '§4.1 rule 4',
    'the identifier scopes the look-up',
    'does not look at the identifier',
    remembering((request, next, questions) => {
      const id = idIn(request)
      const question = id === undefined ? undefined : questions.get(id)
      return next(
        question === undefined ? request : resent(request, { path: `${question}/status/${id}` }),
      )
    }),
  ),
  fault(
    '§4.1 rule 4',
    'a mismatched candidate is 404',
    'answers 403 for the candidate of another question',
    remembering(async (request, next, questions) => {
      const response = await next(request)
      const id = idIn(request)
      return response.status === 404 && id !== undefined && questions.has(id)
        ? refusal(403, 'other_question')
        : response
    }),
  ),
]

const one = (
  section: string,
  rule: string,
  does: string,
  path: string,
  to: (value: unknown) => unknown,
): Fault => fault(section, rule, does, alter(isStatuses, `results.*.${path}`, to))
const isIn = (call: Call, json: Json, code: number) =>
  isStatuses(call) && listAt(json, 'results').some((result) => at(result, 'status_code') === code)

const batch: readonly Fault[] = [
  one(
    '§2.7',
    'each result has candidate_id',
    'leaves candidate_id out of a batch of statuses',
    'candidate_id',
    gone,
  ),
  one(
    '§2.7',
    'each result has status_code',
    'leaves status_code out of a batch of statuses',
    'status_code',
    gone,
  ),
  one('§2.7', 'each result has candidate or error', 'leaves the candidate out', 'candidate', gone),
  one(
    '§2.7',
    'each result has candidate or error',
    'leaves the error of an unknown candidate out',
    'error',
    gone,
  ),
  one(
    '§7 rule 4',
    'item errors have code and detail',
    'leaves the code of an unknown candidate out',
    'error.code',
    gone,
  ),
  one(
    '§2.7',
    'the candidate has status, submission, failure',
    'leaves the status out of a batch of statuses',
    'candidate.status',
    gone,
  ),
  one(
    '§2.7',
    'the candidate has status, submission, failure',
    'leaves submission out of a batch of statuses',
    'candidate.submission',
    gone,
  ),
  one(
    '§2.7',
    'the candidate has status, submission, failure',
    'leaves failure out of a batch of statuses',
    'candidate.failure',
    gone,
  ),
  one(
    '§2.7',
    'failure is nullable',
    'leaves failure out of a batch of statuses where there is none',
    'candidate.failure',
    (value) => value ?? undefined,
  ),
  one(
    '§2.7',
    'failure has code and detail',
    'leaves the code of a failure out of a batch of statuses',
    'candidate.failure.code',
    gone,
  ),
  one(
    '§2.7',
    'failure has code and detail',
    'leaves the detail of a failure out of a batch of statuses',
    'candidate.failure.detail',
    gone,
  ),
  one(
    '§4.2 rule 7',
    'batch status omits next_action',
    'tells next_action in a batch of statuses',
    'candidate.failure',
    (value) => value && { ...(value as Json), next_action: 'wait' },
  ),
  one(
    '§2.7',
    'no other v1 recovery fields',
    'tells retryable in a batch of statuses',
    'candidate.failure',
    (value) => value && { ...(value as Json), retryable: true },
  ),
  one(
    '§2.7',
    'no other v1 recovery fields',
    'tells the stage in a batch of statuses',
    'candidate.failure',
    (value) => value && { ...(value as Json), stage: 'validation' },
  ),
  one(
    '§2.6',
    'signatures are never returned',
    'shows a signature in a batch of statuses',
    'candidate',
    (value) => ({
      ...(value as Json),
      note: secret,
    }),
  ),
  one(
    '§4.2 rule 6',
    'unknown ids are a 404 of their own',
    'answers 200 for an unknown candidate in a batch',
    'status_code',
    (value) => (value === 404 ? 200 : value),
  ),
  one(
    '§4.2 rule 6',
    'unknown ids are a 404 of their own',
    'answers 422 for an unknown candidate in a batch',
    'status_code',
    (value) => (value === 404 ? 422 : value),
  ),
  fault(
    '§4.2 rule 6',
    'unknown ids do not fail others',
    'fails a whole call for one unknown candidate',
    () =>
      answers(
        (call, _code, json) => isIn(call, json, 404) && isIn(call, json, 200),
        () => refusal(404, 'candidate_not_found'),
      ),
  ),
  fault(
    '§4.2 rule 6',
    'unknown ids do not fail others',
    'answers 404 to all where one is unknown',
    () =>
      answers(
        (call, _code, json) => isIn(call, json, 404) && isIn(call, json, 200),
        (json) =>
          answer(200, {
            results: listAt(json, 'results').map((result) => ({
              ...(result as Json),
              status_code: 404,
              candidate: undefined,
              error: { code: 'candidate_not_found', detail: 'no' },
            })),
          }),
      ),
  ),
]

export const statusFaults: readonly Fault[] = [...status, ...ends, ...lookups, ...batch]
