import fc from 'fast-check'
import { decodeFunctionResult, parseAbi } from 'viem'
import { readContract } from '#chain/reading'
import { type Chain, ChainError, type Hex } from '#ports'

const abi = parseAbi([
  'function amount() view returns (uint256)',
  'function isListed() view returns (bool)',
  'function owner() view returns (address)',
  'function bond() view returns (uint256, bool)',
])
const names = ['amount', 'isListed', 'owner', 'bond'] as const
const answering = (data: Hex) => ({ call: async () => data }) as unknown as Chain

test('property: a contract is read as an ABI library reads it, or refused where that refuses', async () => {
  const word = fc.oneof(
    fc.constantFrom('0'.repeat(64), `${'0'.repeat(63)}1`, `${'0'.repeat(63)}2`, 'f'.repeat(64)),
    fc.uint8Array({ minLength: 32, maxLength: 32 }).map((it) => Buffer.from(it).toString('hex')),
  )
  const answer = fc
    .array(word, { maxLength: 3 })
    .chain((words) => fc.constantFrom(words.join(''), words.join('').slice(0, -2)))
  const theirs = (functionName: (typeof names)[number], data: Hex): unknown => {
    try {
      return decodeFunctionResult({ abi, functionName, data })
    } catch {
      return 'refused'
    }
  }
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...names), answer, async (name, text) => {
      const data: Hex = `0x${text}`
      const ours = await readContract(
        answering(data),
        1n,
        `0x${'1'.repeat(40)}`,
        abi,
        name,
        [],
      ).catch((error: unknown) => {
        if (!(error instanceof ChainError)) throw error
        return error.kind
      })
      expect(ours).toEqual(theirs(name, data))
    }),
  )
})
