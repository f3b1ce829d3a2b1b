import { keccakHex } from '#chain/round'
import { authorize } from '#client/propose/sign-rows'
import { gatewayContexts, parseContext } from '#client/trust/context'
import { parseTrust, type Trust } from '#client/trust/trust'
import { ProposerError } from '#protocol/errors'
import { makeWorld, nextRound, submitIntent, type World } from '#support/client-world'
import { liberties, lies, other, textOf } from '#support/hostile/lies'

async function refusal(world: World, work: Promise<unknown>): Promise<ProposerError> {
  try {
    await world.drive(work)
  } catch (error) {
    if (error instanceof ProposerError) return error
    throw error
  }
  throw new Error('it was taken')
}

/** Whatever is asked for, the gateway answers with its own question. */
function asked(world: World, identifier: string) {
  const raw = { results: [{ identifier, status_code: 200, signing_data: world.gateway.question }] }
  const fetch = async () => Response.json(raw)
  return { contexts: gatewayContexts(world.run({ fetch }).client, world.trust, world.clock) }
}

function expectNothingDone(world: World): void {
  expect(world.signatures).toHaveLength(0)
  expect(world.gateway.received).toHaveLength(0)
  expect([...world.sim.contents().keys()].filter((path) => path.includes('log-'))).toEqual([])
}

test.each(lies)('R9: %s: %s', async (field, code, lie) => {
  const world = makeWorld()
  const run = world.run()
  const intent = { ...run.intent, maxAmountRaw: 1_000_000_000n }
  lie(world.gateway.question)
  const error = await refusal(
    world,
    submitIntent({ ...run.parts, ...asked(world, intent.identifier) }, intent),
  )
  expect(error).toMatchObject({ code, meta: { exitCode: 2 } })
  // A bond cannot be pinned: the cap is what it runs into, and the detail shows it.
  expect(error.detail).toContain(
    code === 'amount_above_cap' ? 'required bond is 999999999999' : field,
  )
  expectNothingDone(world)
})

test.each(liberties)(
  'contract §9: %s is taken, and what is signed is the same',
  async (_what, liberty) => {
    const signedAs = async (change: typeof liberty) => {
      const world = makeWorld()
      const run = world.run()
      const intent = { ...run.intent, nonce: 5n, deadlineSeconds: 1_760_009_000n }
      change(world.gateway.question)
      return (
        await world.drive(authorize({ ...run.parts, ...asked(world, intent.identifier) }, intent))
      ).authorization.signed.body
    }
    expect(await signedAs(liberty)).toBe(await signedAs(() => undefined))
  },
)

test("R9: p3 that the request's text does not allow is refused although the gateway lists it", async () => {
  const world = makeWorld()
  const text = 'q: title: no half, res_data: p1: 0, p2: 1. Where p1 corresponds to No, p2 to Yes.'
  const question = world.gateway.question
  question.request.ancillary_data = textOf(text)
  question.question_id = question.request.question_id = keccakHex(textOf(text))
  question.price.allowed_values = ['0', '1000000000000000000', '500000000000000000']
  const run = world.run()
  const error = await refusal(
    world,
    submitIntent(run.parts, { ...run.intent, identifier: question.question_id, outcome: 'p3' }),
  )
  expect(error).toMatchObject({ code: 'untrusted_price', meta: { exitCode: 2 } })
  expectNothingDone(world)
})

test('R9: a slug that is pinned to another question, or to none, is refused', async () => {
  const world = makeWorld()
  const run = world.run()
  const pinnedElsewhere: Trust = { ...world.trust, slugs: { 'will-it-hold': other('9', 32) } }
  const lied = await refusal(
    world,
    submitIntent(
      { ...run.parts, trust: pinnedElsewhere },
      { ...run.intent, identifier: 'will-it-hold' },
    ),
  )
  expect(lied).toMatchObject({ code: 'untrusted_question_id' })
  const unpinned: Trust = { ...world.trust, slugs: {} }
  const parts = { ...run.parts, trust: unpinned }
  expect(
    await refusal(world, submitIntent(parts, { ...run.intent, identifier: 'will-it-hold' })),
  ).toMatchObject({ code: 'untrusted_slug' })
  expectNothingDone(world)
})

test('R9: a round older than one that was signed for is refused', async () => {
  const world = makeWorld()
  const run = world.run()
  nextRound(world.gateway, '1760000050')
  await world.drive(authorize(run.parts, run.intent))
  nextRound(world.gateway, '1760000000')
  const error = await refusal(
    world,
    authorize(run.parts, { ...run.intent, amountRaw: 750_000_001n }),
  )
  expect(error).toMatchObject({ code: 'untrusted_timestamp' })
  expect(world.signatures).toHaveLength(1)
})

test('R9: answers out of order are not taken for those that were asked', async () => {
  const world = makeWorld()
  const run = world.run({
    fetch: async (input, init) => {
      const answer = (await (await world.gateway.fetch(input, init)).json()) as {
        results: unknown[]
      }
      return Response.json({ results: answer.results.reverse() })
    },
  })
  const asked = [world.gateway.question.question_id, other('9', 32)]
  const results = await gatewayContexts(run.client, world.trust, world.clock).contexts(asked)
  expect(results.map(({ error }) => error?.code)).toEqual(['gateway_body', 'gateway_body'])
})

test.each([-1, 1])(
  "§4.2 rule 3: a list of %i results more than were asked for is about nobody's question",
  async (more) => {
    const world = makeWorld()
    const run = world.run({
      fetch: async (input, init) => {
        const { results } = (await (await world.gateway.fetch(input, init)).json()) as {
          results: unknown[]
        }
        const told = more < 0 ? results.slice(0, more) : [...results, results[0]]
        return Response.json({ results: told })
      },
    })
    const questionId = world.gateway.question.question_id
    const results = await gatewayContexts(run.client, world.trust, world.clock).contexts([
      questionId,
      other('9', 32),
    ])
    expect(results.map(({ error }) => [error?.code, error?.meta.exitCode])).toEqual([
      ['gateway_body', 75],
      ['gateway_body', 75],
    ])
  },
)

const cases = [
  ['an amount below the bond', { amountRaw: 749_999_999n }, 'permit_amount_below_required_bond'],
  ['an amount above the cap', { maxAmountRaw: 749_999_999n }, 'amount_above_cap'],
  ['too near a deadline', { deadlineSeconds: 1_760_000_399n }, 'permit_deadline_too_soon'],
  ['a deadline without a date', { deadlineSeconds: 8_640_000_000_001n }, 'invalid_deadline'],
  ['a number as client_ref', { clientRef: 7 as never }, 'bad_client_ref'],
  ['a nonce in hex', { nonce: '0x7' as never }, 'invalid_amount'],
  ['an amount over 256 bits', { amountRaw: 2n ** 256n }, 'invalid_amount'],
] as const
test.each(cases)('robustness §6: %s is refused', async (_name, more, code) => {
  const world = makeWorld()
  const run = world.run()
  expect(await refusal(world, authorize(run.parts, { ...run.intent, ...more }))).toMatchObject({
    code,
    meta: { exitCode: 2 },
  })
  expectNothingDone(world)
})

test('robustness §6: the deadline is an hour ahead unless given, and may be further when given', async () => {
  const world = makeWorld()
  const run = world.run()
  const first = await world.drive(authorize(run.parts, run.intent))
  expect(first.authorization.signed.terms.deadline).toBe(
    String(Math.floor(world.clock.nowMs() / 1_000) + 3_600),
  )
  const far = makeWorld()
  const given = { ...far.run().intent, deadlineSeconds: 1_770_000_000n }
  expect(
    (await far.clock.drive(authorize(far.run().parts, given))).authorization.signed.terms.deadline,
  ).toBe('1770000000')
})

test('robustness §6: a key of another address signs nothing', async () => {
  const world = makeWorld()
  const run = world.run()
  const error = await refusal(world, authorize(run.parts, { ...run.intent, proposer: other('9') }))
  expect(error).toMatchObject({ code: 'wrong_signer' })
  expectNothingDone(world)
})

test('contract §6: anything else is refused with what is wrong', () => {
  const world = makeWorld()
  const two = {
    questions: [world.gateway.question, { ...world.gateway.question, question_id: other('8', 32) }],
  }
  for (const bad of [
    null,
    1,
    'x',
    {},
    { questions: [] },
    { questions: 1 },
    { questions: [{ identifier: 'x', error: {} }] },
    two,
  ]) {
    expect(() => parseContext(bad, other('9', 32))).toThrow(ProposerError)
  }
})

test('a bare context file may have more keys; all that a list holds counts', () => {
  const { question } = makeWorld().gateway
  const { question_id: id } = question
  const bare = { ...question, error: null }
  expect(parseContext(bare, id)).toMatchObject({ question_id: id })
  expect(() => parseContext({ questions: [bare] }, id)).toThrow('it holds an error')
  expect(() => parseContext({ questions: [question, 5] }, '0x9')).toThrow('questions is 0x9')
})

test('contract §7: trust.json with an unknown key, a missing one or an upper-case address names it', () => {
  const { trust } = makeWorld()
  expect(parseTrust({ ...trust }, 'trust.json')).toEqual(trust)
  for (const [bad, field] of [
    [{ ...trust, extra: 1 }, 'extra'],
    [{ ...trust, permit2: undefined }, 'permit2'],
    [{ ...trust, oracles: ['0xAB'] }, 'oracles.0'],
    [{ ...trust, requesters: [{ address: other('1'), kind: 'adapter' }] }, 'requesters.0.kind'],
  ] as const) {
    expect(() => parseTrust(bad, 'trust.json')).toThrow(
      expect.objectContaining({ code: 'invalid_trust', detail: expect.stringContaining(field) }),
    )
  }
})
