import { constants, fstatSync, readFileSync, type Stats } from 'node:fs'
import * as disk from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import type { FileHandle, Files } from '#ports'
import { StorageError } from '#protocol/errors'
import { errorCode } from '#storage/failures'
import { blockingDisk, type Disk, type DiskFile } from './blocking-disk.js'

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

/** What could keep its reader waiting, or never end, is refused at once. */
async function openPlain({ open }: Disk, path: string, flag: number) {
  const file = await open(path, flag | atOnce, 0o600)
  const stat = fstatSync(file.fd)
  if (stat.isFile()) return { file, size: stat.size }
  await file.close()
  throw failure(stat.isDirectory() ? 'EISDIR' : 'ESPIPE', 'not a regular file, open', path)
}

export async function readPlain(path: string, by: Disk = disk) {
  const { file, size } = await openPlain(by, path, constants.O_RDONLY)
  try {
    if (size > wholeFileBytes)
      throw failure('EFBIG', `larger than ${wholeFileBytes} bytes, read`, path)
    const bytes = await readUpTo(file, size + 1, 0)
    // It has grown meanwhile, or is one of /proc, which has no size.
    return bytes.length > size ? new Uint8Array(readFileSync(file.fd)) : bytes
  } finally {
    await file.close()
  }
}

async function readUpTo(file: DiskFile, length: number, position: number | null) {
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
    check?.(fstatSync(file.fd))
    return await readUpTo(file, limitBytes + 1, null)
  } finally {
    await file.close()
  }
}

async function openFile(by: Disk, path: string, mode: keyof typeof flags): Promise<FileHandle> {
  const { file } = await openPlain(by, path, flags[mode])
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
async function makeDir(by: Disk, path: string) {
  try {
    await makeOne(by, path)
  } catch (error) {
    if (errorCode(error) !== 'ENOENT' || dirname(path) === path) throw error
    await makeDir(by, dirname(path))
    await makeOne(by, path)
  }
}

async function makeOne({ mkdir, stat }: Disk, path: string) {
  try {
    await mkdir(path, { mode: 0o700 })
  } catch (error) {
    const isFolder = async () => (await stat(path).catch(() => undefined))?.isDirectory()
    if (errorCode(error) === 'ENOENT' || !(await isFolder())) throw error
  }
}

const filesBy = (by: Disk): Files => ({
  open: (path, mode) => openFile(by, path, mode),
  read: (path) => readPlain(path, by),
  rename: by.rename,
  link: by.link,
  remove: by.unlink,
  makeDir: (path) => makeDir(by, resolve(path)),
  async syncDir(path) {
    // NTFS journals its metadata (robustness §2, New file).
    if (process.platform === 'win32') return
    const folder = await by.open(path, constants.O_RDONLY)
    try {
      await folder.sync()
    } finally {
      await folder.close()
    }
  },
  list: (path) => by.readdir(path),
  async exists(path) {
    try {
      await by.stat(path)
      return true
    } catch (error) {
      if (isGone(error)) return false
      // Whoever opens a circle of links learns it.
      if (errorCode(error) === 'ELOOP') return true
      throw error
    }
  },
})

export const systemFiles = filesBy(disk)

/** For a process that has nothing else to do. */
export const blockingFiles = filesBy(blockingDisk)

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
