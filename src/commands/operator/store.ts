/**
 * `operator store verify`: proves a gateway's store (contract §6, robustness §2).
 */
import { Command } from 'commander'
import { StorageError } from '../../core/protocol/errors.js'
import { joinPath } from '../../core/storage/durable.js'
import type { Context } from '../terminal/context.js'
import { counted, fold } from '../terminal/render.js'
import { type Site, siteOf } from './access.js'
import { inspectStore, requireStore } from './inspection.js'
import { proveShared } from './shared-store.js'

export const verifyCommand = (context: Context) =>
  new Command('verify')
    .description('verify checksums, payloads, hashes and nonces; exit 74 names file and byte')
    .addHelpText('after', '\nExample:\n  proposer operator store verify')
    .action(async (_own: unknown, command: Command) => {
      const site = await siteOf(context, command)
      if (site.loaded.place.kind === 'database') return proveShared(context, site)
      await requireStore(context, site)
      const inspected = await inspectStore(context, site)
      refuseDamage(site, inspected)
      const { inspection, facts, counts } = inspected
      const proof = {
        store_id: facts.info?.storeId ?? null,
        chain_id: facts.info?.chainId ?? null,
        files: inspection.files,
        records: inspection.records,
        torn_bytes: inspection.tornBytes,
        high_water: typeof inspection.highWater === 'object' ? inspection.highWater.sequence : null,
        candidates: facts.counts(),
        open_slots: facts.slots().length,
        kinds: Object.fromEntries([...counts].sort()),
      }
      const { output } = context
      output.result('operator-store-proof', proof, () =>
        proofLines(proof, inspection.highWater)
          .map((line) => fold(line, output.columns, '  '))
          .join('\n'),
      )
    })

type Inspected = Awaited<ReturnType<typeof inspectStore>>

function refuseDamage({ store, named }: Site, { inspection, facts }: Inspected): void {
  const { damage, records } = inspection
  const damaged = (detail: string, hint: string) =>
    new StorageError('store_damaged', detail, { hint })
  if (damage)
    throw damaged(
      `${joinPath(store, damage.file)} is damaged at byte ${damage.offset}: ${damage.detail}`,
      `restore the store from a backup; without one, ${named('store repair')} shows what could be kept`,
    )
  if (facts.info === undefined && records > 0)
    throw damaged(
      `${store} holds ${counted(records, 'record')}, but none that names its chain`,
      'restore the store from a backup, and report this',
    )
}

interface Proof {
  readonly files: Inspected['inspection']['files']
  readonly records: number
  readonly torn_bytes: number
  readonly candidates: Readonly<Record<string, number>>
  readonly open_slots: number
}

function proofLines(
  proof: Proof,
  highWater: Inspected['inspection']['highWater'],
): readonly string[] {
  const { files, records, torn_bytes, candidates, open_slots } = proof
  if (records === 0) return ['sound: the store is empty']
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0)
  const by = Object.entries(candidates).flatMap(([status, count]) =>
    count === 0 ? [] : [`${count} ${status}`],
  )
  const torn = `${counted(torn_bytes, 'byte')} at the end never became durable; the next start saves them aside`
  return [
    `sound: ${counted(records, 'record')}, ${counted(bytes, 'byte')} in ${counted(files.length, 'file')}`,
    `candidates: ${by.join(', ') || 'none'}`,
    `open slots: ${open_slots}; no nonce bound twice`,
    ...(torn_bytes === 0 ? [] : [torn]),
    ...(typeof highWater === 'object'
      ? []
      : [
          `HIGHWATER is ${highWater === undefined ? 'missing: a loss at the end would not show' : 'incomplete'}; it is rewritten with the next record`,
        ]),
  ]
}
