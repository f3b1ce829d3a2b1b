/** `operator store backup`: a copy of a store in a folder, while a gateway serves it or not. */
import { Command } from 'commander'
import { storeLog } from '../../core/gateway/ledger/open-store.js'
import { storeFolder } from '../../core/host/config-file.js'
import { fromCwd } from '../../core/io/home-paths.js'
import { UsageError } from '../../core/protocol/errors.js'
import { backUp } from '../../core/storage/backup.js'
import { namesIn } from '../../core/storage/durable.js'
import type { Context } from '../terminal/context.js'
import { counted, fold } from '../terminal/render.js'
import { siteOf } from './access.js'
import { requireStore, storeJudge } from './inspection.js'

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
      await refuseTarget(context, from, to)
      await requireStore(context, site)
      const { facts, onRecord } = storeJudge()
      const { output, signal } = context
      const progress = output.progress(`copying ${from}`)
      const copied = backUp(context, { from, to, signal }, storeLog, onRecord)
      const inspection = await copied.finally(progress.stop)
      const bytes = inspection.files.reduce((sum, file) => sum + file.bytes, 0)
      const document = {
        store: from,
        folder: to,
        records: inspection.records,
        bytes,
        files: inspection.files,
        candidates: facts.counts(),
      }
      output.result('operator-store-backup', document, () =>
        fold(
          `copied ${counted(document.records, 'record')} in ${counted(bytes, 'byte')} to ${to}; the copy is sound`,
          output.columns,
          '  ',
        ),
      )
    })

async function refuseTarget({ files }: Context, from: string, to: string): Promise<void> {
  if (to === from || to.startsWith(`${from}/`))
    throw new UsageError('usage', 'a backup inside the store would be lost with it', {
      hint: 'name a folder on another disk',
    })
  if ((await namesIn(files, to)).length > 0)
    throw new UsageError('store_not_empty', `${to} is not empty: nothing was copied`, {
      hint: 'name an empty folder, or one that does not exist yet',
    })
}
