import type { FileHandle } from '#ports'
import {
  copyRange,
  joinPath,
  makeDurableDir,
  publishFile,
  removeIfThere,
  withFile,
} from './durable.js'
import { damaged } from './failures.js'
import {
  highWaterName,
  type LogEnd,
  logName,
  lossBefore,
  type Manifest,
  manifestNames,
  ownName,
  publishFormat,
  publishManifest,
  readFormat,
  readHighWater,
  readManifest,
  refuseOldManifest,
  refuseWithoutManifest,
} from './manifest.js'
import type { LogOptions, LogPorts, StoredRecord } from './record-log.js'
import {
  closeFiles,
  type LogFile,
  lengthOf,
  newWalk,
  openFiles,
  type Walk,
  walkAll,
} from './walk.js'

export interface RecoveredLog {
  readonly manifest: Manifest
  readonly files: readonly LogFile[]
  readonly active: FileHandle
  readonly end: LogEnd
  readonly goodBytes: number
  /** The last line but for a mark of ours, which a later start may cut off. */
  readonly reached: LogEnd
  readonly marked: LogEnd | undefined
  readonly recovered: CutOff | undefined
}

interface CutOff {
  readonly file: string
  readonly offset: number
  readonly bytes: number
  readonly saved: string
}

/** Only if all of it was sound, leftovers are cleared and the end is made durable (R11). */
export async function recover(
  ports: LogPorts,
  folder: string,
  options: LogOptions,
  onRecord: (record: StoredRecord) => void,
): Promise<RecoveredLog> {
  const { files, hash } = ports
  const format = await readFormat(files, folder, options.format, 'write')
  if (format === undefined) await makeDurableDir(files, folder)
  const names = await files.list(folder)
  const isStore = options.format.name === 'store'
  const mark = isStore ? await readHighWater(files, hash, folder) : undefined
  if (mark === 'unreadable')
    options.onNote?.(
      `${joinPath(folder, highWaterName)} is incomplete; it is rewritten with the next record`,
    )
  const found = await readManifest(files, hash, folder)
  if (found === undefined && mark !== undefined)
    throw damaged(joinPath(folder, 'MANIFEST'), 0, `it is missing, but ${highWaterName} is there`)
  const manifest = found ?? (await create(ports, folder, options, names))
  if (format === undefined && !(await files.exists(joinPath(folder, 'FORMAT'))))
    throw damaged(joinPath(folder, 'FORMAT'), 0, 'it is missing')
  await refuseOldManifest(files, folder, manifest, names)

  const named = await openFiles(files, folder, manifest)
  let opened: LogFile[] = []
  try {
    const walk = newWalk()
    const reading = { knownKinds: options.knownKinds, headsOnly: true, torn: true }
    for await (const records of walkAll({ hash, folder, manifest, opened: named }, walk, reading))
      for (const record of records) onRecord(record)
    opened = named.filter((file) => file !== undefined)
    if (isStore && mark === undefined && walk.sequence > 0)
      options.onNote?.(
        `${joinPath(folder, highWaterName)} is missing: an earlier version wrote this store, or the file was deleted, and a loss at the end would not show; it is made with the next record`,
      )
    const loss = lossBefore(mark, walk)
    if (loss !== undefined) throw damaged(opened.at(-1)?.path ?? folder, walk.offset, loss)

    await options.fence?.()
    // The MANIFEST may be a rename in the page cache of a process that died: a power cut could
    // bring the old one back, which names what is removed here.
    if (found !== undefined) await files.syncDir(folder)
    const inForce = new Set(manifestNames(manifest))
    for (const name of names)
      if (ownName(name) !== undefined && !inForce.has(name))
        await removeIfThere(files, joinPath(folder, name))
    if (format !== undefined && format < options.format.version)
      await publishFormat(files, folder, options.format)
    const settled = await settleEnd(ports, folder, manifest, opened, walk)
    const path = joinPath(folder, logName(manifest.segments.at(-1) ?? 1))
    return {
      manifest,
      files: opened,
      ...settled,
      reached: walk.beforeMark ?? walk,
      marked: mark === 'unreadable' ? undefined : mark,
      active: await files.open(path, 'append'),
    }
  } catch (error) {
    await closeFiles(opened.length === 0 ? named : opened)
    throw error
  }
}

/** MANIFEST comes last, which puts the others in force. */
async function create(
  { files, hash, clock }: LogPorts,
  folder: string,
  options: LogOptions,
  names: readonly string[],
) {
  await refuseWithoutManifest(files, folder, names)
  await options.fence?.()
  await withFile(files, joinPath(folder, logName(1)), 'append', async () => undefined)
  await publishFormat(files, folder, options.format)
  const manifest: Manifest = { revision: 1, snapshot: 0, segments: [1] }
  await publishManifest(files, hash, folder, manifest, clock.nowMs())
  return manifest
}

/**
 * Sound lines above the highest mark may be in the page cache only, and after a failed sync the
 * kernel may hold them for clean: a `datasync` now would promise what it does not do. So they are
 * written again into a fresh file, which takes the name.
 */
async function settleEnd(
  { files }: LogPorts,
  folder: string,
  manifest: Manifest,
  opened: LogFile[],
  walk: Walk,
) {
  const file = opened.at(-1)
  const first = manifest.segments.at(-1)
  if (file === undefined || first === undefined)
    throw damaged(joinPath(folder, 'MANIFEST'), 0, 'it names no segment')
  const name = logName(first)
  const size = await lengthOf(file)
  const end = !walk.torn && walk.beforeMark !== undefined ? walk.beforeMark : walk
  let recovered: CutOff | undefined
  if (walk.torn) {
    const saved = `torn-${first}-${walk.offset}`
    await publishFile(files, folder, saved, (target) =>
      copyRange(file.handle, target, walk.offset, size),
    )
    recovered = { file: name, offset: walk.offset, bytes: size - walk.offset, saved }
  }
  if (end === walk && size > 0) {
    await publishFile(files, folder, name, (target) =>
      copyRange(file.handle, target, 0, walk.offset),
    )
    await file.handle.close()
    opened[opened.length - 1] = { ...file, handle: await files.open(file.path, 'read') }
  } else if (size > 0) {
    await withFile(files, file.path, 'append', async (handle) => {
      await handle.truncate(end.offset)
      await handle.datasync()
    })
  }
  return { end, goodBytes: end.offset, recovered }
}
