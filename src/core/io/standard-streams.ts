/** stdin, stdout and stderr without node's streams, which take longer to load than `--help` to print. */
import { fstatSync, writeSync } from 'node:fs'

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
 * A sink for texts on this descriptor. Node's own stream (`open`) is used for terminals, on Windows, and from the first write on that the
 * system would make wait (EAGAIN); anything else is written in place, as node's streams for files and pipes do too. Failures go to the
 * listeners of `error`; without one `write` throws.
 */
export function standardOutput(descriptor: 1 | 2, open: () => Stream) {
  if (process.platform === 'win32') return open()
  if (mayBeTerminal(descriptor)) {
    const terminal = open()
    if (terminal.isTTY === true) return terminal
  }
  const listeners: ((error: Error) => void)[] = []
  let stream: Stream | undefined
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
      const bytes = new TextEncoder().encode(text)
      let written = 0
      try {
        while (written < bytes.length) written += writeSync(descriptor, bytes, written)
      } catch (error) {
        if (!(error instanceof Error)) throw error
        if ('code' in error && error.code === 'EAGAIN') {
          stream = open()
          for (const listener of listeners) stream.on('error', listener)
          return stream.write(bytes.subarray(written))
        }
        if (listeners.length === 0) throw error
        for (const listener of listeners) listener(error)
      }
      return true
    },
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
