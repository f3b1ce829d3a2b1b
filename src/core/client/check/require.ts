/** What a user requires of findings (contract §9, `--require-check`, `--require-known`). */
import { UsageError } from '../../protocol/errors.js'
import { counted } from '../../protocol/text.js'
import type { QuestionFinding } from './findings.js'

/** What is required of findings before an answer is signed. */
export interface Required {
  /** No finding warns. */
  readonly check: boolean
  /** No finding is unknown. */
  readonly known: boolean
}

/** Exit 2 `check_failed` where the findings are not what is required. */
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
