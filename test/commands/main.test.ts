import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import { parseSync, Visitor } from 'oxc-parser'
import { reportCrash } from '#commands/front'
import { main } from '#commands/main'
import { wholeProgram } from '#commands/program'
import { createOutput } from '#commands/terminal/output'
import { verbs } from '#commands/verbs'
import { errorOf, fakeContext, run } from '#support/cli'
import { temporaryFolder } from '#support/folders'

const home = temporaryFolder()

test('contract §6: a sheet and a document cannot both use stdout, whatever the command', async () => {
  const { context } = fakeContext(home, {})
  const verbsWithSheet: string[][] = []
  const look = (command: Command, path: readonly string[]) => {
    if (command.options.some(({ long }) => long === '--csv'))
      verbsWithSheet.push([...path, ...command.registeredArguments.map(() => 'x')])
    for (const child of command.commands) look(child, [...path, child.name()])
  }
  look(await wholeProgram(context), [])
  expect(verbsWithSheet.length).toBeGreaterThan(4)
  for (const argv of verbsWithSheet)
    for (const [flags, named] of [
      [['--json'], '--json'],
      [['--ndjson'], '--ndjson'],
      [['--field', 'schema'], '--field'],
    ] as const) {
      const { code, stdout, stderr } = await run(home, [...argv, '--csv', ...flags])
      expect([code, stdout], argv.join(' ')).toEqual([2, ''])
      expect(stderr, argv.join(' ')).toContain(`--csv and ${named} cannot both use stdout`)
    }
})

test('an unknown subcommand is told as one, also where the verb has a default one', async () => {
  for (const argv of [
    ['devchain', 'disputee', 'x'],
    ['journal', 'lisst'],
    ['help', 'toString'],
  ]) {
    const { code, stderr } = await run(home, argv)
    expect(code).toBe(2)
    expect(stderr).toContain(`error: unknown command '${argv[1]}'`)
  }
})

test.each([
  ['--version', '--json'],
  ['--json', '--version'],
  ['-V', '--json'],
  ['version', '--json'],
])('contract §9: %s %s is a document', async (...argv) => {
  const ran = await run(home, argv)
  expect(ran).toMatchObject({ code: 0, stderr: '' })
  expect(JSON.parse(ran.stdout)).toMatchObject({
    schema: 'proposer.version/1',
    version: expect.any(String),
    node: process.version,
  })
})

test('contract §6, §9: --version and `version` print it alone', async () => {
  const ran = await run(home, '--version')
  expect(ran).toEqual({ code: 0, stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/), stderr: '' })
  expect(await run(home, 'version')).toEqual(ran)
})

test('contract §6: --help names every command and every flag of every command', async () => {
  const help = await run(home, '--help')
  expect(help.code).toBe(0)
  expect((await run(home, '-h submit')).stdout).toContain('\n  poll')
  // Where colour is off, as here, headings are plain; all of it fits one screen.
  expect(help.stdout).toContain('\nProposing:\n  questions ')
  expect(help.stdout.trimEnd().split('\n').length).toBeLessThanOrEqual(45)
  const bold = await run(home, '--help --color always', { env: { NO_COLOR: '' } })
  expect(bold.stdout).toContain('\n\u001b[1mProposing:\u001b[22m\n')
  const { version: _hidden, ...shown } = verbs
  for (const verb of Object.keys(shown))
    expect(help.stdout).toMatch(new RegExp(`^  ${verb}\\b`, 'm'))
  const { stdout } = await run(home, 'help flags')
  for (const flag of [
    '--gateway',
    '--local',
    '--profile',
    '--home',
    '--account',
    '--rpc-url',
    '--trust',
    '--json',
    '--ndjson',
    '--quiet',
    '--yes',
    '--timeout',
  ]) {
    expect(stdout).toContain(flag)
  }
})

test('R5: a failure that nobody awaited is told without what it holds', () => {
  const { context, stderr } = fakeContext(home)
  expect(reportCrash(['submit', 'x', '--json'], context, new Error('key 0xsecret'))).toBe(1)
  expect(errorOf({ stderr: stderr.written.join('') })).toMatchObject({
    code: 'internal_error',
    exit_code: 1,
  })
  expect(stderr.written.join('')).not.toContain('secret')
})

test('contract §6: `help <command>` is the help of that command', async () => {
  expect(await run(home, 'help config')).toEqual(await run(home, 'config --help'))
})

test.each([
  ['propose', 'submit'],
  ['wallet', 'account'],
  ['setup', 'init'],
  ['login', 'init'],
  ['list', 'questions list'],
  ['ls', 'questions list'],
  ['support bundle', 'support-bundle'],
  ['lst', 'questions list'],
  ['send', 'submit'],
  ['keys', 'account'],
  ['journal ls', 'list'],
  ['account delete main', 'remove'],
  ['operator questions rm', 'remove'],
])('contract §9: whoever types %s means %s', async (typed, meant) => {
  const { code, stderr } = await run(home, typed.split(' '))
  expect([code, stderr]).toEqual([2, expect.stringContaining(`hint: Did you mean ${meant}?`)])
})

test.each([
  ['nope', "unknown command 'nope'\nhint: run `proposer operator --help`"],
  ['lst', 'hint: Did you mean list? Else run `proposer operator --help`'],
])('contract §6: of subcommands only the near one is suggested: %s', async (typed, told) => {
  const { code, stderr } = await run(home, ['operator', typed])
  expect([code, stderr]).toEqual([2, expect.stringContaining(told)])
})

test('contract §6: a usage error with --json is one JSON error on stderr with exactly five keys', async () => {
  const ran = await run(home, 'config list --jsn --json')
  expect(ran.code).toBe(2)
  expect(ran.stdout).toBe('')
  expect(Object.keys(JSON.parse(ran.stderr))).toEqual(['error'])
  const error = errorOf(ran)
  expect(Object.keys(error)).toEqual(['code', 'detail', 'hint', 'retryable', 'exit_code'])
  expect(error).toMatchObject({
    code: 'usage',
    detail: "unknown option '--jsn'",
    retryable: false,
    exit_code: 2,
  })
  expect(error.hint).toContain('Did you mean --json?')
})

test('U13: an argument that is missing is named with what it is', async () => {
  const { stderr } = await run(home, 'status')
  expect(stderr).toContain(
    "missing required argument 'candidate-id': candidate id, from `submit` or `journal show`\n",
  )
})

test('contract §6: the help that a usage error points at is that of the subcommand', async () => {
  for (const [given, path] of [
    [
      [
        'operator',
        '--config',
        'list',
        'candidates',
        'reject',
        '00000000-0000-4000-8000-000000000000',
      ],
      'operator candidates reject',
    ],
    [['operator', 'candidates', 'nope'], 'operator candidates'],
    [['--home', 'operator', 'operator', 'store'], 'operator store'],
    [['config', 'get'], 'config get'],
  ] as const) {
    const ran = await run(home, [...given, '--json'])
    expect([ran.code, errorOf(ran).hint]).toEqual([
      2,
      expect.stringContaining(`run \`proposer ${path} --help\``),
    ])
  }
  expect(errorOf(await run(home, 'operator store --json')).detail).toBe(
    'operator store needs a subcommand',
  )
})

test('contract §6: on a narrow terminal an error breaks between words, and commands in it stay whole', async () => {
  const { code, stderr } = await run(
    home,
    ['operator', 'candidates', 'list', '--state', 'nonsense'],
    {
      columns: 40,
      interactive: true,
    },
  )
  expect(code).toBe(2)
  const lines = stderr.trimEnd().split('\n')
  expect(lines.length).toBeGreaterThan(2)
  expect(lines.filter((line) => line.length > 40 && !/^\s*`[^`]*`$/.test(line))).toEqual([])
  expect(stderr).toContain('`proposer operator candidates list --help`')
})

test('contract §6: flags may stand before the command', async () => {
  const ran = await run(home, '--profile dev --json config get profile')
  expect(ran.code).toBe(0)
  expect(JSON.parse(ran.stdout)).toMatchObject({
    schema: 'proposer.config/1',
    value: 'dev',
    origin: 'flag',
  })
})

test('contract §6: --gateway and --local together exit 2 and name both', async () => {
  const ran = await run(home, 'config list --gateway https://a.example --local g.json --json')
  expect(ran.code).toBe(2)
  expect(errorOf(ran)).toMatchObject({
    code: 'two_gateways',
    detail: '--gateway and --local cannot be used together',
  })
})

test('R5: an unexpected failure exits 1 and shows neither its message nor its stack', async () => {
  const { context, stderr } = fakeContext(home)
  const broken = {
    ...context,
    files: {
      ...context.files,
      exists: async () => {
        throw new TypeError('key 0xsecret of https://user:pass@node.example')
      },
    },
  }
  const code = await main(['config', 'list', '--json'], broken)
  expect(code).toBe(1)
  const error = errorOf({ stderr: stderr.written.join('') })
  expect(error).toMatchObject({ code: 'internal_error', exit_code: 1 })
  expect(error.detail).toContain('TypeError')
  expect(error.hint).toContain('report')
  expect(stderr.written.join('')).not.toMatch(/secret|node\.example|\n {4}at /)
})

test('contract §6: a file error the command did not foresee exits 74 and names the file', async () => {
  const { context, stderr } = fakeContext(home)
  const broken = {
    ...context,
    files: {
      ...context.files,
      exists: async (path: string) => {
        throw Object.assign(new Error('EACCES'), { code: 'EACCES', path })
      },
    },
  }
  expect(await main(['config', 'list'], broken)).toBe(74)
  expect(stderr.written.join('')).toContain('config.json cannot be used (EACCES)\nhint: ')
  const file = join(home, 'file')
  writeFileSync(file, '')
  const ran = await run(file, [])
  expect(ran).toMatchObject({ code: 74, stdout: '' })
  expect(ran.stderr).toMatch(/file cannot be used \(ENOTDIR\)\nhint: something else has that name/)
})

test('robustness §6: a reader who left (EPIPE) ends the printing and not the command', async () => {
  const { context } = fakeContext(home)
  const closed = failingSink('EPIPE')
  expect(
    await main(['config', 'list'], {
      ...context,
      streams: { ...context.streams, stdout: closed },
    }),
  ).toBe(0)
  expect(closed.writes()).toBe(1)
})

test('contract §6: a result that could not be written exits 74', async () => {
  const { context, stderr } = fakeContext(home)
  const full = failingSink('ENOSPC')
  expect(
    await main(['config', 'list', '--json'], {
      ...context,
      streams: { ...context.streams, stdout: full },
    }),
  ).toBe(74)
  expect(errorOf({ stderr: stderr.written.join('') })).toMatchObject({
    code: 'output_not_written',
    exit_code: 74,
  })
})

/** A sink whose every write fails, as Node's streams tell it: by an error event. */
function failingSink(code: string) {
  let listener: (error: Error) => void = () => undefined
  let count = 0
  return {
    on: (_event: 'error', given: (error: Error) => void) => {
      listener = given
    },
    write: () => {
      count += 1
      listener(Object.assign(new Error(code), { code }))
    },
    writes: () => count,
  }
}

const sinks = (isTTY: boolean) => {
  const written: string[] = []
  return { written, sink: { isTTY, columns: 80, write: (text: string) => written.push(text) } }
}

test('R20: JSON on stdout spells out every control and bidirectional character and still parses to the same text', () => {
  const { written, sink } = sinks(true)
  const text = 'a\u001b[2J\u0007\u007f\u0085\u2028\u202e\u2066b"\\'
  createOutput({ stdout: sink, stderr: sink, env: {}, mode: 'json', quiet: false }).result(
    'x',
    { text },
    () => '',
  )
  const printed = written.join('')
  expect(JSON.parse(printed)).toEqual({ schema: 'proposer.x/1', text })
  expect(printed.replaceAll('\n', '')).toMatch(/^[\u0020-\u007e]*$/)
})

test('contract §6: --quiet silences notes and progress but no warning', () => {
  const { written, sink } = sinks(false)
  const output = createOutput({ stdout: sink, stderr: sink, env: {}, mode: 'human', quiet: true })
  output.note('note')
  output.progress('progress').update('more')
  output.warn('warning')
  expect(written).toEqual(['warning\n'])
})

test('U15: a pipe and a dumb terminal have no progress, however long it takes; a terminal keeps how it ended', () => {
  vi.useFakeTimers()
  const shown = (isTTY: boolean, env: Record<string, string> = {}) => {
    const { written, sink } = sinks(isTTY)
    const output = createOutput({ stdout: sink, stderr: sink, env, mode: 'human', quiet: false })
    output.progress('sending').update({ verb: 'sending', done: 1, total: 2 })
    vi.advanceTimersByTime(60_000)
    output.mark(true, '2 of 2 rows executed in', 4_900)
    return written
  }
  expect(shown(false)).toEqual([])
  const kept = '✔ 2 of 2 rows executed in 4 s\n'
  expect(shown(true, { NO_COLOR: '1', TERM: 'dumb' })).toEqual([kept])
  expect(shown(true, { TERM: 'dumb', FORCE_COLOR: '1' })).toEqual([
    `\u001b[32m✔\u001b[39m${kept.slice(1)}`,
  ])
  vi.useRealTimers()
})

test('style: every error a command throws carries a hint of its own', () => {
  const folder = join(import.meta.dirname, '../../src/commands')
  const without: string[] = []
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  for (const name of names.filter((path) => path.endsWith('.ts'))) {
    const source = readFileSync(join(folder, name), 'utf8')
    new Visitor({
      NewExpression({ callee, arguments: given, start, end }) {
        const isOurs = kinds.test(source.slice(callee.start, callee.end))
        const rest = given[2]
        const text = rest === undefined ? '' : source.slice(rest.start, rest.end)
        const hasHint = rest?.type === 'ObjectExpression' ? /\bhint\b/.test(text) : text !== ''
        if (isOurs && !hasHint) without.push(`${name}: ${source.slice(start, end)}`)
      },
    }).visit(parseSync(name, source).program)
  }
  expect(without).toEqual([])
})

const kinds =
  /^(Proposer|Usage|Rejected|Unauthorized|Conflict|Uncertain|Failed|Pending|Storage|Unavailable|Interrupted)Error$/
