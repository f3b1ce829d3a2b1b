import { constants, promises as disk } from 'node:fs'
import { dirname, resolve } from 'node:path'
import type { FileHandle, Files } from '../ports.js'
import { StorageError } from '../protocol/errors.js'

const flags = {
  read: constants.O_RDONLY,
  append: constants.O_RDWR | constants.O_APPEND | constants.O_CREAT,
  exclusive: constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_EXCL,
} as const

async function openFile(path: string, mode: keyof typeof flags): Promise<FileHandle> {
  const handle = await disk.open(path, flags[mode], 0o600)
  return {
    // The position is null: O_APPEND decides, and libuv uses write(2). A short count is not an error in Node; the caller loops.
    write: async (buffer, offset, length) => (await handle.write(buffer, offset, length, null)).bytesWritten,
    async read(position, length) {
      const buffer = new Uint8Array(length)
      let filled = 0
      while (filled < length) {
        const { bytesRead } = await handle.read(buffer, filled, length - filled, position + filled)
        if (bytesRead === 0) break
        filled += bytesRead
      }
      return filled === length ? buffer : buffer.subarray(0, filled)
    },
    datasync: () => handle.datasync(),
    truncate: (length) => handle.truncate(length),
    size: async () => (await handle.stat()).size,
    close: () => handle.close(),
  }
}

/**
 * Creates a folder and its missing parents. Not by Node's recursive mkdir: where a parent exists and yet answers ENOENT, as all of /proc
 * does, that one goes round for ever.
 */
async function makeDir(path: string): Promise<void> {
  try {
    await makeOne(path)
  } catch (error) {
    if (errorCode(error) !== 'ENOENT' || dirname(path) === path) throw error
    await makeDir(dirname(path))
    await makeOne(path)
  }
}

/** What cannot be made because it is there already is fine, whatever the system says of it. */
async function makeOne(path: string): Promise<void> {
  try {
    await disk.mkdir(path, { mode: 0o700 })
  } catch (error) {
    if (errorCode(error) === 'ENOENT' || !(await isFolder(path))) throw error
  }
}

async function isFolder(path: string): Promise<boolean> {
  try {
    return (await disk.stat(path)).isDirectory()
  } catch {
    // The failure of the mkdir says more than that of this look.
    return false
  }
}

/** The real disk: files 0600, folders 0700 (R5). Errors are Node's own, with `code`. */
export const systemFiles: Files = {
  open: openFile,
  read: async (path) => new Uint8Array(await disk.readFile(path)),
  rename: (from, to) => disk.rename(from, to),
  link: (from, to) => disk.link(from, to),
  remove: (path) => disk.rm(path),
  makeDir: (path) => makeDir(resolve(path)),
  async syncDir(path) {
    // Windows cannot open a folder; NTFS journals its metadata (robustness §2, New file).
    if (process.platform === 'win32') return
    const handle = await disk.open(path, 'r')
    try {
      await handle.sync()
    } finally {
      await handle.close()
    }
  },
  list: (path) => disk.readdir(path),
  async exists(path) {
    try {
      await disk.access(path)
      return true
    } catch (error) {
      const code = errorCode(error)
      if (code === 'ENOENT' || code === 'ENOTDIR') return false
      // A link that leads in circles is there; whoever opens it is told.
      if (code === 'ELOOP') return true
      throw error
    }
  },
}

/** `f_type` of statfs(2) for file systems on which a link, a socket or a sync may not mean what it means on a local disk. */
const remoteTypes = new Map<number, string>([
  [0x6969, 'NFS'],
  [0x517b, 'SMB'],
  [0xff534d42, 'CIFS'],
  [0xfe534d42, 'SMB2'],
  [0x65735546, 'FUSE'],
])

/**
 * Refuses a folder on NFS, SMB or FUSE with `StorageError` `remote_disk` (robustness §2: local disk only); the nearest existing parent
 * counts for a folder that does not exist yet. Known on Linux only; elsewhere nothing is refused. Not called where the user forces it.
 */
export async function requireLocalDisk(folder: string): Promise<void> {
  if (process.platform !== 'linux') return
  let path = resolve(folder)
  for (;;) {
    try {
      // The kernel's word may be sign-extended.
      const name = remoteTypes.get((await disk.statfs(path)).type >>> 0)
      if (name === undefined) return
      throw new StorageError('remote_disk', `${folder} lies on ${name}, where a lock or a sync cannot be relied on`, {
        hint: 'use a folder on a local disk',
      })
    } catch (error) {
      if (errorCode(error) !== 'ENOENT' || dirname(path) === path) throw error
      path = dirname(path)
    }
  }
}

function errorCode(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined
}
