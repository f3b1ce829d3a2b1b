import type { Clock, FileHandle, Files, Liveness, Random } from '#ports'

export function seeded(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

export const seededRandom = (seed: number): Random & { next(): number } => {
  const next = seeded(seed)
  const bytes = (length: number) => Uint8Array.from({ length }, () => Math.floor(next() * 256))
  return {
    next,
    bytes,
    uuid: () => {
      const hex = [...bytes(16)].map((byte) => byte.toString(16).padStart(2, '0')).join('')
      return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`
    },
  }
}

export type Dice = ReturnType<typeof diceOf>
export function diceOf(next: () => number) {
  const below = (count: number) => Math.floor(next() * count)
  return {
    next,
    below,
    chance: (part: number) => next() < part,
    pick<T>(list: readonly T[]): T {
      const found = list[below(list.length)]
      if (found === undefined) throw new Error('nothing to pick from')
      return found
    },
    shuffled<T>(list: readonly T[]): T[] {
      const rest = [...list]
      return list.flatMap(() => rest.splice(below(rest.length), 1))
    },
  }
}

export type Verb =
  | 'open'
  | 'write'
  | 'read'
  | 'datasync'
  | 'truncate'
  | 'size'
  | 'close'
  | 'readFile'
  | 'rename'
  | 'link'
  | 'remove'
  | 'makeDir'
  | 'syncDir'
  | 'list'
  | 'exists'

/**
 * What happens at the `nth` (from 1) call of `verb` on a path that matches: an error with that code
 * (`ENOSPC` on write after half of the bytes), a short count, or the end of the process before or
 * after the call took effect. `always`: at every later call too.
 */
export interface Fault {
  readonly verb: Verb | 'any'
  readonly nth: number
  readonly path?: RegExp
  readonly does:
    | 'EIO'
    | 'EROFS'
    | 'ENOSPC'
    | 'EDQUOT'
    | 'EFBIG'
    | 'EMFILE'
    | 'short'
    | 'nothing-written'
    | 'kill-before'
    | 'kill-after'
  readonly always?: boolean
}

interface Inode {
  cache: Uint8Array
  disk: Uint8Array
  readonly dirty: Set<number>
  /** Blocks a failed sync left looking clean although the disk never got them. */
  readonly lost: Set<number>
  readonly entries: Map<string, Inode> | undefined
  durableEntries: Map<string, Inode>
  changes: ((entries: Map<string, Inode>) => void)[]
}

const blockBytes = 512

const newInode = (folder: boolean): Inode => ({
  cache: new Uint8Array(0),
  disk: new Uint8Array(0),
  dirty: new Set(),
  lost: new Set(),
  entries: folder ? new Map() : undefined,
  durableEntries: new Map(),
  changes: [],
})

const failure = (code: string, what: string) =>
  Object.assign(new Error(`${code}: ${what}`), { code })

const forever = <T>() => new Promise<T>(() => undefined)

/**
 * A disk in memory that keeps durable and pending state apart (robustness §8). `process()` gives
 * the `Files` of a new process; `kill()` ends the current ones as SIGKILL does (pending state
 * stays), `crash(seed)` as a power cut does: of every 512-byte block written since its sync it
 * leaves the old, the new, zeros or garbage (never harming bytes that were durable), and of every
 * unsynced change of a folder it keeps or loses each. A failed `datasync` leaves its blocks looking
 * clean, as Linux does, without ever writing them.
 */
export class SimFiles {
  faults: Fault[] = []
  readonly counts = new Map<string, number>()
  readonly trace: string[] = []
  isTraced = true
  capacityBytes = Number.POSITIVE_INFINITY
  private root = newInode(true)
  private generation = 0
  private onDeath: (() => void)[] = []

  resetCounts(): void {
    this.counts.clear()
    this.trace.length = 0
  }

  death(): Promise<void> {
    return new Promise((resolve) => this.onDeath.push(resolve))
  }

  kill(): void {
    this.generation++
    const waiting = this.onDeath
    this.onDeath = []
    for (const each of waiting) each()
  }

  crash(seed: number): void {
    this.kill()
    const random = seeded(seed)
    const seen = new Set<Inode>()
    const settle = (inode: Inode): void => {
      if (seen.has(inode)) return
      seen.add(inode)
      if (inode.entries === undefined) {
        settleContent(inode, random)
        return
      }
      const mood = random()
      const entries = new Map(inode.durableEntries)
      for (const change of inode.changes)
        if (mood < 0.25 || (mood < 0.75 && random() < 0.5)) change(entries)
      inode.entries.clear()
      for (const [name, child] of entries) inode.entries.set(name, child)
      inode.durableEntries = entries
      inode.changes = []
      for (const child of entries.values()) settle(child)
    }
    settle(this.root)
  }

  contents(): Map<string, Uint8Array> {
    const all = new Map<string, Uint8Array>()
    const visit = (inode: Inode, path: string): void => {
      if (inode.entries === undefined) all.set(path, inode.cache.slice())
      else for (const [name, child] of inode.entries) visit(child, `${path}/${name}`)
    }
    visit(this.root, '')
    return all
  }

  holdsDurably(text: string): boolean {
    return this.durableFiles().some((bytes) => bytes.includes(text))
  }

  durableLines(marker: string): string[] {
    return this.durableFiles().flatMap((bytes) =>
      bytes.includes(marker)
        ? bytes
            .toString('latin1')
            .split('\n')
            .filter((line) => line.includes(marker))
        : [],
    )
  }

  private durableFiles(): Buffer[] {
    const files: Buffer[] = []
    const visit = ({ entries, durableEntries, disk }: Inode): void => {
      if (entries === undefined) files.push(Buffer.from(disk.buffer, disk.byteOffset, disk.length))
      else for (const child of durableEntries.values()) visit(child)
    }
    visit(this.root)
    return files
  }

  put(path: string, bytes: Uint8Array): void {
    let folder = this.root
    const names = path.split('/').filter((name) => name !== '')
    for (const name of names.slice(0, -1)) {
      const child = folder.entries?.get(name) ?? newInode(true)
      folder.entries?.set(name, child)
      folder.durableEntries.set(name, child)
      folder = child
    }
    const inode = newInode(false)
    inode.cache = bytes.slice()
    inode.disk = bytes.slice()
    const name = names.at(-1) ?? ''
    folder.entries?.set(name, inode)
    folder.durableEntries.set(name, inode)
  }

  damage(path: string, change: (bytes: Uint8Array) => void): void {
    let inode = this.root
    for (const name of path.split('/').filter((each) => each !== ''))
      inode = inode.entries?.get(name) ?? newInode(false)
    change(inode.cache)
  }

  static of(contents: ReadonlyMap<string, Uint8Array>): SimFiles {
    const sim = new SimFiles()
    for (const [path, bytes] of contents) sim.put(path, bytes)
    return sim
  }

  process(): Files {
    const mine = this.generation
    const alive = () => this.generation === mine

    const call = async <T>(
      verb: Verb,
      path: string,
      effect: (partial: Fault['does'] | undefined) => T,
      onError?: () => void,
    ): Promise<T> => {
      await undefined
      if (!alive()) return forever()
      const fault = this.fault(verb, path)
      const does = fault?.does
      if (this.isTraced)
        this.trace.push(does === undefined ? `${verb} ${path}` : `${verb} ${path} -> ${does}`)
      if (does === 'kill-before') {
        this.kill()
        return forever()
      }
      const partial =
        verb === 'write' &&
        (does === 'short' || does === 'ENOSPC' || does === 'EDQUOT' || does === 'EFBIG')
      if (
        does !== undefined &&
        does !== 'kill-after' &&
        !partial &&
        does !== 'short' &&
        does !== 'nothing-written'
      ) {
        onError?.()
        throw failure(does, `${verb} ${path}`)
      }
      const result = effect(does)
      if (does === 'kill-after') {
        this.kill()
        return forever()
      }
      if (partial && does !== 'short') throw failure(does ?? 'ENOSPC', `${verb} ${path}`)
      await undefined
      return alive() ? result : forever()
    }

    const find = (path: string): Inode => {
      let inode = this.root
      for (const name of path.split('/')) {
        if (name === '' || name === '.') continue
        const child = inode.entries?.get(name)
        if (child === undefined) throw failure('ENOENT', path)
        inode = child
      }
      return inode
    }
    const place = (path: string): { folder: Inode; entries: Map<string, Inode>; name: string } => {
      const cut = path.lastIndexOf('/')
      const folder = find(path.slice(0, Math.max(cut, 0)))
      if (folder.entries === undefined) throw failure('ENOTDIR', path)
      return { folder, entries: folder.entries, name: path.slice(cut + 1) }
    }
    const change = (folder: Inode, apply: (entries: Map<string, Inode>) => void): void => {
      if (folder.entries !== undefined) apply(folder.entries)
      folder.changes.push(apply)
    }

    const handleOf = (path: string, inode: Inode, writable: boolean): FileHandle => {
      let closed = false
      const checkOpen = () => {
        if (closed) throw failure('EBADF', path)
      }
      return {
        write: (buffer, offset, length) =>
          call('write', path, (does) => {
            checkOpen()
            if (!writable) throw failure('EBADF', path)
            if (does === 'nothing-written') return 0
            const wanted =
              does === undefined || does === 'kill-after' ? length : Math.floor(length / 2)
            const taken = Math.min(wanted, Math.max(0, this.capacityBytes - this.usedBytes()))
            if (taken === 0 && length > 0 && does === undefined) throw failure('ENOSPC', path)
            append(inode, buffer.subarray(offset, offset + taken))
            return taken
          }),
        read: (position, length) =>
          call('read', path, () => {
            checkOpen()
            return inode.cache.slice(position, position + length)
          }),
        datasync: () =>
          call(
            'datasync',
            path,
            () => {
              checkOpen()
              syncContent(inode)
            },
            () => {
              for (const block of inode.dirty) inode.lost.add(block)
              inode.dirty.clear()
            },
          ),
        truncate: (length) =>
          call('truncate', path, () => {
            checkOpen()
            const next = new Uint8Array(length)
            next.set(inode.cache.subarray(0, length))
            inode.cache = next
          }),
        size: () => call('size', path, () => inode.cache.length),
        close: () =>
          call('close', path, () => {
            closed = true
          }),
      }
    }

    return {
      open: (path, mode) =>
        call('open', path, () => {
          const { folder, entries, name } = place(path)
          let inode = entries.get(name)
          if (mode === 'exclusive' && inode !== undefined) throw failure('EEXIST', path)
          if (mode === 'read' && inode === undefined) throw failure('ENOENT', path)
          if (inode === undefined) {
            const made = newInode(false)
            inode = made
            change(folder, (each) => each.set(name, made))
          }
          return handleOf(path, inode, mode !== 'read')
        }),
      read: (path) => call('readFile', path, () => find(path).cache.slice()),
      rename: (from, to) =>
        call('rename', `${from} ${to}`, () => {
          const source = place(from)
          const target = place(to)
          const inode = source.entries.get(source.name)
          if (inode === undefined) throw failure('ENOENT', from)
          if (source.folder !== target.folder) throw failure('EXDEV', to)
          change(source.folder, (each) => {
            if (each.get(source.name) === inode) each.delete(source.name)
            each.set(target.name, inode)
          })
        }),
      link: (from, to) =>
        call('link', `${from} ${to}`, () => {
          const inode = find(from)
          const { folder, entries, name } = place(to)
          if (entries.has(name)) throw failure('EEXIST', to)
          change(folder, (each) => each.set(name, inode))
        }),
      remove: (path) =>
        call('remove', path, () => {
          const { folder, entries, name } = place(path)
          const inode = entries.get(name)
          if (inode === undefined) throw failure('ENOENT', path)
          change(folder, (each) => {
            if (each.get(name) === inode) each.delete(name)
          })
        }),
      makeDir: (path) =>
        call('makeDir', path, () => {
          let folder = this.root
          for (const name of path.split('/')) {
            if (name === '' || name === '.') continue
            const known = folder.entries?.get(name)
            const child = known ?? newInode(true)
            if (known === undefined) change(folder, (each) => each.set(name, child))
            folder = child
          }
        }),
      syncDir: (path) =>
        call('syncDir', path, () => {
          const folder = find(path)
          folder.durableEntries = new Map(folder.entries)
          folder.changes = []
        }),
      list: (path) =>
        call('list', path, () => {
          const { entries } = find(path)
          if (entries === undefined) throw failure('ENOTDIR', path)
          return [...entries.keys()]
        }),
      exists: (path) =>
        call('exists', path, () => {
          try {
            find(path)
            return true
          } catch {
            return false
          }
        }),
    }
  }

  private fault(verb: Verb, path: string): Fault | undefined {
    this.counts.set(verb, (this.counts.get(verb) ?? 0) + 1)
    this.counts.set('any', (this.counts.get('any') ?? 0) + 1)
    if (this.faults.length === 0) return undefined
    const reached = new Set<Fault>()
    for (const fault of this.faults) {
      if (fault.verb !== 'any' && fault.verb !== verb) continue
      if (fault.path !== undefined && !fault.path.test(path)) continue
      const key = `${this.faults.indexOf(fault)} ${fault.verb} ${fault.path?.source ?? ''} ${fault.nth}`
      const count = (this.counts.get(key) ?? 0) + 1
      this.counts.set(key, count)
      if (count === fault.nth || (fault.always === true && count > fault.nth)) reached.add(fault)
    }
    return [...reached][0]
  }

  private usedBytes(): number {
    if (this.capacityBytes === Number.POSITIVE_INFINITY) return 0
    let total = 0
    const seen = new Set<Inode>()
    const visit = (inode: Inode): void => {
      if (seen.has(inode)) return
      seen.add(inode)
      total += inode.cache.length
      for (const child of inode.entries?.values() ?? []) visit(child)
    }
    visit(this.root)
    return total
  }
}

function append(inode: Inode, bytes: Uint8Array): void {
  const from = inode.cache.length
  const next = new Uint8Array(from + bytes.length)
  next.set(inode.cache)
  next.set(bytes, from)
  inode.cache = next
  for (let block = Math.floor(from / blockBytes); block * blockBytes < next.length; block++) {
    inode.dirty.add(block)
    inode.lost.delete(block)
  }
}

function syncContent(inode: Inode): void {
  const next = new Uint8Array(inode.cache.length)
  next.set(inode.cache)
  for (const block of inode.lost) {
    const from = block * blockBytes
    const to = Math.min(from + blockBytes, next.length)
    if (from >= to) continue
    next.fill(0, from, to)
    next.set(inode.disk.subarray(from, Math.max(from, Math.min(to, inode.disk.length))), from)
  }
  inode.disk = next
  inode.dirty.clear()
}

function settleContent(inode: Inode, random: () => number): void {
  const { cache, disk } = inode
  const pending = [...inode.dirty, ...inode.lost].filter(
    (block) => block * blockBytes < Math.max(cache.length, disk.length),
  )
  if (pending.length === 0 && cache.length === disk.length) return
  const mood = random()
  let length = cache.length
  if (mood < 0.2) length = disk.length
  else if (mood < 0.6)
    length =
      Math.min(cache.length, disk.length) +
      Math.floor(random() * (Math.abs(cache.length - disk.length) + 1))
  const next = new Uint8Array(length)
  next.set(disk.subarray(0, length))
  for (const block of inode.dirty) {
    const from = block * blockBytes
    const to = Math.min(from + blockBytes, length)
    if (from >= to) continue
    const fate = mood > 0.85 ? 1 : random() * 4
    // A sector is written whole or not: bytes that were durable in it stay as they were, or as the
    // new block has them.
    const fresh = Math.max(from, Math.min(to, disk.length))
    if (fate < 2) next.set(cache.subarray(from, to), from)
    else if (fate >= 3)
      for (let index = fresh; index < to; index++) next[index] = Math.floor(random() * 256)
  }
  inode.cache = next
  inode.disk = next.slice()
  inode.dirty.clear()
  inode.lost.clear()
}

export class SimHost {
  bootId = 'boot-1'
  private readonly sockets = new Map<string, { pid: number; listening: boolean }>()

  liveness(pid: number): Liveness {
    const host = this
    return {
      get bootId() {
        return host.bootId
      },
      host: 'sim',
      pid,
      async listen(path) {
        await undefined
        if (host.sockets.has(path)) throw failure('EADDRINUSE', path)
        const socket = { pid, listening: true }
        host.sockets.set(path, socket)
        return {
          async close() {
            host.sockets.delete(path)
          },
        }
      },
      async probe(path) {
        await undefined
        return host.sockets.get(path)?.listening === true ? 'alive' : 'dead'
      },
    }
  }

  kill(pid: number): void {
    for (const socket of this.sockets.values()) if (socket.pid === pid) socket.listening = false
  }

  reboot(): void {
    this.bootId = `boot-${Number(this.bootId.slice(5)) + 1}`
    for (const socket of this.sockets.values()) socket.listening = false
  }
}

export class SimClock implements Clock {
  private timeMs = 1_755_000_000_000
  private sleepers: { atMs: number; wake: () => void }[] = []

  nowMs(): number {
    return this.timeMs
  }

  monotonicMs(): number {
    return this.timeMs
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted === true) return Promise.reject(signal.reason)
    if (ms <= 0) return Promise.resolve()
    return new Promise((resolve, reject) => {
      const sleeper = { atMs: this.timeMs + ms, wake: resolve }
      this.sleepers.push(sleeper)
      signal?.addEventListener('abort', () => {
        this.sleepers = this.sleepers.filter((each) => each !== sleeper)
        reject(signal.reason)
      })
    })
  }

  get sleeping(): number {
    return this.sleepers.length
  }

  advance(ms: number): void {
    this.timeMs += ms
    const due = this.sleepers.filter((each) => each.atMs <= this.timeMs)
    this.sleepers = this.sleepers.filter((each) => each.atMs > this.timeMs)
    for (const each of due) each.wake()
  }
}

export const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
