/**
 * §2.1, §2.5, §3, §4.1 rule 3 and §5: gateways that admit what must be refused, or refuse what must
 * be admitted.
 */
import { at } from '#conformance/answer'
import {
  acknowledged,
  admits,
  alter,
  answer,
  answers,
  type Call,
  codeIn,
  type Fault,
  fault,
  isSingle,
  isStatus,
  type Json,
  refusal,
  tells,
} from '../between.js'

/** Of two payloads of one nonce the gateway takes the second for the first. */
const forgets = (field: (body: Json) => unknown, name: string): Fault =>
  fault('§4.1 rule 3', `takes another ${name} under the same signature for a replay`, () => {
    const known = new Map<unknown, { json: Json; of: unknown }>()
    return async (request, next) => {
      if (request.method !== 'POST' || !/\/v1\/proposals\/[^/]+$/.test(request.url))
        return next(request)
      const body = (await request
        .clone()
        .json()
        .catch(() => ({}))) as Json
      const before = known.get(body.signature)
      if (before !== undefined && before.of !== field(body)) return answer(200, before.json)
      const response = await next(request)
      if (response.status === 202)
        known.set(body.signature, {
          json: (await response.clone().json()) as Json,
          of: field(body),
        })
      return response
    }
  })

const decisions: readonly Fault[] = [
  fault('§8', 'takes 4,096 bytes of signature at most', () =>
    answers(
      (call) => isSingle(call) && String(call.body.signature).length > 8_194,
      () => refusal(422, 'invalid_signature_format'),
    ),
  ),
  fault('§2.1', 'admits less than the bond', () => admits('permit_amount_below_required_bond')),
  fault('§2.1', 'admits a bond but for a unit', () =>
    admits('permit_amount_below_required_bond', ({ body }) => at(body, 'permit.amount') !== '1'),
  ),
  fault('§7', 'has another code for an amount below the bond', () =>
    answers(
      (_call, _status, json) => codeIn(json) === 'permit_amount_below_required_bond',
      () => refusal(422, 'bond_too_small'),
    ),
  ),
  fault('§7', 'answers 403 to an amount below the bond', () =>
    answers(
      (call, _status, json) =>
        isSingle(call) && codeIn(json) === 'permit_amount_below_required_bond',
      () => refusal(403, 'permit_amount_below_required_bond'),
    ),
  ),
  fault('§8', 'admits a deadline two minutes ahead', () => admits('permit_deadline_too_soon')),
  fault('§8', 'admits a deadline four minutes ahead', (now) =>
    admits(
      'permit_deadline_too_soon',
      ({ body }) => Number(at(body, 'permit.deadline')) > now() + 180,
    ),
  ),
  fault('§8', 'wants a deadline an hour ahead', (now) =>
    answers(
      (call, code) =>
        isSingle(call) && code === 202 && Number(at(call.body, 'permit.deadline')) < now() + 3_600,
      () => refusal(422, 'permit_deadline_too_soon'),
    ),
  ),
  fault('§2.1', 'admits p3 where it is not allowed', () =>
    admits('outcome_not_allowed', ({ body }) => body.outcome === 'p3'),
  ),
  fault('§5', 'admits any signature', () => admits('signature_not_authorized')),
  fault('§5', 'admits any signature of 65 bytes', () =>
    admits('signature_not_authorized', ({ body }) => String(body.signature).length === 132),
  ),
  fault('§5', 'answers 401 to a signature that does not', () =>
    answers(
      (call, code, json) =>
        isSingle(call) && code === 403 && codeIn(json) === 'signature_not_authorized',
      () => refusal(401, 'signature_not_authorized'),
    ),
  ),
  fault('§5', 'answers 422 to a signature that does not', () =>
    answers(
      (call, code, json) =>
        isSingle(call) && code === 403 && codeIn(json) === 'signature_not_authorized',
      () => refusal(422, 'signature_not_authorized'),
    ),
  ),
  fault('§5', 'admits any wallet that signs', () => admits('proposer_not_eligible')),
  fault('§5', 'answers 404 to a wallet that is not', () =>
    answers(
      (call, _code, json) => isSingle(call) && codeIn(json) === 'proposer_not_eligible',
      () => refusal(404, 'wallet_not_found'),
    ),
  ),
  forgets((body) => body.outcome, 'outcome'),
  forgets((body) => at(body, 'permit.amount'), 'amount'),
  forgets((body) => at(body, 'permit.deadline'), 'deadline'),
  forgets((body) => at(body, 'permit.nonce'), 'nonce'),
  fault('§4.1 rule 3', 'does not hold the outcome against the signature', () => {
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
  fault('§4.1 rule 3', 'answers 200 to a new candidate', recoded(202, 200)),
  fault('§4.1 rule 3', 'forgets every candidate at once', () => {
    const held = new Set<unknown>()
    return answers(
      (call, code, json) => {
        if (code === 202 && isSingle(call)) held.add(json.candidate_id)
        return isStatus(call) && held.has(call.path.split('/').at(-1))
      },
      () => refusal(404, 'candidate_not_found'),
    )
  }),
  fault('§4.1 rule 3', 'admits a rival', () => admits('candidate_conflict')),
  fault('§4.1 rule 3', 'answers 422 to a rival', refusing('candidate_conflict', 422)),
  fault('§4.1 rule 3', 'answers 200 to a rival with the first candidate', () => {
    let first: Json = {}
    return async (request, next) => {
      const response = await next(request)
      const json = (await response.clone().json()) as Json
      if (response.status === 202) first = json
      return codeIn(json) === 'candidate_conflict' ? answer(200, first) : response
    }
  }),
  fault('§4.1 rule 3', 'admits where the round is proposed already', () =>
    admits('request_not_open'),
  ),
  fault(
    '§4.1 rule 3',
    'answers 422 where the round is proposed already',
    refusing('request_not_open', 422),
  ),
]

function recoded(from: number, to: number) {
  return () =>
    answers(
      (call, code) => isSingle(call) && code === from,
      (json) => answer(to, json),
    )
}
function refusing(code: string, status: number) {
  return () =>
    answers(
      (call, _status, json) => isSingle(call) && codeIn(json) === code,
      () => refusal(status, code),
    )
}

const isAck = (call: Call) => isSingle(call)
const isReplay = (call: Call, code: number, json: Json) =>
  isSingle(call) && code === 200 && at(json, 'candidate_id') !== undefined
const replay = (does: string, change: (json: Json) => Response): Fault =>
  fault('§3 rule 2', does, () => answers(isReplay, change))

const acknowledgements: readonly Fault[] = [
  fault(
    '§2.5',
    'tells a whole URL',
    alter(isAck, 'status_url', (url) => `https://elsewhere.invalid${url}`),
  ),
  fault(
    '§2.5',
    'tells a URL of another host',
    alter(isAck, 'status_url', (url) => `//elsewhere.invalid${url}`),
  ),
  fault(
    '§2.5',
    'tells the URL of another candidate',
    alter(isAck, 'status_url', (url) => String(url).replace(/[^/]+$/, crypto.randomUUID())),
  ),
  fault('§2.6', 'shows the signature in an acknowledgement', () =>
    tells(isAck, (json, { body }) =>
      json.candidate_id === undefined ? json : { ...json, signature: body.signature },
    ),
  ),
  replay('answers a replay with 202', (json) => answer(202, json)),
  replay('answers a replay with 409', () => refusal(409, 'candidate_conflict')),
  replay('makes another candidate of a replay', (json) =>
    answer(200, { ...json, candidate_id: crypto.randomUUID() }),
  ),
  replay('leaves status_url out on a replay', ({ status_url: _url, ...json }) => answer(200, json)),
  replay('tells another received_at on a replay', (json) =>
    answer(200, { ...json, received_at: '2026-11-20T05:38:00.000Z' }),
  ),
  fault('§3 rule 2', 'takes a replay after the execution for new', () =>
    answers(
      (call, code, json) => isReplay(call, code, json) && json.status === 'executed',
      (json) => answer(202, json),
    ),
  ),
  fault('§3 rule 2', 'refuses a replay after the execution', () =>
    answers(
      (call, code, json) => isReplay(call, code, json) && json.status === 'executed',
      () => refusal(409, 'request_not_open'),
    ),
  ),
]

export const admissionFaults: readonly Fault[] = [...decisions, ...acknowledgements]
