/**
 * Rules of §2.2, §2.4 and §2.8: what the signing data of the v1 route says, held against the pins
 * and our own typed data.
 */
import { domainOf } from '../chain/round.js'
import { requestOf } from '../client/propose/prepare.js'
import { contractsOf } from '../client/trust/trust.js'
import type { Hex } from '../ports.js'
import { outcomeKeys, priceOf } from '../protocol/proposal.js'
import type { OutcomeKey } from '../protocol/schema.js'
import {
  domainType,
  primaryType,
  toHex,
  typedData,
  wireTypes,
  witnessRound,
} from '../protocol/witness.js'
import type { Bench, Body } from './bench.js'
import { requestFacts } from './context.js'
import { expectContracts, sameTypes } from './contexts.js'
import {
  at,
  came,
  expectStatus,
  expectThat,
  given,
  NotSeen,
  type Rule,
  rule,
  type Seen,
} from './rule.js'
import {
  expectMembers,
  expectVersion,
  integer,
  isAddress,
  isHash,
  isUint,
  isWord,
  memberOf,
} from './shapes.js'

export const prepared = async (bench: Bench): Promise<Seen> => given(await bench.signingData(), 200)

/** Sends the body of a preparation with a change to it. */
export async function prepare(
  bench: Bench,
  change: (body: Body) => unknown,
  wrong?: string,
  headers?: Record<string, string>,
): Promise<Seen> {
  const { question_id } = await bench.context()
  return bench.probe.send({
    method: 'POST',
    path: `/v1/proposals/${question_id}/signing-data`,
    body: change(await bench.proposal()),
    ...(wrong === undefined ? {} : { wrong }),
    ...(headers === undefined ? {} : { headers }),
  })
}
export const withPermit = (changes: Record<string, string>) => (body: Body) => ({
  ...body,
  permit: { ...body.permit, ...changes },
})
const asked = (body: Body) => body.outcome as OutcomeKey

interface ToldOutcome {
  readonly key: OutcomeKey
  readonly label: unknown
  readonly price: unknown
  /** `undefined`: not told. */
  readonly isAllowed: boolean | undefined
}

/**
 * §2.2: labels and availability by key, as a list or an object; what is not listed beside others is
 * not available.
 */
export function outcomesIn(json: unknown): readonly ToldOutcome[] {
  const told = at(json, 'outcomes')
  const entries: readonly (readonly [unknown, unknown])[] = Array.isArray(told)
    ? told.map((one) => [
        at(one, 'outcome') ?? outcomeKeys.find((key) => Object.values(one as object).includes(key)),
        one,
      ])
    : Object.entries((told ?? {}) as object)
  return entries.flatMap(([key, one]) => {
    const known = outcomeKeys.find((each) => each === key)
    return known === undefined
      ? []
      : [
          {
            key: known,
            label: at(one, 'label'),
            price: at(one, 'price'),
            isAllowed: isAllowed(one),
          },
        ]
  })
}

function isAllowed(one: unknown): boolean | undefined {
  if (typeof one !== 'object' || one === null) return undefined
  const rest = Object.entries(one).filter(([name]) => !/^(outcome|key|label|price)$/.test(name))
  const flag = rest.find(
    ([name, value]) => typeof value === 'boolean' || /avail|allow|enabl|state|status/.test(name),
  )?.[1]
  return flag === undefined
    ? undefined
    : typeof flag === 'boolean'
      ? flag
      : !/^(un|no|dis|den|forb|closed)/i.test(String(flag))
}

/** What the v1 route answers. */
const answerRules: readonly Rule[] = [
  rule(
    '4.1-signing-data',
    '§4.1',
    'read',
    'signing-data takes the proposal without signature and answers 200',
    async (bench) => {
      const seen = await bench.signingData()
      if (bench.wallets.length === 0 && seen.status === 403)
        throw new NotSeen('no eligible wallet is given, and this gateway asks for one')
      return expectStatus(seen, 200)
    },
  ),
  rule(
    '2.4-fields',
    '§2.4',
    'read',
    'signing-data names question, request, proposal, outcomes, permit, token, economics, contracts and typed_data',
    async (bench) => {
      const seen = await prepared(bench)
      expectMembers(seen, {
        question_id: isHash,
        'proposal.outcome': isWord,
        'proposal.label': isWord,
        'proposal.price': (price) => integer(price) !== undefined,
        outcomes: (told) => typeof told === 'object' && told !== null,
        permit: (told) => typeof told === 'object' && told !== null,
        'token.address': isAddress,
        'token.symbol': (told) => typeof told === 'string',
        'contracts.permit2': isAddress,
        'contracts.signed_proposer': isAddress,
        'typed_data.domain': (told) => typeof told === 'object' && told !== null,
        'typed_data.types': (told) => typeof told === 'object' && told !== null,
        'typed_data.message': (told) => typeof told === 'object' && told !== null,
      })
      expectThat(
        at(seen.json, 'question_id') === (await bench.context()).question_id,
        seen,
        'question_id is another one',
      )
      return 'all named'
    },
  ),
  rule(
    '2.4-request',
    '§2.4',
    'read',
    'request is the oracle request of the question, its ancillary data included',
    async (bench) => {
      const seen = await prepared(bench)
      const { request } = await bench.context()
      const own = { ...request, identifier: request.identifier.raw }
      for (const [field, told] of Object.entries(requestFacts(at(seen.json, 'request')))) {
        expectThat(
          told === own[field as keyof typeof own],
          seen,
          `${field} of request is missing, or not that of the question's context`,
        )
      }
      return 'as in the context'
    },
  ),
  rule(
    '2.4-proposal',
    '§2.4',
    'read',
    'proposal has the outcome that was asked for, and its price',
    async (bench) => {
      const seen = await prepared(bench)
      const outcome = asked(await bench.signingBody())
      expectThat(
        at(seen.json, 'proposal', 'outcome') === outcome,
        seen,
        'proposal.outcome is another one',
      )
      expectThat(
        integer(at(seen.json, 'proposal', 'price')) === priceOf[outcome],
        seen,
        `proposal gives ${outcome} another price`,
      )
      return outcome
    },
  ),
  rule('9-signing-data-version', '§9', 'read', 'signing-data carries the version', async (bench) =>
    expectVersion(await prepared(bench)),
  ),
  rule(
    '1-integers-as-text',
    '§1',
    'read',
    'Solidity integers are decimal strings in v1',
    async (bench) => {
      const seen = await prepared(bench)
      const { json } = seen
      const message = at(json, 'typed_data', 'message')
      const told: readonly (readonly [string, unknown])[] = [
        ['the timestamp of request', memberOf(at(json, 'request'), /timestamp/)],
        ['proposal.price', at(json, 'proposal', 'price')],
        ...outcomesIn(json).map(
          ({ key, price }) => [`the price of ${key} in outcomes`, price] as const,
        ),
        ['the total bond in economics', memberOf(at(json, 'economics'), /bond/)],
        ['the maximum authorization in economics', memberOf(at(json, 'economics'), /auth/)],
        ['permitted.amount of typed_data', at(message, 'permitted', 'amount')],
        ...['nonce', 'deadline'].map(
          (name) => [`${name} of typed_data`, at(message, name)] as const,
        ),
        ...['timestamp', 'proposedPrice', 'maxPayment'].map(
          (name) => [`${name} of typed_data`, at(message, 'witness', name)] as const,
        ),
      ]
      // What is missing is another rule's.
      for (const [name, value] of told)
        expectThat(value === undefined || isUint(value), seen, `${name} is no decimal string`)
      return 'decimal strings'
    },
  ),
  rule(
    '2.4-chain-id-text',
    '§2.4',
    'read',
    'typed_data.domain.chainId is a decimal string',
    async (bench) => {
      const seen = await prepared(bench)
      const told = at(seen.json, 'typed_data', 'domain', 'chainId')
      expectThat(
        told === String(bench.trust.chain_id),
        seen,
        'typed_data.domain.chainId is not the pinned chain as a decimal string',
      )
      return String(told)
    },
  ),
  rule('2.4-decimals-number', '§2.4', 'read', 'token.decimals is a JSON number', async (bench) => {
    const seen = await prepared(bench)
    const told = at(seen.json, 'token', 'decimals')
    expectThat(
      Number.isInteger(told) && Number(told) >= 0 && Number(told) < 256,
      seen,
      'token.decimals is no JSON number that a token can have',
    )
    return 'a number'
  }),
  rule(
    '2.4-token',
    '§2.4',
    'read',
    'token is the token of the bond, with its decimals',
    async (bench) => {
      const seen = await prepared(bench)
      const { bond, question_id } = await bench.context()
      expectThat(
        at(seen.json, 'token', 'address') === bond.token,
        seen,
        'token.address is not the token of the bond',
      )
      const { chain, trust } = bench
      if (chain === undefined) return 'the token; its decimals need a node (--rpc-url)'
      const { createRoundReader } = await import('../chain/questions.js')
      const round = await createRoundReader(chain, contractsOf(trust)).read(question_id as Hex)
      const decimals = round?.token.decimals
      expectThat(
        decimals === undefined || at(seen.json, 'token', 'decimals') === decimals,
        seen,
        `token.decimals is not ${decimals}, as the chain says`,
      )
      return 'the token and its decimals'
    },
  ),
  rule(
    '2.4-permit-preserved',
    '§2.4',
    'read',
    "permit holds the caller's terms, preserved",
    async (bench) => {
      const seen = await prepared(bench)
      const { permit } = await bench.signingBody()
      for (const field of ['amount', 'nonce', 'deadline']) {
        expectThat(
          at(seen.json, 'permit', field) === permit[field],
          seen,
          `permit.${field} is not what was sent`,
        )
      }
      return 'amount, nonce, deadline'
    },
  ),
  rule('2.4-contracts', '§2.4', 'read', 'contracts are Permit2 and SignedProposer', async (bench) =>
    expectContracts(bench, await prepared(bench), at((await prepared(bench)).json, 'contracts')),
  ),
]

const belowBond = 'permit_amount_below_required_bond'

/** The economics: §2.4, and §7's code for what is below the bond. */
const bondRules: readonly Rule[] = [
  rule(
    '2.4-total-bond',
    '§2.4',
    'read',
    'economics has the current total bond, which an amount must reach',
    async (bench) => {
      const seen = await prepared(bench)
      const { bond } = await bench.context()
      const told = integer(memberOf(at(seen.json, 'economics'), /bond/))
      expectThat(told !== undefined, seen, 'economics has no total bond')
      expectThat(
        told === bond.required_bond,
        seen,
        "the total bond is not bond.required_bond of the question's context",
      )
      // A gateway need not judge amounts here. One that does must draw the line where it says.
      const judged = async (amount: string) => {
        const one = await prepare(bench, withPermit({ amount }), `permit.amount ${amount}`)
        return { one, isBelow: at(one.json, 'error', 'code') === belowBond }
      }
      const exact = await judged(bond.required_bond)
      expectThat(!exact.isBelow, exact.one, `came ${belowBond} for the bond that was told`)
      if (BigInt(bond.required_bond) < 2n || !(await judged('1')).isBelow) return bond.required_bond
      const less = await judged(String(BigInt(bond.required_bond) - 1n))
      expectThat(
        less.isBelow,
        less.one,
        `came ${came(less.one)}, not ${belowBond}: the bond is lower than was told`,
      )
      return bond.required_bond
    },
    3,
  ),
  rule(
    '2.4-max-authorization',
    '§2.4',
    'read',
    'economics has the maximum authorization, which the amount that was taken does not exceed',
    async (bench) => {
      const seen = await prepared(bench)
      const { permit } = await bench.signingBody()
      const told = integer(memberOf(at(seen.json, 'economics'), /auth/))
      expectThat(told !== undefined, seen, 'economics has no maximum authorization')
      expectThat(
        BigInt(told ?? 0) >= BigInt(String(permit.amount)),
        seen,
        'the maximum authorization is below the amount that was taken',
      )
      if (told !== permit.amount)
        bench.onNote?.(
          'the maximum authorization is not permit.amount, as our own gateway has it; §2.4 leaves that open',
        )
      return String(told)
    },
  ),
]

/** What is to be signed. */
const typedDataRules: readonly Rule[] = [
  rule(
    '2.4-typed-data',
    '§2.4',
    'read',
    'typed_data is the complete EIP-712 payload of §2.8',
    async (bench) => {
      const seen = await prepared(bench)
      const told = at(seen.json, 'typed_data')
      const context = await bench.context()
      const body = await bench.signingBody()
      const { amount, nonce, deadline } = body.permit
      const terms = {
        price: priceOf[asked(body)],
        amount: String(amount),
        nonce: String(nonce),
        deadline: String(deadline),
      }
      const contracts = domainOf(contractsOf(bench.trust))
      const ours = typedData(contracts, requestOf(context), context.bond.token as Hex, terms)
      const domain = at(told, 'domain')
      expectThat(
        at(domain, 'name') === ours.domain.name,
        seen,
        'typed_data.domain.name is not Permit2',
      )
      expectThat(
        integer(at(domain, 'chainId')) === ours.domain.chainId,
        seen,
        'typed_data names another chain',
      )
      expectThat(
        at(domain, 'verifyingContract') === ours.domain.verifyingContract,
        seen,
        'typed_data names another Permit2',
      )
      expectThat(
        at(told, 'primaryType') === primaryType,
        seen,
        `typed_data.primaryType is not ${primaryType}`,
      )
      expectThat(
        sameTypes(at(told, 'types'), { ...wireTypes(false), ...domainType }),
        seen,
        'typed_data.types are not those of §2.8',
      )
      // How integers are written is another rule's.
      expectThat(
        asText(at(told, 'message')) === asText(ours.message),
        seen,
        'typed_data.message is not what the context of the question makes',
      )
      return toHex(
        witnessRound(contracts, requestOf(context), context.bond.token as Hex).digest(terms),
      )
    },
  ),
  rule('2.8-no-domain-version', '§2.8', 'read', 'the domain has no version', async (bench) => {
    const seen = await prepared(bench)
    const domain = at(seen.json, 'typed_data', 'domain')
    expectThat(
      at(domain, 'version') === undefined && at(domain, 'salt') === undefined,
      seen,
      'typed_data.domain has a version or a salt',
    )
    return 'name, chainId, verifyingContract'
  }),
]

/** What was asked for by the v1 route. */
export const signingDataRules: readonly Rule[] = [...answerRules, ...bondRules, ...typedDataRules]

/** With keys in order and numbers as text, so that two objects can be compared by what they say. */
function asText(value: unknown): string {
  return JSON.stringify(value, (_key, member: unknown) => {
    if (typeof member === 'number') return String(member)
    if (typeof member !== 'object' || member === null || Array.isArray(member)) return member
    return Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
  })
}
