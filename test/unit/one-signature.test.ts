import { authorize } from '#client/propose/sign-rows'
import { parseContext } from '#client/trust/context'
import { atHand, honestTypedData, makeWorld, submitIntent } from '#support/client-world'

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
