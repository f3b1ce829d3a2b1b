/**
 * What a command loads before it does anything: the parts of the build, by the modules that are in
 * them.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { argvOf } from '#support/argv'
import { run } from '#support/cli'
import { workshop } from '#support/processes'
import sample from '../support/sample-question.json' with { type: 'json' }

const { context, key, trust } = sample
const shop = workshop()
const root = join(import.meta.dirname, '../..')
const bin = join(root, 'bin', 'proposer.js')

const asUrl = (code: string) => `data:text/javascript,${encodeURIComponent(code)}`
const telling = asUrl(`import { writeSync } from 'node:fs'
import { createRequire } from 'node:module'
const { cache } = createRequire('/')
process.on('exit', () => writeSync(2, Object.keys(cache).map((path) => 'LOADED ' + path + '\\n').join('')))`)

function loadedBy(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const { stdout, stderr } = spawnSync(process.execPath, ['--import', telling, bin, ...args], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH ?? '', ...env },
  })
  const parts = [...stderr.matchAll(/^LOADED (.*\/dist\/.*)$/gm)].map(([, path = '']) => path)
  expect(parts.length, stderr).toBeGreaterThan(0)
  const text = parts.map((path) => readFileSync(path, 'utf8')).join('\n')
  return { packages: Object.keys(marks).filter((name) => marks[name]?.test(text)), stdout }
}

const marks: Readonly<Record<string, RegExp>> = {
  commander: /CommanderError2? = class/,
  // All of it: what `sign` reads its files by is zod/mini.
  zod: /"ZodType"/,
  viem: /AbiFunctionNotFoundError/,
  '@noble/curves': /weierstrass|ProjectivePoint/,
  undici: /UndiciError/,
  conf: /clearInvalidConfig:/,
}

test('contract §6: --version loads no package, the help of a command none but commander', () => {
  expect(loadedBy(['--version']).packages).toEqual([])
  expect(loadedBy(['--help']).packages).toEqual(['commander'])
  expect(loadedBy(['sign', '--help']).packages).toEqual(['commander'])
})

test('a mistyped command loads what --help loads, and what it is compared with', () => {
  expect(loadedBy(['nope']).packages).toEqual(['commander'])
  expect(loadedBy(['copy']).packages).toEqual(['commander'])
})

test('--help is the same page by each of its names', async () => {
  const { stdout: page } = await run(root, ['--help'], { columns: 80 })
  expect(page).toContain('Usage: proposer')
  for (const name of argvOf`--help -h help`) {
    const { status, stdout, stderr } = spawnSync(process.execPath, [bin, name], {
      encoding: 'utf8',
    })
    expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: page, stderr: '' })
  }
})

test.runIf(process.platform === 'linux')(
  'contract §6: --version and --help that cannot be written end with 74, and in peace where the reader has left',
  () => {
    const command = `'${process.execPath}' '${bin}'`
    for (const flag of ['--version', '--help']) {
      expect(
        spawnSync('sh', ['-c', `${command} ${flag} > /dev/full`], { encoding: 'utf8' }),
      ).toMatchObject({ status: 74, stdout: '' })
      const left = spawnSync(
        'bash',
        ['-c', `{ sleep 0.2; ${command} ${flag}; echo "ended with $?" >&2; } | true`],
        { encoding: 'utf8' },
      )
      expect(left.stderr).toBe('ended with 0\n')
    }
  },
)

const tellingListeners = asUrl(`import { writeSync } from 'node:fs'
process.on('exit', () => {
  const counts = process.eventNames().map((name) => [String(name), process.listenerCount(name)])
  writeSync(2, 'LISTENERS ' + JSON.stringify(Object.fromEntries(counts)) + '\\n')
})`)

test('R26: each signal has one listener, ours, also once preferences were read and written', async () => {
  const env = { PROPOSER_HOME: await shop.folder(), NODE_OPTIONS: `--import=${tellingListeners}` }
  const listeners = async (...args: string[]) => {
    const { code, stderr } = await shop.run(args, { env })
    expect(code, stderr).toBe(0)
    return JSON.parse(/^LISTENERS (.*)$/m.exec(stderr)?.[1] ?? '')
  }
  const before = await listeners('config', 'list')
  const signals = Object.keys(before).filter((name) => name.startsWith('SIG'))
  expect(signals.sort()).toEqual(['SIGHUP', 'SIGINT', 'SIGTERM'])
  for (const signal of signals) expect(before[signal]).toBe(1)
  expect(await listeners('config', 'set', 'account', 'hot')).toEqual(before)
  expect(await listeners('config', 'list')).toEqual(before)
})

function partsOf(path: string, found = new Set<string>()): ReadonlySet<string> {
  if (found.has(path)) return found
  found.add(path)
  for (const [, name = ''] of readFileSync(path, 'utf8').matchAll(/["'](\.[\w./-]*\.js)["']/g))
    if (existsSync(join(path, '..', name))) partsOf(join(path, '..', name), found)
  return found
}

test('R26: no part of the build listens to the process by being loaded, but what writes preferences', () => {
  const loading = `const counts = () => process.eventNames().map((name) => [name, process.listenerCount(name)]).join()
for (const part of ${JSON.stringify([...partsOf(join(root, 'dist', 'main.js'))])}) {
  const before = counts()
  await import(part)
  if (counts() !== before) console.log(part)
}`
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', loading], {
    encoding: 'utf8',
  })
  expect(stderr).toBe('')
  const texts = stdout
    .trim()
    .split('\n')
    .map((part) => readFileSync(part, 'utf8'))
  expect(texts.map((text) => marks.conf?.test(text))).toEqual([true])
  expect(texts.some((text) => text.includes('config_unreadable'))).toBe(false)
})

test('sign loads neither zod nor viem, nor @noble/curves, nor an HTTP client where it asks nobody', async () => {
  const home = await shop.folder()
  const write = (name: string, text: string) => {
    writeFileSync(join(home, name), text, { mode: 0o600 })
    return join(home, name)
  }
  const env = {
    PROPOSER_HOME: home,
    PROPOSER_KEY_FILE: write('key', key),
    PROPOSER_TRUST: write('trust.json', JSON.stringify(trust)),
  }
  const offline = argvOf`--outcome p1 --context
    ${write('context.json', JSON.stringify(context))} --json`
  const signed = loadedBy(['sign', context.question_id, ...offline], env)
  expect(JSON.parse(signed.stdout)).toMatchObject({ schema: 'proposer.signed/1', reused: false })
  expect(signed.packages).toEqual(['commander'])
  expect(loadedBy(['funds', '--home', home]).packages).toContain('viem')
})

test('a pattern keeps the letters beyond ASCII that it looks for', () => {
  const folder = join(root, 'dist', 'parts')
  const texts = readdirSync(folder).map((name) => readFileSync(join(folder, name), 'utf8'))
  expect(texts.find((each) => /withoutNodeWords =/.test(each))).toContain('\\u201c[^\\u201d]*')
})

test('a gateway starts on a disk that takes seconds for the token of its admin listener', async () => {
  const slow = asUrl(`import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
const { open } = fs.promises
fs.promises.open = async (path, ...rest) => {
  if (String(path).endsWith('admin.token')) await new Promise((wake) => setTimeout(wake, 2_500))
  return open(path, ...rest)
}
syncBuiltinESMExports()`)
  const serving = shop.start(argvOf`serve --dev --port 0 --questions 1 --json`, {
    env: { NODE_OPTIONS: `--import=${slow}` },
  })
  expect(await serving.line()).toMatchObject({ event: 'ready' })
})
