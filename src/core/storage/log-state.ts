import type { LimitFunction } from 'p-limit'
import type { StorageError } from '#protocol/errors'
import { fillTemporary, joinPath, writeAll } from './durable.js'
import { failedForGood, isFull, outOfSpace, unavailable } from './failures.js'
import type { LogEnd } from './high-water.js'
import { encodeData } from './line.js'
import { groupBytes, type newQueue } from './queue.js'
import type { LogOptions, LogPorts } from './record-log.js'
import { commit, type Writer } from './writer.js'

const probeMs = 5_000

export interface LogState {
  readonly ports: LogPorts
  readonly folder: string
  readonly options: LogOptions
  readonly writer: Writer
  readonly queue: ReturnType<typeof newQueue>
  /** One job at a time touches the folder: groups, rotations, cuts, publications. */
  readonly exclusive: LimitFunction
  readonly stop: AbortController
  readonly listeners: ((error: Error) => void)[]
  readonly noted: Set<string>
  failed: Error | undefined
  isFull: boolean
  isEnding: boolean
  isShut: boolean
  isCompacting: boolean
  isDraining: boolean
  isIdling: boolean
  isUnmarked: boolean
  groups: number
  /** The last record of a caller, and the one that HIGHWATER names. */
  reached: LogEnd
  marked: LogEnd | undefined
}

/** R10: nothing is written any more; the listeners end the process. */
export function failLog(log: LogState, cause: unknown, detail: string) {
  const error = failedForGood(detail, cause)
  if (log.failed !== undefined) return error
  log.failed = error
  log.stop.abort()
  for (const each of log.queue.takeAll()) each.reject(notWritten(log, error))
  for (const listener of log.listeners) listener(error)
  return error
}

const notWritten = ({ folder }: LogState, cause: unknown) =>
  unavailable(`${folder} no longer accepts writes`, cause)

export function refusal(log: LogState): StorageError | undefined {
  if (log.failed !== undefined) return notWritten(log, log.failed)
  if (log.isEnding) return unavailable(`${log.folder} is closed`)
  return log.isFull ? outOfSpace(log.folder) : undefined
}

export async function checkFence(log: LogState) {
  try {
    await log.options.fence?.()
  } catch (error) {
    const dead = failLog(log, error, `the lock of ${log.folder} could not be checked`)
    throw dead.code === 'store_fenced' ? dead : notWritten(log, dead)
  }
}

/** The disk is full: refuse appends and look every 5 s whether it still is. */
export function closeForSpace(log: LogState) {
  if (!log.isFull) {
    log.isFull = true
    void probeSpace(log)
  }
  return outOfSpace(log.folder)
}

async function probeSpace(log: LogState) {
  const { files, clock } = log.ports
  while (log.isFull) {
    try {
      await clock.sleep(probeMs, log.stop.signal)
    } catch {
      return
    }
    try {
      await log.exclusive(async () => {
        await fillTemporary(files, log.folder, 'probe', (handle) =>
          writeAll(handle, new Uint8Array(groupBytes)),
        )
        await files.remove(joinPath(log.folder, 'probe.tmp'))
      })
      log.isFull = false
    } catch (error) {
      if (!isFull(error)) failLog(log, error, `${log.folder} could not be probed for space`)
    }
  }
}

export async function commitOwn(log: LogState, kind: string, data: unknown) {
  await checkFence(log)
  await commit(log.writer, [{ records: [{ kind, data }], texts: [encodeData(kind, data)] }])
}
