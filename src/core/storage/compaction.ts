/** Replaces what is before a cut by a snapshot of what its owner still needs (robustness §2). */
import { StorageError } from '#protocol/errors'
import { fillTemporary, putInForce, writeAll } from './durable.js'
import { errorCode, failedForGood, isFull, notOurs, outOfSpace, unavailable } from './failures.js'
import { failLog } from './groups.js'
import { byteLength, noCheck, singleLine } from './line.js'
import type { LogEnd } from './manifest.js'
import { snapshotName } from './manifest.js'
import type { CompactableLog, NewRecord } from './record-log.js'
import { recordPosition } from './walk.js'
import {
  checkFence,
  commitOwn,
  type LogState,
  type OpenFile,
  openForReading,
  publish,
  rotate,
} from './writer.js'

const sliceMs = 5
/** Enough for a good write, and some 3 ms of encoding: slices of the event loop are 5 ms at most. */
const bufferBytes = 128 * 1024

type Keep = Parameters<CompactableLog['compact']>[0]

export async function compact(
  log: LogState,
  refusal: () => StorageError | undefined,
  ...[keep, onPlaced]: Parameters<CompactableLog['compact']>
) {
  const { clock } = log.ports
  const { end, old, kept } = await log.exclusive(async () => {
    const refused = refusal()
    if (refused !== undefined) throw refused
    // The mark gives every cut a number of its own, and the old segments end covered.
    await commitOwn(log, 'mark', {})
    log.isUnmarked = false
    await rotate(log)
    return { end: log.end, old: log.files.slice(0, -1), kept: keep() }
  })
  const offsets = await writeSnapshot(log, end, kept).catch((error: unknown) => {
    throw errorCode(error) === 'store_failed' ? failLog(log, error, 'a snapshot failed') : error
  })
  const index = await log.exclusive(async () => {
    // After `close` the unfinished snapshot is left to the next start.
    if (log.failed !== undefined || log.isShut) throw closed(log)
    await checkFence(log)
    return publishSnapshot(log, end.sequence, old)
  })
  let sliceStartMs = clock.monotonicMs()
  for (const [ordinal, offset] of offsets.entries()) {
    onPlaced(ordinal, recordPosition(index, offset))
    if (ordinal % 256 !== 255 || clock.monotonicMs() - sliceStartMs < sliceMs) continue
    await clock.sleep(0)
    sliceStartMs = clock.monotonicMs()
  }
  try {
    await removeReplaced(log, old)
  } catch (error) {
    throw failLog(log, error, `replaced files of ${log.name} could not be removed`)
  }
}

const closed = ({ name, failed }: LogState) => unavailable(`${name} is closed`, failed)

/** Under its temporary name, durable; the offset of each record. */
async function writeSnapshot(log: LogState, cut: LogEnd, kept: ReturnType<Keep>) {
  const { ports, name: folder, options } = log
  const timeMs = Math.trunc(ports.clock.nowMs())
  const offsets: number[] = []
  let [previous, sequence, offset, waiting] = [noCheck, 0, 0, 0]
  let lines: string[] = []
  const add = (record: NewRecord) => {
    const line = singleLine(ports.hash, { previous, sequence: ++sequence, timeMs }, record)
    const bytes = byteLength(line.text)
    previous = line.check
    offset += bytes
    waiting += bytes
    lines.push(line.text)
  }
  // Then a failure comes from the owner, who hears of it as it is.
  let isIterating = false
  try {
    await fillTemporary(ports.files, folder, snapshotName(cut.sequence), async (handle) => {
      const flush = async () => {
        isIterating = false
        const bytes = new TextEncoder().encode(lines.join(''))
        lines = []
        waiting = 0
        await writeAll(handle, bytes)
      }
      isIterating = true
      for await (const record of kept) {
        if (!options.knownKinds(record.kind)) throw notOurs(record.kind)
        offsets.push(offset)
        add(record)
        if (waiting < bufferBytes) continue
        if (log.failed !== undefined || log.isEnding) throw closed(log)
        await flush()
        isIterating = true
      }
      const { check } = cut
      add({ kind: 'snap.end', data: { count: offsets.length, check, sequence: cut.sequence } })
      await flush()
    })
  } catch (error) {
    if (isIterating || error instanceof StorageError) throw error
    throw isFull(error)
      ? outOfSpace(folder)
      : failedForGood(`a snapshot of ${folder} could not be written`, error)
  }
  return offsets
}

async function publishSnapshot(log: LogState, last: number, old: readonly OpenFile[]) {
  const { files } = log.ports
  const name = snapshotName(last)
  const path = `${log.name}/${name}`
  let isInForce = false
  try {
    await putInForce(files, log.name, name)
    const { revision, segments } = log.manifest
    const rest = segments.filter((first) => first > last)
    await publish(log, { revision: revision + 1, snapshot: last, segments: rest })
    isInForce = true
    for (const file of old) file.isReplaced = true
    const file = await openForReading(log, path)
    log.files.unshift(file)
    return file.index
  } catch (error) {
    if (isInForce || !isFull(error)) throw failLog(log, error, `${name} could not be activated`)
    // A leftover, and the space is needed.
    await files.remove(path).catch((cause: unknown) => {
      throw failLog(log, cause, `${name} could not be removed`)
    })
    throw outOfSpace(log.name)
  }
}

/** What it has not come to when the log ends is a leftover for the next start. */
async function removeReplaced(log: LogState, old: readonly OpenFile[]) {
  const { files, ports, name: folder } = log
  for (const file of old) {
    if (log.failed !== undefined || log.isShut) return
    files.splice(files.indexOf(file), 1)
    if (file.users > 0) {
      await new Promise<void>((resolve) => {
        file.onIdle = resolve
      })
    }
    await file.handle.close()
    await ports.files.remove(file.path)
  }
  await ports.files.syncDir(folder)
}
