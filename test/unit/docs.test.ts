import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parseTrust } from '#client/trust/trust'
import { failures, wireFailures } from '#protocol/codes'
import { exit } from '#protocol/errors'
import {
  anchorOf,
  blocksIn,
  everyBlock,
  headingsOf,
  isShown,
  pages,
  pageText,
  root,
  runnerOf,
  runners,
  section,
} from '#support/readme'
import { withCodes } from '../../scripts/manual-pages.js'

const filesIn = (folders: readonly string[], pattern: RegExp) =>
  folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => pattern.test(name) && !name.includes('node_modules/'))
      .map((name) => `${folder}/${name}`),
  )

const rowsOf = (heading: string, page: string): readonly (readonly string[])[] =>
  (section(heading, page).match(/(?:^\|.*\n?)+/m)?.[0] ?? '')
    .trimEnd()
    .split('\n')
    .slice(2)
    .map((row) =>
      row
        .split(/(?<!\\)\|/)
        .slice(1, -1)
        .map((cell) => cell.trim().replaceAll('`', '')),
    )

const texts = [...pages, 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md']
const anchorsOf = (page: string) =>
  new Set(headingsOf(pageText(page)).map(({ title }) => anchorOf(title)))

test.each(texts)('%s: each leads to a file and a heading that are there', (page) => {
  const prose = pageText(page).replaceAll(/^```.*?^```$/gms, '')
  const targets = [...prose.matchAll(/\]\(([^)]+)\)/g)]
    .map(([, target = '']) => target)
    .filter((target) => !/^https:/.test(target))
  const broken = targets.filter((target) => {
    const [path = '', anchor] = target.split('#')
    const file = path === '' ? page : join(dirname(page), path)
    return !existsSync(join(root, file)) || (anchor !== undefined && !anchorsOf(file).has(anchor))
  })
  expect(broken).toEqual([])
})

test('README leads to every page', () => {
  const named = [...pageText('README.md').matchAll(/\]\((docs\/[^)#]+)/g)].map(
    ([, target]) => target,
  )
  expect(pages.filter((page) => page !== 'README.md' && !named.includes(page))).toEqual([])
})

test('paths in backticks are there', () => {
  const named = [...pages, 'CONTRIBUTING.md'].flatMap((page) =>
    [...pageText(page).matchAll(/`((?:src|test|bin|fixtures|scripts)\/[\w./-]+)`/g)].map(
      ([, path = '']) => path,
    ),
  )
  expect(named.length).toBeGreaterThan(50)
  expect(named.filter((path) => !existsSync(join(root, path)))).toEqual([])
})

describe('code blocks', () => {
  test('every one is run by a test, is a picture, or says in its fence why it is not run', () => {
    const blocks = everyBlock().filter((block) => !isShown(block))
    const left = blocks.filter(({ notRun }) => notRun !== undefined)
    process.stderr.write(
      left.map(({ page, heading, notRun }) => `not run: ${page}, ${heading}: ${notRun}\n`).join(''),
    )
    const nobodys = blocks.filter(
      (block) =>
        block.notRun === undefined && block.language !== 'sh' && runnerOf(block) === undefined,
    )
    expect(
      nobodys.map(({ page, heading, language }) => `${page}, ${heading}: ${language}`),
    ).toEqual([])
  })

  test.each(runners)('$page, $heading: $file runs blocks of it', (runner) => {
    const { page, heading, languages, file } = runner
    const own = everyBlock().filter(
      (block) => block.notRun === undefined && runnerOf(block) === runner,
    )
    expect([...new Set(own.map(({ language }) => language))].sort()).toEqual([...languages].sort())
    const source = readFileSync(join(root, file), 'utf8')
    if (page !== 'README.md') expect(source).toContain(`'${page}'`)
    if (heading !== undefined) expect(source).toMatch(new RegExp(`section\\(['"]${heading}['"]`))
  })

  test('contract §7: the trust file that is shown is one', () => {
    const [code = ''] = blocksIn(section('trust.json', 'docs/reference/configuration.md'), 'json')
    expect(parseTrust(JSON.parse(code), 'docs').requesters).toHaveLength(1)
  })
})

test('an invariant names tests that name it, wherever there are any', () => {
  const titles = new Map(
    filesIn(['test'], /\.ts$/).map((name) => [
      name.slice('test/'.length).replace(/(\.test)?\.ts$/, ''),
      readFileSync(join(root, name), 'utf8'),
    ]),
  )
  const rows = [...pageText('docs/invariants.md').matchAll(/^### (R\d+): .*?\n(.*?)(?=^#)/gms)].map(
    ([, mark = '', text = '']) => ({
      mark,
      tests: [...(/^Tests: (.*)$/m.exec(text)?.[1] ?? '').matchAll(/`([^`]+)`/g)].map(
        ([, name = '']) => name,
      ),
    }),
  )
  expect(rows.map(({ mark }) => mark)).toEqual(
    Array.from({ length: 27 }, (_, index) => `R${index + 1}`),
  )
  const names = (mark: string, text: string | undefined) =>
    new RegExp(`\\b${mark}\\b`).test(text ?? '')
  expect(
    rows.flatMap(({ mark, tests }) =>
      tests.filter((one) => !names(mark, titles.get(one))).map((one) => `${mark}: ${one}`),
    ),
  ).toEqual([])
  const silent = rows.filter(({ tests }) => tests.length === 0).map(({ mark }) => mark)
  const named = silent.filter((mark) =>
    [...titles].some(([name, text]) => name !== 'unit/docs' && names(mark, text)),
  )
  expect(named).toEqual([])
})

test('contract §2, §5: the tables of codes are those of the code', () => {
  const page = pageText('docs/reference/error-codes.md')
  expect(withCodes(page, wireFailures, failures)).toBe(page)
  expect(rowsOf('Codes of the gateway', 'docs/reference/error-codes.md')).toHaveLength(
    Object.keys(wireFailures).length,
  )
})

test('contract §6: the codes of the command line stand below the exit code of their kind of error', () => {
  const kinds = {
    Usage: 2,
    Rejected: 3,
    Unauthorized: 4,
    Conflict: 5,
    Uncertain: 6,
    Failed: 7,
    Pending: 8,
    Storage: 74,
    Unavailable: 75,
    Interrupted: 130,
  }
  const thrown = filesIn(['src'], /\.ts$/).flatMap((name) =>
    [...readFileSync(join(root, name), 'utf8').matchAll(/new (\w+)Error\(\s*'([a-z_]+)'/g)]
      .filter(([, kind = '']) => Object.hasOwn(kinds, kind))
      .map(([, kind, code]) => `${kinds[kind as keyof typeof kinds]} ${code}`),
  )
  const listed = [
    ...section('Codes of the command line', 'docs/reference/error-codes.md').matchAll(
      /^- Exit (\d+), [^:]*: (.*)\.$/gm,
    ),
  ].flatMap(([, exitCode, codes = '']) =>
    [...codes.matchAll(/`([a-z_]+)`/g)].map(([, code]) => `${exitCode} ${code}`),
  )
  expect(thrown.filter((one) => !listed.includes(one))).toEqual([])
  // One that is read from a table stands there as a text.
  const source = filesIn(['src'], /\.ts$/).map((name) => readFileSync(join(root, name), 'utf8'))
  const isWritten = (code: string) => source.some((text) => text.includes(`'${code}'`))
  expect(listed.filter((one) => !isWritten(one.split(' ')[1] ?? ''))).toEqual([])
})

test('contract §6: the exit codes are those of the code', () => {
  const codes = rowsOf('Exit codes', 'docs/reference/exit-codes.md').map(([code]) => Number(code))
  expect(codes).toEqual(Object.values(exit))
})
