import {
  endOf,
  type PolledStatus,
  type PollTarget,
  remedyOf,
  stageTimeOf,
} from '#client/follow/look'
import type { ProposerError } from '#protocol/errors'
import { answerText } from '#protocol/outcome-words'
import { apart, table, together } from './output.js'
import { type Column, counted, cut, fold, type Screen, timeText, visible } from './render.js'

const shownFailures = 10

/** Once following is over; before, whoever has no status waits. */
export type Refusals = ReadonlyMap<string, ProposerError>

function withoutStatus(candidateId: string, refusals: Refusals | undefined) {
  if (refusals === undefined) return 'waiting'
  const refusal = refusals.get(candidateId)
  if (refusal === undefined) return 'not known'
  return refusal.meta.httpStatus === 404 ? 'unknown' : 'refused'
}

const endIn = (status: PolledStatus | undefined) => status && endOf(status)

const saidOf = (status: PolledStatus | undefined) =>
  status?.failure?.code ?? status?.submission?.status ?? ''

/** In at most `rows` lines, those on their way first where not all have room. */
export function liveLines(
  targets: readonly PollTarget[],
  latest: ReadonlyMap<string, PolledStatus>,
  screen: Screen & { readonly rows: number },
  note: string,
  ownOf?: OwnOf,
) {
  const { columns, rows } = screen
  const counts = countsText(targets, latest)
  const summary = cut(visible(note === '' ? counts : `${counts}; ${note}`), columns)
  const isDone = ({ candidateId }: PollTarget) => endIn(latest.get(candidateId)) !== undefined
  const byNeed = [...targets.filter((one) => !isDone(one)), ...targets.filter(isDone)]
  for (let count = Math.min(targets.length, rows); ; count--) {
    const shown = new Set(byNeed.slice(0, count))
    const some = targets.filter((one) => shown.has(one))
    const lines = [
      ...(count === 0 ? [] : table(columnsOf(latest, ownOf), some)(screen).split('\n')),
      ...(count < targets.length ? [`… and ${targets.length - count} more`] : []),
      summary,
    ]
    if (lines.length <= rows || count === 0) return lines
  }
}

const stageOf = (status: PolledStatus | undefined) =>
  [status?.status ?? 'sent', saidOf(status)].join(', ').replace(/, (indexed)?$/, '')

export const standingText = (
  targets: readonly PollTarget[],
  latest: ReadonlyMap<string, PolledStatus>,
  refusals?: Refusals,
) =>
  targets.length === 1 ? stageOf([...latest.values()][0]) : countsText(targets, latest, refusals)

export function countsText(
  targets: readonly PollTarget[],
  latest: ReadonlyMap<string, PolledStatus>,
  refusals?: Refusals,
) {
  const counts = { executed: 0, failed: 0, unknown: 0, refused: 0, 'not known': 0, waiting: 0 }
  for (const { candidateId } of targets) {
    const status = latest.get(candidateId)
    const state = status === undefined ? withoutStatus(candidateId, refusals) : endOf(status)
    counts[state ?? 'waiting']++
  }
  const { waiting, ...done } = counts
  const parts = Object.entries({ ...done, 'on their way': waiting })
    .filter(([, count]) => count > 0)
    .map(([state, count]) => `${count} ${state}`)
  return `${counted(targets.length, 'candidate')}: ${parts.join(', ')}`
}

function columnsOf(
  latest: ReadonlyMap<string, PolledStatus>,
  ownOf: OwnOf = () => undefined,
  refusals?: Refusals,
): readonly Column<PollTarget>[] {
  const statusOf = ({ candidateId }: PollTarget) => latest.get(candidateId)
  return [
    { head: 'candidate', cell: ({ candidateId }) => candidateId },
    {
      head: 'question',
      least: 12,
      cell: (one) => {
        const { title, identifier } = ownOf(one.candidateId) ?? {}
        return title ?? identifier ?? statusOf(one)?.question_id
      },
    },
    { head: 'answer', least: 8, cell: (one) => ownOf(one.candidateId)?.answer },
    {
      head: 'state',
      cell: (one) => statusOf(one)?.status ?? withoutStatus(one.candidateId, refusals),
      colour: (one) => colourOf(statusOf(one)),
    },
    { head: 'then', least: 9, rank: 1, cell: (one) => saidOf(statusOf(one)) },
  ]
}

export function finalText(
  targets: readonly PollTarget[],
  statuses: readonly PolledStatus[],
  ownOf: OwnOf = () => undefined,
  refusals: Refusals = new Map(),
) {
  const [first] = statuses
  if (targets.length === 1 && first !== undefined)
    return candidateText(first, ownOf(first.candidate_id))
  const latest = new Map(statuses.map((status) => [status.candidate_id, status]))
  const failed = statuses.filter((status) => endOf(status) === 'failed')
  const left = failed.length - shownFailures
  return apart([
    together([
      table(columnsOf(latest, ownOf, refusals), targets),
      countsText(targets, latest, refusals),
    ]),
    ...failed.slice(0, shownFailures).map((status) => {
      const id = status.candidate_id
      return together([() => visible(id), failureText(status, ownOf(id)?.journalId)])
    }),
    left > 0 && `and ${left} more failed; --json lists all`,
  ])
}

export const colours = {
  received: 'white',
  validated: 'cyan',
  selected: 'cyan',
  executed: 'green',
  failed: 'red',
} as const

/** By its end, else its stage; a word of another gateway has no colour of its own. */
const colourOf = (status: PolledStatus | undefined) =>
  new Map(Object.entries(colours)).get(endIn(status) ?? status?.status ?? '') ?? 'white'

interface Own {
  readonly journalId: string
  readonly label: string | null
  /** As it was signed: a slug says more than an id. */
  readonly identifier: string
  readonly title?: string | undefined
  readonly answer?: string | undefined
}

export type OwnOf = (candidateId: string) => Own | undefined

export function candidateText(status: PolledStatus, own?: Own) {
  const { submission, outcome, price, question_id: questionId } = status
  const slug = own?.identifier === questionId ? undefined : own?.identifier
  const sent = submission && [submission.status, submission.transaction_hash ?? ''].join(' ').trim()
  const at = (stage: Parameters<typeof stageTimeOf>[1]) =>
    timeText(stageTimeOf(status, stage) ?? '') || undefined
  return together([
    ({ paint, columns }) =>
      headText(
        visible(status.candidate_id),
        paint[colourOf(status)](visible(status.status)),
        columns,
      ),
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
    failureText(status, own?.journalId),
  ])
}

/** Two lines where one has no room for both. `stage` may be painted. */
export const headText = (id: string, stage: string, columns: number) =>
  `${id}${id.length + 2 + 'validated'.length <= columns ? '' : '\n'}  ${stage}`

export function failureText(status: PolledStatus, journalId?: string) {
  const { failure } = status
  if (failure === null) return undefined
  const { stage, code, detail, retryable, next_action: next } = failure
  const fate = retryable
    ? 'the same payload may still execute'
    : 'this payload can no longer execute'
  const step = next == null ? '' : remedyOf(next, status, journalId)
  const where = stage == null ? '' : ` in ${stage}`
  const what = `${endOf(status) === 'failed' ? 'failed' : 'failure'}${where}: ${code}: ${detail}`
  const more = [
    retryable === undefined ? [] : fate,
    step === '' ? [] : `next: ${step.replaceAll('`', '')} (${next})`,
  ].flat()
  return together([
    ({ paint, columns }) => paint.red(fold(what, columns, '  ')),
    more.length > 0 && more.join('; '),
  ])
}
