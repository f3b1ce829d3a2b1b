/**
 * `operator allow|disallow|list|pause|resume`: who may propose, and whether anybody may (contract
 * §6, §7).
 */
import { Command } from 'commander'
import { type ActResult, mostAddresses } from '../../core/gateway/operator/acts.js'
import { createDecisions, type OperatorDecision } from '../../core/gateway/status/listing.js'
import { instant } from '../../core/protocol/candidate.js'
import { UsageError } from '../../core/protocol/errors.js'
import { dryRunOption } from '../dry-run.js'
import { requireAddress } from '../eligibility.js'
import type { Context } from '../terminal/context.js'
import { fold, timeText, visible } from '../terminal/render.js'
import { type Acted, act, look, siteOf } from './access.js'

interface ReasonFlag {
  readonly reason?: string
}

export const reasonOption = [
  '--reason <text>',
  'why; it is kept with the change; default: by operator',
] as const
/** The reason as an act takes it; an empty one is refused before anything is opened. */
export function reasonOf({ reason }: ReasonFlag): { reason?: string } {
  if (reason === undefined) return {}
  if (reason.trim() !== '' && reason.length <= 500) return { reason }
  throw new UsageError('bad_reason', '--reason must be a text of 1 to 500 characters', {
    hint: 'say in a sentence why',
  })
}

export const allowCommand = (context: Context, verb: 'allow' | 'disallow') =>
  new Command(verb)
    .description(
      verb === 'allow'
        ? 'let wallets propose'
        : 'take wallets off the list; what they have under way stays',
    )
    .argument('<address...>', 'wallets')
    .option(...reasonOption)
    .option(...dryRunOption)
    .addHelpText(
      'after',
      `\nExample:\n  proposer operator ${verb} 0x8ba1f109551bd432803012645ac136ddd64dba72 --reason "${verb === 'allow' ? 'contract signed' : 'contract ended'}"`,
    )
    .action(async (given: readonly string[], own: ReasonFlag, command: Command) => {
      const addresses = [...new Set(given.map(requireWallet))]
      if (addresses.length > mostAddresses) {
        throw new UsageError(
          'too_many_addresses',
          `${verb} takes ${mostAddresses} wallets at a time, and these are ${addresses.length}`,
          {
            hint: 'split them over several commands',
          },
        )
      }
      const site = await siteOf(context, command)
      const acted = await act(context, site, verb, { addresses, ...reasonOf(own) })
      if (acted === undefined) return
      const [now, before] =
        verb === 'allow'
          ? ['may propose now', 'could propose already']
          : ['may not propose any more', 'could not propose']
      showActed(context, acted, (name) => [`${name} ${now}`, `${name} ${before}: nothing changed`])
    })

function requireWallet(text: string): string {
  const address = requireAddress(text)
  if (/[1-9a-f]/.test(address.slice(2))) return address
  throw new UsageError('invalid_address', 'the zero address is no wallet', {
    hint: 'give the address of a wallet',
  })
}

export const switchCommand = (context: Context, verb: 'pause' | 'resume') =>
  new Command(verb)
    .description(
      verb === 'pause'
        ? 'admit nothing new (503 admission_disabled); what is admitted goes on'
        : 'admit again',
    )
    .option(...reasonOption)
    .option(...dryRunOption)
    .addHelpText('after', `\nExample:\n  proposer operator ${verb} --reason "node upgrade"`)
    .action(async (own: ReasonFlag, command: Command) => {
      const site = await siteOf(context, command)
      const acted = await act(context, site, verb, reasonOf(own))
      if (acted === undefined) return
      const state = verb === 'pause' ? 'paused' : 'open'
      showActed(context, acted, () => [
        `admission is ${state} now`,
        `admission was ${state} already: nothing changed`,
      ])
    })

/** What an act came to: `proposer.operator-act/1`, or a line each. */
export function showActed(
  context: Context,
  { result, through }: Acted,
  lineOf: (name: string) => readonly [changed: string, same: string],
): void {
  const { output } = context
  output.result(
    'operator-act',
    { ...result, through },
    ({ changed, unchanged, notes }: ActResult) =>
      [
        ...changed.map((name) => lineOf(name)[0]),
        ...unchanged.map((name) => lineOf(name)[1]),
        ...notes,
      ]
        .map((line) => fold(line, output.columns, '  '))
        .join('\n'),
  )
}

export const listCommand = (context: Context) =>
  new Command('list')
    .description('who may propose since when and why, and whether admission is open')
    .option('--all', 'wallets too that were taken off the list')
    .addHelpText('after', '\nExample:\n  proposer operator list --all')
    .action(async (own: { all?: boolean }, command: Command) => {
      const site = await siteOf(context, command)
      const decisions = createDecisions()
      const { output } = context
      await look(context, site, [decisions], async ({ ledger, holder }) => {
        const wallets = [
          ...new Set([...ledger.allowlist, ...(own.all === true ? decisions.wallets.keys() : [])]),
        ].sort()
        const rows = wallets.map((address) => ({
          address,
          allowed: ledger.eligible(address),
          ...decisionOf(decisions.wallets.get(address), 'listed in the configuration'),
        }))
        const admission = {
          enabled: ledger.admissionEnabled,
          configured: site.loaded.config.admission.enabled,
          ...decisionOf(decisions.admission, 'as it began'),
        }
        if (output.mode === 'ndjson') for (const row of rows) output.line(row)
        const served = holder?.state === 'alive' && holder.role === 'serve'
        const data =
          output.mode === 'ndjson'
            ? { summary: { wallets: rows.length, admission } }
            : { admission, served, wallets: rows }
        output.result('allowlist', data, () =>
          [admissionText(admission), ...rows.map((row) => walletText(row, output.columns))].join(
            '\n',
          ),
        )
      })
    })

/** `since` is null where only the configuration says so. */
const decisionOf = (decision: OperatorDecision | undefined, otherwise: string) => ({
  since: decision === undefined ? null : instant(decision.atMs),
  reason: decision?.reason ?? otherwise,
})

function admissionText({
  enabled,
  configured,
  since,
  reason,
}: {
  enabled: boolean
  configured: boolean
  since: string | null
  reason: string
}) {
  if (!configured) return 'admission is closed: admission.enabled is false in the configuration'
  return `admission is ${enabled ? 'open' : 'paused'}${since === null ? '' : ` since ${timeText(since)}: ${visible(reason)}`}`
}

function walletText(
  row: { address: string; allowed: boolean; since: string | null; reason: string },
  columns: number,
): string {
  const state = row.allowed ? '' : 'off the list, '
  const why = `${state}${row.since === null ? '' : `since ${timeText(row.since)}: `}${row.reason}`
  return `${row.address}\n  ${fold(why, columns - 2, '  ')}`
}
