import { writeSync } from 'node:fs'
import { systemClock, systemHash, systemRandom } from '../../src/core/io/clock.js'
import { systemFiles } from '../../src/core/io/files.js'
import { systemLiveness } from '../../src/core/io/liveness.js'
import { acquireLock } from '../../src/core/storage/lock.js'
import { openLog } from '../../src/core/storage/log.js'

/**
 * A process to be killed: takes the lock of argv[2], tells `held`, and with argv[3] `append` writes records without end, one line
 * `acked <id>` on stdout for each that append acknowledged. It ends itself when its stdin does.
 */
const folder = process.argv[2] ?? ''
const tell = (text: string) => writeSync(1, `${text}\n`)

process.stdin.resume()
process.stdin.once('close', () => process.exit(0))

const lock = await acquireLock({ files: systemFiles, liveness: systemLiveness(), random: systemRandom }, folder, 'child')
await lock.setNote(`child ${process.pid}`)
tell('held')

if (process.argv[3] === 'append') {
  let last = 0
  const log = await openLog(
    { files: systemFiles, clock: systemClock, hash: systemHash },
    folder,
    { format: { name: 'store', version: 1 }, knownKinds: (kind) => kind === 'item', segmentBytes: 20_000, fence: lock.fence },
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
