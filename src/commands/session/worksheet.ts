/** A worksheet: questions to be answered by hand, which is batch input once it is filled in. */
import { plainText } from '#chain/ancillary'
import type { Rules } from '#chain/rules'
import { type answersText, answerText } from '#protocol/outcome-words'
import { amountText, type TokenUnits } from '../terminal/render.js'
import { csvLine } from '../terminal/results.js'

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
  readonly rules?: Rules | undefined
}

/** Characters of clarifications in a cell: a row of input holds 64 KiB. */
const mostText = 16_000
const tooLong = 'too long for a cell: read them with `proposer context`'

/** Of every worksheet, in this order; `outcome` is left empty, to be filled in. */
const columns = [
  ...['identifier', 'slug', 'title', 'labels', 'bond', 'reward', 'ends_at'],
  ...['clarifications', 'rules_seen', 'outcome'],
]

/** Rows of a sheet as CSV, with the head. Titles and labels are outside text, escaped here (R20). */
export const worksheetText = (rows: readonly WorksheetRow[]) =>
  worksheetHead + rows.map(worksheetLine).join('')

export const worksheetHead = csvLine(columns)

export function worksheetLine({ outcomes, bond, reward, units, rules, ...row }: WorksheetRow) {
  const labels = outcomes.map(({ outcome, label }) => answerText(outcome, label)).join('; ')
  const amounts = [bond, reward].map((raw) => raw && amountText(raw, units))
  const texts = rules?.updates.map(({ at, text }) => `${at}: ${plainText(text)}`).join(' | ')
  return csvLine([
    ...[row.identifier, row.slug, row.title, labels, ...amounts, row.ends_at],
    // Who has not got them whole has not read them.
    ...(texts === undefined || texts.length > mostText
      ? [texts && tooLong, '']
      : [texts, rules?.hash]),
    '',
  ])
}
