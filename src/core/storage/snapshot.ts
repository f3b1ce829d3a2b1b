import type { FileHandle, Files, Hash } from '../ports.js'
import { StorageError } from '../protocol/errors.js'
import { fillTemporary, writeAll } from './durable.js'
import { failedForGood, isFull, notOurs, outOfSpace } from './failures.js'
import { byteLength } from './group.js'
import { encodeData, encodeHead, encodeLine, noCheck } from './line.js'
import { snapshotName } from './manifest.js'
import type { NewRecord } from './record-log.js'

/** What a snapshot stands for: the log up to this line. */
export interface Cut {
  readonly sequence: number
  readonly check: string
}

/**
 * Writes the snapshot of a cut under its temporary name, whole and durable; the offset of each
 * record. Rejects with the owner's error when `kept` fails or `checkOpen` throws, `record_invalid`
 * for a record the log would refuse, `store_unavailable` on a full disk (the temporary is gone),
 * `store_failed` for anything else.
 */
export async function writeSnapshot(
  ports: { readonly files: Files; readonly hash: Hash },
  folder: string,
  cut: Cut,
  kept: AsyncIterable<NewRecord> | Iterable<NewRecord>,
  options: {
    readonly knownKinds: (kind: string) => boolean
    readonly timeMs: number
    readonly checkOpen: () => void
  },
): Promise<number[]> {
  const offsets: number[] = []
  let theirs = false // whether a failure comes from the owner's iteration
  try {
    await fillTemporary(ports.files, folder, snapshotName(cut.sequence), async (handle) => {
      const sheet = newSheet(ports.hash, handle, options.timeMs)
      theirs = true
      for await (const record of kept) {
        if (!options.knownKinds(record.kind)) throw notOurs(record.kind)
        offsets.push(sheet.add(record))
        if (!sheet.due()) continue
        options.checkOpen()
        theirs = false
        await sheet.flush()
        theirs = true
      }
      theirs = false
      sheet.add({
        kind: 'snap.end',
        data: { count: offsets.length, check: cut.check, sequence: cut.sequence },
      })
      await sheet.flush()
    })
  } catch (error) {
    if (theirs || error instanceof StorageError) throw error
    throw isFull(error)
      ? outOfSpace(folder)
      : failedForGood(`a snapshot of ${folder} could not be written`, error)
  }
  return offsets
}

/**
 * Enough for a good write, and some 3 ms of encoding: the event loop stays free (slices of at most
 * 5 ms).
 */
const sheetBytes = 128 * 1024

/** Encodes the lines of a snapshot, numbered from 1; `flush` writes what has gathered since. */
function newSheet(hash: Hash, handle: FileHandle, timeMs: number) {
  let previous = noCheck
  let sequence = 0
  let offset = 0
  let lines: string[] = []
  let waiting = 0
  return {
    /** The offset of the new line. */
    add({ kind, data, head }: NewRecord): number {
      const headText = encodeHead(head)
      const frame = { previous, sequence: ++sequence, durableBytes: 0, kind, timeMs, more: 0 }
      const line = encodeLine(hash, frame, encodeData(kind, data, headText), headText)
      const place = offset
      const bytes = byteLength(line.text)
      previous = line.check
      offset += bytes
      waiting += bytes
      lines.push(line.text)
      return place
    },
    due: () => waiting >= sheetBytes,
    async flush(): Promise<void> {
      const bytes = new TextEncoder().encode(lines.join(''))
      lines = []
      waiting = 0
      await writeAll(handle, bytes)
    },
  }
}
