import { describe, expect, test } from 'vitest'
import { proposeCalldata } from '../../src/core/chain/propose.js'
import type { Ledger } from '../../src/core/gateway/ledger.js'
import type { ChainErrorKind } from '../../src/core/ports.js'
import { dispute, otherRelayerExecutes, rivalProposes } from '../support/fake-chain.js'
import { token } from '../support/fake-world.js'
import { createPipelineWorld, type PipelineWorld, testSigner } from '../support/pipeline-world.js'

/** Every stage that candidates pass from now on, as text. */
function stagesOf(ledger: Ledger): string[] {
  const seen: string[] = []
  ledger.onChange((events) => {
    for (const event of events) {
      if (event.kind !== 'candidate.progress') continue
      const { progress } = event
      if (progress.status === 'failed') seen.push(`failed ${progress.failure.code}`)
      else seen.push('submission' in progress && progress.submission ? `${progress.status} ${progress.submission.status}` : progress.status)
    }
  })
  return seen
}

/** A world with one question and one candidate that is about to be sent. */
async function oneCandidate(options: Parameters<typeof createPipelineWorld>[0] = {}) {
  const world = await createPipelineWorld(options)
  const questionId = await world.question()
  const candidate = await world.submit(questionId)
  return { world, questionId, candidate }
}

const proposals = (world: PipelineWorld) => world.chain.taken.filter(({ to }) => to !== world.executor.address)
const noncesOf = (world: PipelineWorld) => [...new Set(proposals(world).map(({ nonce }) => nonce))]

describe('the life of a submission (contract §5)', () => {
  test('a candidate goes from received to executed over every stage, and the slot is closed', async () => {
    const { world, candidate } = await oneCandidate()
    const seen = stagesOf(world.ledger)
    await world.turn()
    await world.pass(4)
    expect(seen).toEqual(['validated', 'selected', 'selected prepared', 'selected submitted', 'selected confirmed', 'executed indexed'])
    expect((await world.now(candidate)).progress).toMatchObject({ submission: { proposalEventIndex: 0 } })
    expect(world.ledger.slots()).toEqual([])
    expect(world.pipeline.faults()).toEqual([])
  })

  test('proposal_event_index is the log index in the block, not in the transaction', async () => {
    const world = await createPipelineWorld()
    const questions = [await world.question('a'), await world.question('b')]
    const candidates = [await world.submit(questions[0] ?? '0x'), await world.submit(questions[1] ?? '0x')]
    await world.turn()
    await world.pass(4)
    const done = await Promise.all(candidates.map(world.now))
    // two logs a proposal in one block
    expect(done.map(({ progress }) => ('submission' in progress ? progress.submission?.proposalEventIndex : null))).toEqual([0, 2])
    expect(noncesOf(world)).toEqual([0, 1])
  })

  test('R14: confirmed waits for the finalized tag', async () => {
    const { world, candidate } = await oneCandidate()
    await world.turn()
    await world.pass(1)
    expect((await world.now(candidate)).progress).toMatchObject({ status: 'selected', submission: { status: 'submitted' } })
    await world.pass(2)
    expect((await world.now(candidate)).progress.status).toBe('executed')
  })

  test('contract §5: with a numeric depth an execution is indexed early, and its slot stays open until it is final', async () => {
    const { world, candidate } = await oneCandidate({ config: { chain: { confirmations: 1 } } })
    await world.turn()
    await world.pass(1)
    expect((await world.now(candidate)).progress).toMatchObject({ status: 'executed', submission: { status: 'indexed' } })
    expect(world.ledger.slots()).toHaveLength(1)
    await world.pass(2)
    expect(world.ledger.slots()).toEqual([])
  })
})

describe('what a node says to a transaction (robustness §3)', () => {
  test('already known counts as sent', async () => {
    const { world, candidate } = await oneCandidate()
    world.chain.fault('send', 'already_known')
    await world.turn()
    expect((await world.now(candidate)).progress).toMatchObject({ submission: { status: 'submitted' } })
  })

  test.each<ChainErrorKind>(['unavailable', 'refused', 'nonce_too_low', 'replacement_underpriced', 'nonce_too_high'])(
    '%s: the same bytes again later, never another nonce',
    async (kind) => {
      const { world, candidate } = await oneCandidate()
      world.chain.fault('send', kind)
      await world.turn()
      expect((await world.now(candidate)).progress).toMatchObject({ submission: { status: 'prepared' } })
      const [before] = world.ledger.slots()
      world.clock.monotonic += 30_000
      await world.pass(1)
      await world.pass(4)
      expect((await world.now(candidate)).progress.status).toBe('executed')
      expect(proposals(world).map(({ hash }) => hash)).toEqual(before?.attempts.map(({ hash }) => hash))
      expect(noncesOf(world)).toEqual([0])
    },
  )

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
    expect((await world.now(candidate)).progress).toMatchObject({ submission: { transactionHash: sent?.hash } })
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
    expect((await world.now(candidate)).progress).toMatchObject({ status: 'executed', submission: { transactionHash: sent.at(-1)?.hash } })
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
    const { world, candidate } = await oneCandidate({ config: { executor: { enabled: true, max_fee_gwei: 5 } } })
    await world.turn()
    expect((await world.now(candidate)).progress.status).toBe('selected')
    expect(world.pipeline.faults()).toEqual([expect.stringContaining('max_fee_gwei 5')])
    expect(world.ledger.slots()).toEqual([])
  })
})

describe('nonces that others use (robustness §3, R15)', () => {
  /** Another transaction of the same key, as a second process or a wallet would send it. */
  async function foreign(world: PipelineWorld, nonce: number) {
    const { signTransaction } = await import('../../src/core/gateway/transaction.js')
    const fees = { maxFeePerGas: 10n ** 12n, maxPriorityFeePerGas: 10n ** 11n }
    const call = { to: world.proposer(2).address, data: '0x', gas: 21_000n } as const
    const { raw } = await signTransaction(world.executor, { chainId: 31337, nonce, ...call, ...fees })
    await world.chain.send(raw)
  }

  test('a foreign transaction that takes the slot’s nonce for good frees the round, and the candidate is selected again', async () => {
    const { world, candidate } = await oneCandidate()
    world.chain.fault('send', 'unavailable')
    await world.turn()
    await foreign(world, 0)
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
    await foreign(world, 0)
    await world.pass(20)
    expect(world.ledger.slots().map(({ nonce }) => nonce)).toEqual([0])
    expect(proposals(world).filter(({ to }) => to !== world.proposer(2).address)).toEqual([])
  })

  test('nonces go on above what the chain knows, even where the ledger is new', async () => {
    const world = await createPipelineWorld()
    await foreign(world, 0)
    world.chain.mine(4)
    const candidate = await world.submit(await world.question())
    await world.turn()
    await world.pass(4)
    expect((await world.now(candidate)).progress.status).toBe('executed')
    expect(proposals(world).at(-1)?.nonce).toBe(1)
  })
})

describe('nodes that lag behind themselves', () => {
  test('R3: a node that knows the nonce before it knows the receipt leads to no second transaction', async () => {
    const { world, candidate } = await oneCandidate()
    await world.turn()
    const { receipt, logs, hasTransaction } = world.chain
    world.chain.mine(3)
    Object.assign(world.chain, { receipt: async () => null, logs: async () => [], hasTransaction: async () => false })
    await world.turn()
    Object.assign(world.chain, { receipt, logs, hasTransaction })
    await world.pass(4)
    expect((await world.now(candidate)).progress.status).toBe('executed')
    expect(proposals(world)).toHaveLength(1)
  })

  test('R3: receipts that stay away while the round shows our own transaction are waited for', async () => {
    const { world, candidate } = await oneCandidate()
    await world.turn()
    const { receipt } = world.chain
    world.chain.receipt = async () => null
    await world.pass(10)
    expect(world.ledger.slots()).toHaveLength(1)
    world.chain.receipt = receipt
    await world.pass(2)
    expect((await world.now(candidate)).progress.status).toBe('executed')
    expect(proposals(world)).toHaveLength(1)
  })

  test('R14: a receipt of a block that is not canonical counts for nothing', async () => {
    const { world, candidate } = await oneCandidate()
    await world.turn()
    const { receipt } = world.chain
    world.chain.receipt = async (hash) => {
      const found = await receipt(hash)
      return found && { ...found, blockHash: `0x${'f'.repeat(64)}` }
    }
    await world.pass(2)
    expect((await world.now(candidate)).progress).toMatchObject({ status: 'selected', submission: { status: 'submitted' } })
    world.chain.receipt = receipt
    await world.pass(4)
    expect((await world.now(candidate)).progress.status).toBe('executed')
  })
})

describe('reorganisations (R14)', () => {
  test('a receipt that goes away takes the submission back, and the same bytes are sent again', async () => {
    const { world, candidate } = await oneCandidate({ config: { chain: { confirmations: 1 } } })
    await world.turn()
    await world.pass(1)
    expect((await world.now(candidate)).progress.status).toBe('executed')
    world.chain.reorg(1, { drop: true })
    world.chain.mine(2, { empty: true })
    world.clock.monotonic += 31_000
    await world.turn()
    expect((await world.now(candidate)).progress).toMatchObject({ status: 'selected', submission: { status: 'submitted' } })
    await world.pass(5)
    expect((await world.now(candidate)).progress.status).toBe('executed')
    expect(proposals(world)).toHaveLength(1)
  })

  test('an event index that changes with the block is put right', async () => {
    const { world, candidate } = await oneCandidate({ config: { chain: { confirmations: 1 } } })
    const other = await world.question('other')
    await world.turn()
    await world.pass(1)
    expect((await world.now(candidate)).progress).toMatchObject({ submission: { proposalEventIndex: 0 } })
    world.chain.reorg(1)
    rivalProposes(world.chain, other, testSigner(9).address)
    world.chain.mine(2)
    await world.turn()
    await world.pass(4)
    expect((await world.now(candidate)).progress).toMatchObject({ status: 'executed', submission: { proposalEventIndex: 1 } })
  })

  test('an execution that a rival displaces in a reorganisation ends as superseded', async () => {
    const { world, questionId, candidate } = await oneCandidate({ config: { chain: { confirmations: 1 } } })
    await world.turn()
    await world.pass(1)
    expect((await world.now(candidate)).progress.status).toBe('executed')
    world.chain.reorg(1)
    rivalProposes(world.chain, questionId, testSigner(9).address)
    world.chain.mine(2)
    await world.turn()
    expect((await world.now(candidate)).progress).toMatchObject({ status: 'selected', submission: { status: 'reverted' } })
    await world.pass(4)
    expect((await world.now(candidate)).progress).toMatchObject({
      status: 'failed',
      failure: { code: 'superseded', stage: 'confirmation' },
    })
    expect(world.ledger.slots()).toEqual([])
  })
})

describe('transactions that revert (domain §7)', () => {
  test('somebody else was first: superseded, named with proposer and transaction, once it is final', async () => {
    const { world, questionId, candidate } = await oneCandidate()
    await world.turn()
    rivalProposes(world.chain, questionId, testSigner(9).address, 5n)
    await world.pass(1)
    expect((await world.now(candidate)).progress).toMatchObject({ status: 'selected', submission: { status: 'reverted' } })
    await world.pass(3)
    const { progress } = await world.now(candidate)
    expect(progress).toMatchObject({
      status: 'failed',
      submission: { status: 'reverted' },
      failure: { code: 'superseded', retryable: false },
    })
    expect(progress.status === 'failed' && progress.failure.detail).toContain(testSigner(9).address)
  })

  test('a wallet that moved its funds away: insufficient_balance, retryable, and an exact replay executes later', async () => {
    const { world, candidate } = await oneCandidate()
    await world.turn()
    const wallet = world.proposer().address
    world.chain.happen((state) => {
      state.balances.set(wallet, 1n)
      return []
    })
    await world.pass(4)
    expect((await world.now(candidate)).progress).toMatchObject({
      status: 'failed',
      failure: { code: 'insufficient_balance', retryable: true, stage: 'confirmation' },
    })
    world.chain.happen((state) => {
      state.balances.set(wallet, 10n ** 12n)
      return []
    })
    world.chain.mine()
    await world.ledger.replay(candidate.id)
    await world.turn()
    await world.pass(4)
    expect((await world.now(candidate)).progress.status).toBe('executed')
    expect(noncesOf(world)).toEqual([0, 1])
  })

  test('a role that was revoked fails nobody: the candidate stands in again and the queue halts', async () => {
    const { world, candidate } = await oneCandidate()
    await world.turn()
    world.chain.happen((state) => {
      state.relayers.delete(world.executor.address)
      return []
    })
    await world.pass(3)
    world.clock.monotonic += 31_000
    await world.pass(1)
    expect((await world.now(candidate)).progress).toMatchObject({ status: 'selected', submission: null })
    expect(world.ledger.slots()).toEqual([])
    expect(world.pipeline.faults()).toEqual([expect.stringContaining('DELEGATED_PROPOSER_ROLE')])
    world.chain.happen((state) => {
      state.relayers.add(world.executor.address)
      return []
    })
    await world.pass(6)
    expect((await world.now(candidate)).progress.status).toBe('executed')
  })

  test('domain §9: the same signature executed by another relayer counts as executed, with its transaction', async () => {
    const { world, questionId, candidate } = await oneCandidate()
    await world.turn()
    const question = await world.view.question(questionId)
    if (!question) throw new Error('unknown question')
    const call = { request: question.round, token, proposer: candidate.proposer, terms: candidate, signature: candidate.signature }
    otherRelayerExecutes(world.chain, proposeCalldata(call), testSigner(9).address)
    await world.pass(5)
    const { progress } = await world.now(candidate)
    expect(progress).toMatchObject({ status: 'executed', submission: { status: 'indexed', proposalEventIndex: 0 } })
    expect('submission' in progress && progress.submission?.transactionHash).not.toBe(proposals(world)[0]?.hash)
  })
})

describe('deadlines (R13: judged by chain time)', () => {
  test('a transaction that is not mined before the deadline is cancelled under its own nonce and ends as submission_expired', async () => {
    const world = await createPipelineWorld()
    const questionId = await world.question()
    const candidate = await world.submit(questionId, { deadline: world.chain.head.timestamp + 20n })
    await world.turn()
    for (let block = 0; block < 16; block += 1) {
      world.chain.mine(1, { empty: true })
      await world.turn()
    }
    expect((await world.now(candidate)).progress.status).toBe('selected')
    await world.pass(6)
    expect((await world.now(candidate)).progress).toMatchObject({
      status: 'failed',
      submission: { status: 'dropped' },
      failure: { code: 'submission_expired', stage: 'submission', retryable: false },
    })
    expect(world.chain.taken.map(({ nonce, to }) => [nonce, to === world.executor.address])).toEqual([
      [0, false],
      [0, true],
    ])
    const next = await world.submit(questionId, { by: 1 })
    await world.turn()
    await world.pass(4)
    expect((await world.now(next)).progress.status).toBe('executed')
  })

  test('R3: a stand-in does not move while the expired transaction of its round could still be mined', async () => {
    const world = await createPipelineWorld()
    const questionId = await world.question()
    const first = await world.submit(questionId, { deadline: world.chain.head.timestamp + 20n })
    const standIn = await world.submit(questionId, { by: 1, price: '0' })
    await world.turn()
    for (let block = 0; block < 16; block += 1) {
      world.chain.mine(1, { empty: true })
      await world.turn()
    }
    expect((await world.now(standIn)).progress.status).toBe('validated')
    expect(world.ledger.slots()).toHaveLength(1)
    await world.pass(12)
    expect((await world.now(first)).progress).toMatchObject({ status: 'failed', failure: { code: 'submission_expired' } })
    expect((await world.now(standIn)).progress.status).toBe('executed')
  })
})

describe('rounds and stand-ins (contract §5)', () => {
  test('the lowest sequence is executed, and the stand-ins end as not_selected in the same commit that closes the slot', async () => {
    const world = await createPipelineWorld()
    const questionId = await world.question()
    const candidates = [
      await world.submit(questionId),
      await world.submit(questionId, { by: 1 }),
      await world.submit(questionId, { by: 2 }),
    ]
    await world.turn()
    await world.pass(4)
    const done = await Promise.all(candidates.map(world.now))
    expect(done.map(({ progress }) => (progress.status === 'failed' ? progress.failure.code : progress.status))).toEqual([
      'executed',
      'not_selected',
      'not_selected',
    ])
    expect(proposals(world)).toHaveLength(1)
  })

  test('a dispute that opens a new round ends what was signed for the old one as round_advanced, and not before it is final', async () => {
    const world = await createPipelineWorld()
    const questionId = await world.question()
    const candidate = await world.submit(questionId)
    rivalProposes(world.chain, questionId, testSigner(9).address)
    dispute(world.chain, questionId)
    await world.pass(1)
    expect((await world.now(candidate)).progress.status).toBe('received')
    await world.pass(4)
    expect((await world.now(candidate)).progress).toMatchObject({
      status: 'failed',
      failure: { code: 'round_advanced', stage: 'validation' },
    })
    const next = await world.submit(questionId)
    await world.pass(5)
    expect((await world.now(next)).progress.status).toBe('executed')
  })

  test('a rival’s proposal ends waiting candidates as superseded', async () => {
    const world = await createPipelineWorld({ executor: false })
    const questionId = await world.question()
    const candidate = await world.submit(questionId)
    await world.turn()
    rivalProposes(world.chain, questionId, testSigner(9).address)
    await world.pass(4)
    expect((await world.now(candidate)).progress).toMatchObject({ status: 'failed', failure: { code: 'superseded', stage: 'validation' } })
  })
})
