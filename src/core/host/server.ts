/** A gateway behind its listeners: what `serve` and `demo` run. */
import { unconfirmedAmong } from '#chain/profiles'
import type { GatewayConfig } from '#gateway/config'
import { clientKey } from '#gateway/front/budget'
import { actBodies, isActName } from '#gateway/operator/acts'
import { type Closers, opening } from '#io/closers'
import { type AdminListener, listenAdmin } from '#io/serving/admin-listener'
import { createMeters } from '#io/serving/admin-metrics'
import { ensureAdminToken } from '#io/serving/admin-token'
import { createBufferedWriter, logOfStderr } from '#io/serving/buffered-writer'
import { listen } from '#io/serving/listener'
import { watchLoad } from '#io/serving/load'
import { createRequestLog, createStateLog, type LogSink } from '#io/serving/logs'
import { listenMetrics } from '#io/serving/looks'
import type { Machine } from '#ports'
import { instant } from '#protocol/candidate'
import { ProposerError, StorageError, UsageError } from '#protocol/errors'
import type { LogLevel } from '#protocol/log-level'
import { pick } from '#protocol/pick'
import type { StatusDocument } from '#protocol/status-document'
import { createActivity } from './activity.js'
import { adminTokenFile, type LoadedConfig } from './config-file.js'
import type { ExecutorKeySource } from './executor-key.js'
import type { FaultBench } from './fault-bench.js'
import { type HostedGateway, openHostedGateway } from './gateway-host.js'
import { inWholeSeconds } from './status.js'

export interface ServerOptions {
  readonly executorKey: ExecutorKeySource
  readonly version: string
  readonly log?: LogSink | 'stderr' | undefined
  readonly logLevel?: LogLevel | undefined
  readonly onNote: (text: string) => void
  readonly onWarning: (code: string, detail: string) => void
  readonly onFault?: ((line: string) => void) | undefined
  readonly faults?: FaultBench | undefined
}

export type RunningServer = Awaited<ReturnType<typeof startServer>>

const drainMs = 10_000
const lookMs = 1_000

export const startServer = (machine: Machine, loaded: LoadedConfig, options: ServerOptions) =>
  opening(async (closers) => {
    const { config } = loaded
    warnOfConfig(config, options)
    const meters = createMeters({ isShared: loaded.place.kind === 'database' })
    const activity = createActivity(machine.clock)
    const logs = options.log && openLogs(machine, options.log, options.logLevel)
    closers.add(() => logs?.requests.end())
    const load = watchLoad(machine.clock.monotonicMs)
    closers.add(load.stop)
    const hosted = await openHostedGateway(machine, loaded, {
      ...pick(options, 'executorKey', 'onWarning'),
      unreadMs: load.unreadMs,
      onWait: (reason) => options.onNote(`waiting: ${reason}`),
      onObservation(observation) {
        meters.observe(observation)
        logs?.states.observe(observation)
      },
      onRequest(record) {
        activity.noteCall(record)
        logs?.requests.write(record)
      },
      onState(line) {
        activity.noteChange(line)
        logs?.states.write(line)
      },
    })
    closers.add(hosted.close)
    const { gateway } = hosted
    const started_at = instant(machine.clock.nowMs())
    const urls: Pick<StatusDocument, 'url' | 'admin_url'> = { url: null, admin_url: null }
    const status = () =>
      hosted.status({
        ...{ version: options.version, started_at, ...urls },
        last_minute: activity.lastMinute(),
        changes: activity.changes(),
      })
    const figures = () => inWholeSeconds(status())
    const looking = setInterval(hosted.look, lookMs).unref()
    closers.add(() => clearInterval(looking))
    const token = await ensureAdminToken(machine, adminTokenFile(loaded))
    const faulty = options.faults?.before(hosted, options.onFault ?? options.onNote)
    const { rows: candidates, failures, detail: candidate, stop } = hosted.followRecent()
    closers.add(stop)
    const admin = await bound('admin', config, () =>
      listenAdmin({
        ...{ status, meters, requestCounts: gateway.requestCounts },
        ...pick(hosted, 'storeBytes', 'nodes'),
        ...pick(config.admin, 'port', 'connections'),
        droppedLines: () => logs?.sink.dropped() ?? 0,
        openSlots: () => hosted.ledger.slots().length,
        operator: {
          token,
          acts: actsOf(hosted),
          looks: {
            '/operator/status': figures,
            ...(faulty && { '/operator/faults': faulty.counts }),
          },
        },
        page: { figures, candidates, failures, candidate },
      }),
    )
    closers.add(admin.close)
    const metricsUrl = await serveMetrics(config, gateway, admin, closers)
    const front = await bound('listen', config, () =>
      listen({
        ...pick(config.listen, 'host', 'port'),
        perAddress: config.listen.connections_per_address,
        addressKey: (address) => clientKey(address, null, []),
        handler: faulty?.handle ?? gateway.answer,
        onRefused: gateway.observe,
      }),
    )
    closers.add(() => {
      gateway.leave()
      // A store that takes no writes ends at once (R10).
      const serveMs = hosted.ledger.failed ? 0 : config.listen.drain_seconds * 1_000
      return Promise.all([front.close(drainMs - serveMs, serveMs), hosted.stopExecuting()])
    })
    Object.assign(urls, { url: front.url, admin_url: admin.url })
    await hosted.setUse({ role: 'serve', adminUrl: admin.url })
    return {
      ...{ url: front.url, adminUrl: admin.url, metricsUrl, status },
      close: closers.close,
      ready: (note: (text: string) => void = options.onNote) => untilReady(machine, gateway, note),
      failed: failureOf(hosted),
    }
  })

function failureOf({ broken }: HostedGateway) {
  const failed = broken.then((reason): Promise<never> => Promise.reject(storeFailure(reason)))
  // Whoever waits for it hears of it; before that it is not lost, only unheard.
  failed.catch(() => undefined)
  return failed
}

async function serveMetrics(
  config: GatewayConfig,
  { readiness: reasons }: HostedGateway['gateway'],
  { metrics }: AdminListener,
  closers: Closers,
) {
  const { metrics: at } = config
  if (at === undefined) return undefined
  const scraped = await bound('metrics', config, () => listenMetrics({ ...at, reasons, metrics }))
  closers.add(scraped.close)
  return scraped.url
}

function warnOfConfig(
  { listen: { host }, chain: { profile, requesters }, proxy }: GatewayConfig,
  { onWarning }: ServerOptions,
) {
  if (!/^(localhost|::1|127(\.\d{1,3}){3})$/.test(host))
    onWarning(
      'plain_http',
      `${host} is reachable from outside over plain HTTP: put a TLS proxy in front of it`,
    )
  for (const block of proxy.trusted_cidrs)
    if (block.endsWith('/0'))
      onWarning(
        'proxy_trusts_all',
        `proxy.trusted_cidrs has ${block}: every caller may name the address that it is charged under; name your proxies alone`,
      )
  const addresses = requesters.map(({ address }) => address)
  for (const detail of unconfirmedAmong(profile, addresses)) onWarning('unconfirmed_pin', detail)
}

/** Both logs on one sink: a blocked one drops lines of either (robustness §5). */
function openLogs({ hash, random }: Machine, to: LogSink | 'stderr', level: LogLevel = 'info') {
  const sink = to === 'stderr' ? createBufferedWriter(logOfStderr()) : to
  const requests = createRequestLog({ hash, random, sink, level })
  return { sink, requests, states: createStateLog(sink, level) }
}

const actsOf = ({ operator }: HostedGateway) =>
  Object.fromEntries(
    Object.keys(actBodies)
      .filter(isActName)
      .map((name) => [`/operator/${name}`, (body: unknown) => operator.run(name, body)]),
  )

const readyPauseMs = 50

/** Each reason is noted once, however often its figures change (contract §6). */
export async function untilReady(
  { clock, signal }: Pick<Machine, 'clock' | 'signal'>,
  { readiness }: Pick<HostedGateway['gateway'], 'readiness'>,
  note: (text: string) => void,
): Promise<'ready'> {
  const noted = new Set<string>()
  for (;;) {
    const reasons = readiness()
    if (reasons.length === 0) return 'ready'
    for (const reason of reasons) {
      const kind = reason.replace(/\d+/g, '')
      if (!noted.has(kind)) note(`waiting: ${reason}`)
      noted.add(kind)
    }
    await clock.sleep(readyPauseMs, signal)
  }
}

const storeFailure = (reason: Error) =>
  reason instanceof ProposerError
    ? reason
    : new StorageError('store_failed', 'the store can no longer be written', {
        cause: reason,
        hint: 'check the disk, then restart `proposer serve`: everything acknowledged is kept',
      })

type ListenerKey = 'listen' | 'admin' | 'metrics'
const portHints: Readonly<Record<string, (key: ListenerKey) => string>> = {
  EADDRNOTAVAIL: (key) => `set ${key}.host to an address of this machine`,
  EACCES: (key) => `set ${key}.port to a port that this user may listen on`,
}

async function bound<T>(key: ListenerKey, config: GatewayConfig, open: () => Promise<T>) {
  try {
    return await open()
  } catch (error) {
    if (!(error instanceof Error && 'code' in error)) throw error
    const code = String(error.code)
    const hint =
      portHints[code]?.(key) ?? `give --port 0 for free ports, or --set ${key}.port=<port>`
    throw new UsageError(
      'port_unavailable',
      `${key}.port ${config[key]?.port} cannot be listened on (${code})`,
      { cause: error, hint },
    )
  }
}
