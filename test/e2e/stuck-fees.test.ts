/**
 * A transaction that no block takes (robustness §3, domain §8): its fee is raised up to the
 * ceiling, and it is cancelled in time.
 */
import { devRpc } from '#devchain/dev-contracts'
import type { SlotAttempt } from '#gateway/ledger/ledger'
import type { Hex } from '#ports'
import { wireStatus } from '#protocol/candidate'
import { fastClock, type LivePipeline, startLivePipeline } from '#support/live-pipeline'

/** Some bumps above what the dev chain asks at first. */
const ceilingGwei = 3.7
const ceilingWei = BigInt(ceilingGwei * 1e9)

let live: LivePipeline
let rpc: ReturnType<typeof devRpc>
beforeAll(async () => {
  // The chain stands still for long: its head may be old here, so that what is looked at is the
  // executor's patience.
  live = await startLivePipeline({
    chain: { questions: 3, proposers: 2 },
    clock: fastClock(20),
    maxHeadAgeSeconds: 100_000,
    executor: { max_fee_gwei: ceilingGwei },
  })
  rpc = devRpc(live.dev.rpcUrl)
}, 60_000)
afterAll(() => live?.stop())

interface Pooled {
  readonly hash: Hex
  readonly nonce: Hex
}

async function pooled(): Promise<readonly Pooled[]> {
  const { pending } = await rpc.request<{ pending: Record<string, Record<string, Pooled>> }>(
    'txpool_content',
    [],
  )
  const found = Object.entries(pending).find(
    ([account]) => account.toLowerCase() === live.executor.address,
  )
  return found ? Object.values(found[1]) : []
}

test('R3, contract §5: bumped to the ceiling, cancelled in time under the same nonce, and the status says so', async () => {
  await rpc.request('evm_setIntervalMining', [0])
  const before = await live.chain.transactionCount(live.executor.address, 'latest')
  const deadline = live.view.nowSeconds() + 200n
  const stuck = await live.submit(0, live.signerOf('proposer'), '1', { deadline })
  const fine = await live.submit(1, live.signerOf('proposer', 1), '2', {
    deadline: deadline + 3_600n,
  })
  const slot = () => live.ledger.slots().find(({ candidateIds }) => candidateIds.includes(stuck.id))
  const all: SlotAttempt[] = [...(slot()?.attempts ?? [])]
  const sent = new Set<Hex>()
  const faults = new Set<string>()
  const nonces = new Set<number>()
  const unfollow = live.ledger.onChange((events) => {
    for (const event of events) {
      if (event.kind === 'slot.attempt' && event.slotId === slot()?.id) all.push(event.attempt)
      if (event.kind === 'slot.sent') sent.add(event.hash)
    }
  })
  const isCancelled = ({ kind }: SlotAttempt) => kind === 'cancel'
  while (
    !all.some((one) => isCancelled(one) && sent.has(one.hash)) &&
    (all.length === 0 || slot() !== undefined)
  ) {
    for (const { hash, nonce } of await pooled())
      if (all.some((one) => one.hash === hash)) nonces.add(Number(nonce))
    for (const fault of live.pipeline.faults()) faults.add(fault)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  unfollow()
  expect(nonces).toEqual(new Set([before]))
  const bids = all
    .filter((one) => !isCancelled(one))
    .map(({ maxFeePerGas }) => BigInt(maxFeePerGas))
  expect(bids.length, 'raised').toBeGreaterThan(1)
  for (const [index, bid] of bids.entries()) {
    expect(bid).toBeLessThanOrEqual(ceilingWei)
    if (index > 0) expect(bid * 1000n).toBeGreaterThanOrEqual((bids[index - 1] ?? 0n) * 1125n)
  }
  const last = bids.at(-1) ?? 0n
  expect((last * 9n) / 8n, 'no higher fee leaves room for a cancellation').toBeGreaterThan(
    (ceilingWei * 8n) / 9n,
  )
  expect(
    [...faults].filter((fault) =>
      fault.includes(`max_fee_gwei ${ceilingGwei} allows no higher fee`),
    ),
  ).toHaveLength(1)
  const cancellation = all.find(isCancelled)
  expect(BigInt(cancellation?.maxFeePerGas ?? 0)).toBeLessThanOrEqual(ceilingWei)
  expect(wireStatus(await live.until(stuck.id, () => true)).submission?.status).toBe('submitted')
  // Blocks again, beyond the deadline: only what the node holds now can be mined.
  await rpc.request('evm_increaseTime', [300])
  await rpc.request('evm_setIntervalMining', [1])
  const done = wireStatus(await live.ended(stuck.id))
  expect(done).toMatchObject({
    status: 'failed',
    submission: { status: 'dropped', confirmed_at: null },
    failure: {
      stage: 'submission',
      code: 'submission_expired',
      retryable: false,
      next_action: 'sign_new_authorization',
    },
  })
  expect(done.failure?.detail).toContain(String(deadline))
  expect((await live.ended(fine.id)).progress.status).toBe('executed')
  for (const { hash } of all.filter((one) => !isCancelled(one)))
    expect(await live.chain.receipt(hash)).toBeNull()
  expect(slot()).toBeUndefined()
}, 90_000)
