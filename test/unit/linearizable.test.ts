import fc from 'fast-check'
import {
  type AdmissionCall,
  admissionModel,
  type Call,
  groupsOf,
  type LoggedPayload,
  type Stage,
  type Told,
} from '#support/shared-history/admission-model'
import { linearize, type Model, type Operation } from '#support/shared-history/linearizable'

type Act = { readonly write: number } | 'read'
const register: Model<number, Act, number> = {
  initial: 0,
  key: String,
  step: (state, act, output) =>
    act === 'read' ? (output === state ? state : undefined) : act.write,
}

test('the search agrees with trying every order, on small histories of all kinds', () => {
  const anyAct = fc.oneof(fc.constant('read' as const), fc.record({ write: fc.nat(2) }))
  const anyCall = fc.record({
    input: anyAct,
    begunAt: fc.nat(8),
    lastsFor: fc.oneof(fc.integer({ min: 1, max: 6 }), fc.constant(Infinity)),
    output: fc.nat(2),
  })
  let refused = 0
  fc.assert(
    fc.property(fc.array(anyCall, { maxLength: 5 }), (calls) => {
      const history = calls.map(({ input, begunAt, lastsFor, output }) => ({
        client: 'c',
        input,
        begunAt,
        endedAt: begunAt + lastsFor,
        output: lastsFor === Infinity ? undefined : output,
      }))
      const expected = fitsSomehow(register.initial, history)
      if (!expected) refused++
      expect(linearize(register, history).isLinearizable).toBe(expected)
    }),
    { numRuns: 2_000, seed: 1 },
  )
  expect(refused).toBeGreaterThan(200)
})

function fitsSomehow(state: number, left: readonly Operation<Act, number>[]): boolean {
  if (left.every(({ endedAt }) => endedAt === Infinity)) return true
  return left.some((one) => {
    if (left.some(({ endedAt }) => endedAt < one.begunAt)) return false
    const next = register.step(state, one.input, one.output)
    return next !== undefined && fitsSomehow(next, left.toSpliced(left.indexOf(one), 1))
  })
}

function payload(identity: string, more: Partial<LoggedPayload> = {}): LoggedPayload {
  const stages: readonly Stage[] = (['received', 'validated', 'selected', 'executed'] as const).map(
    (status) => ({ status, detail: `${status} at` }),
  )
  const candidate = { id: `id-${identity}`, stages }
  return { identity, proposer: 'w', round: `r-${identity}`, nonce: identity, candidate, ...more }
}

let clock = 0
function call(input: Call, output: Told | undefined, during = 1): AdmissionCall {
  clock += 2
  return {
    client: 'c',
    input,
    begunAt: clock,
    endedAt: output === undefined ? Infinity : clock + during,
    output,
  }
}
const submit = (identity: string, told: Told | undefined, during?: number) =>
  call({ kind: 'submit', identity }, told, during)
const status = (identity: string, told: Told, id = `id-${identity}`) =>
  call({ kind: 'status', identity, id }, told)
const held = (identity: string, word: Stage['status'], isNew = false): Told => ({
  kind: 'held',
  id: `id-${identity}`,
  isNew,
  stage: { status: word, detail: `${word} at` },
})
const missing: Told = { kind: 'missing' }
const refused: Told = { kind: 'refused' }
const conflict = (id: string): Told => ({ kind: 'conflict', id })

const isPossible = (payloads: readonly LoggedPayload[], ...history: readonly AdmissionCall[]) =>
  linearize(admissionModel(payloads), history).isLinearizable

const a = payload('a')

test('R2: planted histories of one payload are refused', () => {
  const admitted = submit('a', held('a', 'received', true))
  const wrong: Record<string, readonly AdmissionCall[]> = {
    'a status older than one that was told': [
      admitted,
      status('a', held('a', 'executed')),
      status('a', held('a', 'selected')),
    ],
    'a replay that tells an older status': [
      admitted,
      status('a', held('a', 'selected')),
      submit('a', held('a', 'received')),
    ],
    'two ids for one payload': [
      admitted,
      submit('a', { ...held('a', 'received'), id: 'id-z' } as Told),
    ],
    '404 after 202': [admitted, status('a', missing)],
    '404 after 200': [
      submit('a', undefined),
      submit('a', held('a', 'received')),
      status('a', missing),
    ],
    'admitted twice': [admitted, submit('a', held('a', 'received', true))],
    'a replay of what nobody has sent before': [submit('a', held('a', 'received'))],
    'refused after it was admitted': [admitted, submit('a', refused)],
    'a status of what nobody has sent': [status('a', held('a', 'received'))],
    'a stage that never was': [admitted, status('a', held('a', 'failed'))],
    'a stage with times that never were': [
      admitted,
      status('a', {
        kind: 'held',
        id: 'id-a',
        isNew: false,
        stage: { status: 'validated', detail: 'another time' },
      }),
    ],
    'a conflict with nothing': [submit('a', conflict('id-z'))],
    'a conflict with itself': [admitted, submit('a', conflict('id-a'))],
  }
  for (const [what, history] of Object.entries(wrong))
    expect(isPossible([a], ...history), what).toBe(false)
})

test('R1: an acknowledged payload that the log has not is refused', () => {
  const lost = payload('a', { candidate: undefined })
  expect(isPossible([lost], submit('a', held('a', 'received', true)))).toBe(false)
  expect(isPossible([lost], submit('a', undefined), submit('a', refused))).toBe(true)
})

const failed = payload('a', {
  nonce: 'same',
  candidate: {
    id: 'id-a',
    stages: [{ status: 'received' }, { status: 'failed' }],
  },
})
const plain = (identity: string, word: Stage['status'], isNew = false): Told => ({
  kind: 'held',
  id: `id-${identity}`,
  isNew,
  stage: { status: word },
})
const second = payload('b', { nonce: 'same' })

test('R6: planted conflicts are refused', () => {
  const first = submit('a', plain('a', 'received', true))
  const wrong: Record<string, readonly AdmissionCall[]> = {
    'with a candidate that nobody has sent': [submit('b', conflict('id-a'))],
    'with one that is not in the way': [first, submit('b', conflict('id-c'))],
    'with one that had ended': [
      first,
      status('a', plain('a', 'failed')),
      submit('b', conflict('id-a')),
    ],
    'none, while the first was still told to be there afterwards': [
      first,
      submit('b', plain('b', 'received', true)),
      status('a', plain('a', 'received')),
    ],
    'with one that began later': [
      submit('b', conflict('id-a')),
      submit('a', plain('a', 'received', true)),
    ],
  }
  for (const [what, history] of Object.entries(wrong))
    expect(isPossible([failed, second, payload('c')], ...history), what).toBe(false)
  const executed = payload('a', { nonce: 'same' })
  expect(
    isPossible(
      [payload('b', { nonce: 'same' }), executed],
      submit('a', held('a', 'received', true)),
      submit('b', held('b', 'received', true)),
      status('a', held('a', 'selected')),
    ),
    'two with one nonce that were active at once',
  ).toBe(false)
})

test('payloads that exclude each other by way of others are judged together', () => {
  const groups = groupsOf([
    payload('a', { round: 'x' }),
    payload('b', { nonce: 'same' }),
    payload('c', { round: 'x', nonce: 'same' }),
    payload('d', { proposer: 'v', round: 'x' }),
  ])
  expect(groups.map((group) => group.map(({ identity }) => identity).sort())).toEqual(
    expect.arrayContaining([['a', 'b', 'c'], ['d']]),
  )
  expect(groups).toHaveLength(2)
})
