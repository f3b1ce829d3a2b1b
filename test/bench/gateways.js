import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { profiling, startLoad, startServer } from './children.js'
import { makeWallets, questionsOf, signAll } from './payloads.js'
import { installPeer, startPeer } from './peer.js'

const questionCount = 100
const walletCount = 200

export function setsOf(settings) {
  return Object.entries(settings).flatMap(([key, value]) => [
    '--set',
    `${key}=${JSON.stringify(value)}`,
  ])
}

export const openSettings = {
  'pipeline.enabled': false,
  'budget.per_ip_items': 100_000_000,
  'budget.global_items': 100_000_000,
}

/**
 * Hands `work` our gateway, the peer where it is wanted and can be had (`missing` says why not), a
 * load process, and signed payloads that both take: `take(server, n)` gives the next n of a server.
 * Everything lies in one temporary folder, so that both write to one disk.
 */
export async function withGateways({ root, library, note }, { withPeer }, work) {
  const folder = await mkdtemp(join(tmpdir(), 'proposer-bench-'))
  const servers = []
  const load = startLoad(join(root, 'test', 'bench', 'load.js'))
  try {
    if (withPeer) note('installing the peer')
    const missing = withPeer ? installPeer(root) : 'not asked for'
    const wallets = makeWallets(walletCount)

    note('starting the gateways')
    const sets = setsOf({
      ...openSettings,
      'admission.allowlist': wallets.map(({ address }) => address),
    })
    const bin = join(root, 'bin', 'proposer.js')
    const serve = [
      bin,
      'serve',
      '--dev',
      '--json',
      '--no-log',
      '--port',
      '0',
      '--questions',
      String(questionCount),
      ...sets,
    ]
    const ours = await startServer(process.execPath, [...profiling(), ...serve], { cwd: folder })
    const { url, dev } = ours.ready
    servers.push({ name: 'ours', url, dev, used: 0, stop: ours.stop })
    const questions = await questionsOf(
      ours.ready.url,
      ours.ready.dev.questions.map(({ question_id }) => question_id),
    )
    if (missing === undefined) {
      const store = join(folder, 'peer.db')
      servers.push(await startPeer(root, { folder, store, questions, wallets }))
    }

    note(`signing ${questions.length * walletCount} proposals`)
    const payloads = signAll(await library(), questions, wallets)
    const take = (server, count) => {
      const taken = payloads.slice(server.used, server.used + count)
      if (taken.length < count) throw new Error('the payloads ran out')
      server.used += count
      return taken
    }
    const [mine, peer] = servers
    return await work({
      folder,
      load,
      servers,
      mine,
      peer,
      missing,
      wallets,
      take,
      left: (server) => payloads.length - server.used,
    })
  } finally {
    load.stop()
    for (const server of servers) await server.stop()
    await rm(folder, { recursive: true, force: true })
  }
}
