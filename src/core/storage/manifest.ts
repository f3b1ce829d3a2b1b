import type { Files, Hash } from '../ports.js'
import { StorageError } from '../protocol/errors.js'
import { joinPath, publishFile, writeAll } from './durable.js'
import { damaged, errorCode } from './failures.js'
import { decodeLine, encodeData, encodeLine, noCheck } from './line.js'
import type { LogFormat } from './record-log.js'

/** Which files are the log; everything else with such a name is a leftover. */
export interface Manifest {
  /** +1 with every change. */
  readonly revision: number
  /** The last sequence number a snapshot stands for; 0 without one. */
  readonly snapshot: number
  /** The first sequence number of each segment, ascending. */
  readonly segments: readonly number[]
}

export const logName = (first: number): string => `log-${String(first).padStart(12, '0')}.jsonl`
export const snapshotName = (last: number): string => `snap-${String(last).padStart(12, '0')}.jsonl`

/** Names in force under a manifest, in order of reading. */
export const manifestNames = (manifest: Manifest): string[] => [
  ...(manifest.snapshot === 0 ? [] : [snapshotName(manifest.snapshot)]),
  ...manifest.segments.map(logName),
]

/**
 * A name the log may have given to a file of its own; `sequence` for segments, `temporary` for
 * unfinished files.
 */
export function ownName(
  name: string,
): { readonly sequence: number | undefined; readonly temporary: boolean } | undefined {
  const match =
    /^(?:(log)-(\d{12,15})\.jsonl|snap-\d{12,15}\.jsonl|torn-[\d-]+|FORMAT|MANIFEST|HIGHWATER|probe)(\.tmp)?$/.exec(
      name,
    )
  if (match === null) return undefined
  const temporary = match[3] !== undefined
  if (!temporary && !name.endsWith('.jsonl')) return undefined
  return { sequence: match[1] === 'log' && !temporary ? Number(match[2]) : undefined, temporary }
}

/** `undefined` without one; `store_damaged` when it is not whole. */
export async function readManifest(
  files: Files,
  hash: Hash,
  folder: string,
): Promise<Manifest | undefined> {
  const path = joinPath(folder, 'MANIFEST')
  const bytes = await readIfThere(files, path)
  if (bytes === undefined) return undefined
  const line = bytes.at(-1) === 10 ? decodeLine(hash, bytes.subarray(0, -1)) : undefined
  const { snapshot, segments } = (line?.data ?? {}) as { snapshot?: unknown; segments?: unknown }
  if (
    line?.kind !== 'manifest' ||
    typeof snapshot !== 'number' ||
    !Array.isArray(segments) ||
    segments.length === 0
  )
    throw damaged(path, 0, 'not a whole MANIFEST')
  return { revision: line.sequence, snapshot, segments: segments.map(Number) }
}

/**
 * Whether a folder without MANIFEST may be taken for a new log: nothing of ours is in it but what a
 * creation that a crash cut off leaves. Throws `store_damaged` naming what is there.
 */
export async function refuseWithoutManifest(
  files: Files,
  folder: string,
  names: readonly string[],
): Promise<void> {
  for (const name of names) {
    const own = ownName(name)
    if (own === undefined || own.temporary) continue
    if (own.sequence === 1 && (await isEmpty(files, joinPath(folder, name)))) continue
    throw damaged(joinPath(folder, 'MANIFEST'), 0, `it is missing, but ${name} is there`)
  }
}

async function isEmpty(files: Files, path: string): Promise<boolean> {
  const handle = await files.open(path, 'read')
  try {
    return (await handle.size()) === 0
  } finally {
    await handle.close()
  }
}

/**
 * MANIFEST as a reader takes it, who may look while a writer makes the log: `undefined` for a
 * folder that is missing or holds no log yet. Throws `store_damaged` where a writer would: MANIFEST
 * missing beside files of a log, or FORMAT missing beside MANIFEST.
 */
export async function readManifestToLook(
  files: Files,
  hash: Hash,
  folder: string,
): Promise<Manifest | undefined> {
  for (let attempt = 1; ; attempt++) {
    const manifest = await readManifest(files, hash, folder)
    if (manifest !== undefined) {
      // It is made before MANIFEST, so it is there by now.
      if (!(await files.exists(joinPath(folder, 'FORMAT'))))
        throw damaged(joinPath(folder, 'FORMAT'), 0, 'it is missing')
      return manifest
    }
    try {
      await refuseWithoutManifest(files, folder, await namesIn(files, folder))
      return undefined
    } catch (error) {
      // A writer may have made the log between the two looks: then MANIFEST is there now.
      if (attempt > 1) throw error
    }
  }
}

/** What is in a folder; nothing where it is missing. */
export async function namesIn(files: Files, folder: string): Promise<readonly string[]> {
  try {
    return await files.list(folder)
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return []
    throw error
  }
}

/** Puts a manifest in force; durable on return. */
export async function publishManifest(
  files: Files,
  hash: Hash,
  folder: string,
  manifest: Manifest,
  timeMs: number,
): Promise<void> {
  const head = {
    previous: noCheck,
    sequence: manifest.revision,
    durableBytes: 0,
    kind: 'manifest',
    timeMs,
    more: 0,
  }
  const data = encodeData('manifest', { snapshot: manifest.snapshot, segments: manifest.segments })
  const bytes = new TextEncoder().encode(encodeLine(hash, head, data).text)
  await publishFile(files, folder, 'MANIFEST', (handle) => writeAll(handle, bytes))
}

/**
 * The version on disk, or `undefined` without a FORMAT. Refuses with `store_too_new` what a later
 * version wrote (as a reader: when even reading needs a later one), `store_mismatch` for the other
 * kind of folder, `store_damaged` otherwise.
 */
export async function readFormat(
  files: Files,
  folder: string,
  ours: LogFormat,
  use: 'write' | 'read',
): Promise<number | undefined> {
  const path = joinPath(folder, 'FORMAT')
  const bytes = await readIfThere(files, path)
  if (bytes === undefined) return undefined
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder().decode(bytes))
  } catch {
    throw damaged(path, 0, 'not a FORMAT')
  }
  const { kind, format, minReader } = (value ?? {}) as Record<string, unknown>
  if (typeof kind !== 'string' || typeof format !== 'number' || typeof minReader !== 'number')
    throw damaged(path, 0, 'not a FORMAT')
  // No version asks more of its readers than of itself: one of the two numbers is not what was
  // written.
  if (minReader > format) throw damaged(path, 0, 'not a FORMAT')
  if (kind !== ours.name) {
    throw new StorageError('store_mismatch', `${folder} is a ${kind}, not a ${ours.name}`, {
      hint: 'check the folder that is configured',
    })
  }
  if ((use === 'write' ? format : minReader) > ours.version) {
    throw new StorageError(
      'store_too_new',
      `${folder} has format ${format}; this version knows format ${ours.version}`,
      {
        httpStatus: 503,
        hint: `use a version that knows ${kind} format ${use === 'write' ? format : minReader}`,
      },
    )
  }
  return format
}

/** Puts our FORMAT in force; durable on return. */
export async function publishFormat(files: Files, folder: string, ours: LogFormat): Promise<void> {
  const text = JSON.stringify({
    kind: ours.name,
    format: ours.version,
    minReader: ours.minReader ?? ours.version,
  })
  await publishFile(files, folder, 'FORMAT', (handle) =>
    writeAll(handle, new TextEncoder().encode(`${text}\n`)),
  )
}

/** A file's bytes; `undefined` where it is missing. */
export async function readIfThere(files: Files, path: string): Promise<Uint8Array | undefined> {
  try {
    return await files.read(path)
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined
    throw error
  }
}
