/**
 * What the view knows of wallets: whether there is code at an address, and what that code says of a
 * signature (contract §2, domain §3.3).
 */
import { encodeFunctionData } from 'viem'
import { eip1271MagicValue, erc1271Abi } from '../../chain/contracts.js'
import { type Address, type Chain, ChainError, type Clock, type Hex } from '../../ports.js'
import { UnavailableError } from '../../protocol/errors.js'
import { within } from './deadline.js'

/** EIP-1271 by eth_call: time and gas it may take (robustness §5). */
const walletCallMs = 3_000
const walletCallGas = 3_000_000n
/**
 * Deployment and EIP-7702 leave no log, so code is read again now and then; refusals, validation
 * and executor read it again anyway.
 */
const refreshAfterMs = 60_000
const staleAfterMs = 300_000
const refreshAtOnce = 100
const rememberedWallets = 10_000
/**
 * A wallet's code is read for its refusals at most this often (R19); who asks in between waits for
 * the next time.
 */
const rereadMs = 500

export interface Wallets {
  known(account: Address): boolean | undefined
  hasCode(account: Address): Promise<boolean>
  authorizes(wallet: Address, digest: Hex, signature: Hex): Promise<boolean>
  /** Reads the code of these again where it is unknown or old; a part at a time. */
  refresh(accounts: Iterable<Address>): Promise<void>
}

/**
 * Whether the answer of `isValidSignature` is yes as Permit2 reads it: 32 bytes that are the magic
 * value and zeros.
 */
export function isMagicAnswer(answer: Hex): boolean {
  return answer.slice(0, 66) === `${eip1271MagicValue}${'0'.repeat(56)}`
}

/** The call that asks a wallet. */
export function isValidSignatureCall(wallet: Address, digest: Hex, signature: Hex) {
  return {
    to: wallet,
    data: encodeFunctionData({
      abi: erc1271Abi,
      functionName: 'isValidSignature',
      args: [digest, signature],
    }),
    gas: walletCallGas,
  }
}

/** Throws UnavailableError `state_unavailable` where the chain gave no answer. */
export function createWallets(chain: Chain, clock: Clock): Wallets {
  const codes = new Map<Address, { readonly has: boolean; readonly atMs: number }>()
  const fresh = (account: Address, limitMs: number) => {
    const found = codes.get(account)
    return found !== undefined && clock.monotonicMs() - found.atMs < limitMs ? found.has : undefined
  }
  const underWay = new Map<Address, Promise<boolean>>()
  const read = async (account: Address) => {
    const has = (await chain.code(account)) !== '0x'
    codes.delete(account)
    codes.set(account, { has, atMs: clock.monotonicMs() })
    const [oldest] = codes.keys()
    if (codes.size > rememberedWallets && oldest !== undefined) codes.delete(oldest)
    return has
  }
  const readSoon = async (account: Address) => {
    const waitMs =
      (codes.get(account)?.atMs ?? Number.NEGATIVE_INFINITY) + rereadMs - clock.monotonicMs()
    if (waitMs > 0) await clock.sleep(waitMs)
    return read(account)
  }
  /** One read a wallet, whoever asks. */
  const readOnce = (account: Address) => {
    const known = underWay.get(account)
    if (known) return known
    const begun = readSoon(account).finally(() => underWay.delete(account))
    underWay.set(account, begun)
    return begun
  }
  return {
    known: (account) => fresh(account, staleAfterMs),
    hasCode: (account) =>
      orUnavailable(
        within(clock, walletCallMs, readOnce(account)),
        `whether there is code at ${account}`,
      ),
    async authorizes(wallet, digest, signature) {
      const asked = chain
        .call(isValidSignatureCall(wallet, digest, signature))
        .then(isMagicAnswer, (error: unknown) => {
          // The wallet's own refusal, in whatever form, is an answer: no.
          if (error instanceof ChainError && error.kind === 'reverted') return false
          throw error
        })
      return orUnavailable(
        within(clock, walletCallMs, asked),
        `whether the wallet ${wallet} accepts the signature`,
      )
    },
    async refresh(accounts) {
      const due: Address[] = []
      for (const account of accounts) {
        if (fresh(account, refreshAfterMs) === undefined) due.push(account)
        if (due.length === refreshAtOnce) break
      }
      await Promise.all(
        due.map((account) =>
          read(account).catch((error: unknown) => {
            // What was known stays until it is stale; the next look asks again.
            if (!(error instanceof ChainError)) throw error
          }),
        ),
      )
    },
  }
}

/** A chain that gives no answer is a reason to come back later, not a verdict (R16). */
export async function orUnavailable<T>(work: Promise<T>, what: string): Promise<T> {
  try {
    return await work
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    throw new UnavailableError('state_unavailable', `the chain does not tell ${what}`, {
      httpStatus: 503,
      retryAfterMs: 2_000,
      cause: error,
      hint: 'wait and send the same request again',
    })
  }
}
