import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize, relative } from 'node:path'
import { transform } from 'esbuild'

const root = join(import.meta.dirname, '../..')

interface Source {
  readonly path: string
  readonly text: string
  readonly imports: readonly Imported[]
}
interface Imported {
  readonly from: string
  readonly names: string
}

function filesUnder(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.(ts|js)$/.test(entry.name))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)).replaceAll('\\', '/'))
    .filter((path) => !path.includes('/node_modules/'))
}

const importForms = [
  /^(?:import|export)\s([^'"]*?)\sfrom\s'([^']+)'/gm,
  /^import()\s'([^']+)'/gm,
  /\bimport()\(\s*'([^']+)'\s*\)/g,
]

function read(path: string): Source {
  const text = readFileSync(join(root, path), 'utf8')
  const imports = importForms.flatMap((form) =>
    [...text.matchAll(form)].map(([, names = '', specifier = '']) => ({
      names,
      from: specifier.startsWith('.')
        ? normalize(join(dirname(path), specifier)).replaceAll('\\', '/')
        : specifier
            .replace(/^#(?!commands\/|support\/)/, 'src/core/')
            .replace('#commands/', 'src/commands/'),
    })),
  )
  return { path, text, imports }
}

const sources = filesUnder('src').map(read)
/** This file spells out what it looks for. */
const self = 'test/unit/layering.test.ts'
const shipped = [...filesUnder('bin').map(read), ...sources]
const tests = filesUnder('test').map(read)

const folders = new Map(
  [
    ...(readFileSync(join(root, 'docs/architecture.md'), 'utf8')
      .split('## What a folder may import')[1]
      ?.split('\n## ')[0]
      ?.matchAll(/^\| `([\w/]+)` +\| (.*?) *\|$/gm) ?? []),
  ].map(([, folder = '', allowed = '']): [string, readonly string[]] => [
    folder,
    allowed === 'nothing' ? [] : allowed.split(', '),
  ]),
)

const folderOf = (path: string): string | undefined =>
  /^src\/core\/ports(\.[jt]s)?$/.test(path)
    ? 'ports'
    : /^src\/(?:core\/)?(.+)\/[^/]+$/.exec(path)?.[1]

const isCore = ({ path }: Source) =>
  path.startsWith('src/core/') && !/^src\/core\/(io|devchain|host|page)\//.test(path)

/**
 * viem functions that open a connection, hold a key or start a timer; everything else in its root
 * module is arithmetic.
 */
const notPure =
  /\b(create\w*(Client|Transport)|http|webSocket|ipc|custom|fallback|publicActions|walletActions|testActions|ccipRequest)\b/

function allowedInCore({ from, names }: Imported): boolean {
  if (from.startsWith('src/')) return true
  if (from === 'viem') return !notPure.test(names)
  return (
    from === 'zod' ||
    from.startsWith('zod/') ||
    from === 'hash-wasm' ||
    from === 'p-limit' ||
    from === 'lru-cache' ||
    from.startsWith('csv-parse') ||
    from === 'jsonc-parser' ||
    from === 'structured-headers' ||
    from.startsWith('@noble/')
  )
}

const forbiddenGlobals = [
  'process',
  'console',
  'Buffer',
  'fetch',
  'globalThis',
  'performance',
  'setTimeout',
  'setInterval',
  'setImmediate',
  'XMLHttpRequest',
  'WebSocket',
  'Date.now',
  'Math.random',
  'AbortSignal.timeout',
]

/**
 * Which forbidden globals a file really uses: esbuild replaces global references only, so a
 * parameter called `fetch` is none.
 */
async function globalsUsed(source: Source): Promise<string[]> {
  const define = Object.fromEntries(
    forbiddenGlobals.map((name, index) => [name, `FORBIDDEN_GLOBAL_${index}_`]),
  )
  const { code } = await transform(source.text, { loader: 'ts', define, target: 'es2022' })
  const used = forbiddenGlobals.filter((_, index) => code.includes(`FORBIDDEN_GLOBAL_${index}_`))
  return /\bnew Date\(\)/.test(code) ? [...used, 'new Date()'] : used
}

const codeLines = (source: Source) =>
  source.text.split('\n').map((line, index) => ({
    at: `${source.path}:${index + 1}`,
    code: /^\s*(\/\/|\/?\*)/.test(line) ? '' : line,
  }))

test('the rules see the sources', () => {
  expect(sources.length).toBeGreaterThan(20)
  expect(sources.some((source) => source.imports.length > 0)).toBe(true)
  const [first] = folders.keys()
  expect(first).toBe('ports')
  const known = sources.filter(({ path }) => !path.endsWith('.d.ts') && path !== 'src/library.ts')
  expect([...new Set(known.map(({ path }) => folderOf(path)))].sort()).toEqual(
    [...folders.keys()].sort(),
  )
})

test('a folder imports what the table allows it, and may import nothing that it does not', () => {
  const found = new Map([...folders.keys()].map((folder) => [folder, new Set<string>()]))
  for (const { path, imports } of sources) {
    const own = folderOf(path)
    for (const { from } of imports) {
      const other = from.startsWith('src/') ? folderOf(from) : undefined
      if (other !== undefined && other !== own) found.get(own ?? '')?.add(other)
    }
  }
  const sorted = (all: ReadonlyMap<string, Iterable<string>>) =>
    [...all].map(([folder, names]) => `${folder}: ${[...names].sort().join(', ')}`)
  expect(sorted(found)).toEqual(sorted(folders))
})

test('the table has no circle: what a folder may import stands above it', () => {
  const above: string[] = []
  for (const [folder, allowed] of folders) {
    expect(
      allowed.filter((name) => !above.includes(name)),
      folder,
    ).toEqual([])
    above.push(folder)
  }
})

test('core outside io imports only its own rooms, pure libraries and the pure part of viem', () => {
  const broken = sources
    .filter(isCore)
    .flatMap((source) =>
      source.imports
        .filter((imported) => !allowedInCore(imported))
        .map(({ from, names }) => `${source.path} imports ${names} from ${from}`),
    )
  expect(broken).toEqual([])
})

test('core outside io uses no process, console, timer, clock, random, global fetch or Buffer', async () => {
  const broken: string[] = []
  for (const source of sources.filter(isCore)) {
    for (const name of await globalsUsed(source)) broken.push(`${source.path} uses ${name}`)
  }
  expect(broken).toEqual([])
})

test('the rule about globals finds a planted one and leaves a parameter of the same name alone', async () => {
  const planted = (text: string) => globalsUsed({ path: 'src/core/planted.ts', text, imports: [] })
  expect(await planted('export const now = () => Date.now()')).toEqual(['Date.now'])
  expect(await planted('export const get = (fetch: (u: string) => void) => fetch("x")')).toEqual([])
  expect(await planted('export const at = new Date(), then = new Date(5)')).toEqual(['new Date()'])
})

test('the bin loads the built command line and nothing else, the process of a PKCS#11 module nothing of ours', () => {
  const loaded = filesUnder('bin').map((path) => [
    path,
    ...[
      ...readFileSync(join(root, path), 'utf8').matchAll(
        /\b(?:import|from|require)\b\s*\(?'([^']+)'/g,
      ),
    ].map(([, from = '']) => from),
  ])
  expect(loaded.sort()).toEqual([
    ['bin/pkcs11.js', 'node:os', 'node:timers/promises', 'node:worker_threads', 'pkcs11js'],
    ['bin/proposer.js', '../dist/main.js'],
  ])
})

describe('hygiene', () => {
  const found = (where: readonly Source[], pattern: RegExp) =>
    where.flatMap((source) =>
      codeLines(source)
        .filter(({ code }) => pattern.test(code))
        .map(({ at, code }) => `${at} ${code.trim()}`),
    )

  test('no file we ship is longer than 600 lines', () => {
    const long = shipped
      .map(({ path, text }) => ({ path, lines: text.split('\n').length - 1 }))
      .filter(({ lines }) => lines > 600)
    expect(long).toEqual([])
  })

  test('nothing is typed any, and no type error or lint rule is silenced', () => {
    expect(
      found(
        [...shipped, ...tests.filter(({ path }) => path !== self)],
        /\bas any\b|:\s*any\b|<any>|\bany\[\]/,
      ),
    ).toEqual([])
    const silenced = [...shipped, ...tests].filter(
      ({ path, text }) =>
        path !== self &&
        /@ts-(ignore|expect-error|nocheck)|biome-ignore \S*(noExplicitAny|noNonNullAssertion|noConsole|noFloatingPromises)/.test(
          text,
        ),
    )
    expect(silenced.map(({ path }) => path)).toEqual([])
  })

  test('no file we ship prints by console', () => {
    expect(found(shipped, /\bconsole\s*\./)).toEqual([])
  })

  test('nothing is left for later and no test is switched off', () => {
    const left = [...shipped, ...tests].filter(
      ({ path, text }) => path !== self && /\b(TODO|FIXME|XXX)\b/.test(text),
    )
    expect(left.map(({ path }) => path)).toEqual([])
    expect(
      found(
        tests.filter(({ path }) => path !== self),
        /\b(test|it|describe)\.(skip|only|todo)\b/,
      ),
    ).toEqual([])
  })

  test('no drawer for everything: no utils, types or index file', () => {
    expect(
      shipped
        .filter(({ path }) => /\/(utils?|types|index|helpers)\.(ts|js)$/.test(path))
        .map(({ path }) => path),
    ).toEqual([])
  })
})
