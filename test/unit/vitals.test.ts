import type { LedgerEvent, LedgerListener, Slot } from '#gateway/ledger/ledger'
import { followLedger, stateLine } from '#gateway/status/health'
import type { CandidateSubmission, Progress } from '#protocol/candidate'
import type { Observation, StateLine } from '#protocol/vitals'
import { failed } from '#support/candidates'
import { invalidateNonces } from '#support/fake-events'
import { createPipelineWorld, oneCandidate, type PipelineWorld } from '#support/pipeline-world'

const none = { count: 0, oldest_seconds: 0 }

function following(world: PipelineWorld) {
  const observations: Observation[] = []
  const lines: StateLine[] = []
  const vitals = followLedger({
    clock: world.clock,
    ledger: world.ledger,
    onObservation: (one) => observations.push(one),
    onState: (line) => lines.push(line),
  })
  const of = <K extends Observation['kind']>(kind: K) =>
    observations.filter((one): one is Extract<Observation, { kind: K }> => one.kind === kind)
  return { vitals, observations, lines, of }
}

test('contract §5: each stage is measured from the one before, and an execution from its reception', async () => {
  const world = await createPipelineWorld()
  const { of } = following(world)
  await world.submit(await world.question())
  world.clock.monotonic += 1_500
  await world.turn()
  await world.pass(4)
  expect(of('stage').map(({ stage }) => stage)).toEqual([
    'validated',
    'selected',
    'submitted',
    'confirmed',
    'executed',
  ])
  const seconds = Object.fromEntries(of('stage').map((one) => [one.stage, one.seconds]))
  expect(seconds.validated).toBeCloseTo(1.5)
  expect(seconds.selected).toBeCloseTo(0)
  expect(seconds.confirmed).toBeGreaterThanOrEqual(4)
  const [end] = of('ended')
  expect(of('ended')).toHaveLength(1)
  expect(end).toMatchObject({ outcome: 'executed', code: 'none' })
  expect(end?.seconds).toBeCloseTo(of('stage').reduce((sum, one) => sum + one.seconds, 0))
  expect(of('signed')).toEqual([{ kind: 'signed', as: 'first' }])
  expect(of('settled')).toEqual([{ kind: 'settled', end: 'executed' }])
})

test('R14: an execution that a reorganisation undoes is told once, when it is final', async () => {
  const { world } = await oneCandidate()
  const { of } = following(world)
  await world.turn()
  await world.pass(1)
  world.chain.reorg(1)
  world.chain.mine(2, { empty: true })
  await world.turn()
  expect(of('ended')).toEqual([])
  await world.pass(5)
  expect(of('stage').filter(({ stage }) => stage === 'executed')).toHaveLength(1)
  expect(of('ended')).toMatchObject([{ outcome: 'executed', code: 'none' }])
})

test('contract §5: a failure counts under its code, a cancelled nonce and its cancel too', async () => {
  const { world, candidate } = await oneCandidate()
  const { of, vitals } = following(world)
  world.chain.fault('send', 'unavailable', { times: 2 })
  await world.turn()
  const nonce = BigInt(candidate.nonce)
  invalidateNonces(world.chain, candidate.proposer, nonce >> 8n, 1n << (nonce & 255n))
  for (let tries = 0; tries < 8; tries += 1) {
    world.clock.monotonic += 30_000
    await world.pass(1)
  }
  expect(of('ended')).toMatchObject([{ outcome: 'failed', code: 'permit_nonce_used' }])
  expect(of('signed')).toEqual([
    { kind: 'signed', as: 'first' },
    { kind: 'signed', as: 'cancel' },
  ])
  expect(of('settled')).toEqual([{ kind: 'settled', end: 'cancelled' }])
  expect(vitals.queue()).toEqual({ received: none, validated: none, selected: none })
})

test('robustness §3: a higher fee for the same calldata counts as a bump', async () => {
  const { world } = await oneCandidate()
  const { of } = following(world)
  world.chain.fault('send', 'underpriced', { times: 2 })
  await world.turn()
  world.clock.monotonic += 30_000
  await world.pass(6)
  const signed = of('signed').map(({ as }) => as)
  expect(signed[0]).toBe('first')
  expect(signed.slice(1).length).toBeGreaterThan(0)
  expect(new Set(signed.slice(1))).toEqual(new Set(['fee_bump']))
})

test('R13: ages grow with the monotonic clock, and one that waited before a restart is as old as its records say', async () => {
  const { world } = await oneCandidate({ config: { pipeline: { enabled: false } } })
  const { vitals } = following(world)
  expect(vitals.queue().received.oldest_seconds).toBeCloseTo(0, 0)
  world.clock.monotonic += 90_000
  expect(vitals.queue().received.oldest_seconds).toBeGreaterThanOrEqual(90)
  world.chain.mine(40)
  await world.restart()
  const after = following(world).vitals
  expect(after.queue().received.oldest_seconds).toBeGreaterThanOrEqual(39)
  expect(after.queue()).toMatchObject({ received: { count: 1 }, validated: none, selected: none })
})

test('contract §5: an exact replay of a retryable failure is followed anew', async () => {
  const { world, candidate } = await oneCandidate({ config: { pipeline: { enabled: false } } })
  const { vitals } = following(world)
  await world.ledger.commit([
    {
      kind: 'candidate.progress',
      id: candidate.id,
      progress: failed('insufficient_balance', true, ''),
    },
  ])
  world.clock.monotonic += 60_000
  expect(vitals.queue().received.oldest_seconds).toBe(0)
  await world.ledger.replay(candidate.id)
  world.clock.monotonic += 5_000
  expect(vitals.queue().received.oldest_seconds).toBeCloseTo(5)
})

describe('a ledger that tells what a test wants told', () => {
  const submission: CandidateSubmission = {
    status: 'submitted',
    transactionHash: '0x01',
    submittedAtMs: 3,
    confirmedAtMs: null,
    indexedAtMs: null,
    proposalEventIndex: null,
  }
  const submitted: Progress = { status: 'selected', validatedAtMs: 1, selectedAtMs: 2, submission }
  const executed: Progress = {
    ...submitted,
    status: 'executed',
    submission: { ...submission, status: 'indexed', indexedAtMs: 4, proposalEventIndex: 0 },
  }
  const slot = (id: string, nonce: number): Slot => ({
    id,
    executor: `0x${'e'.repeat(40)}`,
    nonce,
    candidateIds: ['one', 'two'],
    openedAtMs: 0,
    attempts: [],
  })

  function telling() {
    const observations: Observation[] = []
    let hear: LedgerListener = () => undefined
    const lines: StateLine[] = []
    const at = { ms: 0 }
    const clock = { nowMs: () => at.ms, monotonicMs: () => at.ms }
    const ledger = {
      active: () => [],
      slots: () => [],
      onChange(listener: typeof hear) {
        hear = listener
        return () => undefined
      },
    }
    const vitals = followLedger({
      clock,
      ledger,
      onObservation: (one) => observations.push(one),
      onState: (one) => lines.push(one),
    })
    const tell = (...events: LedgerEvent[]) => hear(events, false)
    const tellElsewhere = (...events: LedgerEvent[]) => hear(events, true)
    return { vitals, observations, lines, at, tell, tellElsewhere }
  }

  test('robustness §5: what another gateway did is told as that', () => {
    const { lines, tell, tellElsewhere } = telling()
    tell({ kind: 'slot.opened', slot: slot('a', 0) })
    tellElsewhere({ kind: 'slot.sent', slotId: 'a', hash: '0x02', sentAtMs: 1 })
    expect(lines.map(({ event, elsewhere }) => [event, elsewhere])).toEqual([
      ['slot.opened', undefined],
      ['slot.sent', true],
    ])
  })

  test('R14: the end of a slot that left a candidate out is not its end while another slot carries it', () => {
    const { observations, tell } = telling()
    tell({ kind: 'slot.opened', slot: slot('a', 0) }, { kind: 'slot.opened', slot: slot('b', 1) })
    tell(
      { kind: 'candidate.progress', id: 'one', progress: submitted },
      { kind: 'candidate.progress', id: 'one', progress: executed },
    )
    const ends = () => observations.filter(({ kind }) => kind === 'ended').length
    tell({ kind: 'slot.closed', slotId: 'a', outcome: { kind: 'executed', hash: '0x01' } })
    expect(ends()).toBe(0)
    tell({ kind: 'slot.closed', slotId: 'b', outcome: { kind: 'executed', hash: '0x02' } })
    expect(ends()).toBe(1)
  })
})

test('robustness §5, R5: a life is told by ids only: no wallet, signature, raw transaction or executor', async () => {
  const { world, candidate } = await oneCandidate()
  const { lines } = following(world)
  await world.turn()
  const raws = world.ledger.slots().flatMap(({ attempts }) => attempts.map(({ raw }) => raw))
  expect(raws).toHaveLength(1)
  await world.pass(4)
  expect(lines.map(({ event }) => event)).toEqual([
    'candidate.validated',
    'candidate.selected',
    'slot.opened',
    'slot.signed',
    'candidate.prepared',
    'slot.sent',
    'candidate.submitted',
    'slot.mined',
    'candidate.confirmed',
    'candidate.executed',
    'slot.closed',
  ])
  const told = JSON.stringify(lines)
  for (const secret of [candidate.signature, candidate.proposer, world.executor.address, ...raws])
    expect(told).not.toContain(secret)
  expect(lines.at(-1)).toMatchObject({
    nonce: 0,
    kind: 'executed',
    hash: expect.stringMatching(/^0x[0-9a-f]{64}$/),
  })
  for (const line of lines)
    expect(line.event.startsWith('slot.') ? line.nonce : line.candidate_id).toBeDefined()
})

test('robustness §5: what an operator did is told without his reason and without the wallet', () => {
  const wallet = `0x${'ab'.repeat(20)}` as const
  const reason = 'PLANTED-REASON'
  const questionId = `0x${'12'.repeat(32)}` as const
  expect(stateLine({ kind: 'allowlist.set', address: wallet, allowed: false, reason })).toEqual({
    event: 'allowlist.set',
    enabled: false,
  })
  expect(stateLine({ kind: 'admission.set', enabled: false, reason })).toEqual({
    event: 'admission.set',
    enabled: false,
  })
  const entry = { questionId, slug: 'planted-slug', requester: undefined, request: undefined }
  expect(stateLine({ kind: 'question.set', entry, reason })).toEqual({
    event: 'question.set',
    question_id: questionId,
  })
  expect(stateLine({ kind: 'question.removed', questionId, reason })).toEqual({
    event: 'question.removed',
    question_id: questionId,
  })
  expect(stateLine({ kind: 'chain.finalized', number: '1', hash: '0x' })).toBeUndefined()
})

test('robustness §5: a failure is told by its code and stage, not by its detail', () => {
  const progress = failed('token_blocked', false, `PLANTED ${'0x'.repeat(9)}`)
  const line = stateLine({ kind: 'candidate.progress', id: 'an-id', progress })
  expect(line).toEqual({
    event: 'candidate.failed',
    candidate_id: 'an-id',
    code: 'token_blocked',
    stage: 'validation',
  })
})
