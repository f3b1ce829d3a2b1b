import { expect, test } from 'vitest'
import { hasAncillaryKey, schemaViolation, singleFault } from '#protocol/faults'
import { BatchStatusRequest, BatchSubmitRequest, SignedProposal } from '#protocol/schema'
import { version } from '#protocol/words'

const sound = {
  version,
  proposer: `0x${'1'.repeat(40)}`,
  outcome: 'p2',
  max_payment: '0',
  permit: { amount: '1', nonce: '2', deadline: '3' },
  signature: '0xab',
}
const permit = (changes: object) => ({ ...sound, permit: { ...sound.permit, ...changes } })

function faultOf(body: unknown) {
  const parsed = SignedProposal.safeParse(body)
  return parsed.success ? undefined : singleFault(parsed.error.issues, body)
}
function batchFault(body: unknown) {
  const parsed = BatchSubmitRequest.safeParse(body)
  return parsed.success ? undefined : schemaViolation(parsed.error.issues, body)
}

test('the sound body has none', () => {
  expect(faultOf(sound)).toBeUndefined()
})

test.each([
  ['an outcome that is no string', { ...sound, outcome: 2 }, 'schema_violation'],

  ['max_payment as a number', { ...sound, max_payment: 0 }, 'schema_violation'],

  ['a negative amount', permit({ amount: '-1' }), 'invalid_amount'],
  ['a hex nonce', permit({ nonce: '0x1' }), 'invalid_amount'],
  ['2^256', permit({ deadline: String(2n ** 256n) }), 'invalid_amount'],
  ['79 digits', permit({ amount: '1'.repeat(79) }), 'invalid_amount'],
  ['an empty amount', permit({ amount: '' }), 'invalid_amount'],
  ['an amount as a number', permit({ amount: 1 }), 'schema_violation'],

  ['no signature', { ...sound, signature: undefined }, 'schema_violation'],

  [
    'an extra field beside a malformed amount',
    { ...permit({ amount: '01' }), more: 1 },
    'schema_violation',
  ],

  ['another version of fewer keys', { ...sound, version: { api: 'v2' } }, 'unsupported_version'],
  [
    'another version and everything else wrong',
    { version: { ...version, schema: 'x' }, extra: 1 },
    'unsupported_version',
  ],
  [
    'a version with a number in it',
    { ...sound, version: { ...version, api: 1 } },
    'schema_violation',
  ],
  ['an empty version', { ...sound, version: {} }, 'schema_violation'],
  [
    'a version with an extra key',
    { ...sound, version: { ...version, extra: 'x' } },
    'schema_violation',
  ],
  ['a version that is a string', { ...sound, version: 'v2' }, 'schema_violation'],
  ['a list', [sound], 'schema_violation'],
  ['null', null, 'schema_violation'],
  ['a string', 'x', 'schema_violation'],
])('contract §2: %s is %s', (_, body, code) => {
  const fault = faultOf(body)
  expect(fault?.code).toBe(code)
  expect(fault?.errors !== undefined).toBe(code === 'schema_violation')
})

test('robustness §4: unknown keys show at the path of their parent, neither keys nor values come back', () => {
  const fault = faultOf({ ...permit({ 'canary-key': 'canary-value' }), proposer: 'canary-value' })
  expect(fault?.errors).toContainEqual({ path: 'permit', code: 'unrecognized_keys' })
  expect(fault?.errors).toContainEqual({ path: 'proposer', code: 'invalid_format' })
  expect(JSON.stringify(fault)).not.toContain('canary')
})

test('contract §2: the detail names the field and what it must be', () => {
  expect(faultOf(permit({ amount: '01' }))?.detail).toContain(
    'permit.amount must be an unsigned 256-bit integer',
  )
  expect(faultOf({ ...sound, permit: undefined })?.detail).toContain('permit is missing')
})

const item = {
  identifier: 'a',
  proposer: sound.proposer,
  proposed_price: '0',
  max_payment: '0',
  permit: { amount: '1', nonce: '2', deadline: 3 },
  signature: '0xab',
}

test.each([
  ['no items', { proposals: [] }, 'proposals', 'too_small'],
  ['101 items', { proposals: Array.from({ length: 101 }, () => item) }, 'proposals', 'too_big'],
  ['a v1 body', sound, '', 'unrecognized_keys'],
  [
    'a deadline string',
    { proposals: [{ ...item, permit: { ...item.permit, deadline: '3' } }] },
    'proposals.0.permit.deadline',
    'invalid_type',
  ],
  [
    'client_ref of 257 bytes',
    { proposals: [{ ...item, client_ref: 'é'.repeat(129) }] },
    'proposals.0.client_ref',
    'too_long',
  ],
  [
    'client_ref with a control character',
    { proposals: [{ ...item, client_ref: 'a\u0007' }] },
    'proposals.0.client_ref',
    'invalid_format',
  ],
  [
    'a malformed amount',
    { proposals: [item, { ...item, permit: { ...item.permit, amount: 'x' } }] },
    'proposals.1.permit.amount',
    'invalid_format',
  ],
  [
    'a malformed signature',
    { proposals: [{ ...item, signature: '0x' }] },
    'proposals.0.signature',
    'invalid_format',
  ],
  [
    'a malformed identifier',
    { proposals: [{ ...item, identifier: 'Slug' }] },
    'proposals.0.identifier',
    'identifier',
  ],
])('contract §2: %s is one schema_violation of the whole call', (_, body, path, code) => {
  const fault = batchFault(body)
  expect(fault?.code).toBe('schema_violation')
  expect(fault?.errors).toContainEqual({ path, code })
})

test('R17: the list of faults is bounded', () => {
  const fault = batchFault({ proposals: Array.from({ length: 100 }, () => ({ x: 1 })) })
  expect(fault?.errors).toHaveLength(50)
  expect(fault?.detail).toContain('more, see errors')
})

test('contract §2: entries of a list are named by their index', () => {
  const body = { candidate_ids: ['x'] }
  const parsed = BatchStatusRequest.safeParse(body)
  expect(parsed.success).toBe(false)
  if (!parsed.success)
    expect(schemaViolation(parsed.error.issues, body).detail).toContain(
      'candidate_ids.0 must be a candidate id',
    )
})

test('§4.1 rule 3: ancillary keys are found at any depth, other keys are not taken for them', () => {
  expect(hasAncillaryKey({ a: [{ b: { ancillary_data: '0x' } }] })).toBe(true)
  expect(hasAncillaryKey({ ancillaryData: 1 })).toBe(true)
  expect(hasAncillaryKey(sound)).toBe(false)
  expect(hasAncillaryKey({ note: 'ancillary' })).toBe(false)
  expect(hasAncillaryKey(null)).toBe(false)
})
