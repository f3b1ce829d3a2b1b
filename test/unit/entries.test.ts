import fc from 'fast-check'
import { type CandidateEntry, newEntries } from '#gateway/ledger/state'
import type { Candidate } from '#protocol/candidate'

const hex = fc
  .bigInt({ min: 0n, max: 2n ** 128n - 1n })
  .map((n) => n.toString(16).padStart(32, '0'))
const uuidOf = (text: string) => text.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
const live = { sequence: 1 } as Candidate
const position = fc.nat(2 ** 31 - 1).map((n) => n * 1_000)

const entry = (
  id: string,
  identity: string,
  sequence: number,
  more: Partial<CandidateEntry> = {},
): CandidateEntry => ({
  id,
  identity,
  roundKey: identity,
  status: 'executed',
  retryable: false,
  sequence,
  receivedAt: sequence,
  progressAt: -1,
  live: undefined,
  ...more,
})
const key = fc.oneof(
  hex,
  fc.nat(20).map((n) => n.toString(16).padStart(4, '0').padEnd(32, '0')),
)

test('T13: whatever is put, revived, ended again or moved, every look-up answers as a map of objects would', () => {
  const step = fc.record({
    id: fc.nat(30),
    act: fc.constantFrom('live', 'ended', 'moved'),
    status: fc.constantFrom('executed' as const, 'failed' as const),
    retryable: fc.boolean(),
    receivedAt: position,
    progressAt: fc.oneof(fc.constant(-1), position),
  })
  fc.assert(
    fc.property(
      fc.uniqueArray(key, { minLength: 31, maxLength: 31 }),
      fc.array(step, { maxLength: 120 }),
      (keys, steps) => {
        const model = new Map<string, CandidateEntry>()
        const entries = newEntries()
        for (const { id: n, act, status, retryable, receivedAt, progressAt } of steps) {
          const text = keys[n] ?? ''
          const id = uuidOf(text)
          const identity = [...text].reverse().join('')
          const one = entry(id, identity, n, { status, retryable, receivedAt, progressAt })
          if (act === 'live') {
            model.set(id, { ...one, live })
            entries.put({ ...one, live })
          } else if (act === 'ended') {
            model.set(id, one)
            entries.putEnded({ ...one })
          } else {
            const cut = entries.cut()
            const atCut = [...cut.entries()]
            model.set(id, one)
            if (n % 2 === 0) entries.put({ ...one })
            else entries.putEnded({ ...one })
            for (const [ordinal, held] of atCut.entries()) {
              cut.moved(ordinal, 7 + ordinal)
              const known = model.get(held.id)
              if (known === undefined) throw new Error(`${held.id} came from nowhere`)
              if (known.receivedAt === held.receivedAt) known.receivedAt = 7 + ordinal
              if (known.progressAt === held.progressAt) known.progressAt = -1
            }
          }
        }
        const newest = [...model.values()]
          .map(({ sequence }) => sequence)
          .sort((one, other) => other - one)
        for (const count of [0, 3, 99])
          expect([...entries.newest(count)].map(({ sequence }) => sequence)).toEqual(
            newest.slice(0, count),
          )
        const byId = (one: CandidateEntry, other: CandidateEntry) => (one.id < other.id ? -1 : 1)
        expect([...entries.newest()].sort(byId)).toEqual([...model.values()].sort(byId))
        const counts = { received: 0, validated: 0, selected: 0, executed: 0, failed: 0 }
        for (const { status } of model.values()) counts[status] += 1
        expect(entries.counts()).toEqual(counts)
        for (const { identity } of model.values())
          expect(entries.inRound(identity).map(({ id }) => id)).toEqual(
            [...model.values()]
              .filter(({ roundKey }) => roundKey === identity)
              .sort((one, other) => one.sequence - other.sequence)
              .map(({ id }) => id),
          )
        for (const text of keys) {
          const known = model.get(uuidOf(text))
          expect(entries.get(uuidOf(text))).toEqual(known)
          expect(entries.byIdentity([...text].reverse().join(''))).toEqual(known)
        }
      },
    ),
  )
})

test.each([
  'C0FFEE00-0000-4000-8000-000000000000',
  'c0ffee000000400080000000000000000000',
  '',
  'é'.repeat(36),
])('no candidate is found by %j, which is no id as the store writes it', (id) => {
  const entries = newEntries()
  entries.putEnded(entry('c0ffee00-0000-4000-8000-000000000000', '0'.repeat(32), 1))
  expect(entries.get(id)).toBeUndefined()
})

test('robustness §2, Versions: keys of another form are kept as they are', () => {
  const entries = newEntries()
  const odd = [
    entry('an id', 'a payload', 1),
    entry('C0FFEE00-0000-4000-8000-000000000000', 'A'.repeat(32), 2),
  ]
  for (const one of odd) entries.putEnded(one)
  expect([...entries.newest()].reverse()).toEqual(odd)
  for (const one of odd) {
    expect(entries.get(one.id)).toEqual(one)
    expect(entries.byIdentity(one.identity)).toEqual(one)
  }
})
