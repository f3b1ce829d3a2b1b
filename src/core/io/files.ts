import { constants, fstatSync, type Stats } from 'node:fs'
import * as disk from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import type { FileHandle, Files } from '#ports'
import { StorageError } from '#protocol/errors'
import { errorCode } from '#storage/failures'

const flags = {
  read: constants.O_RDONLY,
  append: constants.O_RDWR | constants.O_APPEND | constants.O_CREAT,
  exclusive: constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_EXCL,
} as const

const wholeFileBytes = 64 * 1024 * 1024

const failure = (code: string, why: string, path: string) =>
  Object.assign(new Error(`${code}: ${why} '${path}'`), { code, path })

/** Windows has no such flag. */
export const atOnce = constants.O_NONBLOCK ?? 0

/** Of a file just opened: it waits for no disk, and another thread takes longer to be asked. */
const statOf = ({ fd }: disk.FileHandle) => fstatSync(fd)

/** What could keep its reader waiting, or never end, is refused at once. */
async function openPlain(path: string, flag: number) {
  const file = await disk.open(path, flag | atOnce, 0o600)
  const stat = statOf(file)
  if (stat.isFile()) return { file, size: stat.size }
  await file.close()
  throw failure(stat.isDirectory() ? 'EISDIR' : 'ESPIPE', 'not a regular file, open', path)
}

export async function readPlain(path: string) {
  const { file, size } = await openPlain(path, constants.O_RDONLY)
  try {
    if (size > wholeFileBytes)
      throw failure('EFBIG', `larger than ${wholeFileBytes} bytes, read`, path)
    const bytes = await readUpTo(file, size + 1, 0)
    // It has grown meanwhile, or is one of /proc, which has no size.
    return bytes.length > size ? new Uint8Array(await file.readFile()) : bytes
  } finally {
    await file.close()
  }
}

async function readUpTo(file: disk.FileHandle, length: number, position: number | null) {
  const buffer = new Uint8Array(length)
  let filled = 0
  while (filled < length) {
    const from = position === null ? null : position + filled
    const { bytesRead } = await file.read(buffer, filled, length - filled, from)
    if (bytesRead === 0) break
    filled += bytesRead
  }
  return filled === length ? buffer : buffer.subarray(0, filled)
}

/** Of more than `limitBytes` one byte more. */
export async function readNamed(
  path: string,
  limitBytes: number,
  check?: (stat: Stats) => void,
  flag = 0,
) {
  const file = await disk.open(path, constants.O_RDONLY | flag)
  try {
    check?.(statOf(file))
    return await readUpTo(file, limitBytes + 1, null)
  } finally {
    await file.close()
  }
}

async function openFile(path: string, mode: keyof typeof flags): Promise<FileHandle> {
  const { file } = await openPlain(path, flags[mode])
  return {
    write: async (buffer, offset, length) =>
      (await file.write(buffer, offset, length, null)).bytesWritten,
    read: (position, length) => readUpTo(file, length, position),
    datasync: () => file.datasync(),
    truncate: (length) => file.truncate(length),
    size: async () => (await file.stat()).size,
    close: () => file.close(),
  }
}

/** Node's recursive mkdir never ends where a parent exists and yet answers ENOENT, as in /proc. */
async function makeDir(path: string) {
  try {
    await makeOne(path)
  } catch (error) {
    if (errorCode(error) !== 'ENOENT' || dirname(path) === path) throw error
    await makeDir(dirname(path))
    await makeOne(path)
  }
}

async function makeOne(path: string) {
  try {
    await disk.mkdir(path, { mode: 0o700 })
  } catch (error) {
    const isFolder = async () => (await disk.stat(path).catch(() => undefined))?.isDirectory()
    if (errorCode(error) === 'ENOENT' || !(await isFolder())) throw error
  }
}

export const systemFiles: Files = {
  open: openFile,
  read: readPlain,
  rename: disk.rename,
  link: disk.link,
  remove: disk.unlink,
  makeDir: (path) => makeDir(resolve(path)),
  async syncDir(path) {
    // NTFS journals its metadata (robustness §2, New file).
    if (process.platform === 'win32') return
    const folder = await disk.open(path, constants.O_RDONLY)
    try {
      await folder.sync()
    } finally {
      await folder.close()
    }
  },
  list: disk.readdir,
  async exists(path) {
    try {
      await disk.stat(path)
      return true
    } catch (error) {
      if (isGone(error)) return false
      // Whoever opens a circle of links learns it.
      if (errorCode(error) === 'ELOOP') return true
      throw error
    }
  },
}

const remoteTypes = new Map<number, string>([
  [0x6969, 'NFS'],
  [0x517b, 'SMB'],
  [0xff534d42, 'CIFS'],
  [0xfe534d42, 'SMB2'],
  [0x65735546, 'FUSE'],
])

/** Local disk only (robustness §2); known on Linux only. */
export async function requireLocalDisk(folder: string) {
  if (process.platform !== 'linux') return
  let path = resolve(folder)
  for (;;) {
    try {
      const name = remoteTypes.get((await disk.statfs(path)).type >>> 0)
      if (name === undefined) return
      const why = `${folder} lies on ${name}, where locks and syncs are not reliable`
      throw new StorageError('remote_disk', why, 'use a folder on a local disk')
    } catch (error) {
      if (errorCode(error) !== 'ENOENT' || dirname(path) === path) throw error
      path = dirname(path)
    }
  }
}

export async function permissionsOf(path: string) {
  if (process.platform === 'win32') return undefined
  try {
    return (await disk.stat(path)).mode & 0o777
  } catch (error) {
    if (isGone(error)) return undefined
    throw error
  }
}

const isGone = (error: unknown) => ['ENOENT', 'ENOTDIR'].includes(errorCode(error) ?? '')

export const readableByUmask = (path: string) => disk.chmod(path, 0o666 & ~process.umask())
