/**
 * Damage to the files of a log, and what may come of it by robustness §2: recovered up to a whole
 * append, or refused with exit 74.
 */
import { systemHash } from '#io/clock'
import { StorageError } from '#protocol/errors'
import { inspectLog } from '#storage/reader'
import { folder, openCopy, options, recordsOf } from '../sample-store.js'
import { SimFiles } from '../sim-files.js'
import type { Edit } from './mutate.js'

export type Contents = ReadonlyMap<string, Uint8Array>

const wholeAppends = [0, 3, 7, 8, 10, 11]

const durable = 10

export interface Verdict {
  readonly found: number | undefined
}

/**
 * Opens damaged copies with each of the three readers of a log. Throws where one of them is
 * silently wrong, changes what it only reads, or disagrees with the others. `least`: records that
 * the damage cannot have touched.
 */
export async function judgeDamage(contents: Contents, least: number = durable): Promise<Verdict> {
  const written = await openCopy(contents)
  if (written instanceof StorageError) {
    if (written.meta.exitCode !== 74) throw new Error(`exit ${written.meta.exitCode}`)
    if (!written.detail.includes(folder)) throw new Error(`no file is named: ${written.detail}`)
  } else if (!isPrefix(written, least)) throw new Error(`silently wrong: ${written.join()}`)
  const found = written instanceof StorageError ? undefined : written.length

  const sim = SimFiles.of(contents)
  const read = await recordsOf(sim).catch(refusal)
  const inspected = await inspectLog(
    { files: sim.process(), hash: systemHash },
    folder,
    options,
    () => undefined,
  ).catch(refusal)
  const changes = sim.trace.filter((call) =>
    /^(write|truncate|rename|link|remove|makeDir|syncDir|datasync)/.test(call),
  )
  if (changes.length > 0) throw new Error(`R24: a reader did ${changes.join()}`)
  // A later format is not to be written to, and may still be readable (robustness §2, Versions).
  if (written instanceof StorageError && written.code === 'store_too_new') {
    if (!(read instanceof StorageError) && !isPrefix(read, least))
      throw new Error(`silently wrong: ${read.join()}`)
    return { found }
  }
  if (read instanceof StorageError ? found !== undefined : read.length !== found)
    throw new Error(
      `the reader says ${read instanceof StorageError ? read.detail : read.length}, the writer ${found ?? 'refuses'}`,
    )
  const sound =
    inspected instanceof StorageError || inspected.damage ? undefined : inspected.records
  if (sound !== found)
    throw new Error(`the inspection says ${sound ?? 'damaged'}, the writer ${found ?? 'refuses'}`)
  return { found }
}

function isPrefix(ids: readonly number[], least: number): boolean {
  return (
    ids.length >= least && wholeAppends.includes(ids.length) && ids.every((id, at) => id === at + 1)
  )
}

function refusal(error: unknown): StorageError {
  if (error instanceof StorageError) return error
  throw error
}

export function lastSegmentOf(contents: Contents): string {
  const path = [...contents.keys()]
    .filter((name) => name.includes('/log-'))
    .sort()
    .at(-1)
  if (path === undefined) throw new Error('no segment')
  return path
}

export function linesOf(bytes: Uint8Array): Uint8Array[] {
  const lines: Uint8Array[] = []
  for (let start = 0; start < bytes.length; ) {
    const end = bytes.indexOf(10, start) + 1 || bytes.length
    lines.push(bytes.slice(start, end))
    start = end
  }
  return lines
}

const joined = (parts: readonly Uint8Array[]): Uint8Array => Uint8Array.from(Buffer.concat(parts))

export function damageOne(
  contents: Map<string, Uint8Array>,
  foreign: Contents,
  [place, how, pick]: Edit,
): void {
  const paths = [...contents.keys()].sort()
  const path = paths[place % paths.length] ?? ''
  const bytes = contents.get(path) ?? new Uint8Array(0)
  const at = bytes.length === 0 ? 0 : (pick * 7 + how) % bytes.length
  const until = Math.min(bytes.length, at + 1 + (pick % 64))
  const put = (next: Uint8Array) => contents.set(path, next)
  const lines = linesOf(bytes)
  const line = pick % Math.max(1, lines.length)
  const others = [...foreign.keys()].sort()
  const other = foreign.get(others[how % others.length] ?? '') ?? new Uint8Array(0)
  const otherLines = linesOf(other)
  switch (how % 14) {
    case 0:
    case 1: {
      const next = bytes.slice()
      if (next.length > 0) next[at] = (next[at] ?? 0) ^ (1 << (place % 8))
      put(next)
      return
    }
    case 2:
      put(bytes.slice(0, at))
      return
    case 3:
      put(joined([bytes.slice(0, at), new Uint8Array(until - at), bytes.slice(until)]))
      return
    case 4:
      put(
        joined([
          bytes.slice(0, at),
          Uint8Array.from({ length: until - at }, (_, index) => (index * 31 + pick) & 255),
          bytes.slice(until),
        ]),
      )
      return
    case 5:
      put(joined([...lines.slice(0, line), ...lines.slice(line + 1)]))
      return
    case 6:
      put(joined([...lines.slice(0, line + 1), ...lines.slice(line)]))
      return
    case 7:
      put(
        joined([
          ...lines.slice(0, line),
          ...lines.slice(line + 1, line + 2),
          ...lines.slice(line, line + 1),
          ...lines.slice(line + 2),
        ]),
      )
      return
    case 8:
      put(
        joined([
          ...lines.slice(0, line),
          otherLines[pick % Math.max(1, otherLines.length)] ?? other,
          ...lines.slice(line),
        ]),
      )
      return
    case 9:
      put(joined([...lines.slice(0, line), otherLines[line] ?? other, ...lines.slice(line + 1)]))
      return
    case 10:
      contents.delete(path)
      return
    case 11: {
      const second = paths[pick % paths.length] ?? path
      const kept = contents.get(second) ?? new Uint8Array(0)
      contents.set(second, bytes)
      contents.set(path, kept)
      return
    }
    case 12:
      put(
        joined([
          bytes,
          Uint8Array.from({ length: 1 + (pick % 40) }, (_, index) =>
            pick % 2 === 0 ? 0 : (index * 17 + pick) & 255,
          ),
        ]),
      )
      return
    default:
      put(joined([bytes.slice(0, at), Uint8Array.of(pick & 255), bytes.slice(at)]))
  }
}
