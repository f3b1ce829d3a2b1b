/** Proposals by the oracles' logs, and what oracles hold for those not over (domain §10). */
import * as z from 'zod/mini'
import { outcomesOf, titleOf } from '#chain/ancillary'
import { yesOrNoQuery } from '#chain/contracts'
import { firstBlockFrom } from '#chain/propose'
import { heldState } from '#chain/reading'
import { type Contracts, requestStates } from '#chain/round'
import {
  type ProposedRound,
  readRequest,
  type Stake,
  StakeEvent,
  stakeEventOf,
  stakeFilter,
  stakesOf,
} from '#chain/stakes'
import { type BlockHeader, ChainError, type Hash } from '#ports'
import { inGroups } from '#protocol/capped'
import { pick } from '#protocol/pick'
import { Address, Uint256 } from '#protocol/schema'
import { type KeptParts, type KeptSource, readKept } from '../logs/kept-logs.js'

/** Of `getRequest`, for good. */
const Terms = z.object({
  price: z.string(),
  currency: Address,
  bond: Uint256,
  finalFee: Uint256,
  reward: Uint256,
  isRefunded: z.boolean(),
  proposedAt: Uint256,
  disputableUntil: Uint256,
  title: z.optional(z.string()),
  label: z.optional(z.string()),
})
type StakeTerms = z.infer<typeof Terms>
export type Unsure<T> = { readonly [K in keyof T]?: T[K] | undefined }

const StakeFact = z.object({ block: z.int(), event: StakeEvent, terms: z.optional(Terms) })
type StakeFact = z.infer<typeof StakeFact>

export interface KnownStake extends Stake, Unsure<StakeTerms> {
  /** `undefined` where logs and chain contradict each other. */
  readonly round: ProposedRound | undefined
  readonly disputer: Address | undefined
}

interface StakeParts extends KeptParts {
  readonly contracts: Contracts
  readonly hash: Hash
  /** Unix seconds. */
  sinceOf(wallet: string): bigint | undefined
  readonly withTimes: boolean
}

/** Block of the managed oracle's first log, by chain (domain §10). */
const firstBlocks: Readonly<Record<number, bigint>> = { 137: 74_677_419n }

/** A young copy of a chain has not come to that block. */
export function oracleBegins(chainId: number, head: BlockHeader) {
  const known = firstBlocks[chainId] ?? 0n
  return known > head.number ? 0n : known
}

/** `parts.chain` should fold its calls (`aggregating`). */
export async function readStakes(parts: StakeParts, wallets: readonly Address[]) {
  const { chainId, oracles } = parts.contracts
  const pins = parts.hash.sha256(JSON.stringify(oracles)).slice(0, 16)
  const source: KeptSource<StakeFact> = {
    shape: StakeFact,
    filter: stakeFilter(oracles, wallets),
    fileOf: (wallet) => ['positions', `${chainId}-${wallet}-${pins}.json`],
    factOf(log) {
      const event = stakeEventOf(log)
      return event && { block: event.block, event }
    },
    keyOf: ({ event }) => event.wallet,
    startOf: (wallet, kept, head) => startOf(parts, wallet, kept, head),
  }
  const { facts, keep, ...read } = await readKept(parts, source, wallets)
  let isChanged = await readTimes(parts, facts)
  const account = stakesOf(facts.map(({ event }) => event))
  const factOf = new Map(facts.map((fact) => [fact.event, fact]))
  const own = account.stakes.map((stake) => {
    const its = eventsOf(stake).flatMap((event) => factOf.get(event) ?? [])
    return { stake, its, kept: its.find(({ terms }) => terms)?.terms }
  })
  const asked = own.filter(({ stake, kept }) => stake.settled === undefined || kept === undefined)
  const found = await readHeld(parts, asked, read.head.number)
  parts.signal?.throwIfAborted()
  const stakes = own.map((one) => {
    const { stake, its, kept } = one
    const held = found.get(one)
    const terms = kept ?? (held?.proposer === stake.wallet ? termsOf(stake, held) : undefined)
    for (const fact of terms === undefined ? [] : its) {
      if (kept === undefined && fact === its[0]) {
        fact.terms = terms
        isChanged = true
      }
      // The text is of use until the last question about the round is asked.
      if (stake.settled !== undefined && 'ancillaryData' in fact.event) {
        const { ancillaryData: _, ...lighter } = fact.event
        fact.event = lighter
        isChanged = true
      }
    }
    return knownStake(stake, terms, held)
  })
  if (isChanged) await keep()
  return { ...account, ...read, stakes }
}

async function startOf(
  { chain, contracts, sinceOf }: StakeParts,
  wallet: string,
  kept: bigint | undefined,
  head: BlockHeader,
) {
  const first = oracleBegins(contracts.chainId, head)
  const since = sinceOf(wallet)
  if (since === undefined) return kept ?? first
  if (kept !== undefined) {
    const before = kept <= first ? undefined : await chain.block(kept - 1n)
    if (before === undefined || (before !== null && before.timestamp < since)) return kept
  }
  const from = (await firstBlockFrom(chain, since, head)) ?? head.number + 1n
  return from > first ? from : first
}

function knownStake(
  stake: Stake,
  terms: StakeTerms | undefined,
  held: HeldStake | undefined,
): KnownStake {
  const { proposed, disputed, settled } = stake
  const price = disputed?.price ?? terms?.price
  const logged = proposed ? pick(proposed, 'price', 'currency', 'disputableUntil') : { price }
  const words = terms ?? wordsOf(stake, logged.price)
  const known = { ...stake, ...words, ...logged }
  const disputer = disputed?.disputer ?? held?.disputer ?? settled?.disputer
  const isDisputed = (settled ? settled.disputer : disputer) !== undefined
  const round: ProposedRound = {
    state: settled ? 'settled' : (held?.state ?? (isDisputed ? 'disputed' : 'proposed')),
    price: logged.price,
    resolvedPrice: settled?.price ?? held?.resolvedPrice,
    isDisputed,
    disputableUntil: BigInt(known.disputableUntil ?? 0),
  }
  const isOwn = held === undefined || held.proposer === stake.wallet
  return { ...known, disputer, round: isOwn ? round : undefined }
}

const eventsOf = ({ proposed, disputed, settled }: Stake) =>
  [proposed, disputed, settled].filter((event) => event !== undefined)

const ancillaryOf = (stake: Stake) =>
  eventsOf(stake).find(({ ancillaryData }) => ancillaryData)?.ancillaryData

type HeldStake = NonNullable<ReturnType<Awaited<ReturnType<typeof readHeld>>['get']>>

function readHeld<T extends { readonly stake: Stake }>(
  parts: StakeParts,
  all: readonly T[],
  at: bigint,
) {
  const read = async ({ stake }: T) => {
    const ancillaryData = ancillaryOf(stake)
    if (ancillaryData === undefined) return undefined
    const request = { ...stake, ancillaryData }
    const isDisputed = stake.disputed !== undefined && stake.settled === undefined
    const [held, index = -1] = await Promise.all([
      readRequest(parts.chain, at, request),
      isDisputed ? heldState(parts.chain, at, request) : undefined,
    ])
    const told = held.disputer === undefined ? 'proposed' : 'disputed'
    const state = held.isSettled ? 'settled' : (requestStates[index] ?? told)
    return { ...held, state } as const
  }
  return readEach(parts, all, read, (count) => `what the oracle holds for ${count} proposals`)
}

const termsOf = (stake: Stake, held: HeldStake): StakeTerms => ({
  ...pick(held, 'price', 'currency', 'isRefunded'),
  bond: String(held.bondRaw),
  finalFee: String(held.finalFeeRaw),
  reward: String(held.rewardRaw),
  proposedAt: String(held.proposedAt),
  disputableUntil: String(held.disputableUntil),
  ...wordsOf(stake, held.price),
})

function wordsOf(stake: Stake, price: string | undefined): Partial<StakeTerms> {
  const ancillaryData = ancillaryOf(stake)
  if (ancillaryData === undefined) return {}
  const binary = stake.identifier === yesOrNoQuery
  const outcomes = binary ? outcomesOf(ancillaryData, { settlesHalf: true, binary }) : []
  const label = outcomes.find((one) => one.price === price)?.label
  return { title: titleOf(ancillaryData), label }
}

async function readTimes(parts: StakeParts, facts: readonly StakeFact[]) {
  const untimed = facts.filter(
    ({ event }) => event.seconds === undefined && (parts.withTimes || event.kind === 'disputed'),
  )
  const blocks = [...new Set(untimed.map(({ block }) => block))]
  const read = async (block: number) => {
    const header = await parts.chain.block(BigInt(block))
    if (header !== null) return Number(header.timestamp)
    throw new ChainError('unavailable', 'the node lacks a block it has logs of')
  }
  const times = await readEach(parts, blocks, read, (count) => `the time of ${count} blocks`)
  for (const { block, event } of untimed) event.seconds = times.get(block)
  return times.size > 0
}

const askedAtOnce = 200

/** A node that tells of none of a group is asked no more. */
async function readEach<T, Told>(
  { onNote }: StakeParts,
  all: readonly T[],
  read: (one: T) => Promise<Told>,
  whatIsMissing: (count: number) => string,
) {
  const found = new Map<T, Told>()
  for (const group of inGroups(all, askedAtOnce)) {
    const ends = await Promise.allSettled(group.map(async (one) => found.set(one, await read(one))))
    const failed = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason] : []))
    for (const reason of failed) if (!(reason instanceof ChainError)) throw reason
    if (failed.length === group.length && failed.every(({ kind }) => kind === 'unavailable')) break
  }
  const missing = all.length - found.size
  if (missing > 0) onNote?.(`the node did not report ${whatIsMissing(missing)}`)
  return found
}
