/** It loads little by itself, so that `--version` is as quick as node. */

import { keepCompiled } from '#io/compiled'
import type { ExitCode } from '#protocol/errors'
import { programVersion } from '#protocol/version'
import type { Context } from './terminal/context.js'

const isVersionFlag = (argument: string) => argument === '--version' || argument === '-V'
/** `--version` among flags, as `--json`, is the verb: it prints a document too. */
const withVersionVerb = (argv: readonly string[]) =>
  argv.some(isVersionFlag) && argv.every((argument) => argument.startsWith('-'))
    ? ['version', ...argv.filter((argument) => !isVersionFlag(argument))]
    : argv

export async function start(process: NodeJS.Process, parts?: Partial<Context>): Promise<ExitCode> {
  const given = process.argv.slice(2)
  if (
    parts === undefined &&
    given.length === 1 &&
    given.every(isVersionFlag) &&
    (await printVersion(process))
  )
    return 0
  const argv = withVersionVerb(given)
  keepCompiled(process)
  const { createContext } = await import('./terminal/context.js')
  const context = { ...createContext(process), ...parts }
  if (isTabKey(argv)) return answerTabKey(argv, context)
  const { reportCrash, runFront } = await import('./front.js')
  // Node would print the failure whole, with whatever it holds (R5).
  process.on('uncaughtException', (error) => {
    if (process.listenerCount('uncaughtException') === 1)
      process.exit(reportCrash(argv, context, error))
  })
  return runFront(argv, context)
}

async function printVersion({ stdout }: NodeJS.Process) {
  // Without a listener node would end the process.
  stdout.on('error', () => undefined)
  return new Promise((resolve) =>
    stdout.write(`${programVersion}\n`, (failure) => resolve(!failure)),
  )
}

export async function main(given: readonly string[], context: Context) {
  const argv = withVersionVerb(given)
  if (isTabKey(argv)) return answerTabKey(argv, context)
  const { runFront } = await import('./front.js')
  return runFront(argv, context)
}

/** The scripts of `completion` ask so. Somebody waits: no front is loaded. */
const isTabKey = (argv: readonly string[]) => argv[0] === '__complete'

async function answerTabKey(argv: readonly string[], context: Context): Promise<ExitCode> {
  const [{ complete }, { programOf }] = await Promise.all([
    import('./completion.js'),
    import('./program.js'),
  ])
  return complete(argv.slice(1), context, programOf)
}
