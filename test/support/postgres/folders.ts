import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { chownSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { account, temporary } from './binaries.js'

const reaperProgram = join(import.meta.dirname, 'reaper.js')
let reaper: ChildProcess | undefined

function tellReaper(line: string): void {
  if (reaper === undefined) {
    const started = spawn(process.execPath, [reaperProgram], {
      detached: true,
      cwd: '/',
      stdio: ['pipe', 'ignore', 'inherit'],
    })
    started.unref()
    reaper = started
  }
  reaper.stdin?.write(`${line}\n`)
}

export function makeFolder(inside = temporary): string {
  const folder = mkdtempSync(join(inside, 'proposer-postgres-'))
  tellReaper(`+${folder}`)
  if (account.uid !== undefined) chownSync(folder, account.uid, account.gid)
  return folder
}

export function removeFolder(folder: string): void {
  const memory = readLock(folder)?.[6]?.trim().split(/\s+/)[1]
  if (memory !== undefined) spawnSync('ipcrm', ['-m', memory])
  rmSync(folder, { recursive: true, force: true })
  tellReaper(`-${folder}`)
}

function readLock(folder: string): string[] | undefined {
  try {
    return readFileSync(join(folder, 'data', 'postmaster.pid'), 'utf8').split('\n')
  } catch {
    return undefined
  }
}

export function processesIn(folder: string): number[] {
  const works = (pid: string) => {
    try {
      return `${readlinkSync(`/proc/${pid}/cwd`)}/`.startsWith(`${folder}/`)
    } catch {
      return false
    }
  }
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && works(name))
    .map(Number)
}

export function signalAll(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids)
    try {
      process.kill(pid, signal)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
    }
}

export async function stopProcesses(folder: string): Promise<void> {
  await until(() => {
    const moving = processesIn(folder).filter((pid) => !isStopped(pid))
    signalAll(moving, 'SIGSTOP')
    return moving.length === 0
  }, `the processes in ${folder} do not stop`)
}

export async function killProcesses(folder: string): Promise<void> {
  await stopProcesses(folder)
  signalAll(processesIn(folder), 'SIGKILL')
  await until(() => processesIn(folder).length === 0, `processes are left in ${folder}`)
}

function isStopped(pid: number): boolean {
  try {
    return /\) [TtZX]/.test(readFileSync(`/proc/${pid}/stat`, 'latin1'))
  } catch {
    return true
  }
}

export async function until(
  holds: () => boolean | Promise<boolean>,
  otherwise: string,
  withinMs = 30_000,
): Promise<void> {
  const end = performance.now() + withinMs
  while (!(await holds())) {
    if (performance.now() > end) throw new Error(otherwise)
    await sleep(5)
  }
}
