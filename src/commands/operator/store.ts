/** `operator store verify`, `copy`, `backup` and `repair` (contract §6, robustness §2). */
import { createAudit, inspectSharedStore } from '#gateway/ledger/store'
import { foldLedger, storeLog } from '#gateway/ledger/writer'
import { defaultReason } from '#gateway/operator/acts'
import { loadConfig, type StorePlace, seenFile, storeFolder } from '#host/config-file'
import { requireLocalDisk } from '#io/files'
import { fromCwd } from '#io/home'
import { readStoreUrl } from '#io/key-files'
import type { SqlDatabase } from '#ports'
import { StorageError, UsageError } from '#protocol/errors'
import { hasPassword, isDatabaseUrl, isStorePlace } from '#protocol/url-secrets'
import {
  type CopySource,
  type CopyTarget,
  copyRecords,
  openFolderSource,
  openFolderTarget,
} from '#storage/copy'
import { joinPath, namesIn } from '#storage/durable'
import { acquireLock, readHolder } from '#storage/lock'
import { openDatabaseSource, openDatabaseTarget } from '#storage/postgres/copy'
import { endAndGroup, lossSince } from '#storage/postgres/log-state'
import {
  openStoreTables,
  requireTables,
  schemaVersion,
  upgradeTables,
} from '#storage/postgres/schema'
import { readSeen, type SeenEnd } from '#storage/postgres/seen'
import { inspectLog, lossOf } from '#storage/reader'
import type { Context } from '../terminal/context.js'
import { counted } from '../terminal/render.js'
import { dryRunFlag, showDryRun, verb } from '../terminal/verb.js'
import {
  configFlag,
  neededSaidFlags,
  placeName,
  type Said,
  type Site,
  saidFlags,
  saidOf,
  sharedDatabase,
  siteOf,
  siteVerb,
  withQueries,
} from './access.js'

export async function requireStore({ files, store, loaded }: Site) {
  if (loaded.place.kind === 'database' || (await files.exists(store))) return undefined
  throw noStore(
    store,
    `check \`store\` in ${loaded.path}; \`proposer serve\` makes a store where there is none`,
  )
}

const noStore = (folder: string, hint: string) =>
  new UsageError('no_store', `no store found at ${folder}`, hint)

async function inspectStore({ files, hash, store }: Site) {
  const [fold, audit] = [foldLedger(), createAudit()]
  const inspection = await inspectLog({ files, hash }, store, storeLog, (record) => {
    fold.onRecord(record)
    audit.onRecord(record)
  })
  return { inspection, facts: fold.facts, counts: audit.counts }
}

const damaged = (detail: string, hint: string) => new StorageError('store_damaged', detail, hint)

export const verifyVerb = siteVerb({
  name: 'verify',
  about: 'verify checksums, payloads, hashes and nonces; exit 74 names file and byte',
  examples: ['operator store verify'],
  async run(site) {
    const prove = site.loaded.place.kind === 'database' ? provenDatabase : provenFolder
    const { facts, counts, held, sound, note, database } = await prove(site)
    const candidates = facts.counts()
    const open_slots = facts.slots().length
    const by = Object.entries(candidates).flatMap(([status, count]) =>
      count === 0 ? [] : [`${count} ${status}`],
    )
    site.output.show(
      'operator-store-proof',
      {
        store_id: facts.info?.storeId ?? null,
        chain_id: facts.info?.chainId ?? null,
        ...held,
        candidates,
        open_slots,
        kinds: Object.fromEntries([...counts].sort()),
        database,
      },
      held.records === 0
        ? ['sound: the store is empty']
        : [
            `sound: ${counted(held.records, 'record')}${sound}`,
            `candidates: ${by.join(', ') || 'none'}`,
            `open slots: ${open_slots}; no nonce bound twice`,
            note,
          ],
    )
  },
})

async function provenFolder(site: Site) {
  await requireStore(site)
  const { inspection, ...proof } = await inspectStore(site)
  const { damage, files, records, tornBytes, highWater } = inspection
  if (damage)
    throw damaged(
      `${joinPath(site.store, damage.file)} is damaged at byte ${damage.offset}: ${damage.detail}`,
      `restore the store from a backup; without one, ${site.named('store repair')} shows what could be kept`,
    )
  if (proof.facts.info === undefined && records > 0)
    throw damaged(
      `${site.store} holds ${counted(records, 'record')}, but none that names its chain`,
      'restore the store from a backup, and report this',
    )
  const isMarked = typeof highWater === 'object'
  const high_water = isMarked ? highWater.sequence : null
  return {
    ...proof,
    held: { files, records, torn_bytes: tornBytes, high_water },
    sound: `, ${counted(bytesOf(files), 'byte')} in ${counted(files.length, 'file')}`,
    note:
      !isMarked &&
      `HIGHWATER is ${highWater === undefined ? 'missing: a loss at the end would not show' : 'incomplete'}; it is rewritten with the next record`,
    database: undefined,
  }
}

const bytesOf = (files: readonly { readonly bytes: number }[]) =>
  files.reduce((sum, { bytes }) => sum + bytes, 0)

async function provenDatabase(site: Site) {
  const { counts, onRecord } = createAudit()
  const { inspection, facts } = await inspectSharedStore(await sharedDatabase(site), onRecord)
  const { damage, records, bytes, epoch, writeVersion, snapshotAt } = inspection
  if (damage)
    throw damaged(
      `${site.store}: ${damage.detail}`,
      damage.isOfSnapshot
        ? 'the records are whole: delete the rows of proposer.snapshot, then run `proposer operator store compact`; report this'
        : "stop the gateways, and restore the database from a backup with its own tools; pg_amcheck checks the server's files",
    )
  const snapshot_at = snapshotAt ?? null
  const versions = { form: schemaVersion, write_version: writeVersion, epoch, snapshot_at }
  return {
    facts,
    counts,
    held: { files: [], records, torn_bytes: 0, high_water: null },
    sound: ` without a gap, ${counted(bytes, 'byte')} in ${site.store}`,
    note: snapshotAt !== undefined && `the snapshot of record ${snapshotAt} equals its fold`,
    database: { name: site.store, bytes, ...versions },
  }
}

export const copyVerb = verb({
  name: 'copy',
  about:
    'copy a store to an empty place, and compare it record by record; resumes an interrupted copy',
  flags: {
    '--from <place>':
      'a folder, a postgres:// URL, or a gateway.json that names one; default: the store of --config',
    '--to <place>': 'the same for the target: empty, or an interrupted copy',
    '--from-file <file>': 'file (mode 0600) with the URL, if it has a password',
    '--to-file <file>': 'the same for the target; default: PROPOSER_STORE_URL_FILE',
  },
  above: configFlag,
  help: 'To move a store, stop its gateways first, and point gateway.json at the target afterwards. The admin token is not copied.',
  examples: [
    'operator store copy --from ./gateway-store --to postgres://proposer@db.internal/proposer',
    'operator store copy --from-file ./store-url --to ./gateway-store',
  ],
  async run(context, flags) {
    const { output } = context
    const source =
      flags.from === undefined && flags.fromFile === undefined
        ? (await siteOf(context, flags)).loaded.place
        : await placeOf(context, 'from', flags.from, flags.fromFile)
    const target = await placeOf(context, 'to', flags.to, flags.toFile)
    if ((await placeName(context, source)) === (await placeName(context, target)))
      throw usage('--from and --to name the same store', 'name another place for the copy')
    const { from, to, live, copied, records } = await copyStore(context, source, target)
    if (live > 0)
      output.warning(
        'source_in_use',
        `${counted(live, 'gateway')} of ${from} may have written more since: stop them, and run the copy again before the target is served`,
      )
    output.show('operator-store-copy', { from, to, copied, records, live_gateways: live }, [
      `copied ${counted(copied, 'record')} from ${from} to ${to}; all ${records} are the same on both sides`,
    ])
  },
})

export const backupVerb = siteVerb({
  name: 'backup',
  about: 'back up the store to an empty folder while the gateway runs, and verify the copy',
  args: { '<folder>': 'target folder: empty, or not existing yet' },
  help: 'The copy holds everything that was acknowledged before the command began. Keep gateway.json, the questions file and the executor key too. The admin token is not copied.',
  examples: ['operator store backup /backup/monday'],
  async run(site, _flags, { folder: named }) {
    const store = storeFolder(site.loaded)
    const folder = fromCwd(site.cwd, named)
    if (folder.startsWith(`${store}/`) || folder === store)
      throw usage('a backup inside the store would be lost with it', 'name a folder elsewhere')
    await requireEmpty(site, folder, 'name an empty folder, or one that does not exist yet')
    await requireStore(site)
    await copyStore(site, site.loaded.place, { kind: 'folder', folder })
    const { inspection, facts } = await inspectStore({ ...site, store: folder })
    const { records, files } = inspection
    const bytes = bytesOf(files)
    const document = { store, folder, records, bytes, files, candidates: facts.counts() }
    site.output.show('operator-store-backup', document, [
      `copied ${counted(records, 'record')} in ${counted(bytes, 'byte')} to ${folder}; the copy is sound`,
    ])
  },
})

async function requireEmpty({ files }: Context, folder: string, hint: string) {
  if ((await namesIn(files, folder)).length === 0) return
  throw new UsageError('store_not_empty', `${folder} is not empty: nothing was copied`, hint)
}

async function copyStore(context: Context, from: StorePlace, to: StorePlace) {
  const source = await sourceAt(context, from)
  try {
    const [filtered, target] =
      to.kind === 'database'
        ? [source, await openDatabaseTarget(await context.edges.database(to.url), context.random)]
        : [withoutLeaders(source), await folderTarget(context, to.folder)]
    const done = await copyTo(context, filtered, target)
    return { from: source.name, to: target.name, live: source.liveGateways, ...done }
  } finally {
    await source.close()
  }
}

const copyTo = ({ output, signal }: Context, source: CopySource, target: CopyTarget) =>
  output
    .during(`copying ${source.name}`, (progress) =>
      copyRecords(source, target, {
        signal,
        onProgress: (count) => progress.update(`${counted(count, 'record')} copied`),
      }),
    )
    .finally(() => target.close())

const usage = (detail: string, hint: string) => new UsageError('usage', detail, { hint })

const placesHint = 'name a folder, a postgres:// URL without a password, or a gateway.json'

/** Others see arguments (R5). */
async function placeOf(
  context: Context,
  side: 'from' | 'to',
  named: string | undefined,
  file: string | undefined,
): Promise<StorePlace> {
  if (named !== undefined && file !== undefined)
    throw usage(`--${side} and --${side}-file exclude each other`, 'give one of them')
  const fallback = side === 'to' ? context.storeUrlFile : undefined
  const urlFile = file ?? (named === undefined ? fallback : undefined)
  if (urlFile !== undefined)
    return { kind: 'database', url: await readStoreUrl(fromCwd(context.cwd, urlFile)) }
  if (named === undefined || named === '') throw usage(`--${side} is required`, placesHint)
  if (hasPassword(named))
    throw new UsageError(
      'password_in_url',
      `--${side} holds a password, which others can read`,
      `write the URL into a file of mode 0600, and give --${side}-file or PROPOSER_STORE_URL_FILE; change the password`,
    )
  if (isDatabaseUrl(named)) return { kind: 'database', url: named }
  if (!isStorePlace(named))
    throw usage(`--${side} is neither a folder nor a postgres:// URL`, placesHint)
  // The variable stands before gateway.json for a gateway: here the file is meant itself.
  if (/\.jsonc?$/.test(named))
    return (await loadConfig({ ...context, storeUrlFile: undefined }, named)).place
  return { kind: 'folder', folder: fromCwd(context.cwd, named) }
}

async function sourceAt(context: Context, place: StorePlace) {
  if (place.kind === 'database') return openDatabaseSource(await context.edges.database(place.url))
  const { folder } = place
  if (!(await context.files.exists(`${folder}/FORMAT`)))
    throw noStore(
      folder,
      'name the folder that `store` of gateway.json names, or the gateway.json itself',
    )
  await requireLocalDisk(folder)
  const holder = await readHolder(context, folder)
  const liveGateways = holder?.state === 'alive' ? 1 : 0
  return { ...(await openFolderSource(context, folder, storeLog)), liveGateways }
}

async function folderTarget(context: Context, folder: string) {
  await requireLocalDisk(folder)
  return openFolderTarget(context, folder, storeLog)
}

/** A store in a folder has one gateway, and version 0.1 does not know these records. */
const withoutLeaders = (source: CopySource) => ({
  name: source.name,
  async *records() {
    for await (const record of source.records())
      if (!record.kind.startsWith('leader.')) yield record
  },
})

export const repairVerb = siteVerb({
  name: 'repair',
  about:
    'show what a repair would lose; with --accept-loss, copy the intact part to a new store beside the damaged one',
  flags: {
    '--accept-loss': 'accept the loss of everything after the damage; restoring a backup is better',
    ...saidFlags,
    ...dryRunFlag,
  },
  examples: ['operator store repair'],
  async run(site, flags) {
    storeFolder(site.loaded)
    await requireStore(site)
    const { acceptLoss } = flags
    let plan = await planOf(site)
    let folder: string | undefined
    const isOnlyShown = !acceptLoss || site.isDryRun
    if (!isOnlyShown && plan.damage) {
      const lock = await acquireLock(site, site.store, 'operator')
      try {
        plan = await planOf(site)
        if (plan.damage) folder = await repair(site, plan, saidOf(site, flags))
      } finally {
        await lock.release()
      }
    }
    const repaired = folder !== undefined
    const saved = isOnlyShown ? undefined : repaired ? (plan.loss?.files ?? []) : []
    site.output.show('operator-store-repair', { repaired, ...plan, saved, folder }, [
      ...planLines(plan),
      repaired &&
        `repaired: ${folder} holds what is sound, the damaged store is as it was; move that away and the new one to its place`,
    ])
    if (!acceptLoss && plan.damage && !site.isDryRun)
      throw new UsageError(
        'loss_not_accepted',
        'nothing was changed',
        `restore a backup if there is one; else accept the loss with ${site.named('store repair --accept-loss')}`,
      )
  },
})

async function repair(site: Site, plan: Plan, said: Said) {
  const folder = `${site.store}.repaired`
  await requireEmpty(site, folder, 'move it away: it may be what an earlier repair has made')
  const { damage, kept_records, loss } = plan
  const lost = { lostBytes: loss?.bytes ?? 0, saved: loss?.files ?? [] }
  const data = { ...damage, ...lost, reason: defaultReason, ...said }
  const timeMs = Math.trunc(site.clock.nowMs())
  const source = await openFolderSource(site, site.store, storeLog)
  const sound: CopySource = {
    name: site.store,
    async *records() {
      let left = kept_records
      for await (const record of source.records()) {
        yield record
        left -= 1
        if (left === 0) break
      }
      yield { kind: 'store.repaired', data, timeMs, head: undefined }
    },
  }
  try {
    await copyTo(site, sound, await folderTarget(site, folder))
    return folder
  } finally {
    await source.close()
  }
}

async function planOf(site: Site) {
  const { inspection, facts } = await inspectStore(site)
  const { damage, manifest, records: kept_records } = inspection
  if (damage === undefined || manifest === undefined)
    return { damage: null, kept_records, loss: null }
  const { file, offset, detail } = damage
  if (facts.info === undefined)
    throw damaged(
      `${joinPath(site.store, file)}: nothing before the damage is sound`,
      'there is nothing to keep: restore the store from a backup',
    )
  const { soundLines: sound_lines, ...lost } = await lossOf(site, site.store, inspection)
  return { damage: { file, offset, detail }, kept_records, loss: { ...lost, sound_lines } }
}
type Plan = Awaited<ReturnType<typeof planOf>>

function planLines({ damage, kept_records, loss }: Plan) {
  if (damage === null || loss === null)
    return [`sound: ${counted(kept_records, 'record')}, nothing to repair`]
  const behind = Object.entries(loss.sound_lines).map(([kind, count]) => `${count} ${kind}`)
  return [
    `${damage.file} is damaged at byte ${damage.offset}: ${damage.detail}`,
    `kept: ${counted(kept_records, 'record')} before it`,
    `lost: ${loss.bytes} bytes in ${loss.files.join(', ') || 'no file'}; after the damage: ${behind.join(', ') || 'no sound record'}`,
    'this gateway forgets any candidate, nonce or transaction among them; the chain may still know it',
  ]
}

export const storeInitVerb = siteVerb({
  name: 'init',
  about: 'create the tables of a store in an empty PostgreSQL database',
  help: 'A database with tables of another program is refused. `proposer serve` creates them too, if its user may.',
  examples: ['operator store init --config gateway.json'],
  async run(site) {
    const made = (await openStoreTables(await sharedDatabase(site))) === 'empty'
    site.output.show('operator-store-init', { store: site.store, made, form: schemaVersion }, [
      made
        ? `${site.store} now holds an empty store, schema version ${schemaVersion}`
        : `${site.store} already holds a store: nothing changed`,
    ])
  },
})

export const upgradeVerb = siteVerb({
  name: 'upgrade',
  about:
    'upgrade the tables of a PostgreSQL store to this version; gateways of the previous version keep running',
  help: 'Rerun it once every gateway is of this version: only then is the new schema written.',
  examples: ['operator store upgrade'],
  async run(site) {
    const done = await upgradeTables(await sharedDatabase(site))
    const { migrations, writeVersion: write_version, olderGateways: older_gateways } = done
    const waits = `; ${counted(older_gateways, 'gateway')} of an older version still run: rerun this once they have stopped`
    site.output.show(
      'operator-store-upgrade',
      { store: site.store, form: schemaVersion, migrations, write_version, older_gateways },
      [
        `${counted(migrations, 'change')} made: the tables have schema version ${schemaVersion}, gateways write version ${write_version}${older_gateways === 0 ? '' : waits}`,
      ],
    )
  },
})

/** So the loss stands in the log of the database; what is lost is counted in records. */
const lossRecord = `
WITH ended AS (UPDATE proposer.head SET n = n + 1 WHERE id = 1 RETURNING n)
INSERT INTO proposer.record (n, grp, k, t, d)
SELECT n, $1::uuid, 'store.repaired', $2::bigint,
       json_strip_nulls(json_build_object('file', $3::text, 'offset', n - 1, 'lostBytes', 0,
         'saved', '[]'::json, 'reason', $4::text, 'by', $5::text))
  FROM ended`

export const acceptLossVerb = siteVerb({
  name: 'accept-loss',
  about:
    'let the gateways of this machine serve a PostgreSQL store that lacks records they have seen',
  flags: { ...neededSaidFlags('reason, stored with it'), ...dryRunFlag },
  help: 'First look for the database that has them: a standby, the former primary, a newer backup. What was acknowledged and is lost comes back with `proposer replay` of its proposers alone. Each machine that says 74 store_rolled_back needs this once.',
  examples: ['operator store accept-loss --reason "the former primary is destroyed"'],
  async run(site, flags) {
    const { store, loaded } = site
    const said = saidOf(site, flags)
    const database = await sharedDatabase(site)
    // A database that cannot be asked is told as that, also where there is nothing to compare.
    const isStore = await requireTables(database).then(() => true, ifCode('store_missing', false))
    const file = seenFile(loaded)
    const seen = await readSeen(site, file).catch(ifCode('store_damaged', 'unreadable' as const))
    const loss = await lossIn(database, isStore, seen)
    const seen_record = typeof seen === 'object' ? seen.n : null
    const document = { store, loss: loss ?? null, seen_record, ...said }
    if (loss !== undefined) {
      if (site.isDryRun)
        return showDryRun(site, `accept that ${loss}`, { act: 'store/accept-loss', ...document })
      const nowMs = Math.trunc(site.clock.nowMs())
      const values = [site.random.uuid(), nowMs, database.name, said.reason, said.by ?? null]
      if (isStore) await withQueries(database, ({ ask }) => ask(lossRecord, values))
      await site.files.remove(joinPath(file.folder, file.name))
      await site.files.syncDir(file.folder)
    }
    site.output.show('operator-store-loss', { ...document, accepted: loss !== undefined }, [
      seen === undefined
        ? `this machine has not seen ${store} yet: nothing changed`
        : loss === undefined
          ? `${store} has all that this machine has seen: nothing changed`
          : `accepted: ${loss}. Gateways of this machine serve ${store} from now on`,
    ])
  },
})

async function lossIn(database: SqlDatabase, isStore: boolean, seen?: SeenEnd | 'unreadable') {
  if (seen === undefined) return undefined
  if (seen === 'unreadable') return 'what this machine has seen cannot be read any more'
  if (!isStore) return 'the database holds no store any more'
  const [row] = await withQueries(database, ({ ask }) => ask(endAndGroup, [seen.n]))
  return lossSince(seen, Number(row?.n), row?.grp)
}

const ifCode =
  <T>(code: string, value: T) =>
  (error: unknown) => {
    if (error instanceof StorageError && error.code === code) return value
    throw error
  }
