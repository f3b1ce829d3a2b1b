/** Rate-limit windows that several gateways share: fixed windows in the table `budget`. */
import { type SqlDatabase, SqlError } from '../../ports.js'
import { unavailable } from '../failures.js'
import { notReached, openConnection } from './session.js'

/** A window after a charge. */
export interface WindowState {
  /** Everything charged in it, refused charges too. */
  readonly spentItems: number
  readonly endsInMs: number
}

export interface Charged {
  readonly own: WindowState
  readonly everyone: WindowState
  /** The end of the log when it was charged. */
  readonly end: number
}

export interface SharedWindows {
  /**
   * Charges both windows of a client. What waits meanwhile is charged in one statement, each as if
   * it were alone, in the order of the calls. Rejects with `store_unavailable`.
   */
  charge(client: string, items: number): Promise<Charged>
  close(): void
}

interface Waiting {
  readonly client: string
  readonly items: number
  readonly resolve: (charged: Charged) => void
  readonly reject: (error: unknown) => void
}

/** The window of all clients; no address is called so. */
const everyoneKey = '*'

/** The window is over; one in the future was begun before the database's clock was put back. */
const isOver = `(b.window_start + $3 * interval '1 ms' <= EXCLUDED.window_start
      OR b.window_start - $3 * interval '1 ms' > EXCLUDED.window_start)`

/**
 * The client's rows come in one order everywhere, and the row of all comes last: so no two
 * statements wait for each other.
 */
const charging = `
WITH own AS (
  INSERT INTO proposer.budget AS b (key, window_start, spent)
  SELECT key, statement_timestamp(), items FROM unnest($1::text[], $2::bigint[]) AS c (key, items)
   ORDER BY key
  ON CONFLICT (key) DO UPDATE SET
    spent = EXCLUDED.spent + CASE WHEN ${isOver}
      THEN 0 ELSE b.spent END,
    window_start = CASE WHEN ${isOver}
      THEN EXCLUDED.window_start ELSE b.window_start END
  RETURNING key, spent, window_start
), everyone AS (
  INSERT INTO proposer.budget AS b (key, window_start, spent)
  SELECT '${everyoneKey}', statement_timestamp(), $4 FROM (SELECT count(*) FROM own) AS done
  ON CONFLICT (key) DO UPDATE SET
    spent = EXCLUDED.spent + CASE WHEN ${isOver}
      THEN 0 ELSE b.spent END,
    window_start = CASE WHEN ${isOver}
      THEN EXCLUDED.window_start ELSE b.window_start END
  RETURNING key, spent, window_start
)
SELECT key, spent, extract(epoch FROM window_start - statement_timestamp()) * 1000 + $3 AS ends_in_ms,
       (SELECT n FROM proposer.head) AS n
  FROM (SELECT * FROM own UNION ALL SELECT * FROM everyone) AS charged`

/** The windows of the store in a database; `windowMs` long. */
export function openWindows(database: SqlDatabase, windowMs: number): SharedWindows {
  const line = openConnection(database)
  let waiting: Waiting[] = []
  let isCharging = false

  async function chargeAll(): Promise<void> {
    isCharging = true
    while (waiting.length > 0) {
      const group = waiting
      waiting = []
      try {
        await chargeGroup(group)
      } catch (error) {
        const reason = error instanceof SqlError ? notReached(database.name, error) : error
        for (const { reject } of group) reject(reason)
      }
    }
    isCharging = false
  }

  async function chargeGroup(group: readonly Waiting[]): Promise<void> {
    const sums = new Map<string, number>()
    for (const { client, items } of group) sums.set(client, (sums.get(client) ?? 0) + items)
    const total = group.reduce((sum, { items }) => sum + items, 0)
    const rows = await line.use((session) =>
      session.query(charging, [[...sums.keys()], [...sums.values()], windowMs, total]),
    )
    const after = new Map(rows.map((row) => [String(row.key), row]))
    // Each charge is told what stood when its turn had come.
    const spent = new Map<string, number>()
    const windowOf = (key: string, all: number, items: number): WindowState => {
      const row = after.get(key)
      if (row === undefined) throw unavailable(`the window of ${key} was not charged`)
      const own = (spent.get(key) ?? 0) + items
      spent.set(key, own)
      return { spentItems: Number(row.spent) - all + own, endsInMs: Number(row.ends_in_ms) }
    }
    for (const { client, items, resolve } of group)
      resolve({
        own: windowOf(client, sums.get(client) ?? 0, items),
        everyone: windowOf(everyoneKey, total, items),
        end: Number(rows[0]?.n),
      })
  }

  return {
    charge: (client, items) =>
      new Promise((resolve, reject) => {
        waiting.push({ client, items, resolve, reject })
        if (!isCharging) void chargeAll()
      }),
    close: line.close,
  }
}
