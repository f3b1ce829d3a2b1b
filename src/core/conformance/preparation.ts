/** What the v1 preparation answers, against the pins and our own typed data. */
import { domainOf } from '../chain/round.js'
import { requestOf } from '../client/propose/terms.js'
import { contractsOf } from '../client/trust/trust.js'
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
import { expectContracts, halfIsAllowed, outcomesIn, requestFacts, sameTypes } from './contexts.js'
import { routes } from './probe.js'
import {
  at,
  came,
  expectMembers,
  expectStatus,
  expectThat,
  expectVersion,
  fitsAddress,
  given,
  integer,
  isHash,
  isStructure,
  isText,
  isUint,
  isWord,
  malformed,
  memberOf,
  NotSeen,
  type Run,
  rule,
  rulesOf,
  type Seen,
} from './rule.js'

export const prepared = async (bench: Bench): Promise<Seen> => given(await bench.signingData(), 200)

/** Sends the body of a preparation with a change to it. */
export async function prepareChanged(
  bench: Bench,
  change: (body: Body) => unknown,
  wrong?: string,
  headers?: Record<string, string>,
): Promise<Seen> {
  const { question_id } = await bench.context()
  const call = routes.prepare(question_id, change(await bench.proposal()), wrong)
  return bench.probe.send({ ...call, ...(headers && { headers }) })
}

export const withPermit =
  (changes: Readonly<Record<string, unknown>>) =>
  (body: Body): Body => ({ ...body, permit: { ...body.permit, ...changes } })

/** The total among the members of economics, which may have its parts too. */
const totalBond = (json: unknown) =>
  memberOf(at(json, 'economics'), /total.*bond/) ?? memberOf(at(json, 'economics'), /bond/)
const maxAuthorization = (json: unknown) =>
  memberOf(at(json, 'economics'), /max.*auth/) ?? memberOf(at(json, 'economics'), /auth/)

/** Fault unless `proposal` has this outcome and its price, whatever its members are called. */
export function expectProposal(seen: Seen, outcome: OutcomeKey): string {
  const actual = at(seen.json, 'proposal')
  const isNamed = isStructure(actual) && Object.values(actual).includes(outcome)
  expectThat(isNamed, seen, 'the outcome of proposal is missing or differs')
  const isPrice = integer(memberOf(actual, /price/)) === priceOf[outcome]
  expectThat(isPrice, seen, `proposal gives ${outcome} another price`)
  return outcome
}

const outcomeIn = (body: Body) => body.outcome as OutcomeKey
const belowBond = 'permit_amount_below_required_bond'

/** With keys in order and numbers as text, so that two objects can be compared by what they say. */
function asText(value: unknown): string {
  return JSON.stringify(value, (_key, member: unknown) => {
    if (typeof member === 'number') return String(member)
    if (!isStructure(member) || Array.isArray(member)) return member
    return Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
  })
}

/** Fault unless `typed_data` is what this body is signed by (§2.8); the digest. */
export async function expectTypedData(bench: Bench, seen: Seen, body: Body): Promise<string> {
  const actual = at(seen.json, 'typed_data')
  const context = await bench.context()
  const { amount, nonce, deadline } = body.permit
  const terms = {
    price: priceOf[outcomeIn(body)],
    amount: String(amount),
    nonce: String(nonce),
    deadline: String(deadline),
  }
  const contracts = domainOf(contractsOf(bench.trust))
  const token = context.bond.token
  const ours = typedData(contracts, requestOf(context), token, terms)
  const domain = at(actual, 'domain')
  const { name, chainId, verifyingContract } = ours.domain
  const isPermit2 = at(domain, 'verifyingContract') === verifyingContract
  const areTypes = sameTypes(at(actual, 'types'), { ...wireTypes(false), ...domainType })
  expectThat(at(domain, 'name') === name, seen, 'typed_data.domain.name is not Permit2')
  const isChain = integer(at(domain, 'chainId')) === chainId
  expectThat(isChain, seen, 'typed_data names another chain')
  expectThat(isPermit2, seen, 'typed_data names another Permit2')
  const isPrimary = at(actual, 'primaryType') === primaryType
  expectThat(isPrimary, seen, `typed_data.primaryType is not ${primaryType}`)
  expectThat(areTypes, seen, 'typed_data.types are not those of §2.8')
  // How integers are written is another rule's.
  const isMessage = asText(at(actual, 'message')) === asText(ours.message)
  expectThat(isMessage, seen, 'typed_data.message does not match the context of the question')
  return toHex(witnessRound(contracts, requestOf(context), token).digest(terms))
}

export const preparationRules = rulesOf('read', {
  '4.1-signing-data': rule(
    'signing-data takes the proposal without signature and answers 200',
    async (bench) => {
      const seen = await bench.signingData()
      if (bench.wallets.length === 0 && seen.status === 403)
        throw new NotSeen('no eligible wallet was given, and this gateway requires one')
      return expectStatus(seen, 200)
    },
  ),
  '2.4-fields': rule(
    'signing-data names question, request, proposal, outcomes, permit, token, economics, contracts and typed_data',
    async (bench) => {
      const seen = await prepared(bench)
      expectMembers(seen, {
        question_id: isHash,
        'proposal.label': isWord,
        outcomes: isStructure,
        permit: isStructure,
        'token.address': fitsAddress,
        'token.symbol': isText,
        'contracts.permit2': fitsAddress,
        'contracts.signed_proposer': fitsAddress,
        'typed_data.domain': isStructure,
        'typed_data.types': isStructure,
        'typed_data.message': isStructure,
      })
      const { question_id } = await bench.context()
      expectThat(at(seen.json, 'question_id') === question_id, seen, 'question_id differs')
      return 'all named'
    },
  ),
  '2.4-request': rule(
    'request is the oracle request of the question, its ancillary data included',
    async (bench) => {
      const seen = await prepared(bench)
      const { request } = await bench.context()
      const own: Readonly<Record<string, unknown>> = {
        ...request,
        identifier: request.identifier.raw,
      }
      for (const [field, actual] of Object.entries(requestFacts(at(seen.json, 'request')))) {
        const fault = `${field} of request is missing, or not that of the question's context`
        expectThat(actual === own[field], seen, fault)
      }
      return 'as in the context'
    },
  ),
  '2.4-proposal': rule(
    'proposal has the outcome that was asked for, and its price',
    async (bench) => {
      const seen = await prepared(bench)
      return expectProposal(seen, outcomeIn(await bench.signingBody()))
    },
  ),
  '9-signing-data-version': rule('signing-data carries the version', async (bench) =>
    expectVersion(await prepared(bench)),
  ),
  '1-integers-as-text': rule('Solidity integers are decimal strings in v1', async (bench) => {
    const seen = await prepared(bench)
    const { json } = seen
    const message = at(json, 'typed_data', 'message')
    const actual: Record<string, unknown> = {
      'the timestamp of request': memberOf(at(json, 'request'), /timestamp/),
      'the price of proposal': memberOf(at(json, 'proposal'), /price/),
      'the total bond in economics': totalBond(json),
      'the maximum authorization in economics': maxAuthorization(json),
      'permitted.amount of typed_data': at(message, 'permitted', 'amount'),
    }
    for (const { key, price } of outcomesIn(json)) actual[`the price of ${key} in outcomes`] = price
    for (const name of ['nonce', 'deadline']) actual[`${name} of typed_data`] = at(message, name)
    for (const name of ['timestamp', 'proposedPrice', 'maxPayment'])
      actual[`${name} of typed_data`] = at(message, 'witness', name)
    // What is missing is another rule's.
    for (const [name, value] of Object.entries(actual))
      expectThat(value === undefined || isUint(value), seen, `${name} is not a decimal string`)
    return 'decimal strings'
  }),
  '2.4-chain-id-text': rule('typed_data.domain.chainId is a decimal string', async (bench) => {
    const seen = await prepared(bench)
    const actual = at(seen.json, 'typed_data', 'domain', 'chainId')
    const fault = 'typed_data.domain.chainId is not the pinned chain as a decimal string'
    expectThat(actual === String(bench.trust.chain_id), seen, fault)
    return String(actual)
  }),
  '2.4-decimals-number': rule('token.decimals is a JSON number', async (bench) => {
    const seen = await prepared(bench)
    const actual = at(seen.json, 'token', 'decimals')
    const isDecimals = Number.isInteger(actual) && Number(actual) >= 0 && Number(actual) < 256
    expectThat(isDecimals, seen, 'token.decimals is not a JSON number that a token can have')
    return 'a number'
  }),
  '2.4-token': rule('token is the token of the bond, with its decimals', async (bench) => {
    const seen = await prepared(bench)
    const { bond, question_id } = await bench.context()
    const actual = at(seen.json, 'token')
    const isToken = at(actual, 'address') === bond.token
    expectThat(isToken, seen, 'token.address is not the token of the bond')
    const { chain, trust } = bench
    if (chain === undefined) return 'the token; its decimals need a node (--rpc-url)'
    const { createRoundReader } = await import('../chain/questions.js')
    const round = await createRoundReader(chain, contractsOf(trust)).read(question_id)
    const decimals = round?.token.decimals
    const isSame = decimals === undefined || at(actual, 'decimals') === decimals
    expectThat(isSame, seen, `token.decimals is not ${decimals}, as the chain says`)
    return 'the token and its decimals'
  }),
  '2.4-permit-preserved': rule("permit holds the caller's terms, preserved", async (bench) => {
    const seen = await prepared(bench)
    const { permit } = await bench.signingBody()
    for (const field of ['amount', 'nonce', 'deadline']) {
      const isSame = at(seen.json, 'permit', field) === permit[field]
      expectThat(isSame, seen, `permit.${field} is not what was sent`)
    }
    return 'amount, nonce, deadline'
  }),
  '2.4-contracts': rule('contracts are Permit2 and SignedProposer', async (bench) => {
    const seen = await prepared(bench)
    return expectContracts(bench, seen, at(seen.json, 'contracts'))
  }),
  '2.4-total-bond': rule(
    'economics has the current total bond, which an amount must reach',
    3,
    async (bench) => {
      const seen = await prepared(bench)
      const { required_bond } = (await bench.context()).bond
      const actual = integer(totalBond(seen.json))
      expectThat(actual !== undefined, seen, 'economics has no total bond')
      const other = "the total bond is not bond.required_bond of the question's context"
      expectThat(actual === required_bond, seen, other)
      // A gateway need not judge amounts here. One that does must draw the line where it says.
      const judged = async (amount: string) => {
        const one = await prepareChanged(bench, withPermit({ amount }), `permit.amount ${amount}`)
        return { one, isBelow: at(one.json, 'error', 'code') === belowBond }
      }
      const exact = await judged(required_bond)
      expectThat(!exact.isBelow, exact.one, `got ${belowBond} for the reported bond`)
      if (BigInt(required_bond) < 2n || !(await judged('1')).isBelow) return required_bond
      const less = await judged(String(BigInt(required_bond) - 1n))
      const lower = `got ${came(less.one)}, expected ${belowBond}: the bond is lower than reported`
      expectThat(less.isBelow, less.one, lower)
      return required_bond
    },
  ),
  '2.4-max-authorization': rule(
    'economics has the maximum authorization, which the accepted amount does not exceed',
    async (bench) => {
      const seen = await prepared(bench)
      const { amount } = (await bench.signingBody()).permit
      const actual = integer(maxAuthorization(seen.json))
      expectThat(actual !== undefined, seen, 'economics has no maximum authorization')
      const isEnough = BigInt(actual ?? 0) >= BigInt(String(amount))
      expectThat(isEnough, seen, 'the maximum authorization is below the accepted amount')
      if (actual !== amount)
        bench.onNote?.(
          'the maximum authorization is not permit.amount, as our own gateway has it; §2.4 leaves that open',
        )
      return String(actual)
    },
  ),
  '2.4-typed-data': rule('typed_data is the complete EIP-712 payload of §2.8', async (bench) =>
    expectTypedData(bench, await prepared(bench), await bench.signingBody()),
  ),
  '2.8-no-domain-version': rule('the domain has no version', async (bench) => {
    const seen = await prepared(bench)
    const domain = at(seen.json, 'typed_data', 'domain')
    const isBare = at(domain, 'version') === undefined && at(domain, 'salt') === undefined
    expectThat(isBare, seen, 'typed_data.domain has a version or a salt')
    return 'name, chainId, verifyingContract'
  }),
})

const refusesBody =
  (wrong: string, change: (body: Body) => unknown): Run =>
  async (bench) => {
    await prepared(bench)
    return expectStatus(await prepareChanged(bench, change, wrong), ...malformed)
  }

export const signingDataRules = rulesOf('read', {
  '2.2-outcome-prices': rule('p1 is 0, p2 is 1e18, p3 is 0.5e18', async (bench) => {
    const seen = await prepared(bench)
    for (const { key, price } of outcomesIn(seen.json))
      expectThat(integer(price) === priceOf[key], seen, `outcomes give ${key} another price`)
    return 'as mapped'
  }),
  '2.2-outcome-labels': rule('outcomes give labels and availability', async (bench) => {
    const seen = await prepared(bench)
    const actual = outcomesIn(seen.json)
    expectThat(actual.length > 0, seen, 'outcomes has none of p1, p2 and p3')
    const areNamed = actual.every(({ label }) => isWord(label))
    expectThat(areNamed, seen, 'an outcome has no label')
    const isPartial = actual.length < outcomeKeys.length
    const isTold = isPartial || actual.every((one) => one.isAllowed !== undefined)
    expectThat(isTold, seen, 'outcomes do not give availability')
    const { price } = await bench.context()
    for (const { key, isAllowed: allowed = true } of actual) {
      const isSame = allowed === price.allowed_values.includes(priceOf[key])
      expectThat(isSame, seen, `outcomes and price.allowed_values differ about ${key}`)
    }
    return actual.map(({ key }) => key).join(', ')
  }),
  '2.2-allowed-outcomes': rule(
    'each outcome listed as allowed can be prepared, with its own price; no other can',
    3,
    async (bench) => {
      const { price } = await bench.context()
      const keys = outcomeKeys.filter((key) => price.allowed_values.includes(priceOf[key]))
      await prepared(bench)
      for (const outcome of outcomeKeys) {
        const body = { ...(await bench.proposal()), outcome }
        const seen = await prepareChanged(bench, () => body, `outcome ${outcome}`)
        const isAllowed = keys.includes(outcome)
        expectStatus(seen, ...(isAllowed ? [200] : malformed))
        if (!isAllowed) continue
        expectProposal(seen, outcome)
        await expectTypedData(bench, seen, body)
      }
      return keys.join(', ')
    },
  ),
  '2.2-p3-permission': rule(
    "p3 needs permission in the request's rules and support in the settlement contract",
    async (bench) => {
      const context = (await bench.open()).find((one) => !halfIsAllowed(bench.trust, one))
      if (context === undefined) throw new NotSeen('every question permits p3')
      const outcome = context.price.allowed_values.includes(priceOf.p2) ? 'p2' : 'p1'
      const body = { ...(await bench.proposal()), outcome }
      const seen = given(await bench.probe.send(routes.prepare(context.question_id, body)), 200)
      const half = outcomesIn(seen.json).find(({ key }) => key === 'p3')
      const fault = "p3 is listed as allowed, but the request's text does not permit it"
      expectThat(half?.isAllowed !== true, seen, fault)
      return 'not allowed, as the text says'
    },
  ),
  '2.1-prepare-outcome': rule(
    'signing-data takes the body of a proposal: outcome is p1, p2 or p3',
    refusesBody('outcome p4', (body) => ({ ...body, outcome: 'p4' })),
  ),
  '2.1-prepare-version': rule(
    'signing-data takes the body of a proposal: version is required',
    refusesBody('no version', ({ version: _version, ...body }) => body),
  ),
  '2.1-prepare-max-payment': rule(
    'signing-data takes the body of a proposal: max_payment must be "0"',
    refusesBody('max_payment 1', (body) => ({
      ...body,
      max_payment: '1',
    })),
  ),
  '2.1-deadline-enough': rule(
    'a permit.deadline of five minutes beyond admission is enough',
    async (bench) => {
      await prepared(bench)
      // A minute for the way there and for clocks that differ.
      const deadline = String(bench.nowSeconds() + 360n)
      const wrong = 'a deadline six minutes ahead'
      return expectStatus(await prepareChanged(bench, withPermit({ deadline }), wrong), 200)
    },
  ),
  '4.1.2-stateless': rule('signing-data is stateless: it reserves no nonce', 2, async (bench) => {
    await prepared(bench)
    const body = await bench.proposal()
    given(await prepareChanged(bench, () => body), 200)
    const again = await prepareChanged(bench, () => body, 'a nonce that was prepared before')
    expectStatus(again, 200)
    return 'the same twice'
  }),
  '4.1.3-no-idempotency-key': rule('there is no idempotency-key header', 2, async (bench) => {
    const headers = { 'idempotency-key': bench.ports.random.uuid() }
    given(await prepareChanged(bench, (body) => body, undefined, headers), 200)
    const body = await bench.proposal()
    const seen = await prepareChanged(
      bench,
      () => body,
      'the Idempotency-Key of another body',
      headers,
    )
    const isOwn = at(seen.json, 'permit', 'nonce') === body.permit.nonce
    expectThat(isOwn, seen, 'the answer is that to another body')
    return 'without meaning'
  }),
})
