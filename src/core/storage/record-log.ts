import type { Ports } from '#ports'

/** At most 256 bytes of JSON, in ASCII; no object in it. */
export type RecordHead = readonly (string | number | boolean)[]

/**
 * `head` repeats what the owner needs when its log is opened for writing, where `data` is left out.
 */
export interface NewRecord {
  readonly kind: string
  readonly data: unknown
  readonly head?: RecordHead | undefined
  /** Default: now. Of a copy, the time of its original. */
  readonly timeMs?: number
}

/** File index × 2^36 + byte offset. Valid until a compaction reported the record's new place. */
export type RecordPosition = number

export interface StoredRecord extends NewRecord {
  readonly sequence: number
  readonly timeMs: number
  readonly position: RecordPosition
}

/**
 * Of this `group` only the decisions before this one were made. Without records the append still
 * resolves no sooner than its group is durable (R1).
 */
export type Decide = (group: number) => readonly NewRecord[]

/**
 * What the gateway's ledger and the client's journal stand on; every store passes the same suite
 * (R25).
 */
export interface RecordLog {
  /**
   * Resolves once every record is durable (R1): one group that a crash keeps whole or drops whole.
   * `onDurable` is called at that moment, synchronously and in log order: the place to apply
   * records to memory. `aboutBytes`: of a decision, for the bounds of queue and group (R17).
   * `epoch`: written only while it is the log's. `store_unavailable`, `server_busy`, `store_fenced`
   * (503): definitely not committed; `store_failed` (500): unknown (R10).
   */
  append(
    records: readonly NewRecord[] | Decide,
    onDurable?: (stored: readonly StoredRecord[]) => void,
    aboutBytes?: number,
    epoch?: number,
  ): Promise<readonly StoredRecord[]>
  /**
   * In log order, before any later record of ours is decided on. Only of a log that several
   * processes write.
   */
  follow?(listener: (records: readonly StoredRecord[]) => void): void
  readonly catchUp?: (n?: number) => Promise<void>
  readonly down?: string | undefined
  /** `position_retired` when a compaction has moved it. */
  read(position: RecordPosition): Promise<StoredRecord>
  scan(): AsyncIterable<StoredRecord>
  /** Set once a sync failed or the fence was passed: nothing will ever be written again. */
  readonly failed: Error | undefined
  /** Whether the disk is full: appends are refused until a probe, every 5 s, finds space. */
  readonly closed: boolean
  onFailure(listener: (error: Error) => void): void
  close(): Promise<void>
}

export interface CompactableLog extends RecordLog {
  /**
   * Replaces everything up to a cut by the records that `keep` still needs. It is called between
   * two groups: the owner takes a shallow copy of its state there, and may yield from it slowly
   * while appends go on. `onPlaced` tells the place of the n-th record, from 0; old positions stay
   * readable until its last call. A crash or a full disk leaves the old or the new state whole.
   */
  compact(
    keep: () => AsyncIterable<NewRecord> | Iterable<NewRecord>,
    onPlaced: (ordinal: number, position: RecordPosition) => void,
  ): Promise<void>
}

export interface RecordLogReader {
  scan(): AsyncIterable<StoredRecord>
  replay(onRecord: (record: StoredRecord) => void): Promise<void>
  read(position: RecordPosition): Promise<StoredRecord>
  close(): Promise<void>
}

export type LogPorts = Pick<Ports, 'files' | 'clock' | 'hash'>

export interface LogFormat {
  readonly name: 'store' | 'journal'
  readonly version: number
  readonly minReader?: number
}

export interface LogOptions {
  readonly format: LogFormat
  /** Unknown kinds are refused, but for those starting with `x-`, which are skipped. */
  readonly knownKinds: (kind: string) => boolean
  readonly fence?: () => Promise<void>
  readonly onNote?: (text: string) => void
  readonly segmentBytes?: number
  /** Default 64 MiB (R17). */
  readonly queueBytes?: number
}
