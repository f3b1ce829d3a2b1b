/**
 * `check`: what is worth knowing of questions before an answer is signed (contract §9). It signs
 * nothing and writes nothing.
 */
import { titleOf } from '../core/chain/ancillary.js'
import type { Rules } from '../core/chain/rules.js'
import { checkRefusal, type QuestionFinding, type Subject } from '../core/client/check/findings.js'
import { gravest } from '../core/client/gateway/answer.js'
import { type BatchRow, readBatch } from '../core/client/input/input.js'
import { inGroups, placeText } from '../core/client/input/rows.js'
import type { ContextResult } from '../core/client/trust/context.js'
import { outcomeMeant, type QuestionContext, type Trust } from '../core/client/trust/trust.js'
import type { Hex } from '../core/ports.js'
import { ProposerError, UsageError } from '../core/protocol/errors.js'
import { namedQuestion } from '../core/protocol/market-url.js'
import { answerText, keyNamed } from '../core/protocol/outcome-words.js'
import { outcomeOf } from '../core/protocol/proposal.js'
import type { OutcomeKey } from '../core/protocol/schema.js'
import { limits } from '../core/protocol/words.js'
import { formatFlag, readSource } from './batch/source.js'
import { newResultStream } from './batch/text.js'
import { type CheckFlags, checkFlags, countsOf, openChecker, requiredBy } from './session/checks.js'
import { identify } from './session/identify.js'
import { requireOutcome } from './session/intent.js'
import { contextSource } from './session/question.js'
import { clarificationTexts, rulesLine } from './session/rules.js'
import { requesterFlag, type Session, withSession } from './session/session.js'
import type { Context } from './terminal/context.js'
import { counted, fold, visible } from './terminal/render.js'
import { verb } from './terminal/verb.js'

export const checkCommand = verb({
  name: 'check',
  about: 'show findings about questions before an answer is signed',
  args: {
    '<identifier|file>': 'question id, slug or Polymarket URL; or rows of a batch, - for stdin',
  },
  flags: {
    ...formatFlag,
    ...requesterFlag,
    ...checkFlags,
    '--outcome <yes|no|p1|p2|p3|label>': 'answer to compare with the market',
    '--gamma-url <url>': "Polymarket's market API",
  },
  help: 'Each finding is ok, warn or unknown, with its source. A node (--rpc-url) and Gamma are the sources; what neither reports is unknown.\nWith --require-check or --require-known such a finding is exit 2.',
  examples: ['check some-slug --outcome yes', 'check today.csv --require-check'],
  async run(context, flags, { identifier }) {
    const word = flags.outcome === undefined ? undefined : requireOutcome(flags.outcome)
    const isFile = identifier === '-' || namedQuestion(identifier) === undefined
    if (isFile && word !== undefined)
      throw new UsageError(
        'flag_without_meaning',
        '--outcome does not apply to a file, whose rows have their own outcomes',
        'omit --outcome',
      )
    await withSession(context, flags, async (session) => {
      const rows = isFile
        ? readBatch(await readSource(context, identifier), flags.format, told(context)).map(askedIn)
        : [{ identifier, word, place: undefined }]
      await checkAll(context, session, flags, rows)
    })
  },
})

const told = ({ output }: Context) => ({
  fault(error: UsageError): never {
    throw error
  },
  unanswered: (place: { readonly line: number }) =>
    output.note(`note: left out without an outcome: ${placeText(place)}`),
})

/** A question that is asked about; `word`: the answer, as it was written. */
interface Asked {
  readonly identifier: string
  readonly word: string | undefined
  readonly place: string | undefined
}

const askedIn = (row: BatchRow): Asked => ({
  identifier: row.identifier,
  word: row.kind === 'intent' ? row.outcome : outcomeOf(row.item.proposed_price),
  place: placeText(row),
})

interface Told {
  readonly identifier: string
  readonly question_id: Hex | null
  readonly outcome: OutcomeKey | null
  readonly rules: Rules | null
  readonly error: { readonly code: string; readonly detail: string } | null
}

async function checkAll(
  context: Context,
  session: Session,
  flags: CheckFlags,
  asked: readonly Asked[],
): Promise<void> {
  const { output } = context
  const [trust, source, checker] = await Promise.all([
    session.trust(),
    contextSource(context, session),
    openChecker(session, context.clock),
  ])
  const stream = newResultStream(output, 'check', 'findings')
  const questions: Told[] = []
  const notes = new Set<string>()
  const counts = { ok: 0, warn: 0, unknown: 0 }
  const errors: ProposerError[] = []
  const refusals: ProposerError[] = []
  const required = requiredBy(flags)
  const progress = output.progress('checking')
  try {
    for (const group of inGroups(asked, limits.batchItems)) {
      const names = await identify(
        context,
        session,
        group.map(({ identifier }) => identifier),
      )
      const results = await source.contexts(names, { signal: session.signal })
      const subjects = results.map((result, at) => subjectOf(trust, result, group[at]?.word))
      const found = await checker.check(
        subjects.flatMap((subject) => (subject instanceof ProposerError ? [] : [subject])),
        session.signal,
      )
      const next = found[Symbol.iterator]()
      for (const [at, subject] of subjects.entries()) {
        const { identifier = '', place } = group[at] ?? {}
        for (const note of results[at]?.context ? results[at].notes : []) notes.add(note)
        if (subject instanceof ProposerError) errors.push(subject)
        else {
          const findings = next.next().value ?? []
          for (const result of ['ok', 'warn', 'unknown'] as const)
            counts[result] += countsOf(findings)[result]
          const refusal = checkRefusal(identifier, findings, required)
          if (refusal !== undefined) refusals.push(refusal)
          for (const finding of findings)
            if (output.mode !== 'human') stream.item(finding, () => [])
          if (output.mode === 'human')
            output.text(`${blockOf(subject, findings, place, output.columns)}\n\n`)
        }
        questions.push(toldOf(identifier, subject))
        if (subject instanceof ProposerError && output.mode === 'human')
          output.text(
            `${fold(`${place ?? identifier}: ${subject.detail}`, output.columns, '  ')}\n\n`,
          )
      }
    }
  } finally {
    progress.stop()
  }
  for (const note of notes) output.note(`note: ${visible(note)}`)
  const summary = { questions: questions.length, ...counts, errors: errors.length }
  stream.end({ summary, questions }, () =>
    fold(
      `${counted(summary.questions, 'question')}: ${counts.ok} ok, ${counts.warn} warn, ${counts.unknown} unknown`,
      output.columns,
    ),
  )
  const error = gravest(errors) ?? refusalOfAll(refusals, questions.length)
  if (error) throw error
}

function subjectOf(
  trust: Trust,
  result: ContextResult,
  word: string | undefined,
): Subject | ProposerError {
  if (result.error !== undefined) return result.error
  try {
    const { context } = result
    const outcome =
      word === undefined ? undefined : (keyNamed(word) ?? outcomeMeant(trust, context, word))
    return { context, outcome }
  } catch (error) {
    if (error instanceof ProposerError) return error
    throw error
  }
}

function refusalOfAll(
  refusals: readonly ProposerError[],
  questions: number,
): ProposerError | undefined {
  const [first] = refusals
  if (first === undefined || refusals.length === 1) return first
  return new UsageError(
    first.code,
    `${refusals.length} of ${counted(questions, 'question')}; the first: ${first.detail}`,
    first.meta.hint ?? '',
  )
}

function toldOf(identifier: string, subject: Subject | ProposerError): Told {
  if (subject instanceof ProposerError) {
    const { code, detail } = subject
    return { identifier, question_id: null, outcome: null, rules: null, error: { code, detail } }
  }
  const { context, outcome = null } = subject
  const { question_id, rules = null } = context
  return { identifier, question_id, outcome, rules, error: null }
}

function blockOf(
  { context, outcome }: Subject,
  findings: readonly QuestionFinding[],
  place: string | undefined,
  columns: number,
): string {
  const label = outcome && context.outcomes?.find((one) => one.outcome === outcome)?.label
  return [
    headOf(context, place),
    ...(outcome === undefined ? [] : [`answer: ${answerText(outcome, label ?? null)}`]),
    ...findings.map(
      ({ id, result, detail, source }) => `${result.padEnd(7)} ${id}: ${detail} [${source}]`,
    ),
    ...(context.rules === undefined ? [] : [`rules: ${rulesLine(context.rules)}`]),
  ]
    .map((line) => fold(line, columns, '  '))
    .concat(clarificationTexts(context.rules?.updates ?? [], columns))
    .join('\n')
}

const headOf = ({ request, question_id }: QuestionContext, place: string | undefined): string =>
  `${place === undefined ? '' : `${place}: `}${titleOf(request.ancillary_data) ?? question_id}`
