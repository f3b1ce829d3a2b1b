import type { FileHandle } from '#ports'
import { StorageError } from '#protocol/errors'
import { joinPath, putInForce, removeIfThere, writeAll } from './durable.js'
import { errorCode, failedForGood, isFull, outOfSpace } from './failures.js'
import { type Append, fail } from './groups.js'
import type { LogEnd } from './high-water.js'
import { byteLength, encodeData, encodeHead, encodeLine } from './line.js'
import { checkFence, closeForSpace, type LogState, type OpenFile } from './log-state.js'
import { logName, type Manifest, publishManifest, snapshotName } from './manifest.js'
import type { RecordPosition, StoredRecord } from './record-log.js'
import { fileOf, type LogFile, newWalk, readRecordAt, recordPosition, walkAll } from './walk.js'

/** No two of these run at once, but for `readAt` and `scanAll`. */

export const openFile = (file: LogFile): OpenFile => ({
  ...file,
  users: 0,
  isReplaced: false,
  onIdle: undefined,
})

async function openForReading(log: LogState, path: string) {
  const handle = await log.ports.files.open(path, 'read')
  return openFile({ index: log.nextIndex++, path, handle })
}

const publish = ({ ports: { files, hash, clock }, name }: LogState, manifest: Manifest) =>
  publishManifest(files, hash, name, manifest, Math.trunc(clock.nowMs()))

/** It gets its first line only once MANIFEST names it. */
async function rotate(log: LogState) {
  const { ports, name: folder, manifest, active: old } = log
  const { files } = ports
  const first = log.end.sequence + 1
  const path = joinPath(folder, logName(first))
  let handle: FileHandle | undefined
  let isInForce = false
  try {
    await removeIfThere(files, path)
    handle = await files.open(path, 'exclusive')
    // Or a crash could leave a MANIFEST that names a segment whose own name was lost.
    await files.syncDir(folder).catch((cause: unknown) => {
      throw failedForGood(`${folder} could not be synced`, cause)
    })
    const { revision, snapshot, segments } = manifest
    const next = { revision: revision + 1, snapshot, segments: [...segments, first] }
    await publish(log, next)
    isInForce = true
    const file = await openForReading(log, path)
    log.files.push(file)
    log.manifest = next
    log.active = handle
    log.goodBytes = 0
    log.file = file.index
    log.mustRotate = false
    await old.close()
  } catch (error) {
    if (isInForce || !isFull(error)) throw fail(log, error, `${path} could not be started`)
    // An empty leftover, which the next try or the next start removes.
    await handle?.close().catch((cause: unknown) => {
      throw fail(log, cause, `${path} could not be closed`)
    })
    throw closeForSpace(log)
  }
}

/** Or leaves the segment as it was; all is durable on return (R1). */
async function write(log: LogState, bytes: Uint8Array) {
  const { active: handle, name: folder, goodBytes } = log
  try {
    await writeAll(handle, bytes)
  } catch (error) {
    if (!isFull(error)) throw fail(log, error, `${folder} could not be written`)
    try {
      await handle.truncate(goodBytes)
      await handle.datasync()
      const size = await handle.size()
      if (size !== goodBytes)
        throw new Error(`the segment has ${size} bytes instead of ${goodBytes}`)
    } catch (cause) {
      throw fail(log, cause, `a write to ${folder} could not be undone`)
    }
    // A file-size limit does not go away in this segment.
    if (errorCode(error) === 'EFBIG' && goodBytes > 0) log.mustRotate = true
    throw closeForSpace(log)
  }
  try {
    await handle.datasync()
  } catch (error) {
    throw fail(log, error, `${folder} could not be synced`)
  }
}

export async function commit(log: LogState, group: readonly Append[]): Promise<StoredRecord[][]> {
  const { segmentBytes = 64 * 1024 * 1024 } = log.options
  if (log.goodBytes > 0 && (log.mustRotate || log.goodBytes >= segmentBytes)) await rotate(log)
  const { text, stored, end, offset } = encodeGroup(log, group)
  await write(log, new TextEncoder().encode(text))
  log.end = end
  log.goodBytes = offset
  return stored
}

export async function commitOwn(log: LogState, kind: string, data: unknown) {
  await checkFence(log)
  await commit(log, [{ records: [{ kind, data }], texts: [encodeData(kind, data)] }])
}

function encodeGroup({ ports, end, goodBytes, file }: LogState, group: readonly Append[]) {
  const nowMs = Math.trunc(ports.clock.nowMs())
  const lines: string[] = []
  let { check, sequence } = end
  let offset = goodBytes
  const stored = group.map(({ records, texts }) =>
    records.map((record, index) => {
      const { timeMs = nowMs } = record
      const frame = {
        previous: check,
        sequence: ++sequence,
        durableBytes: goodBytes,
        kind: record.kind,
        timeMs,
        more: records.length - 1 - index,
      }
      const line = encodeLine(ports.hash, frame, texts[index] ?? 'null', encodeHead(record.head))
      const position = recordPosition(file, offset)
      check = line.check
      offset += byteLength(line.text)
      lines.push(line.text)
      return { ...record, sequence, timeMs, position }
    }),
  )
  return { text: lines.join(''), stored, end: { check, sequence }, offset }
}

/** `position_retired` where a compaction has moved it. */
export async function readAt(log: LogState, position: RecordPosition): Promise<StoredRecord> {
  const file = log.files.find(({ index }) => index === fileOf(position))
  if (file === undefined)
    throw new StorageError('position_retired', 'a compaction has moved this record', {
      httpStatus: 500,
    })
  file.users++
  try {
    return await readRecordAt(log.ports.hash, file, position)
  } finally {
    if (--file.users === 0) file.onIdle?.()
  }
}

/** What is there at the call: `compact(() => log.scan(), …)` keeps exactly what is before the cut. */
export function scanAll(log: LogState): AsyncGenerator<StoredRecord> {
  const { ports, name: folder, options, manifest, goodBytes } = log
  const seen = log.files.filter((file) => !file.isReplaced)
  const reading = { knownKinds: options.knownKinds, torn: false, endBytes: goodBytes }
  const inForce = { hash: ports.hash, folder, manifest, opened: seen }
  const walking = walkAll(inForce, newWalk(), reading)
  return (async function* () {
    for (const file of seen) file.users++
    try {
      for await (const records of walking) yield* records
    } finally {
      for (const file of seen) if (--file.users === 0) file.onIdle?.()
    }
  })()
}

export async function cutLog(
  log: LogState,
): Promise<{ readonly end: LogEnd; readonly old: readonly OpenFile[] }> {
  await rotate(log)
  return { end: log.end, old: log.files.slice(0, -1) }
}

export async function publishSnapshot(log: LogState, last: number, old: readonly OpenFile[]) {
  const { files } = log.ports
  const name = snapshotName(last)
  const path = joinPath(log.name, name)
  let isInForce = false
  try {
    await putInForce(files, log.name, name)
    const { revision, segments } = log.manifest
    const rest = segments.filter((first) => first > last)
    const next: Manifest = { revision: revision + 1, snapshot: last, segments: rest }
    await publish(log, next)
    isInForce = true
    log.manifest = next
    for (const file of old) file.isReplaced = true
    const file = await openForReading(log, path)
    log.files.unshift(file)
    return file.index
  } catch (error) {
    if (isInForce || !isFull(error)) throw fail(log, error, `${name} could not be activated`)
    // A leftover, and the space is needed.
    await files.remove(path).catch((cause: unknown) => {
      throw fail(log, cause, `${name} could not be removed`)
    })
    throw outOfSpace(log.name)
  }
}

/** What it has not come to when the log ends is a leftover for the next start. */
export async function removeReplaced(log: LogState, old: readonly OpenFile[]) {
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

export async function closeAll({ active, files }: LogState) {
  const handles = [active, ...files.map((file) => file.handle)]
  const closed = await Promise.allSettled(handles.map((handle) => handle.close()))
  for (const each of closed) if (each.status === 'rejected') throw each.reason
}
