import type { FileHandle } from '../ports.js'
import { copyRange, joinPath, makeDurableDir, publishFile, removeIfThere } from './durable.js'
import { damaged, errorCode } from './failures.js'
import { highWaterName, type LogEnd, lossBefore, readHighWater } from './high-water.js'
import {
  logName,
  type Manifest,
  manifestNames,
  ownName,
  publishFormat,
  publishManifest,
  readFormat,
  readManifest,
  refuseWithoutManifest,
} from './manifest.js'
import type { LogOptions, LogPorts, StoredRecord } from './record-log.js'
import {
  type LogFile,
  lengthOf,
  newWalk,
  type Walk,
  type WalkOptions,
  walkSegment,
  walkSnapshot,
} from './walk.js'

/** A log that has been read to its end and whose end has been made sound. */
export interface Opened {
  readonly manifest: Manifest
  /** In order of reading; the last one is the segment to append to. */
  readonly files: LogFile[]
  /** That segment, open for writing. */
  readonly active: FileHandle
  /** Where the next line continues. */
  readonly check: string
  readonly sequence: number
  /** Length of the last segment, all of it durable. */
  readonly goodBytes: number
  /** The last line but for a mark of ours, which a later start may cut off. */
  readonly reached: LogEnd
  /** What HIGHWATER names. */
  readonly marked: LogEnd | undefined
  /** What was cut off, for the `recovered` line. */
  readonly recovered:
    | {
        readonly file: string
        readonly offset: number
        readonly bytes: number
        readonly saved: string
      }
    | undefined
}

/**
 * Opens for writing: FORMAT, MANIFEST, snapshot, segments, each record to `onRecord`; then, and
 * only if all of it was sound, clears leftovers and makes the end durable (R11). Changes nothing
 * before it rejects with `store_damaged` or `store_too_new`.
 */
export async function recover(
  ports: LogPorts,
  folder: string,
  options: LogOptions,
  onRecord: (record: StoredRecord) => void,
): Promise<Opened> {
  const { files } = ports
  const format = await readFormat(files, folder, options.format, 'write')
  if (format === undefined) await makeDurableDir(files, folder)
  const names = await files.list(folder)
  const mark =
    options.format.name === 'store' ? await readHighWater(files, ports.hash, folder) : undefined
  if (mark === 'unreadable')
    options.onNote?.(
      `${joinPath(folder, highWaterName)} is not whole; it is written anew with the next record`,
    )
  const found = await readManifest(files, ports.hash, folder)
  if (found === undefined && mark !== undefined)
    throw damaged(joinPath(folder, 'MANIFEST'), 0, `it is missing, but ${highWaterName} is there`)
  const manifest = found ?? (await create(ports, folder, options, names))
  if (format === undefined && !(await files.exists(joinPath(folder, 'FORMAT'))))
    throw damaged(joinPath(folder, 'FORMAT'), 0, 'it is missing')
  const leftovers = await findLeftovers(ports, folder, manifest, names)

  const opened: LogFile[] = []
  try {
    for (const name of manifestNames(manifest))
      opened.push(await openFile(ports, folder, name, opened.length))
    const walk = newWalk()
    for await (const records of walkAll(ports, opened, manifest, walk, {
      knownKinds: options.knownKinds,
      headsOnly: true,
      torn: true,
    }))
      for (const record of records) onRecord(record)
    const loss = lossBefore(mark, walk)
    if (loss !== undefined) throw damaged(opened.at(-1)?.path ?? folder, walk.offset, loss)

    await options.fence?.()
    // The MANIFEST we have read may be no more than a rename in the page cache, left by a process
    // that died before its sync. Until it is durable, a power cut could bring the old one back, and
    // that one names what we are about to remove.
    await files.syncDir(folder)
    for (const name of leftovers) await removeIfThere(files, joinPath(folder, name))
    if (format !== undefined && format < options.format.version)
      await publishFormat(files, folder, options.format)
    const end = await settleEnd(ports, folder, manifest, opened, walk)
    const reached = walk.beforeMark ?? walk
    const active = await files.open(
      joinPath(folder, logName(manifest.segments.at(-1) ?? 1)),
      'append',
    )
    return { ...end, reached, marked: mark === 'unreadable' ? undefined : mark, active }
  } catch (error) {
    for (const file of opened) await file.handle.close()
    throw error
  }
}

/**
 * Every record of the files in force, in order; `walk` ends at the end of the last one. `torn`:
 * whether the last may end in a torn tail; `endBytes`: how much of the last counts, default all.
 */
export async function* walkAll(
  ports: Pick<LogPorts, 'hash'>,
  opened: readonly LogFile[],
  manifest: Manifest,
  walk: Walk,
  options: WalkOptions & { readonly torn: boolean; readonly endBytes?: number },
): AsyncGenerator<StoredRecord[]> {
  for (const [index, file] of opened.entries()) {
    if (index === 0 && manifest.snapshot !== 0) {
      yield* walkSnapshot(ports.hash, file, walk, options)
      if (walk.sequence !== manifest.snapshot)
        throw damaged(file.path, 0, 'the snapshot is not the one its name says')
      continue
    }
    const first = manifest.segments[index - (manifest.snapshot === 0 ? 0 : 1)]
    if (first !== walk.sequence + 1)
      throw damaged(file.path, 0, `the log ends at line ${walk.sequence} before this segment`)
    const last = index === opened.length - 1
    const endBytes =
      last && options.endBytes !== undefined ? options.endBytes : await lengthOf(file)
    yield* walkSegment(ports.hash, file, walk, { ...options, last: last && options.torn, endBytes })
  }
}

/** Opens a file that MANIFEST names; its absence is damage. */
async function openFile(
  ports: LogPorts,
  folder: string,
  name: string,
  index: number,
): Promise<LogFile> {
  const path = joinPath(folder, name)
  try {
    return { index, path, handle: await ports.files.open(path, 'read') }
  } catch (error) {
    if (errorCode(error) === 'ENOENT') throw damaged(path, 0, 'it is missing')
    throw error
  }
}

/**
 * A new log: FORMAT, an empty segment, and MANIFEST last, which puts them in force. A creation that
 * a crash cut off is done again.
 */
async function create(
  ports: LogPorts,
  folder: string,
  options: LogOptions,
  names: readonly string[],
): Promise<Manifest> {
  const { files } = ports
  const first = joinPath(folder, logName(1))
  await refuseWithoutManifest(files, folder, names)
  await options.fence?.()
  await publishFormat(files, folder, options.format)
  await (await files.open(first, 'append')).close()
  await files.syncDir(folder)
  const manifest: Manifest = { revision: 1, snapshot: 0, segments: [1] }
  await publishManifest(files, ports.hash, folder, manifest, ports.clock.nowMs())
  return manifest
}

/**
 * Files of ours that MANIFEST does not name: what a crash left of a rotation or compaction. A later
 * segment with content is none of these, for a segment gets its first line only after MANIFEST
 * names it: then an old MANIFEST was put back, and nothing may go.
 */
async function findLeftovers(
  ports: LogPorts,
  folder: string,
  manifest: Manifest,
  names: readonly string[],
): Promise<string[]> {
  const inForce = new Set(manifestNames(manifest))
  const leftovers: string[] = []
  for (const name of names) {
    const own = ownName(name)
    if (own === undefined || inForce.has(name)) continue
    const path = joinPath(folder, name)
    if (
      own.sequence !== undefined &&
      own.sequence > (manifest.segments.at(-1) ?? 0) &&
      (await sizeOf(ports, path)) > 0
    )
      throw damaged(joinPath(folder, 'MANIFEST'), 0, `it is older than ${name}`)
    leftovers.push(name)
  }
  return leftovers
}

async function sizeOf(ports: LogPorts, path: string): Promise<number> {
  const handle = await ports.files.open(path, 'read')
  try {
    return await handle.size()
  } finally {
    await handle.close()
  }
}

/**
 * Makes the last segment end in lines that are durable without doubt. Sound lines above the highest
 * mark may be in the page cache only, and after a failed sync of an earlier process the kernel may
 * hold them for clean although they never reached the disk: a `datasync` now would promise what it
 * does not do. So they are written anew into a fresh file, which then takes the name; the same move
 * cuts off a torn tail, after saving it aside. A tail that is just our mark is cut off instead,
 * since nobody misses it.
 */
async function settleEnd(
  ports: LogPorts,
  folder: string,
  manifest: Manifest,
  opened: LogFile[],
  walk: Walk,
): Promise<Omit<Opened, 'active' | 'reached' | 'marked'>> {
  const { files } = ports
  const file = opened.at(-1)
  const first = manifest.segments.at(-1)
  if (file === undefined || first === undefined)
    throw damaged(joinPath(folder, 'MANIFEST'), 0, 'it names no segment')
  const size = await lengthOf(file)
  const end = !walk.torn && walk.beforeMark !== undefined ? walk.beforeMark : walk
  let recovered: Opened['recovered']
  if (walk.torn) {
    const saved = `torn-${first}-${walk.offset}`
    await publishFile(files, folder, saved, (target) =>
      copyRange(file.handle, target, walk.offset, size),
    )
    recovered = { file: logName(first), offset: walk.offset, bytes: size - walk.offset, saved }
  }
  if (end === walk && size > 0) {
    await publishFile(files, folder, logName(first), (target) =>
      copyRange(file.handle, target, 0, walk.offset),
    )
    await file.handle.close()
    opened[opened.length - 1] = {
      index: file.index,
      path: file.path,
      handle: await files.open(file.path, 'read'),
    }
  } else {
    const handle = await files.open(file.path, 'append')
    try {
      await handle.truncate(end.offset)
      await handle.datasync()
    } finally {
      await handle.close()
    }
  }
  return {
    manifest,
    files: opened,
    check: end.check,
    sequence: end.sequence,
    goodBytes: end.offset,
    recovered,
  }
}
