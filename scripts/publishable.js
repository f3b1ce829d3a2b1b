// Says what a release still lacks, and exits 1: npm runs it before it publishes.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** Set only by whoever owns the repository: a URL here that is not theirs would be believed. */
const links = {
  'repository.url': [({ repository }) => repository?.url, /^git\+https:\/\/[^/]+\/.+\.git$/],
  homepage: [({ homepage }) => homepage, /^https:\/\/[^/]+/],
  'bugs.url': [({ bugs }) => bugs?.url, /^https:\/\/[^/]+\//],
}

/** One sentence for each fault of package.json and CHANGELOG.md. */
export function lackingIn(manifest, changelog) {
  const faults = Object.entries(links)
    .filter(([, [read, form]]) => !form.test(read(manifest) ?? ''))
    .map(([name]) => `package.json has no ${name}: npm pkg set ${name}=<url>`)
  const title = `## [${manifest.version}] - `
  if (
    !changelog.split('\n').some((line) => line.startsWith(title) && /\d{4}(-\d\d){2}$/.test(line))
  )
    faults.push(`CHANGELOG.md has no "${title}<date>"`)
  const [, open] = /^## \[Unreleased\]\n([\s\S]*?)(?=^## |$(?![\s\S]))/m.exec(changelog) ?? []
  if (open?.trim() !== '')
    faults.push('CHANGELOG.md has changes under Unreleased, or no such heading')
  return faults
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const read = (name) => readFileSync(join(import.meta.dirname, '..', name), 'utf8')
  const faults = lackingIn(JSON.parse(read('package.json')), read('CHANGELOG.md'))
  for (const fault of faults) process.stderr.write(`error: ${fault}\n`)
  process.exitCode = faults.length > 0 ? 1 : 0
}
