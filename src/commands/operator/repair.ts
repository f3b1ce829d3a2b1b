/**
 * `operator store repair`: what is sound of a damaged store, by the operator's explicit word
 * (robustness §2).
 */
import { Command } from 'commander'
import type { Decided } from '../../core/gateway/ledger/ledger.js'
import { storeLog } from '../../core/gateway/ledger/open-store.js'
import { defaultReason } from '../../core/gateway/operator/acts.js'
import { storeFolder } from '../../core/host/config-file.js'
import { StorageError, UsageError } from '../../core/protocol/errors.js'
import { type CopySource, openFolderSource } from '../../core/storage/copy.js'
import { joinPath, namesIn } from '../../core/storage/durable.js'
import { lossOf } from '../../core/storage/inspect.js'
import { acquireLock } from '../../core/storage/lock.js'
import type { Context } from '../terminal/context.js'
import { type DryRunFlag, dryRunOption } from '../terminal/dry-run.js'
import { counted, fold } from '../terminal/render.js'
import { type Site, siteOf } from './access.js'
import { copyTo, folderTarget } from './copy.js'
import { inspectStore, requireStore } from './inspection.js'
import { byOption, reasonOption, type SaidFlags, saidFlags } from './said.js'

interface RepairFlags extends DryRunFlag, SaidFlags {
  readonly acceptLoss?: boolean
}

export const repairCommand = (context: Context) =>
  new Command('repair')
    .description(
      'show what a repair would lose; with --accept-loss, copy the intact part to a new store beside the damaged one',
    )
    .option(
      '--accept-loss',
      'accept the loss of everything after the damage; restoring a backup is better',
    )
    .option(...reasonOption)
    .option(...byOption)
    .option(...dryRunOption)
    .addHelpText('after', '\nExample:\n  proposer operator store repair')
    .action(async (own: RepairFlags, command: Command) => {
      const site = await siteOf(context, command)
      // A database is mended with its own tools.
      storeFolder(site.loaded)
      await requireStore(context, site)
      const said = { reason: defaultReason, ...saidFlags(context, own) }
      const plan = await planOf(context, site)
      const isOnlyShown = own.acceptLoss !== true || own.dryRun === true
      if (!isOnlyShown && plan.damage) return repairUnderLock(context, site, said)
      print(context, plan, undefined, isOnlyShown)
      if (isOnlyShown && plan.damage && own.dryRun !== true)
        throw new UsageError('loss_not_accepted', 'nothing was changed', {
          hint: `restore a backup if there is one; else accept the loss with ${site.named('store repair --accept-loss')}`,
        })
    })

/** A damaged store stays as it is: a new one beside it gets what is sound of it. */
async function repairUnderLock(context: Context, site: Site, said: Decided): Promise<void> {
  const lock = await acquireLock(context, site.store, 'operator')
  try {
    const plan = await planOf(context, site)
    print(context, plan, plan.damage ? await repair(context, site, plan, said) : undefined)
  } finally {
    await lock.release()
  }
}

async function repair(context: Context, site: Site, plan: Plan, said: Decided): Promise<string> {
  const folder = `${site.store}.repaired`
  if ((await namesIn(context.files, folder)).length > 0)
    throw new UsageError('store_not_empty', `${folder} is not empty: nothing was copied`, {
      hint: 'move it away: it may be what an earlier repair has made',
    })
  const { damage, kept_records, loss } = plan
  const data = { ...damage, lostBytes: loss?.bytes ?? 0, saved: loss?.files ?? [], ...said }
  const timeMs = Math.trunc(context.clock.nowMs())
  const source = await openFolderSource(context, site.store, storeLog)
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
    await copyTo(context, sound, await folderTarget(context, folder))
    return folder
  } finally {
    await source.close()
  }
}

/** `folder`: where what is sound lies; `undefined` where nothing was to be repaired. */
function print(
  context: Context,
  plan: Plan,
  folder: string | undefined,
  isOnlyShown = false,
): void {
  const { output } = context
  const repaired = folder !== undefined
  const saved = isOnlyShown ? {} : { saved: repaired ? (plan.loss?.files ?? []) : [] }
  const document = { repaired, ...plan, ...saved, ...(repaired && { folder }) }
  output.result('operator-store-repair', document, () => {
    const where = `repaired: ${folder} holds what is sound, the damaged store is as it was; move that away and the new one to its place`
    return [planText(context, plan), ...(repaired ? [fold(where, output.columns, '  ')] : [])].join(
      '\n',
    )
  })
}

async function planOf(context: Context, site: Site) {
  const { inspection, facts } = await inspectStore(context, site)
  const { damage, manifest } = inspection
  if (damage === undefined || manifest === undefined)
    return { damage: null, kept_records: inspection.records, loss: null }
  if (facts.info === undefined) {
    throw new StorageError(
      'store_damaged',
      `${joinPath(site.store, damage.file)}: nothing before the damage is sound`,
      {
        hint: 'there is nothing to keep: restore the store from a backup',
      },
    )
  }
  const loss = await lossOf(context, site.store, inspection)
  const { file, offset, detail } = damage
  return {
    damage: { file, offset, detail },
    kept_records: inspection.records,
    loss: { bytes: loss.bytes, files: loss.files, sound_lines: loss.soundLines },
  }
}
type Plan = Awaited<ReturnType<typeof planOf>>

function planText({ output: { columns } }: Context, { damage, kept_records, loss }: Plan): string {
  if (damage === null || loss === null)
    return `sound: ${counted(kept_records, 'record')}, nothing to repair`
  const lines = Object.entries(loss.sound_lines)
  const behind =
    lines.length === 0
      ? 'no sound record'
      : lines.map(([kind, count]) => `${count} ${kind}`).join(', ')
  return [
    `${damage.file} is damaged at byte ${damage.offset}: ${damage.detail}`,
    `kept: ${counted(kept_records, 'record')} before it`,
    `lost: ${loss.bytes} bytes in ${loss.files.join(', ') || 'no file'}; after the damage: ${behind}`,
    'this gateway forgets any candidate, nonce or transaction among them; the chain may still know it',
  ]
    .map((line) => fold(line, columns, '  '))
    .join('\n')
}
