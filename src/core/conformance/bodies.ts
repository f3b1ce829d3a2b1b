/** Bodies with random bytes for a signature, by which no gateway can get anything on chain. */
import { limits, version, zeroAddress } from '#protocol/words'
import { is, malformed } from './answer.js'
import type { BodyChange } from './bench.js'
import { type Row, rulesOf, type Step, type Table } from './rule.js'

const longest = `0x${'ab'.repeat(limits.signatureBytes)}`
const note = { conformance_note: 'extra' }

const named: Readonly<Record<string, BodyChange>> = {
  '8,193 bytes of signature': { signature: `${longest}ab` },
  'a field that is not documented': note,
  'a field of permit that is not documented': { permit: note },
  'a version in an item': { version },
  'a batch item': ({ proposer, permit, signature }) => ({
    ...{ proposer, proposed_price: '0', max_payment: '0' },
    permit: { ...permit, deadline: Number(permit.deadline) },
    signature,
  }),
  'a v1 body as item': ({ proposer, permit, signature, identifier }) => ({
    ...{ version, identifier, proposer, outcome: 'p2', max_payment: '0' },
    permit: { ...permit, deadline: String(permit.deadline) },
    signature,
  }),
}
const ways: Readonly<Record<string, unknown>> = {
  'as a JSON number': (text: string) => (Number.isSafeInteger(Number(text)) ? Number(text) : 1),
  'as text': String,
  'in capitals': (hex: string) => `0x${hex.slice(2).toUpperCase()}`,
  'one digit short': (hex: string) => hex.slice(0, -1),
  'with a letter that is not a hex digit': (hex: string) => `${hex.slice(0, -1)}z`,
  'with a fraction': (raw: string) => `${raw}.5`,
  'below zero': (raw: string) => `-${raw}`,
  'of half a second': (seconds: string) => Number(seconds) + 0.5,
  '2^256': String(2n ** 256n),
}
/** What some words say is wrong: `no permit.amount`, `outcome p4`. */
function changeOf(wrong: string): BodyChange {
  const [field = '', ...words] = wrong.split(' ')
  const way = words.join(' ')
  const [path, value] = field === 'no' ? [way] : [field, ways[way] ?? way]
  const within = path.split('.').reduceRight<unknown>((inner, name) => ({ [name]: inner }), value)
  return named[wrong] ?? (within as BodyChange)
}

/**
 * What is wrong with bodies that must each be refused: with 400 or 422 but where §7 names another
 * status, or leaves more of them open; a batch as a whole (§4.2 rule 4).
 */
type Case = readonly [says: string, ...(string | readonly number[])[]]

export const refusing = (
  to: 'submit' | 'submitItem' | 'prepare',
  cases: Readonly<Record<string, Case>>,
): Table =>
  Object.fromEntries(
    Object.entries(cases).map(([id, [says, ...parts]]): [string, Row] => {
      const wrongs = parts.filter(is.text)
      const statuses = parts.find((one) => typeof one !== 'string') ?? malformed
      const calls: Step = (bench) => wrongs.map((wrong) => bench[to](changeOf(wrong), wrong))
      return [id, [says, calls, statuses, wrongs.length]]
    }),
  )

const single: Readonly<Record<string, Case>> = {
  '2.1-version-exact': [
    'version has exactly api "v1", schema "signed-proposal-v1" and witness "permit2-signed-proposer-v1"',
    'version.api v2',
    'version.schema signed-proposal-v2',
    'version.witness permit2-v2',
  ],
  '2.1-version-only': ['version has exactly three members', 'version.minor 1'],
  '9-version-required': ['the proposer must send the version object', 'no version'],
  '2.1-proposer-lowercase': ['proposer is lowercase', 'proposer in capitals'],
  '2.1-proposer-nonzero': ['proposer is not zero', `proposer ${zeroAddress}`],
  '2.1-proposer-address': [
    'proposer is a wallet address, and required',
    'proposer one digit short',
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
    'permit.amount with a fraction',
    'permit.amount below zero',
  ],
  '2.1-nonce-uint256': [
    'permit.nonce is a uint256 as a decimal string',
    'permit.nonce 2^256',
    'permit.nonce as a JSON number',
    'no permit.nonce',
  ],
  '2.1-deadline-text': [
    'permit.deadline is a decimal string',
    'permit.deadline as a JSON number',
    'no permit.deadline',
  ],
  '2.1-signature-required': ['a submission has a signature', 'no signature'],
  '2.1-signature-lowercase': ['signature is lowercase', 'signature in capitals'],
  '2.1-signature-even': ['signature has even length', 'signature one digit short'],
  '2.1-signature-hex': ['signature is hex', 'signature with a letter that is not a hex digit'],
  '2.1-signature-longest': [
    'signature has up to 8,192 bytes',
    '8,193 bytes of signature',
    [400, 413, 422],
  ],
  '2.1-extra-field': [
    'extra fields are rejected on submission',
    'a field that is not documented',
    'a field of permit that is not documented',
  ],
  '9-batch-item-in-v1': ['batch payloads are not interchangeable with v1', 'a batch item'],
  '4.1.3-ancillary-data': [
    'ancillary data in admission is answered 413',
    'ancillary_data 0x',
    [413],
  ],
}

const item: Readonly<Record<string, Case>> = {
  '2.7-identifier-required': ['an item has an identifier', 'no identifier'],
  '2.7-client-ref-text': ['client_ref is a string', 'client_ref as a JSON number'],
  '2.7-price-numerical': [
    'proposed_price is a numerical price string, not an outcome key',
    'proposed_price p2',
    'proposed_price as a JSON number',
  ],
  '2.7-max-payment': ['max_payment is "0"', 'max_payment 1'],
  '2.7-proposer-lowercase': ['proposer is lowercase', 'proposer in capitals', 'proposer nobody'],
  '2.7-amount-text': ['permit.amount is a decimal string', 'permit.amount as a JSON number'],
  '2.7-nonce-text': [
    'permit.nonce is a decimal string',
    'permit.nonce as a JSON number',
    'permit.nonce 0x10',
  ],
  '2.7-deadline-integer': [
    'permit.deadline is a JSON integer',
    'permit.deadline as text',
    'permit.deadline of half a second',
  ],
  '2.7-signature': [
    'an item has a signature of lowercase, even-length hex',
    'no signature',
    'signature with a letter that is not a hex digit',
    'signature in capitals',
    'signature one digit short',
  ],
  '2.7-item-fields': [
    'the batch format has no version and no outcome, nor other fields',
    'outcome p2',
    'a version in an item',
    'a field that is not documented',
  ],
  '9-v1-body-in-batch': [
    'v1 payloads are not interchangeable with batch items',
    'a v1 body as item',
  ],
  '7-batch-ancillary-data': ['413: ancillary data in admission', 'ancillary_data 0x', [413]],
}

export const bodyRules = rulesOf('read', {
  ...refusing('submit', single),
  ...refusing('submitItem', item),
  '2.1-signature-8192': [
    'signature has up to 8,192 bytes, that many included',
    ({ submit }) => submit({ signature: longest }, '8,192 bytes of signature'),
    [403],
  ],
  '4.1.3-signature-checked': [
    'a signature that does not authorize gives 403',
    ({ submit }) => submit(),
    [403],
  ],
  '5-not-eligible': [
    'an ineligible wallet gives 403',
    ({ submit, stranger }) => submit({ proposer: stranger }),
    [403],
  ],
  '7-errors-sanitized': [
    'errors is optional and sanitized on schema failures',
    ({ submit, submitItem, stranger }) => [
      submit({ outcome: stranger }),
      submit({ conformance_note: stranger }),
      submitItem({ proposed_price: stranger }),
    ],
    ({ seen, stranger }) =>
      !JSON.stringify(seen.given(...malformed).at('errors') ?? null).includes(stranger),
    3,
  ],
})
