import { stateOf } from '#client/journal/authorizations'
import { authorize } from '#client/propose/sign-rows'
import { parseContext } from '#client/trust/context'
import { TransportError } from '#ports'
import { InterruptedError } from '#protocol/errors'
import {
  atHand,
  honestTypedData,
  makeWorld,
  type Run,
  sendAgain,
  submitIntent,
  submitPayload,
  type World,
} from '#support/client-world'
import { refusal } from '#support/refusal'

const only = async (world: World, run: Run = world.run()) => {
  const [one] = (await world.drive(run.journal.load())).authorizations
  if (one === undefined) throw new Error('the journal is empty')
  return { authorization: one, state: stateOf(one, world.clock.nowMs()) }
}

test('robustness §6: a certificate that is not accepted is told at once, with what to do', async () => {
  const world = makeWorld()
  let sent = 0
  const run = world.run({
    fetch: async (input, init) => {
      if (!String(input).includes('/v1/')) return world.gateway.fetch(input, init)
      sent += 1
      throw new TransportError('connect', 'CERT_HAS_EXPIRED', 'no connection to the gateway')
    },
  })
  const result = await world.drive(submitIntent(run.parts, run.intent))
  expect(result).toMatchObject({
    outcome: 'deferred',
    error: {
      code: 'certificate_not_accepted',
      meta: { exitCode: 75, hint: expect.stringContaining('NODE_EXTRA_CA_CERTS') },
    },
  })
  expect(sent).toBe(1)
})

describe('the outcomes of sending (contract §6)', () => {
  const send = async (world: World, faults: World['gateway']['faults'], timeoutMs?: number) => {
    const run = world.run()
    world.gateway.faults.push(...faults)
    return world.drive(
      submitIntent(run.parts, run.intent, timeoutMs === undefined ? {} : { timeoutMs }),
    )
  }

  test('exit 75 when every answer was 429, 503 or no connection; 8 tries at most', async () => {
    const world = makeWorld()
    const result = await send(
      world,
      Array.from({ length: 20 }, () => ({ status: 503, code: 'server_busy' })),
    )
    expect(result).toMatchObject({
      outcome: 'deferred',
      error: { code: 'server_busy', meta: { exitCode: 75 } },
    })
    expect(world.gateway.received).toHaveLength(8)
    expect((await only(world)).state.kind).toBe('deferred')
    const noOne = makeWorld()
    const refused = await send(
      noOne,
      Array.from({ length: 20 }, () => 'no-connection' as const),
    )
    expect(refused).toMatchObject({ outcome: 'deferred', error: { code: 'no_connection' } })
    expect((await only(noOne)).state.kind).toBe('deferred')
  })

  test('robustness §6: a Retry-After over 120 s stops at once', async () => {
    const world = makeWorld()
    const result = await send(world, [
      { status: 429, code: 'rate_limited', detail: 'retry in 121 seconds' },
    ])
    // The scripted header says 0, which wins; the detail alone is looked at below.
    expect(result.outcome).toBe('accepted')
    const run = world.run({
      fetch: async () =>
        Response.json(
          { error: { code: 'rate_limited', detail: 'slow down' } },
          {
            status: 429,
            headers: { 'retry-after': '121' },
          },
        ),
    })
    const { authorization } = await only(world)
    const stopped = await world.drive(sendAgain(run.parts, authorization))
    expect(stopped).toMatchObject({
      outcome: 'accepted',
      error: { meta: { exitCode: 75, retryAfterMs: 121_000 } },
    })
  })

  test('Ctrl-C: 6 if uncertain, 130 otherwise', async () => {
    for (const [fault, outcome, exitCode] of [
      ['lost-answer', 'unknown', 6],
      ['no-connection', 'deferred', 130],
    ] as const) {
      const world = makeWorld()
      const run = world.run()
      const stop = new AbortController()
      const { authorization } = await world.drive(authorize(run.parts, run.intent))
      world.gateway.faults.push(fault)
      const onRetry = () => stop.abort(new InterruptedError('interrupted', 'stopped by SIGINT'))
      const result = await world.drive(
        sendAgain(run.parts, authorization, { signal: stop.signal, onRetry }),
      )
      expect(result).toMatchObject({ outcome, error: { meta: { exitCode } } })
    }
  })
})

test('a file of another shape is named as such, and nothing is sent', async () => {
  const world = makeWorld()
  const run = world.run()
  for (const body of ['', '[]', '{"version":1}', 'null']) {
    const error = await refusal(world.drive(submitPayload(run.parts, run.intent.identifier, body)))
    expect(error).toMatchObject({ code: 'invalid_payload', meta: { exitCode: 2 } })
  }
  expect(world.gateway.calls).toHaveLength(0)
})

test('R7: the next process, asked for the same after an unknown outcome, sends the saved bytes and asks for no signature', async () => {
  const world = makeWorld()
  world.gateway.faults.push(
    'lost-answer',
    ...Array.from({ length: 9 }, () => ({ status: 503, code: 'server_busy' })),
  )
  const first = world.run()
  const unknown = await world.drive(submitIntent(first.parts, first.intent))
  expect(unknown).toMatchObject({ outcome: 'unknown', error: { meta: { exitCode: 6 } } })
  world.gateway.faults.length = 0
  const second = world.run()
  const settled = await world.drive(submitIntent(second.parts, second.intent))
  expect(settled).toMatchObject({ outcome: 'replayed', journalId: unknown.journalId })
  expect(world.signatures).toHaveLength(1)
  expect(new Set(world.gateway.received).size).toBe(1)
})

test('R9: typed_data of a server that names another spender leads to no signature, and never is what is signed', async () => {
  const world = makeWorld()
  const { question } = world.gateway
  const terms = { price: '0', amount: '1', nonce: '2', deadline: '3' }
  const honest = honestTypedData(world, terms)
  const lying = { ...honest, message: { ...honest.message, spender: `0x${'9'.repeat(40)}` } }
  const { parts, intent } = world.run()
  const context = async () => parseContext({ ...question, typed_data: lying }, intent.identifier)
  const refused = world.drive(authorize({ ...parts, ...atHand(parts, context) }, intent))
  await expect(refused).rejects.toMatchObject({
    code: 'untrusted_typed_data',
    meta: { exitCode: 2 },
  })
  expect(world.signatures).toEqual([])
})
