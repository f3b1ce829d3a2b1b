// Run by the build in a process of its own: prints what `--help` prints for some widths, by width, as JSON.
import { createRequire } from 'node:module'

const { load } = createRequire(import.meta.url)('../bin/load.js')

/** That of pipes and plain terminals, and that of terminals as wide as help gets. */
const widths = [80, 100]

process.argv.splice(2, Infinity, '--help')
const pages = {}
for (const columns of widths) {
  const texts = []
  const stdout = { columns, write: (text) => texts.push(text) }
  const exitCode = await load('main.js').start(process, { streams: { stdout, stderr: process.stderr } })
  if (exitCode !== 0 || texts.length === 0) throw new Error(`proposer --help ended with ${exitCode}`)
  pages[columns] = texts.join('')
}
process.stdout.write(JSON.stringify(pages))
