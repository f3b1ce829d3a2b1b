/** `pnl`: what proposals earned and lost, each figure with its log (contract §9). */
import { Command } from 'commander'
import { type Pnl, readPnl } from '../core/client/positions/pnl.js'
import { UsageError } from '../core/protocol/errors.js'
import { requireChain } from './own-transactions.js'
import { type PinnedUnits, pinnedUnits } from './session/amounts.js'
import { flagInstantMs } from './session/list-flags.js'
import { addSignerFlags, type SessionFlags, withSession } from './session/session.js'
import { onStakes, requireShown, stakeWallets } from './session/stakes.js'
import type { Context } from './terminal/context.js'
import { csvText } from './terminal/csv.js'
import { signedText } from './terminal/positions-text.js'
import { fields, fold } from './terminal/render.js'

interface PnlFlags extends SessionFlags {
  readonly wallet?: readonly string[]
  readonly from?: string
  readonly to?: string
  readonly csv?: boolean
}

export const pnlCommand = (context: Context): Command =>
  addSignerFlags(new Command('pnl'))
    .description('show what proposals earned and lost, from the logs of the oracle')
    .option('--wallet <address...>', 'of these wallets; default: all that have signed in this home')
    .option('--from <time>', 'from then on: an age such as 30d, or a time')
    .option('--to <time>', 'up to then')
    .option('--csv', 'print every movement as CSV (RFC 4180)')
    .addHelpText(
      'after',
      '\nEvery movement has its transaction and log index. Amounts of --csv and --json are raw token units.\nEnds with 8 if no log shows what this home has executed: sums are not known then.\n\nExamples:\n  proposer pnl --rpc-url http://127.0.0.1:8545\n  proposer pnl --from 2026-11-01 --to 2026-12-01 --csv > november.csv',
    )
    .action(async (_own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<PnlFlags>()
      const secondsOf = (flag: string, given: string | undefined) => {
        const ms = flagInstantMs(flag, given, context.clock.nowMs())
        return ms === undefined ? undefined : Math.max(0, Math.floor(ms / 1000))
      }
      const span = { from: secondsOf('--from', flags.from), to: secondsOf('--to', flags.to) }
      if ((span.from ?? 0) >= (span.to ?? Infinity))
        throw new UsageError('empty_span', '--from is not before --to', 'swap them, or omit one')
      await withSession(context, flags, async (session) => {
        const wallets = await stakeWallets(session, flags.wallet)
        const chain = await requireChain(session, 'pnl')
        const units = await pinnedUnits(context, session)
        const found = await onStakes(context, session, chain, (parts) =>
          readPnl(parts, wallets, span),
        )
        show(context, found.pnl, flags.csv === true, units)
        requireShown(found.missing.map(({ signed }) => signed))
      })
    })

const columns =
  'at kind question_id slug wallet token amount net result transaction_hash log_index'.split(' ')

function show(
  { output }: Context,
  { rows, ...rest }: Pnl,
  isCsv: boolean,
  units: readonly PinnedUnits[],
): void {
  const width = output.notesAreTerminal ? output.columns : Number.POSITIVE_INFINITY
  for (const note of rest.notes) output.note(fold(`note: ${note}`, width, '  '))
  if (isCsv) {
    const cells = rows.map((row) => ({ ...row }))
    output.text(csvText(columns, cells))
    return
  }
  if (output.mode === 'ndjson') {
    for (const row of rows) output.line(row)
    output.result('pnl', { summary: { rows: rows.length, ...rest } }, () => '')
    return
  }
  output.result('pnl', { rows, ...rest }, () =>
    rest.totals
      .map((one) => {
        const token = units.find(({ address }) => address === one.token)
        const amount = (raw: string | null) => (raw === null ? 'not known' : signedText(raw, token))
        const plain = (raw: string | null) => amount(raw).replace('+', '')
        return fields(
          [
            ['wallet', one.wallet],
            ['token', token === undefined ? one.token : `${token.symbol} ${one.token}`],
            ['proposed', String(one.proposed)],
            ['undisputed', String(one.undisputed)],
            ['won', String(one.won)],
            ['lost', String(one.lost)],
            ['rewards', amount(one.rewards)],
            ['bonds lost', amount(one.bonds_lost)],
            ['net', amount(one.net)],
            ['locked', plain(one.locked)],
            ['deferred', plain(one.deferred)],
            ['locked hours', plain(one.capital_hours)],
          ],
          output.columns,
        )
      })
      .join('\n\n'),
  )
}
