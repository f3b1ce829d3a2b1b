import { createHash } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { startServer } from './children.js'
import { openSettings, setsOf, withGateways } from './gateways.js'
import { figure, median } from './measure.js'

const batchSize = 100
const rounds = 21
const batchesPerRound = 4
/** Until V8 has compiled what is measured, as in row 2. */
const warmUpBatches = 20

async function startBeside({ root, folder, wallets }, dev, name, settings) {
  const home = join(folder, name)
  await mkdir(home)
  const { chain_id: id, slugs: _, implementations: __, ...pins } = dev.trust
  const config = join(home, 'gateway.json')
  await writeFile(config, JSON.stringify({ chain: { id, rpc_urls: [dev.rpc_url], ...pins } }))
  const sets = setsOf({
    ...openSettings,
    'executor.enabled': false,
    'admission.allowlist': wallets.map(({ address }) => address),
    ...settings,
  })
  const bin = join(root, 'bin', 'proposer.js')
  const { ready, stop } = await startServer(
    process.execPath,
    [bin, 'serve', '--config', config, '--json', '--no-log', '--port', '0', ...sets],
    { cwd: home },
  )
  return { name, url: ready.url, used: 0, stop, times: [] }
}

async function send({ load, take }, server, count) {
  const items = take(server, count * batchSize).map(({ item }) => item)
  const requests = Array.from({ length: count }, (_, at) => {
    const proposals = items.slice(at * batchSize, (at + 1) * batchSize)
    const body = JSON.stringify({ proposals })
    const digest = createHash('sha256').update(body).digest('base64')
    return { path: '/propose/batch', body, headers: { 'content-digest': `sha-256=:${digest}:` } }
  })
  const { seconds, accepted, statuses, refused } = await load.send({
    url: server.url,
    connections: 1,
    requests,
  })
  if (accepted !== items.length)
    throw new Error(
      `${server.name} accepted ${accepted} of ${items.length}: ${JSON.stringify(statuses)} ${refused}`,
    )
  return (seconds * 1000) / count
}

export async function receiptRow(setting) {
  return withGateways(setting, { withPeer: false }, async (world) => {
    const { dev } = world.mine
    const place = { root: setting.root, folder: world.folder, wallets: world.wallets }
    const servers = []
    try {
      servers.push(await startBeside(place, dev, 'without', {}))
      const receipts = { key_file: './receipt-key.json' }
      servers.push(await startBeside(place, dev, 'with', { receipts }))
      const signed = await fetch(
        `${servers[1].url}/v1/proposals/eligibility/${world.wallets[0].address}`,
      )
      if (!signed.headers.has('signature')) throw new Error('the gateway signs no receipts')
      for (const server of servers) await send(world, server, warmUpBatches)
      for (let round = 0; round < rounds; round += 1) {
        // In turn, and each as often first: whoever comes second finds a busier disk.
        const order = round % 2 === 0 ? servers : servers.toReversed()
        for (const server of order) server.times.push(await send(world, server, batchesPerRound))
        setting.note(
          `round ${round + 1}: ${servers.map(({ name, times }) => `${name} ${figure(times.at(-1))} ms`).join(', ')}`,
        )
      }
      const [plain, signer] = servers
      // Each round beside its neighbour: what else the machine does changes slower than that.
      const ratios = plain.times.map((time, round) => time / signer.times[round])
      return {
        id: 25,
        name: 'batch of 100 with a receipt',
        value: median(ratios),
        unit: 'x',
        detail: `with ${figure(median(signer.times))} ms, without ${figure(median(plain.times))} ms; median of the ratios of ${rounds} rounds of ${batchesPerRound} in turn, each call with the digest of its body`,
      }
    } finally {
      for (const server of servers) await server.stop()
    }
  })
}
