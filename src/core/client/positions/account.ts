import { type StakeResult, type StakeStanding, standingIn } from '../../chain/stakes.js'
import type { Hex } from '../../ports.js'
import type { Address } from '../../protocol/schema.js'
import type { KnownStake, StakeAccount, StakeTerms } from './stake-facts.js'

/** `undefined` where logs and chain contradict each other. */
export interface Standing {
  readonly state: StakeStanding['state'] | 'deferred' | undefined
  readonly result: StakeResult | null
}

/** As of `nowSeconds` of the chain. `hasNewRound`: a later round of the question has begun. */
export function standingOf(
  { stake, terms, held }: KnownStake,
  hasNewRound: boolean,
  nowSeconds: bigint,
): Standing {
  const { wallet, proposed, disputed, settled, deferred, claimed } = stake
  if (held !== undefined && held.proposer !== wallet) return { state: undefined, result: null }
  const until = proposed?.disputableUntil ?? terms?.disputableUntil
  const isDisputed =
    (settled === undefined ? (disputed ?? held?.disputer) : settled.disputer) !== undefined
  const round = {
    state:
      settled === undefined ? (held?.state ?? (isDisputed ? 'disputed' : 'proposed')) : 'settled',
    price: (proposed ?? disputed ?? terms)?.price,
    resolvedPrice: settled?.price ?? held?.resolvedPrice,
    isDisputed,
    disputableUntil: BigInt(until ?? 0),
  } as const
  const standing = standingIn(round, hasNewRound, nowSeconds)
  const isWaiting = standing.state === 'settled' && deferred !== undefined && claimed === undefined
  return isWaiting ? { ...standing, state: 'deferred' } : standing
}

export const paidRaw = ({ bond, finalFee }: Pick<StakeTerms, 'bond' | 'finalFee'>): bigint =>
  BigInt(bond) + BigInt(finalFee)

/** Raw units; `undefined` before the settlement, or where it is not known. */
export function payoutRaw({ stake: { settled } }: KnownStake, result: StakeResult | null) {
  if (settled === undefined || result === null) return undefined
  return result === 'lost' ? 0n : BigInt(settled.payout)
}

/**
 * One movement. `amountRaw` went into the wallet or, below 0, out of it; `lockedRaw` and
 * `deferredRaw` are by how much more the oracle holds for it, `netRaw` what was earned or lost.
 * `undefined`: not known.
 */
export interface Entry {
  readonly kind: 'bond' | 'payout' | 'deferred' | 'claimed' | 'lost'
  readonly wallet: Address
  readonly token: Address | undefined
  readonly amountRaw: bigint | undefined
  readonly lockedRaw: bigint | undefined
  readonly deferredRaw: bigint | undefined
  readonly netRaw: bigint | undefined
  readonly result: StakeResult | null
  readonly seconds: number | undefined
  readonly block: number
  readonly index: number
  readonly transaction: Hex
  readonly of: KnownStake | undefined
}

/** Every movement, in the order of the chain. */
export function entriesOf({
  stakes,
  others,
  claims,
}: Pick<StakeAccount, 'stakes' | 'others' | 'claims'>): readonly Entry[] {
  const entries = [
    ...stakes.flatMap(entriesOfStake),
    ...others.map(({ deferred }): Entry => {
      const amount = BigInt(deferred.amount)
      const money = { amountRaw: 0n, lockedRaw: 0n, deferredRaw: amount, netRaw: amount }
      return { ...placed(deferred), kind: 'deferred', token: deferred.currency, ...money }
    }),
    ...claims.map((claim): Entry => {
      const amount = BigInt(claim.amount)
      const money = { amountRaw: amount, lockedRaw: 0n, deferredRaw: -amount, netRaw: 0n }
      return { ...placed(claim), kind: 'claimed', token: claim.currency, ...money }
    }),
  ]
  return entries.sort((a, b) => a.block - b.block || a.index - b.index)
}

type Placed = Pick<Entry, 'block' | 'index' | 'transaction' | 'wallet'> & {
  readonly seconds?: number | undefined
}
const placed = ({ block, index, transaction, wallet, seconds }: Placed) => ({
  ...{ block, index, transaction, wallet, seconds, result: null, of: undefined },
})

function entriesOfStake(known: KnownStake): readonly Entry[] {
  const { stake, terms } = known
  const { proposed, settled, deferred } = stake
  const token = proposed?.currency ?? terms?.currency
  const paid = terms && paidRaw(terms)
  const less = (raw: bigint | undefined) => (raw === undefined ? undefined : -raw)
  const entries: Entry[] = []
  if (proposed !== undefined) {
    const seconds = proposed.seconds ?? (terms && Number(terms.proposedAt))
    const money = { amountRaw: less(paid), lockedRaw: paid, deferredRaw: 0n, netRaw: 0n }
    entries.push({ ...placed({ ...proposed, seconds }), kind: 'bond', token, ...money, of: known })
  }
  if (settled !== undefined) {
    const { result } = standingOf(known, false, 0n)
    const payout = payoutRaw(known, result)
    const isPaid = deferred === undefined
    const money = {
      amountRaw: isPaid ? payout : 0n,
      // What was paid in before the reading began was never counted as locked.
      lockedRaw: proposed === undefined ? 0n : less(paid),
      deferredRaw: isPaid ? 0n : payout,
      netRaw: payout === undefined || paid === undefined ? undefined : payout - paid,
    }
    const kind = result === 'lost' ? 'lost' : isPaid ? 'payout' : 'deferred'
    entries.push({ ...placed(settled), kind, token, ...money, result, of: known })
  }
  return entries
}

/** Sums of one wallet in one token, raw units; `undefined` where a part of them is not known. */
export interface Sums {
  readonly wallet: Address
  readonly token: Address
  readonly proposed: number
  readonly undisputed: number
  readonly won: number
  readonly lost: number
  /** What came back beyond what was paid in. */
  readonly rewardsRaw: bigint | undefined
  readonly bondsLostRaw: bigint | undefined
  /** Earned and lost by what was settled. */
  readonly netRaw: bigint | undefined
  /** What came into the wallet less what went out of it. */
  readonly movedRaw: bigint | undefined
  /** Paid in, and not settled at the end. */
  readonly lockedRaw: bigint | undefined
  readonly deferredRaw: bigint | undefined
}

export interface Span {
  readonly from?: number | undefined
  readonly to?: number | undefined
}

/**
 * The sums of entries within a span. From the beginning on, `net − locked − deferred` is what was
 * moved (domain §10). An entry without a time makes the sums of any shorter span unknown.
 */
export function sumsOf(
  entries: readonly Entry[],
  { from = 0, to = Infinity }: Span,
  { wallet, token }: { readonly wallet: Address; readonly token: Address },
): Sums {
  const own = entries.filter((one) => one.wallet === wallet && (one.token ?? token) === token)
  const isBounded = from > 0 || to < Infinity
  const isUnknown = own.some(
    ({ token: of, seconds, of: known }) =>
      of === undefined ||
      (isBounded && seconds === undefined) ||
      // The node left the log of the end out.
      (known?.held?.state === 'settled' && known.stake.settled === undefined),
  )
  const before = own.filter(({ seconds = 0 }) => seconds < to)
  const within = before.filter(({ seconds = 0 }) => !isBounded || seconds >= from)
  const sum = (some: readonly Entry[], of: (one: Entry) => bigint | undefined) =>
    isUnknown ? undefined : total(some.map(of))
  const count = (result: StakeResult) => within.filter((one) => one.result === result).length
  const earned = (isWanted: (raw: bigint) => boolean) =>
    sum(within, ({ netRaw }) => (isWanted(netRaw ?? 0n) ? netRaw : netRaw && 0n))
  return {
    ...{ wallet, token },
    proposed: within.filter(({ kind }) => kind === 'bond').length,
    ...{ undisputed: count('undisputed'), won: count('won'), lost: count('lost') },
    rewardsRaw: earned((raw) => raw > 0n),
    bondsLostRaw: earned((raw) => raw < 0n),
    netRaw: earned(() => true),
    movedRaw: sum(within, ({ amountRaw }) => amountRaw),
    lockedRaw: sum(before, ({ lockedRaw }) => lockedRaw),
    deferredRaw: sum(before, ({ deferredRaw }) => deferredRaw),
  }
}

export const total = (parts: readonly (bigint | undefined)[]): bigint | undefined =>
  parts.reduce<bigint | undefined>(
    (sum, one) => (sum === undefined || one === undefined ? undefined : sum + one),
    0n,
  )
