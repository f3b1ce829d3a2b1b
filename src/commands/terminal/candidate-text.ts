import { remedyOf } from '#client/follow/look'
import { endOf, type PolledStatus, stageTimeOf } from '#client/follow/status'
import { answerText } from '#protocol/outcome-words'
import type { Output } from './output.js'
import { fields, fold, timeText, visible } from './render.js'

export const colours = {
  received: 'white',
  validated: 'cyan',
  selected: 'cyan',
  executed: 'green',
  failed: 'red',
} as const

/** By how it ended, else by its stage; a word of another gateway has no colour of its own. */
export const colourOf = (status: PolledStatus): (typeof colours)[keyof typeof colours] =>
  new Map(Object.entries(colours)).get(endOf(status) ?? status.status) ?? 'white'

type Screen = Pick<Output, 'columns' | 'paint'>

export interface Own {
  readonly journalId: string
  readonly label: string | null
  /** As it was signed: a slug says more than an id. */
  readonly identifier: string
  readonly title?: string | undefined
  readonly answer?: string | undefined
}

/** What the batch route does not tell is left out. */
export function candidateText(status: PolledStatus, output: Screen, own?: Own): string {
  const { submission, outcome, price, question_id: questionId } = status
  const slug = own?.identifier === questionId ? undefined : own?.identifier
  const sent = submission && [submission.status, submission.transaction_hash ?? ''].join(' ').trim()
  const at = (stage: Parameters<typeof stageTimeOf>[1]) =>
    timeText(stageTimeOf(status, stage) ?? '') || undefined
  const rows = fields(
    [
      ['question', own?.title ?? slug ?? questionId],
      ['answer', outcome ? answerText(outcome, own?.label) : price && `price ${price}`],
      ['received', at('received')],
      ['validated', at('validated')],
      ['selected', at('selected')],
      ['submission', sent],
      ['submitted', at('submitted')],
      ['confirmed', at('confirmed')],
      ['indexed', at('indexed')],
      ['event index', submission?.proposal_event_index?.toString()],
      ['slug', own?.title && slug],
      ['proposer', status.proposer],
      ['id', (own?.title ?? slug) && questionId],
    ],
    output.columns,
  )
  const stage = output.paint[colourOf(status)](visible(status.status))
  const head = headText(visible(status.candidate_id), stage, output.columns)
  return [head, rows, ...failureLines(status, output, own?.journalId)].join('\n')
}

/** Two lines where one has no room for both. `stage` may be painted. */
export const headText = (id: string, stage: string, columns: number): string =>
  `${id}${id.length + 2 + 'validated'.length <= columns ? '' : '\n'}  ${stage}`

export function failureLines(
  status: PolledStatus,
  output: Screen,
  journalId?: string,
): readonly string[] {
  const { failure, question_id: questionId, proposer } = status
  if (failure === null) return []
  const { stage, code, detail, retryable, next_action: next } = failure
  const fate =
    retryable === undefined
      ? undefined
      : retryable
        ? 'the same payload may still execute'
        : 'this payload can no longer execute'
  const step = next == null ? '' : remedyOf(next, { journalId, questionId, proposer })
  const then = step === '' ? undefined : `next: ${step.replaceAll('`', '')} (${next})`
  const where = stage == null ? '' : ` in ${stage}`
  const what = `${endOf(status) === 'failed' ? 'failed' : 'failure'}${where}: ${code}: ${detail}`
  const more = [fate ?? [], then ?? []].flat().join('; ')
  return [
    output.paint.red(fold(what, output.columns, '  ')),
    ...(more === '' ? [] : [fold(more, output.columns, '  ')]),
  ]
}
