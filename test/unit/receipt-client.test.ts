import { receiptKeysCheck } from '#checks/doctor'
import { listed } from '#checks/finding'
import { createGatewayClient } from '#client/gateway/gateway-client'
import type { JournalEntry } from '#client/journal/authorizations'
import { keptReceipts, openJournal, verifyJournal } from '#client/journal/journal'
import { mergePins, parseTrust, receiptKeysOf } from '#client/trust/trust'
import { systemEd25519 } from '#io/ed25519'
import { newReceiptKey } from '#io/receipt-keys'
import type { Fetch } from '#ports'
import {
  digestHeader,
  isHolding,
  type KeptReceipt,
  proveReceipt,
  receiptHeaders,
} from '#protocol/receipt'
import { fakeContext } from '#support/cli'
import { makeQuestion, signedBody } from '#support/fake-view'
import { temporaryFolder } from '#support/folders'
import { openFront, type TestFront, testHash, testRandom } from '#support/front'

const key = newReceiptKey({ hash: testHash, random: testRandom })
const first = makeQuestion('first', { slug: 'first-question' })
const path = `/v1/proposals/${first.questionId}`
type Change = (response: Response) => Response | Promise<Response>

async function world({
  keys = [{ kid: key.kid, x: key.x }],
  change = (same) => same,
  signs = true,
  base = 'https://gateway.test',
}: {
  keys?: readonly { kid: string; x: string; exp?: number }[]
  change?: Change
  signs?: boolean
  base?: string
} = {}) {
  const front: TestFront = await openFront(
    signs ? { parts: { receipts: { current: () => key, fault: () => undefined } } } : {},
  )
  const sent: Headers[] = []
  const fetch: Fetch = async (input, init) => {
    const request = new Request(input, init)
    sent.push(request.headers)
    const target = new URL(request.url).pathname.replace(/^\/under/, '')
    return change(await front.gateway.handle(request, { address: '192.0.2.1', target }))
  }
  const unproven: string[] = []
  const client = createGatewayClient({
    fetch,
    baseUrl: base,
    clock: front.clock,
    receipts: {
      hash: testHash,
      ed25519: systemEd25519,
      keys,
      onUnproven: (code) => unproven.push(code),
    },
  })
  const body = JSON.stringify(await signedBody(front.wallets[0], first))
  return { front, client, sent, unproven, body }
}

const withHeaders = (change: (headers: Headers) => void): Change => {
  return async (response) => {
    const headers = new Headers(response.headers)
    change(headers)
    return new Response(await response.text(), { status: response.status, headers })
  }
}

test('contract §9: carries the digest of its bytes, and its answer is proven by the pinned key', async () => {
  const { client, sent, unproven, body } = await world()
  const answer = await client.submit(first.questionId, body)
  expect(sent[0]?.get('content-digest')).toBe(digestHeader(testHash.sha256(body)))
  expect(answer.kind).toBe('accepted')
  expect(answer.receipt).toMatchObject({
    result: 'proven',
    path,
    status: 202,
    requestDigest: digestHeader(testHash.sha256(body)),
  })
  expect(unproven).toEqual([])
})

test('contract §9: a gateway below a path signs the path that it sees', async () => {
  const { client, body } = await world({ base: 'https://gateway.test/under' })
  expect((await client.submit(first.questionId, body)).receipt).toMatchObject({
    result: 'proven',
    path,
  })
})

test('contract §9: reads carry none, and are not judged', async () => {
  const { client, sent, front } = await world()
  const answer = await client.eligibility(front.wallets[0].address)
  expect(sent[0]?.get('content-digest')).toBeNull()
  expect(answer.receipt).toBeUndefined()
})

test('contract §9: without a pinned key the receipt is kept and not judged; without either nothing is', async () => {
  const unpinned = await world({ keys: [] })
  const answer = await unpinned.client.submit(first.questionId, unpinned.body)
  expect(answer.receipt).toMatchObject({ result: 'unchecked' })
  expect(unpinned.unproven).toEqual([])
  const bare = await world({ keys: [], signs: false })
  expect((await bare.client.submit(first.questionId, bare.body)).receipt).toBeUndefined()
})

test.each<[string, Parameters<typeof world>[0], string]>([
  ['no signature', { signs: false }, 'receipt_missing'],
  [
    'a proxy that strips it',
    {
      change: withHeaders((headers) => {
        headers.delete('signature')
        headers.delete('signature-input')
      }),
    },
    'receipt_missing',
  ],
  [
    'one byte changed',
    {
      change: withHeaders((headers) => {
        headers.set(
          'signature',
          headers.get('signature')?.replace(/:(.)/, (_, c) => `:${c === 'A' ? 'B' : 'A'}`) ?? '',
        )
      }),
    },
    'receipt_invalid',
  ],
  ['another key', { keys: [{ kid: 'other', x: key.x }] }, 'receipt_unknown_key'],
  ['a key that has ended', { keys: [{ kid: key.kid, x: key.x, exp: 1 }] }, 'receipt_key_expired'],
  [
    'huge headers',
    { change: withHeaders((headers) => headers.set('signature', `a=:${'A'.repeat(9_000)}:`)) },
    'receipt_too_large',
  ],
])(
  'contract §9, R7: with %s it stays accepted, and is told to be unproven',
  async (_name, given, code) => {
    const { client, unproven, body } = await world(given)
    const answer = await client.submit(first.questionId, body)
    expect(answer.kind).toBe('accepted')
    expect(answer.receipt).toMatchObject({ result: 'unproven', code })
    expect(unproven).toEqual([code])
  },
)

test('contract §9: 429 and 503 are not missed a receipt', async () => {
  const { client, unproven, body, front } = await world()
  await front.gateway.drain()
  const answer = await client.submit(first.questionId, body)
  expect([answer.kind, answer.receipt, unproven]).toEqual(['deferred', undefined, []])
})

describe('the journal', () => {
  const terms = {
    proposer: `0x${'7'.repeat(40)}`,
    price: '0',
    amount: '1',
    nonce: '1',
    deadline: '4000000000',
  } as const
  const body = JSON.stringify({
    proposer: terms.proposer,
    outcome: 'p1',
    permit: { amount: '1', nonce: '1', deadline: '4000000000' },
  })
  const ack = '{"candidate_id":"3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f","status":"received"}'
  const receiptOf = (of: string, answer = ack): KeptReceipt => {
    const requestDigest = digestHeader(testHash.sha256(of))
    const parts = { method: 'POST', path, status: 202, body: ack, requestDigest }
    const headers = receiptHeaders(testHash, parts, key, 1_800_000_000)
    return {
      ...parts,
      body: answer,
      contentDigest: headers['content-digest'],
      signatureInput: headers['signature-input'],
      signature: headers.signature,
      result: 'proven',
    }
  }

  async function journaled(receipt: KeptReceipt | undefined) {
    const home = temporaryFolder()
    const { context } = fakeContext(home)
    const journal = openJournal(context, home)
    const [id, attempt] = [journal.nextId(), journal.nextAttempt()]
    const sha256 = testHash.sha256(body)
    const entries: JournalEntry[] = [
      { kind: 'nonce.reserved', data: { id, proposer: terms.proposer, nonce: '1' } },
      {
        kind: 'signed',
        data: {
          ...{ id, identifier: 'first', questionId: first.questionId, chainId: 1, terms },
          ...{ identity: 'one', form: 'single', body, sha256, signedAtMs: 1 },
          ...{ digest: `0x${'1'.repeat(64)}`, timestamp: '1' },
        },
      },
      {
        kind: 'attempt.start',
        data: { attempt, ids: [id], origin: 'https://gateway.test', form: 'single', sha256 },
      },
      {
        kind: 'attempt.end',
        data: {
          attempt,
          results: [{ id, class: 'accepted', status: 202 }],
          ...(receipt && { receipt }),
        },
      },
    ]
    await journal.append(entries)
    const view = await journal.load()
    await journal.close()
    return { home, context, id, attempt, view }
  }

  test('contract §9: a receipt is read back whole from the disk, and only judged in memory (R17)', async () => {
    const receipt = receiptOf(body)
    const { home, context, id, attempt, view } = await journaled(receipt)
    expect(view.find(id)?.attempts[0]?.receipt).toMatchObject({ result: 'proven' })
    expect(JSON.stringify(view.find(id))).not.toContain(receipt.signature)
    const other = openJournal(context, home)
    const again = (await other.load()).find(id)
    expect(again?.attempts[0]?.receipt).toMatchObject({ result: 'proven' })
    expect(JSON.stringify(again)).not.toContain(receipt.signature)
    expect((await keptReceipts(context, home, [attempt])).get(attempt)).toEqual(receipt)
    expect((await verifyJournal(context, home)).hashes).toBeGreaterThan(0)
  })

  test('contract §9: what was kept is proven offline, and by the sent bytes alone', () => {
    const ports = { hash: testHash, ed25519: systemEd25519, keys: [{ kid: key.kid, x: key.x }] }
    const answer = { ...receiptOf(body), body: ack }
    const proof = proveReceipt(ports, answer, testHash.sha256(body))
    expect(proof).toMatchObject({
      bytes: 'same',
      claims: [{ status_code: 202, candidate_id: '3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f' }],
    })
    expect(isHolding(proof)).toBe(true)
    const other = proveReceipt(ports, answer, testHash.sha256('{}'))
    expect([other.bytes, isHolding(other)]).toEqual(['differ', false])
    expect(proveReceipt(ports, answer, undefined).bytes).toBe('not_given')
  })
})

const pins = {
  chain_id: 1,
  permit2: `0x${'1'.repeat(40)}`,
  signed_proposer: `0x${'2'.repeat(40)}`,
  oracles: [`0x${'3'.repeat(40)}`],
  requesters: [{ address: `0x${'4'.repeat(40)}`, kind: 'uma-ctf-adapter' }],
  tokens: [`0x${'5'.repeat(40)}`],
}
const jwk = { kty: 'OKP', crv: 'Ed25519', x: key.x }
const withKey = (more: object) =>
  parseTrust({ ...pins, receipt_keys: { one: { ...jwk, ...more } } }, 'x')

test('contract §9: receipt_keys are read; older files have none', () => {
  expect(receiptKeysOf(parseTrust(pins, 'trust.json'))).toEqual([])
  expect(receiptKeysOf(withKey({ exp: 5 }))).toEqual([{ kid: 'one', x: key.x, exp: 5 }])
})

test.each([
  ['a private key', { d: key.d }],
  ['another curve', { crv: 'X25519' }],
  ['a short key', { x: 'AAAA' }],
])('contract §9: %s is refused, and not repeated', (_name, more) => {
  expect(() => withKey(more)).toThrow(/receipt_keys/)
  try {
    withKey(more)
  } catch (error) {
    expect(String(error)).not.toContain(key.d)
  }
})

test('contract §9: a new key, and the end of one, add to the pins; another key under an ID changes them', () => {
  const ended = mergePins(withKey({}), withKey({ exp: 5 }))
  expect([ended.changed, ended.added]).toEqual([
    [],
    ['end of receipt key one: 1970-01-01T00:00:05.000Z'],
  ])
  expect(mergePins(withKey({ exp: 5 }), withKey({})).changed).toHaveLength(1)
  const other = newReceiptKey({ hash: testHash, random: testRandom })
  expect(mergePins(withKey({}), withKey({ x: other.x })).changed).toHaveLength(1)
  const added = mergePins(parseTrust(pins, 'x'), withKey({}))
  expect(added).toMatchObject({ changed: [], added: ['receipt key one'] })
  expect(added.trust.receipt_keys).toHaveProperty('one')
})

describe('doctor', () => {
  const pinned = [{ kid: 'one', x: 'x' }]
  const told = (...given: Parameters<typeof receiptKeysCheck>) =>
    listed(receiptKeysCheck(...given)).map(({ result, detail }) => [result, detail])
  test('contract §6: pinned and listed keys are compared; a gateway without receipts is no finding', () => {
    expect(told([], [], 5)).toEqual([])
    expect(told(pinned, pinned, 5)).toEqual([['pass', 'signed with one, which is pinned']])
    expect(
      told(
        pinned,
        [
          { kid: 'one', x: 'x', exp: 4 },
          { kid: 'two', x: 'y' },
        ],
        5,
      ),
    ).toEqual([['warn', 'the gateway lists the key two, which is not pinned']])
    expect(told(pinned, [{ kid: 'one', x: 'z' }], 5)).toEqual([['warn', expect.any(String)]])
    expect(told(pinned, [], 5)).toEqual([['warn', expect.stringContaining('lists none')]])
    expect(told([], pinned, 5)).toEqual([
      ['note', expect.stringContaining('no key of it is pinned')],
    ])
  })
})
