import { signTransaction } from '#chain/transaction'
import { devRpc } from '#devchain/dev-contracts'
import { type LivePipeline, startLivePipeline } from '#support/live-pipeline'

let live: LivePipeline
beforeAll(async () => {
  live = await startLivePipeline({ chain: { questions: 4, proposers: 2 } })
}, 60_000)
afterAll(() => live?.stop())

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
    await live.submit(0, live.signerOf('proposer'), '8'),
    await live.submit(1, live.signerOf('proposer', 1), '9'),
    await live.submit(2, live.signerOf('proposer'), '10'),
    await live.submit(3, live.signerOf('proposer', 1), '11'),
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
