/**
 * The command line ends at every call to its journal, in the middle of a batch that takes three
 * windows of a small budget (R4, R6, R7, R23): `batch submit --resume`, itself ended once more,
 * finishes exactly what is left.
 */
import type { Fetch } from '#ports'
import { argvOf } from '#support/argv'
import { documentOf } from '#support/batch-world'
import type { Ran } from '#support/cli'
import {
  type DayOptions,
  type DayWorld,
  itemsIn,
  journalFiles,
  losing,
  openDay,
  untilKilled,
} from '#support/day-world'

const rows = 5

async function openWorld(seed: number, options: Partial<DayOptions> = { itemsPerWindow: 2 }) {
  const day = await openDay({ questions: rows, seed, ...options })
  const file = day.rows(
    'rows.ndjson',
    day.questionIds.map((identifier, n) => ({ identifier, outcome: 'p2', client_ref: `ref ${n}` })),
  )
  return {
    day,
    submit: argvOf`batch submit ${file} --json`,
    resume: argvOf`batch submit ${file} --resume --json`,
    run: argvOf`run ${file} --json --max-spend 3000000000raw`,
  }
}

function cutPower(day: DayWorld, seed: number): void {
  day.sim.crash(seed)
  day.host.reboot()
}

/** How often it writes to its journal where nothing fails. */
async function callsOf(
  day: DayWorld,
  argv: readonly string[],
  does: 'kill-before' | 'kill-after',
  wrap: (fetch: Fetch) => Fetch,
): Promise<number> {
  day.sim.faults = [{ verb: 'any', nth: Number.POSITIVE_INFINITY, path: journalFiles, does }]
  expect((await untilKilled(day, argv, wrap))?.code).toBe(0)
  return day.sim.trace.filter((line) => journalFiles.test(line)).length
}

interface Entry {
  readonly question_id: string
  readonly state: string
}
async function entries(day: DayWorld): Promise<readonly Entry[]> {
  const { stdout } = await day.clock.drive(day.run('journal list --json'))
  return (JSON.parse(stdout) as { authorizations: Entry[] }).authorizations
}

async function expectResumed(
  { day, resume }: Awaited<ReturnType<typeof openWorld>>,
  isBudgetLost: boolean,
): Promise<void> {
  const before = await entries(day)
  const accepted = before
    .filter(({ state }) => state === 'accepted')
    .map(({ question_id }) => question_id)
  const known = new Set(before.map(({ question_id }) => question_id))
  for (const { identifier } of itemsIn(day.submitted))
    expect(known, 'R4: what was sent is in the journal').toContain(identifier)
  for (const { round } of day.ledger.active()) {
    const state = before.find(({ question_id }) => question_id === round.questionId)?.state
    expect(
      ['accepted', 'unknown'],
      'what may have been admitted is not taken for unsent',
    ).toContain(state)
  }
  const sent = day.submitted.length
  const ran = await untilKilled(day, resume)
  expect(ran?.code, ran?.stderr).toBe(0)
  expect(documentOf(ran as Ran).results.map(({ identifier }) => identifier)).toEqual(
    day.questionIds,
  )
  const again = new Set(itemsIn(day.submitted.slice(sent)).map(({ identifier }) => identifier))
  expect(again, 'exactly what is left').toEqual(
    new Set(day.questionIds.filter((id) => !accepted.includes(id))),
  )
  expect((await entries(day)).map(({ state }) => state)).toEqual(
    day.questionIds.map(() => 'accepted'),
  )
  const refused = day.gateway.requestCounts().filter(({ status }) => status !== 200)
  expect(refused.filter(({ status }) => status !== 429 || !isBudgetLost)).toEqual([])
  const signatures = new Set(itemsIn(day.submitted).map(({ signature }) => signature))
  expect(signatures.size, 'R7: nothing that was sent is signed again').toBe(rows)
}

describe.each([
  { what: 'everything is answered', wrap: (fetch: Fetch) => fetch },
  { what: 'every second answer is lost', wrap: losing((nth) => nth % 2 === 0) },
])('R23: where $what', ({ wrap }) => {
  test.each(['kill-before', 'kill-after'] as const)(
    'a process that ends by %s at any call to its journal is resumed',
    async (does) => {
      const whole = await openWorld(1)
      const calls = await callsOf(whole.day, whole.submit, does, wrap)
      expect(calls).toBeGreaterThan(30)
      for (let nth = 1; nth <= calls; nth++) {
        const world = await openWorld(nth)
        const { day, submit, resume } = world
        day.sim.faults = [{ verb: 'any', nth, path: journalFiles, does }]
        await untilKilled(day, submit, wrap)
        // What only the page cache had is lost by half of them, with what this machine knew of the
        // budget.
        const isPowerCut = nth % 2 === 0
        if (isPowerCut) cutPower(day, nth)
        if (nth % 3 === 0) {
          day.sim.faults = [{ verb: 'any', nth: 1 + (nth % 11), path: journalFiles, does }]
          await untilKilled(day, resume, wrap)
        }
        await expectResumed(world, isPowerCut)
      }
    },
  )
})

test.each(['kill-before', 'kill-after'] as const)(
  'R23: `run` killed by %s wherever it writes to its journal is run again and signs nothing twice',
  async (does) => {
    const questions = 4
    const losingFirst = losing((nth) => nth === 0)
    const open = (seed: number) =>
      openWorld(seed, { questions, lifeMs: [2_000, 3_000], itemsPerWindow: 6, hasNode: false })
    const whole = await open(1)
    const calls = await callsOf(whole.day, whole.run, does, losingFirst)
    expect(calls).toBeGreaterThan(20)
    for (let nth = 1; nth <= calls; nth += 2) {
      const { day, run } = await open(nth)
      day.sim.faults = [{ verb: 'any', nth, path: journalFiles, does }]
      await untilKilled(day, run, losingFirst)
      if (nth % 3 === 0) {
        day.sim.faults = [{ verb: 'any', nth: 1 + (nth % 7), path: journalFiles, does }]
        await untilKilled(day, run, losingFirst)
      }
      const ran = await untilKilled(day, run)
      expect(ran?.code, `call ${nth}: ${ran?.stderr}`).toBe(0)
      expect(documentOf(ran as Ran).summary, `call ${nth}`).toMatchObject({
        rows: questions,
        executed: questions,
      })
      expect((await entries(day)).map(({ question_id }) => question_id).sort(), 'R8').toEqual(
        [...day.questionIds].sort(),
      )
      const signatures = new Set(itemsIn(day.submitted).map(({ signature }) => signature))
      expect(signatures.size, 'R7: nothing that was sent is signed again').toBe(questions)
    }
  },
)
