/** Frame, web3signer, Clef (contract §7). The caller checks their signature. */

import type { Fetch, Signer } from '#ports'
import { UnavailableError, UsageError } from '#protocol/errors'
import { urlFault } from '#protocol/plain-http'
import type { Address } from '#protocol/schema'
import { listedAccounts, openSignerCall, type SignerFaults } from './signer-call.js'

interface OutsideWalletOptions {
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
  readonly allowHttp?: readonly string[] | undefined
  readonly onAsk?: () => void
  readonly traced?: ((fetch: Fetch) => Fetch) | undefined
}

const maxResponseBytes = 64 * 1024

/** web3signer's older spelling second; Clef's takes the object. */
const signingMethods = [
  { method: 'eth_signTypedData_v4', asText: true },
  { method: 'eth_signTypedData', asText: true },
  { method: 'account_signTypedData', asText: false },
] as const

/** `signer_timed_out` and `signer_lost`: it may sign yet. No URL appears in a message (R5). */
export function openOutsideWallet(url: string, options: OutsideWalletOptions = {}) {
  const target = requireSignerUrl(url, options.allowHttp)
  const { timeoutMs = 60_000, signal, onAsk, traced } = options
  const limits = { timeoutMs, maxBytes: maxResponseBytes, signal, traced }
  const call = openSignerCall(target, faults, limits)
  return {
    accounts: async () => (await listedAccounts(call, faults)) ?? [],
    signer: (address: Address): Signer => ({
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
          const found = await call.ask(method, [
            address,
            asText ? JSON.stringify(typedData) : typedData,
          ])
          if (found === undefined) continue
          if (typeof found.result === 'string') return found.result
          throw faults.invalid('its response holds no signature')
        }
        throw new UsageError(
          'signer_refused',
          'the wallet supports no method that signs typed data',
          'use --typed-data and --signature with a wallet that cannot be asked',
        )
      },
    }),
    close: call.close,
  }
}

/** By the rules for a gateway's URL (robustness §6). */
export function requireSignerUrl(text: string, allowHttp?: readonly string[]) {
  const fault = urlFault(text, allowHttp)
  if (fault === undefined) return text
  throw new UsageError(
    'invalid_signer_url',
    `the --signer URL ${fault}`,
    'give --signer https://host[:port][/path], or http:// for localhost, 127.0.0.0/8 or [::1]',
  )
}

const faults: SignerFaults = {
  invalid: (why) =>
    new UsageError(
      'signer_answer',
      `the wallet behind --signer cannot be used: ${why}`,
      'check that --signer is the JSON-RPC address of a wallet',
    ),
  refused: (words) =>
    new UsageError(
      'signer_refused',
      `the wallet refused to sign: ${words}`,
      "approve in the wallet, and check that it holds the proposer's account; then retry",
    ),
  timedOut: (seconds) =>
    new UnavailableError(
      'signer_timed_out',
      `the wallet did not respond within ${seconds} s; it may still sign`,
      'check the wallet: it may be waiting for you. Then retry: it is asked for the same document',
    ),
  unreachable: (why) =>
    new UnavailableError(
      'signer_unreachable',
      `the wallet behind --signer: ${why}`,
      'start the wallet, and check the address',
    ),
  lost: (why) =>
    new UnavailableError(
      'signer_lost',
      `the connection to the wallet broke before it responded (${why}); it may still sign`,
      'check the wallet, then retry: it is asked for the same document',
    ),
}
