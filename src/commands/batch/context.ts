/** `batch context`: the contexts of many questions, as `context` shows one (contract §6). */

import { titleOf } from '#chain/ancillary'
import {
  type BatchSource,
  inputFault,
  newFaults,
  type PlacedId,
  placeText,
  readIds,
} from '#client/input/rows'
import type { ContextResult } from '#client/trust/context'
import type { Trust } from '#client/trust/trust'
import { identifierHint, namedQuestion } from '#protocol/market-url'
import { answersText } from '#protocol/outcome-words'
import { requesterFlag } from '../session/flags.js'
import { contextGroups } from '../session/identify.js'
import { unitsOf } from '../session/question.js'
import { type Session, sessionVerb } from '../session/session.js'
import { worksheetHead, worksheetLine } from '../session/worksheet.js'
import type { Context } from '../terminal/context.js'
import type { Output } from '../terminal/output.js'
import { amountText, visible } from '../terminal/render.js'
import { newResults } from '../terminal/results.js'
import type { FlagsOf } from '../terminal/verb.js'
import { newFailures } from './failures.js'
import { formatFlag, readSource } from './source.js'

const contextFlags = {
  ...formatFlag,
  ...requesterFlag,
  '--csv': 'print a worksheet: fill in outcome, then hand it to batch submit',
} as const
type ContextFlags = FlagsOf<typeof contextFlags>

export const batchContextVerb = sessionVerb({
  name: 'context',
  about: 'show request, bond and outcomes of many questions, checked against trust',
  args: { '<file>': 'identifiers, one per line, or rows that have one; - for stdin' },
  flags: contextFlags,
  examples: [
    'batch context questions.txt --ndjson',
    'batch context questions.txt --csv > today.csv',
  ],
  run: async (context, session, flags, { file }) =>
    showContexts(context, session, flags, await readSource(context, file)),
})

async function showContexts(
  context: Context,
  session: Session,
  flags: ContextFlags,
  source: BatchSource,
) {
  const { output } = context
  const rows = readIds(source, 'identifier', flags.format)
  const total = rows.length
  checkIds(source, rows)
  const printer = flags.csv === true ? newSheet(context, await session.trust()) : newList(output)
  const failures = newFailures()
  const what = `asking for ${total} questions`
  for await (const group of contextGroups(context, session, rows, ({ id }) => id, what))
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
    if (namedQuestion(one.id) === undefined) faults.add(badIdentifier(source, one))
  faults.throwAny()
}

interface Printer {
  item(one: ContextResult): void
  end(summary: { readonly questions: number; readonly errors: number }): void
}

function newList(output: Output): Printer {
  const stream = newResults(output, 'context', 'questions')
  return {
    item({ identifier, context, error }) {
      if (error !== undefined) {
        const { code, detail } = error
        return stream.item({ identifier, error: { code, detail } }, () => [identifier, detail])
      }
      const { bond, outcomes, price } = context
      const answers = outcomes?.filter(({ allowed }) => allowed)
      stream.item(context, () => [
        identifier,
        `bond ${amountText(bond.required_bond, unitsOf(context))}`,
        answers === undefined ? price.allowed_values.join(', ') : answersText(answers),
      ])
    },
    end: (summary) =>
      stream.end({ summary }, [`${summary.questions} questions, ${summary.errors} errors`]),
  }
}

/** A question that cannot be proposed on gets no row. */
function newSheet({ output }: Context, { slugs }: Trust): Printer {
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

const badIdentifier = (source: BatchSource, place: PlacedId) =>
  inputFault(
    source,
    place,
    'invalid_identifier',
    'it is neither a question id nor a slug nor a URL of Polymarket',
    identifierHint(place.id),
  )
