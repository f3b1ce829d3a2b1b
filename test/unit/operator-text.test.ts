import { Chalk } from 'chalk'
import { candidateColumns } from '#commands/operator/candidates'
import { tableText } from '#commands/terminal/render'
import { type CandidateRow, candidateRow } from '#gateway/status/timeline'
import { oneCandidate } from '#support/pipeline-world'

const nowMs = Date.parse('2027-03-01T00:00:00Z')
const plain = new Chalk({ level: 0 })
const painted = new Chalk({ level: 1 })

type Row = CandidateRow & { label: string | null }

const rowOf = async (more: Partial<Row> = {}): Promise<Row> => {
  const { candidate } = await oneCandidate()
  return {
    ...candidateRow(candidate, 'a-question', { byHash: new Map(), cancellations: new Map() }),
    label: null,
    ...more,
  }
}

const shownAs = (rows: readonly Row[], columns: number, paint = plain) =>
  tableText(candidateColumns(nowMs), rows, { columns, paint, isTerminal: true })

test('contract §9: says the label first where it is known', async () => {
  expect(shownAs([await rowOf({ label: 'Porto' })], 100)).toContain('  Porto (p2)  ')
})

test('has colours for what a status means, and escapes outside text (R20)', async () => {
  const failed = await rowOf({
    status: 'failed',
    failure_code: 'operator_rejected',
    slug: 'a\u001b[2Jb',
  })
  expect(shownAs([failed], 80, painted)).toContain('\u001b[31mfailed\u001b[39m')
  expect(shownAs([failed], 120)).toContain('a\\u001b[2Jb')
})
