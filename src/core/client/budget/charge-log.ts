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
  const earlier = earlierStates(ports, home, folder)

  const empty = (nowMs: number) => emptyLog(liveness.bootId, nowMs)

  /** Not `isKept`: it is of another boot, and dated anew. */
  async function current(nowMs: number): Promise<{ log: ChargeLog; isKept: boolean }> {
    const bytes = await ifThere(files.read(path))
    // What a power cut leaves of a file that was not synced is learned again.
    const { data } = ChargeLog.safeParse(bytes && jsonIn(bytes))
    if (data === undefined) return { log: await before(nowMs), isKept: true }
    const log = ofThisBoot(data, liveness.bootId, nowMs)
    return { log, isKept: log === data }
  }

  async function before(nowMs: number) {
    const bytes = await earlier.newest()
    return (bytes && ofEarlier(jsonIn(bytes), empty(nowMs), clock.nowMs())) ?? empty(nowMs)
  }

  async function publish(log: ChargeLog) {
    const temporary = `${path}.tmp`
    await removeIfThere(files, temporary)
    const bytes = new TextEncoder().encode(JSON.stringify(log))
    await withFile(files, temporary, 'exclusive', (handle) => writeAll(handle, bytes))
    await files.rename(temporary, path)
    await earlier.remove()
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
    alone ??= empty(clock.monotonicMs())
    return alone
  }

  /** A change that gives back the log that is kept writes nothing. */
  const update = <T>(change: (log: ChargeLog, nowMs: number) => { log: ChargeLog; result: T }) =>
    oneAtATime(async () => {
      try {
        if (alone === undefined) {
          await earlier.find()
          const lock = await waitForLock(ports, folder, 'budget', lockPatience)
          try {
            const { log, isKept } = await current(Math.floor(clock.monotonicMs()))
            const nowMs = Math.floor(clock.monotonicMs())
            const { log: after, result } = change(log, nowMs)
            if (after !== log || !isKept) await publish(compacted(after, nowMs))
            return result
          } finally {
            await lock.release()
          }
        }
      } catch (error) {
        goAlone(error)
      }
      const nowMs = Math.floor(clock.monotonicMs())
      const { log, result } = change(alone ?? empty(nowMs), nowMs)
      alone = compacted(log, nowMs)
      return result
    })

  return {
    async read() {
      if (alone !== undefined) return alone
      try {
        await earlier.find()
        const { log, isKept } = await current(Math.floor(clock.monotonicMs()))
        // Each reader would date it anew, and what it counts would never end.
        return isKept ? log : await update((dated) => ({ log: dated, result: dated }))
      } catch (error) {
        return goAlone(error)
      }
    },
    update,
  }
}

/** What 0.2 has counted. */
function earlierStates(ports: BudgetPorts, home: string, folder: string) {
  const { files } = ports
  let names: readonly string[] | undefined
  return {
    /** Once: an older program that is at work counts where nobody else looks. */
    async find() {
      names ??= (await namesIn(files, folder)).filter((name) => old(name) > 0)
      if (names.length === 0) return
      await refuseOlderProgram(ports, home).catch((error: unknown) => {
        names = undefined
        throw error
      })
    },
    async newest() {
      const name = (names ?? []).reduce((top, one) => (old(one) > old(top) ? one : top), '')
      return name === '' ? undefined : ifThere(files.read(joinPath(folder, name)))
    },
    async remove() {
      for (const name of names ?? []) await removeIfThere(files, joinPath(folder, name))
      names = []
    },
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

/** The number of a state file of 0.2. */
const old = (name: string) => (/^s\.[1-9]\d{0,14}$/.test(name) ? Number(name.slice(2)) : 0)

/** What counts of a state of 0.2; its windows end by the wall clock. */
const Earlier = z.object({
  state: z.object({
    windowMs: z.number().check(z.minimum(1_000)),
    views: z.array(
      z.object({
        limitItems: z.int().check(z.minimum(1)),
        assumed: z.boolean(),
        endsByMs: z.nullable(z.number()),
        upperItems: z.int().check(z.minimum(0)),
      }),
    ),
  }),
})

function ofEarlier(json: unknown, empty: ChargeLog, wallMs: number): ChargeLog | undefined {
  const { data } = Earlier.safeParse(json)
  if (data === undefined || data.state.views.length === 0) return undefined
  const { views, windowMs } = data.state
  const open = views.filter(({ endsByMs }) => endsByMs === null || endsByMs > wallMs)
  const items = Math.max(0, ...open.map(({ upperItems }) => upperItems))
  const { writtenMs: nowMs } = empty
  return {
    ...empty,
    windowMs,
    limitItems: Math.min(...views.map(({ limitItems }) => limitItems)),
    source: views.some(({ assumed }) => assumed) ? 'assumed' : 'told',
    charges: [{ id: '', items, sentMs: nowMs, endMs: nowMs, isOpen: false }],
    changedMs: nowMs,
  }
}

/** The first line: 0.2 wrote a sum behind it. */
const jsonIn = (bytes: Uint8Array) => jsonOf(new TextDecoder().decode(bytes).split('\n')[0] ?? '')
