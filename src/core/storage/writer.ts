import type { FileHandle } from '../ports.js'
import { StorageError } from '../protocol/errors.js'
import { joinPath, putInForce, removeIfThere, writeAll } from './durable.js'
import { errorCode, failedForGood, isFull, outOfSpace } from './failures.js'
import { type Append, encodeGroup, type GroupEnd } from './group.js'
import type { LogEnd } from './high-water.js'
import { logName, type Manifest, publishManifest, snapshotName } from './manifest.js'
import type { LogOptions, LogPorts, Position, StoredRecord } from './record-log.js'
import { type Opened, walkAll } from './recovery.js'
import type { Cut } from './snapshot.js'
import { fileOf, type LogFile, newWalk, readRecord } from './walk.js'

/** A file of an open log. */
export interface OpenFile extends LogFile {
  /** Reads and scans under way; the file may go when they have ended. */
  users: number
  /**
   * A compaction has put something in its place; only positions given out earlier still lead here.
   */
  replaced: boolean
  /** Called by the last user. */
  onIdle: (() => void) | undefined
}

/** What the writer tells its log; each hands back the error to throw. */
export interface WriterEvents {
  /** R10: nothing may be written any more. */
  readonly fail: (cause: unknown, detail: string) => StorageError
  /** The disk is full; what was begun has been undone. */
  readonly full: () => StorageError
}

/**
 * The files of an open log: writes groups, starts segments, swaps in snapshots, reads. Not safe for
 * two callers at once, but for `read` and `scan`: the log takes turns. Every method throws
 * `StorageError` only.
 */
export function newWriter(
  ports: LogPorts,
  folder: string,
  options: LogOptions,
  opened: Opened,
  events: WriterEvents,
) {
  const { files, clock, hash } = ports
  const { fail } = events
  const segmentBytes = options.segmentBytes ?? 64 * 1024 * 1024
  const openFiles: OpenFile[] = opened.files.map((file) => ({
    ...file,
    users: 0,
    replaced: false,
    onIdle: undefined,
  }))
  let manifest = opened.manifest
  let nextIndex = openFiles.length
  let active = opened.active
  let at: GroupEnd = {
    check: opened.check,
    sequence: opened.sequence,
    goodBytes: opened.goodBytes,
    file: nextIndex - 1,
  }
  let rotateNext = false

  const now = () => Math.trunc(clock.nowMs())

  /**
   * Starts the next segment: it gets its first line only once MANIFEST names it. Throws
   * `StorageError`.
   */
  async function rotate(): Promise<void> {
    const first = at.sequence + 1
    const path = joinPath(folder, logName(first))
    let handle: FileHandle | undefined
    let inForce = false
    try {
      await removeIfThere(files, path)
      handle = await files.open(path, 'exclusive')
      const next: Manifest = {
        ...manifest,
        revision: manifest.revision + 1,
        segments: [...manifest.segments, first],
      }
      // Or a crash could leave a MANIFEST that names a segment whose own name was lost.
      await files.syncDir(folder).catch((cause: unknown) => {
        throw failedForGood(`${folder} could not be synced`, cause)
      })
      await publishManifest(files, hash, folder, next, now())
      inForce = true
      openFiles.push({
        index: nextIndex,
        path,
        handle: await files.open(path, 'read'),
        users: 0,
        replaced: false,
        onIdle: undefined,
      })
      manifest = next
      const old = active
      active = handle
      at = { ...at, goodBytes: 0, file: nextIndex++ }
      rotateNext = false
      await old.close()
    } catch (error) {
      if (inForce || !isFull(error)) throw fail(error, `${path} could not be started`)
      // An empty leftover, which the next try or the next start removes.
      await handle?.close().catch((cause: unknown) => {
        throw fail(cause, `${path} could not be closed`)
      })
      throw events.full()
    }
  }

  /**
   * Writes and syncs lines, or leaves the segment as it was. Throws `StorageError`; resolves only
   * when all is durable (R1).
   */
  async function write(bytes: Uint8Array): Promise<void> {
    const handle = active
    try {
      await writeAll(handle, bytes)
    } catch (error) {
      if (!isFull(error)) throw fail(error, `${folder} could not be written`)
      try {
        await handle.truncate(at.goodBytes)
        await handle.datasync()
        const size = await handle.size()
        if (size !== at.goodBytes)
          throw new Error(`the segment has ${size} bytes instead of ${at.goodBytes}`)
      } catch (cause) {
        throw fail(cause, `a write to ${folder} could not be undone`)
      }
      // A file-size limit does not go away in this segment.
      if (errorCode(error) === 'EFBIG' && at.goodBytes > 0) rotateNext = true
      throw events.full()
    }
    try {
      await handle.datasync()
    } catch (error) {
      throw fail(error, `${folder} could not be synced`)
    }
  }

  /**
   * Makes the records of one group durable; hands back what each append gets. Throws
   * `StorageError`.
   */
  async function commit(group: readonly Append[]): Promise<StoredRecord[][]> {
    if (at.goodBytes > 0 && (rotateNext || at.goodBytes >= segmentBytes)) await rotate()
    const encoded = encodeGroup(hash, group, at, now())
    await write(encoded.bytes)
    at = encoded.end
    return encoded.stored
  }

  async function read(position: Position): Promise<StoredRecord> {
    const file = openFiles.find((each) => each.index === fileOf(position))
    if (file === undefined)
      throw new StorageError('position_retired', 'a compaction has moved this record', {
        httpStatus: 500,
      })
    file.users++
    try {
      return await readRecord(hash, file, position)
    } finally {
      if (--file.users === 0) file.onIdle?.()
    }
  }

  /**
   * Takes replaced files away once nobody reads them; `stopped` leaves them to the next start, as
   * leftovers.
   */
  async function retire(old: readonly OpenFile[], stopped: () => boolean): Promise<void> {
    for (const file of old) {
      if (stopped()) return
      openFiles.splice(openFiles.indexOf(file), 1)
      if (file.users > 0) {
        await new Promise<void>((resolve) => {
          file.onIdle = resolve
        })
      }
      await file.handle.close()
      await files.remove(file.path)
    }
    await files.syncDir(folder)
  }

  /** Puts a written snapshot in force for everything up to `last`; the index of its file. */
  async function publishSnapshot(last: number, old: readonly OpenFile[]): Promise<number> {
    const name = snapshotName(last)
    const path = joinPath(folder, name)
    let inForce = false
    try {
      await putInForce(files, folder, name)
      const segments = manifest.segments.filter((first) => first > last)
      const next: Manifest = { revision: manifest.revision + 1, snapshot: last, segments }
      await publishManifest(files, hash, folder, next, now())
      inForce = true
      manifest = next
      for (const file of old) file.replaced = true
      openFiles.unshift({
        index: nextIndex,
        path,
        handle: await files.open(path, 'read'),
        users: 0,
        replaced: false,
        onIdle: undefined,
      })
      return nextIndex++
    } catch (error) {
      if (inForce || !isFull(error)) throw fail(error, `${name} could not be put in force`)
      // A leftover, and the space is needed.
      await files.remove(path).catch((cause: unknown) => {
        throw fail(cause, `${name} could not be removed`)
      })
      throw outOfSpace(folder)
    }
  }

  /**
   * What is there at the call, so that `compact(() => log.scan(), …)` keeps exactly what lies
   * before the cut.
   */
  function scan(): AsyncGenerator<StoredRecord> {
    const seen = openFiles.filter((file) => !file.replaced)
    const walking = walkAll(ports, seen, manifest, newWalk(), {
      knownKinds: options.knownKinds,
      torn: false,
      endBytes: at.goodBytes,
    })
    return (async function* () {
      for (const file of seen) file.users++
      try {
        for await (const records of walking) yield* records
      } finally {
        for (const file of seen) if (--file.users === 0) file.onIdle?.()
      }
    })()
  }

  async function closeFiles(): Promise<void> {
    const closed = await Promise.allSettled(
      [active, ...openFiles.map((file) => file.handle)].map((handle) => handle.close()),
    )
    for (const each of closed) if (each.status === 'rejected') throw each.reason
  }

  return {
    commit,
    /** Ends the segment; what a compaction from here on may replace. */
    async cut(): Promise<Cut & { readonly old: readonly OpenFile[] }> {
      await rotate()
      return { sequence: at.sequence, check: at.check, old: openFiles.slice(0, -1) }
    },
    publishSnapshot,
    retire,
    read,
    scan,
    isEmpty: () => at.goodBytes === 0,
    /** The last line, which is durable. */
    end: (): LogEnd => ({ sequence: at.sequence, check: at.check }),
    closeFiles,
  }
}
