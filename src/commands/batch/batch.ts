/** `batch`: many proposals from one file, by the batch routes (spec §4.2, contract §6). */
import { Command } from 'commander'
import type { Context } from '../terminal/context.js'
import { batchContextCommand } from './context.js'
import { batchSignCommand } from './sign.js'
import { batchStatusCommand } from './status.js'
import { batchSubmitCommand } from './submit.js'

export const batchCommand = (context: Context): Command =>
  new Command('batch')
    .description('sign, send and follow many proposals from a file: NDJSON, a JSON array or CSV')
    .addCommand(batchContextCommand(context))
    .addCommand(batchSignCommand(context))
    .addCommand(batchSubmitCommand(context))
    .addCommand(batchStatusCommand(context))
    .addHelpText(
      'after',
      `
A row is {"identifier", "outcome" or "proposed_price"}, optionally with
"client_ref", "proposer", "amount", "nonce" and "deadline"; or a signed batch
item. CSV has the same names as headers.

Example:
  proposer batch submit rows.csv --wait`,
    )
