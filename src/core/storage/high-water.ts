/**
 * The high-water mark: a small file beside the log that names a record of it. A log whose last
 * segment was cut between two lines, emptied or put back from an older copy is sound in itself;
 * that it ends before the mark shows what is missing. Written about once a second, and only after
 * the record is durable: the log of an honest disk never ends before it. Missing, old or torn it
 * says nothing, so that stores of earlier versions open, and those versions pass it over.
 */
import type { Files, Hash } from '../ports.js'
import { joinPath, publishFile, removeIfThere, writeAll } from './durable.js'
import { decodeLine, encodeData, encodeLine } from './line.js'
import { readIfThere } from './manifest.js'

/** The last line of a log, or the line that a mark names: its number and its checksum. */
export interface LogEnd {
  readonly sequence: number
  readonly check: string
}

export const highWaterName = 'HIGHWATER'
const kind = 'highwater'

/**
 * `undefined` without one, `unreadable` where it is not whole. Rejects with what the disk refuses.
 */
export async function readHighWater(
  files: Files,
  hash: Hash,
  folder: string,
): Promise<LogEnd | 'unreadable' | undefined> {
  const bytes = await readIfThere(files, joinPath(folder, highWaterName))
  if (bytes === undefined) return undefined
  const line = bytes.at(-1) === 10 ? decodeLine(hash, bytes.subarray(0, -1)) : undefined
  return line?.kind === kind ? { sequence: line.sequence, check: line.previous } : 'unreadable'
}

/** Puts a mark in force: one line as the log has them, whose predecessor is the record. */
export async function publishHighWater(
  files: Files,
  hash: Hash,
  folder: string,
  mark: LogEnd,
  timeMs: number,
): Promise<void> {
  const head = {
    previous: mark.check,
    sequence: mark.sequence,
    durableBytes: 0,
    kind,
    timeMs,
    more: 0,
  }
  const bytes = new TextEncoder().encode(encodeLine(hash, head, encodeData(kind, {})).text)
  await publishFile(files, folder, highWaterName, (handle) => writeAll(handle, bytes))
}

/** After a loss that was accepted the next record is the first to be marked again. */
export async function forgetHighWater(files: Files, folder: string): Promise<void> {
  await removeIfThere(files, joinPath(folder, highWaterName))
  await files.syncDir(folder)
}

/**
 * What is wrong with a log that ends there, or `undefined`. Where the last line is a mark of the
 * log's own (`beforeMark`), each start writes it anew: an earlier version could name it here, and
 * then its checksum says nothing.
 */
export function lossBefore(
  mark: LogEnd | 'unreadable' | undefined,
  end: LogEnd & { readonly beforeMark: LogEnd | undefined },
): string | undefined {
  if (mark === undefined || mark === 'unreadable' || mark.sequence < end.sequence) return undefined
  const lost = mark.sequence - end.sequence
  if (lost > 0)
    return `the log ends here with line ${end.sequence}, ${highWaterName} names line ${mark.sequence}; lines lost: ${lost}`
  return mark.check === end.check || end.beforeMark !== undefined
    ? undefined
    : `line ${end.sequence} is not the one that ${highWaterName} names: another log was put here`
}
