import * as z from 'zod/mini'
import type { Clock, Files, Ports } from '#ports'
import { StorageError } from '#protocol/errors'
import { hexOf, ifThere, joinPath, namesIn, removeIfThere, withFile, writeAll } from './durable.js'
import { errorCode, storageErrorOf } from './failures.js'

export type LockPorts = Pick<Ports, 'files' | 'liveness' | 'random'>

export interface LockUse {
  readonly role: string
  readonly adminUrl?: string | undefined
  /** Of a home: absent of 0.2 and older, which count their calls in files of their own. */
  readonly layout?: number | undefined
}

export interface LockHolder extends LockUse {
  readonly epoch: number
  readonly pid: number
  readonly host: string
  /** `free`: released. `dead`: its process is gone. `unknown`: cannot be known. */
  readonly state: 'free' | 'alive' | 'dead' | 'unknown'
}

export interface Lock {
  readonly epoch: number
  readonly leftBy: LockHolder | undefined
  /** Rejects with `store_fenced` once a later epoch exists, or the folder was moved (R12). */
  fence(): Promise<void>
  setUse(use: LockUse): Promise<void>
  release(): Promise<void>
}

const LockRecord = z.object({
  boot: z.string(),
  socket: z.string().check(z.regex(/^s\.[0-9a-f]{16}$/)),
  pid: z.number(),
  host: z.string(),
  token: z.string(),
  note: z.string(),
})
type LockRecord = z.infer<typeof LockRecord>
const StoredUse = z.object({
  role: z.string(),
  adminUrl: z.optional(z.string()),
  layout: z.optional(z.number()),
})

const [keptEpochs, keptBriefEpochs] = [1_000, 8]

export interface LockOptions {
  readonly force?: boolean
  /** For one change, by a process of this start of the machine: nothing is synced, few numbers are kept. */
  readonly brief?: boolean
}

/**
 * The folder's numbered lock (robustness §2, Lock; R12). `store_locked` names the holder at once.
 * Whose lock was taken by `force` stops at its next fence.
 */
export async function acquireLock(
  ports: LockPorts,
  folder: string,
  role: string,
  options: LockOptions = {},
): Promise<Lock> {
  try {
    return await acquire(ports, folder, role, options)
  } catch (error) {
    throw storageErrorOf(`${folder} cannot be locked`, error)
  }
}

export async function waitForLock(
  ports: LockPorts & { readonly clock: Clock },
  folder: string,
  role: string,
  {
    waitMs,
    pauseMs: [leastMs, jitterMs],
    ...options
  }: LockOptions & {
    readonly waitMs: number
    readonly pauseMs: readonly [leastMs: number, jitterMs: number]
  },
): Promise<Lock> {
  const untilMs = ports.clock.monotonicMs() + waitMs
  for (;;) {
    try {
      return await acquireLock(ports, folder, role, options)
    } catch (error) {
      const isTaken = error instanceof StorageError && error.code === 'store_locked'
      if (!isTaken || ports.clock.monotonicMs() >= untilMs) throw error
    }
    const [jitter = 0] = ports.random.bytes(1)
    await ports.clock.sleep(leastMs + (jitter * jitterMs) / 255)
  }
}

async function acquire(
  ports: LockPorts,
  folder: string,
  note: string,
  { force = false, brief = false }: LockOptions,
) {
  const { files, liveness } = ports
  // Not yet durable: `openLog` sees to that, and a power cut ends every lock.
  await files.makeDir(folder)
  const token = hexOf(ports.random.bytes(8))
  const socket = `s.${token}`
  const temporary = joinPath(folder, `lock.${token}.new`)
  // Listening comes first: from the instant the record is visible, its socket answers.
  const listener = await liveness.listen(joinPath(folder, socket))
  try {
    const holder = await readHolder(ports, folder, brief)
    if (holder !== undefined && !force && (holder.state === 'alive' || holder.state === 'unknown'))
      throw locked(folder, holder)
    const epoch = (holder?.epoch ?? 0) + 1
    const { bootId: boot, pid, host } = liveness
    const record: LockRecord = { boot, socket, pid, host, token, note }
    await writeWhole(files, temporary, `${JSON.stringify(record)}\n`, !brief)
    try {
      await files.link(temporary, epochPath(folder, epoch))
    } catch (error) {
      if (errorCode(error) !== 'EEXIST') throw error
      throw await lost(ports, folder)
    } finally {
      await removeIfThere(files, temporary)
    }
    // Before anything is written under it: a power cut that takes LOCK.<n> but keeps LOCK.<n>.free
    // would hand the number out again.
    if (!brief) await files.syncDir(folder)
    const names = await files.list(folder)
    // A contender that slept through all epochs kept could link a number whose file was cleared
    // away: the top decides.
    if (topEpoch(names) !== epoch) {
      await removeIfThere(files, epochPath(folder, epoch))
      throw await lost(ports, folder)
    }
    await clearOld(ports, folder, names, epoch - (brief ? keptBriefEpochs : keptEpochs))
    const leftBy = holder?.state === 'dead' ? holder : undefined
    const left = leftBy && (await readRecord(files, epochPath(folder, leftBy.epoch)))
    // Nobody listens on it any more, and nobody will: it was in a record, of a number that is past.
    if (left !== undefined) await removeIfThere(files, joinPath(folder, left.socket))
    return { ...lockOf(files, folder, epoch, token, listener), leftBy }
  } catch (error) {
    await listener.close()
    throw error
  }
}

export async function readHolder(
  { files, liveness }: Pick<LockPorts, 'files' | 'liveness'>,
  folder: string,
  brief = false,
): Promise<LockHolder | undefined> {
  const names = await namesIn(files, folder)
  const epoch = topEpoch(names)
  if (epoch === 0) return undefined
  if (brief && names.includes(`LOCK.${epoch}.free`))
    return { epoch, pid: 0, host: 'unknown', role: '', state: 'free' }
  const path = epochPath(folder, epoch)
  const record = await readRecord(files, path)
  const use = useOf((await readText(files, `${path}.note`)) ?? record?.note ?? '')
  const known = { epoch, pid: record?.pid ?? 0, host: record?.host ?? 'unknown', ...use }
  // Asked after the list, so that a release in between is seen.
  if (await files.exists(`${path}.free`)) return { ...known, state: 'free' }
  // Our records are linked whole and synced; one that cannot be read is foreign or damaged, and
  // nobody may guess. A brief one is not synced: a power cut left it so, and ended its holder.
  if (record === undefined) return { ...known, state: brief ? 'dead' : 'unknown' }
  if (record.boot !== liveness.bootId) return { ...known, state: 'dead' }
  return { ...known, state: await liveness.probe(joinPath(folder, record.socket)) }
}

/** Version 0.1 wrote a sentence. */
function useOf(note: string) {
  try {
    return StoredUse.parse(JSON.parse(note))
  } catch {
    const [, adminUrl] = /^serve, admin (http:\/\/127\.0\.0\.1:\d{1,5})$/.exec(note) ?? []
    return adminUrl === undefined ? { role: note } : { role: 'serve', adminUrl }
  }
}

export function holderText({ pid, host, role, adminUrl }: LockHolder) {
  const does = role === 'starting' ? 'a gateway that is starting' : role
  const use = adminUrl === undefined ? does : `${does}, admin ${adminUrl}`
  return `process ${pid} on ${host}${use === '' ? '' : ` (${use})`}`
}

function lockOf(
  files: Files,
  folder: string,
  epoch: number,
  token: string,
  listener: { close(): Promise<void> },
): Omit<Lock, 'leftBy'> {
  let uses = 0
  let isReleased = false
  return {
    epoch,
    async fence() {
      const isTaken = isReleased || (await files.exists(epochPath(folder, epoch + 1)))
      // Our own record has gone with the folder: what is written now would be where nobody looks.
      if (!isTaken && (await files.exists(epochPath(folder, epoch)))) return
      const what = isTaken ? `another process has taken over ${folder}` : `${folder} was moved away`
      throw new StorageError('store_fenced', `${what}; this one no longer writes`, {
        httpStatus: 503,
      })
    },
    async setUse(use) {
      const temporary = joinPath(folder, `lock.${token}.${++uses}.new`)
      await writeWhole(files, temporary, JSON.stringify(use))
      await files.rename(temporary, `${epochPath(folder, epoch)}.note`)
    },
    async release() {
      if (isReleased) return
      isReleased = true
      try {
        await withFile(
          files,
          `${epochPath(folder, epoch)}.free`,
          'exclusive',
          async () => undefined,
        )
      } finally {
        // Even if the mark could not be made (full disk), the closed socket makes the lock stale.
        await listener.close()
      }
    },
  }
}

function locked(folder: string, holder: LockHolder) {
  const who = holderText(holder)
  if (holder.state === 'unknown')
    return new StorageError(
      'store_locked',
      `${folder} may be in use by ${who}: its state is unknown`,
      `make sure that process is gone, then release its lock by creating the file ${epochPath(folder, holder.epoch)}.free`,
    )
  const hint = holder.role.startsWith('serve')
    ? 'send to that gateway instead: give the address it listens on as --gateway; or stop the process, then retry'
    : 'wait until that process is done, or stop it, then retry'
  return new StorageError('store_locked', `${folder} is in use by ${who}`, hint)
}

async function lost(ports: LockPorts, folder: string) {
  const holder = await readHolder(ports, folder)
  if (holder !== undefined) return locked(folder, { ...holder, state: 'alive' })
  const detail = `${folder} was taken by another process at the same moment`
  return new StorageError('store_locked', detail, 'try again')
}

const epochPath = (folder: string, epoch: number) => joinPath(folder, `LOCK.${epoch}`)

/** A power cut may take LOCK.<n> and keep LOCK.<n>.free. */
const topEpoch = (names: readonly string[]) =>
  names.reduce((top, name) => {
    const match = /^LOCK\.([1-9]\d{0,14})(?:\.free)?$/.exec(name)
    return match === null ? top : Math.max(top, Number(match[1]))
  }, 0)

/**
 * And what processes left that were killed while they wrote a record. A writer listens before it
 * writes, so nobody else's is taken away.
 */
async function clearOld(
  { files, liveness }: LockPorts,
  folder: string,
  names: readonly string[],
  last: number,
) {
  const remove = (name: string) => removeIfThere(files, joinPath(folder, name))
  for (const name of names) {
    const [, token] = /^lock\.([0-9a-f]{16})(\.\d+)?\.new$/.exec(name) ?? []
    if (token !== undefined) {
      if ((await liveness.probe(joinPath(folder, `s.${token}`))) !== 'dead') continue
      await remove(name)
      await remove(`s.${token}`)
      continue
    }
    const [, number, suffix] = /^LOCK\.([1-9]\d{0,14})(\.free|\.note)?$/.exec(name) ?? []
    if (number === undefined || Number(number) > last) continue
    const record =
      suffix === undefined ? await readRecord(files, joinPath(folder, name)) : undefined
    if (record !== undefined) await remove(record.socket)
    await remove(name)
  }
}

/** Leaves no file where it rejects: on a full disk every start would add one. */
async function writeWhole(files: Files, path: string, text: string, isSynced = true) {
  const handle = await files.open(path, 'exclusive')
  try {
    try {
      await writeAll(handle, new TextEncoder().encode(text))
      if (isSynced) await handle.datasync()
    } finally {
      await handle.close()
    }
  } catch (error) {
    // Why it could not be written says more than why it could not be removed.
    await removeIfThere(files, path).catch(() => undefined)
    throw error
  }
}

async function readRecord(files: Files, path: string) {
  const text = await readText(files, path)
  try {
    return LockRecord.parse(JSON.parse(text ?? ''))
  } catch {
    return undefined
  }
}

async function readText(files: Files, path: string) {
  const bytes = await ifThere(files.read(path))
  return bytes && new TextDecoder().decode(bytes)
}
