/**
 * The client's journal: what we signed and sent (robustness §2, Journal). One log folder a process
 * run, `<home>/journal/<token>/`, written by that run only (R12); readers merge all. One short
 * lock, `<home>/journal/lock/`, around look-up, reservation, signing and journaling keeps R8 across
 * processes: where its holder dies between two of them, no signature was kept, so the next run may
 * sign.
 */
import type { Clock, Files, Hash, Liveness, Random } from '../../ports.js'
import { ProposerError, StorageError } from '../../protocol/errors.js'
import { hexOf, joinPath } from '../../storage/durable.js'
import { errorCode } from '../../storage/failures.js'
import { acquireLock, type Lock } from '../../storage/lock.js'
import { openLog, type RecordLog } from '../../storage/log.js'
import { type Authorization, isUnsettled, type Offer } from './authorizations.js'
import { createNonces } from './nonces.js'
import type { JournalEntry } from './records.js'
import { isJournalKind, type JournalRecord } from './records.js'
import { createRunReader, createViews, journalFormat, listRuns, readRun, viewOf } from './runs.js'

export interface JournalPorts {
  readonly clock: Clock
  readonly random: Random
  readonly hash: Hash
  readonly files: Files
  readonly liveness: Liveness
}

/** All runs merged, as of one reading. */
export interface JournalView {
  /** Oldest first. */
  readonly authorizations: readonly Authorization[]
  /** Typed data that wallets outside hold, unsigned as far as this journal knows; oldest first. */
  readonly offers: readonly Offer[]
  /** By journal id. */
  find(id: string): Authorization | undefined
  /** In any spelling. */
  byCandidate(candidateId: string): Authorization | undefined
  byIdentity(identity: string): Authorization | undefined
  /** Oldest first. */
  byQuestion(questionId: string): readonly Authorization[]
  /** By the identifier that was asked for, oldest first: tells what a slug meant before. */
  byIdentifier(identifier: string): readonly Authorization[]
  /** Whether some run has reserved the nonce for this owner (R6). */
  isReserved(proposer: string, nonce: string): boolean
}

export interface Journal {
  /** This run's token, 12 hex digits. */
  readonly token: string
  /**
   * Reads what every run has written by now; writes nothing (R24). StorageError 74 `store_damaged`
   * names file and offset.
   */
  load(): Promise<JournalView>
  /**
   * Runs `work` while no other process of this home does (R8): around look-up, reservation, signing
   * and journaling. Waits for the lock up to `waitMs` (default 30 s), then StorageError
   * `store_locked`. Within a process calls queue.
   */
  exclusive<T>(work: (view: JournalView) => Promise<T>, waitMs?: number): Promise<T>
  /**
   * Resolves once the entries are durable, all or none. Opens this run's log on first use.
   * StorageError 74.
   */
  append(entries: readonly JournalEntry[]): Promise<void>
  /**
   * Whether this run's own log holds the signed authorization of this id. Lines of another run may
   * be in the page cache only.
   */
  hasSigned(id: string): boolean
  /**
   * Whether something that this run sent may have been admitted without its knowing, as of now;
   * looks at memory alone.
   */
  isUnsettled(): boolean
  /** A fresh journal id of this run. */
  nextId(): string
  /** A fresh attempt name of this run. */
  nextAttempt(): string
  /** The next Permit2 nonce of this run; not yet reserved. */
  nextNonce(): bigint
  close(): Promise<void>
}

/** How long a lock held by another process is asked for again, and how often. */
const lockWaitMs = 30_000
const lockPauseMs = 50

/** The journal of a home folder. Touches no file before it is used. */
export function openJournal(ports: JournalPorts, home: string): Journal {
  const folder = joinPath(home, 'journal')
  const token = hexOf(ports.random.bytes(6))
  const nonces = createNonces(ports.random)
  const runs = createRunReader(ports, folder)
  const views = createViews()
  const own: JournalRecord[] = []
  const signed = new Set<string>()
  let opening: Promise<RecordLog> | undefined
  let ids = 0
  let attempts = 0
  let tail: Promise<unknown> = Promise.resolve()

  const log = () => {
    opening ??= openLog(
      ports,
      joinPath(folder, token),
      { format: journalFormat, knownKinds: isJournalKind },
      () => undefined,
    )
    return opening
  }
  // Our own records are taken from memory: the disk may show lines of ours that are not durable
  // yet.
  let others: readonly (readonly JournalRecord[])[] = []
  const load = async () => {
    others = await runs.others(token)
    return views(others, own)
  }

  async function locked<T>(work: (view: JournalView) => Promise<T>, waitMs: number): Promise<T> {
    const lock = await waitForLock(ports, joinPath(folder, 'lock'), waitMs)
    try {
      return await work(await onDisk(load))
    } finally {
      await onDisk(() => lock.release())
    }
  }

  return {
    token,
    load: () => onDisk(load),
    exclusive(work, waitMs = lockWaitMs) {
      const run = tail.then(() => locked(work, waitMs))
      // Its failure is the caller's; the next one starts all the same.
      tail = run.catch(() => undefined)
      return run
    },
    append: (entries) =>
      onDisk(async () => {
        await (await log()).append(entries, (stored) => {
          for (const [index, { timeMs }] of stored.entries()) {
            const entry = entries[index]
            // Nothing follows from an intent, and a batch has many.
            if (entry !== undefined && entry.kind !== 'intent') own.push({ ...entry, timeMs })
            if (entry?.kind === 'signed') signed.add(entry.data.id)
          }
        })
      }),
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

async function waitForLock(ports: JournalPorts, folder: string, waitMs: number): Promise<Lock> {
  const untilMs = ports.clock.monotonicMs() + waitMs
  for (;;) {
    try {
      return await onDisk(() => acquireLock(ports, folder, 'journal'))
    } catch (error) {
      const busy = error instanceof StorageError && error.code === 'store_locked'
      if (!busy || ports.clock.monotonicMs() >= untilMs) throw error
      const [jitter = 0] = ports.random.bytes(1)
      await ports.clock.sleep(lockPauseMs + jitter)
    }
  }
}

/** A file system error of Node's (not writable, no such disk) is exit 74 here. */
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
      {
        hint: 'check the rights and the free space of the home folder (--home)',
        cause,
      },
    )
  }
}

export interface JournalProof {
  readonly runs: number
  readonly records: number
  readonly authorizations: number
  /**
   * Pairs of authorizations of which these rules cannot be told, because no record orders what
   * different runs hold of them.
   */
  readonly unordered: Readonly<Record<'R7' | 'R8', number>>
  /** How often each rule was asked; none is seen broken. */
  readonly rules: Readonly<Record<(typeof journalRules)[number], number>>
}

/** What a journal by itself can show. */
const journalRules = ['R4', 'R6', 'R7', 'R8'] as const

/**
 * Proves the checksums and chains of all runs, the shape of every record and what must hold of them
 * together (R4, R6 to R8); read-only. Rejects with StorageError 74 naming file and offset (R11,
 * R24), or `journal_broken` naming rule and journal ids.
 */
export function verifyJournal(
  ports: Pick<JournalPorts, 'files' | 'hash'>,
  home: string,
): Promise<JournalProof> {
  return onDisk(async () => {
    const [{ ruleTexts }, { createRuleCheck }, { createJournalFacts }] = await Promise.all([
      import('../../history/facts.js'),
      import('../../history/rule-check.js'),
      import('./history.js'),
    ])
    const folder = joinPath(home, 'journal')
    const tokens = await listRuns(ports.files, folder)
    const records: JournalRecord[][] = []
    const history = createRuleCheck()
    for (const token of tokens) {
      const run = await readRun(ports, joinPath(folder, token))
      const factsOf = createJournalFacts(ports.hash, token)
      for (const record of run) for (const fact of factsOf(record)) history.durable(token, fact)
      records.push(run)
    }
    const verdict = history.verdict()
    const [first] = verdict.violations
    if (first !== undefined) {
      const more = verdict.broken === 1 ? '' : ` (and ${verdict.broken - 1} more)`
      throw new StorageError(
        'journal_broken',
        `the journal breaks ${first.rule}, ${ruleTexts[first.rule]}: ${first.detail}${more}`,
        {
          hint: 'sign nothing more from this home until it is explained: see the ids in `proposer journal list`, and report it with what `proposer journal export` prints',
        },
      )
    }
    const { R4, R6, R7, R8 } = verdict.checked
    return {
      runs: tokens.length,
      records: records.reduce((sum, each) => sum + each.length, 0),
      authorizations: viewOf(records).authorizations.length,
      unordered: verdict.unordered,
      rules: { R4, R6, R7, R8 },
    }
  })
}
