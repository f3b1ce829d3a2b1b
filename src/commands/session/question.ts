/** Without a node a gateway is needed: `session.gateway` says so where none is configured. */
import { plainText } from '#chain/ancillary'
import { knownToken } from '#chain/profiles'
import type { Rules, RulesUpdate } from '#chain/rules'
import type { AskRules } from '#client/propose/rules'
import { contextsFrom } from '#client/trust/context'
import type { QuestionContext, Trust } from '#client/trust/trust'
import { UsageError } from '#protocol/errors'
import { identifierHint, namedQuestion } from '#protocol/market-url'
import { answerText } from '#protocol/outcome-words'
import { fromHex } from '#protocol/witness'
import { isQuestionId } from '#protocol/words'
import type { Context } from '../terminal/context.js'
import type { Screen } from '../terminal/output.js'
import { amountWithRaw, counted, dateText, fold, foldAround, timeText } from '../terminal/render.js'
import { asksPerson, confirm } from './inputs.js'
import type { Session } from './session.js'
import type { GlobalFlags } from './settings.js'

export const asksGateway = ({ settings }: Session) =>
  settings.rpcUrl === undefined || (settings.gateway ?? settings.local) !== undefined

/**
 * From the chain where a node is configured, without budget; else, and for kind `direct`, from the
 * gateway. `pins`: those of one requester.
 */
export const contextSource = async ({ clock }: Context, session: Session, pins?: Trust) =>
  contextsFrom({
    trust: pins ?? (await session.trust()),
    clock,
    chain: await session.chain(),
    gateway: asksGateway(session) ? () => session.gateway('read') : undefined,
  })

/** Of an event's URL the event's slug. UsageError `invalid_identifier`. */
export function requireIdentifier(text: string) {
  const named = namedQuestion(text)
  if (named !== undefined) return named.identifier
  throw new UsageError(
    'invalid_identifier',
    `"${text}" is neither a question id, nor a slug, nor a URL of Polymarket`,
    identifierHint(text),
  )
}

/** As we know the token; else as the chain, or the file of the context, says. */
export const unitsOf = ({ bond, signing, token }: QuestionContext) =>
  knownToken(signing.chain_id, bond.token) ?? token

/** `YES_OR_NO_QUERY (0x5945535f…)`; whole where it is no name. */
function oracleIdText(raw: string) {
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

/** Clarifications for people: outside text, shown harmless and cut (R20). */

/** Characters of a clarification; and of a question, from its beginning and from its meaning. */
const shownRules = 10_000
const shownText = 400

/** `2 clarifications, the last 2026-11-20 17:01:30Z (0x…)`, or `none (0x…)`. */
export function rulesLine({ updates, hash }: Rules): string {
  const last = updates.at(-1)
  return last === undefined
    ? `no clarification (${hash})`
    : `${counted(updates.length, 'clarification')}, the last ${timeText(last.at)} (${hash})`
}

export const clarificationTexts = (updates: readonly RulesUpdate[]) =>
  updates.map(({ at, text }) => {
    const plain = plainText(text)
    const characters = plain.length > shownRules ? [...plain] : []
    const shown =
      characters.length <= shownRules
        ? plain
        : `${characters.slice(0, shownRules).join('')}… [${characters.length} characters in all; --json has them]`
    return `clarification of ${timeText(at)}: ${shown}`
  })

/** `--yes` does not acknowledge what nobody has read. `undefined`: nobody can be asked. */
export function askingForRules(
  context: Context,
  flags: Pick<GlobalFlags, 'quiet' | 'yes'>,
): AskRules | undefined {
  if (!asksPerson(context, flags)) return undefined
  const { output } = context
  return async (identifier, { newer, unknownHash }) => {
    // Whatever turns makes room for the question.
    output.progress('').stop()
    const head =
      unknownHash === undefined
        ? `The rules of ${identifier} have changed since they were acknowledged.`
        : `The acknowledged hash is not a state of the rules of ${identifier}: ${unknownHash}`
    for (const text of [head, ...clarificationTexts(newer)])
      output.note(fold(text, output.columns, '  '))
    try {
      await confirm(context, 'Sign with these rules?', false)
      return true
    } catch (error) {
      if (error instanceof UsageError && error.code === 'declined') return false
      throw error
    }
  }
}

export function requireRulesHash(text: string | undefined) {
  if (text === undefined) return undefined
  const hash = text.toLowerCase()
  if (isQuestionId(hash)) return hash
  throw new UsageError(
    'bad_rules_seen',
    '--rules-seen is not a hash of 32 bytes in hex',
    'give the hash that `proposer context <identifier>` prints under rules',
  )
}

/**
 * A question's text for people: outside text, so every line is escaped by whoever prints it (R20).
 */

export const questionText = (ancillaryData: string): string =>
  plainText(new TextDecoder().decode(fromHex(ancillaryData)))

/**
 * How the text begins and what its answers mean, which stands at its end (domain §5.3: the last
 * `res_data:` counts).
 * `whole` is the command that shows all of it.
 */
export const textInShort =
  (text: string, whole: string) =>
  ({ columns }: Screen) => {
    const meaningAt = text.lastIndexOf('res_data:')
    const cut = meaningAt < 0 ? text.length : meaningAt
    const parts = [text.slice(0, cut), text.slice(cut)].map((part) => [...part])
    const over = parts.reduce((sum, { length }) => sum + Math.max(0, length - shownText), 0)
    if (over === 0) return fold(text, columns)
    return [
      ...parts.map((part) => {
        const shown = part.slice(0, shownText).join('')
        return part.length > shownText ? `${shown}…` : shown
      }),
      `[${over} characters left out; the whole text: \`${whole}\`]`,
    ]
      .filter((line) => line !== '')
      .map((line) => foldAround(line.trim(), columns))
      .join('\n')
  }
