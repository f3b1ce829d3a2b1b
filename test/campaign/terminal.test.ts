/**
 * Ctrl-C, SIGTERM, SIGHUP and a terminal that goes away, at every stage of the verbs that take a
 * while, on a terminal of their own (R26, contract §9). Each stage is reached by a call that a
 * gateway holds, never by a time; what is struck waits, so that several may at once.
 */
import { cpSync, existsSync, readdirSync, readFileSync, watch, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { homePaths } from '#io/home'
import { argvOf } from '#support/argv'
import { type BatchWorld, openBatchWorld } from '#support/batch-world'
import { figures, firstSeed, scaled } from '#support/campaign'
import { deferred } from '#support/deferred'
import { journalFaults } from '#support/history/judge-home'
import { serveHttp } from '#support/http-server'
import { workshop } from '#support/processes'
import { hasTerminals, onTerminal, type Terminal, type TerminalOptions } from '#support/terminal'

const memoryLimitMiB = 150
const shop = workshop()

const faults = {
  'Ctrl-C': async (terminal) => terminal.type('\u0003'),
  'Ctrl-C twice': async (terminal) => {
    const pid = await terminal.pid()
    process.kill(pid, 'SIGSTOP')
    process.kill(pid, 'SIGINT')
    process.kill(pid, 'SIGTERM')
    process.kill(pid, 'SIGCONT')
  },
  SIGTERM: async (terminal) => void process.kill(await terminal.pid(), 'SIGTERM'),
  SIGHUP: async (terminal) => void process.kill(await terminal.pid(), 'SIGHUP'),
  'its window closed': async (terminal) => terminal.close(),
  'its terminal gone without a signal': async (terminal) => terminal.close(),
} satisfies Record<string, (terminal: Terminal) => Promise<void>>
type Fault = keyof typeof faults
const allFaults = Object.keys(faults) as Fault[]

type CallKind = 'context' | 'submit' | 'status' | 'other'

/**
 * `before`: the call has come and the gateway has not seen it; `after`: it was dealt with and no
 * answer leaves; `answered`: it left.
 */
interface Hold {
  readonly kind: CallKind
  readonly at: 'before' | 'after' | 'answered'
  readonly nth?: number
  readonly loses?: true
}

type HeldGateway = Awaited<ReturnType<typeof holdGateway>>

const kindOf = (method: string, path: string): CallKind => {
  if (path.includes('/signing-data')) return 'context'
  if (path.includes('/status')) return 'status'
  return method === 'POST' ? 'submit' : 'other'
}

async function holdGateway({ front }: BatchWorld, hold: Hold) {
  Object.assign(front.clock, { nowMs: Date.now })
  front.view.nowValue = BigInt(Math.floor(Date.now() / 1000))
  let left = hold.nth ?? 1
  const { promise: reached, resolve: reach } = deferred()
  const served = await serveHttp(async ({ method = 'GET', url: target = '/' }, body, response) => {
    const isOfKind = kindOf(method, target) === hold.kind
    const isHeld = isOfKind && --left === 0
    if (isOfKind && left > 0 && hold.loses === true) return response.destroy()
    if (isHeld && hold.at === 'before') return reach()
    const answer = method === 'POST' ? await front.post(target, body) : await front.get(target)
    const text = await answer.text()
    if (isHeld && hold.at === 'after') return reach()
    return response
      .writeHead(answer.status, Object.fromEntries(answer.headers))
      .end(text, () => isHeld && reach())
  })
  return { ...served, reached }
}

interface Stage {
  readonly name: string
  readonly verb: 'submit' | 'batch' | 'run' | 'poll'
  readonly hold: Hold
  readonly code: 6 | 130 | 'by journal'
  readonly journal?: 'unknown' | 'accepted' | undefined
}

const rowCount = 40
const signing = (verb: 'batch' | 'run'): Stage => ({
  name: `signs ${rowCount} rows`,
  verb,
  hold: { kind: 'context', at: 'answered' },
  code: 'by journal',
})
const sending = (verb: 'submit' | 'batch' | 'run'): Stage[] => [
  {
    name: 'asks for the context',
    verb,
    hold: { kind: 'context', at: 'before' },
    code: 130,
    journal: undefined,
  },
  { name: 'sends', verb, hold: { kind: 'submit', at: 'before' }, code: 6, journal: 'unknown' },
  {
    name: 'waits for the answer',
    verb,
    hold: { kind: 'submit', at: 'after' },
    code: 6,
    journal: 'unknown',
  },
  {
    name: 'sends again',
    verb,
    hold: { kind: 'submit', at: 'before', nth: 2, loses: true },
    code: 6,
    journal: 'unknown',
  },
  {
    name: 'asks for the status',
    verb,
    hold: { kind: 'status', at: 'before' },
    code: 130,
    journal: 'accepted',
  },
  {
    name: 'waits for the next look',
    verb,
    hold: { kind: 'status', at: 'answered' },
    code: 130,
    journal: 'accepted',
  },
]
const stages: readonly Stage[] = [
  ...sending('submit'),
  ...sending('batch'),
  signing('batch'),
  ...sending('run'),
  signing('run'),
  {
    name: 'asks for the status',
    verb: 'poll',
    hold: { kind: 'status', at: 'before' },
    code: 130,
    journal: 'accepted',
  },
  {
    name: 'waits for the next look',
    verb: 'poll',
    hold: { kind: 'status', at: 'answered' },
    code: 130,
    journal: 'accepted',
  },
]

const others = allFaults.slice(1)
const cases = stages.flatMap((stage, index) => {
  const title = `${stage.verb}, while it ${stage.name}`
  const drawn = Array.from(
    { length: Math.min(others.length, Math.floor(scaled(10) / 10)) },
    (_, n) => others[(index + firstSeed + n * 3) % others.length] ?? 'Ctrl-C',
  )
  return ['Ctrl-C' as const, ...drawn].map((fault) => ({ stage, fault, title }))
})

const memories: number[] = []
function expectSmall(memoryMiB: number | undefined): void {
  expect(memoryMiB).toBeLessThan(memoryLimitMiB)
  memories.push(memoryMiB ?? 0)
}
afterAll(() =>
  figures('a terminal that is struck', {
    runs: memories.length,
    'MiB at most': Math.round(Math.max(0, ...memories)),
  }),
)

const argsOf = (verb: Stage['verb'], questionId: string, rows: string): readonly string[] => {
  if (verb === 'submit') return argvOf`submit ${questionId} --outcome p2 --wait --yes`
  if (verb === 'poll') return ['poll', '--all']
  return verb === 'run' ? ['run', rows, '--yes'] : argvOf`batch submit ${rows} --wait --yes`
}

const ended = {
  status: 'failed',
  validatedAtMs: null,
  selectedAtMs: null,
  submission: null,
  failure: {
    stage: 'validation',
    code: 'request_not_open',
    detail: 'the request is settled',
    retryable: false,
  },
} as const

let accounts: string
beforeAll(async () => {
  const home = await shop.folder()
  const password = join(home, 'password')
  writeFileSync(password, 'long enough a password\n', { mode: 0o600 })
  const args = argvOf`account new main --password-file ${password} --home ${home}`
  expect((await shop.run(args)).code).toBe(0)
  accounts = homePaths.keystores(home)
})

const gateways: HeldGateway[] = []
afterAll(() => Promise.all(gateways.map((one) => one.close())))

async function lived({ verb, hold, code }: Stage) {
  const world = await openBatchWorld()
  const questions = Array.from({ length: code === 'by journal' ? rowCount : 1 }, (_, n) =>
    world.ask(`struck-${n}`, { timestamp: '1760000000' }),
  )
  const before = world.ask('before', { timestamp: '1760000000' })
  const gateway = await holdGateway(world, hold)
  gateways.push(gateway)
  const rows = world.ndjson(
    'rows.ndjson',
    questions.map(({ questionId: identifier }) => ({ identifier, outcome: 'p2' })),
  )
  cpSync(accounts, homePaths.keystores(world.home), { recursive: true })
  world.file('config.json', JSON.stringify({ profiles: { default: { gateway: gateway.url } } }))
  const submitted = (question: string) =>
    world.run(argvOf`submit ${question} --outcome p2 --json --gateway ${gateway.url}`)
  const earlier = await submitted(before.questionId)
  expect(earlier.code, earlier.stderr).toBe(0)
  const { candidate_id: id } = JSON.parse(earlier.stdout) as { candidate_id: string }
  await world.become(id, ended)
  expect((await world.run(argvOf`poll --all --gateway ${gateway.url}`)).code).toBe(7)
  const [{ questionId } = before] = questions
  if (verb === 'poll') expect((await submitted(questionId)).code).toBe(0)
  const env = { PROPOSER_HOME: world.home, PROPOSER_KEY_FILE: join(world.home, 'key') }
  return { args: argsOf(verb, questionId, rows), env, world, gateway }
}

async function reached(stage: Stage, options: TerminalOptions = {}) {
  const { args, env, world, gateway } = await lived(stage)
  const terminal = await onTerminal(args, env, options)
  await before(gateway.reached, terminal)
  return { terminal, world }
}

const before = (event: Promise<void>, { ended }: Terminal): Promise<void> =>
  Promise.race([event, ended.then(({ text }) => Promise.reject(new Error(`ended early: ${text}`)))])

const optionsOf = (fault: Fault): TerminalOptions => ({
  keepsHangUp: fault === 'its terminal gone without a signal',
})

async function journalStates(world: BatchWorld): Promise<readonly string[]> {
  const verified = await world.run('journal verify --json')
  expect(verified.code, verified.stderr).toBe(0)
  expect(await journalFaults(world.home)).toBe('')
  const { stdout } = await world.run('journal list --json')
  const { authorizations } = JSON.parse(stdout) as {
    authorizations: { slug: string | null; state: string }[]
  }
  return authorizations.filter(({ state }) => state !== 'closed').map(({ state }) => state)
}

async function expectEnd(world: BatchWorld, stage: Stage, code: number, text: string) {
  const states = await journalStates(world)
  const expected = stage.code === 'by journal' ? (states.includes('unknown') ? 6 : 130) : stage.code
  expect(code, text).toBe(expected)
  if (stage.code !== 'by journal') expect(states[0]).toBe(stage.journal)
  return expected
}

const isTold = (fault: Fault) => !fault.includes('its ') && fault !== 'Ctrl-C twice'

const told = (code: 6 | 130): RegExp =>
  code === 6 ? /hint: .*(proposer replay|proposer run|--resume)/s : /stopped by SIG\w+.*hint: /s

const pipedCases = stages.flatMap((stage, index) => {
  const title = `${stage.verb}, while it ${stage.name}`
  const modes = ['human', 'json'] as const
  const chosen = modes.filter((_, at) => scaled(10) >= 10 || (index + firstSeed) % 2 === at)
  return chosen.map((mode) => ({ stage, mode, title }))
})

describe.skipIf(!hasTerminals)('R26, contract §9: a client on a terminal', () => {
  test.concurrent.each(cases)('$title: $fault', async ({ stage, fault }) => {
    const { terminal, world } = await reached(stage, optionsOf(fault))
    await faults[fault](terminal)
    const { code, text, memoryMiB } = await terminal.ended
    const expected = await expectEnd(world, stage, code, text)
    expectSmall(memoryMiB)
    if (isTold(fault)) expect(text).toMatch(told(expected))
  })

  test.concurrent.each(pipedCases)('$title, in a pipe, $mode', async ({ stage, mode }) => {
    const { args, env, world, gateway } = await lived(stage)
    const running = shop.start([...args, ...(mode === 'json' ? ['--json'] : [])], { env })
    const early = running.ended.then(({ stderr }) => Promise.reject(new Error(stderr)))
    await Promise.race([gateway.reached, early])
    running.child.kill('SIGINT')
    const { code, stdout, stderr } = await running.ended
    const expected = await expectEnd(world, stage, code ?? -1, stderr)
    if (mode === 'human') expect(stderr).toMatch(told(expected))
    else {
      const { error } = JSON.parse(stderr.trim().split('\n').at(-1) ?? '') as {
        error: { exit_code: number; detail: string; hint: string }
      }
      expect(error).toMatchObject({ exit_code: expected, hint: expect.stringMatching(/./) })
      if (stdout !== '') JSON.parse(stdout)
    }
  })

  const [asking] = stages as readonly [Stage]

  test('a terminal that nobody has set up, 0 columns wide, takes no memory and no time', async () => {
    const { terminal } = await reached(asking, { columns: 0 })
    await terminal.said(/sending.*sending/s)
    terminal.type('\u0003')
    const { code, text, memoryMiB } = await terminal.ended
    expect(code, text).toBe(130)
    expectSmall(memoryMiB)
  })

  test('as under nohup the hang-up is ignored', async () => {
    const { terminal } = await reached(asking, { ignoresHangUp: true })
    process.kill(await terminal.pid(), 'SIGHUP')
    process.kill(await terminal.pid(), 'SIGTERM')
    const { code, text } = await terminal.ended
    expect(code).toBe(130)
    expect(text).toContain('stopped by SIGTERM')
  })

  test('a terminal that closes at a prompt ends the run as Ctrl-C does, and not as an answer that was not given', async () => {
    const world = await openBatchWorld()
    const terminal = await onTerminal(['account', 'new', 'main'], { PROPOSER_HOME: world.home })
    await terminal.said(/password/i)
    terminal.close()
    expect(await terminal.ended).toMatchObject({ code: 130 })
  })
})

interface ServerStage {
  readonly args: readonly string[]
  readonly name: string
  readonly event: string | RegExp
}
const serving = argvOf`serve --dev --port 0 --questions 0`
const chain = argvOf`devchain --port 0 --questions 1`
const begins = { name: 'starts its chain', event: 'proposer-devchain-' }
const ready = /starting a chain.*ready http/s
const servers: readonly ServerStage[] = [
  { args: serving, ...begins },
  { args: serving, name: 'serves', event: ready },
  { args: chain, ...begins },
  { args: chain, name: 'runs', event: ready },
  { args: ['demo'], ...begins },
  { args: ['demo'], name: 'executes', event: /select {3}/ },
]
const serverCases = servers.flatMap((stage, index) =>
  Array.from({ length: Math.min(allFaults.length, scaled(1)) }, (_, n) => ({
    stage,
    fault: allFaults[(index + firstSeed + n) % allFaults.length] ?? 'Ctrl-C',
    title: `${stage.args[0]}, while it ${stage.name}`,
  })),
)

async function appears(folder: string, start: string): Promise<void> {
  for (;;) {
    let stop = () => {}
    const changed = new Promise<void>((resolve) => {
      const watcher = watch(folder, () => resolve())
      stop = () => watcher.close()
    })
    const isThere = readdirSync(folder).some((name) => name.startsWith(start))
    if (!isThere) await changed
    stop()
    if (isThere) return
  }
}

const processesOf = (folder: string): readonly string[] =>
  readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid) || !existsSync(`/proc/${pid}/environ`)) return false
    try {
      return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(`TMPDIR=${folder}`)
    } catch {
      return false
    }
  })

describe.skipIf(!hasTerminals)('R26, contract §6: a server on a terminal', () => {
  async function started({ args, event }: ServerStage, options: TerminalOptions = {}) {
    const folder = await shop.folder()
    const terminal = await onTerminal(
      args,
      { TMPDIR: folder, PROPOSER_HOME: join(folder, 'home') },
      options,
    )
    await before(
      typeof event === 'string' ? appears(folder, event) : terminal.said(event),
      terminal,
    )
    return { folder, terminal }
  }

  test.each(serverCases)('$title: $fault', async ({ stage, fault }) => {
    const { folder, terminal } = await started(stage, optionsOf(fault))
    await faults[fault](terminal)
    const isClient = stage.args[0] === 'demo'
    if (!isClient && fault === 'its terminal gone without a signal') {
      // Only the text is lost; it goes on until it is told to end.
      process.kill(await terminal.pid(), 'SIGTERM')
    }
    const { code, text, memoryMiB } = await terminal.ended
    expect(code, text).toBe(isClient ? 130 : 0)
    expectSmall(memoryMiB)
    await expect.poll(() => processesOf(folder), { timeout: 20_000 }).toEqual([])
  })

  test('a second Ctrl-C ends the drain of serve at once, with the same code', async () => {
    const { folder, terminal } = await started(servers[1] as ServerStage)
    await terminal.said(/ready http.*\)/)
    const url = /ready http:\/\/127\.0\.0\.1:(\d+)/.exec(terminal.screen())
    const call = connect(Number(url?.[1]), '127.0.0.1')
    call.on('error', () => undefined)
    call.write(
      'POST /propose/batch HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{',
    )
    terminal.type('\u0003')
    await terminal.said(/draining/)
    terminal.type('\u0003')
    const { code, text } = await terminal.ended
    call.destroy()
    expect(code, text).toBe(0)
    expect(text).not.toContain('stopping')
    await expect.poll(() => processesOf(folder), { timeout: 20_000 }).toEqual([])
  })
})
