/** A backup: the files of a log as they are, while somebody may be writing it. */
import type { Clock, FileHandle } from '../ports.js'
import { StorageError } from '../protocol/errors.js'
import {
  copyRange,
  ifThere,
  joinPath,
  makeDurableDir,
  namesIn,
  publishFile,
  removeIfThere,
  withFile,
  writeAll,
} from './durable.js'
import { damaged, storageErrorOf } from './failures.js'
import { highWaterName } from './high-water.js'
import { type Inspection, type InspectOptions, type InspectPorts, inspectLog } from './inspect.js'
import { closeFiles } from './log-file.js'
import { manifestNames, publishManifest, readFormat } from './manifest.js'
import { openInForce } from './reader.js'
import type { StoredRecord } from './record-log.js'

export interface BackupPorts extends InspectPorts {
  readonly clock: Pick<Clock, 'nowMs'>
}

/**
 * Copies a log into an empty or missing folder and reads the copy from end to end; `onRecord` sees
 * each record of it. It holds everything that was acknowledged before the call. The source is only
 * read (R24). Until MANIFEST is there, which comes last, the copy is no log; where anything fails,
 * it is removed. Rejects with StorageError, and with the reason of `signal`.
 */
export async function backUp(
  ports: BackupPorts,
  { from, to, signal }: { from: string; to: string; signal: AbortSignal },
  options: InspectOptions,
  onRecord: (record: StoredRecord) => void,
): Promise<Inspection> {
  const { files } = ports
  await makeDurableDir(files, to)
  try {
    await copyFiles(ports, from, to, signal, options)
    const inspection = await inspectLog(ports, to, options, onRecord)
    const { damage } = inspection
    if (damage) throw damaged(joinPath(from, damage.file), damage.offset, damage.detail)
    await cutTornTail(ports, to, inspection)
    return { ...inspection, tornBytes: 0 }
  } catch (error) {
    for (const name of await namesIn(files, to)) await removeIfThere(files, joinPath(to, name))
    signal.throwIfAborted()
    throw storageErrorOf(`${from} could not be copied to ${to}`, error)
  }
}

async function copyFiles(
  ports: BackupPorts,
  from: string,
  to: string,
  signal: AbortSignal,
  options: InspectOptions,
): Promise<void> {
  const { files, hash, clock } = ports
  await readFormat(files, from, options.format, 'read')
  // Before the log: a record that it names is in every later copy of that.
  const mark = await ifThere(files.read(joinPath(from, highWaterName)))
  const { manifest, opened } = await openInForce(ports, from)
  try {
    if (manifest === undefined)
      throw new StorageError('store_missing', `${from} holds no records`, {
        hint: 'set store in gateway.json to the one that has them',
      })
    const names = manifestNames(manifest)
    for (const [index, name] of names.entries()) {
      const file = opened[index]
      if (file === undefined) throw damaged(joinPath(from, name), 0, 'it is missing')
      await publishFile(files, to, name, (target) => copyAll(file.handle, target, signal))
    }
    const formatBytes = await files.read(joinPath(from, 'FORMAT'))
    await publishFile(files, to, 'FORMAT', (target) => writeAll(target, formatBytes))
    if (mark) await publishFile(files, to, highWaterName, (target) => writeAll(target, mark))
    await publishManifest(files, hash, to, manifest, Math.trunc(clock.nowMs()))
  } finally {
    await closeFiles(opened)
  }
}

const partBytes = 16 * 1024 * 1024

/** What the file holds now; what is written to it meanwhile is left out. */
async function copyAll(source: FileHandle, target: FileHandle, signal: AbortSignal): Promise<void> {
  const size = await source.size()
  for (let at = 0; at < size; at += partBytes) {
    signal.throwIfAborted()
    await copyRange(source, target, at, Math.min(size, at + partBytes))
  }
}

/** A group that was being written is not acknowledged: the copy ends before it. */
async function cutTornTail(
  { files }: BackupPorts,
  folder: string,
  { tornBytes, files: sizes }: Inspection,
): Promise<void> {
  const last = sizes.at(-1)
  if (tornBytes === 0 || last === undefined) return
  await withFile(files, joinPath(folder, last.name), 'append', async (handle) => {
    await handle.truncate(last.bytes - tornBytes)
    await handle.datasync()
  })
}
