/**
 * `context`: what a proposal for a question must name, checked against trust (contract §4
 * signing_data, §6).
 */
import { gravest } from '#client/gateway/answer'
import type { ContextResult } from '#client/trust/context'
import { contextGroups } from './session/identify.js'
import {
  clarificationTexts,
  contextRows,
  questionText,
  requireIdentifier,
} from './session/question.js'
import { sessionVerb } from './session/session.js'
import { requesterFlag } from './session/settings.js'
import { apart, type Block, rows, together } from './terminal/output.js'
import { counted } from './terminal/render.js'

export const contextCommand = sessionVerb({
  name: 'context',
  about: 'show request, bond, outcomes and contracts of questions, checked against trust',
  args: { '<identifier...>': 'question ids, slugs or Polymarket URLs' },
  flags: requesterFlag,
  help: 'Asks the gateway, or with --rpc-url the chain, which uses no rate limit.',
  examples: ['context some-slug --json > context.json'],
  async run(context, session, _flags, { identifier: identifiers }) {
    for (const identifier of identifiers) requireIdentifier(identifier)
    const { output } = context
    const results: ContextResult[] = []
    const what = `asking for ${counted(identifiers.length, 'question')}`
    for await (const group of contextGroups(context, session, identifiers, (one) => one, what))
      for (const { result } of group) {
        results.push(result)
        output.item(questionOf(result))
      }
    const errors = results.flatMap(({ error }) => error ?? [])
    // On a terminal the error below says all that there is.
    const isSaid = output.isTerminal && results.length === 1 && errors.length === 1
    if (!output.isForPeople || !isSaid)
      output.show(
        'context',
        { questions: results.map(questionOf) },
        [apart(results.map(blockOf))],
        { summary: { questions: results.length - errors.length, errors: errors.length } },
      )
    const error = gravest(errors)
    if (error) throw error
  },
})

const questionOf = ({ identifier, context, error }: ContextResult) =>
  context ?? { identifier, error: { code: error.code, detail: error.detail } }

function blockOf({ identifier, context, error }: ContextResult): Block {
  if (context === undefined)
    return rows([
      ['question', identifier],
      ['error', error.detail],
    ])
  return together([
    rows([...contextRows(context), ['text', questionText(context.request.ancillary_data)]]),
    ...clarificationTexts(context.rules?.updates ?? []),
  ])
}
