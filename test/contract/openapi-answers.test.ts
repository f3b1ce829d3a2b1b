import { connect } from 'node:net'
import { type Listener, listen } from '#io/serving/listener'
import { answerFault, type SeenAnswer } from '#support/answers'
import { takeAnswerFaults } from '#support/answers-seen'
import { openFront } from '#support/front'

const json = { 'content-type': 'application/json' }
const eligibility = `/v1/proposals/eligibility/0x${'1'.repeat(40)}`
const version = { api: 'v1', schema: 'signed-proposal-v1', witness: 'permit2-signed-proposer-v1' }
const sound = { version, address: `0x${'1'.repeat(40)}`, eligible: true }
const answer = (changes: Partial<Omit<SeenAnswer, 'body'>> & { body?: unknown }): SeenAnswer => ({
  method: 'GET',
  target: eligibility,
  status: 200,
  headers: json,
  ...changes,
  body: typeof changes.body === 'string' ? changes.body : JSON.stringify(changes.body ?? sound),
})
const refusal = (code: string) => ({ error: { code, detail: 'as the test wants it' } })

const listeners: Listener[] = []
afterEach(async () => {
  for (const listener of listeners.splice(0)) await listener.close(0)
})

test.each<[string, Parameters<typeof answer>[0], string]>([
  ['a missing field', { body: { version, eligible: true } }, 'must have required property'],
  [
    'a field that is not documented',
    { body: { ...sound, since: 'yesterday' } },
    'must NOT have additional properties',
  ],
  ['a value of another form', { body: { ...sound, address: '0x12' } }, 'must match pattern'],
  [
    'a code that the route does not have',
    { status: 503, headers: { ...json, 'retry-after': '1' }, body: refusal('admission_disabled') },
    'code',
  ],
  [
    'a 503 without Retry-After',
    { status: 503, body: refusal('server_busy') },
    'Retry-After is missing',
  ],
  [
    'an Allow with other methods',
    {
      method: 'PUT',
      status: 405,
      headers: { ...json, allow: 'POST' },
      body: refusal('method_not_allowed'),
    },
    'Allow',
  ],
])('contract §2: %s is a fault', (_, changes, fault) => {
  expect(answerFault(answer(changes))).toContain(fault)
})

test('contract §2: an answer of a gateway in this process is judged, and a caller still has its body', async () => {
  const front = await openFront()
  front.ledger.eligible = () => 'perhaps' as never
  const response = await front.get(front.eligibility)
  expect(await response.json()).toMatchObject({ eligible: 'perhaps' })
  const faults = await takeAnswerFaults()
  expect(faults).toHaveLength(1)
  expect(faults[0]).toContain('must be boolean')
  expect(await takeAnswerFaults()).toEqual([])
})

test('robustness §4: what a listener writes to a socket itself is judged', async () => {
  const front = await openFront()
  const listener = await listen({ host: '127.0.0.1', port: 0, handler: front.gateway.answer })
  listeners.push(listener)
  listener.server.on('connection', (socket) => {
    socket.end(
      'HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{"code":"bad_request"}',
    )
  })
  const { port } = listener
  await new Promise<void>((resolve) =>
    connect({ host: '127.0.0.1', port }).resume().on('close', resolve),
  )
  const faults = await takeAnswerFaults()
  expect(faults).toHaveLength(1)
  expect(faults[0]).toContain("must have required property 'error'")
})
