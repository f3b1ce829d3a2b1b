import type { Address } from '#protocol/schema'
import { chainView } from '#support/chain-view'
import { createFakeChain, createFakeClock } from '#support/fake-chain'
import { ask, questionText } from '#support/fake-events'
import { fakeContracts } from '#support/fake-world'

const wallet: Address = `0x${'77'.repeat(20)}`

async function idle() {
  const chain = createFakeChain()
  const clock = createFakeClock(chain)
  const questionId = ask(chain, questionText('Rain?'))
  chain.mine(5)
  const setting = { waits: false }
  const view = chainView(chain, {
    clock,
    ledger: { allowlist: new Set([wallet]) },
    waits: () => setting.waits,
  })
  await view.poll()
  const asked = async (blocks: number, act: () => void = () => chain.mine()) => {
    const before = new Map(chain.calls)
    for (let block = 0; block < blocks; block += 1) {
      act()
      clock.monotonic += 2_000
      await view.poll()
    }
    return Object.fromEntries(
      [...chain.calls]
        .map(([method, count]) => [method, count - (before.get(method) ?? 0)])
        .filter(([, count]) => count !== 0),
    )
  }
  return { chain, clock, view, questionId, setting, asked }
}

test('a look asks for the newest block and its logs; chain and final block every 30 s', async () => {
  const { asked, chain, view } = await idle()
  expect(await asked(14)).toEqual({ block: 14, logs: 14 })
  expect(await asked(1)).toEqual({ chainId: 1, block: 2, logs: 1 })
  expect(view.heads()?.finalized.number).toBe(chain.head.number - BigInt(chain.finalityLag))
  expect(await asked(14)).toEqual({ block: 14, logs: 14 })
  expect(view.faults()).toEqual([])
})

test('the code of allowed wallets is read again before it is too old to answer from', async () => {
  const { asked, view } = await idle()
  expect((await asked(119)).code).toBeUndefined()
  expect((await asked(2)).code).toBe(1)
  expect(view.knownCode(wallet)).toBe(false)
})

test('once somebody waits, the next look reads the final block, and each one after it', async () => {
  const { asked, chain, view, setting } = await idle()
  await asked(3)
  const before = view.heads()?.finalized.number ?? 0n
  setting.waits = true
  expect(await asked(2)).toMatchObject({ chainId: 2, block: 4 })
  expect(view.heads()?.finalized.number).toBe(chain.head.number - BigInt(chain.finalityLag))
  expect(view.heads()?.finalized.number).toBeGreaterThan(before)
})

test('R16: a node that comes to be on another chain is a fault once its newest block is asked for in vain', async () => {
  const { asked, chain, view } = await idle()
  const { block } = chain
  chain.block = async () => null
  chain.chainId = async () => 1
  await asked(1)
  expect(view.faults()).toEqual([`the node is on chain 1, not on ${fakeContracts.chainId}`])
  chain.block = block
  chain.chainId = async () => fakeContracts.chainId
  await asked(1)
  expect(view.faults()).toEqual([])
})
