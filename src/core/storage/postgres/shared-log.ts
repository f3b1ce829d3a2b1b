/**
 * A record log in PostgreSQL that several gateways write (docs/design/shared-store.md). The row
 * `head` is order, lock and fence at once.
 */
import { SqlError, type SqlRow, type SqlSession } from '#ports'
import { StorageError } from '#protocol/errors'
import { unavailable } from '../failures.js'
import { groupWriter, newGroups, refusal } from '../groups.js'
import type { RecordLog, StoredRecord } from '../record-log.js'
import {
  applyRows,
  applyUpTo,
  encode,
  endAndGroup,
  type Head,
  lossSince,
  pageRows,
  recordOfRow,
  requireSameLog,
  rolledBack,
  type SharedEnd,
  type SharedLogParts,
  type State,
  transact,
  type Written,
  writeGroup,
} from './log-state.js'
import { awayText, columns, notReached, openConnection, type Queries, rowsUpTo } from './session.js'

const pollMs = 250

export interface SharedLog extends RecordLog {
  follow(listener: (records: readonly StoredRecord[]) => void): void
  readonly applied: number
  readonly end: SharedEnd | undefined
  readonly catchUp: (n?: number) => Promise<void>
  /**
   * `undefined` from `decide` writes nothing. What was written comes to `follow` like the records
   * of others. The commit may be unknown where it rejects with SqlError.
   */
  transact(decide: (head: Head) => Written | undefined): Promise<Head>
  /** The next opening starts from these lines, which stand for every record applied by now. */
  putSnapshot(lines: Iterable<string>): Promise<void>
  ask(text: string, values?: readonly unknown[]): Promise<readonly SqlRow[]>
  readonly name: string
}

export async function openSharedLog(parts: SharedLogParts): Promise<SharedLog> {
  const { database, onSnapshot, seen, onRecord, ...rest } = parts
  const log: State = {
    ...rest,
    ...newGroups(database.name),
    writer: openConnection(database, parts.clock),
    reader: openConnection(database, parts.clock),
    follow: (records) => {
      for (const record of records) onRecord(record)
    },
    applied: 0,
    appliedGroup: undefined,
    down: undefined,
  }
  try {
    if (seen !== undefined) await log.reader.use((session) => requireSeen(log, session, seen))
    await readSnapshot(log, onSnapshot)
    await catchUp(log)
  } catch (error) {
    closeLines(log)
    throw notReached(log.name, error)
  }
  void poll(log)
  return surfaceOf(log)
}

function surfaceOf(log: State): SharedLog {
  return {
    ...groupWriter(log, {
      refusal: () => refusal(log) ?? (log.down === undefined ? undefined : unavailable(log.down)),
      encode: (records) => encode(log, records),
      write: (group) => writeGroup(log, group),
      end: async () => closeLines(log),
    }),
    name: log.name,
    async read(position) {
      const [row] = await ask(log, `SELECT ${columns} FROM proposer.record WHERE n = $1`, [
        position,
      ])
      if (row === undefined)
        throw new StorageError('store_damaged', `${log.name} has no record ${position}`, {
          httpStatus: 500,
        })
      return recordOfRow(log, row)
    },
    scan: () => scan(log),
    follow(listener) {
      log.follow = listener
    },
    get applied() {
      return log.applied
    },
    get end() {
      const { applied: n, appliedGroup: group } = log
      return n === 0 || group === undefined ? undefined : { n, group }
    },
    catchUp: async (n) => {
      if (n === undefined || log.applied < n) await catchUp(log, n).catch(rethrow(log))
    },
    transact: (decide) => transact(log, decide),
    putSnapshot: (lines) => putSnapshot(log, lines),
    ask: (text, values) => ask(log, text, values),
    get failed() {
      return log.failed
    },
    get down() {
      return log.down
    },
    get closed() {
      return log.isEnding || log.failed !== undefined
    },
  }
}

const rethrow = (log: State) => (error: unknown) => {
  throw notReached(log.name, error)
}

const ask = (log: State, text: string, values?: readonly unknown[]) =>
  log.reader.use((session) => session.query(text, values)).catch(rethrow(log))

async function requireSeen(log: State, session: SqlSession, seen: SharedEnd) {
  const [row] = await session.query(endAndGroup, [seen.n])
  const loss = lossSince(seen, Number(row?.n), row?.grp)
  if (loss !== undefined) throw rolledBack(log.name, loss)
}

/** One statement: behind a pooler the next one may ask another server. */
async function readOn(log: State, session: SqlSession) {
  const rows = await session.query(
    `SELECT h.n AS end, r.n, r.grp, r.k, r.t, r.d,
            pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS is_read_only
       FROM proposer.head h
       LEFT JOIN proposer.record r ON r.n BETWEEN $1::bigint AND $1::bigint + ${pageRows}
      WHERE h.id = 1 ORDER BY r.n`,
    [log.applied],
  )
  const [first] = rows
  if (first?.is_read_only === true) {
    session.destroy()
    throw new SqlError('25006', 'the server no longer accepts writes', false)
  }
  const end = Number(first?.end)
  requireSameLog(log, end, first?.grp)
  applyRows(
    log,
    rows.filter(({ n }) => Number(n) > log.applied),
  )
  return end
}

const catchUp = (log: State, upTo = Number.POSITIVE_INFINITY) =>
  log.exclusive(async () => {
    if (log.applied >= upTo) return
    await log.reader.use(async (session) => applyUpTo(log, session, await readOn(log, session)))
  })

async function* scan(log: State) {
  const missing = (n: number) => new RangeError(`record ${n} is missing`)
  for await (const row of rowsUpTo((...asked) => ask(log, ...asked), log.applied, missing))
    yield recordOfRow(log, row)
}

async function readSnapshot(log: State, onSnapshot: SharedLogParts['onSnapshot']) {
  if (onSnapshot === undefined) return
  await log.reader.use(async (session) => {
    const [last] = await session.query(
      `SELECT s.n, s.body, r.grp FROM proposer.snapshot s JOIN proposer.record r ON r.n = s.n
        WHERE s.part = 0 AND s.format = ${snapshotFormat} ORDER BY s.n DESC LIMIT 1`,
    )
    if (last === undefined) return
    for await (const body of snapshotParts((...asked) => session.query(...asked), last)) {
      if (body === undefined)
        throw new StorageError('store_unavailable', 'the snapshot has just been replaced', {
          httpStatus: 503,
          hint: 'start again',
        })
      for (const line of body.split('\n')) onSnapshot(line)
    }
    log.applied = Number(last.n)
    log.appliedGroup = String(last.grp)
  })
}

export const snapshotFormat = 1

const partBytes = 512 * 1024

interface SnapshotHead {
  readonly first: number
  readonly parts: number
}

/** Of the snapshot that part 0 begins; `undefined` for one that is gone. */
export async function* snapshotParts(
  ask: Queries['ask'],
  { n, body }: SqlRow,
): AsyncGenerator<string | undefined> {
  const { first, parts } = JSON.parse(String(body)) as SnapshotHead
  for (let part = first; part < first + parts; part++) {
    const asked = 'SELECT body FROM proposer.snapshot WHERE n = $1 AND part = $2'
    const [row] = await ask(asked, [n, part])
    yield row && String(row.body)
  }
}

/**
 * Without part 0 a snapshot is not there. Two gateways may write one of the same record at once;
 * their parts have numbers of their own.
 */
async function putSnapshot(log: State, lines: Iterable<string>) {
  const n = log.applied
  if (n === 0) return
  const put = (part: number, body: string) =>
    ask(
      log,
      `INSERT INTO proposer.snapshot (n, part, format, body) VALUES ($1, $2, ${snapshotFormat}, $3)
       ON CONFLICT (n, part) DO UPDATE SET body = EXCLUDED.body`,
      [n, part, body],
    )
  const [high = 0, low = 0] = log.random.bytes(2)
  const first = 1 + ((high << 6) | (low >> 2)) * 65_536
  let parts = 0
  let text = ''
  for (const line of lines) {
    text += text === '' ? line : `\n${line}`
    if (text.length < partBytes) continue
    await put(first + parts++, text)
    text = ''
  }
  if (text !== '') await put(first + parts++, text)
  await put(0, JSON.stringify({ first, parts } satisfies SnapshotHead))
  await ask(log, 'DELETE FROM proposer.snapshot WHERE n < $1', [n])
}

async function poll(log: State) {
  while (!log.stop.signal.aborted) {
    try {
      await catchUp(log)
      log.down = undefined
    } catch (error) {
      if (error instanceof SqlError) log.down = awayText(log.name, error)
      else if (!(error instanceof StorageError)) throw error
    }
    await log.clock.sleep(pollMs, log.stop.signal).catch(() => undefined)
  }
}

function closeLines({ writer, reader }: State) {
  writer.close()
  reader.close()
}
