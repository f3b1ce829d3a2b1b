import { stateOf } from '#client/journal/authorizations'
import { verifyJournal } from '#client/journal/journal'
import { authorize } from '#client/propose/sign-rows'
import { replay } from '#client/propose/submit'
import { ProposerError } from '#protocol/errors'
import { SignedProposal } from '#protocol/schema'
import { makeWorld, sha256, submitIntent, type World } from '#support/client-world'

async function endsEarly(world: World, work: () => Promise<unknown>): Promise<boolean> {
  const death = world.sim.death().then(() => 'dead' as const)
  const ended = await Promise.race([world.drive(work(), death).then(() => 'done' as const), death])
  world.sim.faults = []
  for (let pid = 1; pid < 10; pid++) world.host.kill(pid)
  return ended === 'dead'
}

async function expectSound(world: World, sentBefore: readonly string[]): Promise<void> {
  const run = world.run()
  if (sentBefore.length > 0) {
    const [one] = (await world.drive(run.journal.load())).authorizations
    const state = one && stateOf(one, world.clock.nowMs()).kind
    expect(['unknown', 'accepted'], 'R4: what was sent is known to have been').toContain(state)
  }
  const result = await world.drive(submitIntent(run.parts, run.intent))
  expect(['accepted', 'replayed']).toContain(result.outcome)
  expect(new Set(world.gateway.received).size, 'R7: the bytes never change').toBe(1)
  if (sentBefore.length > 0) expect(result.outcome).toBe('replayed')
  const { authorizations } = await world.journal()
  expect(
    authorizations.filter((one) => stateOf(one, world.clock.nowMs()).kind !== 'closed'),
    'R8: one open authorization',
  ).toHaveLength(1)
  expect(new Set(world.signatures).size, 'R6: no digest, hence no nonce, is signed twice').toBe(
    world.signatures.length,
  )
  await world.drive(verifyJournal({ files: world.sim.process(), hash: sha256 }, '/home'))
}

describe.each(['kill', 'power cut'] as const)('R23: a %s after any call', (kind) => {
  test.each(['before', 'after'] as const)(
    '%s it took effect: the next run sends the same bytes or had sent none',
    async (when) => {
      const whole = makeWorld()
      await whole.clock.drive(submitIntent(whole.run().parts, whole.run().intent))
      const calls = whole.sim.counts.get('any') ?? 0
      let ends = 0
      for (let nth = 1; nth <= calls; nth++) {
        const world = makeWorld(nth)
        world.sim.faults = [{ verb: 'any', nth, does: `kill-${when}` }]
        const run = world.run()
        if (!(await endsEarly(world, () => submitIntent(run.parts, run.intent)))) continue
        ends++
        if (kind === 'power cut') {
          world.sim.crash(nth)
          world.host.reboot()
        }
        await expectSound(world, [...world.gateway.received])
      }
      expect(ends).toBeGreaterThan(40)
    },
  )
})

test('R4: killed while the answer is under way, the attempt is unknown and replay settles it with the same bytes', async () => {
  const world = makeWorld()
  const run = world.run({
    fetch: async (input, init) => {
      const answer = await world.gateway.fetch(input, init)
      if (world.gateway.received.length === 1) world.sim.kill()
      return answer
    },
  })
  expect(await endsEarly(world, () => submitIntent(run.parts, run.intent))).toBe(true)
  const next = world.run()
  const [one] = (await world.drive(next.journal.load())).authorizations
  expect(one && stateOf(one, world.clock.nowMs()).kind).toBe('unknown')
  const { results } = await world.drive(replay(next.parts, 'all'))
  expect(results).toMatchObject([{ outcome: 'replayed' }])
  expect(new Set(world.gateway.received).size).toBe(1)
  expect(world.signatures).toHaveLength(1)
})

test('R4: what another run signed is copied before it is sent, so that a power cut cannot leave an attempt without its bytes', async () => {
  const world = makeWorld()
  const first = world.run()
  world.gateway.faults.push('no-connection')
  await world.drive(submitIntent(first.parts, first.intent, { timeoutMs: 1 }))
  const second = world.run()
  await world.drive(submitIntent(second.parts, second.intent))
  const runs = [...world.sim.contents()].filter(([path]) =>
    /journal\/[0-9a-f]{12}\/log-/.test(path),
  )
  expect(runs).toHaveLength(2)
  for (const [path, bytes] of runs)
    expect(new TextDecoder().decode(bytes), path).toContain('"k":"signed"')
  expect((await world.journal()).authorizations).toHaveLength(1)
})

test('R6: what `sign` hands out is durable, so that after a power cut the next run gives the same bytes', async () => {
  const world = makeWorld()
  const run = world.run()
  const first = await world.drive(authorize(run.parts, run.intent))
  world.sim.crash(3)
  world.host.reboot()
  const next = world.run()
  expect(await world.drive(authorize(next.parts, next.intent))).toMatchObject({
    reused: true,
    authorization: { signed: { body: first.authorization.signed.body } },
  })
})

test('R6: a nonce stays reserved although its signing came to nothing', async () => {
  const world = makeWorld()
  const run = world.run()
  const broken = {
    ...(await run.parts.signer()),
    signDigest: () => Promise.reject(new Error('the device was unplugged')),
  }
  const intent = { ...run.intent, nonce: 9n }
  await expect(
    world.drive(authorize({ ...run.parts, signer: async () => broken }, intent)),
  ).rejects.toThrow('unplugged')
  world.sim.crash(3)
  world.host.reboot()
  const next = world.run()
  await expect(world.drive(authorize(next.parts, intent))).rejects.toMatchObject({
    code: 'nonce_reserved',
  })
  expect((await world.drive(authorize(next.parts, next.intent))).reused).toBe(false)
})

test('R10: a sync that fails before the attempt sends nothing and is exit 74', async () => {
  for (let nth = 1; nth <= 12; nth++) {
    const world = makeWorld()
    world.sim.faults = [{ verb: 'datasync', nth, path: /log-/, does: 'EIO', always: true }]
    const run = world.run()
    const failure = await world.clock
      .drive(submitIntent(run.parts, run.intent))
      .catch((error: unknown) => error)
    if (!(failure instanceof ProposerError)) {
      expect(nth).toBeGreaterThan(2)
      return
    }
    expect(failure.meta.exitCode).toBe(74)
    const sent = world.gateway.received.length
    expect(sent).toBeLessThanOrEqual(1)
    world.sim.crash(nth)
    world.host.reboot()
    world.sim.faults = []
    await expectSound(world, [...world.gateway.received])
  }
  throw new Error('no run got through')
})

test('a full disk sends nothing and is exit 74', async () => {
  const world = makeWorld()
  const run = world.run()
  await world.drive(run.journal.load())
  world.sim.capacityBytes = 2_500
  await expect(world.drive(submitIntent(run.parts, run.intent))).rejects.toMatchObject({
    meta: { exitCode: 74 },
  })
  expect(world.gateway.received).toEqual([])
})

test('R6: a restored backup never uses a nonce again', async () => {
  const world = makeWorld()
  const before = world.run()
  await world.drive(submitIntent(before.parts, before.intent))
  // The backup is from before the signature: an empty home.
  const restored = makeWorld(2)
  const after = restored.run()
  await restored.clock.drive(submitIntent(after.parts, after.intent))
  const nonceOf = (text: string | undefined) =>
    SignedProposal.parse(JSON.parse(text ?? '')).permit.nonce
  expect(nonceOf(world.gateway.received[0])).not.toBe(nonceOf(restored.gateway.received[0]))
})
