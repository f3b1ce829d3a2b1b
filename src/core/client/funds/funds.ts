/** What a wallet can still authorize (spec §5, domain §3.3). */

import { readToken } from '#chain/questions'
import { onChain } from '#chain/unavailable'
import { readBitmap, readFunds } from '#chain/wallets'
import { type Chain, ChainError } from '#ports'
import { nonceBit, nonceUsed } from '#protocol/permit'
import { pick } from '#protocol/pick'
import type { Address } from '#protocol/schema'
import { isOpen, journalRecordOf, type Recorded } from '../journal/authorizations.js'
import type { Holdings } from '../journal/journal.js'
import { requirePinnedChain, type Trust } from '../trust/trust.js'

/** Of a payload signed elsewhere no token is known: it counts for each. */
export type OpenClaim = ReturnType<typeof claimOf>

function claimOf(one: Recorded) {
  const { terms, ...record } = journalRecordOf(one)
  return {
    ...pick(record, 'id', 'chainId', 'token', 'round', 'questionId', 'timestamp', 'requester'),
    ...{ owner: terms.proposer, price: terms.price },
    amountRaw: BigInt(terms.amount),
    nonce: BigInt(terms.nonce),
    deadlineSeconds: BigInt(terms.deadline),
  }
}

/** Closed ones too. */
export const claimsIn = ({ authorizations, offers }: Holdings) =>
  [...authorizations, ...offers].map(claimOf)

/** Of several for one round (`--supersede`) the largest counts (domain §3.2). */
export function reservedRaw(claims: readonly OpenClaim[]) {
  const byRound = new Map<string, bigint>()
  for (const { id, round = id, amountRaw } of claims)
    if (amountRaw > (byRound.get(round) ?? 0n)) byRound.set(round, amountRaw)
  return [...byRound.values()].reduce((sum, raw) => sum + raw, 0n)
}

export type Funds = Awaited<ReturnType<typeof fundsOf>>

/** Never below 0. A spent nonce or a deadline passed in finalized state takes nothing. */
export async function fundsOf(
  chain: Chain,
  trust: Trust,
  view: Holdings,
  owner: Address,
  token: Address,
  except?: string,
) {
  const { latest, finalized } = await pinnedHeads(chain, trust)
  const { permit2, chain_id: chainId } = trust
  const at = latest.number
  const finalMs = Number(finalized.timestamp) * 1_000
  const open = [...view.authorizations, ...view.offers]
    .filter((one) => one.id !== except && isOpen(one, finalMs))
    .map(claimOf)
    .filter(
      (one) =>
        one.owner === owner &&
        one.chainId === chainId &&
        (one.token ?? token) === token &&
        one.deadlineSeconds >= finalized.timestamp,
    )
  const [{ balanceRaw, allowanceRaw }, { symbol, decimals }, spent] = await onChain(() =>
    Promise.all([
      readFunds(chain, at, permit2, token, owner),
      readToken(chain, token, at),
      spentNonces(chain, permit2, at, open),
    ]),
  )
  const claims = open.filter(({ id }) => !spent.has(id))
  const reserved = reservedRaw(claims)
  const left = (raw: bigint) => (raw > reserved ? raw - reserved : 0n)
  const isAllowed = allowanceRaw >= balanceRaw
  return {
    ...{ owner, token, symbol, decimals, balanceRaw, allowanceRaw, reservedRaw: reserved },
    freeRaw: left(balanceRaw),
    spendableRaw: left(isAllowed ? balanceRaw : allowanceRaw),
    ...{ claims, blockNumber: at },
  }
}

export type WalletFunds = Awaited<ReturnType<typeof walletFunds>>

export async function walletFunds(chain: Chain, trust: Trust, view: Holdings, owner: Address) {
  const [gasWei, ...tokens] = await Promise.all([
    onChain(() => chain.balance(owner)),
    ...trust.tokens.map((token) => fundsOf(chain, trust, view, owner, token)),
  ])
  return { owner, gasWei, tokens }
}

export function orUndefined(error: unknown) {
  if (!(error instanceof ChainError)) throw error
  return undefined
}

/** Of the pinned chain alone (R16). */
export const pinnedHeads = (chain: Chain, trust: Pick<Trust, 'chain_id'>) =>
  onChain(async () => {
    const heads = [chain.block('latest'), chain.block('finalized')] as const
    const [chainId, latest, finalized] = await Promise.all([chain.chainId(), ...heads])
    requirePinnedChain(chainId, trust)
    if (latest === null || finalized === null)
      throw new ChainError('unavailable', 'the chain has no latest or no finalized block')
    return { latest, finalized }
  })

export async function spentNonces(
  chain: Chain,
  permit2: Address,
  at: bigint,
  claims: readonly Pick<OpenClaim, 'id' | 'owner' | 'nonce'>[],
): Promise<ReadonlySet<string>> {
  const words = new Map<string, Promise<bigint>>()
  const spent = claims.map(async ({ id, owner, nonce }) => {
    const { word } = nonceBit(nonce)
    const key = `${owner} ${word}`
    const bitmap = words.get(key) ?? readBitmap(chain, at, permit2, owner, word)
    words.set(key, bitmap)
    return nonceUsed(nonce, await bitmap) ? id : []
  })
  return new Set((await Promise.all(spent)).flat())
}
