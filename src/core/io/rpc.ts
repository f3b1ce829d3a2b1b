/**
 * The `Chain` port over Ethereum JSON-RPC. Reads made at the same moment travel as one batch and fail over from node to node; a signed
 * transaction goes to every node. No URL ever appears in a message (R5): nodes are told apart by their place in the configuration.
 */
import { Agent, fetch } from 'undici'
import { z } from 'zod'
import { type BlockHeader, type Chain, type ChainCall, ChainError, type ChainLog, type ChainReceipt, type Hex } from '../ports.js'
import { chainErrorOf, safeText } from './rpc-errors.js'

const Quantity = z.string().regex(/^0x[0-9a-fA-F]{1,64}$/)
const HexData = z.string().regex(/^0x([0-9a-fA-F]{2})*$/)
const Bytes32 = z.string().regex(/^0x[0-9a-fA-F]{64}$/)
const Header = z.object({
  number: Quantity,
  hash: Bytes32,
  parentHash: Bytes32,
  timestamp: Quantity,
  baseFeePerGas: Quantity.nullish(),
})
const Log = z.object({
  address: HexData,
  topics: z.array(Bytes32),
  data: HexData,
  blockNumber: Quantity,
  blockHash: Bytes32,
  transactionHash: Bytes32,
  logIndex: Quantity,
})
const Receipt = z.object({
  transactionHash: Bytes32,
  blockNumber: Quantity,
  blockHash: Bytes32,
  status: Quantity,
  gasUsed: Quantity,
  logs: z.array(Log),
})
const Answer = z.object({
  id: z.number(),
  result: z.unknown().optional(),
  error: z.object({ code: z.number().optional(), message: z.string().optional(), data: z.unknown().optional() }).nullish(),
})

export interface RpcOptions {
  /** Default 5,000. */
  readonly timeoutMs?: number
  /** Most calls in one HTTP request; default 50. 1 switches batching off. */
  readonly batchCalls?: number
  /** Longest answer that is read; default 32 MiB (R17). */
  readonly answerBytes?: number
}

interface Waiting {
  readonly method: string
  readonly params: readonly unknown[]
  readonly resolve: (result: unknown) => void
  readonly reject: (error: unknown) => void
}

/**
 * A chain behind one or more nodes, in order of preference: reads stay with the first that answers. Every method rejects with
 * `ChainError`. `close` lets go of the connections; idle ones keep no process alive. Throws RangeError for an empty list or a URL that
 * is none.
 */
export function createChain(urls: readonly string[], options: RpcOptions = {}): Chain & { close(): Promise<void> } {
  const { timeoutMs = 5_000, batchCalls = 50, answerBytes = 32 * 1024 * 1024 } = options
  if (urls.length === 0) throw new RangeError('at least one RPC URL is needed')
  const nodes = urls.map((url, index) => ({ ...endpointOf(url, index), index, batches: batchCalls > 1 }))
  type Node = (typeof nodes)[number]
  const agent = new Agent({ connect: { timeout: timeoutMs }, keepAliveTimeout: 10_000, connections: 16, pipelining: 1 })
  let nextId = 1
  let preferred = 0

  const unavailable = (node: Node, why: string) => new ChainError('unavailable', `RPC node ${node.index + 1} of ${nodes.length}: ${why}`)

  const post = async (node: Node, body: unknown): Promise<unknown> => {
    const signal = AbortSignal.timeout(timeoutMs)
    let text: string
    try {
      const response = await fetch(node.url, {
        method: 'POST',
        headers: node.headers,
        body: JSON.stringify(body),
        dispatcher: agent,
        redirect: 'error',
        signal,
      })
      text = await readCapped(response, answerBytes)
      // Nodes answer errors of single calls with 200 or 4xx alike; what is no JSON is judged by its status.
      if (!response.ok && !text.trimStart().startsWith('{') && !text.trimStart().startsWith('['))
        throw unavailable(node, `HTTP ${response.status}`)
    } catch (error) {
      if (error instanceof ChainError) throw error
      throw unavailable(node, signal.aborted ? `no answer within ${timeoutMs} ms` : connectionFault(error))
    }
    try {
      return JSON.parse(text)
    } catch {
      // A proxy's page or a cut body: nothing is known about the outcome
      throw unavailable(node, 'the answer is not JSON')
    }
  }

  /** One outcome a call, in order. Rejects only where the node as a whole gave no answer. */
  const exchange = async (
    node: Node,
    calls: readonly { method: string; params: readonly unknown[] }[],
  ): Promise<(unknown | ChainError)[]> => {
    const first = nextId
    nextId += calls.length
    const requests = calls.map(({ method, params }, index) => ({ jsonrpc: '2.0', id: first + index, method, params }))
    const answer = await post(node, requests.length === 1 ? requests[0] : requests)
    const list = Array.isArray(answer) ? answer : [answer]
    const byId = new Map<number, z.infer<typeof Answer>>()
    for (const item of list) {
      const parsed = Answer.safeParse(item)
      if (parsed.success) byId.set(parsed.data.id, parsed.data)
    }
    if (byId.size === 0 && requests.length > 1) {
      // A node that does not know batches answers with one error without our ids.
      node.batches = false
      return Promise.all(calls.map((call) => exchange(node, [call]).then(([outcome]) => outcome)))
    }
    if (byId.size === 0) throw unavailable(node, wholeError(answer))
    return calls.map(({ method }, index) => {
      const found = byId.get(first + index)
      if (found === undefined) return unavailable(node, `${method}: no answer carries its id`)
      if (found.error) return chainErrorOf(method, found.error)
      return found.result ?? null
    })
  }

  const tryNodes = async (calls: readonly Waiting[]): Promise<void> => {
    let open: readonly Waiting[] = calls
    for (let tried = 0; tried < nodes.length && open.length > 0; tried += 1) {
      const node = nodes[(preferred + tried) % nodes.length]
      if (node === undefined) break
      const last = tried === nodes.length - 1
      const failed: Waiting[] = []
      const settle = (call: Waiting, outcome: unknown) => {
        if (!(outcome instanceof ChainError)) call.resolve(outcome)
        else if (outcome.kind === 'unavailable' && !last) failed.push(call)
        else call.reject(outcome)
      }
      const groups = node.batches ? [open] : open.map((call) => [call])
      let answered = false
      await Promise.all(
        groups.map(async (group) => {
          try {
            const outcomes = await exchange(node, group)
            answered = true
            group.forEach((call, index) => {
              settle(call, outcomes[index])
            })
          } catch (error) {
            for (const call of group) settle(call, error instanceof ChainError ? error : unavailable(node, 'unexpected answer'))
          }
        }),
      )
      if (answered && failed.length === 0 && tried > 0) preferred = node.index
      open = failed
    }
  }

  let queue: Waiting[] = []
  const flush = () => {
    const calls = queue
    queue = []
    for (let at = 0; at < calls.length; at += batchCalls) void tryNodes(calls.slice(at, at + batchCalls))
  }
  const ask = (method: string, params: readonly unknown[]): Promise<unknown> =>
    new Promise((resolve, reject) => {
      if (queue.length === 0) setImmediate(flush)
      queue.push({ method, params, resolve, reject })
    })

  const parsed = async <T>(method: string, params: readonly unknown[], schema: z.ZodType<T>): Promise<T> => {
    const result = schema.safeParse(await ask(method, params))
    if (!result.success) throw new ChainError('unavailable', `${method}: the node's answer has another shape than Ethereum's`)
    return result.data
  }
  const quantity = async (method: string, params: readonly unknown[] = []) => BigInt(await parsed(method, params, Quantity))

  return {
    chainId: async () => Number(await quantity('eth_chainId')),
    block: async (at) => {
      const found = await parsed('eth_getBlockByNumber', [blockTag(at), false], Header.nullable())
      return found && headerOf(found)
    },
    call: async (call, at = 'latest') => lower(await parsed('eth_call', [callObject(call), blockTag(at)], HexData)),
    logs: async ({ fromBlock, toBlock, addresses, topics }) => {
      const filter = { fromBlock: blockTag(fromBlock), toBlock: blockTag(toBlock), address: addresses, ...(topics ? { topics } : {}) }
      return (await parsed('eth_getLogs', [filter], z.array(Log))).map(logOf)
    },
    code: async (address, at = 'latest') => lower(await parsed('eth_getCode', [address, blockTag(at)], HexData)),
    balance: (address) => quantity('eth_getBalance', [address, 'latest']),
    transactionCount: async (address, at) => Number(await quantity('eth_getTransactionCount', [address, at])),
    estimateGas: (call) => quantity('eth_estimateGas', [callObject(call)]),
    tip: () => quantity('eth_maxPriorityFeePerGas'),
    receipt: async (hash) => {
      const found = await parsed('eth_getTransactionReceipt', [hash], Receipt.nullable())
      return found && receiptOf(found)
    },
    hasTransaction: async (hash) => (await parsed('eth_getTransactionByHash', [hash], z.object({ hash: Bytes32 }).nullable())) !== null,
    send: (raw) => sendToAll(nodes, raw, (node, call) => exchange(node, [call]).then(([outcome]) => outcome)),
    close: () => agent.close(),
  }
}

/** fetch takes no userinfo in a URL: it becomes the header that it stands for. */
function endpointOf(text: string, index: number): { readonly url: string; readonly headers: Readonly<Record<string, string>> } {
  if (!/^https?:\/\//.test(text) || !URL.canParse(text)) throw new RangeError(`RPC URL ${index + 1} is not an http or https URL`)
  const url = new URL(text)
  const headers = { 'content-type': 'application/json', accept: 'application/json' }
  const { username, password } = url
  if (username === '' && password === '') return { url: url.href, headers }
  url.username = ''
  url.password = ''
  const credentials = Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString('base64')
  return { url: url.href, headers: { ...headers, authorization: `Basic ${credentials}` } }
}

type Outcome = { readonly hash: Hex } | { readonly error: ChainError }

/**
 * One node's acceptance is enough; else what says most about the transaction wins: a node that holds it, then a definite refusal, and
 * only then "unknown".
 */
async function sendToAll<N>(
  nodes: readonly N[],
  raw: Hex,
  submit: (node: N, call: { method: string; params: readonly unknown[] }) => Promise<unknown>,
): Promise<Hex> {
  const outcomes: Outcome[] = await Promise.all(
    nodes.map(async (node) => {
      try {
        const outcome = await submit(node, { method: 'eth_sendRawTransaction', params: [raw] })
        if (outcome instanceof ChainError) return { error: outcome }
        const hash = Bytes32.safeParse(outcome)
        if (hash.success) return { hash: lower(hash.data) }
        return { error: new ChainError('unavailable', 'eth_sendRawTransaction: the node answered without a hash') }
      } catch (error) {
        return { error: error instanceof ChainError ? error : new ChainError('unavailable', 'eth_sendRawTransaction: no answer') }
      }
    }),
  )
  const accepted = outcomes.find((outcome) => 'hash' in outcome)
  if (accepted) return accepted.hash
  const errors = outcomes.flatMap((outcome) => ('error' in outcome ? [outcome.error] : []))
  const ranked = ['already_known', 'replacement_underpriced', 'unavailable', 'nonce_too_low'] as const
  const telling = ranked.map((kind) => errors.find((error) => error.kind === kind)).find((error) => error !== undefined)
  throw telling ?? errors[0] ?? new ChainError('unavailable', 'eth_sendRawTransaction: no node was asked')
}

async function readCapped(response: Awaited<ReturnType<typeof fetch>>, limitBytes: number): Promise<string> {
  if (response.body === null) return ''
  const decoder = new TextDecoder()
  let text = ''
  let size = 0
  for await (const chunk of response.body) {
    size += chunk.byteLength
    // Leaving the loop cancels the stream.
    if (size > limitBytes) throw new ChainError('unavailable', `the node's answer is longer than ${limitBytes} bytes`)
    text += decoder.decode(chunk, { stream: true })
  }
  return text + decoder.decode()
}

/** Node's or undici's code; messages of sockets name addresses and are left out (R5). */
function connectionFault(error: unknown): string {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error
  const code = typeof cause === 'object' && cause !== null && 'code' in cause ? String(cause.code) : ''
  return code === '' ? 'the connection failed' : `the connection failed with ${safeText(code)}`
}

function wholeError(answer: unknown): string {
  const parsed = z.object({ error: z.object({ message: z.string() }) }).safeParse(answer)
  return parsed.success ? `it refused the request: ${safeText(parsed.data.error.message)}` : 'the answer carries no known id'
}

const lower = (hex: string): Hex => hex.toLowerCase() as Hex
const blockTag = (at: 'latest' | 'finalized' | 'pending' | bigint): string => (typeof at === 'bigint' ? `0x${at.toString(16)}` : at)
const callObject = ({ to, data, from, gas }: ChainCall) => ({
  to,
  data,
  ...(from === undefined ? {} : { from }),
  ...(gas === undefined ? {} : { gas: `0x${gas.toString(16)}` }),
})

function headerOf(found: z.infer<typeof Header>): BlockHeader {
  return {
    number: BigInt(found.number),
    hash: lower(found.hash),
    parentHash: lower(found.parentHash),
    timestamp: BigInt(found.timestamp),
    baseFeePerGas: BigInt(found.baseFeePerGas ?? '0x0'),
  }
}

function logOf(found: z.infer<typeof Log>): ChainLog {
  return {
    address: lower(found.address),
    topics: found.topics.map(lower),
    data: lower(found.data),
    blockNumber: BigInt(found.blockNumber),
    blockHash: lower(found.blockHash),
    transactionHash: lower(found.transactionHash),
    logIndex: Number(found.logIndex),
  }
}

function receiptOf(found: z.infer<typeof Receipt>): ChainReceipt {
  return {
    transactionHash: lower(found.transactionHash),
    blockNumber: BigInt(found.blockNumber),
    blockHash: lower(found.blockHash),
    status: BigInt(found.status) === 1n ? 'success' : 'reverted',
    gasUsed: BigInt(found.gasUsed),
    logs: found.logs.map(logOf),
  }
}
