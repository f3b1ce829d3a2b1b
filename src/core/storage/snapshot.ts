import type { FileHandle, Files, Hash } from '#ports'
import { StorageError } from '#protocol/errors'
import { fillTemporary, writeAll } from './durable.js'
import { failedForGood, isFull, notOurs, outOfSpace } from './failures.js'
import type { LogEnd } from './high-water.js'
import { byteLength, noCheck, singleLine } from './line.js'
import { snapshotName } from './manifest.js'
import type { NewRecord } from './record-log.js'

/** Enough for a good write, and some 3 ms of encoding: slices of the event loop are 5 ms at most. */
const bufferBytes = 128 * 1024

/**
 * Under its temporary name, whole and durable; the offset of each record. Rejects with the
 * owner's error when `kept` fails or `checkOpen` throws.
 */
export async function writeSnapshot(
  ports: { readonly files: Files; readonly hash: Hash },
  folder: string,
  cut: LogEnd,
  kept: AsyncIterable<NewRecord> | Iterable<NewRecord>,
  options: {
    readonly knownKinds: (kind: string) => boolean
    readonly timeMs: number
    readonly checkOpen: () => void
  },
): Promise<number[]> {
  const offsets: number[] = []
  let isOwners = false // whether a failure comes from the owner's iteration
  try {
    await fillTemporary(ports.files, folder, snapshotName(cut.sequence), async (handle) => {
      const buffer = newLineBuffer(ports.hash, handle, options.timeMs)
      isOwners = true
      for await (const record of kept) {
        if (!options.knownKinds(record.kind)) throw notOurs(record.kind)
        offsets.push(buffer.add(record))
        if (!buffer.isDue()) continue
        options.checkOpen()
        isOwners = false
        await buffer.flush()
        isOwners = true
      }
      isOwners = false
      const { check, sequence } = cut
      buffer.add({ kind: 'snap.end', data: { count: offsets.length, check, sequence } })
      await buffer.flush()
    })
  } catch (error) {
    if (isOwners || error instanceof StorageError) throw error
    throw isFull(error)
      ? outOfSpace(folder)
      : failedForGood(`a snapshot of ${folder} could not be written`, error)
  }
  return offsets
}

function newLineBuffer(hash: Hash, handle: FileHandle, timeMs: number) {
  let previous = noCheck
  let sequence = 0
  let offset = 0
  let lines: string[] = []
  let waiting = 0
  return {
    add(record: NewRecord) {
      const start = offset
      const { text, check } = singleLine(hash, { previous, sequence: ++sequence, timeMs }, record)
      const bytes = byteLength(text)
      previous = check
      offset += bytes
      waiting += bytes
      lines.push(text)
      return start
    },
    isDue: () => waiting >= bufferBytes,
    async flush() {
      const bytes = new TextEncoder().encode(lines.join(''))
      lines = []
      waiting = 0
      await writeAll(handle, bytes)
    },
  }
}
