/**
 * `serve`: the gateway until SIGINT, SIGTERM or SIGHUP, with a chain of its own for --dev (contract
 * §6).
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Command } from 'commander'
import type { DevChain, DevDescription } from '../core/devchain/dev-chain.js'
import type { FaultScript } from '../core/io/serving/fault-script.js'
import type { LogSink } from '../core/io/serving/request-log.js'
import { exit, UnavailableError, UsageError } from '../core/protocol/errors.js'
import {
  aborted,
  endsAsServer,
  noteQuestions,
  portNumber,
  unlessStopped,
  wholeNumber,
} from './hosting/foreground.js'
import type { LiveStatus } from './hosting/live-status.js'
import { notesAsLog } from './hosting/log-notes.js'
import {
  type RunningServer,
  refuseBadAssignments,
  type ServerOptions,
  startServer,
  writeDevGateway,
} from './hosting/server.js'
import { fromCwd } from './session/paths.js'
import { type GlobalFlags, homeSetting } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { terminalSize } from './terminal/output.js'
import { fold } from './terminal/render.js'

interface ServeFlags extends GlobalFlags {
  readonly executorAccount?: string
  readonly executorPasswordFile?: string
  readonly config?: string
  readonly dev?: boolean
  readonly port?: string
  readonly host?: string
  readonly questions?: string
  readonly set: readonly string[]
  readonly check?: boolean
  readonly log?: boolean
  readonly faults?: string
}

interface ServeOptions extends ServerOptions {
  readonly quiet: boolean
  /** Called once the gateway runs. */
  readonly onRunning?: () => void
}

const gather = (value: string, before: readonly string[]) => [...before, value]

const faultsHelp = `
A fault script is {"rules": [{"on": …, "do": …}, …]}. Each rule counts the calls it is about, and fires at those it names.

"on", which calls: a route, and where wanted a question and a count:
  {"route": "submit"}
      or status, signing-data, eligibility, batch submit, batch status, batch signing-data, any
  {…, "question": "some-slug"}
      for one question only
  {…, "nth": 2}
      or "every": 3, or "from": 2, "to": 5; without it every call

"do", what happens; "when" is "before" or "after" the gateway has dealt with the call:
  {"act": "drop", "when": "after"}
      the connection is reset
  {"act": "stall", "when": "before"}
      no answer ever
  {"act": "answer", "when": "after", "status": 502}
      a proxy's page of HTML; also 504
  {"act": "answer", "when": "before", "status": 429}
      not admitted; also 503; any answer may have "retry_after_seconds": 5
  {"act": "delay", "when": "before", "milliseconds": 2000}
      a slow answer
  {"act": "advance_round"}
      a dispute opens a new round before the call goes on
  {"act": "lose_chain", "seconds": 20}
      the gateway's node is gone; the call goes on once that was noticed
  {"act": "skew_clock", "seconds": 90}
      the gateway's wall clock, until another rule sets it

Each rule that fires is a line on stderr; GET /operator/faults on the admin listener counts them. The chain counts as unknown once its newest block is older than --set chain.max_head_age_seconds=…`

export const serveCommand = (context: Context): Command =>
  new Command('serve')
    .description('run the gateway until SIGINT, SIGTERM or SIGHUP')
    .option('--config <gateway.json>', 'its configuration', undefined)
    .option(
      '--dev',
      'a chain of its own, funded accounts, example questions and a temporary store instead',
    )
    .option('--port <number>', 'where it listens; 0: free ports, for the admin listener too')
    .option(
      '--host <address>',
      'which address it listens on; beyond loopback put a TLS proxy before it',
    )
    .option('--questions <number>', 'with --dev: how many example questions are open; default: 12')
    .option(
      '--faults <script.json>',
      'with --dev: calls that go wrong as the script says, to test a client of yours against',
    )
    .option(
      '--set <key=value>',
      'override a dotted key of gateway.json; may be repeated',
      gather,
      [],
    )
    .option(
      '--check',
      'look at configuration, key, chain, store and ports, tell each fault with its fix, and serve nothing',
    )
    .option(
      '--executor-account <name>',
      'keystore of the executor, in place of the key that gateway.json names',
    )
    .option('--executor-password-file <file>', 'its password')
    .option(
      '--log',
      'one JSON line per request and change of state on stderr; on by itself where stderr is no terminal',
    )
    .option('--no-log', 'no such lines')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer serve --dev\n  proposer serve --config gateway.json --check\n  proposer serve --config gateway.json --set budget.per_ip_items=500\n  proposer serve --dev --faults script.json',
    )
    .addHelpText('after', faultsHelp)
    .action(async (_own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<ServeFlags>()
      refuseContradictions(flags)
      crashLoudly(context)
      // For a terminal it would be noise, and for a log that somebody keeps its absence a loss.
      const log = flags.log ?? (!context.output.notesAreTerminal && flags.quiet !== true)
      const isKept = log && !context.output.notesAreTerminal && flags.check !== true
      context.endAs?.(endsAsServer)
      const options: ServeOptions = {
        home: homeSetting(context, flags).value,
        assignments: flags.set,
        quiet: flags.quiet === true,
        log,
        ...(isKept ? { onRunning: notesAsLog(context.output, context.clock) } : {}),
        ...(flags.port === undefined ? {} : { port: portNumber('--port', flags.port) }),
        ...(flags.host === undefined ? {} : { host: flags.host }),
        ...(flags.executorAccount === undefined ? {} : { executorAccount: flags.executorAccount }),
        ...(flags.executorPasswordFile === undefined
          ? {}
          : { executorPasswordFile: flags.executorPasswordFile }),
      }
      if (flags.dev === true)
        await serveDev(context, options, {
          questions: wholeNumber('--questions', flags.questions ?? '12', 0, 10_000),
          checkOnly: flags.check === true,
          script:
            flags.faults === undefined ? undefined : await readFaultScript(context, flags.faults),
        })
      else {
        const path = fromCwd(context.cwd, flags.config ?? 'gateway.json')
        if (flags.check === true) await check(context, path, options)
        else await run(context, path, options, undefined)
      }
    })

function refuseContradictions(flags: ServeFlags): void {
  const usage = (detail: string, hint: string) => new UsageError('usage', detail, { hint })
  if (flags.dev !== true) {
    if (flags.faults !== undefined)
      throw usage(
        '--faults has no meaning without --dev: no real gateway fails on purpose',
        'add --dev',
      )
    if (flags.questions !== undefined)
      throw usage('--questions has no meaning without --dev', 'leave it out, or add --dev')
    if (flags.config === undefined) {
      throw usage(
        'serve needs a configuration',
        'give --config gateway.json (`proposer devchain --write <folder>` makes one), or --dev',
      )
    }
    return
  }
  if (flags.config !== undefined)
    throw usage(
      '--dev makes its own configuration, so --config has no place beside it',
      'leave one of them out',
    )
  if (flags.set.some((assignment) => /^store\s*=/.test(assignment))) {
    throw usage(
      '--dev uses a temporary store, so --set store has no place beside it',
      'use --config for a store that stays',
    )
  }
}

/**
 * What nobody foresaw ends the process at once: no clean-up that could write (robustness §5). Codes
 * and names only (R5).
 */
function crashLoudly(context: Context): void {
  const crash = (kind: string) => (error: unknown) => {
    const code =
      error instanceof Error ? ('code' in error ? String(error.code) : error.name) : typeof error
    context.output.warn(JSON.stringify({ event: 'crash', kind, code }))
    process.exit(exit.bug)
  }
  process.on('uncaughtException', crash('uncaughtException'))
  process.on('unhandledRejection', crash('unhandledRejection'))
}

/**
 * The chain and the folder of `--dev` end with it. When it is killed the chain goes too, because
 * its keeper watches a pipe of ours.
 */
async function serveDev(
  context: Context,
  options: ServeOptions,
  {
    questions,
    checkOnly,
    script,
  }: { questions: number; checkOnly: boolean; script: FaultScript | undefined },
): Promise<void> {
  refuseBadAssignments(options.assignments)
  const folder = await mkdtemp(join(tmpdir(), 'proposer-serve-'))
  try {
    const { startDevChain } = await import('../core/devchain/dev-chain.js')
    const chain = await startDevChain({ questions }).catch(unlessStopped(context.signal))
    if (chain === undefined) return
    try {
      const path = await writeDevGateway(folder, chain.description)
      if (checkOnly) await check(context, path, options)
      else if (script === undefined) await run(context, path, options, chain)
      else {
        const { createFaultBench } = await import('./hosting/fault-bench.js')
        const faults = createFaultBench(context, script, chain.description)
        await run(faults.context, path, { ...options, faults }, chain)
      }
    } finally {
      await chain.stop()
    }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/**
 * Judged before a dev chain is started. Throws UsageError naming the file, and the key of it that
 * is wrong.
 */
async function readFaultScript(context: Context, path: string): Promise<FaultScript> {
  const [{ parseFaultScript }, { readOwnJson }] = await Promise.all([
    import('../core/io/serving/fault-script.js'),
    import('./session/inputs.js'),
  ])
  return parseFaultScript(
    await readOwnJson(context, path, 'give --faults with the path of a script'),
    path,
  )
}

/**
 * From the open gateway to its end by a signal (exit 0), a failed store (74) or a dead dev chain
 * (75).
 */
async function run(
  context: Context,
  path: string,
  options: ServeOptions,
  chain: DevChain | undefined,
): Promise<void> {
  const shown = options.quiet ? undefined : await openStatus(context)
  const server = await startServer(context, path, {
    ...options,
    ...(shown ? { logSink: shown.logSink } : {}),
  }).catch((error: unknown) => {
    // It was told to end while it waited for the chain.
    if (context.signal.aborted && error === context.signal.reason) return undefined
    throw error
  })
  if (!server) return
  options.onRunning?.()
  const status = shown?.status
  status?.start(server.figures)
  const over = Promise.race([
    aborted(context.signal),
    server.failed.catch((error: unknown) => {
      leaveSoon(storeFailureMs, exit.storage)
      throw error
    }),
    ...(chain ? [chain.ended.then(() => 'chain' as const)] : []),
  ])
  try {
    // The status shows why it waits.
    const ready = server.ready(status && (() => undefined)).catch((error: unknown) => {
      // A signal before it was ready is an end like any other.
      if (!context.signal.aborted) throw error
      return 'signal' as const
    })
    if ((await Promise.race([ready, over])) === 'ready') {
      const tell = () => announce(context, server, chain?.description)
      if (status) await status.around(tell)
      else tell()
    }
    if ((await over) === 'chain' && !context.signal.aborted) {
      throw new UnavailableError('dev_chain_ended', 'the dev chain ended by itself', {
        hint: 'start `proposer serve --dev` again',
      })
    }
    leaveSoon(drainMs, exit.done)
    await status?.end(
      'draining: calls in flight are answered, for 10 s at most; Ctrl-C again ends it at once',
    )
  } finally {
    await status?.end('stopping')
    await server.close()
  }
}

/**
 * The live status, where stderr is a terminal that can be drawn on; log lines then appear above it.
 * Everything goes through a writer that waits for nobody: a terminal that is held must not hold the
 * gateway (robustness §5).
 */
async function openStatus({
  env,
  output,
  streams: { stderr },
}: Context): Promise<{ status: LiveStatus; logSink: LogSink } | undefined> {
  if (!output.notesAreTerminal || env.TERM === 'dumb') return undefined
  const [{ createLiveStatus }, { createPatientWriter, terminalOfStderr }, { Chalk }] =
    await Promise.all([
      import('./hosting/live-status.js'),
      import('../core/io/serving/patient-writer.js'),
      import('chalk'),
    ])
  const { write, isIdle, written, dropped } = createPatientWriter(terminalOfStderr())
  const status = createLiveStatus({
    size: () => terminalSize(stderr),
    write,
    isIdle,
    written: () => written(terminalMs),
    paint: new Chalk({ level: (env.NO_COLOR ?? '') === '' ? 1 : 0 }),
  })
  return { status, logSink: { write: (line) => status.above(line.trimEnd()), dropped } }
}

/**
 * What is to be read before the ready line or at the end is waited for, but not for a terminal that
 * is held (Ctrl-S).
 */
const terminalMs = 500

/**
 * After a failed store the process ends within two seconds (R10), after a signal within ten (R23),
 * whatever still holds it.
 */
const storeFailureMs = 1_500
const drainMs = 10_500

/**
 * Fires only where something else keeps the process alive; by then everything that matters is on
 * disk.
 */
function leaveSoon(afterMs: number, code: number): void {
  setTimeout(() => process.exit(code), afterMs).unref()
}

function announce(context: Context, server: RunningServer, dev: DevDescription | undefined): void {
  const { output } = context
  const pid = context.liveness.pid
  if (output.mode !== 'human') {
    output.line({
      event: 'ready',
      url: server.url,
      admin_url: server.adminUrl,
      pid,
      ...(dev ? { dev } : {}),
    })
    return
  }
  output.text(`ready ${server.url} (admin ${server.adminUrl}, pid ${pid})\n`)
  if (!dev) return
  output.note(
    fold(
      `chain ${dev.chain_id} at ${dev.rpc_url}; keys and pins of its accounts with --json. Open questions:`,
      output.columns,
    ),
  )
  noteQuestions(output, dev.questions)
  if (dev.questions.length > 3) output.note(`  and ${dev.questions.length - 3} more`)
}

async function check(context: Context, path: string, options: ServerOptions): Promise<void> {
  const [{ checkGateway }, { findingsText, report }] = await Promise.all([
    import('./hosting/serve-check.js'),
    import('./hosting/findings.js'),
  ])
  const findings = await checkGateway(context, path, options)
  const checked = report(findings)
  context.output.result('check', checked, () => findingsText(findings, context.output))
  const [first] = checked.faults
  if (first === undefined) return
  const { length } = checked.faults
  throw new UsageError(
    'check_failed',
    length === 1 ? first.detail : `${length} faults, the first: ${first.detail}`,
    { hint: first.hint },
  )
}
