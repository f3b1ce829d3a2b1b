import { type PollOptions, pollCandidates } from '#client/follow/follow'
import { changedAt, type PolledStatus, type PollParts, type PollTarget } from '#client/follow/look'
import type { OutOfBand } from '#client/journal/authorizations'
import type { OnRetry, SettledEarlier } from '#client/propose/send'
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

/** Neither --quiet nor --json silences an outcome that only the operator can tell (§7 rule 3). */
export function collector({ output }: Context, { quiet = false }: { readonly quiet?: boolean }) {
  const settled: SettledEarlier[] = []
  const onSettled = (one: SettledEarlier) => {
    settled.push(one)
    if (one.outcome !== 'unknown') return
    if (!output.isForPeople) output.warning('out_of_band', one.line)
    else if (quiet) output.warn(visible(one.line))
  }
  return { settled, onSettled }
}

export const outOfBandData = ({ questionId, clientRef, submittedAtMs }: OutOfBand) => ({
  question_id: questionId,
  client_ref: clientRef ?? null,
  submitted_at: instant(submittedAtMs),
})

export const settledData = (settled: readonly SettledEarlier[] = []) =>
  settled.length === 0
    ? undefined
    : settled.map((one) => ({
        journal_id: one.journalId,
        outcome: one.outcome,
        ...(one.outcome === 'unknown'
          ? { out_of_band: outOfBandData(one.outOfBand) }
          : { code: one.code ?? null }),
      }))
