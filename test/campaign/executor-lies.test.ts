/**
 * One node tells something off by one step for twenty seconds, alone or beside an honest one, and
 * is honest again (R14-R16, R27): nothing is executed twice, nothing fails for good by it, and all
 * goes on within a minute, without a restart.
 */
import { chainOver } from '#io/rpc/rpc'
import type { Hex } from '#ports'
import type { Candidate } from '#protocol/candidate'
import { UnavailableError } from '#protocol/errors'
import { figures, scaled } from '#support/campaign'
import { rivalProposes } from '#support/fake-events'
import { fakeContracts } from '#support/fake-world'
import { chainNode } from '#support/fuzz/chain-node'
import { contractLies, type Lie, lies } from '#support/fuzz/lies'
import {
  createPipelineWorld,
  type PipelineWorld,
  proposals,
  testSigner,
} from '#support/pipeline-world'
import { watchSends } from '#support/reorg-watch'

const lieBlocks = 10
const healBlocks = 30

interface Stage {
  readonly world: PipelineWorld
  isLying: boolean
  told(): readonly string[]
  close(): void
}

async function stageOf(lie: Lie, honest: 'none' | 'first' | 'second'): Promise<Stage> {
  const world = await createPipelineWorld()
  const stage = { world, isLying: false } as { -readonly [K in keyof Stage]: Stage[K] }
  const liar = chainNode(world.chain, (call, outcome) =>
    stage.isLying ? lie.tell(call, outcome, world.chain) : outcome,
  )
  const truth = chainNode(world.chain, (_call, outcome) => outcome)
  const nodes = { none: [liar], first: [truth, liar], second: [liar, truth] }[honest]
  const {
    nodes: health,
    close,
    ...methods
  } = chainOver(nodes, {
    timeoutMs: 5_000,
    expectedChainId: fakeContracts.chainId,
    maxLagSeconds: undefined,
    clock: world.clock,
    random: world.random,
  })
  Object.assign(world.chain, methods)
  stage.told = () => [
    ...world.view.faults(),
    ...world.pipeline.faults(),
    ...health().flatMap(({ state, why = '' }) => (state === 'aside' ? [why] : [])),
  ]
  stage.close = close
  return stage
}

let [runs, told] = [0, 0]
afterAll(() => figures('lying-nodes', { runs, told }))

async function run(lie: Lie, honest: 'none' | 'first' | 'second'): Promise<void> {
  const stage = await stageOf(lie, honest)
  const { world } = stage
  const watch = watchSends(world.chain, world.executor.address)
  const questions: Hex[] = []
  for (const name of ['before', 'in flight', 'overtaken', 'during', 'taken', 'after'])
    questions.push(await world.question(name))
  const [before, inFlight, overtaken, during, taken, after] = questions as [
    Hex,
    Hex,
    Hex,
    Hex,
    Hex,
    Hex,
  ]
  const wanted: Candidate[] = []
  const late: Candidate[] = []
  const submit = async (id: Hex, by: number, into: Candidate[]): Promise<void> => {
    const wish = { by, amount: '750000000', deadline: world.chain.head.timestamp + 3_600n }
    try {
      into.push(await world.submit(id, wish))
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error
      again.push(() => submit(id, by, into))
    }
  }
  const again: (() => Promise<void>)[] = []
  const pass = async () => {
    for (const each of again.splice(0)) await each()
    await world.pass()
  }
  await submit(before, 0, wanted)
  await world.turn()
  await world.pass(5)
  await submit(inFlight, 0, wanted)
  await world.turn()
  await submit(overtaken, 1, late)
  await world.turn()
  rivalProposes(world.chain, overtaken, testSigner(9).address)
  stage.isLying = true
  let seen: readonly string[] = []
  for (let block = 0; block < lieBlocks; block += 1) {
    if (block === 1) await submit(during, 1, wanted)
    if (block === 2) await submit(taken, 2, late)
    if (block === 2) rivalProposes(world.chain, taken, testSigner(9).address)
    await pass()
    seen = stage.told()
  }
  stage.isLying = false
  await world.turn()
  await submit(after, 2, wanted)
  const isSettled = () =>
    again.length === 0 &&
    world.ledger.active().length === 0 &&
    world.ledger.slots().length === 0 &&
    stage.told().length === 0
  for (let block = 0; block < healBlocks && !isSettled(); block += 1) await pass()

  expect(await endsOf(world, wanted)).toEqual(['executed', 'executed', 'executed', 'executed'])
  for (const end of await endsOf(world, late))
    expect(end).toMatch(/^superseded|^request_not_open: The request is proposed/)
  expect(watch.faults).toEqual([])
  const logs = proposals(world).flatMap(({ hash }) => world.chain.truth.receipt(hash)?.logs ?? [])
  expect(logs, 'two a proposal').toHaveLength(2 * wanted.length)
  expect(world.ledger.slots()).toEqual([])
  expect(stage.told()).toEqual([])
  if (lie.seen && honest === 'none') expect(seen.join('\n')).toMatch(lie.seen)
  stage.close()
  runs += 1
  if (seen.length > 0) told += 1
}

const endsOf = async (world: PipelineWorld, candidates: readonly Candidate[]) =>
  (await Promise.all(candidates.map(world.now))).map(({ progress }) =>
    progress.status === 'failed'
      ? `${progress.failure.code}: ${progress.failure.detail}`
      : progress.status,
  )

const all = [...lies, ...contractLies]
describe('R27: the only node lies', () => {
  test.each(all.map((lie) => [lie.name, lie] as const))('%s', (_name, lie) => run(lie, 'none'))
})
describe('R27: one of two nodes lies', () => {
  const places = ['first', 'second'] as const
  const drawn = all.flatMap((lie, at) =>
    places
      .filter((_, place) => scaled(1) > 1 || at % 2 === place)
      .map((honest) => [lie.name, honest, lie] as const),
  )
  test.each(drawn)('%s; the honest one is the %s', (_name, honest, lie) => run(lie, honest))
})
