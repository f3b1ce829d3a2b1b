/** §2.2, §2.4, §2.7 and §2.8: gateways that prepare what is to be signed wrongly. */
import { at, listAt } from '../../../../src/core/conformance/rule.js'
import { priceOf } from '../../../../src/core/protocol/proposal.js'
import {
  alter,
  answer,
  answers,
  type Call,
  codeIn,
  drop,
  type Fault,
  fault,
  isContexts,
  isSigningData,
  isSingle,
  isStatus,
  type Json,
  put,
  refusal,
  takes,
  tells,
} from '../between.js'

const zero = `0x${'0'.repeat(40)}`
const hash = `0x${'1'.repeat(64)}`
const plus = (more: bigint) => (value: unknown) => String(BigInt(String(value)) + more)
const number = (value: unknown) => Number(value)
const text = (value: unknown) => String(value)
const shorter = (value: unknown) => String(value).slice(0, -2)
/** Of the v1 route. */
const told = (
  section: string,
  rule: string,
  does: string,
  path: string,
  to: (value: unknown, call: Call) => unknown,
): Fault => fault(section, rule, does, alter(isSigningData, path, to))
/** Of the batch route, in each item. */
const item = (
  section: string,
  rule: string,
  does: string,
  path: string,
  to: (value: unknown) => unknown,
): Fault => fault(section, rule, does, alter(isContexts, `results.*.signing_data.${path}`, to))
const gone = () => undefined

const mapping: readonly Fault[] = [
  told(
    '§2.2',
    'p1 is "0", p2 is "1000000000000000000"',
    'swaps the prices of p1 and p2',
    'outcomes.*',
    (one) => ({
      ...(one as Json),
      price:
        at(one, 'outcome') === 'p1'
          ? priceOf.p2
          : at(one, 'outcome') === 'p2'
            ? priceOf.p1
            : priceOf.p3,
    }),
  ),
  told('§2.2', 'p3 is "500000000000000000"', 'prices p3 at 2', 'outcomes.2.price', () => '2'),
  told(
    '§2.2',
    'outcomes give labels',
    'leaves the labels of outcomes out',
    'outcomes.*.label',
    gone,
  ),
  told(
    '§2.2',
    'outcomes give availability',
    'leaves the availability of outcomes out',
    'outcomes.*.allowed',
    gone,
  ),
  told(
    '§2.2',
    "p3 needs permission in the request's rules",
    'says that p3 is allowed where the text does not',
    'outcomes.2.allowed',
    () => true,
  ),
  told(
    '§2.2',
    'outcomes give availability',
    'says that p2 is not allowed',
    'outcomes.1.allowed',
    () => false,
  ),
  item(
    '§2.2',
    "p3 needs permission in the request's rules",
    'allows 0.5 where the text does not',
    'price.allowed_values',
    (list) => [...(list as string[]), priceOf.p3],
  ),
]

const fields: readonly Fault[] = [
  ...[
    'question_id',
    'request',
    'proposal',
    'outcomes',
    'permit',
    'token',
    'economics',
    'contracts',
    'typed_data',
  ].map((name) =>
    told('§2.4', 'the fields of signing data', `leaves ${name} out of signing data`, name, gone),
  ),
  ...['oracle', 'requester', 'identifier', 'timestamp', 'ancillary_data'].map((name) =>
    told(
      '§2.4',
      'request: oracle, requester, identifier, timestamp, ancillary data',
      `leaves request.${name} out`,
      `request.${name}`,
      gone,
    ),
  ),
  told('§2.4', 'question identity', 'tells another question id', 'question_id', () => hash),
  told('§2.4', 'request: the oracle', 'tells another oracle', 'request.oracle', () => zero),
  told(
    '§2.4',
    'request: the requester',
    'tells another requester',
    'request.requester',
    () => zero,
  ),
  told(
    '§2.4',
    'request: the oracle identifier',
    'tells the question id as oracle identifier',
    'request.identifier',
    () => hash,
  ),
  told('§2.4', 'request: the timestamp', 'tells a later timestamp', 'request.timestamp', plus(1n)),
  told(
    '§2.4',
    'request: ancillary data',
    'trims the ancillary data',
    'request.ancillary_data',
    shorter,
  ),
  told(
    '§2.4',
    'proposal: outcome key, label, price',
    'leaves the label out',
    'proposal.label',
    gone,
  ),
  told(
    '§2.4',
    'proposal: outcome key, label, price',
    'leaves the price out',
    'proposal.price',
    gone,
  ),
  told(
    '§2.4',
    'proposal: outcome key',
    'tells another outcome than was asked for',
    'proposal.outcome',
    (key) => (key === 'p1' ? 'p2' : 'p1'),
  ),
  told(
    '§2.4',
    'proposal: exact numerical price',
    'tells another price than the outcome has',
    'proposal.price',
    (price) => (price === '0' ? '1' : '0'),
  ),
  told(
    '§2.4',
    "permit: the caller's terms, preserved",
    'changes the amount',
    'permit.amount',
    plus(1n),
  ),
  told(
    '§2.4',
    "permit: the caller's terms, preserved",
    'changes the nonce',
    'permit.nonce',
    plus(1n),
  ),
  told(
    '§2.4',
    "permit: the caller's terms, preserved",
    'changes the deadline',
    'permit.deadline',
    plus(60n),
  ),
  told(
    '§2.4',
    "permit: the caller's terms, preserved",
    'tells the nonce as a number',
    'permit.nonce',
    number,
  ),
  told('§2.4', 'token: address, symbol, decimals', 'leaves the symbol out', 'token.symbol', gone),
  told(
    '§2.4',
    'token: address, symbol, decimals',
    'leaves the decimals out',
    'token.decimals',
    gone,
  ),
  told('§2.4', 'token: address', 'tells another token', 'token.address', () => zero),
  told('§1', 'decimals are a JSON number', 'tells decimals as text', 'token.decimals', text),
  told('§2.4', 'token: decimals', 'tells 18 decimals', 'token.decimals', () => 18),
  told('§2.4', 'token: decimals', 'tells half a decimal', 'token.decimals', () => 6.5),
  told(
    '§2.4',
    'economics: current total bond',
    'leaves the total bond out',
    'economics.total_bond',
    gone,
  ),
  told(
    '§2.4',
    'economics: current total bond',
    'tells a total bond that is higher',
    'economics.total_bond',
    plus(1n),
  ),
  told(
    '§2.4',
    'economics: current total bond',
    'tells a total bond of 1',
    'economics.total_bond',
    () => '1',
  ),
  told(
    '§2.4',
    'economics: maximum authorization',
    'leaves the maximum authorization out',
    'economics.max_authorization',
    gone,
  ),
  told(
    '§2.4',
    'economics: maximum authorization',
    'tells a maximum authorization of 0',
    'economics.max_authorization',
    () => '0',
  ),
  told(
    '§2.4',
    'economics: maximum authorization',
    'tells a maximum authorization below the bond',
    'economics.max_authorization',
    plus(-1n),
  ),
  told('§2.4', 'contracts: Permit2', 'names another Permit2', 'contracts.permit2', () => zero),
  told(
    '§2.4',
    'contracts: SignedProposer',
    'names another SignedProposer',
    'contracts.signed_proposer',
    () => zero,
  ),
  told(
    '§9',
    'signing data carries the version',
    'leaves the version out of signing data',
    'version',
    gone,
  ),
  told(
    '§9',
    'signing data carries the version',
    'tells another schema in signing data',
    'version.schema',
    () => 'signed-proposal-v2',
  ),
]

const integers: readonly Fault[] = [
  told(
    '§1',
    'Solidity integers are decimal strings',
    'tells the timestamp as a number',
    'request.timestamp',
    number,
  ),
  told(
    '§1',
    'Solidity integers are decimal strings',
    'tells the price of the proposal as a number',
    'proposal.price',
    number,
  ),
  told(
    '§1',
    'Solidity integers are decimal strings',
    'tells the prices of outcomes as numbers',
    'outcomes.*.price',
    number,
  ),
  told(
    '§1',
    'Solidity integers are decimal strings',
    'tells the total bond as a number',
    'economics.total_bond',
    number,
  ),
  told(
    '§1',
    'Solidity integers are decimal strings',
    'tells the maximum authorization as a number',
    'economics.max_authorization',
    number,
  ),
  told(
    '§1',
    'Solidity integers are decimal strings',
    'tells the total bond in hex',
    'economics.total_bond',
    (value) => `0x${BigInt(String(value)).toString(16)}`,
  ),
  told(
    '§1',
    'chainId is a decimal string',
    'tells chainId as a number',
    'typed_data.domain.chainId',
    number,
  ),
  told(
    '§1',
    'Solidity integers are decimal strings',
    'tells the nonce of typed_data as a number',
    'typed_data.message.nonce',
    number,
  ),
  fault(
    '§1',
    'Solidity integers are decimal strings',
    'tells the price of a status as a number',
    alter(isStatus, 'price', number),
  ),
]

const typed = 'typed_data is the complete payload of §2.8'
const typedData: readonly Fault[] = [
  told('§2.4', typed, 'leaves the types out', 'typed_data.types', gone),
  told('§2.4', typed, 'leaves the primary type out', 'typed_data.primaryType', gone),
  told('§2.4', typed, 'leaves the message out', 'typed_data.message', gone),
  told('§2.4', typed, 'leaves the type of the witness out', 'typed_data.types.Proposal', gone),
  told(
    '§2.8',
    'no domain version',
    'gives the domain a version',
    'typed_data.domain',
    (domain) => ({ ...(domain as Json), version: '1' }),
  ),
  told(
    '§2.8',
    'the domain is Permit2',
    'names the domain otherwise',
    'typed_data.domain.name',
    () => 'Permit',
  ),
  told(
    '§2.8',
    'the chain id is signing.chain_id',
    'names another chain',
    'typed_data.domain.chainId',
    () => '1',
  ),
  told(
    '§2.8',
    'the verifying contract is Permit2',
    'lets another contract verify',
    'typed_data.domain.verifyingContract',
    () => zero,
  ),
  told(
    '§2.8',
    'message: the token',
    'takes another token',
    'typed_data.message.permitted.token',
    () => zero,
  ),
  told(
    '§2.8',
    'message: the permit amount',
    'takes a higher amount',
    'typed_data.message.permitted.amount',
    plus(1n),
  ),
  told('§2.8', 'message: the nonce', 'takes another nonce', 'typed_data.message.nonce', plus(1n)),
  told(
    '§2.8',
    'message: the deadline',
    'takes a later deadline',
    'typed_data.message.deadline',
    plus(86_400n),
  ),
  told(
    '§2.8',
    'message: the spender is SignedProposer',
    'lets another contract spend',
    'typed_data.message.spender',
    () => zero,
  ),
  told(
    '§2.8',
    'witness: the oracle',
    'witnesses another oracle',
    'typed_data.message.witness.oracle',
    () => zero,
  ),
  told(
    '§2.8',
    'witness: the requester',
    'witnesses another requester',
    'typed_data.message.witness.requester',
    () => zero,
  ),
  told(
    '§2.8',
    'witness: the identifier',
    'witnesses another identifier',
    'typed_data.message.witness.identifier',
    () => hash,
  ),
  told(
    '§2.8',
    'witness: the timestamp',
    'witnesses another timestamp',
    'typed_data.message.witness.timestamp',
    plus(1n),
  ),
  told(
    '§2.8',
    'ancillary bytes are preserved exactly',
    'witnesses trimmed ancillary data',
    'typed_data.message.witness.ancillaryData',
    shorter,
  ),
  told(
    '§2.8',
    'witness: proposedPrice',
    'witnesses the price of another outcome',
    'typed_data.message.witness.proposedPrice',
    (price) => (price === '0' ? priceOf.p2 : '0'),
  ),
  told(
    '§2.8',
    'witness: maxPayment is 0',
    'witnesses a payment',
    'typed_data.message.witness.maxPayment',
    () => '1',
  ),
]

/** One nonce, one preparation: whoever comes next with it is refused. */
const reserving = (refuses: (call: Call) => boolean) => () => {
  const nonces = new Set<unknown>()
  return answers(
    (call) => {
      const nonce = at(call.body, 'permit', 'nonce')
      const isKnown = nonce !== undefined && nonces.has(nonce) && refuses(call)
      if (isSigningData(call)) nonces.add(nonce)
      return isKnown
    },
    () => refusal(409, 'nonce_reserved'),
  )
}

const route: readonly Fault[] = [
  fault('§4.1', 'signing data is 200', 'answers signing data with 201', () =>
    answers(
      (call, code) => isSigningData(call) && code === 200,
      (json) => answer(201, json),
    ),
  ),
  fault(
    '§4.1 rule 2',
    'signing data is stateless',
    'gives signing data once a nonce',
    reserving(isSigningData),
  ),
  fault(
    '§4.1 rule 2',
    'signing data reserves no nonce',
    'refuses to submit with a nonce that was prepared',
    reserving(isSingle),
  ),
  fault(
    '§4.1 rule 2',
    'signing data does not admit',
    'takes a preparation for the payload of its wallet',
    () => {
      const prepared = new Map<string, unknown>()
      return answers(
        (call) => {
          const key = `${/0x[0-9a-f]{64}/.exec(call.path)?.[0]} ${call.body.proposer}`
          if (isSigningData(call)) prepared.set(key, call.body.outcome)
          return isSingle(call) && prepared.has(key) && prepared.get(key) !== call.body.outcome
        },
        () => refusal(409, 'candidate_conflict'),
      )
    },
  ),
  fault('§2.1', 'signing data takes the body of a proposal', 'prepares for outcome p4', () =>
    takes(isSigningData, (body) =>
      ['p1', 'p2', 'p3'].includes(String(body.outcome)) ? body : { ...body, outcome: 'p2' },
    ),
  ),
  fault('§2.1', 'signing data takes the body of a proposal', 'prepares without a version', () =>
    takes(isSigningData, (body) => ({ version, ...body })),
  ),
  fault('§2.1', 'signing data takes the body of a proposal', 'prepares a payment', () =>
    takes(isSigningData, (body) => ({ ...body, max_payment: '0' })),
  ),
  fault(
    '§2.1',
    'signing data takes the body without signature',
    'wants a signature to prepare',
    () =>
      answers(
        (call) => isSigningData(call) && call.body.signature === undefined,
        () => refusal(422, 'schema_violation'),
      ),
  ),
  fault('§2.1', 'an allowed outcome may be proposed', 'prepares p2 only', () =>
    answers(
      (call) => isSigningData(call) && call.body.outcome === 'p1',
      () => refusal(422, 'outcome_not_allowed'),
    ),
  ),
  fault(
    '§2.1',
    'the deadline is at least five minutes ahead',
    'wants ten minutes, preparing',
    (now) =>
      answers(
        (call) => isSigningData(call) && isSoon(call, now() + 600),
        () => refusal(422, 'permit_deadline_too_soon'),
      ),
  ),
  fault(
    '§2.1',
    'the amount is at least the total bond',
    'wants one unit more than the bond, preparing',
    () => {
      let bond = ''
      return async (request, next) => {
        const response = await next(request)
        const json = (await response.clone().json()) as Json
        const told = at(json, 'economics', 'total_bond')
        if (typeof told === 'string') bond = told
        return bond !== '' && at(json, 'permit', 'amount') === bond
          ? refusal(422, 'permit_amount_below_required_bond')
          : response
      }
    },
  ),
]

const version = { api: 'v1', schema: 'signed-proposal-v1', witness: 'permit2-signed-proposer-v1' }
const isSoon = (call: Call, soonestSeconds: number) =>
  Number(at(call.body, 'permit', 'deadline')) < soonestSeconds

const contexts: readonly Fault[] = [
  fault('§4.2', 'contexts are 200', 'answers contexts with 207', () =>
    answers(
      (call, code) => isContexts(call) && code === 200,
      (json) => answer(207, json),
    ),
  ),
  ...['question_id', 'request', 'price', 'bond', 'contracts', 'signing'].map((name) =>
    item('§2.7', 'the fields of a context', `leaves ${name} out of a context`, name, gone),
  ),
  ...['oracle', 'requester', 'timestamp', 'ancillary_data'].map((name) =>
    item(
      '§2.7',
      'request: oracle, requester, timestamp, ancillary bytes',
      `leaves request.${name} out of a context`,
      `request.${name}`,
      gone,
    ),
  ),
  item('§2.7', 'bond.token', 'leaves the token out of a context', 'bond.token', gone),
  item(
    '§2.7',
    'bond.required_bond',
    'leaves the bond out of a context',
    'bond.required_bond',
    gone,
  ),
  item(
    '§2.7',
    'bond.required_bond',
    'tells a required bond that is higher',
    'bond.required_bond',
    plus(1n),
  ),
  item(
    '§2.7',
    'bond.required_bond',
    'tells a required bond that is lower',
    'bond.required_bond',
    plus(-1n),
  ),
  fault('§2.7', 'bond.required_bond', 'tells another bond on both routes', () =>
    tells(
      (call) => isContexts(call) || isSigningData(call),
      (json) => {
        for (const one of listAt(json, 'results'))
          raise(at(one, 'signing_data', 'bond'), 'required_bond')
        raise(json.economics, 'total_bond')
      },
    ),
  ),
  item('§2.7', 'bond.token', 'tells another token in a context', 'bond.token', () => zero),
  item(
    '§2.7',
    'contracts.permit2',
    'names another Permit2 in a context',
    'contracts.permit2',
    () => zero,
  ),
  item(
    '§2.7',
    'contracts.signed_proposer',
    'names another SignedProposer in a context',
    'contracts.signed_proposer',
    () => zero,
  ),
  item('§2.7', 'signing.chain_id', 'names another chain in a context', 'signing.chain_id', () => 1),
  item(
    '§2.7',
    'signing: the chain id',
    'leaves the chain out of a context',
    'signing.chain_id',
    gone,
  ),
  item(
    '§2.7',
    'signing: maximum payment',
    'leaves the maximum payment out',
    'signing.max_payment',
    gone,
  ),
  item(
    '§2.7',
    'signing: maximum payment',
    'tells a maximum payment',
    'signing.max_payment',
    () => '1',
  ),
  item(
    '§2.7',
    'signing: witness type definitions',
    'leaves the types out of a context',
    'signing.types',
    gone,
  ),
  item(
    '§2.8',
    'the witness',
    'leaves a member out of the witness',
    'signing.types.Proposal',
    (list) => (Array.isArray(list) ? list.slice(1) : []),
  ),
  item(
    '§2.8',
    'the witness',
    'leaves the witness out of the permit',
    'signing.types.PermitWitnessTransferFrom',
    (list) => (list as unknown[]).slice(0, -1),
  ),
  item('§2.7', 'price.allowed_values', 'allows no price', 'price.allowed_values', () => []),
  item(
    '§2.7',
    'price.allowed_values are numerical',
    'allows outcome keys',
    'price.allowed_values',
    () => ['p1', 'p2'],
  ),
  item(
    '§2.2',
    'only the binary mapping',
    'allows the index of a winner',
    'price.allowed_values',
    () => ['0', '1', '2'],
  ),
  fault(
    '§2.7',
    'identifier.raw is distinct from the question id',
    'tells the question id as identifier.raw',
    () =>
      tells(isContexts, (json) => {
        for (const one of listAt(json, 'results'))
          put(at(one, 'signing_data', 'identifier'), {
            raw: at(one, 'signing_data', 'question_id'),
          })
      }),
  ),
  item(
    '§2.7',
    'the question id',
    'tells another question id in a context',
    'question_id',
    () => hash,
  ),
  item(
    '§2.7',
    'request: oracle',
    'tells another oracle in a context',
    'request.oracle',
    () => zero,
  ),
  item(
    '§2.7',
    'request: requester',
    'tells another requester in a context',
    'request.requester',
    () => zero,
  ),
  item(
    '§2.7',
    'request: timestamp',
    'tells an older round in a context',
    'request.timestamp',
    plus(-60n),
  ),
  item(
    '§2.8',
    'ancillary bytes are preserved exactly',
    'trims the ancillary data of a context',
    'request.ancillary_data',
    shorter,
  ),
  fault(
    '§2.7',
    'the original identifier',
    'leaves the identifier of a result out',
    drop(isContexts, 'results.*.identifier'),
  ),
  fault('§2.7', 'the original identifier', 'tells question ids for slugs', () =>
    tells(isContexts, (json) => {
      for (const one of listAt(json, 'results'))
        put(one, { identifier: at(one, 'signing_data', 'question_id') ?? at(one, 'identifier') })
    }),
  ),
  fault(
    '§2.7',
    'status_code 200',
    'leaves the status_code of a context out',
    drop(isContexts, 'results.*.status_code'),
  ),
  fault(
    '§2.7',
    'status_code 200',
    'tells status_code as text',
    alter(isContexts, 'results.*.status_code', text),
  ),
  fault(
    '§2.7',
    'error in place of signing_data',
    'leaves the error of an unknown question out',
    drop(isContexts, 'results.*.error'),
  ),
  fault(
    '§7 rule 4',
    'item errors have code and detail',
    'leaves the detail of an unknown question out',
    drop(isContexts, 'results.*.error.detail'),
  ),
  fault(
    '§4.2 rule 3',
    'a completed call is 200',
    'fails a whole call for one unknown question',
    () =>
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
