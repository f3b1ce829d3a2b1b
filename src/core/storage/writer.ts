import type { FileHandle, Hash } from '#ports'
import { StorageError } from '#protocol/errors'
import { joinPath, putInForce, removeIfThere, writeAll } from './durable.js'
import { errorCode, failedForGood, isFull, outOfSpace } from './failures.js'
import type { LogEnd } from './high-water.js'
import { byteLength, encodeHead, encodeLine } from './line.js'
import { fileOf, type LogFile, recordPosition } from './log-file.js'
import { logName, type Manifest, publishManifest, snapshotName } from './manifest.js'
import type { Append } from './queue.js'
import type { LogOptions, LogPorts, RecordPosition, StoredRecord } from './record-log.js'
import type { RecoveredLog } from './recovery.js'
import { newWalk, readRecordAt, walkAll } from './walk.js'

export interface OpenFile extends LogFile {
  /** Reads and scans under way; the file may go when they have ended. */
  users: number
  /** A compaction has replaced it; only positions given out earlier still lead here. */
  isReplaced: boolean
  onIdle: (() => void) | undefined
}

/** No two of its functions run at once, but for `readAt` and `scanAll`. */
export interface Writer {
  readonly ports: LogPorts
  readonly folder: string
  readonly options: LogOptions
  readonly fail: (cause: unknown, detail: string) => StorageError
  /** What was begun has been undone; hands back the error to throw. */
  readonly full: () => StorageError
  files: OpenFile[]
  manifest: Manifest
  nextIndex: number
  active: FileHandle
  goodBytes: number
  file: number
  /** The last line, which is durable. */
  end: LogEnd
  mustRotate: boolean
}

export function newWriter(
  ports: LogPorts,
  folder: string,
  options: LogOptions,
  { files, manifest, active, goodBytes, end }: RecoveredLog,
  on: Pick<Writer, 'fail' | 'full'>,
): Writer {
  const nextIndex = files.length
  return {
    ports,
    folder,
    options,
    ...on,
    files: files.map(openFile),
    manifest,
    nextIndex,
    active,
    goodBytes,
    file: nextIndex - 1,
    end: { check: end.check, sequence: end.sequence },
    mustRotate: false,
  }
}

const openFile = (file: LogFile) => ({
  ...file,
  users: 0,
  isReplaced: false,
  onIdle: undefined,
})

async function openForReading(writer: Writer, path: string) {
  const handle = await writer.ports.files.open(path, 'read')
  return openFile({ index: writer.nextIndex++, path, handle })
}

const publish = ({ ports: { files, hash, clock }, folder }: Writer, manifest: Manifest) =>
  publishManifest(files, hash, folder, manifest, Math.trunc(clock.nowMs()))

/** It gets its first line only once MANIFEST names it. */
async function rotate(writer: Writer) {
  const { ports, folder, manifest, active: old } = writer
  const { files } = ports
  const first = writer.end.sequence + 1
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
    await publish(writer, next)
    isInForce = true
    const file = await openForReading(writer, path)
    writer.files.push(file)
    writer.manifest = next
    writer.active = handle
    writer.goodBytes = 0
    writer.file = file.index
    writer.mustRotate = false
    await old.close()
  } catch (error) {
    if (isInForce || !isFull(error)) throw writer.fail(error, `${path} could not be started`)
    // An empty leftover, which the next try or the next start removes.
    await handle?.close().catch((cause: unknown) => {
      throw writer.fail(cause, `${path} could not be closed`)
    })
    throw writer.full()
  }
}

/** Or leaves the segment as it was; all is durable on return (R1). */
async function write(writer: Writer, bytes: Uint8Array) {
  const { active: handle, folder, goodBytes, fail } = writer
  try {
    await writeAll(handle, bytes)
  } catch (error) {
    if (!isFull(error)) throw fail(error, `${folder} could not be written`)
    try {
      await handle.truncate(goodBytes)
      await handle.datasync()
      const size = await handle.size()
      if (size !== goodBytes)
        throw new Error(`the segment has ${size} bytes instead of ${goodBytes}`)
    } catch (cause) {
      throw fail(cause, `a write to ${folder} could not be undone`)
    }
    // A file-size limit does not go away in this segment.
    if (errorCode(error) === 'EFBIG' && goodBytes > 0) writer.mustRotate = true
    throw writer.full()
  }
  try {
    await handle.datasync()
  } catch (error) {
    throw fail(error, `${folder} could not be synced`)
  }
}

export async function commit(writer: Writer, group: readonly Append[]): Promise<StoredRecord[][]> {
  const { segmentBytes = 64 * 1024 * 1024 } = writer.options
  if (writer.goodBytes > 0 && (writer.mustRotate || writer.goodBytes >= segmentBytes))
    await rotate(writer)
  const timeMs = Math.trunc(writer.ports.clock.nowMs())
  const { text, stored, end, offset } = encodeGroup(writer.ports.hash, group, writer, timeMs)
  await write(writer, new TextEncoder().encode(text))
  writer.end = end
  writer.goodBytes = offset
  return stored
}

function encodeGroup(
  hash: Hash,
  group: readonly Append[],
  { end, goodBytes, file }: Pick<Writer, 'end' | 'goodBytes' | 'file'>,
  timeMs: number,
) {
  const lines: string[] = []
  let { check, sequence } = end
  let offset = goodBytes
  const stored = group.map(({ records, texts }) =>
    records.map((record, index) => {
      const frame = {
        previous: check,
        sequence: ++sequence,
        durableBytes: goodBytes,
        kind: record.kind,
        timeMs,
        more: records.length - 1 - index,
      }
      const line = encodeLine(hash, frame, texts[index] ?? 'null', encodeHead(record.head))
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
export async function readAt(writer: Writer, position: RecordPosition): Promise<StoredRecord> {
  const file = writer.files.find(({ index }) => index === fileOf(position))
  if (file === undefined)
    throw new StorageError('position_retired', 'a compaction has moved this record', {
      httpStatus: 500,
    })
  file.users++
  try {
    return await readRecordAt(writer.ports.hash, file, position)
  } finally {
    if (--file.users === 0) file.onIdle?.()
  }
}

/** What is there at the call: `compact(() => log.scan(), …)` keeps exactly what is before the cut. */
export function scanAll({
  ports,
  folder,
  options,
  files,
  manifest,
  goodBytes,
}: Writer): AsyncGenerator<StoredRecord> {
  const seen = files.filter((file) => !file.isReplaced)
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
  writer: Writer,
): Promise<{ readonly end: LogEnd; readonly old: readonly OpenFile[] }> {
  await rotate(writer)
  return { end: writer.end, old: writer.files.slice(0, -1) }
}

export async function publishSnapshot(writer: Writer, last: number, old: readonly OpenFile[]) {
  const { files } = writer.ports
  const name = snapshotName(last)
  const path = joinPath(writer.folder, name)
  let isInForce = false
  try {
    await putInForce(files, writer.folder, name)
    const { revision, segments } = writer.manifest
    const rest = segments.filter((first) => first > last)
    const next: Manifest = { revision: revision + 1, snapshot: last, segments: rest }
    await publish(writer, next)
    isInForce = true
    writer.manifest = next
    for (const file of old) file.isReplaced = true
    const file = await openForReading(writer, path)
    writer.files.unshift(file)
    return file.index
  } catch (error) {
    if (isInForce || !isFull(error)) throw writer.fail(error, `${name} could not be activated`)
    // A leftover, and the space is needed.
    await files.remove(path).catch((cause: unknown) => {
      throw writer.fail(cause, `${name} could not be removed`)
    })
    throw outOfSpace(writer.folder)
  }
}

/** What it has not come to when `isStopped` is a leftover for the next start. */
export async function removeReplaced(
  { files, ports, folder }: Writer,
  old: readonly OpenFile[],
  isStopped: () => boolean,
) {
  for (const file of old) {
    if (isStopped()) return
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

export async function closeAll({ active, files }: Writer) {
  const handles = [active, ...files.map((file) => file.handle)]
  const closed = await Promise.allSettled(handles.map((handle) => handle.close()))
  for (const each of closed) if (each.status === 'rejected') throw each.reason
}
