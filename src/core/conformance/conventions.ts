import { readKeySet } from '#client/gateway/gateway-client'
import { judgeReceipt, receiptDirectory } from '#protocol/receipt'
import { is, malformed, notSeen, notServed } from './answer.js'
import type { Bench } from './bench.js'
import { type ProbeCall, routes } from './probe.js'
import { about, given, type Row, rulesOf, type Step } from './rule.js'

const eligibility: Step = ({ stranger }) => routes.eligibility(stranger)
const anyStatuses = ({ ports }: Bench) => routes.batch('statuses', [ports.random.uuid()])
const capitals = (hex: string) => `0x${hex.slice(2).toUpperCase()}`

const byPath =
  (wrong: string, change: (path: string) => string): Step =>
  (bench) =>
    [routes.eligibility(bench.stranger), anyStatuses(bench)].map((call) => {
      return { ...call, path: change(call.path), wrong }
    })

const proposals = ({ prepare, submit }: Bench, identifier: string): readonly ProbeCall[] =>
  [prepare, submit].map((make) => make({}, undefined, identifier))

/**
 * A malformed identifier names nothing on any route, although what it would mean is known. Of an
 * item its own status counts.
 */
const notTaken = (
  says: string,
  wrongOf: (known: { question_id: string; slug?: string }) => readonly string[],
  items: number,
): Row => [
  says,
  (bench) =>
    wrongOf(bench.context()).flatMap((identifier) => [
      ...proposals(bench, identifier),
      routes.batch('contexts', [identifier], identifier),
      bench.submitItem({ identifier }, identifier),
    ]),
  ({ seen }) => {
    const [code] = seen.status === 200 ? seen.codes : []
    return code === undefined ? notServed : notServed.some((one) => one === code)
  },
  items,
]

const noticed =
  (name: 'cookie' | 'signature' | 'badError', fault = ''): Step =>
  ({ probe: { noticed } }) => {
    if (noticed[name] !== undefined) throw noticed[name].fault(fault)
    return noticed.last
  }

/** A gateway need not sign. */
async function keys({ send }: Bench) {
  const seen = await send({ ...routes.get(receiptDirectory), items: 0 })
  if (seen.status !== 200) notSeen('this gateway lists no receipt keys')
  const listed = readKeySet(seen.json) ?? []
  seen.must(listed.length > 0)
  return { seen, listed }
}

const origin = 'https://conformance.invalid'
const preflight = {
  origin,
  'access-control-request-method': 'POST',
  'access-control-request-headers': 'content-type',
}

export const conventionRules = rulesOf('read', {
  '1-trailing-slash': [
    'paths are exact: no trailing slash',
    byPath('a trailing slash', (path) => `${path}/`),
    [404, 400],
    2,
  ],
  '1-percent-encoding': [
    'paths are exact: no percent-encoded aliases',
    ({ stranger }) =>
      [`%65ligibility/${stranger}`, `eligibility/%30${stranger.slice(1)}`].map((alias) =>
        routes.get(`/v1/proposals/${alias}`),
      ),
    notServed,
    2,
  ],
  '1-path-case': [
    'paths are exact: a capital is another path',
    byPath('capitals in its path', (path) =>
      path.replace('/v1/p', '/V1/P').replace('/batch', '/Batch'),
    ),
    [404, 400],
    2,
  ],
  '1-content-type': [
    'request bodies have Content-Type: application/json',
    (bench) =>
      ['text/plain', ''].flatMap((type) =>
        [anyStatuses(bench), ...(bench.hasContext() ? [bench.prepare()] : [])].map((call) => {
          const wrong = `Content-Type: ${type || 'none'}`
          return { ...call, headers: { 'content-type': type }, wrong }
        }),
      ),
    [400, 415, 422],
    4,
  ],
  '1-json-body': [
    'request bodies are JSON',
    () => ({ ...routes.batch('statuses', [], 'a truncated body'), body: '{"candidate_ids":[' }),
    malformed,
  ],
  '1-lowercase-address': [
    'addresses are canonical lowercase',
    ({ stranger }) => routes.eligibility(capitals(stranger)),
    notServed,
  ],
  '1-lowercase-question-id': notTaken(
    'question ids are canonical lowercase',
    ({ question_id }) => [capitals(question_id)],
    4,
  ),
  '1-slug-characters': notTaken(
    'slugs contain only lowercase letters, digits and hyphens',
    // A slug that means something, so that a gateway which puts it right is seen to.
    ({ slug = 'some-slug' }) => [
      slug.toUpperCase(),
      slug.includes('-') ? slug.replaceAll('-', '_') : `${slug}_`,
    ],
    8,
  ),
  '1-slug-identifies': [
    'identifier is a question id or a market slug',
    // The signature authorizes nothing, but the question must be found.
    (bench) =>
      proposals(
        bench,
        bench.context().slug ?? notSeen('no slug is pinned for the first open question'),
      ),
    ({ seen: { status } }) => status !== 404,
    ({ seen, context }) => (seen.status === 200 ? { question_id: context().question_id } : true),
    2,
  ],
  '1-cors-explicit': [
    'browser origins need explicit CORS configuration',
    ({ stranger }) => [
      { ...routes.eligibility(stranger), headers: { origin } },
      { method: 'OPTIONS', path: '/propose/batch', headers: preflight },
    ],
    ({ seen: { headers } }) =>
      !['*', origin].includes(headers.get('access-control-allow-origin') ?? ''),
    2,
  ],
  '2.3-eligibility-fields': [
    'eligibility has canonical address and boolean eligible',
    eligibility,
    given,
    ({ stranger }) => ({ address: stranger, eligible: is.flag }),
  ],
  '9-eligibility-version': [
    'eligibility carries the version',
    eligibility,
    given,
    { version: is.version },
  ],
  '4.1.1-unknown-wallet': [
    'an unknown wallet is answered 200 with eligible: false',
    eligibility,
    [200],
    ({ seen }) => seen.at('eligible') !== true,
  ],
  '4.1.1-eligible-wallet': [
    'an allowlisted wallet is answered 200 with eligible: true',
    ({ wallets: [wallet = notSeen('no key of an eligible wallet was given')] }) =>
      routes.eligibility(wallet.address),
    [200],
    { eligible: true },
  ],
  '7-unknown-question': [
    '404: unknown question',
    (bench) => proposals(bench, `${bench.stranger}${'0'.repeat(24)}`),
    // Whether wallet or question is examined first is left open.
    ({ seen }) => (seen.sent.endsWith('/signing-data') ? [404] : [404, 403]),
    2,
  ],
  '7-unknown-route': [
    '404: unknown route',
    () => routes.get('/v1/conformance-no-such-route'),
    [404],
  ],
  '7-wrong-method': [
    '405: wrong HTTP method',
    ({ stranger }) => [
      routes.get('/propose/batch'),
      { ...routes.eligibility(stranger), method: 'POST' },
    ],
    [405],
    2,
  ],
  ...about(keys, {
    'receipt-keys': ['a gateway that signs its answers lists its keys as a JWK set', 0],
    'receipt-signature': [
      'a signed answer proves itself by a listed key (RFC 9421)',
      eligibility,
      ({ ports: { hash }, ed25519, stranger, seen, listed, nowSeconds }) => {
        const { method, path } = routes.eligibility(stranger)
        const header = (name: string) => seen.headers.get(name) ?? undefined
        const { status, text: body } = seen
        const signed = {
          ...{ method, path, status, body, contentDigest: header('content-digest') },
          ...{ signature: header('signature'), signatureInput: header('signature-input') },
        }
        const verdict = judgeReceipt({ hash, ed25519 }, signed, listed, nowSeconds())
        if (verdict.result !== 'proven') throw seen.fault(`, not proven: ${verdict.detail}`)
      },
    ],
    'receipt-digest': [
      'where answers are signed, a wrong Content-Digest is 400 (RFC 9530)',
      (bench) => ({
        ...anyStatuses(bench),
        wrong: 'another Content-Digest',
        headers: { 'content-digest': `sha-256=:${'A'.repeat(43)}=:` },
      }),
      [400],
    ],
  }),
})

export const closingRules = rulesOf('read', {
  '1-no-cookies': ['the service does not use browser cookies', noticed('cookie')],
  '2.6-never-returned': [
    'signatures are never returned, nor shown in errors',
    noticed('signature'),
    0,
  ],
  '7-error-body': [
    'application errors have error.code and error.detail',
    noticed('badError', ' without error.code and error.detail'),
  ],
})
