import { describe, expect, test } from 'vitest'
import type { Ledger } from '#core/gateway/ledger/ledger'
import {
  createPipelineWorld,
  foreignTransaction,
  oneCandidate,
  proposals,
} from '#support/pipeline-world'

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
    expect(await world.progress(candidate)).toMatchObject({
      submission: { proposalEventIndex: 0 },
    })
    expect(world.ledger.slots()).toEqual([])
    expect(world.pipeline.faults()).toEqual([])
  })

  test('R14, contract §10: nothing of a transaction is on record before its block is final', async () => {
    const { world, candidate } = await oneCandidate()
    await world.turn()
    await world.pass(1)
    expect(await world.progress(candidate)).toMatchObject({
      status: 'selected',
      submission: { status: 'submitted' },
    })
    expect(world.ledger.slots()).not.toEqual([])
    expect(world.ledger.slots()[0]?.minedIn).toBeUndefined()
    await world.pass(2)
    expect(await world.end(candidate)).toBe('executed')
    expect(world.ledger.slots()).toEqual([])
  })
})

describe('nonces that others use (robustness §3, R15)', () => {
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
    expect(await world.end(candidate)).toBe('executed')
    expect(proposals(world).at(-1)?.nonce).toBe(1)
  })
})
