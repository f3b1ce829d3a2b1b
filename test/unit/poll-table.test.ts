import { Chalk } from 'chalk'
import type { PolledStatus } from '#client/follow/look'
import { createOutput, openLive, shownText } from '#commands/terminal/output'
import { finalText, liveLines } from '#commands/terminal/poll-table'
import { fakeContext } from '#support/cli'
import { screenOf } from '#support/screen'

const plain = new Chalk({ level: 0 })
const screen = { columns: 80, paint: plain, isTerminal: true }
const idOf = (index: number) => `${String(index).padStart(8, '0')}-8d5a-4a52-9c3d-0a1b2c3d4e5f`
const statusOf = (index: number, change: Partial<PolledStatus> = {}): PolledStatus => ({
  candidate_id: idOf(index),
  status: 'received',
  received_at: '2026-11-20T05:38:00.000Z',
  submission: null,
  failure: null,
  ...change,
})
const submission = (status: 'prepared' | 'submitted' | 'confirmed' | 'indexed') => ({
  status,
  transaction_hash: null,
  submitted_at: null,
  confirmed_at: null,
  indexed_at: null,
  proposal_event_index: null,
})
const failed = {
  status: 'failed',
  failure: {
    code: 'insufficient_allowance',
    detail: 'Permit2 may move 5 and needs 10',
    retryable: true,
    next_action: 'approve_permit2',
  },
} as const
const statuses = [
  statusOf(1),
  statusOf(2, { status: 'selected', submission: submission('submitted') }),
  statusOf(3, { status: 'executed', submission: submission('indexed') }),
  statusOf(4, failed),
]
const own = { journalId: 'x', label: null, identifier: 'rain', answer: 'Yes' }
const targets = [1, 2, 3, 4, 5].map((index) => ({ candidateId: idOf(index) }))
const latest = new Map(statuses.map((status) => [status.candidate_id, status]))

const liveAt = (columns: number, rows = 24, note = '') =>
  liveLines(targets, latest, { ...screen, columns, rows }, note, (id) =>
    id === idOf(3) ? undefined : { ...own, title: `will it rain in Porto ${id.slice(7, 8)}` },
  )

test('contract §6: the live table is the final one as it stands, with whole ids at 40 and at 80 columns', () => {
  expect(liveAt(120).slice(2, 6)).toEqual([
    `${idOf(2)}  will it rain in Porto 2  Yes     selected  submitted`,
    `${idOf(3)}                                   executed  indexed`,
    `${idOf(4)}  will it rain in Porto 4  Yes     failed    insufficient_allowance`,
    `${idOf(5)}  will it rain in Porto 5  Yes     waiting`,
  ])
  expect(liveAt(120, 24, 'soon').at(-1)).toBe(
    '5 candidates: 1 executed, 1 failed, 3 on their way; soon',
  )
  for (const columns of [40, 80]) {
    const lines = liveAt(columns)
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(columns)
    for (const { candidateId } of targets) expect(lines.join('\n')).toContain(candidateId)
  }
})

test.each([
  ['waiting', 0.4, 'waiting'],
  ['waiting', 4.9, 'waiting, 4 s'],
  [{ verb: 'sending', done: 0, total: 30 }, 0, 'sending: 0 of 30 [----------] 0 %'],
  [{ verb: 'sending', done: 0, total: 0 }, 0, 'sending: 0 of 0 [==========] 100 %'],
  [
    { verb: 'sending (1 of 2)', done: 12, total: 30 },
    4,
    'sending (1 of 2): 12 of 30 [====------] 40 %, 4 s, about 6 s left',
  ],
  [
    { verb: 'signing', done: 30, total: 30 },
    150,
    'signing: 30 of 30 [==========] 100 %, 2 min 30 s',
  ],
] as const)('U15: progress %j after %d s is "%s"', (shown, seconds, text) => {
  expect(shownText(shown, seconds)).toBe(text)
  expect(shownText(shown, seconds, false)).toBe(text.replace(/, about .* left/, ''))
})

test('more candidates than rows: those on their way are shown, in their order, and the rest is counted', () => {
  const lines = liveAt(120, 6)
  expect(lines).toHaveLength(6)
  expect(lines.slice(1, 4).map((line) => line.slice(0, 36))).toEqual([idOf(1), idOf(2), idOf(5)])
  expect(lines[4]).toBe('… and 2 more')
  for (const rows of [1, 2, 3, 5, 9])
    expect(liveAt(40, rows).length).toBeLessThanOrEqual(Math.max(2, rows))
})

test.each([40, 80])(
  'contract §6: at %i columns it has whole ids, the failures with what to do next, and the counts',
  (columns) => {
    const text = finalText(targets, statuses)({ ...screen, columns })
    for (const { candidateId } of targets) expect(text).toContain(candidateId)
    expect(text.replace(/\s+/g, ' ')).toContain(
      'failed: insufficient_allowance: Permit2 may move 5 and needs 10',
    )
    expect(text).toContain('approve_permit2')
    expect(text.replace(/\s+/g, ' ')).toContain(
      '5 candidates: 1 executed, 1 failed, 1 not known, 2 on their way',
    )
    expect(text).toMatch(/00000005-\S+\s+not known/)
    for (const line of text.split('\n')) expect(line.length).toBeLessThanOrEqual(columns)
  },
)

test('a hundred failures are not told one by one', () => {
  const many = Array.from({ length: 100 }, (_, index) => statusOf(index, failed))
  const text = finalText(
    many.map(({ candidate_id: candidateId }) => ({ candidateId })),
    many,
  )(screen)
  expect(text).toContain('and 90 more failed')
})

test('one candidate is told in full', () => {
  const [one] = targets
  const text = finalText(one ? [one] : [], statuses.slice(0, 1))(screen)
  expect(text).toContain(`${idOf(1)}  received`)
  expect(text).toContain('received  2026-11-20 05:38:00Z')
  expect(text).not.toContain('undefined')
})

describe('drawing in place', () => {
  const terminal = (env: Record<string, string> = {}) => {
    const { context, stdout } = fakeContext('/nowhere', { columns: 40, interactive: true, env })
    const stderr = { ...stdout, write: (text: string) => stdout.written.push(text) }
    const output = createOutput({
      stdout,
      stderr,
      env: { ...context.env, ...env },
      mode: 'human',
      quiet: false,
    })
    const live = openLive({ ...context, output, env: { ...context.env, ...env } })
    if (live === undefined) throw new Error('no terminal')
    return { live, stdout, shown: () => screenOf(stdout.written.join(''), 40) }
  }

  test('contract §6: each change is one write that overwrites, and what is the same writes nothing', () => {
    const { live, stdout, shown } = terminal()
    live.draw(['one', 'two', 'three'])
    live.draw(['one', 'two', 'three'])
    live.draw(['one', '2'])
    expect(stdout.written).toHaveLength(2)
    expect(shown()).toEqual(['one', '2'])
    expect(stdout.written[1]).not.toMatch(/^\u001b\[\d*[JK]/)
    live.clear()
    expect(shown()).toEqual([])
  })

  test('notes appear above the table and leave it whole', () => {
    const { live, shown } = terminal()
    live.draw(['one', 'two'])
    live.output.note('a note')
    live.draw(['one', 'done'])
    live.output.warn('another')
    expect(shown()).toEqual(['a note', 'another', 'one', 'done'])
  })

  test('a terminal that became narrower is cleared as far as its folded lines reach', () => {
    const { live, stdout } = terminal()
    live.draw(['x'.repeat(40)])
    Object.assign(stdout, { columns: 20 })
    live.draw(['y'])
    expect(stdout.written[1]).toMatch(/^\u001b\[2A\r/)
  })

  test('NO_COLOR takes the colours and leaves the table; a dumb terminal, a pipe and JSON get none', () => {
    expect(terminal({ NO_COLOR: '1' }).live.output.paint.red('x')).toBe('x')
    expect(terminal({ NO_COLOR: '' }).live.output.paint.red('x')).not.toBe('x')
    expect(() => terminal({ TERM: 'dumb' })).toThrow('no terminal')
    const { context, stdout, stderr } = fakeContext('/nowhere', { columns: 80 })
    expect(openLive(fakeContext('/nowhere').context)).toBeUndefined()
    const json = createOutput({ stdout, stderr, env: {}, mode: 'json', quiet: false })
    expect(openLive({ ...context, output: json })).toBeUndefined()
  })
})
