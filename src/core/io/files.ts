import {
  closeSync,
  constants,
  fdatasync,
  fstatSync,
  fsync,
  ftruncateSync,
  linkSync,
  mkdirSync,
  open,
  openSync,
  read,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  type Stats,
  statfsSync,
  statSync,
  unlink,
  write,
  writeSync,
} from 'node:fs'
import { dirname, resolve } from 'node:path'
import type { FileHandle, Files } from '../ports.js'
import { StorageError } from '../protocol/errors.js'

/*
 * Two ways to call the disk. What the page cache and the tables of the system answer is asked for in place: it takes microseconds, a
 * detour through libuv's threads takes many, and node:fs/promises takes milliseconds to load, which a command that signs once would spend
 * on nothing else. What may wait, for the disk (syncs, removing a large file, more than 64 KiB of a segment or a snapshot) or for whoever
 * writes into a pipe that the user named, goes to the threads, and the process works on meanwhile.
 */

const flags = {
  read: constants.O_RDONLY,
  append: constants.O_RDWR | constants.O_APPEND | constants.O_CREAT,
  exclusive: constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_EXCL,
} as const

/** More than this is read and written by the threads. */
const inPlaceBytes = 64 * 1024

/** A call of node:fs by callback, whatever it answers. */
export function done<T = void>(
  call: (answer: (error: NodeJS.ErrnoException | null, result?: T) => void) => void,
): Promise<T> {
  return new Promise((resolveCall, reject) =>
    call((error, result) => (error === null ? resolveCall(result as T) : reject(error))),
  )
}

/** No file that is read in one go comes near this; logs and snapshots are read in parts. */
const wholeFileBytes = 64 * 1024 * 1024

/**
 * The descriptor of a regular file. What could keep its reader waiting, or never end, is refused at
 * once: EISDIR for a folder, ESPIPE for a pipe or a device. Throws what node throws.
 */
export function openPlain(path: string, flag: number): number {
  // A pipe that nobody writes to would hold up the opening; on a regular file the flag means
  // nothing, and Windows has none.
  const descriptor = openSync(path, flag | (constants.O_NONBLOCK ?? 0), 0o600)
  const stat = fstatSync(descriptor)
  if (stat.isFile()) return descriptor
  closeSync(descriptor)
  const code = stat.isDirectory() ? 'EISDIR' : 'ESPIPE'
  throw Object.assign(new Error(`${code}: not a regular file, open '${path}'`), { code, path })
}

/** All of a regular file, up to 64 MiB. Throws what `openPlain` throws, and EFBIG. */
export function readPlain(path: string): Uint8Array {
  const descriptor = openPlain(path, constants.O_RDONLY)
  try {
    if (fstatSync(descriptor).size <= wholeFileBytes)
      return new Uint8Array(readFileSync(descriptor))
    throw Object.assign(new Error(`EFBIG: larger than ${wholeFileBytes} bytes, read '${path}'`), {
      code: 'EFBIG',
      path,
    })
  } finally {
    closeSync(descriptor)
  }
}

/**
 * What a file that the user named holds, a pipe or a device too, which is waited for; of more than
 * `limitBytes` one byte more. `check` may refuse by what the open file is.
 */
export async function readNamed(
  path: string,
  limitBytes: number,
  check?: (stat: Stats) => void,
): Promise<Uint8Array> {
  const descriptor = await done<number>((answer) => open(path, constants.O_RDONLY, answer))
  try {
    check?.(fstatSync(descriptor))
    const buffer = new Uint8Array(limitBytes + 1)
    let length = 0
    while (length < buffer.length) {
      const [from, room] = [length, buffer.length - length]
      const bytesRead = await done<number>((answer) =>
        read(descriptor, buffer, from, room, null, answer),
      )
      if (bytesRead === 0) break
      length += bytesRead
    }
    return buffer.subarray(0, length)
  } finally {
    closeSync(descriptor)
  }
}

async function openFile(path: string, mode: keyof typeof flags): Promise<FileHandle> {
  const opened = openPlain(path, flags[mode])
  const underWay = new Set<Promise<unknown>>()
  let isOpen = true
  /** After the close the number may be another file's. */
  const descriptor = () => {
    if (isOpen) return opened
    throw Object.assign(new Error('EBADF: the file has been closed'), { code: 'EBADF' })
  }
  async function byThread<T>(call: Promise<T>): Promise<T> {
    underWay.add(call)
    try {
      return await call
    } finally {
      underWay.delete(call)
    }
  }
  return {
    // The position is null: O_APPEND decides, and libuv uses write(2). A short count is not an
    // error in Node; the caller loops.
    async write(buffer, offset, length) {
      const file = descriptor()
      if (length <= inPlaceBytes) return writeSync(file, buffer, offset, length, null)
      return byThread(done<number>((answer) => write(file, buffer, offset, length, null, answer)))
    },
    async read(position, length) {
      const buffer = new Uint8Array(length)
      let filled = 0
      while (filled < length) {
        const [file, from, left] = [descriptor(), position + filled, length - filled]
        const bytesRead =
          left <= inPlaceBytes
            ? readSync(file, buffer, filled, left, from)
            : await byThread(
                done<number>((answer) => read(file, buffer, filled, left, from, answer)),
              )
        if (bytesRead === 0) break
        filled += bytesRead
      }
      return filled === length ? buffer : buffer.subarray(0, filled)
    },
    async datasync() {
      const file = descriptor()
      await byThread(done((answer) => fdatasync(file, answer)))
    },
    truncate: async (length) => ftruncateSync(descriptor(), length),
    size: async () => fstatSync(descriptor()).size,
    async close() {
      if (!isOpen) return
      isOpen = false
      // One that no thread has taken up yet would sync whatever has the number by then.
      await Promise.allSettled(underWay)
      closeSync(opened)
    },
  }
}

/**
 * Creates a folder and its missing parents. Not by Node's recursive mkdir: where a parent exists
 * and yet answers ENOENT, as all of /proc does, that one goes round for ever.
 */
function makeDir(path: string): void {
  try {
    makeOne(path)
  } catch (error) {
    if (errorCode(error) !== 'ENOENT' || dirname(path) === path) throw error
    makeDir(dirname(path))
    makeOne(path)
  }
}

/** What cannot be made because it is there already is fine, whatever the system says of it. */
function makeOne(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 })
  } catch (error) {
    if (errorCode(error) === 'ENOENT' || !isFolder(path)) throw error
  }
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory()
  } catch {
    // The failure of the mkdir says more than that of this look.
    return false
  }
}

/** The real disk: files 0600, folders 0700 (R5). Errors are Node's own, with `code`. */
export const systemFiles: Files = {
  open: openFile,
  read: async (path) => readPlain(path),
  rename: async (from, to) => renameSync(from, to),
  link: async (from, to) => linkSync(from, to),
  remove: (path) => done((answer) => unlink(path, answer)),
  makeDir: async (path) => makeDir(resolve(path)),
  async syncDir(path) {
    // Windows cannot open a folder; NTFS journals its metadata (robustness §2, New file).
    if (process.platform === 'win32') return
    const descriptor = openSync(path, constants.O_RDONLY)
    try {
      await done((answer) => fsync(descriptor, answer))
    } finally {
      closeSync(descriptor)
    }
  },
  list: async (path) => readdirSync(path),
  async exists(path) {
    try {
      return statSync(path, { throwIfNoEntry: false }) !== undefined
    } catch (error) {
      // A link that leads in circles is there; whoever opens it is told.
      if (errorCode(error) === 'ELOOP') return true
      throw error
    }
  },
}

/**
 * `f_type` of statfs(2) for file systems on which a link, a socket or a sync may not mean what it
 * means on a local disk.
 */
const remoteTypes = new Map<number, string>([
  [0x6969, 'NFS'],
  [0x517b, 'SMB'],
  [0xff534d42, 'CIFS'],
  [0xfe534d42, 'SMB2'],
  [0x65735546, 'FUSE'],
])

/**
 * Refuses a folder on NFS, SMB or FUSE with `StorageError` `remote_disk` (robustness §2: local disk
 * only); the nearest existing parent counts for a folder that does not exist yet. Known on Linux
 * only; elsewhere nothing is refused. Not called where the user forces it.
 */
export async function requireLocalDisk(folder: string): Promise<void> {
  if (process.platform !== 'linux') return
  let path = resolve(folder)
  for (;;) {
    try {
      // The kernel's word may be sign-extended.
      const name = remoteTypes.get(statfsSync(path).type >>> 0)
      if (name === undefined) return
      throw new StorageError(
        'remote_disk',
        `${folder} lies on ${name}, where a lock or a sync cannot be relied on`,
        {
          hint: 'use a folder on a local disk',
        },
      )
    } catch (error) {
      if (errorCode(error) !== 'ENOENT' || dirname(path) === path) throw error
      path = dirname(path)
    }
  }
}

function errorCode(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string'
    ? error.code
    : undefined
}
