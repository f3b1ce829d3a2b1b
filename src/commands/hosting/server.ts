/** A gateway behind its listeners: what `serve` and `demo` run. */
import { resolve } from 'node:path'
import { unconfirmedAmong } from '../../core/chain/profiles.js'
import type { DevDescription } from '../../core/devchain/dev-chain.js'
import type { GatewayConfig } from '../../core/gateway/config.js'
import { applySet, parseConfig } from '../../core/gateway/config.js'
import { actBodies, isActName } from '../../core/gateway/operator/acts.js'
import type { AdminDesk } from '../../core/io/serving/admin-listener.js'
import type { LogSink } from '../../core/io/serving/request-log.js'
import type { GatewayGauges } from '../../core/protocol/call.js'
import { ProposerError, StorageError, UsageError } from '../../core/protocol/errors.js'
import type { Context } from '../terminal/context.js'
import { visible } from '../terminal/render.js'
import type { FaultBench } from './fault-bench.js'
import { type HostedGateway, type LoadedConfig, loadConfig, openGateway } from './gateway-host.js'
import { createRecent, type StatusFigures } from './live-status.js'
import { pageOf } from './operator-page.js'
import { folderBytes } from './store-size.js'

export interface ServerOptions {
  /** Home folder with the keystores, for an executor key that names an account. */
  readonly home: string
  /** `key=value`, dotted keys of gateway.json. */
  readonly assignments: readonly string[]
  /** Overrides gateway.json; 0 takes free ports, the admin's too. */
  readonly port?: number
  readonly host?: string
  /** One JSON line per request and per change of state on stderr. */
  readonly log: boolean
  /** Where those lines go instead, on a terminal that shows something else too. */
  readonly logSink?: LogSink
  readonly executorAccount?: string
  readonly executorPasswordFile?: string
  /** What calls meet on their way to the gateway, with a fault script. */
  readonly faults?: FaultBench
}

export interface RunningServer {
  readonly url: string
  readonly adminUrl: string
  /**
   * Resolves once `/readyz` answers 200; until then each reason is told once. Rejects with the
   * signal's reason.
   */
  ready(tell?: (note: string) => void): Promise<'ready'>
  /** What its live status shows now. */
  figures(): StatusFigures
  /** Rejects once the store can no longer be written (exit 74); never resolves. */
  readonly failed: Promise<never>
  /**
   * Lets calls in flight end for up to ten seconds, stops the pipeline, closes the store and lets
   * its lock go (R23).
   */
  close(): Promise<void>
}

/**
 * Calls in flight when a stop comes may take this long (R23); it is longer than any call is meant
 * to take.
 */
const drainMs = 10_000

/** What gateway.json, --set, --port and --host come to. Throws UsageError naming file and key. */
export async function configure(
  context: Context,
  path: string,
  options: ServerOptions,
): Promise<LoadedConfig> {
  const { config, ...file } = await loadConfig(context, path)
  const set = options.assignments.length === 0 ? config : applySet(config, ...options.assignments)
  const listen = { host: options.host ?? set.listen.host, port: options.port ?? set.listen.port }
  return {
    config: { ...set, listen, admin: options.port === 0 ? { port: 0 } : set.admin },
    ...file,
  }
}

/**
 * Judges --set before there is a configuration to set it in: a dev chain is not started for a key
 * that nothing has. UsageError.
 */
export function refuseBadAssignments(assignments: readonly string[]): void {
  const anywhere = `0x${'11'.repeat(20)}`
  const requesters = [{ address: anywhere, kind: 'uma-ctf-adapter' }]
  const chain = {
    rpc_urls: ['http://127.0.0.1'],
    signed_proposer: anywhere,
    oracles: [anywhere],
    requesters,
    tokens: [anywhere],
  }
  applySet(parseConfig({ chain }, 'the dev configuration'), ...assignments)
}

/**
 * Opens the gateway and both listeners. Nothing of it is left where it rejects: UsageError (2) for
 * configuration, keys and ports, StorageError (74) for the store.
 */
export async function startServer(
  context: Context,
  path: string,
  options: ServerOptions,
): Promise<RunningServer> {
  const loaded = await configure(context, path, options)
  const { host } = loaded.config.listen
  if (!isLoopback(host)) {
    context.output.warning(
      'plain_http',
      `${host} is reachable from outside, and this is plain HTTP: put a TLS proxy before it`,
    )
  }
  const { profile, requesters } = loaded.config.chain
  for (const told of unconfirmedAmong(
    profile,
    requesters.map(({ address }) => address),
  )) {
    context.output.warning('unconfirmed_pin', told)
  }
  const [{ listen }, { listenAdmin }, { createMeters }, { ensureAdminToken }, { watchLoad }, logs] =
    await Promise.all([
      import('../../core/io/serving/listener.js'),
      import('../../core/io/serving/admin-listener.js'),
      import('../../core/io/serving/admin-metrics.js'),
      import('../../core/io/serving/admin-token.js'),
      import('../../core/io/serving/load.js'),
      options.log ? openLogs(context, options.logSink) : undefined,
    ])
  const meters = createMeters()
  const recent = createRecent(context.clock)
  const load = watchLoad(context.clock.monotonicMs)
  const closers: (() => Promise<void>)[] = [async () => load.stop()]
  const closeAll = async () => {
    for (const close of closers.splice(0).reverse()) await close()
  }
  try {
    const hosted = await openGateway(context, loaded, {
      home: options.home,
      executorAccount: options.executorAccount,
      executorPasswordFile: options.executorPasswordFile,
      overloaded: load.overloaded,
      onWait: (reason) => context.output.note(`waiting: ${visible(reason)}`),
      onObservation: meters.observe,
      onRequest(record) {
        recent.noteCall(record)
        logs?.requests.write(record)
      },
      onState(line) {
        recent.noteChange(line)
        logs?.states.write(line)
      },
    })
    closers.push(() => hosted.close())
    const { gateway } = hosted
    const looking = setInterval(hosted.look, lookMs)
    looking.unref()
    closers.push(async () => clearInterval(looking))
    const store = resolve(loaded.folder, loaded.config.store)
    const token = await ensureAdminToken(context, store)
    const host = {
      vitals: hosted.vitals,
      storeBytes: () => folderBytes(store),
      droppedLines: () => logs?.sink.dropped() ?? 0,
    }
    const faulty = options.faults?.before(hosted, (line) => {
      if (options.logSink) options.logSink.write(`${visible(line)}\n`)
      else context.output.note(visible(line))
    })
    const desk = adminDesk(
      loaded.config,
      hosted,
      token,
      faulty && { '/operator/faults': faulty.counts },
    )
    let frontUrl: string | undefined
    const page = pageOf(context, loaded.config, hosted, {
      frontUrl: () => frontUrl,
      lastMinute: recent.lastMinute,
    })
    closers.push(async () => page.stop())
    const admin = await bound('admin', loaded.config, () =>
      listenAdmin({ ...gateway, host, meters, port: loaded.config.admin.port, desk, page }),
    )
    closers.push(() => admin.close())
    const front = await bound('listen', loaded.config, () =>
      listen({
        ...loaded.config.listen,
        handler: faulty?.handle ?? gateway.answer,
        onRefused: gateway.observe,
      }),
    )
    frontUrl = front.url
    // At once: the listener takes no new calls while the gateway answers those in flight.
    closers.push(async () => {
      await Promise.all([front.close(drainMs), gateway.drain()])
    })
    await hosted.setUse({ role: 'serve', adminUrl: admin.url })
    const failed = hosted.broken.then((reason) => Promise.reject(storeFailure(reason)))
    // Whoever waits for it hears of it; before that it is not lost, only unheard.
    failed.catch(() => undefined)
    return {
      url: front.url,
      adminUrl: admin.url,
      ready: (tell = context.output.note) => untilReady(context, gateway, tell),
      figures: () => ({
        url: front.url,
        adminUrl: admin.url,
        reasons: gateway.readiness(),
        gauges: gateway.gauges(),
        vitals: hosted.vitals(),
        lastMinute: recent.lastMinute(),
        changes: recent.changes(),
      }),
      failed,
      close: closeAll,
    }
  } catch (error) {
    await closeAll()
    throw error
  }
}

/** Nodes and readiness change without an event. */
const lookMs = 1_000

/**
 * Both logs on one sink, so that a blocked one drops lines of either and counts them (robustness
 * §5).
 */
async function openLogs({ hash, random }: Context, given: LogSink | undefined) {
  const [{ createPatientWriter, logOfStderr }, { createRequestLog }, { createStateLog }] =
    await Promise.all([
      import('../../core/io/serving/patient-writer.js'),
      import('../../core/io/serving/request-log.js'),
      import('../../core/io/serving/state-log.js'),
    ])
  const sink = given ?? createPatientWriter(logOfStderr())
  return { sink, requests: createRequestLog({ hash, random, sink }), states: createStateLog(sink) }
}

/**
 * What the admin listener has beyond looking at the process: the operator's acts, and the budget,
 * which lives in memory only.
 */
function adminDesk(
  { budget }: GatewayConfig,
  { desk, gateway }: HostedGateway,
  token: string,
  more: AdminDesk['looks'] | undefined,
): AdminDesk {
  const acts = Object.keys(actBodies).filter(isActName)
  return {
    token,
    looks: {
      '/operator/budget': () => ({
        window_seconds: budget.window_seconds,
        ...budgetOf(gateway.gauges()),
      }),
      ...more,
    },
    acts: Object.fromEntries(
      acts.map((name) => [`/operator/${name}`, (body: unknown) => desk.run(name, body)]),
    ),
  }
}

const budgetOf = ({ budget }: GatewayGauges) => ({
  global_items: budget.limitItems,
  per_ip_items: budget.perClientLimitItems,
  spent_items: budget.spentItems,
  window_ends_in_seconds: Math.ceil(budget.endsInMs / 1_000),
  clients: budget.clients,
})

/** Puts what a gateway for a dev chain needs into a folder; the path of its gateway.json. */
export async function writeDevGateway(folder: string, dev: DevDescription): Promise<string> {
  const { writeDevFolder } = await import('../../core/devchain/dev-chain.js')
  await writeDevFolder(folder, dev)
  return `${folder}/gateway.json`
}

const readyPauseMs = 50

/**
 * Resolves once the gateway is ready; until then each reason is told once, however often the
 * figures in it change (contract §6).
 */
export async function untilReady(
  { clock, signal }: Pick<Context, 'clock' | 'signal'>,
  { readiness }: Pick<HostedGateway['gateway'], 'readiness'>,
  tell: (note: string) => void,
): Promise<'ready'> {
  const told = new Set<string>()
  for (;;) {
    const reasons = readiness()
    if (reasons.length === 0) return 'ready'
    for (const reason of reasons) {
      const kind = reason.replace(/\d+/g, '')
      if (!told.has(kind)) tell(`waiting: ${visible(reason)}`)
      told.add(kind)
    }
    await clock.sleep(readyPauseMs, signal)
  }
}

function storeFailure(reason: Error): ProposerError {
  if (reason instanceof ProposerError) return reason
  return new StorageError('store_failed', 'the store can no longer be written', {
    cause: reason,
    hint: 'look at the disk, then start `proposer serve` again: what was acknowledged is there',
  })
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host)
}

/** Listening, or UsageError naming the key and the port that cannot be had. */
async function bound<T>(
  key: 'listen' | 'admin',
  config: GatewayConfig,
  listen: () => Promise<T>,
): Promise<T> {
  try {
    return await listen()
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : undefined
    if (code === undefined) throw error
    const { port } = config[key]
    throw new UsageError(
      'port_unavailable',
      `${key}.port ${port} cannot be listened on (${code})`,
      {
        cause: error,
        hint:
          key === 'listen'
            ? 'give --port 0 for free ports'
            : 'give --set admin.port=0 for a free one',
      },
    )
  }
}
