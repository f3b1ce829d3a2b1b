/**
 * The contexts of the batch route, against the pins, our own types and, where there is one, the
 * chain.
 */
import { confirmByChain } from '../client/trust/context.js'
import { outcomesByText, type QuestionContext, type Trust } from '../client/trust/trust.js'
import { ProposerError } from '../protocol/errors.js'
import { outcomeKeys, outcomeOf, priceOf } from '../protocol/proposal.js'
import type { BatchSigningData, OutcomeKey } from '../protocol/schema.js'
import { domainType, encodedTypes, primaryType, wireTypes } from '../protocol/witness.js'
import { type Bench, distrust } from './bench.js'
import { routes } from './probe.js'
import {
  at,
  codesOf,
  expectStatus,
  expectThat,
  Fault,
  fitsAddress,
  fitsBytes,
  given,
  integer,
  isHash,
  isStructure,
  isText,
  listAt,
  memberOf,
  NotSeen,
  rule,
  rulesOf,
  type Seen,
} from './rule.js'

interface Items {
  readonly seen: Seen
  readonly all: readonly unknown[]
  readonly first: unknown
}

async function itemsIn(bench: Bench): Promise<Items> {
  const seen = given(await bench.contexts(), 200)
  const all = listAt(seen.json, 'results')
    .filter((one) => at(one, 'status_code') === 200)
    .map((one) => at(one, 'signing_data'))
  if (all.length > 0) return { seen, all, first: all[0] }
  // Another builder's word for it is not known: every result that is no error must have its code.
  expectThat(codesOf(seen).every(Number.isInteger), seen, 'results have no status_code')
  throw new NotSeen('no question is open')
}

export const halfIsAllowed = (trust: Trust, context: QuestionContext): boolean =>
  outcomesByText(trust, context).some(({ outcome, allowed }) => outcome === 'p3' && allowed)

/** Throws Fault unless both contracts are the pinned ones. */
export function expectContracts({ trust }: Bench, seen: Seen, actual: unknown): string {
  for (const name of ['permit2', 'signed_proposer'] as const)
    expectThat(at(actual, name) === trust[name], seen, `contracts.${name} is not the pinned one`)
  return 'as pinned'
}

export const contextRules = rulesOf('read', {
  '4.2-signing-data': rule('the batch of contexts answers 200', 5, async (bench) => {
    const seen = await bench.contexts()
    const actual = expectStatus(seen, 200)
    const { length } = bench.questions
    const codes = codesOf(seen)
    expectThat(codes.length === length, seen, `got ${codes.length} results for ${length} items`)
    const fault = `none of the questions that were given was answered 200: ${codes.map(String).join(', ')}`
    expectThat(codes.includes(200), seen, fault)
    return actual
  }),
  '2.7-signing-data-fields': rule(
    'a context has question, request, bond, contracts, signing and identifier.raw',
    async (bench) => {
      const { seen, all } = await itemsIn(bench)
      for (const missing of all.map(readContext).filter((one) => typeof one === 'string'))
        throw new Fault(
          `sent ${seen.sent}; got a context in which ${missing} is missing or malformed`,
        )
      return 'all named'
    },
  ),
  '2.7-as-pinned': rule(
    'a context is that of the question: oracle, requester, token and ancillary bytes as pinned',
    async (bench) => {
      const { seen, all } = await itemsIn(bench)
      for (const data of all) {
        const read = readContext(data)
        if (typeof read === 'string') throw new NotSeen(`${read} is missing`)
        const now = Number(bench.nowSeconds())
        const error = distrust(bench.trust, { ...read, source: 'gateway' }, now)
        if (error?.code === 'untrusted_timestamp') throw new NotSeen(error.detail)
        if (error !== undefined) throw new Fault(`sent ${seen.sent}; ${error.detail}`)
      }
      const asked = new Set<unknown>(bench.questions.map(({ questionId }) => questionId))
      const areOurs = all.every((data) => asked.has(at(data, 'question_id')))
      expectThat(areOurs, seen, 'question_id is not one of those requested')
      const areOne = all.every((data) => {
        const again = at(data, 'request', 'question_id')
        return !isText(again) || again === at(data, 'question_id')
      })
      expectThat(areOne, seen, 'request.question_id is not question_id')
      return 'as pinned'
    },
  ),
  '2.7-as-on-chain': rule('request and bond of a context are those of the chain', async (bench) => {
    const { seen } = await itemsIn(bench)
    const context = await bench.context()
    if (bench.chain === undefined) throw new NotSeen('no node was given: add --rpc-url')
    try {
      await confirmByChain(bench.chain, bench.trust, context)
    } catch (error) {
      if (!(error instanceof ProposerError)) throw error
      if (error.code.startsWith('untrusted_')) throw new Fault(`sent ${seen.sent}; ${error.detail}`)
      throw new NotSeen(error.detail)
    }
    return 'as the node reports it'
  }),
  '2.7-allowed-prices': rule(
    'price.allowed_values are the numerical prices that the request allows',
    async (bench) => {
      const { seen, all, first } = await itemsIn(bench)
      const actual = listAt(first, 'price', 'allowed_values')
      expectThat(actual.length > 0, seen, 'price.allowed_values is missing or empty')
      const isMapped = (price: unknown) =>
        typeof price === 'string' && outcomeOf(price) !== undefined
      const outside = 'price.allowed_values has a price outside the binary mapping'
      expectThat(actual.every(isMapped), seen, outside)
      for (const context of all.map(readContext)) {
        if (typeof context === 'string') continue
        if (halfIsAllowed(bench.trust, { ...context, source: 'gateway' })) continue
        const hasHalf = context.price.allowed_values.includes(priceOf.p3)
        const fault = "price.allowed_values has 0.5, which the request's text does not permit"
        expectThat(!hasHalf, seen, fault)
      }
      return actual.join(', ')
    },
  ),
  '2.7-identifier-raw': rule(
    'identifier.raw is the oracle identifier, distinct from the question id',
    async (bench) => {
      const { seen, first } = await itemsIn(bench)
      const raw = rawIdentifier(first)
      expectThat(raw !== at(first, 'question_id'), seen, 'identifier.raw is the question id')
      const other = at(first, 'request', 'identifier', 'raw') ?? raw
      expectThat(raw === other, seen, 'identifier.raw is not that of the request')
      return 'distinct'
    },
  ),
  '2.7-contracts': rule('contracts and signing.chain_id are those to sign for', async (bench) => {
    const { seen, first } = await itemsIn(bench)
    const actual = expectContracts(bench, seen, at(first, 'contracts'))
    const isChain = integer(at(first, 'signing', 'chain_id')) === String(bench.trust.chain_id)
    expectThat(isChain, seen, 'signing.chain_id is not the pinned chain')
    return actual
  }),
  '2.8-witness-types': rule(
    'the witness types are those of Permit2 and SignedProposer, maxPayment is 0',
    async (bench) => {
      const { seen, first } = await itemsIn(bench)
      const signing = at(first, 'signing')
      const types = typesStatus(signing)
      expectThat(types === 'same', seen, `the witness type definitions in signing are ${types}`)
      const isFree = integer(memberOf(signing, /payment/i)) === '0'
      expectThat(isFree, seen, 'the maximum payment in signing is missing or not "0"')
      return 'as hashed on chain'
    },
  ),
  '2.7-identifier-echoed': rule('a context carries the original identifier', async (bench) => {
    const { question_id, slug = question_id } = await bench.context()
    const seen = given(await bench.probe.send(routes.batch('contexts', [slug])), 200)
    const actual = at(seen.json, 'results', 0, 'identifier')
    expectThat(actual === slug, seen, 'the requested identifier is not echoed')
    return slug
  }),
})

type Defined = Record<string, readonly { readonly name: string; readonly type: string }[]>

/** Those that are reported must be right, and all but the domain's must be reported. */
export function sameTypes(actual: unknown, own: Defined): boolean {
  if (!isStructure(actual)) return false
  const text = (members: unknown) =>
    JSON.stringify(listAt(members).map((one) => [at(one, 'name'), at(one, 'type')]))
  const names = new Set([...Object.keys(actual), ...Object.keys(wireTypes(false))])
  return [...names].every(
    (name) => own[name] !== undefined && text(at(actual, name)) === text(own[name]),
  )
}

/** Type definitions under whatever name: as member lists, or as EIP-712 writes them in one text. */
function typesStatus(signing: unknown): 'same' | 'missing' | 'other ones' {
  if (!isStructure(signing)) return 'missing'
  const values: readonly unknown[] = Object.values(signing)
  const lists = values.filter((one) => isStructure(one) && Object.values(one).some(Array.isArray))
  const texts = values.filter((one) => typeof one === 'string' && one.includes('('))
  const own = { ...wireTypes(false), ...domainType }
  if (lists.length === 0 && texts.length === 0) return 'missing'
  const isSame =
    lists.length > 0
      ? lists.some((list) => sameTypes(list, own))
      : texts.some((text) => String(text).includes(encodedTypes.proposal))
  return isSame ? 'same' : 'other ones'
}

/** `identifier.raw`: §2.7 names it beside the request, §2.8 of the request. */
export const rawIdentifier = (data: unknown): unknown =>
  at(data, 'identifier', 'raw') ?? at(data, 'request', 'identifier', 'raw')

/** What the request of a context or of signing data says, in one form. */
export function requestFacts(request: unknown) {
  const identifier = at(request, 'identifier')
  return {
    oracle: at(request, 'oracle'),
    requester: at(request, 'requester'),
    identifier:
      typeof identifier === 'string'
        ? identifier
        : (at(identifier, 'raw') ?? memberOf(request, /identifier/)),
    timestamp: integer(memberOf(request, /timestamp/)),
    ancillary_data: memberOf(request, /ancillary/),
  }
}

/**
 * Our own form of a context, with our own types to sign by; the name of what is missing where it
 * cannot be signed from.
 */
export function readContext(data: unknown): BatchSigningData | string {
  const request = at(data, 'request')
  const { oracle, requester, timestamp, ancillary_data } = requestFacts(request)
  const raw = rawIdentifier(data)
  const question_id = at(data, 'question_id')
  const token = at(data, 'bond', 'token')
  const required_bond = integer(at(data, 'bond', 'required_bond'))
  const permit2 = at(data, 'contracts', 'permit2')
  const signed_proposer = at(data, 'contracts', 'signed_proposer')
  const chainId = integer(at(data, 'signing', 'chain_id'))
  if (!isHash(question_id)) return 'question_id'
  if (!fitsAddress(oracle)) return 'request.oracle'
  if (!fitsAddress(requester)) return 'request.requester'
  if (timestamp === undefined) return 'the timestamp of request'
  if (!fitsBytes(ancillary_data)) return 'the ancillary bytes of request'
  if (!isHash(raw)) return 'identifier.raw'
  if (!fitsAddress(token)) return 'bond.token'
  if (required_bond === undefined) return 'bond.required_bond'
  if (!fitsAddress(permit2)) return 'contracts.permit2'
  if (!fitsAddress(signed_proposer)) return 'contracts.signed_proposer'
  if (chainId === undefined) return 'signing.chain_id'
  return {
    question_id,
    request: { question_id, oracle, requester, identifier: { raw }, timestamp, ancillary_data },
    identifier: { raw },
    price: {
      allowed_values: listAt(data, 'price', 'allowed_values').flatMap(
        (price) => integer(price) ?? [],
      ),
    },
    bond: { token, required_bond },
    contracts: { permit2, signed_proposer },
    signing: {
      chain_id: Number(chainId),
      max_payment: '0',
      primary_type: primaryType,
      types: wireTypes(false),
    },
  }
}

interface ListedOutcome {
  readonly key: OutcomeKey
  readonly label: unknown
  readonly price: unknown
  readonly isAllowed: boolean | undefined
}

/**
 * §2.2: labels and availability by key, as a list or an object; what is not listed beside others is
 * not available.
 */
export function outcomesIn(json: unknown): readonly ListedOutcome[] {
  const actual = at(json, 'outcomes')
  const keyOf = (one: unknown) =>
    at(one, 'outcome') ??
    outcomeKeys.find((key) => isStructure(one) && Object.values(one).includes(key))
  const entries = Array.isArray(actual)
    ? actual.map((one: unknown) => [keyOf(one), one] as const)
    : Object.entries(isStructure(actual) ? actual : {})
  return entries.flatMap(([word, one]) => {
    const key = outcomeKeys.find((each) => each === word)
    if (key === undefined) return []
    const price = memberOf(one, /price/)
    return [{ key, label: at(one, 'label'), price, isAllowed: isAllowed(one) }]
  })
}

function isAllowed(one: unknown): boolean | undefined {
  if (!isStructure(one)) return undefined
  const flag = Object.entries(one)
    .filter(([name]) => !/outcome|key|label|price/.test(name))
    .find(
      ([name, value]) => typeof value === 'boolean' || /avail|allow|enabl|state|status/.test(name),
    )
  if (flag === undefined) return undefined
  const [, value] = flag
  return typeof value === 'boolean' ? value : !/^(un|no|dis|den|forb|closed)/i.test(String(value))
}
