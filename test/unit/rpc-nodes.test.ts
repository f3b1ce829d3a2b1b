import fc from 'fast-check'
import { mayHold, mayMatch } from '#io/rpc/block-logs'
import { ChainError, type Hex } from '#ports'
import { toHex } from '#protocol/witness'
import { createTestClock } from '#support/front'
import {
  account,
  chainOf,
  hash,
  hashOf,
  headerAt,
  log,
  makeNode,
  noBloom,
  receipt,
  settled,
  timesAsked,
  withBloom,
} from '#support/rpc-model'

test('R16: a node on another chain gets no read and no transaction, and comes back once it is on ours', async () => {
  const clock = createTestClock()
  const [wrong, good] = [makeNode(500n), makeNode(100n)]
  wrong.chainId = 1
  const chain = chainOf([wrong, good], clock)
  expect(await chain.block('latest')).toMatchObject({ number: 100n, hash: hashOf(100n, 0) })
  expect(await chain.balance(account)).toBe(1n)
  await chain.send('0x02')
  expect(
    wrong.asked.some(
      ({ method }) => method === 'eth_getBalance' || method === 'eth_sendRawTransaction',
    ),
  ).toBe(false)
  expect(chain.nodes()).toMatchObject([
    { state: 'aside', why: 'it is on chain 1, not on 137' },
    { state: 'healthy' },
  ])
  wrong.chainId = 137
  wrong.head = 100n
  clock.monotonic += 1_000
  await chain.balance(account)
  await settled()
  expect(chain.nodes()).toMatchObject([
    { state: 'healthy', headNumber: 100n },
    { state: 'healthy' },
  ])
})

test('R16: every request asks for the chain id: another machine behind the same URL is found out at once', async () => {
  const node = makeNode()
  const chain = chainOf([node])
  for (let read = 1; read <= 3; read += 1) {
    expect(await chain.balance(account)).toBe(1n)
    expect(timesAsked(node, 'eth_chainId')).toBe(read)
  }
  node.chainId = 1
  await expect(chain.balance(account)).rejects.toThrow('it is on chain 1, not on 137')
  node.chainId = 137
  expect(await chain.balance(account)).toBe(1n)
})

test('E7: a read at a block that the machine behind the URL lacks is asked again until it has it; no other is', async () => {
  const node = makeNode()
  const chain = chainOf([node])
  const lacks = new ChainError('unavailable', 'eth_call: the node answered “header not found”')
  Object.assign(node.answers, { eth_call: lacks, eth_getLogs: lacks, eth_getCode: lacks })
  const back = setTimeout(() => {
    Object.assign(node.answers, { eth_call: '0x2a', eth_getLogs: [], eth_getCode: '0x00' })
  }, 600)
  const call = { to: account, data: '0x' } as const
  const range = { fromBlock: 101n, toBlock: 101n, addresses: [account] }
  const reads = [chain.call(call, 101n), chain.logs(range), chain.code(account, 101n)]
  await expect(chain.call(call, 'latest')).rejects.toMatchObject({ kind: 'unavailable' })
  expect(await Promise.all(reads)).toEqual(['0x2a', [], '0x00'])
  clearTimeout(back)
  node.answers.eth_call = new ChainError('unavailable', 'eth_call: missing trie node')
  await expect(chain.call(call, 1n)).rejects.toThrow('missing trie node')
})

test('contract §2: what is asked is counted by class, chain id included, and HTTP requests beside it', async () => {
  const chain = chainOf([makeNode()])
  await Promise.all([chain.balance(account), chain.transactionCount(account, 'pending')])
  await chain.receipt(hash).catch(() => undefined)
  expect(chain.usage()).toEqual({
    requests: 2,
    methods: { heads: 2, logs: 0, contracts: 0, state: 2, transactions: 1 },
  })
})

test('contract §2: requests to each node are counted by whether it answered, also those that others then answer', async () => {
  const [silent, good] = [makeNode(), makeNode()]
  silent.silent = 'HTTP 503'
  const chain = chainOf([silent, good])
  await chain.block('latest')
  await chain.send('0x02')
  const [first, second] = chain.nodes().map(({ requests }) => requests)
  expect(first).toEqual({ answered: 0, unanswered: expect.any(Number) })
  expect(first?.unanswered).toBeGreaterThanOrEqual(2)
  expect(second).toEqual({ answered: expect.any(Number), unanswered: 0 })
  expect(second?.answered).toBeGreaterThanOrEqual(2)
})

test('R16: all on one other chain: that chain id is told, of ours no head is known, and everything else is unavailable', async () => {
  const nodes = [makeNode(), makeNode()]
  for (const node of nodes) node.chainId = 5
  const chain = chainOf(nodes)
  expect(
    await Promise.all([chain.chainId(), chain.block('latest'), chain.block('finalized')]),
  ).toEqual([5, null, null])
  await expect(chain.balance(account)).rejects.toMatchObject({
    kind: 'unavailable',
    message:
      'no RPC node of 2 can be used (1: it is on chain 5, not on 137; 2: it is on chain 5, not on 137)',
  })
  await expect(chain.send('0x02')).rejects.toMatchObject({ kind: 'unavailable' })
  expect(nodes.map((node) => timesAsked(node, 'eth_sendRawTransaction'))).toEqual([0, 0])
})

test.each([
  [3n, 'healthy'],
  [4n, 'aside'],
])('R16: a node whose head is %s blocks behind is %s', async (lag, state) => {
  const chain = chainOf([makeNode(100n - lag), makeNode(100n)])
  await chain.block('latest')
  expect(chain.nodes()).toMatchObject([{ state }, { state: 'healthy' }])
})

test('R16: where blocks are slow, age counts: one block of 2 s more than is allowed', async () => {
  const chain = chainOf([makeNode(99n), makeNode(100n)], createTestClock(), 1)
  expect(await chain.block('latest')).toMatchObject({ number: 100n })
  expect(chain.nodes()[0]?.why).toBe(
    'its newest block 99 is 1 blocks and 2 s behind that of node 2',
  )
})

test('R16: a head that stands still is found out while the other goes on, whichever is preferred', async () => {
  const clock = createTestClock()
  const [frozen, good] = [makeNode(), makeNode()]
  const chain = chainOf([frozen, good], clock)
  await chain.block('latest')
  good.head = 104n
  clock.monotonic += 2_000
  expect(await chain.block('latest')).toMatchObject({ number: 104n })
  expect(chain.nodes()).toMatchObject([{ state: 'aside', headNumber: 100n }, { state: 'healthy' }])
})

test('R16: a node that says its final block is newer than its newest is out of order', async () => {
  const clock = createTestClock()
  const [odd, good] = [makeNode(), makeNode()]
  odd.answers.eth_getBlockByNumber = headerAt(50n, 0)
  const chain = chainOf([good, odd], clock)
  odd.exchange = async (calls) =>
    calls.map(({ method, params }) =>
      method === 'eth_chainId' ? '0x89' : headerAt(params[0] === 'finalized' ? 60n : 50n, 0),
    )
  await chain.block('latest')
  clock.monotonic += 2_000
  await chain.block('latest')
  expect(chain.nodes()[1]).toMatchObject({
    state: 'aside',
    why: 'its final block 60 is newer than its newest block 50',
  })
})

test('R16: two failures in a row set a node aside; a success in between starts the count again', async () => {
  const [flaky, good] = [makeNode(), makeNode()]
  const chain = chainOf([good, flaky])
  const fail = async () => {
    flaky.silent = 'HTTP 503'
    await chain.receipt(hash).catch(() => undefined)
    flaky.silent = undefined
  }
  good.answers.eth_getTransactionReceipt = null
  flaky.answers.eth_getTransactionReceipt = null
  await fail()
  expect(await chain.receipt(hash)).toBe(null)
  await fail()
  expect(chain.nodes()[1]).toMatchObject({ state: 'healthy', why: 'HTTP 503' })
  await fail()
  expect(chain.nodes()[1]).toMatchObject({ state: 'aside', why: 'HTTP 503' })
})

test('R16: a node aside is looked at in growing pauses of at most ten seconds, costs reads nothing, and comes back by itself', async () => {
  const clock = createTestClock()
  const [dead, good] = [makeNode(), makeNode()]
  dead.silent = 'no response within 5000 ms'
  const chain = chainOf([dead, good], clock)
  await chain.balance(account)
  await chain.block('latest')
  expect(chain.nodes()[0]).toMatchObject({ state: 'aside', why: 'no response within 5000 ms' })
  const looks: number[] = []
  for (let ms = 0; ms < 120_000; ms += 250) {
    const before = dead.asked.length
    clock.monotonic += 250
    expect(await chain.balance(account)).toBe(1n)
    await settled()
    if (dead.asked.length > before) looks.push(clock.monotonic)
  }
  const pauses = looks.slice(1).map((at, index) => at - (looks[index] ?? 0))
  expect(pauses.length).toBeGreaterThan(8)
  expect(Math.max(...pauses)).toBeLessThanOrEqual(10_250)
  expect(pauses[0]).toBeLessThan(2_000)
  expect(pauses.at(-1)).toBeGreaterThan(5_000)
  dead.silent = undefined
  clock.monotonic += 10_250
  await chain.balance(account)
  await settled()
  expect(chain.nodes()[0]).toMatchObject({ state: 'healthy' })
})

test('R16: all aside: unavailable, naming each node and why; the first look after that finds the one that is sound again', async () => {
  const nodes = [makeNode(), makeNode()]
  const chain = chainOf(nodes)
  for (const node of nodes) node.silent = 'HTTP 429'
  await expect(chain.block('latest')).rejects.toMatchObject({ kind: 'unavailable' })
  await expect(chain.block('latest')).rejects.toMatchObject({
    message: 'no RPC node of 2 can be used (1: HTTP 429; 2: HTTP 429)',
  })
  for (const node of nodes.slice(1)) node.silent = undefined
  expect(await chain.block('latest')).toMatchObject({ number: 100n })
  expect(chain.nodes()).toMatchObject([{ state: 'aside' }, { state: 'healthy' }])
})

test('R16: two that disagree about a final block: no read and no send until they agree; that one falls silent settles nothing', async () => {
  const clock = createTestClock()
  const [one, two] = [makeNode(), makeNode()]
  const chain = chainOf([one, two], clock)
  two.fork = 9
  const refusal = {
    kind: 'unavailable',
    message: 'RPC nodes 1 and 2 of 2 disagree about the final block 98',
  }
  await expect(chain.block('latest')).rejects.toMatchObject(refusal)
  await expect(chain.balance(account)).rejects.toMatchObject(refusal)
  await expect(chain.send('0x02')).rejects.toMatchObject(refusal)
  expect(chain.nodes().map(({ state }) => state)).toEqual(['aside', 'aside'])
  two.silent = 'HTTP 503'
  for (const ms of [500, 500, 60_000]) {
    clock.monotonic += ms
    await expect(chain.block('latest')).rejects.toMatchObject(refusal)
  }
  two.silent = undefined
  two.fork = 0
  expect(await chain.block('latest')).toMatchObject({ hash: hashOf(100n, 0) })
  expect(chain.nodes().map(({ state }) => state)).toEqual(['healthy', 'healthy'])
})

test('heads at different heights are compared at the lower final block', async () => {
  const [one, two] = [makeNode(102n), makeNode(100n)]
  const chain = chainOf([one, two])
  expect(await chain.block('latest')).toMatchObject({ number: 102n })
  const [ahead, other] = [makeNode(102n), makeNode(100n)]
  other.fork = 9
  await expect(chainOf([ahead, other]).block('latest')).rejects.toMatchObject({
    message: expect.stringContaining('block 98'),
  })
})

test('of three, the one that stands alone is set aside, and its evidence stays although it falls silent', async () => {
  const nodes = [makeNode(), makeNode(), makeNode()] as const
  nodes[0].fork = 9
  const chain = chainOf(nodes)
  expect(await chain.block('latest')).toMatchObject({ hash: hashOf(100n, 0) })
  expect(chain.nodes()).toMatchObject([
    { state: 'aside', why: 'its block 98 differs from that of the other nodes' },
    { state: 'healthy' },
    { state: 'healthy' },
  ])
})

test('the other fork shown by a node that turns out to be on another chain does not stop the honest one', async () => {
  const clock = createTestClock()
  const [good, bad] = [makeNode(), makeNode()]
  bad.fork = 9
  const chain = chainOf([good, bad], clock)
  await expect(chain.block('latest')).rejects.toMatchObject({ kind: 'unavailable' })
  bad.chainId = 1
  clock.monotonic += 500
  await chain.block('latest').catch(() => undefined)
  expect(await chain.block('latest')).toMatchObject({ hash: hashOf(100n, 0) })
})

test('heads that are read together come from one node, though only one of them failed', async () => {
  const [half, good] = [makeNode(101n), makeNode(100n)]
  const chain = chainOf([half, good])
  await chain.block('latest')
  const whole = half.exchange
  half.exchange = async (calls, timeoutMs) =>
    (await whole(calls, timeoutMs)).map((told, place) =>
      calls[place]?.params[0] === 'finalized'
        ? new ChainError('unavailable', 'limit exceeded')
        : told,
    )
  good.head = 102n
  const [latest, finalized] = await Promise.all([chain.block('latest'), chain.block('finalized')])
  expect([latest?.number, finalized?.number]).toEqual([102n, 100n])
})

test('when it takes over, the head does not go back, and goes on as soon as it has caught up', async () => {
  const [first, second] = [makeNode(102n), makeNode(100n)]
  const chain = chainOf([first, second])
  expect(await chain.block('latest')).toMatchObject({ number: 102n })
  first.silent = 'HTTP 503'
  expect(await chain.block('latest')).toMatchObject({ number: 102n, hash: hashOf(102n, 0) })
  second.head = 103n
  expect(await chain.block('latest')).toMatchObject({ number: 103n })
})

test("R14: the same node's own word that blocks were undone counts, and another's after a while", async () => {
  const clock = createTestClock()
  const [first, second] = [makeNode(102n), makeNode(102n)]
  const chain = chainOf([first, second], clock)
  await chain.block('latest')
  first.head = 101n
  expect(await chain.block('latest')).toMatchObject({ number: 101n })
  first.silent = 'HTTP 503'
  second.head = 100n
  expect(await chain.block('latest')).toMatchObject({ number: 101n })
  clock.monotonic += 10_000
  expect(await chain.block('latest')).toMatchObject({ number: 100n })
})

test('a block or state that it does not have yet is asked of the other, and is no failure of its own', async () => {
  const [behind, ahead] = [makeNode(99n), makeNode(100n)]
  behind.answers.eth_call = new ChainError(
    'unavailable',
    'eth_call: the node answered: header not found',
  )
  const chain = chainOf([behind, ahead])
  ahead.answers.eth_call = '0x01'
  for (let times = 0; times < 4; times += 1)
    expect(await chain.call({ to: account, data: '0x' }, 100n)).toBe('0x01')
  expect(await chain.block(100n)).toMatchObject({ number: 100n })
  expect(chain.nodes().map(({ state }) => state)).toEqual(['healthy', 'healthy'])
})

test('robustness §3: a receipt and a transaction that one node denies are found at the other', async () => {
  const [denying, good] = [makeNode(), makeNode()]
  denying.answers = { eth_getTransactionReceipt: null, eth_getTransactionByHash: null }
  good.answers = { eth_getTransactionReceipt: receipt, eth_getTransactionByHash: { hash } }
  const chain = chainOf([denying, good])
  expect(await chain.receipt(hash)).toMatchObject({ transactionHash: hash, status: 'success' })
  expect(await chain.hasTransaction(hash)).toBe(true)
})

test('robustness §3: null from all is null; while a healthy node does not answer, nothing is known', async () => {
  const [one, two] = [makeNode(), makeNode()]
  for (const node of [one, two])
    node.answers = { eth_getTransactionReceipt: null, eth_getTransactionByHash: null }
  const chain = chainOf([one, two])
  expect(await chain.receipt(hash)).toBe(null)
  expect(await chain.hasTransaction(hash)).toBe(false)
  two.silent = 'HTTP 502'
  await expect(chain.receipt(hash)).rejects.toMatchObject({
    kind: 'unavailable',
    message: 'RPC node 2 of 2: HTTP 502',
  })
})

test('R15: of transaction counts the lowest counts, final or latest: one that is too high would free or skip a nonce', async () => {
  const [liar, good] = [makeNode(), makeNode()]
  liar.answers.eth_getTransactionCount = '0x9'
  good.answers.eth_getTransactionCount = '0x4'
  for (const nodes of [
    [liar, good],
    [good, liar],
  ]) {
    const chain = chainOf(nodes)
    expect(await chain.transactionCount(account, 'finalized')).toBe(4)
    expect(await chain.transactionCount(account, 'latest')).toBe(4)
  }
})

const filter = { fromBlock: 100n, toBlock: 100n, addresses: [account], topics: [[hash]] }

test('what the bloom does not exclude is asked of another node; what that one finds counts, and the first is set aside', async () => {
  const [silent, good] = [makeNode(), makeNode()]
  good.answers.eth_getLogs = [log(100n)]
  const chain = chainOf([silent, good])
  await chain.block('latest')
  expect(await chain.logs(filter)).toMatchObject([{ blockNumber: 100n, address: account }])
  expect(chain.nodes()[0]).toMatchObject({
    state: 'aside',
    why: 'it left out logs of blocks 100 to 100',
  })
})

test('what the bloom excludes is not asked again', async () => {
  const [first, second] = [makeNode(), makeNode()]
  const chain = chainOf([first, second])
  for (const node of [first, second]) node.exchange = withBloom(node, noBloom)
  await chain.block('latest')
  expect(await chain.logs(filter)).toEqual([])
  expect(timesAsked(second, 'eth_getLogs')).toBe(0)
})

test('a log that the known header excludes makes nobody right: unavailable', async () => {
  const [honest, inventing] = [makeNode(), makeNode()]
  const chain = chainOf([honest, inventing])
  await chain.block('latest')
  inventing.answers.eth_getLogs = [log(100n, 9)]
  await expect(chain.logs(filter)).rejects.toMatchObject({
    message: 'RPC nodes 1 and 2 of 2 disagree about the logs of blocks 100 to 100',
  })
  expect(chain.nodes().map(({ state }) => state)).toEqual(['healthy', 'healthy'])
})

test('a node that does not have the block yet has no say, though it answers with an empty list or an error', async () => {
  const [first, behind] = [makeNode(100n), makeNode(99n)]
  const chain = chainOf([first, behind])
  await chain.block('latest')
  expect(await chain.logs(filter)).toEqual([])
  behind.answers.eth_getLogs = new ChainError(
    'unavailable',
    'eth_getLogs: the node answered: header not found',
  )
  expect(await chain.logs(filter)).toEqual([])
  expect(chain.nodes().map(({ state }) => state)).toEqual(['healthy', 'healthy'])
})

test("the bloom of a real block holds its log's address and topic, and excludes others", () => {
  const address = '0x5fbdb2315678afecb367f032d93f642f64180aa3'
  const topic: Hex = `0x${'ab'.repeat(32)}`
  // As anvil made it for a block with this one log
  const bytes = new Uint8Array(256)
  for (const [at, value] of [
    [88, 4],
    [99, 64],
    [155, 2],
    [195, 64],
    [238, 8],
    [245, 1],
  ] as const)
    bytes[at] = value
  const bloom = toHex(bytes)
  expect([mayHold(bloom, address), mayHold(bloom, topic), mayHold(bloom, account)]).toEqual([
    true,
    true,
    false,
  ])
  expect(mayMatch(bloom, { addresses: [account, address], topics: [[hash, topic], null] })).toBe(
    true,
  )
  expect(mayMatch(bloom, { addresses: [address], topics: [hash] })).toBe(false)
  expect(mayMatch(bloom, { addresses: [account] })).toBe(false)
  expect(mayHold('0x00', account)).toBe(true)
})

test('nodes aside are handed the transaction too, are not waited for, and only their acceptance counts', async () => {
  const clock = createTestClock()
  const [good, dead] = [makeNode(), makeNode()]
  const chain = chainOf([good, dead], clock)
  dead.silent = 'no response'
  await chain.block('latest')
  clock.monotonic += 2_000
  await chain.block('latest')
  expect(chain.nodes()[1]).toMatchObject({ state: 'aside' })
  dead.exchange = (calls) => {
    dead.asked.push(...calls)
    return new Promise(() => undefined)
  }
  expect(await chain.send('0x02')).toBe(hashOf(7n, 0))
  expect(timesAsked(dead, 'eth_sendRawTransaction')).toBe(1)
  good.answers.eth_sendRawTransaction = new ChainError('already_known', 'known')
  await expect(chain.send('0x02')).rejects.toMatchObject({ kind: 'already_known' })
  good.answers.eth_sendRawTransaction = new ChainError('nonce_too_low', 'low')
  dead.exchange = async () => {
    throw new ChainError('unavailable', 'no response')
  }
  await expect(chain.send('0x02')).rejects.toMatchObject({ kind: 'nonce_too_low' })
  dead.exchange = async () => [hashOf(8n, 0)]
  // R3: a node aside may be stuck at a block before that nonce was used.
  await expect(chain.send('0x02')).rejects.toMatchObject({ kind: 'nonce_too_low' })
  good.answers.eth_sendRawTransaction = new ChainError('refused', 'no')
  expect(await chain.send('0x02')).toBe(hashOf(8n, 0))
})

test('R16: whatever one of two nodes does, a head that is told is one of the honest chain, and all sound means service at the next look', async () => {
  const state = fc.record({
    chainId: fc.constantFrom(137, 137, 137, 1),
    behind: fc.constantFrom(0n, 0n, 1n, 3n, 4n, 50n),
    silent: fc.constantFrom(undefined, undefined, undefined, 'HTTP 503'),
    fork: fc.constantFrom(0, 0, 0, 0, 9),
    waitMs: fc.constantFrom(250, 500, 2_000, 11_000),
    grows: fc.constantFrom(0n, 1n, 2n),
  })
  await fc.assert(
    fc.asyncProperty(
      fc.array(state, { minLength: 1, maxLength: 12 }),
      fc.boolean(),
      async (steps, isFirst) => {
        const clock = createTestClock()
        const [honest, liar] = [makeNode(100n), makeNode(100n)]
        const chain = chainOf(isFirst ? [liar, honest] : [honest, liar], clock)
        await chain.block('latest')
        let isContradicted = false
        for (const { chainId, behind, silent, fork, waitMs, grows } of steps) {
          clock.monotonic += waitMs
          honest.head += grows
          Object.assign(liar, { chainId, head: honest.head - behind, silent, fork })
          clock.monotonic += 2_000
          const head = await chain.block('latest').catch((error: unknown) => error)
          if (head instanceof ChainError) expect(head.kind).toBe('unavailable')
          else expect(head).toMatchObject({ hash: expect.stringMatching(/^0x0000/) })
          // A contradiction stays until it is withdrawn; silence does not withdraw it.
          if (silent === undefined) isContradicted = fork !== 0
          if (!isContradicted) expect(head).not.toBeInstanceOf(ChainError)
          await settled()
        }
        Object.assign(liar, { chainId: 137, head: honest.head, silent: undefined, fork: 0 })
        clock.monotonic += 2_000
        expect(await chain.block('latest')).toMatchObject({ number: honest.head })
        clock.monotonic += 11_000
        await chain.block('latest')
        await settled()
        expect(chain.nodes().map(({ state }) => state)).toEqual(['healthy', 'healthy'])
      },
    ),
    { numRuns: 300 },
  )
})
