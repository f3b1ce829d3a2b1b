import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startLoad, startServer } from './children.js'
import { figure, median, syncMilliseconds } from './measure.js'
import { makeWallets, peerContext, questionsOf, signAll } from './payloads.js'
import { installPeer, peerFolder } from './peer.js'

const connections = 32
const rounds = 5
/** A round is sized to about this long at the rate of the warm-up. */
const roundSeconds = 1
const warmUp = 400
const questionCount = 100
/** Of this many wallets each signs one proposal per question. */
const walletCount = 200

/** Sends the next `count` requests of the server and returns admissions per second; anything but a 202 ends the run. */
async function burst(load, server, payloads, count) {
  const requests = payloads.slice(server.used, server.used + count)
  if (requests.length < count) throw new Error('the payloads ran out')
  server.used += count
  const { seconds, statuses, refused, p99 } = await load.send({ url: server.url, connections, requests })
  if (statuses[202] !== count) throw new Error(`${server.name} answered ${JSON.stringify(statuses)}: ${refused}`)
  return { perSecond: count / seconds, p99 }
}

/** Node's flags that leave a CPU profile of our gateway in the folder that BENCH_PROFILE names. */
function profiling() {
  const to = process.env.BENCH_PROFILE
  return to === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${to}`]
}

/**
 * Row 1: single admissions per second over loopback, durable, with every check, beside the peer: the same requests from the same load
 * process, in turn, medians of several rounds. Both stores lie in the system's temporary folder.
 */
export async function admissionRow({ root, library, note }) {
  const folder = await mkdtemp(join(tmpdir(), 'proposer-bench-'))
  const servers = []
  const load = startLoad(join(root, 'test', 'bench', 'load.js'))
  try {
    const peerDir = join(folder, 'peer')
    note('installing the peer')
    const missing = installPeer(peerFolder(root), peerDir)
    const wallets = makeWallets(walletCount)

    note('starting both gateways')
    const settings = {
      'pipeline.enabled': false,
      'budget.per_ip_items': 100_000_000,
      'budget.global_items': 100_000_000,
      'admission.allowlist': wallets.map(({ address }) => address),
    }
    const sets = Object.entries(settings).flatMap(([key, value]) => ['--set', `${key}=${JSON.stringify(value)}`])
    const bin = join(root, 'bin', 'proposer.js')
    const serve = [bin, 'serve', '--dev', '--json', '--no-log', '--port', '0', '--questions', String(questionCount), ...sets]
    const ours = await startServer(process.execPath, [...profiling(), ...serve], { cwd: folder })
    servers.push({ name: 'ours', url: ours.ready.url, used: 0, stop: ours.stop })
    const questions = await questionsOf(
      ours.ready.url,
      ours.ready.dev.questions.map(({ question_id }) => question_id),
    )
    if (missing === undefined) {
      await writeFile(join(peerDir, 'context.json'), JSON.stringify(peerContext(questions, wallets)))
      const env = { ...process.env, CONTEXT: join(peerDir, 'context.json'), DB: join(peerDir, 'peer.db'), PORT: '0' }
      const peer = await startServer(process.execPath, ['gateway.mjs'], { cwd: peerDir, env })
      servers.push({ name: 'the peer', url: peer.ready.url, used: 0, stop: peer.stop })
    }

    note(`signing ${questions.length * walletCount} proposals`)
    const payloads = signAll(await library(), questions, wallets)
    const most = Math.floor((payloads.length - 2 * warmUp) / rounds)
    for (const server of servers) {
      await burst(load, server, payloads, warmUp)
      const { perSecond } = await burst(load, server, payloads, warmUp)
      server.count = Math.max(100, Math.min(most, Math.round(perSecond * roundSeconds)))
      server.rates = []
      server.slowest = []
    }
    for (let round = 0; round < rounds; round += 1) {
      for (const server of servers) {
        const { perSecond, p99 } = await burst(load, server, payloads, server.count)
        note(`round ${round + 1}: ${server.name} ${figure(perSecond)}/s`)
        server.rates.push(perSecond)
        server.slowest.push(p99)
      }
    }
    const syncMs = await syncMilliseconds(folder)
    const told = servers.map((s) => `${s.name} ${figure(median(s.rates))}/s (p99 ${figure(median(s.slowest))} ms)`)
    const [mine, peer] = servers
    return {
      id: 1,
      name: 'single admissions beside the peer',
      value: peer === undefined ? median(mine.rates) : median(mine.rates) / median(peer.rates),
      unit: peer === undefined ? '1/s' : 'x',
      detail: `${told.join(', ')}${missing === undefined ? '' : `; peer skipped: ${missing}`}; ${connections} connections, medians of ${rounds} rounds in turn, append + datasync there ${figure(syncMs)} ms`,
    }
  } finally {
    load.stop()
    for (const server of servers) await server.stop()
    await rm(folder, { recursive: true, force: true })
  }
}
