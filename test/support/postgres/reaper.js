// Ends the servers of a test process that has ended without closing them. It lives until its stdin
// closes, and the system closes that at every end, SIGKILL's too. A line names a folder: `+path`
// when it is made, `-path` once nothing runs in it and it is gone.
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => undefined)

const folders = new Set()
for await (const line of createInterface({ input: process.stdin }))
  if (line.startsWith('+')) folders.add(line.slice(1))
  else folders.delete(line.slice(1))

const workIn = (folder) => (pid) => {
  try {
    return `${readlinkSync(`/proc/${pid}/cwd`)}/`.startsWith(`${folder}/`)
  } catch {
    return false
  }
}
const processes = () => readdirSync('/proc').filter((name) => /^\d+$/.test(name))
const running = () => processes().filter((pid) => [...folders].some((each) => workIn(each)(pid)))
const signal = (pid, name) => {
  try {
    process.kill(Number(pid), name)
  } catch {}
}

for (const pid of running()) {
  signal(pid, 'SIGCONT')
  signal(pid, 'SIGQUIT')
}
for (let tries = 0; tries < 60 && running().length > 0; tries++) await sleep(50)
for (const pid of running()) signal(pid, 'SIGKILL')
for (let tries = 0; tries < 60 && running().length > 0; tries++) await sleep(50)
for (const folder of folders) {
  const lock = join(folder, 'data', 'postmaster.pid')
  const memory = existsSync(lock) ? readFileSync(lock, 'utf8').split('\n')[6] : undefined
  const id = memory?.trim().split(/\s+/)[1]
  if (id !== undefined) spawnSync('ipcrm', ['-m', id])
  rmSync(folder, { recursive: true, force: true })
}
