/**
 * What a wallet can still authorize: balance and Permit2 allowance, less what its own
 * authorizations may take (spec §5, domain §3.3).
 */
import { encodeFunctionData, maxUint256 } from 'viem'
import { plainText } from '../../chain/ancillary.js'
import { erc20Abi, permit2Abi } from '../../chain/contracts.js'
import { knownToken } from '../../chain/profiles.js'
import { readContract } from '../../chain/reading.js'
import { type Address, type BlockHeader, type Chain, ChainError, type Hex } from '../../ports.js'
import { amountWithRaw } from '../../protocol/amount.js'
import { nonceBit, nonceUsed } from '../../protocol/permit.js'
import { isOfferOpen, isOpen } from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import { onChain } from '../trust/context.js'
import { type Trust, untrusted } from '../trust/trust.js'
import type { OwnTransaction } from './transactions.js'

/**
 * Something in the journal that may still take tokens: an open authorization, or typed data that a
 * wallet outside may sign.
 */
export interface Claim {
  readonly id: string
  readonly owner: Address
  readonly chainId: number
  /** Absent for a payload signed elsewhere: it counts for every token, which is the safe side. */
  readonly token: Address | undefined
  /** Absent likewise. */
  readonly round: string | undefined
  readonly amountRaw: bigint
  readonly nonce: bigint
  /** Unix seconds. */
  readonly deadlineSeconds: bigint
}

/** Everything in the journal that is not closed at `nowMs` (Unix milliseconds), oldest first. */
export function openClaims(
  view: Pick<JournalView, 'authorizations' | 'offers'>,
  nowMs: number,
): readonly Claim[] {
  return [
    ...view.authorizations
      .filter((one) => isOpen(one, nowMs))
      .map(({ id, signed }) => claimOf(id, signed)),
    ...view.offers
      .filter((one) => isOfferOpen(one, nowMs))
      .map(({ id, offered }) => claimOf(id, offered)),
  ]
}

interface Recorded {
  readonly chainId: number
  readonly token?: string | undefined
  readonly round?: string | undefined
  readonly terms: {
    readonly proposer: string
    readonly amount: string
    readonly nonce: string
    readonly deadline: string
  }
}

/** A `signed` or `offered` record as a claim. */
export function claimOf(id: string, { chainId, token, round, terms }: Recorded): Claim {
  return {
    id,
    owner: terms.proposer as Address,
    chainId,
    token: token as Address | undefined,
    round,
    amountRaw: BigInt(terms.amount),
    nonce: BigInt(terms.nonce),
    deadlineSeconds: BigInt(terms.deadline),
  }
}

/** Claims that concern one owner's token on the pinned chain. */
export function claimsOn(
  claims: readonly Claim[],
  whose: { readonly chainId: number; readonly owner: Address; readonly token: Address },
) {
  return claims.filter(
    (one) =>
      one.owner === whose.owner &&
      one.chainId === whose.chainId &&
      (one.token === undefined || one.token === whose.token),
  )
}

/**
 * What these claims can take together, in raw units. A round takes one proposal only, so of several
 * for one round (`--supersede`) the largest counts (domain §3.2).
 */
export function reservedRaw(claims: readonly Claim[]): bigint {
  const byRound = new Map<string, bigint>()
  for (const { id, round, amountRaw } of claims) {
    const key = round ?? id
    const before = byRound.get(key) ?? 0n
    byRound.set(key, amountRaw > before ? amountRaw : before)
  }
  return [...byRound.values()].reduce((sum, raw) => sum + raw, 0n)
}

/** One token of one wallet as of one block; amounts in raw units. */
export interface Funds {
  readonly owner: Address
  readonly token: Address
  /** Plain text; outside text all the same. */
  readonly symbol: string
  readonly decimals: number
  readonly balanceRaw: bigint
  readonly allowanceRaw: bigint
  readonly reservedRaw: bigint
  /** Balance less what is reserved; never below 0. */
  readonly freeRaw: bigint
  /**
   * What another authorization may be for: the smaller of balance and allowance, less what is
   * reserved; never below 0.
   */
  readonly spendableRaw: bigint
  /** What reserves. */
  readonly claims: readonly Claim[]
  readonly blockNumber: bigint
}

/**
 * Reads a token's balance and Permit2 allowance and subtracts every authorization of the journal
 * that could still execute. One that the chain shows as done at the same block (nonce spent, or
 * deadline passed in finalized state) takes nothing more, whatever the journal knows yet. `except`
 * leaves one out, such as the one that is being replaced. UsageError `untrusted_chain_id`;
 * UnavailableError where the chain does not answer.
 */
export async function fundsOf(
  chain: Chain,
  trust: Trust,
  view: Pick<JournalView, 'authorizations' | 'offers'>,
  owner: Address,
  token: Address,
  options: { readonly except?: string | undefined } = {},
): Promise<Funds> {
  const { latest, finalized } = await pinnedHeads(chain, trust)
  return onChain(async () => {
    const permit2 = trust.permit2 as Address
    const at = latest.number
    const nowMs = Number(finalized.timestamp) * 1_000
    const open = claimsOn(openClaims(view, nowMs), {
      chainId: trust.chain_id,
      owner,
      token,
    }).filter(
      ({ id, deadlineSeconds }) => id !== options.except && deadlineSeconds >= finalized.timestamp,
    )
    const [balanceRaw, allowanceRaw, symbol, decimals, spent] = await Promise.all([
      readContract(chain, at, token, erc20Abi, 'balanceOf', [owner]),
      readContract(chain, at, token, erc20Abi, 'allowance', [owner, permit2]),
      readContract(chain, at, token, erc20Abi, 'symbol', []),
      readContract(chain, at, token, erc20Abi, 'decimals', []),
      spentNonces(chain, permit2, at, open),
    ])
    const claims = open.filter(({ id }) => !spent.has(id))
    const reserved = reservedRaw(claims)
    return {
      owner,
      token,
      symbol: plainText(symbol).slice(0, 32),
      decimals,
      balanceRaw,
      allowanceRaw,
      reservedRaw: reserved,
      freeRaw: notBelowZero(balanceRaw - reserved),
      spendableRaw: notBelowZero(smaller(balanceRaw, allowanceRaw) - reserved),
      claims,
      blockNumber: at,
    }
  })
}

// Math.min takes no bigint.
const smaller = (one: bigint, other: bigint) =>
  [one, other].reduce((least, raw) => (raw < least ? raw : least))
const notBelowZero = (raw: bigint) => (raw > 0n ? raw : 0n)

/**
 * Latest and finalized header of the pinned chain; another one is refused (R16). UsageError
 * `untrusted_chain_id`, UnavailableError.
 */
export async function pinnedHeads(
  chain: Chain,
  trust: Pick<Trust, 'chain_id'>,
): Promise<{ readonly latest: BlockHeader; readonly finalized: BlockHeader }> {
  const [chainId, latest, finalized] = await onChain(() =>
    Promise.all([chain.chainId(), chain.block('latest'), chain.block('finalized')]),
  )
  if (chainId !== trust.chain_id) {
    throw untrusted(
      'chain_id',
      `the RPC is on chain ${chainId}, the trust file pins ${trust.chain_id}`,
      'give the --rpc-url of the pinned chain',
    )
  }
  if (latest === null || finalized === null) {
    return onChain(() =>
      Promise.reject(
        new ChainError('unavailable', 'the chain has no latest or no finalized block'),
      ),
    )
  }
  return { latest, finalized }
}

/**
 * Ids of the claims whose nonce Permit2 has as used or cancelled at a block. One read a word of 256
 * nonces. Rejects with ChainError.
 */
export async function spentNonces(
  chain: Chain,
  permit2: Address,
  at: bigint,
  claims: readonly Pick<Claim, 'id' | 'owner' | 'nonce'>[],
): Promise<ReadonlySet<string>> {
  const words = new Map<string, Promise<bigint>>()
  const spent = new Set<string>()
  await Promise.all(
    claims.map(async ({ id, owner, nonce }) => {
      const { word } = nonceBit(nonce)
      const key = `${owner} ${word}`
      const asked =
        words.get(key) ?? readContract(chain, at, permit2, permit2Abi, 'nonceBitmap', [owner, word])
      words.set(key, asked)
      if (nonceUsed(nonce, await asked)) spent.add(id)
    }),
  )
  return spent
}

/**
 * The most that an allowance can be: Permit2 itself asks for a signature each time, so it is what
 * wallets commonly give.
 */
export const unlimitedRaw: bigint = maxUint256

/** The ERC-20 approval that lets Permit2 move the token (domain §3.3). Raw units. */
export function approval(trust: Trust, token: Address, amountRaw: bigint): OwnTransaction {
  const data: Hex = encodeFunctionData({
    abi: erc20Abi,
    functionName: 'approve',
    args: [trust.permit2 as Address, amountRaw],
  })
  const amount =
    amountRaw === unlimitedRaw
      ? 'unlimited'
      : amountWithRaw(String(amountRaw), knownToken(trust.chain_id, token))
  return {
    to: token,
    data,
    what: `approve Permit2 (${trust.permit2}) for token ${token}: ${amount}`,
  }
}
