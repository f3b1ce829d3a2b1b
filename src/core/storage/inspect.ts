/**
 * Reads a whole log for what is wrong with it, and finds where its sound part ends. Opens files for
 * reading and nothing else (R24).
 */
import type { Hash } from '../ports.js'
import { ProposerError, StorageError } from '../protocol/errors.js'
import { namesIn } from './durable.js'
import { damaged, messageOf } from './failures.js'
import { type LogEnd, lossBefore, readHighWater } from './high-water.js'
import { closeFiles, type LogFile, lengthOf, offsetOf } from './log-file.js'
import { type Manifest, manifestNames, readFormat, refuseOldManifest } from './manifest.js'
import { openInForce } from './reader.js'
import type { LogOptions, LogPorts, StoredRecord } from './record-log.js'
import { newWalk, type Walk, walkFile, walkSegment } from './walk.js'

export type InspectPorts = Pick<LogPorts, 'files' | 'hash'>
export type InspectOptions = Pick<LogOptions, 'format' | 'knownKinds'>

/** Where the sound part ends. */
export interface Damage {
  /** Name of the file, which may be missing. */
  readonly file: string
  /** First byte that does not count: the end of the last whole group before the fault. */
  readonly offset: number
  readonly detail: string
  /** Position of the file among those that MANIFEST names. */
  readonly index: number
  /** The chain where the sound part ends. */
  readonly end: LogEnd
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
 * Walks every file in force: checksums, the chain of lines, their numbers. `onRecord` sees each
 * record of the sound part; what it throws as RangeError or StorageError is a fault of that record.
 * Works while somebody writes. Rejects with `store_damaged` where FORMAT or MANIFEST are no good,
 * `store_unreadable`, `store_too_new`, `store_mismatch`. A missing folder is an empty log.
 */
export async function inspectLog(
  ports: InspectPorts,
  folder: string,
  { format, knownKinds }: InspectOptions,
  onRecord: (record: StoredRecord) => void,
): Promise<Inspection> {
  const { files, hash } = ports
  await readFormat(files, folder, format, 'read')
  // Before the log, which somebody may be writing.
  const highWater = await readHighWater(files, hash, folder)
  const listed = await namesIn(files, folder)
  const { manifest, opened } = await openInForce(ports, folder)
  if (manifest === undefined)
    return { manifest, files: [], records: 0, tornBytes: 0, damage: undefined, highWater }
  const names = manifestNames(manifest)
  const walk = newWalk()
  let records = 0
  let fault: Fault | undefined
  let index = 0
  try {
    await refuseOldManifest(files, folder, manifest, listed)
    for (index = 0; index < names.length; index += 1) {
      const part = { hash, manifest, file: opened[index], index, knownKinds, onRecord, passed: 0 }
      fault = await inspectFile(part, walk)
      records += part.passed
      if (fault) break
    }
    const loss = fault === undefined ? lossBefore(highWater, walk) : undefined
    if (loss !== undefined) {
      fault = { offset: walk.offset, detail: loss, end: endOf(walk) }
      index = names.length - 1
    }
    const damage = fault && { file: names[index] ?? '', index, ...fault }
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

type Fault = Pick<Damage, 'offset' | 'detail' | 'end'>

const endOf = ({ check, sequence }: Walk): LogEnd => ({ check, sequence })

/** A file under inspection. */
interface Part {
  readonly hash: Hash
  readonly manifest: Manifest
  readonly file: LogFile | undefined
  readonly index: number
  readonly knownKinds: (kind: string) => boolean
  readonly onRecord: (record: StoredRecord) => void
  /** Records handed to `onRecord`. */
  passed: number
}

/** A record that its owner refuses. */
interface Refused {
  readonly offset: number
  readonly detail: string
}

/** Hands out the records of one file; what is wrong with it, and where its sound part ends. */
async function inspectFile(part: Part, walk: Walk): Promise<Fault | undefined> {
  const { hash, manifest, file, index, knownKinds } = part
  const start = { ...walk }
  if (file === undefined) return { offset: 0, detail: 'it is missing', end: endOf(walk) }
  let toldUpTo = -1
  let refused: Refused | undefined
  const tell = (batch: readonly StoredRecord[]) => {
    for (const record of batch) {
      const offset = offsetOf(record.position)
      if (offset <= toldUpTo) continue
      try {
        part.onRecord(record)
      } catch (error) {
        if (!(error instanceof RangeError) && !(error instanceof StorageError)) throw error
        const detail = error instanceof ProposerError ? error.detail : messageOf(error)
        refused = { offset, detail }
        throw damaged(file.path, offset, detail)
      }
      part.passed += 1
      toldUpTo = offset
    }
  }
  const firstFault = await damageIn(async () => {
    for await (const batch of walkFile(hash, manifest, file, index, walk, {
      knownKinds,
      torn: true,
    }))
      tell(batch)
  })
  if (firstFault === undefined) return undefined
  let detail = firstFault.detail.replace(/^.*? is damaged at byte \d+: /, '')
  let limit = await lengthOf(file)
  for (;;) {
    if (refused !== undefined) {
      limit = refused.offset
      detail = refused.detail
      refused = undefined
    }
    const end = await soundEnd(part, file, start, limit)
    // The walk stops at a fault with the sound lines before it untold. One of those may contradict
    // what came before it: then the sound part ends there.
    const again = await damageIn(async () => {
      const options = { isLast: true, endBytes: end.offset, knownKinds }
      for await (const batch of walkSegment(hash, file, { ...start }, options)) tell(batch)
    })
    if (again === undefined) return { offset: end.offset, detail, end: endOf(end) }
    if (refused === undefined) throw again
  }
}

/** The damage that a walk meets. */
async function damageIn(walking: () => Promise<void>): Promise<StorageError | undefined> {
  try {
    await walking()
    return undefined
  } catch (error) {
    if (error instanceof StorageError && error.code === 'store_damaged') return error
    throw error
  }
}

/**
 * The end of the last whole group before `limit` that follows on from `start`; a snapshot's lines
 * chain like a segment's.
 */
async function soundEnd(
  { hash, knownKinds }: Part,
  file: LogFile,
  start: Walk,
  limit: number,
): Promise<Walk> {
  const walk = { ...start, offset: 0 }
  await damageIn(async () => {
    const options = { isLast: true, endBytes: limit, knownKinds }
    for await (const _ of walkSegment(hash, file, walk, options)) {
      // Only where it ends is asked for; the walk stands before what it refused.
    }
  })
  return walk
}

/** The records of the sound part of one file. */
export async function* soundRecords(
  hash: Hash,
  file: LogFile,
  endBytes: number,
  knownKinds: (kind: string) => boolean,
) {
  const options = { isLast: true, endBytes, knownKinds }
  for await (const batch of walkSegment(hash, file, newWalk(), options)) yield* batch
}
