import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pageText, root } from '#support/readme'
import manifest from '../../package.json' with { type: 'json' }
import { lackingIn } from '../../scripts/publishable.js'

const filled = {
  version: '1.2.3',
  repository: { type: 'git', url: 'git+https://forge.example/owner/proposer.git' },
  homepage: 'https://forge.example/owner/proposer#readme',
  bugs: { url: 'https://forge.example/owner/proposer/issues' },
}
const dated = '# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-01-31\n\n### Added\n\n- one\n'

describe('a release', () => {
  test('lacks nothing with its links, a dated version and nothing under Unreleased', () => {
    expect(lackingIn(filled, dated)).toEqual([])
    expect(lackingIn(filled, '## [1.2.3] - 2026-01-31\n\n## [Unreleased]\n')).toEqual([])
  })

  test.each([
    [{ ...filled, repository: undefined }, dated, 'repository.url'],
    [{ ...filled, repository: { url: 'git+https://forge.example/' } }, dated, 'repository.url'],
    [{ ...filled, homepage: '' }, dated, 'homepage'],
    [{ ...filled, bugs: 'https://forge.example/' }, dated, 'bugs.url'],
    [{ ...filled, version: '1.2.4' }, dated, '1.2.4'],
    [filled, dated.replace(' - 2026-01-31', ' - soon'), '1.2.3'],
    [filled, dated.replace('[Unreleased]\n', '[Unreleased]\n\n- two\n'), 'Unreleased'],
    [filled, dated.replace('## [Unreleased]\n', ''), 'Unreleased'],
  ])('%#: names the one thing that is missing', (one, changelog, named) => {
    expect(lackingIn(one, changelog)).toEqual([expect.stringContaining(named)])
  })

  test('npm asks before it publishes, and CONTRIBUTING says how each is set', () => {
    expect(manifest.scripts.prepublishOnly).toBe('node scripts/publishable.js')
    expect(manifest.scripts.release).toMatch(/^npm run prepublishOnly && npm run check && /)
    for (const name of ['repository.url', 'homepage', 'bugs.url'])
      expect(pageText('CONTRIBUTING.md')).toContain(`npm pkg set ${name}=`)
    const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'))
    expect([lock.version, lock.packages[''].version]).toEqual([manifest.version, manifest.version])
  })

  test('X9: every package of the lock file is held to its hash, those of other platforms too', () => {
    const lock: { packages: Record<string, { integrity?: string }> } = JSON.parse(
      readFileSync(join(root, 'package-lock.json'), 'utf8'),
    )
    const bare = Object.entries(lock.packages).filter(([name, { integrity }]) => name && !integrity)
    expect(bare).toEqual([])
  })
})
