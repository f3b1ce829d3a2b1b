import type { Hash } from '#ports'
import { StorageError } from '#protocol/errors'
import type { NewRecord, RecordHead } from './record-log.js'

/**
 * One line of a log, snapshot or MANIFEST (robustness §2, Line): valid JSON with a fixed start,
 * `{"c":"<16 hex>","p":"<16 hex>","n":7,"s":4096,"k":"candidate.received","t":1755…,"d":{…}}\n`.
 */
export interface Line {
  /** `c`: first 16 hex digits of SHA-256 over the bytes from 24 up to the newline. */
  readonly check: string
  /** `p`: the `c` of the line before; chains through all segments. */
  readonly previous: string
  readonly sequence: number
  /** `s`: bytes of this segment known to be durable when the line was written. */
  readonly durableBytes: number
  readonly kind: string
  readonly timeMs: number
  /**
   * `m`: how many lines of the same append follow; absent for 0. A crash that cuts inside drops
   * them all.
   */
  readonly more: number
  /** `h`: what its owner needs of the record at every opening; absent for most. */
  readonly head: RecordHead | undefined
  readonly data: unknown
}

/** The longest line, its newline included: raw multicalls are large. */
export const maxLineBytes = 384 * 1024

export const noCheck = '0000000000000000'

const maxFrameBytes = 256
const maxHeadBytes = 256

const kindPattern = /^[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)*$/

/** `record_invalid` for a malformed kind, data that JSON cannot hold, or a line over 384 KiB. */
export function encodeData(kind: string, data: unknown, headText = '') {
  if (!kindPattern.test(kind) || kind.length > 64)
    throw invalid(`"${kind.slice(0, 64)}" is not a record kind`)
  let text: string | undefined
  try {
    text = JSON.stringify(data)
  } catch (cause) {
    throw invalid(`a ${kind} record cannot be written as JSON`, cause)
  }
  if (text === undefined) throw invalid(`a ${kind} record cannot be written as JSON`)
  const limit = maxLineBytes - maxFrameBytes - headText.length
  // A UTF-16 unit takes at most 3 bytes, so most records need no second pass.
  if (
    text.length * 3 > limit &&
    (text.length > limit || new TextEncoder().encode(text).length > limit)
  ) {
    throw invalid(`a ${kind} record is over ${maxLineBytes} bytes`)
  }
  return text
}

export function encodeHead(head: RecordHead | undefined) {
  if (head === undefined) return ''
  const text = `,"h":${JSON.stringify(head)}`
  if (text.length > maxHeadBytes || !/^[\x20-\x7e]*$/.test(text))
    throw invalid('a head is too long, or not in ASCII')
  return text
}

export function encodeLine(
  hash: Hash,
  line: Omit<Line, 'check' | 'data' | 'head'>,
  dataText: string,
  headText = '',
): { readonly text: string; readonly check: string } {
  const more = line.more === 0 ? '' : `,"m":${line.more}`
  const body = `"p":"${line.previous}","n":${line.sequence},"s":${line.durableBytes},"k":"${line.kind}","t":${line.timeMs}${more}${headText},"d":${dataText}}`
  const check = hash.sha256(body).slice(0, 16)
  return { text: `{"c":"${check}",${body}\n`, check }
}

export function singleLine(
  hash: Hash,
  frame: Pick<Line, 'previous' | 'sequence' | 'timeMs'> & { readonly durableBytes?: number },
  { kind, data, head }: NewRecord,
): { readonly text: string; readonly check: string } {
  const headText = encodeHead(head)
  const text = encodeData(kind, data, headText)
  return encodeLine(hash, { durableBytes: 0, ...frame, kind, more: 0 }, text, headText)
}

export const byteLength = (text: string) =>
  /^[\x00-\x7f]*$/.test(text) ? text.length : new TextEncoder().encode(text).length

export function onlyLine(hash: Hash, bytes: Uint8Array): Line | undefined {
  return bytes.at(-1) === 10 ? decodeLine(hash, bytes.subarray(0, -1)) : undefined
}

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
const startDecoder = new TextDecoder('utf-8', { ignoreBOM: true })
const opening = new TextEncoder().encode('{"c":"')

/**
 * Chain and sequence are for the caller to compare. `headsOnly`: `data` of a long line with a head
 * is left out.
 */
export function decodeLine(hash: Hash, bytes: Uint8Array, headsOnly = false): Line | undefined {
  if (bytes.length < 64 || bytes.length >= maxLineBytes) return undefined
  for (let index = 0; index < opening.length; index++)
    if (bytes[index] !== opening[index]) return undefined
  const digest = hash.sha256(bytes.subarray(24))
  for (let index = 0; index < 16; index++)
    if (bytes[6 + index] !== digest.charCodeAt(index)) return undefined
  if (bytes[22] !== 0x22 || bytes[23] !== 0x2c) return undefined
  let value: unknown
  const start = headsOnly ? startWithHead(bytes) : undefined
  try {
    value = JSON.parse(start ?? decoder.decode(bytes))
  } catch {
    return undefined
  }
  const { c, p, n, s, k, t, m = 0, h, d } = value as Record<string, unknown>
  if (
    typeof c !== 'string' ||
    typeof p !== 'string' ||
    typeof k !== 'string' ||
    typeof t !== 'number'
  )
    return undefined
  if (!isCount(n) || !isCount(s) || !isCount(m) || (h !== undefined && !isHead(h))) return undefined
  if (d === undefined && start === undefined) return undefined
  return {
    check: c,
    previous: p,
    sequence: n,
    durableBytes: s,
    kind: k,
    timeMs: t,
    more: m,
    head: h,
    data: d,
  }
}

/**
 * Parsing all of a line takes twice as long as checking it, and of a million ended candidates
 * nobody asks for the rest (T13). A head holds no object, so the first `"d"` ends the frame.
 */
function startWithHead(bytes: Uint8Array) {
  const longest = maxFrameBytes + maxHeadBytes
  if (bytes.length <= longest) return undefined
  const text = startDecoder.decode(bytes.subarray(0, longest))
  const end = text.indexOf(',"d":')
  const head = text.indexOf(',"h":[')
  return head > 0 && head < end ? `${text.slice(0, end)}}` : undefined
}

const isHead = (value: unknown): value is RecordHead =>
  Array.isArray(value) && value.every((part) => part !== null && typeof part !== 'object')

const isCount = (value: unknown): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0

const invalid = (detail: string, cause?: unknown) =>
  new StorageError('record_invalid', detail, { httpStatus: 500, cause })
