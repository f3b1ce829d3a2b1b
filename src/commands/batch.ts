/** `batch`: many proposals from one file, by the batch routes (spec §4.2, contract §6). */

import { basename, dirname } from 'node:path'
import { titleOf } from '#chain/ancillary'
import {
  type BatchSource,
  inputFault,
  newFaults,
  type PlacedId,
  placeText,
  readIds,
} from '#client/input/rows'
import type { JournaledAuthorization } from '#client/journal/authorizations'
import { type RowSigned, signRows } from '#client/propose/submit'
import type { ContextResult } from '#client/trust/context'
import type { Trust } from '#client/trust/trust'
import { fromCwd } from '#io/home'
import { UsageError } from '#protocol/errors'
import { identifierHint, namedQuestion } from '#protocol/market-url'
import { answersText } from '#protocol/outcome-words'
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
import { pollIds } from './poll.js'
import { contextGroups, unitsOf, worksheetHead, worksheetLine } from './session/question.js'
import { type Session, sessionVerb } from './session/session.js'
import { executorFlags, requesterFlag } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { newResults, type Output } from './terminal/output.js'
import { amountText, errorData, jsonText, visible } from './terminal/render.js'
import { type FlagsOf, fileWord, verb } from './terminal/verb.js'

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

const contextFlags = {
  ...formatFlag,
  ...requesterFlag,
  '--csv': 'print a worksheet: fill in outcome, then hand it to batch submit',
} as const
type ContextFlags = FlagsOf<typeof contextFlags>

const batchContextVerb = sessionVerb({
  name: 'context',
  about: 'show request, bond and outcomes of many questions, checked against trust',
  args: { '<file>': 'identifiers, one per line, or rows that have one; - for stdin' },
  flags: contextFlags,
  examples: [
    'batch context questions.txt --ndjson',
    'batch context questions.txt --csv > today.csv',
  ],
  run: async (session, flags, { file }) =>
    showContexts(session, flags, await readSource(session, file)),
})

async function showContexts(session: Session, flags: ContextFlags, source: BatchSource) {
  const { output } = session
  const rows = readIds(source, 'identifier', flags.format)
  const total = rows.length
  checkIds(source, rows)
  const printer = flags.csv ? newSheet(session, await session.trust()) : newList(output)
  const failures = newFailures()
  const what = `asking for ${total} questions`
  for await (const group of contextGroups(session, rows, ({ id }) => id, what))
    for (const { asked, result } of group) {
      printer.item(result)
      if (result.error) failures.add(placeText(asked), result.error)
    }
  printer.end({ questions: total - failures.count(), errors: failures.count() })
  const error = failures.error({ total, goOn: 'retry later' })
  if (error) throw error
}

function checkIds(source: BatchSource, rows: readonly PlacedId[]) {
  const faults = newFaults(source)
  for (const one of rows)
    if (namedQuestion(one.id) === undefined)
      faults.add(
        inputFault(
          source,
          one,
          'invalid_identifier',
          'it is neither a question id nor a slug nor a URL of Polymarket',
          identifierHint(one.id),
        ),
      )
  faults.throwAny()
}

function newList(output: Output) {
  const stream = newResults(output, 'context', 'questions')
  return {
    item({ identifier, context, error }: ContextResult) {
      if (error !== undefined) {
        const { detail } = error
        return stream.item({ identifier, error: errorData(error) }, () => [identifier, detail])
      }
      const { bond, outcomes, price } = context
      const answers = outcomes?.filter(({ allowed }) => allowed)
      stream.item(context, () => [
        identifier,
        `bond ${amountText(bond.required_bond, unitsOf(context))}`,
        answers === undefined ? price.allowed_values.join(', ') : answersText(answers),
      ])
    },
    end: (summary: Readonly<Record<'questions' | 'errors', number>>) =>
      stream.end({ summary }, [`${summary.questions} questions, ${summary.errors} errors`]),
  }
}

function newSheet({ output }: Context, { slugs }: Trust): ReturnType<typeof newList> {
  const slugOf = new Map(Object.entries(slugs).map(([slug, id]) => [id, slug]))
  output.text(worksheetHead)
  return {
    item({ context, error, identifier }) {
      if (error !== undefined)
        return output.note(`left out ${identifier}: ${visible(error.detail)}`)
      const { question_id, slug, outcomes = [], bond, reward, request, rules } = context
      output.text(
        worksheetLine({
          identifier: question_id,
          slug: slug ?? slugOf.get(question_id) ?? null,
          title: titleOf(request.ancillary_data) ?? null,
          outcomes: outcomes.filter(({ allowed }) => allowed),
          bond: bond.required_bond,
          reward: reward ?? null,
          units: unitsOf(context),
          rules,
        }),
      )
    },
    end: () => undefined,
  }
}

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
  const told = () => ({
    ...{ verb: 'signing', done: sum(counts), total: count.rows },
    counts: Object.entries(counts),
  })
  const progress = output.progress(told())
  const groups = signRows(parts, count.input, { spending, signal: session.until })
  const signAll = async (write: (lines: string) => Promise<void>) => {
    for await (const signed of groups) {
      let lines = ''
      for (const one of signed) {
        const item = one.error === undefined ? itemText(one.authorization) : undefined
        counts[outcomeOf(one)]++
        if (one.error !== undefined) failures.add(placeText(one.row), one.error)
        if (item !== undefined) lines += `${item}\n`
        // Where the items themselves are the result, nothing stands between them.
        if (item !== undefined && file === undefined)
          stream.block(({ isTerminal }) => (isTerminal ? jsonText(JSON.parse(item), 0) : item))
        stream.item(signedRow(one, item))
      }
      await write(lines)
      progress.update(told())
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
  const next = `proposer batch submit ${fileWord(path ?? '')}`
  stream.end(
    { summary: { rows: count.rows, ...counts } },
    path === undefined
      ? []
      : [
          text,
          () => `written to ${visible(path)}`,
          () => `next: ${visible(session.pasted?.(`\`${next}\``).replaceAll('`', '') ?? next)}`,
        ],
  )
  if (path === undefined && output.isForPeople) output.note(text)
  const error = failures.error({ total: count.rows, goOn: 'retry later' })
  if (error) throw error
}

const outcomeOf = (one: RowSigned) =>
  one.error !== undefined ? 'rejected' : one.reused ? 'reused' : 'signed'

const sum = (counts: object) => Object.values(counts).reduce((all, each) => all + each, 0)

/**
 * The saved bytes as a batch item; saved in the single form, the item that says the same (§2.7).
 */
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
    const ids = readIds(source, 'candidate_id', flags.format).map((one) => {
      if (isCandidateId(one.id)) return one.id
      throw inputFault(source, one, 'invalid_candidate_id', 'it is not a candidate id', idsHint)
    })
    if (ids.length === 0)
      throw new UsageError('empty_input', `${source.name}: it holds no candidate ids`, idsHint)
    await pollIds(context, flags, ids, { once: flags.wait !== true, full: false })
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
