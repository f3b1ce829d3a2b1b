import { closeSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { systemClock, systemHash, systemRandom } from '#io/clock'
import { systemFiles } from '#io/files'
import { systemLiveness } from '#io/liveness'
import { StorageError } from '#protocol/errors'
import { acquireLock } from '#storage/lock'
import { openLog } from '#storage/log'

const folder = process.argv[2] ?? ''
const tell = (text: string) => writeSync(1, `${text}\n`)

process.stdin.resume()
process.stdin.once('close', () => process.exit(0))

const ports = { files: systemFiles, liveness: systemLiveness(), random: systemRandom }

function witness(): void {
  const path = join(folder, 'witness')
  for (;;) {
    try {
      const descriptor = openSync(path, 'wx')
      writeSync(descriptor, String(process.pid))
      closeSync(descriptor)
      return
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error
    }
    const pid = readFileSync(path, 'utf8')
    if (isAlive(pid)) tell(`beside ${pid}`)
    rmSync(path)
  }
}

/** A process may be exiting (flag 4) for some ms before it is a zombie. */
function isAlive(pid: string): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return (Number(/\) [^ZX](?: \S+){5} (\d+)/.exec(stat)?.[1] ?? 4) & 4) === 0
  } catch {
    return false
  }
}

while (process.argv[3] === 'contend') {
  try {
    const held = await acquireLock(ports, folder, `contender ${process.pid}`)
    witness()
    tell('held')
    await held.fence()
    await systemClock.sleep(process.pid % 7)
    rmSync(join(folder, 'witness'))
    await held.release()
  } catch (error) {
    if (!(error instanceof StorageError && error.code === 'store_locked')) throw error
  }
  await systemClock.sleep(process.pid % 5)
}

const lock = await acquireLock(ports, folder, 'child')
await lock.setUse({ role: `child ${process.pid}` })
tell('held')

if (process.argv[3] === 'append') {
  let last = 0
  const log = await openLog(
    { files: systemFiles, clock: systemClock, hash: systemHash },
    folder,
    {
      format: { name: 'store', version: 1 },
      knownKinds: (kind) => kind === 'item',
      segmentBytes: 20_000,
      fence: lock.fence,
    },
    (record) => {
      last = Math.max(last, (record.data as { id: number }).id)
    },
  )
  let next = last + 1
  const writer = async () => {
    for (;;) {
      const id = next++
      await log.append([{ kind: 'item', data: { id, fill: 'z'.repeat((id * 37) % 900) } }])
      tell(`acked ${id}`)
    }
  }
  const compactor = async () => {
    for (;;) {
      await log.compact(
        () => log.scan(),
        () => undefined,
      )
      tell('compacted')
      await systemClock.sleep(20)
    }
  }
  await Promise.all([compactor(), ...Array.from({ length: 8 }, writer)])
}
