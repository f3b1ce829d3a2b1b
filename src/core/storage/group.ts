import type { Hash } from '../ports.js'
import { encodeHead, encodeLine } from './line.js'
import type { NewRecord, StoredRecord } from './record-log.js'
import { positionOf } from './walk.js'

/** Records of one append with their JSON texts, index by index. */
export interface Append {
  readonly records: readonly NewRecord[]
  readonly texts: readonly string[]
}

/** Where a group goes: the end of a segment and of the chain. */
export interface GroupEnd {
  readonly check: string
  readonly sequence: number
  /** Length of the segment, all of it durable. */
  readonly goodBytes: number
  /** Index of the segment's file, for positions. */
  readonly file: number
}

/**
 * The bytes of a group, what each append gets back once they are durable, and the end they lead to.
 * Throws nothing.
 */
export function encodeGroup(hash: Hash, group: readonly Append[], end: GroupEnd, timeMs: number) {
  const lines: string[] = []
  const stored: StoredRecord[][] = []
  let { check, sequence } = end
  let offset = end.goodBytes
  for (const { records, texts } of group) {
    const mine: StoredRecord[] = []
    for (const [index, record] of records.entries()) {
      const text = texts[index] ?? 'null'
      const more = records.length - 1 - index
      const head = {
        previous: check,
        sequence: ++sequence,
        durableBytes: end.goodBytes,
        kind: record.kind,
        timeMs,
        more,
      }
      const line = encodeLine(hash, head, text, encodeHead(record.head))
      check = line.check
      mine.push({ ...record, sequence, timeMs, position: positionOf(end.file, offset) })
      lines.push(line.text)
      offset += byteLength(line.text)
    }
    stored.push(mine)
  }
  return {
    bytes: new TextEncoder().encode(lines.join('')),
    stored,
    end: { ...end, check, sequence, goodBytes: offset },
  }
}

/** UTF-8 length; only text outside ASCII needs counting. */
export function byteLength(text: string): number {
  return /^[\x00-\x7f]*$/.test(text) ? text.length : new TextEncoder().encode(text).length
}
