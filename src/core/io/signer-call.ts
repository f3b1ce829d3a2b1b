import { Agent, fetch } from 'undici'
import * as z from 'zod/mini'
import type { Fetch } from '#ports'
import { jsonOf, readCapped } from '#protocol/capped'
import type { ProposerError } from '#protocol/errors'
import { networkFault } from '#protocol/network-words'
import { safeText } from '#protocol/node-words'
import { type Conceal, concealing } from '#protocol/url-secrets'
import { lowercase } from '#protocol/words'

export interface SignerFaults {
  invalid(why: string): ProposerError
  refused(words: string): ProposerError
  timedOut(seconds: number): ProposerError
  /** It cannot have seen the call. */
  unreachable(why: string): ProposerError
  /** It may have seen the call. */
  lost(why: string): ProposerError
}

interface SignerCallOptions {
  readonly timeoutMs: number
  readonly maxBytes: number
  readonly signal?: AbortSignal | undefined
  readonly traced?: ((fetch: Fetch) => Fetch) | undefined
}

type SignerCall = ReturnType<typeof openSignerCall>

const Reply = z.object({
  result: z.optional(z.unknown()),
  error: z.nullish(z.object({ code: z.optional(z.number()), message: z.optional(z.string()) })),
})
const Accounts = z.array(z.string().check(z.regex(/^0x[0-9a-fA-F]{40}$/)))
const listingMethods = ['eth_accounts', 'account_list'] as const

export function openSignerCall(
  url: string,
  faults: SignerFaults,
  { timeoutMs, maxBytes, signal, traced = (same) => same }: SignerCallOptions,
) {
  const agent = new Agent({
    connect: { timeout: 5_000 },
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
  })
  const send = traced((input, init) =>
    fetch(String(input), { ...(init as object), dispatcher: agent }),
  )
  const conceal = concealing([url])
  const exchange = async (method: string, params: readonly unknown[]) => {
    const overdue = AbortSignal.timeout(timeoutMs)
    try {
      const response = await send(url, {
        method: 'POST',
        headers: { 'content-type': 'application/json', accept: 'application/json' },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
        redirect: 'error',
        signal: signal === undefined ? overdue : AbortSignal.any([signal, overdue]),
      })
      return { status: response.status, text: await readCapped(response.body, maxBytes) }
    } catch (error) {
      if (signal?.aborted) throw signal.reason
      if (overdue.aborted) throw faults.timedOut(Math.ceil(timeoutMs / 1_000))
      throw hasNotSeen(error)
        ? faults.unreachable(networkFault(error))
        : faults.lost(networkFault(error))
    }
  }
  return {
    async ask(method: string, params: readonly unknown[]) {
      const { status, text } = await exchange(method, params)
      if (text === undefined) throw faults.invalid('its response is longer than any signature')
      return resultOf(text, status, faults, conceal)
    },
    close: () => agent.close(),
  }
}

export async function listedAccounts({ ask }: SignerCall, faults: SignerFaults) {
  for (const method of listingMethods) {
    const found = await ask(method, [])
    if (found === undefined) continue
    const list = Accounts.safeParse(found.result)
    if (!list.success) throw faults.invalid('its list of accounts is invalid')
    return list.data.map(lowercase)
  }
  return undefined
}

function resultOf(
  text: string,
  status: number,
  { invalid, refused }: SignerFaults,
  conceal: Conceal,
) {
  const reply = Reply.safeParse(jsonOf(text))
  if (!reply.success)
    throw invalid(`its response is not JSON-RPC${status < 300 ? '' : ` (HTTP ${status})`}`)
  const { result, error } = reply.data
  if (!error) return { result }
  const words = safeText(error.message ?? '', conceal)
  const unknown = /method.{0,60}(not found|not available|not supported|does not exist)/i
  if (error.code === -32601 || unknown.test(words)) return undefined
  throw refused(words === '' ? `code ${error.code}` : words)
}

/** Robustness §6, Definite; TLS's among them. */
const beforeConnect =
  /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT|(ERR_TLS|ERR_SSL|CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO).*)$/

function hasNotSeen(error: unknown) {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error
  const code =
    typeof cause === 'object' && cause !== null && 'code' in cause ? String(cause.code) : ''
  return beforeConnect.test(code)
}
