/** Positions for people: in words, in tokens, and how long ago (contract §9). */

import { isContestedState } from '../../core/client/positions/last-known.js'
import type { PositionTotals } from '../../core/client/positions/positions.js'
import type { Position } from '../../core/client/positions/rows.js'
import { answerText } from '../../core/protocol/outcome-words.js'
import type { Output } from './output.js'
import { ageText, amountText, counted, fields, fold, type TokenUnits } from './render.js'
import { type Column, tableText } from './table.js'

type Units = readonly (TokenUnits & { readonly address: string })[]
type State = Position['state']

/** What is not over: money at the oracle, or nobody knows. */
export const isUnsettledPosition = ({ state }: Position): boolean => state !== 'settled'

const words: Readonly<Record<NonNullable<State>, string>> = {
  open: 'open',
  awaiting_settlement: 'awaiting settlement',
  disputed: 'disputed',
  voting: 'vote open',
  settled: 'settled',
  deferred: 'payout deferred',
}

/** State and result: `settled, won`; `not known`. */
export function stateText({ state, result, late }: Position): string {
  if (state === null) return 'not known'
  return `${words[state]}${late ? ', late' : ''}${result === null ? '' : `, ${result}`}`
}

const colours = { open: 'cyan', awaiting_settlement: 'white', deferred: 'yellow' } as const
function colourOf({ state, result, late }: Position) {
  if (late || state === null) return 'yellow'
  if (isContestedState(state) || result === 'lost') return 'red'
  return state === 'settled' ? 'green' : colours[state as keyof typeof colours]
}

const unitsOf = (units: Units, token: string | null) =>
  units.find(({ address }) => address === token)

/** Raw units with their sign: `+5 USDC.e`, `-750 USDC.e`. */
export function signedText(raw: string, units: TokenUnits | undefined): string {
  const isNegative = raw.startsWith('-')
  const sign = isNegative ? '-' : raw === '0' ? '' : '+'
  return `${sign}${amountText(isNegative ? raw.slice(1) : raw, units)}`
}

const paid = ({ bond, final_fee }: Position) =>
  bond === null || final_fee === null ? null : String(BigInt(bond) + BigInt(final_fee))

/** What it brought, once it is settled; raw units. */
export function netOf(position: Position): string | null {
  const stake = paid(position)
  if (position.payout === null || stake === null) return null
  return String(BigInt(position.payout) - BigInt(stake))
}

/** Since when, or until when, by the chain's clock. */
export function whenText(position: Position, nowSeconds: number): string | null {
  const { state, disputable_until: until, disputed_at, settled_at, executed_at } = position
  const ago = (seconds: number) =>
    seconds < 0 ? `in ${ageText(-seconds)}` : `${ageText(seconds)} ago`
  const at = (iso: string | null) =>
    iso === null ? null : ago(nowSeconds - Date.parse(iso) / 1000)
  if (state === 'open' && until !== null)
    return `disputable for ${ageText(Number(until) - nowSeconds)}`
  if (state === 'awaiting_settlement' && until !== null && disputed_at === null)
    return `since ${ageText(nowSeconds - Number(until))}`
  return at(settled_at) ?? at(disputed_at) ?? at(executed_at)
}

export const positionName = ({ slug, title, question_id, round_timestamp }: Position): string =>
  slug ?? title ?? question_id ?? `round ${round_timestamp}`

interface Shown {
  readonly units: Units
  readonly output: Pick<Output, 'columns' | 'paint' | 'isTerminal'>
  readonly wide?: boolean | undefined
  readonly isOpen: boolean
}

/** The table, or what it says that there is none. */
export function positionsText(
  positions: readonly Position[],
  {
    block_timestamp,
    since,
  }: {
    readonly block_timestamp: string
    readonly since: readonly { readonly wallet: string; readonly block_number: string }[]
  },
  { units, output, wide, isOpen }: Shown,
): string {
  const nowSeconds = Number(block_timestamp)
  if (positions.length === 0) {
    const none = since.map(
      ({ wallet, block_number }) =>
        `No ${isOpen ? 'open ' : ''}proposals of ${wallet} since block ${block_number}.`,
    )
    return none.map((line) => fold(line, output.columns, '  ')).join('\n')
  }
  const isSeveral = since.length > 1
  const columns: readonly Column<Position>[] = [
    { head: 'question', least: 14, cell: positionName },
    {
      head: 'answer',
      least: 8,
      cell: ({ outcome, label, price }) =>
        outcome === null ? price && `price ${price}` : answerText(outcome, label),
    },
    {
      head: 'bond',
      right: true,
      rank: 2,
      cell: (one) => {
        const raw = paid(one)
        return raw && amountText(raw, unitsOf(units, one.token))
      },
    },
    { head: 'state', cell: stateText, colour: colourOf },
    { head: 'when', rank: 3, cell: (one) => whenText(one, nowSeconds) },
    {
      head: 'result',
      right: true,
      rank: 1,
      cell: (one) => {
        const raw = netOf(one)
        return raw && signedText(raw, unitsOf(units, one.token))
      },
    },
    ...(isSeveral ? [{ head: 'wallet', rank: 4, cell: (one: Position) => one.wallet }] : []),
    { head: 'executed', wide: true, cell: ({ executed_at }) => executed_at },
    { head: 'disputed by', wide: true, cell: ({ disputed_by }) => disputed_by },
    {
      head: 'new round',
      wide: true,
      cell: ({ new_round }) => (new_round === null ? null : new_round ? 'open' : 'none'),
    },
    { head: 'transaction', wide: true, cell: ({ transaction_hash }) => transaction_hash },
    { head: 'page', wide: true, cell: ({ url }) => url },
  ]
  return tableText(columns, positions, output, wide)
}

/** The sums, a block a wallet and token. */
export function positionTotalsText(
  totals: readonly PositionTotals[],
  units: Units,
  columns: number,
): string {
  return totals
    .map((one) => {
      const token = unitsOf(units, one.token)
      const amount = (raw: string | null) => (raw === null ? 'not known' : amountText(raw, token))
      return fields(
        [
          ['wallet', one.wallet],
          ['token', token === undefined ? one.token : `${token.symbol} ${one.token}`],
          ['free', amount(one.free)],
          ['reserved', amount(one.reserved)],
          ['bonded', amount(one.bonded)],
          ['disputed', amount(one.disputed)],
          ['claimable', amount(one.claimable)],
          ['earned', one.net === null ? 'not known' : signedText(one.net, token)],
        ],
        columns,
      )
    })
    .join('\n\n')
}

/** `3 positions, 1 disputed` */
export function positionCountsText(positions: readonly Position[]): string {
  const contested = positions.filter(({ state }) => isContestedState(state)).length
  return `${counted(positions.length, 'position')}${contested === 0 ? '' : `, ${contested} disputed`}`
}
