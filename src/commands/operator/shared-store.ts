/** `operator store init`, `upgrade`, `verify` and `accept-loss` on a store in PostgreSQL. */
import { Command } from 'commander'
import { inspectSharedStore } from '../../core/gateway/ledger/open-store.js'
import { createAudit } from '../../core/gateway/operator/audit.js'
import { seenFile } from '../../core/host/config-file.js'
import type { SqlDatabase } from '../../core/ports.js'
import { StorageError } from '../../core/protocol/errors.js'
import { joinPath } from '../../core/storage/durable.js'
import { endAndGroup, lossSince } from '../../core/storage/postgres/log-state.js'
import {
  openStoreTables,
  requireTables,
  schemaVersion,
  upgradeTables,
} from '../../core/storage/postgres/schema.js'
import { readSeen, type SeenEnd } from '../../core/storage/postgres/seen.js'
import { openQueries } from '../../core/storage/postgres/session.js'
import type { Context } from '../terminal/context.js'
import { dryRunOption, showDryRun } from '../terminal/dry-run.js'
import { counted, fold } from '../terminal/render.js'
import { type Site, siteOf } from './access.js'
import { byOption, reasonOption, type SaidFlags, saidFlags } from './said.js'
import { sharedDatabase } from './shared-site.js'

export const storeInitCommand = (context: Context) =>
  new Command('init')
    .description('create the tables of a store in an empty PostgreSQL database')
    .addHelpText(
      'after',
      '\nA database with tables of another program is refused. `proposer serve` creates them too, if its user may.\n\nExample:\n  proposer operator store init --config gateway.json',
    )
    .action(async (_own: unknown, command: Command) => {
      const site = await siteOf(context, command)
      const database = await sharedDatabase(context, site)
      const made = (await openStoreTables(database)) === 'empty'
      const document = { store: site.store, made, form: schemaVersion }
      const { output } = context
      output.result('operator-store-init', document, () =>
        fold(
          made
            ? `${site.store} now holds an empty store, schema version ${schemaVersion}`
            : `${site.store} already holds a store: nothing changed`,
          output.columns,
          '  ',
        ),
      )
    })

export const upgradeCommand = (context: Context) =>
  new Command('upgrade')
    .description(
      'upgrade the tables of a PostgreSQL store to this version; gateways of the previous version keep running',
    )
    .addHelpText(
      'after',
      '\nRerun it once every gateway is of this version: only then is the new schema written.\n\nExample:\n  proposer operator store upgrade',
    )
    .action(async (_own: unknown, command: Command) => {
      const site = await siteOf(context, command)
      const done = await upgradeTables(await sharedDatabase(context, site))
      const { migrations, writeVersion, olderGateways } = done
      const document = {
        store: site.store,
        form: schemaVersion,
        migrations,
        write_version: writeVersion,
        older_gateways: olderGateways,
      }
      const { output } = context
      const waits = `; ${counted(olderGateways, 'gateway')} of an older version still run: rerun this once they have stopped`
      output.result('operator-store-upgrade', document, () =>
        fold(
          `${counted(migrations, 'change')} made: the tables have schema version ${schemaVersion}, gateways write version ${writeVersion}${olderGateways === 0 ? '' : waits}`,
          output.columns,
          '  ',
        ),
      )
    })

/** So the loss of a database stands in its log; what it is counted in are records. */
const lossRecord = `
WITH ended AS (UPDATE proposer.head SET n = n + 1 WHERE id = 1 RETURNING n)
INSERT INTO proposer.record (n, grp, k, t, d)
SELECT n, $1::uuid, 'store.repaired', $2::bigint,
       json_strip_nulls(json_build_object('file', $3::text, 'offset', n - 1, 'lostBytes', 0,
         'saved', '[]'::json, 'reason', $4::text, 'by', $5::text))
  FROM ended`

export const acceptLossCommand = (context: Context) =>
  new Command('accept-loss')
    .description(
      'let the gateways of this machine serve a PostgreSQL store that lacks records they have seen',
    )
    .requiredOption(reasonOption[0], 'reason, stored with it')
    .option(...byOption)
    .option(...dryRunOption)
    .addHelpText(
      'after',
      '\nFirst look for the database that has them: a standby, the former primary, a newer backup. What was acknowledged and is lost comes back with `proposer replay` of its proposers alone. Each machine that says 74 store_rolled_back needs this once.\n\nExample:\n  proposer operator store accept-loss --reason "the former primary is destroyed"',
    )
    .action(async (own: SaidFlags, command: Command) => {
      const said = saidFlags(context, own)
      const site = await siteOf(context, command)
      const database = await sharedDatabase(context, site)
      const file = seenFile(site.loaded)
      const path = joinPath(file.folder, file.name)
      const seen = await readSeen(context, file).catch((error: unknown): 'unreadable' => {
        if (error instanceof StorageError && error.code === 'store_damaged') return 'unreadable'
        throw error
      })
      const loss = await lossIn(database, seen)
      const document = {
        store: site.store,
        loss: loss ?? null,
        seen_record: typeof seen === 'object' ? seen.n : null,
        ...said,
      }
      if (loss !== undefined && site.isDryRun) {
        showDryRun(context, `accept that ${loss}`, { act: 'store/accept-loss', ...document })
        return
      }
      if (loss !== undefined) {
        await writeLoss(context, database, said)
        await context.files.remove(path)
        await context.files.syncDir(file.folder)
      }
      const { output } = context
      output.result('operator-store-loss', { ...document, accepted: loss !== undefined }, () =>
        fold(
          loss === undefined
            ? `${site.store} has ${seen === undefined ? 'not been seen by this machine yet' : 'all that this machine has seen'}: nothing changed`
            : `accepted: ${loss}. Gateways of this machine serve ${site.store} from now on`,
          output.columns,
          '  ',
        ),
      )
    })

/** What a database lacks of what was seen; `undefined` where it lacks nothing. */
async function lossIn(
  database: SqlDatabase,
  seen: SeenEnd | 'unreadable' | undefined,
): Promise<string | undefined> {
  // A database that cannot be asked is told as that, also where there is nothing to compare.
  const isStore = await hasTables(database)
  if (seen === undefined) return undefined
  if (seen === 'unreadable') return 'what this machine has seen cannot be read any more'
  if (!isStore) return 'the database holds no store any more'
  const queries = openQueries(database)
  try {
    const [row] = await queries.ask(endAndGroup, [seen.n])
    return lossSince(seen, Number(row?.n), row?.grp)
  } finally {
    queries.close()
  }
}

/** Nothing is written into a database without a store. */
async function writeLoss(
  { clock, random }: Context,
  database: SqlDatabase,
  { reason, by }: SaidFlags,
): Promise<void> {
  if (!(await hasTables(database))) return
  const queries = openQueries(database)
  try {
    const values = [random.uuid(), Math.trunc(clock.nowMs()), database.name, reason, by ?? null]
    await queries.ask(lossRecord, values)
  } finally {
    queries.close()
  }
}

async function hasTables(database: SqlDatabase): Promise<boolean> {
  try {
    await requireTables(database)
    return true
  } catch (error) {
    if (error instanceof StorageError && error.code === 'store_missing') return false
    throw error
  }
}

/** `operator store verify` of a database: all that the proof of a folder has, and its snapshot. */
export async function proveShared(context: Context, site: Site): Promise<void> {
  const audit = createAudit()
  const database = await sharedDatabase(context, site)
  const { inspection, facts } = await inspectSharedStore(database, audit.onRecord)
  refuseDamage(site, inspection)
  const { records, bytes, epoch, writeVersion, snapshotAt } = inspection
  const proof = {
    store_id: facts.info?.storeId ?? null,
    chain_id: facts.info?.chainId ?? null,
    files: [],
    records,
    torn_bytes: 0,
    high_water: null,
    candidates: facts.counts(),
    open_slots: facts.slots().length,
    kinds: Object.fromEntries([...audit.counts].sort()),
    database: {
      name: site.store,
      bytes,
      form: schemaVersion,
      write_version: writeVersion,
      epoch,
      snapshot_at: snapshotAt ?? null,
    },
  }
  const by = Object.entries(proof.candidates).flatMap(([status, count]) =>
    count === 0 ? [] : [`${count} ${status}`],
  )
  const { output } = context
  const lines = [
    `sound: ${counted(records, 'record')} without a gap, ${counted(bytes, 'byte')} in ${site.store}`,
    `candidates: ${by.join(', ') || 'none'}`,
    `open slots: ${proof.open_slots}; no nonce bound twice`,
    snapshotAt === undefined
      ? 'no snapshot: an opening folds every record'
      : `the snapshot of record ${snapshotAt} equals its fold`,
  ]
  output.result('operator-store-proof', proof, () =>
    (records === 0 ? ['sound: the store is empty'] : lines)
      .map((line) => fold(line, output.columns, '  '))
      .join('\n'),
  )
}

function refuseDamage(
  { store }: Site,
  { damage }: Awaited<ReturnType<typeof inspectSharedStore>>['inspection'],
): void {
  if (damage === undefined) return
  throw new StorageError('store_damaged', `${store}: ${damage.detail}`, {
    hint: damage.isOfSnapshot
      ? 'the records are whole: delete the rows of proposer.snapshot, then run `proposer operator store compact`; report this'
      : "stop the gateways, and restore the database from a backup with its own tools; pg_amcheck checks the server's files",
  })
}
