import { copyFile, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { type DevChain, startDevChain } from '#devchain/dev-chain'
import { writeDevFolder } from '#devchain/dev-folder'
import { argvOf } from '../argv.js'
import { until } from '../postgres/folders.js'
import { openPostgresProxy, type PostgresProxy } from '../postgres/proxy.js'
import { type PostgresServer, startPostgres } from '../postgres/server.js'
import { type PostgresStandby, startStandby } from '../postgres/standby.js'
import { commitAnswer } from '../postgres/wire.js'
import { freePort, type Running, type Workshop } from '../processes.js'

export interface ClusterOptions {
  readonly gateways: number
  readonly questions: number
  readonly proposers: number
  readonly budget: {
    readonly window_seconds: number
    readonly per_ip_items: number
    readonly global_items: number
  }
}

export interface Cluster {
  readonly chain: DevChain
  readonly urls: readonly string[]
  query: PostgresServer['query']
  readonly faults: {
    gateway(random: () => number): Promise<string>
    server(random: () => number): Promise<string>
    network(random: () => number): Promise<string>
  }
  ready(): Promise<void>
  readonly ends: readonly string[]
  close(): Promise<void>
}

interface Gateway {
  readonly url: string
  readonly adminUrl: string
  readonly proxies: readonly PostgresProxy[]
  running: Running
  isStopping: boolean
}

export async function openCluster(shop: Workshop, options: ClusterOptions): Promise<Cluster> {
  const { questions, proposers } = options
  const chain = await startDevChain({ questions, proposers })
  const folder = await shop.folder()
  await writeDevFolder(join(folder, 'dev'), chain.description)
  const servers = await openServers()
  const ends: string[] = []
  const gateways: Gateway[] = []
  for (let n = 0; n < options.gateways; n += 1)
    gateways.push(await openGateway(shop, join(folder, 'dev'), n, servers, options, ends))
  const anyGateway = async (random: () => number) => {
    const leader = random() < 0.5 ? await leaderUrl(servers.query) : undefined
    const gateway =
      gateways.find(({ adminUrl }) => adminUrl === leader) ??
      gateways[Math.floor(random() * gateways.length)]
    if (gateway === undefined) throw new RangeError('there is no gateway')
    return gateway
  }
  const isReady = async ({ adminUrl }: Gateway) =>
    fetch(`${adminUrl}/readyz`, { signal: AbortSignal.timeout(5_000) }).then(
      ({ status }) => status === 200,
      () => false,
    )
  return {
    chain,
    urls: gateways.map(({ url }) => url),
    query: servers.query,
    ends,
    faults: {
      gateway: async (random) => gatewayFault(await anyGateway(random), random),
      server: (random) => servers.fault(random),
      network: async (random) => networkFault((await anyGateway(random)).proxies, random),
    },
    async ready() {
      const all = async () => (await Promise.all(gateways.map(isReady))).every(Boolean)
      await until(all, `the gateways are not ready: ${ends.at(-1)}`, 90_000)
    },
    async close() {
      for (const gateway of gateways) gateway.isStopping = true
      await Promise.all(gateways.map(({ running }) => running.stop('SIGKILL')))
      await Promise.all(gateways.flatMap(({ proxies }) => proxies.map((proxy) => proxy.close())))
      await servers.close()
      await chain.stop()
    },
  }
}

async function leaderUrl(query: Cluster['query']): Promise<string | undefined> {
  const leading = `SELECT g.admin_url FROM proposer.head h JOIN proposer.gateway g ON g.id = h.holder`
  const rows = await query<{ admin_url: string | null }>(leading).catch(() => [])
  return rows[0]?.admin_url ?? undefined
}

interface Servers {
  query: PostgresServer['query']
  url(place: number): string
  onChange(listener: () => void): void
  fault(random: () => number): Promise<string>
  close(): Promise<void>
}

const database = 'campaign'

async function openServers(): Promise<Servers> {
  let primary = await startPostgres({ settings: { max_connections: '60' } })
  await primary.createDatabase(database)
  let standby: PostgresStandby = await startStandby(primary, { synchronous: true })
  let places: readonly PostgresServer[] = [primary, standby]
  const listeners: (() => void)[] = []

  async function failover(random: () => number): Promise<string> {
    const old = primary
    await old.kill()
    await sleep(random() * 1_000)
    await standby.promote()
    primary = standby
    await old.close()
    standby = await startStandby(primary, { synchronous: true })
    places = places.map((server) => (server === old ? standby : server))
    for (const listener of listeners) listener()
    return 'failover'
  }

  return {
    async query<Row extends pg.QueryResultRow>(text: string, values: readonly unknown[] = []) {
      const client = new pg.Client(primary.url(database))
      await client.connect()
      try {
        return (await client.query<Row>(text, [...values])).rows
      } finally {
        await client.end()
      }
    },
    url(place) {
      const server = places[place]
      if (server === undefined) throw new RangeError('there are two places')
      return server.url(database)
    },
    onChange: (listener) => listeners.push(listener),
    async fault(random) {
      if (random() < 0.4) return failover(random)
      await primary.kill()
      await sleep(random() * 3_000)
      await primary.restart()
      return 'server killed'
    },
    async close() {
      await standby.close()
      await primary.close()
    },
  }
}

async function openGateway(
  shop: Workshop,
  dev: string,
  n: number,
  servers: Servers,
  { budget }: ClusterOptions,
  ends: string[],
): Promise<Gateway> {
  const proxies = await Promise.all([0, 1].map((place) => openPostgresProxy(servers.url(place))))
  servers.onChange(() => {
    for (const [place, proxy] of proxies.entries()) proxy.retarget(servers.url(place))
  })
  const hosts = proxies.map(({ port }) => `127.0.0.1:${port}`).join()
  const [port, adminPort] = [await freePort(), await freePort()]
  const place = join(dev, `gateway-${n}`)
  await writeFile(`${place}.key`, await readFile(join(dev, 'executor.key')), { mode: 0o600 })
  const config = {
    ...JSON.parse(await readFile(join(dev, 'gateway.json'), 'utf8')),
    store: `postgres://gateway@${hosts}/${database}`,
    listen: { port },
    admin: { port: adminPort, token_file: `${place}.token` },
    executor: { key_file: `${place}.key`, batch: 25 },
    budget,
    proxy: { trusted_cidrs: ['127.0.0.0/8'] },
  }
  await copyFile(join(dev, 'questions.json'), `${place}.questions.json`)
  await writeFile(
    `${place}.json`,
    JSON.stringify({ ...config, questions: `${place}.questions.json` }),
  )
  const start = () =>
    shop.start(argvOf`serve --config ${place}.json --json --no-log`, { judged: false })
  const gateway: Gateway = {
    url: `http://127.0.0.1:${port}`,
    adminUrl: `http://127.0.0.1:${adminPort}`,
    proxies,
    running: start(),
    isStopping: false,
  }
  await gateway.running.line()
  const supervise = (running: Running): void => {
    void running.ended.then(async ({ code, signal, stderr }) => {
      if (gateway.isStopping) return
      if (signal !== 'SIGKILL') {
        ends.push(`${code ?? signal}: ${stderr.trim().split('\n').slice(-2).join(' ').slice(-600)}`)
        await sleep(500)
      }
      gateway.running = start()
      supervise(gateway.running)
    })
  }
  supervise(gateway.running)
  return gateway
}

async function gatewayFault(gateway: Gateway, random: () => number): Promise<string> {
  const { child } = gateway.running
  if (random() < 0.5) {
    child.kill('SIGKILL')
    return 'gateway killed'
  }
  child.kill('SIGSTOP')
  await sleep(500 + random() ** 2 * 14_000)
  child.kill('SIGCONT')
  return 'gateway stopped'
}

const fromServer = ({ from }: { readonly from: string }) => from === 'server'

async function networkFault(
  proxies: readonly PostgresProxy[],
  random: () => number,
): Promise<string> {
  const lasts = () => sleep(500 + random() * 3_000)
  const each = (act: (proxy: PostgresProxy) => unknown) => {
    for (const proxy of proxies) act(proxy)
  }
  const choice = random()
  if (choice < 0.25) {
    each((proxy) => proxy.cutAll())
    return 'connections cut'
  }
  if (choice < 0.5) {
    each((proxy) => proxy.cut(commitAnswer, 'reset'))
    await lasts()
    each((proxy) => proxy.clear())
    return 'answer to COMMIT cut'
  }
  if (choice < 0.75) {
    const ms = 20 + random() * 300
    each((proxy) => proxy.delay(fromServer, ms))
    await lasts()
    each((proxy) => proxy.clear())
    return 'delay'
  }
  each((proxy) => proxy.blackHole())
  await sleep(500 + random() * 8_000)
  each((proxy) => proxy.heal())
  return 'black hole'
}
