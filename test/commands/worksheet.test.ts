/** The worksheet's way: printed, filled in, reviewed, sent (contract §9; contract §6, Batch input). */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { readBatch } from '#client/input/input'
import { priceOf } from '#protocol/proposal'
import { type BatchWorld, documentOf, errorOf, linesOf, openBatchWorld } from '#support/batch-world'

let world: BatchWorld
beforeEach(async () => {
  world = await openBatchWorld()
})

const teams = ['Porto', 'Benfica'] as const
const pin = (slugs: object) => {
  const path = join(world.home, 'trust', 'default.json')
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), slugs }))
}

/** A sheet of three questions; `answers` stand in its column outcome. */
async function sheetOf(answers: readonly string[]): Promise<string> {
  const asked = [
    world.ask('Who wins, A or B?', { slug: 'who-wins', labels: teams }),
    world.ask('=HYPERLINK("http://x")', { labels: ['No', 'Yes'] }),
    world.ask('Will it rain?'),
  ]
  pin({ 'who-wins': asked[0]?.questionId })
  world.file('list.txt', ['who-wins', asked[1]?.questionId, asked[2]?.questionId].join('\n'))
  const { stdout, stderr, code } = await world.run('batch context list.txt --csv')
  expect(code, stderr).toBe(0)
  const [head, ...lines] = stdout.trimEnd().split('\r\n')
  return [head, ...lines.map((line, at) => `${line}${answers[at] ?? ''}`), ''].join('\r\n')
}
const neverSigned = () => !existsSync(join(world.home, 'journal'))

describe('batch context --csv', () => {
  test('gives slug, title, labels, bond, reward and an empty outcome; what looks like a formula is guarded', async () => {
    const [head, first = '', second = ''] = (await sheetOf([])).split('\r\n')
    expect(head).toBe(
      'identifier,slug,title,labels,bond,reward,ends_at,clarifications,rules_seen,outcome',
    )
    expect(first).toMatch(
      /^0x[0-9a-f]{64},who-wins,"Who wins, A or B\?","Porto \(p1\); Benfica \(p2\)",.*,$/,
    )
    expect(second).toContain(`,"'=HYPERLINK(""http://x"")",`)
    expect(first.endsWith(',')).toBe(true)
  })

  test('a question that cannot be proposed on is left out with its reason, and is an error', async () => {
    const { questionId } = world.ask('Will it rain?')
    world.file('list.txt', `${questionId}\n0x${'77'.repeat(32)}\n`)
    const ran = await world.run('batch context list.txt --csv')
    expect(ran.code).toBe(3)
    expect(ran.stdout.trim().split('\r\n')).toHaveLength(2)
    expect(ran.stderr).toContain(`left out 0x${'77'.repeat(32)}`)
  })

  test('every line of the list that is no identifier is told', async () => {
    world.file('list.txt', 'good-slug\nBad Slug\nother-slug\nnot/this\n')
    const ran = await world.run('batch context list.txt --csv')
    expect(ran.code).toBe(2)
    expect(ran.stdout).toBe('')
    expect(ran.stderr).toMatch(/line 2: .*\n.*line 4: /)
  })
})

const european = (text: string) =>
  `\ufeff${text
    .replace(/"[^"]*(?:""[^"]*)*"/g, (cell) => cell.replaceAll(',', '\u0000'))
    .replaceAll(',', ';')
    .replaceAll('\u0000', ',')}`

test.each([
  ['as it is', (text: string) => text],
  ['as a spreadsheet of another country writes it', european],
  [
    'with tabs',
    (text: string) => european(text).replaceAll(';', '\t').replaceAll('\t Benfica', '; Benfica'),
  ],
  ['with blank rows below', (text: string) => `${text},,,,,,,\r\n`],
])(
  '%s: answers in words are signed, other columns are carried to the results',
  async (_name, edit) => {
    world.file('today.csv', edit(await sheetOf(['porto', 'NO', 'Yes (p2)'])))
    const ran = await world.run('batch submit today.csv --json')
    expect(ran.code, ran.stderr).toBe(0)
    expect(world.calls[0]?.items.map((one) => one.proposed_price)).toEqual([
      priceOf.p1,
      priceOf.p1,
      priceOf.p2,
    ])
    const { results } = documentOf(ran) as unknown as {
      results: { columns: Record<string, string> }[]
    }
    expect(results[0]?.columns).toMatchObject({
      slug: 'who-wins',
      title: 'Who wins, A or B?',
      reward: '',
    })
    expect(results[1]?.columns.title).toBe(`'=HYPERLINK("http://x")`)
    const again = linesOf((await world.run('batch sign today.csv --ndjson')).stdout) as {
      outcome: string
      columns?: { slug: string }
    }[]
    expect(again[0]).toMatchObject({ outcome: 'reused', columns: { slug: 'who-wins' } })
  },
)

test('rows without an answer are left out and told; a sheet without any is exit 2', async () => {
  world.file('today.csv', await sheetOf(['Benfica', '', '']))
  const looked = await world.run('batch submit today.csv --dry-run')
  expect(looked.stderr).toContain('left out without an outcome: 2 rows, line 3, 4')
  const ran = await world.run('batch submit today.csv --json')
  expect(ran.code, ran.stderr).toBe(0)
  expect(documentOf(ran).results).toHaveLength(1)
  world.file('empty.csv', await sheetOf([]))
  const empty = await world.run('batch submit empty.csv --json')
  expect([empty.code, errorOf(empty).code]).toEqual([2, 'empty_input'])
})

test('a slug alone names its question where the sheet has no identifiers', async () => {
  await sheetOf([])
  world.file('today.csv', 'slug;outcome\nwho-wins;benfica\n')
  const ran = await world.run('batch submit today.csv --json')
  expect(ran.code, ran.stderr).toBe(0)
  expect(documentOf(ran).results[0]).toMatchObject({ identifier: 'who-wins' })
})

test('all bad lines are told at once, with number and reason', async () => {
  const sheet = await sheetOf(['p1', 'p1', 'p1'])
  const id = (n: number) => `0x${String(n).repeat(64)}`
  world.file(
    'today.csv',
    `${sheet}${id(1)},,t,l,b,r,e,c,,=1+1\n${id(2)},,a\u0000b,l,b,r,e,c,,p1\n${id(3)},,t,l,b,r,e,c,,p7\nnot an id,,t,l,b,r,e,c,,yes\n${id(4)},,t\n${id(5)},"a"b,t,l,b,r,e,c,,no\nwho-wins,,t,l,b,r,e,c,,no\n`,
  )
  const ran = await world.run('batch submit today.csv')
  expect(ran.code).toBe(2)
  const lines = ran.stderr.split('\n').filter((line) => line.startsWith('  line'))
  expect(lines.map((line) => line.trim().replace(/\s+/g, ' '))).toEqual([
    'line 5: outcome holds a formula',
    'line 6: title holds a NUL',
    'line 7: outcome "p7" is none of p1, p2, p3',
    'line 8: identifier is neither a question id nor a slug nor a URL of Polymarket',
    'line 9: the row has 3 cells, the header has 10',
    'line 10: text follows a closing quote',
    'lines 2 and 11 are the same question for the same proposer',
  ])
  const json = errorOf(await world.run('batch submit today.csv --json'))
  for (const line of ['line 5: ', 'line 10: ', 'lines 2 and 11 '])
    expect(json.detail).toContain(line)
  const plan = await world.run('plan today.csv')
  expect(plan.code).toBe(2)
  expect(plan.stderr).toContain('line 9: ')
  expect(neverSigned()).toBe(true)
  expect(world.calls).toEqual([])
})

test('a thousand faults are counted, and the first told', async () => {
  world.file('today.csv', `identifier,outcome\n${'nobody,=1\n'.repeat(1_000)}`)
  const ran = await world.run('batch submit today.csv')
  expect(ran.code).toBe(2)
  expect(ran.stderr).toContain('1000 faults')
  expect(ran.stderr).toContain('and 980 more')
})

test('words that mean nothing, or two things, are told of all rows before anything is signed', async () => {
  const sheet = await sheetOf(['Sporting', 'maybe', 'Yes'])
  const draw = world.ask('Draw?', { labels: ['Draw', 'draw'] })
  world.file('today.csv', `${sheet}${draw.questionId},,,,b,r,e,c,,draw\n`)
  for (const argv of [[], ['--dry-run'], ['--fit']]) {
    const ran = await world.run(['batch', 'submit', 'today.csv', '--json', ...argv])
    expect(ran.code).toBe(2)
    expect(errorOf(ran)).toMatchObject({ code: 'bad_outcome' })
    const { detail } = errorOf(ran)
    expect(detail).toContain('line 2: the outcome "Sporting" is not an answer to this question')
    expect(detail).toContain('line 3: the outcome "maybe"')
    expect(detail).toContain('line 5: the outcome "draw" matches 2 answers: Draw (p1), draw (p2)')
  }
  expect(world.calls).toEqual([])
  expect((await world.run('journal list --json')).stdout).not.toContain('"journal_id"')
})

test('a sheet whose columns were sorted apart is refused by its pinned slugs', async () => {
  const sheet = await sheetOf(['p1', 'p1', 'p1'])
  world.file(
    'today.csv',
    sheet.replace(',who-wins,', ',,').replace(/\r\n(0x\w+),,"'=/, '\r\n$1,who-wins,"\'='),
  )
  const ran = await world.run('batch submit today.csv --json')
  expect([ran.code, errorOf(ran).code]).toEqual([2, 'untrusted_slug'])
  expect(errorOf(ran).detail).toContain('line 3: the slug who-wins is pinned to')
})

describe('contract §6: what the dry run says, the run does', () => {
  const low = { amount: '1' }
  const bad = async () => {
    const [a, b, c, d, e] = ['a', 'b', 'c', 'd', 'e'].map(
      (name) => world.ask(`${name}?`).questionId,
    )
    world.ndjson('bad.ndjson', [
      { identifier: a, outcome: 'maybe', client_ref: 'same' },
      { identifier: b, outcome: 'p9', amount: 'lots', deadline: 'noon' },
      { identifier: c, outcome: 'p1', client_ref: 'same' },
      { identifier: d, outcome: 'p3' },
      { identifier: e, outcome: 'yes', ...low },
      { identifier: 'Not an id', outcome: 'p1' },
      { identifier: `0x${'7'.repeat(64)}`, outcome: 'p1' },
      { identifier: world.ask('f?').questionId, outcome: 'yes' },
    ])
  }

  test('mistakes of every kind are told in one round, in order, each with its hint, by the dry run and the run', async () => {
    await bad()
    const told: string[] = []
    for (const argv of [['--dry-run'], [], ['--fit']]) {
      const ran = await world.run(['batch', 'submit', 'bad.ndjson', ...argv])
      expect([ran.code, ran.stdout]).toEqual([2, ''])
      told.push(ran.stderr)
    }
    expect(new Set(told).size).toBe(1)
    const [text = ''] = told
    expect(text).toContain('7 faults, and nothing was signed or sent')
    const lines = text.split('\n').filter((line) => /^ {2}lines? /.test(line))
    expect(lines.map((line) => line.replace(/^ {2}(lines? [\d and]+):? .*/, '$1'))).toEqual([
      'line 1',
      'line 2',
      'lines 1 and 3',
      'line 4',
      'line 5',
      'line 6',
      'line 7',
    ])
    expect(text).toMatch(/line 2: .*amount is neither.*deadline is neither.*"p9" is none of/s)
    expect(text.match(/^ {4}hint: /gm)).toHaveLength(7)
    expect(neverSigned() || !(await world.run('journal list')).stdout.includes('signed')).toBe(true)
    expect(world.calls).toEqual([])
  })

  test('without a node, questions of more rows than one call takes are not asked for to tell more', async () => {
    const rows = Array.from({ length: 101 }, (_, n) => ({
      identifier: world.ask(`many ${n}`).questionId,
      outcome: 'p1',
    }))
    world.ndjson('many.ndjson', [...rows, { identifier: 'Not an id', outcome: 'p1' }])
    const asked: string[] = []
    world.intercept.before = async (path) => {
      asked.push(path)
      return undefined
    }
    expect((await world.run('batch submit many.ndjson')).code).toBe(2)
    expect(asked).toEqual([])
  })
})

/** The cells of a column moved down by one line. */
const turned = (sheet: string, column: number) => {
  const split = (line: string) => line.match(/("(?:[^"]|"")*"|[^,]*)(,|$)/g)?.slice(0, 10) ?? []
  const [head = '', ...lines] = sheet.trimEnd().split('\r\n')
  const rows = lines.map(split)
  const cells = rows.map((row) => row[column])
  return [
    head,
    ...rows.map((row, at) =>
      row.map((cell, n) => (n === column ? cells.at(at - 1) : cell)).join(''),
    ),
    '',
  ].join('\r\n')
}

test.each([
  ['title', 2, ['line 2', 'line 3', 'line 4']],
  ['labels', 3, ['line 2', 'line 3']],
] as const)('%s: every line that shows another question is told', async (name, column, lines) => {
  world.file('today.csv', turned(await sheetOf(['p1', 'p2', 'p1']), column))
  for (const argv of [['batch', 'submit'], ['run'], ['batch', 'submit', '--dry-run']]) {
    const ran = await world.run([...argv, 'today.csv', '--json'])
    expect([ran.code, errorOf(ran).code]).toEqual([2, 'other_question'])
    const { detail } = errorOf(ran) as { detail: string }
    for (const line of lines) expect(detail).toMatch(new RegExp(`${line}: its ${name} `))
  }
  expect(world.calls).toEqual([])
  const sign = await world.run('batch sign today.csv --json')
  expect(sign.code).toBe(2)
  expect((await world.run('journal list --json')).stdout).not.toContain('"journal_id"')
})

test('case, blanks and Unicode form of a title do not matter; an empty cell says nothing', async () => {
  const sheet = await sheetOf(['p1', 'p1', 'p1'])
  world.file(
    'today.csv',
    sheet.replace('Who wins, A or B?', '  WHO wins,  A or B?').replace('Will it rain?', ''),
  )
  const ran = await world.run('batch submit today.csv --json')
  expect(ran.code, ran.stderr).toBe(0)
})

const rowsOf = (terms: object[]) =>
  terms.map((each, n) => ({
    identifier: world.ask(`terms ${n}`).questionId,
    outcome: 'p2',
    ...each,
  }))
const withUnits = () => {
  const path = join(world.home, 'trust', 'default.json')
  const trust = JSON.parse(readFileSync(path, 'utf8')) as { tokens: string[] }
  const units = { symbol: 'USDC.e', decimals: 6 }
  writeFileSync(path, JSON.stringify({ ...trust, token_info: { [trust.tokens[0] ?? '']: units } }))
}
const permits = () => world.calls.flatMap(({ items }) => items.map(({ permit }) => permit))

test('contract §9: amounts in a unit, durations and times, in NDJSON and in CSV; a bare number stays raw and Unix seconds', async () => {
  withUnits()
  const nowSeconds = Math.floor(world.clock.nowMs() / 1_000)
  const at = new Date((nowSeconds + 7_200) * 1_000).toISOString()
  const rows = rowsOf([
    { amount: '751usdc', deadline: '90m' },
    { amount: '750.5USDC', deadline: at },
    { amount: '752000000raw', deadline: nowSeconds + 3_000 },
    { amount: 753_000_000 },
  ])
  world.ndjson('rows.ndjson', rows.slice(0, 2))
  const lines = rows
    .slice(2)
    .map(({ identifier, ...row }) => `${identifier},p2,${Object.values(row).slice(1).join(',')}`)
  world.file('rows.csv', `identifier,outcome,amount,deadline\n${lines[0]}\n${lines[1]},\n`)
  for (const file of ['rows.ndjson', 'rows.csv', 'rows.ndjson']) {
    const ran = await world.run(`batch submit ${file} --resume --json`)
    expect(ran.code, ran.stderr).toBe(0)
  }
  expect(permits().map(({ amount }) => amount)).toEqual([
    '751000000',
    '750500000',
    '752000000',
    '753000000',
  ])
  const [span = 0, time, seconds] = permits().map(({ deadline }) => Number(deadline))
  expect(span - nowSeconds).toBeGreaterThanOrEqual(5_400)
  expect(span - nowSeconds).toBeLessThan(5_500)
  expect([time, seconds]).toEqual([nowSeconds + 7_200, nowSeconds + 3_000])
})

test('contract §9: run again later, a duration is the same intent: the saved bytes are sent, nothing is signed twice', async () => {
  world.ndjson('rows.ndjson', rowsOf([{ deadline: '90m' }]))
  for (const waitMs of [0, 60_000]) {
    await world.clock.sleep(waitMs)
    const ran = await world.run('batch submit rows.ndjson --json')
    expect(ran.code, ran.stderr).toBe(0)
  }
  expect(new Set(world.calls.map(({ body }) => body)).size).toBe(1)
})

test('contract §9: a unit that no pinned token has is a fault of its line', async () => {
  withUnits()
  world.ndjson('rows.ndjson', rowsOf([{ amount: '1usdc' }, { amount: '5weth' }]))
  const ran = await world.run('batch submit rows.ndjson')
  expect(ran.code).toBe(2)
  expect(ran.stderr).toMatch(/line 1: the amount, .* is less than the bond/)
  expect(ran.stderr).toMatch(/line 2: amount 5weth: the token is usdc/)
})

test.each([120, 80, 40])(
  'at %i columns: row, title, answer in words, amount, and the sums',
  async (columns) => {
    world.file('today.csv', await sheetOf(['porto', 'no', 'yes']))
    const { stdout, code } = await world.run('batch submit today.csv --dry-run', {
      columns,
    })
    expect(code).toBe(0)
    const text = stdout.replace(/\s+/g, ' ')
    for (const shown of [
      'ROW',
      'QUESTION',
      'ANSWER',
      'AMOUNT',
      'Porto (p1)',
      'No (p1)',
      'Yes (p2)',
    ])
      expect(text).toContain(shown)
    expect(text).toMatch(columns === 40 ? /Who wins/ : /Who wins, A or B\?/)
    expect(text).toContain('3 would sign')
    expect(text).toMatch(/would authorize .* in all/)
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(columns)
    expect(neverSigned()).toBe(true)
  },
)

test('what is not to be signed says why; JSON has title, label and the other columns', async () => {
  const sheet = await sheetOf(['porto', 'no', 'yes'])
  world.file('today.csv', sheet)
  expect((await world.run('sign who-wins --outcome Benfica')).code).toBe(0)
  const ran = await world.run('batch submit today.csv --dry-run --json')
  const { results } = JSON.parse(ran.stdout) as { results: object[] }
  expect(results).toMatchObject([
    { action: 'rejected', title: 'Who wins, A or B?', columns: { slug: 'who-wins' } },
    { action: 'would_sign', outcome: 'p1', label: 'No' },
    { action: 'would_sign', outcome: 'p2', label: 'Yes', title: 'Will it rain?' },
  ])
  const { stdout } = await world.run('batch submit today.csv --dry-run')
  expect(stdout).toMatch(/2 +Who wins, A or B\? +porto +rejected\n/)
  expect(stdout).toContain('line 2: ')
  expect(stdout).toContain('Benfica (p2)')
})

describe('property: columns of others are carried as they stand', () => {
  const ours =
    /^(identifier|outcome|proposed_price|client_ref|proposer|amount|nonce|deadline|max_payment|signature|permit\..*)$/i
  const cell = (text: string, delimiter: string) =>
    /["\r\n]/.test(text) || text.includes(delimiter) ? `"${text.replaceAll('"', '""')}"` : text
  const text = fc
    .string({
      unit: fc.constantFrom('a', 'É', '"', ',', ';', '\n', ' ', '🦀', "'", '+', '_'),
      maxLength: 8,
    })
    .filter((value) => !value.trim().startsWith('='))

  test('whatever their names, values and delimiter are', async () => {
    const name = fc
      .string({
        unit: fc.constantFrom('x', 'y', 'Z', ' ', '9', 'ü', '$'),
        minLength: 1,
        maxLength: 6,
      })
      .map((value) => `col ${value}`.trim())
      .filter((value) => !ours.test(value))
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(name, { minLength: 1, maxLength: 4 }),
        fc.array(fc.array(text, { minLength: 4, maxLength: 4 }), { minLength: 1, maxLength: 4 }),
        fc.constantFrom(',', ';', '\t'),
        fc.constantFrom('\n', '\r\n'),
        async (names, values, delimiter, end) => {
          const id = (n: number) => `0x${String(n).padStart(64, '0')}`
          const line = (cells: readonly string[]) =>
            cells.map((one) => cell(one, delimiter)).join(delimiter)
          const sheet = [
            line(['identifier', ...names, 'outcome']),
            ...values.map((row, at) =>
              line([id(at), ...names.map((_, of) => row[of] ?? ''), 'p1']),
            ),
          ].join(end)
          const bytes = new TextEncoder().encode(sheet)
          const { rows } = readBatch({ name: 'rows.csv', bytes })
          expect(rows.map((row) => row.columns)).toEqual(
            values.map((row) => Object.fromEntries(names.map((key, of) => [key, row[of] ?? '']))),
          )
        },
      ),
    )
  })

  test('no bytes make a reader fail in another way than exit 2, nor a formula pass', async () => {
    const junk = fc.array(
      fc.constantFrom(
        ...[
          'identifier',
          'outcome',
          'slug',
          'signature',
          ',',
          ';',
          '\t',
          '\n',
          '\r\n',
          '"',
          '=1',
          '\0',
          'p1',
          'yes',
          ' ',
        ],
        `0x${'1'.repeat(64)}`,
        '\ufeff',
        '__proto__',
      ),
      { maxLength: 30 },
    )
    await fc.assert(
      fc.asyncProperty(junk, async (parts) => {
        const bytes = new TextEncoder().encode(`identifier,outcome,note\n${parts.join('')}`)
        try {
          const { rows, faults } = readBatch({ name: 'rows.csv', bytes })
          for (const row of rows)
            expect(Object.values(row.columns ?? {}).join()).not.toMatch(/^\s*=|\0/)
          faults.throwAny()
        } catch (error) {
          expect(error).toMatchObject({ meta: { exitCode: 2 } })
        }
      }),
    )
  })
})
