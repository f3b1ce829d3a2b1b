import fc from 'fast-check'
import {
  type AttemptClass,
  equalIntent,
  isOpen,
  isUnsettled,
  type JournaledAuthorization,
  type JournalRecord,
  openFor,
  type Signed,
  stateOf,
  type TerminalRecord,
} from '#client/journal/authorizations'
import { newFold } from '#client/journal/journal'

const nowMs = 1_760_000_000_000
const deadline = 1_760_003_600
const id = 'aaaaaaaaaaaa-1'
const candidateId = '00000000-0000-4000-8000-000000000001'

const signed: Signed = {
  id,
  identifier: `0x${'1'.repeat(64)}`,
  questionId: `0x${'1'.repeat(64)}`,
  chainId: 31337,
  timestamp: '1759999000',
  terms: {
    proposer: `0x${'2'.repeat(40)}`,
    price: '0',
    amount: '5',
    nonce: '6',
    deadline: String(deadline),
  },
  identity: 'x',
  form: 'single',
  body: '{}',
  sha256: 'y',
  signedAtMs: nowMs,
}

type Event =
  | { readonly kind: 'attempt'; readonly class: AttemptClass | 'no end' }
  | {
      readonly kind: 'terminal'
      readonly outcome: TerminalRecord['outcome']
      readonly retryable: boolean
    }

const event: fc.Arbitrary<Event> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant('attempt' as const),
      class: fc.constantFrom<AttemptClass | 'no end'>(
        'accepted',
        'refused',
        'deferred',
        'reconcile',
        'uncertain',
        'no end',
      ),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('terminal' as const),
      outcome: fc.constantFrom<TerminalRecord['outcome']>(
        'executed',
        'failed',
        'nonce_used',
        'expired',
      ),
      retryable: fc.boolean(),
    }),
  },
)

function recordsOf(event: Event, n: number): JournalRecord[] {
  if (event.kind === 'terminal') {
    const data = {
      id,
      outcome: event.outcome,
      ...(event.outcome === 'failed' ? { retryable: event.retryable, code: 'x' } : {}),
    }
    return [{ kind: 'terminal', timeMs: nowMs, data }]
  }
  const attempt = `run.${n}`
  const start: JournalRecord = {
    kind: 'attempt.start',
    timeMs: nowMs,
    data: { attempt, ids: [id], origin: 'https://x', form: 'single', sha256: 'y' },
  }
  if (event.class === 'no end') return [start]
  const end: JournalRecord = {
    kind: 'attempt.end',
    timeMs: nowMs,
    data: { attempt, results: [{ id, class: event.class, code: 'c' }] },
  }
  if (event.class !== 'accepted') return [start, end]
  return [
    start,
    end,
    {
      kind: 'ack',
      timeMs: nowMs,
      data: {
        id,
        candidate_id: candidateId,
        status: 'received',
        received_at: 'r',
        replayed: false,
      },
    },
  ]
}

function expectedState(events: readonly Event[]): string {
  const classes = events.flatMap((each) => (each.kind === 'attempt' ? [each.class] : []))
  const has = (...kinds: (AttemptClass | 'no end')[]) =>
    classes.some((each) => kinds.includes(each))
  const ended = events.some(
    (each) => each.kind === 'terminal' && (each.outcome !== 'failed' || !each.retryable),
  )
  if (ended) return 'closed'
  if (has('accepted')) return 'accepted'
  if (classes.length === 0) return 'signed'
  if (has('uncertain', 'no end')) return 'unknown'
  if (has('refused')) return 'closed'
  if (has('reconcile')) return 'conflict'
  return 'deferred'
}

const foldOf = (records: readonly JournalRecord[]): JournaledAuthorization => {
  const fold = newFold()
  for (const record of records) fold.add(record)
  const [one] = fold.view().authorizations
  if (one === undefined) throw new Error('nothing was signed')
  return one
}

const signedRecord: JournalRecord = { kind: 'signed', timeMs: nowMs, data: signed }

test('contract §1: the state follows from the classes of the attempts and the journaled end', () => {
  fc.assert(
    fc.property(fc.array(event, { maxLength: 8 }), (events) => {
      const one = foldOf([signedRecord, ...events.flatMap(recordsOf)])
      expect(stateOf(one, nowMs).kind).toBe(expectedState(events))
      expect(isOpen(one, nowMs)).toBe(expectedState(events) !== 'closed')
    }),
    { numRuns: 2_000 },
  )
})

test('R13: the order in which runs are read does not change the state', () => {
  fc.assert(
    fc.property(fc.array(event, { minLength: 1, maxLength: 6 }), fc.nat(), (events, seed) => {
      const runs = events.map((each, n) => [signedRecord, ...recordsOf(each, n)])
      const turned = runs.map((_, index) => runs[(index + seed) % runs.length] ?? []).reverse()
      expect(stateOf(foldOf(turned.flat()), nowMs)).toMatchObject({
        kind: stateOf(foldOf(runs.flat()), nowMs).kind,
      })
    }),
  )
})

test('robustness §6: a refusal never settles an uncertain attempt, and an id does', () => {
  fc.assert(
    fc.property(fc.array(event, { maxLength: 8 }), (events) => {
      const before = foldOf([signedRecord, ...events.flatMap(recordsOf)])
      const refused = foldOf([
        signedRecord,
        ...[...events, { kind: 'attempt', class: 'refused' } as const].flatMap(recordsOf),
      ])
      expect(isUnsettled(refused)).toBe(isUnsettled(before))
      const accepted = foldOf([
        signedRecord,
        ...[...events, { kind: 'attempt', class: 'accepted' } as const].flatMap(recordsOf),
      ])
      expect(isUnsettled(accepted)).toBe(false)
    }),
  )
})

test('contract §1: without an RPC a deadline closes an hour after it by the wall clock, whatever else is known', () => {
  const one = foldOf([signedRecord, ...recordsOf({ kind: 'attempt', class: 'uncertain' }, 1)])
  expect(stateOf(one, (deadline + 3_600) * 1_000).kind).toBe('unknown')
  expect(stateOf(one, (deadline + 3_601) * 1_000)).toEqual({ kind: 'closed', reason: 'expired' })
})

test('contract §6: an intent is equal by question, proposer and price, and by what was given explicitly', () => {
  const one = foldOf([signedRecord])
  const wanted = {
    questionId: signed.questionId as `0x${string}`,
    proposer: signed.terms.proposer as `0x${string}`,
    chainId: 31337,
    price: '0',
  }
  expect(openFor([one], wanted, nowMs)).toEqual([one])
  expect(openFor([one], { ...wanted, chainId: 137 }, nowMs)).toEqual([])
  expect(equalIntent(one, wanted)).toBe(true)
  expect(equalIntent(one, { ...wanted, amount: '5', nonce: '6', deadline: String(deadline) })).toBe(
    true,
  )
  for (const more of [{ price: '1' }, { amount: '6' }, { nonce: '7' }, { deadline: '1' }])
    expect(equalIntent(one, { ...wanted, ...more })).toBe(false)
})
