import * as fs from 'node:fs'
import type * as promised from 'node:fs/promises'
import { promisify } from 'node:util'

export interface DiskFile {
  readonly fd: number
  read(
    to: Uint8Array,
    at: number,
    length: number,
    from: number | null,
  ): Promise<{ readonly bytesRead: number }>
  write(
    from: Uint8Array,
    at: number,
    length: number,
    to: null,
  ): Promise<{ readonly bytesWritten: number }>
  datasync(): Promise<void>
  sync(): Promise<void>
  truncate(length: number): Promise<void>
  stat(): Promise<fs.Stats>
  close(): Promise<void>
}

/** What `node:fs/promises` does, as far as it is used. */
export interface Disk extends Pick<typeof promised, 'rename' | 'link' | 'unlink'> {
  open(path: string, flag: number, mode?: number): Promise<DiskFile>
  mkdir(path: string, options: { readonly mode: number }): Promise<unknown>
  readdir(path: string): Promise<string[]>
  stat(path: string): Promise<fs.Stats>
}

/** No process has so many: EBADF. The file's own number may be another's by then. */
const closed = 2 ** 31 - 1

const datasync = promisify(fs.fdatasync)

/** Without a thread, whose way there and back takes longer than most answers. */
export const blockingDisk: Disk = {
  async open(path, flag, mode) {
    let file = fs.openSync(path, flag, mode)
    let syncing: Promise<void> | undefined
    return {
      get fd() {
        return file
      },
      read: async (...place) => ({ bytesRead: fs.readSync(file, ...place) }),
      write: async (...place) => ({ bytesWritten: fs.writeSync(file, ...place) }),
      // What is written takes the disk a while: the next rows are read meanwhile.
      async datasync() {
        // EBADF at once.
        if (file === closed) fs.fdatasyncSync(file)
        syncing = datasync(file)
        return syncing
      },
      sync: async () => fs.fsyncSync(file),
      truncate: async (length) => fs.ftruncateSync(file, length),
      stat: async () => fs.fstatSync(file),
      async close() {
        const open = file
        file = closed
        await syncing?.catch(() => undefined)
        if (open !== closed) fs.closeSync(open)
      },
    }
  },
  rename: async (from, to) => fs.renameSync(from, to),
  link: async (from, to) => fs.linkSync(from, to),
  unlink: async (path) => fs.unlinkSync(path),
  mkdir: async (path, options) => fs.mkdirSync(path, options),
  readdir: async (path) => fs.readdirSync(path),
  stat: async (path) => fs.statSync(path),
}
