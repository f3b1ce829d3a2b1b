import type { FileHandle, Files } from '#ports'
import { StorageError } from '#protocol/errors'
import { ifThere, joinPath } from './durable.js'
import { messageOf } from './failures.js'
import { maxLineBytes } from './line.js'
import { type Manifest, manifestNames } from './manifest.js'

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

/** A batch per large read; the next read is under way. */
export async function* lineBatches(
  file: LogFile,
  endBytes: number,
  from = 0,
): AsyncGenerator<RawLine[]> {
  const readAt = (position: number) =>
    readRange(file, position, Math.max(0, Math.min(chunkBytes, endBytes - position)))
  let offset = from
  let rest = nothing
  let isTooLong = false
  let position = from
  let reading = readAt(position)
  try {
    for (;;) {
      const chunk = await reading
      if (chunk.length === 0) break
      position += chunk.length
      if (position < endBytes) {
        reading = readAt(position)
        // Reported when its turn comes, if it does.
        reading.catch(() => undefined)
      }
      const data = concat(rest, chunk)
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
        rest = nothing
      }
      yield lines
      if (position >= endBytes) break
    }
    if (rest.length > 0) yield [{ bytes: undefined, offset }]
  } finally {
    // Or whoever stops here would close the file under a read.
    await reading.catch(() => undefined)
  }
}

const nothing: Uint8Array = new Uint8Array(0)

function concat(first: Uint8Array, second: Uint8Array) {
  if (first.length === 0) return second
  const all = new Uint8Array(first.length + second.length)
  all.set(first)
  all.set(second, first.length)
  return all
}

export const readRange = (file: LogFile, position: number, length: number) =>
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
