/**
 * What we signed and sent (robustness §2, Journal). One log folder a run,
 * `<home>/journal/<token>/` (R12); readers merge all. A short lock, `<home>/journal/lock/`,
 * around look-up, reservation, signing and journaling keeps R8 across processes.
 */
import pLimit from 'p-limit'
import type { Clock, Files, Hash, Liveness, Random } from '#ports'
import { ProposerError, StorageError } from '#protocol/errors'
import type { KeptReceipt } from '#protocol/receipt'
import { hexOf, joinPath, namesIn, sizeOf } from '#storage/durable'
import { errorCode } from '#storage/failures'
import { waitForLock } from '#storage/lock'
import { openLog } from '#storage/log'
import { openLogReader } from '#storage/reader'
import type { RecordLog } from '#storage/record-log'
import { isUnsettled } from './authorizations.js'
import { type Fold, type JournalView, newFold } from './fold.js'
import {
  isJournalKind,
  type JournalEntry,
  type JournalRecord,
  readRecord,
  withoutReceiptBytes,
} from './records.js'

export type { JournalView } from './fold.js'

const journalUse = JSON.stringify({ role: 'journal', layout: 3 })

export interface JournalPorts {
  readonly clock: Clock
  readonly random: Random
  readonly hash: Hash
  readonly files: Files
  readonly liveness: Liveness
}

export interface Journal {
  readonly token: string
  /** Reads what every run has written by now; writes nothing (R24). */
  load(): Promise<JournalView>
  /** Runs `work` while no other process of this home does (R8). Within a process calls queue. */
  exclusive<T>(work: (view: JournalView) => Promise<T>, waitMs?: number): Promise<T>
  append(entries: readonly JournalEntry[]): Promise<void>
  holderOf(candidateId: string): string | undefined
  hasSigned(id: string): boolean
  isUnsettled(): boolean
  nextId(): string
  nextAttempt(): string
  nextNonce(): bigint
  close(): Promise<void>
}

/** A lock that another process holds. */
const lockWaitMs = 30_000
const lockPauseMs = [50, 255] as const

export function openJournal(ports: JournalPorts, home: string): Journal {
  const folder = joinPath(home, 'journal')
  const token = hexOf(ports.random.bytes(6))
  const nonces = createNonces(ports.random)
  const readOthers = createRunReader(ports, folder)
  const views = createViews()
  const oneAtATime = pLimit(1)
  // From memory: the disk may show lines of ours that are not durable yet.
  const own: JournalRecord[] = []
  const signed = new Set<string>()
  let others: readonly (readonly JournalRecord[])[] = []
  let opening: Promise<RecordLog> | undefined
  let ids = 0
  let attempts = 0

  const load = () =>
    onDisk(async () => {
      others = await readOthers(token)
      return views(others, own)
    })

  return {
    token,
    load,
    exclusive: (work, waitMs = lockWaitMs) =>
      oneAtATime(async () => {
        const patience = { waitMs, pauseMs: lockPauseMs }
        const path = joinPath(folder, 'lock')
        const lock = await onDisk(() => waitForLock(ports, path, journalUse, patience))
        try {
          return await work(await load())
        } finally {
          await onDisk(() => lock.release())
        }
      }),
    append: (entries) =>
      onDisk(async () => {
        opening ??= openLog(ports, joinPath(folder, token), journalLog, () => undefined)
        await (await opening).append(entries, (stored) => {
          for (const [index, { timeMs }] of stored.entries()) {
            const entry = entries[index]
            // Nothing follows from an intent, and a batch has many.
            if (entry !== undefined && entry.kind !== 'intent') {
              // Spelt out: of copies V8 makes a shape each (R17).
              const { kind, data } = withoutReceiptBytes(entry)
              own.push({ kind, data, timeMs } as JournalRecord)
            }
            if (entry?.kind === 'signed') signed.add(entry.data.id)
          }
        })
      }),
    holderOf: (candidateId) => views(others, own).holderOf(candidateId),
    hasSigned: (id) => signed.has(id),
    isUnsettled() {
      const sent = new Set(
        own.flatMap((record) => (record.kind === 'attempt.start' ? record.data.ids : [])),
      )
      return views(others, own).authorizations.some((one) => sent.has(one.id) && isUnsettled(one))
    },
    nextId: () => `${token}-${++ids}`,
    nextAttempt: () => `${token}.${++attempts}`,
    nextNonce: () => nonces.next(),
    async close() {
      await (await opening)?.close()
    },
  }
}

/** A fault of the file system is exit 74. */
async function onDisk<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (cause) {
    const code = cause instanceof ProposerError ? undefined : errorCode(cause)
    if (code === undefined) throw cause
    const path = cause instanceof Error && 'path' in cause ? ` at ${String(cause.path)}` : ''
    throw new StorageError(
      'journal_unusable',
      `the journal cannot be read or written${path} (${code})`,
      { hint: 'check permissions and free space of the home folder (--home)', cause },
    )
  }
}

/**
 * 31 random bytes name a word, which no other machine or restored backup meets; counting within
 * it is cheaper on chain.
 */
export function createNonces(random: Random): { next(): bigint } {
  let word = 0n
  let bit = 256n
  return {
    next() {
      if (bit === 256n) {
        word = random.bytes(31).reduce((value, byte) => (value << 8n) | BigInt(byte), 0n)
        bit = 0n
      }
      return (word << 8n) | bit++
    },
  }
}

/** By attempt; read-only (R24). */
export function keptReceipts(
  ports: Ports,
  home: string,
  attempts: readonly string[],
): Promise<ReadonlyMap<string, KeptReceipt>> {
  return onDisk(async () => {
    const found = new Map<string, KeptReceipt>()
    // An attempt is called after the run that wrote it: `<token>.<number>`.
    const runs = new Set(attempts.flatMap((attempt) => /^[0-9a-f]{12}(?=\.)/.exec(attempt) ?? []))
    for (const token of runs)
      for (const { kind, data } of await readRun(ports, joinPath(joinPath(home, 'journal'), token)))
        if (kind === 'attempt.end' && data.receipt && attempts.includes(data.attempt))
          found.set(data.attempt, data.receipt)
    return found
  })
}

const journalLog = {
  format: { name: 'journal', version: 1 },
  knownKinds: isJournalKind,
} as const

type Ports = Pick<JournalPorts, 'files' | 'hash'>

type Run = readonly JournalRecord[]

/** Many small files: their reads overlap, within bounds (R17). */
const runsAtOnce = 16

export const listRuns = async (files: Files, folder: string): Promise<string[]> =>
  (await namesIn(files, folder)).filter((name) => /^[0-9a-f]{12}$/.test(name)).sort()

/** A run that is being written is read up to its last whole line. */
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

function createRunReader(ports: Ports, folder: string): (token: string) => Promise<readonly Run[]> {
  const known = new Map<string, { readonly stamp: string; readonly records: Run }>()
  const atOnce = pLimit(runsAtOnce)
  async function read(name: string): Promise<Run> {
    const path = joinPath(folder, name)
    // What is written meanwhile shows in the next stamp.
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

/** Logs only grow, and a rewritten one has another name. */
async function stampOf(files: Files, path: string) {
  const sizes: string[] = []
  for (const name of (await files.list(path)).sort())
    if (/^(log|snap)-\d+\.jsonl$/.test(name))
      sizes.push(`${name}:${await sizeOf(files, joinPath(path, name))}`)
  return sizes.join(' ')
}

function createViews(): (others: readonly Run[], own: Run) => JournalView {
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

/** Checksums, chains, shapes, saved hashes, unique nonces and identities; read-only (R11, R24). */
export function verifyJournal(ports: Pick<JournalPorts, 'files' | 'hash'>, home: string) {
  return onDisk(async () => {
    const folder = joinPath(home, 'journal')
    const tokens = await listRuns(ports.files, folder)
    const fold = newFold()
    const holders = new Map<string, string>()
    const terms = new Map<string, string>()
    const identities = new Map<string, string>()
    const count = { records: 0, hashes: 0 }
    const requireOne = (map: Map<string, string>, key: string, value: string, detail: string) => {
      if ((map.get(key) ?? value) !== value) throw broken(detail.replace('%', map.get(key) ?? ''))
      map.set(key, value)
    }
    const requireHash = (body: string, sha256: string, what: string) => {
      if (ports.hash.sha256(body) !== sha256)
        throw broken(`the bytes saved as ${what} do not have the hash that was recorded with them`)
      count.hashes++
    }
    const check = ({ kind, data }: JournalRecord) => {
      if (kind === 'nonce.reserved') {
        const { id, proposer, nonce } = data
        const detail = `nonce ${nonce} of ${proposer} is reserved twice, for % and ${id}`
        requireOne(holders, `${proposer} ${nonce}`, id, detail)
      } else if (kind === 'signed') {
        const { id, chainId, questionId, identity } = data
        const { proposer, price, amount, nonce, deadline } = data.terms
        requireHash(data.body, data.sha256, id)
        // Another encoding of a signature, imported under its own id, says the same.
        const says = `${questionId} ${price} ${amount} ${deadline}`
        const detail = `nonce ${nonce} of ${proposer} serves two authorizations, one of them ${id}`
        requireOne(terms, `${chainId} ${proposer} ${nonce}`, says, detail)
        requireOne(identities, id, identity, `two different payloads are saved as ${id}`)
      } else if (kind === 'attempt.start' && data.body !== undefined)
        requireHash(data.body, data.sha256, `attempt ${data.attempt}`)
    }
    for (const token of tokens)
      for (const record of await readRun(ports, joinPath(folder, token))) {
        check(record)
        fold.add(record)
        count.records++
      }
    const { authorizations } = fold.view()
    const nonces = new Set([
      ...holders.keys(),
      ...[...terms.keys()].map((key) => key.replace(/^\d+ /, '')),
    ])
    return {
      runs: tokens.length,
      authorizations: authorizations.length,
      ...count,
      nonces: nonces.size,
    }
  })
}

const broken = (detail: string) =>
  new StorageError(
    'journal_broken',
    `the journal is broken: ${detail}`,
    'sign nothing more from this home until it is explained: see the ids in `proposer journal list`, and report it with what `proposer journal export` prints',
  )

/** What it holds at this moment, without its lock. */
export async function loadJournal(ports: JournalPorts, home: string) {
  const journal = openJournal(ports, home)
  return journal.load().finally(() => journal.close())
}
