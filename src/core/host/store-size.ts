/** How large a store is on disk. */
import type { Files } from '../ports.js'
import { joinPath } from '../storage/durable.js'
import { errorCode, storageErrorOf } from '../storage/failures.js'

/** Bytes in the files of `folder` whose names fit. Rejects as the files do. */
async function bytesIn(files: Files, folder: string, names: RegExp): Promise<number> {
  let bytes = 0
  for (const name of await files.list(folder)) if (names.test(name)) bytes += await sizeOf(name)
  return bytes

  async function sizeOf(name: string): Promise<number> {
    try {
      const handle = await files.open(joinPath(folder, name), 'read')
      return await handle.size().finally(() => handle.close())
    } catch (error) {
      // A compaction has just taken it away.
      if (errorCode(error) === 'ENOENT') return 0
      throw error
    }
  }
}

/**
 * Bytes in the records and snapshots of a store in a folder: they are what grows. Rejects with
 * StorageError.
 */
export const folderBytes = (files: Files, folder: string): Promise<number> =>
  bytesIn(files, folder, /^(log|snap|torn)-/).catch((error: unknown) => {
    throw storageErrorOf(`${folder} cannot be measured`, error)
  })
