/**
 * `operator store`: proves, folds, exports and, as a last resort, repairs a gateway's store
 * (contract §6, robustness §2).
 */
import { Command } from 'commander'
import { keptDays } from '../../core/gateway/operator/service.js'
import {
  type CandidateRow,
  candidateRow,
  createReceipts,
} from '../../core/gateway/status/listing.js'
import { StorageError } from '../../core/protocol/errors.js'
import { joinPath } from '../../core/storage/durable.js'
import { dryRunOption } from '../dry-run.js'
import type { Context } from '../terminal/context.js'
import { counted, fold, jsonText, visible } from '../terminal/render.js'
import { ruleLines } from '../terminal/rules.js'
import { act, look, siteOf } from './access.js'
import { inspectStore, requireStore } from './inspection.js'
import { repairCommand } from './repair.js'

export const storeCommand = (context: Context): Command =>
  new Command('store')
    .description('prove, fold, export and repair the store')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer operator store verify\n  proposer operator store compact\n  proposer operator store export --csv > candidates.csv',
    )
    .addCommand(verifyCommand(context))
    .addCommand(compactCommand(context))
    .addCommand(exportCommand(context))
    .addCommand(repairCommand(context))

const verifyCommand = (context: Context) =>
  new Command('verify')
    .description(
      'read everything: checksums, the chain of lines, what must hold of payloads, slots, nonces and rounds (R1 to R3); exit 74 names file and byte',
    )
    .addHelpText('after', '\nExample:\n  proposer operator store verify')
    .action(async (_own: unknown, command: Command) => {
      const site = await siteOf(context, command)
      await requireStore(context, site)
      const { inspection, facts, counts, proven } = await inspectStore(context, site)
      const { damage } = inspection
      if (damage) {
        throw new StorageError(
          'store_damaged',
          `${joinPath(site.store, damage.file)} is damaged at byte ${damage.offset}: ${damage.detail}`,
          {
            hint: `restore the store from a backup; without one, ${site.named('store repair')} tells what could be kept`,
          },
        )
      }
      if (facts.info === undefined && inspection.records > 0) {
        throw new StorageError(
          'store_damaged',
          `${site.store} holds ${counted(inspection.records, 'record')}, and none that says what chain it is of`,
          {
            hint: 'the program that made it wrote that first: restore the store from a backup, and report this',
          },
        )
      }
      const byStatus = facts.counts()
      const openSlots = facts.slots().length
      const { R1, R2, R3 } = proven()
      const rules = { R1, R2, R3 }
      const proof = {
        store_id: facts.info?.storeId ?? null,
        chain_id: facts.info?.chainId ?? null,
        files: inspection.files,
        records: inspection.records,
        torn_bytes: inspection.tornBytes,
        high_water: typeof inspection.highWater === 'object' ? inspection.highWater.sequence : null,
        candidates: byStatus,
        open_slots: openSlots,
        kinds: Object.fromEntries([...counts].sort()),
        rules,
      }
      context.output.result('operator-store-proof', proof, () => {
        if (inspection.records === 0) return 'sound: the store is empty'
        const bytes = inspection.files.reduce((sum, file) => sum + file.bytes, 0)
        const told = Object.entries(byStatus).flatMap(([status, count]) =>
          count === 0 ? [] : [`${count} ${status}`],
        )
        const torn =
          inspection.tornBytes === 0
            ? []
            : [
                `${counted(inspection.tornBytes, 'byte')} at the end never became durable; the next start saves them aside`,
              ]
        return [
          `sound: ${counted(inspection.records, 'record')}, ${counted(bytes, 'byte')} in ${counted(inspection.files.length, 'file')}`,
          `candidates: ${told.length === 0 ? 'none' : told.join(', ')}`,
          `open slots: ${openSlots}; one for each round, no nonce bound twice`,
          ...ruleLines(
            rules,
            {},
            counts.has('past') ? 'nothing left to check after the compaction' : undefined,
          ),
          ...torn,
          ...(inspection.highWater === 'unreadable'
            ? ['HIGHWATER is not whole; it is written anew with the next record']
            : []),
        ]
          .map((line) => fold(line, context.output.columns, '  '))
          .join('\n')
      })
    })

const compactCommand = (context: Context) =>
  new Command('compact')
    .description(
      'shorten what is older than 90 days and over: every candidate can still be asked for, younger ones keep every detail',
    )
    .option(...dryRunOption)
    .addHelpText('after', '\nExample:\n  proposer operator store compact')
    .action(async (_own: unknown, command: Command) => {
      const site = await siteOf(context, command)
      await requireStore(context, site)
      const acted = await act(context, site, 'store/compact', {})
      if (acted === undefined) return
      const { result, through } = acted
      const { before = 0, after = 0 } = result.bytes ?? {}
      context.output.result(
        'operator-store-compaction',
        { bytes_before: before, bytes_after: after, through },
        () => fold(compactedText(before, after), context.output.columns, '  '),
      )
    })

/**
 * What a fold came to. What is young is told beside what is folded, so that a small store can grow.
 */
function compactedText(before: number, after: number): string {
  const told = `the store took ${before} bytes, now ${after}`
  if (after <= before) return told
  return `${told}: it grew, because every candidate is written whole now and the last ${keptDays} days stay told beside that; it shrinks once there is more that is older`
}

const exportCommand = (context: Context) =>
  new Command('export')
    .description('one line of JSON a candidate, or CSV, in order of admission; no signatures')
    .option('--csv', 'comma-separated values (RFC 4180) with a header')
    .addHelpText(
      'after',
      '\nAmounts are raw token units, gas prices wei, times UTC.\n\nExample:\n  proposer operator store export --csv > candidates.csv',
    )
    .action(async (own: { csv?: boolean }, command: Command) => {
      const site = await siteOf(context, command)
      const receipts = createReceipts()
      const { output } = context
      await look(context, site, [receipts], async ({ ledger, registry }) => {
        const slugs = new Map(registry.map((entry) => [entry.questionId, entry.slug]))
        const rows: CandidateRow[] = []
        let count = 0
        let isHeaded = false
        for (const entry of [...ledger.newest()].reverse()) {
          const candidate = await ledger.get(entry.id)
          if (!candidate) continue
          const row = candidateRow(candidate, slugs.get(candidate.round.questionId), receipts)
          count += 1
          if (own.csv === true) {
            if (!isHeaded) output.text(`${Object.keys(row).join(',')}\r\n`)
            isHeaded = true
            output.text(`${Object.values(row).map(cell).join(',')}\r\n`)
          } else if (output.mode === 'json') rows.push(row)
          else output.text(`${jsonText(row, 0)}\n`)
        }
        if (own.csv === true) return
        if (output.mode === 'json')
          output.result('operator-store-export', { candidates: rows }, () => '')
        if (output.mode === 'ndjson')
          output.result('operator-store-export', { summary: { candidates: count } }, () => '')
      })
    })

function cell(value: string | number | boolean | null): string {
  if (value === null) return ''
  const text = visible(String(value))
  // A spreadsheet would run what begins like a formula (robustness §6, CSV out); a tab is spelled
  // out already.
  const guarded = /^[=+\-@]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded
}
