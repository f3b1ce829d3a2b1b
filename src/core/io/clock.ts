import type { Clock, Hash, Random } from '#ports'
import { once } from '#protocol/once'

/** Loaded by whoever first needs it: `--help` does not. */
const crypto = once(() => process.getBuiltinModule('node:crypto'))

export const systemClock: Clock = {
  nowMs: () => Date.now(),
  // `performance` is loaded when it is first asked.
  monotonicMs: () => Number(process.hrtime.bigint()) / 1e6,
  sleep: (ms, signal) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason)
        return
      }
      const abort = () => {
        clearTimeout(timer)
        reject(signal?.reason)
      }
      const timer = setTimeout(() => {
        signal?.removeEventListener('abort', abort)
        resolve()
      }, ms)
      signal?.addEventListener('abort', abort, { once: true })
    }),
}

export const systemRandom: Random = {
  bytes: (length) => new Uint8Array(crypto().randomBytes(length)),
  uuid: () => crypto().randomUUID(),
}

/** Three times as fast on a log line as an object per line. */
export const systemHash: Hash = {
  sha256(data) {
    const { hash, createHash } = crypto()
    return typeof hash === 'function'
      ? hash('sha256', data)
      : createHash('sha256').update(data).digest('hex')
  },
}
