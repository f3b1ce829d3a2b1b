/** stdin, stdout and stderr without node's streams, which take longer to load than `--help` to print. */
import { constants, fstatSync, openSync, writeSync } from 'node:fs'

/** What is needed of node's own stream. */
interface Stream {
  write(text: string | Uint8Array): unknown
  readonly writableLength: number
  readonly isTTY?: boolean
  readonly columns?: number
  readonly rows?: number
  on(event: 'error', listener: (error: Error) => void): unknown
}

/** Minor and major number of /dev/null on Linux. */
const nullDevice = 0x103

/**
 * A sink for texts on this descriptor. Files are written in place, and pipes as far as they have room; node's own stream (`open`) is used
 * for all else, and for a pipe from the first text on that it has no room for (EAGAIN). So a reader who takes nothing holds up neither
 * signals nor timers (R23). Failures go to the listeners of `error`; without one `write` throws.
 */
export function standardOutput(descriptor: 1 | 2, open: () => Stream) {
  if (process.platform === 'win32') return open()
  if (mayBeTerminal(descriptor)) {
    const terminal = open()
    if (terminal.isTTY === true) return terminal
  }
  const listeners: ((error: Error) => void)[] = []
  let own: number | undefined
  let stream: Stream | undefined
  const takeOver = () => {
    const taken = open()
    for (const listener of listeners) taken.on('error', listener)
    stream = taken
    return taken
  }
  return {
    isTTY: false,
    get writableLength() {
      return stream?.writableLength ?? 0
    },
    on(_event: 'error', listener: (error: Error) => void) {
      listeners.push(listener)
      stream?.on('error', listener)
    },
    write(text: string) {
      if (stream !== undefined) return stream.write(text)
      own ??= withoutWaiting(descriptor)
      if (own === undefined) return takeOver().write(text)
      const bytes = new TextEncoder().encode(text)
      let written = 0
      try {
        while (written < bytes.length) written += writeSync(own, bytes, written)
      } catch (error) {
        if (!(error instanceof Error)) throw error
        if ('code' in error && error.code === 'EAGAIN') return takeOver().write(bytes.subarray(written))
        if (listeners.length === 0) throw error
        for (const listener of listeners) listener(error)
      }
      return true
    },
  }
}

/**
 * A descriptor for the same file or pipe on which a write never waits for a reader, or `undefined` where there is none. A pipe is opened once
 * more, because not to wait is a property of what was opened, which other processes share.
 */
export function withoutWaiting(descriptor: number): number | undefined {
  const stat = fstatSync(descriptor)
  // Terminals have node's stream; other devices, as /dev/null and /dev/full, answer at once.
  if (stat.isFile() || stat.isCharacterDevice()) return descriptor
  if (!stat.isFIFO()) return undefined
  try {
    return openSync(`/proc/self/fd/${descriptor}`, constants.O_WRONLY | constants.O_NONBLOCK)
  } catch (error) {
    // Nobody reads any more: the write will say so without waiting. Else there is no such file system.
    return error instanceof Error && 'code' in error && error.code === 'ENXIO' ? descriptor : undefined
  }
}

function mayBeTerminal(descriptor: 0 | 1 | 2): boolean {
  const stat = fstatSync(descriptor)
  return stat.isCharacterDevice() && stat.rdev !== nullDevice
}

type Input = NodeJS.ReadableStream & { readonly isTTY?: boolean; setRawMode?(on: boolean): unknown }

/** stdin, opened by whoever first asks it for anything but whether it is a terminal. */
export function standardInput(open: () => Input): Input {
  if (process.platform === 'win32' || mayBeTerminal(0)) return open()
  return new Proxy({} as Input, {
    get(_target, name) {
      if (name === 'isTTY') return false
      const stream = open()
      const member: unknown = Reflect.get(stream, name)
      return typeof member === 'function' ? member.bind(stream) : member
    },
  })
}
