import { requestPage } from '#chain/profiles'
import { roundRef } from '#chain/round'
import { type StakeResult, type StakeStanding, standingIn } from '#chain/stakes'
import type { Hex } from '#ports'
import { instant } from '#protocol/candidate'
import { outcomeOf } from '#protocol/proposal'
import type { Address } from '#protocol/schema'
import { isQuestionId } from '#protocol/words'
import { type JournaledAuthorization, labelOf } from '../journal/authorizations.js'
import type { JournalView } from '../journal/fold.js'
import { contractsOf, type Trust } from '../trust/trust.js'
import { type KnownStake, type StakeAccount, type StakeTerms, wordsOf } from './stake-facts.js'

/** `undefined` where logs and chain contradict each other. */
interface Standing {
  readonly state: StakeStanding['state'] | 'deferred' | undefined
  readonly result: StakeResult | null
}

function standingOf(
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

const paidRaw = ({ bond, finalFee }: Pick<StakeTerms, 'bond' | 'finalFee'>) =>
  BigInt(bond) + BigInt(finalFee)

function payoutRaw({ stake: { settled } }: KnownStake, result: StakeResult | null) {
  if (settled === undefined || result === null) return undefined
  return result === 'lost' ? 0n : BigInt(settled.payout)
}

/**
 * `amountRaw` went into the wallet; `lockedRaw` and `deferredRaw`: how much more the oracle
 * holds; `netRaw` was earned. `undefined`: not known.
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

function entriesOfStake(known: KnownStake) {
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

export interface Span {
  readonly from?: number | undefined
  readonly to?: number | undefined
}

/**
 * Raw units as text, null where not known: `rewards` is what came back beyond what was paid in,
 * `moved` what came into the wallet less what went out. From the beginning on,
 * `net − locked − deferred` is what was moved (domain §10). A movement without a time makes any
 * shorter span unknown. `isPartial`: movements are missing.
 */
export function sumsOf(
  entries: readonly Entry[],
  { from = 0, to = Infinity }: Span,
  wallet: Address,
  token: Address,
  isPartial = false,
) {
  const own = entries.filter((one) => one.wallet === wallet && (one.token ?? token) === token)
  const isBounded = from > 0 || to < Infinity
  const isUnknown =
    isPartial ||
    own.some(
      ({ token: of, seconds, of: known }) =>
        of === undefined ||
        (isBounded && seconds === undefined) ||
        // The node left the log of the end out.
        (known?.held?.state === 'settled' && known.stake.settled === undefined),
    )
  const before = own.filter(({ seconds = 0 }) => seconds < to)
  const within = before.filter(({ seconds = 0 }) => !isBounded || seconds >= from)
  const sum = (some: readonly Entry[], of: (one: Entry) => bigint | undefined) =>
    isUnknown ? null : rawText(total(some.map(of)))
  const count = (result: StakeResult) => within.filter((one) => one.result === result).length
  const earned = (isWanted: (raw: bigint) => boolean) =>
    sum(within, ({ netRaw }) => (isWanted(netRaw ?? 0n) ? netRaw : netRaw && 0n))
  return {
    ...{ wallet, token },
    proposed: within.filter(({ kind }) => kind === 'bond').length,
    ...{ undisputed: count('undisputed'), won: count('won'), lost: count('lost') },
    rewards: earned((raw) => raw > 0n),
    bonds_lost: earned((raw) => raw < 0n),
    net: earned(() => true),
    moved: sum(within, ({ amountRaw }) => amountRaw),
    locked: sum(before, ({ lockedRaw }) => lockedRaw),
    deferred: sum(before, ({ deferredRaw }) => deferredRaw),
  }
}

export const total = (parts: readonly (bigint | undefined)[]) =>
  parts.reduce((sum, one) => (sum === undefined || one === undefined ? undefined : sum + one), 0n)

export const rawText = (raw: bigint | undefined) => (raw === undefined ? null : String(raw))

/** Amounts in raw units, `_at` in RFC 3339, other times in Unix seconds. Null: not known, or none. */
export interface Position {
  readonly question_id: Hex | null
  readonly slug: string | null
  readonly title: string | null
  readonly wallet: Address
  readonly outcome: string | null
  readonly label: string | null
  readonly price: string | null
  readonly token: Address | null
  readonly bond: string | null
  readonly final_fee: string | null
  readonly state: NonNullable<Standing['state']> | null
  readonly result: Standing['result']
  readonly late: boolean
  readonly executed_at: string | null
  readonly disputable_until: string | null
  readonly disputed_at: string | null
  readonly disputed_by: Address | null
  readonly new_round: boolean | null
  readonly settled_at: string | null
  readonly payout: string | null
  readonly reward: string | null
  readonly transaction_hash: Hex | null
  readonly event_index: number | null
  readonly round_timestamp: string | null
  readonly requester: Address | null
  readonly oracle: Address | null
  readonly journal_id: string | null
  readonly url: string | null
}

const hashedKinds: readonly string[] = ['uma-ctf-adapter', 'uma-ctf-adapter-negrisk']

/** By the round that was signed for, and the pinned slugs. */
export function roundNames(trust: Trust, { authorizations }: JournalView) {
  const contracts = contractsOf(trust)
  const byRound = new Map<string, JournaledAuthorization>()
  for (const one of authorizations) {
    const { round, terms } = one.signed
    const key = `${round} ${terms.proposer}`
    // Of several for one round it is the executed one that the chain shows.
    const known = byRound.get(key)
    if (known === undefined || executedOf(known) === undefined) byRound.set(key, one)
  }
  const slugs = new Map(Object.entries(trust.slugs).map(([slug, id]) => [id, slug]))
  return ({ stake }: KnownStake) => {
    const round = roundRef(contracts, stake.text, stake, stake.text).key
    const authorization = byRound.get(`${round} ${stake.wallet}`)
    const { questionId: signedFor, identifier } = authorization?.signed ?? {}
    const kind = contracts.requesters.find(({ address }) => address === stake.requester)?.kind
    const questionId =
      signedFor ?? (kind !== undefined && hashedKinds.includes(kind) ? stake.text : undefined)
    const slug =
      identifier === undefined || isQuestionId(identifier)
        ? slugs.get(questionId ?? '0x')
        : identifier
    return { questionId, slug, authorization }
  }
}
type Names = ReturnType<typeof roundNames>
interface Named {
  readonly questionId: Hex | undefined
  readonly slug: string | undefined
  readonly authorization: JournaledAuthorization | undefined
}

const executedOf = ({ terminals }: JournaledAuthorization) =>
  terminals.find(({ outcome }) => outcome === 'executed')

/** Hours after which a settlement is late, in seconds: UMA's settler waits 8,100 s (domain §10). */
const lateAfterSeconds = 3n * 3_600n

export const timeOf = (seconds: number | string | undefined) =>
  seconds === undefined || !(Number(seconds) < 8.64e12) ? null : instant(Number(seconds) * 1000)

/** `newRound`: whether a later round of the question has begun; only a vote that is known is told as one. */
export function positionOf(
  trust: Trust,
  known: KnownStake,
  { questionId, slug, authorization }: Named,
  newRound: boolean | null,
  nowSeconds: bigint,
): Position {
  const { state, result } = standingOf(known, newRound ?? true, nowSeconds)
  const { stake, terms, held, ancillaryData } = known
  const { proposed, disputed, settled } = stake
  const price = (proposed ?? disputed ?? terms)?.price
  const words =
    terms ??
    (ancillaryData === undefined || price === undefined
      ? {}
      : wordsOf(ancillaryData, stake.identifier, price))
  const until = proposed?.disputableUntil ?? terms?.disputableUntil
  const disputer = disputed?.disputer ?? held?.disputer ?? settled?.disputer
  const isDisputed = disputer !== undefined
  return {
    question_id: questionId ?? null,
    slug: slug ?? null,
    title: words.title ?? null,
    wallet: stake.wallet,
    outcome: (price === undefined ? undefined : outcomeOf(price)) ?? null,
    label: words.label ?? (authorization ? labelOf(authorization.signed) : null),
    price: price ?? null,
    token: proposed?.currency ?? terms?.currency ?? null,
    bond: terms?.bond ?? null,
    final_fee: terms?.finalFee ?? null,
    state: state ?? null,
    result,
    late:
      state === 'awaiting_settlement' &&
      !isDisputed &&
      nowSeconds >= BigInt(until ?? 0) + lateAfterSeconds,
    executed_at: timeOf(proposed?.seconds ?? terms?.proposedAt),
    disputable_until: until ?? null,
    disputed_at: timeOf(disputed?.seconds),
    disputed_by: disputer ?? null,
    new_round: isDisputed && settled === undefined ? newRound : null,
    settled_at: timeOf(settled?.seconds),
    payout: rawText(payoutRaw(known, result)),
    reward: terms === undefined ? null : isDisputed && terms.isRefunded ? '0' : terms.reward,
    transaction_hash: proposed?.transaction ?? null,
    event_index: proposed?.index ?? null,
    round_timestamp: stake.timestamp,
    requester: stake.requester,
    oracle: stake.oracle,
    journal_id: authorization?.id ?? null,
    url: (proposed && requestPage(trust.chain_id, proposed.transaction, proposed.index)) ?? null,
  }
}

export function missingIn(
  { authorizations }: JournalView,
  trust: Trust,
  wallets: readonly Address[],
  names: Names,
  stakes: readonly KnownStake[],
): readonly JournaledAuthorization[] {
  const shown = new Set(stakes.map((known) => names(known).authorization?.id))
  const places = new Set(
    stakes.flatMap(({ stake: { proposed } }) =>
      proposed === undefined ? [] : `${proposed.transaction} ${proposed.index}`,
    ),
  )
  const rounds = new Set(
    stakes.map(({ stake }) => `${stake.wallet} ${stake.text} ${stake.timestamp}`),
  )
  return authorizations.filter((one) => {
    const executed = executedOf(one)
    const { terms, chainId, questionId, timestamp } = one.signed
    if (executed === undefined || chainId !== trust.chain_id) return false
    if (!wallets.includes(terms.proposer) || shown.has(one.id)) return false
    // Records of 0.1, and of payloads signed elsewhere, do not name their round.
    const { transaction_hash: hash, event_index: index } = executed
    return (
      !places.has(`${hash} ${index}`) && !rounds.has(`${terms.proposer} ${questionId} ${timestamp}`)
    )
  })
}

export const missingNote = ({ id, signed }: JournaledAuthorization) =>
  `${id} is executed by this journal, and no log of the chain shows it; \`proposer reconcile ${signed.questionId}\` looks at its round`

export function missingPosition(trust: Trust, one: JournaledAuthorization): Position {
  const { signed, id } = one
  const { terms, identifier, questionId, timestamp, requester, token } = signed
  const { transaction_hash: hash = null, event_index: index = null } = executedOf(one) ?? {}
  return {
    question_id: questionId,
    slug: isQuestionId(identifier) ? null : identifier,
    title: null,
    wallet: terms.proposer,
    outcome: outcomeOf(terms.price) ?? null,
    label: labelOf(signed),
    price: terms.price,
    token: token ?? null,
    ...{ bond: null, final_fee: null, state: null, result: null, late: false, executed_at: null },
    ...{ disputable_until: null, disputed_at: null, disputed_by: null, new_round: null },
    ...{ settled_at: null, payout: null, reward: null },
    transaction_hash: hash,
    event_index: index,
    round_timestamp: timestamp ?? null,
    requester: requester ?? null,
    oracle: null,
    journal_id: id,
    url: (hash !== null && index !== null && requestPage(trust.chain_id, hash, index)) || null,
  }
}
