import { parseTransaction, type TransactionSerializedEIP1559 } from 'viem'
import { createOperatorService } from '#gateway/operator/service'
import { ChainError, type Hex } from '#ports'
import { endow } from '#support/fake-events'
import { createPipelineWorld, type PipelineWorld, proposals } from '#support/pipeline-world'

const reverted = ({ chain }: PipelineWorld) =>
  chain.taken.filter(({ hash }) => chain.truth.receipt(hash)?.status === 'reverted').length

async function rug(world: PipelineWorld, id: string, times: number): Promise<void> {
  const who = world.proposer(0).address
  for (let time = 0; time < times; time += 1) {
    endow(world.chain, who)
    world.chain.mine()
    if (time > 0) await world.ledger.replay(id)
    await world.turn()
    endow(world.chain, who, 0n)
    await world.pass(8)
  }
}

const forever = (world: PipelineWorld) => world.chain.head.timestamp + 10_000_000n

test('contract §5: a wallet whose proposals failed on chain waits longer each time and is stopped for a day, over a restart; an operator lifts it', async () => {
  const world = await createPipelineWorld()
  const who = world.proposer(0).address
  const rugged = await world.submit(await world.question('rugged'), { deadline: forever(world) })
  await rug(world, rugged.id, 30)
  expect(reverted(world), 'at most once, twice, and after 1, 2, 4 minutes').toBeLessThanOrEqual(5)
  await world.restart()
  world.chain.nextSeconds = 3_000n
  await rug(world, rugged.id, 3)
  expect(reverted(world)).toBe(6)
  world.chain.nextSeconds = 2n
  endow(world.chain, who)
  const contested = await world.question('contested')
  const held = await world.submit(contested, { deadline: forever(world) })
  const other = await world.submit(contested, { by: 1 })
  await world.pass(6)
  expect(await world.end(other)).toBe('executed')
  expect(await world.end(held)).toBe('not_selected')
  expect(await world.end(rugged)).toBe('validated')
  expect(world.pipeline.faults()).toEqual([])
  const service = createOperatorService({
    ...{ clock: world.clock, ledger: world.ledger, configured: [] },
    isKnown: async () => true,
    code: async () => ({ pins: {}, now: {} }),
    compact: async () => ({ before: 0, after: 0 }),
  })
  const lifted = await service.run('allow', { addresses: [who] })
  expect(lifted.changed).toEqual([who])
  await world.pass(6)
  expect(await world.end(rugged)).toBe('executed')
})

test('contract §5: what a wallet has in flight counts against its failed gas, and keeps nobody else waiting', async () => {
  const executor = { max_proposal_gas: 500_000, failed_gas_per_wallet: 1_000_000 }
  const world = await createPipelineWorld({ config: { executor } })
  world.chain.happen((state) => state.wallets.set(world.proposer(0).address, true))
  world.chain.mine()
  const own = []
  for (let n = 0; n < 4; n += 1) own.push(await world.submit(await world.question(`own ${n}`)))
  const other = await world.submit(await world.question('other'), { by: 1 })
  await world.turn()
  const limits = proposals(world)
    .filter(({ data }) => data.includes(world.proposer(0).address.slice(2)))
    .map(({ raw }) => parseTransaction(raw as TransactionSerializedEIP1559).gas)
  expect(limits).toEqual([420_000n, 420_000n])
  expect(proposals(world)).toHaveLength(3)
  await world.pass(8)
  for (const { id } of [...own, other])
    expect((await world.ledger.get(id))?.progress.status).toBe('executed')
})

test('contract §5: code at a wallet is tried with the price of gas that would be paid', async () => {
  const world = await createPipelineWorld()
  const who = world.proposer(0).address
  world.chain.happen((state) => state.wallets.set(who, true))
  world.chain.mine()
  const { call } = world.chain
  const offered = new Set<bigint>()
  world.chain.call = async (asked, at) => {
    const { data, maxFeePerGas } = asked
    if (!data.includes(who.slice(2)) || maxFeePerGas === undefined) return call(asked, at)
    offered.add(maxFeePerGas)
    throw new ChainError('reverted', 'eth_call: not at this price')
  }
  const one = await world.submit(await world.question())
  await world.pass(3)
  expect((await world.progress(one)).status).toBe('failed')
  expect(proposals(world)).toEqual([])
  const other = await world.submit(await world.question('other'), { by: 1 })
  await world.turn()
  const { raw = '0x' as Hex } = proposals(world)[0] ?? {}
  const paid = parseTransaction(raw as TransactionSerializedEIP1559).maxFeePerGas
  expect([...offered]).toEqual([paid])
  await world.pass(5)
  expect(await world.end(other)).toBe('executed')
})

test('contract §2: a wallet whose code wants more gas than is left for others makes nothing unready', async () => {
  const world = await createPipelineWorld()
  const { gasNeeded } = world.chain
  const who = world.proposer(0).address
  world.chain.gasNeeded = (data) => (data.includes(who.slice(2)) ? 1_200_000n : gasNeeded(data))
  world.chain.happen((state) => state.wallets.set(who, true))
  world.chain.mine()
  const dear = await world.submit(await world.question('dear'))
  await world.turn()
  const { maxFeePerGas = 0n } = parseTransaction(
    (proposals(world)[0]?.raw ?? '0x') as TransactionSerializedEIP1559,
  )
  await world.pass(5)
  expect(await world.end(dear)).toBe('executed')
  world.chain.fund(world.executor.address, 2_000_000n * maxFeePerGas)
  const [again, other] = [
    await world.submit(await world.question('again')),
    await world.submit(await world.question('other'), { by: 1 }),
  ]
  await world.pass(6)
  expect(world.pipeline.faults()).toEqual([])
  expect(await world.end(other)).toBe('executed')
  expect((await world.progress(again)).status).not.toBe('executed')
})
