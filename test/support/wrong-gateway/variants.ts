/** Gateways that are right but for one rule, each under the id of the check that must tell it, and that alone. */
import { at, listAt } from '../../../src/core/client/conformance/rule.js'
import { priceOf } from '../../../src/core/protocol/proposal.js'
import {
  admits,
  answer,
  answers,
  isBatch,
  isContexts,
  isEligibility,
  isSigningData,
  isSingle,
  isStatuses,
  type Json,
  put,
  refusal,
  resent,
  serves,
  takes,
  tells,
} from './between.js'
import { submissionVariants } from './submission-variants.js'
import type { Wrong } from './world.js'

export interface Variant {
  /** What is wrong with it. */
  readonly does: string
  /** Anew for each run. */
  readonly make: () => Wrong
  /** Checks that tell it too, because it costs money. */
  readonly also?: readonly string[]
}

const junk = `0x${'5a'.repeat(64)}1b`
const zero = `0x${'0'.repeat(40)}`
const v1 = { api: 'v1', schema: 'signed-proposal-v1', witness: 'permit2-signed-proposer-v1' }
const many = String(2n ** 128n)
const lower = (text: unknown) => String(text).toLowerCase()
const of = (does: string, make: () => Wrong): Variant => ({ does, make })

const conventions: Record<string, Variant> = {
  '1-trailing-slash': of('serves a trailing slash', () => serves((path) => path.replace(/(.)\/$/, '$1'))),
  '1-percent-encoding': of('decodes paths', () => serves(decodeURIComponent)),
  '1-content-type': of('takes any content type', () => serves((path) => path, { 'content-type': 'application/json' })),
  '1-json-body': of('repairs a body cut short', () => async (request, next) => {
    const text = request.method === 'GET' ? '' : await request.clone().text()
    return next(text.endsWith('[') ? resent(request, { body: { candidate_ids: [crypto.randomUUID()] } }) : request)
  }),
  '1-lowercase-address': of('takes an address in capitals', () =>
    serves((path) => (path.includes('eligibility') ? path.toLowerCase() : path)),
  ),
  '1-lowercase-question-id': of('takes a question id in capitals', () =>
    serves((path) => (path.endsWith('signing-data') ? path.replace(/0x[0-9A-F]{64}/, lower) : path)),
  ),
  '1-slug-characters': of('takes a slug with an underscore', () => serves((path) => path.replace('Some_Slug', 'question-one'))),
  '1-slug-identifies': of('takes a slug for another question', () =>
    tells(
      ({ path }) => path === '/v1/proposals/question-one/signing-data',
      (json) => ({ ...json, question_id: `0x${'1'.repeat(64)}` }),
    ),
  ),
  '1-cors-explicit': of('allows every origin', () =>
    answers(
      (call, status) => isEligibility(call) && status === 200,
      (json, _call, headers) => answer(200, json, [...headers, ['access-control-allow-origin', '*']]),
    ),
  ),
  '2.3-eligibility-fields': of('answers about another address', () =>
    tells(isEligibility, (json) => (json.address === undefined ? json : { ...json, address: zero })),
  ),
  '9-eligibility-version': of('leaves the version out of eligibility', () =>
    tells(isEligibility, ({ version: _version, ...json }) => json),
  ),
  '4.1.1-unknown-wallet': of('calls everybody eligible', () =>
    tells(isEligibility, (json) => (json.eligible === undefined ? json : { ...json, eligible: true })),
  ),
  '4.1.1-eligible-wallet': of('calls nobody eligible', () =>
    tells(isEligibility, (json) => (json.eligible === undefined ? json : { ...json, eligible: false })),
  ),
  '7-unknown-question': of('makes up unknown questions', () =>
    answers(
      (call, status) => isSigningData(call) && status === 404,
      () => answer(200, {}),
    ),
  ),
  '7-unknown-route': of('answers an unknown route', () =>
    answers(
      ({ path }) => path.startsWith('/v1/conformance'),
      () => answer(200, {}),
    ),
  ),
  '7-wrong-method': of('calls a wrong method an unknown route', () =>
    answers(
      (_call, status) => status === 405,
      () => refusal(404, 'route_not_found'),
    ),
  ),
  '1-no-cookies': of('sets a cookie', () =>
    answers(
      (call, status) => isEligibility(call) && status === 200,
      (json, _call, headers) => answer(200, json, [...headers, ['set-cookie', 'a=b']]),
    ),
  ),
  '7-error-body': of('tells an error in another form', () =>
    answers(
      (_call, status) => status === 405,
      () => answer(405, { message: 'no' }),
    ),
  ),
}

const signingData = (does: string, change: Parameters<typeof tells>[1]): Variant =>
  of(does, () =>
    tells(
      (call) => isSigningData(call),
      (json, call) => (json.error === undefined ? change(json, call) : json),
    ),
  )
const contexts = (does: string, change: Parameters<typeof tells>[1]): Variant =>
  of(does, () =>
    tells(isContexts, (json, call) => {
      for (const one of listAt(json, 'results')) change((at(one, 'signing_data') ?? {}) as Json, call)
    }),
  )

const preparation: Record<string, Variant> = {
  '4.1-signing-data': of('answers signing-data with 201', () =>
    answers(
      (call, status) => isSigningData(call) && status === 200,
      (json) => answer(201, json),
    ),
  ),
  '2.4-fields': signingData('leaves the label out', ({ proposal }) => put(proposal, { label: undefined })),
  '9-signing-data-version': signingData('leaves the version out of signing-data', (json) => put(json, { version: undefined })),
  '1-integers-as-text': signingData('tells the bond as a number', ({ economics }) => put(economics, { total_bond: 750_000_000 })),
  '2.4-chain-id-text': signingData('tells chainId as a number', ({ typed_data }) => put(at(typed_data, 'domain'), { chainId: 31337 })),
  '2.4-decimals-number': signingData('tells decimals as text', ({ token }) => put(token, { decimals: '6' })),
  '2.4-permit-preserved': signingData('changes the deadline', ({ permit }) => put(permit, { deadline: '1' })),
  '2.4-contracts': signingData('names another Permit2', ({ contracts: told }) => put(told, { permit2: zero })),
  '2.4-typed-data': signingData('lets another contract spend', ({ typed_data }) => put(at(typed_data, 'message'), { spender: zero })),
  '2.2-outcome-prices': signingData('prices p3 at 2', ({ outcomes }) => put(at(outcomes, 2), { price: '2' })),
  '2.2-p3-permission': signingData('allows p3 where the text does not', ({ outcomes }) => put(at(outcomes, 2), { allowed: true })),
  '4.1.2-stateless': of('reserves the nonce of a preparation', () => {
    const nonces = new Set<unknown>()
    return answers(
      (call) => {
        const nonce = at(call.body, 'permit', 'nonce')
        const isKnown = isSigningData(call) && nonces.has(nonce)
        if (isSigningData(call)) nonces.add(nonce)
        return isKnown
      },
      () => refusal(409, 'nonce_reserved'),
    )
  }),
  '4.2-signing-data': of('answers contexts with 207', () =>
    answers(
      (call, status) => isContexts(call) && status === 200 && listIn(call.body).length === 5,
      (json) => answer(207, json),
    ),
  ),
  '2.7-signing-data-fields': contexts('leaves the bond out', ({ bond }) => put(bond, { required_bond: undefined })),
  '2.7-allowed-prices': contexts('allows 0.5 where the text does not', ({ price }) =>
    put(price, { allowed_values: [priceOf.p1, priceOf.p2, priceOf.p3] }),
  ),
  '2.7-identifier-raw': contexts('tells the question id as identifier', (data) => put(data.identifier, { raw: data.question_id })),
  '2.7-contracts': contexts('names another chain', ({ signing }) => put(signing, { chain_id: 137 })),
  '2.8-witness-types': contexts('leaves a member out of the witness', ({ signing }) => put(at(signing, 'types'), { Proposal: [] })),
  '2.7-identifier-echoed': of('tells question ids for slugs', () =>
    tells(isContexts, (json) => {
      for (const one of listAt(json, 'results')) put(one, { identifier: at(one, 'signing_data', 'question_id') ?? at(one, 'identifier') })
    }),
  ),
}

type Body = Json & { readonly permit: Json }
const single = (does: string, change: (body: Body) => unknown): Variant => of(does, () => takes(isSingle, (body) => change(body as Body)))
const item = (does: string, change: (body: Body) => unknown): Variant =>
  of(does, () => takes(isBatch, ({ proposals }) => ({ proposals: listIn({ proposals }).map((one) => change(one as Body) ?? one) })))

const bodies: Record<string, Variant> = {
  '2.1-version-exact': single('takes version v2', (body) => ({
    ...body,
    ...(body.version === undefined ? {} : { version: { ...(body.version as object), api: 'v1' } }),
  })),
  '2.1-version-only': single('takes more in the version', (body) => ({
    ...body,
    ...(body.version === undefined ? {} : { version: { ...v1, api: (body.version as typeof v1).api } }),
  })),
  '9-version-required': single('takes a body without version', (body) => ({ version: v1, ...body })),
  '2.1-proposer-lowercase': single('takes a proposer in capitals', (body) => ({ ...body, proposer: lower(body.proposer) })),
  '2.1-proposer-nonzero': single('takes the zero address', (body) =>
    body.proposer === zero ? { ...body, proposer: zero.replace(/0$/, '1') } : body,
  ),
  '2.1-outcome-known': single('takes p4 for p1', (body) => (body.outcome === 'p4' ? { ...body, outcome: 'p1' } : body)),
  '2.1-max-payment': single('takes a payment', (body) => ({ ...body, max_payment: '0' })),
  '2.1-amount-text': single('takes an amount as number', (body) => ({
    ...body,
    permit: { ...body.permit, amount: String(body.permit.amount) },
  })),
  '2.1-amount-decimal': single('takes an amount in hex', (body) =>
    body.permit.amount === '0x10' ? { ...body, permit: { ...body.permit, amount: many } } : body,
  ),
  '2.1-nonce-uint256': single('takes a nonce beyond 256 bits', (body) =>
    body.permit.nonce === String(2n ** 256n) ? { ...body, permit: { ...body.permit, nonce: '1' } } : body,
  ),
  '2.1-deadline-text': single('takes a deadline as number', (body) =>
    body.version === undefined ? body : { ...body, permit: { ...body.permit, deadline: String(body.permit.deadline) } },
  ),
  '2.1-signature-required': single('takes a body without signature', (body) => ({ signature: junk, ...body })),
  '2.1-signature-lowercase': single('takes a signature in capitals', (body) =>
    body.signature === undefined ? body : { ...body, signature: lower(body.signature) },
  ),
  '2.1-signature-even': single('takes half a byte', (body) =>
    String(body.signature).length % 2 === 1 && body.signature !== undefined ? { ...body, signature: `${body.signature}0` } : body,
  ),
  '2.1-signature-longest': single('takes any length', (body) => ({
    ...body,
    ...(body.signature === undefined ? {} : { signature: String(body.signature).slice(0, 16_386) }),
  })),
  '2.1-extra-field': single('takes fields it does not know', ({ conformance_note: _note, ...body }) => body),
  '9-batch-item-in-v1': single('takes a batch item for a v1 body', ({ proposed_price, ...body }) =>
    proposed_price === undefined
      ? body
      : { version: v1, outcome: 'p1', ...body, permit: { ...body.permit, deadline: String(body.permit.deadline) } },
  ),
  '4.1.3-ancillary-data': single('takes ancillary data', ({ ancillary_data: _data, ...body }) => body),
  '2.1-signature-8192': of('takes less than 8,192 bytes', () =>
    answers(
      (call) => isSingle(call) && String(call.body.signature).length === 16_386,
      () => refusal(422, 'invalid_signature_format'),
    ),
  ),
  '4.1.3-signature-checked': of('admits any signature', () =>
    admits('signature_not_authorized', ({ body }) => String(body.signature).length === 132),
  ),
  '5-not-eligible': of('admits any wallet', () => admits('proposer_not_eligible')),
  '7-errors-sanitized': of('repeats what was sent', () =>
    answers(
      (call, status) => isSingle(call) && status === 422 && String(call.body.outcome).startsWith('canary'),
      (json, call) => answer(422, { ...json, errors: [{ path: 'outcome', code: call.body.outcome }] }),
    ),
  ),
  '2.7-price-numerical': item('takes an outcome key for a price', (body) => ({
    ...body,
    ...(body.proposed_price === 'p2' ? { proposed_price: priceOf.p2 } : {}),
  })),
  '2.7-max-payment': item('takes a payment', (body) => ({ ...body, max_payment: '0' })),
  '2.7-proposer-lowercase': item('takes a proposer in capitals', (body) => ({ ...body, proposer: lower(body.proposer) })),
  '2.7-amount-text': item('takes an amount as number', (body) => ({
    ...body,
    permit: { ...body.permit, amount: String(body.permit.amount) },
  })),
  '2.7-deadline-integer': item('takes a deadline as text', (body) =>
    body.version === undefined ? { ...body, permit: { ...body.permit, deadline: Number(body.permit.deadline) } } : body,
  ),
  '9-v1-body-in-batch': item('takes a v1 body for an item', ({ version, outcome: _outcome, ...body }) =>
    version === undefined
      ? body
      : { ...body, proposed_price: priceOf.p2, permit: { ...body.permit, deadline: Number(body.permit.deadline) } },
  ),
  '7-batch-ancillary-data': item('takes ancillary data', ({ ancillary_data: _data, ...body }) => body),
}

const listIn = (body: unknown): readonly unknown[] => Object.values((body ?? {}) as object).find(Array.isArray) ?? []
const empty = (which: typeof isBatch): Variant =>
  of('takes no items at all', () =>
    answers(
      (call) => which(call) && Object.keys(call.body).length > 0 && listIn(call.body).length === 0,
      () => answer(200, { results: [], summary: { accepted: 0, replayed: 0, rejected: 0 } }),
    ),
  )
const reversed = (which: typeof isBatch): Variant =>
  of('answers in reverse', () =>
    tells(
      (call) => which(call) && listIn(call.body).length === 3,
      (json) => ({ ...json, results: [...listIn({ results: json.results })].reverse() }),
    ),
  )

const batches: Record<string, Variant> = {
  '4.2.1-empty-signing-data': empty(isContexts),
  '4.2.1-empty-submit': empty(isBatch),
  '4.2.1-empty-status': empty(isStatuses),
  '4.2.1-items-100': of('takes 99 items at most', () =>
    answers(
      (call) => isStatuses(call) && listIn(call.body).length === 100,
      () => refusal(422, 'schema_violation'),
    ),
  ),
  '4.2.1-items-101': of('takes 101 items', () =>
    takes(isStatuses, ({ candidate_ids }) => ({ candidate_ids: listIn({ candidate_ids }).slice(0, 100) })),
  ),
  '4.2.1-order-signing-data': reversed(isContexts),
  '4.2.1-order-submit': reversed(isBatch),
  '4.2.1-order-status': reversed(isStatuses),
  '4.2.2-schema-signing-data': of('leaves malformed identifiers out', () =>
    takes(isContexts, ({ identifiers }) => ({ identifiers: listIn({ identifiers }).filter((one) => one !== 'Not_An_Identifier') })),
  ),
  '4.2.2-schema-submit': of('leaves malformed items out', () =>
    takes(isBatch, ({ proposals }) => ({ proposals: listIn({ proposals }).filter((one) => at(one, 'proposer') !== 'nobody') })),
  ),
  '4.2.3-signing-data-items': of('fails a whole call for one unknown question', () =>
    answers(
      (call, _status, json) => isContexts(call) && listIn(call.body).length === 2 && JSON.stringify(json).includes('question_not_found'),
      () => refusal(404, 'question_not_found'),
    ),
  ),
  '4.2.3-submit-items': of('fails a call whose items all fail', () =>
    answers(
      (call, _status, json) => isBatch(call) && listIn(call.body).length === 2 && at(json, 'summary', 'rejected') === 2,
      () => refusal(403, 'signature_not_authorized'),
    ),
  ),
  '7-item-errors': of('leaves the detail out of an item', () =>
    tells(isBatch, (json) => put(at(json, 'results', 0, 'error'), { detail: undefined })),
  ),
  '2.7-summary': of('does not count rejected items', () => tells(isBatch, (json) => put(json.summary, { rejected: 0 }))),
  '4.2.6-unknown-candidate': of('answers 200 for a candidate it does not know', () =>
    tells(
      (call) => isStatuses(call) && listIn(call.body).length === 1,
      (json) => at(json, 'results', 0, 'status_code') === 404 && put(at(json, 'results', 0), { status_code: 200 }),
    ),
  ),
}

const budgets: Record<string, Variant> = {
  '8-charged-by-item': of('charges a batch as one item', () =>
    answers(
      (call, status) => isStatuses(call) && status === 200 && listIn(call.body).length === 5,
      (json, _call, headers) => {
        const told = new Headers(headers)
        told.set('ratelimit-remaining', String(Number(headers.get('ratelimit-remaining')) + 4))
        return answer(200, json, told)
      },
    ),
  ),
  '8-shared-budget': of('charges nothing for eligibility', () => {
    let told: Headers | undefined
    return async (request, next) => {
      const response = await next(request)
      const isFree = request.url.includes('/eligibility/') && response.status === 200
      told = isFree ? (told ?? response.headers) : undefined
      return told === undefined ? response : answer(200, await response.json(), told)
    }
  }),
  '8-rate-limited': of('never refuses for the budget', () =>
    answers(
      (_call, status) => status === 429,
      () => answer(200, { results: [] }),
    ),
  ),
  '7-retry-told': of('does not say when to come back', () =>
    answers(
      (_call, status) => status === 429,
      (_json, _call, headers) => {
        const told = new Headers(headers)
        told.delete('retry-after')
        return answer(429, { error: { code: 'rate_limited', detail: 'too much' } }, told)
      },
    ),
  ),
  '8-refused-call-charged': of('does not charge what it refuses', () =>
    answers(
      (call, status) => status === 429 && isEligibility(call),
      () => answer(200, {}),
    ),
  ),
  '8-window-reopens': of('stays shut after the delay it told', () => {
    let shut = false
    return answers(
      (call, status) => {
        shut ||= status === 429
        return shut && isEligibility(call)
      },
      () => answer(429, { error: { code: 'rate_limited', detail: 'too much' } }, { 'retry-after': '1' }),
    )
  }),
}

export const variants: Readonly<Record<string, Variant>> = {
  ...conventions,
  ...preparation,
  ...bodies,
  ...batches,
  ...budgets,
  ...submissionVariants,
}
