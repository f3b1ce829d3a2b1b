import { type SqlDatabase, SqlError } from '#ports'
import { unavailable } from '../failures.js'
import { notReached, openConnection } from './session.js'

export interface WindowLimits {
  readonly windowMs: number
  readonly perClientItems: number
  readonly mostSharedItems: number
}

export interface WindowState {
  readonly spentItems: number
  readonly endsInMs: number
}

export interface Charged {
  readonly own: WindowState
  readonly everyone: WindowState
  readonly end: number
}

export interface SharedWindows {
  /**
   * Whole its own, and that of all with what its own had left (contract §2). What waits meanwhile
   * is charged in one statement, in the order of the calls.
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

const everyoneKey = '*'

/** The window is over; one in the future was begun before the database's clock was put back. */
const isOver = `(b.window_start + $3 * interval '1 ms' <= EXCLUDED.window_start
      OR b.window_start - $3 * interval '1 ms' > EXCLUDED.window_start)`

const added = `ON CONFLICT (key) DO UPDATE SET
    spent = EXCLUDED.spent + CASE WHEN ${isOver} THEN 0 ELSE b.spent END,
    window_start = CASE WHEN ${isOver} THEN EXCLUDED.window_start ELSE b.window_start END
  RETURNING key, spent, window_start`

/** One order everywhere, the row of all last: so no two statements wait for each other. */
const charging = `
WITH charge AS (
  SELECT * FROM unnest($1::text[], $2::bigint[], $4::bigint[]) AS c (key, items, shared)
), own AS (
  INSERT INTO proposer.budget AS b (key, window_start, spent)
  SELECT key, statement_timestamp(), items FROM charge ORDER BY key
  ${added}
), everyone AS (
  INSERT INTO proposer.budget AS b (key, window_start, spent)
  SELECT '${everyoneKey}', statement_timestamp(),
         sum(greatest(0, least(shared, $5::bigint - (spent - items))))
    FROM own JOIN charge USING (key)
  ${added}
)
SELECT key, spent, extract(epoch FROM window_start - statement_timestamp()) * 1000 + $3 AS ends_in_ms,
       (SELECT n FROM proposer.head) AS n
  FROM (SELECT * FROM own UNION ALL SELECT * FROM everyone) AS charged`

export function openWindows(
  database: SqlDatabase,
  { windowMs, perClientItems, mostSharedItems }: WindowLimits,
): SharedWindows {
  const line = openConnection(database)
  let waiting: Waiting[] = []
  let isCharging = false

  async function chargeAll() {
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

  async function chargeGroup(group: readonly Waiting[]) {
    const sums = new Map<string, { items: number; shared: number }>()
    const add = (to: typeof sums, { client, items }: Waiting) => {
      const sum = to.get(client) ?? { items: 0, shared: 0 }
      sum.items += items
      sum.shared += Math.min(items, mostSharedItems)
      to.set(client, sum)
      return sum
    }
    for (const one of group) add(sums, one)
    const each = [...sums.values()]
    const rows = await line.use((session) =>
      session.query(charging, [
        [...sums.keys()],
        each.map((sum) => sum.items),
        windowMs,
        each.map((sum) => sum.shared),
        perClientItems,
      ]),
    )
    const after = new Map(rows.map((row) => [String(row.key), row]))
    const rowOf = (key: string) => {
      const row = after.get(key)
      if (row === undefined) throw unavailable(`the window of ${key} was not charged`)
      return { spent: Number(row.spent), endsInMs: Number(row.ends_in_ms) }
    }
    /** What a client had spent before this group, and what it takes from all for so much of it. */
    const before = (client: string) => rowOf(client).spent - (sums.get(client)?.items ?? 0)
    const sharedOf = (client: string, of: number) =>
      Math.max(0, Math.min(of, perClientItems - before(client)))
    const all = rowOf(everyoneKey)
    let everyone = all.spent
    for (const [client, sum] of sums) everyone -= sharedOf(client, sum.shared)
    // Each charge is told what stood when its turn had come.
    const told = new Map<string, { items: number; shared: number }>()
    for (const one of group) {
      const { client, resolve } = one
      everyone -= sharedOf(client, told.get(client)?.shared ?? 0)
      const sum = add(told, one)
      everyone += sharedOf(client, sum.shared)
      resolve({
        own: { spentItems: before(client) + sum.items, endsInMs: rowOf(client).endsInMs },
        everyone: { spentItems: everyone, endsInMs: all.endsInMs },
        end: Number(rows[0]?.n),
      })
    }
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
