/** Polling with something to look at: a table on a terminal, a line a change with --ndjson. */
import {
  type BatchPolled,
  type PollOptions,
  type PollWait,
  pollCandidates,
} from '#client/follow/follow'
import type { PollParts } from '#client/follow/look'
import {
  changedAt,
  type PolledStatus,
  type PollTarget,
  type Stage,
  stageTimeOf,
} from '#client/follow/status'
import type { OutOfBand } from '#client/journal/authorizations'
import type { SettledEarlier } from '#client/propose/round-over'
import type { OnRetry } from '#client/propose/send'
import { instant } from '#protocol/candidate'
import { ProposerError } from '#protocol/errors'
import type { Context } from '../terminal/context.js'
import { type Live, progressText, waitText } from '../terminal/output.js'
import { countsText, liveLines } from '../terminal/poll-table.js'
import { ageText, counted, visible } from '../terminal/render.js'
import { identify } from './question.js'
import { type Session, withSession } from './session.js'
import type { SessionFlags } from './settings.js'

interface FollowOptions {
  readonly timeoutMs?: number | undefined
  readonly until?: Stage | undefined
  readonly full?: boolean
  readonly aboutOf?: ((candidateId: string) => string) | undefined
  readonly live?: Live | undefined
}

export async function follow(
  context: Context,
  parts: PollParts,
  targets: readonly PollTarget[],
  { timeoutMs, until, full, aboutOf, live }: FollowOptions,
) {
  const { clock } = context
  const output = live?.output ?? context.output
  const latest = new Map<string, PolledStatus>()
  let note = () => ''
  const shown = watching({ ...context, output }, countsText(targets, latest))
  const about = (id: string, status: PolledStatus | undefined) => {
    const received = Date.parse((status && stageTimeOf(status, 'received')) ?? '')
    const seconds = (clock.nowMs() - received) / 1_000
    const age = seconds >= 0 ? [ageText(seconds)] : []
    return [...age, aboutOf?.(id) ?? status?.question_id ?? ''].join('  ')
  }
  const draw = () =>
    live?.draw(
      liveLines(targets, latest, {
        ...live.size(),
        paint: output.paint,
        note: note(),
        aboutOf: about,
      }),
    )
  const redraws = live && setInterval(draw, 1_000).unref()
  try {
    draw()
    return await pollCandidates(parts, targets, {
      until,
      timeoutMs,
      full,
      signal: context.signal,
      onStatus: (status) => {
        latest.set(status.candidate_id, status)
        output.item(changeOf(status, clock.nowMs()))
      },
      onLook: ({ items }) => {
        shown.look(countsText(targets, latest))
        note = () => `${counted(items, 'candidate')} checked just now`
        draw()
      },
      onWait: (event) => {
        note = shown.wait(event)
        draw()
      },
    })
  } finally {
    clearInterval(redraws)
    shown.stop()
    live?.clear()
  }
}

/** Many candidates, with nothing but their number to look at. */
export async function followMany(
  context: Context,
  total: number,
  ask: (shows: Pick<PollOptions, 'onLook' | 'onWait'>) => Promise<BatchPolled>,
) {
  const text = (done: number, of: number) => `waiting: ${progressText(done, of, [])}`
  const shown = watching(context, text(0, total))
  try {
    return await ask({
      onLook: ({ done, total: of }) => shown.look(text(done, of)),
      onWait: (event) => {
        shown.wait(event)
      },
    })
  } finally {
    shown.stop()
  }
}

/** The line of a polling. A log is told of each trouble once, and of one window of many. */
function watching({ output, clock }: Context, first: string) {
  let text = first
  let isBudgetTold = false
  const progress = output.progress(first)
  return {
    look(next: string) {
      text = next
      progress.update(text)
    },
    /** What stands beside a table meanwhile. */
    wait({ kind, reason, sinceMs, waitMs }: PollWait): () => string {
      const since = sinceMs === undefined ? '' : `, since ${instant(sinceMs).slice(11, 19)}Z`
      const what = `${reason}${since}; next request`
      const wait = { nowMs: clock.nowMs(), waitMs }
      const begunMs = clock.monotonicMs()
      const isTrouble = kind === 'trouble'
      progress.update(isTrouble ? `${text}; ${reason}${since}; it is asked again` : text)
      const isNews = isTrouble ? sinceMs === undefined : !isBudgetTold
      if (isNews || output.notesAreTerminal) output.countdown(what, wait)
      isBudgetTold ||= !isTrouble
      return () => waitText(what, wait, clock.monotonicMs() - begunMs)
    },
    stop: () => progress.stop(),
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

export const retryNote =
  ({ output }: Context): OnRetry =>
  ({ attempt, reason, waitMs }) =>
    output.note(
      `attempt ${attempt}: ${visible(reason)}; resending the same bytes in ${Math.ceil(waitMs / 1000)} s`,
    )

/** --quiet does not silence an outcome that only the operator can tell. */
export function collector(
  context: Context,
  quiet: boolean,
  settled: SettledEarlier[],
): (one: SettledEarlier) => void {
  return (one) => {
    settled.push(one)
    if (quiet && context.output.isForPeople && one.outcome === 'unknown')
      context.output.warn(visible(one.line))
  }
}

export const outOfBandData = ({ questionId, clientRef, submittedAtMs }: OutOfBand) => ({
  question_id: questionId,
  client_ref: clientRef ?? null,
  submitted_at: instant(submittedAtMs),
})

export const settledData = (settled: readonly SettledEarlier[]) =>
  settled.map((one) => ({
    journal_id: one.journalId,
    outcome: one.outcome,
    ...(one.outcome === 'unknown'
      ? { out_of_band: outOfBandData(one.outOfBand) }
      : { code: one.code ?? null }),
  }))

export interface Settling {
  readonly settled: readonly SettledEarlier[]
  onSettled(one: SettledEarlier): void
}

/** A session for one question. With --json an error tells what was settled: there are no notes. */
export async function settlingSession(
  context: Context,
  flags: SessionFlags,
  named: string,
  use: (session: Session, identifier: string, settling: Settling) => Promise<void>,
) {
  const settled: SettledEarlier[] = []
  const onSettled = collector(context, flags.quiet === true, settled)
  try {
    await withSession(context, flags, async (session) => {
      const [identifier = named] = await identify(session, [named])
      await use(session, identifier, { settled, onSettled })
    })
  } catch (error) {
    const isLost = !context.output.isForPeople && settled.length > 0
    if (!isLost || !(error instanceof ProposerError)) throw error
    const detail = [error.detail, ...settled.map(({ line }) => line)].join('. ')
    throw new (error.constructor as typeof ProposerError)(error.code, detail, error.meta)
  }
}
