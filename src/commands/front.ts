/** From argv to exit code: the one switch from error to message (contract §6). */
import { ChainError, TransportError } from '#ports'
import {
  type ExitCode,
  exit,
  ProposerError,
  StorageError,
  UnavailableError,
} from '#protocol/errors'
import { networkFault } from '#protocol/network-words'
import { programVersion } from '#protocol/version'
import { errorCode } from '#storage/failures'
import type { Context } from './terminal/context.js'
import { colorChoices, createOutput, forNotes, type Output } from './terminal/output.js'
import { jsonText } from './terminal/render.js'
import { givenIn, withFlags } from './terminal/verb.js'

export async function runFront(argv: readonly string[], context: Context): Promise<ExitCode> {
  const output = outputFor(argv, context)
  try {
    try {
      const { runVerb } = await import('./program.js')
      const pasted = (text: string) => withFlags(text, argv)
      await runVerb(argv, await traced({ ...context, output, runVerb, pasted }))
    } finally {
      await context.close()
    }
    const failure = await output.written()
    if (failure) throw notWritten(failure)
    return exit.done
  } catch (error) {
    const failure = failureOf(error, context.signal)
    context.endAs?.({ exitCode: () => failure.meta.exitCode })
    return report(failure, output, argv)
  }
}

async function traced(context: Context): Promise<Context> {
  const { edges, clock, output, env } = context
  if (!output.isVerbose) return context
  const { tracedFetch } = await import('./terminal/trace.js')
  const others = [env.PROPOSER_RPC_URL ?? []].flat()
  const over: Context['traced'] = (fetch) => tracedFetch(fetch, clock, output.warn, others)
  return {
    ...context,
    edges: { ...edges, fetch: async () => over(await edges.fetch()) },
    traced: over,
  }
}

export function reportCrash(argv: readonly string[], context: Context, error: unknown) {
  return report(unforeseen(error), outputFor(argv, context), argv)
}

/** Before commander has parsed: its own complaints come in the form that was asked for. */
function outputFor(argv: readonly string[], { streams, env }: Context) {
  const { has, value } = givenIn(argv)
  const field = value('field')
  return createOutput({
    ...streams,
    env,
    mode: has('ndjson') ? 'ndjson' : has('json') || field !== undefined ? 'json' : 'human',
    quiet: has('quiet'),
    color: colorChoices.find((choice) => choice === value('color')) ?? 'auto',
    field,
    verbose: !/^(0|false)?$/.test(env.PROPOSER_DEBUG ?? '') || has('verbose'),
  })
}

function notWritten(failure: Error) {
  return new StorageError(
    'output_not_written',
    `the result could not be written to standard output (${errorCode(failure) ?? failure.name})`,
    'the command itself is done; free some space, then show its result with `proposer journal list` or `proposer status`',
  )
}

function failureOf(error: unknown, { aborted, reason }: AbortSignal) {
  if (error instanceof ProposerError) return error
  const isStopped = aborted && (error === reason || isAbort(error))
  if (isStopped && reason instanceof ProposerError) return reason
  if (error instanceof ChainError)
    return new UnavailableError('chain_unavailable', `the RPC node failed: ${error.message}`, {
      retryable: error.kind === 'unavailable',
      hint: 'check --rpc-url and retry later',
    })
  if (error instanceof TransportError)
    return new UnavailableError(
      'gateway_unreachable',
      `gateway: ${networkFault(error)}`,
      'check --gateway and retry later',
    )
  const code = errorCode(error)
  if (code === undefined || !diskCodes.has(code)) return unforeseen(error)
  const path = error instanceof Error && 'path' in error ? error.path : undefined
  return new StorageError(
    'storage_failed',
    `${typeof path === 'string' ? path : 'a file'} cannot be used (${code})`,
    /^E(EXIST|NOTDIR)$/.test(code)
      ? 'something else has that name: move it, or give another path'
      : 'check permissions and free disk space, then retry',
  )
}

function unforeseen(error: unknown) {
  const code = errorCode(error)
  const name = error instanceof Error ? error.name : typeof error
  const what = code === undefined ? name : `${name} ${code}`
  return new ProposerError('internal_error', `unexpected failure: ${what}${frameOf(error)}`, {
    exitCode: exit.bug,
    hint: `this is a bug in proposer ${programVersion}; please report it with this line`,
  })
}

const diskCodes: ReadonlySet<string> = new Set([
  ...['EACCES', 'EPERM', 'EROFS', 'ENOSPC', 'EDQUOT', 'EFBIG', 'EIO', 'ENOENT', 'ENOTDIR'],
  ...['EEXIST', 'EISDIR', 'ESPIPE', 'ENXIO', 'ELOOP', 'EMFILE', 'ENAMETOOLONG'],
])

const isAbort = (error: unknown) =>
  error instanceof Error && (error.name === 'AbortError' || error.name === 'TimeoutError')

function frameOf(error: unknown) {
  const frame =
    error instanceof Error ? /\/(?:dist|src)\/([\w./-]+:\d+:\d+)/.exec(error.stack ?? '') : null
  return frame?.[1] === undefined ? '' : ` at ${frame[1]}`
}

const hintOf: Readonly<Record<ExitCode, string>> = {
  [exit.done]: 'nothing is left to do',
  [exit.bug]: 'this is a bug; please report it with this line',
  [exit.usage]: 'run the command with --help',
  [exit.refused]: 'correct what the gateway reports, then retry',
  [exit.unauthorized]:
    'check the wallet with `proposer eligibility`, and ask the operator to allow it',
  [exit.reconcile]: 'find the existing candidate with `proposer journal list`, and poll it',
  [exit.unknown]: 'send the saved payload again with `proposer replay`; do not sign again',
  [exit.failed]: 'see `proposer status` for what to do next',
  [exit.pending]: 'poll again with `proposer poll`, or raise --timeout',
  [exit.storage]: 'see `proposer doctor`, and docs/troubleshooting.md for the code above',
  [exit.deferred]: 'retry later: the same saved bytes are sent',
  [exit.interrupted]: 'rerun the command to continue',
}

function report(failure: ProposerError, output: Output, argv: readonly string[]): ExitCode {
  const { exitCode, retryable, errors, lines = [] } = failure.meta
  const advice = failure.meta.hint ?? hintOf[exitCode]
  // A wrong usage is corrected where it was made; anything else goes on for the same gateway and
  // journal.
  const hint =
    exitCode === exit.usage && failure.code !== 'never_sent' ? advice : withFlags(advice, argv)
  if (!output.jsonErrors) {
    const { red, dim } = output.notePaint
    const said = forNotes(`error: ${failure.detail}`, output).replace('error:', red('error:'))
    const more = lines.map((line) => `  ${forNotes(line, output)}`)
    output.warn([said, ...more, dim(forNotes(`hint: ${hint}`, output))].join('\n'))
  } else {
    const error = {
      code: failure.code,
      detail: [failure.detail, ...lines.map((line) => line.trim())].join('; '),
      hint,
      retryable: retryable ?? false,
      exit_code: exitCode,
      errors,
    }
    output.warn(jsonText({ error }, 0))
  }
  return exitCode
}
