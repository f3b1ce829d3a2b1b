/**
 * §2.6, §4.1 rule 4, §4.2 rules 6 and 7, and §6: gateways that tell wrongly what became of a
 * candidate.
 */
import { at, listAt } from '#conformance/answer'
import {
  alter,
  answer,
  answers,
  type Call,
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
const status: readonly Fault[] = [
  fault(
    '§9',
    'adds a member to the version of a status',
    alter(isStatus, 'version', (version) => ({ ...(version as Json), minor: '1' })),
  ),
  fault(
    '§2.6',
    'shows a signature in a status',
    when(
      () => true,
      (json) => ({ ...json, note: secret }),
    ),
  ),
  fault('§2.6', 'shows the transaction in a submission', () =>
    tells(isStatus, (json) => put(json.submission, { raw: secret })),
  ),
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
    'makes up a candidate it does not know',
    unknown(() => answer(200, {})),
  ),
  fault(
    '§4.1 rule 4',
    'answers 422 for an unknown candidate',
    unknown(() => refusal(422, 'candidate_not_found')),
  ),
  fault(
    '§4.1 rule 4',
    'answers 410 for an unknown candidate',
    unknown(() => refusal(410, 'candidate_gone')),
  ),
  fault(
    '§4.1 rule 4',
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

const one = (section: string, does: string, path: string, to: (value: unknown) => unknown): Fault =>
  fault(section, does, alter(isStatuses, `results.*.${path}`, to))
const isIn = (call: Call, json: Json, code: number) =>
  isStatuses(call) && listAt(json, 'results').some((result) => at(result, 'status_code') === code)

const batch: readonly Fault[] = [
  one(
    '§4.2 rule 7',
    'tells next_action in a batch of statuses',
    'candidate.failure',
    (value) => value && { ...(value as Json), next_action: 'wait' },
  ),
  one(
    '§2.7',
    'tells retryable in a batch of statuses',
    'candidate.failure',
    (value) => value && { ...(value as Json), retryable: true },
  ),
  one(
    '§2.7',
    'tells the stage in a batch of statuses',
    'candidate.failure',
    (value) => value && { ...(value as Json), stage: 'validation' },
  ),
  one('§2.6', 'shows a signature in a batch of statuses', 'candidate', (value) => ({
    ...(value as Json),
    note: secret,
  })),
  one('§4.2 rule 6', 'answers 200 for an unknown candidate in a batch', 'status_code', (value) =>
    value === 404 ? 200 : value,
  ),
  one('§4.2 rule 6', 'answers 422 for an unknown candidate in a batch', 'status_code', (value) =>
    value === 404 ? 422 : value,
  ),
  fault('§4.2 rule 6', 'fails a whole call for one unknown candidate', () =>
    answers(
      (call, _code, json) => isIn(call, json, 404) && isIn(call, json, 200),
      () => refusal(404, 'candidate_not_found'),
    ),
  ),
  fault('§4.2 rule 6', 'answers 404 to all where one is unknown', () =>
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

export const statusFaults: readonly Fault[] = [...status, ...lookups, ...batch]
