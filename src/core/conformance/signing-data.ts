/** What the v1 preparation and the batch of contexts answer, against pins, chain and our own types. */
import { domainOf } from '#chain/round'
import { hashedRound } from '#client/propose/terms'
import { confirmByChain } from '#client/trust/context'
import {
  contractsOf,
  outcomesByText,
  type QuestionContext,
  requestOf,
  type Trust,
} from '#client/trust/trust'
import { ProposerError } from '#protocol/errors'
import { outcomeKeys, outcomeOf, priceOf } from '#protocol/proposal'
import type { OutcomeKey } from '#protocol/schema'
import { primaryType, toHex, typedData } from '#protocol/witness'
import type { Bench } from './admissions.js'
import {
  type AnswerFacts,
  at,
  eachFact,
  integer,
  is,
  listAt,
  malformed,
  memberOf,
  NotSeen,
  type Seen,
} from './answer.js'
import { type Body, chainRound, distrust, outcomeFor } from './bench.js'
import { refusing } from './bodies.js'
import { routes } from './probe.js'
import {
  outcomesIn,
  rawIdentifier,
  readContext,
  requestFacts,
  sameTypes,
  typesStatus,
} from './readers.js'
import { about, has, hasVersion, type ProbeExchange, rulesOf } from './rule.js'

const prepared: ProbeExchange = async (bench) => (await bench.signingData()).given(200)

/** The total among the members of economics, which may have its parts too. */
const totalBond = (seen: Seen) =>
  memberOf(seen.at('economics'), /total.*bond/) ?? memberOf(seen.at('economics'), /bond/)
const maxAuthorization = (seen: Seen) =>
  memberOf(seen.at('economics'), /max.*auth/) ?? memberOf(seen.at('economics'), /auth/)

/** `proposal` has this outcome and its price, whatever its members are called. */
function proposalFacts(seen: Seen, outcome: OutcomeKey): AnswerFacts {
  const actual = seen.at('proposal')
  return {
    'the outcome of proposal is missing or differs':
      is.structure(actual) && Object.values(actual).includes(outcome),
    [`proposal gives ${outcome} another price`]:
      integer(memberOf(actual, /price/)) === priceOf[outcome],
  }
}

const outcomeIn = (body: Body) => body.outcome as OutcomeKey

/** With keys in order and numbers as text, so that two objects can be compared by what they say. */
function asText(value: unknown) {
  return JSON.stringify(value, (_key, member: unknown) => {
    if (typeof member === 'number') return String(member)
    if (!is.structure(member) || Array.isArray(member)) return member
    return Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
  })
}

/** Fault unless `typed_data` is what this body is signed by (§2.8); the digest. */
async function expectTypedData(bench: Bench, seen: Seen, body: Body) {
  const context = await bench.context()
  const { amount, nonce, deadline } = body.permit
  const terms = {
    price: priceOf[outcomeIn(body)],
    amount: String(amount),
    nonce: String(nonce),
    deadline: String(deadline),
  }
  const { witness } = hashedRound(bench.trust, context)
  const contracts = domainOf(contractsOf(bench.trust))
  const { domain, message } = typedData(contracts, requestOf(context), context.bond.token, terms)
  const actual = (path: string) => seen.at(`typed_data.${path}`)
  seen.holds({
    'typed_data.domain.name is not Permit2': actual('domain.name') === domain.name,
    'typed_data names another chain': integer(actual('domain.chainId')) === domain.chainId,
    'typed_data names another Permit2':
      actual('domain.verifyingContract') === domain.verifyingContract,
    [`typed_data.primaryType is not ${primaryType}`]: actual('primaryType') === primaryType,
    'typed_data.types are not those of §2.8': sameTypes(actual('types')),
    // How integers are written is another rule's.
    'typed_data.message does not match the context of the question':
      asText(actual('message')) === asText(message),
  })
  return toHex(witness.digest(terms))
}

const contractFacts = (actual: unknown, trust: Trust): AnswerFacts =>
  eachFact(['permit2', 'signed_proposer'] as const, (name) => [
    `contracts.${name} is not the pinned one`,
    at(actual, name) === trust[name],
  ])

const prepares = 'signing-data takes the body of a proposal'

export const preparationRules = rulesOf('read', {
  '4.1-signing-data': [
    'signing-data takes the proposal without signature and answers 200',
    (bench) => bench.signingData(),
    (seen, { wallets }) => {
      if (wallets.length === 0 && seen.status === 403)
        throw new NotSeen('no eligible wallet was given, and this gateway requires one')
      return seen.expect(200)
    },
  ],
  ...about(prepared, {
    '2.4-fields': [
      'signing-data names question, request, proposal, outcomes, permit, token, economics, contracts and typed_data',
      has({
        question_id: is.hash,
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
      }),
      async (seen, bench) => ({
        'question_id differs': seen.at('question_id') === (await bench.context()).question_id,
      }),
    ],
    '2.4-request': [
      'request is the oracle request of the question, its ancillary data included',
      'as in the context',
      async (seen, bench) => {
        const { request } = await bench.context()
        const own: Record<string, unknown> = { ...request, identifier: request.identifier.raw }
        return eachFact(Object.entries(requestFacts(seen.at('request'))), ([field, actual]) => [
          `${field} of request is missing, or not that of the question's context`,
          actual === own[field],
        ])
      },
    ],
    '2.4-proposal': [
      'proposal has the outcome that was asked for, and its price',
      async (seen, bench) => proposalFacts(seen, outcomeIn(await bench.signingBody())),
      async (_seen, bench) => outcomeIn(await bench.signingBody()),
    ],
    '9-signing-data-version': ['signing-data carries the version', hasVersion],
    '1-integers-as-text': [
      'Solidity integers are decimal strings in v1',
      'decimal strings',
      (seen) => {
        const message = (path: string, name = path.replace('witness.', '')) =>
          [`${name} of typed_data`, seen.at(`typed_data.message.${path}`)] as const
        const actual: readonly (readonly [string, unknown])[] = [
          ['the timestamp of request', memberOf(seen.at('request'), /timestamp/)],
          ['the price of proposal', memberOf(seen.at('proposal'), /price/)],
          ['the total bond in economics', totalBond(seen)],
          ['the maximum authorization in economics', maxAuthorization(seen)],
          message('permitted.amount'),
          ...outcomesIn(seen.json).map(
            ({ key, price }) => [`the price of ${key} in outcomes`, price] as const,
          ),
          ...['nonce', 'deadline'].map((name) => message(name)),
          ...['timestamp', 'proposedPrice', 'maxPayment'].map((name) => message(`witness.${name}`)),
        ]
        // What is missing is another rule's.
        return eachFact(actual, ([name, value]) => [
          `${name} is not a decimal string`,
          value === undefined || is.uint(value),
        ])
      },
    ],
    '2.4-chain-id-text': [
      'typed_data.domain.chainId is a decimal string',
      (seen, { trust }) => ({
        'typed_data.domain.chainId is not the pinned chain as a decimal string':
          seen.at('typed_data.domain.chainId') === String(trust.chain_id),
      }),
      (seen) => String(seen.at('typed_data.domain.chainId')),
    ],
    '2.4-decimals-number': [
      'token.decimals is a JSON number',
      'a number',
      (seen) => {
        const actual = seen.at('token.decimals')
        return {
          'token.decimals is not a JSON number that a token can have':
            Number.isInteger(actual) && Number(actual) >= 0 && Number(actual) < 256,
        }
      },
    ],
    '2.4-token': [
      'token is the token of the bond, with its decimals',
      async (seen, bench) => ({
        'token.address is not the token of the bond':
          seen.at('token.address') === (await bench.context()).bond.token,
      }),
      async (seen, bench) => {
        if (bench.chain === undefined) return 'the token; its decimals need a node (--rpc-url)'
        const round = await chainRound(bench, (await bench.context()).question_id)
        const decimals = round?.token.decimals
        const isSame = decimals === undefined || seen.at('token.decimals') === decimals
        seen.holds({ [`token.decimals is not ${decimals}, as the chain says`]: isSame })
        return 'the token and its decimals'
      },
    ],
    '2.4-permit-preserved': [
      "permit holds the caller's terms, preserved",
      'amount, nonce, deadline',
      async (seen, bench) => {
        const { permit } = await bench.signingBody()
        return eachFact(['amount', 'nonce', 'deadline'], (field) => [
          `permit.${field} is not what was sent`,
          seen.at(`permit.${field}`) === permit[field],
        ])
      },
    ],
    '2.4-contracts': [
      'contracts are Permit2 and SignedProposer',
      'as pinned',
      (seen, { trust }) => contractFacts(seen.at('contracts'), trust),
    ],
  }),
  '2.4-total-bond': [
    'economics has the current total bond, which an amount must reach',
    prepared,
    async (seen, bench) => {
      const { required_bond } = (await bench.context()).bond
      const actual = integer(totalBond(seen))
      seen.holds({
        'economics has no total bond': actual !== undefined,
        "the total bond is not bond.required_bond of the question's context":
          actual === required_bond,
      })
      // A gateway need not judge amounts here. One that does must draw the line where it says.
      const belowBond = 'permit_amount_below_required_bond'
      const judged = async (amount: string) => {
        const one = await bench.prepare({ permit: { amount } }, `permit.amount ${amount}`)
        return { one, isBelow: one.at('error.code') === belowBond }
      }
      const exact = await judged(required_bond)
      exact.one.holds({ [`got ${belowBond} for the reported bond`]: !exact.isBelow })
      if (BigInt(required_bond) < 2n || !(await judged('1')).isBelow) return required_bond
      const { one, isBelow } = await judged(String(BigInt(required_bond) - 1n))
      const lower = `got ${one.came}, expected ${belowBond}: the bond is lower than reported`
      one.holds({ [lower]: isBelow })
      return required_bond
    },
    3,
  ],
  ...about(prepared, {
    '2.4-max-authorization': [
      'economics has the maximum authorization, which the accepted amount does not exceed',
      async (seen, bench) => {
        const { amount } = (await bench.signingBody()).permit
        const actual = integer(maxAuthorization(seen))
        seen.holds({
          'economics has no maximum authorization': actual !== undefined,
          'the maximum authorization is below the accepted amount':
            BigInt(actual ?? 0) >= BigInt(String(amount)),
        })
        if (actual !== amount)
          bench.onNote?.(
            'the maximum authorization is not permit.amount, as our own gateway has it; §2.4 leaves that open',
          )
        return String(actual)
      },
    ],
    '2.4-typed-data': [
      'typed_data is the complete EIP-712 payload of §2.8',
      async (seen, bench) => expectTypedData(bench, seen, await bench.signingBody()),
    ],
    '2.8-no-domain-version': [
      'the domain has no version',
      'name, chainId, verifyingContract',
      (seen) => ({
        'typed_data.domain has a version or a salt': !['version', 'salt'].some((name) =>
          is.there(seen.at(`typed_data.domain.${name}`)),
        ),
      }),
    ],
    '2.2-outcome-prices': [
      'p1 is 0, p2 is 1e18, p3 is 0.5e18',
      'as mapped',
      ({ json }) =>
        eachFact(outcomesIn(json), ({ key, price }) => [
          `outcomes give ${key} another price`,
          integer(price) === priceOf[key],
        ]),
    ],
    '2.2-outcome-labels': [
      'outcomes give labels and availability',
      async ({ json }, bench) => {
        const actual = outcomesIn(json)
        const { allowed_values } = (await bench.context()).price
        return {
          'outcomes has none of p1, p2 and p3': actual.length > 0,
          'an outcome has no label': actual.every(({ label }) => is.word(label)),
          'outcomes do not give availability':
            actual.length < outcomeKeys.length || actual.every((one) => is.flag(one.isAllowed)),
          ...eachFact(actual, ({ key, isAllowed = true }) => [
            `outcomes and price.allowed_values differ about ${key}`,
            isAllowed === allowed_values.includes(priceOf[key]),
          ]),
        }
      },
      ({ json }) =>
        outcomesIn(json)
          .map(({ key }) => key)
          .join(', '),
    ],
  }),
  '2.2-allowed-outcomes': [
    'each outcome listed as allowed can be prepared, with its own price; no other can',
    async (bench) => {
      const { price } = await bench.context()
      const keys = outcomeKeys.filter((key) => price.allowed_values.includes(priceOf[key]))
      await prepared(bench)
      for (const outcome of outcomeKeys) {
        const body = { ...(await bench.proposal()), outcome }
        const seen = await bench.prepare(body, `outcome ${outcome}`)
        const isAllowed = keys.includes(outcome)
        seen.expect(...(isAllowed ? [200] : malformed))
        if (!isAllowed) continue
        seen.holds(proposalFacts(seen, outcome))
        await expectTypedData(bench, seen, body)
      }
      return keys.join(', ')
    },
    3,
  ],
  '2.2-p3-permission': [
    "p3 needs permission in the request's rules and support in the settlement contract",
    async (bench) => {
      const context = (await bench.open()).find((one) => !halfIsAllowed(bench.trust, one))
      if (context === undefined) throw new NotSeen('every question permits p3')
      const body = { ...(await bench.proposal()), outcome: outcomeFor(context) }
      const seen = (await bench.send(routes.prepare(context.question_id, body))).given(200)
      const half = outcomesIn(seen.json).find(({ key }) => key === 'p3')
      const fault = "p3 is listed as allowed, but the request's text does not permit it"
      seen.holds({ [fault]: half?.isAllowed !== true })
      return 'not allowed, as the text says'
    },
  ],
  ...refusing('preparation', {
    '2.1-prepare-outcome': [`${prepares}: outcome is p1, p2 or p3`, 'outcome p4'],
    '2.1-prepare-version': [`${prepares}: version is required`, 'no version'],
    '2.1-prepare-max-payment': [`${prepares}: max_payment must be "0"`, 'max_payment 1'],
  }),
  '2.1-deadline-enough': [
    'a permit.deadline of five minutes beyond admission is enough',
    async (bench) => {
      await prepared(bench)
      // A minute for the way there and for clocks that differ.
      const deadline = String(bench.nowSeconds() + 360n)
      return bench.prepare({ permit: { deadline } }, 'a deadline six minutes ahead')
    },
    [200],
  ],
  '4.1.2-stateless': [
    'signing-data is stateless: it reserves no nonce',
    async (bench) => {
      await prepared(bench)
      const body = await bench.proposal()
      ;(await bench.prepare(body)).given(200)
      ;(await bench.prepare(body, 'a nonce that was prepared before')).expect(200)
      return 'the same twice'
    },
    2,
  ],
  '4.1.3-no-idempotency-key': [
    'there is no idempotency-key header',
    async (bench) => {
      const headers = { 'idempotency-key': bench.ports.random.uuid() }
      ;(await bench.prepare({}, undefined, headers)).given(200)
      const body = await bench.proposal()
      const seen = await bench.prepare(body, 'the Idempotency-Key of another body', headers)
      const isOwn = seen.at('permit.nonce') === body.permit.nonce
      seen.holds({ 'the answer is that to another body': isOwn })
      return 'without meaning'
    },
    2,
  ],
})

const dataIn = ({ results }: Seen): readonly unknown[] =>
  results.filter((one) => at(one, 'status_code') === 200).map((one) => at(one, 'signing_data'))

const contexts: ProbeExchange = async (bench) => {
  const seen = (await bench.contexts()).given(200)
  if (dataIn(seen).length > 0) return seen
  // Another builder's word for it is not known: every result that is no error must have its code.
  seen.holds({ 'results have no status_code': seen.codes.every(Number.isInteger) })
  throw new NotSeen('no question is open')
}

const hasNoHalf = ({ price }: QuestionContext) => !price.allowed_values.includes(priceOf.p3)
const halfIsAllowed = (trust: Trust, context: QuestionContext) =>
  outcomesByText(trust, context).some(({ outcome, allowed }) => outcome === 'p3' && allowed)
const pricesIn = (seen: Seen) => listAt(dataIn(seen)[0], 'price.allowed_values')

export const contextRules = rulesOf('read', {
  '4.2-signing-data': [
    'the batch of contexts answers 200',
    (bench) => bench.contexts(),
    [200],
    ({ codes, listed }, { questions: { length } }) => ({
      [`got ${codes.length} results for ${length} items`]: codes.length === length,
      [`none of the questions that were given was answered 200: ${listed}`]: codes.includes(200),
    }),
    5,
  ],
  ...about(contexts, {
    '2.7-signing-data-fields': [
      'a context has question, request, bond, contracts, signing and identifier.raw',
      'all named',
      (seen) => {
        const missing = dataIn(seen).map(readContext).find(is.text)
        return {
          [`got a context in which ${missing} is missing or malformed`]: missing === undefined,
        }
      },
    ],
    '2.7-as-pinned': [
      'a context is that of the question: oracle, requester, token and ancillary bytes as pinned',
      'as pinned',
      (seen, { trust, questions, nowSeconds }) => {
        const all = dataIn(seen)
        for (const data of all) {
          const read = readContext(data)
          if (is.text(read)) throw new NotSeen(`${read} is missing`)
          const error = distrust(trust, read, Number(nowSeconds()))
          if (error?.code === 'untrusted_timestamp') throw new NotSeen(error.detail)
          if (error !== undefined) return { [error.detail]: false }
        }
        const asked = new Set<unknown>(questions.map(({ questionId }) => questionId))
        return {
          'question_id is not one of those requested': all.every((data) =>
            asked.has(at(data, 'question_id')),
          ),
          'request.question_id is not question_id': all.every((data) => {
            const again = at(data, 'request.question_id')
            return !is.text(again) || again === at(data, 'question_id')
          }),
        }
      },
    ],
    '2.7-as-on-chain': [
      'request and bond of a context are those of the chain',
      async (_seen, { chain, trust, context }) => {
        const own = await context()
        if (chain === undefined) throw new NotSeen('no node was given: add --rpc-url')
        try {
          await confirmByChain(chain, trust, own)
        } catch (error) {
          if (!(error instanceof ProposerError)) throw error
          if (error.code.startsWith('untrusted_')) return { [error.detail]: false }
          throw new NotSeen(error.detail)
        }
        return 'as the node reports it'
      },
    ],
    '2.7-allowed-prices': [
      'price.allowed_values are the numerical prices that the request allows',
      (seen, { trust }) => {
        const actual = pricesIn(seen)
        return {
          'price.allowed_values is missing or empty': actual.length > 0,
          'price.allowed_values has a price outside the binary mapping': actual.every(
            (price) => is.text(price) && outcomeOf(price) !== undefined,
          ),
          "price.allowed_values has 0.5, which the request's text does not permit": dataIn(seen)
            .map(readContext)
            .every((one) => is.text(one) || hasNoHalf(one) || halfIsAllowed(trust, one)),
        }
      },
      (seen) => pricesIn(seen).join(', '),
    ],
    '2.7-identifier-raw': [
      'identifier.raw is the oracle identifier, distinct from the question id',
      'distinct',
      (seen) => {
        const [first] = dataIn(seen)
        const raw = rawIdentifier(first)
        return {
          'identifier.raw is the question id': raw !== at(first, 'question_id'),
          'identifier.raw is not that of the request':
            raw === (at(first, 'request.identifier.raw') ?? raw),
        }
      },
    ],
    '2.7-contracts': [
      'contracts and signing.chain_id are those to sign for',
      'as pinned',
      (seen, { trust }) => {
        const [first] = dataIn(seen)
        return {
          ...contractFacts(at(first, 'contracts'), trust),
          'signing.chain_id is not the pinned chain':
            integer(at(first, 'signing.chain_id')) === String(trust.chain_id),
        }
      },
    ],
    '2.8-witness-types': [
      'the witness types are those of Permit2 and SignedProposer, maxPayment is 0',
      'as hashed on chain',
      (seen) => {
        const signing = at(dataIn(seen)[0], 'signing')
        const types = typesStatus(signing)
        return {
          [`the witness type definitions in signing are ${types}`]: types === 'same',
          'the maximum payment in signing is missing or not "0"':
            integer(memberOf(signing, /payment/i)) === '0',
        }
      },
    ],
  }),
  '2.7-identifier-echoed': [
    'a context carries the original identifier',
    async (bench) => {
      const { question_id, slug = question_id } = await bench.context()
      const seen = (await bench.batch('contexts', [slug])).given(200)
      const isEchoed = seen.at('results.0.identifier') === slug
      seen.holds({ 'the requested identifier is not echoed': isEchoed })
      return slug
    },
  ],
})
