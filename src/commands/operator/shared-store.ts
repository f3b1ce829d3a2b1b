/** `operator store init`, `upgrade` and `verify` on a store in PostgreSQL. */
import { Command } from 'commander'
import { inspectSharedStore } from '../../core/gateway/ledger/shared-inspection.js'
import { createAudit } from '../../core/gateway/operator/audit.js'
import { StorageError } from '../../core/protocol/errors.js'
import {
  openStoreTables,
  schemaVersion,
  upgradeTables,
} from '../../core/storage/postgres/schema.js'
import type { Context } from '../terminal/context.js'
import { counted, fold } from '../terminal/render.js'
import { ruleLines } from '../terminal/rules.js'
import { type Site, siteOf } from './access.js'
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

/** `operator store verify` of a database: all that the proof of a folder has, and its snapshot. */
export async function proveShared(context: Context, site: Site): Promise<void> {
  const audit = createAudit()
  const database = await sharedDatabase(context, site)
  const { inspection, facts } = await inspectSharedStore(database, audit.onRecord)
  refuseDamage(site, inspection)
  const { records, bytes, epoch, writeVersion, snapshotAt } = inspection
  const { R1, R2, R3 } = audit.proven()
  const rules = { R1, R2, R3 }
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
    rules,
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
    `open slots: ${proof.open_slots}; one for each round, no nonce bound twice`,
    ...ruleLines(rules, {}, undefined),
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
