/**
 * `context`: what a proposal for a question must name, checked against trust (contract §4
 * signing_data, §6).
 */
import { gravest } from '../core/client/gateway/answer.js'
import type { ContextResult } from '../core/client/trust/context.js'
import { limits } from '../core/protocol/words.js'
import { identify } from './session/identify.js'
import { contextRows, contextSource, requireIdentifier } from './session/question.js'
import { clarificationTexts } from './session/rules.js'
import { requesterFlag, type Session, withSession } from './session/session.js'
import type { Context } from './terminal/context.js'
import { questionText } from './terminal/question-text.js'
import { fields, visible } from './terminal/render.js'
import { verb } from './terminal/verb.js'

export const contextCommand = verb({
  name: 'context',
  about: 'show request, bond, outcomes and contracts of questions, checked against trust',
  args: { '<identifier...>': 'question ids, slugs or Polymarket URLs' },
  flags: requesterFlag,
  help: 'Asks the gateway, or with --rpc-url the chain, which uses no rate limit.',
  examples: ['context some-slug --json > context.json'],
  async run(context, flags, { identifier: identifiers }) {
    for (const identifier of identifiers) requireIdentifier(identifier)
    await withSession(context, flags, async (session) =>
      show(context, session, await identify(context, session, identifiers)),
    )
  },
})

async function show(
  context: Context,
  session: Session,
  identifiers: readonly string[],
): Promise<void> {
  const { output } = context
  const source = await contextSource(context, session)
  const results: ContextResult[] = []
  const progress = output.progress(
    `asking for ${identifiers.length} ${identifiers.length === 1 ? 'question' : 'questions'}`,
  )
  try {
    for (let from = 0; from < identifiers.length; from += limits.batchItems) {
      const answered = await source.contexts(identifiers.slice(from, from + limits.batchItems), {
        signal: session.signal,
      })
      results.push(...answered)
      if (output.mode === 'ndjson') for (const one of answered) output.line(questionOf(one))
    }
  } finally {
    progress.stop()
  }
  const errors = results.flatMap(({ error }) => error ?? [])
  const notes = new Set(results.flatMap((one) => (one.context ? one.notes : [])))
  for (const note of notes) output.note(`note: ${visible(note)}`)
  if (output.mode === 'ndjson')
    output.result(
      'context',
      { summary: { questions: results.length - errors.length, errors: errors.length } },
      () => '',
    )
  // On a terminal the error below says all that there is.
  else if (
    output.mode === 'json' ||
    !output.isTerminal ||
    results.length > 1 ||
    errors.length === 0
  )
    output.result('context', { questions: results.map(questionOf) }, () =>
      results.map((one) => block(one, output.columns)).join('\n\n'),
    )
  const error = gravest(errors)
  if (error) throw error
}

const questionOf = (one: ContextResult) =>
  one.context
    ? one.context
    : { identifier: one.identifier, error: { code: one.error.code, detail: one.error.detail } }

function block(one: ContextResult, columns: number): string {
  if (!one.context)
    return fields(
      [
        ['question', one.identifier],
        ['error', one.error.detail],
      ],
      columns,
    )
  const { rules, request } = one.context
  return [
    fields([...contextRows(one.context), ['text', questionText(request.ancillary_data)]], columns),
    ...clarificationTexts(rules?.updates ?? [], columns),
  ].join('\n')
}
