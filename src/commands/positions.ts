/** `positions`: what became of executed proposals and their bonds (contract §9, domain §10). */
import { Command } from 'commander'
import { type Positions, readPositions } from '../core/client/positions/positions.js'
import { type HookFlags, requireWatch } from './dispute-hooks.js'
import { requireChain } from './own-transactions.js'
import { type PinnedUnits, pinnedUnits } from './session/amounts.js'
import { flagInstantMs } from './session/list-flags.js'
import { addSignerFlags, type Session, type SessionFlags, withSession } from './session/session.js'
import { failOnDispute, type Looker, onStakes, stakeWallets } from './session/stakes.js'
import type { Context } from './terminal/context.js'
import {
  isUnsettledPosition,
  positionsText,
  positionTotalsText,
} from './terminal/positions-text.js'
import { fold } from './terminal/render.js'
import { wideOption } from './terminal/table.js'
import { watchPositions } from './watch-positions.js'

interface PositionFlags extends SessionFlags, HookFlags {
  readonly wallet?: readonly string[]
  readonly open?: boolean
  readonly failOnDispute?: boolean
  readonly since?: string
  readonly wide?: boolean
}

export const positionsCommand = (context: Context): Command =>
  addSignerFlags(new Command('positions'))
    .description('show what became of executed proposals and where their bonds are')
    .option('--wallet <address...>', 'of these wallets; default: all that have signed in this home')
    .option('--open', 'only positions that are not settled')
    .option('--watch', 'keep looking, and print a line for every change')
    .option('--fail-on-dispute', 'exit 7 if a proposal is disputed, 8 if that is not known')
    .option(
      '--exec <program>',
      'with --watch: run this program for each dispute; it reads one line of JSON',
    )
    .option(
      '--since <time>',
      'read the chain from then on: an age such as 30d, or a time; default: the first signature of this home',
    )
    .option(...wideOption)
    .addHelpText(
      'after',
      '\nReads the logs of the oracle once and keeps them in the home folder; the next run reads what is new.\n\nExamples:\n  proposer positions --rpc-url http://127.0.0.1:8545\n  proposer positions --open --fail-on-dispute\n  proposer positions --watch --exec ./on-dispute.sh',
    )
    .action(async (_own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<PositionFlags>()
      requireWatch(flags)
      flagInstantMs('--since', flags.since, 0)
      await withSession(context, flags, async (session) => {
        const look = await lookerOf(context, session, flags)
        if (flags.watch === true) return watchPositions(context, session, flags, look)
        const found = await look.read()
        show(context, found, flags, look.units)
        if (flags.failOnDispute === true) failOnDispute(found.positions)
      })
    })

async function lookerOf(context: Context, session: Session, flags: PositionFlags): Promise<Looker> {
  const wallets = await stakeWallets(session, flags.wallet)
  const chain = await requireChain(session, 'positions')
  const ms = flagInstantMs('--since', flags.since, context.clock.nowMs())
  const since = ms === undefined ? undefined : BigInt(Math.floor(ms / 1000))
  return {
    units: await pinnedUnits(context, session),
    read: () =>
      onStakes(context, session, chain, (parts) =>
        readPositions(parts, wallets, since === undefined ? {} : { since }),
      ),
  }
}

function show(
  context: Context,
  found: Positions,
  flags: PositionFlags,
  units: readonly PinnedUnits[],
): void {
  const { output } = context
  const { positions, totals, notes, ...rest } = found
  const shown = flags.open === true ? positions.filter(isUnsettledPosition) : positions
  const width = output.notesAreTerminal ? output.columns : Number.POSITIVE_INFINITY
  for (const note of notes) output.note(fold(`note: ${note}`, width, '  '))
  if (output.mode === 'ndjson') {
    for (const one of shown) output.line(one)
    const summary = { positions: shown.length, totals, notes, ...rest }
    output.result('positions', { summary }, () => '')
    return
  }
  output.result('positions', { positions: shown, totals, notes, ...rest }, () =>
    [
      positionsText(shown, found, {
        units,
        output,
        wide: flags.wide,
        isOpen: flags.open === true,
      }),
      positionTotalsText(totals, units, output.columns),
    ].join('\n\n'),
  )
}
