import { burst } from './admission.js'
import { figure, median, syncMilliseconds } from './measure.js'
import { installPeer, startPeer } from './peer.js'
import { cpuOf, withPostgres, withQuestions } from './shared.js'

const rounds = 5
const roundSeconds = 1
/** Of each gateway. */
const warmUp = 600
const connections = 64

/**
 * Admissions a second of each server, in turn; of each also the CPU time that an admission takes in
 * the gateways and in the database, in microseconds.
 */
async function compare({ note }, { load, take, left }, servers, postgres) {
  for (const server of servers) {
    const calls = warmUp * [server.url].flat().length
    await burst({ load, take, connections }, server, calls)
    const { perSecond } = await burst({ load, take, connections }, server, calls)
    const count = Math.min(Math.floor(left(server) / rounds), Math.round(perSecond * roundSeconds))
    Object.assign(server, {
      count: Math.max(100, count),
      rates: [],
      slowest: [],
      cpu: [],
      base: [],
    })
  }
  for (let round = 0; round < rounds; round += 1) {
    for (const server of servers) {
      const before = [await cpuOf(server.pids()), await cpuOf(postgres.pids())]
      const { perSecond, p99 } = await burst({ load, take, connections }, server, server.count)
      const after = [await cpuOf(server.pids()), await cpuOf(postgres.pids())]
      const each = (index) => ((after[index] - before[index]) * 1e6) / server.count
      server.rates.push(perSecond)
      server.slowest.push(p99)
      server.cpu.push(each(0))
      server.base.push(each(1))
      note(`round ${round + 1}: ${server.name} ${figure(perSecond)}/s`)
    }
  }
  const [first, second] = servers
  return {
    value: median(first.rates) / median(second.rates),
    unit: 'x',
    detail: [
      ...servers.map(
        ({ name, rates, slowest, cpu, base }) =>
          `${name} ${figure(median(rates))}/s (p99 ${figure(median(slowest))} ms, CPU ${figure(median(cpu))} µs of the gateway and ${figure(median(base))} µs of PostgreSQL an admission)`,
      ),
      `${connections} connections, medians of ${rounds} rounds in turn`,
    ].join('; '),
  }
}

export const sharedRow = (setting) =>
  withPostgres(setting, { id: 20, name: 'admissions on PostgreSQL beside files' }, (postgres) =>
    withQuestions(setting, async (world) => {
      const shared = await world.start('on PostgreSQL', await postgres.createDatabase())
      const alone = await world.start('on files', './store')
      await world.prepare()
      const { detail, ...row } = await compare(setting, world, [shared, alone], postgres)
      const syncMs = await syncMilliseconds(world.folder)
      return {
        ...row,
        detail: `${detail}, append + datasync there ${figure(syncMs)} ms`,
      }
    }),
  )

const gatewayCount = 4

export const gatewaysRow = (setting) =>
  withPostgres(setting, { id: 21, name: 'four gateways on PostgreSQL beside one' }, (postgres) =>
    withQuestions(setting, async (world) => {
      const one = await world.start('one', await postgres.createDatabase())
      const database = await postgres.createDatabase()
      const several = []
      for (let n = 0; n < gatewayCount; n += 1)
        several.push(await world.start(`gateway ${n}`, database))
      const four = {
        name: 'four',
        url: several.map(({ url }) => url),
        pids: () => several.flatMap(({ pids }) => pids()),
        used: 0,
      }
      await world.prepare()
      return compare(setting, world, [four, one], postgres)
    }),
  )

export const sharedPeerRow = (setting) =>
  withPostgres(setting, { id: 22, name: 'the same beside the peer there' }, (postgres) =>
    withQuestions(setting, async (world) => {
      setting.note('installing the peer')
      const missing = installPeer(setting.root)
      if (missing !== undefined) return { value: null, unit: '', detail: `left out: ${missing}` }
      const ours = await world.start('ours', await postgres.createDatabase())
      const known = await world.prepare()
      const store = await postgres.createDatabase()
      const peer = await startPeer(setting.root, { folder: world.folder, store, ...known })
      world.servers.push(peer)
      return compare(setting, world, [ours, peer], postgres)
    }),
  )
