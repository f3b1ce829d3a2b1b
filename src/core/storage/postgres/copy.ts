import { type Random, type SqlDatabase, SqlError, type SqlSession } from '#ports'
import { StorageError } from '#protocol/errors'
import type { CopiedRecord, CopySource, CopyTarget } from '../copy.js'
import { encodeData } from '../line.js'
import { copyMark, openStoreTables, requireTables } from './schema.js'
import { notReached, openConnection, openQueries, type Queries, rowsUpTo } from './session.js'

/** A gateway that was heard of within this time is taken to be at work. */
const liveSeconds = 30

interface DatabaseSource extends CopySource {
  /** Gateways that go on writing meanwhile: what they add later is not copied. */
  readonly liveGateways: number
  close(): Promise<void>
}

export async function openDatabaseSource(database: SqlDatabase): Promise<DatabaseSource> {
  await requireTables(database)
  const queries = openQueries(database)
  try {
    const [now] = await queries.ask(
      `SELECT n, (SELECT count(*) FROM proposer.gateway
                   WHERE seen_at > clock_timestamp() - interval '${liveSeconds} s') AS live
         FROM proposer.head WHERE id = 1`,
    )
    return {
      name: database.name,
      liveGateways: Number(now?.live),
      records: () => pages(queries, database.name, Number(now?.n)),
      close: async () => queries.close(),
    }
  } catch (error) {
    queries.close()
    throw error
  }
}

async function* pages({ ask }: Queries, name: string, end: number) {
  for await (const { k, t, d } of rowsUpTo(ask, end, (n) => missing(name, n)))
    yield { kind: String(k), timeMs: Number(t), data: d, head: undefined }
}

const missing = (name: string, n: number) =>
  new StorageError(
    'store_damaged',
    `${name} has no record ${n}`,
    'restore the database from a backup',
  )

/** Empty, or one that an earlier copy has begun. Until the copy is finished no gateway opens it. */
export async function openDatabaseTarget(
  database: SqlDatabase,
  random: Pick<Random, 'uuid'>,
): Promise<CopyTarget> {
  await openStoreTables(database, 'taken')
  const { name } = database
  const queries = openQueries(database)
  const writer = openConnection(database)
  let end = 0
  const close = async () => {
    queries.close()
    writer.close()
  }
  return {
    name,
    async *records() {
      const [head] = await queries.ask('SELECT n FROM proposer.head WHERE id = 1')
      end = Number(head?.n)
      yield* pages(queries, name, end)
    },
    async append(records) {
      await writer
        .use((session) => appendBatch(session, name, end, random.uuid(), records))
        .catch((error: unknown) => {
          throw notReached(name, error)
        })
      end += records.length
    },
    async finish() {
      await queries.ask(`UPDATE proposer.head SET ${copyMark.clear} WHERE min_reader < 0`)
      await close()
    },
    close,
  }
}

async function appendBatch(
  session: SqlSession,
  name: string,
  end: number,
  group: string,
  records: readonly CopiedRecord[],
) {
  try {
    const [head] = await session.script(
      `BEGIN; SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = '5s';
       SELECT n, EXISTS (SELECT 1 FROM proposer.gateway
                          WHERE seen_at > clock_timestamp() - interval '${liveSeconds} s') AS is_used
         FROM proposer.head WHERE id = 1 FOR UPDATE`,
    )
    if (head?.is_used === true || Number(head?.n) !== end)
      throw new StorageError(
        'store_locked',
        `${name} is being written by other gateways`,
        'stop the gateways on it (`proposer operator gateways`), then run the copy again',
      )
    await session.query(
      `WITH written AS (
         INSERT INTO proposer.record (n, grp, k, t, d)
         SELECT $1::bigint + i, $2::uuid, k, t, d::json
           FROM unnest($3::text[], $4::bigint[], $5::text[]) WITH ORDINALITY AS r (k, t, d, i))
       UPDATE proposer.head SET n = $6, ${copyMark.set} WHERE id = 1`,
      [
        end,
        group,
        records.map(({ kind }) => kind),
        records.map(({ timeMs }) => timeMs),
        records.map(({ kind, data }) => encodeData(kind, data)),
        end + records.length,
      ],
    )
    await session.query('COMMIT')
  } catch (error) {
    if (!session.isLost) await session.script('ROLLBACK')
    // Two of one identity or nonce: the source tells an impossible history.
    if (error instanceof SqlError && error.code === '23505')
      throw new StorageError(
        'store_damaged',
        `${name} refused a record: ${error.message}`,
        'prove the source first, with `proposer operator store verify`',
      )
    throw error
  }
}
