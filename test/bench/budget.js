import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { runToEnd, startServer } from './children.js'
import { figure } from './measure.js'

const proposals = 60
const windowItems = 24
const windowSeconds = 4

/**
 * Row `budget`: two processes behind one address bring 60 proposals from their rows to their
 * execution, under a budget of 24 items per 4 seconds; the time from the first charged call to the
 * last, beside the least that this budget allows (§8: two items a proposal).
 */
export async function budgetRow({ root, note }) {
  const folder = await mkdtemp(join(tmpdir(), 'proposer-bench-'))
  const calls = []
  const onLog = (line) => {
    if (!line.startsWith('{')) return
    const { event, items, status, time } = JSON.parse(line)
    if (event === 'request' && items > 0) calls.push({ items, status, atMs: Date.parse(time) })
  }
  const bin = join(root, 'bin', 'proposer.js')
  const sets = [
    `budget.per_ip_items=${windowItems}`,
    `budget.window_seconds=${windowSeconds}`,
  ].flatMap((each) => ['--set', each])
  const serve = [
    bin,
    'serve',
    '--dev',
    '--json',
    '--log',
    '--port',
    '0',
    '--questions',
    String(proposals),
    ...sets,
  ]
  const server = await startServer(process.execPath, serve, { cwd: folder, onLog })
  try {
    const { url, dev } = server.ready
    const home = join(folder, 'home')
    await mkdir(home, { mode: 0o700 })
    const { private_key: key } = dev.accounts.find(({ role }) => role === 'proposer')
    await writeFile(join(folder, 'key'), `${key}\n`, { mode: 0o600 })
    await writeFile(join(folder, 'trust.json'), JSON.stringify(dev.trust))
    const env = {
      PATH: process.env.PATH,
      PROPOSER_HOME: home,
      PROPOSER_GATEWAY: url,
      PROPOSER_RPC_URL: dev.rpc_url,
      PROPOSER_KEY_FILE: join(folder, 'key'),
      PROPOSER_TRUST: join(folder, 'trust.json'),
    }
    const rows = dev.questions.map(({ question_id }) =>
      JSON.stringify({ identifier: question_id, outcome: 'p2' }),
    )
    note(`two processes at work on ${rows.length} proposals`)
    const start = performance.now()
    const answers = await Promise.all(
      [0, 1].map(async (n) => {
        const file = join(folder, `rows-${n}.ndjson`)
        await writeFile(
          file,
          `${rows.slice((n * proposals) / 2, ((n + 1) * proposals) / 2).join('\n')}\n`,
        )
        return runToEnd([bin, 'batch', 'submit', file, '--wait', '--json'], env)
      }),
    )
    const wallSeconds = (performance.now() - start) / 1000
    const executed = answers.reduce((sum, { summary }) => sum + summary.executed, 0)
    if (executed !== proposals) throw new Error(`${executed} of ${proposals} were executed`)
    const items = calls.reduce((sum, call) => sum + call.items, 0)
    const refused = calls.filter(({ status }) => status === 429).length
    if (refused > 0)
      throw new Error(`the gateway answered 429 to ${refused} of ${calls.length} calls`)
    const seconds = (calls.at(-1).atMs - calls[0].atMs) / 1000
    const bound = (Math.ceil((2 * proposals) / windowItems) - 1) * windowSeconds
    return {
      id: 'budget',
      name: 'a campaign beside its budget',
      value: seconds / bound,
      unit: 'x',
      detail: `${proposals} proposals of two processes executed in ${figure(seconds)} s (${figure(wallSeconds)} s with their start), at ${windowItems} items per ${windowSeconds} s at least ${bound} s; ${figure(items / proposals)} items a proposal in ${calls.length} calls, ${refused} times 429`,
    }
  } finally {
    await server.stop()
    await rm(folder, { recursive: true, force: true })
  }
}
