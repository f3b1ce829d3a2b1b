/** Clarifications before a signature (contract §9, Rules): nobody there to ask is a no. */
import { noRulesHash } from '#chain/constants'
import type { Rules, RulesOf, RulesUpdate } from '#chain/rules'
import type { Hex } from '#ports'
import { UsageError } from '#protocol/errors'
import { counted } from '#protocol/text'
import type { JournalView } from '../journal/journal.js'
import type { QuestionContext } from '../trust/trust.js'
import type { Intent } from './intent.js'
import type { RoundFacts } from './terms.js'

export interface ReadRules {
  readonly told: Rules
  readonly fileHash?: Hex | undefined
  readonly question: RulesOf
}

export const toldBy = ({ told, fileHash }: ReadRules) => ({
  rules: told,
  ...(fileHash && { rules_told: fileHash }),
})

/** The clarifications of a question beside what was acknowledged of them. */
export interface RulesStanding {
  readonly rules: Rules
  /** `newer` are not acknowledged yet: nothing is signed without asking. */
  readonly isChanged: boolean
  readonly newer: readonly RulesUpdate[]
  readonly unknownHash?: Hex | undefined
  /** This home has acknowledged none: what it signs, it acknowledges. */
  readonly isFirst: boolean
}

export type AskRules = (identifier: string, standing: RulesStanding) => Promise<boolean>

/**
 * What the intent names counts; else the newest state that this home has acknowledged; else what
 * the context had.
 */
export function rulesStanding(
  rules: Rules,
  { rulesSeen }: Pick<Intent, 'rulesSeen'>,
  acknowledged: readonly Hex[],
  context: Pick<QuestionContext, 'rules' | 'rules_told'>,
): RulesStanding {
  const isFirst = rulesSeen === undefined && acknowledged.length === 0
  const told = context.rules_told ?? context.rules?.hash
  const seen = rulesSeen !== undefined ? [rulesSeen] : isFirst ? [told ?? []].flat() : acknowledged
  const states = [noRulesHash, ...rules.updates.map(({ hash }) => hash)]
  const known = states.findLastIndex((state) => seen.includes(state))
  const isChanged = seen.length > 0 && known !== rules.updates.length
  return {
    rules,
    isFirst,
    isChanged,
    newer: isChanged ? rules.updates.slice(Math.max(0, known)) : [],
    unknownHash: isChanged && known < 0 ? seen.at(-1) : undefined,
  }
}

export const acknowledgedOf = (
  view: JournalView,
  context: Pick<RoundFacts, 'question_id' | 'request' | 'signing'>,
): readonly Hex[] =>
  view.acknowledgedRules({
    chainId: context.signing.chain_id,
    requester: context.request.requester,
    questionId: context.question_id,
  })

const shownLength = 200

/** Exit 2: a clarification is newer than what was acknowledged. Nothing was signed. */
export class RulesChangedError extends UsageError {
  constructor(
    identifier: string,
    readonly rules: Rules,
    readonly newer: readonly RulesUpdate[],
    unknownHash: Hex | undefined,
  ) {
    super('rules_changed', changeText(identifier, newer, unknownHash), {
      hint: `read them with \`proposer context ${identifier}\`; then sign with --rules-seen ${rules.hash}, or with that hash as rules_seen of the row`,
      lines: newer.map(({ at, text }) => `${at}: ${cut(text)}`),
    })
  }
}

function changeText(identifier: string, newer: readonly RulesUpdate[], unknownHash?: Hex) {
  const unknown =
    unknownHash === undefined
      ? ''
      : `; the acknowledged hash ${unknownHash} is of no version of these rules`
  const last = newer.at(-1)
  const what =
    last === undefined
      ? `the rules of ${identifier} are not those that were acknowledged`
      : `the rules of ${identifier} have ${counted(newer.length, 'clarification')} not acknowledged here, the last of ${last.at}`
  return `${what}${unknown}; nothing was signed for it`
}

function cut(text: string) {
  const characters = [...text.slice(0, 2 * shownLength)]
  return text.length <= shownLength
    ? text
    : `${characters.slice(0, shownLength).join('')}… (${text.length} characters)`
}

export async function rulesChange(
  identifier: string,
  standing: RulesStanding | undefined,
  ask: AskRules | undefined,
) {
  if (standing?.isChanged !== true || (await ask?.(identifier, standing)) === true) return undefined
  const { rules, newer, unknownHash } = standing
  return new RulesChangedError(identifier, rules, newer, unknownHash)
}

export async function requireRules(...given: Parameters<typeof rulesChange>) {
  const error = await rulesChange(...given)
  if (error !== undefined) throw error
}

/** Signing for the first time acknowledges. */
export function firstRulesNotes(
  identifier: string,
  standing: RulesStanding | undefined,
): readonly string[] {
  if (standing === undefined || !standing.isFirst || standing.rules.updates.length === 0) return []
  const { hash, updates } = standing.rules
  return [
    `${counted(updates.length, 'clarification')} of ${identifier} taken as read, for this home had acknowledged none (rules ${hash}): \`proposer context ${identifier}\``,
  ]
}
