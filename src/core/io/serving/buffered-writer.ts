/**
 * Text for a file descriptor that nobody waits for: Node's own stream would stop the process while
 * a terminal is held (Ctrl-S), and one that flushes at exit would never let it end while a pipe is
 * full (R23, robustness §5).
 */
import { constants, openSync, write as writeFile } from 'node:fs'

/** More than this unwritten means that nobody reads (R17). */
const waitingBytes = 1024 * 1024
/** Each write takes a turn of the threads that sync the store, too. */
const togetherBytes = 64 * 1024
const againMs = 20
/** A process that has nothing else to do waits for a full pipe no longer. */
const triesAtEnd = 10

/** Opened once more: a write that sleeps in the kernel would keep the process from ending. */
export function terminalOfStderr() {
  try {
    return openSync('/dev/stderr', constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch {
    return 2
  }
}

/** Node's stream makes a pipe refuse what its reader does not take (O_NONBLOCK). */
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
        // The reader has gone, which must not end the gateway.
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
