import * as z from 'zod/mini'
import type { Files, Hash } from '#ports'
import { StorageError } from '#protocol/errors'
import { ifThere, joinPath, namesIn, publishText, sizeOf } from './durable.js'
import { damaged } from './failures.js'
import { noCheck, onlyLine, singleLine } from './line.js'
import type { LogFormat } from './record-log.js'

/** Which files are the log; everything else with such a name is a leftover. */
export interface Manifest {
  readonly revision: number
  /** The last sequence number a snapshot stands for; 0 without one. */
  readonly snapshot: number
  readonly segments: readonly number[]
}

const ManifestData = z.object({
  snapshot: z.number(),
  segments: z.array(z.unknown()).check(z.minLength(1)),
})
const Format = z.object({ kind: z.string(), format: z.number(), minReader: z.number() })

export const logName = (first: number) => `log-${String(first).padStart(12, '0')}.jsonl`
export const snapshotName = (last: number) => `snap-${String(last).padStart(12, '0')}.jsonl`

export const manifestNames = ({ snapshot, segments }: Manifest) => [
  ...(snapshot === 0 ? [] : [snapshotName(snapshot)]),
  ...segments.map(logName),
]

/** `sequence` for segments, `temporary` for unfinished files. */
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

export async function readManifest(
  files: Files,
  hash: Hash,
  folder: string,
): Promise<Manifest | undefined> {
  const path = joinPath(folder, 'MANIFEST')
  const bytes = await ifThere(files.read(path))
  if (bytes === undefined) return undefined
  const line = onlyLine(hash, bytes)
  const parsed = ManifestData.safeParse(line?.data)
  if (line?.kind !== 'manifest' || !parsed.success) throw damaged(path, 0, 'not a whole MANIFEST')
  const { snapshot, segments } = parsed.data
  return { revision: line.sequence, snapshot, segments: segments.map(Number) }
}

/** Nothing of ours may be there but what a creation that a crash cut off leaves. */
export async function refuseWithoutManifest(
  files: Files,
  folder: string,
  names: readonly string[],
) {
  for (const name of names) {
    const own = ownName(name)
    if (own === undefined || own.temporary) continue
    if (own.sequence === 1 && (await sizeOf(files, joinPath(folder, name))) === 0) continue
    throw damaged(joinPath(folder, 'MANIFEST'), 0, `it is missing, but ${name} is there`)
  }
}

/**
 * A segment gets its first line only after MANIFEST names it: else an old MANIFEST was put back.
 */
export async function refuseOldManifest(
  files: Files,
  folder: string,
  { segments }: Manifest,
  names: readonly string[],
) {
  for (const name of names) {
    const first = ownName(name)?.sequence
    if (first === undefined || first <= (segments.at(-1) ?? 0)) continue
    if ((await sizeOf(files, joinPath(folder, name))) > 0)
      throw damaged(joinPath(folder, 'MANIFEST'), 0, `it is older than ${name}`)
  }
}

/** While a writer may be making the log; `undefined` without one. */
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

export async function publishManifest(
  files: Files,
  hash: Hash,
  folder: string,
  { revision, ...data }: Manifest,
  timeMs: number,
) {
  const frame = { previous: noCheck, sequence: revision, timeMs }
  const { text } = singleLine(hash, frame, { kind: 'manifest', data })
  await publishText(files, folder, 'MANIFEST', text)
}

export async function readFormat(
  files: Files,
  folder: string,
  ours: LogFormat,
  use: 'write' | 'read',
) {
  const path = joinPath(folder, 'FORMAT')
  const bytes = await ifThere(files.read(path))
  if (bytes === undefined) return undefined
  const { kind, format, minReader } = formatOf(bytes, path)
  if (kind !== ours.name) {
    throw new StorageError(
      'store_mismatch',
      `${folder} is a ${kind}, not a ${ours.name}`,
      'check the folder that is configured',
    )
  }
  const needed = use === 'write' ? format : minReader
  if (needed > ours.version) {
    throw new StorageError(
      'store_too_new',
      `${folder} has format ${format}; this version knows format ${ours.version}`,
      { httpStatus: 503, hint: `use a version that knows ${kind} format ${needed}` },
    )
  }
  return format
}

function formatOf(bytes: Uint8Array, path: string) {
  try {
    const format = Format.parse(JSON.parse(new TextDecoder().decode(bytes)))
    // No version asks more of its readers than of itself.
    if (format.minReader <= format.format) return format
  } catch {}
  throw damaged(path, 0, 'not a FORMAT')
}

export async function publishFormat(files: Files, folder: string, ours: LogFormat) {
  const { name: kind, version: format, minReader = format } = ours
  await publishText(files, folder, 'FORMAT', `${JSON.stringify({ kind, format, minReader })}\n`)
}

/** Number and checksum of a last line. */
export interface LogEnd {
  readonly sequence: number
  readonly check: string
}

/**
 * A small file that names a record of the log: a log that was cut between two lines, or put back
 * from an older copy, is sound in itself. Missing, old or torn it refuses nothing: stores of
 * earlier versions open.
 */
export const highWaterName = 'HIGHWATER'
const highWaterKind = 'highwater'

export async function readHighWater(
  files: Files,
  hash: Hash,
  folder: string,
): Promise<LogEnd | 'unreadable' | undefined> {
  const bytes = await ifThere(files.read(joinPath(folder, highWaterName)))
  if (bytes === undefined) return undefined
  const line = onlyLine(hash, bytes)
  return line?.kind === highWaterKind
    ? { sequence: line.sequence, check: line.previous }
    : 'unreadable'
}

export async function publishHighWater(
  files: Files,
  hash: Hash,
  folder: string,
  { sequence, check: previous }: LogEnd,
  timeMs: number,
) {
  const { text } = singleLine(
    hash,
    { previous, sequence, timeMs },
    { kind: highWaterKind, data: {} },
  )
  await publishText(files, folder, highWaterName, text)
}

/** A mark of the log's own at the end (`beforeMark`) is written again by each start. */
export function lossBefore(
  mark: LogEnd | 'unreadable' | undefined,
  end: LogEnd & { readonly beforeMark: LogEnd | undefined },
) {
  if (mark === undefined || mark === 'unreadable' || mark.sequence < end.sequence) return undefined
  const lost = mark.sequence - end.sequence
  if (lost > 0)
    return `the log ends here with line ${end.sequence}, ${highWaterName} names line ${mark.sequence}; lines lost: ${lost}`
  return mark.check === end.check || end.beforeMark !== undefined
    ? undefined
    : `line ${end.sequence} is not the one that ${highWaterName} names: another log was placed here`
}
