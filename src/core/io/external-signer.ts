/**
 * Wallets behind JSON-RPC: Frame, web3signer, Clef and whatever else answers `eth_signTypedData_v4`
 * (contract §7). They get EIP-712 data that we built and nothing else; what they answer is hex from
 * outside, which the caller checks against the digest.
 */
import { Agent, fetch } from 'undici'
import * as z from 'zod'
import type { Address, Signer } from '../ports.js'
import { UnavailableError, UsageError } from '../protocol/errors.js'
import { safeText } from '../protocol/node-words.js'
import { concealing } from '../protocol/url-secrets.js'

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
  /** Told when the wallet is asked to sign. */
  readonly onAsk?: () => void
}

const answerMs = 60_000
/** An 8,192-byte signature is 16 KiB of hex. */
const maxAnswerBytes = 64 * 1024

const Reply = z.object({
  result: z.unknown().optional(),
  error: z.object({ code: z.number().optional(), message: z.string().optional() }).nullish(),
})

/**
 * The de facto method first; the older spelling for web3signer, and Clef's own, which takes the
 * object itself.
 */
const signingMethods = [
  { method: 'eth_signTypedData_v4', asText: true },
  { method: 'eth_signTypedData', asText: true },
  { method: 'account_signTypedData', asText: false },
] as const
const listingMethods = ['eth_accounts', 'account_list'] as const

/**
 * A wallet at a URL: https, or http on a loopback name, without user name and fragment. UsageError
 * `invalid_signer_url`. Its calls reject with UsageError `signer_refused` (a person or a rule said
 * no, or the method is not known), UnavailableError `signer_timed_out`, `signer_lost` (it has the
 * call and did not answer: it may sign yet) and `signer_unreachable` (exit 75). No URL appears in a
 * message (R5).
 */
export function openOutsideWallet(url: string, options: OutsideWalletOptions = {}): OutsideWallet {
  const target = requireSignerUrl(url)
  // A wallet, or what stands before it, may repeat the key in its address (R5).
  const conceal = concealing([target])
  const { timeoutMs = answerMs } = options
  const agent = new Agent({
    connect: { timeout: 5_000 },
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
  })

  /** `undefined` where the wallet does not know the method. */
  async function ask(
    method: string,
    params: readonly unknown[],
  ): Promise<{ readonly result: unknown } | undefined> {
    const overdue = AbortSignal.timeout(timeoutMs)
    const signal =
      options.signal === undefined ? overdue : AbortSignal.any([options.signal, overdue])
    let text: string
    try {
      const response = await fetch(target, {
        method: 'POST',
        headers: { 'content-type': 'application/json', accept: 'application/json' },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
        dispatcher: agent,
        redirect: 'error',
        signal,
      })
      text = await readCapped(response.body)
    } catch (error) {
      if (options.signal?.aborted === true) throw options.signal.reason
      if (error instanceof UsageError) throw error
      if (overdue.aborted) throw timedOut(timeoutMs)
      throw unreachable(error)
    }
    const reply = Reply.safeParse(jsonOf(text))
    if (!reply.success) throw odd('its answer is no JSON-RPC')
    const { result, error } = reply.data
    if (!error) return { result }
    const words = safeText(error.message ?? '', conceal)
    if (
      error.code === -32601 ||
      /method.{0,60}(not found|not available|not supported|does not exist)/i.test(words)
    )
      return undefined
    throw new UsageError(
      'signer_refused',
      `the wallet does not sign: ${words === '' ? `code ${error.code}` : words}`,
      {
        hint: "agree in the wallet, and check that it holds the proposer's account; then run the same command again",
      },
    )
  }

  return {
    async accounts() {
      for (const method of listingMethods) {
        const answer = await ask(method, [])
        if (answer === undefined) continue
        const list = z.array(z.string().regex(/^0x[0-9a-fA-F]{40}$/)).safeParse(answer.result)
        if (!list.success) throw odd('its list of accounts is none')
        return list.data.map((address) => address.toLowerCase() as Address)
      }
      return []
    },
    signer: (address) => ({
      address,
      async signDigest() {
        throw new UsageError(
          'signer_needs_typed_data',
          'a wallet behind --signer signs proposals only',
          {
            hint: 'for a transaction add --print and send the calldata from the wallet itself, or use --account',
          },
        )
      },
      async signTypedData(typedData) {
        options.onAsk?.()
        for (const { method, asText } of signingMethods) {
          const answer = await ask(method, [
            address,
            asText ? JSON.stringify(typedData) : typedData,
          ])
          if (answer === undefined) continue
          if (typeof answer.result === 'string') return answer.result
          throw odd('its answer holds no signature')
        }
        throw new UsageError(
          'signer_refused',
          'the wallet knows none of the methods that sign typed data',
          {
            hint: 'use --typed-data and --signature with a wallet that cannot be asked',
          },
        )
      },
    }),
    close: () => agent.close(),
  }
}

/** A signer's URL by the rules for a gateway's (robustness §6). UsageError `invalid_signer_url`. */
export function requireSignerUrl(text: string): string {
  const refuse = (why: string) =>
    new UsageError('invalid_signer_url', `the --signer URL ${why}`, {
      hint: 'give --signer https://host[:port][/path], or http:// for localhost, 127.0.0.0/8 or [::1]',
    })
  if (!URL.canParse(text)) throw refuse('is not a URL')
  const { protocol, hostname, username, password, hash } = new URL(text)
  if (protocol !== 'https:' && protocol !== 'http:') throw refuse('must begin with https://')
  if (username !== '' || password !== '') throw refuse('must not hold a user name or password')
  if (hash !== '') throw refuse('must not hold a fragment')
  const loopback =
    hostname === 'localhost' ||
    hostname === '[::1]' ||
    /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(hostname)
  if (protocol === 'http:' && !loopback)
    throw refuse('must be https: http is for loopback addresses only')
  return text
}

async function readCapped(body: AsyncIterable<Uint8Array> | null): Promise<string> {
  const decoder = new TextDecoder()
  let text = ''
  let size = 0
  for await (const chunk of body ?? []) {
    size += chunk.byteLength
    // Leaving the loop cancels the stream.
    if (size > maxAnswerBytes) throw odd('its answer is longer than any signature')
    text += decoder.decode(chunk, { stream: true })
  }
  return text + decoder.decode()
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // Not JSON: the schema refuses `undefined`.
    return undefined
  }
}

const odd = (why: string) =>
  new UsageError('signer_answer', `the wallet behind --signer cannot be used: ${why}`, {
    hint: 'check that --signer is the JSON-RPC address of a wallet',
  })

const timedOut = (timeoutMs: number) =>
  new UnavailableError(
    'signer_timed_out',
    `the wallet did not answer within ${Math.ceil(timeoutMs / 1_000)} s; it may sign yet`,
    {
      hint: 'look at the wallet: it may be waiting for you. Then run the same command again: it asks for the same document',
    },
  )

/** Failures before the wallet can have seen the call (robustness §6, Definite). */
const beforeConnect = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
])

function unreachable(error: unknown): UnavailableError {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error
  const name =
    typeof cause === 'object' && cause !== null && 'code' in cause ? String(cause.code) : undefined
  const code = name === undefined ? '' : ` (${safeText(name)})`
  const isTls =
    name !== undefined && /^(ERR_TLS|ERR_SSL|CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO)/.test(name)
  if (!isTls && !beforeConnect.has(name ?? '')) {
    return new UnavailableError(
      'signer_lost',
      `the connection to the wallet broke before it answered${code}; it may sign yet`,
      {
        hint: 'look at the wallet, then run the same command again: it asks for the same document',
      },
    )
  }
  return new UnavailableError(
    'signer_unreachable',
    `the wallet behind --signer cannot be reached${code}`,
    {
      hint: 'start the wallet, and check the address',
    },
  )
}
