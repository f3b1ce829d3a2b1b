/** What the verbs of `devchain` that act on a running chain have in common. */
import { builtInProfile } from '../../core/chain/profiles.js'
import type { DevRound } from '../../core/devchain/dev-verbs.js'
import { parseAmount, toRaw } from '../../core/protocol/amount.js'
import { UsageError } from '../../core/protocol/errors.js'
import { identifierHint } from '../../core/protocol/market-url.js'
import { isIdentifier } from '../../core/protocol/words.js'
import type { Context } from '../terminal/context.js'
import { dateText } from '../terminal/render.js'

/** States by the oracle's numbers. */
const states = ['invalid', 'requested', 'proposed', 'expired', 'disputed', 'resolved', 'settled']

/** The state of a round in words. */
export const roundStateText = ({ state }: Pick<DevRound, 'state'>): string =>
  states[state] ?? String(state)

/** Prints a round as the verbs left it. */
export function printRound(context: Context, round: DevRound): void {
  const shown = { ...round, state: roundStateText(round) }
  context.output.result(
    'devchain',
    shown,
    ({ question_id, timestamp, state }) => `${question_id}  round ${dateText(timestamp)}  ${state}`,
  )
}

/** Takes text of that form alone. Throws this error. */
export const formParser =
  <T extends string>(form: RegExp, error: UsageError) =>
  (text: string): T => {
    if (form.test(text)) return text as T
    throw error
  }

/** Of the dev chain's token. */
export const tokenUnits = builtInProfile('dev')?.tokenUnits

/** In the dev chain's own token; a bare number is raw units but in a flag. Throws UsageError. */
export function requireAmount(name: string, text: string): bigint {
  const isOperand = !name.startsWith('--')
  try {
    return toRaw(parseAmount(text, name, isOperand), tokenUnits === undefined ? [] : [tokenUnits])
      .raw
  } catch (error) {
    if (!isOperand || !(error instanceof UsageError) || error.code !== 'bad_number') throw error
    // An operand has a code of its own, from before there were units.
    throw new UsageError('bad_amount', error.message, { hint: error.meta.hint ?? 'give raw units' })
  }
}

/** A slug or a question id. Throws UsageError `bad_identifier`. */
export function requireDevIdentifier(text: string): string {
  if (isIdentifier(text)) return text
  throw new UsageError('bad_identifier', 'the identifier is neither a question id nor a slug', {
    hint: identifierHint(text),
  })
}

type Verbs = typeof import('../../core/devchain/dev-verbs.js') &
  typeof import('../../core/devchain/dev-life.js')

/** Flags of all verbs. */
export interface VerbFlags {
  readonly text?: string
  readonly bond?: string
  readonly outcome: string
  readonly as?: string
  readonly rules?: boolean
}

/** A verb that acts on a running chain. */
export interface Verb {
  readonly name: string
  readonly description: string
  /** Of its operands: name, description, default. */
  readonly arguments: readonly (readonly [string, string?, string?])[]
  readonly options?: readonly (readonly [flags: string, description: string])[]
  readonly required?: readonly [flags: string, description: string]
  /** What stands behind the verb in its example. */
  readonly example: string
  /** What --dry-run names behind the operands. */
  readonly more?: (flags: VerbFlags) => readonly string[]
  /** Judges operands and flags before anything is asked; gives what is done with the chain. */
  run(
    operands: readonly string[],
    flags: VerbFlags,
    context: Context,
  ): (verbs: Verbs, rpcUrl: string) => Promise<void>
}

/** The operand that names a question. */
export const identifier = ['<identifier>', 'question id or slug'] as const
