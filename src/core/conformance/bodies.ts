/**
 * Rules of §2.1, §2.7, §4.1 rule 3, §5 and §9 about bodies that must be refused. Each is
 * well-formed but for one field, and carries a signature of random bytes, which authorizes nothing.
 * No gateway, right or wrong, can get anything on chain by them.
 */
import { limits, version } from '#protocol/words'
import type { Bench, Body } from './bench.js'
import { routes } from './probe.js'
import {
  answers,
  at,
  expectAll,
  expectStatus,
  given,
  is,
  malformed,
  type RuleRow,
  type RuleRows,
  rulesOf,
  type Seen,
} from './rule.js'

/** Members of a body: another value, `undefined` for none, or what is made of the text there was. */
type Change = { readonly [field: string]: unknown } | ((body: Body) => unknown)

export function changed(value: unknown, change: unknown): unknown {
  if (typeof change === 'function') return change(is.structure(value) ? value : String(value))
  if (!is.structure(change)) return change
  const members = Object.entries(change).map(([name, one]) => [name, changed(at(value, name), one)])
  return { ...(is.structure(value) && value), ...Object.fromEntries(members) }
}

/** What takes bodies, and how one that is wrong gets there. */
const senders = {
  single: async (bench: Bench, wrong: string, change: Change): Promise<Seen> => {
    const { question_id } = await bench.context()
    const body = changed(await bench.unsigned(), change)
    return bench.probe.send(routes.submit(question_id, body), wrong)
  },
  batch: async (bench: Bench, wrong: string, change: Change): Promise<Seen> => {
    const item = changed(await bench.unsignedItem(), change)
    return bench.probe.send(routes.batch('proposals', [item]), wrong)
  },
  preparation: async (bench: Bench, wrong: string, change: Change): Promise<Seen> => {
    given(await bench.signingData(), 200)
    const { question_id } = await bench.context()
    const body = changed(await bench.proposal(), change)
    return bench.probe.send(routes.prepare(question_id, body), wrong)
  },
}
const { single, batch } = senders

const capitals = (hex: string) => `0x${hex.slice(2).toUpperCase()}`
const cut = (hex: string) => hex.slice(0, -1)
const noHex = (hex: string) => `${cut(hex)}z`
const longest = `0x${'ab'.repeat(limits.signatureBytes)}`
const note = { conformance_note: 'extra' }

/**
 * Bodies by what is wrong with them; each must be refused, and a batch as a whole (§4.2 rule 4).
 * With 400 or 422 but where §7 names another status, or leaves more of them open.
 */
type Cases = Readonly<
  Record<
    string,
    readonly [says: string, wrongs: Readonly<Record<string, Change>>, statuses?: readonly number[]]
  >
>

export const refusing = (to: keyof typeof senders, cases: Cases): RuleRows =>
  Object.fromEntries(
    Object.entries(cases).map(([id, [says, wrongs, statuses = malformed]]): [string, RuleRow] => {
      const run = async (bench: Bench) => {
        const actual = new Set<string>()
        for (const [wrong, change] of Object.entries(wrongs))
          actual.add(expectStatus(await senders[to](bench, wrong, change), ...statuses))
        return [...actual].join(', ')
      }
      return [id, [says, run, Object.keys(wrongs).length]]
    }),
  )

const singleCases: Cases = {
  '2.1-version-exact': [
    'version has exactly api "v1", schema "signed-proposal-v1" and witness "permit2-signed-proposer-v1"',
    {
      'version.api v2': { version: { api: 'v2' } },
      'version.schema signed-proposal-v2': { version: { schema: 'signed-proposal-v2' } },
      'version.witness permit2-v2': { version: { witness: 'permit2-v2' } },
    },
  ],
  '2.1-version-only': [
    'version has exactly three members',
    { 'a fourth member in version': { version: { minor: '1' } } },
  ],
  '9-version-required': [
    'the proposer must send the version object',
    { 'no version': { version: undefined } },
  ],
  '2.1-proposer-lowercase': [
    'proposer is lowercase',
    { 'proposer in capitals': { proposer: capitals } },
  ],
  '2.1-proposer-nonzero': [
    'proposer is not zero',
    { 'the zero address as proposer': { proposer: `0x${'0'.repeat(40)}` } },
  ],
  '2.1-proposer-address': [
    'proposer is a wallet address, and required',
    { 'a truncated proposer': { proposer: cut }, 'no proposer': { proposer: undefined } },
  ],
  '2.1-outcome-known': [
    'outcome is p1, p2 or p3, and required',
    {
      'outcome p4': { outcome: 'p4' },
      'outcome P2': { outcome: 'P2' },
      'no outcome': { outcome: undefined },
    },
  ],
  '2.1-max-payment': [
    'max_payment must be "0"',
    {
      'max_payment 1': { max_payment: '1' },
      'max_payment as a JSON number': { max_payment: 0 },
      'no max_payment': { max_payment: undefined },
    },
  ],
  '2.1-amount-text': [
    'permit.amount is a decimal string',
    {
      'permit.amount as a JSON number': { permit: { amount: Number } },
      'no permit.amount': { permit: { amount: undefined } },
    },
  ],
  '2.1-amount-decimal': [
    'permit.amount is decimal raw units',
    {
      'permit.amount 0x10': { permit: { amount: '0x10' } },
      'permit.amount with a fraction': { permit: { amount: (raw: string) => `${raw}.5` } },
      'a negative permit.amount': { permit: { amount: (raw: string) => `-${raw}` } },
    },
  ],
  '2.1-nonce-uint256': [
    'permit.nonce is a uint256 as a decimal string',
    {
      'permit.nonce 2^256': { permit: { nonce: String(2n ** 256n) } },
      'permit.nonce as a JSON number': { permit: { nonce: 1 } },
      'no permit.nonce': { permit: { nonce: undefined } },
    },
  ],
  '2.1-deadline-text': [
    'permit.deadline is a decimal string',
    {
      'permit.deadline as a JSON number': { permit: { deadline: Number } },
      'no permit.deadline': { permit: { deadline: undefined } },
    },
  ],
  '2.1-signature-required': [
    'a submission has a signature',
    { 'no signature': { signature: undefined } },
  ],
  '2.1-signature-lowercase': [
    'signature is lowercase',
    { 'a signature in capitals': { signature: capitals } },
  ],
  '2.1-signature-even': [
    'signature has even length',
    { 'a signature one digit short': { signature: cut } },
  ],
  '2.1-signature-hex': [
    'signature is hex',
    { 'a signature with a letter that is not a hex digit': { signature: noHex } },
  ],
  '2.1-signature-longest': [
    'signature has up to 8,192 bytes',
    { '8,193 bytes of signature': { signature: `${longest}ab` } },
    [400, 413, 422],
  ],
  '2.1-extra-field': [
    'extra fields are rejected on submission',
    {
      'a field that is not documented': note,
      'a field of permit that is not documented': { permit: note },
    },
  ],
  '9-batch-item-in-v1': [
    'batch payloads are not interchangeable with v1',
    {
      'a batch item': ({ proposer, permit, signature }) => ({
        ...{ proposer, proposed_price: '0', max_payment: '0' },
        permit: { ...permit, deadline: Number(permit.deadline) },
        signature,
      }),
    },
  ],
  '4.1.3-ancillary-data': [
    'ancillary data in admission is answered 413',
    { ancillary_data: { ancillary_data: '0x' } },
    [413],
  ],
}

const batchCases: Cases = {
  '2.7-identifier-required': [
    'an item has an identifier',
    { 'no identifier': { identifier: undefined } },
  ],
  '2.7-client-ref-text': [
    'client_ref is a string',
    { 'client_ref as a JSON number': { client_ref: 5 } },
  ],
  '2.7-price-numerical': [
    'proposed_price is a numerical price string, not an outcome key',
    {
      'proposed_price p2': { proposed_price: 'p2' },
      'proposed_price as a JSON number': { proposed_price: 0 },
    },
  ],
  '2.7-max-payment': ['max_payment is "0"', { 'max_payment 1': { max_payment: '1' } }],
  '2.7-proposer-lowercase': [
    'proposer is lowercase',
    {
      'proposer in capitals': { proposer: capitals },
      'a name as proposer': { proposer: 'nobody' },
    },
  ],
  '2.7-amount-text': [
    'permit.amount is a decimal string',
    { 'permit.amount as a JSON number': { permit: { amount: Number } } },
  ],
  '2.7-nonce-text': [
    'permit.nonce is a decimal string',
    {
      'permit.nonce as a JSON number': { permit: { nonce: 1 } },
      'permit.nonce 0x10': { permit: { nonce: '0x10' } },
    },
  ],
  '2.7-deadline-integer': [
    'permit.deadline is a JSON integer',
    {
      'permit.deadline as text': { permit: { deadline: String } },
      'half a second in permit.deadline': {
        permit: { deadline: (seconds: string) => Number(seconds) + 0.5 },
      },
    },
  ],
  '2.7-signature': [
    'an item has a signature of lowercase, even-length hex',
    {
      'no signature': { signature: undefined },
      'a signature that is not hex': { signature: noHex },
      'a signature in capitals': { signature: capitals },
      'a signature one digit short': { signature: cut },
    },
  ],
  '2.7-item-fields': [
    'the batch format has no version and no outcome, nor other fields',
    {
      'a version in an item': { version },
      'an outcome in an item': { outcome: 'p2' },
      'a field that is not documented': note,
    },
  ],
  '9-v1-body-in-batch': [
    'v1 payloads are not interchangeable with batch items',
    {
      'a v1 body as item': ({ proposer, permit, signature, identifier }) => ({
        ...{ version, identifier, proposer, outcome: 'p2', max_payment: '0' },
        permit: { ...permit, deadline: String(permit.deadline) },
        signature,
      }),
    },
  ],
  '7-batch-ancillary-data': [
    '413: ancillary data in admission',
    { 'ancillary_data in an item': { ancillary_data: '0x' } },
    [413],
  ],
}

export const bodyRules = rulesOf('read', {
  ...refusing('single', singleCases),
  ...refusing('batch', batchCases),
  '2.1-signature-8192': [
    'signature has up to 8,192 bytes, that many included',
    (bench) => single(bench, '8,192 bytes of signature', { signature: longest }),
    answers(403),
  ],
  '4.1.3-signature-checked': [
    'a signature that does not authorize gives 403',
    (bench) => single(bench, 'a random signature', {}),
    answers(403),
  ],
  '5-not-eligible': [
    'an ineligible wallet gives 403',

    (bench) => single(bench, 'a random wallet as proposer', { proposer: bench.stranger }),
    answers(403),
  ],
  '7-errors-sanitized': [
    'errors is optional and sanitized on schema failures',
    async (bench) => {
      const canary = `canary${bench.stranger.slice(2, 18)}`
      let count = 0
      for (const [send, what, field] of [
        [single, 'outcome', 'outcome'],
        [single, 'an unknown field', 'conformance_note'],
        [batch, 'proposed_price', 'proposed_price'],
      ] as const) {
        const wrong = `a value of ${what} that must not come back`
        const seen = given(await send(bench, wrong, { [field]: canary }), ...malformed)
        const errors = at(seen.json, 'errors')
        count += Array.isArray(errors) ? errors.length : 0
        const isClean = !JSON.stringify(errors ?? null).includes(canary)
        expectAll(seen, { 'errors repeats the value that was sent': isClean })
      }
      return `${count} errors, no value repeated`
    },
    3,
  ],
})
