import { describe, expect, test } from 'vitest'
import { createFaults } from '../../src/core/gateway/executor/faults.js'
import { createPipeline } from '../../src/core/gateway/pipeline/pipeline.js'
import type { Candidate } from '../../src/core/protocol/candidate.js'
import { fakeContracts } from '../support/fake-world.js'
import {
  foreignTransaction,
  oneCandidate,
  type PipelineWorld,
  testSigner,
} from '../support/pipeline-world.js'

const config = {
  pipeline: { enabled: true },
  executor: { enabled: true, max_fee_gwei: 1000, batch: 10, in_flight: 16 },
} as const
const ceilingOf = (gwei: number) => ({
  config: { executor: { ...config.executor, max_fee_gwei: gwei } },
})

function dearGas(world: PipelineWorld, gwei: bigint): { end(): void } {
  const { block } = world.chain
  world.chain.block = async (at) => {
    const header = await block(at)
    return header && { ...header, baseFeePerGas: gwei * 10n ** 9n }
  }
  return {
    end() {
      world.chain.block = block
    },
  }
}

async function reject(world: PipelineWorld, candidate: Candidate): Promise<void> {
  const failure = {
    stage: 'submission',
    code: 'operator_rejected',
    detail: 'no',
    retryable: false,
  } as const
  const progress = {
    status: 'failed',
    validatedAtMs: null,
    selectedAtMs: null,
    submission: null,
    failure,
  } as const
  await world.ledger.commit([{ kind: 'candidate.progress', id: candidate.id, progress }])
}

async function emptyBlocks(world: PipelineWorld, count: number): Promise<void> {
  for (let block = 0; block < count; block += 1) {
    world.chain.mine(1, { empty: true })
    world.clock.monotonic += 2_000
    await world.turn()
  }
}

describe('the fee ceiling', () => {
  test('contract §2: what was to be sent is rejected, and the fee that held it back is told no more, dear or not', async () => {
    const { world, candidate } = await oneCandidate(ceilingOf(5))
    await world.turn()
    expect(world.pipeline.faults()).toEqual([expect.stringContaining('max_fee_gwei 5')])
    await reject(world, candidate)
    await world.pass(1)
    expect(world.pipeline.faults()).toEqual([])
  })

  test('robustness §3: a raise that is too dear is told until the transaction is mined all the same', async () => {
    const { world } = await oneCandidate(ceilingOf(100))
    await world.turn()
    const gas = dearGas(world, 95n)
    await emptyBlocks(world, 12)
    expect(world.pipeline.faults()).toEqual([expect.stringContaining('gas costs 95000000000 wei')])
    gas.end()
    await world.pass(1)
    expect(world.ledger.slots(), 'mined and not final').toHaveLength(1)
    expect(world.pipeline.faults()).toEqual([])
  })

  test('robustness §3: a fee that cannot be raised is told no longer than the transaction waits', async () => {
    const { world } = await oneCandidate(ceilingOf(22))
    await world.turn()
    await emptyBlocks(world, 12)
    expect(world.pipeline.faults()).toEqual([expect.stringContaining('allows no higher fee')])
    await world.pass(1)
    expect(world.ledger.slots(), 'mined and not final').toHaveLength(1)
    expect(world.pipeline.faults()).toEqual([])
  })
})

describe('funds', () => {
  test("R15: it is the slot's own executor that has to be funded, and the fault ends with the slot", async () => {
    const { world } = await oneCandidate()
    world.chain.fault('send', 'unavailable')
    await world.turn()
    const former = world.executor
    await world.restart()
    const successor = testSigner(7)
    world.chain.happen((state) => {
      state.relayers.add(successor.address)
      return []
    })
    world.chain.fund(successor.address, 10n ** 20n)
    const ports = { clock: world.clock, random: world.random }
    const { ledger, view, chain } = world
    const pipeline = createPipeline({
      ports,
      ledger,
      view,
      chain,
      signer: successor,
      contracts: fakeContracts,
      config,
    })
    const turn = async () => {
      chain.mine()
      world.clock.monotonic += 2_000
      await view.poll()
      await pipeline.step()
    }
    chain.fault('send', 'insufficient_funds')
    await turn()
    expect(pipeline.faults()).toEqual([
      `the former executor ${former.address} cannot pay for its transaction: fund it`,
      expect.stringContaining(`former executor ${former.address} is not settled yet`),
    ])
    chain.clearFaults()
    await foreignTransaction(world, former, 0)
    for (let block = 0; block < 6; block += 1) await turn()
    expect(ledger.slots().filter(({ executor }) => executor === former.address)).toEqual([])
    expect(pipeline.faults()).toEqual([])
  })

  test('robustness §3: what a node refused matters no more once the nonce is used', async () => {
    const { world } = await oneCandidate()
    world.chain.fault('send', 'insufficient_funds')
    await world.turn()
    expect(world.pipeline.faults()).toEqual([expect.stringMatching(/cannot pay.*fund it/)])
    await foreignTransaction(world, world.executor, 0)
    await world.pass(1)
    expect(world.ledger.slots()).toHaveLength(1)
    expect(world.pipeline.faults()).toEqual([])
  })

  test('robustness §3: one slot that is paid for says nothing of another that is not', async () => {
    const { world } = await oneCandidate(ceilingOf(1000))
    world.chain.fault('send', 'insufficient_funds')
    await world.turn()
    await world.submit(await world.question('another'), { by: 1 })
    await world.turn()
    expect(
      world.ledger.slots().map(({ attempts }) => attempts.map(({ sentAtMs }) => sentAtMs !== null)),
    ).toEqual([[false], [true]])
    expect(world.pipeline.faults()).toEqual([expect.stringMatching(/cannot pay.*fund it/)])
  })
})

describe('keeping faults', () => {
  const fails = () => Promise.reject(new Error('no response'))

  test('a look takes the place of the one before it when it is over, and one that rejects changes nothing', async () => {
    const faults = createFaults()
    await faults.look('opening', async () => faults.note('opening', 'one'))
    await faults.look('opening', async () => {
      expect(faults.all(), 'while it looks').toEqual(['one'])
      faults.note('opening', 'two')
    })
    expect(faults.all()).toEqual(['two'])
    await expect(faults.look('opening', fails)).rejects.toThrow('no response')
    expect(faults.all()).toEqual(['two'])
    await faults.look('opening', async () => undefined)
    expect(faults.all()).toEqual([])
  })

  test('what is dropped in a look stays away, and what another subject has stays', async () => {
    const faults = createFaults()
    faults.refuse('a', 'a is refused')
    faults.refuse('b', 'b is refused')
    await faults.look('a', async () => {
      faults.note('a', 'a is too dear')
      faults.drop('a')
    })
    expect(faults.all()).toEqual(['b is refused'])
    faults.taken('b')
    expect(faults.all()).toEqual([])
  })
})
