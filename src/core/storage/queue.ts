import type { NewRecord, StoredRecord } from './record-log.js'

export interface Append {
  readonly records: readonly NewRecord[]
  readonly texts: readonly string[]
}

export interface Waiting {
  readonly bytes: number
  readonly lines: number
  readonly decide: (group: number) => Append
  /** Of a log that several write: the epoch that must be in force. */
  readonly epoch?: number | undefined
  readonly onDurable: ((stored: readonly StoredRecord[]) => void) | undefined
  readonly resolve: (stored: readonly StoredRecord[]) => void
  readonly reject: (error: unknown) => void
}

const groupLines = 1_024
export const groupBytes = 1024 * 1024

/** At most `limitBytes` of them (R17), but always one. */
export function newQueue(limitBytes: number) {
  const waiting: Waiting[] = []
  let bytes = 0
  return {
    add(each: Waiting) {
      if (waiting.length > 0 && bytes + each.bytes > limitBytes) return false
      waiting.push(each)
      bytes += each.bytes
      return true
    },
    take(): Waiting[] {
      let lines = 0
      let taken = 0
      let count = 0
      for (const each of waiting) {
        if (count > 0 && (lines + each.lines > groupLines || taken + each.bytes > groupBytes)) break
        lines += each.lines
        taken += each.bytes
        count++
      }
      bytes -= taken
      return waiting.splice(0, count)
    },
    takeAll() {
      bytes = 0
      return waiting.splice(0)
    },
    isEmpty: () => waiting.length === 0,
  }
}
