/** What a user requires of findings (contract §9, `--require-check`, `--require-known`). */
import { UsageError } from '../../protocol/errors.js'
import { counted } from '../../protocol/text.js'
import type { QuestionFinding } from './findings.js'

export interface Required {
  readonly check: boolean
  readonly known: boolean
}

export function checkRefusal(
  identifier: string,
  findings: readonly QuestionFinding[],
  { check, known }: Required,
): UsageError | undefined {
  const against = findings.filter(
    ({ result }) => (check && result === 'warn') || (known && result === 'unknown'),
  )
  const [first] = against
  if (first === undefined) return undefined
  const more = against.length === 1 ? '' : `, and ${counted(against.length - 1, 'finding')} more`
  const flag = first.result === 'warn' ? '--require-check' : '--require-known'
  return new UsageError(
    'check_failed',
    `${first.id} of ${identifier} is ${first.result}: ${first.detail}${more}; nothing was signed for it`,
    { hint: `\`proposer check ${identifier}\` shows all findings; ${flag} asks for this` },
  )
}
