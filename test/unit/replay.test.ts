import { authorize } from '#client/propose/sign-rows'
import { replay } from '#client/propose/submit'
import { makeWorld, type Run, submitIntent, submitPayload, type World } from '#support/client-world'
import { createFakeChain } from '#support/fake-chain'
import { refusal } from '#support/refusal'

async function lostWorld(clientRef?: string) {
  const world = makeWorld()
  const run = world.run()
  const intent = { ...run.intent, ...(clientRef === undefined ? {} : { clientRef }) }
  world.gateway.faults.push('lost-answer')
  const { outcome, journalId: id } = await world.drive(
    submitIntent(run.parts, intent, { timeoutMs: 1 }),
  )
  expect(outcome).toBe('unknown')
  return { world, run, intent, id }
}

const found = async (world: World, id: string) => {
  const one = (await world.journal()).find(id)
  if (one === undefined) throw new Error(`no ${id}`)
  return one
}

test('R8: one that was superseded is refused with exit 5, naming what replaced it; not by its payload either, nor by --all', async () => {
  const { world, run, intent, id } = await lostWorld()
  const next = await world.drive(
    submitIntent(run.parts, { ...intent, outcome: 'p1', supersede: id }),
  )
  const sent = world.gateway.received.length
  const error = await refusal(world.drive(replay(world.run().parts, [id])))
  expect(error).toMatchObject({ code: 'superseded', meta: { exitCode: 5 } })
  expect(error.detail).toContain(next.journalId)
  expect(error.meta.hint).toContain(`proposer revoke ${id}`)
  const body = (await found(world, id)).signed.body
  expect(
    await world.drive(submitPayload(world.run().parts, run.intent.identifier, body)),
  ).toMatchObject({ error: { code: 'superseded' } })
  const all = await world.drive(replay(world.run().parts, 'all'))
  expect(all).toMatchObject({
    results: [],
    skipped: [{ reason: 'superseded', command: `proposer revoke ${id}` }],
  })
  expect(world.gateway.received).toHaveLength(sent)
})

test('contract §6: one that was signed and never sent is refused with exit 2 and the command that sends it', async () => {
  const world = makeWorld()
  const run = world.run()
  const { authorization } = await world.drive(authorize(run.parts, run.intent))
  const error = await refusal(world.drive(replay(world.run().parts, [authorization.id])))
  expect(error).toMatchObject({
    code: 'never_sent',
    meta: {
      exitCode: 2,
      hint: expect.stringContaining(`proposer submit ${run.intent.identifier} --outcome p2`),
    },
  })
  expect(world.gateway.received).toEqual([])
})

const inRound = (world: World, run: Run, timestamp: string, isFree = false) => ({
  ...run.parts,
  ...(isFree && { chain: createFakeChain() }),
  contexts: {
    contexts: async ([identifier = '']: readonly string[]) => {
      const { question } = world.gateway
      const request = { ...question.request, timestamp }
      return [
        { identifier, context: { ...question, source: 'chain' as const, request }, notes: [] },
      ]
    },
  },
})

test('R7: a 403 in the very round leaves the outcome unknown, to be sent again', async () => {
  const { world, id, run } = await lostWorld()
  world.gateway.faults.push({ status: 403, code: 'proposer_not_eligible' })
  const timestamp = (await found(world, id)).signed.timestamp ?? ''
  const { results } = await world.drive(replay(inRound(world, run, timestamp), [id]))
  expect(results).toMatchObject([
    {
      error: {
        code: 'outcome_unknown',
        meta: { hint: expect.stringContaining(`proposer replay ${id}`) },
      },
    },
  ])
})

test('R14: a node of ours outrules what a gateway said: in a round that a reorg brought back the bytes are sent, in an ended one never', async () => {
  const { world, id } = await lostWorld()
  world.gateway.faults.push({ status: 409, code: 'round_advanced' })
  await world.drive(replay(world.run().parts, [id]))
  const sent = world.gateway.received.length
  const ended = await world.drive(replay(inRound(world, world.run(), '1760000050', true), [id]))
  expect(ended.results).toMatchObject([{ error: { code: 'round_over' } }])
  expect(world.gateway.received).toHaveLength(sent)
  const timestamp = (await found(world, id)).signed.timestamp ?? ''
  const back = await world.drive(replay(inRound(world, world.run(), timestamp, true), [id]))
  expect(back.results).toMatchObject([{ outcome: 'replayed' }])
})

test('contract §6: submit of an unknown one that went to another gateway is refused with exit 6 and the flag to use', async () => {
  const { world, intent, run, id } = await lostWorld()
  const sent = world.gateway.received.length
  const other = world.run({ origin: 'https://other.example' })
  const { error } = await world.drive(submitIntent(other.parts, intent))
  expect(error).toMatchObject({
    code: 'other_origin',
    meta: { exitCode: 6, hint: expect.stringContaining(`proposer replay ${id} --gateway`) },
  })
  const body = (await found(world, id)).signed.body
  expect(await world.drive(submitPayload(other.parts, run.intent.identifier, body))).toMatchObject({
    error: { code: 'other_origin' },
  })
  expect(world.gateway.received).toHaveLength(sent)
  expect(world.signatures).toHaveLength(1)
})

test('attempts of several runs stand in order of time', async () => {
  const { world, id } = await lostWorld()
  for (const ms of [1, 2, 3, 4, 5]) {
    await world.drive(world.clock.sleep(ms))
    world.gateway.faults.push('lost-answer')
    await world.drive(replay(world.run().parts, [id], { timeoutMs: 1 }))
  }
  const times = (await found(world, id)).attempts.map(({ startedAtMs }) => startedAtMs)
  expect(times).toEqual([...new Set(times)].toSorted())
})
