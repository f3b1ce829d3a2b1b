import fc from 'fast-check'
import { jsonLimits, readJson } from '#protocol/json'

const bytes = (text: string) => new TextEncoder().encode(text)
const read = (text: string) => readJson(bytes(text))

test.each([
  ['blanks only', '  \n'],
  ['a syntax error', '{"a":}'],
  ['a body cut in a string', '{"a":"b'],
  ['a body cut in an escape', '{"a":"b\\'],

  ['a second text', '{}{}'],
  ['a trailing comma', '{"a":1,}'],
  ['a comment', '{}//'],
  ['single quotes', "{'a':1}"],

  ['a bare NUL', '{"a":"\u0000"}'],

  ['an escaped NUL in a key', '{"\\u0000":1}'],

  ['a lone low surrogate', '{"a":"\\ude00x"}'],
  ['a lone surrogate in a key', '{"\\ud83d":1}'],
  ['a key twice', '{"a":1,"a":2}'],

  ['a key twice in a nested object', '{"x":[{"b":1,"c":2,"b":3}]}'],

  ['__proto__ escaped', '{"\\u005f_proto__":{}}'],
  ['constructor, nested', '{"a":{"constructor":1}}'],
  ['prototype', '{"prototype":1}'],
  ['a negative number', '{"a":-1}'],

  ['a number of many digits', `{"a":${'9'.repeat(400)}}`],
  ['leading zeros', '{"a":01}'],
  ['NaN', '{"a":NaN}'],

  ['many levels', '['.repeat(100_000)],
  ['closing brackets only', ']]]]'],
])('robustness §4: %s is refused', (_, text) => {
  expect(read(text).ok).toBe(false)
})

test('robustness §4: invalid UTF-8 is refused, encoded surrogates and overlong forms included', () => {
  for (const bad of [
    [0xff],
    [0xc0, 0xaf],
    [0xed, 0xa0, 0x80],
    [0xe2, 0x82],
    [0xf5, 0x80, 0x80, 0x80],
  ]) {
    expect(readJson(new Uint8Array([0x22, ...bad, 0x22])).ok).toBe(false)
  }
})

test('robustness §4: 64 keys in one object are taken, 65 are not; keys of siblings do not add up', () => {
  const object = (count: number) =>
    JSON.stringify(Object.fromEntries(Array.from({ length: count }, (_, at) => [`k${at}`, at])))
  expect(read(object(jsonLimits.keysPerObject)).ok).toBe(true)
  expect(read(object(jsonLimits.keysPerObject + 1)).ok).toBe(false)
  expect(read(`[${object(40)},${object(40)}]`).ok).toBe(true)
})

test.each([
  '{}',
  '[]',
  'null',
  '"a:b{}[],-1.5e3"',
  '{"a":0,"b":[9007199254740991,true,false,null]}',
  '{"\\u0061":"\\"\\\\","b":"\\ud83d\\ude00"}',
  '{"":""}',
  ' {"a" : 1} ',
])('what JSON.parse reads within the limits is read alike: %s', (text) => {
  expect(read(text)).toEqual({ ok: true, value: JSON.parse(text) })
})

const key = fc
  .string({ unit: 'grapheme', maxLength: 6 })
  .filter((text) => !['__proto__', 'constructor', 'prototype'].includes(text))
const sound = fc
  .letrec((tie) => ({
    value: fc.oneof(
      { depthSize: 'small', maxDepth: 6 },
      fc.string({ unit: 'grapheme' }),
      fc.nat(),
      fc.boolean(),
      fc.constant(null),
      fc.array(tie('value'), { maxLength: 4 }),
      fc.dictionary(key, tie('value'), { maxKeys: 5 }),
    ),
  }))
  .value.filter((value) => !JSON.stringify(value).includes('\\u0000'))

test('robustness §4: every sound value is read as JSON.parse reads it, whatever the blanks', () => {
  fc.assert(
    fc.property(sound, fc.constantFrom('', '\t', ' '), (value, indent) => {
      const text = JSON.stringify(value, undefined, indent)
      expect(read(text)).toEqual({ ok: true, value: JSON.parse(text) })
    }),
  )
})

test('robustness §4: a text is either read as JSON.parse reads it or refused, and what JSON.parse refuses is refused', () => {
  const fragment = fc.constantFrom(
    '{',
    '}',
    '[',
    ']',
    ':',
    ',',
    '"',
    '\\',
    '\\u0061',
    '"a"',
    '"b":',
    '1',
    '-',
    '0',
    '.5',
    'e1',
    'null',
    ' ',
    'é',
  )
  fc.assert(
    fc.property(
      fc.oneof(
        fc.array(fragment, { maxLength: 14 }).map((parts) => parts.join('')),
        fc.json({ maxDepth: 3 }),
      ),
      (text) => {
        const result = read(text)
        let parsed: { value: unknown } | undefined
        try {
          parsed = { value: JSON.parse(text) }
        } catch {
          parsed = undefined
        }
        if (!parsed) expect(result.ok).toBe(false)
        else if (result.ok) expect(result.value).toEqual(parsed.value)
      },
    ),
    { numRuns: 3_000 },
  )
})

test('robustness §4: an object with a key doubled anywhere is refused', () => {
  fc.assert(
    fc.property(
      fc.dictionary(key, fc.nat(), { minKeys: 1, maxKeys: 6 }),
      fc.nat(),
      fc.boolean(),
      (object, pick, asEscapes) => {
        const keys = Object.keys(object)
        const doubled = keys[pick % keys.length] ?? ''
        const spelled = asEscapes
          ? `"${[...Array(doubled.length).keys()].map((at) => `\\u${doubled.charCodeAt(at).toString(16).padStart(4, '0')}`).join('')}"`
          : JSON.stringify(doubled)
        const text = `${JSON.stringify(object).slice(0, -1)},${spelled}:1}`
        expect(read(text).ok).toBe(false)
      },
    ),
  )
})

test('robustness §4: what was sent never comes back in the detail', () => {
  const result = read('{"secret-canary":1,"secret-canary":"secret-canary"')
  expect(JSON.stringify(result)).not.toContain('canary')
})
