/** What became of proposals and bonds, whoever executed them (contract §9; domain §10). */

import * as z from 'zod/mini'
import { outcomesOf, titleOf } from '#chain/ancillary'
import { oracleAbi, yesOrNoQuery } from '#chain/contracts'
import { requestPage } from '#chain/profiles'
import { firstBlockFrom } from '#chain/propose'
import { createRoundReader } from '#chain/questions'
import { heldState, readContract, unlessRefused } from '#chain/reading'
import { requestStates, roundRef } from '#chain/round'
import {
  type Deferral,
  readRequest,
  type Stake,
  StakeEvent,
  type StakeResult,
  stakeEventOf,
  stakeFilter,
  stakesOf,
  standingIn,
} from '#chain/stakes'
import { onChain } from '#chain/unavailable'
import { type BlockHeader, type Chain, ChainError, type Hash, type Hex } from '#ports'
import { instant } from '#protocol/candidate'
import { inGroups } from '#protocol/capped'
import { pick } from '#protocol/pick'
import { outcomeOf } from '#protocol/proposal'
import { Address, Uint256 } from '#protocol/schema'
import { isQuestionId } from '#protocol/words'
import { fundsOf, orUndefined, pinnedHeads } from '../funds/funds.js'
import { executionOf, type JournaledAuthorization, labelOf } from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import { type KeptParts, type KeptSource, readKept } from '../logs/kept-logs.js'
import { contractsOf, isNamedByText, kindOf, type Trust } from '../trust/trust.js'
import { keepLastPositions } from './last-known.js'

export interface PositionParts extends KeptParts {
  readonly trust: Trust
  readonly view: JournalView
  readonly hash: Hash
}

/** `totals`: raw units, null: not known; `deferred` is `claimable` by the logs. */
export type Positions = Awaited<ReturnType<typeof readPositions>>
export type PositionTotals = Positions['totals'][number]
/** Amounts in raw units, `_at` in RFC 3339, other times in Unix seconds. Null: not known, or none. */
export type Position = Positions['positions'][number]

/** Unix seconds. */
type Span = Readonly<Partial<Record<'from' | 'to', number | undefined>>>

/** The signer's clock may be ahead of the chain's. */
const clockSlackSeconds = 3_600

/** From `since` on, else the wallet's first signature in this journal. */
async function readAccount(
  parts: PositionParts,
  wallets: readonly Address[],
  since?: bigint,
  span?: Span,
) {
  const { trust, view } = parts
  const notes: string[] = []
  const onNote = (text: string) => notes.push(text)
  const signed = view.authorizations.filter(
    ({ signed: { chainId, terms } }) =>
      chainId === trust.chain_id && wallets.includes(terms.proposer),
  )
  const sinceOf = (wallet: string) => {
    const firstMs = signed
      .filter((one) => one.signed.terms.proposer === wallet)
      .reduce((least, one) => Math.min(least, one.signedAtMs), Infinity)
    if (since !== undefined || firstMs === Infinity) return since
    return BigInt(Math.floor(firstMs / 1000) - clockSlackSeconds)
  }
  await pinnedHeads(parts.chain, trust)
  const read = await onChain(() => readStakes({ ...parts, onNote }, wallets, sinceOf, !!span))
  const first = oracleBegins(trust.chain_id, read.head)
  if (since !== undefined && read.starts.includes(first))
    notes.push(`the oracle did not exist before block ${first}`)
  const unplaced = read.stakes.filter(({ proposed }) => !proposed).length
  if (unplaced > 0)
    notes.push(
      `no log shows the bond of ${unplaced} proposals: proposed before the first block read, or left out by the node`,
    )
  const toMs = (span?.to ?? Infinity) * 1000
  const { stakes, unshown } = joinJournal(trust, signed, read.stakes)
  const missing = unshown.filter((one) => one.signedAtMs < toMs)
  for (const { id, signed: of } of missing)
    notes.push(
      `${id} is executed by this journal, and no log of the chain shows it; \`proposer reconcile ${of.questionId}\` looks at its round`,
    )
  const entries = [
    ...stakes.flatMap(entriesOfStake),
    ...read.others.map(({ deferred }) => deferralEntry(deferred)),
    ...read.claims.map(deferralEntry),
  ].sort((a, b) => a.block - b.block || a.index - b.index)
  const pairs = wallets.flatMap((wallet) => {
    const own = entries.flatMap((one) => (one.wallet === wallet ? (one.token ?? []) : []))
    return [...new Set([...trust.tokens, ...own])].map((token) => ({ wallet, token }))
  })
  return { ...read, stakes, entries, pairs, missing, notes }
}

export async function readPositions(
  parts: PositionParts,
  wallets: readonly Address[],
  { since }: { readonly since?: bigint } = {},
) {
  const { chain, trust, view } = parts
  const account = await readAccount(parts, wallets, since)
  const { head, missing, notes } = account
  const reader = createRoundReader(chain, contractsOf(trust))
  const newRoundOf = async (contested: Proposal) => {
    const { requester, timestamp = 0, questionId, settled, disputer } = contested
    if (settled || !disputer || !questionId || !requester) return null
    const entry = { questionId, requester }
    const round = await reader.read(questionId, entry, head.number).catch(orUndefined)
    return round ? BigInt(round.timestamp) > BigInt(timestamp) : null
  }
  const unseen = missing.map((one): Proposal => {
    const { terms, token: currency, requester, timestamp } = one.signed
    const of = { requester, timestamp, wallet: terms.proposer, price: terms.price, currency }
    return { ...of, ...namesOf(trust, one) }
  })
  const positions = await Promise.all(
    [...account.stakes, ...unseen].map(async (one) =>
      positionOf(trust, one, await newRoundOf(one), head.timestamp),
    ),
  )
  const place = { ...parts, onNote: (text: string) => notes.push(text) }
  await keepLastPositions(place, instant(Number(head.timestamp) * 1000), positions)

  const totalsOf = async ({ wallet, token }: Pair) => {
    const args = [token, wallet] as const
    const owedBy = (oracle: Address) =>
      unlessRefused(readContract(chain, head.number, oracle, oracleAbi, 'deferredPayouts', args))
    const [funds, owed] = await Promise.all([
      trust.tokens.includes(token) ? fundsOf(chain, trust, view, wallet, token) : undefined,
      onChain(() => Promise.all(trust.oracles.map(owedBy))),
    ])
    const stakedIn = (...states: readonly (string | null)[]) =>
      sumText(
        positions.flatMap(({ state, bond, final_fee: fee, ...one }) => {
          const isOwn = one.wallet === wallet && (one.token ?? token) === token
          if (!isOwn || !states.includes(state)) return []
          return [bond && fee ? BigInt(bond) + BigInt(fee) : undefined]
        }),
      )
    return {
      ...{ wallet, token },
      free: rawText(funds?.freeRaw),
      reserved: rawText(funds?.reservedRaw),
      bonded: stakedIn('open', 'awaiting_settlement'),
      disputed: stakedIn('disputed', 'voting'),
      claimable: sumText(owed),
      ...pick(sumsOf(account.entries, {}, { wallet, token }), 'locked', 'deferred', 'net'),
    }
  }
  return {
    positions,
    totals: await Promise.all(account.pairs.map(totalsOf)),
    notes,
    block_number: String(head.number),
    block_timestamp: String(head.timestamp),
    since: wallets.map((wallet, at) => ({
      wallet,
      block_number: String(account.starts[at] ?? 0n),
    })),
  }
}

/** Raw units: `amount` into the wallet, `net` earned. Null: not known. */
export async function readPnl(parts: PositionParts, wallets: readonly Address[], span: Span) {
  const account = await readAccount(parts, wallets, undefined, span)
  const { entries, pairs, missing, notes } = account
  const { isBounded, isWithin } = windowOf(span)
  const untimed = entries.filter(({ seconds }) => seconds === undefined).length
  if (untimed > 0 && isBounded)
    notes.push(`the time of ${untimed} movements is not known: sums of a span are not either`)
  const pnl = {
    rows: entries.filter(isWithin).map(({ of, ...entry }) => ({
      at: timeOf(entry.seconds),
      ...pick(entry, 'kind', 'wallet'),
      question_id: of?.questionId ?? null,
      slug: of?.slug ?? null,
      token: entry.token ?? null,
      amount: rawText(entry.amountRaw),
      net: rawText(entry.netRaw),
      result: entry.result ?? null,
      transaction_hash: entry.transaction,
      log_index: entry.index,
    })),
    totals: pairs.map((pair) => {
      const isPartial = missing.some(
        ({ signed: { terms, token = pair.token } }) =>
          terms.proposer === pair.wallet && token === pair.token,
      )
      return sumsOf(entries, span, pair, isPartial)
    }),
    notes,
    block_number: String(account.head.number),
  }
  return { pnl, missing }
}

function standingOf({ round, deferred, claimed }: Proposal, hasNewRound: boolean, now: bigint) {
  if (!round) return { state: null, result: null }
  const { state, result } = standingIn(round, hasNewRound, now)
  const isWaiting = state === 'settled' && deferred && !claimed
  return { state: isWaiting ? ('deferred' as const) : state, result }
}

const payoutRaw = ({ settled }: Proposal, result: StakeResult | null) =>
  settled && result ? BigInt(result === 'lost' ? 0 : settled.payout) : undefined

/** `lockedRaw`, `deferredRaw`: what more the oracle holds. */
const still = { amountRaw: 0n, lockedRaw: 0n, deferredRaw: 0n, netRaw: 0n }

interface Entry
  extends Pick<StakeEvent, 'block' | 'index' | 'transaction' | 'wallet' | 'seconds'>,
    Readonly<Record<keyof typeof still, bigint | undefined>> {
  readonly kind: 'bond' | 'payout' | 'deferred' | 'claimed' | 'lost'
  readonly token: Address | undefined
  readonly of?: Proposal
  readonly result?: StakeResult | null
}

function deferralEntry({ currency: token, amount, ...place }: Deferral): Entry {
  const raw = BigInt(amount)
  return place.kind === 'deferred'
    ? { ...still, ...place, token, deferredRaw: raw, netRaw: raw }
    : { ...still, ...place, token, amountRaw: raw, deferredRaw: -raw }
}

function entriesOfStake(of: Proposal) {
  const { proposed, settled, deferred, currency: token, bond, finalFee } = of
  const paid = bond && finalFee ? BigInt(bond) + BigInt(finalFee) : undefined
  const less = paid && -paid
  const entries: Entry[] = []
  if (proposed) {
    const seconds = proposed.seconds ?? (of.proposedAt ? Number(of.proposedAt) : undefined)
    const money = { ...still, amountRaw: less, lockedRaw: paid }
    entries.push({ ...proposed, ...money, kind: 'bond', token, of, seconds })
  }
  if (settled) {
    const { result } = standingOf(of, false, 0n)
    const payout = payoutRaw(of, result)
    const money = {
      ...still,
      [deferred ? 'deferredRaw' : 'amountRaw']: payout,
      // Else it was paid in before the reading began, and never counted.
      lockedRaw: proposed ? less : 0n,
      netRaw: payout === undefined || paid === undefined ? undefined : payout - paid,
    }
    const kind = result === 'lost' ? 'lost' : deferred ? 'deferred' : 'payout'
    entries.push({ ...settled, ...money, kind, token, of, result })
  }
  return entries
}

function windowOf({ from = 0, to = Infinity }: Span) {
  const isBounded = from > 0 || to < Infinity
  const isBefore = ({ seconds = 0 }: Entry) => seconds < to
  const isWithin = ({ seconds }: Entry) =>
    seconds === undefined ? !isBounded : seconds >= from && seconds < to
  return { isBounded, isBefore, isWithin }
}

type Pair = Readonly<Record<'wallet' | 'token', Address>>

/** Of all time, `net − locked − deferred` is what came into the wallet (domain §10). */
function sumsOf(entries: readonly Entry[], span: Span, { wallet, token }: Pair, isPartial = false) {
  const { isBounded, isBefore, isWithin } = windowOf(span)
  const own = entries.filter((one) => one.wallet === wallet && (one.token ?? token) === token)
  // The node left its log out.
  const isEndUnknown = (of: Proposal | undefined) =>
    of && !of.settled && (of.round?.state ?? 'settled') === 'settled'
  const isUnknown =
    isPartial ||
    own.some(
      ({ token, seconds, of }) =>
        !token || (isBounded && seconds === undefined) || isEndUnknown(of),
    )
  const before = own.filter(isBefore)
  const within = own.filter(isWithin)
  const sum = (some: readonly Entry[], of: (one: Entry) => bigint | undefined) =>
    isUnknown ? null : sumText(some.map(of))
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

const rawText = (raw: bigint | undefined) => (raw === undefined ? null : String(raw))

const sumText = (parts: readonly (bigint | undefined)[]) =>
  parts.some((one) => one === undefined)
    ? null
    : String(parts.reduce<bigint>((sum, one = 0n) => sum + one, 0n))

type Proposal = Unsure<KnownStake> & ReturnType<typeof namesOf> & Pick<Stake, 'wallet'>

/** `unshown`: executed, and none of the stakes. */
function joinJournal(
  trust: Trust,
  signed: readonly JournaledAuthorization[],
  stakes: readonly KnownStake[],
) {
  const executed = signed.filter(executionOf)
  // Of several for one key the first executed one, else the last.
  const journaled = new Map(
    [...signed, ...executed.toReversed()].flatMap((one) =>
      keysOf(one).map((key) => [key, one] as const),
    ),
  )
  const shown = new Set<string>()
  const named = stakes.map((stake): Proposal => {
    const { wallet, text, timestamp, proposed } = stake
    const round = roundRef({ chainId: trust.chain_id }, text, stake, text).key
    const place = `${proposed?.transaction} ${proposed?.index}`
    const keys = [`${round} ${wallet}`, `${text} ${timestamp} ${wallet}`, place]
    for (const key of keys) shown.add(key)
    const [authorization] = keys.flatMap((key) => journaled.get(key) ?? [])
    const isOwnName = isNamedByText(kindOf(trust, stake.requester))
    return { ...stake, ...namesOf(trust, authorization, isOwnName ? text : undefined) }
  })
  const unshown = executed.filter((one) => !keysOf(one).some((key) => shown.has(key)))
  return { stakes: named, unshown }
}

/** Records of 0.1 and of imported payloads name no round. */
function keysOf(one: JournaledAuthorization) {
  const { round, questionId, timestamp, terms } = one.signed
  const { transaction_hash: hash, event_index: index } = executionOf(one) ?? {}
  const place = hash == null ? [] : `${hash} ${index}`
  return [`${round ?? `${questionId} ${timestamp}`} ${terms.proposer}`, place].flat()
}

function namesOf({ slugs }: Trust, authorization?: JournaledAuthorization, own?: Hex) {
  const { identifier = '', questionId = own } = authorization?.signed ?? {}
  const isSlug = identifier !== '' && !isQuestionId(identifier)
  const pinned = Object.keys(slugs).findLast((slug) => slugs[slug] === questionId)
  return { questionId, slug: isSlug ? identifier : pinned, authorization }
}

/** UMA's settler waits 8,100 s (domain §10). */
const lateAfterSeconds = 3n * 3_600n

const timeOf = (seconds: number | string | undefined) =>
  Number(seconds) < 8.64e12 ? instant(Number(seconds) * 1000) : null

type OrNull<T> = T extends undefined ? null : T

/** Only a vote that is known is told as one. `now`: Unix seconds. */
function positionOf(trust: Trust, proposal: Proposal, newRound: boolean | null, now: bigint) {
  const { proposed, disputed, settled, slug, title, wallet, price, disputer } = proposal
  const { requester, oracle, authorization, bond, currency: token } = proposal
  const { state, result } = standingOf(proposal, newRound ?? true, now)
  const executed = authorization && executionOf(authorization)
  const hash = proposed?.transaction ?? executed?.transaction_hash
  const index = proposed?.index ?? executed?.event_index
  const isLate = now >= BigInt(proposal.disputableUntil ?? 0) + lateAfterSeconds
  const outcome: string | undefined = outcomeOf(price ?? '')
  const row = {
    question_id: proposal.questionId,
    ...{ slug, title, wallet, outcome },
    label: proposal.label ?? (authorization && labelOf(authorization.signed)),
    ...{ price, token, bond, final_fee: proposal.finalFee, state, result },
    late: state === 'awaiting_settlement' && !disputer && isLate,
    executed_at: timeOf(proposed?.seconds ?? proposal.proposedAt),
    disputable_until: proposal.disputableUntil,
    disputed_at: timeOf(disputed?.seconds),
    disputed_by: disputer,
    new_round: newRound,
    settled_at: timeOf(settled?.seconds),
    payout: rawText(payoutRaw(proposal, result)),
    reward: disputer && proposal.isRefunded ? '0' : proposal.reward,
    transaction_hash: hash,
    event_index: index,
    round_timestamp: proposal.timestamp,
    ...{ requester, oracle },
    journal_id: authorization?.id,
    url: hash == null || index == null ? null : requestPage(trust.chain_id, hash, index),
  }
  const known = Object.entries(row).map(([key, value]) => [key, value ?? null])
  return Object.fromEntries(known) as { [K in keyof typeof row]: OrNull<(typeof row)[K]> }
}

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
type Unsure<T> = { readonly [K in keyof T]?: T[K] | undefined }

const StakeFact = z.object({ block: z.int(), event: StakeEvent, terms: z.optional(Terms) })
type StakeFact = z.infer<typeof StakeFact>

type KnownStake = ReturnType<typeof knownStake>

/** Block of the first log of Polygon's managed oracle (domain §10). */
const firstOnPolygon = 74_677_419n

/** A young copy of the chain has not come to that block. */
const oracleBegins = (chainId: number, { number }: BlockHeader) =>
  chainId === 137 && number >= firstOnPolygon ? firstOnPolygon : 0n

/** `parts.chain` should fold its calls (`aggregating`). `sinceOf`: Unix seconds. */
async function readStakes(
  parts: PositionParts,
  wallets: readonly Address[],
  sinceOf: (wallet: string) => bigint | undefined,
  withTimes: boolean,
) {
  const { chain, hash } = parts
  const { chain_id: chainId, oracles } = parts.trust
  const pins = hash.sha256(JSON.stringify(oracles)).slice(0, 16)
  const source: KeptSource<StakeFact> = {
    shape: StakeFact,
    filter: stakeFilter(oracles, wallets),
    fileOf: (wallet) => ['positions', `${chainId}-${wallet}-${pins}.json`],
    factOf(log) {
      const event = stakeEventOf(log)
      return event && { block: event.block, event }
    },
    keyOf: ({ event }) => event.wallet,
    async startOf(wallet, kept, head) {
      const first = oracleBegins(chainId, head)
      const since = sinceOf(wallet)
      if (since === undefined) return kept ?? first
      if (kept !== undefined) {
        const before = kept <= first ? undefined : await chain.block(kept - 1n)
        if (before === undefined || (before && before.timestamp < since)) return kept
      }
      const from = (await firstBlockFrom(chain, since, head)) ?? head.number + 1n
      return from > first ? from : first
    },
  }
  const { facts, keep, ...read } = await readKept(parts, source, wallets)
  let isChanged = await readTimes(parts, facts, withTimes)
  const account = stakesOf(facts.map(({ event }) => event))
  const factOf = new Map(facts.map((fact) => [fact.event, fact]))
  const own = account.stakes.map((stake) => {
    const its = eventsOf(stake).flatMap((event) => factOf.get(event) ?? [])
    return { stake, its, kept: its.find(({ terms }) => terms)?.terms }
  })
  const asked = own.filter(({ stake, kept }) => !stake.settled || !kept)
  const found = await readEach(
    parts,
    asked,
    ({ stake }) => heldOf(chain, read.head.number, stake),
    (count) => `what the oracle holds for ${count} proposals`,
  )
  parts.signal?.throwIfAborted()
  const stakes = own.map((one) => {
    const { stake, its, kept } = one
    const held = found.get(one)
    const terms = kept ?? (held?.proposer === stake.wallet ? held.terms : undefined)
    if (terms && !kept && its[0]) {
      its[0].terms = terms
      isChanged = true
    }
    // Of its text nothing more will be asked.
    for (const { event } of terms && stake.settled ? its : [])
      if ('ancillaryData' in event) {
        delete event.ancillaryData
        isChanged = true
      }
    return knownStake(stake, terms, held)
  })
  if (isChanged) await keep()
  return { ...account, ...read, stakes }
}

/** `round`: `undefined` where logs and chain contradict each other. */
function knownStake(stake: Stake, terms?: StakeTerms, held?: HeldStake) {
  const { proposed, disputed, settled } = stake
  const price = (proposed ?? disputed ?? terms)?.price
  const logged = proposed && pick(proposed, 'currency', 'disputableUntil')
  const known = { ...stake, ...(terms ?? wordsOf(stake, price)), ...logged, price }
  const disputer = disputed?.disputer ?? held?.disputer ?? settled?.disputer
  const isDisputed = (settled ? settled.disputer : disputer) !== undefined
  const round = {
    state: settled ? 'settled' : (held?.state ?? (isDisputed ? 'disputed' : 'proposed')),
    price,
    resolvedPrice: settled?.price ?? held?.resolvedPrice,
    isDisputed,
    disputableUntil: BigInt(known.disputableUntil ?? 0),
  }
  const isOwn = !held || held.proposer === stake.wallet
  return { ...known, disputer, round: isOwn ? round : undefined }
}

const eventsOf = ({ proposed, disputed, settled }: Stake) =>
  [proposed, disputed, settled].filter((event) => event !== undefined)

const ancillaryOf = (stake: Stake) =>
  eventsOf(stake).find(({ ancillaryData }) => ancillaryData)?.ancillaryData

type HeldStake = Awaited<ReturnType<typeof heldOf>>

async function heldOf(chain: Chain, at: bigint, stake: Stake) {
  const ancillaryData = ancillaryOf(stake)
  if (!ancillaryData) return undefined
  const request = { ...stake, ancillaryData }
  const isDisputed = stake.disputed && !stake.settled
  const [held, index = -1] = await Promise.all([
    readRequest(chain, at, request),
    isDisputed ? heldState(chain, at, request) : undefined,
  ])
  const told = held.disputer ? 'disputed' : 'proposed'
  const terms: StakeTerms = {
    ...pick(held, 'price', 'currency', 'isRefunded'),
    bond: String(held.bondRaw),
    finalFee: String(held.finalFeeRaw),
    reward: String(held.rewardRaw),
    proposedAt: String(held.proposedAt),
    disputableUntil: String(held.disputableUntil),
    ...wordsOf(stake, held.price),
  }
  const state = held.isSettled ? 'settled' : (requestStates[index] ?? told)
  return { ...held, state, terms } as const
}

function wordsOf(stake: Stake, price: string | undefined): Partial<StakeTerms> {
  const ancillaryData = ancillaryOf(stake)
  if (!ancillaryData) return {}
  const binary = stake.identifier === yesOrNoQuery
  const outcomes = binary ? outcomesOf(ancillaryData, { settlesHalf: true, binary }) : []
  const label = outcomes.find((one) => one.price === price)?.label
  return { title: titleOf(ancillaryData), label }
}

async function readTimes(parts: PositionParts, facts: readonly StakeFact[], withAll: boolean) {
  const untimed = facts.filter(
    ({ event }) => event.seconds === undefined && (withAll || event.kind === 'disputed'),
  )
  const times = await readEach(
    parts,
    [...new Set(untimed.map(({ block }) => block))],
    async (block) => {
      const header = await parts.chain.block(BigInt(block))
      if (header !== null) return Number(header.timestamp)
      throw new ChainError('unavailable', 'the node lacks a block it has logs of')
    },
    (count) => `the time of ${count} blocks`,
  )
  for (const { block, event } of untimed) event.seconds = times.get(block)
  return times.size > 0
}

const askedAtOnce = 200

/** A node that is silent on all of a group is asked no more. */
async function readEach<T, Told>(
  { onNote }: KeptParts,
  all: readonly T[],
  read: (one: T) => Promise<Told>,
  whatIsMissing: (count: number) => string,
) {
  const found = new Map<T, Told>()
  for (const group of inGroups(all, askedAtOnce)) {
    let silences = 0
    const missed = (error: unknown) => {
      if (!(error instanceof ChainError)) throw error
      if (error.kind === 'unavailable') silences++
    }
    await Promise.all(group.map((one) => read(one).then((told) => found.set(one, told), missed)))
    if (silences === group.length) break
  }
  const missing = all.length - found.size
  if (missing > 0) onNote?.(`the node did not report ${whatIsMissing(missing)}`)
  return found
}
