import pLimit from 'p-limit'
import { type Clock, type SqlDatabase, SqlError, type SqlRow, type SqlSession } from '#ports'
import { StorageError } from '#protocol/errors'

export interface Connection {
  use<T>(job: (session: SqlSession) => Promise<T>): Promise<T>
  close(): void
}

/** A standby that does not confirm is looked into after so long. */
const standbyMs = 5_000

const standbyAway = 'standby_away'

/**
 * With `clock` a new session is used once a synchronous standby has everything that it can see. One
 * session waits for that, however often it is asked for: the server ends none of them while its
 * standby is away.
 */
export function openConnection(database: SqlDatabase, clock?: Pick<Clock, 'sleep'>): Connection {
  const oneAtATime = pLimit(1)
  let session: SqlSession | undefined
  let waiting: { readonly session: SqlSession; readonly done: Promise<void> } | undefined
  let isClosed = false

  const drop = () => {
    waiting?.session.destroy()
    waiting = undefined
  }
  async function confirmed({ sleep }: Pick<Clock, 'sleep'>) {
    if (waiting === undefined) {
      const fresh = await database.connect()
      waiting = { session: fresh, done: awaitStandby(fresh) }
      waiting.done.catch(() => undefined)
    }
    const { session: fresh, done } = waiting
    const over = new AbortController()
    const late = sleep(standbyMs, over.signal).then(
      () => 'late' as const,
      () => undefined,
    )
    const outcome = await Promise.race([done, late])
      .catch((error: unknown) => {
        drop()
        throw error
      })
      .finally(() => over.abort())
    if (outcome === 'late') {
      if (await commitsWait(database))
        throw new SqlError(standbyAway, 'its synchronous standby confirms no commit', false)
      drop()
      throw new SqlError('08006', 'it does not answer', false)
    }
    waiting = undefined
    return fresh
  }

  return {
    use: (job) =>
      oneAtATime(async () => {
        if (isClosed) throw new SqlError('08003', 'the store is closed', false)
        if (session === undefined || session.isLost)
          session = await (clock === undefined ? database.connect() : confirmed(clock))
        return job(session)
      }),
    close() {
      isClosed = true
      session?.destroy()
      drop()
    },
  }
}

async function commitsWait(database: SqlDatabase) {
  const session = await database.connect()
  try {
    const rows = await session.query(
      `SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()`,
    )
    return rows.length > 0
  } finally {
    session.destroy()
  }
}

export interface Queries {
  ask(text: string, values?: readonly unknown[]): Promise<readonly SqlRow[]>
  close(): void
}

export function openQueries(database: SqlDatabase): Queries {
  const { use, close } = openConnection(database)
  return {
    ask: (text, values) =>
      use((session) => session.query(text, values)).catch((error: unknown) => {
        throw notReached(database.name, error)
      }),
    close,
  }
}

export const connectTo = (database: SqlDatabase): Promise<SqlSession> =>
  database.connect().catch((error: unknown) => {
    if (!(error instanceof SqlError)) throw error
    throw new StorageError(
      'store_unavailable',
      `the database ${database.name} cannot be used: ${error.message}`,
      { httpStatus: 503, cause: error, hint: connectHint(error.code) },
    )
  })

function connectHint(code: string) {
  if (code === '25006')
    return 'put the primary into the URL of the store; of several hosts, the one that accepts writes is used'
  if (code === '3D000') return 'create that database, or correct the URL of the store'
  if (code.startsWith('28')) return 'check user, password and pg_hba.conf'
  return 'start the server, or correct the URL of the store'
}

/**
 * A server that was killed shows, once it is back, commits that had still waited for the standby: a
 * failover loses them (R1).
 */
async function awaitStandby(session: SqlSession) {
  session.notices()
  // A commit that writes, without a lock: it waits as every commit does.
  await session.await("SELECT pg_logical_emit_message(true, 'proposer', ''::text)")
  const doubt = session.notices().find(({ code }) => code === '01000')
  if (doubt) throw new SqlError('08006', doubt.message, false)
}

/** Others see that by themselves; a bug is thrown. */
export function unlessUnreachable(error: unknown) {
  if (!(error instanceof StorageError)) throw error
}

export const notReached = (name: string, error: unknown): unknown =>
  error instanceof SqlError
    ? new StorageError('store_unavailable', `the database ${name} failed: ${error.message}`, {
        httpStatus: 503,
        cause: error,
        hint: 'retry once the database responds; `proposer serve --check` tests it',
      })
    : error

/**
 * An outage, a failover, a server that starts or has no connection left. A wrong user, database
 * or certificate stays wrong.
 */
export const isAway = (error: unknown): error is StorageError =>
  error instanceof StorageError &&
  error.meta.cause instanceof SqlError &&
  (awayCodes.has(error.meta.cause.code) || /^(?:08|57P)/.test(error.meta.cause.code))

export const awayText = (name: string, { code, message }: SqlError) =>
  `the database ${name} ${code === standbyAway ? 'takes no writes' : 'cannot be reached'}: ${message}`

const awayCodes = new Set([
  ...['25006', '53300', '40001', '40P01', '55P03', '57014'],
  ...['ECONNREFUSED', 'ECONNRESET', 'ETIMEDOUT', 'EPIPE', 'EHOSTUNREACH', 'ENETUNREACH'],
  ...['ENETDOWN', 'EAI_AGAIN', 'ENOTFOUND', 'ENOENT', standbyAway],
])

/** Rolled back for certain: another try may succeed. Source: PostgreSQL, error codes. */
export const isPassing = ({ code, isAnswered }: SqlError) =>
  !isAnswered ||
  ['40001', '40P01', '55P03', '57014', '25P03', '25006'].includes(code) ||
  code.startsWith('57P')

export const columns = 'n, grp, k, t, d'
const pageRows = 1_000

/** Records 1 to `end`, a page at a time; `missing` where one is not there. */
export async function* rowsUpTo(
  ask: Queries['ask'],
  end: number,
  missing: (n: number) => Error,
): AsyncGenerator<SqlRow> {
  for (let n = 0; n < end; ) {
    const rows = await ask(
      `SELECT ${columns} FROM proposer.record WHERE n > $1 AND n <= $2 ORDER BY n LIMIT ${pageRows}`,
      [n, end],
    )
    for (const row of rows) {
      n += 1
      if (Number(row.n) !== n) throw missing(n)
      yield row
    }
    if (rows.length === 0) throw missing(n + 1)
  }
}
