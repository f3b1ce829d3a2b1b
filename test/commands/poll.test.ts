import { main } from '#commands/main'
import { createBudget } from '#gateway/front/budget'
import type { Clock } from '#ports'
import { InterruptedError } from '#protocol/errors'
import {
  type Argv,
  eachHome,
  fakeContext,
  type Ran,
  type RunOptions,
  run,
  wordsOf,
} from '#support/cli'
import { html, type StatusGateway, statusGateway } from '#support/status-gateway'

const home = eachHome()
let gateway: StatusGateway
let clock: Clock
beforeEach(() => {
  clock = instantClock()
  gateway = statusGateway(clock)
})

/** Waits take no time, but count. */
function instantClock(): Clock {
  let ms = 1_760_000_000_000
  return {
    nowMs: () => ms,
    monotonicMs: () => ms,
    sleep: async (waitMs, signal) => {
      signal?.throwIfAborted()
      // A time limit lies in the far future of everybody who only waits for the next look.
      if (waitMs >= 60_000)
        return new Promise<void>((_, reject) =>
          signal?.addEventListener('abort', () => reject(signal.reason)),
        )
      ms += waitMs
    },
  }
}

const options = (more: RunOptions = {}): RunOptions => ({
  env: { PROPOSER_GATEWAY: gateway.url },
  fetch: gateway.fetch,
  clock,
  ...more,
})
const ask = (argv: Argv, more: RunOptions = {}) => run(home.path, argv, options(more))
const linesOf = (ran: Ran): Record<string, unknown>[] =>
  ran.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
const failure = {
  stage: 'validation',
  code: 'insufficient_balance',
  detail: 'holds 1',
  retryable: true,
  can_resubmit: false,
  next_action: 'fund_wallet',
} as const

test("contract §6: --ndjson is a line a change with the gateway's times, then the summary", async () => {
  const ids = [gateway.admit({ lifeMs: 6_000 }), gateway.admit({ lifeMs: 5_000 })]
  const ran = await ask(['poll', ...ids, '--question', gateway.questionId, '--ndjson'])
  expect(ran).toMatchObject({ code: 0, stderr: '' })
  const lines = linesOf(ran)
  for (const line of lines.slice(0, -1)) {
    expect(Object.keys(line)).toEqual([
      'candidate_id',
      'question_id',
      'status',
      'submission_status',
      'at',
    ])
    expect(line).toMatchObject({
      question_id: gateway.questionId,
      at: expect.stringMatching(/^2025-.*Z$/),
    })
  }
  const stages = lines
    .filter(({ candidate_id }) => candidate_id === ids[0])
    .map(({ status, submission_status }) => [status, submission_status])
  expect(stages[0]).toEqual(['received', null])
  expect(stages.at(-1)).toEqual(['executed', 'indexed'])
  expect(new Set(stages.map(String)).size).toBe(stages.length)
  expect(lines.at(-1)).toMatchObject({
    schema: 'proposer.status/1',
    summary: {
      candidates: 2,
      executed: 2,
      failed: 0,
      missing: 0,
      items: gateway.looks.single.length + gateway.looks.batch.flat().length,
    },
  })
})

test('contract §6: --json is one document of whole statuses', async () => {
  const ids = [gateway.admit(), gateway.admit()]
  const ran = await ask(['poll', ...ids, '--question', gateway.questionId, '--json'])
  expect(ran).toMatchObject({ code: 0, stderr: '' })
  const { schema, candidates } = JSON.parse(ran.stdout)
  expect(schema).toBe('proposer.status/1')
  for (const one of candidates)
    expect(one).toMatchObject({
      outcome: 'p2',
      selected_at: expect.any(String),
      status: 'executed',
    })
})

test('spec §4.2 rule 6: an id alone is enough for the batch route', async () => {
  const ran = await ask(['poll', gateway.admit(), '--ndjson'])
  expect(ran.code).toBe(0)
  expect(linesOf(ran)[0]).toMatchObject({ question_id: null })
})

test('contract §6: failed exits 7 with code, detail and next action; what ran out of time exits 8 and is named', async () => {
  const failed = gateway.admit({ lifeMs: 1_000, failure })
  const pending = gateway.admit({ lifeMs: Number.POSITIVE_INFINITY })
  const first = await ask(['poll', failed, '--question', gateway.questionId, '--json'])
  expect(first.code).toBe(7)
  expect(JSON.parse(first.stderr).error).toMatchObject({
    code: 'insufficient_balance',
    hint: expect.stringContaining('fund the wallet'),
  })
  const second = await ask([
    'poll',
    pending,
    '--question',
    gateway.questionId,
    '--timeout',
    '20',
    '--json',
  ])
  expect(second.code).toBe(8)
  expect(JSON.parse(second.stderr).error.detail).toContain(`${pending} is received`)
  expect(JSON.parse(second.stderr).error.hint).toContain(`proposer poll ${pending}`)
})

test("§7 rule 1: a proxy's pages do not end it, and are told once", async () => {
  gateway.faults.push(...Array.from({ length: 10 }, () => html))
  const ran = await ask([
    'poll',
    gateway.admit(),
    '--question',
    gateway.questionId,
    '--timeout',
    '900',
  ])
  expect(ran.code).toBe(0)
  expect(ran.stderr.match(/502/g)).toHaveLength(1)
})

test('U2: on a terminal it says since when there is no answer, and when it is asked again', async () => {
  gateway.faults.push(...Array.from({ length: 4 }, () => html))
  const ran = await ask(['poll', gateway.admit(), '--question', gateway.questionId], {
    interactive: true,
    env: { PROPOSER_GATEWAY: gateway.url, TERM: 'dumb' },
  })
  expect(ran.code).toBe(0)
  expect(ran.stderr).toMatch(/ 502 .*, since \d\d:\d\d:\d\dZ; next request in \d s/)
})

test('§8: a budget is believed as it is told: one beyond all counting is never waited for', async () => {
  gateway.budget = createBudget({
    windowMs: 60_000,
    perClientItems: 2_000_000_000,
    globalItems: Number.MAX_SAFE_INTEGER,
  })
  const ids = Array.from({ length: 100 }, () => gateway.admit({ lifeMs: 1 }))
  const startMs = clock.monotonicMs()
  for (let time = 0; time < 3; time++) {
    expect(await ask(['poll', ...ids, '--question', gateway.questionId, '--json'])).toMatchObject({
      code: 0,
      stderr: '',
    })
  }
  expect(gateway.looks.single.length).toBeGreaterThanOrEqual(3 * ids.length)
  expect(clock.monotonicMs() - startMs).toBeLessThan(60_000)
})

const onTerminal = async (argv: Argv, columns: number, more: RunOptions = {}) => {
  const { context, stdout, stderr } = fakeContext(
    home.path,
    options({ columns, interactive: true, ...more }),
  )
  const code = await main(wordsOf(argv), context)
  return { code, writes: stdout.written, stderr: stderr.written.join('') }
}

test.each([40, 80])(
  'contract §6: at %i columns a table is redrawn in place and ends as the final one, without colours under NO_COLOR',
  async (columns) => {
    const ids = [gateway.admit({ lifeMs: 8_000 }), gateway.admit({ lifeMs: 3_000, failure })]
    const { code, writes } = await onTerminal(
      ['poll', ...ids, '--question', gateway.questionId],
      columns,
    )
    expect(code).toBe(7)
    const drawn = writes.slice(0, -2)
    expect(drawn.length).toBeGreaterThan(3)
    for (const [index, write] of drawn.entries()) {
      const lines = write.replace(/\u001b\[\d*[AKJ]|\r/g, '').split('\n')
      for (const line of lines) expect(line.length).toBeLessThanOrEqual(columns)
      expect(write).not.toMatch(/\u001b\[[\d;]*m/)
      const back = (drawn[index - 1]?.match(/\n/g) ?? []).length
      if (index > 0) expect(write.slice(0, 5)).toBe(`\u001b[${back}A\r`)
    }
    const [cleared = '', final = ''] = writes.slice(-2)
    expect(cleared).toMatch(/^\u001b\[\dA\r\u001b\[J$/)
    for (const id of ids) expect(final).toContain(id)
    expect(final).toContain('insufficient_balance')
    expect(final).not.toContain('\u001b')
  },
)

test('contract §6: --quiet draws nothing but the result', async () => {
  const { writes } = await onTerminal(
    ['poll', gateway.admit(), '--question', gateway.questionId, '--quiet'],
    80,
  )
  expect(writes).toHaveLength(1)
  expect(writes[0]).not.toContain('\u001b')
})

test('robustness §6: a reader who leaves ends the printing only', async () => {
  const { context, stdout } = fakeContext(home.path, options({ columns: 80 }))
  let leave: ((error: Error) => void) | undefined
  const closing = {
    ...stdout,
    on: (_: 'error', listener: (error: Error) => void) => {
      leave = listener
    },
    write: (text: string) => {
      stdout.written.push(text)
      leave?.(Object.assign(new Error('closed'), { code: 'EPIPE' }))
    },
  }
  const id = gateway.admit({ lifeMs: 5_000, failure })
  const code = await main(['poll', id, '--question', gateway.questionId], {
    ...context,
    streams: { ...context.streams, stdout: closing },
  })
  expect(code).toBe(7)
  expect(stdout.written).toHaveLength(1)
  expect(gateway.looks.single.length).toBeGreaterThan(1)
})

test('contract §6: Ctrl-C shows what is known, exits 130 and says how to go on', async () => {
  const stop = new AbortController()
  const id = gateway.admit({ lifeMs: Number.POSITIVE_INFINITY })
  let calls = 0
  const { code, writes, stderr } = await onTerminal(
    `poll ${id} --question ${gateway.questionId}`,
    80,
    {
      signal: stop.signal,
      fetch: async (input, init) => {
        if (++calls === 3) stop.abort(new InterruptedError('interrupted', 'stopped by SIGINT'))
        return gateway.fetch(input, init)
      },
    },
  )
  expect(code).toBe(130)
  expect(writes.at(-1)).toContain(`${id}  received`)
  expect(stderr).toContain(`continue with \`proposer poll ${id}\``)
})
