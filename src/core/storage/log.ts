import { compact } from './compaction.js'
import { joinPath } from './durable.js'
import {
  errorCode,
  isFull,
  isShortOfFiles,
  messageOf,
  notOurs,
  outOfSpace,
  storageErrorOf,
  unavailable,
} from './failures.js'
import {
  acknowledge,
  type DecidedAppend,
  decideGroup,
  failLog,
  groupWriter,
  newGroups,
  refusal,
  type Waiting,
} from './groups.js'
import { encodeData, encodeHead } from './line.js'
import { highWaterName, publishHighWater } from './manifest.js'
import type { CompactableLog, LogOptions, LogPorts, NewRecord, StoredRecord } from './record-log.js'
import { type RecoveredLog, recover } from './recovery.js'
import { internalKinds } from './walk.js'
import {
  checkFence,
  closeAll,
  commit,
  commitOwn,
  type LogState,
  openFile,
  readAt,
  scanAll,
} from './writer.js'

const idleMs = 1_000

/**
 * The caller holds the folder's lock, or owns the folder (journal runs). Damage is named with file
 * and offset, and nothing is changed (R11). Design: robustness §2.
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
  const { files, manifest, active, goodBytes, end, reached, marked } = recovered
  const nextIndex = files.length
  const log: LogState = {
    ...newGroups(folder, options.queueBytes),
    ports,
    options,
    noted: new Set(),
    files: files.map(openFile),
    manifest,
    nextIndex,
    active,
    file: nextIndex - 1,
    goodBytes,
    end,
    mustRotate: false,
    isFull: false,
    isShut: false,
    isCompacting: false,
    isIdling: false,
    isUnmarked: false,
    reached,
    marked,
  }
  await log.exclusive(() => cover(log, recovered))
  return {
    ...groupWriter(log, {
      refusal: () => refusalOf(log),
      encode: (records) => records.map((record) => textOf(options, record)),
      write: (group) => writeGroup(log, group),
      end: () => shut(log),
    }),
    read: (position) => readAt(log, position),
    scan: () => scanAll(log),
    async compact(keep, onPlaced) {
      if (log.isCompacting) throw unavailable(`${folder} is already being compacted`)
      log.isCompacting = true
      try {
        await compact(log, () => refusalOf(log), keep, onPlaced)
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
  }
}

const refusalOf = (log: LogState) => refusal(log) ?? (log.isFull ? outOfSpace(log.name) : undefined)

function textOf({ knownKinds }: LogOptions, { kind, data, head }: NewRecord) {
  if (internalKinds.has(kind) || !knownKinds(kind)) throw notOurs(kind)
  return encodeData(kind, data, encodeHead(head))
}

async function writeGroup(log: LogState, group: readonly Waiting[]) {
  let decided: readonly DecidedAppend[]
  let stored: StoredRecord[][] = []
  try {
    if (log.failed !== undefined) throw log.failed
    if (log.isFull) throw outOfSpace(log.name)
    await checkFence(log)
    decided = decideGroup(log, group)
    if (decided.some(({ texts }) => texts.length > 0)) {
      stored = await commit(log, decided)
      log.isUnmarked = true
      log.reached = log.end
    }
  } catch (error) {
    for (const each of group) each.reject(error)
    return
  }
  if (log.isUnmarked && !log.isIdling) void markWhenIdle(log)
  for (const [index, each] of decided.entries()) acknowledge(log, each, stored[index] ?? [])
}

/**
 * The high-water mark is raised every second. After 1 s without a group a mark covers the last
 * records: later damage there cannot pass for a torn tail.
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

/** Only of the store: in a journal's run one more file to sync costs more than the run is worth. */
async function raiseHighWater(log: LogState) {
  const { ports, name: folder, options, reached } = log
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

/** On a full disk the log opens for reading, closed for appends. */
async function cover(log: LogState, { recovered }: RecoveredLog) {
  try {
    if (recovered !== undefined) await commitOwn(log, 'recovered', recovered)
    else if (log.goodBytes > 0) await commitOwn(log, 'mark', {})
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

async function shut(log: LogState) {
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
}

async function closeFiles(log: LogState) {
  const wasDead = log.failed !== undefined
  await closeAll(log).catch((cause: unknown) => {
    const error = failLog(log, cause, `${log.name} could not be closed`)
    if (!wasDead) throw error
  })
}
