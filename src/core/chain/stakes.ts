/**
 * From one log filter per oracle: in all five events the second indexed field is the proposer, or
 * the recipient of a payout (domain §10).
 */
import * as z from 'zod/mini'
import type { Chain, ChainLog, Hex } from '#ports'
import { pick } from '#protocol/pick'
import { Address, Bytes, Bytes32, Uint256 } from '#protocol/schema'
import type { WitnessRequest } from '#protocol/witness'
import { lowercase } from '#protocol/words'
import { oracleAbi, topics } from './contracts.js'
import { addressTopic } from './propose.js'
import { heldRequest, holderOf, loggedEvent } from './reading.js'
import { keccakHex, type RequestState } from './round.js'

/** Negative too (domain §4, Prices). */
const Price = z.string().check(z.regex(/^(0|-?[1-9]\d{0,77})$/))

/** `seconds`: Unix time of the block. */
const place = {
  block: z.int(),
  index: z.int(),
  transaction: Bytes32,
  oracle: Address,
  wallet: Address,
  seconds: z.optional(z.int()),
}
/** `text`: keccak256 of the ancillary data. */
const ofRound = {
  ...place,
  requester: Address,
  identifier: Bytes32,
  timestamp: Uint256,
  text: Bytes32,
  ancillaryData: z.optional(Bytes),
  price: Price,
}

const Proposed = z.object({
  ...ofRound,
  kind: z.literal('proposed'),
  disputableUntil: Uint256,
  currency: Address,
})
const Disputed = z.object({
  ...ofRound,
  kind: z.literal('disputed'),
  disputer: Address,
})
/** `price` is the resolved one. */
const Settled = z.object({
  ...ofRound,
  kind: z.literal('settled'),
  payout: Uint256,
  disputer: z.optional(Address),
})
const Deferral = z.object({
  ...place,
  kind: z.enum(['deferred', 'claimed']),
  currency: Address,
  amount: Uint256,
})

/** Kept in a file. */
export const StakeEvent = z.discriminatedUnion('kind', [Proposed, Disputed, Settled, Deferral])
export type StakeEvent = z.infer<typeof StakeEvent>
export type Deferral = z.infer<typeof Deferral>
type RoundEvent = Exclude<StakeEvent, Deferral>

export const stakeEventNames = {
  [topics.proposePrice]: 'ProposePrice',
  [topics.disputePrice]: 'DisputePrice',
  [topics.settle]: 'Settle',
} as const

export const stakeFilter = (oracles: readonly Address[], wallets: readonly Address[]) => ({
  addresses: oracles,
  topics: [
    [
      ...(Object.keys(stakeEventNames) as Hex[]),
      topics.payoutDeferred,
      topics.claimedDeferredPayout,
    ],
    null,
    wallets.map(addressTopic),
  ],
})

/** Of any contract: look at `oracle`. */
export function stakeEventOf(log: ChainLog): StakeEvent | undefined {
  const [kind, first, second] = log.topics
  if (kind === undefined || first === undefined || second === undefined) return undefined
  const at = {
    block: Number(log.blockNumber),
    index: log.logIndex,
    transaction: log.transactionHash,
    oracle: log.address,
    wallet: addressIn(second),
    ...(log.blockTimestamp === undefined ? {} : { seconds: Number(log.blockTimestamp) }),
  }
  if (kind === topics.payoutDeferred || kind === topics.claimedDeferredPayout) {
    const { data } = log
    if (data.length < 66) return undefined
    return {
      ...at,
      kind: kind === topics.payoutDeferred ? 'deferred' : 'claimed',
      currency: addressIn(first),
      // Only the first two are known to be indexed; the amount is the last of all.
      amount: String(BigInt(`0x${data.slice(-64)}`)),
    }
  }
  const eventName = stakeEventNames[kind as keyof typeof stakeEventNames]
  const decoded = eventName && loggedEvent(oracleAbi, eventName, log)
  if (decoded === undefined) return undefined
  const { requester, identifier, timestamp, ancillaryData } = decoded.args
  const round = {
    ...at,
    requester: lowercase(requester),
    identifier,
    timestamp: String(timestamp),
    text: keccakHex(ancillaryData),
    ancillaryData,
  }
  if (decoded.eventName === 'ProposePrice') {
    const { proposedPrice, expirationTimestamp, currency } = decoded.args
    return {
      ...round,
      kind: 'proposed',
      price: String(proposedPrice),
      disputableUntil: String(expirationTimestamp),
      currency: lowercase(currency),
    }
  }
  if (decoded.eventName === 'DisputePrice') {
    const { proposedPrice, disputer } = decoded.args
    const price = String(proposedPrice)
    return { ...round, kind: 'disputed', price, disputer: lowercase(disputer) }
  }
  const { price, payout, disputer } = decoded.args
  const holder = holderOf(disputer)
  return {
    ...{ ...round, kind: 'settled', price: String(price), payout: String(payout) },
    ...(holder && { disputer: holder }),
  }
}

const addressIn = (topic: Hex): Address => `0x${topic.slice(26)}`

/** (domain §4) */
export async function readRequest(chain: Chain, at: bigint, request: WitnessRequest) {
  const held = await heldRequest(chain, at, request)
  return {
    proposer: lowercase(held.proposer),
    disputer: holderOf(held.disputer),
    currency: lowercase(held.currency),
    price: String(held.proposedPrice),
    bondRaw: held.requestSettings.bond,
    finalFeeRaw: held.finalFee,
    rewardRaw: held.reward,
    isRefunded: held.requestSettings.refundOnDispute,
    proposedAt: held.proposalTime,
    disputableUntil: held.expirationTime,
    isSettled: held.settled,
    resolvedPrice: held.settled ? String(held.resolvedPrice) : undefined,
  }
}

type RoundKey = Pick<RoundEvent, 'oracle' | 'requester' | 'identifier' | 'timestamp' | 'text'>

export interface Stake extends RoundKey {
  readonly wallet: Address
  readonly proposed?: z.infer<typeof Proposed>
  readonly disputed?: z.infer<typeof Disputed>
  readonly settled?: z.infer<typeof Settled>
  readonly deferred?: Deferral
  readonly claimed?: Deferral | undefined
}

type Draft = { -readonly [K in keyof Stake]: Stake[K] }

/** In any order, and more than once. */
export function stakesOf(events: readonly StakeEvent[]) {
  const drafts = new Map<string, Draft>()
  const deferrals: { readonly deferred: Deferral; claimed: Deferral | undefined }[] = []
  const claims: Deferral[] = []
  for (const event of inOrder(events)) {
    if (!('amount' in event)) addTo(drafts, event)
    else if (event.kind === 'deferred') deferrals.push({ deferred: event, claimed: undefined })
    else {
      claims.push(event)
      for (const one of deferrals)
        if (one.claimed === undefined && isSameAccount(one.deferred, event)) one.claimed = event
    }
  }
  const stakes = [...drafts.values()]
  const others = deferrals.filter(({ deferred, claimed }) => {
    const stake = stakes.find((one) => one.deferred === undefined && isPayoutOf(one, deferred))
    if (stake !== undefined) Object.assign(stake, { deferred, claimed })
    return stake === undefined
  })
  return { stakes, others, claims }
}

function inOrder(events: readonly StakeEvent[]) {
  const known = new Map(events.map((event) => [`${event.block} ${event.index}`, event]))
  return [...known.values()].sort((a, b) => a.block - b.block || a.index - b.index)
}

function addTo(drafts: Map<string, Draft>, event: RoundEvent) {
  const round = pick(event, 'oracle', 'requester', 'identifier', 'timestamp', 'text', 'wallet')
  const key = Object.values(round).join(' ')
  drafts.set(key, { ...(drafts.get(key) ?? round), [event.kind]: event })
}

const isSameAccount = (one: Deferral, other: Deferral) =>
  one.oracle === other.oracle && one.wallet === other.wallet && one.currency === other.currency

function isPayoutOf(stake: Stake, deferred: Deferral) {
  const { oracle, wallet, proposed, settled } = stake
  return (
    deferred.oracle === oracle &&
    deferred.wallet === wallet &&
    deferred.transaction === settled?.transaction &&
    deferred.amount === settled.payout &&
    (proposed === undefined || proposed.currency === deferred.currency) &&
    stakeResultOf(stake) !== 'lost'
  )
}

export type StakeResult = 'undisputed' | 'won' | 'lost'

export const stakeResultOf = ({ proposed, disputed, settled }: Stake) =>
  settled && resultFor((proposed ?? disputed)?.price, settled.price, settled.disputer !== undefined)

function resultFor(price: string | undefined, resolvedPrice: string, isDisputed: boolean) {
  if (!isDisputed) return 'undisputed'
  return price === undefined ? undefined : price === resolvedPrice ? 'won' : 'lost'
}

export interface ProposedRound {
  readonly state: RequestState
  readonly price: string | undefined
  readonly resolvedPrice: string | undefined
  readonly isDisputed: boolean
  readonly disputableUntil: bigint
}

export interface StakeStanding {
  readonly state: 'open' | 'awaiting_settlement' | 'disputed' | 'voting' | 'settled'
  readonly result: StakeResult | null
}

/** `hasNewRound`: of the question (contract §9). */
export function standingIn(
  { state, price, resolvedPrice, isDisputed, disputableUntil }: ProposedRound,
  hasNewRound: boolean,
  nowSeconds: bigint,
): StakeStanding {
  if (state === 'settled' && resolvedPrice !== undefined)
    return { state, result: resultFor(price, resolvedPrice, isDisputed) ?? null }
  // A later one waits for the voters alone (domain §5.1).
  if (state === 'disputed') return { state: hasNewRound ? 'disputed' : 'voting', result: null }
  const isDisputable = state === 'proposed' && nowSeconds < disputableUntil
  return { state: isDisputable ? 'open' : 'awaiting_settlement', result: null }
}
