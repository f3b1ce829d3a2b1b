import type { FileHandle } from '#ports'
import { StorageError } from '#protocol/errors'
import { fillTemporary, joinPath, removeIfThere, writeAll } from './durable.js'
import { errorCode, failedForGood, isFull, outOfSpace } from './failures.js'
import { type Append, failLog, type Groups, groupBytes, notWritten } from './groups.js'
import { byteLength, encodeData, encodeHead, encodeLine } from './line.js'
import type { LogEnd } from './manifest.js'
import { logName, type Manifest, publishManifest } from './manifest.js'
import type { LogOptions, LogPorts, RecordPosition, StoredRecord } from './record-log.js'
import { fileOf, type LogFile, newWalk, readRecordAt, recordPosition, walkAll } from './walk.js'

export const openFile = (file: LogFile): OpenFile => ({
  ...file,
  users: 0,
  isReplaced: false,
  onIdle: undefined,
})

export async function openForReading(log: LogState, path: string) {
  const handle = await log.ports.files.open(path, 'read')
  return openFile({ index: log.nextIndex++, path, handle })
}

export async function publish(log: LogState, manifest: Manifest) {
  const { files, hash, clock } = log.ports
  await publishManifest(files, hash, log.name, manifest, Math.trunc(clock.nowMs()))
  log.manifest = manifest
}

export async function rotate(log: LogState) {
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
    await publish(log, { revision: revision + 1, snapshot, segments: [...segments, first] })
    isInForce = true
    const file = await openForReading(log, path)
    log.files.push(file)
    log.active = handle
    log.goodBytes = 0
    log.file = file.index
    log.mustRotate = false
    await old.close()
  } catch (error) {
    if (isInForce || !isFull(error)) throw failLog(log, error, `${path} could not be started`)
    // An empty leftover, which the next try or the next start removes.
    await handle?.close().catch((cause: unknown) => {
      throw failLog(log, cause, `${path} could not be closed`)
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
    if (!isFull(error)) throw failLog(log, error, `${folder} could not be written`)
    try {
      await handle.truncate(goodBytes)
      await handle.datasync()
      const size = await handle.size()
      if (size !== goodBytes)
        throw new Error(`the segment has ${size} bytes instead of ${goodBytes}`)
    } catch (cause) {
      throw failLog(log, cause, `a write to ${folder} could not be undone`)
    }
    // A file-size limit does not go away in this segment.
    if (errorCode(error) === 'EFBIG' && goodBytes > 0) log.mustRotate = true
    throw closeForSpace(log)
  }
  try {
    await handle.datasync()
  } catch (error) {
    throw failLog(log, error, `${folder} could not be synced`)
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

/** What is there at the call: `compact(() => log.scan(), …)` keeps what is before the cut. */
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

export async function closeAll({ active, files }: LogState) {
  const handles = [active, ...files.map((file) => file.handle)]
  const closed = await Promise.allSettled(handles.map((handle) => handle.close()))
  for (const each of closed) if (each.status === 'rejected') throw each.reason
}

const probeMs = 5_000

export interface OpenFile extends LogFile {
  users: number
  /** A compaction has replaced it; only positions given out earlier still lead here. */
  isReplaced: boolean
  onIdle: (() => void) | undefined
}

/** `name` is the folder. Groups, rotations, cuts and publications are `exclusive` jobs. */
export interface LogState extends Groups {
  readonly ports: LogPorts
  readonly options: LogOptions
  readonly noted: Set<string>
  files: OpenFile[]
  manifest: Manifest
  nextIndex: number
  active: FileHandle
  file: number
  goodBytes: number
  end: LogEnd
  mustRotate: boolean
  isFull: boolean
  isShut: boolean
  isCompacting: boolean
  isIdling: boolean
  isUnmarked: boolean
  /** The last record of a caller, and the one that HIGHWATER names. */
  reached: LogEnd
  marked: LogEnd | undefined
}

export async function checkFence(log: LogState) {
  try {
    await log.options.fence?.()
  } catch (error) {
    const dead = failLog(log, error, `the lock of ${log.name} could not be checked`)
    throw dead.code === 'store_fenced' ? dead : notWritten(log, dead)
  }
}

/** Appends are refused until a probe, every 5 s, finds space. */
export function closeForSpace(log: LogState) {
  if (!log.isFull) {
    log.isFull = true
    void probeSpace(log)
  }
  return outOfSpace(log.name)
}

async function probeSpace(log: LogState) {
  const { files, clock } = log.ports
  while (log.isFull) {
    try {
      await clock.sleep(probeMs, log.stop.signal)
    } catch {
      return
    }
    try {
      await log.exclusive(async () => {
        await fillTemporary(files, log.name, 'probe', (handle) =>
          writeAll(handle, new Uint8Array(groupBytes)),
        )
        await files.remove(joinPath(log.name, 'probe.tmp'))
      })
      log.isFull = false
    } catch (error) {
      if (!isFull(error)) failLog(log, error, `${log.name} could not be probed for space`)
    }
  }
}
