import { compareServersTypedData, hashedRound } from '#client/propose/intent'
import {
  checkContext,
  outcomesFor,
  type QuestionContext,
  requestOf,
  signingDataOf,
  type Trust,
} from '#client/trust/trust'
import { outcomeKeys, outcomeOf, priceOf } from '#protocol/proposal'
import type { SignedProposal } from '#protocol/schema'
import { domainType, encodedTypes, primaryType, toHex, witnessTypes } from '#protocol/witness'
import {
  about,
  allows,
  type Bench,
  chainRound,
  given,
  onceARun,
  outcomeFor,
  read,
  rulesOf,
  type Step,
  trusting,
} from './bench.js'
import { refusing } from './conventions.js'
import {
  absentOr,
  at,
  batchOf,
  integer,
  is,
  listAt,
  malformed,
  notSeen,
  type Seen,
} from './probe.js'

/** More than the bond, to see a figure that the gateway puts there. */
const prepared = onceARun(async ({ prepare, send, context }) => {
  const call = prepare({ permit: { amount: (raw: string) => String(BigInt(raw) + 1n) } })
  return { seen: await send(call), own: context(), body: call.body as SignedProposal }
})
type Prepared = Awaited<ReturnType<typeof prepared>>

const totalBond = 'economics.~total\\w*bond|bond'
const maxAuthorization = 'economics.~max\\w*auth|auth'

const valuesOf = (one: unknown): readonly unknown[] => (is.structure(one) ? Object.values(one) : [])
const equals = (own: string) => (value: unknown) => integer(value) === own

const proposes = ({ body: { outcome } }: Prepared) => ({
  proposal: (proposal: unknown) => valuesOf(proposal).includes(outcome),
  'proposal.~price': equals(priceOf[outcome]),
})

/** The domain's may be left out. */
function sameTypes(actual: unknown) {
  const own = { ...witnessTypes, ...domainType }
  const text = (types: unknown, name: string) =>
    JSON.stringify(listAt(types, name).map((one) => [at(one, 'name'), at(one, 'type')]))
  return Object.keys({ ...Object(actual), ...witnessTypes }).every(
    (name) => Object.hasOwn(own, name) && text(actual, name) === text(own, name),
  )
}

/** As lists, or in one text (EIP-712). */
function tellsTypes(signing: unknown) {
  const lists = valuesOf(signing).filter((one) => valuesOf(one).some(Array.isArray))
  return lists.length > 0
    ? lists.some(sameTypes)
    : valuesOf(signing).some((one) => is.text(one) && one.includes(encodedTypes.proposal))
}

/** A list or an object; what is not listed beside others is not available (§2.2). */
const outcomesIn = (seen: Seen) =>
  Object.entries(seen.at('outcomes') ?? {}).flatMap(([name, one]) => {
    const key = outcomeKeys.find((each) => name === each || valuesOf(one).includes(each))
    const told = Object.entries(one ?? {})
      .filter(([name]) => !/outcome|key|label|price/.test(name))
      .find(([name, value]) => is.flag(value) || /avail|allow|enabl|state|status/.test(name))?.[1]
    const isAllowed = is.text(told) ? !/^(un|no|dis|den|forb|closed)/i.test(told) : told
    return key ? [{ key, label: at(one, 'label'), price: at(one, '~price'), isAllowed }] : []
  })

/** The digest and the types of this body (§2.8). */
async function matches({ trust, seen, own, body }: Bench & Prepared) {
  const terms = { price: priceOf[body.outcome], ...body.permit }
  const digest = toHex(hashedRound(trust, own).witness.digest(terms))
  const typed_data = seen.at('typed_data') ?? null
  await trusting(() => compareServersTypedData({ ...own, typed_data }, () => digest))
  return { 'typed_data.primaryType': primaryType, 'typed_data.types': sameTypes }
}

const pinnedContracts: Step = ({ trust: { permit2, signed_proposer } }) => ({
  'contracts.permit2': permit2,
  'contracts.signed_proposer': signed_proposer,
})

const contexts = async (bench: Bench) => {
  const whole = bench.contexts().given(200)
  whole.must(whole.codes.every(Number.isInteger))
  const given = whole.results.filter((one) => one.at('status_code') === 200)
  if (given.length === 0) notSeen('no question is open')
  const all = given.map((one) => one.in('signing_data'))
  return trusting(() => all.map((seen) => ({ seen, own: read(seen.json) })))
}

const halfIsAllowed = (trust: Trust, context: QuestionContext) =>
  outcomesFor(trust, context).some(({ outcome, allowed }) => outcome === 'p3' && allowed)

const ofPreparation = about([prepared, given], {
  '2.4-fields: it has question_id, proposal, outcomes, permit, token, contracts, typed_data': [
    {
      'proposal.label': is.word,
      'token.symbol': is.text,
      'token.address contracts.permit2 contracts.signed_proposer': is.address,
      'outcomes permit typed_data.domain typed_data.types typed_data.message': is.structure,
    },
    ({ own }) => ({ question_id: own.question_id }),
  ],
  "2.4-request: request is the question's, with its ancillary data": ({ seen, own }) => {
    const facts = { ...own, identifier: undefined, request: seen.at('request') }
    const wanted = JSON.stringify(requestOf(own))
    return trusting(() => JSON.stringify(requestOf(signingDataOf(facts))) === wanted)
  },
  '2.4-proposal: proposal has the outcome asked for, and its price': proposes,
  '9-signing-data-version: signing-data carries the version': { version: is.version },
  '1-integers-as-text: Solidity integers are decimal strings in v1': [
    { [`request.~timestamp proposal.~price ${totalBond} ${maxAuthorization}`]: is.uint },
    ({ seen }) => outcomesIn(seen).every(({ price }) => price === undefined || is.uint(price)),
  ],
  '2.4-chain-id-text: typed_data.domain.chainId is a decimal string': ({ trust }) => ({
    'typed_data.domain.chainId': String(trust.chain_id),
  }),
  '2.4-decimals-number: token.decimals is a JSON number': {
    'token.decimals': (value: unknown) => is.index(value) && Number(value) < 256,
  },
  "2.4-token: token is the bond's, with its decimals": [
    ({ own }) => ({ 'token.address': own.bond.token }),
    async (bench) => {
      const round = await chainRound(bench, bench.own)
      return round && { 'token.decimals': round.token.decimals }
    },
  ],
  "2.4-permit-preserved: permit preserves the caller's terms": ({ body: { permit }, seen }) =>
    Object.entries(permit).every(([name, own]) => seen.at(`permit.${name}`) === own),
  '2.4-contracts: contracts are Permit2 and SignedProposer': pinnedContracts,
  '2.4-total-bond: economics has the total bond, which amounts must reach': [
    ({ own }) => ({ [totalBond]: equals(own.bond.required_bond) }),
    // Amounts need not be judged here; if so, by that bond.
    async ({ own, prepare, send }) => {
      const bond = BigInt(own.bond.required_bond)
      const isBelow = async (raw: bigint) => {
        const seen = await send(prepare({ permit: { amount: String(raw) } }))
        return seen.at('error.code') === 'permit_amount_below_required_bond'
      }
      const isLower = bond > 1n && (await isBelow(1n)) && !(await isBelow(bond - 1n))
      return !isLower && !(await isBelow(bond))
    },
    3,
  ],
  '2.4-max-authorization: maximum authorization is >= permit.amount': ({ seen, body, onNote }) => {
    const { amount } = body.permit
    const most = integer(seen.at(maxAuthorization)) ?? -1
    if (most !== amount)
      onNote?.('the maximum authorization is not permit.amount, as ours is; §2.4 leaves that open')
    return BigInt(most) >= BigInt(amount)
  },
  '2.4-typed-data: typed_data is the complete EIP-712 payload of §2.8': matches,
  '2.8-no-domain-version: the domain has no version': {
    'typed_data.domain.version typed_data.domain.salt': undefined,
  },
  '2.2-outcome-prices: p1 is 0, p2 is 1e18, p3 is 0.5e18': ({ seen }) =>
    outcomesIn(seen).every(({ key, price }) => equals(priceOf[key])(price)),
  '2.2-outcome-labels: outcomes give labels and availability': ({ seen, own }) => {
    const actual = outcomesIn(seen)
    const unsaid = actual.length < outcomeKeys.length || undefined
    seen.must(actual.length > 0)
    return actual.every(
      ({ key, label, isAllowed = unsaid }) => is.word(label) && isAllowed === allows(own, key),
    )
  },
  '2.2-allowed-outcomes: allowed outcomes can be prepared, each with its price; no other': [
    ({ prepare }) => outcomeKeys.map((outcome) => prepare({ outcome }, `outcome ${outcome}`)),
    ({ own, body }) => (allows(own, body.outcome) ? [200] : malformed),
    async (known) =>
      known.seen.status === 200 ? { ...proposes(known), ...(await matches(known)) } : true,
    3,
  ],
  ...refusing('prepare', {
    '2.1-prepare-outcome: outcome is p1, p2 or p3 in signing-data': 'p4',
    '2.1-prepare-version: version is required in signing-data': 'missing',
    '2.1-prepare-max-payment: max_payment is "0" in signing-data': '1',
  }),
  '2.1-deadline-enough: a deadline five minutes ahead is enough': [
    // Clocks may differ by a minute.
    ({ nowSeconds, prepare }) =>
      prepare({ permit: { deadline: String(nowSeconds() + 360) } }, 'a deadline in 6 minutes'),
    [200],
  ],
  '4.1.2-stateless: signing-data reserves no nonce': [
    ({ prepare }) => {
      const call = prepare()
      return [call, { ...call, wrong: 'a nonce that was prepared before' }]
    },
    [200],
    2,
  ],
})

const ofContexts = about([contexts], {
  '2.7-signing-data-fields: a context has question_id, request, bond, contracts, signing, identifier.raw':
    { question_id: is.hash },
  '2.7-as-pinned: oracle, requester, token and ancillary bytes are as pinned': async ({
    own,
    trust,
    questions,
    nowSeconds,
  }) => {
    await trusting(() => checkContext(trust, own, nowSeconds()))
    return questions.some(({ questionId }) => questionId === own.question_id)
  },
  '2.7-as-on-chain: request and bond of a context are as on chain': async (bench) =>
    is.given(await chainRound(bench, bench.own)) || notSeen('no node was given: add --rpc-url'),
  '2.7-allowed-prices: price.allowed_values are what the request allows': [
    { 'price.allowed_values.0': is.there },
    ({ own, trust }) =>
      own.price.allowed_values.every(outcomeOf) &&
      (!allows(own, 'p3') || halfIsAllowed(trust, own)),
  ],
  '2.7-identifier-raw: identifier.raw is the oracle identifier, not the question id': [
    ({ own }) => own.identifier.raw !== own.question_id,
    ({ own }) => ({ 'request.identifier.raw': absentOr(own.identifier.raw) }),
  ],
  '2.7-contracts: contracts and signing.chain_id are as pinned': [
    pinnedContracts,
    ({ trust }) => ({ 'signing.chain_id': equals(String(trust.chain_id)) }),
  ],
  '2.8-witness-types: signing has the types of §2.8, maximum payment 0': {
    signing: tellsTypes,
    'signing.~payment': equals('0'),
  },
})

export const signingDataRules = rulesOf('read', {
  '4.1-signing-data: signing-data takes a body without signature: 200': [
    prepared,
    ({ seen, wallets }) =>
      wallets.length > 0 || seen.status !== 403
        ? [200]
        : notSeen('this gateway wants an eligible wallet; none was given'),
  ],
  ...ofPreparation,
  '2.2-p3-permission: p3 is available only where the rules permit it': [
    ({ open, trust, prepare }) => {
      const context =
        open().find((one) => !halfIsAllowed(trust, one)) ?? notSeen('every question permits p3')
      return prepare({ outcome: outcomeFor(context) }, undefined, context.question_id)
    },
    given,
    ({ seen }) => outcomesIn(seen).find(({ key }) => key === 'p3')?.isAllowed !== true,
  ],
  '4.1.3-no-idempotency-key: there is no idempotency-key header': [
    ({ newId, prepare }) => {
      const key = { 'idempotency-key': newId() }
      const calls = [prepare(), prepare({}, 'the Idempotency-Key of another body')]
      return calls.map((call) => ({ ...call, headers: { ...call.headers, ...key } }))
    },
    given,
    ({ body }) => ({ 'permit.nonce': at(body, 'permit.nonce') }),
    2,
  ],
  '4.2-signing-data: the batch is 200, one for each identifier': [
    (bench) => bench.contexts(),
    [200],
    ({ questions: { length } }) => ({ 'results.length': length }),
    ({ seen: { codes } }) => codes.includes(200),
    5,
  ],
  ...ofContexts,
  '2.7-identifier-echoed: a context echoes the identifier': [
    ({ context }) => batchOf('contexts', [context().slug ?? context().question_id]),
    given,
    ({ body }) => ({ 'results.0.identifier': at(body, 'identifiers.0') }),
  ],
})
