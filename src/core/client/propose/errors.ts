/** What single signing and sending say of a failure, as a batch says it of one row. */
import {
  ConflictError,
  type ProposerError,
  RejectedError,
  UnauthorizedError,
  UnavailableError,
} from '../../protocol/errors.js'
import { outcomeOf } from '../../protocol/proposal.js'
import type { BatchRow } from '../input/input.js'

/**
 * One item that is refused here leaves the others alone: exit 3, as one that the gateway refuses
 * (contract §6). What a hint offers is something that the user of a batch has.
 */
export function asItemError(row: BatchRow, error: ProposerError): ProposerError {
  const { httpStatus, hint: said, ...meta } = error.meta
  const hint = said === undefined ? {} : { hint: inBatch(row, said) }
  if (error instanceof ConflictError)
    return new ConflictError(error.code, error.detail, {
      ...meta,
      ...hint,
      ...(httpStatus === undefined ? {} : { httpStatus }),
    })
  if (error instanceof UnavailableError || error instanceof UnauthorizedError) return error
  return new RejectedError(error.code, error.detail, {
    ...hint,
    ...(httpStatus === undefined ? {} : { httpStatus }),
  })
}

/**
 * Flags that only the verbs for one question have: a batch names the command, or its row's field.
 */
function inBatch(row: BatchRow, hint: string): string {
  const outcome =
    row.kind === 'intent' ? row.outcome : (outcomeOf(row.item.proposed_price) ?? '<p1|p2|p3>')
  return (
    hint
      .split('`')
      // Every second part is a command, whole as it stands.
      .map((part, index) =>
        index % 2 === 1
          ? part
          : part
              .replace(
                /--supersede ([0-9a-f]{12}-\d+)/,
                `\`proposer submit ${row.identifier} --outcome ${outcome} --supersede $1\``,
              )
              .replace(/--(nonce|deadline|amount)\b/g, '$1'),
      )
      .join('`')
  )
}
