/** How large a store is on disk. */
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'

/**
 * The one that remains of many locks is as small as they are; records and snapshots are what grows.
 */
const counted = /^(log|snap|torn)-/

/**
 * Bytes in the store's own files; `undefined` where the folder cannot be read, which is for those
 * who write it to tell.
 */
export async function folderBytes(folder: string): Promise<number | undefined> {
  try {
    const names = (await readdir(folder)).filter((name) => counted.test(name))
    return (await Promise.all(names.map((name) => sizeOf(join(folder, name))))).reduce(
      (sum, size) => sum + size,
      0,
    )
  } catch {
    // A look at the metrics must not end the process; the figure is left out.
    return undefined
  }
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size
  } catch (error) {
    // A compaction has just taken it away.
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return 0
    throw error
  }
}
