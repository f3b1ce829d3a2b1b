/** What oracles' logs tell of proposals, and what oracles hold for those not over (domain §10). */
import * as z from 'zod/mini'
import { outcomesOf, titleOf } from '#chain/ancillary'
import { yesOrNoQuery } from '#chain/contracts'
import { firstBlockFrom } from '#chain/propose'
import { heldState } from '#chain/reading'
import { type Contracts, type RequestState, requestStates } from '#chain/round'
import {
  type OracleRequest,
  type ProposedRound,
  readRequest,
  type Stake,
  StakeEvent,
  stakeEventOf,
  stakeFilter,
  stakeRound,
  stakesOf,
} from '#chain/stakes'
import { type BlockHeader, ChainError, type Hash, type Hex } from '#ports'
import { inGroups } from '#protocol/capped'
import { pick } from '#protocol/pick'
import { Address, Uint256 } from '#protocol/schema'
import { type KeptParts, type KeptSource, readKept } from '../logs/kept-logs.js'

/** What `getRequest` holds once and for all. */
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

/** With the first event of a round its terms, once a node has told them. */
const StakeFact = z.object({ block: z.int(), event: StakeEvent, terms: z.optional(Terms) })
type StakeFact = z.infer<typeof StakeFact>

/** By its logs, else by what the oracle holds or held. */
export interface KnownStake extends Partial<Pick<StakeTerms, 'title' | 'label'>> {
  readonly stake: Stake
  readonly terms: StakeTerms | undefined
  /** `undefined` where logs and chain contradict each other. */
  readonly round: ProposedRound | undefined
  readonly price: string | undefined
  readonly token: Address | undefined
  readonly disputableUntil: string | undefined
  readonly disputer: Address | undefined
  readonly isContested: boolean
}

export type StakeAccount = Awaited<ReturnType<typeof readStakes>>

interface StakeParts extends KeptParts {
  readonly contracts: Contracts
  readonly hash: Hash
  earliest(wallet: Address): bigint | undefined
  readonly since?: bigint | undefined
  readonly withTimes?: boolean | undefined
}

/** Block of the managed oracle's first log, by chain (domain §10). */
const firstBlocks: Readonly<Record<number, bigint>> = { 137: 74_677_419n }
/** 0 where nobody knows better, as on a young copy of a chain. */
export function oracleBegins(chainId: number, { number }: Pick<BlockHeader, 'number'>) {
  const first = firstBlocks[chainId] ?? 0n
  return first > number ? 0n : first
}

/** `parts.chain` should fold its calls (`aggregating`). */
export async function readStakes(parts: StakeParts, wallets: readonly Address[]) {
  const { contracts, hash } = parts
  const pins = hash.sha256(JSON.stringify(contracts.oracles)).slice(0, 16)
  const source: KeptSource<Address, StakeFact> = {
    folder: 'positions',
    shape: StakeFact,
    nameOf: (wallet) => `${contracts.chainId}-${wallet}-${pins}.json`,
    filterOf: (some) => stakeFilter(contracts.oracles, some),
    factOf(log) {
      const event = stakeEventOf(log)
      return event && { block: event.block, event }
    },
    keyOf: ({ event }) => event.wallet,
    startOf: (wallet, kept, head) => startOf(parts, wallet, kept, head),
  }
  const { head, of } = await readKept(parts, source, wallets)
  const facts = [...of.values()].flatMap(({ final, tail }) => [...final, ...tail])
  const changed = await readTimes(parts, facts)
  const account = stakesOf(facts.map(({ event }) => event))
  const factsOf = new Map<string, StakeFact[]>()
  for (const fact of facts)
    if (!('amount' in fact.event))
      factsOf.set(keyOf(fact.event), [...(factsOf.get(keyOf(fact.event)) ?? []), fact])
  const own = account.stakes.map((stake) => {
    const some = factsOf.get(keyOf(stake)) ?? []
    return { stake, some, kept: some.find(({ terms }) => terms !== undefined)?.terms }
  })
  const asked = own.filter(({ stake, kept }) => stake.settled === undefined || kept === undefined)
  const found = await readHeld(
    parts,
    asked.map(({ stake }) => stake),
    head,
  )
  const stakes = own.map(({ stake, some, kept }) => {
    const held = found.get(stake)
    const terms = kept ?? (held?.proposer === stake.wallet ? termsOf(stake, held) : undefined)
    const known = knownStake(stake, terms, held)
    const [first] = some
    if (kept === undefined && terms !== undefined && first !== undefined) {
      first.terms = terms
      changed.add(first)
    }
    // The text is of use until the last question about the round is asked.
    if (stake.settled !== undefined && terms !== undefined)
      for (const fact of some)
        if ('ancillaryData' in fact.event) {
          const { ancillaryData: _, ...lighter } = fact.event
          fact.event = lighter
          changed.add(fact)
        }
    return known
  })
  for (const { final, keep } of of.values()) if (final.some((one) => changed.has(one))) await keep()
  const starts = wallets.map((wallet) => ({ wallet, from: of.get(wallet)?.from ?? 0n }))
  return { ...account, stakes, head, starts }
}

/** A signer's clock may be ahead of the chain's. */
const clockSlackSeconds = 3_600n

async function startOf(
  { chain, contracts, since, earliest }: StakeParts,
  wallet: Address,
  kept: bigint | undefined,
  head: BlockHeader,
) {
  const first = oracleBegins(contracts.chainId, head)
  const signed = earliest(wallet)
  const asked = since ?? (signed === undefined ? undefined : signed - clockSlackSeconds)
  if (asked === undefined) return kept ?? first
  const before = kept === undefined || kept <= first ? null : await chain.block(kept - 1n)
  if (kept !== undefined && (kept <= first || (before !== null && before.timestamp < asked)))
    return kept
  const from = (await firstBlockFrom(chain, asked, head)) ?? head.number + 1n
  return from > first ? from : first
}

function knownStake(
  stake: Stake,
  terms: StakeTerms | undefined,
  held: HeldStake | undefined,
): KnownStake {
  const { proposed, disputed, settled, wallet } = stake
  const { price } = proposed ?? disputed ?? terms ?? {}
  const { currency: token, disputableUntil } = proposed ?? terms ?? {}
  const disputer = disputed?.disputer ?? held?.disputer ?? settled?.disputer
  const isDisputed = (settled ? settled.disputer : disputer) !== undefined
  const round: ProposedRound = {
    state: settled ? 'settled' : (held?.state ?? (isDisputed ? 'disputed' : 'proposed')),
    price,
    resolvedPrice: settled?.price ?? held?.resolvedPrice,
    isDisputed,
    disputableUntil: BigInt(disputableUntil ?? 0),
  }
  const text = terms === undefined && price !== undefined ? ancillaryOf(stake) : undefined
  const { title, label } = text ? wordsOf(text, stake.identifier, price) : (terms ?? {})
  return {
    ...{ stake, terms, price, token, disputableUntil, disputer, title, label },
    round: held === undefined || held.proposer === wallet ? round : undefined,
    isContested: settled === undefined && disputer !== undefined,
  }
}

const keyOf = (one: Parameters<typeof stakeRound>[0] & { readonly wallet: Address }) =>
  `${stakeRound(one)} ${one.wallet}`

const ancillaryOf = ({ proposed, disputed, settled }: Stake) =>
  proposed?.ancillaryData ?? disputed?.ancillaryData ?? settled?.ancillaryData

const askedAtOnce = 200

interface HeldStake extends OracleRequest {
  readonly state: RequestState
  readonly ancillaryData: Hex
}

async function readHeld(
  { chain, signal, onNote }: StakeParts,
  stakes: readonly Stake[],
  { number }: BlockHeader,
) {
  const found = new Map<Stake, HeldStake>()
  const read = async (stake: Stake) => {
    const ancillaryData = ancillaryOf(stake)
    if (ancillaryData === undefined) return
    const request = { ...stake, ancillaryData }
    const isDisputed = stake.disputed !== undefined && stake.settled === undefined
    const [held, index] = await Promise.all([
      readRequest(chain, number, request),
      isDisputed ? heldState(chain, number, request) : undefined,
    ])
    const known = index === undefined ? undefined : requestStates[index]
    const unsettled = known ?? (held.disputer === undefined ? 'proposed' : 'disputed')
    found.set(stake, { ...held, state: held.isSettled ? 'settled' : unsettled, ancillaryData })
  }
  await readAll(stakes, read, (missing) =>
    onNote?.(`the node did not report what the oracle holds for ${missing} proposals`),
  )
  signal?.throwIfAborted()
  return found
}

const termsOf = ({ identifier }: Stake, held: HeldStake): StakeTerms => ({
  ...pick(held, 'price', 'currency', 'isRefunded'),
  bond: String(held.bondRaw),
  finalFee: String(held.finalFeeRaw),
  reward: String(held.rewardRaw),
  proposedAt: String(held.proposedAt),
  disputableUntil: String(held.disputableUntil),
  ...wordsOf(held.ancillaryData, identifier, held.price),
})

function wordsOf(ancillaryData: Hex, identifier: Hex, price: string | undefined) {
  const binary = identifier === yesOrNoQuery
  const outcomes = binary ? outcomesOf(ancillaryData, { settlesHalf: true, binary }) : []
  const label = outcomes.find((one) => one.price === price)?.label
  return { title: titleOf(ancillaryData), label }
}

/** Gives events the time of their block, and says which it has changed. */
async function readTimes({ chain, withTimes, onNote }: StakeParts, facts: readonly StakeFact[]) {
  const untimed = facts.filter(
    ({ event }) => event.seconds === undefined && (withTimes || event.kind === 'disputed'),
  )
  const seconds = new Map<number, number>()
  const read = async (block: number) => {
    const header = await chain.block(BigInt(block))
    if (header === null)
      throw new ChainError('unavailable', 'the node lacks a block it has logs of')
    seconds.set(block, Number(header.timestamp))
  }
  await readAll([...new Set(untimed.map(({ block }) => block))], read, (missing) =>
    onNote?.(`the node did not report the time of ${missing} blocks`),
  )
  const changed = new Set(untimed.filter(({ block }) => seconds.has(block)))
  for (const { block, event } of changed) event.seconds = seconds.get(block)
  return changed
}

async function readAll<T>(
  all: readonly T[],
  read: (one: T) => Promise<void>,
  onMissing: (count: number) => void,
) {
  let [missing, isSilent] = [0, false]
  for (const group of inGroups(all, askedAtOnce)) {
    const ends = isSilent ? [] : await Promise.allSettled(group.map(read))
    const failed = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason] : []))
    for (const reason of failed) if (!(reason instanceof ChainError)) throw reason
    missing += isSilent ? group.length : failed.length
    isSilent ||=
      failed.length === group.length && failed.every(({ kind }) => kind === 'unavailable')
  }
  if (missing > 0) onMissing(missing)
}
