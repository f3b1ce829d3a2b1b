/**
 * The executor's key behind JSON-RPC `eth_signTransaction` (contract §9, `executor.signer`).
 * gateway/executor/sending compares what comes back.
 */
import type { UnsignedTransaction } from '#ports'
import { checksummed } from '#protocol/address'
import { UnavailableError, UsageError } from '#protocol/errors'
import { quoteWords } from '#protocol/node-words'
import type { Address } from '#protocol/schema'
import type { KeySigner } from './key-files.js'
import { listedAccounts, openSignerCall, type SignerFaults } from './signer-call.js'

export interface RemoteSigner extends KeySigner {
  signTransaction(unsigned: UnsignedTransaction): Promise<string>
  accounts(): Promise<readonly Address[] | undefined>
}

const remoteSignerLimitMs = 5_000

/** A transaction has 128 KiB at most, in hex, and once more as JSON. */
const maxResponseBytes = 1024 * 1024

const signingMethods = ['eth_signTransaction', 'account_signTransaction'] as const

const hint =
  'check executor.signer in gateway.json, and the signer: its address, its rules, its log'

const faults: SignerFaults = {
  invalid: (why) =>
    new UsageError('signer_answer', `the remote signer cannot be used: ${why}`, hint),
  refused: (words) =>
    new UsageError('signer_refused', `the remote signer refused: ${quoteWords(words)}`, hint),
  timedOut: (seconds) =>
    new UnavailableError(
      'signer_timed_out',
      `the remote signer did not respond within ${seconds} s`,
      hint,
    ),
  unreachable: (why) =>
    new UnavailableError(
      'signer_unreachable',
      `the remote signer cannot be reached: ${why}`,
      'start the signer, and check executor.signer.url in gateway.json',
    ),
  lost: (why) =>
    new UnavailableError(
      'signer_lost',
      `the connection to the remote signer broke before it responded: ${why}`,
      hint,
    ),
}

export function openRemoteSigner(
  { url, address }: { url: string; address: Address },
  { timeoutMs = remoteSignerLimitMs }: { timeoutMs?: number } = {},
): RemoteSigner {
  const call = openSignerCall(url, faults, { timeoutMs, maxBytes: maxResponseBytes })
  return {
    address,
    async signDigest() {
      throw new Error('a remote signer signs no bare digest')
    },
    async signTransaction(unsigned) {
      const transaction = transactionJson(address, unsigned)
      for (const method of signingMethods) {
        const found = await call.ask(method, [transaction])
        if (found !== undefined) return rawOf(found.result)
      }
      throw new UsageError(
        'signer_refused',
        'the remote signer knows no method that signs a transaction',
        hint,
      )
    },
    accounts: () => listedAccounts(call, faults),
    dispose() {
      call.close().catch(() => undefined)
    },
  }
}

/** Clef takes no recipient without its checksum. */
function transactionJson(from: Address, { to, data, ...unsigned }: UnsignedTransaction) {
  return {
    from,
    to: checksummed(to),
    data,
    value: '0x0',
    chainId: quantity(unsigned.chainId),
    nonce: quantity(unsigned.nonce),
    gas: quantity(unsigned.gas),
    maxFeePerGas: quantity(unsigned.maxFeePerGas),
    maxPriorityFeePerGas: quantity(unsigned.maxPriorityFeePerGas),
  }
}

const quantity = (number: number | bigint) => `0x${number.toString(16)}`

/** geth and Clef have them in `raw`. */
function rawOf(result: unknown) {
  const raw = typeof result === 'object' && result !== null && 'raw' in result ? result.raw : result
  if (typeof raw === 'string') return raw
  throw faults.invalid('its response holds no transaction')
}
