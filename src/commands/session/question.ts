import { knownToken } from '#chain/profiles'
import { type ContextSource, contextsFrom } from '#client/trust/context'
import type { QuestionContext, Trust } from '#client/trust/trust'
import { UsageError } from '#protocol/errors'
import { identifierHint, namedQuestion } from '#protocol/market-url'
import { answerText } from '#protocol/outcome-words'
import { fromHex } from '#protocol/witness'
import type { Context } from '../terminal/context.js'
import { amountWithRaw, dateText, type TokenUnits } from '../terminal/render.js'
import { rulesLine } from './rules.js'
import type { Session } from './session.js'

/** Without a node a gateway is needed: `session.gateway` says so where none is configured. */
export const asksGateway = ({ settings }: Session): boolean =>
  settings.rpcUrl === undefined || (settings.gateway ?? settings.local) !== undefined

/**
 * From the chain where a node is configured, without budget; else, and for kind `direct`, from the
 * gateway. `pins`: those of one requester.
 */
export const contextSource = async (
  { clock }: Context,
  session: Session,
  pins?: Trust,
): Promise<ContextSource> =>
  contextsFrom({
    trust: pins ?? (await session.trust()),
    clock,
    chain: await session.chain(),
    gateway: asksGateway(session) ? () => session.gateway('read') : undefined,
  })

/** Of an event's URL the event's slug. UsageError `invalid_identifier`. */
export function requireIdentifier(text: string): string {
  const named = namedQuestion(text)
  if (named !== undefined) return named.identifier
  throw new UsageError(
    'invalid_identifier',
    `"${text}" is neither a question id, nor a slug, nor a URL of Polymarket`,
    identifierHint(text),
  )
}

/** As we know the token; else as the chain, or the file of the context, says. */
export const unitsOf = ({ bond, signing, token }: QuestionContext): TokenUnits | undefined =>
  knownToken(signing.chain_id, bond.token) ?? token

/** `YES_OR_NO_QUERY (0x5945535f…)`; whole where it is no name. */
function oracleIdText(raw: string): string {
  const name = new TextDecoder().decode(fromHex(raw)).replace(/\0+$/, '')
  return /^[A-Z0-9_/ .-]{3,32}$/i.test(name) ? `${name} (${raw.slice(0, 10)}…)` : raw
}

export function contextRows(
  context: QuestionContext,
): (readonly [string, string | null | undefined])[] {
  const { request, bond, contracts, signing, outcomes, price } = context
  const answers = outcomes
    ? outcomes
        .map((one) => `${answerText(one.outcome, one.label)}${one.allowed ? '' : ' (not allowed)'}`)
        .join(', ')
    : `prices ${price.allowed_values.join(', ')}`
  return [
    ['question', context.question_id],
    ['slug', context.slug],
    ['answers', answers],
    ['bond', amountWithRaw(bond.required_bond, unitsOf(context))],
    ['token', bond.token],
    ['round', dateText(request.timestamp)],
    ['rules', context.rules && rulesLine(context.rules)],
    ['oracle', request.oracle],
    ['requester', request.requester],
    ['oracle id', oracleIdText(request.identifier.raw)],
    ['chain', String(signing.chain_id)],
    ['permit2', contracts.permit2],
    ['signed proposer', contracts.signed_proposer],
    ['source', context.source],
  ]
}
