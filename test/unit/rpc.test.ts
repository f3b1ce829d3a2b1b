import type { IncomingMessage, ServerResponse } from 'node:http'
import { createChain, type RpcOptions } from '#io/rpc/rpc'
import { chainErrorOf, revertDataOf } from '#io/rpc/rpc-errors'
import type { Chain, ChainErrorKind } from '#ports'
import { safeText } from '#protocol/node-words'
import { serveHttp } from '#support/http-server'

interface Request {
  readonly id: number
  readonly method: string
  readonly params: readonly unknown[]
}
type Answer =
  | { result: unknown }
  | { error: { code: number; message: string; data?: unknown } }
  | undefined
type Handler = (
  body: Request | Request[],
  response: ServerResponse,
  request: IncomingMessage,
) => void

const open: { close(): Promise<unknown> }[] = []
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close()
})

async function node(handler: Handler): Promise<string> {
  const server = await serveHttp((request, body, response) =>
    handler(JSON.parse(body), response, request),
  )
  open.push(server)
  return `${server.url.replace('//', '//user:pass@')}/v2/SECRETKEY?k=SECRETKEY`
}

const answering =
  (answer: (request: Request) => Answer): Handler =>
  (body, response) => {
    const one = (request: Request) => {
      const made = answer(request)
      return made === undefined ? [] : [{ jsonrpc: '2.0', id: request.id, ...made }]
    }
    const answers = Array.isArray(body) ? body.flatMap(one) : one(body)
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify(Array.isArray(body) ? answers.reverse() : (answers[0] ?? {})))
  }

function chainOf(urls: readonly string[], options: RpcOptions = {}): Chain {
  const chain = createChain(urls, options)
  open.push(chain)
  return chain
}

const numbers: Record<string, string> = {
  eth_chainId: '0x89',
  eth_getBalance: '0xff',
  eth_maxPriorityFeePerGas: '0x1',
}
const plain = answering(({ method }) => ({ result: numbers[method] ?? '0x' }))
const account = `0x${'1'.repeat(40)}` as const

test('calls of one moment travel as one batch, and answers are matched by id, not by place', async () => {
  const sizes: number[] = []
  const url = await node((body, response, request) => {
    sizes.push(Array.isArray(body) ? body.length : 1)
    plain(body, response, request)
  })
  const chain = chainOf([url])
  expect(await Promise.all([chain.chainId(), chain.balance(account), chain.tip()])).toEqual([
    137,
    255n,
    1n,
  ])
  expect(sizes).toEqual([3])
})

test('userinfo of a URL becomes a header', async () => {
  const seen: (string | undefined)[] = []
  const url = await node((body, response, request) => {
    seen.push(request.headers.authorization)
    plain(body, response, request)
  })
  await chainOf([url]).chainId()
  expect(seen).toEqual([`Basic ${Buffer.from('user:pass').toString('base64')}`])
})

test('a node that knows no batches is asked one by one from then on', async () => {
  const sizes: number[] = []
  const url = await node((body, response, request) => {
    sizes.push(Array.isArray(body) ? body.length : 1)
    if (!Array.isArray(body)) return plain(body, response, request)
    response.end(
      JSON.stringify({
        jsonrpc: '2.0',
        id: null,
        error: { code: -32600, message: 'batch not supported' },
      }),
    )
  })
  const chain = chainOf([url])
  expect(await Promise.all([chain.chainId(), chain.tip()])).toEqual([137, 1n])
  expect(await Promise.all([chain.chainId(), chain.tip()])).toEqual([137, 1n])
  expect(sizes).toEqual([2, 1, 1, 1, 1])
})

test('an answer without the id of a call fails that call alone', async () => {
  const url = await node(
    answering(({ method }) => (method === 'eth_chainId' ? undefined : { result: '0x1' })),
  )
  const chain = chainOf([url])
  const [lost, found] = await Promise.allSettled([chain.chainId(), chain.tip()])
  expect(lost).toMatchObject({ status: 'rejected', reason: { kind: 'unavailable' } })
  expect(found).toEqual({ status: 'fulfilled', value: 1n })
})

test('blocks, logs and receipts come out lowercase, absent ones as null', async () => {
  const hash = `0x${'AB'.repeat(32)}`
  const log = {
    address: `0x${'CD'.repeat(20)}`,
    topics: [hash],
    data: '0xEF',
    blockNumber: '0x5',
    blockHash: hash,
    transactionHash: hash,
    logIndex: '0x7',
  }
  const results: Record<string, unknown> = {
    eth_getBlockByNumber: {
      number: '0x5',
      hash,
      parentHash: hash,
      timestamp: '0x10',
      baseFeePerGas: '0x3b9aca00',
      extra: true,
    },
    eth_getLogs: [log],
    eth_getTransactionReceipt: {
      transactionHash: hash,
      blockNumber: '0x5',
      blockHash: hash,
      status: '0x1',
      gasUsed: '0x5208',
      logs: [log],
    },
    eth_getTransactionByHash: null,
    eth_getStorageAt: '0xAB',
  }
  const chain = chainOf([await node(answering(({ method }) => ({ result: results[method] })))])
  const lower = hash.toLowerCase() as `0x${string}`
  expect(await chain.block(5n)).toEqual({
    number: 5n,
    hash: lower,
    parentHash: lower,
    timestamp: 16n,
    baseFeePerGas: 1_000_000_000n,
  })
  const expected = {
    address: `0x${'cd'.repeat(20)}`,
    topics: [lower],
    data: '0xef',
    blockNumber: 5n,
    blockHash: lower,
    transactionHash: lower,
    logIndex: 7,
  }
  expect(
    await chain.logs({
      fromBlock: 1n,
      toBlock: 5n,
      addresses: [expected.address as `0x${string}`],
    }),
  ).toEqual([expected])
  expect(await chain.receipt(lower)).toMatchObject({
    status: 'success',
    gasUsed: 21_000n,
    logs: [expected],
  })
  expect(await chain.hasTransaction(lower)).toBe(false)
  expect(await chain.storage(account, lower, 5n)).toBe(`0x${'0'.repeat(62)}ab`)
})

test("a log's block time is taken where a node tells it, and is no reason to refuse the log", async () => {
  const hash = `0x${'ab'.repeat(32)}`
  const log = {
    ...{ address: account, topics: [], data: '0x', blockNumber: '0x5', blockHash: hash },
    ...{ transactionHash: hash, logIndex: '0x0' },
  }
  const told = ['0x10', '0x0', 'soon', null].map((blockTimestamp) => ({ ...log, blockTimestamp }))
  const chain = chainOf([await node(answering(() => ({ result: [...told, log] })))])
  const found = await chain.logs({ fromBlock: 5n, toBlock: 5n, addresses: [account] })
  expect(found.map(({ blockTimestamp }) => blockTimestamp)).toEqual([
    16n,
    ...Array.from({ length: 4 }),
  ])
})

test('R16: an answer about another block, transaction or contract than was asked for, or a count beyond 2^53, is no answer', async () => {
  const hash = `0x${'ab'.repeat(32)}` as const
  const other = `0x${'cd'.repeat(32)}` as const
  const log = {
    address: account,
    topics: [],
    data: '0x',
    blockNumber: '0x5',
    blockHash: hash,
    transactionHash: hash,
    logIndex: '0x0',
  }
  const results: Record<string, unknown> = {
    eth_getBlockByNumber: { number: '0x5', hash, parentHash: hash, timestamp: '0x10' },
    eth_getLogs: [log],
    eth_getTransactionReceipt: {
      transactionHash: hash,
      blockNumber: '0x5',
      blockHash: hash,
      status: '0x2',
      gasUsed: '0x1',
      logs: [],
    },
    eth_getTransactionByHash: { hash, input: '0x' },
    eth_getTransactionCount: '0x20000000000000',
    eth_chainId: '0x20000000000000',
  }
  const chain = chainOf([await node(answering(({ method }) => ({ result: results[method] })))])
  expect(await chain.block(5n)).toMatchObject({ number: 5n })
  expect(await chain.hasTransaction(hash)).toBe(true)
  expect(await chain.logs({ fromBlock: 5n, toBlock: 5n, addresses: [account] })).toHaveLength(1)
  const asked: readonly (() => Promise<unknown>)[] = [
    () => chain.block(6n),
    () => chain.receipt(other),
    () => chain.receipt(hash),
    () => chain.hasTransaction(other),
    () => chain.calldata(other),
    () => chain.logs({ fromBlock: 6n, toBlock: 9n, addresses: [account] }),
    () => chain.logs({ fromBlock: 5n, toBlock: 5n, addresses: [`0x${'2'.repeat(40)}`] }),
    () => chain.transactionCount(account, 'latest'),
    () => chain.chainId(),
  ]
  for (const ask of asked)
    await expect(ask(), String(ask)).rejects.toMatchObject({ kind: 'unavailable' })
})

test('an answer of another shape is no answer', async () => {
  const chain = chainOf([await node(answering(() => ({ result: { number: 5 } })))])
  await expect(chain.block('latest')).rejects.toMatchObject({ kind: 'unavailable' })
  await expect(chain.chainId()).rejects.toMatchObject({ kind: 'unavailable' })
})

const broken: [string, Handler][] = [
  ['HTTP 503', (_body, response) => response.writeHead(503).end('<html>')],
  ['HTTP 429', (_body, response) => response.writeHead(429).end('slow down')],
  ['no JSON', (_body, response) => response.end('<html>')],
  ['a cut body', (_body, response) => response.end('{"jsonrpc":"2.0","id":1,"resu')],
  ['a reset', (_body, response) => response.destroy()],
  [
    'a redirect',
    (_body, response) => response.writeHead(302, { location: 'http://127.0.0.1:1/' }).end(),
  ],
  [
    'a header that it does not know',
    (body, response, request) =>
      answering(() => ({ error: { code: -32000, message: 'header not found' } }))(
        body,
        response,
        request,
      ),
  ],
  [
    'a limit',
    (body, response, request) =>
      answering(() => ({ error: { code: -32005, message: 'limit exceeded' } }))(
        body,
        response,
        request,
      ),
  ],
  [
    'another id',
    (_body, response) =>
      response.end(JSON.stringify({ jsonrpc: '2.0', id: 999_999, result: '0x1' })),
  ],
  ['silence', () => undefined],
  ['an endless body', (_body, response) => response.write(' '.repeat(300_000))],
]
test.each(broken)(
  '%s: reads go to the next node, and alone it is unavailable',
  async (_title, handler) => {
    const options = { timeoutMs: 400, answerBytes: 100_000 }
    const bad = await node(handler)
    const good = await node(plain)
    expect(await chainOf([bad, good], options).chainId()).toBe(137)
    const failure = await chainOf([bad], options)
      .chainId()
      .catch((error: unknown) => error)
    expect(failure).toMatchObject({ name: 'ChainError', kind: 'unavailable' })
    expect(String(failure)).not.toMatch(/SECRETKEY|pass|127\.0\.0\.1/)
  },
)

test('reads stay with the node that answered', async () => {
  let asked = 0
  const bad = await node((_body, response) => {
    asked += 1
    response.writeHead(500).end()
  })
  const chain = chainOf([bad, await node(plain)])
  await chain.tip()
  await chain.tip()
  expect(asked).toBe(1)
})

test('an error that a node is sure of goes to no other node', async () => {
  const sure = await node(
    answering(() => ({ error: { code: 3, message: 'execution reverted', data: '0x756688fe' } })),
  )
  const chain = chainOf([sure, await node(plain)])
  await expect(chain.call({ to: account, data: '0x' })).rejects.toMatchObject({
    kind: 'reverted',
    data: '0x756688fe',
  })
})

test('R5: a connection that is refused names neither host nor URL', async () => {
  const chain = chainOf(['http://user:SECRETKEY@127.0.0.1:9/SECRETKEY'])
  const failure = await chain.chainId().catch((error: unknown) => error)
  expect(failure).toMatchObject({ kind: 'unavailable' })
  expect(`${failure} ${JSON.stringify(failure)}`).not.toMatch(/SECRETKEY|127\.0\.0\.1/)
})

test('what is no URL is refused at once, without being repeated', () => {
  expect(() => createChain([])).toThrow(RangeError)
  expect(() => createChain(['ftp://SECRETKEY'])).toThrow('RPC URL 1 is not an http or https URL')
})

describe('sending (robustness §3)', () => {
  const hash = `0x${'1'.repeat(64)}`
  const refusing = (message: string) =>
    node(answering(() => ({ error: { code: -32000, message } })))

  test('a transaction goes to every node, and one that takes it is enough', async () => {
    let asked = 0
    const counting = await node((body, response, request) => {
      asked += 1
      answering(() => ({ result: hash }))(body, response, request)
    })
    const chain = chainOf([await refusing('nonce too low'), counting, counting])
    expect(await chain.send('0x02')).toBe(hash)
    expect(asked).toBe(2)
  })

  test.each<[string[], ChainErrorKind]>([
    [['nonce too low', 'already known'], 'already_known'],
    [
      ['insufficient funds for gas * price + value', 'replacement transaction underpriced'],
      'replacement_underpriced',
    ],
    [['nonce too low', 'nonce too low'], 'nonce_too_low'],
    [['nonce too low', 'internal error, try again'], 'unavailable'],
  ])('of %j the word that counts is %s', async (messages, kind) => {
    const chain = chainOf(await Promise.all(messages.map(refusing)))
    await expect(chain.send('0x02')).rejects.toMatchObject({ kind })
  })
})

describe('what nodes say', () => {
  test.each<[ChainErrorKind, string]>([
    ['already_known', 'already known'],
    ['already_known', 'transaction already imported'],
    ['already_known', 'AlreadyKnown'],
    ['already_known', 'existing tx with same hash'],
    ['nonce_too_low', 'nonce too low: next nonce 5, tx nonce 3'],
    ['nonce_too_low', 'OldNonce'],
    ['nonce_too_high', 'nonce too high'],
    ['nonce_too_high', 'in-flight transaction limit reached for delegated accounts'],
    ['replacement_underpriced', 'replacement transaction underpriced'],
    ['replacement_underpriced', 'ReplacementNotAllowed'],
    ['underpriced', 'transaction underpriced'],
    [
      'underpriced',
      'transaction gas price below minimum: gas tip cap 1, minimum needed 25000000000',
    ],
    ['underpriced', 'max fee per gas less than block base fee: address 0x1, maxFeePerGas: 1'],
    ['underpriced', 'FeeTooLow'],
    ['insufficient_funds', 'insufficient funds for gas * price + value: balance 0'],
    ['insufficient_funds', 'Insufficient funds for gas * price + value'],
    ['too_much_gas', 'exceeds block gas limit'],
    ['too_much_gas', 'transaction gas limit too high (cap: 16777216, tx: 20000000)'],
    ['too_much_gas', 'tx.gas_limit > block.gas_limit'],
    ['too_much_gas', 'caller gas limit exceeds the block gas limit'],
    ['too_much_gas', 'transaction gas limit (20000000) is greater than the cap (16777216)'],
    ['too_much_gas', "transaction's gas limit 9 exceeds block's gas limit 8"],
    ['too_much_gas', 'GasLimitExceeded, Gas limit: 8, gas limit of rejected tx: 9'],
    ['too_much_gas', 'block gas limit exceeded'],
    ['unavailable', 'Too Many Requests'],
    ['unavailable', 'missing trie node 1234'],
    ['refused', 'intrinsic gas too low'],
    ['refused', 'tx type not supported'],
  ])('%s: %s', (kind, message) => {
    expect(chainErrorOf('eth_sendRawTransaction', { code: -32000, message }).kind).toBe(kind)
  })

  test.each<[string, object, string]>([
    ['geth', { code: 3, message: 'execution reverted', data: '0x756688fe' }, '0x756688fe'],
    ['geth without data', { code: -32000, message: 'execution reverted' }, '0x'],
    [
      'anvil',
      { code: 3, message: 'execution reverted: custom error 0x756688fe', data: '0x756688fe' },
      '0x756688fe',
    ],
    [
      'nethermind',
      { code: -32015, message: 'VM execution error.', data: 'Reverted 0x756688fe' },
      '0x756688fe',
    ],
    [
      'nested',
      { code: -32000, message: 'execution reverted', data: { data: { result: '0x756688FE' } } },
      '0x756688fe',
    ],
    ['out of gas', { code: -32000, message: 'out of gas' }, '0x'],
  ])('a revert as %s tells it', (_title, error, data) => {
    expect(chainErrorOf('eth_call', error)).toMatchObject({ kind: 'reverted', data })
  })

  test.each([
    'EVM error InvalidJump',
    'EVM error: StackOverflow',
    'invalid jump destination',
    'stack limit reached 1024 (1023)',
    'stack underflow (0 <=> 1)',
    'gas uint64 overflow',
    'nonce uint64 overflow',
    'return data out of bounds',
    'write protection',
    'max code size exceeded',
    'max initcode size exceeded: code size 50000 limit 49152',
    'max call depth exceeded',
    'contract address collision',
    'contract creation code storage out of gas',
    'invalid opcode: INVALID',
    'invalid code: must not begin with 0xef',
    'insufficient balance for transfer',
    'INVALID_JUMP_DESTINATION',
    'BadJumpDestination',
    'StackOverflow',
    'VM Exception while processing transaction: invalid opcode',
  ])('%s: the run came to an end, so it is a revert of a call and of an estimate', (message) => {
    for (const method of ['eth_call', 'eth_estimateGas']) {
      expect(chainErrorOf(method, { code: -32000, message })).toMatchObject({
        kind: 'reverted',
        data: '0x',
      })
    }
    expect(chainErrorOf('eth_getCode', { code: -32000, message }).kind).not.toBe('reverted')
  })

  test.each<[ChainErrorKind, string]>([
    ['unavailable', 'header not found'],
    ['unavailable', 'missing trie node 1234 (path ) state 0x12 is not available'],
    ['unavailable', 'execution aborted (timeout = 5s)'],
    ['unavailable', 'EVM error FatalExternalError'],
    ['unavailable', 'request timed out'],
    ['refused', 'method handler crashed'],
    ['refused', 'leveldb: closed'],
    ['refused', 'tracer not found'],
    ['refused', 'something that nobody has seen before'],
  ])('R16: a call is %s where the node itself is in trouble: %s', (kind, message) => {
    for (const method of ['eth_call', 'eth_estimateGas'])
      expect(chainErrorOf(method, { code: -32000, message }).kind).toBe(kind)
  })

  test.each([
    'execution reverted: rate limit exceeded',
    'execution reverted: header not found',
    'execution reverted: nonce too low',
    'VM Exception while processing transaction: reverted with reason string "request timed out"',
    'err: execution reverted: try again (supplied gas 100)',
  ])("R16: a contract that reverts with the words of a node's trouble reverts: %s", (message) => {
    expect(chainErrorOf('eth_call', { code: -32000, message }).kind).toBe('reverted')
    expect(chainErrorOf('eth_call', { code: -32603, message }).kind).toBe('reverted')
  })

  test.each<[number, string]>([
    [-32005, 'query returned more than 10000 results. Try with this block range [0x1, 0x2].'],
    [-32005, 'Limit exceeded'],
    [-32000, 'Block range limit exceeded. See more details'],
    [-32000, 'block range is too wide'],
    [
      -32602,
      'Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range',
    ],
    [-32602, 'query returned more than 10000 results'],
    [-32000, 'too many results'],
    [-32000, 'response size exceeded'],
    [-32600, 'up to a 10 block range'],
    [-32614, 'eth_getLogs is limited to a 10,000 range'],
    [-32701, 'Please specify an address in your request or reduce the block range'],
    [-32000, 'exceed maximum block range: 5000'],
    [-32000, 'query timeout exceeded: too many logs, reduce the range'],
  ])('too many logs at once are asked for in parts: %i %s', (code, message) => {
    expect(chainErrorOf('eth_getLogs', { code, message }).kind).toBe('refused')
  })

  test.each<[number, string]>([
    [-32005, 'daily request count exceeded, request rate limited'],
    [-32005, 'Too Many Requests'],
    [429, 'Your app has exceeded its compute units per second capacity'],
    [-32005, 'project ID request rate exceeded'],
    [-32007, '50/second request limit reached - reduce calls per second'],
    [-32000, 'rate limit exceeded'],
    [-32000, 'block range extends beyond current head block'],
    [
      -32000,
      'One of the blocks specified in filter (fromBlock, toBlock or blockHash) cannot be found.',
    ],
    [-32000, 'request timed out'],
  ])(
    'a node that has had enough, or lacks the blocks, is asked later or another one: %i %s',
    (code, message) => {
      expect(chainErrorOf('eth_getLogs', { code, message }).kind).toBe('unavailable')
    },
  )

  test('a limit on anything but logs stays a limit', () => {
    expect(chainErrorOf('eth_call', { code: -32005, message: 'Limit exceeded' }).kind).toBe(
      'unavailable',
    )
    expect(
      chainErrorOf('eth_call', { code: -32000, message: 'block range limit exceeded' }).kind,
    ).toBe('unavailable')
  })

  // A contract chooses the words of its revert: vitest's own time-out is the guard.
  test.each(['invalid nonce: ', 'nonce ', 'tip', 'replacement', 'a-', 'http', '0x', 'reverted '])(
    'R17: an error of megabytes of %j is read',
    (piece) => {
      const message = piece.repeat(300_000)
      expect(chainErrorOf('eth_call', { code: -32000, message }).message.length).toBeLessThan(250)
      expect(revertDataOf({ data: message })).toBe('0x')
    },
  )

  test('a send never reverts, whatever the node calls it', () => {
    expect(
      chainErrorOf('eth_sendRawTransaction', {
        code: 3,
        message: 'execution reverted',
        data: '0x01',
      }).kind,
    ).toBe('refused')
  })

  test('R5, R20: messages lose URLs, raw transactions and control characters', () => {
    const raw = `0x02${'ab'.repeat(200)}`
    const { message } = chainErrorOf('eth_call', {
      message: `bad https://rpc.example/KEY?a=b ${raw}\u001b[31m\n`,
    })
    expect(message).toBe('eth_call: the node answered an error: “bad [url] [data] [31m ”')
    expect(safeText('x'.repeat(999))).toHaveLength(160)
    expect(revertDataOf({ data: '0x123' })).toBe('0x')
  })
})
