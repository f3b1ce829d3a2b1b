import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { verbs } from '../../src/commands/program.js'
import { profileKeys } from '../../src/commands/session/settings.js'
import { exit } from '../../src/core/protocol/errors.js'
import { limits } from '../../src/core/protocol/schema.js'
import { everyBlock, section } from '../support/readme.js'

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..')
const readme = readFileSync(join(root, 'README.md'), 'utf8')
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  scripts: Record<string, string>
  engines: { node: string }
}

/** First cells of the rows of the table under a heading. */
function firstCells(heading: string): string[] {
  const table = readme
    .slice(readme.indexOf(heading))
    .split(/\n\n/)
    .find((block) => block.startsWith('|'))
  return (table ?? '')
    .split('\n')
    .slice(2)
    .map((row) => row.split(/(?<!\\)\|/)[1]?.trim() ?? '')
}

/** Which test runs the shell code below a heading, or why none does. */
const ranBy: Readonly<Record<string, { readonly file: string } | { readonly reason: string }>> = {
  'Two commands': { reason: 'every run of the tests comes after npm ci; test/e2e/demo.test.ts runs the demo' },
  'A session to paste': { file: 'test/e2e/readme-proposer.test.ts' },
  "A day's work": { file: 'test/e2e/readme-proposer.test.ts' },
  'Set up once': { file: 'test/e2e/readme-proposer.test.ts' },
  'Tab key and manual': { file: 'test/e2e/readme-proposer.test.ts' },
  'Asking for support': { file: 'test/e2e/readme-proposer.test.ts' },
  'Running a gateway': { file: 'test/e2e/readme-operator.test.ts' },
  'A smoke test': { file: 'test/e2e/smoke-recipe.test.ts' },
  'Any gateway': { file: 'test/e2e/smoke-recipe.test.ts' },
}

/** As the reader's browser makes anchors of headings. */
const anchorOf = (title: string) =>
  title
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-')

describe('README', () => {
  test('all its shell code is run by a test, or the reason why not is listed here', () => {
    const shells = everyBlock().filter(({ language }) => /^(sh|bash|shell|console)?$/.test(language))
    expect(shells.filter(({ language }) => language !== 'sh')).toEqual([])
    expect([...new Set(shells.map(({ heading }) => heading))].sort()).toEqual(Object.keys(ranBy).sort())
    for (const [heading, by] of Object.entries(ranBy)) {
      if ('file' in by) expect(readFileSync(join(root, by.file), 'utf8')).toMatch(new RegExp(`section\\(['"]${heading}['"]\\)`))
    }
    expect(manifest.scripts.demo).toBe('node bin/proposer.js demo')
  })

  test('its pages are for proposers, operators, CI, the doubtful and programmers, in this order', () => {
    const pages = [...readme.matchAll(/^## (.*)$/gm)].map(([, title]) => title)
    expect(pages).toEqual([
      'Two commands',
      'A session to paste',
      'For proposers',
      'Running a gateway',
      'In CI',
      'Trust',
      'Library',
      'Speed',
      'Limits',
      'Working on it',
    ])
  })

  test.each(['README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md'])(
    'links in %s lead to headings and files that are there',
    (name) => {
      const text = readFileSync(join(root, name), 'utf8')
      const anchors = new Set([...text.matchAll(/^#+ (.*)$/gm)].map(([, title = '']) => `#${anchorOf(title)}`))
      const targets = [...text.matchAll(/\]\(([^)]+)\)/g)].map(([, target = '']) => target).filter((target) => !/^https:/.test(target))
      expect(targets.filter((target) => (target.startsWith('#') ? !anchors.has(target) : !existsSync(join(root, target))))).toEqual([])
    },
  )

  test('the paths and scripts that CONTRIBUTING.md names are there, and the functions it walks through', () => {
    const text = readFileSync(join(root, 'CONTRIBUTING.md'), 'utf8')
    const paths = [...text.matchAll(/`((?:src|test|bin|fixtures|scripts)\/[\w./-]+)`/g)].map(([, path = '']) => path)
    expect(paths.length).toBeGreaterThan(15)
    // `x.test.ts` stands for any.
    expect(paths.filter((path) => !existsSync(join(root, path)))).toEqual([])
    const scripts = [...text.matchAll(/npm run ([a-z:]+)/g)].map(([, name = '']) => name)
    expect(scripts.filter((name) => !(name in manifest.scripts))).toEqual([])
    const source = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'))
    const code = source.map((name) => readFileSync(join(root, 'src', name), 'utf8')).join('\n')
    const walked = ['start', 'runFront', 'verbs', 'wireFailures', 'requesterKinds', 'checkContext', 'eligibility']
    for (const name of walked) {
      expect(text).toContain(name)
      expect(code).toMatch(new RegExp(`(export (async )?(function|const|type|interface) ${name}\\b)|(\\b${name}\\()`))
    }
  })

  test('CHANGELOG.md is in the form of Keep a Changelog, newest first', () => {
    const text = readFileSync(join(root, 'CHANGELOG.md'), 'utf8')
    const versions = [...text.matchAll(/^## (.*)$/gm)].map(([, title]) => title)
    expect(versions[0]).toBe('[Unreleased]')
    for (const title of versions.slice(1)) expect(title).toMatch(/^\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}$/)
    const kinds = [...text.matchAll(/^### (.*)$/gm)].map(([, kind]) => kind)
    expect(kinds.filter((kind) => !/^(Added|Changed|Deprecated|Removed|Fixed|Security)$/.test(kind ?? ''))).toEqual([])
  })

  test('every campaign that it gives figures of is one, and none is left out', () => {
    const rows = section('Trust')
      .split('\n')
      .filter((line) => /^\| `/.test(line))
    const named = rows.flatMap((row) => [...(row.split('|')[1] ?? '').matchAll(/[a-z][a-z-]+/g)].map(([name]) => name))
    const files = readdirSync(join(root, 'test', 'campaign')).map((name) => name.replace('.test.ts', ''))
    expect(named.filter((name) => !files.some((file) => file.startsWith(name)))).toEqual([])
    expect(files.filter((file) => !named.some((name) => file.startsWith(name)))).toEqual([])
  })

  test('every npm script it names is there, and it names the test command', () => {
    const named = [...readme.matchAll(/`npm (?:run )?([a-z]+)/g)].map(([, name]) => name ?? '')
    expect(named).toContain('test')
    expect(named.filter((name) => !['ci', 'install'].includes(name) && !(name in manifest.scripts))).toEqual([])
    expect(readme).toContain('npm ci\nnpm run demo')
  })

  test('its commands are those of the program, each once', () => {
    const named = firstCells('### Commands').map((cell) => /^`([a-z-]+)/.exec(cell)?.[1])
    expect([...named].sort()).toEqual(Object.keys(verbs).sort())
  })

  test('its exit codes are those of contract §6', () => {
    const exits = readme.slice(readme.indexOf('| Exit |')).split('\n\n')[0] ?? ''
    const codes = exits
      .split('\n')
      .slice(2)
      .map((row) => Number(row.split('|')[1]))
    expect(codes).toEqual(Object.values(exit))
  })

  test('it names every variable that is a setting', () => {
    for (const { variable } of Object.values(profileKeys)) expect(readme).toContain(`\`${variable}\``)
  })

  test('its limits are the ones that are built in, and the Node.js it asks for is the one of the package', () => {
    expect(readme).toContain(`${limits.signatureBytes.toLocaleString('en')} bytes`)
    expect(readme).toContain(`1–${limits.batchItems}`)
    expect(manifest.engines.node).toBe('>=20.18.1')
    expect(readme).toContain('Node.js 20.18')
  })
})
