/**
 * The flow of `batch submit` and `run`: sends an input, sends once more what stays unknown, follows,
 * and tells what became of it (contract §6, §9).
 */
import { type BatchPolled, followBatch, type PolledCandidate } from '#client/follow/follow'
import { gravest } from '#client/gateway/answer'
import type { BatchRow } from '#client/input/input'
import { placeText } from '#client/input/rows'
import { type RowResult, submitBatch } from '#client/propose/batch'
import { addTotal } from '#client/propose/look'
import { InterruptedError, PendingError, ProposerError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { followMany } from '../session/follow.js'
import { collector } from '../session/rounds.js'
import type { Session } from '../session/session.js'
import { noteFallenRewards } from '../session/stakes.js'
import type { Context } from '../terminal/context.js'
import { counted } from '../terminal/render.js'
import { newResults, progressText } from '../terminal/results.js'
import { newFailures } from './failures.js'
import { type Opened, totalsText } from './parts.js'
import {
  batchSummaryText,
  cellsOf,
  nameOf,
  notFollowed,
  pendingError,
  resultOf,
  rowFailedError,
  rowFailureOf,
} from './row-text.js'

export interface Running {
  readonly kind: 'batch' | 'run'
  readonly resume: boolean
  readonly wait: boolean
  readonly details: boolean
  readonly quiet: boolean
  readonly command: string
  readonly head?: object
  readonly rest?: object
}

/**
 * Throws the gravest of what went wrong; what was signed is in the journal, so the same input
 * goes on where it stopped.
 */
export async function submitAndReport(
  context: Context,
  session: Session,
  opened: Opened,
  running: Running,
): Promise<void> {
  const { output, clock } = context
  const startedMs = clock.monotonicMs()
  const gateway = await session.gateway('run')
  const { timeoutMs } = session.settings
  const leftMs = () =>
    timeoutMs === undefined ? undefined : Math.max(1, timeoutMs - (clock.monotonicMs() - startedMs))
  const { count, parts } = opened
  const report = newReport(context, opened, running)
  const held: RowResult[] = []
  const tellEarlier = collector(context, running.quiet, [])
  const send = (rows: readonly BatchRow[]) =>
    submitBatch({ ...parts, gateway }, rows, {
      fingerprint: count.fingerprint,
      resume: running.resume,
      spending: opened.spending,
      timeoutMs: leftMs(),
      signal: context.signal,
      chunkSize: (wantItems, options) => gateway.chunkSize(wantItems, options),
      onRetry: ({ reason, waitMs }) =>
        output.countdown(`${reason}; resending the same bytes`, { nowMs: clock.nowMs(), waitMs }),
    })
  const progress = output.progress(progressText(0, count.rows, []))
  try {
    for await (const some of send(count.input)) {
      for (const one of some) {
        report.count(one)
        for (const earlier of one.earlier ?? []) tellEarlier(earlier)
        // With `wait` a document tells the end of each row; lines tell it as it comes.
        if (running.wait) held.push(one)
        else report.judge(one)
        if (!running.wait || output.mode === 'ndjson') report.tell(one)
      }
      const { counts } = report
      const done = Object.values(counts).reduce((sum, each) => sum + each, 0)
      progress.update(progressText(done, count.rows, Object.entries(counts)))
    }
    // Their bytes are saved: sent again they settle what they are (R7).
    if (running.kind === 'run') await replayUnknown(context, held, send, report)
  } finally {
    progress.stop()
  }
  for (const one of held) report.judge(one)
  const ends = running.wait ? await followHeld(context, session, held, leftMs(), report) : undefined
  if (ends !== undefined) {
    const byId = new Map(ends.polled.candidates.map((one) => [one.candidateId, one]))
    for (const one of held) {
      const polled = one.candidate === undefined ? undefined : byId.get(one.candidate.candidateId)
      if (output.mode !== 'ndjson') report.tell(one, polled)
      else if (polled?.candidate !== undefined)
        output.line({
          client_ref: one.row.clientRef ?? null,
          identifier: one.row.identifier,
          candidate: polled.candidate,
        })
    }
  }
  report.end(ends)
}

/** Results of the second pass take the place of the first. */
async function replayUnknown(
  context: Context,
  held: RowResult[],
  send: (rows: readonly BatchRow[]) => AsyncIterable<readonly RowResult[]>,
  report: Report,
) {
  const places = new Map(
    held.flatMap((one, at) =>
      one.outcome === 'unknown' && one.elsewhere === undefined && one.outOfBand === undefined
        ? [[one.row, at] as const]
        : [],
    ),
  )
  if (places.size === 0 || context.signal.aborted) return
  context.output.note(
    `replaying ${counted(places.size, 'payload')} whose outcome is unknown; nothing is signed`,
  )
  for await (const some of send([...places.keys()])) {
    for (const one of some) {
      const at = places.get(one.row)
      const before = at === undefined ? undefined : held[at]
      if (at === undefined || before === undefined) continue
      held[at] = one
      report.count(before, -1)
      report.count(one)
      if (context.output.mode === 'ndjson') report.tell(one)
    }
  }
}

interface Ends {
  readonly polled: BatchPolled
  readonly counts: { executed: number; failed: number; pending: number }
}

type Report = ReturnType<typeof newReport>

/** Counts, groups and prints; holds no row (R17). */
function newReport(context: Context, { parts, count }: Opened, running: Running) {
  const { output } = context
  const counts = { accepted: 0, replayed: 0, rejected: 0, unknown: 0, deferred: 0 }
  const failures = newFailures()
  const totals = new Map<Address, bigint>()
  const stream = newResults(output, running.kind, 'results', running.head)
  let isSigned = false
  let failed = 0
  return {
    counts,
    wrong: failures.add,
    count(one: RowResult, by: 1 | -1 = 1) {
      counts[one.outcome] += by
    },
    judge(one: RowResult) {
      const place = placeText(one.row)
      const { authorization, candidate } = one
      isSigned ||= authorization !== undefined
      if (one.error) failures.add(place, one.error, one.outcome, nameOf(one))
      const failure = running.wait ? undefined : rowFailureOf(one)
      if (failure !== undefined) {
        failed++
        failures.add(place, failure, 'failed', nameOf(one))
      }
      const token = authorization?.signed.token
      if (candidate !== undefined && token !== undefined)
        addTotal(totals, token, BigInt(authorization?.signed.terms.amount ?? 0))
    },
    tell(one: RowResult, polled?: PolledCandidate) {
      if (output.mode === 'human' && !running.details) return
      stream.item(resultOf(one, polled), () => cellsOf(one, polled))
    },
    end(ends: Ends | undefined) {
      const summary = {
        rows: count.rows,
        ...counts,
        ...(ends === undefined ? { failed } : ends.counts),
      }
      stream.end({ summary, ...running.rest }, [
        batchSummaryText(summary),
        totals.size > 0 && `authorized ${totalsText(parts.trust, totals)} in all`,
        ...failures.blocks(),
      ])
      const error = failures.error({
        total: count.rows,
        goOn: isSigned
          ? `continue with ${running.command}: saved bytes are sent again, nothing is signed twice`
          : `nothing was signed or sent; start again with ${running.command}`,
        stopped: context.signal.aborted ? context.signal.reason : undefined,
        isShown: output.mode === 'human' && output.isTerminal,
      })
      const stopped = ends?.polled.stopped
      // Whoever is still on the way, and a Ctrl-C, is in the error of all.
      const isTold = stopped instanceof PendingError || stopped instanceof InterruptedError
      const worst = gravest([error, isTold ? undefined : stopped]) ?? stopped
      if (worst) throw worst
    },
  }
}

async function followHeld(
  context: Context,
  session: Session,
  held: readonly RowResult[],
  timeoutMs: number | undefined,
  report: Report,
): Promise<Ends> {
  // A candidate of another gateway can only be asked for there.
  const [away, here] = [
    held.filter(({ elsewhere }) => elsewhere !== undefined),
    held.filter(({ elsewhere }) => elsewhere === undefined),
  ]
  const isDone = ({ candidate }: RowResult) => candidate?.status === 'executed'
  const gone = away.filter((one) => one.error === undefined && rowFailureOf(one) !== undefined)
  const left = away.filter(
    (one) => one.candidate !== undefined && !isDone(one) && one.candidate.status !== 'failed',
  )
  const placed = (word: string, one: RowResult, error: ProposerError) =>
    report.wrong(placeText(one.row), error, word, nameOf(one))
  for (const one of left) if (one.error === undefined) placed('pending', one, notFollowed(one))
  const ids = here.flatMap(({ candidate }) =>
    candidate === undefined ? [] : [candidate.candidateId],
  )
  const names = new Map(here.map((one) => [one.candidate?.candidateId, nameOf(one)]))
  const gateway = await session.gateway('run')
  const { ports, journal } = session
  const polled = await followMany(context, ids.length, (shows) =>
    followBatch({ ports, gateway, journal }, ids, { ...shows, signal: context.signal, timeoutMs }),
  ).catch((error: unknown): BatchPolled => {
    // What was admitted is reported whatever becomes of the polling.
    if (!(error instanceof ProposerError)) throw error
    return {
      candidates: ids.map((candidateId) => ({ candidateId, statusCode: null })),
      stopped: error,
    }
  })
  for (const one of gone) placed('failed', one, rowFailureOf(one) ?? notFollowed(one))
  const counts = { executed: away.filter(isDone).length, failed: gone.length, pending: left.length }
  for (const one of polled.candidates) {
    const { candidateId: id } = one
    const wrong = (word: 'failed' | 'pending', error: ProposerError) => {
      counts[word]++
      report.wrong(`candidate ${id}`, error, word, names.get(id) ?? id)
    }
    if (one.end === 'executed') counts.executed++
    else if (one.end === 'failed') wrong('failed', rowFailedError(one))
    else wrong('pending', one.error ?? pendingError(one, 'check again with `proposer poll --all`'))
  }
  const view = await journal.load()
  const signed = ids.flatMap((id) => view.byCandidate(id)?.signed ?? [])
  await noteFallenRewards(context, session, signed)
  return { polled, counts }
}
