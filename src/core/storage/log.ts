import type { StorageError } from '../protocol/errors.js'
import { fillTemporary, joinPath, writeAll } from './durable.js'
import {
  busy,
  errorCode,
  failedForGood,
  isFull,
  isShortOfFiles,
  messageOf,
  named,
  notOurs,
  outOfSpace,
  unavailable,
} from './failures.js'
import type { Append } from './group.js'
import { highWaterName, type LogEnd, publishHighWater } from './high-water.js'
import { encodeData, encodeHead } from './line.js'
import { groupBytes, newQueue, newTurns, type Waiting } from './queue.js'
import type {
  Decide,
  LogOptions,
  LogPorts,
  NewRecord,
  Position,
  RecordLog,
  StoredRecord,
} from './record-log.js'
import { recover } from './recovery.js'
import { writeSnapshot } from './snapshot.js'
import { internalKinds, positionOf } from './walk.js'
import { newWriter } from './writer.js'

export type { LogOptions, LogPorts, RecordLog, StoredRecord } from './record-log.js'

const idleMs = 1_000
const probeMs = 5_000
const sliceMs = 5
/** What a decision is counted as while it waits, where its owner does not say. */
const decisionBytes = 2_048

/** What an append writes; one whose decision throws is out of the group, and hears why. */
function decisionOf(each: Waiting, group: number): (Append & { readonly each: Waiting })[] {
  try {
    return [{ each, ...each.decide(group) }]
  } catch (error) {
    each.reject(error instanceof Error ? error : new Error(String(error)))
    return []
  }
}

/**
 * Opens a folder for writing, creating it if need be, and hands every record to `onRecord` in order
 * before it resolves. The caller holds the folder's lock, or owns the folder (journal runs).
 * Rejects with `StorageError`: `store_damaged` (file and offset named, nothing changed, R11),
 * `store_too_new`, `store_mismatch`, `store_fenced`, `store_unavailable` (the disk refuses); and
 * with whatever `onRecord` throws. Design: robustness §2. `more` marks and the rewriting of an
 * unsure end are ours (see `settleEnd`).
 */
export async function openLog(
  ports: LogPorts,
  folder: string,
  options: LogOptions,
  onRecord: (record: StoredRecord) => void,
): Promise<RecordLog> {
  const { files, clock } = ports
  const queue = newQueue(options.queueBytes ?? 64 * 1024 * 1024)
  /** One job at a time touches the folder: groups, rotations, cuts, publications. */
  const exclusive = newTurns()
  const opened = await recover(ports, folder, options, onRecord).catch((error: unknown) => {
    throw named(`${folder} cannot be opened`, error)
  })

  let failed: Error | undefined
  let full = false
  let ending = false
  let compacting = false
  let unmarked = false // records above the last mark
  let reached: LogEnd = opened.reached // the last record of a caller
  let marked = opened.marked // the one that HIGHWATER names
  const noted = new Set<string>()
  let groups = 0
  let idling = false
  let draining = false
  let closing: Promise<void> | undefined
  let shut = false // the files are closed
  const stop = new AbortController()
  const listeners: ((error: Error) => void)[] = []

  const writer = newWriter(ports, folder, options, opened, { fail, full: closeForSpace })

  /** R10: nothing is written any more; the listeners end the process. */
  function fail(cause: unknown, detail: string): StorageError {
    const error = failedForGood(detail, cause)
    if (failed !== undefined) return error
    failed = error
    stop.abort()
    for (const each of queue.takeAll())
      each.reject(unavailable(`${folder} is no longer written`, error))
    for (const listener of listeners) listener(error)
    return error
  }

  async function checkFence(): Promise<void> {
    try {
      await options.fence?.()
    } catch (error) {
      const dead = fail(error, `the lock of ${folder} could not be checked`)
      throw dead.code === 'store_fenced'
        ? dead
        : unavailable(`${folder} is no longer written`, dead)
    }
  }

  function refusal(): StorageError | undefined {
    if (failed !== undefined) return unavailable(`${folder} is no longer written`, failed)
    if (ending) return unavailable(`${folder} is closed`)
    return full ? outOfSpace(folder) : undefined
  }

  /** The disk is full: refuse appends and look every 5 s whether it still is. */
  function closeForSpace(): StorageError {
    if (!full) {
      full = true
      void probeSpace()
    }
    return outOfSpace(folder)
  }

  async function probeSpace(): Promise<void> {
    while (full) {
      try {
        await clock.sleep(probeMs, stop.signal)
      } catch {
        return // closed or failed meanwhile
      }
      try {
        await exclusive(async () => {
          await fillTemporary(files, folder, 'probe', (handle) =>
            writeAll(handle, new Uint8Array(groupBytes)),
          )
          await files.remove(joinPath(folder, 'probe.tmp'))
        })
        full = false
      } catch (error) {
        if (!isFull(error)) fail(error, `${folder} could not be probed for space`)
      }
    }
  }

  async function commitOwn(kind: string, data: unknown): Promise<void> {
    await checkFence()
    await writer.commit([{ records: [{ kind, data }], texts: [encodeData(kind, data)] }])
  }

  async function drain(): Promise<void> {
    draining = true
    while (!queue.isEmpty()) await exclusive(writeGroup)
    draining = false
  }

  async function writeGroup(): Promise<void> {
    const group = queue.take()
    const refused = failed ?? (full ? outOfSpace(folder) : undefined)
    let decided: (Append & { readonly each: Waiting })[]
    let stored: StoredRecord[][] = []
    try {
      if (refused !== undefined) throw refused
      await checkFence()
      groups++
      decided = group.flatMap((each) => decisionOf(each, groups))
      const isWritten = decided.some(({ texts }) => texts.length > 0)
      if (isWritten) {
        stored = await writer.commit(decided)
        unmarked = true
        reached = writer.end()
      }
    } catch (error) {
      for (const each of group)
        each.reject(error instanceof Error ? error : new Error(String(error)))
      return
    }
    if (unmarked && !idling) void markWhenIdle()
    for (const [index, { each }] of decided.entries()) {
      const mine = stored[index] ?? []
      try {
        each.onDurable?.(mine)
        each.resolve(mine)
      } catch (error) {
        // Durable, but the owner's memory no longer agrees with the disk: it must not go on (a bug
        // of the owner).
        each.reject(fail(error, 'a durable record could not be applied'))
      }
    }
  }

  /**
   * Every second with a group the high-water mark is raised. After 1 s without one, a mark covers
   * the last records, so that later damage there cannot pass for a torn tail.
   */
  async function markWhenIdle(): Promise<void> {
    idling = true
    try {
      while (unmarked && !ending) {
        const seen = groups
        await clock.sleep(idleMs, stop.signal)
        await exclusive(raiseHighWater)
        if (groups === seen) await exclusive(mark)
      }
    } catch {
      // Closed or failed meanwhile, or the disk is full: `close` or the group after the next probe
      // sees to the mark.
    } finally {
      idling = false
    }
  }

  async function mark(): Promise<void> {
    if (!unmarked || failed !== undefined || full) return
    await commitOwn('mark', {})
    unmarked = false
  }

  /**
   * Names the last record of a caller, not a mark of ours: the next start may cut that one off.
   * Only the store has it: a journal's run is one command's, and a file more to sync would cost
   * each of them more than that run is worth.
   */
  async function raiseHighWater(): Promise<void> {
    if (
      options.format.name !== 'store' ||
      reached.sequence === 0 ||
      reached.check === marked?.check
    )
      return
    if (failed !== undefined || full) return
    const next = reached
    await checkFence()
    try {
      await publishHighWater(files, ports.hash, folder, next, Math.trunc(clock.nowMs()))
      marked = next
    } catch (error) {
      const what = `${joinPath(folder, highWaterName)} could not be written`
      // Where there is no room for it, or no descriptor, the one before stays, and is as true. A
      // disk that fails is another matter (R10).
      if (!isFull(error) && !isShortOfFiles(error)) throw fail(error, what)
      const code = errorCode(error) ?? ''
      if (!noted.has(code)) options.onNote?.(`${what}: ${messageOf(error)}`)
      noted.add(code)
    }
  }

  async function compact(
    keep: () => AsyncIterable<NewRecord> | Iterable<NewRecord>,
    onPlaced: (ordinal: number, position: Position) => void,
  ) {
    const cut = await exclusive(async () => {
      const refused = refusal()
      if (refused !== undefined) throw refused
      // The mark gives every cut a number of its own, and the old segments end covered.
      await commitOwn('mark', {})
      unmarked = false
      const { old, ...end } = await writer.cut()
      return { end, old, kept: keep() }
    })
    const checkOpen = () => {
      if (failed !== undefined || ending) throw unavailable(`${folder} is closed`, failed)
    }
    const timeMs = Math.trunc(clock.nowMs())
    const writing = writeSnapshot(ports, folder, cut.end, cut.kept, {
      knownKinds: options.knownKinds,
      timeMs,
      checkOpen,
    })
    const places = await writing.catch((error: unknown) => {
      throw errorCode(error) === 'store_failed' ? fail(error, 'a snapshot failed') : error
    })
    const index = await exclusive(async () => {
      // After `close` the files are no longer ours; the unfinished snapshot is removed at the next
      // start.
      if (failed !== undefined || shut) throw unavailable(`${folder} is closed`, failed)
      await checkFence()
      return writer.publishSnapshot(cut.end.sequence, cut.old)
    })
    let sliceStartMs = clock.monotonicMs()
    for (const [ordinal, offset] of places.entries()) {
      onPlaced(ordinal, positionOf(index, offset))
      if (ordinal % 256 !== 255 || clock.monotonicMs() - sliceStartMs < sliceMs) continue
      await clock.sleep(0)
      sliceStartMs = clock.monotonicMs()
    }
    try {
      await writer.retire(cut.old, () => failed !== undefined || shut)
    } catch (error) {
      throw fail(error, `replaced files of ${folder} could not be removed`)
    }
  }

  /**
   * Ends the opening with a line that covers everything before it. On a full disk the log opens for
   * reading, closed for appends.
   */
  async function cover(): Promise<void> {
    try {
      if (opened.recovered !== undefined) await commitOwn('recovered', opened.recovered)
      else if (!writer.isEmpty()) await commitOwn('mark', {})
      // A process that was killed may have left records above the mark.
      await raiseHighWater()
    } catch (error) {
      unmarked = true
      if (failed === undefined) return
      await closeFiles()
      throw error
    }
    // A `recovered` line is worth keeping at the next start, which drops a mark that comes last.
    unmarked = opened.recovered !== undefined
  }
  await exclusive(cover)

  return {
    append(what, onDurable, aboutBytes) {
      if (typeof what !== 'function' && what.length === 0) return Promise.resolve([])
      return new Promise((resolve, reject) => {
        const refused = refusal()
        if (refused !== undefined) throw refused
        const waiting = typeof what === 'function' ? deciding(what, aboutBytes) : given(what)
        if (!queue.add({ ...waiting, onDurable, resolve, reject })) throw busy(folder)
        if (!draining) void drain()
      })
    },
    read: writer.read,
    scan: writer.scan,
    async compact(keep, onPlaced) {
      if (compacting) throw unavailable(`${folder} is being compacted already`)
      compacting = true
      try {
        await compact(keep, onPlaced)
      } finally {
        compacting = false
      }
    },
    get failed() {
      return failed
    },
    get closed() {
      return full || ending || failed !== undefined
    },
    onFailure(listener) {
      if (failed === undefined) listeners.push(listener)
      else listener(failed)
    },
    close() {
      closing ??= end()
      return closing
    },
  }

  /** Records that are known are checked, and counted as they are, when they come. */
  function given(records: readonly NewRecord[]): Pick<Waiting, 'bytes' | 'lines' | 'decide'> {
    const { bytes, ...append } = encoded(records)
    return { bytes, lines: records.length, decide: () => append }
  }

  function deciding(
    decide: Decide,
    aboutBytes = decisionBytes,
  ): Pick<Waiting, 'bytes' | 'lines' | 'decide'> {
    return { bytes: aboutBytes, lines: 1, decide: (group) => encoded(decide(group)) }
  }

  function encoded(records: readonly NewRecord[]): Append & { readonly bytes: number } {
    const texts: string[] = []
    let bytes = 0
    for (const record of records) {
      if (internalKinds.has(record.kind) || !options.knownKinds(record.kind))
        throw notOurs(record.kind)
      const headText = encodeHead(record.head)
      const text = encodeData(record.kind, record.data, headText)
      texts.push(text)
      bytes += text.length + headText.length + 160
    }
    return { records, texts, bytes }
  }

  async function end(): Promise<void> {
    ending = true
    while (draining || !queue.isEmpty()) await exclusive(async () => undefined)
    stop.abort()
    await exclusive(async () => {
      try {
        await raiseHighWater()
        await mark()
      } catch (error) {
        // On a full disk the mark is missing, and nothing else; a failed sync counts.
        if (failed !== undefined) throw error
      } finally {
        shut = true
        await closeFiles()
      }
    })
  }

  async function closeFiles(): Promise<void> {
    const dead = failed !== undefined
    await writer.closeFiles().catch((cause: unknown) => {
      const error = fail(cause, `${folder} could not be closed`)
      if (!dead) throw error
    })
  }
}
