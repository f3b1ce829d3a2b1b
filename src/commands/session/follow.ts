import { type PollOptions, pollCandidates } from '#client/follow/follow'
import { changedAt, type PolledStatus, type PollParts, type PollTarget } from '#client/follow/look'
import type { OnRetry } from '#client/propose/send'
import { instant } from '#protocol/candidate'
import type { Context } from '../terminal/context.js'
import { type Live, type Shown, waitText } from '../terminal/output.js'
import { liveLines, type OwnOf, type Refusals, standingText } from '../terminal/poll-table.js'
import { counted, visible } from '../terminal/render.js'

interface FollowOptions
  extends Pick<PollOptions, 'timeoutMs' | 'until' | 'full' | 'brief' | 'once'> {
  readonly ownOf?: OwnOf | undefined
  readonly live?: Live | undefined
  /** Of a part of something longer: only their number is told. */
  readonly verb?: string
}

export async function follow(
  context: Context,
  parts: PollParts,
  targets: readonly PollTarget[],
  { ownOf, live, verb, ...options }: FollowOptions,
) {
  const { clock } = context
  const output = live?.output ?? context.output
  const latest = new Map<string, PolledStatus>()
  let note = () => ''
  const startedMs = clock.monotonicMs()
  let [isWell, refusals]: [boolean, Refusals] = [false, new Map()]
  const text = (count = { done: 0, total: targets.length }): Shown =>
    verb === undefined
      ? `waiting for ${options.until ?? 'execution'}: ${standingText(targets, latest)}`
      : { verb, ...count }
  const progress = output.progress(text())
  const draw = () => {
    const screen = live && { ...live.size(), paint: output.paint, isTerminal: true }
    if (screen) live.draw(liveLines(targets, latest, screen, note(), ownOf))
  }
  const redraws = live && setInterval(draw, 1_000).unref()
  try {
    draw()
    const polled = await pollCandidates(parts, targets, {
      ...options,
      signal: context.signal,
      onStatus: (status) => {
        latest.set(status.candidate_id, status)
        if (verb === undefined && !options.once) output.item(changeOf(status, clock.nowMs()))
      },
      onLook: ({ items, ...count }) => {
        progress.update(text(count))
        note = () => `${counted(items, 'candidate')} checked just now`
        draw()
      },
      onWait: ({ reason, sinceMs, waitMs }) => {
        const since = sinceMs === undefined ? '' : `, since ${instant(sinceMs).slice(11, 19)}Z`
        const what = `${reason}${since}; next request`
        const wait = { nowMs: clock.nowMs(), waitMs }
        const begunMs = clock.monotonicMs()
        // A log is told of each trouble once.
        if (sinceMs === undefined || output.notesAreTerminal) output.countdown(what, wait)
        note = () => waitText(what, wait, clock.monotonicMs() - begunMs)
        draw()
      },
    })
    isWell = polled.error === undefined
    refusals = polled.refusals
    return polled
  } finally {
    clearInterval(redraws)
    progress.stop()
    live?.clear()
    const end = `${standingText(targets, latest, refusals)} after`
    if (!live && verb === undefined) output.mark(isWell, end, clock.monotonicMs() - startedMs)
  }
}

const changeOf = (status: PolledStatus, nowMs: number) => ({
  candidate_id: status.candidate_id,
  question_id: status.question_id ?? null,
  status: status.status,
  submission_status: status.submission?.status ?? null,
  at: changedAt(status) ?? instant(nowMs),
})

export const retryNote =
  ({ output }: Context): OnRetry =>
  ({ attempt, reason, waitMs }) =>
    output.note(
      `attempt ${attempt}: ${visible(reason)}; resending the same bytes in ${Math.ceil(waitMs / 1000)} s`,
    )
