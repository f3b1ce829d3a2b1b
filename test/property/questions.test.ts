import fc from 'fast-check'
import { logRanges } from '#chain/log-ranges'
import { type Fact, roundFactsOf, scanFacts } from '#client/questions/listing'
import { ChainError } from '#ports'
import { sha256 } from '#support/client-world'
import {
  ask,
  createFakeChain,
  dispute,
  type FakeChain,
  questionText,
  rivalProposes,
} from '#support/fake-chain'
import { adapter, fakeContracts, requestOf } from '#support/fake-world'
import { SimFiles } from '#support/sim-files'

const filter = { addresses: [], topics: [] }

test('domain §10: ranges cover every block once and in order, whatever a node refuses', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 0, max: 5_000 }),
      fc.integer({ min: 0, max: 60_000 }),
      fc.integer({ min: 1, max: 30_000 }),
      fc.array(fc.integer({ min: 0, max: 200 }), { maxLength: 8 }),
      async (start, length, most, silences) => {
        const silent = new Set(silences)
        let calls = 0
        const chain = {
          async logs({ fromBlock, toBlock }: { fromBlock: bigint; toBlock: bigint }) {
            if (silent.has(calls++) && toBlock > fromBlock) throw new ChainError('unavailable', '')
            if (toBlock - fromBlock + 1n > BigInt(most)) throw new ChainError('refused', '')
            return []
          },
        }
        const [from, to] = [BigInt(start), BigInt(start + length)]
        let next = from
        try {
          for await (const range of logRanges(chain, filter, { from, to })) {
            expect(range.from).toBe(next)
            expect(range.to).toBeGreaterThanOrEqual(range.from)
            next = range.to + 1n
          }
        } catch (error) {
          // Silent too often in a row: nothing is taken for read that was not.
          expect(error).toMatchObject({ kind: 'unavailable' })
          return
        }
        expect(next).toBe(to + 1n)
      },
    ),
    { numRuns: 100 },
  )
})

test('facts in any order, and twice, tell the same rounds', () => {
  const place = { oracle: fakeContracts.oracles[0], requester: adapter } as const
  const fact = fc.record({
    block: fc.integer({ min: 1, max: 20 }),
    index: fc.integer({ min: 0, max: 5 }),
    kind: fc.constantFrom('RequestPrice', 'ProposePrice', 'DisputePrice', 'Settle'),
    text: fc.constantFrom('a', 'b').map((digit) => `0x${digit.repeat(64)}`),
    timestamp: fc.constantFrom('1', '2'),
  })
  fc.assert(
    fc.property(
      fc.uniqueArray(fact, { selector: ({ block, index }) => block * 10 + index }),
      fc.integer(),
      (some, turn) => {
        const facts = some.map((one) => ({
          ...{ ...place, ...one, identifier: `0x${'1'.repeat(64)}` },
        })) as Fact[]
        const at = facts.length === 0 ? 0 : Math.abs(turn) % facts.length
        const turned = [...facts.slice(at), ...facts.slice(0, at), ...facts.slice(0, 3)]
        expect(roundFactsOf(turned, fakeContracts)).toEqual(roundFactsOf(facts, fakeContracts))
      },
    ),
  )
})

const act = fc.oneof(
  fc.record({ kind: fc.constant('ask' as const), question: fc.integer({ min: 0, max: 5 }) }),
  fc.record({ kind: fc.constant('propose' as const), question: fc.integer({ min: 0, max: 5 }) }),
  fc.record({ kind: fc.constant('dispute' as const), question: fc.integer({ min: 0, max: 5 }) }),
  fc.record({ kind: fc.constant('mine' as const), count: fc.integer({ min: 1, max: 6 }) }),
  fc.record({ kind: fc.constant('reorg' as const), depth: fc.integer({ min: 1, max: 6 }) }),
  fc.record({ kind: fc.constant('list' as const), blocks: fc.integer({ min: 1, max: 60 }) }),
)

test('with a cursor, through reorganisations, nothing open is missed and nothing else is open', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(act, { minLength: 5, maxLength: 40 }), async (acts) => {
      const chain = createFakeChain()
      const files = new SimFiles().process()
      const asked = new Map<number, `0x${string}`>()
      const stateOf = (id: `0x${string}`) => {
        try {
          return requestOf(chain.world, id).state
        } catch {
          return undefined
        }
      }
      for (const one of [...acts, { kind: 'list' as const, blocks: 60 }]) {
        if (one.kind === 'mine') chain.mine(one.count)
        else if (one.kind === 'reorg') {
          const depth = Math.min(one.depth, Number(chain.head.number) - 1)
          // Deeper than final blocks a chain does not go; the cursor must see it all the same.
          if (depth > 0) chain.reorg(depth, { lost: true })
        } else if (one.kind === 'list') await compare(chain, files, asked, one.blocks)
        else {
          const id = asked.get(one.question)
          const state = id && stateOf(id)
          if (one.kind === 'ask' && state === undefined) {
            asked.set(one.question, ask(chain, questionText(`Question ${one.question}`)))
            chain.mine()
          } else if (id !== undefined && one.kind === 'propose' && state === 1) {
            rivalProposes(chain, id, `0x${'9'.repeat(40)}`)
            chain.mine()
          } else if (id !== undefined && one.kind === 'dispute' && state === 2) {
            dispute(chain, id)
            chain.mine()
          }
        }
      }
    }),
    { numRuns: 60 },
  )
})

async function compare(
  chain: FakeChain,
  files: ReturnType<SimFiles['process']>,
  asked: ReadonlyMap<number, string>,
  blocks: number,
): Promise<void> {
  const since = chain.head.timestamp - 2n * BigInt(blocks)
  const { facts, from } = await scanFacts(
    { chain, contracts: fakeContracts, files, hash: sha256, home: '/home' },
    since < 0n ? 0n : since,
  )
  const { rounds } = roundFactsOf(facts, fakeContracts)
  const listed = rounds
    .filter(({ state, openedAt }) => state === 'requested' && (openedAt ?? 0) >= Number(from))
    .map(({ questionId, timestamp }) => `${questionId} ${timestamp}`)
  expect(new Set(listed).size).toBe(listed.length)
  expect([...listed].sort()).toEqual((await openSince(chain, asked, from)).sort())
}

async function openSince(
  chain: FakeChain,
  asked: ReadonlyMap<number, string>,
  from: bigint,
): Promise<string[]> {
  const { world } = chain
  const first = (await chain.block(from))?.timestamp ?? chain.head.timestamp + 1n
  return [...asked.values()].flatMap((id) => {
    const question = world.questions.get(id as `0x${string}`)
    if (question === undefined || question.timestamp < first) return []
    return requestOf(world, id as `0x${string}`).state === 1 ? [`${id} ${question.timestamp}`] : []
  })
}
