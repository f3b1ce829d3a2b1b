/** §2.2, §2.4, §2.7 and §2.8: gateways that prepare what is to be signed wrongly. */
import { at, listAt } from '#conformance/answer'
import { priceOf } from '#protocol/proposal'
import {
  alter,
  answers,
  type Call,
  codeIn,
  type Fault,
  fault,
  isContexts,
  isSigningData,
  isSingle,
  type Json,
  put,
  refusal,
  takes,
  tells,
} from '../between.js'

const plus = (more: bigint) => (value: unknown) => String(BigInt(String(value)) + more)
/** Of the v1 route. */
const told = (
  section: string,
  does: string,
  path: string,
  to: (value: unknown, call: Call) => unknown,
): Fault => fault(section, does, alter(isSigningData, path, to))
/** Of the batch route, in each item. */
const item = (
  section: string,
  does: string,
  path: string,
  to: (value: unknown) => unknown,
): Fault => fault(section, does, alter(isContexts, `results.*.signing_data.${path}`, to))

const mapping: readonly Fault[] = [
  told('§2.2', 'swaps the prices of p1 and p2', 'outcomes.*', (one) => ({
    ...(one as Json),
    price:
      at(one, 'outcome') === 'p1'
        ? priceOf.p2
        : at(one, 'outcome') === 'p2'
          ? priceOf.p1
          : priceOf.p3,
  })),
  told('§2.2', 'says that p3 is allowed where the text does not', 'outcomes.2.allowed', () => true),
  item('§2.2', 'allows 0.5 where the text does not', 'price.allowed_values', (list) => [
    ...(list as string[]),
    priceOf.p3,
  ]),
]

const fields: readonly Fault[] = [
  fault(
    '§2.4',
    'tells the bond for the amount',
    alter(isSigningData, 'permit.amount', (_amount, _call, json) =>
      at(json, 'economics.total_bond'),
    ),
  ),
  told('§2.4', 'tells half a decimal', 'token.decimals', () => 6.5),
  told('§2.4', 'tells a total bond of 1', 'economics.total_bond', () => '1'),
  told('§2.4', 'tells a maximum authorization of 0', 'economics.max_authorization', () => '0'),
  told(
    '§2.4',
    'tells a maximum authorization below the bond',
    'economics.max_authorization',
    plus(-1n),
  ),
]

const integers: readonly Fault[] = [
  told(
    '§1',
    'tells the total bond in hex',
    'economics.total_bond',
    (value) => `0x${BigInt(String(value)).toString(16)}`,
  ),
]

const typedData: readonly Fault[] = [
  told(
    '§2.8',
    'witnesses another price for p1 alone',
    'typed_data.message.witness.proposedPrice',
    (price) => (price === priceOf.p1 ? priceOf.p2 : price),
  ),
  told('§2.8', 'gives the domain a version', 'typed_data.domain', (domain) => ({
    ...(domain as Json),
    version: '1',
  })),
]

/** One nonce, one preparation: whoever comes next with it is refused. */
const reserving = (refuses: (call: Call) => boolean) => () => {
  const nonces = new Set<unknown>()
  return answers(
    (call) => {
      const nonce = at(call.body, 'permit.nonce')
      const isKnown = nonce !== undefined && nonces.has(nonce) && refuses(call)
      if (isSigningData(call)) nonces.add(nonce)
      return isKnown
    },
    () => refusal(409, 'nonce_reserved'),
  )
}

const route: readonly Fault[] = [
  fault('§4.1 rule 2', 'gives signing data once a nonce', reserving(isSigningData)),
  fault('§4.1 rule 2', 'refuses to submit with a nonce that was prepared', reserving(isSingle)),
  fault('§4.1 rule 2', 'takes a preparation for the payload of its wallet', () => {
    const prepared = new Map<string, unknown>()
    return answers(
      (call) => {
        const key = `${/0x[0-9a-f]{64}/.exec(call.path)?.[0]} ${call.body.proposer}`
        if (isSigningData(call)) prepared.set(key, call.body.outcome)
        return isSingle(call) && prepared.has(key) && prepared.get(key) !== call.body.outcome
      },
      () => refusal(409, 'candidate_conflict'),
    )
  }),
  fault('§2.1', 'prepares for outcome p4', () =>
    takes(isSigningData, (body) =>
      ['p1', 'p2', 'p3'].includes(String(body.outcome)) ? body : { ...body, outcome: 'p2' },
    ),
  ),
  fault('§2.1', 'prepares p3 as p2', () =>
    takes(isSigningData, (body) => (body.outcome === 'p3' ? { ...body, outcome: 'p2' } : body)),
  ),
  fault('§2.1', 'prepares without a version', () =>
    takes(isSigningData, (body) => ({ version, ...body })),
  ),
  fault('§2.1', 'prepares a payment', () =>
    takes(isSigningData, (body) => ({ ...body, max_payment: '0' })),
  ),
  fault('§2.1', 'wants a signature to prepare', () =>
    answers(
      (call) => isSigningData(call) && call.body.signature === undefined,
      () => refusal(422, 'schema_violation'),
    ),
  ),
  fault('§2.1', 'prepares p2 only', () =>
    answers(
      (call) => isSigningData(call) && call.body.outcome === 'p1',
      () => refusal(422, 'outcome_not_allowed'),
    ),
  ),
  fault('§2.1', 'wants ten minutes, preparing', (now) =>
    answers(
      (call) => isSigningData(call) && isSoon(call, now() + 600),
      () => refusal(422, 'permit_deadline_too_soon'),
    ),
  ),
  fault('§2.1', 'wants one unit more than the bond, preparing', () => {
    let bond = ''
    return async (request, next) => {
      const response = await next(request)
      const json = (await response.clone().json()) as Json
      const told = at(json, 'economics.total_bond')
      if (typeof told === 'string') bond = told
      return bond !== '' && at(json, 'permit.amount') === bond
        ? refusal(422, 'permit_amount_below_required_bond')
        : response
    }
  }),
]

const version = { api: 'v1', schema: 'signed-proposal-v1', witness: 'permit2-signed-proposer-v1' }
const isSoon = (call: Call, soonestSeconds: number) =>
  Number(at(call.body, 'permit.deadline')) < soonestSeconds

const contexts: readonly Fault[] = [
  item('§2.7', 'tells a required bond that is lower', 'bond.required_bond', plus(-1n)),
  fault('§2.7', 'tells another bond on both routes', () =>
    tells(
      (call) => isContexts(call) || isSigningData(call),
      (json) => {
        for (const one of listAt(json, 'results'))
          raise(at(one, 'signing_data.bond'), 'required_bond')
        raise(json.economics, 'total_bond')
      },
    ),
  ),
  item(
    '§2.8',
    'leaves the witness out of the permit',
    'signing.types.PermitWitnessTransferFrom',
    (list) => (list as unknown[]).slice(0, -1),
  ),
  item('§2.7', 'allows outcome keys', 'price.allowed_values', () => ['p1', 'p2']),
  item('§2.2', 'allows the index of a winner', 'price.allowed_values', () => ['0', '1', '2']),
  fault('§2.7', 'tells the question id as identifier.raw', () =>
    tells(isContexts, (json) => {
      for (const one of listAt(json, 'results'))
        put(at(one, 'signing_data.identifier'), {
          raw: at(one, 'signing_data.question_id'),
        })
    }),
  ),
  item('§2.7', 'tells an older round in a context', 'request.timestamp', plus(-60n)),
  fault('§2.7', 'tells question ids for slugs', () =>
    tells(isContexts, (json) => {
      for (const one of listAt(json, 'results'))
        put(one, { identifier: at(one, 'signing_data.question_id') ?? at(one, 'identifier') })
    }),
  ),
  fault('§4.2 rule 3', 'fails a whole call for one unknown question', () =>
    answers(
      (call, _code, json) =>
        isContexts(call) &&
        listAt(json, 'results').some((one) => codeIn(one) === 'question_not_found'),
      () => refusal(404, 'question_not_found'),
    ),
  ),
]

function raise(target: unknown, field: string): void {
  const value = at(target, field)
  if (typeof value === 'string') put(target, { [field]: String(BigInt(value) + 1_000n) })
}

export const preparationFaults: readonly Fault[] = [
  ...mapping,
  ...fields,
  ...integers,
  ...typedData,
  ...route,
  ...contexts,
]
