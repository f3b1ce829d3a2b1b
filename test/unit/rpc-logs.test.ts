import { ChainError } from '#ports'
import {
  account,
  chainOf,
  hash,
  hashOf,
  log,
  makeNode,
  type Node,
  noBloom,
  timesAsked,
} from '#support/rpc-model'

/** A bloom in which a bit is set that no filter of these tests has: two nonzero bytes of its own. */
const otherBloom = `0x${'00'.repeat(255)}01`
const filter = (number: bigint, fork = 0) => ({
  fromBlock: number,
  toBlock: number,
  addresses: [account],
  topics: [[hash]],
  blockHash: hashOf(number, fork),
})

function nodeWith(more: { logsBloom?: string; gasUsed?: string }): Node {
  const node = makeNode()
  const whole = node.exchange
  node.exchange = async (calls, timeoutMs) =>
    (await whole(calls, timeoutMs)).map((told) =>
      told !== null && typeof told === 'object' && 'logsBloom' in told
        ? { ...told, ...more }
        : told,
    )
  return node
}

describe('the logs of one block, by its hash', () => {
  test.each([
    ['its bloom excludes them', { logsBloom: otherBloom }],
    ['its bloom is zero and nothing ran in it', { logsBloom: noBloom, gasUsed: '0x0' }],
  ])('%s: nobody is asked', async (_title, more) => {
    const nodes = [nodeWith(more), nodeWith(more)] as const
    const chain = chainOf(nodes)
    await chain.block('latest')
    expect(await chain.logs(filter(100n))).toEqual([])
    expect(nodes.map((node) => timesAsked(node, 'eth_getLogs'))).toEqual([0, 0])
  })

  test.each([
    ['no bloom', {}],
    ['a malformed bloom', { logsBloom: '0x00' }],
    ['a zero bloom beside gas that was used', { logsBloom: noBloom, gasUsed: '0x5208' }],
    ['a zero bloom and no word of gas', { logsBloom: noBloom }],
    ['a bloom that does not exclude them', { logsBloom: `0x${'ff'.repeat(256)}` }],
  ])('R16: %s: the logs are asked for, and counted on', async (_title, more) => {
    const node = nodeWith({ logsBloom: undefined as never, ...more })
    node.answers.eth_getLogs = [log(100n)]
    const chain = chainOf([node])
    await chain.block('latest')
    expect(await chain.logs(filter(100n))).toHaveLength(1)
    expect(node.asked.find(({ method }) => method === 'eth_getLogs')?.params).toEqual([
      { blockHash: hashOf(100n, 0), address: [account], topics: [[hash]] },
    ])
  })

  test('R14: the bloom of another block at that height says nothing', async () => {
    const node = nodeWith({ logsBloom: otherBloom })
    const chain = chainOf([node])
    await chain.block('latest')
    await chain.logs(filter(100n, 1))
    expect(timesAsked(node, 'eth_getLogs')).toBe(1)
  })

  test('R16: a node that once tells a log which its bloom excludes is asked for the logs of every block from then on', async () => {
    const node = nodeWith({ logsBloom: otherBloom })
    const chain = chainOf([node])
    await chain.block('latest')
    expect(await chain.logs(filter(100n))).toEqual([])
    node.answers.eth_getLogs = [log(100n)]
    const { blockHash: _, ...range } = filter(100n)
    await chain.logs({ ...range, fromBlock: 99n })
    expect(await chain.logs(filter(100n))).toHaveLength(1)
    node.head = 101n
    await chain.block('latest')
    const before = timesAsked(node, 'eth_getLogs')
    node.answers.eth_getLogs = []
    await chain.logs(filter(101n))
    expect(timesAsked(node, 'eth_getLogs')).toBe(before + 1)
  })

  test('R14: logs of another block than the one that was asked for are none', async () => {
    const node = makeNode()
    node.answers.eth_getLogs = [log(100n, 7)]
    await expect(chainOf([node]).logs(filter(100n))).rejects.toMatchObject({ kind: 'unavailable' })
  })

  test('a node that takes no hash is asked by number, and its header is read after the logs', async () => {
    const node = makeNode()
    const whole = node.exchange
    node.exchange = async (calls, timeoutMs) =>
      (await whole(calls, timeoutMs)).map((told, index) => {
        const call = calls[index]
        if (call?.method !== 'eth_getLogs') return told
        const isByHash = 'blockHash' in (call.params[0] as object)
        return isByHash ? new ChainError('refused', 'invalid params') : [log(100n)]
      })
    const chain = chainOf([node])
    expect(await chain.logs(filter(100n))).toHaveLength(1)
    node.fork = 3
    await expect(chain.logs(filter(100n))).rejects.toThrow(
      'the node changed its block 100 while its logs were read',
    )
  })
})
