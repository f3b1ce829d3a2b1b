import { Chalk } from 'chalk'
import fc from 'fast-check'
import { type Column, cut, tableText, widthOf } from '#commands/terminal/render'

interface Row {
  readonly id: string
  readonly state: string
  readonly title: string
  readonly amount: string
}
const columns: readonly Column<Row>[] = [
  { head: 'id', cell: ({ id }) => id },
  { head: 'state', cell: ({ state }) => state },
  { head: 'question', cell: ({ title }) => title, least: 8 },
  { head: 'bond', cell: ({ amount }) => amount, right: true, rank: 1 },
]
const rows: readonly Row[] = [
  {
    id: '6208acd7ce14-1',
    state: 'accepted',
    title: 'Will it rain in Porto on Friday?',
    amount: '750 USDC.e',
  },
  { id: '6208acd7ce14-2', state: 'closed', title: 'Short?', amount: '1,500 USDC.e' },
]
const screen = (width: number, isTerminal = true) => ({
  columns: width,
  isTerminal,
  paint: new Chalk({ level: 0 }),
})

test('contract §6: cells stand below their heads in upper case, numbers at the right', () => {
  expect(tableText(columns, rows, screen(80)).split('\n')).toEqual([
    'ID              STATE     QUESTION                                  BOND',
    '6208acd7ce14-1  accepted  Will it rain in Porto on Friday?    750 USDC.e',
    '6208acd7ce14-2  closed    Short?                            1,500 USDC.e',
  ])
})

test('contract §6: the column that may be cut is, then the one that may go goes; ids stay whole', () => {
  const [, cutRow, ...more] = tableText(columns, rows, screen(60)).split('\n')
  expect(cutRow).toBe('6208acd7ce14-1  accepted  Will it rain in Por…    750 USDC.e')
  expect(more).toHaveLength(1)
  expect(tableText(columns, rows, screen(40)).split('\n')).toEqual([
    'ID              STATE     QUESTION',
    '6208acd7ce14-1  accepted  Will it rain …',
    '6208acd7ce14-2  closed    Short?',
    'no room for bond; --json has all',
  ])
})

test('contract §6: where nothing fits beside the first column, it has a line of its own', () => {
  expect(tableText(columns, rows, screen(30)).split('\n').slice(0, 4)).toEqual([
    'ID',
    '  STATE     QUESTION',
    '6208acd7ce14-1',
    '  accepted  Will it rain in P…',
  ])
})

test('contract §6: a pipe cuts nothing', () => {
  const piped = tableText(columns, rows, screen(40, false)).split('\n')
  expect(piped[0]).toBe('ID              STATE     QUESTION                                  BOND')
})

test('contract §6: a column that no row has anything for is left out', () => {
  const bare = rows.map((row) => ({ ...row, amount: '' }))
  expect(tableText(columns, bare, screen(80))).not.toContain('BOND')
})

test('R20: no line is wider than the terminal, whatever stands in a cell', () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.record({
          id: fc.string({ maxLength: 14, unit: 'grapheme-ascii' }),
          state: fc.string({ maxLength: 9, unit: 'grapheme-ascii' }),
          title: fc.string({ maxLength: 80, unit: 'binary' }),
          amount: fc.string({ maxLength: 12, unit: 'grapheme-ascii' }),
        }),
        { minLength: 1, maxLength: 5 },
      ),
      fc.integer({ min: 40, max: 120 }),
      (some, width) => {
        for (const line of tableText(columns, some, screen(width)).split('\n')) {
          expect(widthOf(line)).toBeLessThanOrEqual(width)
          expect(line).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u202e]/)
        }
      },
    ),
  )
})

test('contract §6: wide characters count for two, and none is cut in half', () => {
  expect(widthOf('東京')).toBe(4)
  expect(widthOf('🙂')).toBe(2)
  expect(widthOf('Atlético')).toBe(8)
  expect(cut('東京東京', 6)).toBe('東京…')
  expect(cut('a🙂🙂🙂', 4)).toBe('a🙂…')
})
