/** What proposals earned and lost: every movement, and the sums of a span (contract §9). */
import type { Hex } from '../../ports.js'
import type { Address } from '../../protocol/schema.js'
import type { JournaledAuthorization } from '../journal/authorizations.js'
import { type Entry, entriesOf, type Span, type Sums, sumsOf } from './account.js'
import { type PositionParts, rawText, readStakeAccount, tokensOf } from './positions.js'
import { missingIn, missingNote, roundNames, timeOf } from './rows.js'

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

/** Beside it, proposals that the journal holds as executed and no log shows. */
export interface PnlReading {
  readonly pnl: Pnl
  readonly missing: readonly JournaledAuthorization[]
}

/** Errors as `readStakeAccount`. */
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

/** `isPartial`: a proposal is missing, so that no sum is known. */
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
