import fc from 'fast-check'
import { outcomesOf } from '#chain/ancillary'
import {
  answerText,
  type Labels,
  labelsOf,
  outcomeNamed,
  outcomesNamed,
} from '#protocol/outcome-words'
import { outcomeKeys } from '#protocol/proposal'

const labels = (p1: string, p2: string, p3 = 'Unknown'): Labels => ({ p1, p2, p3 })
const binary = labels('No', 'Yes')

describe('contract §9: answers in words', () => {
  test.each([
    ['p1', binary, ['p1']],
    [' P2 ', binary, ['p2']],
    ['yes', binary, ['p2']],
    ['NO', binary, ['p1']],
    ['Unknown', binary, ['p3']],
    ['No (p1)', binary, ['p1']],
    ['no (p2)', binary, []],
    ['yes', labels('Yes', 'No'), ['p1']],
    ['porto', labels('Porto', 'Benfica'), ['p1']],
    ['São  Paulo', labels('Santos', 'são paulo'), ['p2']],
    ['Atle\u0301tico', labels('Atl\u00e9tico', 'Real'), ['p1']],
    ['Port', labels('Porto', 'Benfica'), []],
    ['', labels('Porto', 'Benfica'), []],
    ['yes', labels('Porto', 'Benfica'), []],
    ['no', labels('No', 'Benfica'), []],
    ['No (p1)', labels('No', 'Benfica'), ['p1']],
    ['yes', labels('Porto', 'Benfica', 'Yes'), []],
    ['yes', labels('Yes', 'yes'), []],
    ['no', labels('No', 'Yes', 'no'), ['p1', 'p3']],
    ['draw', labels('Draw', 'draw'), ['p1', 'p2']],
    ['Draw (p2)', labels('Draw', 'draw'), ['p2']],
    ['p2', labels('P2', 'P1'), ['p1', 'p2']],
    ['P2 (p1)', labels('P2', 'P1'), ['p1']],
    ['no (p1)', labels('No', 'No (p1)'), ['p1', 'p2']],
  ] as const)('%j of %j is %j', (word, of, expected) => {
    expect(outcomesNamed(word, of)).toEqual(expected)
  })

  test('without labels only a key means anything', () => {
    expect(
      ['P1', 'p2', 'p3', 'yes', 'No', 'Unknown', 'p4'].map((word) => outcomeNamed(word)),
    ).toEqual(['p1', 'p2', 'p3', undefined, undefined, undefined, undefined])
  })

  const word = fc.oneof(
    fc.constantFrom('Yes', 'No', 'yes', 'p1', 'P2', 'Porto', 'PORTO', 'No (p1)', 'Yes (p2)', ' '),
    fc.string({ maxLength: 12 }),
  )
  const anyLabels = fc.record({ p1: word, p2: word, p3: word })
  const fold = (text: string) => text.normalize('NFC').replace(/\s+/g, ' ').trim().toLowerCase()

  test('property: a meaning is a key, or a label letter by letter; two never make one', () => {
    fc.assert(
      fc.property(word, anyLabels, (said, of) => {
        const found = outcomesNamed(said, of)
        for (const key of found)
          expect([key, fold(of[key]), fold(answerText(key, of[key]))]).toContain(fold(said))
        for (const key of outcomeKeys)
          if (fold(of[key]) === fold(said) && !['yes', 'no'].includes(fold(said)))
            expect(found).toContain(key)
        expect(outcomeNamed(said, of)).toBe(found.length === 1 ? found[0] : undefined)
      }),
    )
  })

  test('property: a word that has a meaning keeps it only while no other label is like it', () => {
    fc.assert(
      fc.property(word, anyLabels, fc.constantFrom(...outcomeKeys), (said, of, other) => {
        const before = outcomeNamed(said, of)
        const after = outcomeNamed(said, { ...of, [other]: said })
        if (before !== undefined && before !== other) expect([before, undefined]).toContain(after)
      }),
    )
  })

  test('property: yes and no mean something exactly where p1 and p2 are called so', () => {
    fc.assert(
      fc.property(anyLabels, fc.constantFrom('yes', 'No', ' YES '), (of, said) => {
        const meant = outcomeNamed(said, of)
        if (meant === undefined) return
        expect([fold(of.p1), fold(of.p2)].sort()).toEqual(['no', 'yes'])
        expect(fold(of[meant])).toBe(fold(said))
      }),
    )
  })

  test('property: labels of texts of any content are read, and their shown form means that answer', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 40 }), fc.string({ maxLength: 40 }), (one, other) => {
        const text = `q: title: t, res_data: p1: 0, p2: 1. Where p1 corresponds to ${one}, p2 to ${other}.`
        const outcomes = outcomesOf(`0x${Buffer.from(text).toString('hex')}`, {
          settlesHalf: true,
          binary: true,
        })
        const of = labelsOf(outcomes)
        for (const key of outcomeKeys)
          expect(outcomesNamed(answerText(key, of[key]), of)).toContain(key)
      }),
    )
  })
})
