/** The wallet's own transactions: the same bytes until a node has them (robustness §3; domain §8). */
import { encodeFunctionData, maxUint256 } from 'viem'
import { erc20Abi, oracleAbi, permit2Abi } from '#chain/contracts'
import { coinText, knownToken } from '#chain/profiles'
import { readToken } from '#chain/questions'
import { latestBlock, readContract } from '#chain/reading'
import { decodeRevert } from '#chain/reverts'
import { gasLimit, minimumTipWei, signTransaction } from '#chain/transaction'
import { onChain } from '#chain/unavailable'
import {
  type Chain,
  ChainError,
  type ChainReceipt,
  type Clock,
  type Hex,
  type Signer,
  type UnsignedTransaction,
} from '#ports'
import { amountWithRaw } from '#protocol/amount'
import { InterruptedError, PendingError, UnavailableError, UsageError } from '#protocol/errors'
import { nonceBit } from '#protocol/permit'
import type { Address } from '#protocol/schema'
import { isBytes32, zeroAddress } from '#protocol/words'
import { claimsIn, orUndefined, pinnedHeads, spentNonces } from '../funds/funds.js'
import { slept } from '../gateway/answer.js'
import { unknownId } from '../journal/authorizations.js'
import type { Journal, JournalPorts, JournalView } from '../journal/journal.js'
import type { Trust } from '../trust/trust.js'
import { type AuthorizationStanding, readStanding, settleByChain } from './reconcile.js'

export interface OwnTransaction extends Pick<UnsignedTransaction, 'to' | 'data'> {
  readonly what: string
}

export type PlannedTransaction = Awaited<ReturnType<typeof planTransactions>>[number]

interface SendParts {
  readonly chain: Chain
  readonly clock: Clock
  readonly signal?: AbortSignal
  readonly timeoutMs?: number | undefined
}

/** A node that lies about fees would have the wallet burn what it holds. Wei. */
const mostPerGas = 1_000n * 10n ** 9n
const mostInAll = 10n ** 18n

const waitMs = 120_000
const receiptPauseMs = 500

/** `maxFeeWei`: for all together. */
export async function planTransactions(
  chain: Chain,
  chainId: number,
  from: Address,
  transactions: readonly OwnTransaction[],
  maxFeeWei?: bigint,
) {
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
    const planned = await Promise.all(
      transactions.map(async (one, index) => {
        const gas = gasLimit(await estimated(chain, from, one))
        const fees = { gas, maxFeePerGas, maxPriorityFeePerGas }
        return { ...one, chainId, from, nonce: nonce + index, ...fees }
      }),
    )
    const cost = planned.reduce((sum, { gas }) => sum + gas * maxFeePerGas, 0n)
    checkFee(chainId, cost, maxFeePerGas, maxFeeWei)
    if (wei >= cost) return planned
    throw noGasMoney(`${from} holds ${wei} wei, and the gas may cost up to ${cost}`)
  })
}

function checkFee(chainId: number, costWei: bigint, perGasWei: bigint, maxFeeWei?: bigint) {
  const capWei = maxFeeWei ?? mostInAll
  const isDear = maxFeeWei === undefined && perGasWei > mostPerGas
  if (costWei <= capWei && !isDear) return
  const gwei = (wei: bigint) => `${wei / 10n ** 9n} gwei per gas`
  const cap = isDear ? gwei(mostPerGas) : coinText(capWei, chainId)
  throw new UsageError(
    'fee_above_cap',
    `the node asks for up to ${coinText(costWei, chainId)} of fees (${gwei(perGasWei)}), the cap is ${cap}`,
    `compare with another node (--rpc-url); if it is right, allow it with --max-fee ${costWei}raw`,
  )
}

async function estimated(chain: Chain, from: Address, { to, data, what }: OwnTransaction) {
  try {
    return await chain.estimateGas({ from, to, data })
  } catch (error) {
    const { kind, data: revert = '0x' } = error instanceof ChainError ? error : {}
    if (kind === 'insufficient_funds') throw noGasMoney(`${from} cannot pay for the gas`)
    if (kind !== 'reverted') throw error
    throw new UsageError(
      'transaction_would_revert',
      `the chain would refuse to ${what}: ${decodeRevert(revert).text}`,
      'nothing was sent; check the pins (`proposer trust verify`) and the account',
    )
  }
}

const noGasMoney = (detail: string) =>
  new UsageError('no_gas_money', detail, "send the account some of the chain's coin")

type SentTransaction = Awaited<ReturnType<typeof sendOne>>

export async function sendTransactions(
  parts: SendParts,
  signer: Signer,
  planned: readonly PlannedTransaction[],
) {
  const sent: SentTransaction[] = []
  for (const one of planned) sent.push(await sendOne(parts, signer, one))
  return sent
}

async function sendOne(
  { chain, clock, signal, timeoutMs = waitMs }: SendParts,
  signer: Signer,
  planned: PlannedTransaction,
) {
  signal?.throwIfAborted()
  const { what, from: _from, ...unsigned } = planned
  const signed = signer.sendTransaction ? undefined : await signTransaction(signer, unsigned)
  const { raw, hash } = signed ?? { hash: await sentByWallet(signer, planned) }
  const endMs = clock.monotonicMs() + timeoutMs
  let refusal = raw && (await handOver(chain, raw))
  for (;;) {
    const receipt = await chain.receipt(hash).catch(orUndefined)
    if (receipt && !raw) await requireSame(chain, receipt, planned)
    if (receipt?.status === 'success') return { hash, receipt }
    if (receipt)
      throw new UsageError(
        'transaction_reverted',
        `transaction ${hash} was mined and reverted: it did not ${what}`,
        'check it in a block explorer, then retry',
      )
    // A refusal stands only where the node is certain that it is not mined.
    if (refusal && receipt === null) throw refusal
    if (clock.monotonicMs() >= endMs || !(await slept({ clock }, receiptPauseMs, signal)))
      throw unfinished(signal?.reason, hash)
    // Dropped or never arrived: the same bytes again, never another transaction.
    if (!raw) continue
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
  const hash = String(given).toLowerCase()
  if (isBytes32(hash)) return hash
  throw new UsageError(
    'signer_answer',
    'the wallet brought no transaction hash',
    'look into the wallet whether it sent something before you run the command again',
  )
}

/** Wallets let people edit what they send. */
async function requireSame(
  chain: Chain,
  { transactionHash: hash, from, to }: ChainReceipt,
  planned: PlannedTransaction,
) {
  const { data, what } = planned
  const sent = (await onChain(() => chain.calldata(hash))) ?? data
  const isSame =
    (from ?? planned.from) === planned.from &&
    (to === undefined || to === planned.to) &&
    sent.toLowerCase() === data.toLowerCase()
  if (isSame) return
  throw new UsageError(
    'transaction_changed',
    `the wallet sent something else as transaction ${hash}: it does not ${what}`,
    'check it in a block explorer, then run the command again',
  )
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

function unfinished(reason: unknown, hash: Hex) {
  const hint = 'look for it in a block explorer, or rerun the command: nothing is done twice'
  const meta = { hint, retryable: true }
  const sent = `transaction ${hash} is sent and`
  return reason instanceof InterruptedError
    ? new InterruptedError('interrupted', `${reason.detail}; ${sent} may still be mined`, meta)
    : new PendingError('transaction_pending', `${sent} not mined yet`, meta)
}

export const unlimitedRaw: bigint = maxUint256

/** Domain §3.3. */
export function approval(trust: Trust, token: Address, amountRaw: bigint) {
  const { permit2, chain_id: chainId } = trust
  const args = [permit2, amountRaw] as const
  const amount =
    amountRaw === unlimitedRaw ? 'unlimited' : amountWithRaw(amountRaw, knownToken(chainId, token))
  return {
    to: token,
    data: encodeFunctionData({ abi: erc20Abi, functionName: 'approve', args }),
    what: `approve Permit2 (${permit2}) for token ${token}: ${amount}`,
  }
}

export type DeferredPayout = Awaited<ReturnType<typeof deferredPayouts>>[number]

/** Domain §10. */
export async function deferredPayouts(chain: Chain, trust: Trust, wallet: Address) {
  const at = (await pinnedHeads(chain, trust)).latest.number
  const read = async (oracle: Address, token: Address) => {
    const name = 'deferredPayouts'
    const [{ symbol, decimals }, amountRaw] = await Promise.all([
      readToken(chain, token, at),
      readContract(chain, at, oracle, oracleAbi, name, [token, wallet]),
    ])
    return { wallet, oracle, token, symbol, decimals, amountRaw }
  }
  const all = await onChain(() =>
    Promise.all(
      trust.oracles.flatMap((oracle) => trust.tokens.map((token) => read(oracle, token))),
    ),
  )
  return all.filter(({ amountRaw }) => amountRaw > 0n)
}

export function payoutClaim(payout: DeferredPayout, to: Address) {
  const { oracle, token, wallet, amountRaw } = payout
  const functionName = 'claimDeferredPayout'
  const goesTo = to === wallet ? '' : ` to ${to}`
  return {
    to: oracle,
    data: encodeFunctionData({ abi: oracleAbi, functionName, args: [token, to] }),
    what: `claim the deferred payout of ${amountWithRaw(amountRaw, payout)}${goesTo}`,
  }
}

export async function planRevocations(
  { trust, journal }: RevokeParts,
  ids: readonly string[],
  chain: Chain | undefined,
) {
  const view = await journal.load()
  const named = [...new Set(ids)].map((id) => revocable(view, trust, id))
  const [owner = zeroAddress, other] = [...new Set(named.map((one) => one.owner))]
  if (other)
    throw new UsageError(
      'several_owners',
      `these were signed by several accounts: ${owner} and ${other}`,
      'revoke those of one account at a time: only it can cancel its nonces',
    )
  const { permit2 } = trust
  const seenAt = chain ? (await pinnedHeads(chain, trust)).latest.number : 0n
  const spent = chain && (await onChain(() => spentNonces(chain, permit2, seenAt, named)))
  const words = new Map<bigint, { mask: bigint; ids: string[] }>()
  for (const { id, nonce } of named) {
    if (spent?.has(id)) continue
    const { word, mask } = nonceBit(nonce)
    const known = words.get(word) ?? { mask: 0n, ids: [] }
    words.set(word, { mask: known.mask | mask, ids: [...known.ids, id] })
  }
  const functionName = 'invalidateUnorderedNonces'
  return {
    ...{ owner, seenAt, spent: [...(spent ?? [])] },
    questionIds: [...new Set(named.map(({ questionId }) => questionId))],
    revocations: [...words].map(([word, { mask, ids }]) => ({
      ...{ word, mask, ids },
      transaction: {
        to: permit2,
        data: encodeFunctionData({ abi: permit2Abi, functionName, args: [word, mask] }),
        what: `cancel the Permit2 nonces of ${ids.join(', ')}`,
      },
    })),
  }
}

function revocable(view: JournalView, trust: Trust, id: string) {
  const found = claimsIn(view).find((one) => one.id === id)
  if (!found) throw unknownId(id)
  if (found.chainId !== trust.chain_id)
    throw new UsageError(
      'other_chain',
      `${id} is for chain ${found.chainId}, the trust file pins ${trust.chain_id}`,
      'choose the profile or the --trust file of that chain',
    )
  // A refused or failed one may still be executed.
  const { terminals = [] } = view.find(id) ?? {}
  const end = terminals.find((one) => ['executed', 'nonce_used'].includes(one.outcome))
  if (!end) return found
  throw new UsageError(
    'authorization_closed',
    `${id} is closed (${end.outcome}): its nonce is spent, there is nothing to revoke`,
    'see `proposer journal show`',
  )
}

interface RevokeParts {
  readonly journal: Journal
  readonly trust: Trust
}

interface FinishParts extends RevokeParts, Omit<SendParts, 'clock'> {
  readonly ports: JournalPorts
}

const finalityPauseMs = 1_000

/** By final state (contract §1, R14). */
export async function finishRevocation(
  { ports, journal, trust, chain, signal, timeoutMs = waitMs }: FinishParts,
  plan: Awaited<ReturnType<typeof planRevocations>>,
  sent: readonly SentTransaction[],
) {
  const { clock } = ports
  const ids = [...plan.spent, ...plan.revocations.flatMap((one) => one.ids)]
  const mined = sent.at(-1)?.receipt.blockNumber ?? plan.seenAt
  const endMs = clock.monotonicMs() + timeoutMs
  let isFinal: boolean
  do isFinal = (await pinnedHeads(chain, trust)).finalized.number >= mined
  while (!isFinal && clock.monotonicMs() < endMs && (await slept(ports, finalityPauseMs, signal)))
  const claims = claimsIn(await journal.load())
  const standings = new Map<string, AuthorizationStanding>()
  for (const questionId of plan.questionIds) {
    const { of } = await readStanding(chain, trust, questionId, claims)
    for (const [id, standing] of of) if (ids.includes(id)) standings.set(id, standing)
  }
  // Whose nonce was free in the block before our transaction.
  const codes = new Map<string, string>()
  for (const [index, { receipt }] of sent.entries()) {
    const covered = claims.filter(({ id }) => plan.revocations[index]?.ids.includes(id))
    const before = receipt.blockNumber - 1n
    // If the node has forgotten that block: they were free when we planned.
    const spent = await spentNonces(chain, trust.permit2, before, covered).catch(orUndefined)
    for (const { id } of covered) if (!spent?.has(id)) codes.set(id, 'nonce_invalidated')
  }
  await settleByChain({ ports, journal }, standings, codes)
  const view = await journal.load()
  const results = ids.map((id) => {
    const journaled = view.find(id)?.terminals.at(-1)
    const ended = (journaled ?? standings.get(id)?.proof)?.outcome
    if (ended === 'failed') return { id, outcome: undefined }
    const isRevoked = ended === 'nonce_used' && codes.has(id)
    return { id, outcome: isRevoked ? ('revoked' as const) : ended }
  })
  if (isFinal) return { results, error: undefined }
  const detail = `block ${mined} was not final within the time limit: nothing is proven yet`
  const hint = `run ${reconcileText(plan.questionIds)} later: it journals the outcome`
  return { results, error: new PendingError('not_final', detail, { hint, retryable: true }) }
}

export const reconcileText = (questionIds: readonly string[]) =>
  questionIds.map((id) => `\`proposer reconcile ${id}\``).join(' and ')
