import pLimit from 'p-limit'
import { joinPath } from './durable.js'
import {
  busy,
  errorCode,
  isFull,
  isShortOfFiles,
  messageOf,
  notOurs,
  outOfSpace,
  storageErrorOf,
  unavailable,
} from './failures.js'
import { highWaterName, publishHighWater } from './high-water.js'
import { encodeData, encodeHead } from './line.js'
import { recordPosition } from './log-file.js'
import {
  checkFence,
  closeForSpace,
  commitOwn,
  failLog,
  type LogState,
  refusal,
} from './log-state.js'
import { type Append, newQueue, type Waiting } from './queue.js'
import type { CompactableLog, LogOptions, LogPorts, NewRecord, StoredRecord } from './record-log.js'
import { type RecoveredLog, recover } from './recovery.js'
import { writeSnapshot } from './snapshot.js'
import { internalKinds } from './walk.js'
import {
  closeAll,
  commit,
  cutLog,
  newWriter,
  publishSnapshot,
  readAt,
  removeReplaced,
  scanAll,
} from './writer.js'

const idleMs = 1_000
const sliceMs = 5
/** What a decision is counted as while it waits, where its owner does not say. */
const decisionBytes = 2_048

/**
 * Hands every record to `onRecord` in order before it resolves. The caller holds the folder's
 * lock, or owns the folder (journal runs). Damage is named with file and offset, and nothing is
 * changed (R11). Design: robustness §2.
 */
export async function openLog(
  ports: LogPorts,
  folder: string,
  options: LogOptions,
  onRecord: (record: StoredRecord) => void,
): Promise<CompactableLog> {
  const recovered = await recover(ports, folder, options, onRecord).catch((error: unknown) => {
    throw storageErrorOf(`${folder} cannot be opened`, error)
  })
  const log: LogState = {
    ports,
    folder,
    options,
    writer: newWriter(ports, folder, options, recovered, {
      fail: (cause, detail) => failLog(log, cause, detail),
      full: () => closeForSpace(log),
    }),
    queue: newQueue(options.queueBytes ?? 64 * 1024 * 1024),
    exclusive: pLimit(1),
    stop: new AbortController(),
    listeners: [],
    noted: new Set(),
    failed: undefined,
    isFull: false,
    isEnding: false,
    isShut: false,
    isCompacting: false,
    isDraining: false,
    isIdling: false,
    isUnmarked: false,
    groups: 0,
    reached: recovered.reached,
    marked: recovered.marked,
  }
  await log.exclusive(() => cover(log, recovered))

  let closing: Promise<void> | undefined
  return {
    append(what, onDurable, aboutBytes = decisionBytes) {
      if (typeof what !== 'function' && what.length === 0) return Promise.resolve([])
      return new Promise((resolve, reject) => {
        const refused = refusal(log)
        if (refused !== undefined) throw refused
        const waiting =
          typeof what === 'function'
            ? {
                bytes: aboutBytes,
                lines: 1,
                decide: (group: number) => encoded(log, what(group)),
              }
            : given(encoded(log, what))
        if (!log.queue.add({ ...waiting, onDurable, resolve, reject })) throw busy(folder)
        if (!log.isDraining) void drain(log)
      })
    },
    read: (position) => readAt(log.writer, position),
    scan: () => scanAll(log.writer),
    async compact(keep, onPlaced) {
      if (log.isCompacting) throw unavailable(`${folder} is already being compacted`)
      log.isCompacting = true
      try {
        await compact(log, keep, onPlaced)
      } finally {
        log.isCompacting = false
      }
    },
    get failed() {
      return log.failed
    },
    get closed() {
      return log.isFull || log.isEnding || log.failed !== undefined
    },
    onFailure(listener) {
      if (log.failed === undefined) log.listeners.push(listener)
      else listener(log.failed)
    },
    close() {
      closing ??= end(log)
      return closing
    },
  }
}

const given = (append: Append & { readonly bytes: number }) => ({
  bytes: append.bytes,
  lines: append.records.length,
  decide: () => append,
})

function encoded({ options }: LogState, records: readonly NewRecord[]) {
  let bytes = 0
  const texts = records.map(({ kind, data, head }) => {
    if (internalKinds.has(kind) || !options.knownKinds(kind)) throw notOurs(kind)
    const headText = encodeHead(head)
    const text = encodeData(kind, data, headText)
    bytes += text.length + headText.length + 160
    return text
  })
  return { records, texts, bytes }
}

async function drain(log: LogState) {
  log.isDraining = true
  while (!log.queue.isEmpty()) await log.exclusive(() => writeGroup(log))
  log.isDraining = false
}

type Decided = Append & { readonly each: Waiting }

async function writeGroup(log: LogState) {
  const group = log.queue.take()
  const refused = log.failed ?? (log.isFull ? outOfSpace(log.folder) : undefined)
  let decided: readonly Decided[]
  let stored: StoredRecord[][] = []
  try {
    if (refused !== undefined) throw refused
    await checkFence(log)
    log.groups++
    decided = group.flatMap((each) => decisionOf(each, log.groups))
    if (decided.some(({ texts }) => texts.length > 0)) {
      stored = await commit(log.writer, decided)
      log.isUnmarked = true
      log.reached = log.writer.end
    }
  } catch (error) {
    for (const each of group) each.reject(error)
    return
  }
  if (log.isUnmarked && !log.isIdling) void markWhenIdle(log)
  for (const [index, { each }] of decided.entries()) {
    const mine = stored[index] ?? []
    try {
      each.onDurable?.(mine)
      each.resolve(mine)
    } catch (error) {
      // A bug of the owner: its memory no longer agrees with the disk, so it must not go on.
      each.reject(failLog(log, error, 'a durable record could not be applied'))
    }
  }
}

function decisionOf(each: Waiting, group: number) {
  try {
    return [{ each, ...each.decide(group) }]
  } catch (error) {
    each.reject(error)
    return []
  }
}

/**
 * Every second with a group the high-water mark is raised. After 1 s without one, a mark covers
 * the last records, so that later damage there cannot pass for a torn tail.
 */
async function markWhenIdle(log: LogState) {
  log.isIdling = true
  try {
    while (log.isUnmarked && !log.isEnding) {
      const seen = log.groups
      await log.ports.clock.sleep(idleMs, log.stop.signal)
      await log.exclusive(() => raiseHighWater(log))
      if (log.groups === seen) await log.exclusive(() => mark(log))
    }
  } catch {
    // Closed or failed meanwhile, or the disk is full: `close` or the next group sees to the mark.
  } finally {
    log.isIdling = false
  }
}

async function mark(log: LogState) {
  if (!log.isUnmarked || log.failed !== undefined || log.isFull) return
  await commitOwn(log, 'mark', {})
  log.isUnmarked = false
}

/**
 * A mark of ours may be cut off by the next start. Only the store has it: in a journal's run one
 * more file to sync costs more than the run is worth.
 */
async function raiseHighWater(log: LogState) {
  const { ports, folder, options, reached } = log
  if (options.format.name !== 'store' || reached.sequence === 0) return
  if (reached.check === log.marked?.check || log.failed !== undefined || log.isFull) return
  await checkFence(log)
  try {
    const timeMs = Math.trunc(ports.clock.nowMs())
    await publishHighWater(ports.files, ports.hash, folder, reached, timeMs)
    log.marked = reached
  } catch (error) {
    const what = `${joinPath(folder, highWaterName)} could not be written`
    // Without room or a descriptor the one before stays, and is as true; a disk that fails is
    // another matter (R10).
    if (!isFull(error) && !isShortOfFiles(error)) throw failLog(log, error, what)
    const code = errorCode(error) ?? ''
    if (!log.noted.has(code)) options.onNote?.(`${what}: ${messageOf(error)}`)
    log.noted.add(code)
  }
}

async function compact(log: LogState, ...[keep, onPlaced]: Parameters<CompactableLog['compact']>) {
  const { ports, folder, writer } = log
  const { clock } = ports
  const { end, old, kept } = await log.exclusive(async () => {
    const refused = refusal(log)
    if (refused !== undefined) throw refused
    // The mark gives every cut a number of its own, and the old segments end covered.
    await commitOwn(log, 'mark', {})
    log.isUnmarked = false
    return { ...(await cutLog(writer)), kept: keep() }
  })
  const offsets = await writeSnapshot(ports, folder, end, kept, {
    knownKinds: log.options.knownKinds,
    timeMs: Math.trunc(clock.nowMs()),
    checkOpen: () => {
      if (log.failed !== undefined || log.isEnding)
        throw unavailable(`${folder} is closed`, log.failed)
    },
  }).catch((error: unknown) => {
    throw errorCode(error) === 'store_failed' ? failLog(log, error, 'a snapshot failed') : error
  })
  const index = await log.exclusive(async () => {
    // After `close` the unfinished snapshot is left to the next start.
    if (log.failed !== undefined || log.isShut) throw unavailable(`${folder} is closed`, log.failed)
    await checkFence(log)
    return publishSnapshot(writer, end.sequence, old)
  })
  let sliceStartMs = clock.monotonicMs()
  for (const [ordinal, offset] of offsets.entries()) {
    onPlaced(ordinal, recordPosition(index, offset))
    if (ordinal % 256 !== 255 || clock.monotonicMs() - sliceStartMs < sliceMs) continue
    await clock.sleep(0)
    sliceStartMs = clock.monotonicMs()
  }
  try {
    await removeReplaced(writer, old, () => log.failed !== undefined || log.isShut)
  } catch (error) {
    throw failLog(log, error, `replaced files of ${folder} could not be removed`)
  }
}

/** On a full disk the log opens for reading, closed for appends. */
async function cover(log: LogState, { recovered }: RecoveredLog) {
  try {
    if (recovered !== undefined) await commitOwn(log, 'recovered', recovered)
    else if (log.writer.goodBytes > 0) await commitOwn(log, 'mark', {})
    // A process that was killed may have left records above the mark.
    await raiseHighWater(log)
  } catch (error) {
    log.isUnmarked = true
    if (log.failed === undefined) return
    await closeFiles(log)
    throw error
  }
  // A `recovered` line is worth keeping at the next start, which drops a mark that comes last.
  log.isUnmarked = recovered !== undefined
}

async function end(log: LogState) {
  log.isEnding = true
  while (log.isDraining || !log.queue.isEmpty()) await log.exclusive(async () => undefined)
  log.stop.abort()
  await log.exclusive(async () => {
    try {
      await raiseHighWater(log)
      await mark(log)
    } catch (error) {
      // On a full disk the mark is missing, and nothing else; a failed sync counts.
      if (log.failed !== undefined) throw error
    } finally {
      log.isShut = true
      await closeFiles(log)
    }
  })
}

async function closeFiles(log: LogState) {
  const wasDead = log.failed !== undefined
  await closeAll(log.writer).catch((cause: unknown) => {
    const error = failLog(log, cause, `${log.folder} could not be closed`)
    if (!wasDead) throw error
  })
}
