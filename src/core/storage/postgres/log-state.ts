import {
  type Clock,
  type Random,
  type SqlDatabase,
  SqlError,
  type SqlRow,
  type SqlSession,
} from '#ports'
import { StorageError } from '#protocol/errors'
import type { Observation } from '#protocol/vitals'
import { failedForGood, notOurs } from '../failures.js'
import {
  type Append,
  acknowledge,
  type DecidedAppend,
  decideGroup,
  failLog,
  type Groups,
  nextGroup,
  takeAll,
  type Waiting,
} from '../groups.js'
import { encodeData } from '../line.js'
import type { NewRecord, StoredRecord } from '../record-log.js'
import { awayText, type Connection, columns, isPassing, notReached } from './session.js'

export const pageRows = 2_000

export interface Head {
  readonly n: number
  readonly epoch: number
  readonly holder: string | null
  readonly isFree: boolean
}

/** No other log has both. */
export interface SharedEnd {
  readonly n: number
  readonly group: string
}

export interface Written {
  readonly records: readonly NewRecord[]
  readonly head: string
}

export interface SharedLogParts {
  readonly clock: Clock
  readonly random: Random
  readonly database: SqlDatabase
  readonly knownKinds: (kind: string) => boolean
  readonly onSnapshot?: (line: string) => void
  readonly onObservation?: ((observation: Observation) => void) | undefined
  /** The last record that this machine has seen of it: a log without it is refused. */
  readonly seen?: SharedEnd | undefined
  readonly onRecord: (record: StoredRecord) => void
}

/** Whoever is `exclusive` applies records. */
export interface State
  extends Groups,
    Omit<SharedLogParts, 'database' | 'onSnapshot' | 'seen' | 'onRecord'> {
  readonly writer: Connection
  readonly reader: Connection
  follow: (records: readonly StoredRecord[]) => void
  applied: number
  appliedGroup: string | undefined
  down: string | undefined
}

export function recordOfRow(
  { name, knownKinds }: Pick<State, 'name' | 'knownKinds'>,
  { n, k, t, d }: SqlRow,
): StoredRecord {
  const kind = String(k)
  if (!knownKinds(kind))
    throw new StorageError('store_too_new', `record ${n} in ${name} has the unknown kind ${kind}`, {
      httpStatus: 503,
      hint: 'install the version that wrote it',
    })
  return { kind, data: d, sequence: Number(n), timeMs: Number(t), position: Number(n) }
}

export const rowsAfter = (
  session: SqlSession,
  after: number,
  upTo = Number.MAX_SAFE_INTEGER,
  limit = pageRows,
) =>
  session.query(
    `SELECT ${columns} FROM proposer.record WHERE n > $1 AND n <= $2 ORDER BY n LIMIT $3`,
    [after, upTo, limit],
  )

export function applyRows(log: State, rows: readonly SqlRow[]) {
  const last = rows.at(-1)
  if (last === undefined) return
  const expected = log.applied + rows.length
  if (Number(last.n) !== expected) throw gapAt(log, expected)
  try {
    log.follow(rows.map((row) => recordOfRow(log, row)))
  } catch (error) {
    throw failLog(log, error, `a record of ${log.name} could not be applied`)
  }
  log.applied = expected
  log.appliedGroup = String(last.grp)
}

export async function applyUpTo(log: State, session: SqlSession, n: number) {
  while (log.applied < n) {
    const rows = await rowsAfter(session, log.applied, n)
    if (rows.length === 0) throw gapAt(log, log.applied + 1)
    applyRows(log, rows)
  }
}

const gapAt = (log: State, n: number) =>
  failLog(log, new RangeError(`record ${n} is missing`), `${log.name} has a gap`)

/** Else a standby was promoted that had not got everything: what was acknowledged is gone. */
export function requireSameLog(log: State, n: number, grp: unknown) {
  const { applied, appliedGroup, name } = log
  if (applied === 0 || appliedGroup === undefined) return
  const loss = lossSince({ n: applied, group: appliedGroup }, n, grp)
  if (loss !== undefined) throw failLog(log, rolledBack(name, loss), loss)
}

export function lossSince(seen: SharedEnd, n: number, grp: unknown) {
  if (n < seen.n) return `it ends at record ${n}, but record ${seen.n} was there before`
  return grp === seen.group
    ? undefined
    : `record ${seen.n} differs from the one that was there before`
}

export const endAndGroup =
  'SELECT n, (SELECT grp FROM proposer.record WHERE n = $1) AS grp FROM proposer.head WHERE id = 1'

export const acceptLoss = '`proposer operator store accept-loss --reason "…"`'

/** Nothing may be admitted there: whoever was told 202 would be told 202 again. */
export const rolledBack = (name: string, loss: string) =>
  new StorageError(
    'store_rolled_back',
    `${name} has lost records that it had acknowledged: ${loss}`,
    {
      httpStatus: 500,
      hint: `nothing is admitted there: find the database that has them; where none has, ${acceptLoss}`,
    },
  )

/**
 * Of a row of `head`: no lease holds. One that ends later than any lease can was given before the
 * database's clock was put back.
 */
export const leaseIsFree = `(lease_until < clock_timestamp()
  OR lease_until > clock_timestamp() + interval '20 s')`

/** A group is tried for so long before it is refused; an unknown commit is settled for longer. */
const tryMs = 4_000
const settleMs = 15_000
const retryMs = 50

export function encode({ knownKinds }: State, records: readonly NewRecord[]) {
  return records.map(({ kind, data }) => {
    if (!knownKinds(kind)) throw notOurs(kind)
    return encodeData(kind, data)
  })
}

interface Work {
  readonly group: Waiting[]
  isWhole: boolean
  readonly id: string
  readonly timeMs: number
  /** What went with a COMMIT whose answer was lost. */
  sent: readonly DecidedAppend[] | undefined
}

export async function writeGroup(log: State, group: Waiting[]) {
  const timeMs = Math.trunc(log.clock.nowMs())
  const work: Work = { group, isWhole: false, id: log.random.uuid(), timeMs, sent: undefined }
  const startMs = log.clock.monotonicMs()
  try {
    await tried(log, work)
    const seconds = (log.clock.monotonicMs() - startMs) / 1_000
    log.onObservation?.({ kind: 'appended', seconds })
  } catch (error) {
    const isUnknown = error instanceof SqlError && work.sent !== undefined
    const reason = isUnknown
      ? failedForGood(`it is unknown whether ${log.name} committed a write`, error)
      : notReached(log.name, error)
    for (const each of group) each.reject(reason)
    if (error instanceof SqlError && isPassing(error))
      for (const each of takeAll(log)) each.reject(notReached(log.name, error))
  }
}

async function tried(log: State, work: Work) {
  const startMs = log.clock.monotonicMs()
  for (;;) {
    try {
      await log.writer.use((session) => attempt(log, session, work))
      log.down = undefined
      return
    } catch (error) {
      if (!(error instanceof SqlError)) throw error
      // Two of one identity, or of one nonce: the judgement above the tables has a fault.
      if (error.code === '23505') throw failLog(log, error, `${log.name} refused a record`)
      const isUnknown = work.sent !== undefined
      const isLate = log.clock.monotonicMs() - startMs > (isUnknown ? settleMs : tryMs)
      if (isLate || log.failed || !(isUnknown || isPassing(error))) {
        if (!error.isAnswered) log.down = awayText(log.name, error)
        throw error
      }
      log.onObservation?.({ kind: 'retried' })
      await log.clock.sleep(retryMs * (1 + (log.random.bytes(1)[0] ?? 0) / 128))
    }
  }
}

async function attempt(log: State, session: SqlSession, work: Work) {
  try {
    const head = await (work.sent === undefined ? lockEnd : lockHead)(log, session)
    if (work.sent !== undefined) {
      if (await settle(log, session, work, work.sent, head.n)) return
      // Under the lock nothing of it is there: what was sent was not committed.
      work.sent = undefined
    }
    // What came while the lock was waited for goes along; what comes later has tries of its own.
    if (!work.isWhole) work.group.push(...nextGroup(log, work.group))
    work.isWhole = true
    const decisions = decideGroup(log, work.group, (each) => requireEpoch(log, each, head))
    if (decisions.some(({ texts }) => texts.length > 0)) {
      work.sent = decisions
      const written = insert(session, head.n, work, decisions.flatMap(rowsOf))
      await together([written, commit(log, session)]).catch((error: unknown) => {
        // An error instead of the commit; one of an earlier statement says nothing about it.
        if (error instanceof SqlError && error.isAnswered) work.sent = undefined
        throw error
      })
    } else await session.script('ROLLBACK')
    finish(log, work, decisions)
  } catch (error) {
    if (!session.isLost) await session.script('ROLLBACK')
    throw error
  }
}

/** Whether the group whose COMMIT was not answered is there; then it is done. */
async function settle(
  log: State,
  session: SqlSession,
  work: Work,
  sent: readonly DecidedAppend[],
  n: number,
) {
  const rows = await rowsAfter(session, log.applied, n, n)
  const first = rows.findIndex(({ grp }) => grp === work.id)
  if (first < 0) {
    applyRows(log, rows)
    return false
  }
  // A server whose wait was cut off shows what no standby has: this commit waits for it, too.
  await session.query('UPDATE proposer.head SET n = n WHERE id = 1')
  await commit(log, session)
  applyRows(log, rows.slice(0, first))
  finish(log, work, sent)
  applyRows(log, rows.slice(first + sent.flatMap(rowsOf).length))
  return true
}

const rowsOf = ({ records, texts }: Append) =>
  records.map(({ kind }, index) => ({ kind, text: texts[index] ?? 'null' }))

/** The server runs them in turn, and none after one that failed. */
async function together<T extends readonly unknown[]>(
  sent: readonly [...{ [K in keyof T]: Promise<T[K]> }],
): Promise<T> {
  await Promise.allSettled(sent)
  return (await Promise.all(sent)) as unknown as T
}

async function lockEnd(log: State, session: SqlSession) {
  for (;;) {
    // A statement of its own: its snapshot is taken when the lock is held.
    const [head, rows] = await together([lockHead(log, session), rowsAfter(session, log.applied)])
    if (head.n - log.applied === rows.length) {
      applyRows(log, rows)
      return head
    }
    // Others do not wait while much is read.
    await session.script('ROLLBACK')
    applyRows(log, rows)
    await applyUpTo(log, session, head.n)
  }
}

async function lockHead(log: State, session: SqlSession) {
  const [row] = await session.script(
    `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '2s';
     SET LOCAL statement_timeout = '5s'; SET LOCAL idle_in_transaction_session_timeout = '2s';
     SELECT h.n, h.epoch, h.holder, ${leaseIsFree} AS is_free,
            (SELECT grp FROM proposer.record WHERE n = ${log.applied}) AS grp
       FROM proposer.head h WHERE h.id = 1 FOR UPDATE OF h`,
  )
  const n = Number(row?.n)
  requireSameLog(log, n, row?.grp)
  const holder = typeof row?.holder === 'string' ? row.holder : null
  return { n, epoch: Number(row?.epoch), holder, isFree: row?.is_free === true }
}

function requireEpoch(log: State, each: Waiting, { epoch }: Head) {
  if (each.epoch !== undefined && each.epoch !== epoch) {
    log.onObservation?.({ kind: 'fenced' })
    throw fenced(each.epoch, epoch)
  }
}

const fenced = (own: number, epoch: number) =>
  new StorageError('store_fenced', `another gateway leads: epoch ${epoch}, ours was ${own}`, {
    httpStatus: 503,
    hint: 'nothing was written; the other gateway continues',
  })

async function insert(
  session: SqlSession,
  n: number,
  { id, timeMs }: Pick<Work, 'id' | 'timeMs'>,
  rows: readonly { readonly kind: string; readonly text: string }[],
) {
  await session.query(
    `WITH written AS (
       INSERT INTO proposer.record (n, grp, k, t, d)
       SELECT $1::bigint + i, $2::uuid, k, $3::bigint, d::json
         FROM unnest($4::text[], $5::text[]) WITH ORDINALITY AS r (k, d, i))
     UPDATE proposer.head SET n = $6 WHERE id = 1`,
    [n, id, timeMs, rows.map(({ kind }) => kind), rows.map(({ text }) => text), n + rows.length],
  )
}

async function commit(log: State, session: SqlSession) {
  session.notices()
  await session.query('COMMIT')
  // Somebody has ended the wait for the standby: the record may be lost with this server.
  const doubt = session.notices().find(({ code }) => code === '01000')
  if (doubt)
    throw failLog(log, new Error(doubt.message), `${log.name} did not make a write durable`)
}

function finish(log: State, work: Work, decisions: readonly DecidedAppend[]) {
  for (const decision of decisions) {
    const stored = decision.records.map((record) => {
      log.applied += 1
      return { ...record, sequence: log.applied, timeMs: work.timeMs, position: log.applied }
    })
    if (stored.length > 0) log.appliedGroup = work.id
    acknowledge(log, decision, stored)
  }
}

export async function transact(
  log: State,
  decide: (head: Head) => Written | undefined,
): Promise<Head> {
  const work = { id: log.random.uuid(), timeMs: Math.trunc(log.clock.nowMs()) }
  return log.exclusive(() =>
    log.writer.use(async (session) => {
      try {
        const head = await lockEnd(log, session)
        const written = decide(head)
        if (written === undefined) {
          await session.script('ROLLBACK')
          return head
        }
        const { records } = written
        await insert(session, head.n, work, rowsOf({ records, texts: encode(log, records) }))
        await session.query(`UPDATE proposer.head SET ${written.head} WHERE id = 1`)
        await commit(log, session)
        return head
      } catch (error) {
        if (!session.isLost) await session.script('ROLLBACK')
        throw error
      }
    }),
  )
}
