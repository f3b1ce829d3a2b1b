/**
 * How much a long run leaves behind: the heap after a collection, so that garbage that is only
 * waiting does not count.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

/** No run may leave more behind than this, in bytes (robustness R17). */
export const heapBoundBytes = 64 * 1024 * 1024

export function heapBytes(): number {
  collect()
  collect()
  return process.memoryUsage().heapUsed
}

export const mebibytes = (bytes: number): string => `${(bytes / 1024 / 1024).toFixed(1)} MiB`
