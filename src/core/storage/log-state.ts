import type { FileHandle } from '#ports'
import { fillTemporary, joinPath, writeAll } from './durable.js'
import { isFull, outOfSpace } from './failures.js'
import { fail, type Groups, groupBytes, notWritten } from './groups.js'
import type { LogEnd } from './high-water.js'
import type { Manifest } from './manifest.js'
import type { LogOptions, LogPorts } from './record-log.js'
import type { LogFile } from './walk.js'

const probeMs = 5_000

export interface OpenFile extends LogFile {
  users: number
  /** A compaction has replaced it; only positions given out earlier still lead here. */
  isReplaced: boolean
  onIdle: (() => void) | undefined
}

/** `name` is the folder. Groups, rotations, cuts and publications are `exclusive` jobs. */
export interface LogState extends Groups {
  readonly ports: LogPorts
  readonly options: LogOptions
  readonly noted: Set<string>
  files: OpenFile[]
  manifest: Manifest
  nextIndex: number
  active: FileHandle
  file: number
  goodBytes: number
  end: LogEnd
  mustRotate: boolean
  isFull: boolean
  isShut: boolean
  isCompacting: boolean
  isIdling: boolean
  isUnmarked: boolean
  /** The last record of a caller, and the one that HIGHWATER names. */
  reached: LogEnd
  marked: LogEnd | undefined
}

export async function checkFence(log: LogState) {
  try {
    await log.options.fence?.()
  } catch (error) {
    const dead = fail(log, error, `the lock of ${log.name} could not be checked`)
    throw dead.code === 'store_fenced' ? dead : notWritten(log, dead)
  }
}

/** Appends are refused until a probe, every 5 s, finds space. */
export function closeForSpace(log: LogState) {
  if (!log.isFull) {
    log.isFull = true
    void probeSpace(log)
  }
  return outOfSpace(log.name)
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
        await fillTemporary(files, log.name, 'probe', (handle) =>
          writeAll(handle, new Uint8Array(groupBytes)),
        )
        await files.remove(joinPath(log.name, 'probe.tmp'))
      })
      log.isFull = false
    } catch (error) {
      if (!isFull(error)) fail(log, error, `${log.name} could not be probed for space`)
    }
  }
}
