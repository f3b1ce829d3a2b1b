import type { Candidate } from '#protocol/candidate'
import { invalidateNonces, rivalProposes, setCustomBond, setPaused } from '#support/fake-events'
import {
  anotherExecutes,
  createPipelineWorld,
  type PipelineWorld,
  testSigner,
} from '#support/pipeline-world'

const codeOf = ({ progress }: Candidate) =>
  progress.status === 'failed' ? progress.failure.code : progress.status
const detailOf = ({ progress }: Candidate) =>
  progress.status === 'failed' ? progress.failure.detail : ''
const bond = 750_000_000n

async function validated(
  change: (world: PipelineWorld, candidate: Candidate) => void,
  wish = {},
): Promise<{ world: PipelineWorld; candidate: Candidate }> {
  const world = await createPipelineWorld()
  const candidate = await world.submit(await world.question(), wish)
  change(world, candidate)
  world.chain.mine(4)
  await world.turn()
  return { world, candidate: await world.now(candidate) }
}

async function submitted() {
  const world = await createPipelineWorld()
  const questionId = await world.question()
  return { world, questionId, candidate: await world.submit(questionId) }
}

async function approving() {
  const world = await createPipelineWorld()
  const questionId = await world.question()
  const wallet = world.proposer().address
  const allow = (raw: bigint) => {
    world.chain.happen((state) => state.allowances.set(wallet, raw))
    world.chain.mine()
  }
  return { world, questionId, wallet, allow }
}

test('contract §5: what was approved just before the admission counts: nobody fails by a head that was looked at earlier', async () => {
  const { world, questionId, allow } = await approving()
  allow(0n)
  await world.view.poll()
  allow(bond)
  const candidate = await world.submit(questionId)
  await world.pipeline.step()
  expect(await world.end(candidate)).toBe('received')
  await world.turn()
  expect(await world.end(candidate)).toBe('selected')
  allow(0n)
  const other = await world.submit(await world.question('Snow?'))
  await world.turn()
  expect(await world.end(other)).toBe('insufficient_allowance')
})

test('contract §5: a look that ends while a step runs shows what the step did not judge by: nobody fails by the older head', async () => {
  const { world, questionId, allow } = await approving()
  allow(0n)
  await world.view.poll()
  allow(bond)
  const candidate = await world.submit(questionId)
  const { call } = world.chain
  let looks = 0
  world.chain.call = async (...args) => {
    if (looks++ === 0) await world.view.poll()
    return call.apply(world.chain, args)
  }
  await world.pipeline.step()
  expect(looks).toBeGreaterThan(0)
  expect(await world.end(candidate)).toBe('received')
  await world.turn()
  expect(await world.end(candidate)).toBe('selected')
})

test("contract §5: funds are summed over the wallet's active candidates in order of admission; what is on chain already is not counted twice", async () => {
  const world = await createPipelineWorld()
  const questions = [
    await world.question('a'),
    await world.question('b'),
    await world.question('c'),
  ]
  const wallet = world.proposer().address
  world.chain.happen((state) => state.balances.set(wallet, 2n * bond))
  world.chain.mine()
  const candidates = []
  for (const questionId of questions) candidates.push(await world.submit(questionId))
  await world.turn()
  const [first, second, third] = await Promise.all(candidates.map(world.now))
  expect([first, second].map((candidate) => candidate && codeOf(candidate))).toEqual([
    'selected',
    'selected',
  ])
  expect(third && codeOf(third)).toBe('insufficient_balance')
  await world.pass(1)
  world.chain.happen((state) => state.balances.set(wallet, bond))
  world.chain.mine()
  await world.ledger.replay(third?.id ?? '')
  await world.pass(6)
  expect(await world.ends(candidates)).toEqual(['executed', 'executed', 'executed'])
})

test('bond_above_permit only once the raise is final (R14)', async () => {
  const { world, questionId, candidate } = await submitted()
  setCustomBond(world.chain, questionId, 900_000_000n)
  world.chain.mine()
  await world.turn()
  expect(await world.end(candidate)).toBe('received')
  await world.pass(3)
  expect(await world.end(candidate)).toBe('bond_above_permit')
  expect(detailOf(await world.now(candidate))).toContain('1150000000')
})

test('contract §5: a raised bond that a reorganisation undoes fails nobody', async () => {
  const { world, questionId, candidate } = await submitted()
  setCustomBond(world.chain, questionId, 900_000_000n)
  world.chain.mine()
  await world.turn()
  world.chain.reorg(1)
  world.chain.mine(2)
  await world.turn()
  await world.pass(4)
  expect(await world.end(candidate)).toBe('executed')
})

test('contract §5: a paused question waits, and goes on when it is unpaused', async () => {
  const { world, questionId, candidate } = await submitted()
  setPaused(world.chain, questionId, true)
  await world.pass(4)
  expect(await world.end(candidate)).toBe('received')
  setPaused(world.chain, questionId, false)
  await world.pass(5)
  expect(await world.end(candidate)).toBe('executed')
})

test('the signature is judged as the chain judges: no code recovers, code is asked (EIP-1271, EIP-7702)', async () => {
  const wrong = `0x${'11'.repeat(64)}1b` as const
  const recovered = await validated(() => undefined, { signature: wrong })
  expect(codeOf(recovered.candidate)).toBe('signature_not_authorized')
  const refusing = await validated((world, { proposer }) => {
    world.chain.happen((state) => state.wallets.set(proposer, false))
  })
  expect(codeOf(refusing.candidate)).toBe('signature_not_authorized')
  const accepting = await validated(
    (world, { proposer }) => {
      world.chain.happen((state) => state.wallets.set(proposer, true))
    },
    { signature: wrong },
  )
  expect(codeOf(accepting.candidate)).toBe('selected')
})

test('domain §3.3: a wallet that answers a bare call otherwise than Permit2 is judged by the run of propose', async () => {
  const { world, candidate } = await validated((world, { proposer }) => {
    world.chain.happen((state) => state.wallets.set(proposer, true))
    const { call } = world.chain
    world.chain.call = async (asked, at) =>
      asked.to === proposer ? `0xffffffff${'0'.repeat(56)}` : call(asked, at)
  })
  expect(world.pipeline.faults()).toEqual([])
  await world.pass(6)
  expect(await world.end(candidate)).toBe('executed')
  expect(world.pipeline.faults()).toEqual([])
})

test('contract §5: a chain that does not answer judges nobody', async () => {
  const { world, candidate } = await submitted()
  await world.turn()
  const second = await world.submit(await world.question('b'))
  world.chain.fault('call', 'unavailable', { times: 10_000 })
  await world.pass(2)
  expect(await world.end(second)).toBe('received')
  world.chain.clearFaults()
  await world.pass(6)
  expect(await world.ends([candidate, second])).toEqual(['executed', 'executed'])
})

test('contract §5: under another PROPOSAL_TYPEHASH nobody fails and nothing is sent', async () => {
  const world = await createPipelineWorld()
  const { chain } = world
  const typeHash = `0x${'12'.repeat(32)}` as const
  chain.happen((state) => Object.assign(state, { typeHash }))
  chain.mine()
  const candidate = await world.submit(await world.question())
  await world.pass(2)
  expect(world.pipeline.faults()).toEqual([expect.stringContaining('PROPOSAL_TYPEHASH')])
  expect(await world.end(candidate)).toBe('received')
  chain.happen((state) => {
    state.typeHash = '0x702cf402d93cf51c1c9fda929565b0e4035fe70986e45548a1f9b5521261e674'
  })
  await world.pass(6)
  expect(world.pipeline.faults()).toEqual([])
  expect(await world.end(candidate)).toBe('executed')
})

test('contract §5: a fault is there before the first look, and a pipeline that is switched off has none', async () => {
  const world = await createPipelineWorld()
  expect(world.pipeline.faults()).toEqual([expect.stringContaining('not been checked')])
  const off = await createPipelineWorld({ config: { pipeline: { enabled: false } } })
  expect(off.pipeline.faults()).toEqual([])
})

describe.each([true, false])(
  'waiting candidates that can never execute, pipeline %s (contract §5)',
  (enabled) => {
    const off = {
      config: {
        pipeline: { enabled },
        executor: { enabled: false },
      },
    }

    test('R13: the deadline has passed in finalized time', async () => {
      const world = await createPipelineWorld(off)
      const candidate = await world.submit(await world.question(), {
        deadline: world.chain.head.timestamp + 9n,
      })
      await world.pass(5)
      expect(await world.end(candidate)).toBe(enabled ? 'selected' : 'received')
      await world.pass(3)
      expect(await world.end(candidate)).toBe('permit_expired')
    })

    test('the nonce is invalidated in finalized state', async () => {
      const world = await createPipelineWorld(off)
      const candidate = await world.submit(await world.question(), {
        nonce: String(256n * 3n + 7n),
      })
      await world.turn()
      invalidateNonces(world.chain, candidate.proposer, 3n, 1n << 7n)
      await world.pass(1)
      expect(['received', 'selected']).toContain(await world.end(candidate))
      await world.pass(3)
      expect(await world.end(candidate)).toBe('permit_nonce_used')
    })

    test('a nonce spent through another application, which leaves no log, is found all the same', async () => {
      const world = await createPipelineWorld(off)
      const candidate = await world.submit(await world.question(), { nonce: '9' })
      await world.turn()
      world.chain.happen((state) => state.bitmaps.set(`${candidate.proposer}|0`, 1n << 9n))
      await world.pass(4)
      expect(await world.end(candidate)).toBe('permit_nonce_used')
    })

    test('domain §9: executed by another relayer meanwhile, it counts as executed', async () => {
      const world = await createPipelineWorld(off)
      const questionId = await world.question()
      const candidate = await world.submit(questionId)
      await world.turn()
      anotherExecutes(world, candidate)
      await world.pass(5)
      expect(await world.progress(candidate)).toMatchObject({
        status: 'executed',
        submission: { status: 'indexed', proposalEventIndex: 0 },
      })
    })
  },
)

test('bitmaps of a long queue are read in turn, a part with each finalized block', async () => {
  const world = await createPipelineWorld({ config: { pipeline: { enabled: false } } })
  const candidates = []
  for (let n = 0; n < 50; n += 1) {
    const questionId = await world.question(`q${n}`)
    for (const by of [0, 1])
      candidates.push(await world.submit(questionId, { by, nonce: String(256 * n) }))
  }
  const last = candidates.at(-1)
  if (!last) throw new Error('no candidate')
  await world.pass(4)
  world.chain.happen((state) => state.bitmaps.set(`${last.proposer}|49`, 1n))
  world.chain.mine(3)
  const before = world.chain.calls.get('call') ?? 0
  await world.turn()
  // With those for the view and for the round of the one that is found, still fewer than a bitmap
  // for each of the hundred.
  expect((world.chain.calls.get('call') ?? 0) - before).toBeLessThan(80)
  await world.pass(2)
  expect(await world.end(last)).toBe('permit_nonce_used')
})

test('R16: with an old head nothing moves, and it goes on with the next block', async () => {
  const { world, candidate } = await submitted()
  world.clock.monotonic += 60_000
  await world.turn()
  expect(await world.end(candidate)).toBe('received')
  await world.pass(5)
  expect(await world.end(candidate)).toBe('executed')
})

test('R27: a balance is asked for again after a while, also where no block comes', async () => {
  const { world, candidate } = await submitted()
  const { balance } = world.chain
  world.chain.balance = async () => 0n
  await world.turn()
  world.chain.balance = balance
  world.clock.monotonic += 5_000
  await world.pipeline.step()
  expect(await world.end(candidate)).toBe('selected')
})

test('R16: the finalized mark is made durable', async () => {
  const world = await createPipelineWorld()
  await world.turn()
  expect(world.ledger.finalized?.number).toBe(world.chain.head.number - 2n)
})

test('started, it wakes by itself for an admission and stops when asked', async () => {
  const world = await createPipelineWorld()
  const questionId = await world.question()
  world.pipeline.start()
  const moved = new Promise<void>((resolve) => {
    world.ledger.onChange((events) => {
      if (events.some((event) => event.kind === 'slot.sent')) resolve()
    })
  })
  const candidate = await world.submit(questionId)
  await moved
  await world.pipeline.stop()
  expect(await world.end(candidate)).toBe('selected')
})

test('a candidate that an operator rejects while it is judged stays rejected', async () => {
  const { world, candidate } = await submitted()
  const step = world.pipeline.step()
  await world.reject(candidate)
  await step
  await world.pass(3)
  expect(await world.end(candidate)).toBe('operator_rejected')
  expect(world.chain.taken).toEqual([])
})

test.each([
  [1, 20],
  [10, 2],
  [7, 3],
])(
  'sixty candidates in twenty rounds, %i in a transaction: %i nonces, in order',
  async (batch, nonces) => {
    const world = await createPipelineWorld({
      config: { executor: { batch } },
    })
    const candidates = []
    for (let n = 0; n < 20; n += 1) {
      const questionId = await world.question(`q${n}`)
      for (const by of [0, 1, 2]) candidates.push(await world.submit(questionId, { by }))
    }
    await world.pass(12)
    const done = await Promise.all(candidates.map(world.now))
    expect(done.filter((candidate) => codeOf(candidate) === 'executed')).toHaveLength(20)
    expect(done.filter((candidate) => codeOf(candidate) === 'not_selected')).toHaveLength(40)
    expect(world.chain.taken.map(({ nonce }) => nonce)).toEqual(
      Array.from({ length: nonces }, (_, nonce) => nonce),
    )
  },
)

test("a rival's proposal that a reorganisation undoes fails nobody", async () => {
  const { world, questionId, candidate } = await submitted()
  rivalProposes(world.chain, questionId, testSigner(9).address)
  await world.pass(1)
  expect(await world.end(candidate)).toBe('received')
  world.chain.reorg(1)
  world.chain.mine(2)
  await world.turn()
  await world.pass(4)
  expect(await world.end(candidate)).toBe('executed')
})
