/** Polling with something to look at: a table on a terminal, a line a change with --ndjson. */
import { type PollOptions, type PollResult, pollCandidates } from '../core/client/follow/follow.js'
import type { PollParts } from '../core/client/follow/look.js'
import {
  changedAt,
  type PolledStatus,
  type PollTarget,
  type Stage,
  stageTimeOf,
} from '../core/client/follow/status.js'
import { instant } from '../core/protocol/candidate.js'
import type { Context } from './terminal/context.js'
import type { Live } from './terminal/live.js'
import { waitText } from './terminal/output.js'
import { countsText, isNews, liveLines, reasonText, retriedText } from './terminal/poll-table.js'
import { ageText, counted } from './terminal/render.js'

export interface FollowOptions {
  readonly timeoutMs?: number | undefined
  readonly until?: Stage | undefined
  readonly full?: boolean
  readonly aboutOf?: ((candidateId: string) => string) | undefined
  readonly live?: Live | undefined
}

/** With --ndjson each change is a line on stdout. */
export async function follow(
  context: Context,
  parts: PollParts,
  targets: readonly PollTarget[],
  { timeoutMs, until, full, aboutOf, live }: FollowOptions,
): Promise<PollResult> {
  const { clock } = context
  const output = live?.output ?? context.output
  const latest = new Map<string, PolledStatus>()
  let note = () => ''
  let unreachable = ''
  let isBudgetTold = false
  const progress = output.progress(countsText(targets, latest))
  const show = () => {
    progress.update(countsText(targets, latest) + unreachable)
    if (!live) return
    const about = (id: string, status: PolledStatus | undefined) => {
      const seconds =
        status === undefined
          ? Number.NaN
          : (clock.nowMs() - Date.parse(stageTimeOf(status, 'received') ?? '')) / 1_000
      return [
        ...(seconds >= 0 ? [ageText(seconds)] : []),
        aboutOf?.(id) ?? status?.question_id ?? '',
      ].join('  ')
    }
    live.draw(
      liveLines(targets, latest, {
        ...live.size(),
        paint: output.paint,
        note: note(),
        aboutOf: about,
      }),
    )
  }
  const options: PollOptions = {
    until,
    timeoutMs,
    full,
    signal: context.signal,
    onStatus: (status) => {
      latest.set(status.candidate_id, status)
      if (output.mode === 'ndjson') output.line(changeOf(status, clock.nowMs()))
    },
    onLook: ({ items }) => {
      unreachable = ''
      note = () => `${counted(items, 'candidate')} checked just now`
      show()
    },
    onWait: (event) => {
      const { kind, waitMs } = event
      const wait = { nowMs: clock.nowMs(), waitMs }
      const what = `${reasonText(event)}; next request`
      unreachable = retriedText(event)
      const begunMs = clock.monotonicMs()
      note = () => waitText(what, wait, clock.monotonicMs() - begunMs)
      show()
      if (isNews(event, isBudgetTold) || output.notesAreTerminal) output.countdown(what, wait)
      isBudgetTold ||= kind === 'budget'
    },
  }
  const redraws = live && setInterval(show, 1_000).unref()
  try {
    show()
    return await pollCandidates(parts, targets, options)
  } finally {
    clearInterval(redraws)
    progress.stop()
    live?.clear()
  }
}

/** A change as a line: when it came to be by the gateway's times, else when it was seen. */
const changeOf = (status: PolledStatus, nowMs: number) => ({
  candidate_id: status.candidate_id,
  question_id: status.question_id ?? null,
  status: status.status,
  submission_status: status.submission?.status ?? null,
  at: changedAt(status) ?? instant(nowMs),
})
