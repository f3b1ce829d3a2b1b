/**
 * How the transaction of a proposal is found: the oracle keeps its time only (domain §4, Request).
 */
import { locateProposal } from '#chain/propose'
import type { BlockHeader, Hex } from '#ports'
import { createFakeChain, type FakeChain } from '#support/fake-chain'
import { ask, questionText, rivalProposes } from '#support/fake-events'
import { fakeContracts, requestOf } from '#support/fake-world'
import { resolveRound } from '#support/resolve-round'

const rival = `0x${'9'.repeat(40)}` as const

function crowded(chain: FakeChain, first: bigint, perSecond: bigint) {
  const timeOf = (number: bigint) =>
    1_800_000_000n + 2n * (number <= first ? number : first + (number - first) / perSecond)
  const { block, logs } = chain
  let reads = 0
  const ranges: (readonly [bigint, bigint])[] = []
  const shown = (header: BlockHeader): BlockHeader => ({
    ...header,
    timestamp: timeOf(header.number),
  })
  chain.block = async (at) => {
    reads += 1
    const header = await block(at)
    return header && shown(header)
  }
  chain.logs = async (filter) => {
    ranges.push([filter.fromBlock, filter.toBlock])
    return logs(filter)
  }
  return { timeOf, shown, ranges, reads: () => reads }
}

async function proposedAt(place: number, perSecond: bigint, after: number) {
  const chain = createFakeChain()
  const questionId: Hex = ask(chain, questionText('Rain?'))
  chain.mine(10)
  const first = chain.head.number + 1n
  const round = await resolveRound(chain, fakeContracts, questionId)
  if (round === undefined) throw new Error('the question is there')
  if (place > 0) chain.mine(place)
  rivalProposes(chain, questionId, rival, 7n)
  chain.mine()
  const at = chain.head
  const [log] = await chain.logs({
    fromBlock: at.number,
    toBlock: at.number,
    addresses: [round.oracle],
  })
  if (after > 0) chain.mine(after)
  const crowd = crowded(chain, first, perSecond)
  chain.world.requests.forEach((request) => {
    if (request.proposer === rival) request.proposalTime = crowd.timeOf(at.number)
  })
  expect(requestOf(chain.world, questionId).proposalTime).toBe(crowd.timeOf(at.number))
  const located = () =>
    locateProposal(chain, round, fakeContracts.signedProposer, crowd.shown(chain.head), undefined)
  return { chain, at, first, crowd, located, transactionHash: log?.transactionHash }
}

test.each([
  [0, 1n, 0],
  [0, 1n, 20],
  [0, 2n, 5],
  [1, 2n, 5],
  [1, 2n, 0],
  [6, 7n, 3],
  [6, 7n, 0],
  [99, 100n, 130],
  [50, 100n, 0],
])(
  'domain §4: in block %i of %s of one second, %i blocks ago, it is found',
  async (place, perSecond, after) => {
    const { located, transactionHash } = await proposedAt(place, BigInt(perSecond), after)
    expect(transactionHash).toBeDefined()
    expect(await located()).toEqual({
      proposer: rival,
      price: '7',
      bySignature: false,
      transactionHash,
    })
  },
)

test('domain §4: only blocks of that time are searched, and never more than 256', async () => {
  const two = await proposedAt(1, 2n, 5)
  await two.located()
  expect(two.crowd.ranges).toEqual([[two.first, two.first + 1n]])
  const endless = await proposedAt(0, 100_000n, 600)
  await endless.located()
  expect(endless.crowd.ranges).toEqual([[endless.first, endless.first + 255n]])
  expect(endless.crowd.reads()).toBeLessThan(40)
})

test('domain §4: a block that the node does not show ends the search there', async () => {
  const { chain, crowd, first, located, transactionHash } = await proposedAt(0, 4n, 10)
  const { block } = chain
  chain.block = async (at) => (at === first + 1n ? null : block(at))
  expect(await located()).toMatchObject({ transactionHash })
  expect(crowd.ranges).toEqual([[first, first]])
})
