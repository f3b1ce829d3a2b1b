import { joinPath } from './durable.js'
import { damaged, errorCode, named } from './failures.js'
import { lossBefore, readHighWater } from './high-water.js'
import { type Manifest, manifestNames, readFormat, readManifestToLook } from './manifest.js'
import type { LogOptions, LogPorts, RecordLogReader, StoredRecord } from './record-log.js'
import { walkAll } from './recovery.js'
import { fileOf, type LogFile, newWalk, readRecord } from './walk.js'

/**
 * Opens a log for looking only, also while its writer works (R24): opens files for reading and does
 * nothing else to the folder. A missing or empty folder reads as empty. An unfinished last line, or
 * a torn tail that no writer has cleared yet, is left out. What is written after the opening may or
 * may not be seen. Rejects with `StorageError` `store_damaged`, `store_too_new`, `store_mismatch`.
 */
export async function openLogReader(
  ports: Pick<LogPorts, 'files' | 'hash'>,
  folder: string,
  options: Pick<LogOptions, 'format' | 'knownKinds'>,
): Promise<RecordLogReader> {
  const { files, hash } = ports
  const { mark, manifest, opened } = await readFormat(files, folder, options.format, 'read')
    // Before the log, which somebody may be writing.
    .then(async () => ({
      mark: await readHighWater(files, hash, folder),
      ...(await openInForce()),
    }))
    .catch((error: unknown) => {
      throw named(`${folder} cannot be read`, error)
    })

  async function openInForce(): Promise<{ manifest: Manifest | undefined; opened: LogFile[] }> {
    let missing = ''
    // A compaction may remove files between reading MANIFEST and opening them; the next MANIFEST
    // names the new ones.
    for (let attempt = 0; attempt < 5; attempt++) {
      const found = await readManifestToLook(files, hash, folder)
      if (found === undefined) return { manifest: undefined, opened: [] }
      const handles: LogFile[] = []
      try {
        for (const name of manifestNames(found)) {
          missing = joinPath(folder, name)
          handles.push({
            index: handles.length,
            path: missing,
            handle: await files.open(missing, 'read'),
          })
        }
        return { manifest: found, opened: handles }
      } catch (error) {
        for (const file of handles) await file.handle.close()
        if (errorCode(error) !== 'ENOENT') throw error
      }
    }
    throw damaged(missing, 0, 'it is missing')
  }

  async function* batches(): AsyncGenerator<StoredRecord[]> {
    if (manifest === undefined) return
    const walk = newWalk()
    yield* walkAll(ports, opened, manifest, walk, { knownKinds: options.knownKinds, torn: true })
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
      return readRecord(hash, file, position)
    },
    async close() {
      for (const file of opened) await file.handle.close()
    },
  }
}
