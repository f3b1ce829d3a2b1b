import fc from 'fast-check'
import { outcomesOf, plainText } from '#chain/ancillary'
import type { Hex } from '#ports'
import { toHex } from '#protocol/witness'

const bytes = (text: string): Hex => toHex(new TextEncoder().encode(text))
const rules = { settlesHalf: true, binary: true }
const read = (text: string, more: Partial<typeof rules> = {}) =>
  outcomesOf(bytes(text), { ...rules, ...more })
const labels = (text: string) => read(text).map(({ label }) => label)
const allowed = (text: string, more: Partial<typeof rules> = {}) =>
  read(text, more).map((outcome) => outcome.allowed)
const suffix = ',initializer:91430cad2d3975766499717fa0d66a78d814e5c5'

test.each([
  ['Where p1 corresponds to No, p2 to Yes, p3 to unknown/50-50.', ['No', 'Yes', 'unknown/50-50']],
  ['Where p2 corresponds to Yes, p1 to a No, p3 to unknown', ['No', 'Yes', 'unknown']],
  [
    'Where p1 corresponds to Arsenal, p2 to Chelsea, p3 to unknown.',
    ['Arsenal', 'Chelsea', 'unknown'],
  ],
  ['Where p2 corresponds to Spurs, p1 to Pelicans.', ['Pelicans', 'Spurs', 'Unknown']],
  [
    'Where p1 corresponds to St. Louis Blues, p2 to St. Louis. This request will resolve early.',
    ['St. Louis Blues', 'St. Louis', 'Unknown'],
  ],
  [
    'Where p1 to Manchester City, F.C., p2 to Yes and p3 to 50-50',
    ['Manchester City, F.C.', 'Yes', '50-50'],
  ],
  ['', ['No', 'Yes', 'Unknown']],
])('contract §3: %s', (sentence, expected) => {
  expect(labels(`q: title: x, res_data: p1: 0, p2: 1, p3: 0.5. ${sentence}${suffix}`)).toEqual(
    expected,
  )
})

test('contract §3: p4 takes no label away from the others', () => {
  const text =
    'res_data: p1: 0, p2: 1, p3: 0.5, p4: -57896044618658097711785492504343953926634992332820282019728.792003956564819968. Where p1 corresponds to No, p2 to Yes, p3 to unknown, p4 to an early request.'
  expect(labels(text)).toEqual(['No', 'Yes', 'unknown'])
})

test('R20: control and bidi characters in labels are dropped, and long ones are cut', () => {
  expect(
    labels('res_data: p1: 0, p2: 1. Where p1 to N\u0007\u202eo\u2066, p2 to \u001b[31mYes.'),
  ).toEqual(['No', '[31mYes', 'Unknown'])
  expect(
    labels(`res_data: p1: 0, p2: 1. Where p1 to ${'x'.repeat(500)}, p2 to Yes.`)[0],
  ).toHaveLength(80)
})

test('contract §3: bytes that are no UTF-8 are read as well as they can be', () => {
  const [no, yes] = outcomesOf(
    `${bytes('res_data: p1: 0, p2: 1. Where p1 corresponds to N')}ff${bytes('o, p2 to Yes.').slice(2)}` as Hex,
    rules,
  )
  expect([no?.label, yes?.label]).toEqual(['N\ufffdo', 'Yes'])
})

test('§2.2: p3 needs p3: 0.5 in the last res_data and a requester that can settle it', () => {
  expect(allowed('res_data: p1: 0, p2: 1, p3: 0.5. Where p1 …')).toEqual([true, true, true])
  expect(allowed('res_data: p1: 0, p2: 1, p3: 0.5.', { settlesHalf: false })).toEqual([
    true,
    true,
    false,
  ])
  expect(allowed('res_data: p1: 0, p2: 1.')).toEqual([true, true, false])
  expect(allowed('res_data: p1: 0, p2: 1, p3: 0.5. res_data: p1: 0, p2: 1.')).toEqual([
    true,
    true,
    false,
  ])
  expect(allowed('res_data: p1: 0, p2: 1. Where p3: 0.5 is mentioned later')).toEqual([
    true,
    true,
    false,
  ])
})

test('§2.2: without res_data p1 and p2 stand, and p3 does not: absence is no permission', () => {
  expect(allowed('Will it rain? p3: 0.5')).toEqual([true, true, false])
})

test('§2.2: a text that gives a key another value takes that key away, because its price would mean something else', () => {
  expect(allowed('res_data: p1: 1, p2: 0, p3: 0.5.')).toEqual([false, false, true])
  expect(allowed('res_data: p1: 0, p2: 1, p3: 0.25.')).toEqual([true, true, false])
})

test('§2.2: other identifiers than YES_OR_NO_QUERY have no binary prices: nothing is allowed', () => {
  expect(allowed('res_data: p1: 0, p2: 1, p3: 0.5.', { binary: false })).toEqual([
    false,
    false,
    false,
  ])
})

test('§2.2: whatever the bytes, three outcomes with fixed prices come out, on one clean line each', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), fc.string({ maxLength: 60 }), (noise, label) => {
      const text =
        `${toHex(noise)}${bytes(`res_data: p1: 0, p2: 1. Where p1 to ${label}, p2 to Yes.`).slice(2)}` as Hex
      const outcomes = outcomesOf(text, rules)
      expect(outcomes.map(({ outcome, price }) => [outcome, price])).toEqual([
        ['p1', '0'],
        ['p2', '1000000000000000000'],
        ['p3', '500000000000000000'],
      ])
      for (const outcome of outcomes) {
        expect(outcome.label).not.toMatch(
          /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/,
        )
        expect(outcome.label.length).toBeGreaterThan(0)
      }
    }),
  )
})

test('R17: the longest text is read in no time, hostile ones too', () => {
  const hostile = `res_data: ${'p1: '.repeat(700)}${' p1 to '.repeat(400)}${'. A a'.repeat(400)}`
  expect(labels(hostile.slice(0, 8139))).toHaveLength(3)
})

const opening = 'res_data: p1: 0, p2: 1. Where p1 to '
const filled = (start: string, piece: string, end = 'x') =>
  start +
  piece.repeat(Math.ceil(8139 / piece.length)).slice(0, 8139 - start.length - end.length) +
  end

// One text that costs more than linear time holds up every question of the gateway: vitest's own
// time-out is the guard.
test.each([
  ',',
  ';',
  ' ',
  '\t',
  ', ',
  ' ,and',
  ', or',
  '(',
  '[',
  ')',
  '. ',
  '.\u00a0',
  'a ',
  'An ',
  'Aa',
  '. A',
  ', and ',
])(
  'R17: a label that goes on with %j to the end of the text is read, and comes out cut',
  (piece) => {
    const [label = ''] = labels(filled(opening, piece))
    expect(label).not.toBe('')
    expect(label.length).toBeLessThanOrEqual(80)
  },
)

test.each([
  'p1',
  'p1 ',
  'p1:',
  'p1: 1',
  'p1: .',
  'p1 corresponds ',
  'p1 to ',
  ',initializer',
  'where',
  'res_data:',
  '0',
  '1.0',
])('R17: a text full of %j is read', (piece) => {
  expect(
    labels(filled('res_data: ', piece)).every((label) => label.length > 0 && label.length <= 80),
  ).toBe(true)
  expect(labels(filled('res_data: p1: ', piece))).toHaveLength(3)
})

test('R17: whatever 8,139 hostile bytes follow one another, the labels are cut', () => {
  const pieces = [
    ',',
    ';',
    ' ',
    '\n',
    '[',
    '(',
    '.',
    'A',
    'a',
    '0',
    ':',
    ' and',
    ' or',
    'p1',
    ' to ',
    ' corresponds',
    'where',
    '\u202e',
    '\u{1f3c8}',
  ]
  const run = fc
    .tuple(fc.constantFrom(...pieces), fc.integer({ min: 1, max: 4000 }))
    .map(([piece, times]) => piece.repeat(times))
  fc.assert(
    fc.property(
      fc.constantFrom(opening, 'res_data: ', ''),
      fc.array(run, { minLength: 1, maxLength: 8 }),
      (start, runs) => {
        for (const label of labels(filled(start, runs.join('')))) {
          expect(label.length).toBeGreaterThan(0)
          expect(label.length).toBeLessThanOrEqual(80)
        }
      },
    ),
    { numRuns: 40 },
  )
})

test('R20: a label is cut between characters, never in the middle of one', () => {
  for (const lead of ['', 'x']) {
    const [label = ''] = labels(`${opening}${lead}${'\u{1f3c8}'.repeat(300)}, p2 to Yes.`)
    expect(label).toMatch(/^x?(\u{1f3c8})+…$/u)
  }
})

test('§2.2: what ends a label is taken off it, whole words of it are not', () => {
  const [one, two] = labels(
    'res_data: p1: 0, p2: 1. Where p1 to Trinidad and Tobago, and; p2 to a Land, or ,',
  )
  expect([one, two]).toEqual(['Trinidad and Tobago', 'Land'])
  expect(labels('res_data: p1: 0, p2: 1. Where p1 to Sand, p2 to Or.').slice(0, 2)).toEqual([
    'Sand',
    'Or',
  ])
})

test('R20: plain text is one line without control characters', () => {
  expect(plainText(' a\t\r\n b\u0000\u200f ')).toBe('a b')
})
