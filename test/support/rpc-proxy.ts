/** A JSON-RPC node that lies: a proxy on loopback before an honest one (robustness §7.3). */
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export type RpcLie =
  | 'another chain id'
  | 'a head that stands still'
  | 'no receipts and no transactions'
  | 'no logs'
  | 'transaction counts that are too high'
  | 'another final block'
  | 'HTTP 429'
  | 'results of another shape'
  | 'an HTML page'
  | 'JSON that is cut off'
  | 'silence'

export interface RpcProxy {
  readonly url: string
  /** From now on; `undefined`: the truth. */
  tell(lie: RpcLie | undefined): Promise<void>
  /** Transactions that it was handed, whatever became of them. */
  readonly handed: readonly string[]
  close(): Promise<void>
}

interface Call {
  readonly id: number
  readonly method: string
  readonly params: readonly unknown[]
}
interface Answer {
  readonly id: number
  readonly result?: unknown
  readonly error?: { readonly code: number; readonly message: string }
}
interface Header {
  readonly number: string
  readonly hash: string
}

/** Starts one before the node at `upstream`, telling the truth. */
export async function openRpcProxy(upstream: string): Promise<RpcProxy> {
  let lie: RpcLie | undefined
  let frozen: { readonly latest: Header; readonly finalized: Header } | undefined
  const handed: string[] = []

  const exchange = async (calls: readonly Call[]): Promise<Answer[]> => {
    const response = await fetch(upstream, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(calls.map((call) => ({ jsonrpc: '2.0', ...call }))),
    })
    return (await response.json()) as Answer[]
  }
  const header = async (tag: string): Promise<Header> => {
    const [answer] = await exchange([
      { id: 1, method: 'eth_getBlockByNumber', params: [tag, false] },
    ])
    return answer?.result as Header
  }

  /** What a call is turned into, or answered with, while the head stands still. */
  const standingStill = (
    call: Call,
    { latest, finalized }: NonNullable<typeof frozen>,
  ): Call | Answer => {
    const { id, method, params } = call
    const at = (tag: unknown) =>
      tag === 'latest' || tag === 'pending'
        ? latest.number
        : tag === 'finalized'
          ? finalized.number
          : tag
    const isLater = (tag: unknown) =>
      typeof tag === 'string' && tag.startsWith('0x') && BigInt(tag) > BigInt(latest.number)
    if (method === 'eth_sendRawTransaction') return { id, result: `0x${'11'.repeat(32)}` }
    if (method === 'eth_getBlockByNumber')
      return isLater(params[0])
        ? { id, result: null }
        : { ...call, params: [at(params[0]), params[1]] }
    if (method === 'eth_getLogs')
      return isLater((params[0] as { toBlock: string }).toBlock) ? { id, result: [] } : call
    if (
      [
        'eth_call',
        'eth_getCode',
        'eth_getBalance',
        'eth_getTransactionCount',
        'eth_estimateGas',
      ].includes(method)
    ) {
      if (isLater(params[1])) return { id, error: { code: -32000, message: 'header not found' } }
      return method === 'eth_estimateGas' ? call : { ...call, params: [params[0], at(params[1])] }
    }
    return call
  }

  const answersFor = async (calls: readonly Call[]): Promise<Answer[]> => {
    const stale = lie === 'a head that stands still' ? frozen : undefined
    const turned = calls.map((call) => (stale ? standingStill(call, stale) : call))
    const forwarded = turned.filter((one): one is Call => 'method' in one)
    const told = forwarded.length > 0 ? await exchange(forwarded) : []
    const final = lie === 'another final block' ? BigInt((await header('finalized')).number) : 0n
    return turned.map((one) => {
      if (!('method' in one)) return one
      const answer = told.find(({ id }) => id === one.id) ?? { id: one.id, result: null }
      const { result } = answer
      switch (lie) {
        case 'another chain id':
          return one.method === 'eth_chainId' ? { ...answer, result: '0x1' } : answer
        case 'a head that stands still': {
          const mined = result as { blockNumber?: string } | null
          const isUnseen =
            stale && mined?.blockNumber && BigInt(mined.blockNumber) > BigInt(stale.latest.number)
          return isUnseen && /ByHash|Receipt/.test(one.method)
            ? { ...answer, result: null }
            : answer
        }
        case 'no receipts and no transactions':
          return /eth_getTransaction(Receipt|ByHash)/.test(one.method)
            ? { ...answer, result: null }
            : answer
        case 'no logs':
          return one.method === 'eth_getLogs' ? { ...answer, result: [] } : answer
        case 'transaction counts that are too high':
          return one.method === 'eth_getTransactionCount'
            ? { ...answer, result: `0x${(BigInt(String(result)) + 5n).toString(16)}` }
            : answer
        case 'another final block': {
          const block = result as Header | null
          const isForged =
            one.method === 'eth_getBlockByNumber' && block !== null && BigInt(block.number) <= final
          return isForged
            ? { ...answer, result: { ...block, hash: `0x${'99'.repeat(32)}` } }
            : answer
        }
        case 'results of another shape':
          return { ...answer, result: { nonsense: true } }
        default:
          return answer
      }
    })
  }

  const serve = async (text: string, response: ServerResponse): Promise<void> => {
    const body = JSON.parse(text) as Call | Call[]
    const calls = Array.isArray(body) ? body : [body]
    for (const { method, params } of calls)
      if (method === 'eth_sendRawTransaction') handed.push(String(params[0]))
    if (lie === 'silence') return
    if (lie === 'HTTP 429')
      return void response.writeHead(429, { 'content-type': 'text/plain' }).end('slow down')
    if (lie === 'an HTML page')
      return void response
        .writeHead(200, { 'content-type': 'text/html' })
        .end('<html>maintenance</html>')
    const answers = (await answersFor(calls)).map((answer) => ({ jsonrpc: '2.0', ...answer }))
    const whole = JSON.stringify(Array.isArray(body) ? answers : answers[0])
    response.setHeader('content-type', 'application/json')
    response.end(lie === 'JSON that is cut off' ? whole.slice(0, whole.length >> 1) : whole)
  }

  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk) => chunks.push(chunk))
    request.on('end', () => {
      // The honest node may be gone at the end of a test; then so is the answer.
      serve(Buffer.concat(chunks).toString(), response).catch(() => response.destroy())
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async tell(next) {
      if (next === 'a head that stands still')
        frozen = { latest: await header('latest'), finalized: await header('finalized') }
      lie = next
    },
    handed,
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
