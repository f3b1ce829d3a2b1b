import { StorageError } from '#protocol/errors'
import { encodeData } from '#storage/line'
import type { CompactableLog, NewRecord, StoredRecord } from '#storage/record-log'

export interface MemoryStore {
  records: StoredRecord[]
  sequence: number
  position: number
}

export const newMemoryStore = (): MemoryStore => ({ records: [], sequence: 0, position: 0 })

export function openMemoryLog(
  store: MemoryStore,
  knownKinds: (kind: string) => boolean,
  onRecord: (record: StoredRecord) => void,
  nowMs: () => number = () => 0,
): CompactableLog {
  store.records = store.records.map((record, position) => ({ ...record, position }))
  for (const record of store.records) onRecord(record)
  let ended = false
  let group = 0
  let tail: Promise<unknown> = Promise.resolve()
  const exclusive = <T>(job: () => Promise<T>): Promise<T> => {
    const run = tail.then(job)
    tail = run.catch(() => undefined)
    return run
  }
  const copy = (data: unknown): unknown => JSON.parse(JSON.stringify(data))
  const check = (record: NewRecord) => {
    encodeData(record.kind, record.data)
    if (!knownKinds(record.kind))
      throw new StorageError('record_invalid', `"${record.kind}" is not a kind of this log`)
  }
  return {
    async append(what, onDurable) {
      if (ended)
        throw new StorageError('store_unavailable', 'the log is closed', { httpStatus: 503 })
      if (typeof what !== 'function') for (const record of what) check(record)
      return exclusive(async () => {
        const records = typeof what === 'function' ? what(++group) : what
        for (const record of records) check(record)
        const stored = records.map((record) => ({
          ...record,
          sequence: ++store.sequence,
          timeMs: nowMs(),
          position: ++store.position,
        }))
        for (const record of stored) store.records.push({ ...record, data: copy(record.data) })
        onDurable?.(stored)
        return stored
      })
    },
    async read(position) {
      const record = store.records.find((each) => each.position === position)
      if (record === undefined)
        throw new StorageError('position_retired', 'a compaction has moved this record')
      return record
    },
    scan() {
      const seen = [...store.records]
      return (async function* () {
        yield* seen
      })()
    },
    async compact(keep, onPlaced) {
      const { cut, kept } = await exclusive(async () => ({
        cut: store.records.length,
        kept: keep(),
      }))
      const folded: StoredRecord[] = []
      for await (const record of kept) {
        check(record)
        const position = ++store.position
        folded.push({
          kind: record.kind,
          data: copy(record.data),
          sequence: folded.length + 1,
          timeMs: nowMs(),
          position,
        })
      }
      store.records = [...folded, ...store.records.slice(cut)]
      for (const [ordinal, record] of folded.entries()) onPlaced(ordinal, record.position)
    },
    failed: undefined,
    get closed() {
      return ended
    },
    onFailure: () => undefined,
    async close() {
      ended = true
      await exclusive(async () => undefined)
    },
  }
}
