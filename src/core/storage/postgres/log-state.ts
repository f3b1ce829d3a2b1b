import type { Clock, Random, SqlDatabase, SqlRow, SqlSession } from '#ports'
import { StorageError } from '#protocol/errors'
import type { Observation } from '#protocol/vitals'
import { fail, type Groups } from '../groups.js'
import type { NewRecord, StoredRecord } from '../record-log.js'
import type { Connection } from './session.js'

const pageRows = 2_000

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

export const columns = 'n, grp, k, t, d'

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
    throw fail(log, error, `a record of ${log.name} could not be applied`)
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
  fail(log, new RangeError(`record ${n} is missing`), `${log.name} has a gap`)

/** Else a standby was promoted that had not got everything: what was acknowledged is gone. */
export function requireSameLog(log: State, n: number, grp: unknown) {
  const { applied, appliedGroup, name } = log
  if (applied === 0 || appliedGroup === undefined) return
  const loss = lossSince({ n: applied, group: appliedGroup }, n, grp)
  if (loss !== undefined) throw fail(log, rolledBack(name, loss), loss)
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
