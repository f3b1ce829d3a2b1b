/**
 * Cuts a damaged log back to its sound part, by an operator's explicit word only (robustness §2):
 * what does not count any more is saved aside first, and the log ends with a record that says so. A
 * crash in between leaves a log that is refused as before and can be repaired again.
 */
import type { Clock, Files, Hash } from '../ports.js'
import { copyRange, joinPath, publishFile, putInForce, writeAll } from './durable.js'
import { damaged, errorCode } from './failures.js'
import { forgetHighWater } from './high-water.js'
import { type Damage, type Inspection, type InspectOptions, soundRecords } from './inspect.js'
import { decodeLine, encodeData, encodeLine } from './line.js'
import { logName, type Manifest, manifestNames, namesIn, publishManifest } from './manifest.js'
import type { NewRecord } from './record-log.js'
import { writeSnapshot } from './snapshot.js'
import { internalKinds, type LogFile } from './walk.js'

export interface RepairPorts {
  readonly files: Files
  readonly clock: Clock
  readonly hash: Hash
}

/**
 * What is given up: records that are sound in themselves but stand behind the damage, by kind, and
 * all of it in bytes.
 */
export interface Loss {
  readonly bytes: number
  readonly files: readonly string[]
  readonly soundLines: Readonly<Record<string, number>>
}

const chunkBytes = 1024 * 1024

/**
 * What a repair would give up, with what an earlier one that was killed before its MANIFEST has set
 * aside already: MANIFEST still names those segments. Reads only.
 */
export async function lossOf(
  { files, hash }: Pick<RepairPorts, 'files' | 'hash'>,
  folder: string,
  manifest: Manifest,
  { index, offset }: Damage,
): Promise<Loss> {
  const soundLines: Record<string, number> = {}
  const lostFiles: string[] = []
  let bytes = 0
  for (const { name, from, optional } of await partsLost(files, folder, manifest, {
    index,
    offset,
  })) {
    const handle = await files.open(joinPath(folder, name), 'read').catch((error: unknown) => {
      if (errorCode(error) === 'ENOENT' && optional) return undefined
      throw error
    })
    if (handle === undefined) continue
    try {
      const size = await handle.size()
      if (size > from) lostFiles.push(name)
      bytes += size - from
      let carry: Uint8Array = new Uint8Array(0)
      for (let position = from; position < size; ) {
        const chunk = await handle.read(position, Math.min(chunkBytes, size - position))
        position += chunk.length
        const data = new Uint8Array(carry.length + chunk.length)
        data.set(carry)
        data.set(chunk, carry.length)
        let start = 0
        for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, start)) {
          const line = decodeLine(hash, data.subarray(start, end))
          if (line && !internalKinds.has(line.kind))
            soundLines[line.kind] = (soundLines[line.kind] ?? 0) + 1
          start = end + 1
        }
        // A line that never ends is no line; keeping it whole would fill the memory (R17).
        carry = data.length - start > chunkBytes ? new Uint8Array(0) : data.slice(start)
      }
    } finally {
      await handle.close()
    }
  }
  return { bytes, files: lostFiles, soundLines }
}

/** Files that go, or went in a repair that was killed, each from a byte on. */
async function partsLost(
  files: Files,
  folder: string,
  manifest: Manifest,
  { index, offset }: Pick<Damage, 'index' | 'offset'>,
) {
  const names = await namesIn(files, folder)
  const inForce = manifestNames(manifest)
  const parts: { name: string; from: number; optional: boolean }[] = []
  for (const [at, name] of inForce.entries()) {
    if (at < index) continue
    const aside = names.includes(name) ? undefined : asideOf(names, name)
    parts.push({
      name: aside ?? name,
      from: at === index && aside === undefined ? offset : 0,
      optional: true,
    })
  }
  return [
    ...cutBefore(names, inForce, index).map((name) => ({ name, from: 0, optional: false })),
    ...parts,
  ]
}

/** Under which name a file was set aside; the latest, where that happened more than once. */
function asideOf(names: readonly string[], name: string): string | undefined {
  const numbered = names.flatMap((one) => {
    if (one === `lost-${name}`) return [{ one, n: 1 }]
    const n = one.startsWith(`lost-${name}.`)
      ? Number(one.slice(`lost-${name}.`.length))
      : Number.NaN
    return Number.isInteger(n) ? [{ one, n }] : []
  })
  return numbered.sort((a, b) => b.n - a.n)[0]?.one
}

/**
 * The tail of the file before the damage, where a killed repair has saved and cut it: the damage
 * that is found now is then the absence of the segment behind it, which that repair has set aside.
 */
function cutBefore(
  names: readonly string[],
  inForce: readonly string[],
  index: number,
): readonly string[] {
  const [before, missing] = [inForce[index - 1], inForce[index]]
  if (
    before === undefined ||
    missing === undefined ||
    names.includes(missing) ||
    asideOf(names, missing) === undefined
  )
    return []
  const tails = names.flatMap((name) => {
    const [, from, rest, n = '1'] = /^lost-(\d+)-(.+?\.jsonl)(?:\.(\d+))?$/.exec(name) ?? []
    return rest === before ? [{ name, from: Number(from), n: Number(n) }] : []
  })
  // Tries that were killed earlier may have saved the same tail again.
  return tails
    .sort((a, b) => b.from - a.from || b.n - a.n)
    .slice(0, 1)
    .map(({ name }) => name)
}

/**
 * Cuts the log at the damage and forgets the high-water mark, which comes last: until then a repair
 * that was killed is refused. `said` makes the record that ends it, told where the rest was saved.
 * The caller holds the folder's lock. Rejects with `store_damaged` where nothing sound would be
 * left, and with what the disk refuses.
 */
export async function repairLog(
  ports: RepairPorts,
  folder: string,
  { manifest, damage }: Pick<Inspection, 'manifest' | 'damage'>,
  options: InspectOptions,
  said: (saved: readonly string[]) => NewRecord,
): Promise<readonly string[]> {
  if (manifest === undefined || damage === undefined) return []
  const saved = await cutLog(ports, folder, { manifest, damage }, options, said)
  await forgetHighWater(ports.files, folder)
  return saved
}

async function cutLog(
  ports: RepairPorts,
  folder: string,
  { manifest, damage }: { readonly manifest: Manifest; readonly damage: Damage },
  options: InspectOptions,
  said: (saved: readonly string[]) => NewRecord,
): Promise<readonly string[]> {
  const { files } = ports
  const names = manifestNames(manifest)
  const isSnapshot = (index: number) => manifest.snapshot !== 0 && index === 0
  // A file that is missing, or does not follow on, goes whole; the one before it is the last.
  const goesWhole = damage.offset === 0 && !isSnapshot(damage.index) && damage.index > 0
  const last = goesWhole ? damage.index - 1 : damage.index
  if (damage.end.sequence === 0)
    throw damaged(
      joinPath(folder, damage.file),
      0,
      'nothing before it is sound, so nothing would be left',
    )

  const there = await namesIn(files, folder)
  const saved: string[] = [...cutBefore(there, names, damage.index)]
  if (!goesWhole) saved.push(await saveTail(files, folder, damage))
  for (const name of names.slice(last + 1))
    saved.push(...(await setAside(files, folder, name, there)))
  await files.syncDir(folder)

  const timeMs = Math.trunc(ports.clock.nowMs())
  const record = said(saved)
  const segmentsTo = (index: number) =>
    manifest.segments.slice(0, index + (manifest.snapshot === 0 ? 1 : 0))
  if (isSnapshot(last) && !goesWhole) {
    await cutSnapshot(ports, folder, manifest, damage, options, record, timeMs)
    await startSegment(files, folder, manifest.snapshot + 1)
    await publishManifest(
      files,
      ports.hash,
      folder,
      next(manifest, [manifest.snapshot + 1]),
      timeMs,
    )
    return saved
  }
  if (isSnapshot(last)) {
    const first = damage.end.sequence + 1
    await publishFile(files, folder, logName(first), (handle) =>
      writeAll(handle, lineOf(ports.hash, damage.end, 0, record, timeMs)),
    )
    await publishManifest(files, ports.hash, folder, next(manifest, [first]), timeMs)
    return saved
  }
  await cutSegment(
    ports,
    folder,
    names[last] ?? '',
    goesWhole ? undefined : damage.offset,
    damage,
    record,
    timeMs,
  )
  await publishManifest(files, ports.hash, folder, next(manifest, segmentsTo(last)), timeMs)
  return saved
}

const next = ({ revision, snapshot }: Manifest, segments: readonly number[]): Manifest => ({
  revision: revision + 1,
  snapshot,
  segments,
})

function lineOf(
  hash: Hash,
  { check, sequence }: Damage['end'],
  durableBytes: number,
  record: NewRecord,
  timeMs: number,
): Uint8Array {
  const head = {
    previous: check,
    sequence: sequence + 1,
    durableBytes,
    kind: record.kind,
    timeMs,
    more: 0,
  }
  return new TextEncoder().encode(encodeLine(hash, head, encodeData(record.kind, record.data)).text)
}

/**
 * The sound part and the record, in the place of the whole. `end`: where the sound part ends; all
 * of it without one.
 */
async function cutSegment(
  { files, hash }: RepairPorts,
  folder: string,
  name: string,
  end: number | undefined,
  damage: Damage,
  record: NewRecord,
  timeMs: number,
): Promise<void> {
  const source = await files.open(joinPath(folder, name), 'read')
  try {
    const keptBytes = end ?? (await source.size())
    await publishFile(files, folder, name, async (target) => {
      await copyRange(source, target, 0, keptBytes)
      await writeAll(target, lineOf(hash, damage.end, keptBytes, record, timeMs))
    })
  } finally {
    await source.close()
  }
}

/**
 * A snapshot of the sound part and the record. The segments behind the damaged one stood on what is
 * lost, so they are not followed.
 */
async function cutSnapshot(
  ports: RepairPorts,
  folder: string,
  manifest: Manifest,
  damage: Damage,
  options: InspectOptions,
  record: NewRecord,
  timeMs: number,
): Promise<void> {
  const path = joinPath(folder, damage.file)
  const file: LogFile = { index: 0, path, handle: await ports.files.open(path, 'read') }
  try {
    const kept = (async function* () {
      yield* soundRecords(ports.hash, file, damage.offset, options.knownKinds)
      yield record
    })()
    const cut = { sequence: manifest.snapshot, check: damage.end.check }
    await writeSnapshot(ports, folder, cut, kept, {
      knownKinds: options.knownKinds,
      timeMs,
      checkOpen: () => undefined,
    })
    await putInForce(ports.files, folder, damage.file)
  } finally {
    await file.handle.close()
  }
}

async function startSegment(files: Files, folder: string, first: number): Promise<void> {
  await (await files.open(joinPath(folder, logName(first)), 'append')).close()
  await files.syncDir(folder)
}

/** Copies what lies behind the sound part into a file of its own (0600). */
async function saveTail(files: Files, folder: string, { file, offset }: Damage): Promise<string> {
  const name = await freeName(files, folder, `lost-${offset}-${file}`)
  const source = await files.open(joinPath(folder, file), 'read')
  try {
    const size = await source.size()
    await publishFile(files, folder, name, (target) => copyRange(source, target, offset, size))
  } finally {
    await source.close()
  }
  return name
}

/**
 * Gives a whole file another name; where it is missing, the name that a killed repair has given it.
 */
async function setAside(
  files: Files,
  folder: string,
  name: string,
  there: readonly string[],
): Promise<string[]> {
  const aside = await freeName(files, folder, `lost-${name}`)
  try {
    await files.rename(joinPath(folder, name), joinPath(folder, aside))
    return [aside]
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return [asideOf(there, name) ?? []].flat()
    throw error
  }
}

/** What was saved before is never overwritten. */
async function freeName(files: Files, folder: string, name: string): Promise<string> {
  for (let n = 1; ; n++) {
    const free = n === 1 ? name : `${name}.${n}`
    if (!(await files.exists(joinPath(folder, free)))) return free
  }
}
