/**
 * What we signed and sent (robustness §2, Journal): a log a run (R12), and a short lock around
 * look-up, reservation, signing and journaling (R8).
 */
import pLimit from 'p-limit'
import type { Files, Ports, Random } from '#ports'
import { StorageError } from '#protocol/errors'
import type { KeptReceipt } from '#protocol/receipt'
import { hexOf, joinPath, namesIn, sizeOf } from '#storage/durable'
import { storageErrorOf } from '#storage/failures'
import { waitForLock } from '#storage/lock'
import { openLog } from '#storage/log'
import { openLogReader } from '#storage/reader'
import type { RecordLog } from '#storage/record-log'
import { isUnsettled } from './authorizations.js'
import { type JournalView, newFold } from './fold.js'
import {
  isJournalKind,
  type JournalEntry,
  type JournalRecord,
  readRecord,
  withoutReceiptBytes,
} from './records.js'

export type { JournalView } from './fold.js'

const journalUse = JSON.stringify({ role: 'journal', layout: 3 })

export type JournalPorts = Pick<Ports, 'clock' | 'random' | 'hash' | 'files' | 'liveness'>

export interface Journal {
  readonly token: string
  /** What every run has written by now; read-only (R24). */
  load(): Promise<JournalView>
  /** `work` runs while no other process of this home does (R8). */
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

const lockWaitMs = 30_000
const lockPauseMs = [50, 255] as const

export function openJournal(ports: JournalPorts, home: string): Journal {
  const folder = joinPath(home, 'journal')
  const token = hexOf(ports.random.bytes(6))
  const readOthers = createRunReader(ports, folder, token)
  const oneAtATime = pLimit(1)
  // The disk may show lines of ours that are not durable yet.
  const own: JournalRecord[] = []
  const signed = new Set<string>()
  const sent = new Set<string>()
  let others: readonly Run[] = []
  let fold = newFold()
  let folded = 0
  let opening: Promise<RecordLog> | undefined
  let ids = 0
  let attempts = 0

  const view = () => {
    for (const record of own.slice(folded)) fold.add(record)
    folded = own.length
    return fold.view()
  }
  const load = () =>
    onDisk(async () => {
      const runs = await readOthers()
      if (runs.length !== others.length || runs.some((run, at) => run !== others[at])) {
        others = runs
        fold = newFold()
        folded = 0
        for (const record of runs.flat()) fold.add(record)
      }
      return view()
    })

  return {
    token,
    load,
    exclusive: (work, waitMs = lockWaitMs) =>
      oneAtATime(async () => {
        const path = joinPath(folder, 'lock')
        const lock = await onDisk(() =>
          waitForLock(ports, path, journalUse, { waitMs, pauseMs: lockPauseMs }),
        )
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
            if (entry === undefined || entry.kind === 'intent') continue
            // Spelt out: of copies V8 makes a shape each (R17).
            const { kind, data } = withoutReceiptBytes(entry)
            own.push({ kind, data, timeMs } as JournalRecord)
            if (entry.kind === 'signed') signed.add(entry.data.id)
            if (entry.kind === 'attempt.start') for (const id of entry.data.ids) sent.add(id)
          }
        })
      }),
    holderOf: (candidateId) => view().holderOf(candidateId),
    hasSigned: (id) => signed.has(id),
    isUnsettled: () => view().authorizations.some((one) => sent.has(one.id) && isUnsettled(one)),
    nextId: () => `${token}-${++ids}`,
    nextAttempt: () => `${token}.${++attempts}`,
    nextNonce: createNonces(ports.random),
    async close() {
      await (await opening)?.close()
    },
  }
}

async function onDisk<T>(work: () => Promise<T>) {
  try {
    return await work()
  } catch (error) {
    const hint = 'check permissions and free space of the home folder (--home)'
    throw storageErrorOf('the journal cannot be read or written', error, hint)
  }
}

/** No other machine or restored backup draws the same word (R6). */
export function createNonces(random: Random) {
  let word = 0n
  let bit = 256n
  return () => {
    if (bit === 256n) {
      word = random.bytes(31).reduce((value, byte) => (value << 8n) | BigInt(byte), 0n)
      bit = 0n
    }
    return (word << 8n) | bit++
  }
}

export const keptReceipts = (ports: ReadPorts, home: string, attempts: readonly string[]) =>
  onDisk(async () => {
    const found = new Map<string, KeptReceipt>()
    // An attempt is called after the run that wrote it: `<token>.<number>`.
    const runs = attempts.flatMap((attempt) => /^[0-9a-f]{12}(?=\.)/.exec(attempt) ?? [])
    for (const token of new Set(runs))
      for (const { kind, data } of await readRun(ports, joinPath(joinPath(home, 'journal'), token)))
        if (kind === 'attempt.end' && data.receipt && attempts.includes(data.attempt))
          found.set(data.attempt, data.receipt)
    return found
  })

const format = { name: 'journal', version: 1 } as const
const journalLog = { format, knownKinds: isJournalKind }

type ReadPorts = Pick<JournalPorts, 'files' | 'hash'>

type Run = readonly JournalRecord[]

const runsAtOnce = 16

export const listRuns = async (files: Files, folder: string) =>
  (await namesIn(files, folder)).filter((name) => /^[0-9a-f]{12}$/.test(name)).sort()

export async function readRun(
  ports: ReadPorts,
  folder: string,
  hold: <T extends JournalRecord>(record: T) => T = (same) => same,
) {
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

function createRunReader(ports: ReadPorts, folder: string, own: string) {
  const known = new Map<string, { readonly stamp: string; readonly records: Run }>()
  const atOnce = pLimit(runsAtOnce)
  async function read(name: string) {
    const path = joinPath(folder, name)
    // Before reading: what is written meanwhile shows in the next stamp.
    const stamp = await stampOf(ports.files, path)
    const seen = known.get(name)
    if (seen?.stamp === stamp) return seen.records
    const records = await readRun(ports, path, withoutReceiptBytes)
    known.set(name, { stamp, records })
    return records
  }
  return async () => {
    const others = (await listRuns(ports.files, folder)).filter((name) => name !== own)
    return atOnce.map(others, read)
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

/** Checksums, chains, shapes, saved hashes, unique nonces and identities; read-only (R11, R24). */
export function verifyJournal(ports: ReadPorts, home: string) {
  return onDisk(async () => {
    const folder = joinPath(home, 'journal')
    const tokens = await listRuns(ports.files, folder)
    const fold = newFold()
    const nonces = new Set<string>()
    const known = new Map<string, string>()
    const count = { records: 0, hashes: 0 }
    const otherOf = (about: string, says: string) => {
      const before = known.get(about) ?? says
      known.set(about, before)
      return before === says ? undefined : before
    }
    const requireHash = (body: string, sha256: string, what: string) => {
      if (ports.hash.sha256(body) !== sha256)
        throw broken(`the bytes saved as ${what} do not have the hash that was recorded with them`)
      count.hashes++
    }
    const check = ({ kind, data }: JournalRecord) => {
      if (kind === 'nonce.reserved') {
        const { id, proposer, nonce } = data
        nonces.add(`${proposer} ${nonce}`)
        const other = otherOf(`${proposer} ${nonce}`, id)
        if (other !== undefined)
          throw broken(`nonce ${nonce} of ${proposer} is reserved twice, for ${other} and ${id}`)
      } else if (kind === 'signed') {
        const { id, chainId, questionId, identity } = data
        const { proposer, price, amount, nonce, deadline } = data.terms
        nonces.add(`${proposer} ${nonce}`)
        requireHash(data.body, data.sha256, id)
        // Another encoding of a signature, imported under its own id, says the same.
        const terms = `${questionId} ${price} ${amount} ${deadline}`
        if (otherOf(`${chainId} ${proposer} ${nonce}`, terms) !== undefined)
          throw broken(`nonce ${nonce} of ${proposer} serves two authorizations, one of them ${id}`)
        if (otherOf(id, identity) !== undefined)
          throw broken(`two different payloads are saved as ${id}`)
      } else if (kind === 'attempt.start' && data.body !== undefined)
        requireHash(data.body, data.sha256, `attempt ${data.attempt}`)
    }
    for (const token of tokens)
      for (const record of await readRun(ports, joinPath(folder, token))) {
        check(record)
        fold.add(record)
        count.records++
      }
    const authorizations = fold.view().authorizations.length
    return { runs: tokens.length, authorizations, ...count, nonces: nonces.size }
  })
}

const broken = (detail: string) =>
  new StorageError(
    'journal_broken',
    `the journal is broken: ${detail}`,
    'sign nothing more from this home until it is explained: see the ids in `proposer journal list`, and report it with what `proposer journal export` prints',
  )
