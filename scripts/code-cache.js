// Run by the build in a process of its own: runs the commands that should start quickly, then leaves V8's code cache of every file beside
// it, with the functions that were compiled for them.
import { once } from 'node:events'
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import v8 from 'node:v8'

/** An open question that can be signed for without a chain or a gateway. */
const { key, trust, context } = JSON.parse(readFileSync(new URL('sample-question.json', import.meta.url), 'utf8'))
const { load, loaded, scripts, folder } = createRequire(import.meta.url)('../bin/load.js')

async function run(args, expected = 0) {
  process.argv.splice(2, Infinity, ...args)
  const told = []
  const sink = { write: (text) => told.push(text) }
  const exitCode = await load('main.js').start(process, { streams: { stdout: sink, stderr: sink } })
  if (exitCode !== expected) throw new Error(`proposer ${args.join(' ')} ended with ${exitCode}: ${told.join('')}`)
}

/** Answers everything with a refusal: the way to a gateway and back is the same for any answer. */
async function anyGateway() {
  const body = JSON.stringify({ error: { code: 'not_found', detail: 'nothing is here' } })
  const server = createServer((_request, response) => response.writeHead(404, { 'content-type': 'application/json' }).end(body))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() }
}

// V8 takes a cache only under the flags that it was made under, and calls of a gateway change one (see http.ts).
v8.setFlagsFromString = () => undefined
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
  const gateway = await anyGateway()
  const asked = ['--gateway', gateway.url, '--json']
  await run(['eligibility', ...asked], 3)
  await run(['status', '11111111-1111-4111-8111-111111111111', '--question', context.question_id, ...asked], 3)
  gateway.close()
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

for (const [name, script] of scripts) {
  // The first file has no digest of its content in its name, and little in it.
  if (name === 'main.js') continue
  const path = join(folder, `${name}.cache`)
  const temporary = `${path}.${process.pid}.tmp`
  writeFileSync(temporary, script.createCachedData())
  renameSync(temporary, path)
}
