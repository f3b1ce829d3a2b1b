import { describe, expect, test } from 'vitest'
import type { Ledger } from '../../src/core/gateway/ledger/ledger.js'
import type { ChainErrorKind } from '../../src/core/ports.js'
import {
  createPipelineWorld,
  foreignTransaction,
  noncesOf,
  oneCandidate,
  proposals,
} from '../support/pipeline-world.js'

function stagesOf(ledger: Ledger): string[] {
  const seen: string[] = []
  ledger.onChange((events) => {
    for (const event of events) {
      if (event.kind !== 'candidate.progress') continue
      const { progress } = event
      if (progress.status === 'failed') seen.push(`failed ${progress.failure.code}`)
      else
        seen.push(
          'submission' in progress && progress.submission
            ? `${progress.status} ${progress.submission.status}`
            : progress.status,
        )
    }
  })
  return seen
}

describe('the life of a submission (contract §5)', () => {
  test('a candidate goes from received to executed over every stage, and the slot is closed', async () => {
    const { world, candidate } = await oneCandidate()
    const seen = stagesOf(world.ledger)
    await world.turn()
    await world.pass(4)
    expect(seen).toEqual([
      'validated',
      'selected',
      'selected prepared',
      'selected submitted',
      'selected confirmed',
      'executed indexed',
    ])
    expect((await world.now(candidate)).progress).toMatchObject({
      submission: { proposalEventIndex: 0 },
    })
    expect(world.ledger.slots()).toEqual([])
    expect(world.pipeline.faults()).toEqual([])
  })

  test('proposal_event_index is the log index in the block, not in the transaction', async () => {
    const world = await createPipelineWorld({
      config: { executor: { enabled: true, max_fee_gwei: 1000, batch: 1, in_flight: 16 } },
    })
    const questions = [await world.question('a'), await world.question('b')]
    const candidates = [
      await world.submit(questions[0] ?? '0x'),
      await world.submit(questions[1] ?? '0x'),
    ]
    await world.turn()
    await world.pass(4)
    const done = await Promise.all(candidates.map(world.now))
    expect(
      done.map(({ progress }) =>
        'submission' in progress ? progress.submission?.proposalEventIndex : null,
      ),
    ).toEqual([0, 2])
    expect(noncesOf(world)).toEqual([0, 1])
  })

  test('R14, contract §10: nothing of a transaction is on record before its block is final', async () => {
    const { world, candidate } = await oneCandidate()
    await world.turn()
    await world.pass(1)
    expect((await world.now(candidate)).progress).toMatchObject({
      status: 'selected',
      submission: { status: 'submitted' },
    })
    expect(world.ledger.slots()).not.toEqual([])
    expect(world.ledger.slots()[0]?.minedIn).toBeUndefined()
    await world.pass(2)
    expect((await world.now(candidate)).progress.status).toBe('executed')
    expect(world.ledger.slots()).toEqual([])
  })
})

describe('what a node says to a transaction (robustness §3)', () => {
  test('already known counts as sent', async () => {
    const { world, candidate } = await oneCandidate()
    world.chain.fault('send', 'already_known')
    await world.turn()
    expect((await world.now(candidate)).progress).toMatchObject({
      submission: { status: 'submitted' },
    })
  })

  test.each<ChainErrorKind>([
    'unavailable',
    'refused',
    'nonce_too_low',
    'replacement_underpriced',
    'nonce_too_high',
  ])('%s: the same bytes again later, never another nonce', async (kind) => {
    const { world, candidate } = await oneCandidate()
    world.chain.fault('send', kind)
    await world.turn()
    expect((await world.now(candidate)).progress).toMatchObject({
      submission: { status: 'prepared' },
    })
    const [before] = world.ledger.slots()
    world.clock.monotonic += 30_000
    await world.pass(1)
    await world.pass(4)
    expect((await world.now(candidate)).progress.status).toBe('executed')
    expect(proposals(world).map(({ hash }) => hash)).toEqual(
      before?.attempts.map(({ hash }) => hash),
    )
    expect(noncesOf(world)).toEqual([0])
  })

  test('an answer that was lost after the node took the transaction leads to one transaction', async () => {
    const { world, candidate } = await oneCandidate()
    world.chain.fault('send', 'unavailable', { applied: true })
    await world.turn()
    await world.pass(4)
    expect((await world.now(candidate)).progress.status).toBe('executed')
    expect(proposals(world)).toHaveLength(1)
  })

  test('a transaction that the node dropped is sent again, byte for byte', async () => {
    const { world, candidate } = await oneCandidate()
    await world.turn()
    world.chain.clearPool()
    world.clock.monotonic += 30_000
    await world.pass(1)
    await world.pass(4)
    expect((await world.now(candidate)).progress.status).toBe('executed')
    expect(proposals(world)).toHaveLength(1)
  })

  test('a tip below the minimum is raised by 12.5 % under the same nonce', async () => {
    const { world, candidate } = await oneCandidate()
    world.chain.minimumTipWei = 1_100_000_000n
    await world.turn()
    await world.pass(4)
    expect((await world.now(candidate)).progress.status).toBe('executed')
    expect(noncesOf(world)).toEqual([0])
    const [sent] = proposals(world)
    expect((await world.now(candidate)).progress).toMatchObject({
      submission: { transactionHash: sent?.hash },
    })
  })

  test('a transaction that stays pending is replaced by one with a higher fee, same nonce and calldata, five times at most', async () => {
    const { world, candidate } = await oneCandidate()
    await world.turn()
    for (let block = 0; block < 80; block += 1) {
      world.chain.mine(1, { empty: true })
      world.clock.monotonic += 31_000
      await world.turn()
    }
    const sent = proposals(world)
    expect(sent).toHaveLength(6)
    expect(noncesOf(world)).toEqual([0])
    expect(new Set(sent.map(({ data }) => data)).size).toBe(1)
    await world.pass(4)
    expect((await world.now(candidate)).progress).toMatchObject({
      status: 'executed',
      submission: { transactionHash: sent.at(-1)?.hash },
    })
  })

  test('contract §5: an executor that cannot pay halts with a fault and fails nobody', async () => {
    const { world, candidate } = await oneCandidate()
    world.chain.fund(world.executor.address, 1n)
    await world.turn()
    expect((await world.now(candidate)).progress.status).toBe('selected')
    expect(world.pipeline.faults()).toEqual([expect.stringContaining('fund it')])
    expect(world.ledger.slots()).toEqual([])
    world.chain.fund(world.executor.address, 10n ** 20n)
    await world.pass(5)
    expect((await world.now(candidate)).progress.status).toBe('executed')
    expect(world.pipeline.faults()).toEqual([])
  })

  test('fees above max_fee_gwei are waited out, named, and take no nonce', async () => {
    const { world, candidate } = await oneCandidate({
      config: { executor: { enabled: true, max_fee_gwei: 5, batch: 10, in_flight: 16 } },
    })
    await world.turn()
    expect((await world.now(candidate)).progress.status).toBe('selected')
    expect(world.pipeline.faults()).toEqual([expect.stringContaining('max_fee_gwei 5')])
    expect(world.ledger.slots()).toEqual([])
  })
})

describe('nonces that others use (robustness §3, R15)', () => {
  test("a foreign transaction that takes the slot's nonce for good frees the round, and the candidate is selected again", async () => {
    const { world, candidate } = await oneCandidate()
    world.chain.fault('send', 'unavailable')
    await world.turn()
    await foreignTransaction(world, world.executor, 0)
    await world.pass(2)
    expect((await world.now(candidate)).progress.status).toBe('selected')
    await world.pass(8)
    expect((await world.now(candidate)).progress.status).toBe('executed')
    const sent = proposals(world).filter(({ to }) => to !== world.proposer(2).address)
    expect(sent.map(({ nonce }) => nonce)).toEqual([1])
  })

  test('R15: as long as the foreign transaction is not final, no second nonce is taken', async () => {
    const { world } = await oneCandidate()
    world.chain.fault('send', 'unavailable')
    world.chain.finalityLag = 30
    await world.turn()
    await foreignTransaction(world, world.executor, 0)
    await world.pass(20)
    expect(world.ledger.slots().map(({ nonce }) => nonce)).toEqual([0])
    expect(proposals(world).filter(({ to }) => to !== world.proposer(2).address)).toEqual([])
  })

  test('nonces go on above what the chain knows, even where the ledger is new', async () => {
    const world = await createPipelineWorld()
    await foreignTransaction(world, world.executor, 0)
    world.chain.mine(4)
    const candidate = await world.submit(await world.question())
    await world.turn()
    await world.pass(4)
    expect((await world.now(candidate)).progress.status).toBe('executed')
    expect(proposals(world).at(-1)?.nonce).toBe(1)
  })
})
