import { StorageError } from '#protocol/errors'
import { makeDurableDir, namesIn } from './durable.js'
import { encodeData } from './line.js'
import { acquireLock, type LockPorts } from './lock.js'
import { openLog } from './log.js'
import { openLogReader } from './reader.js'
import type { CompactableLog, LogOptions, LogPorts, StoredRecord } from './record-log.js'

export type CopiedRecord = Pick<StoredRecord, 'kind' | 'data' | 'timeMs' | 'head'>

export interface CopySource {
  readonly name: string
  records(): AsyncIterable<CopiedRecord>
}

export interface CopyTarget extends CopySource {
  append(records: readonly CopiedRecord[]): Promise<void>
  /** All is there and the same: gateways may open it. */
  finish(): Promise<void>
  close(): Promise<void>
}

export interface Copied {
  readonly copied: number
  readonly records: number
}

const batchRecords = 500
const batchBytes = 1024 * 1024

export async function copyRecords(
  source: CopySource,
  target: CopyTarget,
  { signal, onProgress }: { signal: AbortSignal; onProgress(copied: number): void },
): Promise<Copied> {
  const from = source.records()[Symbol.asyncIterator]()
  try {
    const before = await comparePrefix(source, from, target)
    const copied = await copyRest(from, target, (count) => {
      onProgress(before + count)
      signal.throwIfAborted()
    })
    const records = before + copied
    if (records === 0)
      throw new StorageError(
        'store_missing',
        `${source.name} holds no records`,
        'use the store that has them',
      )
    if (copied > 0) await compareAll(source, target, records)
    await target.finish()
    return { copied, records }
  } finally {
    await from.return?.()
  }
}

async function copyRest(
  from: AsyncIterator<CopiedRecord>,
  target: CopyTarget,
  onBatch: (copied: number) => void,
) {
  let copied = 0
  let batch: CopiedRecord[] = []
  let bytes = 0
  const flush = async () => {
    await target.append(batch)
    copied += batch.length
    batch = []
    bytes = 0
    onBatch(copied)
  }
  for (let next = await from.next(); !next.done; next = await from.next()) {
    batch.push(next.value)
    bytes += textOf(next.value).length
    if (batch.length === batchRecords || bytes >= batchBytes) await flush()
  }
  if (batch.length > 0) await flush()
  return copied
}

async function comparePrefix(
  source: CopySource,
  from: AsyncIterator<CopiedRecord>,
  target: CopyTarget,
) {
  let count = 0
  for await (const there of target.records()) {
    const next = await from.next()
    count += 1
    if (next.done)
      throw mismatch(`${target.name} has ${count} records or more, ${source.name} has ${count - 1}`)
    if (!isSame(next.value, there))
      throw mismatch(`record ${count} of ${target.name} is not that of ${source.name}`)
  }
  return count
}

async function compareAll(source: CopySource, target: CopyTarget, count: number) {
  const from = source.records()[Symbol.asyncIterator]()
  const compared = await comparePrefix(source, from, target).finally(() => from.return?.())
  if (compared === count) return
  throw mismatch(`${target.name} has ${compared} records after the copy of ${count}`)
}

const textOf = ({ kind, data }: CopiedRecord) => encodeData(kind, data)

const isSame = (one: CopiedRecord, other: CopiedRecord) =>
  one.kind === other.kind && one.timeMs === other.timeMs && textOf(one) === textOf(other)

const mismatch = (detail: string) =>
  new StorageError(
    'store_mismatch',
    `${detail}: the target is another store, or was used since`,
    'nothing was changed; use an empty target',
  )

export type CopyPorts = LogPorts & LockPorts

type FolderOptions = Pick<LogOptions, 'format' | 'knownKinds'>

/** A folder to copy from, also while a gateway writes it: what is added meanwhile is not copied. */
export async function openFolderSource(
  ports: CopyPorts,
  folder: string,
  options: FolderOptions,
): Promise<CopySource & { close(): Promise<void> }> {
  const { scan, close } = await openLogReader(ports, folder, options)
  return { name: folder, records: scan, close }
}

async function* readAll(ports: CopyPorts, folder: string, options: FolderOptions) {
  const reader = await openLogReader(ports, folder, options)
  try {
    yield* reader.scan()
  } finally {
    await reader.close()
  }
}

/**
 * One that is not there yet appears whole: until then the copy lies beside it, under the name
 * with `.copying`.
 */
export async function openFolderTarget(
  ports: CopyPorts,
  folder: string,
  options: FolderOptions,
): Promise<CopyTarget> {
  const names = await namesIn(ports.files, folder)
  if (names.length > 0 && !names.includes('FORMAT'))
    throw mismatch(`${folder} is not empty and contains no store`)
  const work = names.length > 0 ? folder : `${folder}.copying`
  const lock = await acquireLock(ports, work, 'operator')
  let log: CompactableLog | undefined
  const close = async () => {
    await log?.close()
    log = undefined
    await lock.release()
  }
  return {
    name: folder,
    records: () => readAll(ports, work, options),
    async append(records) {
      log ??= await openLog(ports, work, { ...options, fence: lock.fence }, () => undefined)
      await log.append(records)
    },
    async finish() {
      await close()
      if (work === folder) return
      await ports.files.rename(work, folder)
      await makeDurableDir(ports.files, folder)
    },
    close,
  }
}
