import type { Files, Liveness, Random } from '../ports.js'
import { StorageError } from '../protocol/errors.js'
import { hexOf, joinPath, removeIfThere, writeAll } from './durable.js'
import { errorCode, named } from './failures.js'

export interface LockPorts {
  readonly files: Files
  readonly liveness: Liveness
  readonly random: Random
}

/** What the highest `LOCK.<n>` says; `note` is free text of the holder such as its admin URL. */
export interface LockHolder {
  readonly epoch: number
  readonly pid: number
  readonly host: string
  readonly note: string
  /** `free`: released. `dead`: its process is gone. `unknown`: cannot be told. */
  readonly state: 'free' | 'alive' | 'dead' | 'unknown'
}

export interface Lock {
  readonly epoch: number
  /**
   * Resolves while no later epoch exists; else rejects with `StorageError` `store_fenced` (R12).
   * One `stat`.
   */
  fence(): Promise<void>
  /**
   * Replaces the note others see; for what is known only after listening, such as the admin
   * listener's URL.
   */
  setNote(note: string): Promise<void>
  /** Adds `LOCK.<n>.free` and stops listening. */
  release(): Promise<void>
}

interface LockRecord {
  readonly boot: string
  readonly socket: string
  readonly pid: number
  readonly host: string
  readonly token: string
  readonly note: string
}

const keptEpochs = 1_000

/**
 * Takes the folder's numbered lock (robustness §2, Lock; R12); creates the folder. The owner is the
 * highest `LOCK.<n>` without `LOCK.<n>.free`; a stale one (other boot, or nobody listens on its
 * socket) is taken over, never judged by age. Rejects with `StorageError` `store_locked`, naming
 * the holder, at once: there is no waiting; `store_unavailable` when the disk refuses. `force`
 * takes over whatever the holder's state is (`--break-lock`; the caller journals it): the old
 * holder stops at its next fence. Numbers are never reused or renamed.
 */
export async function acquireLock(
  ports: LockPorts,
  folder: string,
  note: string,
  options: { force?: boolean } = {},
): Promise<Lock> {
  try {
    return await acquire(ports, folder, note, options.force === true)
  } catch (error) {
    throw named(`${folder} cannot be locked`, error)
  }
}

async function acquire(
  ports: LockPorts,
  folder: string,
  note: string,
  force: boolean,
): Promise<Lock> {
  const { files, liveness } = ports
  // Not yet durable: `openLog` sees to that, and a power cut ends every lock.
  await files.makeDir(folder)
  const token = hexOf(ports.random.bytes(8))
  const socket = `s.${token}`
  const temporary = joinPath(folder, `lock.${token}.new`)
  // Listening comes first: from the instant the record is visible, its socket answers.
  const listener = await liveness.listen(joinPath(folder, socket))
  try {
    const holder = await readHolder(ports, folder)
    if (holder !== undefined && !force && (holder.state === 'alive' || holder.state === 'unknown'))
      throw locked(folder, holder)
    const epoch = (holder?.epoch ?? 0) + 1
    const record: LockRecord = {
      boot: liveness.bootId,
      socket,
      pid: liveness.pid,
      host: liveness.host,
      token,
      note,
    }
    await writeWhole(files, temporary, `${JSON.stringify(record)}\n`)
    try {
      await files.link(temporary, epochPath(folder, epoch))
    } catch (error) {
      if (errorCode(error) !== 'EEXIST') throw error
      throw await lost(ports, folder)
    } finally {
      await files.remove(temporary)
    }
    // Before anything is written under it: a power cut that takes LOCK.<n> but keeps LOCK.<n>.free
    // would hand the number out again.
    await files.syncDir(folder)
    // A contender that slept through a thousand epochs could link a number whose file was cleared
    // away: the top decides.
    if (topEpoch(await files.list(folder)) !== epoch) {
      await files.remove(epochPath(folder, epoch))
      throw await lost(ports, folder)
    }
    await clearOld(ports, folder, epoch)
    return held(ports, folder, epoch, token, listener)
  } catch (error) {
    await listener.close()
    throw error
  }
}

/**
 * Who holds or last held the folder; `undefined` where no lock was ever taken. Writes nothing
 * (R24).
 */
export async function readHolder(
  ports: Pick<LockPorts, 'files' | 'liveness'>,
  folder: string,
): Promise<LockHolder | undefined> {
  const { files, liveness } = ports
  const names = await files.list(folder).catch((error: unknown) => {
    if (errorCode(error) === 'ENOENT') return []
    throw error
  })
  const epoch = topEpoch(names)
  if (epoch === 0) return undefined
  const record = await readRecord(files, folder, epoch)
  const known = {
    epoch,
    pid: record?.pid ?? 0,
    host: record?.host ?? 'unknown',
    note: await readNote(files, folder, epoch, record?.note ?? ''),
  }
  // Asked after the list, so that a release in between is seen.
  if (await files.exists(`${epochPath(folder, epoch)}.free`)) return { ...known, state: 'free' }
  // Our records are linked whole and synced; one that cannot be read is foreign or damaged, and
  // nobody may guess.
  if (record === undefined) return { ...known, state: 'unknown' }
  if (record.boot !== liveness.bootId) return { ...known, state: 'dead' }
  return { ...known, state: await liveness.probe(joinPath(folder, record.socket)) }
}

function held(
  ports: LockPorts,
  folder: string,
  epoch: number,
  token: string,
  listener: { close(): Promise<void> },
): Lock {
  const { files } = ports
  const next = epochPath(folder, epoch + 1)
  let notes = 0
  let released = false
  return {
    epoch,
    async fence() {
      if (released || (await files.exists(next))) {
        throw new StorageError(
          'store_fenced',
          `another process has taken over ${folder}; this one has stopped writing`,
          {
            httpStatus: 503,
          },
        )
      }
    },
    async setNote(note) {
      const temporary = joinPath(folder, `lock.${token}.${++notes}.new`)
      await writeWhole(files, temporary, note)
      await files.rename(temporary, `${epochPath(folder, epoch)}.note`)
    },
    async release() {
      if (released) return
      released = true
      try {
        const handle = await files.open(`${epochPath(folder, epoch)}.free`, 'exclusive')
        await handle.close()
      } finally {
        // Even if the mark could not be made (full disk), the closed socket makes the lock stale.
        await listener.close()
      }
    },
  }
}

function locked(folder: string, holder: LockHolder): StorageError {
  const about = holder.note === '' ? '' : ` (${holder.note})`
  const who = `process ${holder.pid} on ${holder.host}${about}`
  return holder.state === 'unknown'
    ? new StorageError(
        'store_locked',
        `${folder} may be in use by ${who}: its state cannot be told`,
        {
          hint: `make sure that process is gone, then release its lock by creating the file ${epochPath(folder, holder.epoch)}.free`,
        },
      )
    : new StorageError('store_locked', `${folder} is in use by ${who}`, { hint: heldHint(holder) })
}

/**
 * `proposer serve` names itself and its admin listener in the note; a client command ends by
 * itself.
 */
const heldHint = ({ note }: LockHolder): string =>
  note.startsWith('serve')
    ? 'send to that gateway instead: give the address it listens on as --gateway; or stop the process, then run the same command again'
    : 'wait until that process is done, or stop it, then run the same command again'

async function lost(ports: LockPorts, folder: string): Promise<StorageError> {
  const holder = await readHolder(ports, folder)
  if (holder !== undefined) return locked(folder, { ...holder, state: 'alive' })
  return new StorageError(
    'store_locked',
    `${folder} was taken by another process at the same moment`,
    { hint: 'try again' },
  )
}

const epochPath = (folder: string, epoch: number) => joinPath(folder, `LOCK.${epoch}`)

function topEpoch(names: readonly string[]): number {
  let top = 0
  for (const name of names) {
    const match = /^LOCK\.([1-9]\d{0,14})$/.exec(name)
    if (match !== null) top = Math.max(top, Number(match[1]))
  }
  return top
}

/**
 * Removes the records of epochs more than a thousand back, and sockets that killed holders of them
 * left; and what processes have left that were killed while they wrote a record: the listener comes
 * before it, so that nobody else's is taken away.
 */
async function clearOld(
  { files, liveness }: LockPorts,
  folder: string,
  epoch: number,
): Promise<void> {
  for (const name of await files.list(folder)) {
    const unfinished = /^lock\.([0-9a-f]{16})(\.\d+)?\.new$/.exec(name)
    if (unfinished !== null) {
      const socket = joinPath(folder, `s.${unfinished[1]}`)
      if ((await liveness.probe(socket)) !== 'dead') continue
      await removeIfThere(files, joinPath(folder, name))
      await removeIfThere(files, socket)
      continue
    }
    const match = /^LOCK\.([1-9]\d{0,14})(\.free|\.note)?$/.exec(name)
    if (match === null || Number(match[1]) > epoch - keptEpochs) continue
    const record =
      match[2] === undefined ? await readRecord(files, folder, Number(match[1])) : undefined
    if (record !== undefined) await removeIfThere(files, joinPath(folder, record.socket))
    await removeIfThere(files, joinPath(folder, name))
  }
}

/** Leaves no file where it rejects: on a full disk every start would add one. */
async function writeWhole(files: Files, path: string, text: string): Promise<void> {
  const handle = await files.open(path, 'exclusive')
  try {
    try {
      await writeAll(handle, new TextEncoder().encode(text))
      await handle.datasync()
    } finally {
      await handle.close()
    }
  } catch (error) {
    // Why it could not be written says more than why it could not be removed; the next holder tries
    // that again.
    await removeIfThere(files, path).catch(() => undefined)
    throw error
  }
}

async function readRecord(
  files: Files,
  folder: string,
  epoch: number,
): Promise<LockRecord | undefined> {
  const text = await readText(files, epochPath(folder, epoch))
  if (text === undefined) return undefined
  try {
    const value: unknown = JSON.parse(text)
    if (!isRecord(value) || !/^s\.[0-9a-f]{16}$/.test(value.socket)) return undefined
    return value
  } catch {
    return undefined
  }
}

async function readNote(
  files: Files,
  folder: string,
  epoch: number,
  first: string,
): Promise<string> {
  return (await readText(files, `${epochPath(folder, epoch)}.note`)) ?? first
}

async function readText(files: Files, path: string): Promise<string | undefined> {
  try {
    return new TextDecoder().decode(await files.read(path))
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined
    throw error
  }
}

function isRecord(value: unknown): value is LockRecord {
  if (typeof value !== 'object' || value === null) return false
  const { boot, socket, pid, host, token, note } = value as Record<string, unknown>
  return (
    typeof pid === 'number' &&
    [boot, socket, host, token, note].every((field) => typeof field === 'string')
  )
}
