/** `operator store copy`: a store from a folder to PostgreSQL, or back, as a whole. */
import { Command } from 'commander'
import { storeLog } from '../../core/gateway/ledger/open-store.js'
import { loadConfig, type StorePlace } from '../../core/host/config-file.js'
import { requireLocalDisk } from '../../core/io/files.js'
import { fromCwd } from '../../core/io/home-paths.js'
import { readStoreUrl } from '../../core/io/key-files.js'
import { UsageError } from '../../core/protocol/errors.js'
import { hasPassword, isDatabaseUrl, isStorePlace } from '../../core/protocol/url-secrets.js'
import {
  type CopySource,
  copyRecords,
  openFolderSource,
  openFolderTarget,
} from '../../core/storage/copy.js'
import { openDatabaseSource, openDatabaseTarget } from '../../core/storage/postgres/copy.js'
import type { Context } from '../terminal/context.js'
import { counted, fold } from '../terminal/render.js'

interface CopyFlags {
  readonly from?: string
  readonly to?: string
  readonly fromFile?: string
  readonly toFile?: string
}

export const copyCommand = (context: Context) =>
  new Command('copy')
    .description(
      'copy a store that no gateway serves, and compare it record by record; resumes an interrupted copy',
    )
    .option('--from <place>', 'a folder, a postgres:// URL, or a gateway.json that names one')
    .option('--to <place>', 'the same for the target: empty, or an interrupted copy')
    .option('--from-file <file>', 'file (mode 0600) with the URL, if it has a password')
    .option('--to-file <file>', 'the same for the target; default: PROPOSER_STORE_URL_FILE')
    .addHelpText(
      'after',
      '\nStop the gateways first. Point gateway.json at the target afterwards. The admin token is not copied.\n\nExamples:\n  proposer operator store copy --from ./gateway-store --to postgres://proposer@db.internal/proposer\n  proposer operator store copy --from-file ./store-url --to ./gateway-store',
    )
    .action(async (own: CopyFlags) => {
      const from = await placeOf(context, 'from', own.from, own.fromFile)
      const to = await placeOf(context, 'to', own.to, own.toFile)
      if ((await nameOf(context, from)) === (await nameOf(context, to)))
        throw usage('--from and --to name the same store', 'name another place for the copy')
      const source = await sourceAt(context, from)
      try {
        const target = await targetAt(context, to)
        const filtered = to.kind === 'folder' ? withoutLeaders(source) : source
        const progress = context.output.progress(`copying ${source.name}`)
        try {
          const done = await copyRecords(filtered, target, {
            signal: context.signal,
            onProgress: (count) => progress.update(`${counted(count, 'record')} copied`),
          })
          progress.stop()
          print(context, { from: source.name, to: target.name, live: source.liveGateways, ...done })
        } finally {
          progress.stop()
          await target.close()
        }
      } finally {
        await source.close()
      }
    })

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
  return { ...(await openFolderSource(context, folder, storeLog)), liveGateways: 0 }
}

async function targetAt(context: Context, place: StorePlace) {
  if (place.kind === 'database')
    return openDatabaseTarget(await context.edges.database(place.url), context.random)
  await requireLocalDisk(place.folder)
  return openFolderTarget(context, place.folder, storeLog)
}

/** A store in a folder has one gateway, and version 0.1 does not know these records. */
const withoutLeaders = (source: CopySource): CopySource => ({
  name: source.name,
  async *records() {
    for await (const record of source.records())
      if (!record.kind.startsWith('leader.')) yield record
  },
})
