/**
 * JSON-RPC over HTTP with one node: batches, limits, and what counts as no answer (R17). No URL
 * ever appears in a message (R5).
 */
import { Agent, fetch } from 'undici'
import * as z from 'zod'
import { ChainError } from '../../ports.js'
import { quoteWords } from '../../protocol/node-words.js'
import { type Conceal, concealing } from '../../protocol/url-secrets.js'
import { chainErrorOf, safeText } from './rpc-errors.js'

export interface RpcCall {
  readonly method: string
  readonly params: readonly unknown[]
}

/** One node, whoever it is. */
export interface Transport {
  /**
   * One outcome a call, in order: the `result`, or the `ChainError` of that call. Rejects with
   * ChainError `unavailable` only where the node as a whole gave no answer; its message says why,
   * without saying which node.
   */
  exchange(
    calls: readonly RpcCall[],
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<readonly (unknown | ChainError)[]>
}

export interface TransportOptions {
  readonly connectMs: number
  /** Whether several calls may travel in one HTTP request. */
  readonly batches: boolean
  /** Longest answer that is read (R17). */
  readonly answerBytes: number
}

const Answer = z.object({
  id: z.number(),
  result: z.unknown().optional(),
  error: z
    .object({
      code: z.number().optional(),
      message: z.string().optional(),
      data: z.unknown().optional(),
    })
    .nullish(),
})

/**
 * One transport a URL, in order. Throws RangeError for a URL that is none. `close` lets go of the
 * connections.
 */
export function createTransports(
  urls: readonly string[],
  options: TransportOptions,
): { transports: Transport[]; close(): Promise<void> } {
  const endpoints = urls.map(endpointOf)
  // One node may stand behind another, so none repeats what belongs to any of them.
  const conceal = concealing(urls)
  const agent = new Agent({
    connect: { timeout: options.connectMs },
    keepAliveTimeout: 10_000,
    connections: 16,
    pipelining: 1,
  })
  return {
    transports: endpoints.map((endpoint) => createTransport(endpoint, agent, options, conceal)),
    close: () => agent.close(),
  }
}

interface Endpoint {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
}

function createTransport(
  { url, headers }: Endpoint,
  agent: Agent,
  options: TransportOptions,
  conceal: Conceal,
): Transport {
  let batches = options.batches
  let nextId = 1

  const post = async (
    body: unknown,
    timeoutMs: number,
    given: AbortSignal | undefined,
  ): Promise<{ status: number; answer: unknown }> => {
    const timeout = AbortSignal.timeout(timeoutMs)
    const signal = given === undefined ? timeout : AbortSignal.any([timeout, given])
    let text: string
    let status: number
    try {
      const response = await fetch(url, {
        method: 'POST',
        headers,
        body: JSON.stringify(body),
        dispatcher: agent,
        redirect: 'error',
        signal,
      })
      status = response.status
      text = await readCapped(response, options.answerBytes)
      // Nodes answer errors of single calls with 200 or 4xx alike; what is no JSON is judged by its
      // status.
      const isJson = text.trimStart().startsWith('{') || text.trimStart().startsWith('[')
      if (!response.ok && (!isJson || status === 429)) throw unavailable(`HTTP ${status}`)
    } catch (error) {
      if (error instanceof ChainError) throw error
      throw unavailable(
        timeout.aborted ? `no answer within ${timeoutMs} ms` : connectionFault(error),
      )
    }
    try {
      return { status, answer: JSON.parse(text) }
    } catch {
      // A proxy's page or a cut body: nothing is known about the outcome
      throw unavailable('the answer is not JSON')
    }
  }

  const together = async (
    calls: readonly RpcCall[],
    timeoutMs: number,
    signal: AbortSignal | undefined,
  ): Promise<unknown[]> => {
    const first = nextId
    nextId += calls.length
    const requests = calls.map(({ method, params }, index) => ({
      jsonrpc: '2.0',
      id: first + index,
      method,
      params,
    }))
    const { status, answer } = await post(
      requests.length === 1 ? requests[0] : requests,
      timeoutMs,
      signal,
    )
    const byId = new Map<number, z.infer<typeof Answer>>()
    for (const item of Array.isArray(answer) ? answer : [answer]) {
      const parsed = Answer.safeParse(item)
      if (parsed.success) byId.set(parsed.data.id, parsed.data)
    }
    if (byId.size === 0 && requests.length > 1 && !Array.isArray(answer)) {
      // A node that does not know batches answers with one error without our ids.
      const singly = await oneByOne(calls, timeoutMs, signal)
      batches = false
      return singly
    }
    if (byId.size === 0) throw unavailable(wholeError(status, answer, conceal))
    return calls.map(({ method }, index) => {
      const found = byId.get(first + index)
      if (found === undefined) return unavailable(`${method}: no answer carries its id`)
      if (found.error) return chainErrorOf(method, found.error, conceal)
      return found.result ?? null
    })
  }

  const oneByOne = async (
    calls: readonly RpcCall[],
    timeoutMs: number,
    signal: AbortSignal | undefined,
  ): Promise<unknown[]> => {
    const settled = await Promise.allSettled(
      calls.map((call) => together([call], timeoutMs, signal)),
    )
    const refused = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
    if (refused.length === calls.length) throw refused[0]
    return settled.map((one) => {
      if (one.status === 'fulfilled') return one.value[0]
      if (one.reason instanceof ChainError) return one.reason
      throw one.reason
    })
  }

  return {
    exchange: (calls, timeoutMs, signal) =>
      batches || calls.length === 1
        ? together(calls, timeoutMs, signal)
        : oneByOne(calls, timeoutMs, signal),
  }
}

const unavailable = (why: string) => new ChainError('unavailable', why)

/** fetch takes no userinfo in a URL: it becomes the header that it stands for. */
function endpointOf(text: string, index: number): Endpoint {
  if (!/^https?:\/\//.test(text) || !URL.canParse(text))
    throw new RangeError(`RPC URL ${index + 1} is not an http or https URL`)
  const url = new URL(text)
  const headers = { 'content-type': 'application/json', accept: 'application/json' }
  const { username, password } = url
  if (username === '' && password === '') return { url: url.href, headers }
  url.username = ''
  url.password = ''
  const credentials = Buffer.from(
    `${decodeURIComponent(username)}:${decodeURIComponent(password)}`,
  ).toString('base64')
  return { url: url.href, headers: { ...headers, authorization: `Basic ${credentials}` } }
}

async function readCapped(
  response: Awaited<ReturnType<typeof fetch>>,
  limitBytes: number,
): Promise<string> {
  if (response.body === null) return ''
  const decoder = new TextDecoder()
  let text = ''
  let size = 0
  for await (const chunk of response.body) {
    size += chunk.byteLength
    // Leaving the loop cancels the stream.
    if (size > limitBytes) throw unavailable(`the node's answer is longer than ${limitBytes} bytes`)
    text += decoder.decode(chunk, { stream: true })
  }
  return text + decoder.decode()
}

/** Node's or undici's code; messages of sockets name addresses and are left out (R5). */
function connectionFault(error: unknown): string {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error
  const code =
    typeof cause === 'object' && cause !== null && 'code' in cause ? String(cause.code) : ''
  return code === '' ? 'the connection failed' : `the connection failed with ${safeText(code)}`
}

/** A refusal of the whole request: what the node said, or at least with which status. */
function wholeError(status: number, answer: unknown, conceal: Conceal): string {
  const parsed = z.object({ error: z.object({ message: z.string() }) }).safeParse(answer)
  const coded = status >= 400 ? `HTTP ${status}` : undefined
  if (parsed.success)
    return `${coded ?? 'it refused the request'}: ${quoteWords(safeText(parsed.data.error.message, conceal))}`
  return coded ?? 'the answer carries no known id'
}
