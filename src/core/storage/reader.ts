import { damaged, storageErrorOf } from './failures.js'
import { lossBefore, readHighWater } from './high-water.js'
import { type Manifest, readFormat, readManifestToLook } from './manifest.js'
import type { LogOptions, LogPorts, RecordLogReader } from './record-log.js'
import {
  closeFiles,
  fileOf,
  type LogFile,
  newWalk,
  openFiles,
  readRecordAt,
  walkAll,
} from './walk.js'

/** A compaction may remove files between reading MANIFEST and opening them. */
const mostLooks = 5

export async function openInForce(
  { files, hash }: Pick<LogPorts, 'files' | 'hash'>,
  folder: string,
): Promise<{
  readonly manifest: Manifest | undefined
  readonly opened: readonly (LogFile | undefined)[]
}> {
  for (let look = 1; ; look++) {
    const manifest = await readManifestToLook(files, hash, folder)
    if (manifest === undefined) return { manifest, opened: [] }
    const opened = await openFiles(files, folder, manifest)
    if (!opened.includes(undefined) || look === mostLooks) return { manifest, opened }
    await closeFiles(opened)
  }
}

/**
 * Also while its writer works (R24). A torn tail that no writer has cleared yet is left out.
 * Every scan begins with the same records: the files stay open, whatever a compaction removes.
 * Damage rejects a scan once everything sound before it was handed out.
 */
export async function openLogReader(
  ports: Pick<LogPorts, 'files' | 'hash'>,
  folder: string,
  { format, knownKinds }: Pick<LogOptions, 'format' | 'knownKinds'>,
): Promise<RecordLogReader> {
  const { files, hash } = ports
  const open = async () => {
    await readFormat(files, folder, format, 'read')
    // Before the log, which somebody may be writing.
    const mark = await readHighWater(files, hash, folder)
    return { mark, ...(await openInForce(ports, folder)) }
  }
  const { mark, manifest, opened } = await open().catch((error: unknown) => {
    throw storageErrorOf(`${folder} cannot be read`, error)
  })

  async function* batches() {
    if (manifest === undefined) return
    const walk = newWalk()
    yield* walkAll({ hash, folder, manifest, opened }, walk, { knownKinds, torn: true })
    const loss = lossBefore(mark, walk)
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
