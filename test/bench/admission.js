import { withGateways } from './gateways.js'
import { figure, median, syncMilliseconds } from './measure.js'

const connections = 32
const rounds = 5
const roundSeconds = 1
const warmUp = 400

export async function burst({ load, take, connections: atOnce = connections }, server, count) {
  const { seconds, statuses, refused, p99 } = await load.send({
    url: server.url,
    connections: atOnce,
    requests: take(server, count),
  })
  if (statuses[202] !== count)
    throw new Error(`${server.name} answered ${JSON.stringify(statuses)}: ${refused}`)
  return { perSecond: count / seconds, p99 }
}

export async function admissionRow(setting) {
  return withGateways(setting, { withPeer: true }, async (world) => {
    const { servers, mine, peer, missing, folder, left } = world
    for (const server of servers) {
      await burst(world, server, warmUp)
      const { perSecond } = await burst(world, server, warmUp)
      server.count = Math.max(
        100,
        Math.min(Math.floor(left(server) / rounds), Math.round(perSecond * roundSeconds)),
      )
      server.rates = []
      server.slowest = []
    }
    for (let round = 0; round < rounds; round += 1) {
      for (const server of servers) {
        const { perSecond, p99 } = await burst(world, server, server.count)
        setting.note(`round ${round + 1}: ${server.name} ${figure(perSecond)}/s`)
        server.rates.push(perSecond)
        server.slowest.push(p99)
      }
    }
    const syncMs = await syncMilliseconds(folder)
    const told = servers.map(
      (s) => `${s.name} ${figure(median(s.rates))}/s (p99 ${figure(median(s.slowest))} ms)`,
    )
    return {
      id: 1,
      name: 'single admissions beside the peer',
      value: peer === undefined ? median(mine.rates) : median(mine.rates) / median(peer.rates),
      unit: peer === undefined ? '1/s' : 'x',
      detail: `${told.join(', ')}${missing === undefined ? '' : `; peer skipped: ${missing}`}; ${connections} connections, medians of ${rounds} rounds in turn, append + datasync there ${figure(syncMs)} ms`,
    }
  })
}
