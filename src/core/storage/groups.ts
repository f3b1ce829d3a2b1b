/**
 * What every log does alike: appends wait, are written in groups, one job at a time, and are
 * answered in log order (R1); a failure ends it (R10).
 */
import pLimit from 'p-limit'
import type { StorageError } from '#protocol/errors'
import { busy, failedForGood, unavailable } from './failures.js'
import type { NewRecord, RecordLog, StoredRecord } from './record-log.js'

export interface Append {
  readonly records: readonly NewRecord[]
  readonly texts: readonly string[]
}

export interface Waiting {
  readonly bytes: number
  readonly lines: number
  readonly decide: (group: number) => Append
  readonly epoch?: number | undefined
  readonly onDurable: ((stored: readonly StoredRecord[]) => void) | undefined
  readonly resolve: (stored: readonly StoredRecord[]) => void
  readonly reject: (error: unknown) => void
  isRefused: boolean
}

export type DecidedAppend = Append & { readonly each: Waiting }

const groupLines = 1_024
export const groupBytes = 1024 * 1024
/** What a decision is counted as while it waits, where its owner does not say. */
const decisionBytes = 2_048
const frameBytes = 160

export type Groups = ReturnType<typeof newGroups>

/** `mostBytes`: of what waits (R17). */
export const newGroups = (name: string, mostBytes = 64 * 1024 * 1024) => ({
  name,
  mostBytes,
  waiting: [] as Waiting[],
  waitingBytes: 0,
  exclusive: pLimit(1) as <T>(job: () => Promise<T>) => Promise<T>,
  stop: new AbortController(),
  listeners: [] as ((error: Error) => void)[],
  failed: undefined as StorageError | undefined,
  isEnding: false,
  isDraining: false,
  groups: 0,
})

export function takeAll(log: Groups) {
  log.waitingBytes = 0
  return log.waiting.splice(0)
}

/** What goes with those that were taken before. */
export function nextGroup(log: Groups, taken: readonly Waiting[] = []) {
  let lines = 0
  let bytes = 0
  const isOver = (each: Waiting) => {
    lines += each.lines
    bytes += each.bytes
    return lines > groupLines || bytes > groupBytes
  }
  taken.forEach(isOver)
  const end = log.waiting.findIndex((each, index) => isOver(each) && taken.length + index > 0)
  const group = log.waiting.splice(0, end < 0 ? log.waiting.length : end)
  for (const each of group) log.waitingBytes -= each.bytes
  return group
}

export function failLog(log: Groups, cause: unknown, detail: string) {
  const error = failedForGood(detail, cause)
  if (log.failed !== undefined) return error
  log.failed = error
  log.stop.abort()
  for (const each of takeAll(log)) each.reject(notWritten(log, error))
  for (const listener of log.listeners) listener(error)
  return error
}

export const notWritten = ({ name }: Groups, cause: unknown) =>
  unavailable(`${name} no longer accepts writes`, cause)

export function refusal(log: Groups) {
  if (log.failed !== undefined) return notWritten(log, log.failed)
  return log.isEnding ? unavailable(`${log.name} is closed`) : undefined
}

/** What throws is refused alone. */
export function decideGroup(
  log: Groups,
  group: readonly Waiting[],
  check?: (each: Waiting) => void,
) {
  log.groups++
  return group.flatMap((each): DecidedAppend[] => {
    if (each.isRefused) return []
    try {
      check?.(each)
      return [{ each, ...each.decide(log.groups) }]
    } catch (error) {
      each.isRefused = true
      each.reject(error)
      return []
    }
  })
}

export function acknowledge(log: Groups, { each }: DecidedAppend, stored: readonly StoredRecord[]) {
  try {
    each.onDurable?.(stored)
    each.resolve(stored)
  } catch (error) {
    // A bug of the owner: its memory no longer agrees with the log, so it must not go on.
    each.reject(failLog(log, error, 'a durable record could not be applied'))
  }
}

interface GroupLog {
  refusal(): StorageError | undefined
  encode(records: readonly NewRecord[]): readonly string[]
  write(group: Waiting[]): Promise<void>
  end(): Promise<void>
}

export function groupWriter(log: Groups, { refusal, encode, write, end }: GroupLog) {
  let closing: Promise<void> | undefined
  const encoded = (records: readonly NewRecord[]) => ({ records, texts: encode(records) })
  const drain = async () => {
    log.isDraining = true
    while (log.waiting.length > 0) await log.exclusive(() => write(nextGroup(log)))
    log.isDraining = false
  }
  const close = async () => {
    log.isEnding = true
    while (log.isDraining || log.waiting.length > 0) await log.exclusive(async () => undefined)
    log.stop.abort()
    await log.exclusive(end)
  }
  return {
    append(what, onDurable, aboutBytes = decisionBytes, epoch) {
      if (typeof what !== 'function' && what.length === 0) return Promise.resolve([])
      return new Promise((resolve, reject) => {
        const refused = refusal()
        if (refused !== undefined) throw refused
        const { bytes, lines, decide } =
          typeof what === 'function'
            ? { bytes: aboutBytes, lines: 1, decide: (group: number) => encoded(what(group)) }
            : ready(encoded(what))
        if (log.waiting.length > 0 && log.waitingBytes + bytes > log.mostBytes) throw busy(log.name)
        const isRefused = false
        log.waiting.push({ bytes, lines, decide, epoch, onDurable, resolve, reject, isRefused })
        log.waitingBytes += bytes
        if (!log.isDraining) void drain()
      })
    },
    onFailure(listener) {
      if (log.failed === undefined) log.listeners.push(listener)
      else listener(log.failed)
    },
    close() {
      closing ??= close()
      return closing
    },
  } satisfies Pick<RecordLog, 'append' | 'onFailure' | 'close'>
}

const ready = (append: Append) => ({
  bytes: append.texts.reduce((sum, text) => sum + text.length + frameBytes, 0),
  lines: append.records.length,
  decide: () => append,
})
