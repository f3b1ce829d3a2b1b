import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { verbs } from '../../src/commands/program.js'
import { profileKeys } from '../../src/commands/session/settings.js'
import { exit } from '../../src/core/protocol/errors.js'
import { limits } from '../../src/core/protocol/schema.js'

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

describe('README', () => {
  test('every npm script it names is there, and it names the test command', () => {
    const named = [...readme.matchAll(/`npm (?:run )?([a-z]+)/g)].map(([, name]) => name ?? '')
    expect(named).toContain('test')
    expect(named.filter((name) => name !== 'ci' && !(name in manifest.scripts))).toEqual([])
    expect(readme).toContain('npm ci\nnpm run demo')
  })

  test('its commands are those of the program, each once', () => {
    const named = firstCells('## Commands').map((cell) => /^`([a-z]+)/.exec(cell)?.[1])
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
