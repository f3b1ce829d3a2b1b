// Run by the build in a process of its own: runs the commands that should start quickly, then leaves V8's code cache of every part beside
// it, with the functions that were compiled for them.
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** An open question that can be signed for without a chain or a gateway. */
const { key, trust, context } = JSON.parse(readFileSync(new URL('sample-question.json', import.meta.url), 'utf8'))
const { load, loaded, folder } = createRequire(import.meta.url)('../bin/load.js')

async function run(args) {
  process.argv.splice(2, Infinity, ...args)
  const exitCode = await load('main.js').start(process)
  if (exitCode !== 0) throw new Error(`proposer ${args.join(' ')} ended with ${exitCode}`)
}

// Each run listens for signals anew.
process.setMaxListeners(0)
const home = mkdtempSync(join(tmpdir(), 'proposer-build-'))
try {
  const file = (name, text) => {
    writeFileSync(join(home, name), text, { mode: 0o600 })
    return join(home, name)
  }
  process.env.PROPOSER_HOME = home
  process.env.PROPOSER_KEY_FILE = file('key', `${key}\n`)
  process.env.PROPOSER_TRUST = file('trust.json', JSON.stringify(trust))
  const offline = ['--context', file('context.json', JSON.stringify(context)), '--json']
  await run(['sign', context.question_id, '--outcome', 'p1', ...offline])
  await run(['journal', 'list', '--json'])
  await run(['--help'])
  for (const [verb] of Object.entries(load(programPart()).verbs)) await run([verb, '--help'])
} finally {
  rmSync(home, { recursive: true, force: true })
}

/** The part that lists the verbs: loaded by `--help`. */
function programPart() {
  const [name] = [...loaded].find(([, { exports }]) => 'verbs' in exports) ?? []
  if (name === undefined) throw new Error('no part exports the verbs')
  return name
}

for (const [name, { script }] of loaded) {
  // The first part has no digest of its content in its name, and little in it.
  if (name === 'main.js') continue
  const path = join(folder, `${name}.cache`)
  const temporary = `${path}.${process.pid}.tmp`
  writeFileSync(temporary, script.createCachedData())
  renameSync(temporary, path)
}
