import { describe, expect, test } from 'vitest'
import { createGatewayClient } from '#client/gateway/gateway-client'
import type { BatchRow } from '#client/input/input'
import { stateOf } from '#client/journal/authorizations'
import { openJournal, verifyJournal } from '#client/journal/journal'
import { type RowResult, submitBatch } from '#client/propose/batch'
import { newSpending } from '#client/propose/look'
import type { ProposeParts } from '#client/propose/plan'
import { gatewayContexts } from '#client/trust/context'
import type { Trust } from '#client/trust/trust'
import { signerFromKey } from '#io/keys'
import type { Fetch, Hex } from '#ports'
import { fromHex } from '#protocol/witness'
import { eventClock, sha256 } from '#support/client-world'
import { makeQuestion, signedItem, testContracts } from '#support/fake-view'
import { openFront } from '#support/front'
import { SimFiles, SimHost, seededRandom } from '#support/sim-files'

const { chainId, permit2, signedProposer, oracles, requesters, tokens } = testContracts
const trust: Trust = {
  chain_id: chainId,
  permit2,
  signed_proposer: signedProposer,
  oracles: [...oracles],
  requesters: [...requesters],
  tokens: [...tokens],
  slugs: {},
}

async function openWorld(seed: number) {
  const sim = new SimFiles()
  const host = new SimHost()
  const clock = eventClock(1_800_000_000_000)
  const front = await openFront({ wallets: 2 })
  const [wallet, other] = front.wallets
  const questions = [0, 1, 2].map((n) => makeQuestion(`crash ${n}`))
  for (const question of questions) front.view.put(question)
  const [first, second, third] = questions
  if (first === undefined || second === undefined || third === undefined || other === undefined)
    throw new Error('a world of three')
  const item = await signedItem(other, second)
  const rows: BatchRow[] = [
    { kind: 'intent', line: 1, identifier: first.questionId, outcome: 'p2', clientRef: 'a' },
    { kind: 'item', line: 2, identifier: item.identifier, item, body: JSON.stringify(item) },
    { kind: 'intent', line: 3, identifier: third.questionId, outcome: 'p1' },
  ]
  const received: string[] = []
  const signatures: Hex[] = []
  let processes = 0
  const run = (wrap: (fetch: Fetch) => Fetch = (fetch) => fetch) => {
    processes++
    const fetch: Fetch = wrap(async (input, init) => {
      const request = new Request(input, init)
      const body = await request.text()
      if (new URL(request.url).pathname === '/propose/batch') received.push(body)
      return front.gateway.handle(new Request(input, { ...init, body }), { charged: false })
    })
    const ports = {
      clock,
      random: seededRandom(seed * 100 + processes),
      hash: sha256,
      files: sim.process(),
      liveness: host.liveness(processes),
    }
    const journal = openJournal(ports, '/home')
    const gateway = createGatewayClient({ fetch, baseUrl: 'http://127.0.0.1:1', clock })
    const key = signerFromKey(fromHex(wallet.privateKey))
    const signer = {
      address: key.address,
      signDigest: (digest: Hex) => {
        signatures.push(digest)
        return key.signDigest(digest)
      },
    }
    const contexts = gatewayContexts(gateway, trust, clock)
    const parts: ProposeParts & { gateway: typeof gateway } = {
      ports,
      journal,
      trust,
      contexts,
      contextsAreFree: false,
      gateway,
      signer: async () => signer,
      proposer: async () => wallet.address,
    }
    const submit = async (resume: boolean) => {
      const results: RowResult[] = []
      const options = { fingerprint: 'input', resume, spending: newSpending(parts, { fit: false }) }
      for await (const some of submitBatch(parts, rows, options)) results.push(...some)
      return results
    }
    return { submit, journal }
  }
  return { sim, host, clock, front, rows, received, signatures, run }
}
type World = Awaited<ReturnType<typeof openWorld>>

async function endsEarly(world: World, work: () => Promise<unknown>): Promise<boolean> {
  const death = world.sim.death().then(() => 'dead' as const)
  const ended = await Promise.race([
    world.clock.drive(work(), death).then(() => 'done' as const),
    death,
  ])
  world.sim.faults = []
  for (let pid = 1; pid < 10; pid++) world.host.kill(pid)
  return ended === 'dead'
}

const itemsOf = (bodies: readonly string[]) =>
  bodies.flatMap((body) => (JSON.parse(body) as { proposals: { identifier: string }[] }).proposals)

async function expectSound(world: World): Promise<void> {
  const sentBefore = world.received.length
  const before = (await world.clock.drive(world.run().journal.load())).authorizations.map(
    (one) => stateOf(one, world.clock.nowMs()).kind,
  )
  if (sentBefore > 0)
    for (const state of before)
      expect(['unknown', 'accepted'], 'R4: what was sent is known to have been').toContain(state)
  const results = await world.clock.drive(world.run().submit(true))
  expect(
    results.map(({ row, outcome }) => [row.line, outcome === 'accepted' || outcome === 'replayed']),
  ).toEqual([
    [1, true],
    [2, true],
    [3, true],
  ])
  const bytes = new Map<string, Set<string>>()
  for (const item of itemsOf(world.received)) {
    bytes.set(item.identifier, (bytes.get(item.identifier) ?? new Set()).add(JSON.stringify(item)))
  }
  expect(
    [...bytes.values()].map((each) => each.size),
    'R7: the bytes of an item never change',
  ).toEqual([1, 1, 1])
  expect(world.front.ledger.active(), 'one candidate a row').toHaveLength(3)
  expect(new Set(world.signatures).size, 'R6: no digest, hence no nonce, is signed twice').toBe(
    world.signatures.length,
  )
  const sent = world.received.length
  expect(
    (await world.clock.drive(world.run().submit(true))).every(
      ({ candidate }) => candidate !== undefined,
    ),
  ).toBe(true)
  expect(world.received).toHaveLength(sent)
  await world.clock.drive(verifyJournal({ files: world.sim.process(), hash: sha256 }, '/home'))
}

describe.each(['kill', 'power cut'] as const)('R23: a %s after any call', (kind) => {
  test.each(['before', 'after'] as const)(
    '%s it took effect: --resume sends what is left, with the same bytes',
    async (when) => {
      const whole = await openWorld(1)
      await whole.clock.drive(whole.run().submit(false))
      const calls = whole.sim.counts.get('any') ?? 0
      let ends = 0
      for (let nth = 1; nth <= calls; nth++) {
        const world = await openWorld(nth)
        world.sim.faults = [{ verb: 'any', nth, does: `kill-${when}` }]
        const run = world.run()
        // A call that fails by itself (a folder that is not there yet) has no after.
        if (!(await endsEarly(world, () => run.submit(false)))) continue
        ends++
        if (kind === 'power cut') {
          world.sim.crash(nth)
          world.host.reboot()
        }
        await expectSound(world)
      }
      expect(ends).toBeGreaterThan(40)
    },
  )
})

test('R6: rows that come by another way than the checked input are not signed with one nonce twice either', async () => {
  const world = await openWorld(1)
  for (const [at, row] of world.rows.entries())
    if (row.kind === 'intent') world.rows[at] = { ...row, nonce: 7n }
  const results = await world.clock.drive(world.run().submit(false))
  expect(results.map(({ outcome, error }) => error?.code ?? outcome)).toEqual([
    'accepted',
    'accepted',
    'nonce_reserved',
  ])
  expect(world.signatures).toHaveLength(1)
})

test('R4: killed while the answer is under way, every item is unknown, and --resume sends the same body', async () => {
  const world = await openWorld(1)
  const run = world.run((fetch) => async (input, init) => {
    const answer = await fetch(input, init)
    if (world.received.length === 1) world.sim.kill()
    return answer
  })
  expect(await endsEarly(world, () => run.submit(false))).toBe(true)
  const { authorizations } = await world.clock.drive(world.run().journal.load())
  expect(authorizations.map((one) => stateOf(one, world.clock.nowMs()).kind)).toEqual([
    'unknown',
    'unknown',
    'unknown',
  ])
  const results = await world.clock.drive(world.run().submit(true))
  expect(results.map(({ outcome }) => outcome)).toEqual(['replayed', 'replayed', 'replayed'])
  expect(world.received[1]).toBe(world.received[0])
  expect(world.signatures).toHaveLength(2)
})
