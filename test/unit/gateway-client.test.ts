import {
  type Answer,
  answerError,
  gravest,
  maxRetryAfterMs,
  retryHintMs,
} from '#client/gateway/answer'
import { createGatewayClient, parseBaseUrl } from '#client/gateway/gateway-client'
import type { Fetch } from '#ports'
import {
  ConflictError,
  FailedError,
  PendingError,
  ProposerError,
  RejectedError,
  StorageError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
} from '#protocol/errors'
import { version } from '#protocol/words'

const nowMs = Date.parse('2026-11-20T05:38:00.000Z')
const clock = { nowMs: () => nowMs, monotonicMs: () => 0, sleep: async () => undefined }
const questionId = `0x${'1'.repeat(64)}`
const candidateId = '00000000-0000-4000-8000-000000000001'
const ack = {
  version,
  candidate_id: candidateId,
  status: 'received',
  received_at: '2026-11-20T05:38:00.000Z',
  status_url: 'https://evil.example/steal',
}

const answering = (response: () => Response | Promise<Response>) =>
  createGatewayClient({ fetch: async () => response(), baseUrl: 'https://gateway.example', clock })
const submit = (fetch: Fetch) =>
  createGatewayClient({ fetch, baseUrl: 'https://gateway.example', clock }).submit(questionId, '{}')
const json = (status: number, body: unknown, headers: Record<string, string> = {}) =>
  new Response(typeof body === 'string' ? body : JSON.stringify(body), {
    status,
    headers: { 'content-type': 'application/json', ...headers },
  })
const error = (code: string, detail = 'd') => ({ error: { code, detail } })

const deep = `${'['.repeat(17)}${']'.repeat(17)}`
type Row = readonly [string, () => Response, Answer<unknown>['kind']]
const rows: readonly Row[] = [
  ['202 with a valid acknowledgement', () => json(202, ack), 'accepted'],
  ['200 with a valid acknowledgement', () => json(200, ack), 'accepted'],
  [
    'content type with a charset',
    () => json(202, ack, { 'content-type': 'application/json; charset=utf-8' }),
    'accepted',
  ],
  [
    'a type of its own in JSON (RFC 6839)',
    () => json(202, ack, { 'content-type': 'application/vnd.example.v1+json; charset=utf-8' }),
    'accepted',
  ],
  [
    'a byte order mark before the JSON',
    () => json(202, `\uFEFF${JSON.stringify(ack)}`),
    'accepted',
  ],
  [
    'colons and quotes inside strings',
    () => json(202, { ...ack, '"a": "b"': ['":"', { 'c:': 'd\\' }] }),
    'accepted',
  ],
  [
    'a candidate id that stands twice',
    () => json(202, `{"candidate_id":"${candidateId}",${JSON.stringify(ack).slice(1)}`),
    'uncertain',
  ],
  [
    'a code that stands twice, once behind an escape',
    () => json(422, '{"error":{"code":"a","c\\u006fde":"b","detail":"d"}}'),
    'uncertain',
  ],
  ...[400, 403, 404, 405, 413, 422].map(
    (status) => [`application JSON ${status}`, () => json(status, error('x')), 'refused'] as Row,
  ),
  ...[429, 503].map(
    (status) => [`application JSON ${status}`, () => json(status, error('x')), 'deferred'] as Row,
  ),
  ['application JSON 409', () => json(409, error('candidate_conflict')), 'reconcile'],
  ...[401, 408, 410, 418, 500, 502, 504, 599].map(
    (status) => [`application JSON ${status}`, () => json(status, error('x')), 'uncertain'] as Row,
  ),
  ...[301, 302, 303, 307, 308].map(
    (status) =>
      [
        `a redirect ${status}`,
        () => json(status, error('x'), { location: 'https://evil.example' }),
        'uncertain',
      ] as Row,
  ),
  ...[200, 400, 403, 404, 409, 422, 429, 502, 503].map(
    (status) =>
      [
        `HTML ${status}`,
        () => new Response('<html>', { status, headers: { 'content-type': 'text/html' } }),
        'uncertain',
      ] as Row,
  ),
  ['an error body of another shape', () => json(400, { message: 'no' }), 'uncertain'],
  ['a 202 without a UUID', () => json(202, { ...ack, candidate_id: 'x' }), 'uncertain'],
  // Robustness §6: 200 or 202 with a valid UUID is accepted, whatever else the answer says.
  [
    'a 202 with another version',
    () => json(202, { ...ack, version: { ...version, api: 'v2' } }),
    'accepted',
  ],
  [
    'a 202 with a UUID alone',
    () => json(202, { candidate_id: ack.candidate_id.toUpperCase() }),
    'accepted',
  ],
  [
    'a refusal whose errors are of another form',
    () => json(422, { ...error('schema_violation'), errors: ['proposer'] }),
    'refused',
  ],
  ['broken JSON', () => json(202, '{"version":'), 'uncertain'],
  ['no body', () => json(202, ''), 'uncertain'],
  ['201', () => json(201, ack), 'uncertain'],
  ['204', () => new Response(null, { status: 204 }), 'uncertain'],
  [
    'brackets inside a string, behind an escaped quote',
    () => json(202, { ...ack, x: `"${'['.repeat(20)}` }),
    'accepted',
  ],
  [
    'JSON deeper than 16 behind a string that ends in a backslash',
    () => json(202, `{"x":"\\\\","y":${deep},${JSON.stringify(ack).slice(1)}`),
    'uncertain',
  ],
  [
    'a string without an end',
    () => json(202, `${JSON.stringify(ack).slice(0, -1)},"x":"`),
    'uncertain',
  ],
  ['JSON deeper than 16', () => json(202, `{"version":${deep}}`), 'uncertain'],
  ['over 64 KiB', () => json(202, { ...ack, padding: 'x'.repeat(65 * 1024) }), 'uncertain'],
  [
    'bytes that are no UTF-8',
    () =>
      new Response(new Uint8Array([0x22, 0xff, 0x22]), {
        status: 400,
        headers: { 'content-type': 'application/json' },
      }),
    'uncertain',
  ],
]
test.each(rows)('robustness §6: %s is %#', async (_name, response, kind) => {
  expect((await answering(response).submit(questionId, '{}')).kind).toBe(kind)
})

test('robustness §6: millions of quotes without an end are read once', async () => {
  const client = answering(() => json(200, `"${'\\"'.repeat(2_000_000)}`))
  expect((await client.statuses([candidateId])).kind).toBe('uncertain')
})

test('robustness §6: a body that breaks off is uncertain, whatever the status said', async () => {
  for (const status of [200, 202, 400, 429, 503]) {
    const broken = () =>
      new ReadableStream({
        start(controller) {
          controller.enqueue(new TextEncoder().encode('{"error":'))
          controller.error(new Error('cut'))
        },
      })
    const answer = await submit(
      async () =>
        new Response(broken(), { status, headers: { 'content-type': 'application/json' } }),
    )
    expect(answer).toMatchObject({ kind: 'uncertain', httpStatus: status })
  }
})

test('R5: a detail that echoes the signature does not pass it on', async () => {
  const answer = await answering(() =>
    json(422, error('invalid_signature_format', `your 0x${'ab'.repeat(65)} is bad`)),
  ).submit(questionId, '{}')
  expect(answer).toMatchObject({ kind: 'refused', detail: 'your [long hex] is bad' })
  const strange = await answering(() => json(422, error(`\u001b[31m${'x'.repeat(80)}`))).submit(
    questionId,
    '{}',
  )
  expect(strange).toMatchObject({ code: 'gateway_error' })
})

test('robustness §6: a call that admits nothing takes 200 only, and an uncertain one is exit 75', async () => {
  const answer = await answering(() =>
    json(202, { version, address: `0x${'1'.repeat(40)}`, eligible: true }),
  ).eligibility(`0x${'1'.repeat(40)}`)
  expect(answer.kind).toBe('uncertain')
  if (answer.kind === 'accepted') throw new Error('accepted')
  expect(answerError(answer, 'read').meta.exitCode).toBe(75)
  expect(answerError(answer, 'submit').meta.exitCode).toBe(6)
})

test('§8: a limit is believed however large it is, and past exact counting is as much as can be counted', async () => {
  const told = async (limit: string, remaining: string, reset = '30') => {
    const headers = {
      'ratelimit-limit': limit,
      'ratelimit-remaining': remaining,
      'ratelimit-reset': reset,
    }
    return (
      await answering(() => json(429, error('rate_limited'), headers)).submit(questionId, '{}')
    ).rateLimit
  }
  expect(await told('1000000000', '999999999')).toEqual({
    limit: 1_000_000_000,
    remaining: 999_999_999,
    resetSeconds: 30,
  })
  const most = 1e12
  expect(await told('18446744073709551615', '18446744073709551614')).toEqual({
    limit: most,
    remaining: most,
    resetSeconds: 30,
  })
  for (const bad of ['', '-1', '1e9', '120;w=60', '9'.repeat(21)])
    expect(await told(bad, '7')).toBeUndefined()
  expect(await told('120', '7', '1795192220')).toBeUndefined()
})

const hint = (header: string | undefined, detail = '') =>
  retryHintMs(new Headers(header === undefined ? {} : { 'retry-after': header }), detail, clock)
test('§7: digits, an HTTP date, or the detail where there is no header', () => {
  expect(hint('7')).toBe(7_000)
  expect(hint('Fri, 20 Nov 2026 05:38:20 GMT')).toBe(20_000)
  expect(hint('Fri, 20 Nov 2026 05:37:20 GMT')).toBe(0)
  expect(hint(undefined, 'rate limit reached; retry in 12 seconds')).toBe(12_000)
  expect(hint('soon', 'retry in 1 second')).toBe(1_000)
  for (const bad of ['-1', '1.5', '0x10', '1e3', '', 'tomorrow']) expect(hint(bad)).toBeUndefined()
})
test('§7: more than two minutes is told as it is, for the caller to stop', () => {
  expect(hint('121')).toBeGreaterThan(maxRetryAfterMs)
})

test('R21: https, or http for loopback names only', () => {
  for (const good of [
    'https://gateway.example',
    'http://localhost:1',
    'http://127.0.0.1',
    'http://127.9.9.9:80',
    'http://[::1]:5',
    'https://x.y/a/b/',
  ]) {
    expect(parseBaseUrl(good).href).not.toMatch(/\/$/)
  }
  const bad = [
    'http://gateway.example',
    'http://localhost.example',
    'http://127.0.0.1.example',
    'http://[::2]',
    'ftp://localhost',
    'gateway.example',
    '',
  ]
  for (const url of bad)
    expect(() => parseBaseUrl(url), url).toThrow(
      expect.objectContaining({ code: 'invalid_base_url' }),
    )
})
test('R5: no userinfo, query or fragment, and the refusal shows none of it', () => {
  for (const url of [
    'https://me:secret@x.y',
    'https://x.y?key=secret',
    'https://x.y#secret',
    'https://x.y?',
    'https://x.y#',
  ]) {
    try {
      parseBaseUrl(url)
      throw new Error(`${url} was taken`)
    } catch (error) {
      expect(error).toBeInstanceOf(ProposerError)
      expect(JSON.stringify(error)).not.toContain('secret')
    }
  }
})
test('R21: every path is its own, and status_url is never followed', async () => {
  const asked: string[] = []
  const client = createGatewayClient({
    fetch: async (input, init) => {
      asked.push(`${init?.method} ${String(input)} ${init?.redirect}`)
      return json(202, ack)
    },
    baseUrl: 'https://gateway.example/base/',
    clock,
  })
  await client.submit(questionId, '{}')
  await client.status(questionId, candidateId)
  expect(asked).toEqual([
    `POST https://gateway.example/base/v1/proposals/${questionId} manual`,
    `GET https://gateway.example/base/v1/proposals/${questionId}/status/${candidateId} manual`,
  ])
  expect(client.origin).toBe('https://gateway.example')
})
test('R5: what stands before a gateway and repeats its secret path does not get it into an error, an item or a failure', async () => {
  const said = 'no route /PATHSECRET/v1/x'
  const hidden = 'no route /[hidden]/v1/x'
  const client = (body: unknown, status: number) =>
    createGatewayClient({
      fetch: async () => json(status, body),
      baseUrl: 'https://gateway.example/PATHSECRET',
      clock,
    })
  const refused = { ...error('route_not_found', said), errors: [{ path: said, code: 'x' }] }
  expect(await client(refused, 404).submit(questionId, '{}')).toMatchObject({
    detail: hidden,
    errors: [{ path: hidden }],
  })
  // Cut after it was looked for: half a secret is known no more.
  const long = error('route_not_found', `${'x'.repeat(995)} PATHSECRET`)
  expect(await client(long, 404).submit(questionId, '{}')).toMatchObject({
    detail: expect.not.stringContaining('PATHS'),
  })
  const item = { identifier: questionId, status_code: 404, ...error('question_not_found', said) }
  expect(await client({ results: [item] }, 200).contexts([questionId])).toMatchObject({
    value: { results: [{ error: { detail: hidden } }] },
  })
  expect(
    await client({ ...ack, candidate_id: candidateId }, 202).submit(questionId, '{}'),
  ).toMatchObject({
    value: { candidate_id: candidateId },
  })
})

test('R21: what is no identifier never becomes part of a path', async () => {
  const client = answering(() => json(200, {}))
  for (const bad of ['../x', 'a/b', 'A', '', '0x1A', 'a%2fb', 'eligibility']) {
    await expect(client.submit(bad, '{}')).rejects.toMatchObject({
      code: 'invalid_identifier',
      meta: { exitCode: 2 },
    })
  }
  await expect(client.status(questionId, '../x')).rejects.toMatchObject({
    code: 'invalid_identifier',
  })
  await expect(client.statuses([])).rejects.toMatchObject({ code: 'invalid_batch' })
})

test('contract §6: the gravest wins: 74, 6, 75, 5, 4, 3, 7, 8', () => {
  const kinds = [
    StorageError,
    UncertainError,
    UnavailableError,
    ConflictError,
    UnauthorizedError,
    RejectedError,
    FailedError,
    PendingError,
  ]
  const errors = kinds.map((kind) => new kind('x', 'd'))
  for (const [index, error] of errors.entries()) {
    expect(gravest([undefined, ...errors.slice(index)].reverse())).toBe(error)
  }
  expect(gravest([undefined])).toBeUndefined()
})
