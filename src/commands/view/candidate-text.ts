/** A candidate's status for people (spec §2.6). */

import { nextStep } from '../../core/client/polling/errors.js'
import type { PolledStatus } from '../../core/client/polling/polling.js'
import type { Output } from '../output.js'
import { fields, fold, timeText, visible } from './render.js'

export const colours = { received: 'white', validated: 'cyan', selected: 'cyan', executed: 'green', failed: 'red' } as const

type Screen = Pick<Output, 'columns' | 'paint'>

/** One block: what was proposed, how far it came, and where it failed what to do next. What the batch route does not tell is left out. */
export function candidateText(status: PolledStatus, output: Screen, journalId?: string): string {
  const { submission, outcome, price } = status
  const sent = submission && `${submission.status}${submission.transaction_hash === null ? '' : ` ${submission.transaction_hash}`}`
  const rows = fields(
    [
      ['question', status.question_id],
      ['proposer', status.proposer],
      ['answer', outcome && `${outcome} (price ${price})`],
      ['received', at(status.received_at)],
      ['validated', at(status.validated_at)],
      ['selected', at(status.selected_at)],
      ['submission', sent],
      ['submitted', at(submission?.submitted_at)],
      ['confirmed', at(submission?.confirmed_at)],
      ['indexed', at(submission?.indexed_at)],
      ['event index', submission?.proposal_event_index?.toString()],
    ],
    output.columns,
  )
  const head = `${visible(status.candidate_id)}  ${output.paint[colours[status.status]](status.status)}`
  return [head, rows, ...failureLines(status, output, journalId)].join('\n')
}

const at = (time: string | null | undefined) => time && timeText(time)

/** Why it failed and what to do next; nothing where it did not. */
export function failureLines(status: PolledStatus, output: Screen, journalId?: string): readonly string[] {
  const { failure, question_id: questionId, proposer } = status
  if (failure === null) return []
  const { stage, code, detail, retryable, next_action: next } = failure
  const fate = retryable === undefined ? [] : [retryable ? 'the same payload may still execute' : 'this payload cannot execute any more']
  const then = next === undefined ? [] : [`next: ${nextStep(next, { journalId, questionId, proposer }).replaceAll('`', '')} (${next})`]
  const told = [...fate, ...then].join('; ')
  return [
    output.paint.red(fold(`failed${stage === undefined ? '' : ` in ${stage}`}: ${code}: ${detail}`, output.columns, '  ')),
    ...(told === '' ? [] : [fold(told, output.columns, '  ')]),
  ]
}
