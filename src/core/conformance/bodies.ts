/**
 * Rules of §2.1, §2.7, §4.1 rule 3, §5 and §9 about bodies that must be refused. Each is
 * well-formed but for one field, and carries a signature of random bytes, which authorizes nothing:
 * no gateway, right or wrong, can get anything on chain by them.
 */
import { limits, version } from '../protocol/schema.js'
import type { Bench, Body } from './bench.js'
import {
  at,
  expectStatus,
  expectThat,
  given,
  malformed,
  type Rule,
  rule,
  type Seen,
} from './rule.js'

/** Sends a v1 body with a change to it. */
async function single(bench: Bench, wrong: string, change: (body: Body) => unknown): Promise<Seen> {
  const { question_id } = await bench.context()
  return bench.probe.send({
    method: 'POST',
    path: `/v1/proposals/${question_id}`,
    body: change(await bench.unsigned()),
    wrong,
  })
}

/** Sends a batch of one item with a change to it. */
async function batch(bench: Bench, wrong: string, change: (item: Body) => unknown): Promise<Seen> {
  const proposals = [change(await bench.unsignedItem())]
  return bench.probe.send({ method: 'POST', path: '/propose/batch', body: { proposals }, wrong })
}

type Change = (body: Body) => unknown
/** Some faults of one field: what is sent, and how it is made. Each must be refused. */
type Case = readonly [
  id: string,
  section: string,
  says: string,
  wrongs: Readonly<Record<string, Change>>,
  statuses?: readonly number[],
]

const set =
  (changes: Record<string, unknown>): Change =>
  (body) => ({ ...body, ...changes })
const permit =
  (changes: (permit: Record<string, unknown>) => Record<string, unknown>): Change =>
  (body) => ({ ...body, permit: { ...body.permit, ...changes(body.permit) } })
const without =
  (field: string): Change =>
  (body) =>
    Object.fromEntries(Object.entries(body).filter(([key]) => key !== field))
const withoutPermit = (field: string) => permit(() => ({ [field]: undefined }))
const capitals = (hex: unknown) => `0x${String(hex).slice(2).toUpperCase()}`
const lastDigit = (hex: unknown, digit: string) => `${String(hex).slice(0, -1)}${digit}`

const proposerCapitals: Change = (body) => ({ ...body, proposer: capitals(body.proposer) })
const amountNumber = permit(({ amount }) => ({ amount: Number(amount) }))

const singleCases: readonly Case[] = [
  [
    '2.1-version-exact',
    '§2.1',
    'version has exactly api "v1", schema "signed-proposal-v1" and witness "permit2-signed-proposer-v1"',
    {
      'version.api v2': set({ version: { ...version, api: 'v2' } }),
      'version.schema signed-proposal-v2': set({
        version: { ...version, schema: 'signed-proposal-v2' },
      }),
      'version.witness permit2-v2': set({ version: { ...version, witness: 'permit2-v2' } }),
    },
  ],
  [
    '2.1-version-only',
    '§2.1',
    'version has exactly three members',
    { 'a fourth member in version': set({ version: { ...version, minor: '1' } }) },
  ],
  [
    '9-version-required',
    '§9',
    'the proposer must send the version object',
    { 'no version': without('version') },
  ],
  [
    '2.1-proposer-lowercase',
    '§2.1',
    'proposer is lowercase',
    { 'proposer in capitals': proposerCapitals },
  ],
  [
    '2.1-proposer-nonzero',
    '§2.1',
    'proposer is not zero',
    { 'the zero address as proposer': set({ proposer: `0x${'0'.repeat(40)}` }) },
  ],
  [
    '2.1-proposer-address',
    '§2.1',
    'proposer is a wallet address, and required',
    {
      'a proposer cut short': (body) => ({ ...body, proposer: String(body.proposer).slice(0, -1) }),
      'no proposer': without('proposer'),
    },
  ],
  [
    '2.1-outcome-known',
    '§2.1',
    'outcome is p1, p2 or p3, and required',
    {
      'outcome p4': set({ outcome: 'p4' }),
      'outcome P2': set({ outcome: 'P2' }),
      'no outcome': without('outcome'),
    },
  ],
  [
    '2.1-max-payment',
    '§2.1',
    'max_payment must be "0"',
    {
      'max_payment 1': set({ max_payment: '1' }),
      'max_payment as a JSON number': set({ max_payment: 0 }),
      'no max_payment': without('max_payment'),
    },
  ],
  [
    '2.1-amount-text',
    '§2.1',
    'permit.amount is a decimal string',
    { 'permit.amount as a JSON number': amountNumber, 'no permit.amount': withoutPermit('amount') },
  ],
  [
    '2.1-amount-decimal',
    '§2.1',
    'permit.amount is decimal raw units',
    {
      'permit.amount 0x10': permit(() => ({ amount: '0x10' })),
      'permit.amount with a fraction': permit(({ amount }) => ({ amount: `${amount}.5` })),
      'a negative permit.amount': permit(({ amount }) => ({ amount: `-${amount}` })),
    },
  ],
  [
    '2.1-nonce-uint256',
    '§2.1',
    'permit.nonce is a uint256 as a decimal string',
    {
      'permit.nonce 2^256': permit(() => ({ nonce: String(2n ** 256n) })),
      'permit.nonce as a JSON number': permit(() => ({ nonce: 1 })),
      'no permit.nonce': withoutPermit('nonce'),
    },
  ],
  [
    '2.1-deadline-text',
    '§2.1',
    'permit.deadline is a decimal string',
    {
      'permit.deadline as a JSON number': permit(({ deadline }) => ({
        deadline: Number(deadline),
      })),
      'no permit.deadline': withoutPermit('deadline'),
    },
  ],
  [
    '2.1-signature-required',
    '§2.1',
    'a submission has a signature',
    { 'no signature': without('signature') },
  ],
  [
    '2.1-signature-lowercase',
    '§2.1',
    'signature is lowercase',
    { 'a signature in capitals': (body) => ({ ...body, signature: capitals(body.signature) }) },
  ],
  [
    '2.1-signature-even',
    '§2.1',
    'signature has even length',
    {
      'a signature cut by one digit': (body) => ({
        ...body,
        signature: String(body.signature).slice(0, -1),
      }),
    },
  ],
  [
    '2.1-signature-hex',
    '§2.1',
    'signature is hex',
    {
      'a signature with a letter that is no digit': (body) => ({
        ...body,
        signature: lastDigit(body.signature, 'z'),
      }),
    },
  ],
  [
    '2.1-signature-longest',
    '§2.1',
    'signature has up to 8,192 bytes',
    {
      '8,193 bytes of signature': set({ signature: `0x${'ab'.repeat(limits.signatureBytes + 1)}` }),
    },
    [400, 413, 422],
  ],
  [
    '2.1-extra-field',
    '§2.1',
    'extra fields are rejected on submission',
    {
      'a field that is not documented': set({ conformance_note: 'extra' }),
      'a field of permit that is not documented': permit(() => ({ conformance_note: 'extra' })),
    },
  ],
  [
    '9-batch-item-in-v1',
    '§9',
    'batch payloads are not interchangeable with v1',
    {
      'a batch item': ({ proposer, permit: terms, signature }) => ({
        proposer,
        proposed_price: '0',
        max_payment: '0',
        permit: { ...terms, deadline: Number(terms.deadline) },
        signature,
      }),
    },
  ],
  [
    '4.1.3-ancillary-data',
    '§4.1 rule 3',
    'ancillary data in admission is answered 413',
    { ancillary_data: set({ ancillary_data: '0x' }) },
    [413],
  ],
]

const batchCases: readonly Case[] = [
  [
    '2.7-identifier-required',
    '§2.7',
    'an item has an identifier',
    { 'no identifier': without('identifier') },
  ],
  [
    '2.7-client-ref-text',
    '§2.7',
    'client_ref is a string',
    { 'client_ref as a JSON number': set({ client_ref: 5 }) },
  ],
  [
    '2.7-price-numerical',
    '§2.7',
    'proposed_price is a numerical price string, not an outcome key',
    {
      'proposed_price p2': set({ proposed_price: 'p2' }),
      'proposed_price as a JSON number': set({ proposed_price: 0 }),
    },
  ],
  ['2.7-max-payment', '§2.7', 'max_payment is "0"', { 'max_payment 1': set({ max_payment: '1' }) }],
  [
    '2.7-proposer-lowercase',
    '§2.7',
    'proposer is lowercase',
    { 'proposer in capitals': proposerCapitals, 'a name as proposer': set({ proposer: 'nobody' }) },
  ],
  [
    '2.7-amount-text',
    '§2.7',
    'permit.amount is a decimal string',
    { 'permit.amount as a JSON number': amountNumber },
  ],
  [
    '2.7-nonce-text',
    '§2.7',
    'permit.nonce is a decimal string',
    {
      'permit.nonce as a JSON number': permit(() => ({ nonce: 1 })),
      'permit.nonce 0x10': permit(() => ({ nonce: '0x10' })),
    },
  ],
  [
    '2.7-deadline-integer',
    '§2.7',
    'permit.deadline is a JSON integer',
    {
      'permit.deadline as text': permit(({ deadline }) => ({ deadline: String(deadline) })),
      'half a second in permit.deadline': permit(({ deadline }) => ({
        deadline: Number(deadline) + 0.5,
      })),
    },
  ],
  [
    '2.7-signature',
    '§2.7',
    'an item has a hex signature',
    {
      'no signature': without('signature'),
      'a signature that is no hex': (body) => ({
        ...body,
        signature: lastDigit(body.signature, 'z'),
      }),
    },
  ],
  [
    '2.7-item-fields',
    '§2.7',
    'the batch format has no version and no outcome, nor other fields',
    {
      'a version in an item': set({ version }),
      'an outcome in an item': set({ outcome: 'p2' }),
      'a field that is not documented': set({ conformance_note: 'extra' }),
    },
  ],
  [
    '9-v1-body-in-batch',
    '§9',
    'v1 payloads are not interchangeable with batch items',
    {
      'a v1 body as item': ({ proposer, permit: terms, signature, identifier }) => ({
        version,
        identifier,
        proposer,
        outcome: 'p2',
        max_payment: '0',
        permit: { ...terms, deadline: String(terms.deadline) },
        signature,
      }),
    },
  ],
  [
    '7-batch-ancillary-data',
    '§7',
    '413: ancillary data in admission',
    { 'ancillary_data in an item': set({ ancillary_data: '0x' }) },
    [413],
  ],
]

const casesOf = (send: typeof single, cases: readonly Case[]): readonly Rule[] =>
  cases.map(([id, section, says, wrongs, statuses = malformed]) =>
    rule(
      id,
      section,
      'read',
      says,
      async (bench) => {
        const told: string[] = []
        for (const [wrong, change] of Object.entries(wrongs))
          told.push(expectStatus(await send(bench, wrong, change), ...statuses))
        return [...new Set(told)].join(', ')
      },
      Object.keys(wrongs).length,
    ),
  )

/**
 * A body with something wrong in it must be refused as §7 says; a batch as a whole, without results
 * (§4.2 rule 4).
 */
export const bodyRules: readonly Rule[] = [
  ...casesOf(single, singleCases),
  ...casesOf(batch, batchCases),
  rule(
    '2.1-signature-8192',
    '§2.1',
    'read',
    'signature has up to 8,192 bytes, that many included',
    async (bench) => {
      const signature = `0x${'ab'.repeat(limits.signatureBytes)}`
      return expectStatus(await single(bench, '8,192 bytes of signature', set({ signature })), 403)
    },
  ),
  rule(
    '4.1.3-signature-checked',
    '§4.1 rule 3',
    'read',
    'a signature that does not authorize gives 403',
    async (bench) => expectStatus(await single(bench, 'a random signature', (body) => body), 403),
  ),
  rule('5-not-eligible', '§5', 'read', 'an ineligible wallet gives 403', async (bench) =>
    expectStatus(
      await single(bench, 'a random wallet as proposer', set({ proposer: bench.stranger })),
      403,
    ),
  ),
  rule(
    '7-errors-sanitized',
    '§7',
    'read',
    'errors is optional and sanitized on schema failures',
    async (bench) => {
      const canary = `canary${bench.stranger.slice(2, 18)}`
      let told = 0
      for (const [send, wrong, change] of [
        [single, 'a value of outcome that must not come back', set({ outcome: canary })],
        [
          single,
          'a value of an unknown field that must not come back',
          set({ conformance_note: canary }),
        ],
        [
          batch,
          'a value of proposed_price that must not come back',
          set({ proposed_price: canary }),
        ],
      ] as const) {
        const seen = given(await send(bench, wrong, change), ...malformed)
        const errors = at(seen.json, 'errors')
        told += Array.isArray(errors) ? errors.length : 0
        expectThat(
          !JSON.stringify(errors ?? null).includes(canary),
          seen,
          'errors repeats the value that was sent',
        )
      }
      return `${told} errors, no value repeated`
    },
    3,
  ),
]
