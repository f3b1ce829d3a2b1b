import fc from 'fast-check'
import type { Claim, HistoryRule, JournalFact, StoreFact } from '#support/history/facts'
import type { HistoryEvent } from '#support/history/observed-history'
import { createHistory, type Verdict, violationsText } from '#support/history/observed-history'

type Fact = StoreFact | JournalFact
/** `sync` covers what was written to the log until then. */
type Step =
  | { readonly write: Fact; readonly to: string }
  | { readonly sync: string }
  | Exclude<HistoryEvent, { log: string }>

const executor = '0xe0'
const proposer = '0xa0'

function claimOf(n: number, more: Partial<Claim> = {}): Claim {
  const round = `round-${n}`
  return {
    id: `run-${n}`,
    question: `q${n} ${proposer}`,
    round,
    nonce: `${proposer} ${n}`,
    chainId: 1,
    atMs: n * 10,
    deadlineSeconds: 100_000,
    supersedes: undefined,
    ...more,
  }
}
const signedOf = (
  claim: Claim,
  more: Partial<Extract<JournalFact, { kind: 'signed' }>> = {},
): Fact => ({
  kind: 'signed',
  claim,
  terms: `terms of ${claim.nonce}`,
  token: undefined,
  bytes: `bytes of ${claim.id}`,
  isWhole: true,
  differs: [],
  origin: 'own',
  ...more,
})
const attemptOf = (id: string, attempt: string): Fact => ({
  kind: 'attempt',
  attempt,
  ids: [id],
  origin: 'gateway',
  sha256: `hash of ${id}`,
  isSaved: true,
})
const written = (to: string, ...facts: readonly Fact[]): Step[] => [
  ...facts.map((write) => ({ write, to })),
  { sync: to },
]
const leaves = (id: string): Step => ({ kind: 'sent', origin: 'gateway', sha256: `hash of ${id}` })
const candidateOf = (n: number): StoreFact => ({
  kind: 'candidate',
  id: `c${n}`,
  sequence: n,
  payload: `p${n}`,
  round: `round-${n}`,
})
const answer = (status: 200 | 202, n: number): Step => ({
  kind: 'answered',
  status,
  candidate: `c${n}`,
  payload: `p${n}`,
})
const transactionOf = (n: number, hash: string, call = `call ${n}`): StoreFact => ({
  kind: 'transaction',
  slot: `s${n}`,
  transaction: { hash, does: 'propose', candidates: [`c${n}`], nonce: n, calls: [call] },
})
const slotOf = (n: number): StoreFact => ({
  kind: 'slot',
  id: `s${n}`,
  executor,
  nonce: n,
  candidates: [`c${n}`],
  kept: false,
})
const handed = (n: number, hash: string): Step => ({
  kind: 'handed',
  hash,
  sender: executor,
  nonce: n,
})

function lifeOf(
  n: number,
  run: string,
  { loses, bumps, reorgs }: { loses: boolean; bumps: boolean; reorgs: boolean },
): Step[] {
  const claim = claimOf(n)
  const { id } = claim
  const first: Step[] = loses
    ? [
        ...written('store', candidateOf(n)),
        answer(202, n),
        ...written(run, { kind: 'ended', id, class: 'uncertain' }),
        ...written(run, attemptOf(id, `${n}.2`)),
        leaves(id),
        answer(200, n),
      ]
    : [...written('store', candidateOf(n)), answer(202, n)]
  const newest = bumps ? `t${n}.2` : `t${n}.1`
  const mined: Step = { kind: 'mined', block: `b${n}`, hash: newest, rounds: [`round-${n}`] }
  return [
    ...written(run, { kind: 'reserved', id, nonce: claim.nonce }),
    ...written(run, signedOf(claim)),
    ...written(run, attemptOf(id, `${n}.1`)),
    leaves(id),
    ...first,
    ...written(run, { kind: 'ended', id, class: 'accepted' }, { kind: 'acknowledged', id }),
    { kind: 'told', candidate: `c${n}` },
    ...written('store', slotOf(n)),
    ...written('store', transactionOf(n, `t${n}.1`)),
    handed(n, `t${n}.1`),
    ...written('store', { kind: 'acted', slot: `s${n}`, hash: `t${n}.1`, what: 'sent' }),
    ...(bumps ? [...written('store', transactionOf(n, `t${n}.2`)), handed(n, `t${n}.2`)] : []),
    ...(reorgs ? [mined, { kind: 'undone', block: `b${n}` } as const, handed(n, newest)] : []),
    { ...mined, block: `b${n}'` },
    ...written('store', { kind: 'acted', slot: `s${n}`, hash: newest, what: 'mined' }),
    ...written('store', { kind: 'closed', slot: `s${n}`, outcome: 'executed', hash: newest }),
    ...written(run, { kind: 'terminal', id, closes: true }),
  ]
}

function streamOf(lives: readonly (readonly Step[])[], order: readonly number[]): Step[] {
  const rest = lives.map((life) => [...life])
  const stream: Step[] = []
  for (const pick of order) {
    const open = rest.filter((life) => life.length > 0)
    const life = open[pick % Math.max(1, open.length)]
    const step = life?.shift()
    if (step) stream.push(step)
  }
  return [...stream, ...rest.flat()]
}

function verdictOf(steps: readonly Step[]): Verdict {
  const history = createHistory()
  const lines = new Map<string, number>()
  for (const step of steps) {
    if ('write' in step) {
      const line = (lines.get(step.to) ?? 0) + 1
      lines.set(step.to, line)
      history.add({ kind: 'written', log: step.to, line, fact: step.write })
    } else if ('sync' in step)
      history.add({ kind: 'synced', log: step.sync, line: lines.get(step.sync) ?? 0 })
    else history.add(step)
  }
  return history.verdict()
}

/**
 * Nonces of one executor are bound in order, so lives that are interleaved must not overtake each
 * other there.
 */
const sound = fc
  .record({
    ways: fc.array(fc.record({ loses: fc.boolean(), bumps: fc.boolean(), reorgs: fc.boolean() }), {
      minLength: 2,
      maxLength: 5,
    }),
    order: fc.array(fc.nat(20), { maxLength: 300 }),
  })
  .map(({ ways, order }) => {
    const lives = ways.map((way, n) => lifeOf(n, `run-${n % 2}`, way))
    const slotAt = (life: readonly Step[]) =>
      life.findIndex((step) => 'write' in step && step.write.kind === 'slot')
    const before = lives.map((life) => life.slice(0, slotAt(life)))
    const after = lives.map((life) => life.slice(slotAt(life)))
    return {
      ways,
      stream: [
        ...streamOf(before, order),
        ...after.flatMap((life) => life.slice(0, 2)),
        ...streamOf(
          after.map((life) => life.slice(2)),
          order,
        ),
      ],
    }
  })

const isFact =
  (kind: Fact['kind'], id = '') =>
  (step: Step) =>
    'write' in step && step.write.kind === kind && JSON.stringify(step.write).includes(`"${id}`)
const put = (
  stream: readonly Step[],
  where: (step: Step) => boolean,
  at: 'before' | 'behind',
  ...steps: readonly Step[]
): Step[] => {
  const index = stream.findIndex(where) + (at === 'before' ? 0 : 1)
  return [...stream.slice(0, index), ...steps, ...stream.slice(index)]
}
const without = (stream: readonly Step[], which: (step: Step) => boolean): Step[] =>
  stream.filter((step) => !which(step))
const change = (
  stream: readonly Step[],
  which: (step: Step) => boolean,
  to: (step: Step) => Step,
): Step[] => {
  const index = stream.findIndex(which)
  return stream.map((step, at) => (at === index ? to(step) : step))
}
const first202 = (step: Step) => 'status' in step && step.status === 202 && step.candidate === 'c0'
const lineOf = (kind: 'sent', id: string) => (step: Step) =>
  'kind' in step && step.kind === kind && step.sha256 === `hash of ${id}`
const handed0 = (step: Step) => 'kind' in step && step.kind === 'handed' && step.hash === 't0.1'
const rival = (n: number, more: Partial<Claim> = {}) =>
  claimOf(90 + n, { ...claimOf(n), id: 'run-90', nonce: `${proposer} 90`, ...more })
const reservedAndSigned = (claim: Claim) =>
  written('run-0', { kind: 'reserved', id: claim.id, nonce: claim.nonce }, signedOf(claim))

type Wrong = (stream: readonly Step[]) => Step[]
const later =
  (...steps: readonly Step[]): Wrong =>
  (all) => [...all, ...steps]
const onto =
  (...[where, at, ...steps]: [(step: Step) => boolean, 'before' | 'behind', ...Step[]]): Wrong =>
  (all) =>
    put(all, where, at, ...steps)

const wrongs: readonly (readonly [what: string, rule: HistoryRule, wrong: Wrong])[] = [
  [
    'a 202 between the write of its record and the sync',
    'R1',
    (all) => put(without(all, first202), isFact('candidate', 'c0'), 'behind', answer(202, 0)),
  ],
  [
    'a 202 before its record is written',
    'R1',
    (all) => put(without(all, first202), isFact('candidate', 'c0'), 'before', answer(202, 0)),
  ],
  [
    'a status told before its record',
    'R1',
    onto(isFact('candidate', 'c0'), 'before', { kind: 'told', candidate: 'c0' }),
  ],
  [
    'a transaction handed over before its record',
    'R1',
    (all) => put(without(all, handed0), isFact('transaction', 's0'), 'before', handed(0, 't0.1')),
  ],
  [
    'a receipt counted of a transaction nobody signed',
    'R1',
    onto(
      isFact('transaction', 's0'),
      'behind',
      ...written('store', { kind: 'acted', slot: 's0', hash: 'unknown', what: 'mined' }),
    ),
  ],
  ['a second 202', 'R2', onto(first202, 'behind', answer(202, 0))],
  [
    'a replay with the id of another candidate',
    'R2',
    later({ kind: 'answered', status: 200, candidate: 'c1', payload: 'p0' }),
  ],
  [
    'a payload admitted as two candidates',
    'R2',
    later(
      ...written('store', {
        kind: 'candidate',
        id: 'c99',
        sequence: 99,
        payload: 'p0',
        round: 'elsewhere',
      }),
    ),
  ],
  [
    'a second slot for a round whose slot is open',
    'R3',
    onto(
      isFact('transaction', 's0'),
      'before',
      ...written('store', { ...slotOf(99), candidates: ['c0'] } as StoreFact),
    ),
  ],
  [
    'a nonce bound a second time',
    'R3',
    later(...written('store', candidateOf(99), { ...slotOf(99), nonce: 0 } as StoreFact)),
  ],
  [
    'a slot for a round that is executed',
    'R3',
    later(...written('store', { ...slotOf(99), candidates: ['c0'] } as StoreFact)),
  ],
  [
    'a replacement with other calldata',
    'R3',
    onto(
      isFact('closed', 's0'),
      'before',
      ...written('store', transactionOf(0, 't0.9', 'another call')),
    ),
  ],
  [
    'a replacement that carries more',
    'R3',
    onto(
      isFact('closed', 's0'),
      'before',
      {
        to: 'store',
        write: {
          kind: 'transaction',
          slot: 's0',
          transaction: {
            hash: 't',
            does: 'propose',
            candidates: ['c0', 'c1'],
            nonce: 0,
            calls: ['call 0', 'call 1'],
          },
        },
      },
      { sync: 'store' },
    ),
  ],
  [
    'a transaction signed with another nonce',
    'R3',
    onto(
      isFact('closed', 's0'),
      'before',
      ...written('store', {
        kind: 'transaction',
        slot: 's0',
        transaction: { hash: 't', does: 'cancel', candidates: [], nonce: 77, calls: [] },
      }),
    ),
  ],
  [
    'a transaction under two slots',
    'R3',
    onto(
      isFact('closed', 's1'),
      'before',
      ...written('store', { ...transactionOf(1, 't0.1'), slot: 's1' } as StoreFact),
    ),
  ],
  [
    'a transaction sent with another nonce',
    'R3',
    (all) => change(all, handed0, () => handed(7, 't0.1')),
  ],
  [
    'a round proposed by two of our transactions',
    'R3',
    later({ kind: 'mined', block: 'late', hash: 't1.1', rounds: ['round-0'] }),
  ],
  [
    'a request that leaves before its attempt is durable',
    'R4',
    (all) =>
      put(
        without(all, lineOf('sent', 'run-0')),
        isFact('attempt', '0.1'),
        'before',
        leaves('run-0'),
      ),
  ],
  [
    'an attempt without the saved bytes beside it',
    'R4',
    (all) => without(all, isFact('signed', 'run-0')),
  ],
  ['a signature without a reservation', 'R6', (all) => without(all, isFact('reserved', 'run-0'))],
  [
    'a nonce reserved for two',
    'R6',
    later(...written('run-1', { kind: 'reserved', id: 'run-90', nonce: `${proposer} 0` })),
  ],
  [
    'a nonce that authorizes two things',
    'R6',
    later(
      ...written(
        'run-1',
        signedOf(claimOf(95, { nonce: `${proposer} 0` }), {
          origin: 'imported',
          terms: 'other terms',
        }),
      ),
    ),
  ],
  [
    'an attempt with other bytes',
    'R7',
    (all) =>
      change(all, isFact('attempt', '0.1'), () => ({
        to: 'run-0',
        write: { ...attemptOf('run-0', '0.1'), isSaved: false } as Fact,
      })),
  ],
  [
    'saved bytes that are not what was recorded',
    'R7',
    (all) =>
      change(all, isFact('signed', 'run-0'), () => ({
        to: 'run-0',
        write: signedOf(claimOf(0), { isWhole: false }),
      })),
  ],
  [
    'two payloads under one id',
    'R7',
    later(...written('run-1', signedOf(claimOf(0), { origin: 'copied', bytes: 'others' }))),
  ],
  [
    'a second signature while the first is unknown',
    'R7',
    onto(lineOf('sent', 'run-0'), 'behind', ...reservedAndSigned(rival(0))),
  ],
  [
    'a second signature while the first is accepted',
    'R8',
    onto(isFact('terminal', 'run-0'), 'before', ...reservedAndSigned(rival(0))),
  ],
  [
    'typed data given out beside an open authorization',
    'R8',
    onto(
      isFact('terminal', 'run-0'),
      'before',
      ...written('run-0', { kind: 'offered', claim: rival(0) }),
    ),
  ],
]

test('R1-R8: one that holds is accepted, in whatever order its parts come', () => {
  fc.assert(
    fc.property(sound, ({ ways, stream }) => {
      const verdict = verdictOf(stream)
      expect(violationsText(verdict)).toBe('')
      expect(verdict.checked.R8).toBe(ways.length)
      expect(Math.min(...Object.values(verdict.checked))).toBeGreaterThan(0)
    }),
    { numRuns: 150, seed: 1 },
  )
})

test.each(wrongs)('T14: %s is refused by %s', (_what, rule, wrong) => {
  fc.assert(
    fc.property(sound, ({ stream }) => {
      const { violations } = verdictOf(wrong(stream))
      expect(violations.map((each) => each.rule)).toContain(rule)
      expect(violations[0]?.detail).toMatch(/^\S.*\d/)
    }),
    { numRuns: 25, seed: 2 },
  )
})

test('R1: what a crash took is not there any more: the same may be written again, and an answer about it is refused', () => {
  const lost: HistoryEvent[] = [
    { kind: 'written', log: 'store', line: 1, fact: candidateOf(1) },
    { kind: 'synced', log: 'store', line: 1 },
    { kind: 'written', log: 'store', line: 2, fact: candidateOf(2) },
    { kind: 'reopened', log: 'store', line: 1 },
  ]
  const history = createHistory()
  for (const event of lost) history.add(event)
  history.add({ kind: 'told', candidate: 'c1' })
  expect(history.verdict().broken).toBe(0)
  history.add({ kind: 'told', candidate: 'c2' })
  expect(history.verdict().violations).toEqual([
    { rule: 'R1', detail: expect.stringContaining('c2') as string },
  ])
})

describe('R8: what lifts the ban on a second authorization', () => {
  const one = claimOf(1)
  const other = rival(1, { atMs: 5_000 })
  const cases: readonly (readonly [string, readonly JournalFact[], Claim])[] = [
    [
      'a final refusal',
      [attemptOf(one.id, 'a') as JournalFact, { kind: 'ended', id: one.id, class: 'refused' }],
      other,
    ],
    ['its end', [{ kind: 'terminal', id: one.id, closes: true }], other],
    ['an override that names it', [], { ...other, supersedes: one.id }],
    ['its deadline, an hour past', [], { ...other, atMs: one.deadlineSeconds * 1_000 + 3_600_001 }],
    ['another round', [], { ...other, round: 'the next' }],
    ['another chain', [], { ...other, chainId: 2 }],
  ]
  const told = (facts: readonly JournalFact[], second: Claim) => {
    const history = createHistory()
    const all: readonly JournalFact[] = [
      { kind: 'reserved', id: one.id, nonce: one.nonce },
      signedOf(one) as JournalFact,
      ...facts,
    ]
    for (const fact of all) history.durable(fact)
    history.durable({ kind: 'reserved', id: second.id, nonce: second.nonce })
    history.durable(signedOf(second) as JournalFact)
    return violationsText(history.verdict())
  }

  test.each(cases)('%s', (_what, facts, second) => {
    expect(told(facts, second)).toBe('')
  })

  test('nothing else does: not an end that may be undone, not a refusal after an uncertain attempt', () => {
    const uncertain: readonly JournalFact[] = [
      attemptOf(one.id, 'a') as JournalFact,
      { kind: 'ended', id: one.id, class: 'uncertain' },
      attemptOf(one.id, 'b') as JournalFact,
      { kind: 'ended', id: one.id, class: 'refused' },
    ]
    expect(told([{ kind: 'terminal', id: one.id, closes: false }], other)).toMatch(
      /^R8: run-90 .* run-1,/,
    )
    expect(told(uncertain, other)).toMatch(/^R7: run-90 .* unknown/)
    expect(told([], other)).toMatch(/^R8: /)
    expect(told([], { ...other, round: undefined })).toMatch(/^R8: /)
  })
})
