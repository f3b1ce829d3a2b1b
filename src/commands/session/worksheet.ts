/** A worksheet: questions to be answered by hand, which is batch input once it is filled in. */
import { type answersText, answerText } from '../../core/protocol/outcome-words.js'
import { csvLine } from '../terminal/csv.js'
import { amountText, type TokenUnits } from '../terminal/render.js'

/** A question of a worksheet. Amounts in raw token units; what is not known is null. */
export interface WorksheetRow {
  /** The question id: it needs no pin. */
  readonly identifier: string
  readonly slug: string | null
  readonly title: string | null
  readonly outcomes: Parameters<typeof answersText>[0]
  readonly bond: string | null
  readonly reward: string | null
  readonly ends_at?: string | null
  readonly units: TokenUnits | undefined
}

/** Of every worksheet, in this order; `outcome` is left empty, to be filled in. */
const columns = ['identifier', 'slug', 'title', 'labels', 'bond', 'reward', 'ends_at', 'outcome']

/** Rows of a sheet as CSV, with the head. Titles and labels are outside text, escaped here (R20). */
export const worksheetText = (rows: readonly WorksheetRow[]): string =>
  worksheetHead + rows.map(worksheetLine).join('')

/** The first line of every sheet. */
export const worksheetHead = csvLine(columns)

/** One question of a sheet, with its line end. */
export function worksheetLine({ outcomes, bond, reward, units, ...row }: WorksheetRow): string {
  const labels = outcomes.map(({ outcome, label }) => answerText(outcome, label)).join('; ')
  const amounts = [bond, reward].map((raw) => raw && amountText(raw, units))
  return csvLine([row.identifier, row.slug, row.title, labels, ...amounts, row.ends_at, ''])
}
