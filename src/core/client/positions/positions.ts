/**
 * What became of the proposals that wallets made, whoever executed them: where each bond is, and the
 * sums of each wallet and token (contract §9; domain §10).
 */
import { oracleAbi } from '#chain/contracts'
import { createRoundReader } from '#chain/questions'
import { readContract, unlessRefused } from '#chain/reading'
import { onChain } from '#chain/unavailable'
import { type Chain, ChainError, type Files, type Hash, type Hex } from '#ports'
import { instant } from '#protocol/candidate'
import type { Address } from '#protocol/schema'
import { fundsOf, pinnedHeads } from '../funds/funds.js'
import type { JournaledAuthorization } from '../journal/authorizations.js'
import type { JournalView } from '../journal/fold.js'
import { contractsOf, type Trust } from '../trust/trust.js'
import {
  type Entry,
  entriesOf,
  missingIn,
  missingNote,
  missingPosition,
  type Names,
  type Position,
  paidRaw,
  positionOf,
  roundNames,
  type Span,
  type Sums,
  standingOf,
  sumsOf,
  timeOf,
  total,
} from './account.js'
import { keepLastPositions } from './last-known.js'
import { type KnownStake, oracleBegins, readStakes, type StakeAccount } from './stake-facts.js'

export interface PositionParts {
  readonly chain: Chain
  readonly trust: Trust
  readonly view: JournalView
  readonly files: Files
  readonly hash: Hash
  readonly home: string
  readonly signal?: AbortSignal | undefined
  readonly onProgress?: ((block: bigint, head: bigint) => void) | undefined
}

/** Raw units. Null: not known. */
export interface PositionTotals {
  readonly wallet: Address
  readonly token: Address
  readonly free: string | null
  readonly reserved: string | null
  readonly bonded: string | null
  readonly disputed: string | null
  readonly claimable: string | null
  readonly locked: string | null
  /** The same by the logs. */
  readonly deferred: string | null
  readonly net: string | null
}

export interface Positions {
  readonly positions: readonly Position[]
  readonly totals: readonly PositionTotals[]
  readonly notes: readonly string[]
  readonly block_number: string
  readonly block_timestamp: string
  readonly since: readonly { readonly wallet: Address; readonly block_number: string }[]
}

export interface StakeReading {
  readonly account: StakeAccount
  readonly notes: string[]
}

/** `since`: Unix seconds to begin at, instead of the wallet's first signature in this journal. */
export async function readStakeAccount(
  parts: PositionParts,
  wallets: readonly Address[],
  { since, withTimes }: { readonly since?: bigint; readonly withTimes?: boolean } = {},
): Promise<StakeReading> {
  const { trust, view } = parts
  const notes: string[] = []
  await pinnedHeads(parts.chain, trust)
  const signed = new Map<Address, number>()
  for (const { signed: record, signedAtMs } of view.authorizations) {
    const { proposer } = record.terms
    if (record.chainId !== trust.chain_id) continue
    signed.set(proposer, Math.min(signed.get(proposer) ?? Infinity, signedAtMs))
  }
  const account = await onChain(() =>
    readStakes(
      {
        ...parts,
        contracts: contractsOf(trust),
        onNote: (text) => notes.push(text),
        earliest(wallet) {
          const ms = signed.get(wallet)
          return ms === undefined ? undefined : BigInt(Math.floor(ms / 1000))
        },
        since,
        withTimes,
      },
      wallets,
    ),
  )
  const first = oracleBegins(trust.chain_id, account.head)
  if (since !== undefined && [...account.starts.values()].some(({ from }) => from === first))
    notes.push(`the oracle did not exist before block ${first}`)
  return { account, notes }
}

export async function readPositions(
  parts: PositionParts,
  wallets: readonly Address[],
  { since }: { readonly since?: bigint } = {},
): Promise<Positions> {
  const { trust, view } = parts
  const { account, notes } = await readStakeAccount(
    parts,
    wallets,
    since === undefined ? {} : { since },
  )
  const { head, stakes } = account
  const names = roundNames(trust, view)
  const rows: { readonly known: KnownStake; readonly position: Position }[] = []
  const newRounds = await newRoundsOf(parts, account, names)
  for (const known of stakes) {
    const hasNewRound = newRounds.get(known)
    // Only a vote that is known is told as one.
    const standing = standingOf(known, hasNewRound ?? true, head.timestamp)
    const named = names.of(known)
    rows.push({
      known,
      position: positionOf(trust, known, standing, named, {
        nowSeconds: head.timestamp,
        newRound: hasNewRound ?? null,
      }),
    })
  }
  const unplaced = stakes.filter(({ stake }) => stake.proposed === undefined).length
  if (unplaced > 0)
    notes.push(
      `${unplaced} proposals are known by their dispute or settlement alone: proposed before the first block that was read, or left out by the node`,
    )
  const missing = missingIn(view, trust, wallets, names, stakes)
  notes.push(...missing.map(missingNote))
  const positions = [
    ...rows.map(({ position }) => position),
    ...missing.map((one) => missingPosition(trust, one)),
  ]
  const asOf = instant(Number(head.timestamp) * 1000)
  await keepLastPositions(parts, asOf, positions, (text) => notes.push(text))
  return {
    positions,
    totals: await totalsOf(parts, account, rows, wallets, notes),
    notes,
    block_number: String(head.number),
    block_timestamp: String(head.timestamp),
    since: [...account.starts].map(([wallet, { from }]) => ({
      wallet,
      block_number: String(from),
    })),
  }
}

/** Without a later round of their question nobody can tell. */
async function newRoundsOf(
  { chain, trust }: PositionParts,
  { head, stakes }: StakeAccount,
  names: Names,
): Promise<ReadonlyMap<KnownStake, boolean>> {
  const found = new Map<KnownStake, boolean>()
  const reader = createRoundReader(chain, contractsOf(trust))
  const asked = stakes.filter(
    ({ stake, held }) =>
      stake.settled === undefined && (stake.disputed ?? held?.disputer) !== undefined,
  )
  await Promise.all(
    asked.map(async (known) => {
      const { questionId } = names.of(known)
      const { requester, timestamp } = known.stake
      if (questionId === undefined) return
      try {
        const round = await reader.read(questionId, { questionId, requester }, head.number)
        if (round !== undefined) found.set(known, BigInt(round.timestamp) > BigInt(timestamp))
      } catch (error) {
        if (!(error instanceof ChainError)) throw error
      }
    }),
  )
  return found
}

export const tokensOf = (trust: Trust, entries: readonly Entry[], wallet: Address) => [
  ...new Set([
    ...trust.tokens,
    ...entries.flatMap((one) => (one.wallet === wallet ? (one.token ?? []) : [])),
  ]),
]

export const rawText = (raw: bigint | undefined): string | null =>
  raw === undefined ? null : String(raw)

async function totalsOf(
  parts: PositionParts,
  account: StakeAccount,
  rows: readonly { readonly known: KnownStake; readonly position: Position }[],
  wallets: readonly Address[],
  notes: string[],
): Promise<readonly PositionTotals[]> {
  const { chain, trust, view } = parts
  const { head } = account
  const entries = entriesOf(account)
  const pairs = wallets.flatMap((wallet) =>
    tokensOf(trust, entries, wallet).map((token) => ({ wallet, token })),
  )
  return Promise.all(
    pairs.map(async ({ wallet, token }): Promise<PositionTotals> => {
      const [funds, owed] = await Promise.all([
        trust.tokens.includes(token) ? fundsOf(chain, trust, view, wallet, token) : undefined,
        onChain(() => owedBy(parts, head.number, wallet, token)),
      ])
      const sums = sumsOf(entries, {}, { wallet, token })
      const inState = (...states: readonly Position['state'][]) => {
        const own = rows.filter(
          ({ position }) =>
            position.wallet === wallet &&
            (position.token ?? token) === token &&
            states.includes(position.state),
        )
        return total(own.map(({ known: { terms } }) => terms && paidRaw(terms)))
      }
      if (owed !== undefined && sums.deferredRaw !== undefined && owed !== sums.deferredRaw)
        notes.push(
          `the oracle owes ${wallet} ${owed} raw units of ${token} in deferred payouts, but the logs say ${sums.deferredRaw}`,
        )
      return {
        ...{ wallet, token },
        free: rawText(funds?.freeRaw),
        reserved: rawText(funds?.reservedRaw),
        bonded: rawText(inState('open', 'awaiting_settlement')),
        disputed: rawText(inState('disputed', 'voting')),
        claimable: rawText(owed),
        locked: rawText(sums.lockedRaw),
        deferred: rawText(sums.deferredRaw),
        net: rawText(sums.netRaw),
      }
    }),
  )
}

async function owedBy(
  { chain, trust }: PositionParts,
  at: bigint,
  wallet: Address,
  token: Address,
): Promise<bigint | undefined> {
  const owed = await Promise.all(
    trust.oracles.map((oracle) =>
      unlessRefused(
        readContract(chain, at, oracle, oracleAbi, 'deferredPayouts', [token, wallet] as const),
      ),
    ),
  )
  return total(owed)
}

/** Raw units with their sign: `amount` into the wallet, `net` earned. Null: not known. */
export interface PnlRow {
  readonly at: string | null
  readonly kind: Entry['kind']
  readonly question_id: Hex | null
  readonly slug: string | null
  readonly wallet: Address
  readonly token: Address | null
  readonly amount: string | null
  readonly net: string | null
  readonly result: Entry['result']
  readonly transaction_hash: Hex
  readonly log_index: number
}

export interface Pnl {
  readonly rows: readonly PnlRow[]
  readonly totals: readonly ReturnType<typeof totalsData>[]
  readonly notes: readonly string[]
  readonly block_number: string
}

export interface PnlReading {
  readonly pnl: Pnl
  readonly missing: readonly JournaledAuthorization[]
}

export async function readPnl(
  parts: PositionParts,
  wallets: readonly Address[],
  span: Span,
): Promise<PnlReading> {
  const { account, notes } = await readStakeAccount(parts, wallets, { withTimes: true })
  const entries = entriesOf(account)
  const names = roundNames(parts.trust, parts.view)
  const { from = 0, to = Infinity } = span
  const missing = missingIn(parts.view, parts.trust, wallets, names, account.stakes).filter(
    ({ signedAtMs }) => signedAtMs < to * 1000,
  )
  notes.push(...missing.map(missingNote))
  const isBounded = from > 0 || to < Infinity
  const untimed = entries.filter(({ seconds }) => seconds === undefined).length
  if (untimed > 0 && isBounded)
    notes.push(`the time of ${untimed} movements is not known: sums of a span are not either`)
  if (account.stakes.some(({ stake }) => stake.proposed === undefined))
    notes.push('proposals from before the first block that was read have no bond among the rows')
  const pnl = {
    rows: entries
      .filter(
        ({ seconds }) => !isBounded || (seconds !== undefined && seconds >= from && seconds < to),
      )
      .map((entry) => {
        const { questionId, slug } = entry.of === undefined ? {} : names.of(entry.of)
        return rowOf(entry, questionId, slug)
      }),
    totals: wallets.flatMap((wallet) =>
      tokensOf(parts.trust, entries, wallet).map((token) =>
        totalsData(
          sumsOf(entries, span, { wallet, token }),
          missing.some(
            ({ signed }) => signed.terms.proposer === wallet && (signed.token ?? token) === token,
          ),
        ),
      ),
    ),
    notes,
    block_number: String(account.head.number),
  }
  return { pnl, missing }
}

const rowOf = (entry: Entry, questionId: Hex | undefined, slug: string | undefined): PnlRow => ({
  at: timeOf(entry.seconds),
  kind: entry.kind,
  question_id: questionId ?? null,
  slug: slug ?? null,
  wallet: entry.wallet,
  token: entry.token ?? null,
  amount: rawText(entry.amountRaw),
  net: rawText(entry.netRaw),
  result: entry.result,
  transaction_hash: entry.transaction,
  log_index: entry.index,
})

function totalsData(
  { wallet, token, proposed, undisputed, won, lost, ...raw }: Sums,
  isPartial: boolean,
) {
  const sum = (amount: bigint | undefined) => rawText(isPartial ? undefined : amount)
  return {
    ...{ wallet, token, proposed, undisputed, won, lost },
    rewards: sum(raw.rewardsRaw),
    bonds_lost: sum(raw.bondsLostRaw),
    net: sum(raw.netRaw),
    moved: sum(raw.movedRaw),
    locked: sum(raw.lockedRaw),
    deferred: sum(raw.deferredRaw),
  }
}
