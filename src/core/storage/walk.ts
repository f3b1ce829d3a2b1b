import type { FileHandle, Hash } from '../ports.js'
import { StorageError } from '../protocol/errors.js'
import { damaged, messageOf } from './failures.js'
import { decodeLine, type Line, maxLineBytes, noCheck } from './line.js'
import type { StoredRecord } from './record-log.js'

/** Kinds that the log writes for itself; never handed to an owner. */
export const internalKinds: ReadonlySet<string> = new Set([
  'mark',
  'recovered',
  'snap.end',
  'manifest',
])

/** A snapshot or segment that is open for reading. */
export interface LogFile {
  /** Ours for this opening; the upper part of a position. */
  readonly index: number
  readonly path: string
  readonly handle: FileHandle
}

/** How far a walk has come, and what it has learned about the end of the last segment. */
export interface Walk {
  /** `c` and `n` of the last line that counts. */
  check: string
  sequence: number
  /** End of the last whole group in the current file. */
  offset: number
  /** The state before the last line, when that line is a `mark`. */
  beforeMark:
    | { readonly check: string; readonly sequence: number; readonly offset: number }
    | undefined
  /** The last segment ends in something that never became durable. */
  torn: boolean
}

export const newWalk = (): Walk => ({
  check: noCheck,
  sequence: 0,
  offset: 0,
  beforeMark: undefined,
  torn: false,
})

/** Large reads keep the start-up scan at the speed of hashing and parsing. */
const chunkBytes = 1024 * 1024

/** 2^36: files up to 64 GiB, 2^17 of them in one opening. */
const positionStride = 2 ** 36

export const positionOf = (file: number, offset: number): number => file * positionStride + offset
export const fileOf = (position: number): number => Math.floor(position / positionStride)
export const offsetOf = (position: number): number => position % positionStride

interface RawLine {
  /**
   * Without the newline; `undefined` when no newline came within the longest line, or before the
   * end.
   */
  readonly bytes: Uint8Array | undefined
  readonly offset: number
}

/**
 * Splits a file into lines, a batch per large read; the next read is under way meanwhile.
 * `endBytes`: where to stop, at most the file's end.
 */
async function* lineBatches(file: LogFile, endBytes: number): AsyncGenerator<RawLine[]> {
  const readFrom = (from: number) =>
    readBytes(file, from, Math.max(0, Math.min(chunkBytes, endBytes - from)))
  let position = 0 // of the chunk
  let carry = nothing // of a line that goes on in the next chunk
  let offset = 0 // of the line
  let skipping = false // inside a line that is too long
  let reading = readFrom(0)
  try {
    for (;;) {
      const chunk = await reading
      if (chunk.length === 0) break
      const next = position + chunk.length
      if (next < endBytes) {
        reading = readFrom(next)
        // Told when its turn comes, if it does.
        reading.catch(() => undefined)
      }
      const lines: RawLine[] = []
      let start = 0
      for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
        const bytes = chunk.subarray(start, end)
        if (!skipping)
          lines.push({ bytes: carry.length === 0 ? bytes : concat(carry, bytes), offset })
        carry = nothing
        skipping = false
        start = end + 1
        offset = position + start
      }
      if (!skipping)
        carry = carry.length === 0 ? chunk.subarray(start) : concat(carry, chunk.subarray(start))
      if (carry.length > maxLineBytes) {
        lines.push({ bytes: undefined, offset })
        skipping = true
        carry = nothing
      }
      position = next
      yield lines
      if (next >= endBytes) break
    }
    if (carry.length > 0) yield [{ bytes: undefined, offset }]
  } finally {
    // Or whoever stops here would close the file under a read.
    await reading.catch(() => undefined)
  }
}

const nothing: Uint8Array = new Uint8Array(0)

const readBytes = (file: LogFile, position: number, length: number): Promise<Uint8Array> =>
  named(file, `at byte ${position}`, () => file.handle.read(position, length))

/** The file's length. Throws `StorageError` `store_unreadable`. */
export const lengthOf = (file: LogFile): Promise<number> =>
  named(file, 'for its length', () => file.handle.size())

async function named<T>(file: LogFile, what: string, job: () => Promise<T>): Promise<T> {
  try {
    return await job()
  } catch (cause) {
    throw new StorageError(
      'store_unreadable',
      `${file.path} cannot be read ${what}: ${messageOf(cause)}`,
      { httpStatus: 503, cause },
    )
  }
}

function concat(first: Uint8Array, second: Uint8Array): Uint8Array {
  const all = new Uint8Array(first.length + second.length)
  all.set(first)
  all.set(second, first.length)
  return all
}

/** What a kind is for this owner: refuses kinds of a later version (robustness §2, Versions). */
function isOwners(
  kind: string,
  knownKinds: (kind: string) => boolean,
  path: string,
  offset: number,
): boolean {
  if (knownKinds(kind)) return true
  if (kind.startsWith('x-')) return false
  throw new StorageError(
    'store_too_new',
    `${path} holds a "${kind}" record at byte ${offset}, which only a later version understands`,
    {
      httpStatus: 503,
      hint: 'use the version that wrote it, or a later one',
    },
  )
}

/** What walks ask of the owner and of the records. */
export interface WalkOptions {
  readonly knownKinds: (kind: string) => boolean
  /** Records with a head come with that alone. */
  readonly headsOnly?: boolean | undefined
}

/**
 * Few at a time: what is alive while the next lines are read would be copied by every collection of
 * garbage.
 */
const batchRecords = 64

/**
 * Walks a segment from its start to `endBytes`, yielding owner's records in batches and moving
 * `walk` along. A bad line is damage (`store_damaged`), but for a torn tail: in the last segment
 * (`last`), with no durable mark above it. Marks before it are below it by nature, so it is the
 * lines behind it that are asked. Then the walk ends there with `torn` set. A sound line that does
 * not continue the chain is damage wherever it lies.
 */
export async function* walkSegment(
  hash: Hash,
  file: LogFile,
  walk: Walk,
  options: WalkOptions & { readonly last: boolean; readonly endBytes: number },
): AsyncGenerator<StoredRecord[]> {
  Object.assign(walk, { offset: 0, beforeMark: undefined, torn: false })
  let badAt: number | undefined
  let held: StoredRecord[] = [] // a group that is not whole yet
  let chain = { check: walk.check, sequence: walk.sequence } // of the last line, whole group or not
  let more = 0
  for await (const lines of lineBatches(file, options.endBytes)) {
    let records: StoredRecord[] = []
    for (const raw of lines) {
      const line =
        raw.bytes === undefined ? undefined : decodeLine(hash, raw.bytes, options.headsOnly)
      if (badAt !== undefined) {
        if (provesDurable(line, badAt, raw.offset, chain.sequence))
          throw damaged(file.path, badAt, brokenBelowMark)
        continue
      }
      if (line === undefined || raw.bytes === undefined) {
        if (!options.last)
          throw damaged(file.path, raw.offset, 'a broken line before the end of the log')
        badAt = raw.offset
        // Its newline may be what broke, with a sound line behind it.
        for (const inner of raw.bytes === undefined ? [] : innerLines(hash, raw.bytes))
          if (provesDurable(inner.line, badAt, raw.offset + inner.offset, chain.sequence))
            throw damaged(file.path, badAt, brokenBelowMark)
        continue
      }
      checkContinues(file.path, raw.offset, line, chain, more)
      if (!internalKinds.has(line.kind)) {
        if (isOwners(line.kind, options.knownKinds, file.path, raw.offset))
          held.push(stored(file, line, raw.offset))
      } else if (line.kind !== 'mark' && line.kind !== 'recovered')
        throw damaged(file.path, raw.offset, `a ${line.kind} line in a segment`)
      chain = { check: line.check, sequence: line.sequence }
      more = line.more
      if (more > 0) continue
      const before = { check: walk.check, sequence: walk.sequence, offset: raw.offset }
      walk.beforeMark =
        line.kind === 'mark' && line.durableBytes === raw.offset ? before : undefined
      walk.check = line.check
      walk.sequence = line.sequence
      walk.offset = raw.offset + raw.bytes.length + 1
      for (const record of held) records.push(record)
      if (held.length > 0) held = []
      if (records.length < batchRecords) continue
      yield records
      records = []
    }
    if (records.length > 0) yield records
  }
  walk.torn = badAt !== undefined || more > 0
  if (more > 0 && !options.last)
    throw damaged(file.path, walk.offset, 'a group of records is cut off')
}

const brokenBelowMark = 'a line below a durable mark is broken'

/**
 * Whether a sound line behind the broken one at `badAt` was written when that one was durable
 * already: damage, not a torn write.
 */
const provesDurable = (
  line: Line | undefined,
  badAt: number,
  offset: number,
  sequence: number,
): boolean =>
  line !== undefined &&
  line.sequence > sequence &&
  line.durableBytes > badAt &&
  line.durableBytes <= offset

/** Sound lines that end a broken one. */
function* innerLines(hash: Hash, bytes: Uint8Array): Generator<{ line: Line; offset: number }> {
  for (let offset = bytes.indexOf(0x7b, 1); offset >= 0; offset = bytes.indexOf(0x7b, offset + 1)) {
    // `{"c":"`: anything else is not worth hashing.
    if (bytes[offset + 1] !== 0x22 || bytes[offset + 2] !== 0x63 || bytes[offset + 5] !== 0x22)
      continue
    const line = decodeLine(hash, bytes.subarray(offset))
    if (line !== undefined) yield { line, offset }
  }
}

/**
 * Walks a snapshot, which was published whole: every fault is damage. Afterwards `walk` stands at
 * the cut the snapshot replaces.
 */
export async function* walkSnapshot(
  hash: Hash,
  file: LogFile,
  walk: Walk,
  { knownKinds, headsOnly }: WalkOptions,
): AsyncGenerator<StoredRecord[]> {
  let chain = { check: noCheck, sequence: 0 }
  let end: Line | undefined
  for await (const lines of lineBatches(file, Number.MAX_SAFE_INTEGER)) {
    let records: StoredRecord[] = []
    for (const raw of lines) {
      const line = raw.bytes === undefined ? undefined : decodeLine(hash, raw.bytes, headsOnly)
      if (line === undefined || end !== undefined)
        throw damaged(file.path, raw.offset, 'a broken line in a snapshot')
      checkContinues(file.path, raw.offset, line, chain, 0)
      chain = { check: line.check, sequence: line.sequence }
      if (line.kind === 'snap.end') end = line
      else if (internalKinds.has(line.kind))
        throw damaged(file.path, raw.offset, `a ${line.kind} line in a snapshot`)
      else if (isOwners(line.kind, knownKinds, file.path, raw.offset))
        records.push(stored(file, line, raw.offset))
      if (records.length < batchRecords) continue
      yield records
      records = []
    }
    if (records.length > 0) yield records
  }
  const { count, check, sequence } = (end?.data ?? {}) as {
    count?: unknown
    check?: unknown
    sequence?: unknown
  }
  if (typeof check !== 'string' || typeof sequence !== 'number' || count !== chain.sequence - 1)
    throw damaged(file.path, await lengthOf(file), 'the snapshot has no end')
  walk.check = check
  walk.sequence = sequence
}

function checkContinues(
  path: string,
  offset: number,
  line: Line,
  chain: { check: string; sequence: number },
  more: number,
): void {
  if (line.sequence !== chain.sequence + 1)
    throw damaged(path, offset, `line ${line.sequence} follows line ${chain.sequence}`)
  if (line.previous !== chain.check)
    throw damaged(path, offset, `line ${line.sequence} does not continue the chain`)
  if (more > 0 && line.more !== more - 1)
    throw damaged(path, offset, `line ${line.sequence} is not the rest of its group`)
}

const stored = (file: LogFile, line: Line, offset: number): StoredRecord => ({
  kind: line.kind,
  data: line.data,
  head: line.head,
  sequence: line.sequence,
  timeMs: line.timeMs,
  position: positionOf(file.index, offset),
})

/** Most records are far shorter; a longer one costs a second read. */
const firstReadBytes = 4 * 1024

/** One record by its place, verified by its checksum. Throws `store_damaged`. */
export async function readRecord(
  hash: Hash,
  file: LogFile,
  position: number,
): Promise<StoredRecord> {
  const offset = offsetOf(position)
  let bytes = await readBytes(file, offset, firstReadBytes)
  let end = bytes.indexOf(10)
  if (end < 0 && bytes.length === firstReadBytes) {
    bytes = await readBytes(file, offset, maxLineBytes)
    end = bytes.indexOf(10)
  }
  const line = end < 0 ? undefined : decodeLine(hash, bytes.subarray(0, end))
  if (line === undefined || internalKinds.has(line.kind))
    throw damaged(file.path, offset, 'no sound record lies there')
  return stored(file, line, offset)
}
