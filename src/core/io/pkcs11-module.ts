/**
 * A PKCS#11 module in a process of its own, `bin/pkcs11.js`: a vendor's native code may crash or
 * hang.
 */
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import * as z from 'zod/mini'
import { UnavailableError } from '#protocol/errors'
import { quoteWords } from '#protocol/node-words'

/** The name of a CKR_ code, or `NO_PACKAGE` or `NO_MODULE`. */
export class ModuleFailure extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message)
  }
}

export interface Pkcs11Module {
  call<T>(call: string, args: object, shape: z.ZodMiniType<T>): Promise<T>
  /** Once, before `login`; it is zeroed here when it has been written. */
  givePin(pin: Uint8Array): void
  end(): void
}

/** A token over a network takes a second; a person who has to touch it some more. */
const callLimitMs = 20_000

const Reply = z.union([
  z.object({ failure: z.object({ name: z.string(), message: z.string() }) }),
  z.object({ value: z.unknown() }),
])

/** Without our own variables: the module has no use for a key or a password. */
const othersVariables = () =>
  Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('PROPOSER_')))

/** `file` is quoted in errors, for /readyz is read by everybody. `signal` ends the process. */
export function startModule(file: string, signal?: AbortSignal): Pkcs11Module {
  const name = `the PKCS#11 module ${quoteWords(file)}`
  // What the module writes itself is nobody's: a line of it could be anything.
  const child = spawn(process.execPath, [join(packageRoot(), 'bin', 'pkcs11.js')], {
    stdio: ['pipe', 'ignore', 'ignore', 'ipc'],
    windowsHide: true,
    // A module reads variables of its own. What this process was given for itself stays here: a
    // report about a crash would hold the PIN.
    env: { ...othersVariables(), NODE_OPTIONS: undefined },
  })
  let fault: unknown
  let answer: ((reply: unknown) => void) | undefined
  let giveUp: ((error: unknown) => void) | undefined
  const fail = (error: unknown) => {
    fault ??= error
    giveUp?.(fault)
  }
  const crashed = (how: string) =>
    fail(
      new UnavailableError(
        'pkcs11_crashed',
        `${name} crashed (${how})`,
        'nothing was signed; it is loaded again at the next use',
      ),
    )
  const stop = () => {
    fail(signal?.reason)
    child.kill('SIGKILL')
  }
  signal?.addEventListener('abort', stop, { once: true })
  if (signal?.aborted) stop()
  child.on('error', ({ message }) => crashed(message))
  child.on('exit', (code, killed) => {
    signal?.removeEventListener('abort', stop)
    crashed(killed ?? `exit code ${code}`)
  })
  child.on('message', (reply) => answer?.(reply))
  child.stdin?.on('error', () => undefined)
  /** Only a call keeps our own process from ending. */
  const hold = (holds: boolean) => {
    for (const one of [child, child.channel]) holds ? one?.ref() : one?.unref()
  }
  hold(false)

  const ask = (call: string, args: object) =>
    new Promise<unknown>((resolve, reject) => {
      if (fault !== undefined) return reject(fault)
      const limit = setTimeout(() => {
        fail(
          new UnavailableError(
            'pkcs11_timed_out',
            `${name} did not respond within ${callLimitMs / 1_000} s`,
            'check the token; the module is loaded again at the next use',
          ),
        )
        child.kill('SIGKILL')
      }, callLimitMs)
      hold(true)
      const settled = () => {
        clearTimeout(limit)
        hold(false)
        answer = undefined
        giveUp = undefined
      }
      answer = (reply) => {
        settled()
        resolve(reply)
      }
      giveUp = (error) => {
        settled()
        reject(error)
      }
      // Where it cannot be handed over the process has ended, which is told above.
      child.send({ call, args }, () => undefined)
    })

  let last: Promise<unknown> = Promise.resolve()
  return {
    call(call, args, shape) {
      const asked = last.then(() => ask(call, args))
      last = asked.catch(() => undefined)
      return asked.then((reply) => {
        const parsed = Reply.parse(reply)
        if ('failure' in parsed)
          throw new ModuleFailure(parsed.failure.name, parsed.failure.message)
        return shape.parse(parsed.value)
      })
    },
    givePin(pin) {
      child.stdin?.end(pin, () => pin.fill(0))
    },
    end() {
      void last.then(() => {
        if (child.connected) child.disconnect()
        setTimeout(() => child.kill('SIGKILL'), callLimitMs).unref()
      })
    },
  }
}

/** Sources lie three folders below it, the built program one or two. */
function packageRoot() {
  for (let folder = dirname(fileURLToPath(import.meta.url)), up = 0; up < 5; up += 1) {
    if (existsSync(join(folder, 'bin', 'proposer.js'))) return folder
    folder = dirname(folder)
  }
  throw new RangeError('the package lacks bin/proposer.js')
}
