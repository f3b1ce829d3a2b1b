/**
 * What became of the proposals that wallets made, whoever executed them: where each bond is, and the
 * sums of each wallet and token (contract §9; domain §10).
 */
import { oracleAbi } from '#chain/contracts'
import { createRoundReader, type RoundReader } from '#chain/questions'
import { readContract, unlessRefused } from '#chain/reading'
import { onChain } from '#chain/unavailable'
import { type Chain, ChainError, type Files, type Hash, type Hex } from '#ports'
import { instant } from '#protocol/candidate'
import type { Address } from '#protocol/schema'
import { fundsOf, pinnedHeads } from '../funds/funds.js'
import type { JournalView } from '../journal/fold.js'
import { contractsOf, type Trust } from '../trust/trust.js'
import {
  type Entry,
  entriesOf,
  missingIn,
  missingNote,
  missingPosition,
  type Position,
  positionOf,
  rawText,
  roundNames,
  type Span,
  sumsOf,
  timeOf,
  total,
} from './account.js'
import { keepLastPositions } from './last-known.js'
import { type KnownStake, oracleBegins, readStakes } from './stake-facts.js'

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

/** `since`: Unix seconds to begin at, instead of the wallet's first signature in this journal. */
async function readStakeAccount(
  parts: PositionParts,
  wallets: readonly Address[],
  { since, withTimes }: { readonly since?: bigint | undefined; readonly withTimes?: boolean },
) {
  const { trust, view } = parts
  const notes: string[] = []
  await pinnedHeads(parts.chain, trust)
  const account = await onChain(() =>
    readStakes(
      {
        ...parts,
        contracts: contractsOf(trust),
        onNote: (text) => notes.push(text),
        earliest(wallet) {
          const ms = view.authorizations.flatMap(({ signed: { chainId, terms }, signedAtMs }) =>
            chainId === trust.chain_id && terms.proposer === wallet ? signedAtMs : [],
          )
          return ms.length === 0 ? undefined : BigInt(Math.floor(ms.reduce(lesser) / 1000))
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
  const unplaced = account.stakes.filter(({ stake }) => stake.proposed === undefined).length
  const names = roundNames(trust, view)
  const missing = missingIn(view, trust, wallets, names, account.stakes)
  return { account, entries: entriesOf(account), names, missing, unplaced, notes }
}

const lesser = (one: number, other: number) => Math.min(one, other)

export async function readPositions(
  parts: PositionParts,
  wallets: readonly Address[],
  { since }: { readonly since?: bigint } = {},
): Promise<Positions> {
  const { chain, trust } = parts
  const reading = await readStakeAccount(parts, wallets, { since })
  const { account, names, missing, unplaced, notes } = reading
  const { head, stakes, starts } = account
  const reader = createRoundReader(chain, contractsOf(trust))
  const seen = await Promise.all(
    stakes.map(async (known) => {
      const named = names(known)
      const newRound = await newRoundOf(reader, known, named.questionId, head.number)
      return positionOf(trust, known, named, newRound, head.timestamp)
    }),
  )
  if (unplaced > 0)
    notes.push(
      `${unplaced} proposals are known by their dispute or settlement alone: proposed before the first block that was read, or left out by the node`,
    )
  notes.push(...missing.map(missingNote))
  const positions = [...seen, ...missing.map((one) => missingPosition(trust, one))]
  const asOf = instant(Number(head.timestamp) * 1000)
  await keepLastPositions(parts, asOf, positions, (text) => notes.push(text))
  const pairs = pairsOf(trust, reading.entries, wallets)
  return {
    positions,
    totals: await Promise.all(pairs.map((pair) => totalsOf(parts, reading, seen, pair))),
    notes,
    block_number: String(head.number),
    block_timestamp: String(head.timestamp),
    since: [...starts].map(([wallet, { from }]) => ({ wallet, block_number: String(from) })),
  }
}

/** Of a disputed one. Null: without a later round of its question nobody can tell. */
async function newRoundOf(
  reader: RoundReader,
  { stake: { settled, disputed, requester, timestamp }, held }: KnownStake,
  questionId: Hex | undefined,
  at: bigint,
) {
  const isContested = settled === undefined && (disputed ?? held?.disputer) !== undefined
  if (!isContested || questionId === undefined) return null
  try {
    const round = await reader.read(questionId, { questionId, requester }, at)
    return round === undefined ? null : BigInt(round.timestamp) > BigInt(timestamp)
  } catch (error) {
    if (!(error instanceof ChainError)) throw error
    return null
  }
}

/** Each wallet with each token that is pinned, or that it had to do with. */
const pairsOf = (trust: Trust, entries: readonly Entry[], wallets: readonly Address[]) =>
  wallets.flatMap((wallet) => {
    const own = entries.flatMap((one) => (one.wallet === wallet ? (one.token ?? []) : []))
    return [...new Set([...trust.tokens, ...own])].map((token) => ({ wallet, token }))
  })

async function totalsOf(
  { chain, trust, view }: PositionParts,
  { account, entries, notes }: Awaited<ReturnType<typeof readStakeAccount>>,
  positions: readonly Position[],
  { wallet, token }: ReturnType<typeof pairsOf>[number],
) {
  const args = [token, wallet] as const
  const [funds, owed] = await Promise.all([
    trust.tokens.includes(token) ? fundsOf(chain, trust, view, wallet, token) : undefined,
    onChain(() =>
      Promise.all(
        trust.oracles.map((oracle) =>
          unlessRefused(
            readContract(chain, account.head.number, oracle, oracleAbi, 'deferredPayouts', args),
          ),
        ),
      ),
    ),
  ])
  const { locked, deferred, net } = sumsOf(entries, {}, wallet, token)
  const claimable = rawText(total(owed))
  const inState = (...states: readonly Position['state'][]) =>
    rawText(
      total(
        positions.flatMap(({ state, bond, final_fee, ...one }) => {
          const isOwn = one.wallet === wallet && (one.token ?? token) === token
          if (!isOwn || !states.includes(state)) return []
          return [
            bond === null || final_fee === null ? undefined : BigInt(bond) + BigInt(final_fee),
          ]
        }),
      ),
    )
  if (claimable !== null && deferred !== null && claimable !== deferred)
    notes.push(
      `the oracle owes ${wallet} ${claimable} raw units of ${token} in deferred payouts, but the logs say ${deferred}`,
    )
  return {
    ...{ wallet, token },
    free: rawText(funds?.freeRaw),
    reserved: rawText(funds?.reservedRaw),
    bonded: inState('open', 'awaiting_settlement'),
    disputed: inState('disputed', 'voting'),
    ...{ claimable, locked, deferred, net },
  }
}

/** Amounts in raw units with their sign: `amount` into the wallet, `net` earned. Null: not known. */
export async function readPnl(parts: PositionParts, wallets: readonly Address[], span: Span) {
  const reading = await readStakeAccount(parts, wallets, { withTimes: true })
  const { account, entries, names, unplaced, notes } = reading
  const { from = 0, to = Infinity } = span
  const missing = reading.missing.filter(({ signedAtMs }) => signedAtMs < to * 1000)
  notes.push(...missing.map(missingNote))
  const isBounded = from > 0 || to < Infinity
  const untimed = entries.filter(({ seconds }) => seconds === undefined).length
  if (untimed > 0 && isBounded)
    notes.push(`the time of ${untimed} movements is not known: sums of a span are not either`)
  if (unplaced > 0)
    notes.push('proposals from before the first block that was read have no bond among the rows')
  const isWithin = ({ seconds }: Entry) =>
    !isBounded || (seconds !== undefined && seconds >= from && seconds < to)
  const pnl = {
    rows: entries.filter(isWithin).map((entry) => {
      const { questionId, slug } = entry.of === undefined ? {} : names(entry.of)
      return {
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
      }
    }),
    totals: pairsOf(parts.trust, entries, wallets).map(({ wallet, token }) => {
      const isPartial = missing.some(
        ({ signed }) => signed.terms.proposer === wallet && (signed.token ?? token) === token,
      )
      return sumsOf(entries, span, wallet, token, isPartial)
    }),
    notes,
    block_number: String(account.head.number),
  }
  return { pnl, missing }
}
