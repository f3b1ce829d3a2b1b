import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { makeQuestions, serveChain } from './chain-server.js'
import { startLoad, startServer } from './children.js'
import { openSettings } from './gateways.js'
import { cpuSecondsOf } from './measure.js'
import { makeWallets, questionsOf, signAll } from './payloads.js'
import { fromSources } from './sources.js'

const questionCount = 100
const walletCount = 120
const blockMs = 2_000

/** As PostgreSQL comes, where its tests' servers differ: on a disk, and synced. */
const settings = { fsync: 'on', shared_buffers: '128MB', max_wal_size: '1GB' }

export async function withPostgres({ root }, row, work) {
  const support = join(root, 'test', 'support', 'postgres')
  const wanted = `
    export { found } from './test/support/postgres/binaries.js'
    export { processesIn } from './test/support/postgres/folders.js'
    export { startPostgres } from './test/support/postgres/server.js'`
  const { module, remove } = await fromSources(root, wanted, join(support, 'server.js'))
  try {
    const { missing } = module.found(18)
    if (missing !== undefined) return { ...row, value: null, detail: `left out: ${missing}` }
    const postgres = await module.startPostgres({ settings, isOnDisk: true })
    try {
      const pids = () => module.processesIn(dirname(postgres.dataFolder))
      return { ...row, ...(await work({ ...postgres, pids })) }
    } finally {
      await postgres.close()
    }
  } finally {
    await remove()
  }
}

/**
 * A node, questions, wallets and a load process. `start(name, store)` starts a gateway of ours on a
 * store; `prepare()` asks all of them for the questions and signs what `take` hands out.
 */
export async function withQuestions({ root, library, note }, work) {
  const folder = await mkdtemp(join(tmpdir(), 'proposer-bench-'))
  const load = startLoad(join(root, 'test', 'bench', 'load.js'))
  const asked = makeQuestions(questionCount)
  const chain = await serveChain(asked, { blockMs, delayMs: 0, logsOf: () => [] })
  const servers = []
  try {
    const wallets = makeWallets(walletCount)
    const { id, ...pinned } = chain.contracts
    const start = async (name, store) => {
      const file = `gateway-${servers.length}.json`
      const config = {
        store,
        chain: { id, rpc_urls: [chain.url], ...pinned },
        admission: { enabled: true, allowlist: wallets.map(({ address }) => address) },
        pipeline: { enabled: openSettings['pipeline.enabled'] },
        budget: {
          per_ip_items: openSettings['budget.per_ip_items'],
          global_items: openSettings['budget.global_items'],
        },
        admin: { port: 0 },
      }
      await writeFile(join(folder, file), JSON.stringify(config))
      const bin = join(root, 'bin', 'proposer.js')
      const serve = ['serve', '--config', file, '--json', '--no-log', '--port', '0']
      const profile = process.env.BENCH_PROFILE
      const flags = profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}`]
      const args = [...flags, bin, ...serve]
      const { ready, stop } = await startServer(process.execPath, args, { cwd: folder })
      const server = { name, url: ready.url, pids: () => [ready.pid], used: 0, stop }
      servers.push(server)
      return server
    }
    const payloads = []
    let questions = []
    const prepare = async () => {
      const identifiers = asked.map(({ question_id }) => question_id)
      // Each of them has read them when they are proposed for.
      for (const { url } of servers) questions = await questionsOf(url, identifiers)
      note(`signing ${questions.length * walletCount} proposals`)
      const witness = await library()
      for (const wallet of wallets) {
        payloads.push(...signAll(witness, questions, [wallet]))
        // The node is in this process, too.
        await setImmediate()
      }
      return { questions, wallets }
    }
    const take = (server, count) => {
      const taken = payloads.slice(server.used, server.used + count)
      if (taken.length < count) throw new Error('the payloads ran out')
      server.used += count
      return taken
    }
    const left = ({ used }) => payloads.length - used
    return await work({ folder, load, start, prepare, take, left, servers })
  } finally {
    load.stop()
    await Promise.all(servers.map(({ stop }) => stop()))
    await chain.close()
    await rm(folder, { recursive: true, force: true })
  }
}

export async function cpuOf(pids) {
  const seconds = await Promise.all(pids.map(cpuSecondsOf))
  return seconds.reduce((sum, each) => sum + each, 0)
}
