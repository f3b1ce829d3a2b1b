/** Rules of §2.2, §2.4, §2.7 (contexts) and §2.8: what the preparation routes say, held against the pins and our own typed data. */
import { domainOf } from '../../chain/round.js'
import type { Hex } from '../../ports.js'
import { outcomeKeys, outcomeOf, priceOf } from '../../protocol/proposal.js'
import { BatchSigningData, type OutcomeKey, TypedData } from '../../protocol/schema.js'
import { domainType, toHex, typedData, wireTypes, witnessRound } from '../../protocol/witness.js'
import type { QuestionContext } from '../signing/context.js'
import { requestOf } from '../signing/prepare.js'
import { contractsOf, outcomesByText, type Trust } from '../signing/trust.js'
import type { Bench } from './bench.js'
import { at, expectShape, expectStatus, expectThat, given, listAt, NotSeen, type Rule, rule, type Seen } from './rule.js'
import { IntegersAsText, SigningDataFields, VersionObject } from './shapes.js'

const prepared = async (bench: Bench): Promise<Seen> => given(await bench.signingData(), 200)

/** The first item that carries signing data, as it came. */
async function item(bench: Bench): Promise<{ seen: Seen; data: unknown }> {
  const seen = given(await bench.contexts(), 200)
  const found = listAt(seen.json, 'results').find((one) => at(one, 'status_code') === 200)
  if (found === undefined) throw new NotSeen('no question is open')
  return { seen, data: at(found, 'signing_data') }
}

/** p3 by the request's own text and the requester's kind (domain §5.3). */
const halfIsAllowed = (trust: Trust, context: QuestionContext) =>
  outcomesByText(trust, context).some(({ outcome, allowed }) => outcome === 'p3' && allowed)

/** What was asked for by the v1 route. */
export const signingDataRules: readonly Rule[] = [
  rule('4.1-signing-data', '§4.1', 'read', 'signing-data takes the proposal without signature and answers 200', async (bench) =>
    expectStatus(await bench.signingData(), 200),
  ),
  rule(
    '2.4-fields',
    '§2.4',
    'read',
    'signing-data names question, request, proposal, outcomes, token, economics, contracts and typed_data',
    async (bench) => {
      const seen = await prepared(bench)
      const data = expectShape(seen, SigningDataFields)
      const { question_id } = await bench.context()
      expectThat(data.question_id === question_id, seen, 'question_id is another one')
      return 'all named'
    },
  ),
  rule('9-signing-data-version', '§9', 'read', 'signing-data carries the version', async (bench) => {
    expectShape(await prepared(bench), VersionObject)
    return 'version'
  }),
  rule('1-integers-as-text', '§1', 'read', 'Solidity integers are decimal strings in v1', async (bench) => {
    expectShape(await prepared(bench), IntegersAsText)
    return 'decimal strings'
  }),
  rule('2.4-chain-id-text', '§2.4', 'read', 'typed_data.domain.chainId is a decimal string', async (bench) => {
    const seen = await prepared(bench)
    const told = at(seen.json, 'typed_data', 'domain', 'chainId')
    expectThat(told === String(bench.trust.chain_id), seen, 'typed_data.domain.chainId is not the pinned chain as a decimal string')
    return String(told)
  }),
  rule('2.4-decimals-number', '§2.4', 'read', 'token.decimals is a JSON number', async (bench) => {
    const seen = await prepared(bench)
    expectThat(Number.isInteger(at(seen.json, 'token', 'decimals')), seen, 'token.decimals is no JSON number')
    return 'a number'
  }),
  rule('2.4-permit-preserved', '§2.4', 'read', "permit holds the caller's terms, preserved", async (bench) => {
    const seen = await prepared(bench)
    const { permit } = await bench.signingBody()
    for (const field of ['amount', 'nonce', 'deadline']) {
      expectThat(at(seen.json, 'permit', field) === permit[field], seen, `permit.${field} is not what was sent`)
    }
    return 'amount, nonce, deadline'
  }),
  rule('2.4-contracts', '§2.4', 'read', 'contracts are Permit2 and SignedProposer', async (bench) => {
    const seen = await prepared(bench)
    for (const name of ['permit2', 'signed_proposer'] as const) {
      expectThat(at(seen.json, 'contracts', name) === bench.trust[name], seen, `contracts.${name} is not the pinned one`)
    }
    return 'as pinned'
  }),
  rule('2.4-typed-data', '§2.4', 'read', 'typed_data is the complete EIP-712 payload of §2.8', async (bench) => {
    const seen = await prepared(bench)
    const told = at(seen.json, 'typed_data')
    // The form of chainId is another rule's.
    const chainId = at(told, 'domain', 'chainId')
    const domain = { ...(at(told, 'domain') as object), ...(typeof chainId === 'number' ? { chainId: String(chainId) } : {}) }
    const { domain: theirs, types, message } = expectShape(seen, TypedData, { ...(told as object), domain })
    const context = await bench.context()
    const { permit, outcome } = await bench.signingBody()
    const terms = {
      price: priceOf[outcome as OutcomeKey],
      amount: String(permit.amount),
      nonce: String(permit.nonce),
      deadline: String(permit.deadline),
    }
    const contracts = domainOf(contractsOf(bench.trust))
    const ours = typedData(contracts, requestOf(context), context.bond.token as Hex, terms)
    expectThat(theirs.chainId === ours.domain.chainId, seen, 'typed_data names another chain')
    expectThat(theirs.verifyingContract === ours.domain.verifyingContract, seen, 'typed_data names another Permit2')
    expectThat(sameTypes(types, { ...wireTypes(false), ...domainType }), seen, 'typed_data.types are not those of §2.8')
    expectThat(
      JSON.stringify(sorted(message)) === JSON.stringify(sorted(ours.message)),
      seen,
      'typed_data.message is not what the context of the question makes',
    )
    return toHex(witnessRound(contracts, requestOf(context), context.bond.token as Hex).digest(terms))
  }),
  rule('2.2-outcome-prices', '§2.2', 'read', 'p1 is 0, p2 is 1e18, p3 is 0.5e18', async (bench) => {
    const seen = await prepared(bench)
    for (const key of outcomeKeys) {
      const told = listAt(seen.json, 'outcomes').find((one) => at(one, 'outcome') === key)
      expectThat(told === undefined || String(at(told, 'price')) === priceOf[key], seen, `outcomes give ${key} another price`)
      if (at(seen.json, 'proposal', 'outcome') === key) {
        expectThat(String(at(seen.json, 'proposal', 'price')) === priceOf[key], seen, `proposal gives ${key} another price`)
      }
    }
    return 'as mapped'
  }),
  rule(
    '2.2-p3-permission',
    '§2.2',
    'read',
    "p3 needs permission in the request's rules and support in the settlement contract",
    async (bench) => {
      const context = (await bench.open()).find((one) => !halfIsAllowed(bench.trust, one))
      if (context === undefined) throw new NotSeen('every question permits p3')
      const body = { ...(await bench.proposal()), outcome: context.price.allowed_values.includes(priceOf.p2) ? 'p2' : 'p1' }
      const seen = given(await bench.probe.send({ method: 'POST', path: `/v1/proposals/${context.question_id}/signing-data`, body }), 200)
      const half = listAt(seen.json, 'outcomes').find((one) => at(one, 'outcome') === 'p3')
      expectThat(at(half, 'allowed') !== true, seen, "p3 is said to be allowed, which the request's text does not permit")
      return 'not allowed, as the text says'
    },
  ),
  rule('4.1.2-stateless', '§4.1 rule 2', 'read', 'signing-data is stateless: it reserves no nonce', async (bench) => {
    const { question_id } = await bench.context()
    const body = await bench.proposal()
    const call = { method: 'POST', path: `/v1/proposals/${question_id}/signing-data`, body } as const
    const first = given(await bench.probe.send(call), 200)
    const second = await bench.probe.send({ ...call, wrong: 'the very same body again' })
    expectStatus(second, 200)
    expectThat(first.text === second.text, second, 'the second answer differs from the first')
    return 'twice the same'
  }),
]

/** What was asked for by the batch route. */
export const contextRules: readonly Rule[] = [
  rule('4.2-signing-data', '§4.2', 'read', 'batch signing-data answers 200 with per-item results', async (bench) =>
    expectStatus(await bench.contexts(), 200),
  ),
  rule(
    '2.7-signing-data-fields',
    '§2.7',
    'read',
    'a context has question, request, prices, bond, contracts, signing and identifier.raw',
    async (bench) => {
      const { seen, data } = await item(bench)
      expectShape(seen, BatchSigningData.omit({ price: true }), data)
      return 'all named'
    },
  ),
  rule('2.7-allowed-prices', '§2.7', 'read', 'price.allowed_values are the numerical prices that the request allows', async (bench) => {
    const { seen, data } = await item(bench)
    const told = listAt(data, 'price', 'allowed_values')
    expectThat(told.length > 0, seen, 'price.allowed_values is missing or empty')
    expectThat(
      told.every((price) => typeof price === 'string' && outcomeOf(price) !== undefined),
      seen,
      'price.allowed_values has a price outside the binary mapping',
    )
    for (const one of listAt(seen.json, 'results')) {
      const parsed = BatchSigningData.safeParse(at(one, 'signing_data'))
      if (!parsed.success || halfIsAllowed(bench.trust, { ...parsed.data, source: 'gateway' })) continue
      const allowsHalf = parsed.data.price.allowed_values.includes(priceOf.p3)
      expectThat(!allowsHalf, seen, "price.allowed_values has 0.5, which the request's text does not permit")
    }
    return told.join(', ')
  }),
  rule('2.7-identifier-raw', '§2.7', 'read', 'identifier.raw is the oracle identifier, distinct from the question id', async (bench) => {
    const { seen, data } = await item(bench)
    const raw = at(data, 'identifier', 'raw')
    expectThat(raw !== at(data, 'question_id'), seen, 'identifier.raw is the question id')
    expectThat(raw === at(data, 'request', 'identifier', 'raw'), seen, 'identifier.raw is not that of the request')
    return 'distinct'
  }),
  rule('2.7-contracts', '§2.7', 'read', 'contracts and signing.chain_id are those to sign for', async (bench) => {
    const { seen, data } = await item(bench)
    for (const name of ['permit2', 'signed_proposer'] as const) {
      expectThat(at(data, 'contracts', name) === bench.trust[name], seen, `contracts.${name} is not the pinned one`)
    }
    expectThat(at(data, 'signing', 'chain_id') === bench.trust.chain_id, seen, 'signing.chain_id is not the pinned chain')
    return 'as pinned'
  }),
  rule('2.8-witness-types', '§2.8', 'read', 'the witness types are those of Permit2 and SignedProposer, maxPayment is 0', async (bench) => {
    const { seen, data } = await item(bench)
    const types = at(data, 'signing', 'types')
    expectThat(sameTypes(types, { ...wireTypes(false), ...domainType }), seen, 'signing.types are not those of §2.8')
    expectThat(at(data, 'signing', 'max_payment') === '0', seen, 'signing.max_payment is not "0"')
    return 'as hashed on chain'
  }),
  rule('2.7-identifier-echoed', '§2.7', 'read', 'a context carries the original identifier', async (bench) => {
    const { question_id, slug = question_id } = await bench.context()
    const seen = await bench.probe.send({ method: 'POST', path: '/propose/batch/signing-data', body: { identifiers: [slug] } })
    expectThat(at(given(seen, 200).json, 'results', 0, 'identifier') === slug, seen, 'the identifier that was asked for is not echoed')
    return slug
  }),
]

type Members = Record<string, readonly { readonly name: string; readonly type: string }[]>

/** Those that are told must be right, and all but the domain's must be told. */
function sameTypes(told: unknown, own: Members): boolean {
  if (typeof told !== 'object' || told === null) return false
  const text = (members: unknown) =>
    JSON.stringify((Array.isArray(members) ? members : []).map((one) => [at(one, 'name'), at(one, 'type')]))
  const names = new Set([...Object.keys(told), ...Object.keys(wireTypes(false))])
  return [...names].every((name) => own[name] !== undefined && text(at(told, name)) === text(own[name]))
}

/** With its keys in order, so that two objects can be compared as text. */
function sorted(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, member]) => [key, sorted(member)]),
  )
}
