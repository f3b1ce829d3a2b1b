import { randomBytes } from 'node:crypto'
import { createRequire } from 'node:module'
import { withGateways } from './gateways.js'
import { figure, median, microsecondsPerCall } from './measure.js'

const batchSize = 100
const rounds = 7
const batchesPerRound = 4
/** Until V8 has compiled what is measured: of both. */
const warmUpBatches = 60
/**
 * Enough batches to keep the gateway busy while the load process reads answers and writes the next.
 */
const connections = 4

const batches = (payloads) =>
  Array.from({ length: payloads.length / batchSize }, (_, n) => ({
    path: '/propose/batch',
    body: JSON.stringify({
      proposals: payloads.slice(n * batchSize, (n + 1) * batchSize).map(({ item }) => item),
    }),
  }))

async function send({ load, take }, server, count, connections) {
  const requests = batches(take(server, count * batchSize))
  const { seconds, accepted, statuses, refused } = await load.send({
    url: server.url,
    connections,
    requests,
  })
  if (accepted !== count * batchSize) {
    throw new Error(
      `${server.name} accepted ${accepted} of ${count * batchSize}: ${JSON.stringify(statuses)} ${refused}`,
    )
  }
  return (seconds * 1000) / count
}

export async function batchRow(setting) {
  return withGateways(setting, { withPeer: true }, async (world) => {
    const { servers, mine, peer, missing } = world
    for (const server of servers) {
      await send(world, server, warmUpBatches, 1)
      server.times = []
    }
    for (let round = 0; round < rounds; round += 1) {
      for (const server of servers) server.times.push(await send(world, server, batchesPerRound, 1))
      setting.note(
        `round ${round + 1}: ${servers.map((s) => `${s.name} ${figure(s.times.at(-1))} ms`).join(', ')}`,
      )
    }
    return {
      id: 2,
      name: 'batch of 100 beside the peer',
      value: peer === undefined ? median(mine.times) : median(peer.times) / median(mine.times),
      unit: peer === undefined ? 'ms' : 'x',
      detail: `${servers.map((s) => `${s.name} ${figure(median(s.times))} ms`).join(', ')}${missing === undefined ? '' : `; peer skipped: ${missing}`}; medians of ${rounds} rounds of ${batchesPerRound} in turn`,
    }
  })
}

function recoveriesPerSecond() {
  const binding = createRequire(import.meta.url)('secp256k1/bindings.js')
  const key = randomBytes(32)
  const signed = Array.from({ length: 64 }, () => {
    const digest = randomBytes(32)
    return { digest, ...binding.ecdsaSign(digest, key) }
  })
  const microseconds = microsecondsPerCall((n) => {
    const { digest, signature, recid } = signed[n % signed.length]
    binding.ecdsaRecover(signature, recid, digest, false)
  }, 300)
  return 1e6 / microseconds
}

export async function recoverRow(setting) {
  return withGateways(setting, { withPeer: false }, async (world) => {
    await send(world, world.mine, warmUpBatches, connections)
    const [rates, limits] = [[], []]
    for (let round = 0; round < rounds; round += 1) {
      limits.push(recoveriesPerSecond())
      rates.push((batchSize * 1000) / (await send(world, world.mine, 20, connections)))
      setting.note(
        `round ${round + 1}: ${figure(rates.at(-1))} admissions/s, ${figure(limits.at(-1))} recoveries/s`,
      )
    }
    return {
      id: 3,
      name: 'batch admissions beside native recover',
      value: median(rates) / median(limits),
      unit: 'x',
      detail: `${figure(median(rates))} admissions/s in batches of ${batchSize} over ${connections} connections, ${figure(median(limits))} recoveries/s on one core; medians of ${rounds} rounds in turn`,
    }
  })
}
