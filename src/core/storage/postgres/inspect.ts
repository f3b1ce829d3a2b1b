import type { SqlDatabase } from '#ports'
import { ProposerError, StorageError } from '#protocol/errors'
import { messageOf } from '../failures.js'
import type { StoredRecord } from '../record-log.js'
import { recordOfRow } from './log-state.js'
import { requireTables } from './schema.js'
import { openQueries, type Queries, rowsUpTo } from './session.js'
import { snapshotFormat, snapshotParts } from './shared-log.js'

export interface SharedDamage {
  readonly detail: string
  readonly isOfSnapshot: boolean
}

export interface Inspector {
  readonly knownKinds: (kind: string) => boolean
  /** Called in order; what it throws as RangeError or StorageError is a fault of that record. */
  onRecord(record: StoredRecord): void
  snapshotFault(lines: readonly string[]): string | undefined
}

/**
 * Numbers without a gap, no record above the head, indexes that keep identities and nonces apart.
 */
export async function inspectSharedLog(database: SqlDatabase, inspector: Inspector) {
  await requireTables(database)
  const queries = openQueries(database)
  try {
    // Before the head, which is above it then.
    const snapshot = await readLines(queries)
    const [head] = await queries.ask(
      `SELECT h.n, h.epoch, h.write_version, (SELECT max(n) FROM proposer.record) AS last
         FROM proposer.head h WHERE h.id = 1`,
    )
    const end = Number(head?.n)
    const last = Number(head?.last ?? 0)
    const found = await readRecords(queries, database.name, end, snapshot, inspector)
    const faults = [
      found.damage,
      last === end
        ? undefined
        : ofRecords(`the log ends at record ${end}, the last one is ${last}`),
      await indexFault(queries),
    ]
    return {
      records: found.records,
      epoch: Number(head?.epoch),
      writeVersion: Number(head?.write_version),
      bytes: await storeBytes(queries),
      snapshotAt: snapshot?.n,
      damage: faults.find((fault) => fault !== undefined),
    }
  } finally {
    queries.close()
  }
}

export async function storeBytes({ ask }: Pick<Queries, 'ask'>) {
  const [row] = await ask(
    `SELECT pg_total_relation_size('proposer.record') +
            pg_total_relation_size('proposer.snapshot') AS bytes`,
  )
  return Number(row?.bytes)
}

interface Snapshot {
  readonly n: number
  readonly lines: readonly string[]
}

async function readLines({ ask }: Queries) {
  for (;;) {
    const [last] = await ask(
      `SELECT n, body FROM proposer.snapshot WHERE part = 0 AND format = ${snapshotFormat}
        ORDER BY n DESC LIMIT 1`,
    )
    if (last === undefined) return undefined
    const n = Number(last.n)
    const lines: string[] = []
    let isWhole = true
    for await (const text of snapshotParts(ask, last)) {
      isWhole &&= text !== undefined
      for (const line of text?.split('\n') ?? []) lines.push(line)
    }
    if (isWhole) return { n, lines }
    const [still] = await ask(
      'SELECT 1 FROM proposer.snapshot WHERE n = $1 AND part = 0 AND body = $2',
      [n, last.body],
    )
    if (still !== undefined) return { n, lines: [] }
  }
}

const ofRecords = (detail: string) => ({ detail, isOfSnapshot: false })
const ofSnapshot = (detail: string) => ({ detail, isOfSnapshot: true })

async function readRecords(
  { ask }: Queries,
  name: string,
  end: number,
  snapshot: Snapshot | undefined,
  { knownKinds, onRecord, snapshotFault }: Inspector,
): Promise<{ readonly records: number; readonly damage: SharedDamage | undefined }> {
  let records = 0
  try {
    const missing = (n: number) => new RangeError(`record ${n} is missing`)
    for await (const row of rowsUpTo(ask, end, missing)) {
      const n = records + 1
      const record = recordOfRow({ name, knownKinds }, row)
      try {
        onRecord(record)
      } catch (error) {
        if (!(error instanceof RangeError) && !(error instanceof StorageError)) throw error
        if (error instanceof StorageError && error.code === 'store_too_new') throw error
        const why = error instanceof ProposerError ? error.detail : messageOf(error)
        throw new RangeError(`record ${n}: ${why}`)
      }
      records = n
      const fault = n === snapshot?.n ? snapshotFault(snapshot.lines) : undefined
      if (fault !== undefined)
        return {
          records,
          damage: ofSnapshot(`the snapshot of record ${n} is not its fold: ${fault}`),
        }
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error
    return { records, damage: ofRecords(error.message) }
  }
  const isAhead = snapshot !== undefined && snapshot.n > end
  const ahead = `the snapshot is of record ${snapshot?.n}, and the log ends at ${end}`
  return { records, damage: isAhead ? ofSnapshot(ahead) : undefined }
}

/** Judged beside our own rules: a row that broke one would have been refused. */
const guardingIndexes = ['record_pkey', 'record_identity', 'record_nonce']

async function indexFault({ ask }: Queries) {
  const rows = await ask(
    `SELECT c.relname AS name FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
      WHERE i.indrelid = 'proposer.record'::regclass AND i.indisunique AND i.indisvalid`,
  )
  const gone = guardingIndexes.filter((name) => !rows.some((row) => row.name === name))
  return gone.length === 0 ? undefined : ofRecords(`the unique index ${gone.join(', ')} is missing`)
}
