/**
 * Wallets behind JSON-RPC: Frame, web3signer, Clef and whatever else answers `eth_signTypedData_v4`
 * (contract §7). They get EIP-712 data that we built and nothing else; the caller checks their
 * signature against the digest.
 */

import { Agent, fetch } from 'undici'
import * as z from 'zod/mini'
import type { Fetch, Signer } from '../ports.js'
import { jsonOf, readCapped } from '../protocol/capped.js'
import { UnavailableError, UsageError } from '../protocol/errors.js'
import { networkFault } from '../protocol/network-words.js'
import { safeText } from '../protocol/node-words.js'
import { urlFault } from '../protocol/plain-http.js'
import type { Address } from '../protocol/schema.js'
import { type Conceal, concealing } from '../protocol/url-secrets.js'
import { lowercase } from '../protocol/words.js'

export interface OutsideWallet {
  /** Lowercase addresses that the wallet offers. Errors as below. */
  accounts(): Promise<readonly Address[]>
  /** Signs typed data only: `signDigest` rejects with UsageError `signer_needs_typed_data`. */
  signer(address: Address): Signer
  close(): Promise<void>
}

export interface OutsideWalletOptions {
  /** Default 60 s: a person has to look and agree. */
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
  /** Hosts for which http is taken too. */
  readonly allowHttp?: readonly string[] | undefined
  /** Called when the wallet is asked to sign. */
  readonly onAsk?: () => void
  /** Wraps what goes to the wallet, such as to show it. */
  readonly traced?: ((fetch: Fetch) => Fetch) | undefined
}

/** An 8,192-byte signature is 16 KiB of hex. */
const maxResponseBytes = 64 * 1024

const Reply = z.object({
  result: z.optional(z.unknown()),
  error: z.nullish(z.object({ code: z.optional(z.number()), message: z.optional(z.string()) })),
})
const Accounts = z.array(z.string().check(z.regex(/^0x[0-9a-fA-F]{40}$/)))

/** The de facto method first; web3signer's older spelling; Clef's own, which takes the object. */
const signingMethods = [
  { method: 'eth_signTypedData_v4', asText: true },
  { method: 'eth_signTypedData', asText: true },
  { method: 'account_signTypedData', asText: false },
] as const
const listingMethods = ['eth_accounts', 'account_list'] as const

/**
 * A wallet at a URL: https, or http on a loopback name or an allowed host, without user name and fragment. UsageError
 * `invalid_signer_url`. Its calls reject with UsageError `signer_refused` where a person or a rule
 * said no, or the method is not known. Else with UnavailableError (exit 75) `signer_timed_out`,
 * `signer_unreachable` or `signer_lost`: it has the call, did not answer, and may sign yet. No URL
 * appears in a message (R5).
 */
export function openOutsideWallet(url: string, options: OutsideWalletOptions = {}): OutsideWallet {
  const target = requireSignerUrl(url, options.allowHttp)
  const { timeoutMs = 60_000, signal, onAsk, traced = (same) => same } = options
  const agent = new Agent({
    connect: { timeout: 5_000 },
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
  })
  const send = traced((input, init) =>
    fetch(String(input), { ...(init as object), dispatcher: agent }),
  )
  // A wallet, or what stands before it, may repeat the key in its address (R5).
  const conceal = concealing([target])

  /** `undefined` where the wallet does not know the method. */
  const ask = async (method: string, params: readonly unknown[]) => {
    const overdue = AbortSignal.timeout(timeoutMs)
    try {
      const response = await send(target, {
        method: 'POST',
        headers: { 'content-type': 'application/json', accept: 'application/json' },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
        redirect: 'error',
        signal: signal === undefined ? overdue : AbortSignal.any([signal, overdue]),
      })
      const text = await readCapped(response.body, maxResponseBytes)
      if (text === undefined) throw invalid('its response is longer than any signature')
      return resultOf(text, conceal)
    } catch (error) {
      if (signal?.aborted === true) throw signal.reason
      if (error instanceof UsageError) throw error
      if (overdue.aborted) throw timedOut(timeoutMs)
      throw unreachable(error)
    }
  }

  return {
    async accounts() {
      for (const method of listingMethods) {
        const found = await ask(method, [])
        if (found === undefined) continue
        const list = Accounts.safeParse(found.result)
        if (!list.success) throw invalid('its list of accounts is invalid')
        return list.data.map(lowercase)
      }
      return []
    },
    signer: (address) => ({
      address,
      async signDigest() {
        throw new UsageError(
          'signer_needs_typed_data',
          'a wallet behind --signer signs proposals only',
          'for a transaction add --print and send the calldata from the wallet itself, or use --account',
        )
      },
      async signTypedData(typedData) {
        onAsk?.()
        for (const { method, asText } of signingMethods) {
          const found = await ask(method, [address, asText ? JSON.stringify(typedData) : typedData])
          if (found === undefined) continue
          if (typeof found.result === 'string') return found.result
          throw invalid('its response holds no signature')
        }
        throw new UsageError(
          'signer_refused',
          'the wallet supports no method that signs typed data',
          'use --typed-data and --signature with a wallet that cannot be asked',
        )
      },
    }),
    close: () => agent.close(),
  }
}

/** `undefined` where the wallet does not know the method. */
function resultOf(text: string, conceal: Conceal): { readonly result: unknown } | undefined {
  const reply = Reply.safeParse(jsonOf(text))
  if (!reply.success) throw invalid('its response is not JSON-RPC')
  const { result, error } = reply.data
  if (!error) return { result }
  const words = safeText(error.message ?? '', conceal)
  const unknown = /method.{0,60}(not found|not available|not supported|does not exist)/i
  if (error.code === -32601 || unknown.test(words)) return undefined
  throw new UsageError(
    'signer_refused',
    `the wallet refused to sign: ${words === '' ? `code ${error.code}` : words}`,
    "approve in the wallet, and check that it holds the proposer's account; then retry",
  )
}

/** A signer's URL by the rules for a gateway's (robustness §6). UsageError `invalid_signer_url`. */
export function requireSignerUrl(text: string, allowHttp?: readonly string[]): string {
  const fault = urlFault(text, allowHttp)
  if (fault === undefined) return text
  throw new UsageError(
    'invalid_signer_url',
    `the --signer URL ${fault}`,
    'give --signer https://host[:port][/path], or http:// for localhost, 127.0.0.0/8 or [::1]',
  )
}

const invalid = (why: string) =>
  new UsageError(
    'signer_answer',
    `the wallet behind --signer cannot be used: ${why}`,
    'check that --signer is the JSON-RPC address of a wallet',
  )

const timedOut = (timeoutMs: number) =>
  new UnavailableError(
    'signer_timed_out',
    `the wallet did not respond within ${Math.ceil(timeoutMs / 1_000)} s; it may still sign`,
    'check the wallet: it may be waiting for you. Then retry: it is asked for the same document',
  )

/** Failures before the wallet can have seen the call (robustness §6, Definite), TLS's among them. */
const beforeConnect =
  /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT|(ERR_TLS|ERR_SSL|CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO).*)$/

function unreachable(error: unknown): UnavailableError {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error
  const name =
    typeof cause === 'object' && cause !== null && 'code' in cause ? String(cause.code) : ''
  if (beforeConnect.test(name))
    return new UnavailableError(
      'signer_unreachable',
      `the wallet behind --signer: ${networkFault(error)}`,
      'start the wallet, and check the address',
    )
  return new UnavailableError(
    'signer_lost',
    `the connection to the wallet broke before it responded (${networkFault(error)}); it may still sign`,
    'check the wallet, then retry: it is asked for the same document',
  )
}
