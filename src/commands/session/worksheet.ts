/** A worksheet: questions to be answered by hand, which is batch input once it is filled in. */
import { csvText } from '../terminal/csv.js'
import { amountText, type TokenUnits } from '../terminal/render.js'

/** A question of a worksheet. Amounts in raw token units; what is not known is null. */
export interface WorksheetRow {
  /** The question id: it needs no pin. */
  readonly identifier: string
  readonly slug: string | null
  readonly title: string | null
  readonly outcomes: readonly { readonly outcome: string; readonly label: string }[]
  readonly bond: string | null
  readonly reward: string | null
  readonly ends_at?: string | null
  readonly units: TokenUnits | undefined
}

/** Of every worksheet, in this order; `outcome` is left empty, to be filled in. */
const columns = ['identifier', 'slug', 'title', 'labels', 'bond', 'reward', 'ends_at', 'outcome']

/** The sheet as CSV. Titles and labels are outside text; they are escaped (R20). */
export const worksheetText = (rows: readonly WorksheetRow[]): string =>
  csvText(
    columns,
    rows.map(({ outcomes, bond, reward, units, ...row }) => ({
      ...row,
      labels: outcomes.map(({ outcome, label }) => `${label} (${outcome})`).join('; '),
      bond: bond && amountText(bond, units),
      reward: reward && amountText(reward, units),
    })),
  )
