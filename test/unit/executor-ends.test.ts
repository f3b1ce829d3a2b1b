import { signedCandidate } from '#support/candidates'
import { dispute, rivalProposes } from '#support/fake-events'
import { fakeContracts, openRound } from '#support/fake-world'
import {
  anotherExecutes,
  createPipelineWorld,
  oneCandidate,
  proposals,
  testSigner,
} from '#support/pipeline-world'

test('R3: a node that is ahead with the nonce, while heads and receipts come from one behind, leads to no second transaction', async () => {
  const { world, candidate } = await oneCandidate()
  await world.turn()
  const before = world.view.heads()
  const behind = { ...world.chain }
  world.chain.mine(4)
  const ahead = await world.chain.transactionCount(world.executor.address, 'finalized')
  Object.assign(world.chain, {
    receipt: async () => null,
    hasTransaction: async () => false,
    estimateGas: async () => 350_000n,
    block: async (at: unknown) =>
      at === 'latest'
        ? before?.latest
        : at === 'finalized'
          ? before?.finalized
          : behind.block(at as bigint),
  })
  expect(ahead).toBe(1)
  for (let looks = 0; looks < 3; looks += 1) await world.turn()
  const { receipt, hasTransaction, estimateGas, block } = behind
  Object.assign(world.chain, { receipt, hasTransaction, estimateGas, block })
  await world.pass(4)
  expect(await world.end(candidate)).toBe('executed')
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
  expect(await world.end(candidate)).toBe('executed')
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
  await world.pass(4)
  expect(await world.progress(candidate)).toMatchObject({
    status: 'selected',
    submission: { status: 'submitted' },
  })
  world.chain.receipt = receipt
  await world.pass(4)
  expect(await world.end(candidate)).toBe('executed')
})

test.each([0, 2])(
  'domain §7: block and cost of a reverted transaction are on record once, with finality %i blocks behind',
  async (lag) => {
    const { world, questionId } = await oneCandidate()
    world.chain.finalityLag = lag
    const mined: string[] = []
    world.ledger.onChange((events) => {
      for (const event of events) if (event.kind === 'slot.mined') mined.push(event.status)
    })
    await world.turn()
    rivalProposes(world.chain, questionId, testSigner(9).address)
    await world.pass(4)
    expect(mined).toEqual(['reverted'])
    expect(world.ledger.slots()).toEqual([])
  },
)

test('domain §9: a twin by the same wallet, at the same price and with another nonce, executed by another relayer, is not its own', async () => {
  const { world, questionId, candidate } = await oneCandidate()
  await world.turn()
  const question = await world.view.question(questionId)
  if (!question) throw new Error('unknown question')
  const { deadline } = candidate
  const wish = { question, proposer: world.proposer(), nonce: '77', deadline: BigInt(deadline) }
  const twin = await signedCandidate(wish, {
    chainId: fakeContracts.chainId,
    spender: fakeContracts.signedProposer,
  })
  anotherExecutes(world, twin)
  await world.pass(8)
  expect(await world.progress(candidate)).toMatchObject({
    status: 'failed',
    failure: { code: 'superseded', retryable: false },
  })
})

test('domain §9: of two authorizations of a wallet for one round and price only the one that was executed is', async () => {
  const { world, questionId, candidate: first } = await oneCandidate()
  const wallet = world.proposer().address
  const balance = (raw: bigint) => {
    world.chain.happen((state) => state.balances.set(wallet, raw))
    world.chain.mine()
  }
  balance(1n)
  await world.turn()
  expect(await world.end(first)).toBe('insufficient_balance')
  balance(10n ** 12n)
  const second = await world.submit(questionId)
  await world.turn()
  await world.pass(4)
  expect(await world.end(second)).toBe('executed')
  await world.ledger.replay(first.id)
  await world.pass(4)
  expect(await world.end(first)).toBe('superseded')
})

test('R13: a transaction that is not mined before the deadline is cancelled under its own nonce and ends as submission_expired', async () => {
  const world = await createPipelineWorld()
  const questionId = await world.question()
  const candidate = await world.submit(questionId, { deadline: world.chain.head.timestamp + 20n })
  await world.turn()
  for (let block = 0; block < 16; block += 1) {
    world.chain.mine(1, { empty: true })
    await world.turn()
  }
  expect(await world.end(candidate)).toBe('selected')
  await world.pass(6)
  expect(await world.progress(candidate)).toMatchObject({
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
  expect(await world.end(next)).toBe('executed')
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
  expect(await world.end(standIn)).toBe('validated')
  expect(world.ledger.slots()).toHaveLength(1)
  await world.pass(12)
  expect(await world.end(first)).toBe('submission_expired')
  expect(await world.end(standIn)).toBe('executed')
})

describe('a nonce that was bound and never signed for (R15)', () => {
  async function killedAtReserved(deadlineSeconds: bigint) {
    const world = await createPipelineWorld()
    const questionId = await world.question()
    const candidate = await world.submit(questionId, {
      deadline: world.chain.head.timestamp + deadlineSeconds,
    })
    await world.killedAt('reserved')
    return { world, questionId, candidate }
  }

  test('is given back by a self-transfer where the deadline has passed meanwhile', async () => {
    const { world, candidate } = await killedAtReserved(20n)
    world.chain.mine(20)
    await world.pass(5)
    expect(await world.end(candidate)).toBe('submission_expired')
    expect(world.chain.taken.map(({ nonce, to }) => [nonce, to])).toEqual([
      [0, world.executor.address],
    ])
  })
})

test('R3: a candidate rejected while its transaction is out keeps its round taken until the slot is closed', async () => {
  const world = await createPipelineWorld()
  const questionId = await world.question()
  const first = await world.submit(questionId)
  const standIn = await world.submit(questionId, { by: 1 })
  await world.turn()
  await world.reject(first)
  world.chain.mine(1, { empty: true })
  await world.turn()
  expect(await world.end(standIn)).toBe('validated')
  expect(world.ledger.slots()).toHaveLength(1)
  await world.pass(9)
  expect(await world.end(standIn)).toBe('executed')
  expect(world.ledger.slots()).toEqual([])
})

test('contract §5: a dispute that opens a new round ends what was signed for the old one as round_advanced, and not before it is final', async () => {
  const world = await createPipelineWorld()
  const questionId = await world.question()
  const candidate = await world.submit(questionId)
  rivalProposes(world.chain, questionId, testSigner(9).address)
  dispute(world.chain, questionId)
  await world.pass(1)
  expect(await world.end(candidate)).toBe('received')
  await world.pass(4)
  expect(await world.progress(candidate)).toMatchObject({
    status: 'failed',
    failure: { code: 'round_advanced', stage: 'validation' },
  })
  const next = await world.submit(questionId)
  await world.pass(5)
  expect(await world.end(next)).toBe('executed')
})

test('contract §5: a round that its adapter resets while its proposal is out is cancelled, and ends as round_advanced', async () => {
  const { world, questionId, candidate } = await oneCandidate()
  await world.turn()
  // The old request stays requested: the oracle would take the proposal still.
  world.chain.happen((state, time) => openRound(state, questionId, time))
  await world.emptyBlocks(2)
  await world.pass(8)
  expect(await world.end(candidate)).toBe('round_advanced')
  const mined = world.chain.taken.filter(({ hash }) => world.chain.truth.receipt(hash))
  expect(mined.map(({ to }) => to)).toEqual([world.executor.address])
  expect(world.ledger.slots()).toEqual([])
})
