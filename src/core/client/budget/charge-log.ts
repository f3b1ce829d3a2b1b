/**
 * The log that all processes of a machine share (contract §7 `budget/`): one file for each origin,
 * changed under the folder's lock. Nothing is synced: a log that is lost is learned again, and no
 * fault of the disk stops a submission.
 */
import pLimit from 'p-limit'
import * as z from 'zod/mini'
import type { Clock, Hash } from '#ports'
import { jsonOf } from '#protocol/capped'
import { StorageError } from '#protocol/errors'
import { ifThere, joinPath, namesIn, removeIfThere, withFile, writeAll } from '#storage/durable'
import { errorCode } from '#storage/failures'
import { holderText, type LockPorts, readHolder, waitForLock } from '#storage/lock'
import { ChargeLog, compacted, emptyLog, ofThisBoot } from './window.js'

export interface BudgetPorts extends LockPorts {
  readonly clock: Clock
  readonly hash: Hash
}

/** A change takes milliseconds; whoever waits for the lock of another so long gives up. */
const lockPatience = { brief: true, waitMs: 10_000, pauseMs: [1, 8] } as const

/**
 * `onNote` is called once where this process has to count alone. Its calls reject with StorageError
 * 74 `home_in_use` where an older program is at work.
 */
export function openChargeLog(
  ports: BudgetPorts,
  home: string,
  origin: string,
  onNote?: (text: string) => void,
) {
  const { clock, files, liveness } = ports
  // An origin may hold characters that no file name takes.
  const folder = joinPath(joinPath(home, 'budget'), ports.hash.sha256(origin).slice(0, 16))
  const path = joinPath(folder, 'log.json')
  const oneAtATime = pLimit(1)
  /** Of a process that has to count by itself. */
  let alone: ChargeLog | undefined
  /** What 0.2 has left: looked for once, for an older program counts where nobody else looks. */
  let earlier: readonly string[] | undefined

  const nowMs = () => Math.floor(clock.monotonicMs())
  const empty = () => emptyLog(liveness.bootId, nowMs())

  async function kept() {
    if (earlier === undefined) {
      const names = (await namesIn(files, folder)).filter((name) => earlierNumber(name) > 0)
      if (names.length > 0) await refuseOlderProgram(ports, home)
      earlier = names.toSorted((a, b) => earlierNumber(b) - earlierNumber(a))
    }
    // What a power cut leaves of a file that was not synced is learned again.
    const { data } = ChargeLog.safeParse(await jsonIn(path))
    if (data !== undefined) return data
    const [newest] = earlier
    const counted = newest && (await jsonIn(joinPath(folder, newest)))
    return ofEarlier(counted, empty(), clock.nowMs()) ?? empty()
  }

  /** The first line: 0.2 wrote a sum behind it. */
  async function jsonIn(file: string) {
    const bytes = await ifThere(files.read(file))
    return bytes && jsonOf(new TextDecoder().decode(bytes).split('\n')[0] ?? '')
  }

  async function publish(log: ChargeLog) {
    const temporary = `${path}.tmp`
    await removeIfThere(files, temporary)
    const bytes = new TextEncoder().encode(JSON.stringify(log))
    await withFile(files, temporary, 'exclusive', (handle) => writeAll(handle, bytes))
    await files.rename(temporary, path)
    for (const name of earlier ?? []) await removeIfThere(files, joinPath(folder, name))
    earlier = []
  }

  /** Without the shared log this process still keeps to the limit by itself. */
  function goAlone(error: unknown) {
    const { cause } = error instanceof StorageError ? error : { cause: error }
    const code = errorCode(cause)
    if (code === undefined) throw error
    if (alone === undefined)
      onNote?.(
        `the shared rate-limit state cannot be written (${code}); other processes of this machine are not counted`,
      )
    alone ??= empty()
    return alone
  }

  /** A change that gives back the log that is kept writes nothing. */
  const update = <T>(change: (log: ChargeLog, nowMs: number) => { log: ChargeLog; result: T }) =>
    oneAtATime(async () => {
      try {
        if (alone === undefined) {
          const lock = await waitForLock(ports, folder, 'budget', lockPatience)
          try {
            const before = await kept()
            const atMs = nowMs()
            const { log, result } = change(ofThisBoot(before, liveness.bootId, atMs), atMs)
            if (log !== before) await publish(compacted(log, atMs))
            return result
          } finally {
            await lock.release()
          }
        }
      } catch (error) {
        goAlone(error)
      }
      const { log, result } = change(alone ?? empty(), nowMs())
      alone = compacted(log, nowMs())
      return result
    })

  return {
    async read() {
      if (alone !== undefined) return alone
      try {
        const log = await kept()
        // Each reader would date it anew, and what it counts would never end.
        return ofThisBoot(log, liveness.bootId, nowMs()) === log
          ? log
          : await update((dated) => ({ log: dated, result: dated }))
      } catch (error) {
        return goAlone(error)
      }
    },
    update,
  }
}

async function refuseOlderProgram(ports: BudgetPorts, home: string) {
  const journal = joinPath(home, 'journal')
  for (const run of await namesIn(ports.files, journal)) {
    const holder = await readHolder(ports, joinPath(journal, run))
    if (holder?.state !== 'alive' || holder.layout !== undefined) continue
    throw new StorageError(
      'home_in_use',
      `${home} is in use by ${holderText(holder)}, of an older version of proposer`,
      'wait until that process is done, or stop it, then retry',
    )
  }
}

/** The number of a state file of 0.2; 0 of any other. */
const earlierNumber = (name: string) => Number(/^s\.([1-9]\d{0,14})$/.exec(name)?.[1] ?? 0)

/** What counts of a state of 0.2; its windows end by the wall clock. */
const Earlier = z.object({
  state: z.object({
    windowMs: z.number().check(z.minimum(1_000)),
    views: z
      .array(
        z.object({
          limitItems: z.int().check(z.minimum(1)),
          assumed: z.boolean(),
          endsByMs: z.nullable(z.number()),
          upperItems: z.int().check(z.minimum(0)),
        }),
      )
      .check(z.minLength(1)),
  }),
})

function ofEarlier(json: unknown, empty: ChargeLog, wallMs: number): ChargeLog | undefined {
  const { data } = Earlier.safeParse(json)
  if (data === undefined) return undefined
  const { views, windowMs } = data.state
  const open = views.filter(({ endsByMs }) => endsByMs === null || endsByMs > wallMs)
  const items = Math.max(0, ...open.map(({ upperItems }) => upperItems))
  const { writtenMs: nowMs } = empty
  return {
    ...empty,
    windowMs,
    limitItems: Math.min(...views.map(({ limitItems }) => limitItems)),
    source: views.some(({ assumed }) => assumed) ? 'assumed' : 'told',
    charges: [{ id: '', items, sentMs: nowMs, endMs: nowMs }],
    changedMs: nowMs,
  }
}
