/**
 * The way between client and gateway fails at every phase of a submission (robustness §8, T7; R4,
 * R7, R8): whatever happens, each authorization is accepted, refused, or in the journal with the
 * command that settles it; and nothing is signed twice.
 */
import { createHttp } from '#io/http'
import { type Listener, listen } from '#io/serving/listener'
import { argvOf } from '#support/argv'
import { type BatchWorld, errorOf, openBatchWorld } from '#support/batch-world'
import type { Ran } from '#support/cli'
import { type Cut, type FaultProxy, openFaultProxy, type ProxyFault } from '#support/fault-proxy'

let world: BatchWorld
let gateway: Listener
let proxy: FaultProxy
const patient = createHttp()
const impatient = createHttp({ attemptMs: 100 })

async function openAll(): Promise<void> {
  world = await openBatchWorld()
  gateway = await listen({ host: '127.0.0.1', port: 0, handler: world.front.gateway.answer })
  proxy = await openFaultProxy(gateway.port)
}
async function closeAll(): Promise<void> {
  await proxy.close()
  await gateway.close(0)
}

beforeEach(openAll)
afterEach(closeAll)
afterAll(async () => {
  await Promise.all([patient.close(), impatient.close()])
})

const answer = (status: string, type: string, body: string) =>
  `HTTP/1.1 ${status}\r\ncontent-type: ${type}\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: ${body.length}\r\n\r\n${body}`
const html = (status: string) => answer(status, 'text/html', '<html><h1>Sorry</h1></html>')
const json = (status: string, code: string) =>
  answer(status, 'application/json', JSON.stringify({ error: { code, detail: 'Not now.' } }))

const bodyAt = (text: string) => text.indexOf('\r\n\r\n') + 4
/**
 * Places of a message: within its first line, its headers and its body, and one byte before its
 * end.
 */
const cuts: readonly (readonly [string, Cut])[] = [
  ['nothing', () => 0],
  ['its first byte', () => 1],
  ['a part of its first line', () => 11],
  ['some headers', (text) => bodyAt(text) >> 1],
  ['all headers but their end', (text) => bodyAt(text) - 1],
  ['all headers', bodyAt],
  ['the first byte of its body', (text) => bodyAt(text) + 1],
  ['half its body', (text) => (bodyAt(text) + text.length) >> 1],
  ['all but its last byte', (text) => text.length - 1],
]

interface Case {
  readonly name: string
  readonly fault: ProxyFault
  readonly states: readonly ('unknown' | 'deferred' | 'accepted')[]
  readonly admitted: boolean
  readonly impatient?: boolean
}

const cases: readonly Case[] = [
  {
    name: 'the connection is reset before a byte',
    fault: { kind: 'reset' },
    states: ['unknown', 'deferred'],
    admitted: false,
  },
  ...cuts.map(
    ([what, at]): Case => ({
      name: `the gateway gets ${what} of the request`,
      fault: { kind: 'cut-request', at },
      states: ['unknown'],
      admitted: false,
    }),
  ),
  ...cuts.map(
    ([what, at], index): Case => ({
      name: `the client gets ${what} of the answer`,
      fault: { kind: 'cut-answer', at, reset: index % 2 === 0 },
      states: ['unknown'],
      admitted: true,
    }),
  ),
  ...[false, true].flatMap((after): Case[] => {
    const when = after ? 'after the commit' : 'before the commit'
    const statuses = [
      '502 Bad Gateway',
      '503 Service Unavailable',
      '504 Gateway Timeout',
      '500 Oops',
      '408 Request Timeout',
      '200 OK',
      '404 Not Found',
    ]
    return [
      ...statuses.map(
        (status): Case => ({
          name: `a proxy answers ${status} in HTML ${when}`,
          fault: { kind: 'answer', text: html(status), after },
          states: ['unknown'],
          admitted: after,
        }),
      ),
      {
        name: `500 ${when}`,
        fault: { kind: 'answer', text: json('500 Oops', 'internal_error'), after },
        states: ['unknown'],
        admitted: after,
      },
      {
        name: `a redirect ${when}`,
        fault: {
          kind: 'answer',
          text: 'HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n',
          after,
        },
        states: ['unknown'],
        admitted: after,
      },
      {
        name: `no HTTP ${when}`,
        fault: { kind: 'answer', text: 'SSH-2.0-OpenSSH_9.6\r\n', after },
        states: ['unknown'],
        admitted: after,
      },
      {
        name: `silence ${when}`,
        fault: { kind: 'stall', after },
        states: ['unknown'],
        admitted: after,
        impatient: true,
      },
    ]
  }),
  {
    name: 'the gateway says 503',
    fault: { kind: 'answer', text: json('503 Busy', 'server_busy'), after: false },
    states: ['deferred'],
    admitted: false,
  },
  {
    name: 'the gateway says 429',
    fault: { kind: 'answer', text: json('429 Slow', 'rate_limited'), after: false },
    states: ['deferred'],
    admitted: false,
  },
  {
    // A 503 of the gateway says that nothing was committed (contract §2). Whoever forges one
    // delays, and no more.
    name: 'somebody in between says 503 as the gateway does, after the commit',
    fault: { kind: 'answer', text: json('503 Busy', 'server_busy'), after: true },
    states: ['deferred'],
    admitted: true,
  },
  {
    name: 'the gateway gets it twice',
    fault: { kind: 'twice' },
    states: ['accepted'],
    admitted: true,
  },
]

/** Every byte of a message takes minutes: FAULT_STRIDE=1 does it; without, each 61st. */
const byteStride = Math.max(1, Math.trunc(Number(process.env.FAULT_STRIDE ?? 61)))
/** Each command reads all that its home ever journaled, so a home serves so many cuts only. */
const cutsPerWorld = 50

const passing = [
  ...new Map(cases.map((one) => [`${one.fault.kind} ${one.admitted}`, one])).values(),
]

const run = (
  argv: readonly string[],
  { impatient: soon = false }: Partial<Case> = {},
): Promise<Ran> =>
  world.run([...argv, '--json', '--yes'], {
    fetch: (input, init) =>
      (soon && !String(input).endsWith('/signing-data') ? impatient : patient).fetch(input, init),
    env: { PROPOSER_GATEWAY: proxy.url, PROPOSER_KEY_FILE: `${world.home}/key` },
  })

interface Form {
  readonly name: string
  readonly rows: number
  begin(ids: readonly string[]): readonly string[]
  readonly command: RegExp
  goOn(ids: readonly string[]): readonly string[]
  sign(ids: readonly string[]): readonly string[]
}

const rowsOf = (ids: readonly string[]) =>
  world.ndjson(
    'rows.ndjson',
    ids.map((identifier, n) => ({ identifier, outcome: 'p2', client_ref: `ref ${n}` })),
  )

const forms: readonly Form[] = [
  {
    name: 'submit',
    rows: 1,
    begin: ([id = '']) => argvOf`submit ${id} --outcome p2`,
    command: /proposer replay [0-9a-f]{12}-\d+/,
    goOn: () => ['replay', '--all'],
    sign: ([id = '']) => argvOf`sign ${id} --outcome p2`,
  },
  {
    name: 'batch submit',
    rows: 3,
    begin: (ids) => ['batch', 'submit', rowsOf(ids)],
    command: /--resume/,
    goOn: (ids) => argvOf`batch submit ${rowsOf(ids)} --resume`,
    sign: (ids) => ['batch', 'sign', rowsOf(ids)],
  },
]

let asked = 0
const ask = (count: number) =>
  Array.from({ length: count }, () => world.ask(`fault ${asked++}`).questionId as string)

async function authorizations(ids: readonly string[]) {
  const { stdout } = await run(['journal', 'list'])
  const all = (
    JSON.parse(stdout) as {
      authorizations: { journal_id: string; question_id: string; state: string }[]
    }
  ).authorizations
  return all.filter(({ question_id }) => ids.includes(question_id))
}

const candidates = (ids: readonly string[]) =>
  world.front.ledger.active().filter(({ round }) => ids.includes(round.questionId))

/** The signatures that ever left for these questions: one each, or something was signed again. */
function signaturesSent(ids: readonly string[]): number {
  const signatures = new Set<string>()
  for (const { path, body } of proxy.sent) {
    const parsed = JSON.parse(body) as {
      signature?: string
      proposals?: { identifier: string; signature: string }[]
    }
    if (parsed.signature !== undefined && ids.some((id) => path.endsWith(id)))
      signatures.add(parsed.signature)
    for (const { identifier, signature } of parsed.proposals ?? [])
      if (ids.includes(identifier)) signatures.add(signature)
  }
  return signatures.size
}

const errorOfRun = (ran: Ran) => (ran.code === 0 ? undefined : errorOf(ran))

describe.each(forms)('$name', (form) => {
  const knowLimits = () => run(['eligibility'])

  async function expectSettled(ids: readonly string[]): Promise<void> {
    const ran = await run(form.goOn(ids))
    expect(ran.code, ran.stderr).toBe(0)
    expect((await authorizations(ids)).map(({ state }) => state)).toEqual(ids.map(() => 'accepted'))
    expect(candidates(ids), 'as many candidates as were signed for').toHaveLength(ids.length)
    expect(signaturesSent(ids), 'R7: nothing is signed again').toBe(ids.length)
  }

  test.each(cases)('R7: $name: the journal tells, and the same bytes settle it', async (one) => {
    const ids = ask(form.rows)
    await knowLimits()
    proxy.fail(one.fault)
    const ran = await run(form.begin(ids), one)
    proxy.clear()
    const known = await authorizations(ids)
    expect(known, 'R4: what was sent is in the journal').toHaveLength(ids.length)
    for (const { state } of known) expect(one.states).toContain(state)
    expect(candidates(ids)).toHaveLength(one.admitted ? ids.length : 0)
    const state = known.some((each) => each.state === 'unknown') ? 'unknown' : known[0]?.state
    expect(ran.code).toBe(state === 'accepted' ? 0 : state === 'unknown' ? 6 : 75)
    if (state !== 'accepted')
      expect(errorOf(ran).hint, 'the command that settles it').toMatch(form.command)
    await expectSettled(ids)
  })

  test.each(passing)('R7: $name once: the run itself settles it', async (one) => {
    const ids = ask(form.rows)
    await knowLimits()
    proxy.fail(one.fault, 1)
    const ran = await run(form.begin(ids), one)
    proxy.clear()
    expect(errorOfRun(ran)).toBeUndefined()
    await expectSettled(ids)
  })

  test.each(['cut-request', 'cut-answer'] as const)(
    'R7: %s after any byte of the message: the run itself settles it',
    { timeout: 3_600_000 },
    async (kind) => {
      await knowLimits()
      let length = Number.POSITIVE_INFINITY
      let cuts = 0
      for (let byte = 0; byte < length; byte += byteStride) {
        if (cuts > 0 && cuts % cutsPerWorld === 0) {
          await closeAll()
          await openAll()
          await knowLimits()
        }
        const ids = ask(form.rows)
        let met = 0
        const at: Cut = (text) => {
          met++
          length = text.length
          return Math.min(byte, text.length - 1)
        }
        proxy.fail({ kind, at }, 1)
        const ran = await run(form.begin(ids))
        proxy.clear()
        expect(met, `${kind} after byte ${byte}`).toBe(1)
        expect(errorOfRun(ran), `${kind} after byte ${byte}`).toBeUndefined()
        await expectSettled(ids)
        cuts++
      }
      expect(length, 'a whole message was gone through').toBeGreaterThan(200)
    },
  )

  test('R7: bytes that arrive after their repetition change nothing (R2)', async () => {
    const ids = ask(form.rows)
    await knowLimits()
    proxy.fail({ kind: 'late' }, 1)
    const before = world.front.records.length
    expect((await run(form.begin(ids))).code).toBe(0)
    expect(world.front.records.slice(before)).toHaveLength(3)
    await expectSettled(ids)
  })

  test('contract §1: where nobody listens, what was signed is deferred, and goes later', async () => {
    const ids = ask(form.rows)
    expect((await run(form.sign(ids))).code).toBe(0)
    await proxy.down()
    const ran = await run(form.begin(ids))
    expect(ran.code).toBe(75)
    expect((await authorizations(ids)).map(({ state }) => state)).toEqual(ids.map(() => 'deferred'))
    expect(errorOf(ran).hint).toMatch(form.command)
    await proxy.up()
    await expectSettled(ids)
  })
})
