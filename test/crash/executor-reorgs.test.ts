import type { Hex } from '#ports'
import type { Candidate } from '#protocol/candidate'
import { ask, dispute, questionText, rivalProposes } from '#support/fake-events'
import { createPipelineWorld, type PipelineWorld, testSigner } from '#support/pipeline-world'
import { type SendWatch, watchSends } from '#support/reorg-watch'

const rival = testSigner(9).address
const farFinality = 1_000

interface Stage extends PipelineWorld {
  readonly watch: SendWatch
  readonly steps: string[]
}

async function stage(): Promise<Stage> {
  const world = await createPipelineWorld()
  world.chain.finalityLag = farFinality
  const steps: string[] = []
  world.ledger.onChange((events) => {
    for (const event of events) {
      if (event.kind !== 'candidate.progress') continue
      const { progress } = event
      if (progress.status === 'failed') steps.push(progress.failure.code)
      else if ('submission' in progress && progress.submission)
        steps.push(progress.submission.status)
    }
  })
  return { ...world, watch: watchSends(world.chain, world.executor.address), steps }
}

async function minedAt(world: Stage, questionId: Hex, depth: number): Promise<Candidate> {
  const candidate = await world.submit(questionId)
  await world.turn()
  await world.pass(1)
  world.chain.mine(depth - 1)
  await world.turn()
  expect(await submissionOf(world, candidate), 'before the reorganisation').toMatchObject({
    status: 'submitted',
  })
  expect(world.chain.truth.receipt(world.watch.handed[0]?.hash ?? '0x')?.status).toBe('success')
  return candidate
}

async function submissionOf(world: PipelineWorld, candidate: Candidate) {
  const { progress } = await world.now(candidate)
  return 'submission' in progress ? progress.submission : null
}

async function settle(world: PipelineWorld): Promise<void> {
  world.chain.finalityLag = 2
  await world.pass(6)
  expect(world.ledger.slots()).toEqual([])
}

function expectOneTransaction({ watch }: Stage): void {
  expect(watch.faults).toEqual([])
  expect([...watch.noncesByRound().values()].map((nonces) => [...nonces])).toEqual([[0]])
  expect(watch.handed.filter(({ calls }) => calls.length > 0)).toHaveLength(1)
}

async function rivalFirst(depth: number, drop: boolean): Promise<void> {
  const world = await stage()
  const questionId = await world.question()
  const candidate = await minedAt(world, questionId, depth)
  world.chain.reorg(depth, { drop })
  rivalProposes(world.chain, questionId, rival)
  world.chain.mine(depth + 1)
  world.clock.monotonic += 2_000
  await world.turn()
  expect(await world.end(candidate)).toBe('selected')
  world.chain.mine(2)
  await world.turn()
  expect(await world.progress(candidate), 'not final yet').toMatchObject({
    status: 'selected',
    submission: { status: 'submitted', confirmedAtMs: null },
  })
  await settle(world)
  expect(await world.progress(candidate)).toMatchObject({
    status: 'failed',
    ...(drop ? {} : { submission: { status: 'reverted', proposalEventIndex: null } }),
    failure: { code: 'superseded', retryable: false, ...(drop ? {} : { stage: 'confirmation' }) },
  })
  expectOneTransaction(world)
}

/** A question in its second round, opened by the dispute of a rival's proposal. */
async function disputedRound() {
  const world = await stage()
  const questionId = await world.question()
  rivalProposes(world.chain, questionId, rival)
  world.chain.mine()
  dispute(world.chain, questionId)
  world.chain.mine()
  await world.turn()
  return { world, questionId }
}

const branches: Readonly<Record<string, (depth: number) => Promise<void>>> = {
  'the transaction is in it again, later and at another index': async (depth) => {
    const world = await stage()
    const other = await world.question('other')
    const candidate = await minedAt(world, await world.question(), depth)
    world.chain.reorg(depth)
    world.chain.mine(1 + (depth % 3), { empty: true })
    await world.turn()
    expect(await world.end(candidate)).toBe('selected')
    expect(await submissionOf(world, candidate)).toMatchObject({
      status: 'submitted',
      confirmedAtMs: null,
      proposalEventIndex: null,
    })
    rivalProposes(world.chain, other, rival)
    world.chain.mine(depth + 64)
    await world.turn()
    expect(world.steps, 'before it is final').toEqual(['prepared', 'submitted'])
    await settle(world)
    expect(world.steps).toEqual(['prepared', 'submitted', 'confirmed', 'indexed'])
    expect(await world.progress(candidate)).toMatchObject({
      status: 'executed',
      submission: { proposalEventIndex: 1 },
    })
    expectOneTransaction(world)
  },
  'the transaction is not in it, and no node has it any more': async (depth) => {
    const world = await stage()
    const candidate = await minedAt(world, await world.question(), depth)
    world.chain.reorg(depth, { drop: true })
    world.chain.mine(depth + 1, { empty: true })
    world.clock.monotonic += 2_000
    await world.turn()
    expect(await submissionOf(world, candidate)).toMatchObject({
      status: 'submitted',
      confirmedAtMs: null,
    })
    // Sent again in that turn: the next blocks have it.
    world.chain.mine(64)
    await world.turn()
    expect(world.steps, 'before it is final').toEqual(['prepared', 'submitted'])
    await settle(world)
    expect(world.steps).toEqual(['prepared', 'submitted', 'confirmed', 'indexed'])
    expect(await world.end(candidate)).toBe('executed')
    expectOneTransaction(world)
  },
  'a rival is first in it, and the transaction after it': (depth) => rivalFirst(depth, false),
  'a rival is first in it, and no node has the transaction any more': (depth) =>
    rivalFirst(depth, true),
  'the round of the question is not opened in it': async (depth) => {
    const { world, questionId } = await disputedRound()
    const candidate = await minedAt(world, questionId, depth)
    expect(candidate.round.timestamp).toBe(String(world.view.known(questionId)?.round.timestamp))
    world.chain.reorg(depth + 1)
    world.chain.mine(depth + 2)
    await world.turn()
    expect(await world.end(candidate)).toBe('selected')
    await settle(world)
    expect(await world.progress(candidate)).toMatchObject({
      status: 'failed',
      submission: { status: 'reverted' },
      failure: { code: 'round_advanced', stage: 'confirmation', retryable: false },
    })
    expectOneTransaction(world)
  },
  'the question is asked in it at another time, after the transaction': async (depth) => {
    const world = await stage()
    const questionId = await world.question()
    const candidate = await minedAt(world, questionId, depth)
    world.chain.reorg(depth + 1)
    world.chain.mine(depth + 2)
    await world.turn()
    expect(ask(world.chain, questionText('Rain?'))).toBe(questionId)
    world.chain.mine()
    world.clock.monotonic += 2_000
    // The receipt is final, and the question is not.
    world.chain.finalityLag = 2
    await world.turn()
    await settle(world)
    expect(await world.progress(candidate)).toMatchObject({
      status: 'failed',
      failure: { code: 'round_advanced', retryable: false },
    })
    expectOneTransaction(world)
  },
  'the round is opened in it again, and the transaction is back': async (depth) => {
    const { world, questionId } = await disputedRound()
    const candidate = await minedAt(world, questionId, depth)
    world.chain.reorg(depth + 1)
    dispute(world.chain, questionId)
    world.chain.mine(1, { empty: true })
    await world.turn()
    expect(await submissionOf(world, candidate)).toMatchObject({ status: 'submitted' })
    world.chain.mine(depth + 64)
    await world.turn()
    await settle(world)
    expect(await world.end(candidate)).toBe('executed')
    expectOneTransaction(world)
  },
}

const names = Object.keys(branches)
const named = (name: string) => {
  const run = branches[name]
  if (run === undefined) throw new Error(`no branch ${name}`)
  return run
}

describe('R3, R14: a reorganisation undoes the block of a transaction', () => {
  test.each(
    names.flatMap((name) => [1, 2, 5, 32, 128, 256].map((depth) => [depth, name] as const)),
  )('%i blocks deep, and %s', async (depth, name) => {
    await named(name)(depth)
  })

  test.each([1, 2, 5])(
    '%i blocks deep, between two looks of the view: what it shows of the old branch cancels nothing',
    async (depth) => {
      const world = await stage()
      const candidates = [
        await world.submit(await world.question('a')),
        await world.submit(await world.question('b'), { by: 1 }),
      ]
      await world.turn()
      await world.pass(depth)
      const [one] = candidates
      expect(world.view.known(one?.round.questionId ?? '')?.round.state).toBe('proposed')
      world.chain.reorg(depth)
      world.chain.mine(depth + 1, { empty: true })
      await world.pipeline.step()
      await world.pipeline.step()
      await world.turn()
      await settle(world)
      for (const candidate of candidates) expect(await world.end(candidate)).toBe('executed')
      expect(world.watch.faults).toEqual([])
      expect(world.watch.handed.map(({ nonce, calls }) => [nonce, calls.length])).toEqual([[0, 2]])
    },
  )

  test('nodes five blocks apart behind one address: a proposal of our own, whose receipt is not told yet, cancels nothing', async () => {
    const world = await stage()
    const candidate = await world.submit(await world.question())
    await world.turn()
    const { receipt, transactionCount } = world.chain
    world.chain.receipt = async (hash) => {
      const found = await receipt(hash)
      return found && found.blockNumber + 5n > world.chain.head.number ? null : found
    }
    world.chain.transactionCount = async () => 0
    await world.pass(5)
    Object.assign(world.chain, { receipt, transactionCount })
    await settle(world)
    expect(await world.end(candidate)).toBe('executed')
    expectOneTransaction(world)
    expect(world.watch.handed).toHaveLength(1)
  })

  test.each([1, 3])(
    '%i blocks deep, and mined again at once in another block: that block alone is on record (contract §5)',
    async (depth) => {
      const world = await stage()
      const mined: string[] = []
      world.ledger.onChange((events) => {
        for (const event of events) if (event.kind === 'slot.mined') mined.push(event.blockHash)
      })
      const candidate = await minedAt(world, await world.question(), depth)
      const first = world.chain.truth.receipt(world.watch.handed[0]?.hash ?? '0x')?.blockHash
      world.chain.reorg(depth)
      world.chain.mine(depth + 1)
      await world.turn()
      const second = world.chain.truth.receipt(world.watch.handed[0]?.hash ?? '0x')?.blockHash
      expect(second).not.toBe(first)
      expect(mined).toEqual([])
      await settle(world)
      expect(mined).toEqual([second])
      expect(await world.end(candidate)).toBe('executed')
      expectOneTransaction(world)
    },
  )

  /** The six of them together are every depth, each with a branch that differs from its neighbours'. */
  const depthsOf = (name: string) =>
    Array.from({ length: 256 }, (_, index) => index + 1).filter(
      (depth) => names[depth % names.length] === name,
    )

  test.each(names)(
    'every sixth depth up to 256, and %s',
    async (name) => {
      for (const depth of depthsOf(name))
        await named(name)(depth).catch((cause: unknown) => {
          throw new Error(`${depth} blocks deep, and ${name}`, { cause })
        })
    },
    60_000,
  )
})
