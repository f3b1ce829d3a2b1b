/**
 * What the oracles' logs tell of some wallets' proposals, kept in the home folder, and what the
 * oracles hold for those that are not over (domain §10).
 */
import * as z from 'zod/mini'
import { outcomesOf, titleOf } from '#chain/ancillary'
import { yesOrNoQuery } from '#chain/contracts'
import { firstBlockFrom } from '#chain/propose'
import { heldState } from '#chain/reading'
import { type Contracts, type RequestState, requestStates } from '#chain/round'
import {
  type OracleRequest,
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
import { Address, Uint256 } from '#protocol/schema'
import { type KeptParts, type KeptSource, readKept, type Start } from '../logs/kept-logs.js'

/** What `getRequest` holds of a proposal once and for all. Raw units, Unix seconds. */
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
  readonly held:
    | (Pick<OracleRequest, 'proposer' | 'disputer' | 'resolvedPrice'> & {
        readonly state: RequestState
      })
    | undefined
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
  const known = await knownStakes(parts, facts, head)
  for (const { final, replace } of of.values()) {
    const changed = final.map((fact) => known.keptOf(fact))
    if (changed.some((fact, index) => fact !== final[index])) await replace(changed)
  }
  const starts: ReadonlyMap<Address, Start> = of
  return { ...known.account, head, starts }
}

/** A signer's clock may be ahead of the chain's. */
const clockSlackSeconds = 3_600n

async function startOf(
  { chain, contracts, since, earliest }: StakeParts,
  wallet: Address,
  kept: Start | undefined,
  head: BlockHeader,
) {
  const signed = earliest(wallet)
  const asked = since ?? (signed === undefined ? undefined : signed - clockSlackSeconds)
  // A file that was begun at no time goes back to the beginning.
  const isKept =
    kept !== undefined && (kept.since === undefined || (asked ?? kept.since) >= kept.since)
  if (isKept) return { from: kept.from, since: kept.since }
  const first = oracleBegins(contracts.chainId, head)
  if (asked === undefined) return { from: first }
  const from = (await firstBlockFrom(chain, asked, head)) ?? head.number + 1n
  return { from: from > first ? from : first, since: asked < 0n ? 0n : asked }
}

async function knownStakes(parts: StakeParts, facts: readonly StakeFact[], head: BlockHeader) {
  const seconds = await timesOf(parts, facts)
  const timed = (event: StakeEvent) => {
    const found = event.seconds ?? seconds.get(event.block)
    return found === event.seconds ? event : { ...event, seconds: found }
  }
  const { stakes, ...rest } = stakesOf(facts.map(({ event }) => timed(event)))
  const kept = new Map(
    facts.flatMap(({ event, terms }) =>
      terms === undefined || 'amount' in event ? [] : [[keyOf(event), terms] as const],
    ),
  )
  const asked = stakes.filter((one) => one.settled === undefined || !kept.has(keyOf(one)))
  const found = await requestsOf(parts, asked, head)
  const known = new Map<string, KnownStake>()
  for (const stake of stakes) {
    const key = keyOf(stake)
    const { held, terms: told } = found.get(stake) ?? {}
    const terms = kept.get(key) ?? (held?.proposer === stake.wallet ? told : undefined)
    const { proposed, disputed, settled } = stake
    const { price } = proposed ?? disputed ?? terms ?? {}
    const { currency: token, disputableUntil } = proposed ?? terms ?? {}
    const disputer = disputed?.disputer ?? held?.disputer ?? settled?.disputer
    const isContested = settled === undefined && disputer !== undefined
    const facts = { stake, terms, held, price, token, disputableUntil, disputer, isContested }
    const text = ancillaryOf(stake)
    const isTextWanted = terms === undefined && text !== undefined && price !== undefined
    const { title, label } = isTextWanted ? wordsOf(text, stake.identifier, price) : (terms ?? {})
    known.set(key, { ...facts, title, label })
  }
  return {
    account: { ...rest, stakes: [...known.values()] },
    /** As it is kept from now on; the same object where that is as before. */
    keptOf(fact: StakeFact) {
      const event = timed(fact.event)
      if ('amount' in event) return event === fact.event ? fact : { ...fact, event }
      const { stake, terms } = known.get(keyOf(event)) ?? {}
      const first = stake?.proposed ?? stake?.disputed ?? stake?.settled
      const isFirst = first?.block === event.block && first.index === event.index
      // The text is of use until the last question about the round is asked.
      const isDone = stake?.settled !== undefined && terms !== undefined
      const isNew = isFirst && terms !== undefined && fact.terms === undefined
      const isLighter = isDone && event.ancillaryData !== undefined
      if (!isNew && !isLighter && event === fact.event) return fact
      const { ancillaryData, ...lighter } = event
      return {
        ...{ block: fact.block, event: isDone ? lighter : event },
        ...(isFirst && terms !== undefined ? { terms } : {}),
      }
    },
  }
}

const keyOf = (one: Parameters<typeof stakeRound>[0] & { readonly wallet: Address }) =>
  `${stakeRound(one)} ${one.wallet}`

const ancillaryOf = ({ proposed, disputed, settled }: Stake) =>
  (proposed ?? disputed ?? settled)?.ancillaryData ??
  disputed?.ancillaryData ??
  settled?.ancillaryData

const askedAtOnce = 200

async function requestsOf(
  { chain, signal, onNote }: StakeParts,
  stakes: readonly Stake[],
  { number }: BlockHeader,
) {
  const found = new Map<Stake, Pick<KnownStake, 'terms' | 'held'>>()
  const read = async (stake: Stake) => {
    const ancillaryData = ancillaryOf(stake)
    if (ancillaryData === undefined) return
    const request = { ...stake, ancillaryData }
    const isDisputed = stake.disputed !== undefined && stake.settled === undefined
    const [held, index] = await Promise.all([
      readRequest(chain, number, request),
      isDisputed ? heldState(chain, number, request) : undefined,
    ])
    const { proposer, disputer, resolvedPrice, price, currency, isRefunded } = held
    const known = index === undefined ? undefined : requestStates[index]
    const unsettled = known ?? (disputer === undefined ? 'proposed' : 'disputed')
    found.set(stake, {
      held: { state: held.isSettled ? 'settled' : unsettled, proposer, disputer, resolvedPrice },
      terms: {
        ...{ price, currency, isRefunded },
        bond: String(held.bondRaw),
        finalFee: String(held.finalFeeRaw),
        reward: String(held.rewardRaw),
        proposedAt: String(held.proposedAt),
        disputableUntil: String(held.disputableUntil),
        ...wordsOf(ancillaryData, stake.identifier, price),
      },
    })
  }
  await readAll(stakes, read, (missing) =>
    onNote?.(`the node did not report what the oracle holds for ${missing} proposals`),
  )
  signal?.throwIfAborted()
  return found
}

function wordsOf(ancillaryData: Hex, identifier: Hex, price: string) {
  const binary = identifier === yesOrNoQuery
  const outcomes = binary ? outcomesOf(ancillaryData, { settlesHalf: true, binary }) : []
  const label = outcomes.find((one) => one.price === price)?.label
  return { title: titleOf(ancillaryData), label }
}

async function timesOf({ chain, withTimes, onNote }: StakeParts, facts: readonly StakeFact[]) {
  const blocks = facts.flatMap(({ block, event }) =>
    event.seconds === undefined && (withTimes === true || event.kind === 'disputed') ? block : [],
  )
  const seconds = new Map<number, number>()
  const read = async (block: number) => {
    const header = await chain.block(BigInt(block))
    if (header === null)
      throw new ChainError('unavailable', 'the node lacks a block it has logs of')
    seconds.set(block, Number(header.timestamp))
  }
  await readAll([...new Set(blocks)], read, (missing) =>
    onNote?.(`the node did not report the time of ${missing} blocks`),
  )
  return seconds
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
