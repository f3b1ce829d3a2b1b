/**
 * Fuzzed answers of RPC nodes: to the transport, and through it to view, pipeline and executor (R3,
 * R15, R16, T9).
 */
import fc from 'fast-check'
import { chainOver, createChain } from '#io/rpc/rpc'
import { type Chain, ChainError } from '#ports'
import { argvOf } from '#support/argv'
import { figures, runs } from '#support/campaign'
import { fakeContracts } from '#support/fake-world'
import { broken, chainNode } from '#support/fuzz/chain-node'
import { type Edit, edited, editedBytes, editsUpTo } from '#support/fuzz/mutate'
import { serveHttp } from '#support/http-server'
import { createPipelineWorld, noncesOf, proposals } from '#support/pipeline-world'
import { hashOf, headerAt, log, receipt } from '#support/rpc-model'
import { seededRandom } from '#support/sim-files'

interface Asked {
  readonly id: number
  readonly method: string
  readonly params: readonly unknown[]
}
interface Item {
  readonly id?: unknown
  readonly result?: unknown
  readonly error?: unknown
}

const account = `0x${'1'.repeat(40)}` as const
const transaction = hashOf(7n, 0)
const answerBytes = 64 * 1024

const soundResult = ({ method }: Asked): unknown => {
  switch (method) {
    case 'eth_getBlockByNumber':
      return headerAt(100n, 0)
    case 'eth_getLogs':
      return [log(5n), log(6n)]
    case 'eth_getTransactionReceipt':
      return { ...receipt, transactionHash: transaction, logs: [log(5n)] }
    case 'eth_getTransactionByHash':
      return { hash: transaction, input: '0xabcd' }
    case 'eth_call':
    case 'eth_getCode':
      return `0x${'00'.repeat(31)}2a`
    case 'eth_sendRawTransaction':
      return transaction
    default:
      return '0x2A'
  }
}

const questions: readonly {
  readonly method: string
  ask(chain: Chain): Promise<unknown>
  fits(value: never, result: never): boolean
}[] = [
  {
    method: 'eth_chainId',
    ask: (chain) => chain.chainId(),
    fits: (value: number, result: string) => isCount(value, result),
  },
  {
    method: 'eth_getBalance',
    ask: (chain) => chain.balance(account),
    fits: (value: bigint, result: string) => isQuantity(result) && BigInt(result) === value,
  },
  {
    method: 'eth_estimateGas',
    ask: (chain) => chain.estimateGas({ to: account, data: '0x' }),
    fits: (value: bigint, result: string) => isQuantity(result) && BigInt(result) === value,
  },
  { method: 'eth_getCode', ask: (chain) => chain.code(account), fits: isHexOf },
  { method: 'eth_call', ask: (chain) => chain.call({ to: account, data: '0x' }), fits: isHexOf },
  {
    method: 'eth_getTransactionCount',
    ask: (chain) => chain.transactionCount(account, 'latest'),
    fits: (value: number, result: string) => isCount(value, result),
  },
  {
    method: 'eth_getBlockByNumber',
    ask: (chain) => chain.block(100n),
    fits: (value: Awaited<ReturnType<Chain['block']>>, result: Record<string, string> | null) =>
      result == null
        ? value === null
        : value !== null &&
          value.number === 100n &&
          isBytes32(result.hash) &&
          result.hash?.toLowerCase() === value.hash &&
          isQuantity(result.timestamp) &&
          BigInt(result.timestamp) === value.timestamp,
  },
  {
    method: 'eth_getLogs',
    ask: (chain) => chain.logs({ fromBlock: 5n, toBlock: 6n, addresses: [account] }),
    fits: (value: Awaited<ReturnType<Chain['logs']>>, result: Record<string, string>[]) =>
      Array.isArray(result) &&
      value.length === result.length &&
      value.every((one, at) => {
        const told = result[at]
        return (
          isCount(one.logIndex, told?.logIndex) &&
          isBytes32(told?.transactionHash) &&
          told?.transactionHash.toLowerCase() === one.transactionHash &&
          told?.data?.toLowerCase() === one.data &&
          isAddress(told?.address)
        )
      }),
  },
  {
    method: 'eth_getTransactionReceipt',
    ask: (chain) => chain.receipt(transaction),
    fits: (value: Awaited<ReturnType<Chain['receipt']>>, result: Record<string, string> | null) =>
      result == null
        ? value === null
        : value?.transactionHash === transaction &&
          /^0x0*[01]$/.test(result.status ?? '') &&
          (BigInt(result.status ?? 0) === 1n) === (value.status === 'success'),
  },
  {
    method: 'eth_getTransactionByHash',
    ask: (chain) => chain.hasTransaction(transaction),
    fits: (value: boolean, result: Record<string, string> | null) =>
      result == null ? !value : value && result.hash?.toLowerCase() === transaction,
  },
  {
    method: 'eth_getStorageAt',
    ask: (chain) => chain.storage(account, transaction),
    fits: (value: string, result: string) =>
      isQuantity(result) && BigInt(result) === BigInt(value) && isBytes32(value),
  },
  {
    method: 'eth_sendRawTransaction',
    ask: (chain) => chain.send('0x02'),
    fits: (value: string, result: string) => isBytes32(result) && result.toLowerCase() === value,
  },
]

const isQuantity = (text: unknown): text is string =>
  typeof text === 'string' && /^0x[0-9a-fA-F]{1,64}$/.test(text)
const isBytes32 = (text: unknown): text is string =>
  typeof text === 'string' && /^0x[0-9a-fA-F]{64}$/.test(text)
const isAddress = (text: unknown): text is string =>
  typeof text === 'string' && /^0x[0-9a-fA-F]{40}$/.test(text)
const isCount = (value: number, text: unknown): boolean =>
  isQuantity(text) && BigInt(text) === BigInt(value) && Number.isSafeInteger(value)
function isHexOf(value: string, result: string): boolean {
  return (
    typeof result === 'string' &&
    /^0x([0-9a-fA-F]{2})*$/.test(result) &&
    result.toLowerCase() === value
  )
}

interface ReplyDraw {
  readonly how: number
  readonly edits: readonly Edit[]
  readonly pick: number
  readonly asked: readonly number[]
}
const replyDraws: fc.Arbitrary<ReplyDraw> = fc.record({
  how: fc.nat(255),
  edits: editsUpTo(3, 1),
  pick: fc.nat(4_095),
  asked: fc.uniqueArray(fc.nat(questions.length - 1), { minLength: 1, maxLength: 4 }),
})

const edges = argvOf`0x0 0x1 0x64 0x1fffffffffffff 0x20000000000000 0xffffffffffffffff
  0x${'f'.repeat(64)} 0x${'f'.repeat(65)} 0x 0x00 -0x1`
const words = [
  'execution reverted',
  'nonce too low',
  'header not found',
  'too many requests',
  '\u001b[31m',
  'x'.repeat(90_000),
  '',
]

function replyOf(
  asked: readonly Asked[],
  isBatch: boolean,
  { how, edits, pick }: ReplyDraw,
): Uint8Array<ArrayBuffer> {
  const items: Item[] = asked.map((one) => ({
    jsonrpc: '2.0',
    id: one.id,
    result: soundResult(one),
  }))
  const encoder = new TextEncoder()
  const write = (value: unknown) => encoder.encode(JSON.stringify(value) ?? '')
  const whole = isBatch ? items : items[0]
  const at = pick % items.length
  const chosen = items[at] as Item
  switch (how % 16) {
    case 0:
      return write(whole)
    case 1:
      return write(isBatch ? items.toReversed() : [whole])
    case 2:
      return write(items.slice(1))
    case 3:
      return write(
        items.map((item, index) =>
          index === at
            ? {
                ...item,
                id: [String(item.id), null, 0, -1, 1.5, { id: 1 }, Number(item.id) + 1][pick % 7],
              }
            : item,
        ),
      )
    case 4:
      return write([...items, { ...chosen, result: edges[pick % edges.length] }])
    case 5:
    case 6:
      return write(
        items.map((item, index) =>
          index === at ? { ...item, result: edges[pick % edges.length] } : item,
        ),
      )
    case 7:
      return write(
        items.map((item, index) =>
          index === at
            ? {
                ...item,
                error: {
                  code: [3, -32000, 'x', -32005][pick % 4],
                  message: words[pick % words.length],
                  data: pick % 3 === 0 ? { data: { data: '0xzz' } } : `0x${'ab'.repeat(pick)}`,
                },
              }
            : item,
        ),
      )
    case 8:
      return write({
        jsonrpc: '2.0',
        id: null,
        error: { code: -32600, message: words[pick % words.length] },
      })
    case 9:
      return encoder.encode(`${'['.repeat(pick * 3)}${']'.repeat(pick * 3)}`)
    case 10:
      return encoder.encode(JSON.stringify(whole) + ' '.repeat(answerBytes))
    case 11:
      return editedBytes(write(whole), edits)
    default: {
      const results = edited(
        items.map(({ result }) => result),
        edits,
      )
      const list = Array.isArray(results) ? results : [results]
      const changed = items.map((item, index) => ({ ...item, result: list[index] }))
      return how % 16 === 15 ? write(edited(changed, edits)) : write(isBatch ? changed : changed[0])
    }
  }
}

let draw: ReplyDraw
let said: Item[] = []
let methods = new Map<number, string>()
let node: Awaited<ReturnType<typeof serveHttp>>
beforeAll(async () => {
  node = await serveHttp((_request, text, response) => {
    const body = JSON.parse(text) as Asked | Asked[]
    const asked = [body].flat()
    for (const one of asked) methods.set(one.id, one.method)
    if (draw.how > 250) return response.destroy()
    const bytes = replyOf(asked, Array.isArray(body), draw)
    try {
      const value: unknown = JSON.parse(new TextDecoder().decode(bytes))
      for (const item of [value].flat())
        if (typeof item === 'object' && item !== null) said.push(item as Item)
    } catch {
      // No JSON says nothing.
    }
    response.statusCode =
      draw.how > 240 ? ([429, 500, 503, 401, 302, 204][draw.pick % 6] as number) : 200
    response.setHeader('content-type', draw.pick % 9 === 0 ? 'text/html' : 'application/json')
    return response.end(bytes)
  })
})
afterAll(() => node.close())

test('R16, T9: what a node says in a fuzzed reply is believed only where it stands under our id and in the shape of the call; all else is a ChainError', async () => {
  let [chain, uses, told, refused] = [createChain([node.url], { answerBytes }), 0, 0, 0]
  const closing: Promise<void>[] = []
  await fc.assert(
    fc.asyncProperty(replyDraws, async (drawn) => {
      draw = drawn
      said = []
      methods = new Map()
      // A node that knows no batches is never sent one again: most runs need one that does.
      if (++uses % 5 === 0) {
        closing.push(chain.close())
        chain = createChain([node.url], { answerBytes })
      }
      const asked = drawn.asked.map((at) => questions[at] as (typeof questions)[number])
      const outcomes = await Promise.allSettled(asked.map((question) => question.ask(chain)))
      for (const [at, outcome] of outcomes.entries()) {
        const { method, fits } = asked[at] as (typeof questions)[number]
        if (outcome.status === 'rejected') {
          refused += 1
          if (!(outcome.reason instanceof ChainError)) throw outcome.reason
          continue
        }
        told += 1
        const own = said.filter(
          ({ id, error }) => typeof id === 'number' && methods.get(id) === method && error == null,
        )
        if (!own.some(({ result }) => fits(outcome.value as never, (result ?? null) as never))) {
          throw new Error(
            `${method} gave ${String(JSON.stringify(outcome.value, (_, value) => (typeof value === 'bigint' ? `${value}n` : value)))}, the node said ${JSON.stringify(said).slice(0, 600)}`,
          )
        }
      }
    }),
    runs(4_000),
  )
  await Promise.all([...closing, chain.close()])
  expect(told).toBeGreaterThan(uses / 4)
  expect(refused).toBeGreaterThan(uses / 4)
  figures('fuzz-rpc, replies', { replies: uses, believed: told, refused })
})

test('R3, R15, R16, T9: answers that no sound node gives make view, pipeline and executor wait, never fail a candidate, and leave one nonce a round', async () => {
  let [worlds, lies, calls] = [0, 0, 0]
  await fc.assert(
    fc.asyncProperty(fc.nat(1_000_000), fc.integer({ min: 5, max: 60 }), async (seed, percent) => {
      const world = await createPipelineWorld({ seed })
      const random = seededRandom(seed)
      let isSound = true
      const node = chainNode(world.chain, (call, outcome) => {
        calls += 1
        // Every exchange carries the chain id: with that broken as often as the rest, nothing else
        // would ever be heard.
        if (isSound || random.next() * (call.method === 'eth_chainId' ? 1_000 : 100) >= percent)
          return outcome
        lies += 1
        return broken(call, outcome, Math.floor(random.next() * 2 ** 31))
      })
      const fuzzed = chainOver([node], {
        timeoutMs: 5_000,
        expectedChainId: fakeContracts.chainId,
        maxLagSeconds: undefined,
        clock: world.clock,
        random,
      })
      const { nodes: _nodes, close, ...methodsOfChain } = fuzzed
      Object.assign(world.chain, methodsOfChain)
      const candidates = []
      for (const by of [0, 1])
        candidates.push(await world.submit(await world.question(`q${by}`), { by }))
      const first = candidates.map(({ round }) => world.view.known(round.questionId))
      isSound = false
      for (let turn = 0; turn < 16; turn += 1) {
        await world.pass()
        for (const one of first) {
          const now = one && world.view.known(one.questionId)
          if (
            now &&
            (now.ref.key !== one.ref.key ||
              now.round.totalBondRaw !== one.round.totalBondRaw ||
              !['requested', 'proposed'].includes(now.round.state))
          )
            throw new Error(`the view made up ${now.round.state} of round ${now.ref.key}`)
        }
        if (turn === 8) await world.restart()
      }
      isSound = true
      await world.pass(40)
      const ends = await Promise.all(candidates.map(world.now))
      expect(
        ends.map(({ progress }) =>
          progress.status === 'failed'
            ? `${progress.failure.code}: ${progress.failure.detail}`
            : progress.status,
        ),
      ).toEqual(['executed', 'executed'])
      const nonces = noncesOf(world)
      expect(nonces.toSorted((one, other) => one - other)).toEqual(nonces.map((_, at) => at))
      expect(
        proposals(world).filter(({ hash }) => world.chain.truth.receipt(hash)?.status === 'success')
          .length,
      ).toBeLessThanOrEqual(2)
      expect(world.view.faults()).toEqual([])
      close()
      worlds += 1
    }),
    runs(60),
  )
  figures('fuzz-rpc, worlds', { worlds, calls, 'broken answers': lies })
})
