/** §1, eligibility, the errors of §7 that any caller can see, and receipts. */
import { readKeySet } from '#client/gateway/gateway-client'
import { judgeReceipt, type ReceiptKey, receiptDirectory } from '#protocol/receipt'
import type { Bench } from './admissions.js'
import { Fault, is, malformed, NotSeen, notServed } from './answer.js'
import { type Noticed, type ProbeCall, routes } from './probe.js'
import { about, has, hasVersion, type ProbeExchange, type Run, refuses, rulesOf } from './rule.js'

const eligibility: ProbeExchange = ({ send, stranger }) => send(routes.eligibility(stranger))
const anyStatuses = ({ ports }: Bench) => routes.batch('statuses', [ports.random.uuid()])
const capitals = (hex: string) => `0x${hex.slice(2).toUpperCase()}`

const byPath = (change: (path: string) => string) => (bench: Bench) =>
  [routes.eligibility(bench.stranger), anyStatuses(bench)].map((call) => ({
    ...call,
    path: change(call.path),
  }))

/** A malformed identifier names nothing on any route, although what it would mean is known. */
async function notTaken(bench: Bench, identifier: string, wrong: string) {
  const single = async () => [
    routes.prepare(identifier, await bench.proposal()),
    routes.submit(identifier, await bench.unsigned()),
  ]
  await refuses(notServed, wrong, single)(bench)
  const item = { ...(await bench.unsignedItem()), identifier }
  for (const call of [routes.batch('contexts', [identifier]), routes.batch('proposals', [item])]) {
    const seen = await bench.send(call, wrong)
    const status = seen.status === 200 ? seen.codes[0] : seen.status
    const expected = `an item of ${String(status)}, expected ${notServed.join(' or ')}`
    const isRefused = notServed.some((one) => one === status)
    seen.holds({ [`got ${seen.came} with ${expected}`]: isRefused })
  }
  return 'names nothing'
}

const noticed =
  (name: Exclude<keyof Noticed, 'answers'>, fault: (sent: string) => string): Run =>
  async ({ probe }) => {
    const found = probe.noticed[name]
    if (found !== undefined) throw new Fault(fault(found))
    return `${probe.noticed.answers} answers`
  }

export const conventionRules = rulesOf('read', {
  '1-trailing-slash': [
    'paths are exact: no trailing slash',
    refuses(
      [404, 400],
      'a trailing slash',
      byPath((path) => `${path}/`),
    ),
    2,
  ],
  '1-percent-encoding': [
    'paths are exact: no percent-encoded aliases',
    refuses(
      [404, 400, 422],
      'an encoded letter',
      ({ stranger }) =>
        [`%65ligibility/${stranger}`, `eligibility/%30${stranger.slice(1)}`].map((alias) =>
          routes.get(`/v1/proposals/${alias}`),
        ),
      'no alias',
    ),
    2,
  ],
  '1-path-case': [
    'paths are exact: a capital is another path',
    refuses(
      [404, 400],
      'capitals in its path',
      byPath((path) => path.replace('/v1/p', '/V1/P').replace('/batch', '/Batch')),
      'no alias',
    ),
    2,
  ],
  '1-content-type': [
    'request bodies have Content-Type: application/json',
    async (bench) => {
      const hasContext = await bench.hasContext()
      for (const type of ['text/plain', '']) {
        const calls: ProbeCall[] = [anyStatuses(bench)]
        // A body that nothing is wrong with but how it is labelled.
        if (hasContext) {
          const { question_id } = await bench.context()
          calls.push(routes.prepare(question_id, await bench.proposal()))
        }
        const wrong = type === '' ? 'no Content-Type' : `Content-Type: ${type}`
        const labelled = calls.map((call) => ({ ...call, headers: { 'content-type': type } }))
        await refuses([400, 415, 422], wrong, () => labelled)(bench)
      }
      return hasContext ? 'all routes' : 'the batch routes'
    },
    4,
  ],
  '1-json-body': [
    'request bodies are JSON',
    refuses(malformed, 'a truncated body', () => [
      { ...routes.batch('statuses', []), body: '{"candidate_ids":[' },
    ]),
  ],
  '1-lowercase-address': [
    'addresses are canonical lowercase',
    // A random address has a letter but once in 10 million million.
    refuses(notServed, 'an address in capitals', ({ stranger }) => [
      routes.eligibility(capitals(stranger)),
    ]),
  ],
  '1-lowercase-question-id': [
    'question ids are canonical lowercase',
    async (bench) =>
      notTaken(bench, capitals((await bench.context()).question_id), 'a question id in capitals'),
    4,
  ],
  '1-slug-characters': [
    'slugs contain only lowercase letters, digits and hyphens',
    async (bench) => {
      // A slug that means something, so that a gateway which puts it right is seen to.
      const { slug = 'some-slug' } = await bench.context()
      await notTaken(bench, slug.toUpperCase(), 'a slug in capitals')
      const underscored = slug.includes('-') ? slug.replaceAll('-', '_') : `${slug}_`
      return notTaken(bench, underscored, 'a slug with an underscore')
    },
    8,
  ],
  '1-slug-identifies': [
    'identifier is a question id or a market slug',
    async (bench) => {
      const { slug, question_id } = await bench.context()
      if (slug === undefined) throw new NotSeen('no slug is pinned for the first open question')
      const seen = await bench.send(routes.prepare(slug, await bench.proposal()))
      seen.holds({
        'the slug is not known': seen.status !== 404,
        'the slug named another question than the pinned one':
          seen.status !== 200 || seen.at('question_id') === question_id,
      })
      // The signature authorizes nothing, but the question must be found.
      const submit = routes.submit(slug, await bench.unsigned())
      const submitted = await bench.send(submit, 'a random signature')
      submitted.holds({ 'the slug is not known': submitted.status !== 404 })
      return slug
    },
    2,
  ],
  '1-cors-explicit': [
    'browser origins need explicit CORS configuration',
    async ({ send, stranger }) => {
      const origin = 'https://conformance.invalid'
      const headers = {
        origin,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'content-type',
      }
      for (const call of [
        { ...routes.eligibility(stranger), headers: { origin } },
        { method: 'OPTIONS', path: '/propose/batch', headers } as const,
      ]) {
        const seen = await send(call)
        const allowed = seen.headers.get('access-control-allow-origin')
        const how = allowed === '*' ? '*' : 'by name'
        const fault = `an origin that is not configured was allowed (${how})`
        seen.holds({ [fault]: allowed !== '*' && allowed !== origin })
      }
      return 'no such origin is allowed'
    },
    2,
  ],
  ...about(async (bench) => (await eligibility(bench)).given(200), {
    '2.3-eligibility-fields': [
      'eligibility has canonical address and boolean eligible',
      has({ address: is.address, eligible: is.flag }),
      (seen, { stranger }) => ({
        'the answer is about another address': seen.at('address') === stranger,
      }),
      'address and eligible',
    ],
    '9-eligibility-version': ['eligibility carries the version', hasVersion],
  }),
  '4.1.1-unknown-wallet': [
    'an unknown wallet is answered 200 with eligible: false',
    eligibility,
    [200],
    (seen) => ({ 'a random wallet is said to be eligible': seen.at('eligible') !== true }),
    '200, not eligible',
  ],
  '4.1.1-eligible-wallet': [
    'an allowlisted wallet is answered 200 with eligible: true',
    ({ send, wallets: [wallet] }) => {
      if (wallet === undefined) throw new NotSeen('no key of an eligible wallet was given')
      return send(routes.eligibility(wallet.address))
    },
    [200],
    (seen, { wallets: [wallet] }) => ({
      [`the wallet that was given as eligible is not (${wallet?.address})`]:
        seen.at('eligible') === true,
    }),
    '200, eligible',
  ],
  '7-unknown-question': [
    '404: unknown question',
    async (bench) => {
      const unknown = `${bench.stranger}${'0'.repeat(24)}`
      const wrong = 'a random question id'
      const body = await bench.proposal()
      await refuses([404], wrong, () => [routes.prepare(unknown, body)])(bench)
      const submitted = await bench.unsigned()
      // Whether wallet or question is examined first is left open.
      return refuses([404, 403], wrong, () => [routes.submit(unknown, submitted)])(bench)
    },
    2,
  ],
  '7-unknown-route': [
    '404: unknown route',
    refuses([404], undefined, () => [routes.get('/v1/conformance-no-such-route')]),
  ],
  '7-wrong-method': [
    '405: wrong HTTP method',
    async (bench) => {
      for (const call of [
        routes.get('/propose/batch'),
        { ...routes.eligibility(bench.stranger), method: 'POST' } as const,
      ])
        await refuses([405], `${call.method}, which the route does not take`, () => [call])(bench)
      return '405'
    },
    2,
  ],
})

export const closingRules = rulesOf('read', {
  '1-no-cookies': [
    'the service does not use browser cookies',
    noticed('cookie', (sent) => `sent ${sent}; the answer set a cookie`),
  ],
  '2.6-never-returned': [
    'signatures are never returned, nor shown in errors',
    noticed('signature', (sent) => `sent ${sent}; the answer holds the signature that was sent`),
    0,
  ],
  '7-error-body': [
    'application errors have error.code and error.detail',
    noticed('badError', (actual) => `${actual}, without error.code and error.detail`),
  ],
})

/** The listed keys. NotSeen where the gateway signs nothing: it need not. */
async function listed({ send }: Bench): Promise<readonly ReceiptKey[]> {
  const seen = await send({ ...routes.get(receiptDirectory), items: 0 })
  if (seen.status !== 200) throw new NotSeen('this gateway lists no receipt keys')
  const keys = readKeySet(seen.json) ?? []
  seen.holds({ 'the answer is no JWK set with Ed25519 keys': keys.length > 0 })
  return keys
}

export const receiptRules = rulesOf('read', {
  'receipt-keys': [
    'a gateway that signs its answers lists its keys as a JWK set',
    async (bench) => `200, ${(await listed(bench)).length} listed`,
    0,
  ],
  'receipt-signature': [
    'a signed answer proves itself by a listed key (RFC 9421)',
    async (bench) => {
      const { ports, ed25519, stranger } = bench
      const keys = await listed(bench)
      const { method, path } = routes.eligibility(stranger)
      const seen = await bench.send({ method, path })
      const { status, text: body } = seen
      const header = (name: string) => seen.headers.get(name) ?? undefined
      const signed = {
        contentDigest: header('content-digest'),
        signature: header('signature'),
        signatureInput: header('signature-input'),
      }
      const verdict = judgeReceipt(
        { hash: ports.hash, ed25519 },
        { method, path, status, body, ...signed },
        keys,
        Number(bench.nowSeconds()),
      )
      const isProven = verdict.result === 'proven'
      const why = isProven ? '' : verdict.detail
      seen.holds({ [`its answer is not proven by a listed key: ${why}`]: isProven })
      return `${status}, proven`
    },
  ],
  'receipt-digest': [
    'where answers are signed, a wrong Content-Digest is 400 (RFC 9530)',
    refuses([400], 'the Content-Digest of another body', async (bench) => {
      await listed(bench)
      const headers = { 'content-digest': `sha-256=:${'A'.repeat(43)}=:` }
      return [{ ...routes.batch('statuses', ['00000000-0000-4000-8000-000000000000']), headers }]
    }),
  ],
})
