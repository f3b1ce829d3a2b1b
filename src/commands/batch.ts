/** `batch`: many proposals from one file, by the batch routes (spec §4.2, contract §6). */

import { basename, dirname } from 'node:path'
import { placeText, readIds } from '#client/input/rows'
import type { JournaledAuthorization } from '#client/journal/authorizations'
import { type RowSigned, signRows } from '#client/propose/submit'
import { fromCwd } from '#io/home'
import { UsageError } from '#protocol/errors'
import { toBatchItem } from '#protocol/proposal'
import { SignedProposal } from '#protocol/schema'
import { isCandidateId } from '#protocol/words'
import { publishFile, writeAll } from '#storage/durable'
import {
  batchFlags,
  confirmSums,
  formatFlag,
  newFailures,
  type Opened,
  openBatch,
  readSource,
} from './batch/parts.js'
import { sendInput, showBatchPlan } from './batch/running.js'
import { batchContextVerb } from './check.js'
import { pollIds } from './poll.js'
import { type Session, sessionVerb } from './session/session.js'
import { executorFlags } from './session/settings.js'
import { newResults } from './terminal/output.js'
import { errorData, jsonText, visible } from './terminal/render.js'
import { type FlagsOf, verb } from './terminal/verb.js'

const batchSubmitVerb = sessionVerb({
  name: 'submit',
  about: 'send many proposals, signing them first where needed',
  args: { '<file>': 'rows to sign and send, or signed items; - for stdin' },
  flags: {
    '--wait': 'wait until every candidate is executed or failed',
    '--resume': 'finish this input; skip what is already accepted or closed',
    ...batchFlags,
    ...executorFlags,
  },
  help: 'Exit 6: some outcomes are unknown. Rerun with --resume; never sign again.',
  examples: ['batch submit rows.csv --wait', 'batch submit rows.csv --resume'],
  run: (session, flags, { file }) =>
    sendInput(session, file, flags, {
      kind: 'batch',
      wait: flags.wait === true,
      async ready(opened) {
        await confirmSums(session, opened, await opened.checkedSums())
        return {}
      },
    }),
})

const flagTable = {
  '-o, --output <file>': 'write signed items to this file, one per line; default: stdout',
  ...batchFlags,
} as const
type SignFlags = FlagsOf<typeof flagTable>

const batchSignVerb = sessionVerb({
  name: 'sign',
  about: 'sign many proposals and save them in the journal; send nothing',
  args: { '<file>': 'rows to sign; - for stdin' },
  flags: flagTable,
  examples: ['batch sign rows.csv --max-spend 7500usdc -o signed.ndjson'],
  async run(session, flags, { file }) {
    const opened = await openBatch(session, flags, await readSource(session, file))
    if (flags.dryRun) return showBatchPlan(session, opened)
    await opened.checkedSums()
    await sign(session, flags, opened)
  },
})

async function sign(session: Session, flags: SignFlags, opened: Opened) {
  const { output } = session
  const { count, parts, spending } = opened
  const counts = { signed: 0, reused: 0, rejected: 0 }
  const failures = newFailures()
  const path = flags.output === '-' ? undefined : flags.output
  const file = path === undefined ? undefined : fromCwd(session.cwd, path)
  const stream = newResults(output, 'batch-signed', 'results')
  const bar = { verb: 'signing', done: 0, total: count.rows }
  const progress = output.progress(bar)
  const groups = signRows(parts, count.input, { spending, signal: session.until })
  const signAll = async (write: (lines: string) => Promise<void>) => {
    for await (const signed of groups) {
      let lines = ''
      for (const one of signed) {
        const item = one.error === undefined ? itemText(one.authorization) : undefined
        counts[outcomeOf(one)]++
        bar.done++
        if (one.error !== undefined) failures.add(placeText(one.row), one.error)
        if (item !== undefined) lines += `${item}\n`
        // Where the items themselves are the result, nothing stands between them.
        if (item !== undefined && file === undefined)
          stream.block(({ isTerminal }) => (isTerminal ? jsonText(JSON.parse(item), 0) : item))
        stream.item(signedRow(one, item))
      }
      await write(lines)
      progress.update({ ...bar })
    }
  }
  try {
    if (file === undefined) await signAll(async () => undefined)
    // Opened before anything is signed; 0600, for it holds signatures (R5).
    else
      await publishFile(session.files, dirname(file), basename(file), async (handle) =>
        signAll((lines) => writeAll(handle, new TextEncoder().encode(lines))),
      )
  } finally {
    progress.stop()
  }
  const { signed, reused, rejected } = counts
  const text = `${signed} signed, ${reused} signed before, ${rejected} rejected`
  stream.end(
    { summary: { rows: count.rows, ...counts } },
    path === undefined ? [] : [text, () => `written to ${visible(path)}`],
  )
  if (path === undefined && output.isForPeople) output.note(text)
  failures.throwAny({ total: count.rows, goOn: 'retry later' })
}

const outcomeOf = (one: RowSigned) =>
  one.error !== undefined ? 'rejected' : one.reused ? 'reused' : 'signed'

/** Saved in the single form, the item that says the same (§2.7). */
function itemText({ signed }: JournaledAuthorization) {
  // An element of a JSON array may stand on several lines; here an item is one.
  if (signed.form === 'batch')
    return signed.body.includes('\n') ? JSON.stringify(JSON.parse(signed.body)) : signed.body
  const { signature } = SignedProposal.parse(JSON.parse(signed.body))
  const terms = { ...signed.terms, signature }
  return JSON.stringify(toBatchItem(signed.questionId, terms, signed.clientRef))
}

function signedRow(one: RowSigned, item: string | undefined) {
  const { row } = one
  return {
    client_ref: row.clientRef ?? null,
    identifier: row.identifier,
    outcome: outcomeOf(one),
    journal_id: one.error === undefined ? one.authorization.id : null,
    payload: item === undefined ? null : (JSON.parse(item) as object),
    error: errorData(one.error),
    columns: row.columns,
  }
}

const idsHint = 'give candidate ids, or what `batch submit` printed'

const batchStatusVerb = verb({
  name: 'status',
  about: 'show many candidates; exit 7 if one failed',
  args: { '<file>': 'candidate ids, one per line, or results of `batch submit`; - for stdin' },
  flags: {
    ...formatFlag,
    ...executorFlags,
    '--wait': 'wait until every candidate is executed or failed',
  },
  examples: ['proposer batch submit rows.csv --ndjson | proposer batch status - --wait'],
  async run(context, flags, { file }) {
    const source = await readSource(context, file)
    const { ids, faults } = readIds(source, 'candidate_id', flags.format)
    const wrong = new UsageError('invalid_candidate_id', 'it is not a candidate id', idsHint)
    for (const one of ids) if (!isCandidateId(one.id)) faults.add(wrong, one)
    faults.throwAny()
    if (ids.length === 0)
      throw new UsageError('empty_input', `${source.name}: it holds no candidate ids`, idsHint)
    const wanted = ids.map(({ id }) => id)
    await pollIds(context, flags, wanted, flags.wait ? 'wait' : 'once')
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
