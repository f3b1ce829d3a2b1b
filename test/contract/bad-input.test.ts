import { type Listener, listen, serverSettings, socketSettings } from '#io/serving/listener'
import type { RequestRecord } from '#protocol/call'
import { version } from '#protocol/words'
import {
  makeQuestion,
  makeWallet,
  signedBody,
  testBondRaw,
  testNowSeconds,
  type Wallet,
} from '#support/fake-view'
import { openFront, type TestFront } from '#support/front'
import { exchangeRaw, type RawAnswer } from '#support/raw-http'

const first = makeQuestion('first', { slug: 'first-question' })
const submitPath = `/v1/proposals/${first.questionId}`
const uuid = '00000000-0000-4000-8000-000000000000'

let front: TestFront
let listener: Listener
const refusedCalls: RequestRecord[] = []

beforeAll(async () => {
  front = await openFront({ wallets: 3 })
  listener = await listen({
    host: '127.0.0.1',
    port: 0,
    handler: (request) => front.gateway.answer(request),
    onRefused: (call) => refusedCalls.push(call),
  })
})
afterAll(() => listener.close(0))

const send = (bytes: string | Uint8Array, options = {}) =>
  exchangeRaw(listener.port, bytes, options)

function request(
  method: string,
  target: string,
  body = '',
  headers: Record<string, string> = {},
): string {
  const all: Record<string, string> = {
    Host: 'gateway.test',
    ...(body === ''
      ? {}
      : {
          'Content-Type': 'application/json',
          'Content-Length': String(Buffer.byteLength(body, 'latin1')),
        }),
    ...headers,
  }
  return `${method} ${target} HTTP/1.1\r\n${Object.entries(all)
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('')}\r\n${body}`
}
const post = (target: string, body: unknown, headers: Record<string, string> = {}) =>
  send(
    Buffer.from(
      request('POST', target, typeof body === 'string' ? body : JSON.stringify(body), headers),
      'latin1',
    ),
  )
const get = (target: string, method = 'GET') => send(request(method, target))

function expectRefusal(answer: RawAnswer, status: number, code: string | undefined): void {
  expect([answer.status, answer.code]).toEqual([status, code])
  if (code !== undefined) expect(answer.headers['content-type']).toBe('application/json')
}

describe('framing', () => {
  const head = `POST ${submitPath} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n`
  test.each([
    [
      'Content-Length and Transfer-Encoding',
      `${head}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
    ],
    ['two Content-Length', `${head}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}`],
    ['two equal Content-Length', `${head}Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}`],
    ['a Content-Length that is no number', `${head}Content-Length: +2\r\n\r\n{}`],
    ['a bad chunk', `${head}Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n`],
    ['a bare LF in a chunk', `${head}Transfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n`],
    ['another transfer encoding', `${head}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`],
    ['a bare LF', 'GET /healthz HTTP/1.1\nHost: a\n\n'],
    ['a bare LF among headers', 'GET /healthz HTTP/1.1\r\nHost: a\nX: b\r\n\r\n'],
    ['a NUL in a header', 'GET /healthz HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n'],
    ['a folded header', 'GET /healthz HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n'],
    ['no Host', 'GET /healthz HTTP/1.1\r\n\r\n'],
    ['two Host', 'GET /healthz HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n'],
    ['an absolute-form target', 'GET http://a/healthz HTTP/1.1\r\nHost: a\r\n\r\n'],
    ['the target *', 'OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n'],
    ['CONNECT', 'CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n'],
    ['HTTP/1.0', 'GET /healthz HTTP/1.0\r\nHost: a\r\n\r\n'],
    ['HTTP/2.0', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    [
      'Upgrade',
      'GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
    ],
    ['a body on GET', 'GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}'],
    [
      'a chunked body on GET',
      'GET /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    ],
    ['TLS', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
    ['a blank in the target', 'GET /healthz x HTTP/1.1\r\nHost: a\r\n\r\n'],
  ])('robustness §4: %s is 400 bad_request and closes', async (_, bytes) => {
    const before = refusedCalls.length
    const recorded = front.records.length
    const answer = await send(Buffer.from(bytes, 'latin1'))
    expectRefusal(answer, 400, 'bad_request')
    expect(answer.closed).toBe(true)
    await expect
      .poll(() => refusedCalls.length - before + front.records.length - recorded, {
        timeout: 20_000,
      })
      .toBe(1)
    const [unparsed] = refusedCalls.slice(before)
    const record = unparsed ?? front.records.at(-1)
    expect(record).toMatchObject(
      record?.status === 408
        ? { status: 408, items: 1 }
        : { status: 400, code: 'bad_request', client: '127.0.0.1' },
    )
    if (unparsed) expect(unparsed.route).toBe('unmatched')
  })

  test('robustness §4: what the listener refuses costs one item on a charged route and nothing on a free one', async () => {
    const left = async () =>
      Number(
        (await get(`/v1/proposals/eligibility/0x${'11'.repeat(20)}`)).headers[
          'ratelimit-remaining'
        ],
      )
    const before = await left()
    const refused = await send(`${head}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`)
    expectRefusal(refused, 400, 'bad_request')
    expect(Number(refused.headers['ratelimit-remaining'])).toBe(before - 1)
    const free = await send('GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n')
    expectRefusal(free, 400, 'bad_request')
    expect(free.headers['ratelimit-remaining']).toBeUndefined()
    expect(await left()).toBe(before - 2)
  })

  test('robustness §4: a header block above 16 KiB and more than 64 headers are 431', async () => {
    expectRefusal(
      await send(request('GET', '/healthz', '', { X: 'a'.repeat(17_000) })),
      431,
      'headers_too_large',
    )
    const headers = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, at) => [`X-${at}`, 'a']))
    expectRefusal(await send(request('GET', '/healthz', '', headers(64))), 431, 'headers_too_large')
    expect((await send(request('GET', '/healthz', '', headers(63)))).status).toBe(200)
  })

  test('robustness §4: a sound call is answered as it is, although nonsense follows on the same connection', async () => {
    const body = JSON.stringify(await signedBody(makeWallet(), first))
    const answer = await send(`${request('POST', submitPath, body)}NONSENSE\r\n\r\n`, {
      untilClosed: true,
    })
    expectRefusal(answer, 403, 'proposer_not_eligible')
    expect(answer.text.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 403', 'HTTP/1.1 400'])
  })

  test('robustness §4: pipelined calls are answered in order on one connection', async () => {
    const closing = { Connection: 'close' }
    const answer = await send(
      request('GET', '/healthz') +
        request('GET', '/nowhere') +
        request('GET', '/healthz', '', closing),
      {
        untilClosed: true,
      },
    )
    expect(answer.text.match(/HTTP\/1\.1 \d+/g)).toEqual([
      'HTTP/1.1 200',
      'HTTP/1.1 404',
      'HTTP/1.1 200',
    ])
  })
})

test('robustness §5: the settings of the listener are those that were asked for', () => {
  expect(serverSettings).toMatchObject({
    headersTimeout: 10_000,
    requestTimeout: 30_000,
    connectionsCheckingInterval: 1_000,
    keepAliveTimeout: 5_000,
    maxHeaderSize: 16_384,
    insecureHTTPParser: false,
  })
  const { server } = listener
  expect([
    server.headersTimeout,
    server.requestTimeout,
    server.keepAliveTimeout,
    server.timeout,
  ]).toEqual([10_000, 30_000, 5_000, 30_000])
  expect([server.maxRequestsPerSocket, server.maxHeadersCount]).toEqual([1_000, 0])
  expect(socketSettings.places).toBe(1_024)
})

test('robustness §4: late headers and a late body are 408 and close', async () => {
  const quick = await listen({
    host: '127.0.0.1',
    port: 0,
    handler: (call) => front.gateway.answer(call),
    timeouts: { headersTimeout: 60, requestTimeout: 120, connectionsCheckingInterval: 20 },
  })
  onTestFinished(() => quick.close(0))
  const headers = await exchangeRaw(quick.port, 'POST /propose/batch HTTP/1.1\r\nHost: a\r\n')
  expectRefusal(headers, 408, 'request_timeout')
  const body = await exchangeRaw(
    quick.port,
    'POST /propose/batch HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{',
  )
  expectRefusal(body, 408, 'request_timeout')
  expect([headers.closed, body.closed]).toEqual([true, true])
})

test.each([
  '/',
  '/nowhere',
  '/v1/proposals',
  '/v1/proposals/',
  `${submitPath}/`,
  `/${submitPath}`,
  '//propose/batch',
  '/propose//batch',
  '/propose/./batch',
  '/propose/x/../batch',
  '/v1/proposals/..',
  '/v1/proposals/.',
  '/propose/%62atch',
  '/v1/proposals/%2e%2e',
  '/propose/batch?x=1',
  '/propose/batch?',
  '/healthz#x',
  '/propose/batch;x',
  '/PROPOSE/batch',
  '/healthz/',
  '/metrics',
  `/${'a'.repeat(512)}`,
  '/propose/status/x',
  '/v1/proposals/a\\b',
])('robustness §4: %s is 404 route_not_found, for POST and GET', async (target) => {
  expectRefusal(await post(target, {}), 404, 'route_not_found')
  expectRefusal(await get(target), 404, 'route_not_found')
})

test.each([
  ['GET', submitPath, 'POST'],
  ['PUT', submitPath, 'POST'],
  ['HEAD', '/healthz', 'GET'],
  ['OPTIONS', '/propose/batch', 'POST'],
  ['TRACE', '/healthz', 'GET'],
  ['DELETE', `/v1/proposals/eligibility/0x${'1'.repeat(40)}`, 'GET'],
  ['POST', `${submitPath}/status/${uuid}`, 'GET'],
  ['PROPFIND', '/propose/batch/status', 'POST'],
])('robustness §4: %s %s is 405 and allows %s', async (method, target, allow) => {
  const answer = await get(target, method)
  expect([answer.status, answer.headers.allow]).toEqual([405, allow])
  if (method !== 'HEAD') expect(answer.code).toBe('method_not_allowed')
})

test.each([
  ['an upper-case address', `/v1/proposals/eligibility/0x${'A'.repeat(40)}`],
  ['a short address', '/v1/proposals/eligibility/0x12'],
  ['a slug with capitals', '/v1/proposals/Slug/status/x'],
  ...[..."+:@'=;,!$&()*"].map((sign) => [
    `a slug with ${sign}`,
    `/v1/proposals/a${sign}b/status/${uuid}`,
  ]),
  ['the name of a parameter', `/v1/proposals/:identifier/status/${uuid}`],
  ['an upper-case question id', `/v1/proposals/0x${'A'.repeat(64)}/status/${uuid}`],
  ['a slug of 201 characters', `/v1/proposals/${'a'.repeat(201)}/status/${uuid}`],
  ['eligibility as a slug', `/v1/proposals/eligibility`],
  ['an upper-case candidate id', `${submitPath}/status/${uuid.replace('4', 'A')}`],
  ['a candidate id without hyphens', `${submitPath}/status/${uuid.replaceAll('-', '')}`],
])('robustness §4: %s in the path is 400 invalid_identifier', async (_, target) => {
  const answer = target.endsWith('/eligibility') ? await post(target, {}) : await get(target)
  expectRefusal(answer, 400, 'invalid_identifier')
})

test.each([
  'text/plain',
  'application/jsonx',
  'application/json; charset=latin1',
  'application/json, text/plain',
  'multipart/form-data; boundary=x',
])('robustness §4: Content-Type %s is 400 unsupported_media_type', async (type) => {
  expectRefusal(
    await post('/propose/batch', {}, { 'Content-Type': type }),
    400,
    'unsupported_media_type',
  )
})

test('robustness §4: no Content-Type is refused, charset utf-8 is taken', async () => {
  expectRefusal(
    await send('POST /propose/batch HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}'),
    400,
    'unsupported_media_type',
  )
  expectRefusal(
    await post('/propose/batch', {}, { 'Content-Type': 'Application/JSON; charset="UTF-8"' }),
    422,
    'schema_violation',
  )
})

test('robustness §4: every Content-Encoding is refused, every Expect but 100-continue is 417', async () => {
  expectRefusal(
    await post('/propose/batch', {}, { 'Content-Encoding': 'gzip' }),
    400,
    'unsupported_encoding',
  )
  expectRefusal(await post('/propose/batch', {}, { Expect: '200-ok' }), 417, 'expectation_failed')
})

const limits = [
  ['/propose/batch', 2 * 1024 * 1024],
  ['/propose/batch/signing-data', 64 * 1024],
  ['/propose/batch/status', 8 * 1024],
  [submitPath, 32 * 1024],
  [`${submitPath}/signing-data`, 8 * 1024],
] as const
test.each(limits)(
  'robustness §5: %s takes %i bytes and not one more, by Content-Length and by count',
  async (target, limit) => {
    const blank = (length: number) => `{}${' '.repeat(length - 2)}`
    const fits = await post(target, blank(limit))
    expectRefusal(fits, 422, 'schema_violation')
    const declared = await send(
      `POST ${target} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${limit + 1}\r\n\r\n`,
      { followUp: blank(limit + 1) },
    )
    expectRefusal(declared, 413, 'payload_too_large')
    expect(declared.closed).toBe(true)
    const whole = blank(limit + 1)
    const counted = await send(
      `POST ${target} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n${whole.length.toString(16)}\r\n${whole}\r\n0\r\n\r\n`,
    )
    expectRefusal(counted, 413, 'payload_too_large')
    expect(counted.closed).toBe(true)
  },
)

test('robustness §4: with Expect: 100-continue the decision comes before the body', async () => {
  const head = (length: number) =>
    `POST ${submitPath} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\nExpect: 100-continue\r\n\r\n`
  const tooLarge = await send(head(10_000_000))
  expectRefusal(tooLarge, 413, 'payload_too_large')
  expect(tooLarge.text).not.toContain('100 Continue')
  expect(tooLarge.closed).toBe(true)
  const welcome = await send(head(2), { followUp: '{}' })
  expect(welcome.text).toContain('100 Continue')
  expectRefusal(welcome, 422, 'schema_violation')
  const poor = await openFront({ config: { budget: { per_ip_items: 1 } } })
  const other = await listen({
    host: '127.0.0.1',
    port: 0,
    handler: (call) => poor.gateway.answer(call),
  })
  onTestFinished(() => other.close(0))
  await exchangeRaw(other.port, request('GET', `/v1/proposals/eligibility/0x${'1'.repeat(40)}`))
  const spent = await exchangeRaw(other.port, head(100))
  expectRefusal(spent, 429, 'rate_limited')
  expect(spent.text).not.toContain('100 Continue')
  expect(Number(spent.headers['retry-after'])).toBeGreaterThanOrEqual(1)
})

test.each([
  ['an empty body', ''],
  ['a syntax error', '{'],
  ['trailing bytes', '{}x'],
  ['a BOM', '\xef\xbb\xbf{}'],
  ['invalid UTF-8', '{"a":"\xff"}'],
  ['a lone surrogate', '{"a":"\\ud800"}'],
  ['a NUL', '{"a":"\\u0000"}'],
  ['a key twice', '{"a":1,"\\u0061":1}'],
  ['__proto__', '{"__proto__":{}}'],
  ['constructor', '{"constructor":1}'],
  ['nine levels', '[[[[[[[[[]]]]]]]]]'],
  [
    '65 keys',
    JSON.stringify(Object.fromEntries(Array.from({ length: 65 }, (_, at) => [`k${at}`, 1]))),
  ],
  ['minus zero', '{"a":-0}'],
  ['1.0', '{"a":1.0}'],
  ['1e3', '{"a":1e3}'],
  ['2^53', '{"a":9007199254740992}'],
])('robustness §4: %s is 400 invalid_json', async (_, body) => {
  const answer = await post(
    '/propose/batch',
    body,
    body === '' ? { 'Content-Type': 'application/json', 'Content-Length': '0' } : {},
  )
  expectRefusal(answer, 400, 'invalid_json')
})

describe('schema and values', () => {
  const zero = `0x${'0'.repeat(40)}`
  const wallet = (at: number): Wallet => front.wallets[at] ?? makeWallet()
  const single = async (changes: object) =>
    post(submitPath, { ...(await signedBody(wallet(0), first)), ...changes })
  const permit = (changes: object) => ({
    amount: String(testBondRaw),
    nonce: '1',
    deadline: String(testNowSeconds + 900n),
    ...changes,
  })

  test('robustness §4: ancillary keys in admission are 413, at any depth, single and batch', async () => {
    expectRefusal(await single({ ancillary_data: '0x' }), 413, 'ancillary_data_not_allowed')
    expectRefusal(
      await single({ permit: { ancillaryData: '0x' } }),
      413,
      'ancillary_data_not_allowed',
    )
    expectRefusal(
      await post('/propose/batch', { proposals: [{ ancillary: 1 }] }),
      413,
      'ancillary_data_not_allowed',
    )
    expectRefusal(
      await post(`${submitPath}/signing-data`, { ancillary_data: '0x' }),
      422,
      'schema_violation',
    )
  })

  test.each([
    ['a wrong type', { proposer: 1 }, 'schema_violation'],
    ['an outcome that is no string', { outcome: 2 }, 'schema_violation'],
    ['max_payment as a number', { max_payment: 0 }, 'schema_violation'],
    ['an amount as a number', { permit: permit({ amount: 1 }) }, 'schema_violation'],
    ['a missing field', { permit: undefined }, 'schema_violation', 'permit is missing'],
    ['no signature', { signature: undefined }, 'schema_violation'],
    ['an extra field', { note: 'ancillary' }, 'schema_violation'],
    [
      'an extra field beside a malformed amount',
      { permit: permit({ amount: '01' }), more: 1 },
      'schema_violation',
    ],
    ['a version with a number in it', { version: { ...version, api: 1 } }, 'schema_violation'],
    ['an empty version', { version: {} }, 'schema_violation'],
    ['a version of one key more', { version: { ...version, extra: 'x' } }, 'schema_violation'],
    ['a version that is a string', { version: 'v2' }, 'schema_violation'],
    ['an upper-case proposer', { proposer: `0x${'A'.repeat(40)}` }, 'schema_violation'],
    ['the zero proposer', { proposer: zero }, 'schema_violation'],
    [
      'a malformed uint',
      { permit: permit({ amount: '01' }) },
      'invalid_amount',
      'permit.amount must be an unsigned 256-bit integer',
    ],
    ['a negative amount', { permit: permit({ amount: '-1' }) }, 'invalid_amount'],
    ['an empty amount', { permit: permit({ amount: '' }) }, 'invalid_amount'],
    ['79 digits', { permit: permit({ amount: '1'.repeat(79) }) }, 'invalid_amount'],
    ['a hex nonce', { permit: permit({ nonce: '0x1' }) }, 'invalid_amount'],
    ['2^256', { permit: permit({ nonce: String(2n ** 256n) }) }, 'invalid_amount'],
    ['2^256 as deadline', { permit: permit({ deadline: String(2n ** 256n) }) }, 'invalid_amount'],
    ['max_payment 1', { max_payment: '1' }, 'invalid_amount'],
    ['outcome p4', { outcome: 'p4' }, 'outcome_not_allowed'],
    ['outcome p3 where it is not allowed', { outcome: 'p3' }, 'outcome_not_allowed'],
    ['another version', { version: { ...version, api: 'v2' } }, 'unsupported_version'],
    ['another version of fewer keys', { version: { api: 'v2' } }, 'unsupported_version'],
    [
      'another version and everything else wrong',
      { version: { ...version, schema: 'x' }, permit: undefined, extra: 1 },
      'unsupported_version',
    ],
    [
      'an amount below the bond',
      { permit: permit({ amount: '1' }) },
      'permit_amount_below_required_bond',
    ],
    [
      'a deadline too soon',
      { permit: permit({ deadline: String(testNowSeconds + 299n) }) },
      'permit_deadline_too_soon',
    ],
    ['an odd signature', { signature: '0xabc' }, 'invalid_signature_format'],
    ['an upper-case signature', { signature: '0xAB' }, 'invalid_signature_format'],
    ['an empty signature', { signature: '0x' }, 'invalid_signature_format'],
    [
      'a signature of 8,193 bytes',
      { signature: `0x${'00'.repeat(8193)}` },
      'invalid_signature_format',
    ],
  ])('robustness §4: %s is 422', async (_, changes, code, detail = '') => {
    const answer = await single(changes)
    expectRefusal(answer, 422, code)
    const { error, errors } = JSON.parse(answer.body)
    expect(error.detail).toContain(detail)
    expect(errors !== undefined).toBe(code === 'schema_violation')
  })

  test.each(['[{}]', 'null', '"x"'])('contract §2: the body %s is 422', async (body) => {
    expectRefusal(await post(submitPath, body), 422, 'schema_violation')
  })

  const entry = {
    identifier: 'a',
    proposer: `0x${'1'.repeat(40)}`,
    proposed_price: '0',
    max_payment: '0',
    permit: { amount: '1', nonce: '2', deadline: 3 },
    signature: '0xab',
  }
  const entries = (changes: object) => ({ proposals: [entry, { ...entry, ...changes }] })
  test.each([
    ['0 items', { proposals: [] }, 'proposals', 'too_small'],
    ['101 items', { proposals: Array(101).fill(entry) }, 'proposals', 'too_big'],
    ['a v1 body', { version, ...entry }, '', 'unrecognized_keys'],
    [
      'a deadline string',
      entries({ permit: { ...entry.permit, deadline: '3' } }),
      'proposals.1.permit.deadline',
      'invalid_type',
    ],
    [
      'a client_ref of 258 bytes',
      entries({ client_ref: 'é'.repeat(129) }),
      'proposals.1.client_ref',
      'too_long',
    ],
    [
      'a client_ref with a control character',
      entries({ client_ref: 'a\u0007' }),
      'proposals.1.client_ref',
      'invalid_format',
    ],
    [
      'a malformed amount',
      entries({ permit: { ...entry.permit, amount: 'x' } }),
      'proposals.1.permit.amount',
      'invalid_format',
    ],
    [
      'a malformed signature',
      entries({ signature: '0x' }),
      'proposals.1.signature',
      'invalid_format',
    ],
    ['a malformed slug', entries({ identifier: 'A' }), 'proposals.1.identifier', 'identifier'],
    [
      'a key nobody knows',
      entries({ permit: { ...entry.permit, x: 1 } }),
      'proposals.1.permit',
      'unrecognized_keys',
    ],
  ])('robustness §4: %s in a batch is one 422 schema_violation', async (_, body, path, code) => {
    const answer = await post(
      '/propose/batch',
      Buffer.from(JSON.stringify(body)).toString('latin1'),
    )
    expectRefusal(answer, 422, 'schema_violation')
    expect(JSON.parse(answer.body).errors).toContainEqual({ path, code })
  })

  test('R17: the list of faults is bounded, and entries of a list are named by their index', async () => {
    const many = JSON.parse((await post('/propose/batch', { proposals: Array(100).fill({}) })).body)
    expect(many.errors).toHaveLength(50)
    expect(many.error.detail).toContain('more, see errors')
    const one = await post('/propose/batch/status', { candidate_ids: ['x'] })
    expect(JSON.parse(one.body).error.detail).toContain('candidate_ids.0 must be a candidate id')
  })

  test('robustness §4: no refusal repeats what was sent', async () => {
    const canary = 'canary-7f3a'
    const answers = [
      await post(submitPath, { [canary]: canary, version: { api: canary } }),
      await post('/propose/batch', {
        proposals: [{ [canary]: canary, identifier: canary.toUpperCase(), client_ref: canary }],
      }),
      await post('/propose/batch', `{"${canary}":`),
      await get(`/${canary}`),
      await get(`/v1/proposals/eligibility/${canary}`),
      await send(`GET /${canary} HTTP/9.9\r\nHost: a\r\n\r\n`),
      await post('/propose/batch', {}, { 'Content-Type': canary }),
    ]
    for (const answer of answers) {
      expect(answer.status).toBeGreaterThanOrEqual(400)
      expect(answer.text).not.toContain(canary)
    }
  })
})
