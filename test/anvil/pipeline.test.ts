import { afterAll, beforeAll, expect, test } from 'vitest'
import { topics } from '#chain/contracts'
import { findProposed } from '#chain/propose'
import { devRpc } from '#devchain/dev-contracts'
import { signTransaction } from '#gateway/executor/transaction'
import type { ChainReceipt } from '#ports'
import type { Candidate } from '#protocol/candidate'
import { type LivePipeline, startLivePipeline } from '#support/live-pipeline'
import { resolveRound } from '#support/resolve-round'

let live: LivePipeline
beforeAll(async () => {
  live = await startLivePipeline({ chain: { questions: 10, proposers: 2 } })
}, 60_000)
afterAll(() => live?.stop())

async function receiptOf(candidate: Candidate): Promise<ChainReceipt> {
  if (candidate.progress.status !== 'executed')
    throw new Error(`not executed: ${JSON.stringify(candidate.progress)}`)
  const receipt = await live.chain.receipt(candidate.progress.submission.transactionHash ?? '0x')
  if (!receipt) throw new Error('no receipt')
  return receipt
}

test('contract §5: a received candidate is validated, selected, executed, and its event index is that of ProposePrice in the block', async () => {
  const proposer = live.signerOf('proposer')
  const candidate = await live.submit(0, proposer, '1')
  const done = await live.ended(candidate.id)
  const receipt = await receiptOf(done)
  const found = findProposed(receipt.logs, candidate)
  expect(found?.log.topics[0]).toBe(topics.proposePrice)
  expect(done.progress).toMatchObject({
    status: 'executed',
    submission: { status: 'indexed', proposalEventIndex: found?.log.logIndex },
  })
  const round = await resolveRound(live.chain, live.contracts, live.questionIdOf(0))
  expect(round?.state).toBe('proposed')
}, 60_000)

test('R3: of two candidates for one round one transaction is sent, and the other ends as not_selected', async () => {
  const first = await live.submit(1, live.signerOf('proposer', 0), '2')
  const second = await live.submit(1, live.signerOf('proposer', 1), '3', { price: '0' })
  const [done, standIn] = await Promise.all([live.ended(first.id), live.ended(second.id)])
  expect(done.progress.status).toBe('executed')
  expect(standIn.progress).toMatchObject({
    status: 'failed',
    failure: { code: 'not_selected', stage: 'selection' },
  })
}, 60_000)

test('contract §5: a wallet without the funds fails with insufficient_balance and the figures', async () => {
  const candidate = await live.submit(2, live.signerOf('proposer', 1), '4', {
    amount: '900000000000000000',
  })
  const done = await live.ended(candidate.id)
  expect(done.progress).toMatchObject({
    status: 'failed',
    failure: { code: 'insufficient_balance', retryable: true, stage: 'validation' },
  })
}, 60_000)

test('domain §2.2: proposals of several rounds go in one multicall, with one nonce, each with the index of its own event', async () => {
  const before = await live.chain.transactionCount(live.executor.address, 'latest')
  const [first, ...rest] = [
    await live.submit(3, live.signerOf('proposer'), '5'),
    await live.submit(4, live.signerOf('proposer', 1), '6'),
    await live.submit(5, live.signerOf('proposer'), '7'),
  ]
  if (first === undefined) throw new Error('nothing was submitted')
  const done = await Promise.all([first, ...rest].map(({ id }) => live.ended(id)))
  expect(done.map(({ progress }) => progress.status)).toEqual(['executed', 'executed', 'executed'])
  const hashes = new Set(
    done.map(({ progress }) => 'submission' in progress && progress.submission?.transactionHash),
  )
  // Admitted one after the other, the first may have been on its way alone.
  expect(hashes.size).toBeLessThanOrEqual(2)
  expect((await live.chain.transactionCount(live.executor.address, 'latest')) - before).toBe(
    hashes.size,
  )
  for (const candidate of done) {
    const found = findProposed((await receiptOf(candidate)).logs, candidate)
    expect(
      'submission' in candidate.progress && candidate.progress.submission?.proposalEventIndex,
    ).toBe(found?.log.logIndex)
  }
  expect(live.pipeline.faults()).toEqual([])
  expect(live.view.faults()).toEqual([])
}, 60_000)

test('domain §8: what a block has no room for is halved until it fits, and no nonce is given back', async () => {
  const { chain, executor, view } = live
  const nonce = await chain.transactionCount(executor.address, 'latest')
  const rpc = devRpc(live.dev.rpcUrl)
  const room = 900_000n
  await rpc.request('evm_setBlockGasLimit', [`0x${room.toString(16)}`])
  const fees = { maxFeePerGas: 10n ** 10n, maxPriorityFeePerGas: 10n ** 9n }
  const call = { to: executor.address, data: '0x', gas: room + 1n } as const
  const unsigned = { chainId: live.contracts.chainId, nonce, ...call, ...fees }
  const tooBig = (await signTransaction(executor, unsigned)).raw
  await expect(chain.send(tooBig)).rejects.toMatchObject({ kind: 'too_much_gas' })
  await view.stop()
  const waiting = [
    await live.submit(6, live.signerOf('proposer'), '8'),
    await live.submit(7, live.signerOf('proposer', 1), '9'),
    await live.submit(8, live.signerOf('proposer'), '10'),
    await live.submit(9, live.signerOf('proposer', 1), '11'),
  ]
  await view.start()
  const done = await Promise.all(waiting.map(({ id }) => live.ended(id)))
  expect(done.map(({ progress }) => progress.status)).toEqual(Array(4).fill('executed'))
  const hashes = new Set(
    done.map(({ progress }) => 'submission' in progress && progress.submission?.transactionHash),
  )
  expect(hashes.size).toBeGreaterThan(1)
  expect((await chain.transactionCount(executor.address, 'latest')) - nonce).toBe(hashes.size)
}, 60_000)
