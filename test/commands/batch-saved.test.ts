/**
 * `batch submit` of rows whose bytes were sent before: to another gateway, or in a round that is
 * over (R7, R8, §7 rule 3, contract §6).
 */
import type { Clock, Hex } from '#ports'
import { fromSingle, toBatchItem } from '#protocol/proposal'
import {
  type BatchDocument,
  type BatchWorld,
  documentOf,
  errorOf,
  linesOf,
  openBatchWorld,
} from '#support/batch-world'
import type { Argv, Ran } from '#support/cli'
import { advanced, signedItem, testNowSeconds } from '#support/fake-view'
import { html } from '#support/status-gateway'

let world: BatchWorld
beforeEach(async () => {
  world = await openBatchWorld({ wallets: 2 })
})

const home = 'http://127.0.0.1:8787'
const elsewhere = ['--gateway', 'http://127.0.0.1:9999']
const submit = ['batch', 'submit', 'rows.ndjson', '--json']
const laterRound = String(testNowSeconds - 500n)
const modes = [['plain'], ['--resume'], ['--wait', '--timeout', '3000']].map((flags) => ({
  mode: flags[0] ?? '',
  flags: flags.filter((flag) => flag !== 'plain'),
}))

const isSubmission = (path: string) =>
  path === '/propose/batch' || /^\/v1\/proposals\/[^/]+$/.test(path)
const busy = () =>
  Response.json(
    { error: { code: 'server_busy', detail: 'Not now.' } },
    {
      status: 503,
    },
  )

/** Until `heal` submissions are admitted, and their answers lost. */
const loseAnswers = () => {
  world.intercept.after = async (path, answer) => (isSubmission(path) ? html() : answer)
}
/** Until `heal` submissions do not come to the gateway. */
const keepAway = (answer: () => Response) => {
  world.intercept.before = async (path) => (isSubmission(path) ? answer() : undefined)
}
const heal = () => {
  world.intercept = {}
}

const rows = (count: number) => world.intents(count)
type Row = ReturnType<typeof rows>[number]
type Result = BatchDocument['results'][number] & {
  readonly elsewhere?: { readonly origin: string; readonly flag: string }
  readonly out_of_band?: object
  readonly settled?: object[]
}
const resultsOf = (ran: Ran) => documentOf(ran).results as readonly Result[]
const told = (ran: Ran) => resultsOf(ran).map(({ outcome, error }) => error?.code ?? outcome)
/** What left since so many calls: questions and signatures. */
const sentItems = (
  from: number,
): readonly { readonly identifier: string; readonly signature: string }[] =>
  world.calls
    .slice(from)
    .flatMap(({ path, items, body }): { identifier: string; signature: string }[] => {
      if (path === '/propose/batch') return [...items]
      return [
        {
          identifier: path.split('/').at(-1) ?? '',
          signature: (JSON.parse(body) as { signature: string }).signature,
        },
      ]
    })

/**
 * Waits take no time, but the time of --wait does not run out before the first submission is sent.
 */
const run = (argv: Argv): Promise<Ran> => {
  const never = (signal?: AbortSignal) =>
    new Promise<void>((_, reject) =>
      signal?.addEventListener('abort', () => reject(signal.reason), { once: true }),
    )
  let isSending = true
  const sleep: Clock['sleep'] = (ms, signal) => {
    if (ms !== 3_000_000 || !isSending) return world.clock.sleep(ms, signal)
    isSending = false
    return never(signal)
  }
  return world.run(argv, { clock: { ...world.clock, sleep } })
}

async function sendFirst(some: readonly Row[], fault: () => void): Promise<Ran> {
  world.ndjson('first.ndjson', some)
  fault()
  const ran = await world.run('batch submit first.ndjson --json')
  heal()
  return ran
}

/** One signed elsewhere, or by `batch sign`, as a row. */
async function signedRows(some: readonly Row[]): Promise<readonly object[]> {
  world.ndjson('to-sign.ndjson', some)
  return linesOf((await world.run('batch sign to-sign.ndjson')).stdout)
}

describe.each(modes)('batch submit $mode at another gateway', ({ mode, flags }) => {
  test('contract §6: rows that went to another one are not sent, each with the flag that sends it; the others go on; exit 6', async () => {
    const [lost, late, done, fresh] = rows(4) as [Row, Row, Row, Row]
    expect((await sendFirst([lost], loseAnswers)).code).toBe(6)
    expect((await sendFirst([late], () => keepAway(busy))).code).toBe(75)
    expect((await sendFirst([done], () => undefined)).code).toBe(0)
    world.ndjson('rows.ndjson', [lost, late, done, fresh])
    const before = world.calls.length
    const ran = await run([...submit, ...flags, ...elsewhere])
    expect(sentItems(before).map(({ identifier }) => identifier)).toEqual([fresh.identifier])
    expect(ran.code).toBe(6)
    const results = resultsOf(ran)
    expect(results.map(({ outcome }) => outcome)).toEqual([
      'unknown',
      'deferred',
      'accepted',
      'accepted',
    ])
    // What is accepted and left alone by --resume is no fault, but where its end is waited for.
    const other = 'other_origin'
    expect(results.map(({ error }) => error?.code)).toEqual([
      other,
      other,
      mode === '--resume' ? undefined : other,
      undefined,
    ])
    const there = { origin: home, flag: `--gateway ${home}` }
    expect(results.map((one) => one.elsewhere)).toEqual([there, there, there, undefined])
    expect(results[2]?.candidate).not.toBeNull()
    const { code, hint } = errorOf(ran)
    expect(code).toBe(other)
    expect(hint).toContain(`\`proposer replay ${results[0]?.journal_id} --gateway ${home}\``)
    // The command of the hint settles it, with the same bytes.
    const replayed = await world.run([
      'replay',
      results[0]?.journal_id ?? '',
      '--json',
      '--gateway',
      home,
    ])
    expect(replayed.code, replayed.stderr).toBe(0)
    const rest = await world.run([...submit, '--resume'])
    expect(rest.code, rest.stderr).toBe(0)
    expect(resultsOf(rest).map((one) => one.elsewhere?.origin)).toEqual([
      undefined,
      undefined,
      undefined,
      elsewhere[1],
    ])
  })

  test('contract §6: deferred alone is 75; several are named by one command', async () => {
    const [one, two, fresh] = rows(3) as [Row, Row, Row]
    await sendFirst([one, two], () => keepAway(busy))
    world.ndjson('rows.ndjson', [one, two, fresh])
    const before = world.calls.length
    const ran = await run([...submit, ...flags, ...elsewhere])
    expect(ran.code).toBe(75)
    expect(told(ran)).toEqual(['other_origin', 'other_origin', 'accepted'])
    expect(sentItems(before)).toHaveLength(1)
    expect(errorOf(ran).hint).toContain(`\`proposer replay --all --gateway ${home}\``)
  })

  test('contract §6: what `submit` sent by the single route is held to the same', async () => {
    const [lost, late] = rows(2) as [Row, Row]
    const single = ({ identifier, client_ref }: Row) => [
      'submit',
      identifier,
      '--outcome',
      'p2',
      '--client-ref',
      client_ref,
      '--json',
    ]
    loseAnswers()
    expect((await world.run(single(lost))).code).toBe(6)
    heal()
    keepAway(busy)
    expect((await world.run(single(late))).code).toBe(75)
    heal()
    world.ndjson('rows.ndjson', [lost, late])
    const before = world.calls.length
    const ran = await run([...submit, ...flags, ...elsewhere])
    expect(ran.code).toBe(6)
    expect(resultsOf(ran).map(({ outcome, error }) => [outcome, error?.code])).toEqual([
      ['unknown', 'other_origin'],
      ['deferred', 'other_origin'],
    ])
    expect(world.calls).toHaveLength(before)
    expect((await world.run([...submit, '--resume'])).code).toBe(0)
  })

  test('R22: signed items are held to the same, whoever signed them', async () => {
    const [ours] = rows(1) as [Row]
    const foreign = await signedItem(
      world.front.wallets[1] ?? world.wallet,
      world.ask('of another wallet'),
    )
    const items = [...(await signedRows([ours])), foreign]
    world.ndjson('rows.ndjson', items)
    loseAnswers()
    expect((await world.run(submit)).code).toBe(6)
    heal()
    const before = world.calls.length
    const ran = await run([...submit, ...flags, ...elsewhere])
    expect(told(ran)).toEqual(['other_origin', 'other_origin'])
    expect(ran.code).toBe(6)
    expect(world.calls).toHaveLength(before)
  })
})

test('contract §6: a candidate that another gateway holds is not asked for here; --resume --wait says where it is', async () => {
  const [done, fresh] = rows(2) as [Row, Row]
  const first = await sendFirst([done], () => undefined)
  world.ndjson('rows.ndjson', [done, fresh])
  const asked: string[] = []
  world.intercept.before = async (path, body) => {
    if (path.includes('/status')) asked.push(body)
    return undefined
  }
  const ran = await run([...submit, '--resume', '--wait', '--timeout', '3000', ...elsewhere])
  expect(asked.length).toBeGreaterThan(0)
  expect(asked.join()).not.toContain(resultsOf(first)[0]?.candidate?.candidate_id ?? 'none')
  expect(ran.code).toBe(75)
  expect(errorOf(ran)).toMatchObject({
    code: 'other_origin',
    hint: expect.stringContaining(`--gateway ${home}`),
  })
})

test('contract §6: what is known to be executed at another gateway is waited for by nobody', async () => {
  const [done] = rows(1) as [Row]
  const id = resultsOf(await sendFirst([done], () => undefined))[0]?.candidate?.candidate_id ?? ''
  await world.execute(id)
  expect((await world.run(`poll ${id} --json`)).code).toBe(0)
  const ran = await run([
    'batch',
    'submit',
    'first.ndjson',
    '--json',
    '--resume',
    '--wait',
    '--timeout',
    '3000',
    ...elsewhere,
  ])
  expect(ran.code, ran.stderr).toBe(0)
  expect(documentOf(ran).summary).toMatchObject({ accepted: 1, executed: 1, pending: 0 })
})

test('contract §6: what went to another gateway is told as such also where the run ends before its turn', async () => {
  const [lost, fresh] = rows(2) as [Row, Row]
  await sendFirst([lost], loseAnswers)
  world.ndjson('rows.ndjson', [fresh, lost])
  world.intercept.before = async (path) => (path.includes('signing-data') ? html() : undefined)
  const ran = await world.run([...submit, '--timeout', '1', ...elsewhere])
  expect(told(ran)).toEqual(['not_sent', 'other_origin'])
  expect(ran.code).toBe(6)
})

test('contract §6: --dry-run tells what would be held back', async () => {
  const [lost, fresh] = rows(2) as [Row, Row]
  await sendFirst([lost], loseAnswers)
  world.ndjson('rows.ndjson', [lost, fresh])
  const ran = await world.run([...submit, '--dry-run', ...elsewhere])
  expect(JSON.parse(ran.stdout).results).toMatchObject([
    { action: 'not_sent', error: { code: 'other_origin' }, elsewhere: { origin: home } },
    { action: 'would_sign', error: null },
  ])
})

test('R7: an override is journaled: what `replay` was told to send here is of here', async () => {
  const [lost] = rows(1) as [Row]
  const id = resultsOf(await sendFirst([lost], loseAnswers))[0]?.journal_id ?? ''
  expect((await world.run(['replay', id, '--json', ...elsewhere])).code).toBe(0)
  world.ndjson('rows.ndjson', [lost])
  const ran = await world.run([...submit, ...elsewhere])
  expect(told(ran)).toEqual(['replayed'])
})

test('R8: an item that was superseded is not sent any more', async () => {
  const [row] = rows(1) as [Row]
  const items = await signedRows([row])
  const [{ journal_id: id = '' } = {}] = JSON.parse(
    (await world.run('journal list --json')).stdout,
  ).authorizations
  expect(
    (await world.run(`submit ${row.identifier} --outcome p1 --supersede ${id} --json`)).code,
  ).toBe(0)
  world.ndjson('rows.ndjson', items)
  const before = world.calls.length
  const ran = await world.run(submit)
  expect(ran.code).toBe(5)
  expect(told(ran)).toEqual(['superseded'])
  expect(world.calls).toHaveLength(before)
})

describe.each(modes)('batch submit $mode in a round that is over', ({ flags }) => {
  async function twice() {
    const first = await run([...submit, ...flags])
    const before = world.calls.length
    return { both: [first, await run([...submit, ...flags])], before }
  }

  /**
   * Each is sent, its answer lost, and its round ended; then a second row that is fresh stands
   * beside it.
   */
  const outOfBand = (row: Row) => ({
    question_id: row.identifier,
    submitted_at: expect.stringMatching(/Z$/),
  })
  const endRound = (name: string) => world.front.view.put(advanced(world.ask(name), laterRound))

  test('§7 rule 3: a 409 for a signed item gives the out-of-band line, exit 5, and then nothing is sent for it', async () => {
    const [row, fresh] = rows(2) as [Row, Row]
    const items = await signedRows([row])
    world.ndjson('rows.ndjson', items)
    loseAnswers()
    await world.run(submit)
    heal()
    endRound('question 0')
    world.ndjson('rows.ndjson', [...items, fresh])
    const { both, before } = await twice()
    expect(sentItems(before).filter(({ identifier }) => identifier === row.identifier)).toEqual([])
    for (const ran of both) {
      const [over, other] = resultsOf(ran)
      expect(over).toMatchObject({
        outcome: 'rejected',
        error: { code: 'round_over' },
        out_of_band: outOfBand(row),
      })
      expect(over?.error?.detail).toContain('ask the operator out of band')
      expect(other?.error).toBeNull()
      expect(ran.code).toBe(5)
    }
    expect(both.map((ran) => resultsOf(ran)[0]?.status_code)).toEqual([409, null])
  })

  test('§7 rule 3: a 403 for a signature of another round says the same with exit 6, and is remembered', async () => {
    const [row] = rows(1) as [Row]
    const items = await signedRows([row])
    world.ndjson('rows.ndjson', items)
    keepAway(html)
    await world.run(submit)
    heal()
    endRound('question 0')
    const { both, before } = await twice()
    expect(world.calls).toHaveLength(before)
    for (const ran of both) {
      expect(resultsOf(ran)).toMatchObject([
        { outcome: 'unknown', error: { code: 'round_over' }, out_of_band: outOfBand(row) },
      ])
      expect(ran.code).toBe(6)
      expect(errorOf(ran)).toMatchObject({
        code: 'round_over',
        hint: expect.stringContaining(`proposer reconcile ${row.identifier}`),
      })
    }
  })

  test('contract §6: an intent is signed for the new round, and its result tells what became of the older one', async () => {
    const [row] = rows(1) as [Row]
    await sendFirst([row], loseAnswers)
    endRound('question 0')
    world.ndjson('rows.ndjson', [row])
    const ran = await run([...submit, ...flags])
    expect(resultsOf(ran)).toMatchObject([
      {
        outcome: 'accepted',
        error: null,
        settled: [{ outcome: 'unknown', out_of_band: { ...outOfBand(row), client_ref: 'ref-0' } }],
      },
    ])
    const before = world.calls.length
    await run([...submit, ...flags])
    const signatures = new Set(sentItems(before).map(({ signature }) => signature))
    const [first] = world.calls[0]?.items ?? []
    expect(signatures).not.toContain(first?.signature)
  })

  test('R7: where the new round cannot be signed for, the outcome of the older one stays the answer, and it is not sent', async () => {
    const [row] = rows(1) as [Row]
    await sendFirst([row], loseAnswers)
    const next = advanced(world.ask('question 0'), laterRound)
    world.front.view.put({ ...next, round: { ...next.round, state: 'proposed' } })
    world.ndjson('rows.ndjson', [row])
    const { both, before } = await twice()
    expect(world.calls).toHaveLength(before)
    for (const ran of both) {
      expect(resultsOf(ran)).toMatchObject([
        { outcome: 'rejected', error: { code: 'round_over' }, out_of_band: outOfBand(row) },
      ])
      expect(ran.code).toBe(5)
    }
  })

  test('contract §6: what went by the single route is held to the same', async () => {
    const [item, intent] = rows(2) as [Row, Row]
    loseAnswers()
    for (const { identifier } of [item, intent]) {
      expect((await world.run(`submit ${identifier} --outcome p2 --json`)).code).toBe(6)
    }
    heal()
    endRound('question 0')
    endRound('question 1')
    const [{ journal_id: id = '' } = {}] = JSON.parse(
      (await world.run('journal list --json')).stdout,
    ).authorizations
    const { payload } = JSON.parse(
      (await world.run(`journal show ${id} --json --reveal-signature`)).stdout,
    )
    const sameItem = toBatchItem(
      item.identifier as Hex,
      fromSingle(item.identifier as Hex, payload),
    )
    world.ndjson('rows.ndjson', [sameItem, { ...intent, client_ref: undefined }])
    const { both, before } = await twice()
    expect(sentItems(before).filter(({ identifier }) => identifier === item.identifier)).toEqual([])
    expect(world.calls.slice(before).filter(({ path }) => path !== '/propose/batch')).toEqual([])
    for (const ran of both) {
      expect(resultsOf(ran)[0]).toMatchObject({
        outcome: 'rejected',
        error: { code: 'round_over' },
        out_of_band: outOfBand(item),
      })
      expect(resultsOf(ran)[1]?.error).toBeNull()
      expect(ran.code).toBe(5)
    }
  })
})
