import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { profileKeys } from '../../src/commands/session/settings.js'
import { verbs } from '../../src/commands/verbs.js'
import { limits } from '../../src/core/protocol/words.js'
import { pages, pageText, root, section } from '../support/readme.js'

const readme = pageText('README.md')
const configuration = pageText('docs/reference/configuration.md')
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  scripts: Record<string, string>
  engines: { node: string }
}

describe('README', () => {
  test('it is short, and its pages are in the order of a first day', () => {
    expect(Buffer.byteLength(readme)).toBeLessThanOrEqual(8_192)
    const titles = [...readme.matchAll(/^## (.*)$/gm)].map(([, title]) => title)
    expect(titles).toEqual([
      'Two commands',
      'A first session',
      'Where to go on',
      'What it promises',
      'Working on it',
    ])
    expect(manifest.scripts.demo).toBe('node bin/proposer.js demo')
  })

  test('the scripts that pages name are there, and so are the functions that the architecture walks through', () => {
    const texts = [...pages, 'CONTRIBUTING.md'].map(pageText).join('\n')
    const scripts = [...texts.matchAll(/npm run ([a-z0-9:]+)/g)].map(([, name = '']) => name)
    expect(scripts.filter((name) => !(name in manifest.scripts))).toEqual([])
    const source = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' }).filter(
      (name) => name.endsWith('.ts'),
    )
    const code = source.map((name) => readFileSync(join(root, 'src', name), 'utf8')).join('\n')
    const walked = [
      'start',
      'runFront',
      'verbs',
      'wireFailures',
      'failures',
      'requesterKinds',
      'checkContext',
      'eligibility',
      'wireStatus',
    ]
    for (const name of walked) {
      expect(pageText('docs/architecture.md')).toContain(name)
      expect(code).toMatch(
        new RegExp(`(export (async )?(function|const|type|interface) ${name}\\b)|(\\b${name}\\()`),
      )
    }
  })

  test('CHANGELOG.md is in the form of Keep a Changelog, newest first', () => {
    const text = readFileSync(join(root, 'CHANGELOG.md'), 'utf8')
    const versions = [...text.matchAll(/^## (.*)$/gm)].map(([, title]) => title)
    expect(versions[0]).toBe('[Unreleased]')
    for (const title of versions.slice(1))
      expect(title).toMatch(/^\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}$/)
    const kinds = [...text.matchAll(/^### (.*)$/gm)].map(([, kind]) => kind)
    expect(
      kinds.filter(
        (kind) => !/^(Added|Changed|Deprecated|Removed|Fixed|Security)$/.test(kind ?? ''),
      ),
    ).toEqual([])
  })

  test('every campaign that it gives figures of is one, and none is left out', () => {
    const rows = section('What was tried to break it', 'docs/trust.md')
      .split('\n')
      .filter((line) => /^\| `/.test(line))
    const named = rows.flatMap((row) =>
      [...(row.split('|')[1] ?? '').matchAll(/[a-z][a-z-]+/g)].map(([name]) => name),
    )
    const files = readdirSync(join(root, 'test', 'campaign')).map((name) =>
      name.replace('.test.ts', ''),
    )
    expect(named.filter((name) => !files.some((file) => file.startsWith(name)))).toEqual([])
    expect(files.filter((file) => !named.some((name) => file.startsWith(name)))).toEqual([])
  })

  test('every npm script it names is there, and it names the test command', () => {
    const named = [...readme.matchAll(/`npm (?:run )?([a-z0-9:]+)/g)].map(([, name]) => name ?? '')
    expect(named).toContain('test')
    expect(
      named.filter((name) => !['ci', 'install'].includes(name) && !(name in manifest.scripts)),
    ).toEqual([])
    expect(readme).toContain('npm ci\nnpm run demo')
  })

  test('the commands of the reference are those of the program, each once', () => {
    const named = [...pageText('docs/reference/commands.md').matchAll(/^- \[`([a-z-]+)/gm)].map(
      ([, name]) => name,
    )
    expect(named).toEqual(Object.keys(verbs))
  })

  test('the reference names every variable that is a setting', () => {
    for (const { variable } of Object.values(profileKeys))
      expect(configuration).toContain(`\`${variable}\``)
  })

  test('the limits are the ones that are built in, and the Node.js that README asks for is the one of the package', () => {
    expect(configuration).toContain(`${limits.signatureBytes.toLocaleString('en')} bytes`)
    expect(configuration).toContain(`1–${limits.batchItems}`)
    expect(manifest.engines.node).toBe('>=20.18.1')
    expect(readme).toContain('Node.js 20.18')
  })
})
