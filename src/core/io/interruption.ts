import { closeSync, openSync, readFileSync, readlinkSync } from 'node:fs'
import { devNull } from 'node:os'
import { isatty } from 'node:tty'
import { type ExitCode, exit, InterruptedError } from '#protocol/errors'

const lookMs = 1_000

export interface Ending {
  readonly exitCode: () => ExitCode
  readonly outlivesTerminal?: boolean
}

export const endsAsServer: Ending = { exitCode: () => exit.done, outlivesTerminal: true }

export function aborted(signal: AbortSignal): Promise<'signal'> {
  if (signal.aborted) return Promise.resolve('signal')
  return new Promise((resolve) =>
    signal.addEventListener('abort', () => resolve('signal'), { once: true }),
  )
}

/**
 * Every listener stays: signal-exit, which counts listeners, would end the process itself. A second
 * SIGINT or SIGTERM ends it at once (R23), a second SIGHUP does not.
 */
export function listenForEnd(process: NodeJS.Process) {
  const controller = new AbortController()
  let ending: Ending = { exitCode: () => exit.interrupted }
  const stop = (what: string) =>
    controller.abort(
      new InterruptedError('interrupted', what, {
        retryable: true,
        hint: 'rerun the command to continue',
      }),
    )
  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    process.on(name, () => {
      if (controller.signal.aborted) process.exit(ending.exitCode())
      stop(`stopped by ${name}`)
    })
  }
  const isIgnored = ignoresHangUp(process.env, statusOfParent(process.ppid), ownStdin())
  process.on('SIGHUP', () => {
    if (!isIgnored) stop('stopped by SIGHUP')
  })
  const lost = () => {
    if (!isIgnored && !ending.outlivesTerminal) stop('stopped: the terminal is gone')
  }
  const streams = [process.stdin, process.stdout, process.stderr].filter(({ isTTY }) => isTTY)
  const terminals = streams.map(({ fd }) => fd)
  for (const stream of streams) stream.on('error', lost)
  // A shell may keep the hang-up to itself.
  if (terminals.length > 0)
    setInterval(() => terminals.every((one) => isatty(one)) || lost(), lookMs).unref()
  process.on('exit', () => letGo(terminals))
  return {
    signal: controller.signal,
    endAs(next: Ending) {
      ending = next
    },
  }
}

/**
 * At its end node restores each terminal, and aborts where one is gone (SIGABRT, measured with 20).
 */
function letGo(descriptors: readonly number[]) {
  for (const descriptor of descriptors) {
    if (isatty(descriptor)) continue
    closeSync(descriptor)
    // The lowest free number is the one just closed.
    openSync(devNull, 'r+')
  }
}

/**
 * Node sets SIGHUP to its default before our code runs (measured with 20): the parent's mask tells
 * (`trap '' HUP`), `_` of some shells, and the write-only null device of GNU nohup on stdin.
 */
export function ignoresHangUp(
  env: Readonly<Record<string, string | undefined>>,
  parentStatus: string,
  stdin: Stdin,
) {
  const mask = /^SigIgn:\s*([0-9a-f]+)$/m.exec(parentStatus)?.[1] ?? '0'
  const flags = /^flags:\s*([0-7]+)$/m.exec(stdin.info)?.[1] ?? '0'
  const isWriteOnly = Number.parseInt(flags, 8) % 4 === 1
  return (
    BigInt(`0x${mask}`) % 2n === 1n ||
    /(^|\/)nohup$/.test(env._ ?? '') ||
    (stdin.path === devNull && isWriteOnly)
  )
}

interface Stdin {
  readonly path: string
  readonly info: string
}

function ownStdin() {
  try {
    return {
      path: readlinkSync('/proc/self/fd/0'),
      info: readFileSync('/proc/self/fdinfo/0', 'utf8'),
    }
  } catch {
    return { path: '', info: '' }
  }
}

function statusOfParent(pid: number) {
  try {
    return readFileSync(`/proc/${pid}/status`, 'utf8')
  } catch {
    return ''
  }
}
