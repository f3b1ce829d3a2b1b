/**
 * Reading the runs of a journal: each is a log of its own, and what all of them say is one fold
 * (robustness §2, Journal).
 */
import pLimit from 'p-limit'
import type { Files, Hash } from '../../ports.js'
import { joinPath } from '../../storage/durable.js'
import { errorCode } from '../../storage/failures.js'
import { openLogReader } from '../../storage/reader.js'
import type { LogFormat } from '../../storage/record-log.js'
import { type Authorization, type Fold, newFold, type Offer } from './authorizations.js'
import type { JournalView } from './journal.js'
import { isJournalKind, type JournalRecord, readRecord } from './records.js'

export const journalFormat: LogFormat = { name: 'journal', version: 1 }

interface Ports {
  readonly files: Files
  readonly hash: Hash
}

/** Many small files: their reads overlap, within bounds (R17). */
const runsAtOnce = 16

/** Tokens of all runs, sorted. A journal that does not exist yet has none. */
export async function listRuns(files: Files, folder: string): Promise<string[]> {
  try {
    return (await files.list(folder)).filter((name) => /^[0-9a-f]{12}$/.test(name)).sort()
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return []
    throw error
  }
}

/**
 * Every record of a run's log, checksums, chain and shape proven. A run that is being written is
 * read up to its last whole line.
 */
export async function readRun(ports: Ports, folder: string): Promise<JournalRecord[]> {
  const reader = await openLogReader(ports, folder, {
    format: journalFormat,
    knownKinds: isJournalKind,
  })
  try {
    const records: JournalRecord[] = []
    await reader.replay(({ kind, data, timeMs, sequence }) => {
      const record = readRecord(kind, data, timeMs, `${folder}, record ${sequence}`)
      if (record !== undefined) records.push(record)
    })
    return records
  } finally {
    await reader.close()
  }
}

/** Reads runs again only where their files have changed since. */
export function createRunReader(
  ports: Ports,
  folder: string,
): { others(token: string): Promise<JournalRecord[][]> } {
  const known = new Map<string, { readonly stamp: string; readonly records: JournalRecord[] }>()
  const atOnce = pLimit(runsAtOnce)
  return {
    async others(token) {
      const names = (await listRuns(ports.files, folder)).filter((name) => name !== token)
      return Promise.all(names.map((name) => atOnce(() => read(name))))
    },
  }

  async function read(name: string): Promise<JournalRecord[]> {
    const path = joinPath(folder, name)
    // The stamp is taken before reading: what is written in between shows in the next one.
    const stamp = await stampOf(ports.files, path)
    const seen = known.get(name)
    if (seen?.stamp === stamp) return seen.records
    const records = await readRun(ports, path)
    known.set(name, { stamp, records })
    return records
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

/** The fold of the records of all runs. */
export function viewOf(runs: readonly (readonly JournalRecord[])[]): JournalView {
  return createViews()(runs, [])
}

/**
 * Views of a journal that grows under one process: other runs are folded again only where one has
 * changed, own records once each, so that a batch may look after every group of signatures.
 */
export function createViews(): (
  others: readonly (readonly JournalRecord[])[],
  own: readonly JournalRecord[],
) => JournalView {
  let folded:
    | { readonly others: readonly (readonly JournalRecord[])[]; readonly fold: Fold; own: number }
    | undefined
  return (others, own) => {
    if (
      folded === undefined ||
      folded.others.length !== others.length ||
      folded.others.some((each, index) => each !== others[index])
    ) {
      folded = { others, fold: newFold(), own: 0 }
      for (const records of others) for (const record of records) folded.fold.add(record)
    }
    for (; folded.own < own.length; folded.own++) {
      const record = own[folded.own]
      if (record !== undefined) folded.fold.add(record)
    }
    return viewFrom(folded.fold)
  }
}

/**
 * Lists and indexes are made when they are first asked for: most who look ask about one question.
 */
function viewFrom(fold: Fold): JournalView {
  let authorizations: readonly Authorization[] | undefined
  let offers: readonly Offer[] | undefined
  const all = () => {
    authorizations ??= fold.authorizations()
    return authorizations
  }
  const by = (keyOf: (one: Authorization) => string | undefined) => {
    let index: Map<string, Authorization[]> | undefined
    return (key: string): readonly Authorization[] => {
      index ??= indexed(all(), keyOf)
      return index.get(key) ?? []
    }
  }
  const byId = by(({ id }) => id)
  const byCandidate = by(({ candidateId }) => candidateId?.toLowerCase())
  const byIdentity = by(({ signed }) => signed.identity)
  return {
    get authorizations() {
      return all()
    },
    get offers() {
      offers ??= fold.offers()
      return offers
    },
    find: (id) => byId(id)[0],
    byCandidate: (candidateId) => byCandidate(candidateId.toLowerCase())[0],
    byIdentity: (identity) => byIdentity(identity)[0],
    byQuestion: (questionId) => fold.byQuestion(questionId),
    byIdentifier: by(({ signed }) => signed.identifier),
    isReserved: fold.isReserved,
  }
}

function indexed(
  authorizations: readonly Authorization[],
  keyOf: (one: Authorization) => string | undefined,
): Map<string, Authorization[]> {
  const index = new Map<string, Authorization[]>()
  for (const one of authorizations) {
    const key = keyOf(one)
    if (key === undefined) continue
    const known = index.get(key)
    if (known === undefined) index.set(key, [one])
    else known.push(one)
  }
  return index
}
