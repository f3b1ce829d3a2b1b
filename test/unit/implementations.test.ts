import { encodeFunctionData, keccak256 } from 'viem'
import { implementationSlot } from '#chain/contracts'
import {
  changedImplementations,
  changedText,
  implementationOf,
  implementationsOf,
  oracleVersion,
  proxiesOf,
} from '#chain/implementations'
import { ChainError, type Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { createFakeChain } from '#support/fake-chain'
import { oracleV3Abi } from '#support/whole-abis'

const address = (digit: string): Address => `0x${digit.repeat(40)}`
const [proxy, plain, first, second] = ['1', '2', 'a', 'b'].map(address) as [
  Address,
  Address,
  Address,
  Address,
]
const word = (held: Address): Hex => `0x${'0'.repeat(24)}${held.slice(2)}`

function world() {
  const chain = createFakeChain()
  const { storage, codes } = chain.world
  storage.set(`${proxy}|${implementationSlot}`, word(first))
  codes.set(proxy, '0x3d').set(plain, '0x60').set(first, '0x01').set(second, '0x02')
  return {
    chain,
    at: () => chain.head.number,
    upgrade(to: Address) {
      chain.happen((changed) => changed.storage.set(`${proxy}|${implementationSlot}`, word(to)))
      chain.mine()
    },
  }
}

test('domain §10: a proxy is pinned by its slot and the code there, any other contract by its own code', async () => {
  const { chain, at } = world()
  expect(await implementationOf(chain, proxy, at())).toEqual({
    implementation: first,
    code_hash: keccak256('0x01'),
  })
  const pins = await implementationsOf(chain, [proxy, plain, plain], at())
  expect(pins[plain]).toEqual({ implementation: plain, code_hash: keccak256('0x60') })
  expect(proxiesOf(pins)).toEqual([proxy])
})

test('domain §10: an upgrade is a change that names both; one storage read a contract tells of none', async () => {
  const { chain, at, upgrade } = world()
  const pins = await implementationsOf(chain, [proxy, plain], at())
  chain.calls.clear()
  expect(await changedImplementations(chain, pins, at(), { slotsOnly: true })).toEqual([])
  expect(Object.fromEntries(chain.calls)).toEqual({ storage: 2 })
  upgrade(second)
  const [changed, ...others] = await changedImplementations(chain, pins, at())
  expect(others).toEqual([])
  expect(changed && changedText(changed)).toBe(
    `the contract ${proxy} runs ${second} now, pinned is ${first}`,
  )
  upgrade(first)
  expect(await changedImplementations(chain, pins, at())).toEqual([])
})

test('domain §10: other code at the same implementation is a change too', async () => {
  const { chain, at } = world()
  const pins = await implementationsOf(chain, [proxy, plain], at())
  chain.happen(({ codes }) => codes.set(first, '0x03').set(plain, '0x04'))
  chain.mine()
  const texts = (await changedImplementations(chain, pins, at())).map(changedText)
  expect(texts).toEqual([
    `the code of ${first}, which ${proxy} runs, has changed: its hash is ${keccak256('0x03')}, pinned is ${keccak256('0x01')}`,
    `the code of ${plain} has changed: its hash is ${keccak256('0x04')}, pinned is ${keccak256('0x60')}`,
  ])
})

test('domain §10: the reward of a key that no request has: 0 on version 3, a revert before; a silent node is neither', async () => {
  const { chain, at } = world()
  const asked: Hex[] = []
  const answer = (made: () => Promise<Hex>) => ({
    ...chain,
    call: ({ data }: { data: Hex }) => {
      asked.push(data)
      return made()
    },
  })
  const zero = `0x${'0'.repeat(64)}` as const
  expect(
    await oracleVersion(
      answer(async () => zero),
      proxy,
      at(),
    ),
  ).toBe(3)
  expect(
    await oracleVersion(
      answer(async () => '0x'),
      proxy,
      at(),
    ),
  ).toBe(2)
  const failing = (kind: ChainError['kind']) =>
    answer(async () => {
      throw new ChainError(kind, 'made to fail')
    })
  expect(await oracleVersion(failing('reverted'), proxy, at())).toBe(2)
  await expect(oracleVersion(failing('unavailable'), proxy, at())).rejects.toThrow('made to fail')
  const unused = { abi: oracleV3Abi, functionName: 'getRequestReward' } as const
  const none = `0x${'0'.repeat(40)}` as const
  expect(asked[0]).toBe(encodeFunctionData({ ...unused, args: [none, zero, 0n, '0x'] }))
})
