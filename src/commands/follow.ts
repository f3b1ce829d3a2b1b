/** Polling with something to look at: a table on a terminal, a line a change with --ndjson. */
import { type PollOptions, type PollResult, pollCandidates } from '../core/client/follow/follow.js'
import type { PollParts } from '../core/client/follow/look.js'
import {
  changedAt,
  type PolledStatus,
  type PollTarget,
  type Stage,
  timeOf,
} from '../core/client/follow/status.js'
import { instant } from '../core/protocol/candidate.js'
import type { Context } from './terminal/context.js'
import type { Live } from './terminal/live.js'
import { countsText, liveLines } from './terminal/poll-table.js'
import { ageText, counted, visible } from './terminal/render.js'

export interface FollowOptions {
  readonly timeoutMs?: number | undefined
  readonly until?: Stage | undefined
  /** Every status whole. */
  readonly full?: boolean
  /** Answer and question of a candidate, for the table. */
  readonly aboutOf?: ((candidateId: string) => string) | undefined
  /** Where the table is drawn; else progress goes to stderr. */
  readonly live?: Live | undefined
}

/**
 * Polls and shows how it goes; with --ndjson each change is a line on stdout. Trouble with the
 * gateway is reported once until it is over.
 */
export async function follow(
  context: Context,
  parts: PollParts,
  targets: readonly PollTarget[],
  { timeoutMs, until, full, aboutOf, live }: FollowOptions,
): Promise<PollResult> {
  const { clock } = context
  const output = live?.output ?? context.output
  const latest = new Map<string, PolledStatus>()
  let note = ''
  let isBudgetTold = false
  const progress = output.progress(countsText(targets, latest))
  const show = () => {
    progress.update(countsText(targets, latest))
    if (!live) return
    const about = (id: string, status: PolledStatus | undefined) => {
      const seconds =
        status === undefined
          ? Number.NaN
          : (clock.nowMs() - Date.parse(timeOf(status, 'received') ?? '')) / 1_000
      return [
        ...(seconds >= 0 ? [ageText(seconds)] : []),
        aboutOf?.(id) ?? status?.question_id ?? '',
      ].join('  ')
    }
    live.draw(
      liveLines(targets, latest, { ...live.size(), paint: output.paint, note, aboutOf: about }),
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
      note = `${counted(items, 'candidate')} looked at just now`
      show()
    },
    onWait: ({ kind, reason, waitMs }) => {
      const text = `${visible(reason)}; asking again in ${Math.ceil(waitMs / 1000)} s`
      note = text
      show()
      if (kind === 'trouble' || !isBudgetTold) output.note(text)
      isBudgetTold ||= kind === 'budget'
    },
  }
  try {
    show()
    return await pollCandidates(parts, targets, options)
  } finally {
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
