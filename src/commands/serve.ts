/** `serve`: the gateway until a signal, with a chain of its own for --dev (contract §6). */

import { dirname, join } from 'node:path'
import type { Finding } from '#checks/finding'
import type { DevChain, DevDescription } from '#devchain/dev-chain'
import { configure, refuseBadAssignments, storeNote } from '#host/config-file'
import type { FaultBench } from '#host/fault-bench'
import type { RunningServer } from '#host/server'
import { fromCwd } from '#io/home'
import { aborted, endsAsServer } from '#io/interruption'
import { probePort } from '#io/probes'
import type { Clock } from '#ports'
import { exit, UsageError } from '#protocol/errors'
import { type LogLevel, logFrame, logLevels } from '#protocol/log-level'
import { programVersion } from '#protocol/version'
import { usualPorts } from '#protocol/words'
import {
  chainEnded,
  devVariables,
  noteQuestions,
  startingChain,
  tellReady,
  withDevFolder,
} from './hosting/foreground.js'
import { executorKeyOf, readOwnJson } from './session/inputs.js'
import { homeSetting, wholeNumber } from './session/settings.js'
import type { Context } from './terminal/context.js'
import type { Output } from './terminal/output.js'
import {
  findingsText,
  jsonText,
  passesCounted,
  shellWord,
  visible,
  withPastedFixes,
} from './terminal/render.js'
import { type EveryFlag, type FlagsOf, parserOf, repeated, verb } from './terminal/verb.js'

const faultsHelp = `
A fault script is {"rules": [{"on": …, "do": …}, …]}; docs/ci.md has them all. Such as:
  {"on": {"route": "submit", "nth": 2}, "do": {"act": "drop", "when": "after"}}

Each rule that fires is a line on stderr; GET /operator/faults on the admin listener counts them.`

const serveFlags = {
  '--config <gateway.json>': 'path of gateway.json',
  '--dev': {
    about: 'run against a throwaway dev chain with funded accounts',
    conflicts: ['--config'],
  },
  '--port <number>': {
    about: 'port to listen on; 0 picks free ports',
    parse: (text: string) => wholeNumber('--port', text, 0, 65_535),
  },
  '--host <address>': 'address to listen on; beyond loopback put a TLS proxy in front',
  '--questions <number>': {
    about: 'with --dev: number of example questions; default: 12',
    parse: (text: string) => wholeNumber('--questions', text, 0, 10_000),
  },
  '--oracle <version>': {
    about: 'with --dev: version of the managed oracle; default: v2',
    choices: ['v2', 'v3'],
  },
  '--faults <script.json>': 'with --dev: inject the faults of a script, to test a client',
  '--set <key=value>': {
    about: 'override a dotted key of gateway.json; may be repeated',
    parse: repeated(String),
  },
  '--check':
    'check configuration, key, chain, store and ports, report each fault with its fix, and exit',
  '--executor-account <name>': 'keystore of the executor, instead of the key in gateway.json',
  '--executor-password-file <file>': 'file with its password',
  '--log':
    'log one JSON line per request and state change to stderr; default unless stderr is a terminal',
  '--no-log': 'do not log',
  '--log-level <level>': 'minimum level: debug, info, warn or error; default: info',
} as const
type ServeFlags = FlagsOf<typeof serveFlags> & EveryFlag

export const serveCommand = verb({
  name: 'serve',
  about: 'run the gateway until SIGINT, SIGTERM or SIGHUP',
  flags: serveFlags,
  examples: [
    'serve --dev',
    'serve --config gateway.json --check',
    'serve --config gateway.json --set budget.per_ip_items=500',
    `serve --dev --faults script.json\n${faultsHelp}`,
  ],
  async run(context, flags) {
    refuseContradictions(flags)
    crashLoudly(context)
    context.endAs?.(endsAsServer)
    const served = servedBy(context, flags)
    if (flags.dev) return serveDev(context, served, flags)
    const path = fromCwd(context.cwd, flags.config ?? 'gateway.json')
    await (flags.check ? check : run)(context, path, served)
  },
})

type Served = ReturnType<typeof servedBy> & {
  readonly chain?: DevChain
  readonly faults?: FaultBench
}

function servedBy(context: Context, flags: ServeFlags) {
  const { output } = context
  const log = flags.log ?? (!output.notesAreTerminal && flags.quiet !== true)
  const from = flags.logLevel === undefined ? 'PROPOSER_LOG_LEVEL' : '--log-level'
  const logLevel = logLevelOf(from)(flags.logLevel ?? (context.env.PROPOSER_LOG_LEVEL || 'info'))
  if (log && !output.notesAreTerminal && flags.check !== true)
    notesAsLog(output, context.clock, logLevel)
  return {
    assignments: flags.set ?? [],
    port: flags.port,
    host: flags.host,
    executorKey: executorKeyOf(context, homeSetting(context, flags).value, flags),
    quiet: flags.quiet === true,
    log,
    logLevel,
  }
}

function refuseContradictions({ dev, config, set = [], ...flags }: ServeFlags) {
  const refuse = (detail: string, hint: string) => {
    throw new UsageError('usage', detail, hint)
  }
  if (dev && set.some((one) => /^store\s*=/.test(one)))
    refuse(
      '--dev uses a temporary store and does not accept --set store',
      'use --config for a permanent store',
    )
  if (dev) return
  for (const name of ['faults', 'questions', 'oracle'] as const)
    if (flags[name] !== undefined)
      refuse(
        `--${name} requires --dev`,
        name === 'faults' ? 'add --dev' : 'leave it out, or add --dev',
      )
  if (config === undefined)
    refuse(
      'serve needs a configuration',
      'give --config gateway.json (`proposer devchain --write <folder>` makes one), or --dev',
    )
}

/** No clean-up that could write (robustness §5); codes and names only (R5). */
function crashLoudly(context: Context) {
  for (const kind of ['uncaughtException', 'unhandledRejection'] as const)
    process.on(kind, (error: unknown) => {
      const named = error instanceof Error ? error.name : typeof error
      const code = error instanceof Error && 'code' in error ? String(error.code) : named
      context.output.warn(JSON.stringify({ event: 'crash', kind, code }))
      process.exit(exit.bug)
    })
}

async function serveDev(outer: Context, served: Served, flags: ServeFlags) {
  const context = { ...outer, storeUrlFile: undefined }
  const { questions = 12, oracle, faults: scriptPath } = flags
  const script = scriptPath === undefined ? undefined : await faultScript(context, scriptPath)
  refuseBadAssignments(served.assignments)
  const start = () => startingChain(context, { questions, ...(oracle && { oracle }) })
  await withDevFolder('serve', start, async (folder, chain) => {
    const path = join(folder, 'gateway.json')
    if (flags.check) return check(context, path, served)
    const placed = { ...(await withFreePorts(served)), chain }
    if (script === undefined) return run(context, path, placed)
    const { createFaultBench } = await import('#host/fault-bench')
    const faults = createFaultBench(context, script, chain.description)
    await run(context, path, { ...placed, faults })
  })
}

async function withFreePorts(served: Served) {
  const { port, host = '127.0.0.1', assignments } = served
  const freeFor = async (key: 'listen' | 'admin', at: string) => {
    if (assignments.some((one) => one.startsWith(`${key}.port=`))) return []
    return (await probePort(at, usualPorts[key])) === 'EADDRINUSE' ? [`${key}.port=0`] : []
  }
  const listen = port === undefined ? await freeFor('listen', host) : []
  const free = [...listen, ...(await freeFor('admin', '127.0.0.1'))]
  return { ...served, assignments: [...assignments, ...free] }
}

async function faultScript(context: Context, path: string) {
  const { parseFaultScript } = await import('#io/serving/fault-script')
  const json = await readOwnJson(context, path, 'give --faults with the path of a script')
  return parseFaultScript(json, path)
}

/** It ends by a signal (exit 0), a failed store (74) or a dead dev chain (75). */
async function run(context: Context, path: string, served: Served) {
  const { output, signal } = context
  const { chain, faults } = served
  const [{ openStatus }, { startServer }] = await Promise.all([
    import('./hosting/live-status.js'),
    import('#host/server'),
  ])
  const live = served.quiet ? undefined : openStatus(context)
  const loaded = await configure(context, path, served)
  const elsewhere = storeNote(loaded)
  if (elsewhere !== undefined) output.note(elsewhere)
  const server = await startServer(faults?.machine ?? context, loaded, {
    executorKey: served.executorKey,
    version: programVersion,
    log: served.log ? (live?.logSink ?? 'stderr') : undefined,
    logLevel: served.logLevel,
    onNote: (text) => output.note(visible(text)),
    onWarning: (code, detail) => output.warning(code, detail),
    onFault: live && ((line) => live.logSink.write(`${visible(line)}\n`)),
    faults,
  }).catch((error: unknown) => {
    // It was told to end while it waited for the chain.
    if (signal.aborted && error === signal.reason) return undefined
    throw error
  })
  if (!server) return
  const status = live?.status
  // These two are for who asks: `operator status`.
  status?.start(() => ({ ...server.status(), ceilings: {}, wallets: [] }))
  const over = Promise.race([
    aborted(signal),
    server.failed.catch((error: unknown) => {
      leaveSoon(storeFailureMs, exit.storage)
      throw error
    }),
    ...(chain ? [chain.ended.then(() => 'chain' as const)] : []),
  ])
  try {
    const ready = server.ready(status && (() => undefined)).catch((error: unknown) => {
      if (!signal.aborted) throw error
      return 'signal' as const
    })
    if ((await Promise.race([ready, over])) === 'ready') {
      const print = () => announce(context, server, chain?.description, dirname(path))
      if (status) await status.around(print)
      else print()
    }
    if ((await over) === 'chain' && !signal.aborted)
      throw chainEnded('start `proposer serve --dev` again')
    leaveSoon(drainMs, exit.done)
    await status?.end('draining calls in flight for up to 10 s; press Ctrl-C again to stop now')
  } finally {
    await status?.end('stopping')
    await server.close()
  }
}

/** Within two seconds after a failed store (R10), within ten after a signal (R23). */
const storeFailureMs = 1_500
const drainMs = 10_500

function leaveSoon(afterMs: number, code: number) {
  setTimeout(() => process.exit(code), afterMs).unref()
}

function announce(
  context: Context,
  server: RunningServer,
  dev: DevDescription | undefined,
  folder: string,
) {
  const { output, liveness } = context
  const { url, adminUrl: admin_url, metricsUrl: metrics_url } = server
  const { pid } = liveness
  const ready = { schema: 'proposer.ready/1', event: 'ready', url, admin_url, metrics_url }
  if (!output.isForPeople) return output.line({ ...ready, pid, dev })
  const metrics = metrics_url === undefined ? '' : `, metrics ${metrics_url}`
  tellReady(output, `ready ${url} (admin ${admin_url}${metrics}, pid ${pid})`)
  if (dev === undefined) return
  const exports = Object.entries(devVariables(folder, url, dev)).map(
    ([name, value]) => `export ${name}=${shellWord(value)}`,
  )
  if (!output.isTerminal) output.text(`${exports.join('\n')}\n`)
  const [first] = dev.questions
  output.note(`chain ${dev.chain_id} at ${dev.rpc_url}. Open questions:`)
  noteQuestions(output, dev.questions)
  // A log is pasted nowhere; the result has them then.
  if (!output.notesAreTerminal) return
  output.note('To propose here, paste into another terminal:')
  output.note('')
  for (const line of exports) output.note(line)
  output.note('\nThen:\n  proposer questions list')
  if (first !== undefined)
    output.note(`  proposer submit ${shellWord(first.slug)} --outcome yes --wait`)
}

async function check(context: Context, path: string, served: Served) {
  const { checkGateway } = await import('#host/serve-check')
  const { output } = context
  const findings = withPastedFixes(context, await checkGateway(context, path, served))
  const of = (wanted: Finding['result']) =>
    findings
      .filter(({ result }) => result === wanted)
      .map(({ id: check, detail, fix: hint }) => ({ check, detail, ...(hint && { hint }) }))
  const faults = of('fail')
  const count = faults.length
  const others = { warnings: of('warn'), told: of('note'), right: of('pass') }
  output.show('serve-check', { ok: count === 0, faults, ...others }, [
    findingsText(passesCounted(findings)),
  ])
  const [first] = faults
  if (first === undefined) return
  const [detail, hint] =
    output.isForPeople && output.isTerminal
      ? [
          `${count} of ${findings.length} checks failed`,
          'fix the failures above in order, then check again',
        ]
      : [count === 1 ? first.detail : `${count} faults, the first: ${first.detail}`, first.hint]
  throw new UsageError('check_failed', detail, hint)
}

function notesAsLog(output: Output, clock: Pick<Clock, 'nowMs'>, least: LogLevel) {
  const { note, warn, isForPeople } = output
  const log = (severity: LogLevel, event: string, message: string, more: object) => {
    const line = { ...logFrame(severity, clock.nowMs(), event, message), ...more }
    const write = severity === 'info' ? note : warn
    if (logLevels[severity] >= logLevels[least]) write(jsonText(line, 0))
  }
  output.note = (detail) => log('info', 'note', detail, { detail })
  output.warning = (code, detail) => {
    const document = isForPeople ? {} : { warning: { code, detail } }
    log('warn', 'warning', detail, { detail, code, ...document })
  }
  output.warn = (text) => {
    const [first = ''] = text.split('\n')
    if (!text.startsWith('{'))
      return log('error', 'error', first.replace(/^error: /, ''), { detail: text })
    // An error as a document, or a crash, which is told in JSON already.
    const document = JSON.parse(text) as { event?: string; error?: { detail: string } }
    const { event = 'error', error } = document
    log('error', event, error?.detail ?? 'this is a bug: the process ends', document)
  }
}

const logLevelOf = (name: string) =>
  parserOf(
    name,
    (text) => (Object.hasOwn(logLevels, text) ? (text as LogLevel) : undefined),
    'bad_log_level',
    'a log level',
    `give --log-level, or PROPOSER_LOG_LEVEL, one of ${Object.keys(logLevels).join(', ')}`,
  )
