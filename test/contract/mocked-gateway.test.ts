import { HttpResponse, http } from 'msw'
import { setupServer } from 'msw/node'
import { createGatewayClient } from '#client/gateway/gateway-client'
import { systemClock } from '#io/clock'

const base = 'https://gateway.example/oracle'
const version = { api: 'v1', schema: 'signed-proposal-v1', witness: 'permit2-signed-proposer-v1' }
const question = `0x${'ab'.repeat(32)}`
const candidate = '6e1c2f7a-0d5b-4a53-9d2e-1f0c8a7b6d5e'
const proposer = `0x${'19'.repeat(20)}`

const server = setupServer()
beforeAll(() => server.listen({ onUnhandledRequest: 'error' }))
afterEach(() => server.resetHandlers())
afterAll(() => server.close())

const client = createGatewayClient({
  fetch: (input, init) => fetch(input, init),
  baseUrl: base,
  clock: systemClock,
})

test('§2.3: eligibility of a gateway below a path, with fields of its own added', async () => {
  server.use(
    http.get(`${base}/v1/proposals/eligibility/${proposer}`, () =>
      HttpResponse.json({ version, address: proposer, eligible: true, region: 'eu' }),
    ),
  )
  expect(await client.eligibility(proposer)).toMatchObject({
    kind: 'accepted',
    value: { address: proposer, eligible: true },
  })
})

test('§2.5: an acknowledgement is accepted only with a hyphenated UUID; the bytes sent are those given', async () => {
  const sent: string[] = []
  let id = candidate
  server.use(
    http.post(`${base}/v1/proposals/${question}`, async ({ request }) => {
      sent.push(await request.text())
      const status_url = `/v1/proposals/${question}/status/${id}`
      return HttpResponse.json(
        {
          version,
          candidate_id: id,
          status: 'received',
          received_at: '2026-11-20T05:38:00.000Z',
          status_url,
        },
        { status: 202 },
      )
    }),
  )
  expect(await client.submit(question, '{"kept":  "as it is"}')).toMatchObject({
    kind: 'accepted',
    value: { candidate_id: candidate },
  })
  id = 'not-a-uuid'
  expect(await client.submit(question, '{}')).toMatchObject({ kind: 'uncertain' })
  expect(sent).toEqual(['{"kept":  "as it is"}', '{}'])
})

test('§7: the same status means another thing with and without an application body', async () => {
  const kindOf = async (answer: () => Response) => {
    server.use(http.post(`${base}/v1/proposals/${question}`, answer, { once: true }))
    return (await client.submit(question, '{}')).kind
  }
  const refused = (status: number, code: string) => () =>
    HttpResponse.json({ error: { code, detail: 'retry in 7 seconds' } }, { status })
  const kinds = [
    await kindOf(refused(429, 'rate_limited')),
    await kindOf(() => HttpResponse.text('<html>busy</html>', { status: 429 })),
    await kindOf(refused(409, 'candidate_conflict')),
    await kindOf(() => HttpResponse.text('bad gateway', { status: 502 })),
    await kindOf(refused(403, 'signature_not_authorized')),
    await kindOf(() => HttpResponse.error()),
  ]
  expect(kinds).toEqual(['deferred', 'uncertain', 'reconcile', 'uncertain', 'refused', 'uncertain'])
})
