/** A store in a database, for the operator's commands that are about several gateways. */
import { storeFolder } from '../../core/host/config-file.js'
import type { SqlDatabase } from '../../core/ports.js'
import { UsageError } from '../../core/protocol/errors.js'
import { requireTables } from '../../core/storage/postgres/schema.js'
import { openQueries, type Queries } from '../../core/storage/postgres/session.js'
import type { Context } from '../terminal/context.js'
import type { Site } from './access.js'

/** The database of a store. UsageError `store_not_shared` for a store in a folder. */
export async function sharedDatabase(
  { edges }: Context,
  { loaded: { place, path } }: Pick<Site, 'loaded'>,
): Promise<SqlDatabase> {
  if (place.kind === 'database') return edges.database(place.url)
  throw new UsageError(
    'store_not_shared',
    `the store of ${path} is the folder ${storeFolder({ place })}, which one gateway serves`,
    {
      hint: 'this command is for a store in PostgreSQL: give --config with its gateway.json, or set PROPOSER_STORE_URL_FILE',
    },
  )
}

/** Statements on a store whose tables are there. Rejects as `sharedDatabase`, and with StorageError. */
export async function withQueries<T>(
  context: Context,
  site: Site,
  work: (queries: Queries) => Promise<T>,
): Promise<T> {
  const database = await sharedDatabase(context, site)
  await requireTables(database)
  const queries = openQueries(database)
  try {
    return await work(queries)
  } finally {
    queries.close()
  }
}
