import fc from 'fast-check'
import { domainOf } from '#chain/round'
import { contractsOf } from '#client/trust/trust'
import type { Hex } from '#ports'
import { priceOf } from '#protocol/proposal'
import type { CandidateStatus } from '#protocol/schema'
import { recoverSigner } from '#protocol/signature'
import { witnessRound } from '#protocol/witness'
import { anyGateway, type Route } from '#support/any-gateway'
import { figures, runs } from '#support/campaign'
import { happySteps, pins } from '#support/scripted-gateway'

const counts = { runs: 0, changes: 0, taken: 0, refused: 0 }
afterAll(() => figures('any-gateway', counts))

interface Change {
  readonly at: number
  readonly act: 'drop' | 'rename' | 'set' | 'add'
  readonly value: unknown
}

const values = fc.oneof(
  fc.constantFrom<unknown>(
    null,
    '',
    'queued',
    'done',
    '2026-11-20T05:38:00Z',
    '2026-11-20T05:38:00.123456+00:00',
    1_763_617_080,
    {},
    [],
    7,
  ),
  fc.jsonValue({ maxDepth: 1 }),
)
const change: fc.Arbitrary<Change> = fc.record({
  at: fc.nat(),
  act: fc.constantFrom('drop', 'rename', 'set', 'add'),
  value: values,
})
const changes = fc.array(change, { minLength: 1, maxLength: 6 })

/**
 * Dotted paths: `needed` stays as it is, `told` may be away but not otherwise. All else may be
 * anything.
 */
interface Rules {
  readonly needed: readonly string[]
  readonly told?: readonly string[]
}

const data = 'results.0.signing_data'
const facts = [
  'question_id',
  'request.oracle',
  'request.requester',
  'request.identifier.raw',
  'request.timestamp',
  'request.ancillary_data',
]
const terms = [
  'price.allowed_values',
  'bond.token',
  'bond.required_bond',
  'contracts.permit2',
  'contracts.signed_proposer',
  'signing.chain_id',
]
const witness = [
  'request.question_id',
  'identifier',
  'signing.max_payment',
  'signing.primary_type',
  'signing.types',
]
const item = (...names: readonly string[]) => [
  'results.0.status_code',
  ...names.map((name) => `results.0.${name}`),
]
const rules: Readonly<Partial<Record<Route, Rules>>> = {
  contexts: {
    needed: [...item(), ...[...facts, ...terms].map((name) => `${data}.${name}`)],
    told: ['results.0.identifier', ...witness.map((name) => `${data}.${name}`)],
  },
  submit: { needed: ['candidate_id'] },
  submitBatch: { needed: item('candidate.candidate_id'), told: ['results.0.client_ref'] },
  status: {
    needed: ['candidate_id', 'submission.status', 'failure.code', 'failure.retryable'],
    told: ['failure.next_action'],
  },
  statuses: {
    needed: item('candidate_id', 'candidate.submission.status', 'candidate.failure.code'),
    told: ['results.0.candidate.candidate_id'],
  },
}

type Json = Record<string, unknown>
const isHolder = (value: unknown): value is Json => typeof value === 'object' && value !== null

function places(
  value: unknown,
  path = '',
): readonly { readonly holder: Json; readonly name: string; readonly path: string }[] {
  if (!isHolder(value)) return []
  return Object.entries(value).flatMap(([name, inner]) => {
    const own = path === '' ? name : `${path}.${name}`
    return [{ holder: value, name, path: own }, ...places(inner, own)]
  })
}

function changed(body: unknown, { needed, told = [] }: Rules, all: readonly Change[]): unknown {
  const copy = structuredClone(body)
  for (const { at, act, value } of all) {
    const holds = (path: string) =>
      needed.some((one) => one === path || one.startsWith(`${path}.`) || path.startsWith(`${one}.`))
    const free = places(copy).filter(
      ({ path, holder }) =>
        !holds(path) &&
        !Array.isArray(holder) &&
        !told.some((one) => path.startsWith(`${one}.`) || one.startsWith(`${path}.`)),
    )
    const { holder, name, path } = free[at % free.length] ?? {}
    if (holder === undefined || name === undefined || path === undefined) continue
    counts.changes++
    if (act === 'add') holder[`${name}_of_its_own`] = structuredClone(value)
    else if (act === 'set' && !told.includes(path)) holder[name] = structuredClone(value)
    else {
      if (act !== 'drop') holder[`its_${name}`] = holder[name]
      delete holder[name]
    }
  }
  return copy
}

const failed: Partial<CandidateStatus> = {
  status: 'failed',
  failure: {
    stage: 'validation',
    code: 'permit_expired',
    detail: 'x',
    retryable: false,
    can_resubmit: true,
    next_action: 'sign_new_authorization',
  },
}

test('what was admitted is journaled with its id, and what ended is told as ended, single and batch', async () => {
  await fc.assert(
    fc.asyncProperty(changes, fc.boolean(), fc.boolean(), async (all, isBatch, isExecuted) => {
      counts.runs++
      const world = await anyGateway()
      world.answers = (route, body) => changed(body, rules[route] ?? { needed: [] }, all)
      world.gateway.steps = isExecuted ? [happySteps[2] ?? {}] : [failed]
      const rows = world.file(
        'rows',
        `${JSON.stringify({ identifier: world.gateway.question.question_id, outcome: 'p2' })}\n`,
      )
      const argv = isBatch
        ? ['batch', 'submit', rows, '--wait', '--json']
        : ['submit', 'will-it-hold', '--outcome', 'p2', '--wait', '--json']
      const { code, stderr } = await world.ask(argv)
      expect(code, stderr).toBe(isExecuted ? 0 : 7)
      const [candidateId] = world.gateway.candidates.keys()
      const reason = isExecuted ? 'executed' : 'failed'
      expect(await world.journaled()).toMatchObject([
        { state: 'closed', reason, candidate_id: candidateId },
      ])
      expect(new Set(world.gateway.received).size).toBe(1)
    }),
    runs(12),
  )
}, 60_000)

test('R9: whatever becomes of a context, what is signed is the honest question under the pinned contracts, or nothing', async () => {
  const few = fc.array(change, { minLength: 1, maxLength: 2 })
  await fc.assert(
    fc.asyncProperty(few, async (all) => {
      const world = await anyGateway()
      const { question } = world.gateway
      world.answers = (route, body) =>
        route === 'contexts' ? changed(body, { needed: [] }, all) : body
      const { code } = await world.ask([
        'submit',
        question.question_id,
        '--outcome',
        'p2',
        '--json',
      ])
      const [body] = world.gateway.received
      if (body === undefined) {
        counts.refused++
        expect([2, 3, 5, 75, 130]).toContain(code)
        expect(await world.journaled()).toEqual([])
        return
      }
      counts.taken++
      const { proposer, permit, signature } = JSON.parse(body)
      const { request, identifier } = question
      const round = witnessRound(
        domainOf(contractsOf(pins)),
        {
          oracle: request.oracle as Hex,
          requester: request.requester as Hex,
          identifier: identifier.raw as Hex,
          timestamp: request.timestamp,
          ancillaryData: request.ancillary_data as Hex,
        },
        question.bond.token as Hex,
      )
      expect(recoverSigner(round.digest({ price: priceOf.p2, ...permit }), signature)).toBe(
        proposer,
      )
    }),
    runs(20),
  )
}, 60_000)
