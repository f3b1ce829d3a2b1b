import type { Clock, Files, Hash } from '../ports.js'

/** At most 256 bytes of JSON, in ASCII; no object in it. */
export type RecordHead = readonly (string | number | boolean)[]

/**
 * What an owner hands over: `kind` like `candidate.received`, `data` JSON-serialisable and at most
 * ~384 KiB as text. `head` repeats what the owner needs of the record when its log is opened for
 * writing. It comes with `data` undefined there, and whole wherever else it is read. Versions
 * before heads pass them over and hand out the data.
 */
export interface NewRecord {
  readonly kind: string
  readonly data: unknown
  readonly head?: RecordHead | undefined
}

/**
 * Where a record lies: file index × 2^36 + byte offset, below 2^53, so that a million fit in memory
 * cheaply. Valid for the life of one open log or reader, and until a compaction reported the
 * record's new place; never to be written down.
 */
export type RecordPosition = number

export interface StoredRecord extends NewRecord {
  /**
   * +1 per record in the log. After a compaction the folded records count from 1 in the order in
   * which they were kept.
   */
  readonly sequence: number
  /** Wall time of the writing, Unix milliseconds; orders nothing (R13). */
  readonly timeMs: number
  readonly position: RecordPosition
}

/**
 * Decides what an append writes, on the state at the log's end. Every earlier group is applied or
 * has failed. Of this `group` (a number that grows) only the decisions before this one were made.
 * Without records nothing is written, and the append still resolves no sooner than its group is
 * durable (R1). What it throws rejects this append alone.
 */
export type Decide = (group: number) => readonly NewRecord[]

/**
 * What the gateway's ledger and the client's journal stand on; another store implements the same
 * and passes the same suite (R25). All failures are `StorageError`.
 */
export interface RecordLog {
  /**
   * Resolves once every record is durable (R1): one group with consecutive sequence numbers that a
   * crash keeps whole or drops whole. `onDurable` is called at that moment, synchronously and in
   * log order across calls, before any later record becomes durable. The place to apply records to
   * memory. `aboutBytes`: what a decision will take, for the bounds of queue and group (R17). The
   * `data` references are handed back as they are. `epoch`: written only while it is the one of the
   * log; a log with a lock of its own has none. Rejects with `StorageError`.
   * `store_unavailable`, `server_busy` or `store_fenced` (503): definitely not committed. The disk
   * is full and the write was rolled back, the log is closed or dead, the queue is full, or another
   * process took over. `store_failed` (500): unknown, and a log on disk is dead (R10).
   * `record_invalid`: not JSON, too large, or a kind this log does not know.
   */
  append(
    records: readonly NewRecord[] | Decide,
    onDurable?: (stored: readonly StoredRecord[]) => void,
    aboutBytes?: number,
    epoch?: number,
  ): Promise<readonly StoredRecord[]>
  /**
   * Only a log that several processes write: from now on `listener` is called with what others have
   * written, in log order, before any later record of ours is decided on.
   */
  follow?(listener: (records: readonly StoredRecord[]) => void): void
  /** Of such a log: applies what others have written, up to record `n`, or to the end as it is. */
  readonly catchUp?: (n?: number) => Promise<void>
  /** Why nothing can be written for now, and nothing is known to be broken. */
  readonly down?: string | undefined
  /**
   * Rejects with `store_damaged` where no sound record lies, `position_retired` when a compaction
   * has moved it.
   */
  read(position: RecordPosition): Promise<StoredRecord>
  /** Every record that is durable at the call, in order, verified. To be iterated at once. */
  scan(): AsyncIterable<StoredRecord>
  /** Set once a sync failed or the fence was passed: nothing will ever be written again. */
  readonly failed: Error | undefined
  /** Whether the disk is full: appends are refused until a probe, every 5 s, finds space. */
  readonly closed: boolean
  /** Called once, when `failed` is set; at once when it already is. */
  onFailure(listener: (error: Error) => void): void
  /**
   * Drains the queue, writes a mark and lets go of the files. Never rejects for a log that is
   * already dead.
   */
  close(): Promise<void>
}

/** A log in files, which are folded from time to time. */
export interface CompactableLog extends RecordLog {
  /**
   * Replaces everything up to a cut by the records the owner still needs, folded as it likes.
   * `keep` is called at the cut. Each `onDurable` of an earlier group has run and none of a later
   * one. So an owner takes a shallow copy of its state there and may yield from it slowly while
   * appends go on. Once the result is in force, `onPlaced(ordinal, position)` tells the place of
   * the n-th yielded record (from 0), in slices. The owner replaces only positions it held at the
   * cut. Old positions stay readable until the last call. A crash anywhere leaves the old or the
   * new state whole. On a full disk: `store_unavailable`, nothing changed.
   */
  compact(
    keep: () => AsyncIterable<NewRecord> | Iterable<NewRecord>,
    onPlaced: (ordinal: number, position: RecordPosition) => void,
  ): Promise<void>
}

/**
 * A log opened for looking only (R24): creates nothing, locks nothing, truncates nothing. A missing
 * folder reads as empty.
 */
export interface RecordLogReader {
  scan(): AsyncIterable<StoredRecord>
  /** Like `scan`, without a promise per record. */
  replay(onRecord: (record: StoredRecord) => void): Promise<void>
  read(position: RecordPosition): Promise<StoredRecord>
  close(): Promise<void>
}

export interface LogPorts {
  readonly files: Files
  readonly clock: Clock
  readonly hash: Hash
}

export interface LogFormat {
  readonly name: 'store' | 'journal'
  /** Ours; a folder with a higher one is refused. */
  readonly version: number
  /** The lowest version that can read what we write; default `version`. */
  readonly minReader?: number
}

export interface LogOptions {
  readonly format: LogFormat
  /**
   * Whether the owner understands a kind. Unknown kinds are refused, but for those starting with
   * `x-`, which are skipped.
   */
  readonly knownKinds: (kind: string) => boolean
  /** Rejects when this writer has been replaced (`lock.fence`); asked before every group. */
  readonly fence?: () => Promise<void>
  /** Told of what is passed over, in a sentence. */
  readonly onNote?: (text: string) => void
  /** Default 64 MiB. */
  readonly segmentBytes?: number
  /** What may wait for the disk before `server_busy`; default 64 MiB (R17). */
  readonly queueBytes?: number
}
