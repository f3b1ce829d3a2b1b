/** What a command loads before it does anything: the parts of the build, by the modules that are in them. */
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { cp, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test } from 'vitest'
import sample from '../../scripts/sample-question.json' with { type: 'json' }
import { run } from '../support/cli.js'
import { workshop } from '../support/processes.js'

const { context, key, trust } = sample
const shop = workshop()
afterAll(() => shop.clean())
const root = fileURLToPath(new URL('../..', import.meta.url))

/** Runs a command as bin/proposer.js does, and tells which modules of packages are in the parts that it loaded, and which of node. */
function loadedBy(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const script = `
    const { load, loaded, functions } = require('./bin/load.js')
    process.argv.splice(1, Infinity, 'proposer', ...${JSON.stringify(args)})
    load('main.js').start(process).then(() => process.stderr.write('LOADED ' + JSON.stringify([...loaded.keys()].map((name) => String(functions.get(name)))) + '\\n'))`
  const { stdout, stderr } = spawnSync(process.execPath, ['-e', script], {
    cwd: root,
    encoding: 'utf8',
    env: { PATH: process.env.PATH ?? '', ...env },
  })
  const parts = JSON.parse(/^LOADED (.*)$/m.exec(stderr)?.[1] ?? 'null') as string[] | null
  if (parts === null) throw new Error(`nothing was loaded: ${stderr}`)
  const text = parts.join('\n')
  return { packages: Object.keys(marks).filter((name) => marks[name]?.test(text)), parts: parts.length, stdout }
}

/** A name that only this package's code has. */
const marks: Readonly<Record<string, RegExp>> = {
  commander: /CommanderError/,
  zod: /ZodError/,
  viem: /AbiFunctionNotFoundError/,
  '@noble/curves': /weierstrass|ProjectivePoint/,
  undici: /UndiciError|UND_ERR/,
  hono: /HonoRequest/,
  conf: /clearInvalidConfig:/,
}

test('contract §6: --version and --help load no package, the help of a command none but commander', () => {
  for (const flag of ['--version', '--help']) {
    const { packages, parts } = loadedBy([flag])
    expect(packages).toEqual([])
    expect(parts).toBeLessThan(6)
  }
  expect(loadedBy(['sign', '--help']).packages).toEqual(['commander'])
})

test.each([80, 100])('the page of --help in the build is what commander prints at %d columns', async (columns) => {
  const made = await run(root, ['--help'], { columns })
  expect(made).toMatchObject({ code: 0, stderr: '' })
  const page = readFileSync(join(root, 'dist', 'program', `help-${columns}.txt`), 'utf8')
  expect(page).toContain('Usage: proposer')
  expect(made.stdout).toBe(page)
})

test('a pipe gets the page of 80 columns, by each of its names', () => {
  const page = readFileSync(join(root, 'dist', 'program', 'help-80.txt'), 'utf8')
  for (const name of ['--help', '-h', 'help']) {
    const { status, stdout, stderr } = spawnSync(process.execPath, [join(root, 'bin', 'proposer.js'), name], { encoding: 'utf8' })
    expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: page, stderr: '' })
  }
})

test.runIf(process.platform === 'linux')(
  'contract §6: --version and --help that cannot be written end with 74, and in peace where the reader has left',
  () => {
    const bin = `'${process.execPath}' '${join(root, 'bin', 'proposer.js')}'`
    for (const flag of ['--version', '--help']) {
      expect(spawnSync('sh', ['-c', `${bin} ${flag} > /dev/full`], { encoding: 'utf8' })).toMatchObject({ status: 74, stdout: '' })
      const left = spawnSync('bash', ['-c', `{ sleep 0.2; ${bin} ${flag}; echo "ended with $?" >&2; } | true`], { encoding: 'utf8' })
      expect(left.stderr).toBe('ended with 0\n')
    }
  },
)

test('sign loads neither zod nor viem, nor @noble/curves, nor an HTTP client where it asks nobody', async () => {
  const home = await shop.folder()
  const write = (name: string, text: string) => {
    writeFileSync(join(home, name), text, { mode: 0o600 })
    return join(home, name)
  }
  const env = { PROPOSER_HOME: home, PROPOSER_KEY_FILE: write('key', key), PROPOSER_TRUST: write('trust.json', JSON.stringify(trust)) }
  const offline = ['--outcome', 'p1', '--context', write('context.json', JSON.stringify(context)), '--json']
  const signed = loadedBy(['sign', context.question_id, ...offline], env)
  expect(JSON.parse(signed.stdout)).toMatchObject({ schema: 'proposer.signed/1', reused: false })
  expect(signed.packages).toEqual(['commander'])
  // The marks do find what is there.
  expect(loadedBy(['funds', '--home', home]).packages).toContain('viem')
})

test('a pattern keeps the letters beyond ASCII that it looks for', () => {
  const folder = join(root, 'dist', 'program')
  const names = readdirSync(folder).filter((name) => name.endsWith('.js'))
  const text = names.map((name) => readFileSync(join(folder, name), 'utf8')).find((each) => each.includes('withoutNodeWords='))
  expect(text).toContain('“[^”]*')
})

test('the code cache that the build leaves is used for every file that sign and a call of a gateway begin with', async () => {
  const copy = await shop.folder()
  for (const name of ['bin', 'dist/program', 'scripts', 'package.json']) await cp(join(root, name), join(copy, name), { recursive: true })
  await symlink(join(root, 'node_modules'), join(copy, 'node_modules'))
  const made = spawnSync(process.execPath, [join(copy, 'scripts', 'code-cache.js')], { encoding: 'utf8', env: { PATH: process.env.PATH } })
  expect(made).toMatchObject({ status: 0, stdout: '', stderr: '' })
  const script = `
    const { load, scripts, folder } = require('./bin/load.js')
    const { start } = load('main.js')
    const sink = { write: () => true }
    const help = (verb) => {
      process.argv.splice(1, Infinity, 'proposer', verb, '--help')
      return start(process, { streams: { stdout: sink, stderr: sink } })
    }
    help('sign').then(() => help('eligibility')).then(() => {
      load(require('node:fs').readdirSync(folder).find((name) => /^http-.*[.]js$/.test(name)))
      console.log(JSON.stringify([...scripts].map(([name, { cachedDataRejected }]) => [name, cachedDataRejected])))
    })`
  const { stdout } = spawnSync(process.execPath, ['-e', script], { cwd: copy, encoding: 'utf8' })
  const files = JSON.parse(stdout) as [string, boolean | undefined][]
  expect(files.length).toBeGreaterThan(5)
  // The first file has none.
  expect(files.filter(([name, isRejected]) => name !== 'main.js' && isRejected !== false)).toEqual([])
})

test('a code cache that is damaged, or of another node, is not used', async () => {
  const copy = await shop.folder()
  for (const name of ['bin', 'dist/program', 'package.json']) await cp(join(root, name), join(copy, name), { recursive: true })
  const help = () => spawnSync(process.execPath, [join(copy, 'bin', 'proposer.js'), '--help'], { encoding: 'utf8' })
  const { stdout } = help()
  expect(stdout).toContain('Usage: proposer')
  const list = join(copy, 'dist', 'program')
  for (const name of readdirSync(list)) {
    if (name.endsWith('.cache')) rmSync(join(list, name))
    else if (name.endsWith('.js')) writeFileSync(join(list, `${name}.cache`), 'not what V8 wrote')
  }
  expect(help()).toMatchObject({ status: 0, stderr: '', stdout })
})
