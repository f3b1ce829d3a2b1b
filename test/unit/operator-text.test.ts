import { Chalk } from 'chalk'
import { describe, expect, test } from 'vitest'
import { candidateColumns } from '#commands/operator/candidates'
import { tableText } from '#commands/terminal/table'
import { type CandidateRow, candidateRow } from '#core/gateway/status/listing'
import { oneCandidate } from '#support/pipeline-world'

const nowMs = Date.parse('2027-03-01T00:00:00Z')
const plain = new Chalk({ level: 0 })
const painted = new Chalk({ level: 1 })
const withoutColour = (text: string) => text.replace(/\u001b\[[0-9;]*m/g, '')

type Row = CandidateRow & { label: string | null }

describe('contract §6: the list of candidates', () => {
  const rowOf = async (more: Partial<Row> = {}): Promise<Row> => {
    const { candidate } = await oneCandidate()
    return {
      ...candidateRow(candidate, 'a-question', { byHash: new Map(), cancellations: new Map() }),
      label: null,
      ...more,
    }
  }

  const shownAs = (rows: readonly Row[], columns: number, paint = plain, wide = false) =>
    tableText(candidateColumns(nowMs), rows, { columns, paint, isTerminal: true }, wide)

  test.each([40, 60, 80, 100, 120, 140, 200])(
    'is no wider than %i columns, and an id is never cut',
    async (columns) => {
      for (const more of [
        { slug: 'a-very-long-slug-'.repeat(10) },
        { slug: null, status: 'failed', failure_code: 'proposer_not_whitelisted' },
        { status: 'validated', submission: null },
      ] as const) {
        const row = await rowOf(more)
        const text = shownAs([row], columns, painted)
        for (const line of withoutColour(text).split('\n'))
          expect(line.length).toBeLessThanOrEqual(columns)
        expect(text).toContain(row.candidate_id)
        const rows = text.split('\n').filter((line) => !line.includes('no room for'))
        if (columns >= 80) expect(rows).toHaveLength(2)
      }
    },
  )

  test('contract §9: says the label first where it is known', async () => {
    expect(shownAs([await rowOf({ label: 'Porto' })], 100)).toContain('  Porto (p2)  ')
  })

  test('has names above its columns, and with --wide everything whole', async () => {
    const row = await rowOf({ status: 'executed', submission: 'indexed' })
    const [heads, line] = shownAs([row], 80).split('\n')
    const placesOf = (pairs: readonly (readonly [string, string])[]) =>
      pairs.map(([head, value]) => [heads?.indexOf(head), line?.indexOf(value)])
    for (const [head, value] of placesOf([
      ['CANDIDATE', row.candidate_id],
      ['STATUS', 'executed'],
      ['ANSWER', 'p2'],
      ['QUESTION', 'a-question'],
      ['CAUSE', 'indexed'],
    ]))
      expect(head).toBe(value)
    const whole = shownAs([row], 40, plain, true)
    for (const value of [row.proposer, row.question_id, row.received_at.slice(0, 10)])
      expect(whole).toContain(value)
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
})
