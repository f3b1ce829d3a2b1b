/**
 * Rules of §2.7 and §2.8 about the contexts of the batch route, held against the pins, our own
 * types and, where there is one, the chain.
 */

import { confirmByChain, type QuestionContext } from '../client/trust/context.js'
import { outcomesByText, type Trust } from '../client/trust/trust.js'
import { ProposerError } from '../protocol/errors.js'
import { outcomeOf, priceOf } from '../protocol/proposal.js'
import { domainType, encodedTypes, wireTypes } from '../protocol/witness.js'
import { type Bench, distrust } from './bench.js'
import { rawIdentifier, readContext } from './context.js'
import {
  at,
  expectStatus,
  expectThat,
  Fault,
  given,
  listAt,
  NotSeen,
  type Rule,
  rule,
  type Seen,
} from './rule.js'
import { integer, memberOf } from './shapes.js'

/** The results that carry signing data, as they came. */
async function items(
  bench: Bench,
): Promise<{ seen: Seen; all: readonly unknown[]; first: unknown }> {
  const seen = given(await bench.contexts(), 200)
  const all = listAt(seen.json, 'results')
    .filter((one) => at(one, 'status_code') === 200)
    .map((one) => at(one, 'signing_data'))
  if (all.length > 0) return { seen, all, first: all[0] }
  // Another builder's word for it is not known: every result that is no error must have its code.
  expectThat(
    listAt(seen.json, 'results').every((one) => Number.isInteger(at(one, 'status_code'))),
    seen,
    'results have no status_code',
  )
  throw new NotSeen('no question is open')
}

/** p3 by the request's own text and the requester's kind (domain §5.3). */
export const halfIsAllowed = (trust: Trust, context: QuestionContext) =>
  outcomesByText(trust, context).some(({ outcome, allowed }) => outcome === 'p3' && allowed)

/** Throws Fault unless both contracts are the pinned ones. */
export function expectContracts({ trust }: Bench, seen: Seen, told: unknown): string {
  for (const name of ['permit2', 'signed_proposer'] as const) {
    expectThat(at(told, name) === trust[name], seen, `contracts.${name} is not the pinned one`)
  }
  return 'as pinned'
}

/** What was asked for by the batch route. */
export const contextRules: readonly Rule[] = [
  rule(
    '4.2-signing-data',
    '§4.2',
    'read',
    'the batch of contexts answers 200',
    async (bench) => expectStatus(await bench.contexts(), 200),
    5,
  ),
  rule(
    '2.7-signing-data-fields',
    '§2.7',
    'read',
    'a context has question, request, bond, contracts, signing and identifier.raw',
    async (bench) => {
      const { seen, all } = await items(bench)
      for (const data of all) {
        const read = readContext(data)
        if (typeof read === 'string')
          throw new Fault(
            `sent ${seen.sent}; came a context in which ${read} is missing or of another form`,
          )
      }
      return 'all named'
    },
  ),
  rule(
    '2.7-as-pinned',
    '§2.7',
    'read',
    'a context is that of the question: oracle, requester, token and ancillary bytes as pinned',
    async (bench) => {
      const { seen, all } = await items(bench)
      for (const data of all) {
        const read = readContext(data)
        if (typeof read === 'string') throw new NotSeen(`${read} is missing`)
        const error = distrust(
          bench.trust,
          { ...read, source: 'gateway' },
          Number(bench.nowSeconds()),
        )
        if (error?.code === 'untrusted_timestamp') throw new NotSeen(error.detail)
        if (error !== undefined) throw new Fault(`sent ${seen.sent}; ${error.detail}`)
      }
      const asked = new Set(bench.questions.map(({ questionId }) => questionId as string))
      expectThat(
        all.every((data) => asked.has(String(at(data, 'question_id')))),
        seen,
        'question_id is none that was asked for',
      )
      return 'as pinned'
    },
  ),
  rule(
    '2.7-as-on-chain',
    '§2.7',
    'read',
    'request and bond of a context are those of the chain',
    async (bench) => {
      const { seen } = await items(bench)
      const context = await bench.context()
      if (bench.chain === undefined) throw new NotSeen('no node is given: add --rpc-url')
      try {
        await confirmByChain(bench.chain, bench.trust, context)
      } catch (error) {
        if (error instanceof ProposerError && error.code.startsWith('untrusted_'))
          throw new Fault(`sent ${seen.sent}; ${error.detail}`)
        if (error instanceof ProposerError) throw new NotSeen(error.detail)
        throw error
      }
      return 'as the node tells it'
    },
  ),
  rule(
    '2.7-allowed-prices',
    '§2.7',
    'read',
    'price.allowed_values are the numerical prices that the request allows',
    async (bench) => {
      const { seen, all, first } = await items(bench)
      const told = listAt(first, 'price', 'allowed_values')
      expectThat(told.length > 0, seen, 'price.allowed_values is missing or empty')
      expectThat(
        told.every((price) => typeof price === 'string' && outcomeOf(price) !== undefined),
        seen,
        'price.allowed_values has a price outside the binary mapping',
      )
      for (const data of all) {
        const context = readContext(data)
        if (
          typeof context === 'string' ||
          halfIsAllowed(bench.trust, { ...context, source: 'gateway' })
        )
          continue
        const allowsHalf = context.price.allowed_values.includes(priceOf.p3)
        expectThat(
          !allowsHalf,
          seen,
          "price.allowed_values has 0.5, which the request's text does not permit",
        )
      }
      return told.join(', ')
    },
  ),
  rule(
    '2.7-identifier-raw',
    '§2.7',
    'read',
    'identifier.raw is the oracle identifier, distinct from the question id',
    async (bench) => {
      const { seen, first } = await items(bench)
      const raw = rawIdentifier(first)
      expectThat(raw !== at(first, 'question_id'), seen, 'identifier.raw is the question id')
      const other = at(first, 'request', 'identifier', 'raw') ?? raw
      expectThat(raw === other, seen, 'identifier.raw is not that of the request')
      return 'distinct'
    },
  ),
  rule(
    '2.7-contracts',
    '§2.7',
    'read',
    'contracts and signing.chain_id are those to sign for',
    async (bench) => {
      const { seen, first } = await items(bench)
      const told = expectContracts(bench, seen, at(first, 'contracts'))
      const chainId = integer(at(first, 'signing', 'chain_id'))
      expectThat(
        chainId === String(bench.trust.chain_id),
        seen,
        'signing.chain_id is not the pinned chain',
      )
      return told
    },
  ),
  rule(
    '2.8-witness-types',
    '§2.8',
    'read',
    'the witness types are those of Permit2 and SignedProposer, maxPayment is 0',
    async (bench) => {
      const { seen, first } = await items(bench)
      const signing = at(first, 'signing')
      expectThat(
        toldTypes(signing) === 'same',
        seen,
        `the witness type definitions in signing are ${toldTypes(signing)}`,
      )
      expectThat(
        integer(memberOf(signing, /payment/i)) === '0',
        seen,
        'the maximum payment in signing is missing or not "0"',
      )
      return 'as hashed on chain'
    },
  ),
  rule(
    '2.7-identifier-echoed',
    '§2.7',
    'read',
    'a context carries the original identifier',
    async (bench) => {
      const { question_id, slug = question_id } = await bench.context()
      const seen = await bench.probe.send({
        method: 'POST',
        path: '/propose/batch/signing-data',
        body: { identifiers: [slug] },
      })
      expectThat(
        at(given(seen, 200).json, 'results', 0, 'identifier') === slug,
        seen,
        'the identifier that was asked for is not echoed',
      )
      return slug
    },
  ),
]

type Defined = Record<string, readonly { readonly name: string; readonly type: string }[]>

/** Those that are told must be right, and all but the domain's must be told. */
export function sameTypes(told: unknown, own: Defined): boolean {
  if (typeof told !== 'object' || told === null) return false
  const text = (members: unknown) =>
    JSON.stringify(
      (Array.isArray(members) ? members : []).map((one) => [at(one, 'name'), at(one, 'type')]),
    )
  const names = new Set([...Object.keys(told), ...Object.keys(wireTypes(false))])
  return [...names].every(
    (name) => own[name] !== undefined && text(at(told, name)) === text(own[name]),
  )
}

/** Type definitions under whatever name: as member lists, or as EIP-712 writes them in one text. */
function toldTypes(signing: unknown): 'same' | 'missing' | 'other ones' {
  if (typeof signing !== 'object' || signing === null) return 'missing'
  const values = Object.values(signing)
  const lists = values.filter(
    (value) =>
      typeof value === 'object' && value !== null && Object.values(value).some(Array.isArray),
  )
  if (lists.length > 0)
    return lists.some((list) => sameTypes(list, { ...wireTypes(false), ...domainType }))
      ? 'same'
      : 'other ones'
  const texts = values.filter((value) => typeof value === 'string' && value.includes('('))
  if (texts.length === 0) return 'missing'
  return texts.some((text) => String(text).includes(encodedTypes.proposal)) ? 'same' : 'other ones'
}
