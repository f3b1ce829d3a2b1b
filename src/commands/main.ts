/** The front door of the program. It loads nothing by itself, so that `--version` is as quick as node. */
import { standardOutput } from '../core/io/standard-streams.js'
import type { ExitCode } from '../core/protocol/errors.js'
import type { Context } from './context.js'
import { programVersion } from './version.js'

const asksVersion = (argv: readonly string[]) => argv[0] === '--version' || argv[0] === '-V'

/** Runs the command line of this process. `parts` replaces parts of its context, as crash tests do. Never rejects. */
export async function start(process: NodeJS.Process, parts?: Partial<Context>): Promise<ExitCode> {
  const argv = process.argv.slice(2)
  if (parts === undefined && asksVersion(argv) && printVersion(process)) return 0
  const { createContext } = await import('./context.js')
  const context = { ...createContext(process), ...parts }
  if (isTabKey(argv)) return answerTabKey(argv, context)
  const { reportCrash, runFront } = await import('./front.js')
  // Node would print the failure whole, with whatever it holds (R5). A verb that stays in the foreground has a listener of its own.
  process.on('uncaughtException', (error) => {
    if (process.listenerCount('uncaughtException') === 1) process.exit(reportCrash(argv, context, error))
  })
  return runFront(argv, context)
}

/** Prints the version, and tells whether it could. Where not, the long way says why. */
function printVersion(process: NodeJS.Process): boolean {
  const stdout = standardOutput(1, () => process.stdout)
  let failure: Error | undefined
  // Where node's stream tells of it later, for a socket, the reader has left, which is no failure of ours.
  stdout.on('error', (error: Error) => {
    failure = error
  })
  stdout.write(`${programVersion}\n`)
  return failure === undefined
}

/** Runs one command line. Never rejects; everything it has to say went to the context's streams. */
export async function main(argv: readonly string[], context: Context): Promise<ExitCode> {
  if (asksVersion(argv)) {
    context.output.text(`${programVersion}\n`)
    return 0
  }
  if (isTabKey(argv)) return answerTabKey(argv, context)
  const { runFront } = await import('./front.js')
  return runFront(argv, context)
}

/** Not in the help: the scripts of `completion` ask so. Somebody waits at the keyboard, so it loads neither front nor commands. */
const isTabKey = (argv: readonly string[]) => argv[0] === '__complete'

async function answerTabKey(argv: readonly string[], context: Context): Promise<ExitCode> {
  const { complete } = await import('./completion/complete.js')
  return complete(argv.slice(1), context)
}
