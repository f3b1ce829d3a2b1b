/** What a first signature acknowledges, told to programs (contract §9, Rules). */
import { firstRulesNotes, type RulesStanding } from '../../core/client/propose/rules.js'
import type { Context } from '../terminal/context.js'
import { visible } from '../terminal/render.js'

export function warnOfFirstRules(
  { output }: Context,
  identifier: string,
  standing: RulesStanding | undefined,
): void {
  if (output.mode === 'human') return
  for (const detail of firstRulesNotes(identifier, standing))
    output.warning('rules_taken_as_read', visible(detail))
}
