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
import { joinPath } from '../../core/storage/durable.js'
import { acquireLock } from '../../core/storage/lock.js'
import { lossOf, repairLog } from '../../core/storage/repair.js'
import type { Context } from '../terminal/context.js'
import { type DryRunFlag, dryRunOption } from '../terminal/dry-run.js'
import { counted, fold } from '../terminal/render.js'
import { type Site, siteOf } from './access.js'
import { inspectStore, requireStore } from './inspection.js'
import { byOption, reasonOption, type SaidFlags, saidFlags } from './said.js'

interface RepairFlags extends DryRunFlag, SaidFlags {
  readonly acceptLoss?: boolean
}

export const repairCommand = (context: Context) =>
  new Command('repair')
    .description(
      'show what a repair would lose; with --accept-loss, cut the store back to its intact part and keep the rest aside',
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
      print(context, plan, isOnlyShown ? undefined : [])
      if (isOnlyShown && plan.damage && own.dryRun !== true)
        throw new UsageError('loss_not_accepted', 'nothing was changed', {
          hint: `restore a backup if there is one; else accept the loss with ${site.named('store repair --accept-loss')}`,
        })
    })

async function repairUnderLock(context: Context, site: Site, said: Decided): Promise<void> {
  const lock = await acquireLock(context, site.store, 'operator')
  try {
    const plan = await planOf(context, site)
    print(context, plan, plan.damage ? await repair(context, site, said) : [])
  } finally {
    await lock.release()
  }
}

/** `saved`: where what was given up lies; `undefined` where nothing was to be repaired. */
function print(context: Context, plan: Plan, saved: readonly string[] | undefined): void {
  const { output } = context
  const repaired = saved !== undefined && plan.damage !== null
  output.result('operator-store-repair', { repaired, ...plan, ...(saved && { saved }) }, () => {
    const cut = `repaired; what was cut off is saved in ${(saved ?? []).join(', ')}`
    return [planText(context, plan), ...(repaired ? [fold(cut, output.columns, '  ')] : [])].join(
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
  const loss = await lossOf(context, site.store, manifest, damage)
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

async function repair(context: Context, site: Site, said: Decided): Promise<readonly string[]> {
  const { files, clock, hash } = context
  const { inspection } = await inspectStore(context, site)
  const { damage } = inspection
  if (damage === undefined) return []
  const { bytes } = inspection.manifest
    ? await lossOf(context, site.store, inspection.manifest, damage)
    : { bytes: 0 }
  return repairLog({ files, clock, hash }, site.store, inspection, storeLog, (saved) => ({
    kind: 'store.repaired',
    data: { file: damage.file, offset: damage.offset, lostBytes: bytes, saved, ...said },
  }))
}
