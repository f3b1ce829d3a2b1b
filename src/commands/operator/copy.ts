/** `operator store copy` and `backup`: a whole store from one place to another. */
import { Command } from 'commander'
import { storeLog } from '../../core/gateway/ledger/open-store.js'
import { loadConfig, type StorePlace, storeFolder } from '../../core/host/config-file.js'
import { requireLocalDisk } from '../../core/io/files.js'
import { fromCwd } from '../../core/io/home-paths.js'
import { readStoreUrl } from '../../core/io/key-files.js'
import { UsageError } from '../../core/protocol/errors.js'
import { hasPassword, isDatabaseUrl, isStorePlace } from '../../core/protocol/url-secrets.js'
import {
  type CopySource,
  type CopyTarget,
  copyRecords,
  openFolderSource,
  openFolderTarget,
} from '../../core/storage/copy.js'
import { namesIn } from '../../core/storage/durable.js'
import { readHolder } from '../../core/storage/lock.js'
import { openDatabaseSource, openDatabaseTarget } from '../../core/storage/postgres/copy.js'
import type { Context } from '../terminal/context.js'
import { counted, fold } from '../terminal/render.js'
import { siteOf } from './access.js'
import { inspectStore, requireStore } from './inspection.js'

interface CopyFlags {
  readonly from?: string
  readonly to?: string
  readonly fromFile?: string
  readonly toFile?: string
}

export const copyCommand = (context: Context) =>
  new Command('copy')
    .description(
      'copy a store to an empty place, and compare it record by record; resumes an interrupted copy',
    )
    .option(
      '--from <place>',
      'a folder, a postgres:// URL, or a gateway.json that names one; default: the store of --config',
    )
    .option('--to <place>', 'the same for the target: empty, or an interrupted copy')
    .option('--from-file <file>', 'file (mode 0600) with the URL, if it has a password')
    .option('--to-file <file>', 'the same for the target; default: PROPOSER_STORE_URL_FILE')
    .addHelpText(
      'after',
      '\nTo move a store, stop its gateways first, and point gateway.json at the target afterwards. The admin token is not copied.\n\nExamples:\n  proposer operator store copy --from ./gateway-store --to postgres://proposer@db.internal/proposer\n  proposer operator store copy --from-file ./store-url --to ./gateway-store',
    )
    .action(async (own: CopyFlags, command: Command) => {
      const from =
        own.from === undefined && own.fromFile === undefined
          ? (await siteOf(context, command)).loaded.place
          : await placeOf(context, 'from', own.from, own.fromFile)
      const to = await placeOf(context, 'to', own.to, own.toFile)
      if ((await nameOf(context, from)) === (await nameOf(context, to)))
        throw usage('--from and --to name the same store', 'name another place for the copy')
      print(context, await copyStore(context, from, to))
    })

export const backupCommand = (context: Context) =>
  new Command('backup')
    .description('back up the store to an empty folder while the gateway runs, and verify the copy')
    .argument('<folder>', 'target folder: empty, or not existing yet')
    .addHelpText(
      'after',
      '\nThe copy holds everything that was acknowledged before the command began. Keep gateway.json, the questions file and the executor key too. The admin token is not copied.\n\nExample:\n  proposer operator store backup /backup/monday',
    )
    .action(async (given: string, _own: unknown, command: Command) => {
      const site = await siteOf(context, command)
      // A database is backed up with its own tools.
      const from = storeFolder(site.loaded)
      const to = fromCwd(context.cwd, given)
      if (to.startsWith(`${from}/`) || to === from)
        throw usage('a backup inside the store would be lost with it', 'name a folder elsewhere')
      if ((await namesIn(context.files, to)).length > 0)
        throw new UsageError('store_not_empty', `${to} is not empty: nothing was copied`, {
          hint: 'name an empty folder, or one that does not exist yet',
        })
      await requireStore(context, site)
      await copyStore(context, site.loaded.place, { kind: 'folder', folder: to })
      const { inspection, facts } = await inspectStore(context, { store: to })
      const { records, files } = inspection
      const bytes = files.reduce((sum, file) => sum + file.bytes, 0)
      const document = { store: from, folder: to, records, bytes, files }
      context.output.result(
        'operator-store-backup',
        { ...document, candidates: facts.counts() },
        () =>
          fold(
            `copied ${counted(records, 'record')} in ${counted(bytes, 'byte')} to ${to}; the copy is sound`,
            context.output.columns,
            '  ',
          ),
      )
    })

/** Copies what the target has not yet. Rejects with StorageError. */
async function copyStore(context: Context, from: StorePlace, to: StorePlace): Promise<Done> {
  const source = await sourceAt(context, from)
  try {
    const target =
      to.kind === 'database'
        ? await openDatabaseTarget(await context.edges.database(to.url), context.random)
        : await folderTarget(context, to.folder)
    const filtered = to.kind === 'folder' ? withoutLeaders(source) : source
    const { name: fromName, liveGateways: live } = source
    return { from: fromName, to: target.name, live, ...(await copyTo(context, filtered, target)) }
  } finally {
    await source.close()
  }
}

/** The same with both sides open; closes the target. */
export async function copyTo(context: Context, source: CopySource, target: CopyTarget) {
  const progress = context.output.progress(`copying ${source.name}`)
  try {
    return await copyRecords(source, target, {
      signal: context.signal,
      onProgress: (count) => progress.update(`${counted(count, 'record')} copied`),
    })
  } finally {
    progress.stop()
    await target.close()
  }
}

interface Done {
  readonly from: string
  readonly to: string
  readonly copied: number
  readonly records: number
  readonly live: number
}

function print({ output }: Context, { from, to, copied, records, live }: Done): void {
  if (live > 0)
    output.warning(
      'source_in_use',
      `${counted(live, 'gateway')} of ${from} may have written more since: stop them, and run the copy again before the target is served`,
    )
  const document = { from, to, copied, records, live_gateways: live }
  const how = copied === records ? '' : ` (${records - copied} were already there)`
  output.result('operator-store-copy', document, () =>
    fold(
      `copied ${counted(copied, 'record')} from ${from} to ${to}${how}; all ${records} are the same on both sides`,
      output.columns,
      '  ',
    ),
  )
}

const usage = (detail: string, hint: string) => new UsageError('usage', detail, { hint })

const placesHint = 'name a folder, a postgres:// URL without a password, or a gateway.json'

/** What a flag names. UsageError for a URL with a password: others see arguments (R5). */
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
    throw new UsageError('password_in_url', `--${side} holds a password, which others can read`, {
      hint: `write the URL into a file of mode 0600, and give --${side}-file or PROPOSER_STORE_URL_FILE; change the password`,
    })
  if (isDatabaseUrl(named)) return { kind: 'database', url: named }
  if (!isStorePlace(named))
    throw usage(`--${side} is neither a folder nor a postgres:// URL`, placesHint)
  // The variable stands before gateway.json for a gateway: here the file is meant itself.
  if (/\.jsonc?$/.test(named))
    return (await loadConfig({ ...context, storeUrlFile: undefined }, named)).place
  return { kind: 'folder', folder: fromCwd(context.cwd, named) }
}

const nameOf = async ({ edges }: Context, place: StorePlace): Promise<string> =>
  place.kind === 'folder' ? place.folder : (await edges.database(place.url)).name

interface OpenSource extends CopySource {
  readonly liveGateways: number
  close(): Promise<void>
}

async function sourceAt(context: Context, place: StorePlace): Promise<OpenSource> {
  if (place.kind === 'database') return openDatabaseSource(await context.edges.database(place.url))
  const { folder } = place
  if (!(await context.files.exists(`${folder}/FORMAT`)))
    throw new UsageError('no_store', `no store found at ${folder}`, {
      hint: 'name the folder that `store` of gateway.json names, or the gateway.json itself',
    })
  await requireLocalDisk(folder)
  const holder = await readHolder(context, folder)
  const liveGateways = holder?.state === 'alive' ? 1 : 0
  return { ...(await openFolderSource(context, folder, storeLog)), liveGateways }
}

export async function folderTarget(context: Context, folder: string): Promise<CopyTarget> {
  await requireLocalDisk(folder)
  return openFolderTarget(context, folder, storeLog)
}

/** A store in a folder has one gateway, and version 0.1 does not know these records. */
const withoutLeaders = (source: CopySource): CopySource => ({
  name: source.name,
  async *records() {
    for await (const record of source.records())
      if (!record.kind.startsWith('leader.')) yield record
  },
})
