/**
 * `batch submit`: sends many proposals, signing where that is needed; every row gets an outcome
 * (spec §4.2, contract §6).
 */
import { Command } from 'commander'
import { asksPerson } from '../session/inputs.js'
import { addExecutorFlags, withSession } from '../session/session.js'
import type { Context } from '../terminal/context.js'
import { goOnCommand } from './hints.js'
import { addBatchFlags, type BatchFlags, confirmSums, openBatch, signingText } from './parts.js'
import { showBatchPlan } from './preview.js'
import { submitAndReport } from './running.js'
import { readSource } from './source.js'

interface SubmitFlags extends BatchFlags {
  readonly wait?: boolean
  readonly details?: boolean
}

export const batchSubmitCommand = (context: Context): Command =>
  addExecutorFlags(
    addBatchFlags(
      new Command('submit')
        .description('send many proposals, signing them first where needed')
        .argument('<file>', 'rows to sign and send, or signed items; - for stdin')
        .option('--wait', 'wait until every candidate is executed or failed')
        .option('--details', 'show every row, not only what went wrong')
        .option('--resume', 'finish this input; skip what is already accepted or closed'),
    ),
  )
    .addHelpText(
      'after',
      '\nExit 6: some outcomes are unknown. Rerun with --resume; never sign again.\n\nExamples:\n  proposer batch submit rows.csv --wait\n  proposer batch submit rows.csv --resume',
    )
    .action(async (path: string, _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<SubmitFlags>()
      await withSession(context, flags, async (session) => {
        const source = await readSource(context, path)
        // Opened for running before anything opens it for reading: a command has one gateway.
        const gateway = await session.gateway('run')
        const asks = asksPerson(context, flags)
        const opened = await openBatch(context, session, flags, source, {
          ...(asks ? {} : { tell: signingText(gateway.origin) }),
          sums: () => asks,
          findings: asks,
        })
        if (flags.dryRun === true)
          return showBatchPlan(context, opened, {
            signal: session.signal,
            gateway,
          })
        const sums = await opened.checkedSums()
        if (asks) await confirmSums(context, opened, sums, gateway.origin)
        await submitAndReport(context, session, opened, {
          kind: 'batch',
          resume: flags.resume === true,
          wait: flags.wait === true,
          details: flags.details === true,
          quiet: flags.quiet === true,
          command: goOnCommand('batch submit', path, flags),
        })
      })
    })
