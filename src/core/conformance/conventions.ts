import { judgeReceipt, readKeySet, receiptDirectory } from '#protocol/receipt'
import { limits, version, zeroAddress } from '#protocol/words'
import {
  about,
  type Bench,
  type BodyChange,
  given,
  noQuestion,
  type Row,
  rulesOf,
  type Step,
  slugOf,
  type Table,
} from './bench.js'
import { batchOf, eligibilityOf, get, is, malformed, notSeen, notServed, post } from './probe.js'

const eligibility: Step = (bench) => bench.eligibility
const anyStatuses = ({ newId }: Bench) => batchOf('statuses', [newId()])
const capitals = (hex: string) => `0x${hex.slice(2).toUpperCase()}`

const byPath =
  (wrong: string, change: (path: string) => string): Step =>
  (bench) =>
    [bench.eligibility, anyStatuses(bench)].map((call) => {
      return { ...call, path: change(call.path), wrong }
    })

const proposals = ({ prepare, submit }: Bench, identifier: string) =>
  [prepare, submit].map((make) => make({}, undefined, identifier))

/** Malformed, it names nothing on any route, though what it would mean is known. */
const notTaken = (
  wrongOf: (known: { question_id: string; slug?: string }) => readonly string[],
  items: number,
): Row => [
  (bench) =>
    wrongOf(bench.context()).flatMap((identifier) => [
      ...proposals(bench, identifier),
      batchOf('contexts', [identifier], identifier),
      bench.submitItem({ identifier }, identifier),
    ]),
  ({ seen: { status, codes } }) =>
    status === 200 ? notServed.some((one) => one === codes[0]) : notServed,
  items,
]

const noticed =
  (name: 'cookie' | 'signature' | 'badError'): Step =>
  ({ probe: { noticed } }) => {
    if (noticed[name]) throw noticed[name].fault('')
    return noticed.last
  }

async function keys({ send }: Bench) {
  const seen = await send({ ...get(receiptDirectory), items: 0 })
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
  '1-trailing-slash: paths have no trailing slash': [
    byPath('a trailing slash', (path) => `${path}/`),
    [404, 400],
    2,
  ],
  '1-percent-encoding: paths have no percent-encoded aliases': [
    ({ stranger }) =>
      [`%65ligibility/${stranger}`, `eligibility/%30${stranger.slice(1)}`].map((alias) =>
        get(`/v1/proposals/${alias}`),
      ),
    notServed,
    2,
  ],
  '1-path-case: paths are case-sensitive': [
    byPath('capitals in its path', (path) =>
      path.replace('/v1/p', '/V1/P').replace('/batch', '/Batch'),
    ),
    [404, 400],
    2,
  ],
  '1-content-type: bodies have Content-Type: application/json': [
    (bench) =>
      ['text/plain', ''].flatMap((type) =>
        [anyStatuses(bench), ...(bench.usable[0] ? [bench.prepare()] : [])].map((call) => {
          const wrong = `Content-Type: ${type || 'none'}`
          return { ...call, headers: type ? { 'content-type': type } : {}, wrong }
        }),
      ),
    [400, 415, 422],
    4,
  ],
  '1-json-body: bodies are JSON': [
    post('/propose/batch/status', '{"candidate_ids":[', 'a truncated body'),
    malformed,
  ],
  '1-lowercase-address: addresses are lowercase': [
    ({ stranger }) => eligibilityOf(capitals(stranger)),
    notServed,
  ],
  '1-lowercase-question-id: question ids are lowercase': notTaken(
    ({ question_id }) => [capitals(question_id)],
    4,
  ),
  '1-slug-characters: slugs have only lowercase letters, digits, hyphens': notTaken(
    ({ slug = 'some-slug' }) => [
      slug.toUpperCase(),
      slug.includes('-') ? slug.replaceAll('-', '_') : `${slug}_`,
    ],
    8,
  ),
  '1-slug-identifies: a slug is an identifier too': [
    (bench) => proposals(bench, slugOf(bench.context())),
    ({ seen: { status } }) => status !== 404,
    ({ seen, context }) => (seen.status === 200 ? { question_id: context().question_id } : true),
    2,
  ],
  '1-cors-explicit: CORS needs configuration': [
    ({ eligibility }) => [
      { ...eligibility, headers: { origin } },
      { method: 'OPTIONS', path: '/propose/batch', headers: preflight },
    ],
    ({ seen: { headers } }) =>
      !['*', origin].includes(headers.get('access-control-allow-origin') ?? ''),
    2,
  ],
  '2.3-eligibility-fields: eligibility has address and boolean eligible': [
    eligibility,
    given,
    ({ stranger }) => ({ address: stranger, eligible: is.flag }),
  ],
  '9-eligibility-version: eligibility has version': [eligibility, given, { version: is.version }],
  '4.1.1-unknown-wallet: an unknown wallet is 200 with eligible: false': [
    eligibility,
    [200],
    ({ seen }) => seen.at('eligible') !== true,
  ],
  '4.1.1-eligible-wallet: an allowlisted wallet is 200 with eligible: true': [
    ({ wallets: [wallet = notSeen('no key of an eligible wallet was given')] }) =>
      eligibilityOf(wallet.address),
    [200],
    { eligible: true },
  ],
  '7-unknown-question: an unknown question is 404': [
    (bench) => proposals(bench, noQuestion(bench)),
    ({ seen }) => (seen.sent.endsWith('/signing-data') ? [404] : [404, 403]),
    2,
  ],
  '7-unknown-route: an unknown route is 404': [get('/v1/conformance-no-such-route'), [404]],
  '7-wrong-method: a wrong method is 405': [
    ({ eligibility }) => [get('/propose/batch'), { ...eligibility, method: 'POST' }],
    [405],
    2,
  ],
  ...about([keys], {
    'receipt-keys receipts: keys are listed as a JWK set': 0,
    'receipt-signature receipts: answers are signed by a listed key (RFC 9421)': [
      eligibility,
      ({ ports: { hash }, ed25519, eligibility, seen, listed, nowSeconds }) => {
        const header = (name: string) => seen.headers.get(name) ?? undefined
        const signed = {
          ...eligibility,
          ...{ status: seen.status, body: seen.text, contentDigest: header('content-digest') },
          ...{ signature: header('signature'), signatureInput: header('signature-input') },
        }
        const verdict = judgeReceipt({ hash, ed25519 }, signed, listed, nowSeconds())
        if (verdict.result !== 'proven') throw seen.fault(`, not proven: ${verdict.detail}`)
      },
    ],
    'receipt-digest receipts: a wrong Content-Digest is 400 (RFC 9530)': [
      (bench) => {
        const { headers, ...call } = anyStatuses(bench)
        const digest = { 'content-digest': `sha-256=:${'A'.repeat(43)}=:` }
        return { ...call, headers: { ...headers, ...digest }, wrong: 'another Content-Digest' }
      },
      [400],
    ],
  }),
})

export const closingRules = rulesOf('read', {
  '1-no-cookies: no cookies are used': noticed('cookie'),
  '2.6-never-returned: no answer or error shows a signature': [noticed('signature'), 0],
  '7-error-body: errors have error.code and error.detail': noticed('badError'),
})

const longest = `0x${'ab'.repeat(limits.signatureBytes)}`
const ways: Readonly<Record<string, unknown>> = {
  missing: undefined,
  'as a number': (text: string) => (Number.isSafeInteger(Number(text)) ? Number(text) : 1),
  'as text': String,
  'as in v1': version,
  'in capitals': capitals,
  'one digit short': (hex: string) => hex.slice(0, -1),
  'with a z': (hex: string) => `${hex.slice(0, -1)}z`,
  'with a fraction': (raw: string) => `${raw}.5`,
  'below zero': (raw: string) => `-${raw}`,
  'of half a second': (seconds: string) => Number(seconds) + 0.5,
  'of 8,192 bytes': longest,
  'of 8,193 bytes': `${longest}ab`,
  '2^256': String(2n ** 256n),
}

/**
 * Bodies with random bytes for a signature, by which nothing gets on chain: what is said of a
 * member, and what is wrong with it (`.version 1`: with another), with other statuses after a colon.
 */
export const refusing = (
  to: 'submit' | 'submitItem' | 'prepare',
  cases: Readonly<Record<string, string>>,
): Table =>
  Object.fromEntries(
    Object.entries(cases).map(([name, text]): [string, Row] => {
      const [, member = ''] = name.split(' ')
      const [list = '', others] = text.split(': ')
      const statuses = others ? others.split(', ').map(Number) : malformed
      const wrongs = list.split(', ').map((one) => {
        const [, path = member, way = ''] = /^(?:\.(\S+) )?(.+)/.exec(one) ?? []
        const value = way in ways ? ways[way] : way
        const change = path.split('.').reduceRight((inner, name) => ({ [name]: inner }), value)
        return (bench: Bench) => bench[to](change as BodyChange, `${path} ${way}`)
      })
      return [name, [(bench) => wrongs.map((make) => make(bench)), statuses, wrongs.length]]
    }),
  )

export const bodyRules = rulesOf('read', {
  ...refusing('submit', {
    '2.1-version-exact: version has exactly the values of §2.1':
      '.version.api v2, .version.schema signed-proposal-v2, .version.witness permit2-v2',
    '2.1-version-only: version has no other member': '.version.minor 1',
    '9-version-required: version is required': 'missing',
    '2.1-proposer-lowercase: proposer is lowercase': 'in capitals',
    '2.1-proposer-nonzero: proposer is not zero': zeroAddress,
    '2.1-proposer-address: proposer is an address, and required': 'one digit short, missing',
    '2.1-outcome-known: outcome is p1, p2 or p3, and required': 'p4, P2, missing',
    '2.1-max-payment: max_payment is "0"': '1, as a number, missing',
    '2.1-amount-text: permit.amount is a decimal string': 'as a number, missing',
    '2.1-amount-decimal: permit.amount is decimal': '0x10, with a fraction, below zero',
    '2.1-nonce-uint256: permit.nonce is a decimal uint256 string': '2^256, as a number, missing',
    '2.1-deadline-text: permit.deadline is a decimal string': 'as a number, missing',
    '2.1-signature-required: signature is required': 'missing',
    '2.1-signature-lowercase: signature is lowercase': 'in capitals',
    '2.1-signature-even: signature has even length': 'one digit short',
    '2.1-signature-hex: signature is hex': 'with a z',
    '2.1-signature-longest: signature has 8,192 bytes at most': 'of 8,193 bytes: 400, 413, 422',
    '2.1-extra-field: extra fields are rejected on submission':
      '.undocumented_field 1, .permit.undocumented_field 1',
    '4.1.3-ancillary-data: ancillary_data is 413': '0x: 413',
    '2.1-signature-8192: signature may have 8,192 bytes': 'of 8,192 bytes: 403',
  }),
  '9-batch-item-in-v1: a batch item is no v1 payload': [
    ({ submit, unsignedItem }) =>
      submit(() => unsignedItem({ identifier: undefined }), 'a batch item'),
    malformed,
  ],
  ...refusing('submitItem', {
    '2.7-identifier-required: identifier is required': 'missing',
    '2.7-client-ref-text: client_ref is a string': 'as a number',
    '2.7-price-numerical: proposed_price is a numerical string, no outcome key': 'p2, as a number',
    '2.7-max-payment: max_payment is "0"': '1',
    '2.7-proposer-lowercase: proposer is lowercase': 'in capitals, nobody',
    '2.7-amount-text: permit.amount is a decimal string': 'as a number',
    '2.7-nonce-text: permit.nonce is a decimal string': 'as a number, 0x10',
    '2.7-deadline-integer: permit.deadline is a JSON integer': 'as text, of half a second',
    '2.7-signature: signature is lowercase hex of even length':
      'missing, with a z, in capitals, one digit short',
    '2.7-item-fields: items have no version, outcome or other fields':
      '.outcome p2, .version as in v1, .undocumented_field 1',
    '7-batch-ancillary-data: ancillary_data is 413': '0x: 413',
  }),
  '9-v1-body-in-batch: a v1 payload is no batch item': [
    ({ submit, submitItem }) =>
      submitItem(({ identifier }) => ({ ...Object(submit().body), identifier }), 'a v1 body'),
    malformed,
  ],
  '4.1.3-signature-checked: a signature that does not authorize is 403': [
    ({ submit }) => submit(),
    [403],
  ],
  '5-not-eligible: an ineligible wallet is 403': [
    ({ submit, stranger }) => submit({ proposer: stranger }),
    [403],
  ],
  '7-errors-sanitized: errors is optional, and sanitized': [
    ({ submit, submitItem, stranger }) => [
      submit({ outcome: stranger }),
      submit({ undocumented_field: stranger }),
      submitItem({ proposed_price: stranger }),
    ],
    ({ seen, stranger }) =>
      !JSON.stringify(seen.given(...malformed).at('errors') ?? null).includes(stranger),
    3,
  ],
})
