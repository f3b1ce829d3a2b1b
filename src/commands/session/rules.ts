/** Clarifications for people: outside text, shown harmless and cut (R20). */
import { plainText } from '#chain/ancillary'
import type { Rules, RulesUpdate } from '#chain/rules'
import type { AskRules } from '#client/propose/rules'
import { UsageError } from '#protocol/errors'
import { isQuestionId } from '#protocol/words'
import type { Context } from '../terminal/context.js'
import { counted, fold, timeText } from '../terminal/render.js'
import { asksPerson, confirm } from './inputs.js'
import type { GlobalFlags } from './settings.js'

const shownLength = 10_000

/** `2 clarifications, the last 2026-11-20 17:01:30Z (0x…)`, or `none (0x…)`. */
export function rulesLine({ updates, hash }: Rules): string {
  const last = updates.at(-1)
  return last === undefined
    ? `no clarification (${hash})`
    : `${counted(updates.length, 'clarification')}, the last ${timeText(last.at)} (${hash})`
}

export const clarificationTexts = (updates: readonly RulesUpdate[]): string[] =>
  updates.map(({ at, text }) => {
    const plain = plainText(text)
    const characters = plain.length > shownLength ? [...plain] : []
    const shown =
      characters.length <= shownLength
        ? plain
        : `${characters.slice(0, shownLength).join('')}… [${characters.length} characters in all; --json has them]`
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
