import pLimit from 'p-limit'
import type { Files, Hash } from '../../ports.js'
import { joinPath } from '../../storage/durable.js'
import { errorCode } from '../../storage/failures.js'
import { openLogReader } from '../../storage/reader.js'
import { type Fold, type JournalView, newFold } from './fold.js'
import { isJournalKind, type JournalRecord, readRecord, withoutReceiptBytes } from './records.js'

export const journalLog = {
  format: { name: 'journal', version: 1 },
  knownKinds: isJournalKind,
} as const

interface Ports {
  readonly files: Files
  readonly hash: Hash
}

type Run = readonly JournalRecord[]

/** Many small files: their reads overlap, within bounds (R17). */
const runsAtOnce = 16

/** Tokens of all runs, sorted. */
export async function listRuns(files: Files, folder: string): Promise<string[]> {
  try {
    return (await files.list(folder)).filter((name) => /^[0-9a-f]{12}$/.test(name)).sort()
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return []
    throw error
  }
}

/**
 * `hold` makes of each record what stays in memory. A run that is being written is read up to its
 * last
 * whole line.
 */
export async function readRun(
  ports: Ports,
  folder: string,
  hold: <T extends JournalRecord>(record: T) => T = (same) => same,
): Promise<Run> {
  const reader = await openLogReader(ports, folder, journalLog)
  try {
    const records: JournalRecord[] = []
    await reader.replay(({ kind, data, timeMs, sequence }) => {
      const record = readRecord(kind, data, timeMs, `${folder}, record ${sequence}`)
      if (record !== undefined) records.push(hold(record))
    })
    return records
  } finally {
    await reader.close()
  }
}

/** Reads all runs but one, and those only where their files have changed since. */
export function createRunReader(
  ports: Ports,
  folder: string,
): (token: string) => Promise<readonly Run[]> {
  const known = new Map<string, { readonly stamp: string; readonly records: Run }>()
  const atOnce = pLimit(runsAtOnce)
  async function read(name: string): Promise<Run> {
    const path = joinPath(folder, name)
    // The stamp is taken before reading: what is written in between shows in the next one.
    const stamp = await stampOf(ports.files, path)
    const seen = known.get(name)
    if (seen?.stamp === stamp) return seen.records
    const records = await readRun(ports, path, withoutReceiptBytes)
    known.set(name, { stamp, records })
    return records
  }
  return async (token) => {
    const names = await listRuns(ports.files, folder)
    return atOnce.map(
      names.filter((name) => name !== token),
      read,
    )
  }
}

/** Names and sizes: logs only grow, and a rewritten one has another name. */
async function stampOf(files: Files, path: string): Promise<string> {
  const sizes: string[] = []
  for (const name of (await files.list(path)).sort()) {
    if (!/^(log|snap)-\d+\.jsonl$/.test(name)) continue
    const handle = await files.open(joinPath(path, name), 'read')
    try {
      sizes.push(`${name}:${await handle.size()}`)
    } finally {
      await handle.close()
    }
  }
  return sizes.join(' ')
}

/** Views of a journal that grows under one process. */
export function createViews(): (others: readonly Run[], own: Run) => JournalView {
  let folded: { readonly others: readonly Run[]; readonly fold: Fold; own: number } | undefined
  return (others, own) => {
    const isSame =
      folded?.others.length === others.length &&
      folded.others.every((each, index) => each === others[index])
    if (folded === undefined || !isSame) {
      folded = { others, fold: newFold(), own: 0 }
      for (const record of others.flat()) folded.fold.add(record)
    }
    for (const record of own.slice(folded.own)) folded.fold.add(record)
    folded.own = own.length
    return folded.fold.view()
  }
}
