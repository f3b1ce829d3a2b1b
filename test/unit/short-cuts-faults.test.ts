import { failedChange, failureOf } from '#gateway/validation/validation'
import { type Chain, ChainError, type Hex } from '#ports'
import { StorageError } from '#protocol/errors'
import { endow } from '#support/fake-chain'
import {
  createPipelineWorld,
  noncesOf,
  oneCandidate,
  type PipelineWorld,
  proposals,
} from '#support/pipeline-world'

type Call = Parameters<Chain['call']>[0]

function lieOnce(
  { chain }: PipelineWorld,
  lies: readonly (readonly [isIt: (call: Call) => boolean, answer: () => Hex])[],
): void {
  const { call } = chain
  const left = new Set(lies)
  chain.call = async (asked, at) => {
    const found = [...left].find(([isIt]) => isIt(asked))
    if (found === undefined) return call(asked, at)
    left.delete(found)
    return found[1]()
  }
}

const nonceBitmap = '0x4fe02b44'
const balanceOf = '0x70a08231'
const reverts = (): Hex => {
  throw new ChainError('reverted', 'execution reverted')
}
const runBy =
  ({ executor }: PipelineWorld) =>
  ({ from }: Call) =>
    from === executor.address

test('R27: no balance, and a run that reverts', async () => {
  const { world, candidate } = await oneCandidate()
  world.chain.mine()
  lieOnce(world, [
    [({ data }) => data.startsWith(balanceOf), () => `0x${'0'.repeat(64)}`],
    // By the usual gas limit, and by all that there is.
    [runBy(world), reverts],
    [runBy(world), reverts],
  ])
  await world.turn()
  expect(await world.end(candidate)).toBe('received')
  await world.pass(5)
  expect(await world.end(candidate)).toBe('executed')
})

test('R27: a spent permit nonce and a run that reverts, at a head that is final at once', async () => {
  const { world, candidate } = await oneCandidate()
  world.chain.finalityLag = 0
  world.chain.mine()
  lieOnce(world, [
    [({ data }) => data.startsWith(nonceBitmap), () => `0x${'f'.repeat(64)}`],
    [runBy(world), reverts],
  ])
  await world.turn()
  expect(await world.end(candidate)).toBe('received')
  await world.pass(5)
  expect(await world.end(candidate)).toBe('executed')
})

test('a store that takes nothing while a load is being sent ends the step, not the process', async () => {
  const world = await createPipelineWorld({
    config: { executor: { batch: 1 } },
  })
  const candidates = []
  for (const by of [0, 1])
    candidates.push(await world.submit(await world.question(`q${by}`), { by }))
  const unhandled: unknown[] = []
  const note = (reason: unknown) => unhandled.push(reason)
  process.on('unhandledRejection', note)
  const { commit } = world.ledger
  let refused = 0
  Object.assign(world.ledger, {
    commit: (async (changes, basis) => {
      if (changes.some(({ kind }) => kind === 'slot.attempt') && refused++ === 0)
        throw new StorageError('store_unavailable', 'no space')
      return commit.call(world.ledger, changes, basis)
    }) satisfies typeof commit,
  })
  let reserved = 0
  world.failpoint = async (name) => {
    if (name !== 'reserved' || ++reserved < 2) return
    for (let turns = 0; turns < 3; turns += 1) await new Promise((resolve) => setImmediate(resolve))
  }
  await world.turn()
  process.off('unhandledRejection', note)
  expect(refused).toBeGreaterThan(0)
  expect(unhandled).toEqual([])
  await world.pass(6)
  for (const candidate of candidates) expect(await world.end(candidate)).toBe('executed')
  expect(noncesOf(world)).toEqual(expect.arrayContaining([0, 1]))
})

test('a candidate that an operator rejects once its nonce is bound is never signed for', async () => {
  const world = await createPipelineWorld()
  const [rejected, kept] = [
    await world.submit(await world.question('q0'), { by: 0 }),
    await world.submit(await world.question('q1'), { by: 1 }),
  ]
  world.failpoint = async (name) => {
    if (name !== 'reserved') return
    const now = await world.now(rejected)
    const failure = failureOf('submission', 'operator_rejected', 'Rejected by the operator: test')
    expect(await world.ledger.commit([failedChange(now, failure)], [now])).toBe(true)
  }
  world.chain.mine()
  await world.turn()
  const attempts = world.ledger.slots().flatMap((slot) => slot.attempts)
  expect(attempts.map(({ candidateIds }) => candidateIds)).toEqual([[kept.id]])
  await world.pass(4)
  expect(await world.end(kept)).toBe('executed')
  expect(proposals(world)).toHaveLength(1)
})

describe.each([
  { in_flight: 1, batch: 1, count: 4 },
  { in_flight: 1, batch: 25, count: 30 },
  { in_flight: 64, batch: 1, count: 70 },
])('in_flight $in_flight, batch $batch', ({ in_flight, batch, count }) => {
  test('never more wait to be mined, and each is executed once', async () => {
    const executor = { enabled: true, max_fee_gwei: 1000, batch, in_flight }
    const world = await createPipelineWorld({ config: { executor } })
    for (const by of [0, 1, 2]) endow(world.chain, world.proposer(by).address, 10n ** 12n)
    const candidates = []
    for (let n = 0; n < count; n += 1)
      candidates.push(await world.submit(await world.question(`q${n}`), { by: n % 3 }))
    const most = []
    for (let taken = 0, turns = 0; turns < 10; turns += 1) {
      await world.pass()
      most.push(world.chain.taken.length - taken)
      taken = world.chain.taken.length
    }
    expect(Math.max(...most)).toBe(Math.min(in_flight, Math.ceil(count / batch)))
    for (const candidate of candidates) expect(await world.end(candidate)).toBe('executed')
    expect(noncesOf(world)).toHaveLength(Math.ceil(count / batch))
  })
})
