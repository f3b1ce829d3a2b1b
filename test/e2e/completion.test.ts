/**
 * `completion`: the answers to a tab key through the front door, and the scripts in the shells
 * themselves, with a real terminal.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { scripts, shells } from '#commands/completion'
import { profileKeys } from '#commands/session/settings'
import { verbs } from '#commands/verbs'
import { argvOf } from '#support/argv'
import { run } from '#support/cli'
import { temporaryFolder } from '#support/folders'
import {
  candidates,
  identifiers,
  type Lived,
  liveIn,
  signatureMark,
  urlSecret,
} from '#support/lived-home'

let home: string
let lived: Lived
beforeAll(async () => {
  home = temporaryFolder()
  lived = await liveIn(home)
})

async function offered(words: readonly string[], where = home): Promise<readonly string[]> {
  const ran = await run(where, ['__complete', 'zsh', 'proposer', ...words])
  expect([ran.code, ran.stderr]).toEqual([0, ''])
  expect(ran.stdout).not.toMatch(new RegExp(`${signatureMark}|${urlSecret}`))
  const [form, ...lines] = ran.stdout.trimEnd().split('\n')
  return form === 'values' ? lines.map((line) => line.split('\t')[0] ?? '') : [`<${form}>`]
}

describe('contract §6: a tab key', () => {
  test('offers every command, and behind it its subcommands', async () => {
    expect(await offered([''])).toEqual(Object.keys(verbs))
    expect(await offered(['jour'])).toEqual(['journal'])
    expect(await offered(['help', 'sup'])).toEqual(['support-bundle'])
    expect(await offered(['operator', 'candidates', ''])).toEqual([
      'list',
      'show',
      'explain',
      'reject',
    ])
    expect(await offered(argvOf`--home journal operator --config store budg`)).toEqual(['budget'])
  })

  test("offers flags, the command's own before those of every command", async () => {
    expect((await offered(['poll', '--'])).slice(0, 2)).toEqual([
      '--executor-account',
      '--executor-password-file',
    ])
    expect(await offered(['poll', '--un'])).toEqual(['--until'])
    expect(await offered(['devchain', '--wr'])).toEqual(['--write'])
    expect(await offered(['devchain', '--write', ''])).toEqual(['<folders>'])
    expect(await offered(argvOf`devchain dispute --wr`)).toEqual([])
    expect(await offered(argvOf`operator candidates list --con`)).toEqual(['--config'])
    expect(await offered(['demo', '--acc'])).toEqual(['--account'])
    expect(await offered(argvOf`poll -- --un`)).toEqual([])
    expect(await offered(['demo', ''])).toContain('--json')
  })

  test('offers what a flag may be', async () => {
    expect(await offered(['sign', 'x', '--outcome', ''])).toEqual(['yes', 'no', 'p1', 'p2', 'p3'])
    expect(await offered(['poll', '--until=co'])).toEqual(['--until=confirmed'])
    expect(await offered(['batch', 'sign', '--format', ''])).toEqual(['ndjson', 'json', 'csv'])
    expect(await offered(['funds', 'approve', '--amount', ''])).toEqual(['unlimited'])
    expect(await offered(['plan', ''])).toEqual(['<files>'])
    expect(await offered(['--home', ''])).toEqual(['<folders>'])
    expect(await offered(['sign', 'x', '-o', ''])).toEqual(['<files>'])
    expect(await offered(['batch', 'sign', ''])).toEqual(['<files>'])
    expect(await offered(['sign', 'x', '--amount', ''])).toEqual([])
    expect(await offered(['--rpc-url', ''])).toEqual([])
    expect(await offered(['config', 'set', ''])).toEqual(['profile', ...Object.keys(profileKeys)])
    expect(await offered(['completion', ''])).toEqual([...shells])
  })

  test('offers accounts and profiles of this home', async () => {
    expect(await offered(['--account', ''])).toEqual(['cold', 'hot'])
    expect(await offered(['account', 'show', 'h'])).toEqual(['hot'])
    expect(await offered(['account', 'new', ''])).toEqual([])
    expect(await offered(['--profile', ''])).toEqual(['default', 'dev', 'polygon', 'staging'])
    expect(await offered(['submit', ''])).toEqual([])
  })

  test('offers the ids of the journal that the command is for, newest first', async () => {
    expect(await offered(['status', ''])).toEqual([candidates.done, candidates.sunny])
    expect(await offered(['poll', candidates.done, '3f'])).toEqual([candidates.sunny])
    expect(await offered(['replay', ''])).toEqual([lived.deferred, lived.unknown])
    expect(await offered(['revoke', ''])).toEqual([
      lived.signed,
      lived.conflict,
      lived.deferred,
      lived.unknown,
      lived.accepted,
    ])
    expect(await offered(['sign', 'x', '--supersede', ''])).toHaveLength(5)
    expect(await offered(['journal', 'show', lived.executed])).toEqual([lived.executed])
    expect(await offered(['journal', 'show', candidates.done])).toEqual([candidates.done])
    const described = await run(home, '__complete fish proposer status 7')
    expect(described.stdout).toBe(`values\n${candidates.done}\t${identifiers.executed} executed\n`)
  })

  test('of another home where the line names it, by flag in any form, and nothing where there is none', async () => {
    const other = temporaryFolder()
    expect(await offered(['--home', home, '--account', ''], other)).toEqual(['cold', 'hot'])
    expect(await offered([`--home=${home}`, 'status', '3'], other)).toEqual([candidates.sunny])
    expect(await offered(['status', ''], other)).toEqual([])
    expect(await offered(['--account', ''], other)).toEqual([])
  })

  test('R5, R11: what is damaged or hostile is passed over in silence', async () => {
    const other = temporaryFolder()
    mkdirSync(join(other, 'keystores'))
    mkdirSync(join(other, 'trust'))
    mkdirSync(join(other, 'journal', 'abcdefabcdef'), { recursive: true })
    for (const name of ['fine', 'bad\nname', 'esc\u001b[2J'])
      writeFileSync(join(other, 'keystores', `${name}.json`), '')
    writeFileSync(join(other, 'journal', 'abcdefabcdef', 'log-0.jsonl'), 'not json\n{"c":"torn')
    expect(await offered(['--account', ''], other)).toEqual(['fine'])
    expect(await offered(['journal', 'show', ''], other)).toEqual([])
    writeFileSync(join(other, 'config.json'), '[')
    expect(await offered(['--account', ''], other)).toEqual(['<>'])
  })

  test.each([
    [['--account=h'], ['--account=hot'], ['--account=hot']],
    [['--acc"ount"=h'], ['--account=hot'], ['--account=hot']],
    [['status', "'3f"], [candidates.sunny], [candidates.sunny]],
    [['--home', '~/nowhere', '--account', ''], [], []],
  ])('bash and fish hand over words as they were typed: %j', async (words, forBash, forFish) => {
    const offers = async (shell: string) =>
      (await run(home, ['__complete', shell, 'proposer', ...words])).stdout
    expect(await offers('bash')).toBe(['values', ...forBash, ''].join('\n'))
    expect((await offers('fish')).replace(/\t.*/g, '')).toBe(['values', ...forFish, ''].join('\n'))
  })

  test('a script of 0.2 asks in another form: nothing is offered, and nothing is said', async () => {
    const asks = (words: readonly string[]) => run(home, ['__complete', ...words])
    expect(await asks(['bash', ' \t\n"\'><=;|&(:', 'proposer status 3f'])).toMatchObject({
      code: 0,
      stdout: 'values\n',
      stderr: '',
    })
    expect(await asks(['fish', 'proposer status 3f'])).toEqual({ code: 0, stdout: '', stderr: '' })
  })

  test('an unknown shell, or nothing at all, is no error', async () => {
    expect(await run(home, '__complete')).toMatchObject({ code: 0, stderr: '' })
  })
})

test('contract §6: completion prints the script of each shell, with --json inside a document', async () => {
  for (const shell of shells) {
    expect(await run(home, ['completion', shell])).toEqual({
      code: 0,
      stdout: scripts[shell],
      stderr: '',
    })
    const { stdout } = await run(home, ['completion', shell, '--json'])
    expect(JSON.parse(stdout)).toEqual({
      schema: 'proposer.completion/1',
      shell,
      script: scripts[shell],
    })
  }
  expect((await run(home, 'completion')).code).toBe(2)
})

const has = (program: string) => spawnSync(program, ['-c', 'true']).status === 0
const terminal = 'script'
const hasTerminal = spawnSync(terminal, ['--version']).status === 0

const taught = {
  bash: { start: 'bash --norc --noprofile -i', teach: 'source <(proposer completion bash)' },
  zsh: {
    start: 'zsh -f -i',
    teach:
      'unsetopt PROMPT_SP; autoload -Uz compinit; compinit -u -D; source <(proposer completion zsh)',
  },
  fish: { start: 'fish --no-config -i', teach: 'proposer completion fish | source' },
} as const

describe.each(shells)('in %s itself', (shell) => {
  const runs = hasTerminal && has(shell)
  let folder = ''
  let session: Session | undefined
  beforeAll(async () => {
    if (!runs) return
    folder = temporaryFolder()
    session = await openSession(shell, folder)
  })
  afterAll(() => session?.end())

  const typed = (keys: string) => {
    if (session === undefined) throw new Error('no session')
    return session.enter(keys)
  }

  test.runIf(runs)(
    'commands, flags, accounts, ids: a tab ends each word (skipped where the shell or script(1) is missing)',
    async () => {
      expect(await typed('proposer jour\tli\t')).toEqual(['journal', 'list'])
      expect(await typed('proposer operator cand\tex\t')).toEqual([
        'operator',
        'candidates',
        'explain',
      ])
      expect(await typed('proposer poll --unt\tconf\t')).toEqual(argvOf`poll --until confirmed`)
      expect(await typed('proposer status 3f\t')).toEqual(['status', candidates.sunny])
      expect(await typed('proposer --account h\tfunds')).toEqual(argvOf`--account hot funds`)
      expect(await typed('proposer --account=c\tfunds')).toEqual(['--account=cold', 'funds'])
    },
  )

  test.runIf(runs)('spaces and quotes arrive whole', async () => {
    expect(await typed('proposer batch sign my\t')).toEqual(['batch', 'sign', 'my rows.csv'])
    expect(await typed("proposer --home 'the other home' --account o\tfunds")).toEqual(argvOf`--home
      ${'the other home'} --account other funds`)
    expect(
      await typed('proposer --home the\\ other\\ home --account=o\tfunds'),
    ).toEqual(argvOf`--home
      ${'the other home'} --account=other funds`)
    const [, where, ...rest] = await typed('proposer --home the\t --account o\tfunds')
    expect([where?.replace(/\/$/, ''), ...rest]).toEqual(argvOf`${'the other home'} --account
      other funds`)
  })
})

type Session = Awaited<ReturnType<typeof openSession>>

async function openSession(shell: (typeof shells)[number], folder: string) {
  const bin = join(import.meta.dirname, '../../bin/proposer.js')
  mkdirSync(join(folder, 'bin'))
  mkdirSync(join(folder, 'work', 'the other home', 'keystores'), { recursive: true })
  writeFileSync(join(folder, 'work', 'the other home', 'keystores', 'other.json'), '')
  writeFileSync(join(folder, 'work', 'my rows.csv'), '')
  const program = join(folder, 'bin', 'proposer')
  writeFileSync(
    program,
    `#!/bin/sh
case $1 in __complete|completion) exec "${process.execPath}" "${bin}" "$@" ;; esac
printf '<arguments>'; printf '<%s>' "$@"; printf '<end>\\n'
`,
  )
  chmodSync(program, 0o755)
  const child: ChildProcess = spawn(terminal, ['-qefc', taught[shell].start, '/dev/null'], {
    cwd: join(folder, 'work'),
    env: {
      PATH: `${join(folder, 'bin')}:${process.env.PATH}`,
      HOME: folder,
      PROPOSER_HOME: home,
      TERM: 'dumb',
      LC_ALL: 'C.UTF-8',
      INPUTRC: '/dev/null',
      HISTFILE: '/dev/null',
    },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  let said = ''
  let wake: () => void = () => undefined
  child.stdout?.on('data', (chunk: Buffer) => {
    said += chunk.toString()
    wake()
  })
  const ended = new Promise<never>((_, reject) =>
    child.once('exit', () => reject(new Error(`the shell ended: ${said}`))),
  )
  ended.catch(() => {
    // told to whoever waits at that time; the end of the session is no failure
  })
  const enter = async (keys: string): Promise<readonly string[]> => {
    said = ''
    child.stdin?.write(`${keys}\n`)
    for (;;) {
      const found = /<arguments><([\s\S]*?)><end>/.exec(said)
      if (found) return (found[1] ?? '').split('><')
      await Promise.race([ended, new Promise<void>((resolve) => (wake = resolve))])
    }
  }
  await enter(`${taught[shell].teach}; proposer ready`)
  return { enter, end: () => child.kill('SIGHUP') }
}
