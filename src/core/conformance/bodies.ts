/**
 * Rules of §2.1, §2.7, §4.1 rule 3, §5 and §9 about bodies that must be refused. Each is
 * well-formed but for one field, and carries a signature of random bytes, which authorizes nothing.
 * No gateway, right or wrong, can get anything on chain by them.
 */
import { limits, version } from '../protocol/words.js'
import type { Bench, Body } from './bench.js'
import { routes } from './probe.js'
import {
  at,
  expectStatus,
  expectThat,
  given,
  malformed,
  type Run,
  rule,
  rulesOf,
  type Seen,
  type Stated,
} from './rule.js'

type Change = (body: Body) => unknown
type Send = (bench: Bench, wrong: string, change: Change) => Promise<Seen>

const single: Send = async (bench, wrong, change) => {
  const { question_id } = await bench.context()
  return bench.probe.send(routes.submit(question_id, change(await bench.unsigned()), wrong))
}

const batch: Send = async (bench, wrong, change) =>
  bench.probe.send(routes.batch('proposals', [change(await bench.unsignedItem())], wrong))

const set =
  (changes: Record<string, unknown>): Change =>
  (body) => ({ ...body, ...changes })
const setBy =
  (field: string, change: (value: string) => unknown): Change =>
  (body) => ({ ...body, [field]: change(String(body[field])) })
const permit =
  (changes: Record<string, unknown>): Change =>
  (body) => ({ ...body, permit: { ...body.permit, ...changes } })
const permitBy =
  (field: string, change: (value: string) => unknown): Change =>
  (body) => ({ ...body, permit: { ...body.permit, [field]: change(String(body.permit[field])) } })
const without =
  (field: string): Change =>
  (body) =>
    Object.fromEntries(Object.entries(body).filter(([key]) => key !== field))

const capitals = (hex: string) => `0x${hex.slice(2).toUpperCase()}`
const cut = (hex: string) => hex.slice(0, -1)
const longest = `0x${'ab'.repeat(limits.signatureBytes)}`
const note = { conformance_note: 'extra' }

/** Faults of one field by their names; each must be refused with 400 or 422, or as it says. */
type Cases = Readonly<
  Record<string, readonly [says: string, wrongs: Readonly<Record<string, Change>>]>
>

const singleCases: Cases = {
  '2.1-version-exact': [
    'version has exactly api "v1", schema "signed-proposal-v1" and witness "permit2-signed-proposer-v1"',
    {
      'version.api v2': set({ version: { ...version, api: 'v2' } }),
      'version.schema signed-proposal-v2': set({
        version: { ...version, schema: 'signed-proposal-v2' },
      }),
      'version.witness permit2-v2': set({ version: { ...version, witness: 'permit2-v2' } }),
    },
  ],
  '2.1-version-only': [
    'version has exactly three members',
    {
      'a fourth member in version': set({ version: { ...version, minor: '1' } }),
    },
  ],
  '9-version-required': [
    'the proposer must send the version object',
    { 'no version': without('version') },
  ],
  '2.1-proposer-lowercase': [
    'proposer is lowercase',
    { 'proposer in capitals': setBy('proposer', capitals) },
  ],
  '2.1-proposer-nonzero': [
    'proposer is not zero',
    {
      'the zero address as proposer': set({ proposer: `0x${'0'.repeat(40)}` }),
    },
  ],
  '2.1-proposer-address': [
    'proposer is a wallet address, and required',
    {
      'a truncated proposer': setBy('proposer', cut),
      'no proposer': without('proposer'),
    },
  ],
  '2.1-outcome-known': [
    'outcome is p1, p2 or p3, and required',
    {
      'outcome p4': set({ outcome: 'p4' }),
      'outcome P2': set({ outcome: 'P2' }),
      'no outcome': without('outcome'),
    },
  ],
  '2.1-max-payment': [
    'max_payment must be "0"',
    {
      'max_payment 1': set({ max_payment: '1' }),
      'max_payment as a JSON number': set({ max_payment: 0 }),
      'no max_payment': without('max_payment'),
    },
  ],
  '2.1-amount-text': [
    'permit.amount is a decimal string',
    {
      'permit.amount as a JSON number': permitBy('amount', Number),
      'no permit.amount': permit({ amount: undefined }),
    },
  ],
  '2.1-amount-decimal': [
    'permit.amount is decimal raw units',
    {
      'permit.amount 0x10': permit({ amount: '0x10' }),
      'permit.amount with a fraction': permitBy('amount', (amount) => `${amount}.5`),
      'a negative permit.amount': permitBy('amount', (amount) => `-${amount}`),
    },
  ],
  '2.1-nonce-uint256': [
    'permit.nonce is a uint256 as a decimal string',
    {
      'permit.nonce 2^256': permit({ nonce: String(2n ** 256n) }),
      'permit.nonce as a JSON number': permit({ nonce: 1 }),
      'no permit.nonce': permit({ nonce: undefined }),
    },
  ],
  '2.1-deadline-text': [
    'permit.deadline is a decimal string',
    {
      'permit.deadline as a JSON number': permitBy('deadline', Number),
      'no permit.deadline': permit({ deadline: undefined }),
    },
  ],
  '2.1-signature-required': [
    'a submission has a signature',
    { 'no signature': without('signature') },
  ],
  '2.1-signature-lowercase': [
    'signature is lowercase',
    { 'a signature in capitals': setBy('signature', capitals) },
  ],
  '2.1-signature-even': [
    'signature has even length',
    { 'a signature one digit short': setBy('signature', cut) },
  ],
  '2.1-signature-hex': [
    'signature is hex',
    {
      'a signature with a letter that is not a hex digit': setBy(
        'signature',
        (hex) => `${cut(hex)}z`,
      ),
    },
  ],
  '2.1-signature-longest': [
    'signature has up to 8,192 bytes',
    {
      '8,193 bytes of signature': set({ signature: `${longest}ab` }),
    },
  ],
  '2.1-extra-field': [
    'extra fields are rejected on submission',
    {
      'a field that is not documented': set(note),
      'a field of permit that is not documented': permit(note),
    },
  ],
  '9-batch-item-in-v1': [
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
  '4.1.3-ancillary-data': [
    'ancillary data in admission is answered 413',
    { ancillary_data: set({ ancillary_data: '0x' }) },
  ],
}

const batchCases: Cases = {
  '2.7-identifier-required': [
    'an item has an identifier',
    { 'no identifier': without('identifier') },
  ],
  '2.7-client-ref-text': [
    'client_ref is a string',
    { 'client_ref as a JSON number': set({ client_ref: 5 }) },
  ],
  '2.7-price-numerical': [
    'proposed_price is a numerical price string, not an outcome key',
    {
      'proposed_price p2': set({ proposed_price: 'p2' }),
      'proposed_price as a JSON number': set({ proposed_price: 0 }),
    },
  ],
  '2.7-max-payment': ['max_payment is "0"', { 'max_payment 1': set({ max_payment: '1' }) }],
  '2.7-proposer-lowercase': [
    'proposer is lowercase',
    {
      'proposer in capitals': setBy('proposer', capitals),
      'a name as proposer': set({ proposer: 'nobody' }),
    },
  ],
  '2.7-amount-text': [
    'permit.amount is a decimal string',
    { 'permit.amount as a JSON number': permitBy('amount', Number) },
  ],
  '2.7-nonce-text': [
    'permit.nonce is a decimal string',
    {
      'permit.nonce as a JSON number': permit({ nonce: 1 }),
      'permit.nonce 0x10': permit({ nonce: '0x10' }),
    },
  ],
  '2.7-deadline-integer': [
    'permit.deadline is a JSON integer',
    {
      'permit.deadline as text': permitBy('deadline', String),
      'half a second in permit.deadline': permitBy('deadline', (seconds) => Number(seconds) + 0.5),
    },
  ],
  '2.7-signature': [
    'an item has a signature of lowercase, even-length hex',
    {
      'no signature': without('signature'),
      'a signature that is not hex': setBy('signature', (hex) => `${cut(hex)}z`),
      'a signature in capitals': setBy('signature', capitals),
      'a signature one digit short': setBy('signature', cut),
    },
  ],
  '2.7-item-fields': [
    'the batch format has no version and no outcome, nor other fields',
    {
      'a version in an item': set({ version }),
      'an outcome in an item': set({ outcome: 'p2' }),
      'a field that is not documented': set(note),
    },
  ],
  '9-v1-body-in-batch': [
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
  '7-batch-ancillary-data': [
    '413: ancillary data in admission',
    { 'ancillary_data in an item': set({ ancillary_data: '0x' }) },
  ],
}

/** Where §7 names another status, or leaves more of them open. */
const statusesOf: Readonly<Record<string, readonly number[]>> = {
  '2.1-signature-longest': [400, 413, 422],
  '4.1.3-ancillary-data': [413],
  '7-batch-ancillary-data': [413],
}

const refusing = (send: Send, cases: Cases): Stated =>
  Object.fromEntries(
    Object.entries(cases).map(([id, [says, wrongs]]) => {
      const run: Run = async (bench) => {
        const actual = new Set<string>()
        for (const [wrong, change] of Object.entries(wrongs))
          actual.add(
            expectStatus(await send(bench, wrong, change), ...(statusesOf[id] ?? malformed)),
          )
        return [...actual].join(', ')
      }
      return [id, [says, Object.keys(wrongs).length, run] as const]
    }),
  )

/**
 * A body with something wrong in it must be refused as §7 says; a batch as a whole, without results
 * (§4.2 rule 4).
 */
export const bodyRules = rulesOf('read', {
  ...refusing(single, singleCases),
  ...refusing(batch, batchCases),
  '2.1-signature-8192': rule('signature has up to 8,192 bytes, that many included', async (bench) =>
    expectStatus(await single(bench, '8,192 bytes of signature', set({ signature: longest })), 403),
  ),
  '4.1.3-signature-checked': rule('a signature that does not authorize gives 403', async (bench) =>
    expectStatus(await single(bench, 'a random signature', set({})), 403),
  ),
  '5-not-eligible': rule('an ineligible wallet gives 403', async (bench) => {
    const change = set({ proposer: bench.stranger })
    return expectStatus(await single(bench, 'a random wallet as proposer', change), 403)
  }),
  '7-errors-sanitized': rule(
    'errors is optional and sanitized on schema failures',
    3,
    async (bench) => {
      const canary = `canary${bench.stranger.slice(2, 18)}`
      let count = 0
      for (const [send, what, change] of [
        [single, 'outcome', set({ outcome: canary })],
        [single, 'an unknown field', set({ conformance_note: canary })],
        [batch, 'proposed_price', set({ proposed_price: canary })],
      ] as const) {
        const wrong = `a value of ${what} that must not come back`
        const seen = given(await send(bench, wrong, change), ...malformed)
        const errors = at(seen.json, 'errors')
        count += Array.isArray(errors) ? errors.length : 0
        const isClean = !JSON.stringify(errors ?? null).includes(canary)
        expectThat(isClean, seen, 'errors repeats the value that was sent')
      }
      return `${count} errors, no value repeated`
    },
  ),
})
