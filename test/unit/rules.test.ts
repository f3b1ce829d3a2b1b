import { concat, keccak256, numberToHex, stringToHex } from 'viem'
import { noRulesHash } from '#chain/constants'
import { type Rules, rulesFrom } from '#chain/rules'
import { rulesStanding } from '#client/propose/intent'
import type { Hex } from '#ports'

const posted = (timestamp: bigint, text: string) => ({ timestamp, update: stringToHex(text) })
const bytesOf = (timestamp: bigint, text: string) =>
  concat([
    numberToHex(timestamp, { size: 8 }),
    numberToHex(new TextEncoder().encode(text).length, { size: 8 }),
    stringToHex(text),
  ])

describe('the hash', () => {
  test('of nothing is keccak256 of nothing', () => {
    expect(noRulesHash).toBe(keccak256('0x'))
    expect(rulesFrom(null, [])).toEqual({ hash: noRulesHash, owner: null, updates: [] })
  })

  test('is over time, byte length and bytes in order of time, equal times as given', () => {
    const rules = rulesFrom(null, [
      posted(9n, 'c'),
      posted(7n, 'ä'),
      posted(7n, ''),
      posted(7n, 'b'),
    ])
    expect(rules.updates.map(({ text }) => text)).toEqual(['ä', '', 'b', 'c'])
    const parts = [bytesOf(7n, 'ä'), bytesOf(7n, ''), bytesOf(7n, 'b'), bytesOf(9n, 'c')]
    expect(rules.updates.map(({ hash }) => hash)).toEqual(
      parts.map((_, at) => keccak256(concat(parts.slice(0, at + 1)))),
    )
    expect(rules.hash).toBe(keccak256(concat(parts)))
  })

  test('length is hashed: two texts are not one', () => {
    const one = rulesFrom(null, [posted(1n, 'ab')])
    const cut = rulesFrom(null, [posted(1n, 'a'), posted(1n, 'b')])
    expect(one.hash).not.toBe(cut.hash)
  })

  test('a time beyond every calendar is told as it is; one that is no u64 is refused', () => {
    expect(rulesFrom(null, [posted(2n ** 63n, 'x')]).updates[0]?.at).toBe(String(2n ** 63n))
    expect(() => rulesFrom(null, [posted(2n ** 64n, 'x')])).toThrow('18446744073709551616')
  })
})

describe('how they stand', () => {
  const rules = rulesFrom(null, [posted(1n, 'one'), posted(2n, 'two'), posted(3n, 'three')])
  const state = (n: number) => rules.updates[n - 1]?.hash ?? noRulesHash
  const other: Hex = `0x${'ab'.repeat(32)}`
  const textsOf = (standing: ReturnType<typeof rulesStanding>) =>
    standing.newer.map(({ text }) => text)

  test.each<[string, Hex | undefined, Hex[], Hex | undefined, string[] | 'same']>([
    ['none acknowledged: what is signed is', undefined, [], undefined, 'same'],
    ['none acknowledged, and the context had them all', undefined, [], state(3), 'same'],
    ['none acknowledged, and one came since the context', undefined, [], state(2), ['three']],
    [
      'the newest of several, in any order (R13)',
      undefined,
      [state(2), state(1)],
      state(3),
      ['three'],
    ],
    [
      'all of them once, and an older state later',
      undefined,
      [state(3), state(1)],
      undefined,
      'same',
    ],
    ['none at all was there', undefined, [noRulesHash], undefined, ['one', 'two', 'three']],
    [
      'what the intent names goes before the journal',
      state(1),
      [state(3)],
      undefined,
      ['two', 'three'],
    ],
    ['a state that is none of these rules', undefined, [other], undefined, ['one', 'two', 'three']],
    ['one that is none beside one that is', undefined, [other, state(3)], undefined, 'same'],
  ])('%s', (_name, rulesSeen, acknowledged, told, expected) => {
    const context = told === undefined ? {} : { rules_told: told }
    const standing = rulesStanding(rules, { rulesSeen }, acknowledged, context)
    expect(standing.isChanged ? textsOf(standing) : 'same').toEqual(expected)
    expect(standing.isFirst).toBe(rulesSeen === undefined && acknowledged.length === 0)
    expect(standing.unknownHash).toBe(
      acknowledged.length === 1 && acknowledged[0] === other ? other : undefined,
    )
  })

  test('rules that have lost what was acknowledged are changed, with nothing new to show', () => {
    const none: Rules = rulesFrom(null, [])
    const standing = rulesStanding(none, {}, [state(1)], {})
    expect([standing.isChanged, standing.newer, standing.unknownHash]).toEqual([true, [], state(1)])
  })
})
