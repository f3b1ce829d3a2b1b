import { fork } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile, readlink } from 'node:fs/promises'
import { join } from 'node:path'

export interface HonestCall {
  readonly method: 'GET' | 'POST'
  readonly path: string
  readonly body?: string
}

interface Seen {
  readonly milliseconds: number[]
  readonly plainMilliseconds: number[]
  readonly statuses: Readonly<Record<string, number>>
  readonly lost: readonly string[]
}

export interface Phase {
  readonly calls: number
  readonly p50Ms: number
  readonly p99Ms: number
  readonly plainP99Ms: number
  readonly statuses: Readonly<Record<string, number>>
  readonly lost: readonly string[]
}

export interface HonestCallers {
  phase(): Promise<Phase>
  stop(): Promise<void>
}

const forked = (name: string) => fork(join(import.meta.dirname, '..', name), { stdio: 'inherit' })

export async function startHonestCallers(
  url: string,
  calls: readonly HonestCall[],
  perSecond: number,
): Promise<HonestCallers> {
  const plain = forked('plain-server.js')
  const [plainPort] = (await once(plain, 'message')) as [number]
  const child = forked('honest-callers.js')
  const ended = Promise.all([once(child, 'exit'), once(plain, 'exit')])
  child.send({ url, plainUrl: `http://127.0.0.1:${plainPort}`, calls, perSecond })
  return {
    async phase() {
      const told = once(child, 'message')
      child.send('phase')
      const [{ milliseconds, plainMilliseconds, statuses, lost }] = (await told) as [Seen]
      const at = (list: number[], share: number) =>
        list.sort((one, other) => one - other)[
          Math.min(list.length - 1, Math.floor(list.length * share))
        ] ?? 0
      return {
        calls: milliseconds.length,
        p50Ms: at(milliseconds, 0.5),
        p99Ms: at(milliseconds, 0.99),
        plainP99Ms: at(plainMilliseconds, 0.99),
        statuses,
        lost,
      }
    },
    async stop() {
      child.kill()
      plain.kill()
      await ended
    },
  }
}

export async function residentMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024
}

export async function socketsOf(pid: number): Promise<number> {
  const folder = `/proc/${pid}/fd`
  const links = await Promise.all(
    (await readdir(folder)).map((name) => readlink(join(folder, name)).catch(() => '')),
  )
  return links.filter((link) => link.startsWith('socket:')).length
}
