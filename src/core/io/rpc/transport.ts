/** With one node (R17). viem's transport shows the URL in messages (R5). */
import { fetch, Pool } from 'undici'
import * as z from 'zod/mini'
import { ChainError } from '#ports'
import { jsonOf, readCapped } from '#protocol/capped'
import { networkFault } from '#protocol/network-words'
import { quoteWords, safeText } from '#protocol/node-words'
import { type Conceal, concealing, decoded } from '#protocol/url-secrets'
import { chainErrorOf } from './rpc-errors.js'

export interface RpcCall {
  readonly method: string
  readonly params: readonly unknown[]
}

export interface Transport {
  /** Rejects only where the node as a whole gave no response. */
  exchange(
    calls: readonly RpcCall[],
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<readonly (unknown | ChainError)[]>
}

interface TransportOptions {
  readonly connectMs: number
  readonly answerBytes: number
}

interface Endpoint {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
}

interface Node extends TransportOptions, Endpoint {
  readonly pool: Pool
  readonly conceal: Conceal
  batches: boolean
  nextId: number
}

type Limits = readonly [timeoutMs: number, signal: AbortSignal | undefined]

const mostConnections = 16
const keepAliveMs = 10_000

const Reply = z.object({
  id: z.number(),
  result: z.optional(z.unknown()),
  error: z.nullish(
    z.object({
      code: z.optional(z.number()),
      message: z.optional(z.string()),
      data: z.optional(z.unknown()),
    }),
  ),
})
const Refusal = z.object({ error: z.object({ message: z.string() }) })

export function createTransports(urls: readonly string[], options: TransportOptions) {
  const endpoints = urls.map(endpointOf)
  const conceal = concealing(urls)
  const nodes = endpoints.map((endpoint) => {
    const pool = new Pool(new URL(endpoint.url).origin, {
      connections: mostConnections,
      connect: { timeout: options.connectMs },
      keepAliveTimeout: keepAliveMs,
      pipelining: 1,
    })
    return { ...options, ...endpoint, pool, conceal, batches: true, nextId: 1 }
  })
  const transports = nodes.map(
    (node): Transport => ({
      exchange: (calls, timeoutMs, signal) =>
        node.batches || calls.length === 1
          ? together(node, calls, [timeoutMs, signal])
          : oneByOne(node, calls, [timeoutMs, signal]),
    }),
  )
  return {
    transports,
    async close() {
      await Promise.all(nodes.map(({ pool }) => pool.close()))
    },
  }
}

async function together(node: Node, calls: readonly RpcCall[], limits: Limits): Promise<unknown[]> {
  const first = node.nextId
  node.nextId += calls.length
  const requests = calls.map((call, index) => ({ jsonrpc: '2.0', id: first + index, ...call }))
  const body = requests.length === 1 ? requests[0] : requests
  const { status, json } = await post(node, body, limits)
  const byId = new Map<number, z.infer<typeof Reply>>()
  for (const item of Array.isArray(json) ? json : [json]) {
    const parsed = Reply.safeParse(item)
    if (parsed.success) byId.set(parsed.data.id, parsed.data)
  }
  if (byId.size === 0 && requests.length > 1 && !Array.isArray(json)) {
    // A node without batches answers with one error.
    const singly = await oneByOne(node, calls, limits)
    node.batches = false
    return singly
  }
  if (byId.size === 0) throw unavailable(refusalOf(status, json, node.conceal))
  return calls.map(({ method }, index) => {
    const found = byId.get(first + index)
    if (found === undefined) return unavailable(`${method}: no response has its id`)
    if (found.error) return chainErrorOf(method, found.error, node.conceal)
    return found.result ?? null
  })
}

async function oneByOne(node: Node, calls: readonly RpcCall[], limits: Limits): Promise<unknown[]> {
  const settled = await Promise.allSettled(calls.map((call) => together(node, [call], limits)))
  const refused = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
  if (refused.length === calls.length) throw refused[0]
  const bug = refused.find((reason) => !(reason instanceof ChainError))
  if (bug !== undefined) throw bug
  return settled.map((one) => (one.status === 'fulfilled' ? one.value[0] : one.reason))
}

async function post(
  { url, headers, pool, answerBytes }: Node,
  body: unknown,
  [timeoutMs, given]: Limits,
) {
  const timeout = AbortSignal.timeout(timeoutMs)
  try {
    const response = await fetch(url, {
      method: 'POST',
      headers,
      body: JSON.stringify(body),
      dispatcher: pool,
      redirect: 'error',
      signal: given === undefined ? timeout : AbortSignal.any([timeout, given]),
    })
    const { status, ok } = response
    const text = await readCapped(response.body, answerBytes)
    if (text === undefined)
      throw unavailable(`the node's response is longer than ${answerBytes} bytes`)
    // Nodes answer errors of single calls with 200 or 4xx alike.
    if (!ok && (!/^\s*[{[]/.test(text) || status === 429)) throw unavailable(`HTTP ${status}`)
    const json = jsonOf(text)
    // A proxy's page or a cut body.
    if (json === undefined) throw unavailable('the response is not JSON')
    return { status, json }
  } catch (error) {
    if (error instanceof ChainError) throw error
    throw unavailable(timeout.aborted ? `no response within ${timeoutMs} ms` : networkFault(error))
  }
}

const unavailable = (why: string) => new ChainError('unavailable', why)

function endpointOf(text: string, index: number) {
  if (!/^https?:\/\//.test(text) || !URL.canParse(text))
    throw new RangeError(`RPC URL ${index + 1} is not an http or https URL`)
  const { url, headers } = withoutUserInfo(text)
  const json = { 'content-type': 'application/json', accept: 'application/json' }
  return { url, headers: { ...json, ...headers } }
}

/** fetch takes no userinfo in a URL. */
function withoutUserInfo(text: string): Endpoint {
  const url = new URL(text)
  const { username, password } = url
  if (username === '' && password === '') return { url: url.href, headers: {} }
  url.username = ''
  url.password = ''
  const credentials = Buffer.from(`${decoded(username)}:${decoded(password)}`).toString('base64')
  return { url: url.href, headers: { authorization: `Basic ${credentials}` } }
}

function refusalOf(status: number, json: unknown, conceal: Conceal) {
  const refusal = Refusal.safeParse(json)
  const coded = status >= 400 ? `HTTP ${status}` : undefined
  if (!refusal.success) return coded ?? 'the response has no known id'
  const words = quoteWords(safeText(refusal.data.error.message, conceal))
  return `${coded ?? 'it refused the request'}: ${words}`
}
