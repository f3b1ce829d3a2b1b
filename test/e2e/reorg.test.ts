/**
 * Reorganisations of a real node, under a gateway: nothing is on record before it is final, and
 * there is no second nonce (R3, R14).
 */
import { yesOrNoQuery } from '#chain/contracts'
import { devAccount, devAddresses, placedAt } from '#devchain/dev-contracts'
import type { Hex } from '#ports'
import {
  openStillChain,
  openStillGateway,
  type StillChain,
  type StillGateway,
  type Submitted,
} from '#support/reorg-gateway'

/** `finalized` lags by 64 blocks, more than any reorganisation here. */
const slotsInAnEpoch = 32
/** Every depth up to 256 is in crash/executor-reorgs. */
const depth = 5

let still: StillChain
let gateway: StillGateway
let questions: readonly Hex[]
let next = 0
const oracle = placedAt('ManagedOracle', devAddresses.oracle)
const rival = devAccount('rival').address

beforeAll(async () => {
  still = await openStillChain({ questions: 9, slotsInAnEpoch })
  questions = still.description.questions.map(({ question_id }) => question_id)
}, 60_000)
afterAll(() => still?.stop())

function freshQuestion(): Hex {
  const questionId = questions[next]
  if (questionId === undefined) throw new Error('all questions are used')
  next += 1
  return questionId
}

async function roundArgs(questionId: Hex): Promise<readonly unknown[]> {
  const adapter = placedAt('CtfAdapter', devAddresses.adapter)
  const question = await still.rpc.read<{ requestTimestamp: bigint; ancillaryData: Hex }>(
    adapter,
    'getQuestion',
    [questionId],
  )
  return [devAddresses.adapter, yesOrNoQuery, question.requestTimestamp, question.ancillaryData]
}

interface Mined {
  readonly submitted: Submitted
  readonly raw: Hex
  readonly hash: Hex
  readonly before: Hex
  readonly nonce: number
}

async function minedAt(questionId: Hex, depth: number): Promise<Mined> {
  gateway = await openStillGateway(still)
  const nonce = await still.chain.transactionCount(gateway.executor.address, 'latest')
  const submitted = await gateway.submit(questionId)
  await gateway.turn()
  const [slot] = gateway.ledger.slots()
  const attempt = slot?.attempts[0]
  if (!attempt) throw new Error('nothing was sent')
  // A snapshot keeps the pool out: the transaction is handed over again by whoever needs it.
  await still.rpc.request('anvil_dropTransaction', [attempt.hash])
  const before = await still.remember()
  await still.rpc.request('eth_sendRawTransaction', [attempt.raw])
  await gateway.pass(depth)
  expect((await still.chain.receipt(attempt.hash))?.status).toBe('success')
  expect(await gateway.status(submitted)).toMatchObject({
    status: 'selected',
    submission: { status: 'submitted', transaction_hash: attempt.hash },
  })
  return { submitted, raw: attempt.raw, hash: attempt.hash, before, nonce }
}

async function settle({ submitted, hash, nonce }: Mined) {
  const attempts = gateway.ledger.slots().flatMap((slot) => slot.attempts)
  const signed = new Set(
    attempts.filter(({ kind }) => kind === 'propose').map((attempt) => attempt.hash),
  )
  for (let block = 0; block < 2 * slotsInAnEpoch + 1; block += 1) await still.mine()
  await gateway.turn()
  await gateway.pass(2)
  expect(gateway.ledger.slots()).toEqual([])
  expect([...signed]).toEqual([hash])
  expect(await still.chain.transactionCount(gateway.executor.address, 'latest')).toBe(nonce + 1)
  return gateway.status(submitted)
}

async function indexOf(hash: Hex): Promise<number | undefined> {
  const receipt = await still.chain.receipt(hash)
  return receipt?.logs.find(({ address }) => address === devAddresses.oracle)?.logIndex
}

describe(`R3, R14: ${depth} blocks are undone`, () => {
  test('the transaction is in the new branch, later and at another index: the status follows', async () => {
    const other = freshQuestion()
    const mined = await minedAt(freshQuestion(), depth)
    const { submitted, raw, hash } = mined
    const first = await indexOf(hash)
    await still.back(mined.before)
    await still.mine(2)
    await gateway.turn()
    expect(await gateway.status(submitted)).toMatchObject({
      status: 'selected',
      submission: {
        status: 'submitted',
        transaction_hash: hash,
        confirmed_at: null,
        indexed_at: null,
        proposal_event_index: null,
      },
    })
    await still.rpc.request('eth_sendRawTransaction', [raw]).catch((error: unknown) => {
      // The gateway was quicker.
      if (!String(error).includes('already imported')) throw error
    })
    await still.ahead(rival, oracle, 'proposePrice', ...(await roundArgs(other)), 0n)
    await gateway.pass(depth + 1)
    const second = await indexOf(hash)
    expect(second).toBeGreaterThan(first ?? Number.POSITIVE_INFINITY)
    expect(await gateway.status(submitted)).toMatchObject({ status: 'selected' })
    expect(await settle(mined)).toMatchObject({
      status: 'executed',
      submission: { status: 'indexed', proposal_event_index: second },
    })
  })
})

test('R14: anvil_reorg, which puts the transaction into another block of as many new ones', async () => {
  const mined = await minedAt(freshQuestion(), 5)
  const { raw, hash } = mined
  const block = (await still.chain.receipt(hash))?.blockHash
  await still.rpc.request('anvil_reorg', [5, [[raw, 3]]])
  await gateway.turn()
  const receipt = await still.chain.receipt(hash)
  expect(receipt?.blockHash).not.toBe(block)
  await gateway.pass(2)
  expect(await settle(mined)).toMatchObject({
    status: 'executed',
    submission: { status: 'indexed', transaction_hash: hash },
  })
})
