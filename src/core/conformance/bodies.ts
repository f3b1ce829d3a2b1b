/**
 * Rules of §2.1, §2.7, §4.1 rule 3, §5 and §9 about bodies that must be refused. Each is
 * well-formed but for one field, and carries a signature of random bytes, which authorizes nothing.
 * No gateway, right or wrong, can get anything on chain by them.
 */
import { limits, version } from '#protocol/words'
import type { Bench } from './admissions.js'
import { is, malformed, type Seen } from './answer.js'
import { type BodyChange, changed } from './bench.js'
import { type RuleRow, type RuleRows, rulesOf } from './rule.js'

/** What takes bodies, and how one that is wrong gets there. */
const senders = {
  single: async (bench: Bench, wrong: string, change: BodyChange): Promise<Seen> =>
    bench.submit(changed(await bench.unsigned(), change), wrong),
  batch: async (bench: Bench, wrong: string, change: BodyChange): Promise<Seen> =>
    bench.batch('proposals', [changed(await bench.unsignedItem(), change)], wrong),
  preparation: async (bench: Bench, wrong: string, change: BodyChange): Promise<Seen> => {
    ;(await bench.signingData()).given(200)
    return bench.prepare(change, wrong)
  },
}
const { single, batch } = senders

const capitals = (hex: string) => `0x${hex.slice(2).toUpperCase()}`
const cut = (hex: string) => hex.slice(0, -1)
const longest = `0x${'ab'.repeat(limits.signatureBytes)}`
const note = { conformance_note: 'extra' }
const within = (path: string, value: unknown) =>
  path.split('.').reduceRight<unknown>((inner, name) => ({ [name]: inner }), value) as BodyChange

const ways: Readonly<Record<string, unknown>> = {
  'as a JSON number': Number,
  'as text': String,
  'in capitals': capitals,
}
/** What some words say is wrong: `no permit.amount`, `outcome p4`. */
function changeNamed(wrong: string): BodyChange {
  const [field = '', ...words] = wrong.split(' ')
  const way = words.join(' ')
  return field === 'no' ? within(way, undefined) : within(field, ways[way] ?? way)
}

/**
 * Bodies by what is wrong with them; each must be refused, and a batch as a whole (§4.2 rule 4).
 * With 400 or 422 but where §7 names another status, or leaves more of them open.
 */
type Case = readonly [
  says: string,
  ...(string | readonly number[] | Readonly<Record<string, BodyChange>>)[],
]

export const refusing = (
  to: keyof typeof senders,
  cases: Readonly<Record<string, Case>>,
): RuleRows =>
  Object.fromEntries(
    Object.entries(cases).map(([id, [says, ...parts]]): [string, RuleRow] => {
      const statuses = parts.find((one) => Array.isArray(one)) ?? malformed
      const wrongs = parts.flatMap((one): readonly (readonly [string, BodyChange])[] => {
        if (is.text(one)) return [[one, changeNamed(one)]]
        return Array.isArray(one) ? [] : (Object.entries(one) as [string, BodyChange][])
      })
      const run = async (bench: Bench) => {
        const actual = new Set<string>()
        for (const [wrong, change] of wrongs)
          actual.add((await senders[to](bench, wrong, change)).expect(...statuses))
        return [...actual].join(', ')
      }
      return [id, [says, run, wrongs.length]]
    }),
  )

const signatures = {
  noHex: { signature: (hex: string) => `${cut(hex)}z` },
  capitals: { 'a signature in capitals': { signature: capitals } },
  odd: { 'a signature one digit short': { signature: cut } },
}

const singleCases: Readonly<Record<string, Case>> = {
  '2.1-version-exact': [
    'version has exactly api "v1", schema "signed-proposal-v1" and witness "permit2-signed-proposer-v1"',
    'version.api v2',
    'version.schema signed-proposal-v2',
    'version.witness permit2-v2',
  ],
  '2.1-version-only': [
    'version has exactly three members',
    { 'a fourth member in version': { version: { minor: '1' } } },
  ],
  '9-version-required': ['the proposer must send the version object', 'no version'],
  '2.1-proposer-lowercase': ['proposer is lowercase', 'proposer in capitals'],
  '2.1-proposer-nonzero': [
    'proposer is not zero',
    { 'the zero address as proposer': { proposer: `0x${'0'.repeat(40)}` } },
  ],
  '2.1-proposer-address': [
    'proposer is a wallet address, and required',
    { 'a truncated proposer': { proposer: cut } },
    'no proposer',
  ],
  '2.1-outcome-known': [
    'outcome is p1, p2 or p3, and required',
    'outcome p4',
    'outcome P2',
    'no outcome',
  ],
  '2.1-max-payment': [
    'max_payment must be "0"',
    'max_payment 1',
    'max_payment as a JSON number',
    'no max_payment',
  ],
  '2.1-amount-text': [
    'permit.amount is a decimal string',
    'permit.amount as a JSON number',
    'no permit.amount',
  ],
  '2.1-amount-decimal': [
    'permit.amount is decimal raw units',
    'permit.amount 0x10',
    {
      'permit.amount with a fraction': { permit: { amount: (raw: string) => `${raw}.5` } },
      'a negative permit.amount': { permit: { amount: (raw: string) => `-${raw}` } },
    },
  ],
  '2.1-nonce-uint256': [
    'permit.nonce is a uint256 as a decimal string',
    {
      'permit.nonce 2^256': { permit: { nonce: String(2n ** 256n) } },
      'permit.nonce as a JSON number': { permit: { nonce: 1 } },
    },
    'no permit.nonce',
  ],
  '2.1-deadline-text': [
    'permit.deadline is a decimal string',
    'permit.deadline as a JSON number',
    'no permit.deadline',
  ],
  '2.1-signature-required': ['a submission has a signature', 'no signature'],
  '2.1-signature-lowercase': ['signature is lowercase', signatures.capitals],
  '2.1-signature-even': ['signature has even length', signatures.odd],
  '2.1-signature-hex': [
    'signature is hex',
    { 'a signature with a letter that is not a hex digit': signatures.noHex },
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

const batchCases: Readonly<Record<string, Case>> = {
  '2.7-identifier-required': ['an item has an identifier', 'no identifier'],
  '2.7-client-ref-text': [
    'client_ref is a string',
    { 'client_ref as a JSON number': { client_ref: 5 } },
  ],
  '2.7-price-numerical': [
    'proposed_price is a numerical price string, not an outcome key',
    'proposed_price p2',
    { 'proposed_price as a JSON number': { proposed_price: 0 } },
  ],
  '2.7-max-payment': ['max_payment is "0"', 'max_payment 1'],
  '2.7-proposer-lowercase': [
    'proposer is lowercase',
    'proposer in capitals',
    { 'a name as proposer': { proposer: 'nobody' } },
  ],
  '2.7-amount-text': ['permit.amount is a decimal string', 'permit.amount as a JSON number'],
  '2.7-nonce-text': [
    'permit.nonce is a decimal string',
    { 'permit.nonce as a JSON number': { permit: { nonce: 1 } } },
    'permit.nonce 0x10',
  ],
  '2.7-deadline-integer': [
    'permit.deadline is a JSON integer',
    'permit.deadline as text',
    {
      'half a second in permit.deadline': {
        permit: { deadline: (seconds: string) => Number(seconds) + 0.5 },
      },
    },
  ],
  '2.7-signature': [
    'an item has a signature of lowercase, even-length hex',
    'no signature',
    { 'a signature that is not hex': signatures.noHex, ...signatures.capitals, ...signatures.odd },
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
    [403],
  ],
  '4.1.3-signature-checked': [
    'a signature that does not authorize gives 403',
    (bench) => single(bench, 'a random signature', {}),
    [403],
  ],
  '5-not-eligible': [
    'an ineligible wallet gives 403',
    (bench) => single(bench, 'a random wallet as proposer', { proposer: bench.stranger }),
    [403],
  ],
  '7-errors-sanitized': [
    'errors is optional and sanitized on schema failures',
    async (bench) => {
      const canary = `canary${bench.stranger.slice(2, 18)}`
      let count = 0
      for (const [send, what, field = what] of [
        [single, 'outcome'],
        [single, 'an unknown field', 'conformance_note'],
        [batch, 'proposed_price'],
      ] as const) {
        const wrong = `a value of ${what} that must not come back`
        const seen = (await send(bench, wrong, { [field]: canary })).given(...malformed)
        const errors = seen.at('errors')
        count += Array.isArray(errors) ? errors.length : 0
        const isClean = !JSON.stringify(errors ?? null).includes(canary)
        seen.holds({ 'errors repeats the value that was sent': isClean })
      }
      return `${count} errors, no value repeated`
    },
    3,
  ],
})
