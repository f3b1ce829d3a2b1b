/**
 * `batch sign`: signed batch items in input order, journaled before they are given out (R5-R9,
 * contract §6).
 */
import { basename, dirname } from 'node:path'
import { placeText } from '#client/input/rows'
import type { JournaledAuthorization } from '#client/journal/authorizations'
import { type RowSigned, signBatch } from '#client/propose/batch'
import { fromCwd } from '#io/home'
import { toBatchItem } from '#protocol/proposal'
import { SignedProposal } from '#protocol/schema'
import { publishFile, writeAll } from '#storage/durable'
import { type Session, sessionVerb } from '../session/session.js'
import type { Context } from '../terminal/context.js'
import { fileWord } from '../terminal/hint-flags.js'
import { jsonText, visible } from '../terminal/render.js'
import { newResults, progressText } from '../terminal/results.js'
import type { FlagsOf } from '../terminal/verb.js'
import { newFailures } from './failures.js'
import { batchFlags, type Opened, openBatch } from './parts.js'
import { showBatchPlan } from './preview.js'
import { readSource } from './source.js'

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

async function sign(context: Context, session: Session, flags: SignFlags, opened: Opened) {
  const { output } = context
  const { count } = opened
  const counts = { signed: 0, reused: 0, rejected: 0 }
  const failures = newFailures()
  const path = flags.output === '-' ? undefined : flags.output
  const file = path === undefined ? undefined : fromCwd(context.cwd, path)
  const stream = newResults(output, 'batch-signed', 'results')
  const told = () => progressText(sum(counts), count.rows, Object.entries(counts))
  const progress = output.progress(told())
  const take = (signed: readonly RowSigned[]): string => {
    let lines = ''
    for (const one of signed) {
      const item = one.error === undefined ? itemText(one.authorization) : undefined
      counts[outcomeOf(one)]++
      if (one.error !== undefined) failures.add(placeText(one.row), one.error)
      if (item !== undefined) lines += `${item}\n`
      // Where the items themselves are the result, nothing stands between them.
      if (item !== undefined && file === undefined)
        stream.block(({ isTerminal }) => (isTerminal ? jsonText(JSON.parse(item), 0) : item))
      stream.item(resultOf(one, item))
    }
    progress.update(told())
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
  const { signed, reused, rejected } = counts
  const text = `${signed} signed, ${reused} signed before, ${rejected} rejected`
  const next = `proposer batch submit ${fileWord(path ?? '')}`
  stream.end(
    { summary: { rows: count.rows, ...counts } },
    path === undefined
      ? []
      : [
          text,
          () => `written to ${visible(path)}`,
          () => `next: ${visible(context.pasted?.(`\`${next}\``).replaceAll('`', '') ?? next)}`,
        ],
  )
  if (path === undefined && output.mode === 'human') output.note(text)
  const error = failures.error({ total: count.rows, goOn: 'retry later' })
  if (error) throw error
}

const outcomeOf = (one: RowSigned) =>
  one.error !== undefined ? 'rejected' : one.reused ? 'reused' : 'signed'

const sum = (counts: object) => Object.values(counts).reduce((all, each) => all + each, 0)

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
    outcome: outcomeOf(one),
    journal_id: one.error === undefined ? one.authorization.id : null,
    payload: item === undefined ? null : (JSON.parse(item) as object),
    error: one.error === undefined ? null : { code: one.error.code, detail: one.error.detail },
    ...(row.columns === undefined ? {} : { columns: row.columns }),
  }
}
