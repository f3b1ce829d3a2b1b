import { ProposerError, StorageError } from '#protocol/errors'
import { ifThere, joinPath, namesIn } from './durable.js'
import { messageOf } from './failures.js'
import { type LogEnd, lossBefore, readHighWater } from './high-water.js'
import { decodeLine } from './line.js'
import { type Manifest, manifestNames, readFormat, refuseOldManifest } from './manifest.js'
import { openInForce } from './reader.js'
import type { LogOptions, LogPorts, StoredRecord } from './record-log.js'
import {
  closeFiles,
  internalKinds,
  lengthOf,
  lineBatches,
  newWalk,
  offsetOf,
  walkFile,
  walkSegment,
} from './walk.js'

type InspectPorts = Pick<LogPorts, 'files' | 'hash'>

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
  /** The line that the high-water mark names; none in stores of earlier versions. */
  readonly highWater: LogEnd | 'unreadable' | undefined
}

/**
 * `onRecord` sees each record of the sound part; what it throws as RangeError or StorageError is
 * a fault of that record. A missing folder is an empty log.
 */
export async function inspectLog(
  { files, hash }: InspectPorts,
  folder: string,
  { format, knownKinds }: Pick<LogOptions, 'format' | 'knownKinds'>,
  onRecord: (record: StoredRecord) => void,
): Promise<Inspection> {
  await readFormat(files, folder, format, 'read')
  // Before the log, which somebody may be writing.
  const highWater = await readHighWater(files, hash, folder)
  const listed = await namesIn(files, folder)
  const { manifest, opened } = await openInForce({ files, hash }, folder)
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

/** What is given up: all behind the damage, and the records in it that are sound in themselves, by kind. */
export async function lossOf(
  { files, hash }: InspectPorts,
  folder: string,
  { manifest, damage }: Pick<Inspection, 'manifest' | 'damage'>,
) {
  const soundLines: Record<string, number> = {}
  const lost: string[] = []
  let bytes = 0
  const names = manifest && damage ? manifestNames(manifest).slice(damage.index) : []
  for (const [at, name] of names.entries()) {
    const path = joinPath(folder, name)
    const handle = await ifThere(files.open(path, 'read'))
    if (handle === undefined) continue
    const file = { index: 0, path, handle }
    try {
      const [from, size] = [at === 0 ? (damage?.offset ?? 0) : 0, await lengthOf(file)]
      if (size > from) lost.push(name)
      bytes += size - from
      for await (const lines of lineBatches(file, size, from))
        for (const raw of lines) {
          const line = raw.bytes && decodeLine(hash, raw.bytes)
          if (line && !internalKinds.has(line.kind))
            soundLines[line.kind] = (soundLines[line.kind] ?? 0) + 1
        }
    } finally {
      await handle.close()
    }
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
