import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { z } from 'zod'
import { recordShapes } from '../../src/core/client/journal/records.js'
import { readTrust } from '../../src/core/client/trust/plain-shapes.js'
import { Trust } from '../../src/core/client/trust/trust-file.js'
import { type Read, ShapeError } from '../../src/core/protocol/plain.js'
import { ClientRef, Signature, Uint256, Uuid } from '../../src/core/protocol/schema-words.js'
import { isClientRef, isSignature, isUint256, isUuid } from '../../src/core/protocol/words.js'
import { recordSchemas } from '../support/record-schemas.js'

type Told = { readonly value: unknown } | { readonly path: readonly string[] }

/** What a reader makes of a value, or where it finds the first fault. */
function byReader(read: Read<unknown>, value: unknown): Told {
  try {
    return { value: JSON.parse(JSON.stringify(read(value))) }
  } catch (error) {
    if (error instanceof ShapeError) return { path: error.path.map(String) }
    throw error
  }
}

function bySchema(schema: z.ZodType, value: unknown): Told {
  const parsed = schema.safeParse(value)
  return parsed.success
    ? { value: JSON.parse(JSON.stringify(parsed.data)) }
    : { path: (parsed.error.issues[0]?.path ?? []).map((part) => String(part)) }
}

const [a, b, w] = [`0x${'1'.repeat(40)}`, `0x${'2a'.repeat(20)}`, `0x${'6'.repeat(64)}`]
const trust = {
  chain_id: 137,
  permit2: a,
  signed_proposer: b,
  oracles: [a],
  requesters: [{ address: b, kind: 'direct' }],
  tokens: [a, b],
  slugs: { 'some-slug': w },
}
const [id, uuid, terms] = [
  '0764d97810aa-1',
  '0b5c5f6e-29c4-4d7e-9b6e-1f8b6a1f2a3b',
  { proposer: a, price: '0', amount: '750000000', nonce: '7', deadline: '1800000000' },
]
const typedData = {
  domain: { name: 'Permit2', chainId: '137', verifyingContract: a },
  types: { Proposal: [{ name: 'oracle', type: 'address' }] },
  primaryType: 'PermitWitnessTransferFrom',
  message: {
    permitted: { token: a, amount: '750000000' },
    spender: b,
    nonce: '7',
    deadline: '1800000000',
    witness: {
      oracle: a,
      requester: b,
      identifier: w,
      timestamp: '1700000000',
      ancillaryData: '0x71',
      proposedPrice: '0',
      maxPayment: '0',
    },
  },
}
const authorization = { id, identifier: 'some-slug', questionId: w, chainId: 137, terms }
const round = {
  timestamp: '1700000000',
  round: 'key',
  digest: w,
  token: a,
  spender: b,
  clientRef: 'row-1',
  unchecked: ['bond'],
}
const records = {
  intent: { id, identifier: 'some-slug', questionId: w, terms, supersedes: id },
  'nonce.reserved': { id, proposer: a, nonce: '7' },
  offered: { ...authorization, ...round, typedData, offeredAtMs: 1.5, supersedes: id },
  signed: {
    ...authorization,
    ...round,
    identity: 'i',
    form: 'batch',
    body: '{}',
    sha256: 's',
    signedAtMs: 1,
    supersedes: id,
  },
  'attempt.start': {
    attempt: 't',
    ids: [id],
    origin: 'o',
    form: 'single',
    sha256: 's',
    body: '{}',
    batch: 'f',
  },
  'attempt.end': { attempt: 't', results: [{ id, class: 'accepted', status: 202, code: 'c' }] },
  ack: {
    id,
    candidate_id: uuid,
    status: 'received',
    received_at: 'then',
    replayed: false,
    answer: { candidate_id: uuid },
  },
  terminal: {
    id,
    outcome: 'failed',
    code: 'c',
    retryable: true,
    transaction_hash: null,
    event_index: 0,
  },
  abandoned: { id, reason: 'why' },
} as const

/** Values that stand near the edges of what the members may be. */
const odd = fc.oneof(
  fc.constantFrom<unknown>(
    '',
    '0',
    '00',
    '1.5',
    '-1',
    a,
    a.toUpperCase(),
    w,
    `${w}0`,
    '0x',
    '0x1',
    '0xAB',
    'direct',
    'constructor',
    0,
    1,
    0.5,
  ),
  fc.constantFrom<unknown>(
    -1,
    2 ** 53,
    2 ** 53 - 1,
    null,
    true,
    [],
    {},
    [[]],
    [a],
    [a, 7],
    { raw: w },
    { raw: 1 },
    { name: 'x' },
    { x: [{ name: 'y' }] },
  ),
  fc.constantFrom<unknown>(
    String(2n ** 256n - 1n),
    String(2n ** 256n),
    '9'.repeat(77),
    '9'.repeat(78),
    '9'.repeat(79),
  ),
  fc.jsonValue(),
)

/** Every place in a value. */
function places(value: unknown, path: readonly string[] = []): (readonly string[])[] {
  if (typeof value !== 'object' || value === null) return [path]
  return [
    path,
    ...Object.entries(value).flatMap(([name, member]) => places(member, [...path, name])),
  ]
}

type Change = { readonly at: number; readonly act: 'set' | 'drop' | 'add'; readonly value: unknown }
const changes = fc.array(
  fc.record({ at: fc.nat(), act: fc.constantFrom('set', 'drop', 'add'), value: odd }),
  { maxLength: 3 },
)

/** Of a JSON value; a later change must not reach into what an earlier one has put in. */
const copyOf = (value: unknown) => JSON.parse(JSON.stringify(value))

function changed(value: unknown, all: readonly Change[]): unknown {
  const copy = copyOf({ value })
  for (const { at, act, value: other } of all) {
    const found = places(copy.value)
    const path = ['value', ...(found[at % found.length] ?? [])]
    const last = path.pop() ?? ''
    const target = path.reduce((inner, name) => inner[name], copy)
    if (act === 'set') target[last] = copyOf(other)
    else if (act === 'drop')
      Array.isArray(target) ? target.splice(Number(last), 1) : delete target[last]
    else if (
      typeof target[last] === 'object' &&
      target[last] !== null &&
      !Array.isArray(target[last])
    )
      target[last]['another member'] = copyOf(other)
  }
  return copyOf(copy).value
}

test.each([
  ['a trust file', readTrust, Trust, trust],
  ...(Object.keys(records) as (keyof typeof records)[]).map(
    (kind) => [`a record ${kind}`, recordShapes[kind], recordSchemas[kind], records[kind]] as const,
  ),
] as const)(
  '%s is read as its schema reads it: the same copy, or the first fault in the same place',
  (_name, read, schema, sound) => {
    expect(byReader(read, sound)).toEqual(bySchema(schema, sound))
    expect(byReader(read, sound)).toHaveProperty('value')
    fc.assert(
      fc.property(changes, (all) => {
        const value = changed(sound, all)
        const [plain, told] = [byReader(read, value), bySchema(schema, value)]
        // A strict schema names the object of an unknown member before or after the members' own
        // faults; a trust file's words come from it anyway.
        if (schema === Trust && 'path' in plain && 'path' in told) return
        expect(plain).toEqual(told)
      }),
      { numRuns: 2_000 },
    )
  },
)

test('members named like those of every object are read as what they are', () => {
  for (const json of [
    '{"__proto__":[{"name":"a","type":"b"}],"constructor":[]}',
    '{"toString":[{"name":"a","type":"b"}]}',
    '{"hasOwnProperty":1}',
  ]) {
    const value = { ...records.offered, typedData: { ...typedData, types: JSON.parse(json) } }
    expect(byReader(recordShapes.offered, value)).toEqual(bySchema(recordSchemas.offered, value))
  }
  for (const json of ['{"__proto__":{}}', '{"constructor":1}']) {
    expect(byReader(readTrust, JSON.parse(json))).toEqual(bySchema(Trust, JSON.parse(json)))
  }
})

test.each([
  ['uint256', isUint256, Uint256],
  ['a UUID', isUuid, Uuid],
  ['a signature', isSignature, Signature],
  ['a client_ref', isClientRef, ClientRef],
] as const)('%s is judged as its schema judges it', (_name, isOne, schema) => {
  const text = fc.oneof(
    fc.string(),
    fc.bigInt({ min: 0n, max: 2n ** 257n }).map(String),
    fc.stringMatching(/^0x[0-9a-f]*$/),
    fc.uuid(),
    fc.constantFrom(
      '0x',
      `0x${'ab'.repeat(8192)}`,
      `0x${'ab'.repeat(8193)}`,
      'é'.repeat(128),
      'é'.repeat(129),
      '\u0085',
      ' ',
      '01',
    ),
  )
  fc.assert(
    fc.property(text, (one) => {
      expect(isOne(one)).toBe(schema.safeParse(one).success)
    }),
  )
})
