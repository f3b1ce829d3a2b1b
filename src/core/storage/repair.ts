/**
 * Cuts a damaged log back to its sound part, by an operator's explicit word only (robustness §2).
 * What does not count any more is saved aside first, and the log ends with a record that says so. A
 * crash in between leaves a log that is refused as before and can be repaired again.
 */
import type { Files } from '../ports.js'
import {
  copyRange,
  ifThere,
  joinPath,
  namesIn,
  publishFile,
  publishText,
  putInForce,
  withFile,
  writeAll,
} from './durable.js'
import { damaged } from './failures.js'
import { forgetHighWater } from './high-water.js'
import {
  type Damage,
  type Inspection,
  type InspectOptions,
  type InspectPorts,
  soundRecords,
} from './inspect.js'
import { decodeLine, singleLine } from './line.js'
import { lengthOf, lineBatches } from './log-file.js'
import { logName, type Manifest, manifestNames, publishManifest } from './manifest.js'
import type { LogPorts, NewRecord } from './record-log.js'
import { writeSnapshot } from './snapshot.js'
import { internalKinds } from './walk.js'

/**
 * What is given up: records that are sound in themselves but stand behind the damage, by kind, and
 * all of it in bytes.
 */
export interface Loss {
  readonly bytes: number
  readonly files: readonly string[]
  readonly soundLines: Readonly<Record<string, number>>
}

/**
 * What a repair would give up, with what an earlier one that was killed before its MANIFEST has set
 * aside already. MANIFEST still names those segments. Reads only.
 */
export async function lossOf(
  { files, hash }: InspectPorts,
  folder: string,
  manifest: Manifest,
  damage: Pick<Damage, 'index' | 'offset'>,
): Promise<Loss> {
  const soundLines: Record<string, number> = {}
  const lostFiles: string[] = []
  let bytes = 0
  for (const { name, from } of partsLost(await namesIn(files, folder), manifest, damage)) {
    const path = joinPath(folder, name)
    const handle = await ifThere(files.open(path, 'read'))
    if (handle === undefined) continue
    const file = { index: 0, path, handle }
    try {
      const size = await lengthOf(file)
      if (size > from) lostFiles.push(name)
      bytes += size - from
      for await (const lines of lineBatches(file, size, from))
        for (const raw of lines) {
          const line = raw.bytes && decodeLine(hash, raw.bytes)
          if (line && !internalKinds.has(line.kind))
            soundLines[line.kind] = (soundLines[line.kind] ?? 0) + 1
        }
    } finally {
      await handle.close()
    }
  }
  return { bytes, files: lostFiles, soundLines }
}

/** Files that go, or went in a repair that was killed, each from a byte on. */
function partsLost(
  names: readonly string[],
  manifest: Manifest,
  { index, offset }: Pick<Damage, 'index' | 'offset'>,
) {
  const inForce = manifestNames(manifest)
  const lost = inForce.slice(index).map((name, at) => {
    const aside = names.includes(name) ? undefined : asideOf(names, name)
    return { name: aside ?? name, from: at === 0 && aside === undefined ? offset : 0 }
  })
  return [...cutBefore(names, inForce, index).map((name) => ({ name, from: 0 })), ...lost]
}

/** Under which name a file was set aside; the latest, where that happened more than once. */
function asideOf(names: readonly string[], name: string): string | undefined {
  const prefix = `lost-${name}`
  const numbered = names.flatMap((one) => {
    if (one === prefix) return [{ one, n: 1 }]
    const n = one.startsWith(`${prefix}.`) ? Number(one.slice(prefix.length + 1)) : Number.NaN
    return Number.isInteger(n) ? [{ one, n }] : []
  })
  return numbered.sort((a, b) => b.n - a.n)[0]?.one
}

/**
 * The tail of the file before the damage, where a killed repair has saved and cut it. The damage
 * that is found now is then the absence of the segment behind it, which that repair has set aside.
 */
function cutBefore(
  names: readonly string[],
  inForce: readonly string[],
  index: number,
): readonly string[] {
  const [before, missing] = [inForce[index - 1], inForce[index]]
  if (before === undefined || missing === undefined || names.includes(missing)) return []
  if (asideOf(names, missing) === undefined) return []
  const tails = names.flatMap((name) => {
    const [, from, rest, n = '1'] = /^lost-(\d+)-(.+?\.jsonl)(?:\.(\d+))?$/.exec(name) ?? []
    return rest === before ? [{ name, from: Number(from), n: Number(n) }] : []
  })
  // Tries that were killed earlier may have saved the same tail again.
  const [latest] = tails.sort((a, b) => b.from - a.from || b.n - a.n)
  return latest === undefined ? [] : [latest.name]
}

/**
 * Cuts the log at the damage and forgets the high-water mark, which comes last: until then a repair
 * that was killed is refused. `said` makes the record that ends it, given where the rest was saved.
 * The caller holds the folder's lock. Rejects with `store_damaged` where nothing sound would be
 * left, and with what the disk refuses.
 */
export async function repairLog(
  ports: LogPorts,
  folder: string,
  { manifest, damage }: Pick<Inspection, 'manifest' | 'damage'>,
  options: InspectOptions,
  said: (saved: readonly string[]) => NewRecord,
): Promise<readonly string[]> {
  if (manifest === undefined || damage === undefined) return []
  const saved = await cutLog(ports, folder, { manifest, damage, options }, said)
  await forgetHighWater(ports.files, folder)
  return saved
}

interface Cut {
  readonly manifest: Manifest
  readonly damage: Damage
  readonly options: InspectOptions
}

async function cutLog(
  ports: LogPorts,
  folder: string,
  cut: Cut,
  said: (saved: readonly string[]) => NewRecord,
): Promise<readonly string[]> {
  const { files, hash } = ports
  const { manifest, damage } = cut
  const names = manifestNames(manifest)
  const snapshots = manifest.snapshot === 0 ? 0 : 1
  // A file that is missing, or does not follow on, goes whole; the one before it is the last.
  const goesWhole = damage.offset === 0 && damage.index > 0
  const last = goesWhole ? damage.index - 1 : damage.index
  if (damage.end.sequence === 0) {
    const what = 'nothing before it is intact, so nothing would be left'
    throw damaged(joinPath(folder, damage.file), 0, what)
  }

  const there = await namesIn(files, folder)
  const saved: string[] = [...cutBefore(there, names, damage.index)]
  if (!goesWhole) saved.push(await saveTail(files, folder, damage))
  for (const name of names.slice(last + 1))
    saved.push(...(await setAside(files, folder, name, there)))
  await files.syncDir(folder)

  const timeMs = Math.trunc(ports.clock.nowMs())
  const record = said(saved)
  const endingLine = (durableBytes: number) => {
    const { check: previous, sequence } = damage.end
    return singleLine(hash, { previous, sequence: sequence + 1, timeMs, durableBytes }, record).text
  }
  let segments = manifest.segments.slice(0, last + 1 - snapshots)
  if (last >= snapshots) {
    const name = names[last] ?? ''
    await withFile(files, joinPath(folder, name), 'read', async (source) => {
      const keptBytes = goesWhole ? await source.size() : damage.offset
      await publishFile(files, folder, name, async (target) => {
        await copyRange(source, target, 0, keptBytes)
        await writeAll(target, new TextEncoder().encode(endingLine(keptBytes)))
      })
    })
  } else if (goesWhole) {
    segments = [damage.end.sequence + 1]
    await publishText(files, folder, logName(damage.end.sequence + 1), endingLine(0))
  } else {
    segments = [manifest.snapshot + 1]
    await cutSnapshot(ports, folder, cut, record, timeMs)
    const path = joinPath(folder, logName(manifest.snapshot + 1))
    await withFile(files, path, 'append', async () => undefined)
    await files.syncDir(folder)
  }
  const { revision, snapshot } = manifest
  await publishManifest(files, hash, folder, { revision: revision + 1, snapshot, segments }, timeMs)
  return saved
}

/**
 * A snapshot of the sound part and the record. The segments behind the damaged one stood on what is
 * lost, so they are not followed.
 */
async function cutSnapshot(
  ports: LogPorts,
  folder: string,
  { manifest, damage, options: { knownKinds } }: Cut,
  record: NewRecord,
  timeMs: number,
): Promise<void> {
  const path = joinPath(folder, damage.file)
  await withFile(ports.files, path, 'read', async (handle) => {
    const kept = (async function* () {
      yield* soundRecords(ports.hash, { index: 0, path, handle }, damage.offset, knownKinds)
      yield record
    })()
    const end = { sequence: manifest.snapshot, check: damage.end.check }
    const options = { knownKinds, timeMs, checkOpen: () => undefined }
    await writeSnapshot(ports, folder, end, kept, options)
    await putInForce(ports.files, folder, damage.file)
  })
}

/** Copies what lies behind the sound part into a file of its own (0600). */
async function saveTail(files: Files, folder: string, { file, offset }: Damage): Promise<string> {
  const name = await freeName(files, folder, `lost-${offset}-${file}`)
  await withFile(files, joinPath(folder, file), 'read', async (source) => {
    const size = await source.size()
    await publishFile(files, folder, name, (target) => copyRange(source, target, offset, size))
  })
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
  const renamed = async () => {
    await files.rename(joinPath(folder, name), joinPath(folder, aside))
    return aside
  }
  const known = (await ifThere(renamed())) ?? asideOf(there, name)
  return known === undefined ? [] : [known]
}

/** What was saved before is never overwritten. */
async function freeName(files: Files, folder: string, name: string): Promise<string> {
  for (let n = 1; ; n++) {
    const free = n === 1 ? name : `${name}.${n}`
    if (!(await files.exists(joinPath(folder, free)))) return free
  }
}
