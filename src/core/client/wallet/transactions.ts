/**
 * The wallet's own small transactions. The same bytes are sent until a node has them (robustness
 * §3; domain §8).
 */

import { encodeFunctionData, keccak256, maxUint256, serializeTransaction } from 'viem'
import { erc20Abi, oracleAbi } from '#chain/contracts'
import { coinText, knownToken } from '#chain/profiles'
import { readToken } from '#chain/questions'
import { latestBlock, readContract } from '#chain/reading'
import { decodeRevert } from '#chain/reverts'
import { onChain } from '#chain/unavailable'
import {
  type Chain,
  ChainError,
  type ChainReceipt,
  type Clock,
  type Hex,
  type Signer,
} from '#ports'
import { amountWithRaw, type TokenUnits } from '#protocol/amount'
import {
  InterruptedError,
  PendingError,
  ProposerError,
  UnavailableError,
  UsageError,
} from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { pinnedHeads } from '../funds/funds.js'
import { isAborted } from '../gateway/answer.js'
import type { Trust } from '../trust/trust.js'

export interface OwnTransaction {
  readonly to: Address
  readonly data: Hex
  readonly what: string
}

export interface PlannedTransaction extends OwnTransaction {
  readonly chainId: number
  readonly from: Address
  readonly nonce: number
  readonly gas: bigint
  readonly maxFeePerGas: bigint
  readonly maxPriorityFeePerGas: bigint
}

export interface SendParts {
  readonly chain: Chain
  readonly clock: Clock
  readonly signal?: AbortSignal
  readonly timeoutMs?: number | undefined
}

/** A node that lies about fees would have the wallet burn what it holds. */
const defaultCeiling = { perGasWei: 1_000n * 10n ** 9n, totalWei: 10n ** 18n }

/** Polygon's nodes refuse a lower tip, and many suggest less (domain §8). Wei. */
const minimumTipWei: Readonly<Record<number, bigint>> = { 137: 25_000_000_000n }
const receiptWaitMs = 120_000
const receiptPauseMs = 500

/** `maxFeeWei`: all of them together; without it 1,000 gwei per gas and one coin. */
export async function planTransactions(
  chain: Chain,
  chainId: number,
  from: Address,
  transactions: readonly OwnTransaction[],
  maxFeeWei?: bigint,
): Promise<readonly PlannedTransaction[]> {
  return onChain(async () => {
    const [head, nodeTip, nonce, wei] = await Promise.all([
      latestBlock(chain),
      chain.tip(),
      chain.transactionCount(from, 'pending'),
      chain.balance(from),
    ])
    const leastTip = minimumTipWei[chainId] ?? 0n
    const maxPriorityFeePerGas = nodeTip > leastTip ? nodeTip : leastTip
    const maxFeePerGas = 2n * head.baseFeePerGas + maxPriorityFeePerGas
    const planned: PlannedTransaction[] = []
    for (const [index, one] of transactions.entries()) {
      // Storage refunds make the needed limit larger than what is used in the end (domain §8).
      const gas = ((await estimated(chain, from, one)) * 120n + 99n) / 100n
      const fees = { gas, maxFeePerGas, maxPriorityFeePerGas }
      planned.push({ ...one, chainId, from, nonce: nonce + index, ...fees })
    }
    const cost = planned.reduce((sum, { gas }) => sum + gas * maxFeePerGas, 0n)
    checkFee(chainId, cost, maxFeePerGas, maxFeeWei)
    if (wei >= cost) return planned
    throw noGasMoney(
      `${from} cannot pay for the gas: it holds ${wei} wei, up to ${cost} are needed`,
    )
  })
}

function checkFee(
  chainId: number,
  costWei: bigint,
  perGasWei: bigint,
  maxFeeWei: bigint | undefined,
) {
  const capWei = maxFeeWei ?? defaultCeiling.totalWei
  const isDear = maxFeeWei === undefined && perGasWei > defaultCeiling.perGasWei
  if (costWei <= capWei && !isDear) return
  const cost = `${coinText(costWei, chainId)} of fees`
  const gwei = (wei: bigint) => `${wei / 10n ** 9n} gwei per gas`
  throw new UsageError(
    'fee_above_cap',
    isDear
      ? `the node asks for ${gwei(perGasWei)} (${cost}), the cap is ${gwei(defaultCeiling.perGasWei)}`
      : `the node asks for up to ${cost}, the cap is ${coinText(capWei, chainId)}`,
    `compare with another node (--rpc-url); if it is right, allow it with --max-fee ${costWei}raw`,
  )
}

async function estimated(chain: Chain, from: Address, { to, data, what }: OwnTransaction) {
  try {
    return await chain.estimateGas({ from, to, data })
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    if (error.kind === 'insufficient_funds')
      throw noGasMoney(`${from} cannot pay for the gas: it has too little`)
    if (error.kind !== 'reverted') throw error
    throw new UsageError(
      'transaction_would_revert',
      `the chain would refuse to ${what}: ${decodeRevert(error.data).text}`,
      'nothing was sent; check the pins (`proposer trust verify`) and the account',
    )
  }
}

const noGasMoney = (detail: string) =>
  new UsageError('no_gas_money', detail, "send the account some of the chain's coin")

export interface SentTransaction {
  readonly planned: PlannedTransaction
  readonly hash: Hex
  readonly receipt: ChainReceipt
}

export async function sendTransactions(
  parts: SendParts,
  signer: Signer,
  planned: readonly PlannedTransaction[],
): Promise<readonly SentTransaction[]> {
  const sent: SentTransaction[] = []
  for (const one of planned) sent.push(await sendOne(parts, signer, one))
  return sent
}

async function sendOne(
  { chain, clock, signal, timeoutMs = receiptWaitMs }: SendParts,
  signer: Signer,
  planned: PlannedTransaction,
) {
  // Nothing of this one is sent yet, so the reason stands for itself.
  signal?.throwIfAborted()
  const raw = signer.sendTransaction ? undefined : await signedBytes(signer, planned)
  const hash = raw === undefined ? await sentByWallet(signer, planned) : keccak256(raw)
  const endMs = clock.monotonicMs() + timeoutMs
  let refusal = raw === undefined ? undefined : await handOver(chain, raw)
  for (;;) {
    const receipt = await receiptOf(chain, hash)
    if (receipt && raw === undefined) await requireSame(chain, receipt, planned)
    if (receipt?.status === 'success') return { planned, hash, receipt }
    if (receipt)
      throw new UsageError(
        'transaction_reverted',
        `transaction ${hash} was mined and reverted: it did not ${planned.what}`,
        'check it in a block explorer, then retry',
      )
    // Only a node that says for certain that it is not mined lets a refusal stand.
    if (refusal !== undefined && receipt === null) throw refusal
    if (isAborted(signal)) throw stopped(signal, hash)
    if (clock.monotonicMs() >= endMs) throw pending(hash)
    try {
      await clock.sleep(receiptPauseMs, signal)
    } catch (error) {
      throw isAborted(signal) ? stopped(signal, hash) : error
    }
    // Dropped or never arrived: the same bytes again, never another transaction.
    if (raw === undefined) continue
    if (receipt === undefined || !(await chain.hasTransaction(hash).catch(() => true)))
      refusal = await handOver(chain, raw)
  }
}

async function sentByWallet(signer: Signer, planned: PlannedTransaction) {
  const { chainId, from, to, data, what, gas, maxFeePerGas } = planned
  const rows = [
    ['purpose', what],
    ['chain', String(chainId)],
    ['from', from],
    ['to', to],
    ['costs at most', `about ${coinText(gas * maxFeePerGas, chainId)} (gas); the wallet decides`],
  ] as const
  const given = await signer.sendTransaction?.({ chainId, from, to, data }, rows)
  if (/^0x[0-9a-f]{64}$/i.test(given ?? '')) return (given ?? '').toLowerCase() as Hex
  throw new UsageError(
    'signer_answer',
    'the wallet brought no transaction hash',
    'look into the wallet whether it sent something before you run the command again',
  )
}

/** Wallets let people edit what they send, and may send from the account that they show. */
async function requireSame(
  chain: Chain,
  { transactionHash: hash, from, to }: ChainReceipt,
  planned: PlannedTransaction,
) {
  const { data, what } = planned
  const sent = await onChain(() => chain.calldata(hash))
  const isSame =
    (from ?? planned.from) === planned.from &&
    (to === undefined || to === planned.to) &&
    (sent === null || sent.toLowerCase() === data.toLowerCase())
  if (isSame) return
  throw new UsageError(
    'transaction_changed',
    `the wallet sent something else as transaction ${hash}: it does not ${what}`,
    'check it in a block explorer, then run the command again',
  )
}

async function signedBytes(signer: Signer, planned: PlannedTransaction) {
  const { what: _what, from: _from, ...fields } = planned
  const transaction = { type: 'eip1559', value: 0n, accessList: [], ...fields } as const
  const signature = await signer.signDigest(keccak256(serializeTransaction(transaction)))
  return serializeTransaction(transaction, {
    r: `0x${signature.slice(2, 66)}`,
    s: `0x${signature.slice(66, 130)}`,
    yParity: signature.endsWith('1c') ? 1 : 0,
  })
}

async function handOver(chain: Chain, raw: Hex) {
  try {
    await chain.send(raw)
    return undefined
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    const { kind } = error
    if (kind === 'already_known' || kind === 'unavailable') return undefined
    if (kind === 'insufficient_funds') return noGasMoney('the account cannot pay for the gas')
    return ['nonce_too_low', 'nonce_too_high', 'replacement_underpriced'].includes(kind)
      ? new UnavailableError(
          'account_busy',
          `another transaction of the account is pending (${kind})`,
          'wait until it is mined, then retry',
        )
      : new UnavailableError(
          'transaction_refused',
          `the node rejected the transaction (${kind})`,
          'retry later, or with another --rpc-url',
        )
  }
}

async function receiptOf(chain: Chain, hash: Hex) {
  try {
    return await chain.receipt(hash)
  } catch (error) {
    if (error instanceof ChainError) return undefined
    throw error
  }
}

const pending = (hash: Hex) =>
  new PendingError('transaction_pending', `transaction ${hash} is sent and not mined yet`, {
    hint: 'look for it in a block explorer, or rerun the command: nothing is done twice',
    retryable: true,
  })

function stopped(signal: AbortSignal | undefined, hash: Hex) {
  const reason: unknown = signal?.reason
  const why = reason instanceof ProposerError ? reason.detail : 'stopped'
  if (reason instanceof ProposerError && !(reason instanceof InterruptedError)) return pending(hash)
  return new InterruptedError(
    'interrupted',
    `${why}; transaction ${hash} is sent and may still be mined`,
    {
      hint: 'look for it in a block explorer before running the command again',
      retryable: true,
    },
  )
}

export const unlimitedRaw: bigint = maxUint256

/** So that Permit2 may move the token (domain §3.3). */
export function approval(trust: Trust, token: Address, amountRaw: bigint): OwnTransaction {
  const { permit2, chain_id: chainId } = trust
  const args = [permit2, amountRaw] as const
  const amount =
    amountRaw === unlimitedRaw
      ? 'unlimited'
      : amountWithRaw(String(amountRaw), knownToken(chainId, token))
  return {
    to: token,
    data: encodeFunctionData({ abi: erc20Abi, functionName: 'approve', args }),
    what: `approve Permit2 (${permit2}) for token ${token}: ${amount}`,
  }
}

export interface DeferredPayout extends TokenUnits {
  readonly wallet: Address
  readonly oracle: Address
  readonly token: Address
  readonly amountRaw: bigint
}

/** The oracle keeps payouts that it could not make (domain §10). */
export async function deferredPayouts(
  chain: Chain,
  trust: Trust,
  wallets: readonly Address[],
): Promise<readonly DeferredPayout[]> {
  const at = (await pinnedHeads(chain, trust)).latest.number
  return onChain(async () => {
    const units = await Promise.all(trust.tokens.map((token) => readToken(chain, token, at)))
    const all = wallets.flatMap((wallet) =>
      trust.oracles.flatMap((oracle) =>
        units.map(async ({ address: token, symbol, decimals }) => {
          const asked = [token, wallet] as const
          const amountRaw = await readContract(
            chain,
            at,
            oracle,
            oracleAbi,
            'deferredPayouts',
            asked,
          )
          return { wallet, oracle, token, symbol, decimals, amountRaw }
        }),
      ),
    )
    return (await Promise.all(all)).filter(({ amountRaw }) => amountRaw > 0n)
  })
}

export function payoutClaim(payout: DeferredPayout, to: Address): OwnTransaction {
  const { oracle, token, wallet, amountRaw } = payout
  const goesTo = to === wallet ? '' : ` to ${to}`
  return {
    to: oracle,
    data: encodeFunctionData({
      abi: oracleAbi,
      functionName: 'claimDeferredPayout',
      args: [token, to],
    }),
    what: `claim the deferred payout of ${amountWithRaw(String(amountRaw), payout)}${goesTo}`,
  }
}
