import type { FileHandle, Files, Hash } from '#ports'
import { joined } from '#protocol/call'
import { StorageError } from '#protocol/errors'
import { ifThere, joinPath } from './durable.js'
import { damaged, messageOf } from './failures.js'
import { decodeLine, type Line, maxLineBytes, noCheck } from './line.js'
import type { LogEnd } from './manifest.js'
import { type Manifest, manifestNames } from './manifest.js'
import type { StoredRecord } from './record-log.js'

export interface LogFile {
  readonly index: number
  readonly path: string
  readonly handle: FileHandle
}

/** Large reads keep the start-up scan at the speed of hashing and parsing. */
const chunkBytes = 1024 * 1024
/** 2^36: files up to 64 GiB, 2^17 of them in one opening. */
const positionStride = 2 ** 36

export const recordPosition = (file: number, offset: number) => file * positionStride + offset
export const fileOf = (position: number) => Math.floor(position / positionStride)
export const offsetOf = (position: number) => position % positionStride

export async function openFiles(
  files: Files,
  folder: string,
  manifest: Manifest,
): Promise<(LogFile | undefined)[]> {
  const opened: (LogFile | undefined)[] = []
  try {
    for (const [index, name] of manifestNames(manifest).entries()) {
      const path = joinPath(folder, name)
      const handle = await ifThere(files.open(path, 'read'))
      opened.push(handle && { index, path, handle })
    }
    return opened
  } catch (error) {
    await closeFiles(opened)
    throw error
  }
}

export async function closeFiles(opened: readonly (LogFile | undefined)[]) {
  for (const file of opened) await file?.handle.close()
}

/** A line without its newline; no `bytes` for one that is too long, or has no newline yet. */
export interface RawLine {
  readonly bytes: Uint8Array | undefined
  readonly offset: number
}

export async function* lineBatches(
  file: LogFile,
  endBytes: number,
  from = 0,
): AsyncGenerator<RawLine[]> {
  let offset = from
  let rest: Uint8Array = new Uint8Array(0)
  let isTooLong = false
  for (let position = from; position < endBytes; ) {
    const chunk = await readRange(file, position, Math.min(chunkBytes, endBytes - position))
    if (chunk.length === 0) break
    position += chunk.length
    const data = rest.length === 0 ? chunk : joined([rest, chunk], rest.length + chunk.length)
    const lines: RawLine[] = []
    let start = 0
    for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, start)) {
      if (!isTooLong) lines.push({ bytes: data.subarray(start, end), offset: offset + start })
      isTooLong = false
      start = end + 1
    }
    rest = data.subarray(start)
    offset += start
    if (rest.length > maxLineBytes && !isTooLong) {
      lines.push({ bytes: undefined, offset })
      isTooLong = true
    }
    if (isTooLong) {
      offset += rest.length
      rest = rest.subarray(rest.length)
    }
    yield lines
  }
  if (rest.length > 0) yield [{ bytes: undefined, offset }]
}

const readRange = (file: LogFile, position: number, length: number) =>
  readable(file, `at byte ${position}`, () => file.handle.read(position, length))

export const lengthOf = (file: LogFile) =>
  readable(file, 'for its length', () => file.handle.size())

async function readable<T>(file: LogFile, what: string, job: () => Promise<T>) {
  try {
    return await job()
  } catch (cause) {
    const detail = `${file.path} cannot be read ${what}: ${messageOf(cause)}`
    throw new StorageError('store_unreadable', detail, { httpStatus: 503, cause })
  }
}

/** Kinds that the log writes for itself; never handed to an owner. */
export const internalKinds = new Set(['mark', 'recovered', 'snap.end', 'manifest'])

export interface Walk {
  check: string
  sequence: number
  offset: number
  beforeMark: (LogEnd & { readonly offset: number }) | undefined
  torn: boolean
}

export const newWalk = (): Walk => ({
  check: noCheck,
  sequence: 0,
  offset: 0,
  beforeMark: undefined,
  torn: false,
})

export interface FilesInForce {
  readonly hash: Hash
  readonly folder: string
  readonly manifest: Manifest
  readonly opened: readonly (LogFile | undefined)[]
}

export interface WalkOptions {
  readonly knownKinds: (kind: string) => boolean
  readonly headsOnly?: boolean | undefined
}
/** Few records at a time: those alive during a read are copied by every garbage collection. */
const batchRecords = 64

interface Reading {
  readonly hash: Hash
  readonly file: LogFile
  readonly options: WalkOptions
  chain: LogEnd
}

interface SegmentReading extends Reading {
  readonly walk: Walk
  readonly isLast: boolean
  group: StoredRecord[]
  more: number
  badAt: number | undefined
}

async function* taken(
  { hash, file, options }: Reading,
  endBytes: number,
  take: (raw: RawLine, line: Line | undefined, records: StoredRecord[]) => void,
) {
  for await (const lines of lineBatches(file, endBytes)) {
    let records: StoredRecord[] = []
    for (const raw of lines) {
      const line = raw.bytes && decodeLine(hash, raw.bytes, options.headsOnly)
      try {
        take(raw, line, records)
      } catch (error) {
        // What is sound is handed out before damage is told.
        if (records.length > 0) yield records
        throw error
      }
      if (records.length < batchRecords) continue
      yield records
      records = []
    }
    if (records.length > 0) yield records
  }
}

/**
 * A bad line is damage, but for a torn tail: in the last segment (`isLast`), with no line behind it
 * that was written above a durable mark. A sound line that does not continue the chain is damage
 * wherever it lies.
 */
export async function* walkSegment(
  hash: Hash,
  file: LogFile,
  walk: Walk,
  options: WalkOptions & { readonly isLast: boolean; readonly endBytes: number },
): AsyncGenerator<StoredRecord[]> {
  Object.assign(walk, { offset: 0, beforeMark: undefined, torn: false })
  const { check, sequence } = walk
  const reading: SegmentReading = {
    hash,
    file,
    options,
    walk,
    isLast: options.isLast,
    chain: { check, sequence },
    group: [],
    more: 0,
    badAt: undefined,
  }
  yield* taken(reading, options.endBytes, (raw, line, records) => {
    if (reading.badAt !== undefined) refuseDurable(reading, reading.badAt, line, raw.offset)
    else if (line === undefined || raw.bytes === undefined) tear(reading, raw)
    else takeSegmentLine(reading, line, raw.offset, raw.bytes.length, records)
  })
  walk.torn = reading.badAt !== undefined || reading.more > 0
  if (reading.more > 0 && !options.isLast)
    throw damaged(file.path, walk.offset, 'a group of records is cut off')
}

function takeSegmentLine(
  reading: SegmentReading,
  line: Line,
  offset: number,
  length: number,
  records: StoredRecord[],
) {
  const { file, walk, group } = reading
  checkContinues(reading, line, offset, reading.more)
  if (!internalKinds.has(line.kind)) {
    if (isOwners(reading, line.kind, offset)) group.push(stored(file, line, offset))
  } else if (line.kind !== 'mark' && line.kind !== 'recovered')
    throw damaged(file.path, offset, `a ${line.kind} line in a segment`)
  reading.chain = { check: line.check, sequence: line.sequence }
  reading.more = line.more
  if (line.more > 0) return
  const isMark = line.kind === 'mark' && line.durableBytes === offset
  walk.beforeMark = isMark ? { check: walk.check, sequence: walk.sequence, offset } : undefined
  walk.check = line.check
  walk.sequence = line.sequence
  walk.offset = offset + length + 1
  for (const record of group) records.push(record)
  group.length = 0
}

/** Notes a broken line of the last segment; its newline may be what broke. */
function tear(reading: SegmentReading, { bytes, offset }: RawLine) {
  const { hash, file, isLast } = reading
  if (!isLast) throw damaged(file.path, offset, 'a broken line before the end of the log')
  reading.badAt = offset
  if (bytes === undefined) return
  for (let at = bytes.indexOf(0x7b, 1); at >= 0; at = bytes.indexOf(0x7b, at + 1)) {
    // `{"c":"`: anything else is not worth hashing.
    if (bytes[at + 1] !== 0x22 || bytes[at + 2] !== 0x63 || bytes[at + 5] !== 0x22) continue
    refuseDurable(reading, offset, decodeLine(hash, bytes.subarray(at)), offset + at)
  }
}

/** Then the broken line was durable already: damage, not a torn write. */
function refuseDurable(
  { file, chain }: SegmentReading,
  badAt: number,
  line: Line | undefined,
  offset: number,
) {
  if (
    line !== undefined &&
    line.sequence > chain.sequence &&
    line.durableBytes > badAt &&
    line.durableBytes <= offset
  )
    throw damaged(file.path, badAt, 'a line below a durable mark is broken')
}

/** It was published whole: every fault is damage. Afterwards `walk` stands at its cut. */
async function* walkSnapshot(hash: Hash, file: LogFile, walk: Walk, options: WalkOptions) {
  const reading: Reading = { hash, file, options, chain: { check: noCheck, sequence: 0 } }
  let end: Line | undefined
  yield* taken(reading, Number.MAX_SAFE_INTEGER, ({ bytes, offset }, line, records) => {
    if (line === undefined || bytes === undefined || end !== undefined)
      throw damaged(file.path, offset, 'a broken line in a snapshot')
    checkContinues(reading, line, offset, 0)
    reading.chain = { check: line.check, sequence: line.sequence }
    if (line.kind === 'snap.end') end = line
    else if (internalKinds.has(line.kind))
      throw damaged(file.path, offset, `a ${line.kind} line in a snapshot`)
    else if (isOwners(reading, line.kind, offset)) records.push(stored(file, line, offset))
    walk.offset = offset + bytes.length + 1
  })
  const { count, check, sequence } = (end?.data ?? {}) as Record<string, unknown>
  if (
    typeof check !== 'string' ||
    typeof sequence !== 'number' ||
    count !== reading.chain.sequence - 1
  )
    throw damaged(file.path, await lengthOf(file), 'the snapshot has no end')
  walk.check = check
  walk.sequence = sequence
}

/** `torn`: the last file may end in a torn tail; `endBytes`: how much of it counts. */
export async function* walkFile(
  { hash, folder, manifest, opened }: FilesInForce,
  index: number,
  walk: Walk,
  options: WalkOptions & { readonly torn: boolean; readonly endBytes?: number | undefined },
): AsyncGenerator<StoredRecord[]> {
  const file = opened[index]
  walk.offset = 0
  if (file === undefined)
    throw damaged(joinPath(folder, manifestNames(manifest)[index] ?? ''), 0, 'it is missing')
  const snapshots = manifest.snapshot === 0 ? 0 : 1
  if (index < snapshots) {
    yield* walkSnapshot(hash, file, walk, options)
    if (walk.sequence !== manifest.snapshot)
      throw damaged(file.path, 0, 'the snapshot is not the one its name says')
    return
  }
  if (manifest.segments[index - snapshots] !== walk.sequence + 1)
    throw damaged(file.path, 0, `the log ends at line ${walk.sequence} before it`)
  const isLast = index === manifest.segments.length + snapshots - 1
  const endBytes = (isLast ? options.endBytes : undefined) ?? (await lengthOf(file))
  yield* walkSegment(hash, file, walk, { ...options, isLast: isLast && options.torn, endBytes })
}

export async function* walkAll(
  inForce: FilesInForce,
  walk: Walk,
  options: Parameters<typeof walkFile>[3],
): AsyncGenerator<StoredRecord[]> {
  for (const index of inForce.opened.keys()) yield* walkFile(inForce, index, walk, options)
}

function checkContinues({ file, chain }: Reading, line: Line, offset: number, more: number) {
  const fault =
    line.sequence !== chain.sequence + 1
      ? `line ${line.sequence} follows line ${chain.sequence}`
      : line.previous !== chain.check
        ? `line ${line.sequence} does not continue the chain`
        : more > 0 && line.more !== more - 1
          ? `line ${line.sequence} is not the rest of its group`
          : undefined
  if (fault !== undefined) throw damaged(file.path, offset, fault)
}

function isOwners({ file, options }: Reading, kind: string, offset: number) {
  if (options.knownKinds(kind)) return true
  if (kind.startsWith('x-')) return false
  throw new StorageError(
    'store_too_new',
    `${file.path} holds a "${kind}" record at byte ${offset}, which requires a later version`,
    { httpStatus: 503, hint: 'use the version that wrote it, or a later one' },
  )
}

const stored = (file: LogFile, line: Line, offset: number) => ({
  kind: line.kind,
  data: line.data,
  head: line.head,
  sequence: line.sequence,
  timeMs: line.timeMs,
  position: recordPosition(file.index, offset),
})

/** Most records are far shorter; a longer one costs a second read. */
const firstReadBytes = 4 * 1024

export async function readRecordAt(
  hash: Hash,
  file: LogFile,
  position: number,
): Promise<StoredRecord> {
  const offset = offsetOf(position)
  let bytes = await readRange(file, offset, firstReadBytes)
  if (!bytes.includes(10) && bytes.length === firstReadBytes)
    bytes = await readRange(file, offset, maxLineBytes)
  const end = bytes.indexOf(10)
  const line = end < 0 ? undefined : decodeLine(hash, bytes.subarray(0, end))
  if (line === undefined || internalKinds.has(line.kind))
    throw damaged(file.path, offset, 'no intact record is there')
  return stored(file, line, offset)
}
