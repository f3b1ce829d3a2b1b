/**
 * The budget that all processes of a machine share (contract §7 `budget/`): numbered state files,
 * of which the highest counts. A change is a compare-and-swap: `link()` to the next number fails
 * where somebody was quicker. No lock, so nothing that a dead process can hold. Nothing is synced:
 * losing it means learning again, and no fault of it stops a submission.
 */
import pLimit from 'p-limit'
import * as z from 'zod/mini'
import type { Clock, Files, Hash, Random } from '../../ports.js'
import { hexOf, joinPath, writeAll } from '../../storage/durable.js'
import { errorCode } from '../../storage/failures.js'
import {
  type BudgetDefaults,
  BudgetState,
  notInFuture,
  shiftTimes,
  unknownBudget,
} from './model.js'

export interface BudgetPorts {
  readonly clock: Clock
  readonly files: Files
  readonly hash: Hash
  readonly random: Random
}

/** A change that gives back the very state it was given writes nothing. `nowMs` is wall time. */
type Change<T> = (
  state: BudgetState,
  nowMs: number,
) => { readonly state: BudgetState; readonly result: T }

export interface BudgetStore {
  /** The current state; what cannot be read is unknown. */
  read(): Promise<BudgetState>
  /** Applies `change`, again where another process was quicker, until it is what counts. */
  update<T>(change: Change<T>): Promise<T>
}

/** Numbers kept below the highest, for whoever is just reading them. */
const keptNumbers = 16
/** How many changes later one can still tell that a change of its own was built upon. */
const trailLength = 64
/** A change that loses so often goes on without the others. */
const maxTries = 200
/** Temporary files that killed processes have left behind. */
const maxTemporaries = 32
/** A wall clock that moved so much against the monotonic one has been set, or is being slewed. */
const jumpMs = 5
const jumpShare = 0.0005

/** `trail`: the changes that this one is built upon, its own last. */
const Stored = z.object({
  format: z.literal(1),
  trail: z.array(z.string()),
  state: BudgetState,
})

interface Current {
  readonly number: number
  readonly trail: readonly string[]
  readonly state: BudgetState | undefined
}

interface StateFiles {
  /** The state that counts. Rejects with EAGAIN where it is gone each time. */
  current(): Promise<Current>
  /** Whether `state` became the one that counts. */
  publish(number: number, trail: readonly string[], state: BudgetState): Promise<boolean>
}

/** The numbered files of one origin. `onDamage` is called where one of them cannot be read. */
function newStateFiles(
  { files, hash, random }: Omit<BudgetPorts, 'clock'>,
  folder: string,
  onDamage: () => void,
): StateFiles {
  let isMade = false

  async function current(): Promise<Current> {
    for (let tries = 0; tries < maxTries; tries++) {
      const number = highest(await namesIn(files, folder))
      if (number === 0) return { number, trail: [], state: undefined }
      try {
        const stored = decoded(await files.read(joinPath(folder, `s.${number}`)), hash)
        if (stored === undefined) onDamage()
        return { number, trail: stored?.trail ?? [], state: stored?.state }
      } catch (error) {
        // Removed meanwhile: there are higher ones.
        if (errorCode(error) !== 'ENOENT') throw error
      }
    }
    throw Object.assign(new Error('the state is gone each time it is read'), { code: 'EAGAIN' })
  }

  async function publish(
    number: number,
    trail: readonly string[],
    state: BudgetState,
  ): Promise<boolean> {
    const id = hexOf(random.bytes(6))
    const content = encoded([...trail.slice(1 - trailLength), id], state, hash)
    if (!isMade) await files.makeDir(folder)
    isMade = true
    const temporary = joinPath(folder, `t.${id}`)
    try {
      const handle = await files.open(temporary, 'exclusive')
      try {
        await writeAll(handle, content)
      } finally {
        await handle.close()
      }
      await files.link(temporary, joinPath(folder, `s.${number}`))
    } catch (error) {
      // EEXIST: somebody was quicker. ENOENT: the temporary was taken for one that a killed process
      // left.
      if (!['EEXIST', 'ENOENT'].includes(errorCode(error) ?? '')) throw error
      isMade = errorCode(error) === 'EEXIST'
      return false
    } finally {
      await removeQuietly(files, temporary)
    }
    const names = await namesIn(files, folder)
    const top = highest(names)
    // A number far below the top had been freed: what was linked there counts for nothing unless
    // the top was built upon it.
    const counts = top === number || (await current()).trail.includes(id)
    if (counts) await prune(names, top)
    return counts
  }

  async function prune(names: readonly string[], top: number): Promise<void> {
    const old = names.filter((name) => numberOf(name) > 0 && numberOf(name) <= top - keptNumbers)
    const temporaries = names.filter((name) => name.startsWith('t.'))
    const left = temporaries.length > maxTemporaries ? temporaries : []
    for (const name of [...old, ...left]) await removeQuietly(files, joinPath(folder, name))
  }

  return { current, publish }
}

/**
 * Opens the state of one origin under `<home>/budget/`; nothing is created before the first change.
 * Never rejects for the disk. Damage starts over, and a folder that cannot be written makes this
 * process count alone; `onNote` is called once of each.
 */
export function openBudgetStore(
  ports: BudgetPorts,
  home: string,
  origin: string,
  options: {
    readonly defaults?: BudgetDefaults
    readonly onNote?: (text: string) => void
  } = {},
): BudgetStore {
  const { clock, random } = ports
  // An origin may hold characters that no file name takes.
  const folder = joinPath(joinPath(home, 'budget'), ports.hash.sha256(origin).slice(0, 16))
  const jumpedMs = newJumpDetector(clock)
  const oneAtATime = pLimit(1)
  const noted = new Set<string>()
  /** Of a process that has to count by itself. */
  let alone: BudgetState | undefined
  /** `shiftedMs` of the state at the last look. */
  let shiftedMs: number | undefined

  const note = (text: string) => {
    if (!noted.has(text)) options.onNote?.(text)
    noted.add(text)
  }
  const unknown = () => unknownBudget(clock.nowMs(), options.defaults)
  const { current, publish } = newStateFiles(ports, folder, () =>
    note('the shared rate-limit state was damaged and is rebuilt'),
  )

  async function swap<T>(change: Change<T>): Promise<T> {
    const jumped = jumpedMs()
    const known = shiftedMs
    for (let tries = 1; tries <= maxTries; tries++) {
      const { number, trail, state: found = unknown() } = await current()
      const nowMs = clock.nowMs()
      // Whichever process sees a jump first moves what all of them share; the sum tells the others
      // what has been moved already.
      const leftMs =
        jumped === undefined || known === undefined ? 0 : jumped - (found.shiftedMs - known)
      const moved = Math.abs(leftMs) > jumpMs ? shiftTimes(found, leftMs, nowMs) : found
      const { state, result } = change(notInFuture(moved, nowMs), nowMs)
      if (state === found || (await publish(number + 1, trail, state))) {
        if (jumped !== undefined) shiftedMs = state.shiftedMs
        return result
      }
      await clock.sleep(tries * (1 + (random.bytes(1)[0] ?? 0) / 64))
    }
    throw Object.assign(new Error('others were quicker each time'), { code: 'EAGAIN' })
  }

  /** Without the shared state this process still keeps to the budget by itself. */
  function goAlone(error: unknown): BudgetState {
    const code = errorCode(error)
    if (code === undefined) throw error
    note(
      `the shared rate-limit state cannot be written (${code}); other processes of this machine are not counted`,
    )
    alone ??= unknown()
    return alone
  }

  return {
    async read() {
      try {
        return alone ?? (await current()).state ?? unknown()
      } catch (error) {
        return goAlone(error)
      }
    },
    update: (change) =>
      oneAtATime(async () => {
        try {
          if (alone === undefined) return await swap(change)
        } catch (error) {
          goAlone(error)
        }
        const { state, result } = change(alone ?? unknown(), clock.nowMs())
        alone = state
        return result
      }),
  }
}

/**
 * By how much the wall clock, which the processes share, was set since the last look. `undefined`
 * where the process was held up between reading the two clocks.
 */
function newJumpDetector(clock: Clock): () => number | undefined {
  let last = { wallMs: clock.nowMs(), monotonicMs: clock.monotonicMs() }
  return () => {
    const beforeMs = clock.monotonicMs()
    const now = { wallMs: clock.nowMs(), monotonicMs: clock.monotonicMs() }
    if (now.monotonicMs - beforeMs > jumpMs / 2) return undefined
    const elapsedMs = now.monotonicMs - last.monotonicMs
    const deltaMs = now.wallMs - last.wallMs - elapsedMs
    last = now
    return Math.abs(deltaMs) > jumpMs + elapsedMs * jumpShare ? deltaMs : 0
  }
}

async function namesIn(files: Files, folder: string): Promise<readonly string[]> {
  try {
    return await files.list(folder)
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return []
    throw error
  }
}

const numberOf = (name: string): number =>
  /^s\.[1-9]\d{0,14}$/.test(name) ? Number(name.slice(2)) : 0

const highest = (names: readonly string[]): number =>
  names.reduce((top, name) => Math.max(top, numberOf(name)), 0)

/** What is gone already does no harm, nor does a file too many. */
const removeQuietly = (files: Files, path: string): Promise<void> =>
  files.remove(path).catch(() => undefined)

/** One line of JSON and one of its SHA-256: what a power cut left of it is told from the whole. */
function encoded(trail: readonly string[], state: BudgetState, hash: Hash): Uint8Array {
  const line = JSON.stringify({ format: 1, trail, state })
  return new TextEncoder().encode(`${line}\n${hash.sha256(line)}\n`)
}

function decoded(bytes: Uint8Array, hash: Hash): z.infer<typeof Stored> | undefined {
  const [line = '', sum] = new TextDecoder().decode(bytes).split('\n')
  if (sum === undefined || sum !== hash.sha256(line)) return undefined
  try {
    return Stored.safeParse(JSON.parse(line)).data
  } catch {
    // Its sum is right and it is no JSON: not of our writing, and no reason to stop.
    return undefined
  }
}
