/**
 * R8 over runs that are told one by one (T14): no honest journal is called broken, whatever order
 * its runs are read in; no broken one holds.
 */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  isOfferOpen,
  isOpen,
  offersFor,
  openFor,
} from '../../src/core/client/journal/authorizations.js'
import { newFold } from '../../src/core/client/journal/fold.js'
import type {
  AttemptClass,
  JournalEntry,
  Offered,
  Signed,
} from '../../src/core/client/journal/records.js'
import { createJournalFacts } from '../../src/core/client/journal/verify.js'
import type { Claim, JournalFact } from '../../src/core/history/facts.js'
import { systemHash } from '../../src/core/io/clock.js'
import type { Hex } from '../../src/core/ports.js'
import { createHistory, type Verdict, violationsText } from '../support/observed-history.js'

type Entry = JournalEntry & { readonly run: number }

const word = (n: number): Hex => `0x${n.toString(16).padStart(64, '0')}`
const proposer: Hex = `0x${'0a'.repeat(20)}`
const chainId = 31337
const hourMs = 3_600_000
const token = (run: number) => run.toString(16).padStart(12, '0')

/**
 * What a process of an honest client may do next, if it may: it looks at everything there is, as
 * the client does.
 */
interface Wish {
  readonly act:
    | 'sign'
    | 'supersede'
    | 'import'
    | 'offer'
    | 'bring'
    | 'abandon'
    | 'attempt'
    | 'poll'
    | 'settle'
    | 'wait'
  readonly run: number
  readonly question: number
  readonly round: number
  readonly pick: number
  readonly outcome: AttemptClass | 'none'
}
const runs = 3
const wishes = fc.array(
  fc.record<Wish>({
    act: fc.constantFrom(
      'sign',
      'sign',
      'supersede',
      'import',
      'offer',
      'bring',
      'abandon',
      'attempt',
      'attempt',
      'poll',
      'settle',
      'wait',
    ),
    run: fc.nat(runs - 1),
    question: fc.nat(1),
    round: fc.nat(1),
    pick: fc.nat(5),
    outcome: fc.constantFrom(
      'accepted',
      'refused',
      'refused',
      'deferred',
      'reconcile',
      'uncertain',
      'none',
    ),
  }),
  { minLength: 4, maxLength: 40 },
)
/** Milliseconds that the clock of each run is off: no clock decides an order (R13). */
const skews = fc.array(fc.integer({ min: -3 * hourMs, max: 3 * hourMs }), {
  minLength: runs,
  maxLength: runs,
})

interface Lived {
  readonly entries: readonly Entry[]
  readonly nowMs: number
}

function honest(all: readonly Wish[], skew: readonly number[]): Lived {
  const entries: Entry[] = []
  const fold = newFold()
  const attempts = [0, 0, 0]
  let count = 0
  let nowMs = 100 * hourMs
  const write = (run: number, ...some: readonly JournalEntry[]) => {
    for (const entry of some) {
      fold.add({ ...entry, timeMs: nowMs })
      entries.push({ ...entry, run })
    }
  }
  const own = (run: number) => nowMs + (skew[run] ?? 0)
  const wanted = (question: number) => ({ questionId: word(question), proposer, chainId })
  const inRound = (timestamp: string | undefined, round: number) =>
    timestamp === undefined || timestamp === String(round)
  const holding = ({ run, question, round }: Wish, everyRound = false) => [
    ...openFor(fold.view().byQuestion(word(question)), wanted(question), own(run)).flatMap(
      ({ id, signed }) => (everyRound || inRound(signed.timestamp, round) ? [id] : []),
    ),
    ...offersFor(fold.view().offers, wanted(question), own(run)).flatMap(({ id, offered }) =>
      everyRound || inRound(offered.timestamp, round) ? [id] : [],
    ),
  ]
  const draft = (
    { run, question, round }: Wish,
    supersedes: string | undefined,
    isImport = false,
  ): Signed => {
    count += 1
    const body = JSON.stringify({ number: count })
    return {
      id: `${token(run)}-${count}`,
      identifier: word(question),
      questionId: word(question),
      chainId,
      ...(isImport
        ? {}
        : { timestamp: String(round), round: `round ${question} ${round}`, digest: word(count) }),
      terms: {
        proposer,
        price: '0',
        amount: '5',
        nonce: String(count),
        deadline: String(Math.floor(nowMs / 1_000) + 3_600),
      },
      identity: `identity ${count}`,
      form: 'single',
      body,
      sha256: systemHash.sha256(body),
      signedAtMs: own(run),
      ...(supersedes === undefined ? {} : { supersedes }),
    }
  }
  const reserve = ({ id, terms }: Signed): JournalEntry => ({
    kind: 'nonce.reserved',
    data: { id, proposer, nonce: terms.nonce },
  })
  const offerOf = ({
    form: _form,
    body: _body,
    sha256: _sha,
    identity: _identity,
    signedAtMs,
    ...signed
  }: Signed): Offered => ({
    ...signed,
    timestamp: signed.timestamp ?? '0',
    round: signed.round ?? '',
    digest: signed.digest ?? word(0),
    token: proposer,
    spender: proposer,
    typedData: {} as Offered['typedData'],
    offeredAtMs: signedAtMs,
  })

  for (const wish of all) {
    const { act, run, pick, outcome } = wish
    const authorizations = fold.view().authorizations
    const open = authorizations.filter((one) => isOpen(one, own(run)))
    const one = open[pick % Math.max(1, open.length)]
    const offers = fold
      .view()
      .offers.filter((offer) => isOfferOpen(offer, own(run)) && offer.supersededBy === undefined)
    const offer = offers[pick % Math.max(1, offers.length)]
    switch (act) {
      case 'sign':
      case 'offer': {
        if (holding(wish).length > 0) break
        const made = draft(wish, undefined)
        write(
          run,
          reserve(made),
          act === 'sign'
            ? { kind: 'signed', data: made }
            : { kind: 'offered', data: offerOf(made) },
        )
        break
      }
      case 'supersede': {
        const [named, ...others] = holding(wish)
        if (named === undefined || others.length > 0) break
        const made = draft(wish, named)
        write(
          run,
          reserve(made),
          pick % 2 === 0
            ? { kind: 'signed', data: made }
            : { kind: 'offered', data: offerOf(made) },
        )
        break
      }
      case 'import':
        if (holding(wish, true).length === 0)
          write(run, { kind: 'signed', data: draft(wish, undefined, true) })
        break
      case 'bring': {
        if (offer === undefined) break
        const { typedData: _typedData, offeredAtMs: _offeredAtMs, ...offered } = offer.offered
        const body = JSON.stringify({ of: offer.id })
        const rest = {
          identity: offer.id,
          form: 'single' as const,
          body,
          sha256: systemHash.sha256(body),
          signedAtMs: own(run),
        }
        write(run, { kind: 'signed', data: { ...offered, ...rest } })
        break
      }
      case 'abandon':
        // Only the run that gave it out may give it up; what was signed meanwhile stays.
        if (offer !== undefined)
          write(Number.parseInt(offer.id, 16), {
            kind: 'abandoned',
            data: { id: offer.id, reason: 'signer_failed' },
          })
        break
      case 'attempt': {
        if (one === undefined) break
        attempts[run] = (attempts[run] ?? 0) + 1
        const attempt = `${token(run)}.${attempts[run]}`
        const { id, signed } = one
        if (!id.startsWith(token(run))) write(run, { kind: 'signed', data: signed })
        write(run, {
          kind: 'attempt.start',
          data: { attempt, ids: [id], origin: 'o', form: 'single', sha256: signed.sha256 },
        })
        if (outcome === 'none') break
        write(run, { kind: 'attempt.end', data: { attempt, results: [{ id, class: outcome }] } })
        const candidate_id = '00000000-0000-4000-8000-000000000000'
        if (outcome === 'accepted')
          write(run, {
            kind: 'ack',
            data: { id, candidate_id, status: '', received_at: '', replayed: false },
          })
        break
      }
      case 'poll':
        if (one?.candidateId === undefined) break
        write(run, {
          kind: 'terminal',
          data: {
            id: one.id,
            outcome: pick % 3 === 0 ? 'executed' : 'failed',
            retryable: pick % 3 === 1,
          },
        })
        break
      case 'settle': {
        const id = pick % 2 === 0 ? one?.id : offer?.id
        if (id !== undefined) write(run, { kind: 'terminal', data: { id, outcome: 'nonce_used' } })
        break
      }
      case 'wait':
        nowMs += (1 + pick) * hourMs
    }
  }
  return { entries, nowMs }
}

function permutations<T>(items: readonly T[]): T[][] {
  if (items.length <= 1) return [[...items]]
  return items.flatMap((item, at) =>
    permutations(items.filter((_, other) => other !== at)).map((rest) => [item, ...rest]),
  )
}

/** Each order of the runs, one after the other. */
function verdicts(entries: readonly Entry[]): Verdict[] {
  return permutations([...new Set(entries.map(({ run }) => run))]).map((order) => {
    const history = createHistory('by log')
    for (const run of order) {
      const factsOf = createJournalFacts(systemHash, token(run))
      for (const entry of entries)
        if (entry.run === run) for (const fact of factsOf(entry)) history.durable(token(run), fact)
    }
    return history.verdict()
  })
}

describe('T14: an honest journal, cut into runs', () => {
  test('R6-R8: it is never called broken, whatever was wished, with every clock off and the runs read in every order', () => {
    let pairs = 0
    fc.assert(
      fc.property(wishes, skews, (all, skew) => {
        const told = verdicts(honest(all, skew).entries)
        expect(told.map(violationsText).join('')).toBe('')
        // What cannot be ordered cannot be so in any order of reading.
        expect(new Set(told.map(({ unordered }) => JSON.stringify(unordered))).size).toBeLessThan(2)
        pairs += told[0]?.unordered.R8 ?? 0
      }),
      { numRuns: 1_500, seed: 3 },
    )
    expect(pairs).toBeGreaterThan(0)
  })

  test('R6-R8: as it happened, in one stream, it holds too, and nothing in it is without an order', () => {
    fc.assert(
      fc.property(wishes, (all) => {
        const history = createHistory('one')
        const factsOf = [0, 1, 2].map((run) => createJournalFacts(systemHash, token(run)))
        for (const entry of honest(all, [0, 0, 0]).entries)
          for (const fact of factsOf[entry.run]?.(entry) ?? [])
            history.durable(token(entry.run), fact)
        expect(violationsText(history.verdict())).toBe('')
        expect(history.verdict().unordered).toEqual({ R7: 0, R8: 0 })
      }),
      { numRuns: 600, seed: 4 },
    )
  })

  test('R8: of one run alone every pair has its order', () => {
    fc.assert(
      fc.property(wishes, (all) => {
        const [verdict] = verdicts(
          honest(
            all.map((wish) => ({ ...wish, run: 0 })),
            [0, 0, 0],
          ).entries,
        )
        expect([verdict?.broken ?? 0, verdict?.unordered.R8 ?? 0]).toEqual([0, 0])
      }),
      { numRuns: 200, seed: 5 },
    )
  })
})

describe('T14: a second signature beside an open one', () => {
  test('R7, R8: it never holds; where nothing in any run could have ended the first, it is broken in every order of the runs', () => {
    let surely = 0
    fc.assert(
      fc.property(wishes, fc.nat(runs - 1), fc.nat(9), (all, run, pick) => {
        const { entries, nowMs } = honest(all, [0, 0, 0])
        const fold = newFold()
        for (const entry of entries) fold.add({ ...entry, timeMs: 0 })
        const open = fold
          .view()
          .authorizations.filter((one) => isOpen(one, nowMs) && one.supersededBy === undefined)
        const first = open[pick % Math.max(1, open.length)]
        if (first === undefined) return
        const body = JSON.stringify({ number: 'wrong' })
        const second: Signed = {
          ...first.signed,
          id: `${token(run)}-999`,
          timestamp: first.signed.timestamp ?? '0',
          digest: word(999),
          terms: { ...first.signed.terms, nonce: '999', deadline: '999999' },
          body,
          sha256: systemHash.sha256(body),
          signedAtMs: nowMs,
        }
        const { supersedes: _supersedes, ...data } = second
        const told = verdicts([
          ...entries,
          { run, kind: 'nonce.reserved', data: { id: data.id, proposer, nonce: '999' } },
          { run, kind: 'signed', data },
        ])
        const mayHaveEnded = first.attempts.some(({ end }) => end?.class === 'refused')
        const wasReplaced = entries.some(
          ({ kind, data: record }) => kind === 'offered' && record.supersedes === first.id,
        )
        for (const { broken, unordered, violations } of told) {
          expect(broken + unordered.R8).toBeGreaterThan(0)
          if (mayHaveEnded || wasReplaced) continue
          surely += 1
          expect(
            violations.some(({ detail }) => detail.includes(first.id) && detail.includes(data.id)),
          ).toBe(true)
        }
      }),
      { numRuns: 800, seed: 6 },
    )
    expect(surely).toBeGreaterThan(100)
  })
})

describe('R8: what each run can show of two authorizations', () => {
  const claimOf = (n: number, more: Partial<Claim> = {}): Claim => ({
    id: `run-${n}`,
    question: `q ${proposer}`,
    round: 'r',
    nonce: `${proposer} ${n}`,
    chainId: 1,
    atMs: n * 10,
    deadlineSeconds: 100_000,
    supersedes: undefined,
    ...more,
  })
  const reserved = ({ id, nonce }: Claim): JournalFact => ({ kind: 'reserved', id, nonce })
  const signed = (
    claim: Claim,
    more: Partial<Extract<JournalFact, { kind: 'signed' }>> = {},
  ): JournalFact => ({
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
  const attempt = (id: string): JournalFact => ({
    kind: 'attempt',
    attempt: `${id}.1`,
    ids: [id],
    origin: 'o',
    sha256: id,
    isSaved: true,
  })
  const ended = (id: string, outcome: AttemptClass): JournalFact => ({
    kind: 'ended',
    id,
    class: outcome,
  })
  const over = (id: string): JournalFact => ({ kind: 'terminal', id, closes: true })
  const one = claimOf(1)
  const two = claimOf(2)
  const own = (claim: Claim) => [reserved(claim), signed(claim)]
  type Logs = Readonly<Record<string, readonly JournalFact[]>>
  const judged = (logs: Logs) => {
    const told = permutations(Object.entries(logs)).map((order) => {
      const history = createHistory('by log')
      for (const [log, facts] of order) for (const fact of facts) history.durable(log, fact)
      const { violations, broken, unordered } = history.verdict()
      return { rules: violations.map(({ rule }) => rule), broken, unordered: unordered.R8 }
    })
    expect(new Set(told.map((each) => JSON.stringify(each))).size).toBe(1)
    return told[0]
  }
  const holds = { rules: [], broken: 0, unordered: 0 }
  const open = { rules: [], broken: 0, unordered: 1 }
  const breaks = (rule: string) => ({ rules: [rule], broken: 1, unordered: 0 })

  const cases: readonly (readonly [string, object, Logs])[] = [
    ['another run supersedes it', holds, { a: own(one), b: own({ ...two, supersedes: one.id }) }],
    [
      'another run supersedes what superseded it',
      holds,
      {
        a: own(one),
        b: own({ ...two, supersedes: one.id }),
        c: own(claimOf(3, { supersedes: two.id })),
      },
    ],
    [
      'its deadline was an hour past',
      holds,
      { a: own(one), b: own({ ...two, atMs: one.deadlineSeconds * 1_000 + 3_600_001 }) },
    ],
    [
      'it was closed before in the run that signs again',
      holds,
      { a: own(one), b: [over(one.id), ...own(two)] },
    ],
    [
      'one authorization under two ids',
      holds,
      {
        a: own(one),
        b: [signed({ ...one, id: 'run-9', round: undefined }, { origin: 'imported' })],
      },
    ],
    [
      'one authorization under two ids, which ended under the other',
      open,
      {
        a: [...own(one), over(one.id), ...own(two)],
        b: [signed({ ...one, id: 'run-9', round: undefined }, { origin: 'imported' })],
      },
    ],
    [
      'an offer for another round that replaced it was given up',
      open,
      {
        a: own({ ...one, round: undefined }),
        b: [
          reserved(two),
          { kind: 'offered', claim: { ...two, supersedes: one.id } },
          { kind: 'abandoned', id: two.id },
        ],
        c: own(claimOf(3, { round: 'another' })),
      },
    ],
    [
      'an offer that replaced it was replaced, and given up',
      { ...open, unordered: 2 },
      {
        a: own(one),
        b: [
          reserved(two),
          { kind: 'offered', claim: { ...two, supersedes: one.id } },
          { kind: 'abandoned', id: two.id },
        ],
        c: [...own(claimOf(3, { supersedes: two.id })), over('run-3'), ...own(claimOf(4))],
      },
    ],
    [
      'an offer that replaced it was given up in the run that signs again',
      breaks('R8'),
      {
        a: own(one),
        b: [
          reserved(two),
          { kind: 'offered', claim: { ...two, supersedes: one.id } },
          { kind: 'abandoned', id: two.id },
          ...own(claimOf(3)),
        ],
      },
    ],
    [
      'it was replaced after the second',
      { rules: ['R8', 'R8'], broken: 2, unordered: 0 },
      { a: own(one), b: [...own(claimOf(3)), ...own({ ...two, supersedes: one.id })] },
    ],
    [
      'it was refused in its run, and accepted in the run that signs again',
      breaks('R8'),
      {
        a: [...own(one), attempt(one.id), ended(one.id, 'refused')],
        b: [
          signed(one, { origin: 'copied' }),
          attempt(one.id),
          ended(one.id, 'accepted'),
          ...own(two),
        ],
      },
    ],
    [
      'its offer was given up, and its signature brought in all the same',
      breaks('R8'),
      {
        a: [reserved(one), { kind: 'offered', claim: one }, { kind: 'abandoned', id: one.id }],
        b: [signed(one, { origin: 'copied' }), ...own(two)],
      },
    ],
    [
      'it was refused in another run',
      open,
      { a: [...own(one), attempt(one.id), ended(one.id, 'refused')], b: own(two) },
    ],
    ['a third run has its end', open, { a: own(one), b: own(two), c: [over(one.id)] }],
    ['its own run has its end', open, { a: [...own(one), over(one.id)], b: own(two) }],
    [
      'an offer that replaced it ran out, and was given up',
      open,
      {
        a: own({ ...one, deadlineSeconds: 999_999 }),
        b: [
          reserved(two),
          { kind: 'offered', claim: { ...two, supersedes: one.id } },
          { kind: 'abandoned', id: two.id },
        ],
        c: own(
          claimOf(3, { atMs: two.deadlineSeconds * 1_000 + 3_600_001, deadlineSeconds: 999_999 }),
        ),
      },
    ],
    [
      'an offer that replaced it was given up, and held the question until then',
      { rules: ['R8'], broken: 1, unordered: 1 },
      {
        a: own({ ...one, deadlineSeconds: 999_999 }),
        b: [
          reserved(two),
          { kind: 'offered', claim: { ...two, supersedes: one.id } },
          { kind: 'abandoned', id: two.id },
        ],
        c: own(claimOf(3)),
      },
    ],
    ['nothing ends either', breaks('R8'), { a: own(one), b: own(two) }],
    [
      'its end came after the second was seen',
      breaks('R8'),
      {
        a: own(one),
        b: own(two),
        c: [signed(two, { origin: 'copied' }), over(one.id)],
      },
    ],
    [
      'its end came after the second, in the run of the second',
      breaks('R8'),
      { a: own(one), b: [...own(two), over(one.id)] },
    ],
    [
      'accepted without an acknowledgement, then refused',
      breaks('R8'),
      {
        a: [
          ...own(one),
          attempt(one.id),
          ended(one.id, 'accepted'),
          attempt(one.id),
          ended(one.id, 'refused'),
          ...own(two),
        ],
      },
    ],
    [
      'uncertain, then refused',
      breaks('R7'),
      {
        a: [
          ...own(one),
          attempt(one.id),
          ended(one.id, 'uncertain'),
          attempt(one.id),
          ended(one.id, 'refused'),
          ...own(two),
        ],
      },
    ],
  ]
  test.each(cases)('%s', (_what, expected, logs) => {
    expect(judged(logs)).toEqual(expected)
  })

  test('R7: a pair that cannot be ordered, of which one had no known outcome, does not hold for R7 either', () => {
    const history = createHistory('by log')
    for (const fact of [...own(one), attempt(one.id), ended(one.id, 'uncertain'), ...own(two)])
      history.durable('a', fact)
    expect(history.verdict()).toMatchObject({ broken: 1, unordered: { R7: 0, R8: 0 } })
    history.durable('b', over(one.id))
    expect(history.verdict()).toMatchObject({ broken: 0, unordered: { R7: 1, R8: 1 } })
  })

  test('R6: one nonce for two rounds, or two tokens, is broken; where one record does not tell them, it is not', () => {
    const twin = (more: Partial<Claim>, token?: string): Logs => ({
      a: [reserved(one), signed(one, { token: 't' })],
      b: [signed({ ...one, id: 'run-9', ...more }, { origin: 'imported', token })],
    })
    expect(judged(twin({ round: 'another' }))).toEqual(breaks('R6'))
    expect(judged(twin({}, 'u'))).toEqual(breaks('R6'))
    expect(judged(twin({ round: undefined }))).toEqual(holds)
  })

  test('R7: bytes that say otherwise than their record are named by what differs', () => {
    const history = createHistory('by log')
    history.durable('a', reserved(one))
    history.durable('a', signed(one, { differs: ['nonce', 'amount'] }))
    expect(violationsText(history.verdict())).toMatch(
      /^R7: the bytes saved as run-1 say another nonce and amount than/,
    )
  })

  test('R17: very many in one round are judged in time that grows no faster, and what is not looked at is counted', () => {
    const many = Array.from({ length: 3_000 }, (_, n) => claimOf(n))
    const history = createHistory('by log')
    for (const [n, claim] of many.entries())
      for (const fact of [...own(claim), over(claim.id)]) history.durable(`log ${n}`, fact)
    expect(history.verdict()).toMatchObject({
      broken: 0,
      unordered: { R7: 0, R8: (3_000 * 2_999) / 2 },
    })
    const single = createHistory('by log')
    const more = Array.from({ length: 60_000 }, (_, n) => claimOf(n))
    for (const claim of more)
      for (const fact of [...own(claim), over(claim.id)]) single.durable('log', fact)
    expect(single.verdict()).toMatchObject({ broken: 0, unordered: { R7: 0, R8: 0 } })
  })
})
