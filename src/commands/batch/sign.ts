/**
 * `batch sign`: signed batch items in input order, journaled before they are given out (R5-R9,
 * contract §6).
 */
import { basename, dirname } from 'node:path'
import { placeText } from '../../core/client/input/rows.js'
import type { JournaledAuthorization } from '../../core/client/journal/authorizations.js'
import { type RowSigned, signBatch } from '../../core/client/propose/sign-batch.js'
import { fromCwd } from '../../core/io/home-paths.js'
import { toBatchItem } from '../../core/protocol/proposal.js'
import { SignedProposal } from '../../core/protocol/schema.js'
import { publishFile, writeAll } from '../../core/storage/durable.js'
import { type Session, sessionVerb } from '../session/session.js'
import type { Context } from '../terminal/context.js'
import { jsonText, visible } from '../terminal/render.js'
import type { FlagsOf } from '../terminal/verb.js'
import { submitCommandText } from './hints.js'
import { batchFlags, type Opened, openBatch } from './parts.js'
import { showBatchPlan } from './preview.js'
import { readSource } from './source.js'
import { newResultStream, newTally, progressText } from './text.js'

const flagTable = {
  '-o, --output <file>': 'write signed items to this file, one per line; default: stdout',
  ...batchFlags,
} as const
type SignFlags = FlagsOf<typeof flagTable>

export const batchSignVerb = sessionVerb({
  name: 'sign',
  about: 'sign many proposals and save them in the journal; send nothing',
  args: { '<file>': 'rows to sign; - for stdin' },
  flags: flagTable,
  examples: ['batch sign rows.csv --max-spend 7500usdc -o signed.ndjson'],
  async run(context, session, flags, { file }) {
    const opened = await openBatch(context, session, flags, await readSource(context, file), {
      tell: ({ intents }, signer, sum) => `signing up to ${intents} proposals as ${signer}${sum}`,
    })
    if (flags.dryRun === true) return showBatchPlan(context, opened, { signal: session.signal })
    await opened.checkedSums()
    await sign(context, session, flags, opened)
  },
})

async function sign(
  context: Context,
  session: Session,
  flags: SignFlags,
  opened: Opened,
): Promise<void> {
  const { output } = context
  const { count } = opened
  const counts = { signed: 0, reused: 0, rejected: 0 }
  const tally = newTally()
  const file =
    flags.output === undefined || flags.output === '-'
      ? undefined
      : fromCwd(context.cwd, flags.output)
  // Where the items themselves are the result, nothing stands between them.
  const stream =
    output.mode === 'human' ? undefined : newResultStream(output, 'batch-signed', 'results')
  const progress = output.progress(progressText(0, count.rows, []))

  const take = (signed: readonly RowSigned[]): string => {
    let lines = ''
    for (const one of signed) {
      const item = one.error === undefined ? itemText(one.authorization) : undefined
      if (one.error !== undefined) {
        counts.rejected++
        tally.add(placeText(one.row), one.error)
      } else if (one.reused) counts.reused++
      else counts.signed++
      if (item !== undefined) lines += `${item}\n`
      if (item !== undefined && stream === undefined && file === undefined)
        output.text(`${output.isTerminal ? jsonText(JSON.parse(item), 0) : item}\n`)
      stream?.item(resultOf(one, item), () => [])
    }
    progress.update(
      progressText(
        counts.signed + counts.reused + counts.rejected,
        count.rows,
        Object.entries(counts),
      ),
    )
    return lines
  }

  try {
    const groups = signBatch(opened.parts, count.input, {
      spending: opened.spending,
      signal: session.signal,
    })
    if (file === undefined) for await (const signed of groups) take(signed)
    else {
      // 0600: it holds signatures (R5).
      await publishFile(context.files, dirname(file), basename(file), async (handle) => {
        for await (const signed of groups)
          await writeAll(handle, new TextEncoder().encode(take(signed)))
      })
    }
  } finally {
    progress.stop()
  }
  const summary = { rows: count.rows, ...counts }
  const summaryText = `${counts.signed} signed, ${counts.reused} signed before, ${counts.rejected} rejected`
  stream?.end({ summary }, () => summaryText)
  if (stream === undefined && file !== undefined)
    output.text(
      `${summaryText}\nwritten to ${visible(flags.output ?? '')}\nnext: ${visible(submitCommandText(flags.output ?? '', flags))}\n`,
    )
  else if (stream === undefined) output.note(summaryText)
  const error = tally.error({ total: count.rows, goOn: 'retry later' })
  if (error) throw error
}

/**
 * The saved bytes as a batch item; saved in the single form, the item that says the same (§2.7).
 */
function itemText({ signed }: JournaledAuthorization): string {
  // An element of a JSON array may stand on several lines; here an item is one.
  if (signed.form === 'batch')
    return signed.body.includes('\n') ? JSON.stringify(JSON.parse(signed.body)) : signed.body
  const { signature } = SignedProposal.parse(JSON.parse(signed.body))
  const terms = {
    ...signed.terms,
    proposer: signed.terms.proposer,
    signature: signature,
  }
  return JSON.stringify(toBatchItem(signed.questionId, terms, signed.clientRef))
}

function resultOf(one: RowSigned, item: string | undefined): object {
  const { row } = one
  return {
    client_ref: row.clientRef ?? null,
    identifier: row.identifier,
    outcome: one.error !== undefined ? 'rejected' : one.reused ? 'reused' : 'signed',
    journal_id: one.error === undefined ? one.authorization.id : null,
    payload: item === undefined ? null : (JSON.parse(item) as object),
    error: one.error === undefined ? null : { code: one.error.code, detail: one.error.detail },
    ...(row.columns === undefined ? {} : { columns: row.columns }),
  }
}
