/**
 * Reads a whole log for what is wrong with it, and finds where its sound part ends. Opens files for
 * reading and nothing else (R24).
 */
import type { Files, Hash } from '../ports.js'
import { ProposerError, StorageError } from '../protocol/errors.js'
import { joinPath } from './durable.js'
import { damaged, errorCode, messageOf } from './failures.js'
import { type LogEnd, lossBefore, readHighWater } from './high-water.js'
import {
  type Manifest,
  manifestNames,
  namesIn,
  ownName,
  readFormat,
  readManifestToLook,
} from './manifest.js'
import type { LogOptions, StoredRecord } from './record-log.js'
import {
  type LogFile,
  lengthOf,
  newWalk,
  offsetOf,
  type Walk,
  walkSegment,
  walkSnapshot,
} from './walk.js'

export type InspectPorts = { readonly files: Files; readonly hash: Hash }
export type InspectOptions = Pick<LogOptions, 'format' | 'knownKinds'>

/** Where the sound part ends. */
export interface Damage {
  /** Name of the file, which may be missing. */
  readonly file: string
  /** First byte that does not count: the end of the last whole group before the fault. */
  readonly offset: number
  readonly detail: string
  /** Place of the file among those that MANIFEST names; -1 for a fault that no cut heals. */
  readonly index: number
  /** The chain where the sound part ends. */
  readonly end: Pick<Walk, 'check' | 'sequence'>
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
  options: InspectOptions,
  onRecord: (record: StoredRecord) => void,
): Promise<Inspection> {
  await readFormat(ports.files, folder, options.format, 'read')
  // Before the log, which somebody may be writing.
  const highWater = await readHighWater(ports.files, ports.hash, folder)
  const { manifest, opened } = await openInForce(ports, folder)
  if (manifest === undefined)
    return { manifest, files: [], records: 0, tornBytes: 0, damage: undefined, highWater }
  const names = manifestNames(manifest)
  const walk = newWalk()
  let records = 0
  let damage: Damage | undefined
  try {
    for (const [index, name] of names.entries()) {
      const file = opened[index]
      const before = { check: walk.check, sequence: walk.sequence }
      damage =
        file === undefined
          ? { file: name, offset: 0, detail: 'it is missing', index, end: before }
          : undefined
      if (file !== undefined) {
        const found = await walkOne(
          ports,
          { file, name, index, isLast: index === names.length - 1 },
          manifest,
          walk,
          options,
          onRecord,
        )
        records += found.records
        damage = found.damage
      }
      if (damage) break
    }
    const loss = damage === undefined ? lossBefore(highWater, walk) : undefined
    if (loss !== undefined) {
      const end = { check: walk.check, sequence: walk.sequence }
      damage = {
        file: names.at(-1) ?? '',
        offset: walk.offset,
        detail: loss,
        index: names.length - 1,
        end,
      }
    }
    const last = opened.at(-1)
    const tornBytes =
      damage === undefined && walk.torn && last ? (await lengthOf(last)) - walk.offset : 0
    const files = []
    for (const [index, name] of names.entries()) {
      const file = opened[index]
      if (file) files.push({ name, bytes: await lengthOf(file) })
    }
    return { manifest, files, records, tornBytes, damage, highWater }
  } finally {
    for (const file of opened) await file?.handle.close()
  }
}

interface Part {
  readonly file: LogFile
  readonly name: string
  readonly index: number
  readonly isLast: boolean
}

async function walkOne(
  { hash }: InspectPorts,
  { file, name, index, isLast }: Part,
  manifest: Manifest,
  walk: Walk,
  { knownKinds }: InspectOptions,
  onRecord: (record: StoredRecord) => void,
): Promise<{ readonly records: number; readonly damage: Damage | undefined }> {
  const isSnapshot = manifest.snapshot !== 0 && index === 0
  const start = { ...walk }
  const told = { records: 0, upTo: -1 }
  let bad: { readonly offset: number; readonly detail: string } | undefined
  const tell = (batch: readonly StoredRecord[]) => {
    for (const record of batch) {
      const offset = offsetOf(record.position)
      if (offset <= told.upTo) continue
      try {
        onRecord(record)
      } catch (error) {
        if (!(error instanceof RangeError) && !(error instanceof StorageError)) throw error
        bad = { offset, detail: error instanceof ProposerError ? error.detail : messageOf(error) }
        throw damaged(file.path, offset, bad.detail)
      }
      told.records += 1
      told.upTo = offset
    }
  }
  try {
    const first = manifest.segments[index - (manifest.snapshot === 0 ? 0 : 1)]
    if (!isSnapshot && first !== walk.sequence + 1) {
      const end = { check: walk.check, sequence: walk.sequence }
      return {
        records: 0,
        damage: {
          file: name,
          offset: 0,
          detail: `the log ends at line ${walk.sequence} before it`,
          index,
          end,
        },
      }
    }
    const batches = isSnapshot
      ? walkSnapshot(hash, file, walk, { knownKinds })
      : walkSegment(hash, file, walk, { last: isLast, endBytes: await lengthOf(file), knownKinds })
    for await (const batch of batches) tell(batch)
    if (isSnapshot && walk.sequence !== manifest.snapshot)
      throw damaged(file.path, 0, 'the snapshot is not the one its name says')
    return { records: told.records, damage: undefined }
  } catch (error) {
    if (!isDamage(error)) throw error
    let detail = error.detail.replace(/^.*? is damaged at byte \d+: /, '')
    let limit = await lengthOf(file)
    for (;;) {
      if (bad !== undefined) {
        limit = bad.offset
        detail = bad.detail
        bad = undefined
      }
      const end = await soundEnd(hash, file, start, knownKinds, limit)
      const damage = {
        file: name,
        offset: end.offset,
        detail,
        index,
        end: { check: end.check, sequence: end.sequence },
      }
      try {
        // The walk stops at a fault with the sound lines before it untold.
        for await (const batch of walkSegment(
          hash,
          file,
          { ...start },
          { last: true, endBytes: end.offset, knownKinds },
        ))
          tell(batch)
        return { records: told.records, damage }
      } catch (again) {
        // One of those contradicts what came before it: then the sound part ends there.
        if (!isDamage(again) || bad === undefined) throw again
      }
    }
  }
}

const isDamage = (error: unknown): error is StorageError =>
  error instanceof StorageError && error.code === 'store_damaged'

/**
 * The end of the last whole group before `limit` that follows on from `start`; a snapshot's lines
 * chain like a segment's.
 */
async function soundEnd(
  hash: Hash,
  file: LogFile,
  start: Walk,
  knownKinds: (kind: string) => boolean,
  limit: number,
): Promise<Walk> {
  const walk = { ...start, offset: 0 }
  try {
    for await (const _ of walkSegment(hash, file, walk, {
      last: true,
      endBytes: limit,
      knownKinds,
    })) {
      // Only where it ends is asked for.
    }
  } catch (error) {
    // The walk stands before what it refused.
    if (!isDamage(error)) throw error
  }
  return walk
}

/** The records of the sound part of one file. */
export async function* soundRecords(
  hash: Hash,
  file: LogFile,
  endBytes: number,
  knownKinds: (kind: string) => boolean,
) {
  for await (const batch of walkSegment(hash, file, newWalk(), {
    last: true,
    endBytes,
    knownKinds,
  }))
    yield* batch
}

/**
 * Files in force, `undefined` for those that are missing; a compaction meanwhile makes it look
 * again (≤ 5 times).
 */
async function openInForce(ports: InspectPorts, folder: string) {
  const { files, hash } = ports
  for (let attempt = 1; ; attempt++) {
    // Listed first: a segment gets its first line only after MANIFEST names it.
    const listed = await namesIn(files, folder)
    const manifest = await readManifestToLook(files, hash, folder)
    const opened: (LogFile | undefined)[] = []
    for (const [index, name] of (manifest === undefined ? [] : manifestNames(manifest)).entries()) {
      const path = joinPath(folder, name)
      try {
        opened.push({ index, path, handle: await files.open(path, 'read') })
      } catch (error) {
        if (errorCode(error) !== 'ENOENT') throw error
        opened.push(undefined)
      }
    }
    if (opened.includes(undefined) && attempt < 5) {
      for (const file of opened) await file?.handle.close()
      continue
    }
    if (manifest) await refuseOld(files, folder, manifest, listed)
    return { manifest, opened }
  }
}

async function refuseOld(
  files: Files,
  folder: string,
  manifest: Manifest,
  listed: readonly string[],
): Promise<void> {
  for (const name of listed) {
    const first = ownName(name)?.sequence
    if (first === undefined || first <= (manifest.segments.at(-1) ?? 0)) continue
    const handle = await files.open(joinPath(folder, name), 'read')
    try {
      if ((await handle.size()) > 0)
        throw damaged(joinPath(folder, 'MANIFEST'), 0, `it is older than ${name}`)
    } finally {
      await handle.close()
    }
  }
}
