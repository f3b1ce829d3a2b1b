import { promises as disk, readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { basename, dirname, resolve } from 'node:path'
import type { Liveness } from '#ports'
import { StorageError } from '#protocol/errors'

/** 104 bytes on macOS and BSD with the closing NUL. */
const maxSocketPathBytes = 103

/**
 * A listening socket (robustness §2, Lock); a named pipe on Windows. A path too long for it goes
 * through the folder's descriptor, on Linux.
 */
export function systemLiveness(): Liveness {
  let bootId: string | undefined
  return {
    get bootId() {
      bootId ??= readBootId()
      return bootId
    },
    get host() {
      return hostname()
    },
    pid: process.pid,
    listen: (path) => withAddress(path, listenAt),
    probe: (path) => withAddress(path, probeAt),
  }
}

async function withAddress<T>(
  path: string,
  use: (address: string, release: () => Promise<void>) => Promise<T>,
): Promise<T> {
  const nothing = async () => undefined
  const full = resolve(path)
  if (process.platform === 'win32') {
    const { createHash } = await import('node:crypto')
    return use(
      `\\\\.\\pipe\\proposer-${createHash('sha256').update(full.toLowerCase()).digest('hex').slice(0, 32)}`,
      nothing,
    )
  }
  if (Buffer.byteLength(full) <= maxSocketPathBytes) return use(full, nothing)
  if (process.platform !== 'linux') {
    throw new StorageError(
      'path_too_long',
      `${full} is too long for a socket (${maxSocketPathBytes} bytes)`,
      'choose a shorter folder name',
    )
  }
  const folder = await disk.open(dirname(full), 'r').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw error
  })
  if (folder === undefined) return use('/proc/self/fd/none', nothing)
  let released = false
  const release = async () => {
    if (released) return
    released = true
    await folder.close()
  }
  try {
    return await use(`/proc/self/fd/${folder.fd}/${basename(full)}`, release)
  } catch (error) {
    await release()
    throw error
  }
}

async function listenAt(
  address: string,
  release: () => Promise<void>,
): Promise<{ close(): Promise<void> }> {
  const { createServer } = await import('node:net')
  return new Promise((resolveListen, reject) => {
    const server = createServer((socket) => socket.destroy())
    server.once('error', reject)
    server.listen(address, () => {
      server.removeListener('error', reject)
      // A failed accept leaves it listening.
      server.on('error', () => undefined)
      server.unref()
      resolveListen({
        close: async () => {
          await new Promise<void>((done) => server.close(() => done()))
          await release()
        },
      })
    })
  })
}

async function probeAt(
  address: string,
  release: () => Promise<void>,
): Promise<'alive' | 'dead' | 'unknown'> {
  const { connect } = await import('node:net')
  try {
    return await new Promise((resolveProbe) => {
      const socket = connect(address)
      socket.once('connect', () => {
        socket.destroy()
        resolveProbe('alive')
      })
      socket.once('error', (error: NodeJS.ErrnoException) => {
        if (error.code === 'ECONNREFUSED' || error.code === 'ENOENT') resolveProbe('dead')
        // The backlog of a stopped process is full.
        else if (error.code === 'EAGAIN' || error.code === 'EBUSY') resolveProbe('alive')
        else resolveProbe('unknown')
      })
    })
  } finally {
    await release()
  }
}

/** Else the socket alone decides: a guess from uptime shifts with clock steps. */
function readBootId() {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
  } catch {
    return 'unknown'
  }
}
