/** Logs and stores for whoever only looks (R24), and what is damaged in them. */
import { ProposerError, StorageError } from '#protocol/errors'
import { ifThere, joinPath, namesIn, withFile } from './durable.js'
import { damaged, messageOf, storageErrorOf } from './failures.js'
import { decodeLine } from './line.js'
import {
  type LogEnd,
  lossBefore,
  type Manifest,
  manifestNames,
  readFormat,
  readHighWater,
  readManifestToLook,
  refuseOldManifest,
} from './manifest.js'
import type {
  LogFormat,
  LogOptions,
  LogPorts,
  RecordLogReader,
  StoredRecord,
} from './record-log.js'
import {
  closeFiles,
  fileOf,
  internalKinds,
  lengthOf,
  lineBatches,
  newWalk,
  offsetOf,
  openFiles,
  readRecordAt,
  walkAll,
  walkFile,
  walkSegment,
} from './walk.js'

/** A compaction may remove files between reading MANIFEST and opening them. */
const mostLooks = 5

type ReadPorts = Pick<LogPorts, 'files' | 'hash'>
type ReadOptions = Pick<LogOptions, 'format' | 'knownKinds'>

async function openInForce({ files, hash }: ReadPorts, folder: string, format: LogFormat) {
  await readFormat(files, folder, format, 'read')
  // Before the log, which somebody may be writing.
  const highWater = await readHighWater(files, hash, folder)
  for (let look = 1; ; look++) {
    const manifest = await readManifestToLook(files, hash, folder)
    if (manifest === undefined) return { highWater, manifest, opened: [] }
    const opened = await openFiles(files, folder, manifest)
    if (!opened.includes(undefined) || look === mostLooks) return { highWater, manifest, opened }
    await closeFiles(opened)
  }
}

/**
 * Also while its writer works (R24). The files stay open, whatever a compaction removes. Damage
 * rejects a scan once everything sound before it was handed out.
 */
export async function openLogReader(
  ports: ReadPorts,
  folder: string,
  { format, knownKinds }: ReadOptions,
): Promise<RecordLogReader> {
  const { hash } = ports
  const { highWater, manifest, opened } = await openInForce(ports, folder, format).catch(
    (error: unknown) => {
      throw storageErrorOf(`${folder} cannot be read`, error)
    },
  )

  async function* batches() {
    if (manifest === undefined) return
    const walk = newWalk()
    yield* walkAll({ hash, folder, manifest, opened }, walk, { knownKinds, torn: true })
    const loss = lossBefore(highWater, walk)
    if (loss !== undefined) throw damaged(opened.at(-1)?.path ?? folder, walk.offset, loss)
  }

  return {
    async *scan() {
      for await (const records of batches()) yield* records
    },
    async replay(onRecord) {
      for await (const records of batches()) for (const record of records) onRecord(record)
    },
    async read(position) {
      const file = opened[fileOf(position)]
      if (file === undefined)
        throw damaged(folder, 0, 'no such file was open when the position was given')
      return readRecordAt(hash, file, position)
    },
    close: () => closeFiles(opened),
  }
}

export interface Damage {
  readonly file: string
  readonly offset: number
  readonly detail: string
  readonly index: number
}

export interface Inspection {
  readonly manifest: Manifest | undefined
  readonly files: readonly { readonly name: string; readonly bytes: number }[]
  readonly records: number
  /** Bytes at the end that never became durable; the next start saves them aside and goes on. */
  readonly tornBytes: number
  readonly damage: Damage | undefined
  readonly highWater: LogEnd | 'unreadable' | undefined
}

/** What `onRecord` throws as RangeError or StorageError is a fault of that record. */
export async function inspectLog(
  ports: ReadPorts,
  folder: string,
  { format, knownKinds }: ReadOptions,
  onRecord: (record: StoredRecord) => void,
): Promise<Inspection> {
  const { files, hash } = ports
  const listed = await namesIn(files, folder)
  const { highWater, manifest, opened } = await openInForce(ports, folder, format)
  if (manifest === undefined)
    return { manifest, files: [], records: 0, tornBytes: 0, damage: undefined, highWater }
  const names = manifestNames(manifest)
  const walk = newWalk()
  let records = 0
  let index = 0
  let damage: Damage | undefined
  const hold = (detail: string, offset = walk.offset) => {
    damage ??= { file: names[index] ?? '', offset, detail, index }
  }
  async function inspectFile(inForce: Parameters<typeof walkFile>[0]) {
    const [start, before] = [{ ...walk }, records]
    for await (const batch of walkFile(inForce, index, walk, { knownKinds, torn: true }))
      for (const record of batch) {
        const fault = faultOf(record, onRecord)
        records += fault === undefined ? 1 : 0
        if (fault === undefined) continue
        const offset = offsetOf(record.position)
        hold(fault, offset)
        const file = inForce.opened[index]
        if (file === undefined || (index === 0 && manifest?.snapshot !== 0)) return
        records = before
        const sound = { isLast: true, endBytes: offset, knownKinds }
        for await (const whole of walkSegment(hash, file, start, sound)) records += whole.length
        return
      }
  }
  const inForce = { hash, folder, manifest, opened }
  try {
    await refuseOldManifest(files, folder, manifest, listed)
    try {
      for (; damage === undefined && index < names.length; index += 1) await inspectFile(inForce)
      index = names.length - 1
      const loss = damage === undefined ? lossBefore(highWater, walk) : undefined
      if (loss !== undefined) hold(loss)
    } catch (error) {
      if (!(error instanceof StorageError) || error.code !== 'store_damaged') throw error
      hold(error.detail.replace(/^.*? is damaged at byte \d+: /, ''))
    }
    const sizes = []
    for (const [at, file] of opened.entries())
      if (file) sizes.push({ name: names[at] ?? '', bytes: await lengthOf(file) })
    const isTorn = damage === undefined && walk.torn
    const tornBytes = isTorn ? (sizes.at(-1)?.bytes ?? walk.offset) - walk.offset : 0
    return { manifest, files: sizes, records, tornBytes, damage, highWater }
  } finally {
    await closeFiles(opened)
  }
}

/** All behind the damage, and the records in it that are sound in themselves, by kind. */
export async function lossOf(
  { files, hash }: ReadPorts,
  folder: string,
  { manifest, damage }: Pick<Inspection, 'manifest' | 'damage'>,
) {
  const soundLines: Record<string, number> = {}
  const lost: string[] = []
  let bytes = 0
  const names = manifest && damage ? manifestNames(manifest).slice(damage.index) : []
  for (const [at, name] of names.entries()) {
    const path = joinPath(folder, name)
    const read = withFile(files, path, 'read', async (handle) => {
      const file = { index: 0, path, handle }
      const [from, size] = [at === 0 ? (damage?.offset ?? 0) : 0, await lengthOf(file)]
      if (size > from) lost.push(name)
      bytes += size - from
      for await (const lines of lineBatches(file, size, from))
        for (const raw of lines) {
          const line = raw.bytes && decodeLine(hash, raw.bytes)
          if (line && !internalKinds.has(line.kind))
            soundLines[line.kind] = (soundLines[line.kind] ?? 0) + 1
        }
    })
    await ifThere(read)
  }
  return { bytes, files: lost, soundLines }
}

function faultOf(record: StoredRecord, onRecord: (record: StoredRecord) => void) {
  try {
    onRecord(record)
    return undefined
  } catch (error) {
    if (!(error instanceof RangeError) && !(error instanceof StorageError)) throw error
    return error instanceof ProposerError ? error.detail : messageOf(error)
  }
}
