/**
 * Nobody waits for it: node's own stream would stop the process while a terminal is held (Ctrl-S),
 * and one that flushes at exit would never let it end while a pipe is full (R23, robustness §5).
 */
import { constants, openSync, write as writeFile } from 'node:fs'

/** Nobody reads (R17). */
const waitingBytes = 1024 * 1024
/** Each write takes a turn of the threads that sync the store. */
const togetherBytes = 64 * 1024
const againMs = 20
const triesAtEnd = 10

/** A write that sleeps in the kernel would keep the process from ending. */
export function terminalOfStderr() {
  try {
    return openSync('/dev/stderr', constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch {
    return 2
  }
}

/** Node's stream sets O_NONBLOCK on a pipe. */
export function logOfStderr() {
  void process.stderr
  return 2
}

export function createBufferedWriter(fd: number) {
  let waiting: Buffer[] = []
  let bytes = 0
  let current: Buffer | undefined
  let tries = 0
  let isBroken = false
  let dropped = 0
  let listening: (() => void)[] = []

  const take = (): Buffer | undefined => {
    let length = 0
    const upTo = waiting.findIndex((one) => {
      length += one.length
      return length > togetherBytes
    })
    const taken = waiting.splice(0, upTo < 0 ? waiting.length : Math.max(1, upTo))
    return taken.length === 0 ? undefined : Buffer.concat(taken)
  }
  const next = () => {
    current ??= take()
    if (current === undefined) {
      for (const tell of listening.splice(0)) tell()
      return
    }
    const now = current
    writeFile(fd, now, (error, count) => {
      if (error?.code === 'EAGAIN') {
        tries += 1
        const timer = setTimeout(next, againMs)
        if (tries > triesAtEnd) timer.unref()
        return
      }
      tries = 0
      if (error) {
        // The reader has gone.
        isBroken = true
        dropped += waiting.length + 1
        waiting = []
        bytes = 0
        current = undefined
      } else {
        bytes -= count
        current = count < now.length ? now.subarray(count) : undefined
      }
      next()
    })
  }
  return {
    write(text: string) {
      const taken = Buffer.from(text)
      if (isBroken || bytes + taken.length > waitingBytes) {
        dropped += 1
        return false
      }
      const isIdle = current === undefined
      waiting.push(taken)
      bytes += taken.length
      if (isIdle) next()
      return true
    },
    isIdle: () => current === undefined,
    written: (withinMs: number) =>
      new Promise<void>((resolve) => {
        if (current === undefined) return resolve()
        const timer = setTimeout(resolve, withinMs)
        listening = [
          ...listening,
          () => {
            clearTimeout(timer)
            resolve()
          },
        ]
      }),
    dropped: () => dropped,
  }
}
