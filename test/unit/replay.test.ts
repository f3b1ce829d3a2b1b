import { describe, expect, test } from 'vitest'
import { pollCandidates } from '../../src/core/client/follow/follow.js'
import { stateOf } from '../../src/core/client/journal/authorizations.js'
import { authorize } from '../../src/core/client/propose/authorize.js'
import { replay } from '../../src/core/client/propose/replay.js'
import type { CurrentRound } from '../../src/core/client/propose/round-over.js'
import { submitIntent, submitPayload } from '../../src/core/client/propose/submission.js'
import { instant } from '../../src/core/protocol/candidate.js'
import { ProposerError } from '../../src/core/protocol/errors.js'
import { makeWorld, nextRound, type World } from '../support/client-world.js'

async function thrown(work: Promise<unknown>): Promise<ProposerError> {
  const failure: unknown = await work.then(
    () => new Error('it did not fail'),
    (error: unknown) => error,
  )
  if (failure instanceof ProposerError) return failure
  throw failure
}

async function lostWorld(clientRef?: string) {
  const world = makeWorld()
  const run = world.run()
  const intent = { ...run.intent, ...(clientRef === undefined ? {} : { clientRef }) }
  world.gateway.faults.push('lost-answer')
  const { outcome, journalId: id } = await world.clock.drive(
    submitIntent(run.parts, intent, { timeoutMs: 1 }),
  )
  expect(outcome).toBe('unknown')
  return { world, run, intent, id }
}

const found = async (world: World, id: string) => {
  const one = (await world.clock.drive(world.run().journal.load())).find(id)
  if (one === undefined) throw new Error(`no ${id}`)
  return one
}
const retryable = {
  stage: 'validation',
  code: 'insufficient_balance',
  detail: 'short of 5',
  retryable: true,
  can_resubmit: true,
  next_action: 'fund_wallet',
} as const

describe('replay sends nothing that must not be sent', () => {
  test('R8: one that was superseded is refused with exit 5, naming what replaced it; not by its payload either, nor by --all', async () => {
    const { world, run, intent, id } = await lostWorld()
    const next = await world.clock.drive(
      submitIntent(run.parts, { ...intent, outcome: 'p1', supersede: id }),
    )
    const sent = world.gateway.received.length
    const error = await thrown(world.clock.drive(replay(world.run().parts, [id])))
    expect(error).toMatchObject({ code: 'superseded', meta: { exitCode: 5 } })
    expect(error.detail).toContain(next.journalId)
    expect(error.meta.hint).toContain(`proposer revoke ${id}`)
    const body = (await found(world, id)).signed.body
    expect(
      await thrown(
        world.clock.drive(submitPayload(world.run().parts, run.intent.identifier, body)),
      ),
    ).toMatchObject({
      code: 'superseded',
    })
    const all = await world.clock.drive(replay(world.run().parts, 'all'))
    expect(all).toMatchObject({
      results: [],
      skipped: [{ reason: 'superseded', command: `proposer revoke ${id}` }],
    })
    expect(world.gateway.received).toHaveLength(sent)
  })

  test('contract §6: one that was signed and never sent is refused with exit 2 and the command that sends it', async () => {
    const world = makeWorld()
    const run = world.run()
    const { journalId } = await world.clock.drive(authorize(run.parts, run.intent))
    const error = await thrown(world.clock.drive(replay(world.run().parts, [journalId])))
    expect(error).toMatchObject({
      code: 'never_sent',
      meta: {
        exitCode: 2,
        hint: expect.stringContaining(`proposer submit ${run.intent.identifier} --outcome p2`),
      },
    })
    expect(world.gateway.received).toEqual([])
  })

  test('contract §5: one that failed retryably is named by --all and sent by its id', async () => {
    const world = makeWorld()
    const run = world.run()
    const first = await world.clock.drive(submitIntent(run.parts, run.intent))
    if (first.error !== undefined) throw first.error
    world.gateway.become(first.candidateId, { status: 'failed', failure: retryable })
    const polled = await world.clock.drive(
      pollCandidates(run.parts, [{ candidateId: first.candidateId }]),
    )
    expect(polled.error?.meta.hint).toContain(`proposer replay ${first.journalId}`)
    const all = await world.clock.drive(replay(world.run().parts, 'all'))
    expect(all).toMatchObject({
      results: [],
      skipped: [{ reason: 'failed_retryably', command: `proposer replay ${first.journalId}` }],
    })
    expect(await world.clock.drive(replay(world.run().parts, [first.journalId]))).toMatchObject({
      results: [{ outcome: 'replayed' }],
    })
  })
})

describe('a round that is over while the outcome is unknown', () => {
  const inRound = (timestamp: string, isFree = false): CurrentRound & { asked: number } => ({
    asked: 0,
    isFree,
    async timestamp() {
      this.asked++
      return timestamp
    },
  })

  test('§7 rule 3: a 409 round_advanced gives the out-of-band line with the time of the first attempt, exit 5, and is not sent again', async () => {
    const { world, intent, id } = await lostWorld('mine-1')
    const { startedAtMs } = (await found(world, id)).attempts[0] ?? { startedAtMs: 0 }
    world.clock.setMs(world.clock.nowMs() + 60_000)
    world.gateway.faults.push({ status: 409, code: 'round_advanced' })
    const { results } = await world.clock.drive(replay(world.run().parts, [id]))
    const outOfBand = {
      questionId: intent.identifier,
      clientRef: 'mine-1',
      submittedAtMs: startedAtMs,
    }
    const over = {
      outcome: 'conflict',
      outOfBand,
      error: { code: 'round_over', meta: { exitCode: 5 } },
    }
    expect(results).toMatchObject([over])
    const { error } = results[0] ?? {}
    expect(error?.meta.hint).toContain(`proposer reconcile ${intent.identifier}`)
    expect(error?.meta.hint).not.toContain('replay')
    expect(error?.detail).toContain(instant(startedAtMs))
    const calls = world.gateway.calls.length
    for (const which of [[id], 'all'] as const) {
      expect((await world.clock.drive(replay(world.run().parts, which))).results).toMatchObject([
        over,
      ])
    }
    expect(world.gateway.calls).toHaveLength(calls)
    expect(stateOf(await found(world, id), world.clock.nowMs()).kind).toBe('unknown')
  })

  test('§7 rule 3: a 403 for a signature that names another round than the current one says the same, and is remembered', async () => {
    const { world, id } = await lostWorld()
    world.gateway.faults.push({ status: 403, code: 'signature_not_authorized' })
    const round = inRound('1760000050')
    const { results } = await world.clock.drive(replay(world.run().parts, [id], { round }))
    expect(results).toMatchObject([{ error: { code: 'round_over', meta: { exitCode: 6 } } }])
    const sent = world.gateway.received.length
    expect(
      (await world.clock.drive(replay(world.run().parts, [id], { round }))).results,
    ).toMatchObject([{ error: { code: 'round_over' } }])
    expect(world.gateway.received).toHaveLength(sent)
    expect(round.asked).toBe(1)
  })

  test('R7: a 403 in the very round leaves the outcome unknown, to be sent again', async () => {
    const { world, id, run } = await lostWorld()
    world.gateway.faults.push({ status: 403, code: 'proposer_not_eligible' })
    const timestamp = (await found(world, id)).signed.timestamp ?? ''
    const { results } = await world.clock.drive(
      replay(run.parts, [id], { round: inRound(timestamp) }),
    )
    expect(results).toMatchObject([
      {
        error: {
          code: 'outcome_unknown',
          meta: { hint: expect.stringContaining(`proposer replay ${id}`) },
        },
      },
    ])
  })

  test('R14: a node of ours outrules what a gateway said: in a round that a reorg brought back the bytes are sent, in an ended one never', async () => {
    const { world, id } = await lostWorld()
    world.gateway.faults.push({ status: 409, code: 'round_advanced' })
    await world.clock.drive(replay(world.run().parts, [id]))
    const sent = world.gateway.received.length
    const ended = await world.clock.drive(
      replay(world.run().parts, [id], { round: inRound('1760000050', true) }),
    )
    expect(ended.results).toMatchObject([{ error: { code: 'round_over' } }])
    expect(world.gateway.received).toHaveLength(sent)
    const timestamp = (await found(world, id)).signed.timestamp ?? ''
    const back = await world.clock.drive(
      replay(world.run().parts, [id], { round: inRound(timestamp, true) }),
    )
    expect(back.results).toMatchObject([{ outcome: 'replayed' }])
  })

  test('contract §6: submit tells what became of the older one, beside the note', async () => {
    const { world, intent, id } = await lostWorld()
    nextRound(world.gateway)
    world.gateway.faults.push({ status: 409, code: 'round_advanced' })
    const settled: unknown[] = []
    const run = world.run()
    const next = await world.clock.drive(
      submitIntent({ ...run.parts, onSettled: (one) => settled.push(one) }, intent),
    )
    expect(next.outcome).toBe('accepted')
    expect(settled).toMatchObject([
      { journalId: id, outcome: 'unknown', outOfBand: { questionId: intent.identifier } },
    ])
  })
})

test('contract §6: submit of an unknown one that went to another gateway is refused with exit 6 and the flag to use', async () => {
  const { world, intent, run, id } = await lostWorld()
  const sent = world.gateway.received.length
  const other = world.run({ origin: 'https://other.example' })
  const error = await thrown(world.clock.drive(submitIntent(other.parts, intent)))
  expect(error).toMatchObject({
    code: 'other_origin',
    meta: { exitCode: 6, hint: expect.stringContaining(`proposer replay ${id} --gateway`) },
  })
  const body = (await found(world, id)).signed.body
  expect(
    await thrown(world.clock.drive(submitPayload(other.parts, run.intent.identifier, body))),
  ).toMatchObject({ code: 'other_origin' })
  expect(world.gateway.received).toHaveLength(sent)
  expect(world.signatures).toHaveLength(1)
})
