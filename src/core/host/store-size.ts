import type { Files } from '../ports.js'
import { joinPath } from '../storage/durable.js'
import { errorCode, storageErrorOf } from '../storage/failures.js'

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

/** Records and snapshots: they are what grows. */
export const folderBytes = (files: Files, folder: string): Promise<number> =>
  bytesIn(files, folder, /^(log|snap|torn)-/).catch((error: unknown) => {
    throw storageErrorOf(`${folder} cannot be measured`, error)
  })
