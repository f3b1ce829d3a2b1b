/** What the v1 preparation and the batch of contexts answer, against pins, chain and our own types. */
import { domainOf } from '#chain/round'
import { hashedRound } from '#client/propose/terms'
import { confirmByChain } from '#client/trust/context'
import {
  contractsOf,
  FactError,
  outcomesByText,
  type QuestionContext,
  requestOf,
  type Trust,
} from '#client/trust/trust'
import { ProposerError } from '#protocol/errors'
import { outcomeKeys, outcomeOf, priceOf } from '#protocol/proposal'
import type { OutcomeKey } from '#protocol/schema'
import {
  domainType,
  encodedTypes,
  primaryType,
  toHex,
  typedData,
  witnessTypes,
} from '#protocol/witness'
import {
  type AnswerFacts,
  at,
  eachFact,
  integer,
  is,
  listAt,
  malformed,
  notSeen,
  type Seen,
} from './answer.js'
import {
  type Bench,
  chainRound,
  lacksHalf,
  outcomeFor,
  rawIdentifier,
  requestFacts,
} from './bench.js'
import { refusing } from './bodies.js'
import { routes } from './probe.js'
import { about, given, rulesOf } from './rule.js'

type Prepared = Awaited<ReturnType<Bench['prepared']>>

const prepared = async (bench: Bench) => {
  const known = await bench.prepared()
  known.seen.given(200)
  return known
}

/** The total among the members of economics, which may have its parts too. */
const totalBond = 'economics.~total*bond|bond'
const maxAuthorization = 'economics.~max*auth|auth'

/** `proposal` has this outcome and its price, whatever its members are called. */
const proposalFacts = (seen: Seen, outcome: OutcomeKey): AnswerFacts => ({
  'the outcome of proposal is missing or differs': valuesOf(seen.at('proposal')).includes(outcome),
  [`proposal gives ${outcome} another price`]:
    integer(seen.at('proposal.~price')) === priceOf[outcome],
})
const valuesOf = (one: unknown): readonly unknown[] => (is.structure(one) ? Object.values(one) : [])
const uintIfThere = (value: unknown) => value === undefined || is.uint(value)

/** With keys in order and numbers as text, so that two objects can be compared by what they say. */
function asText(value: unknown) {
  return JSON.stringify(value, (_key, member: unknown) => {
    if (typeof member === 'number') return String(member)
    if (!is.structure(member) || Array.isArray(member)) return member
    return Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
  })
}

const ownTypes = { ...witnessTypes, ...domainType }
/** Those that are reported must be right, and all but the domain's must be reported. */
function sameTypes(actual: unknown) {
  if (!is.structure(actual)) return false
  const text = (types: unknown, name: string) =>
    JSON.stringify(listAt(types, name).map((one) => [at(one, 'name'), at(one, 'type')]))
  const names = new Set([...Object.keys(actual), ...Object.keys(witnessTypes)])
  return [...names].every(
    (name) => Object.hasOwn(ownTypes, name) && text(actual, name) === text(ownTypes, name),
  )
}

/** Type definitions under whatever name: as member lists, or as EIP-712 writes them in one text. */
function tellsTypes(signing: unknown) {
  const values = valuesOf(signing)
  const lists = values.filter((one) => valuesOf(one).some(Array.isArray))
  return lists.length > 0
    ? lists.some(sameTypes)
    : values.some((text) => is.text(text) && text.includes(encodedTypes.proposal))
}

/**
 * §2.2: labels and availability by key, as a list or an object; what is not listed beside others is
 * not available.
 */
function outcomesIn(json: unknown) {
  return Object.entries(at(json, 'outcomes') ?? {}).flatMap(([name, one]) => {
    const key = outcomeKeys.find((each) => name === each || valuesOf(one).includes(each))
    if (key === undefined) return []
    return [{ key, label: at(one, 'label'), price: at(one, '~price'), isAllowed: isAllowed(one) }]
  })
}

function isAllowed(one: unknown) {
  if (!is.structure(one)) return undefined
  const flag = Object.entries(one)
    .filter(([name]) => !/outcome|key|label|price/.test(name))
    .find(([name, value]) => is.flag(value) || /avail|allow|enabl|state|status/.test(name))
  if (flag === undefined) return undefined
  const [, value] = flag
  return is.flag(value) ? value : !/^(un|no|dis|den|forb|closed)/i.test(String(value))
}

/** Fault unless `typed_data` is what this body is signed by (§2.8); the digest. */
function expectTypedData(trust: Trust, { seen, own, body }: Prepared) {
  const terms = { price: priceOf[body.outcome], ...body.permit }
  const { witness } = hashedRound(trust, own)
  const wanted = typedData(domainOf(contractsOf(trust)), requestOf(own), own.bond.token, terms)
  const typed = seen.in('typed_data')
  typed.holds({
    'domain.name': wanted.domain.name,
    'domain.chainId': (id: unknown) => integer(id) === wanted.domain.chainId,
    'domain.verifyingContract': wanted.domain.verifyingContract,
    primaryType,
    types: sameTypes,
    // How integers are written is another rule's.
    'typed_data.message does not match the context of the question':
      asText(typed.at('message')) === asText(wanted.message),
  })
  return toHex(witness.digest(terms))
}

const pinnedContracts = ({ permit2, signed_proposer }: Trust): AnswerFacts => ({
  'contracts.permit2': permit2,
  'contracts.signed_proposer': signed_proposer,
})

const prepares = 'signing-data takes the body of a proposal'

export const preparationRules = rulesOf('read', {
  '4.1-signing-data': [
    'signing-data takes the proposal without signature and answers 200',
    (bench) => bench.prepared(),
    ({ seen, wallets }) => {
      if (wallets.length > 0 || seen.status !== 403) return seen.expect([200])
      notSeen('no eligible wallet was given, and this gateway requires one')
    },
  ],
  ...about(prepared, {
    '2.4-fields': [
      'signing-data names question, request, proposal, outcomes, permit, token, economics, contracts and typed_data',
      {
        'proposal.label': is.word,
        outcomes: is.structure,
        permit: is.structure,
        'token.address': is.address,
        'token.symbol': is.text,
        'contracts.permit2': is.address,
        'contracts.signed_proposer': is.address,
        'typed_data.domain': is.structure,
        'typed_data.types': is.structure,
        'typed_data.message': is.structure,
      },
      ({ own }) => ({ question_id: own.question_id }),
    ],
    '2.4-request': [
      'request is the oracle request of the question, its ancillary data included',
      ({ seen }) => seen.as({ json: requestFacts(seen.at('request')) }),
      ({ own }) => requestFacts(own.request),
    ],
    '2.4-proposal': [
      'proposal has the outcome that was asked for, and its price',
      ({ seen, body }) => proposalFacts(seen, body.outcome),
    ],
    '9-signing-data-version': ['signing-data carries the version', { version: is.version }],
    '1-integers-as-text': [
      'Solidity integers are decimal strings in v1',
      ({ seen }) => {
        const message = ['permitted.amount', 'nonce', 'deadline'].concat(
          ['timestamp', 'proposedPrice', 'maxPayment'].map((name) => `witness.${name}`),
        )
        const outcomes = Object.keys(seen.at('outcomes') ?? {})
        // What is missing is another rule's.
        return Object.fromEntries(
          ['request.~timestamp', 'proposal.~price', totalBond, maxAuthorization]
            .concat(outcomes.map((one) => `outcomes.${one}.~price`))
            .concat(message.map((path) => `typed_data.message.${path}`))
            .map((path) => [path, uintIfThere]),
        )
      },
    ],
    '2.4-chain-id-text': [
      'typed_data.domain.chainId is a decimal string',
      ({ trust }) => ({ 'typed_data.domain.chainId': String(trust.chain_id) }),
    ],
    '2.4-decimals-number': [
      'token.decimals is a JSON number',
      {
        'token.decimals': (value: unknown) =>
          Number.isInteger(value) && Number(value) >= 0 && Number(value) < 256,
      },
    ],
    '2.4-token': [
      'token is the token of the bond, with its decimals',
      ({ own }) => ({ 'token.address': own.bond.token }),
      async (bench) => {
        const round = await chainRound(bench, bench.own.question_id)
        if (round === undefined) return 'the token; its decimals need a node (--rpc-url)'
        return { 'token.decimals': round.token.decimals }
      },
    ],
    '2.4-permit-preserved': [
      "permit holds the caller's terms, preserved",
      ({ body: { permit } }) =>
        Object.fromEntries(Object.entries(permit).map(([name, own]) => [`permit.${name}`, own])),
    ],
    '2.4-contracts': [
      'contracts are Permit2 and SignedProposer',
      ({ trust }) => pinnedContracts(trust),
    ],
    '2.4-total-bond': [
      'economics has the current total bond, which an amount must reach',
      ({ seen, own }) => ({
        "the total bond is missing, or not bond.required_bond of the question's context":
          integer(seen.at(totalBond)) === own.bond.required_bond,
      }),
      // A gateway need not judge amounts here. One that does must draw the line where it says.
      async ({ own, prepare, send }) => {
        const bond = BigInt(own.bond.required_bond)
        const belowBond = 'permit_amount_below_required_bond'
        const isBelow = async (raw: bigint) => {
          const amount = String(raw)
          const seen = await send(prepare({ permit: { amount } }, `permit.amount ${amount}`))
          return seen.at('error.code') === belowBond
        }
        const isLower = bond > 1n && (await isBelow(1n)) && !(await isBelow(bond - 1n))
        return {
          [`got ${belowBond} for the reported bond`]: !(await isBelow(bond)),
          [`got no ${belowBond} for ${bond - 1n}: the bond is lower than reported`]: !isLower,
        }
      },
      3,
    ],
    '2.4-max-authorization': [
      'economics has the maximum authorization, which the accepted amount does not exceed',
      ({ seen, body, onNote }) => {
        const { amount } = body.permit
        const actual = integer(seen.at(maxAuthorization))
        seen.holds({
          'the maximum authorization is missing, or below the accepted amount':
            BigInt(actual ?? -1) >= BigInt(amount),
        })
        if (actual !== amount)
          onNote?.(
            'the maximum authorization is not permit.amount, as our own gateway has it; §2.4 leaves that open',
          )
        return String(actual)
      },
    ],
    '2.4-typed-data': [
      'typed_data is the complete EIP-712 payload of §2.8',
      (bench) => expectTypedData(bench.trust, bench),
    ],
    '2.8-no-domain-version': [
      'the domain has no version',
      { 'typed_data.domain.version': undefined, 'typed_data.domain.salt': undefined },
    ],
    '2.2-outcome-prices': [
      'p1 is 0, p2 is 1e18, p3 is 0.5e18',
      ({ seen: { json } }) =>
        eachFact(outcomesIn(json), ({ key, price }) => [
          `outcomes give ${key} another price`,
          integer(price) === priceOf[key],
        ]),
    ],
    '2.2-outcome-labels': [
      'outcomes give labels and availability',
      ({ seen: { json }, own }) => {
        const actual = outcomesIn(json)
        return {
          'outcomes has none of p1, p2 and p3': actual.length > 0,
          'an outcome has no label': actual.every(({ label }) => is.word(label)),
          'outcomes do not give availability':
            actual.length < outcomeKeys.length || actual.every((one) => is.flag(one.isAllowed)),
          ...eachFact(actual, ({ key, isAllowed = true }) => [
            `outcomes and price.allowed_values differ about ${key}`,
            isAllowed === own.price.allowed_values.includes(priceOf[key]),
          ]),
        }
      },
    ],
    '2.2-allowed-outcomes': [
      'each outcome listed as allowed can be prepared, with its own price; no other can',
      async (bench) => {
        const { own } = bench
        const keys = outcomeKeys.filter((key) => own.price.allowed_values.includes(priceOf[key]))
        for (const outcome of outcomeKeys) {
          const body = { ...bench.proposal(), outcome }
          const call = routes.prepare(own.question_id, body, `outcome ${outcome}`)
          const seen = await bench.send(call)
          seen.expect(keys.includes(outcome) ? [200] : malformed)
          if (!keys.includes(outcome)) continue
          seen.holds(proposalFacts(seen, outcome))
          expectTypedData(bench.trust, { seen, own, body })
        }
        return keys.join(', ')
      },
      3,
    ],
  }),
  '2.2-p3-permission': [
    "p3 needs permission in the request's rules and support in the settlement contract",
    (bench) => {
      const context =
        bench.open().find((one) => !halfIsAllowed(bench.trust, one)) ??
        notSeen('every question permits p3')
      const body = { ...bench.proposal(), outcome: outcomeFor(context) }
      return routes.prepare(context.question_id, body)
    },
    given,
    ({ seen: { json } }) => ({
      "p3 is listed as allowed, but the request's text does not permit it":
        outcomesIn(json).find(({ key }) => key === 'p3')?.isAllowed !== true,
    }),
  ],
  ...about(prepared, {
    ...refusing('prepare', {
      '2.1-prepare-outcome': [`${prepares}: outcome is p1, p2 or p3`, 'outcome p4'],
      '2.1-prepare-version': [`${prepares}: version is required`, 'no version'],
      '2.1-prepare-max-payment': [`${prepares}: max_payment must be "0"`, 'max_payment 1'],
    }),
    '2.1-deadline-enough': [
      'a permit.deadline of five minutes beyond admission is enough',
      ({ nowSeconds, prepare }) => {
        // A minute for the way there and for clocks that differ.
        const deadline = String(nowSeconds() + 360n)
        return prepare({ permit: { deadline } }, 'a deadline six minutes ahead')
      },
      [200],
    ],
    '4.1.2-stateless': [
      'signing-data is stateless: it reserves no nonce',
      async ({ prepare, send }) => {
        const call = prepare()
        ;(await send(call)).given(200)
        return { ...call, wrong: 'a nonce that was prepared before' }
      },
      [200],
      2,
    ],
  }),
  '4.1.3-no-idempotency-key': [
    'there is no idempotency-key header',
    async (bench) => {
      const headers = { 'idempotency-key': bench.ports.random.uuid() }
      ;(await bench.send({ ...bench.prepare(), headers })).given(200)
      const call = bench.prepare({}, 'the Idempotency-Key of another body')
      const seen = await bench.send({ ...call, headers })
      seen.holds({ 'permit.nonce': at(call.body, 'permit.nonce') })
      return seen
    },
    2,
  ],
})

const nameOf = ({ question_id, slug = question_id }: QuestionContext) => slug

const contexts = (bench: Bench) => {
  const seen = bench.contexts().given(200)
  const all = seen.results
    .filter((one) => at(one, 'status_code') === 200)
    .map((one) => at(one, 'signing_data'))
  if (all.length > 0) return { seen: seen.as({ json: all[0] }), all }
  // Another builder's word for it is not known: every result that is no error must have its code.
  seen.holds({ 'results have no status_code': seen.codes.every(Number.isInteger) })
  notSeen('no question is open')
}

const halfIsAllowed = (trust: Trust, context: QuestionContext) =>
  outcomesByText(trust, context).some(({ outcome, allowed }) => outcome === 'p3' && allowed)

export const contextRules = rulesOf('read', {
  '4.2-signing-data': [
    'the batch of contexts answers 200',
    (bench) => bench.contexts(),
    [200],
    ({ seen: { codes, listed }, questions: { length } }) => ({
      'results.length': length,
      [`none of the questions that were given was answered 200: ${listed}`]: codes.includes(200),
    }),
    5,
  ],
  ...about(contexts, {
    '2.7-signing-data-fields': [
      'a context has question, request, bond, contracts, signing and identifier.raw',
      ({ all, read }) =>
        eachFact(
          all.map(read).filter((one) => one instanceof FactError),
          ({ message }) => [`got a context in which ${message}`, false],
        ),
    ],
    '2.7-as-pinned': [
      'a context is that of the question: oracle, requester, token and ancillary bytes as pinned',
      ({ seen, all }) => all.map((json) => seen.as({ json })),
      ({ seen, read, distrust, questions }) => {
        const context = read(seen.json)
        if (context instanceof FactError) return notSeen(context.message)
        const error = distrust(context)
        if (error?.code === 'untrusted_timestamp') notSeen(error.detail)
        const id = context.question_id
        const again = seen.at('request.question_id')
        return {
          [error?.detail ?? '']: error === undefined,
          'question_id is not one of those requested': questions.some(
            ({ questionId }) => questionId === id,
          ),
          'request.question_id is not question_id': !is.text(again) || again === id,
        }
      },
    ],
    '2.7-as-on-chain': [
      'request and bond of a context are those of the chain',
      async ({ chain, trust, context }) => {
        const own = context()
        if (chain === undefined) return notSeen('no node was given: add --rpc-url')
        try {
          await confirmByChain(chain, trust, own)
        } catch (error) {
          if (!(error instanceof ProposerError)) throw error
          if (error.code.startsWith('untrusted_')) return { [error.detail]: false }
          notSeen(error.detail)
        }
        return 'as the node reports it'
      },
    ],
    '2.7-allowed-prices': [
      'price.allowed_values are the numerical prices that the request allows',
      ({ seen, all, trust, read }) => {
        const prices = listAt(seen.json, 'price.allowed_values')
        seen.holds({
          'price.allowed_values is missing or empty': prices.length > 0,
          'price.allowed_values has a price outside the binary mapping': prices.every(
            (price) => is.text(price) && outcomeOf(price) !== undefined,
          ),
          "price.allowed_values has 0.5, which the request's text does not permit": all
            .map(read)
            .every(
              (one) => one instanceof FactError || lacksHalf(one) || halfIsAllowed(trust, one),
            ),
        })
        return prices.join(', ')
      },
    ],
    '2.7-identifier-raw': [
      'identifier.raw is the oracle identifier, distinct from the question id',
      ({ seen: { json } }) => {
        const raw = rawIdentifier(json)
        return {
          'identifier.raw is the question id': raw !== at(json, 'question_id'),
          'identifier.raw is not that of the request':
            raw === (at(json, 'request.identifier.raw') ?? raw),
        }
      },
    ],
    '2.7-contracts': [
      'contracts and signing.chain_id are those to sign for',
      ({ trust }) => ({
        ...pinnedContracts(trust),
        'signing.chain_id': (id: unknown) => integer(id) === String(trust.chain_id),
      }),
    ],
    '2.8-witness-types': [
      'the witness types are those of Permit2 and SignedProposer, maxPayment is 0',
      ({ seen }) => {
        return {
          'the witness type definitions in signing are missing or other ones': tellsTypes(
            seen.at('signing'),
          ),
          'the maximum payment in signing is missing or not "0"':
            integer(seen.at('signing.~payment')) === '0',
        }
      },
    ],
  }),
  '2.7-identifier-echoed': [
    'a context carries the original identifier',
    ({ context }) => routes.batch('contexts', [nameOf(context())]),
    given,
    ({ context }) => ({ 'results.0.identifier': nameOf(context()) }),
  ],
})
