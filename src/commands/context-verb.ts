/** `context`: what a proposal for a question must name, checked against trust (contract §4 signing_data, §6). */
import { Command } from 'commander'
import { gravest } from '../core/client/sending/answer.js'
import {
  type ContextResult,
  type ContextSource,
  chainContexts,
  gatewayContexts,
  type QuestionContext,
} from '../core/client/signing/context.js'
import { UsageError } from '../core/protocol/errors.js'
import { isIdentifier, limits } from '../core/protocol/schema-words.js'
import type { Context } from './context.js'
import { type Session, type SessionFlags, withSession } from './session/session.js'
import { amountText, fields, visible } from './view/render.js'

export const contextCommand = (context: Context): Command =>
  new Command('context')
    .description('show request, bond, outcomes and contracts of questions, checked against trust')
    .argument('<identifier...>', 'question IDs or slugs')
    .addHelpText(
      'after',
      '\nFrom the gateway, or with --rpc-url straight from the chain, which costs no budget.\n\nExample:\n  proposer context some-slug --json > context.json',
    )
    .action(async (identifiers: string[], _own: unknown, command: Command) => {
      for (const identifier of identifiers) requireIdentifier(identifier)
      await withSession(context, command.optsWithGlobals<SessionFlags>(), (session) => show(context, session, identifiers))
    })

async function show(context: Context, session: Session, identifiers: readonly string[]): Promise<void> {
  const { output } = context
  const source = await contextSource(context, session)
  const results: ContextResult[] = []
  const progress = output.progress(`asking for ${identifiers.length} ${identifiers.length === 1 ? 'question' : 'questions'}`)
  try {
    for (let from = 0; from < identifiers.length; from += limits.batchItems) {
      const answered = await source.contexts(identifiers.slice(from, from + limits.batchItems), { signal: session.signal })
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
    output.result('context', { summary: { questions: results.length - errors.length, errors: errors.length } }, () => '')
  else output.result('context', { questions: results.map(questionOf) }, () => results.map((one) => block(one, output.columns)).join('\n\n'))
  const error = gravest(errors)
  if (error) throw error
}

const questionOf = (one: ContextResult) =>
  one.context ? one.context : { identifier: one.identifier, error: { code: one.error.code, detail: one.error.detail } }

/** From the chain where a node is configured, without budget; else from the gateway. */
export async function contextSource(context: Context, session: Session): Promise<ContextSource> {
  const [trust, chain] = [await session.trust(), await session.chain()]
  return chain ? chainContexts(chain, trust, context.clock) : gatewayContexts(await session.gateway('read'), trust, context.clock)
}

/** Question ID or slug. Throws UsageError `invalid_identifier`. */
export function requireIdentifier(text: string): void {
  if (isIdentifier(text)) return
  throw new UsageError('invalid_identifier', `"${text}" is neither a question ID nor a slug`, {
    hint: 'a question ID is 0x and 64 lowercase hex digits; a slug has lowercase letters, digits and hyphens',
  })
}

function block(one: ContextResult, columns: number): string {
  if (!one.context)
    return fields(
      [
        ['question', one.identifier],
        ['error', one.error.detail],
      ],
      columns,
    )
  return fields(contextRows(one.context), columns)
}

/** The facts of a context as rows of `fields`. */
export function contextRows(context: QuestionContext): (readonly [string, string | null | undefined])[] {
  const { request, bond, contracts, signing, outcomes, price } = context
  const answers = outcomes
    ? outcomes.map(({ outcome, label, allowed }) => `${outcome} ${label}${allowed ? '' : ' (not allowed)'}`).join(', ')
    : `prices ${price.allowed_values.join(', ')}`
  return [
    ['question', context.question_id],
    ['slug', context.slug],
    ['answers', answers],
    ['bond', amountText(bond.required_bond, context.token)],
    ['token', bond.token],
    ['round', request.timestamp],
    ['oracle', request.oracle],
    ['requester', request.requester],
    ['identifier', request.identifier.raw],
    ['chain', String(signing.chain_id)],
    ['permit2', contracts.permit2],
    ['signed proposer', contracts.signed_proposer],
    ['source', context.source],
  ]
}
