/** What a command loads before it does anything: the parts of the build, by the modules that are in them. */
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { cp } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, test } from 'vitest'
import sample from '../../scripts/sample-question.json' with { type: 'json' }
import { workshop } from '../support/processes.js'

const { context, key, trust } = sample
const shop = workshop()
afterAll(() => shop.clean())
const root = fileURLToPath(new URL('../..', import.meta.url))

/** Runs a command as bin/proposer.js does, and tells which modules of packages are in the parts that it loaded, and which of node. */
function loadedBy(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const script = `
    const { load, loaded, folder } = require('./bin/load.js')
    process.argv.splice(1, Infinity, 'proposer', ...${JSON.stringify(args)})
    load('main.js').start(process).then(() => process.stderr.write('LOADED ' + JSON.stringify([...loaded.keys()]) + '\\n'))`
  const { stdout, stderr } = spawnSync(process.execPath, ['-e', script], {
    cwd: root,
    encoding: 'utf8',
    env: { PATH: process.env.PATH ?? '', ...env },
  })
  const names = JSON.parse(/^LOADED (.*)$/m.exec(stderr)?.[1] ?? 'null') as string[] | null
  if (names === null) throw new Error(`nothing was loaded: ${stderr}`)
  const text = names.map((name) => readFileSync(join(root, 'dist', 'program', name), 'utf8')).join('\n')
  return { packages: Object.keys(marks).filter((name) => marks[name]?.test(text)), parts: names.length, stdout }
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

test('contract §6: --version loads no package, --help none but commander', () => {
  const version = loadedBy(['--version'])
  expect(version.packages).toEqual([])
  expect(version.parts).toBeLessThan(5)
  expect(loadedBy(['--help']).packages).toEqual(['commander'])
})

test('sign loads neither viem nor @noble/curves nor an HTTP client where it asks nobody', async () => {
  const home = await shop.folder()
  const write = (name: string, text: string) => {
    writeFileSync(join(home, name), text, { mode: 0o600 })
    return join(home, name)
  }
  const env = { PROPOSER_HOME: home, PROPOSER_KEY_FILE: write('key', key), PROPOSER_TRUST: write('trust.json', JSON.stringify(trust)) }
  const offline = ['--outcome', 'p1', '--context', write('context.json', JSON.stringify(context)), '--json']
  const signed = loadedBy(['sign', context.question_id, ...offline], env)
  expect(JSON.parse(signed.stdout)).toMatchObject({ schema: 'proposer.signed/1', reused: false })
  expect(signed.packages).toEqual(['commander', 'zod'])
  // The marks do find what is there.
  expect(loadedBy(['funds', '--home', home]).packages).toContain('viem')
})

test('a pattern keeps the letters beyond ASCII that it looks for', () => {
  const folder = join(root, 'dist', 'program')
  const names = readdirSync(folder).filter((name) => name.endsWith('.js'))
  const text = names.map((name) => readFileSync(join(folder, name), 'utf8')).find((each) => each.includes('withoutNodeWords='))
  expect(text).toContain('“[^”]*')
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
