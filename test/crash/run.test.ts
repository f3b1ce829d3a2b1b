import { expect, test } from 'vitest'
import { type Fetch, TransportError } from '#ports'
import type { Ran } from '#support/cli'
import { type DayWorld, openDay } from '#support/day-world'

const questions = 4
const journal = /\/home\/journal\/[0-9a-f]{12}\/log-/

async function openWorld(seed: number) {
  const lifeMs = [2_000, 3_000] as const
  const day = await openDay({ questions, seed, lifeMs, itemsPerWindow: 6, hasNode: false })
  const file = day.rows(
    'rows.ndjson',
    day.questionIds.map((identifier, n) => ({ identifier, outcome: 'p2', client_ref: `ref ${n}` })),
  )
  return { day, argv: ['run', file, '--json', '--max-spend', '3000000000raw'] }
}

async function untilKilled(
  day: DayWorld,
  argv: readonly string[],
  wrap?: (fetch: Fetch) => Fetch,
): Promise<Ran | undefined> {
  const death = day.sim.death().then(() => undefined)
  const ran = await Promise.race([day.clock.drive(day.run(argv, wrap), death), death])
  day.sim.faults = []
  for (let pid = 1; pid < 10; pid++) day.host.kill(pid)
  return ran
}

function losing(fetch: Fetch): Fetch {
  let submissions = 0
  return async (input, init) => {
    const answer = await fetch(input, init)
    if (String(input).endsWith('/propose/batch') && submissions++ === 0)
      throw new TransportError('exchange', 'ECONNRESET', 'cut')
    return answer
  }
}

interface Item {
  readonly identifier: string
  readonly signature: string
}
const itemsIn = (bodies: readonly string[]) =>
  bodies.flatMap((body) => (JSON.parse(body) as { proposals: Item[] }).proposals)

async function entriesOf(day: DayWorld) {
  const { stdout } = await day.clock.drive(day.run(['journal', 'list', '--json']))
  return (JSON.parse(stdout) as { authorizations: { question_id: string }[] }).authorizations
}

test.each(['kill-before', 'kill-after'] as const)(
  'R23: killed by %s wherever it writes to its journal, it is run again and signs nothing twice',
  async (does) => {
    const whole = await openWorld(1)
    whole.day.sim.faults = [{ verb: 'any', nth: Number.POSITIVE_INFINITY, path: journal, does }]
    expect((await untilKilled(whole.day, whole.argv, losing))?.code).toBe(0)
    const calls = whole.day.sim.trace.filter((line) => journal.test(line)).length
    expect(calls).toBeGreaterThan(20)
    for (let nth = 1; nth <= calls; nth += 2) {
      const { day, argv } = await openWorld(nth)
      day.sim.faults = [{ verb: 'any', nth, path: journal, does }]
      await untilKilled(day, argv, losing)
      if (nth % 3 === 0) {
        day.sim.faults = [{ verb: 'any', nth: 1 + (nth % 7), path: journal, does }]
        await untilKilled(day, argv, losing)
      }
      const ran = await untilKilled(day, argv)
      expect(ran?.code, `call ${nth}: ${ran?.stderr}`).toBe(0)
      const { summary } = JSON.parse(ran?.stdout ?? '') as { summary: Record<string, number> }
      expect(summary, `call ${nth}`).toMatchObject({ rows: questions, executed: questions })
      const entries = await entriesOf(day)
      expect(entries.map(({ question_id }) => question_id).sort(), 'R8').toEqual(
        [...day.questionIds].sort(),
      )
      const signatures = new Set(itemsIn(day.submitted).map(({ signature }) => signature))
      expect(signatures.size, 'R7: nothing that was sent is signed again').toBe(questions)
    }
  },
)
