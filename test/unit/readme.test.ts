import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { profileKeys, variableOf } from '#commands/session/settings'
import { limits } from '#protocol/words'
import { pageText, root } from '#support/readme'

const readme = pageText('README.md')
const configuration = pageText('docs/reference/configuration.md')
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  scripts: Record<string, string>
  engines: { node: string }
}

test('every npm script it names is there, and it names the test command', () => {
  const named = [...readme.matchAll(/`npm (?:run )?([a-z0-9:]+)/g)].map(([, name]) => name ?? '')
  expect(named).toContain('test')
  expect(
    named.filter((name) => !['ci', 'install'].includes(name) && !(name in manifest.scripts)),
  ).toEqual([])
  expect(readme).toContain('npm ci\nnpm run demo')
})

test('the reference names every variable that is a setting', () => {
  for (const key of Object.keys(profileKeys))
    expect(configuration).toContain(`\`${variableOf(key)}\``)
})

test('the limits are the ones that are built in, and the Node.js that README asks for is the one of the package', () => {
  expect(configuration).toContain(`${limits.signatureBytes.toLocaleString('en')} bytes`)
  expect(configuration).toContain(`1–${limits.batchItems}`)
  expect(manifest.engines.node).toBe('>=20.18.1')
  expect(readme).toContain('Node.js 20.18')
})
