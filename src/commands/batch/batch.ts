/** `batch`: many proposals from one file, by the batch routes (spec §4.2, contract §6). */
import { executorFlags } from '../session/flags.js'
import { asksPerson } from '../session/inputs.js'
import { sessionVerb } from '../session/session.js'
import { verb } from '../terminal/verb.js'
import { batchContextVerb } from './context.js'
import { batchFlags, confirmSums, goOnCommand, openBatch, signingText } from './parts.js'
import { showBatchPlan } from './preview.js'
import { submitAndReport } from './running.js'
import { batchSignVerb } from './sign.js'
import { readSource } from './source.js'
import { batchStatusVerb } from './status.js'

const batchSubmitVerb = sessionVerb({
  name: 'submit',
  about: 'send many proposals, signing them first where needed',
  args: { '<file>': 'rows to sign and send, or signed items; - for stdin' },
  flags: {
    '--wait': 'wait until every candidate is executed or failed',
    '--details': 'show every row, not only what went wrong',
    '--resume': 'finish this input; skip what is already accepted or closed',
    ...batchFlags,
    ...executorFlags,
  },
  help: 'Exit 6: some outcomes are unknown. Rerun with --resume; never sign again.',
  examples: ['batch submit rows.csv --wait', 'batch submit rows.csv --resume'],
  async run(context, session, flags, { file: path }) {
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
      return showBatchPlan(context, opened, { signal: session.signal, gateway })
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
  },
})

export const batchCommand = verb({
  name: 'batch',
  about: 'sign, send and follow many proposals from a file: NDJSON, a JSON array or CSV',
  help: `A row is {"identifier", "outcome" or "proposed_price"}, optionally with
"client_ref", "proposer", "amount", "nonce" and "deadline"; or a signed batch
item. CSV has the same names as headers.`,
  examples: ['batch submit rows.csv --wait'],
  verbs: [batchContextVerb, batchSignVerb, batchSubmitVerb, batchStatusVerb],
})
