import { secp256k1 } from '@noble/curves/secp256k1'
import type { Signer } from '#ports'
import { UnavailableError } from '#protocol/errors'
import { completeSignature } from '#protocol/signature'
import { fromHex } from '#protocol/witness'
import { createPipelineWorld, noncesOf, oneCandidate } from '#support/pipeline-world'

function token() {
  const state = { isOut: false, asked: 0 }
  const signing = (key: Signer): Signer => ({
    address: key.address,
    async signDigest(digest) {
      state.asked += 1
      if (state.isOut) throw new UnavailableError('token_gone', 'the token is gone')
      return key.signDigest(digest)
    },
  })
  return { state, signing }
}
const gone = (address: string) =>
  `the key of the executor ${address} does not sign: the token is gone: waiting`

const alone = { executor: { batch: 1 } } as const

describe('a key that does not sign', () => {
  test('its nonce waits for it, is told of, and goes out once it signs', async () => {
    const { state, signing } = token()
    const { world, candidate } = await oneCandidate({ signing })
    state.isOut = true
    await world.turn()
    expect(world.ledger.slots()).toMatchObject([{ nonce: 0, attempts: [] }])
    expect(world.pipeline.faults()).toEqual([gone(world.executor.address)])
    await world.pass(3)
    expect(world.ledger.slots(), 'no second nonce').toMatchObject([{ nonce: 0, attempts: [] }])
    state.isOut = false
    await world.pass(8)
    expect(await world.end(candidate)).toBe('executed')
    expect(world.pipeline.faults()).toEqual([])
    expect(noncesOf(world)).toEqual([0])
  })

  test('what it has signed before is sent again all the same, where a higher fee is due and the node dropped it', async () => {
    const { state, signing } = token()
    const { world, candidate } = await oneCandidate({ signing })
    await world.turn()
    expect(world.ledger.slots()).toMatchObject([{ attempts: [{}] }])
    state.isOut = true
    // A fee that is due for a raise: ten blocks without it.
    for (let blocks = 0; blocks < 11; blocks += 1) {
      world.chain.clearPool()
      world.chain.mine(1)
      world.clock.monotonic += 2_000
      await world.turn()
    }
    world.clock.monotonic += 60_000
    await world.pass(6)
    expect(await world.end(candidate)).toBe('executed')
    expect(noncesOf(world)).toEqual([0])
  })

  test('it is asked once a head, and no other nonce is bound meanwhile', async () => {
    const { state, signing } = token()
    const world = await createPipelineWorld({ signing, config: alone })
    for (const name of ['one', 'two', 'three']) await world.submit(await world.question(name))
    state.isOut = true
    await world.pass(1)
    const bound = world.ledger.slots().length
    const { asked } = state
    await world.submit(await world.question('four'))
    await world.pass(4)
    expect(world.ledger.slots()).toHaveLength(bound)
    expect(state.asked - asked).toBeLessThanOrEqual(5)
    state.isOut = false
    await world.pass(10)
    expect(noncesOf(world).sort()).toEqual([0, 1, 2, 3])
    expect(world.pipeline.faults()).toEqual([])
  })
})

describe("a key whose signatures differ each time, as a token's do", () => {
  const key = new Uint8Array(32).fill(1)
  const signing = ({ address }: Signer): Signer => ({
    address,
    async signDigest(digest) {
      const numbers = secp256k1.sign(digest.slice(2), key, { extraEntropy: true })
      const signature = completeSignature(fromHex(digest), numbers, address)
      if (signature === undefined) throw new Error('it is not the key of the executor')
      return signature
    },
  })
  const tight = { executor: { max_fee_gwei: 22 } }

  test.each(['refused', 'underpriced'] as const)(
    '%s by the node again and again: one transaction of these fees is enough',
    async (kind) => {
      const { world, candidate } = await oneCandidate({ signing, config: tight })
      world.chain.fault('send', kind, { times: 12 })
      const hashes = () =>
        world.ledger.slots().flatMap(({ attempts }) => attempts.map((it) => it.hash))
      await world.turn()
      const first = hashes()
      expect(first).toHaveLength(1)
      for (let tries = 0; tries < 30 && world.chain.taken.length === 0; tries += 1) {
        world.clock.monotonic += 30_000
        await world.pass(1)
      }
      expect(hashes()).toEqual(first)
      await world.pass(6)
      expect(await world.end(candidate)).toBe('executed')
    },
  )
})
