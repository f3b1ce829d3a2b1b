/** Honest load beside an attack, and what the process that bears both looks like from outside. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile, readlink } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export interface HonestCall {
  readonly method: 'GET' | 'POST'
  readonly path: string
  readonly body?: string
}

interface Seen {
  readonly milliseconds: number[]
  readonly statuses: Readonly<Record<string, number>>
  readonly lost: readonly string[]
}

/** What the callers of one phase saw. */
export interface Phase {
  readonly calls: number
  readonly p50Ms: number
  readonly p99Ms: number
  readonly statuses: Readonly<Record<string, number>>
  /** Codes of calls that got no answer. */
  readonly lost: readonly string[]
}

export interface HonestCallers {
  /** Ends the phase that runs, and begins the next. */
  phase(): Promise<Phase>
  stop(): Promise<void>
}

/** Starts calling, in turn, so many times a second, whatever the answers. */
export function startHonestCallers(url: string, calls: readonly HonestCall[], perSecond: number): HonestCallers {
  const child = fork(join(dirname(fileURLToPath(import.meta.url)), '..', 'honest-callers.js'), { stdio: 'inherit' })
  const ended = once(child, 'exit')
  child.send({ url, calls, perSecond })
  return {
    async phase() {
      const told = once(child, 'message')
      child.send('phase')
      const [{ milliseconds, statuses, lost }] = (await told) as [Seen]
      milliseconds.sort((one, other) => one - other)
      const at = (share: number) => milliseconds[Math.min(milliseconds.length - 1, Math.floor(milliseconds.length * share))] ?? 0
      return { calls: milliseconds.length, p50Ms: at(0.5), p99Ms: at(0.99), statuses, lost }
    },
    async stop() {
      child.kill()
      await ended
    },
  }
}

/** Resident memory of a process in MiB (Linux). */
export async function residentMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024
}

/** Open sockets of a process (Linux). */
export async function socketsOf(pid: number): Promise<number> {
  const folder = `/proc/${pid}/fd`
  const links = await Promise.all(
    // A descriptor may be closed while the folder is read.
    (await readdir(folder)).map((name) => readlink(join(folder, name)).catch(() => '')),
  )
  return links.filter((link) => link.startsWith('socket:')).length
}
