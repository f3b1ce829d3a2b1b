import type { ServerResponse } from 'node:http'
import { gammaLookUp, gammaMarkets } from '#io/gamma'
import { createHttp } from '#io/http'
import { SlugLookUpError } from '#ports'
import { deferred } from '#support/deferred'
import { serveHttp } from '#support/http-server'

const questionId = `0x${'a1'.repeat(32)}`
const requestId = `0x${'b2'.repeat(32)}`
const slug = 'nba-sas-nop-2025-10-24'

const market = (changes: object = {}) => ({
  id: '657287',
  question: 'Spurs vs. Pelicans',
  conditionId: `0x${'c3'.repeat(32)}`,
  slug,
  outcomes: '["Spurs", "Pelicans"]',
  outcomePrices: '["0.9995", "0.0005"]',
  clobTokenIds: '["1", "2"]',
  umaResolutionStatuses: '["proposed"]',
  umaBond: '500',
  negRisk: false,
  questionID: questionId,
  resolvedBy: `0x${'d4'.repeat(20)}`,
  volume: 12.5,
  events: [{ id: '1', slug: 'event', markets: null }],
  ...changes,
})

let server: Awaited<ReturnType<typeof serveHttp>>
let base: string
let answer: (response: ServerResponse) => void
const requests: {
  url: string | undefined
  method: string | undefined
  headers: Record<string, unknown>
}[] = []
const http = createHttp()

beforeAll(async () => {
  server = await serveHttp((request, _body, response) => {
    requests.push({ url: request.url, method: request.method, headers: request.headers })
    answer(response)
  })
  base = `${server.url}/canary-path`
})
afterAll(async () => {
  await http.close()
  await server.close()
})

const says = (status: number, body: string, headers: Record<string, string> = {}) => {
  answer = (response) =>
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(body)
}
const lookUp = (signal = new AbortController().signal) =>
  gammaLookUp(http.fetch, base)(slug, signal)

describe('the question of a market (domain §5.4)', () => {
  test.each<[string, object, string | undefined]>([
    ['questionID', {}, questionId],
    ['questionID where negRisk is left out', { negRisk: undefined }, questionId],
    [
      'questionID in lowercase',
      { questionID: questionId.toUpperCase().replace('0X', '0x') },
      questionId,
    ],
    [
      'negRiskRequestID where negRisk is true',
      { negRisk: true, negRiskRequestID: requestId },
      requestId,
    ],
    [
      'questionID although a request id stands there too',
      { negRiskRequestID: requestId },
      questionId,
    ],
    ['none where a neg-risk market has no request id', { negRisk: true }, undefined],
    ['none where the id is empty', { questionID: '' }, undefined],
    ['none where the id is null', { questionID: null }, undefined],
  ])('is its %s', async (_title, changes, expected) => {
    says(200, JSON.stringify(market(changes)))
    expect(await lookUp()).toBe(expected)
  })

  test('is asked for at /markets/slug/… below the base URL, without cookies, compression or a trace of the caller', async () => {
    requests.length = 0
    says(200, JSON.stringify(market()), { 'set-cookie': 'canary=1' })
    await lookUp()
    await lookUp()
    expect(requests.map(({ method, url }) => `${method} ${url}`)).toEqual(
      Array(2).fill(`GET /canary-path/markets/slug/${slug}`),
    )
    expect(Object.keys(requests[1]?.headers ?? {}).sort()).toEqual([
      'accept',
      'accept-encoding',
      'connection',
      'host',
    ])
    expect(requests[1]?.headers).toMatchObject({ 'accept-encoding': 'identity' })
  })

  test('404 says that there is none', async () => {
    says(404, '{"type":"not found error","error":"slug not found"}')
    expect(await lookUp()).toBeUndefined()
  })
})

describe('what is no answer is a failure and never a miss, and no message names the address (R5, R16, R17, R21)', () => {
  const failure = async (signal?: AbortSignal): Promise<SlugLookUpError> => {
    const error = await lookUp(signal).then(
      (found) => new Error(`found ${found}`),
      (reason: unknown) => reason,
    )
    expect(error).toBeInstanceOf(SlugLookUpError)
    expect((error as Error).message).not.toMatch(/canary|127\.0\.0\.1|http/)
    return error as SlugLookUpError
  }

  test.each<[string, number, string]>([
    ['another market', 200, JSON.stringify(market({ slug: 'another' }))],
    ['a malformed id', 200, JSON.stringify(market({ questionID: '0x12' }))],
    ['an id that is a number', 200, JSON.stringify(market({ questionID: 12 }))],
    [
      'negRisk as text',
      200,
      JSON.stringify(market({ negRisk: 'false', negRiskRequestID: requestId })),
    ],
    ['a list', 200, JSON.stringify([market()])],
    ['an empty list', 200, '[]'],
    ['null', 200, 'null'],
    ['nothing', 200, ''],
    ['HTML', 200, '<html>Just a moment…</html>'],
    ['a torn body', 200, JSON.stringify(market()).slice(0, 100)],
    ['a server error', 500, JSON.stringify(market())],
    ['a refusal', 403, '<html>'],
    ['another success', 206, JSON.stringify(market())],
  ])('%s', async (_title, status, body) => {
    says(status, body)
    expect((await failure()).retryAfterMs).toBeUndefined()
  })

  test.each([301, 302, 307, 308])('a redirect (%i), which is not followed', async (status) => {
    requests.length = 0
    says(status, '', { location: `${base}/elsewhere` })
    expect((await failure()).message).toContain(String(status))
    expect(requests).toHaveLength(1)
  })

  test.each([
    ['7', 7_000],
    ['86400', 60_000],
    ['soon', 5_000],
    [undefined, 5_000],
  ])('429 with Retry-After %s: left alone for %i ms', async (header, expected) => {
    says(429, '{}', header === undefined ? {} : { 'retry-after': header })
    expect((await failure()).retryAfterMs).toBe(expected)
  })

  test('an answer over 1 MiB, of which no more is read', async () => {
    const { promise: closed, resolve: stopped } = deferred()
    answer = (response) => {
      response.writeHead(200, { 'content-type': 'application/json' })
      response.on('close', stopped)
      const more = () => {
        while (!response.destroyed && response.write(' '.repeat(64 * 1024)));
        response.once('drain', more)
      }
      more()
    }
    expect((await failure()).message).toContain('over 1048576 bytes')
    await closed
  })

  test('an answer that is cut off, and a server that is not there', async () => {
    answer = (response) => {
      response.writeHead(200, { 'content-length': '5000' })
      response.write('{', () => response.destroy())
    }
    await failure()
    answer = (response) => response.destroy()
    expect((await failure()).message).toMatch(/^connection closed \(\w+\)$/)
    const gone = gammaLookUp(http.fetch, 'http://127.0.0.1:1/canary')
    await expect(gone(slug, new AbortController().signal)).rejects.toThrow(
      'connection refused (ECONNREFUSED)',
    )
  })

  test.each([
    ['headers', false],
    ['a body', true],
  ])('an answer whose %s do not come in time', async (_title, begin) => {
    const patience = new AbortController()
    answer = (response) => {
      if (begin) response.write('{"slug":', () => patience.abort())
      else patience.abort()
    }
    expect((await failure(patience.signal)).message).toContain('timed out')
  })
})

describe('domain §5.4: markets by end, and of an event', () => {
  const signal = new AbortController().signal
  const asked = { endsAfter: '2026-01-01T00:00:00Z', offset: 100, limit: 3 }

  test('a page: open markets by their end; an odd market hides no other', async () => {
    const disputed = { umaResolutionStatuses: '["proposed", "disputed"]', endDate: '2026-01-02' }
    says(200, JSON.stringify([market(disputed), { slug: 7 }, market({ endDate: null })]))
    const { markets, isLast } = await gammaMarkets(http.fetch, base).page(asked, signal)
    expect(isLast).toBe(false)
    expect(markets).toMatchObject([
      { slug, questionId, endsAt: '2026-01-02', statuses: ['proposed', 'disputed'] },
      { slug, endsAt: undefined },
    ])
    const url = new URL(requests.at(-1)?.url ?? '', base)
    expect(url.pathname).toBe('/canary-path/markets')
    expect(Object.fromEntries(url.searchParams)).toEqual({
      ...{ closed: 'false', order: 'endDate', ascending: 'true', offset: '100', limit: '3' },
      end_date_min: asked.endsAfter,
    })
    says(200, '[]')
    expect(await gammaMarkets(http.fetch, base).page(asked, signal)).toEqual({
      ...{ markets: [], isLast: true },
    })
    says(200, '{}')
    await expect(gammaMarkets(http.fetch, base).page(asked, signal)).rejects.toThrow(
      SlugLookUpError,
    )
  })

  test('an event: its markets; unknown to Gamma it is no event', async () => {
    says(200, JSON.stringify({ slug: 'event', markets: [market(), market({ slug: 'other' })] }))
    const found = await gammaMarkets(http.fetch, base).event('event', signal)
    expect(found?.map((one) => one.slug)).toEqual([slug, 'other'])
    expect(requests.at(-1)?.url).toBe('/canary-path/events/slug/event')
    says(404, '')
    expect(await gammaMarkets(http.fetch, base).event('event', signal)).toBeUndefined()
  })
})

describe('markets of question ids', () => {
  const other = `0x${'e5'.repeat(32)}`
  const ask = (ids: readonly `0x${string}`[]) =>
    gammaMarkets(http.fetch, base).byQuestions(ids, new AbortController().signal)
  const first = questionId as `0x${string}`

  test('are asked for together, open and closed, and others are left out', async () => {
    requests.length = 0
    says(
      200,
      JSON.stringify([
        market({
          closed: false,
          endDate: '2025-10-25T00:00:00Z',
          gameStartTime: '2025-10-24 23:00:00+00',
        }),
        market({ questionID: `0x${'f6'.repeat(32)}` }),
        { odd: true },
      ]),
    )
    const [found] = await ask([first, other as `0x${string}`])
    expect(found).toMatchObject({
      questionId,
      closed: false,
      gameStartsAt: '2025-10-24T23:00:00.000Z',
      prices: { p2: 0.9995, p1: 0.0005 },
    })
    expect((await ask([first])).every((one) => one.questionId === questionId)).toBe(true)
    expect(
      requests
        .slice(0, 2)
        .map(({ url }) => url?.split('?')[1])
        .sort(),
    ).toEqual([
      `question_ids=${questionId}&question_ids=${other}&limit=2`,
      `question_ids=${questionId}&question_ids=${other}&limit=2&closed=true`,
    ])
  })

  test.each<[string, object]>([
    ['missing', { outcomePrices: undefined, closed: undefined }],
    ['null', { outcomePrices: null, closed: null, gameStartTime: null }],
    ['of another form', { outcomePrices: '["1"]', closed: 'no', gameStartTime: 12 }],
    ['beyond a whole', { outcomePrices: '["1.5", "-0.5"]', gameStartTime: 'tomorrow' }],
    ['empty', { outcomePrices: '["", ""]', gameStartTime: '' }],
  ])('fields that are %s are not known, and the market is', async (_name, changes) => {
    says(200, JSON.stringify([market(changes)]))
    const [found] = await ask([first])
    expect([found?.questionId, found?.prices, found?.closed, found?.gameStartsAt]).toEqual([
      questionId,
      undefined,
      undefined,
      undefined,
    ])
  })

  test('prices may be a list, not one inside a string', async () => {
    says(200, JSON.stringify([market({ outcomePrices: [1, 0] })]))
    expect((await ask([first]))[0]?.prices).toEqual({ p2: 1, p1: 0 })
  })

  test('what is no list is a failure', async () => {
    says(200, '{}')
    await expect(ask([first])).rejects.toBeInstanceOf(SlugLookUpError)
  })
})
