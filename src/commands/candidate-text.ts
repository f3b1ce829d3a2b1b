/** A candidate's status for people (spec §2.6). */
import type { CandidateStatus } from '../core/protocol/schema.js'
import type { Output } from './output.js'
import { fields, fold, visible } from './render.js'

const colours = { received: 'white', validated: 'cyan', selected: 'cyan', executed: 'green', failed: 'red' } as const

/** One block: what was proposed, how far it came, and where it failed what to do next. */
export function candidateText(status: CandidateStatus, output: Pick<Output, 'columns' | 'paint'>): string {
  const { submission, failure } = status
  const sent = submission && `${submission.status}${submission.transaction_hash === null ? '' : ` ${submission.transaction_hash}`}`
  const rows = fields(
    [
      ['question', status.question_id],
      ['proposer', status.proposer],
      ['answer', `${status.outcome} (price ${status.price})`],
      ['received', status.received_at],
      ['validated', status.validated_at],
      ['selected', status.selected_at],
      ['submission', sent],
      ['submitted', submission?.submitted_at],
      ['confirmed', submission?.confirmed_at],
      ['indexed', submission?.indexed_at],
      ['event index', submission?.proposal_event_index?.toString()],
    ],
    output.columns,
  )
  const lines = [`${visible(status.candidate_id)}  ${output.paint[colours[status.status]](status.status)}`, rows]
  if (failure) {
    lines.push(
      output.paint.red(fold(`failed in ${failure.stage}: ${failure.code}: ${failure.detail}`, output.columns, '  ')),
      fold(
        `${failure.retryable ? 'the same payload may still execute' : 'this payload cannot execute any more'}; next: ${failure.next_action}`,
        output.columns,
        '  ',
      ),
    )
  }
  return lines.join('\n')
}

/** One line of the live table. */
export function stateLine(candidateId: string, status: CandidateStatus | undefined): string {
  const state = status === undefined ? 'asking' : status.submission ? `${status.status}, ${status.submission.status}` : status.status
  return `${candidateId}  ${state}`
}
