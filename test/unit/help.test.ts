import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import { wholeProgram } from '#commands/program'
import { verbs } from '#commands/verbs'
import { ConfigFile } from '#gateway/config'
import { eachHome, fakeContext, run } from '#support/cli'
import { candidates, liveIn, signatureMark, urlSecret } from '#support/lived-home'
import { commandsPage, configSchemaText, manualPage } from '../../scripts/manual-pages.js'

const root = join(import.meta.dirname, '../..')
const program = () => wholeProgram(fakeContext('/nowhere').context)
const whole = await program()

const home = eachHome()

function all(
  command: Command,
  path: readonly string[] = [],
): readonly (readonly [path: readonly string[], command: Command])[] {
  return command.commands.flatMap((child) => [
    [[...path, child.name()], child] as const,
    ...all(child, [...path, child.name()]),
  ])
}

function helpOf(command: Command): string {
  const written: string[] = []
  command.configureOutput({ writeOut: (text) => written.push(text) }).outputHelp()
  return written.join('')
}

describe('contract §6: help', () => {
  test('shows examples of that very command, or of those below it, with flags that they take', async () => {
    const wrong: string[] = []
    for (const [path, command] of all(await program())) {
      const examples = helpOf(command)
        .split(/\nExamples?:\n/)[1]
        ?.split('\n\n')[0]
        ?.split('\n')
      const own = examples?.filter((line) => line.includes(`proposer ${path[0]}`)) ?? []
      if (!own.some((line) => line.includes(`proposer ${path.join(' ')}`)))
        wrong.push(`${path.join(' ')}: no example of its own`)
      for (const line of own)
        wrong.push(...unknownFlags(line).map((flag) => `${path.join(' ')}: ${flag}`))
    }
    expect(wrong).toEqual([])
    expect(unknownFlags('  proposer poll --all --nonsense')).toEqual(['--nonsense'])
  })

  test.each([80, 100, 60])(
    'of every command fits a terminal of %i columns, whole words and all',
    async (columns) => {
      const wrong: string[] = []
      for (const [path, command] of [[[], undefined] as const, ...all(await program())]) {
        const { code, stdout } = await run(home.path, [...path, '--help'], { columns })
        if (code !== 0) wrong.push(`${path.join(' ')}: exit ${code}`)
        for (const line of stdout.split('\n').filter((one) => one.length > columns)) {
          // An id is a word too, and stays beside its flag; what else is too wide could have been
          // folded.
          if (columns >= 80 || !/^ *(--\S+ )?\S+( \\)?$/.test(line))
            wrong.push(`${path.join(' ')}: ${line}`)
        }
        const words = new Set(stdout.split(/\s+/))
        const said = [...(command?.options ?? []), ...(command?.registeredArguments ?? [])].flatMap(
          ({ description }) => description.split(' '),
        )
        wrong.push(
          ...said
            .filter((word) => word !== '' && !words.has(word) && !words.has(`${word};`))
            .map((word) => `broken: ${word}`),
        )
      }
      expect(wrong).toEqual([])
    },
  )

  test('of a command that stands for another one without a word shows the flags of both', async () => {
    const { stdout } = await run(home.path, 'devchain --help')
    for (const flag of ['--write <folder>', '--port <number>', '--questions <number>'])
      expect(stdout).toContain(flag)
    expect(stdout).toContain('default: 8545')
    const dispute = await run(home.path, 'devchain dispute --help')
    expect(dispute.stdout).not.toContain('--write')
  })

  test('its examples can be pasted: nothing in them stands for something else', async () => {
    const wrong: string[] = []
    for (const [path] of all(await program())) {
      const { stdout } = await run(home.path, [...path, '--help'])
      const examples = stdout.split(/\nExamples?:\n/)[1]?.split('\n\n')[0] ?? ''
      if (/<[a-z]|…/.test(examples.replace('<(proposer', '')))
        wrong.push(`${path.join(' ')}: ${examples}`)
    }
    expect(wrong).toEqual([])
  })

  test('exit 2 for the help of a command that is not there, and the near one is named', async () => {
    for (const argv of [
      ['help', 'sbumit'],
      ['sbumit', '--help'],
    ]) {
      const ran = await run(home.path, argv)
      expect(ran).toMatchObject({
        code: 2,
        stdout: '',
        stderr: expect.stringContaining('Did you mean submit?'),
      })
    }
  })
})

function unknownFlags(line: string): string[] {
  const words = (/\bproposer (.*?)(?: [|#>]|$)/.exec(line)?.[1] ?? '').split(' ')
  const named = (command: Command, name: string) =>
    command.commands.find((child) => child.name() === name)
  let at: Command = whole
  const flags = [...whole.options]
  for (const one of words) {
    const next = named(at, one)
    if (next === undefined) continue
    at = next
    flags.push(...next.options)
  }
  // `devchain` alone is `devchain start`.
  flags.push(...(named(at, 'start')?.options ?? []))
  return words.filter(
    (one) =>
      one.startsWith('-') &&
      one !== '-' &&
      !flags.some(({ short, long }) => [short, long].includes(one.split('=')[0] ?? '')),
  )
}

describe('what `npm run manual` writes is up to date', () => {
  test('the manual page is the text of the help', async () => {
    const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      version: string
    }
    expect(readFileSync(join(root, 'man', 'proposer.1'), 'utf8')).toBe(
      manualPage(await program(), version),
    )
  })

  test('so is the page of commands in the documents', async () => {
    expect(readFileSync(join(root, 'docs', 'reference', 'commands.md'), 'utf8')).toBe(
      commandsPage(await program()),
    )
  })

  test('contract §9: so is the schema of gateway.json that is shipped for editors', () => {
    expect(readFileSync(join(root, 'docs/reference', 'gateway.schema.json'), 'utf8')).toBe(
      configSchemaText(ConfigFile),
    )
  })

  const formatter = 'groff'
  test.runIf(spawnSync(formatter, ['--version']).status === 0)(
    'groff has no complaint about the page, and it reads as plain text',
    () => {
      const made = spawnSync(
        formatter,
        ['-man', '-Tutf8', '-ww', '-P-c', '-P-b', '-P-o', '-P-u', join(root, 'man', 'proposer.1')],
        {
          encoding: 'utf8',
          env: { PATH: process.env.PATH, MANWIDTH: '80' },
        },
      )
      expect(made.stderr).toBe('')
      expect(made.stdout).toContain('proposer - propose answers to oracle questions')
      for (const name of Object.keys(verbs))
        expect(made.stdout).toMatch(new RegExp(`^ {3}proposer ${name} `, 'm'))
      expect(made.stdout).toContain(
        'proposer operator allow 0x8ba1f109551bd432803012645ac136ddd64dba72 \\\n',
      )
      expect(made.stdout).toMatch(
        /--until <stage>\s+stop when all have reached this stage; one of validated/,
      )
      expect(made.stdout).toMatch(/EXIT STATUS[\s\S]* {3}6 +The outcome is unknown/)
      expect(made.stdout).not.toMatch(/\\\(|\\\[u/)
    },
  )
})

test.each([
  [['sbumit'], 'submit'],
  [['operator', 'candidats', 'list'], 'candidates'],
  [['operator', 'candidates', 'lst'], 'list'],
  [['funds', 'aprove'], 'approve'],
  [['devchain', 'strat'], 'start'],
  [['poll', '--al'], '--all'],
  [['poll', '--accuont', 'hot'], '--account'],
  [['operator', 'candidates', 'list', '--state', 'execued'], 'executed'],
  [['batch', 'sign', 'f', '--format', 'cvs'], 'csv'],
  [['completion', 'bsah'], 'bash'],
])('contract §6: %j: did you mean %s?', async (argv, meant) => {
  const ran = await run(home.path, [...argv, '--gateway', 'http://127.0.0.1:9', '--json'])
  expect([ran.code, ran.stdout]).toEqual([2, ''])
  const { error } = JSON.parse(ran.stderr) as { error: { hint: string } }
  expect(error.hint.toLowerCase()).toContain(`did you mean ${meant}?`)
})

test.each([
  [['demo', 'zzz']],
  [['demo', '--nope']],
  [['zzzzzz']],
  [['batch', 'sign', 'f', '--format', 'pdf-file']],
])('contract §6: %j: nothing near, no guess', async (argv) => {
  const ran = await run(home.path, argv)
  expect(ran.code).toBe(2)
  expect(ran.stderr).not.toContain('Did you mean')
  expect(ran.stderr).toContain('--help`')
})

describe('contract §6: `proposer` alone tells what to do next, exit 0', () => {
  const page = async (env: Record<string, string> = {}) => {
    const ran = await run(home.path, [], { env })
    expect([ran.code, ran.stderr]).toEqual([0, ''])
    return ran.stdout
  }
  const commandsOf = (text: string) =>
    [...text.matchAll(/proposer [a-z-]+.*/g)]
      .map(([line]) => line)
      .filter((line) => !line.includes('--help'))

  test('nothing set up: the demo, and the commands that set up', async () => {
    const text = await page()
    expect(text).toContain('See it work first:   proposer demo')
    for (const command of [
      'init',
      'account new <name>',
      'trust init --from <file>',
      'doctor',
      'serve --dev',
    ]) {
      expect(text).toContain(`proposer ${command}`)
    }
    expect(
      text.split('\n').filter((line) => line.length > 80 && !line.includes(home.path)),
    ).toEqual([])
  })

  test('partly set up: what is there, and the command for what is missing', async () => {
    mkdirSync(join(home.path, 'keystores'))
    writeFileSync(join(home.path, 'keystores', 'hot.json'), '{}')
    const text = await page({ PROPOSER_GATEWAY: `https://user:${urlSecret}@gateway.example` })
    expect(text).toMatch(/FAIL {2}account: no proposer account selected\n +fix: create one with `/)
    expect(text).toMatch(/FAIL {2}trust: [\s\S]*`proposer trust init --from <file>`/)
    expect(text).toMatch(/note {2}gateway: https:\/\/gateway\.example/)
    expect(text).not.toContain(urlSecret)
    expect(text).toMatch(/ok {4}open: nothing is open/)
    expect(text).toContain(' proposer questions list')
    expect(text).toContain(' proposer submit <question> --outcome <answer> --wait')
    expect(await page({ PROPOSER_ACCOUNT: 'cold', PROPOSER_PROFILE: 'polygon' })).toContain(
      '`proposer trust init --profile polygon --signed-proposer 0x…`',
    )
    expect(await page({ PROPOSER_PROFILE: 'dev' })).toMatch(
      /ok {4}trust: pins chain 31337 by the built-in profile dev/,
    )
  })

  test('flags alone say whose page it is: `proposer --profile polygon`', async () => {
    const ran = await run(home.path, '--profile polygon')
    expect(ran).toMatchObject({ code: 0, stderr: '' })
    expect(ran.stdout).toContain('proposer trust init --profile polygon --signed-proposer 0x…')
    const other = join(home.path, 'other')
    expect((await run(home.path, ['--home', other])).stdout).toContain(
      `proposer doctor --home ${other}`,
    )
    expect(await run(home.path, '--json')).toMatchObject({ code: 2, stdout: '' })
    expect((await run(home.path, '--profil polygon')).code).toBe(2)
  })

  test('something open: how much of each kind, the command for the gravest, and no secret', async () => {
    await liveIn(home.path)
    const text = await page({ PROPOSER_KEY_FILE: './key' })
    expect(text).toMatch(
      /WARN {2}open: 1 unknown, 1 deferred, 1 conflict, 1 accepted, 1 signed\n +fix: `proposer replay --all`/,
    )
    expect(text).toContain(' proposer journal list --open')
    expect(commandsOf(text.replace(/`:?/g, ' ')).flatMap(unknownFlags)).toEqual([])
    expect(text).not.toMatch(new RegExp(`${signatureMark}|${urlSecret}|${candidates.sunny}`))
  })

  test('R24: it changes nothing, and what is damaged is told with its remedy', async () => {
    writeFileSync(join(home.path, 'config.json'), 'no json')
    const text = await page()
    expect(text).toContain('config.json is not a JSON object')
    expect(text).toContain('proposer config set')
    expect(readFileSync(join(home.path, 'config.json'), 'utf8')).toBe('no json')
  })
})
