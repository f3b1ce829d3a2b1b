/**
 * `batch submit`: sends many proposals, signing where that is needed; every row gets an outcome
 * (spec §4.2, contract §6).
 */
import { Command } from 'commander'
import type { BatchPolled, PolledCandidate } from '../../core/client/follow/batch.js'
import { gravest } from '../../core/client/gateway/answer.js'
import { placeText } from '../../core/client/input/rows.js'
import { type RowResult, submitBatch } from '../../core/client/propose/batch.js'
import {
  InterruptedError,
  PendingError,
  ProposerError,
  UnavailableError,
} from '../../core/protocol/errors.js'
import { collector, outOfBandData, settledData } from '../session/rounds.js'
import { addExecutorFlags, type Session, withSession } from '../session/session.js'
import type { Context } from '../terminal/context.js'
import { visible } from '../terminal/render.js'
import { resumeCommandText } from './hints.js'
import { addBatchFlags, type BatchFlags, type Opened, openBatch } from './parts.js'
import { showBatchPlan } from './preview.js'
import { withSource } from './source.js'
import { newResultStream, newTally, progressText, type Tally } from './text.js'
import { failedBefore, pendingError, rowFailedError, waitForBatch } from './wait.js'

interface SubmitFlags extends BatchFlags {
  readonly wait?: boolean
  readonly resume?: boolean
}

export const batchSubmitCommand = (context: Context): Command =>
  addExecutorFlags(
    addBatchFlags(
      new Command('submit')
        .description('send many proposals, signing them first where needed')
        .argument('<file>', 'rows to sign and send, or signed items; - for stdin')
        .option('--wait', 'poll until every candidate is executed or failed')
        .option('--resume', 'finish this input: what is accepted or closed already is left alone'),
    ),
  )
    .addHelpText(
      'after',
      '\nExit 6 says that outcomes are unknown: run it again with --resume, never sign again.\n\nExamples:\n  proposer batch submit rows.csv --wait\n  proposer batch submit rows.csv --resume',
    )
    .action(async (path: string, _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<SubmitFlags>()
      await withSession(context, flags, (session) =>
        withSource(context, session.settings.home.value, path, async (source) => {
          // Opened for running before anything opens it for reading: a command has one gateway.
          const gateway = await session.gateway('run')
          const opened = await openBatch(
            context,
            session,
            flags,
            source,
            ({ rows, intents }, signer, sum) =>
              `signing up to ${intents} proposals as ${signer}${sum} and sending ${rows} to ${gateway.origin}`,
          )
          const { fingerprint } = opened.count
          if (flags.dryRun === true)
            return showBatchPlan(context, opened, {
              signal: session.signal,
              gateway,
              resume: flags.resume === true ? fingerprint : undefined,
            })
          await submit(context, session, flags, opened, path)
        }),
      )
    })

type Gateway = Awaited<ReturnType<Session['gateway']>>

async function submit(
  context: Context,
  session: Session,
  flags: SubmitFlags,
  opened: Opened,
  path: string,
): Promise<void> {
  const { output, clock } = context
  const startedMs = clock.monotonicMs()
  const gateway = await session.gateway('run')
  const { timeoutMs } = session.settings
  const { count } = opened
  const counts = { accepted: 0, replayed: 0, rejected: 0, unknown: 0, deferred: 0 }
  const tally = newTally()
  const stream = newResultStream(output, 'batch', 'results')
  const held: RowResult[] = []
  const tellEarlier = collector(context, flags.quiet === true, [])
  let isSigned = false
  let failed = 0
  const progress = output.progress(progressText(0, count.rows, []))
  const tell = (one: RowResult, polled?: PolledCandidate) =>
    stream.item(resultOf(one, polled), () => cellsOf(one, polled))
  try {
    const results = submitBatch({ ...opened.parts, gateway }, opened.rows(), {
      fingerprint: count.fingerprint,
      resume: flags.resume === true,
      spending: opened.spending,
      timeoutMs,
      signal: context.signal,
      chunkSize: (wantItems, options) => gateway.chunkSize(wantItems, options),
      onRetry: ({ reason, waitMs }) =>
        output.note(`${visible(reason)}; the same bytes again in ${Math.ceil(waitMs / 1000)} s`),
    })
    for await (const some of results) {
      for (const one of some) {
        counts[one.outcome]++
        if (one.error) tally.add(placeText(one.row), one.error)
        const failure = flags.wait === true ? undefined : failureOf(one)
        if (failure !== undefined) {
          failed++
          tally.add(placeText(one.row), failure)
        }
        isSigned ||= one.authorization !== undefined
        for (const earlier of one.earlier ?? []) tellEarlier(earlier)
        // With --wait a document tells the end of each row; lines tell it as it comes.
        if (flags.wait === true) held.push(one)
        if (flags.wait !== true || output.mode === 'ndjson') tell(one)
      }
      const done = Object.values(counts).reduce((sum, each) => sum + each, 0)
      progress.update(progressText(done, count.rows, Object.entries(counts)))
    }
  } finally {
    progress.stop()
  }
  const ends =
    flags.wait === true
      ? await wait(
          context,
          { ...session, gateway },
          held,
          timeoutMs === undefined
            ? undefined
            : Math.max(1, timeoutMs - (clock.monotonicMs() - startedMs)),
          tally,
        )
      : undefined
  if (ends !== undefined) {
    const byId = new Map(ends.polled.candidates.map((one) => [one.candidateId, one]))
    for (const one of held) {
      const polled = one.candidate === undefined ? undefined : byId.get(one.candidate.candidateId)
      if (output.mode !== 'ndjson') tell(one, polled)
      else if (polled?.candidate !== undefined)
        output.line({
          client_ref: one.row.clientRef ?? null,
          identifier: one.row.identifier,
          candidate: polled.candidate,
        })
    }
  }
  const summary = {
    rows: count.rows,
    ...counts,
    ...(ends === undefined ? { failed } : ends.counts),
  }
  stream.end({ summary }, () => summaryText(summary))
  const command = `\`${resumeCommandText(path, flags)}\`${path === '-' ? ' and the same rows on stdin' : ''}`
  const error = tally.error({
    total: count.rows,
    goOn: isSigned
      ? `go on with ${command}: saved bytes are sent again, nothing is signed twice`
      : `nothing was signed or sent; begin again with ${command}`,
    stopped: context.signal.aborted ? context.signal.reason : undefined,
  })
  const stopped = ends?.polled.stopped
  // Whoever is still on the way, and a Ctrl-C, is in the tally's error.
  const isTold = stopped instanceof PendingError || stopped instanceof InterruptedError
  const worst = gravest([error, isTold ? undefined : stopped]) ?? stopped
  if (worst) throw worst
}

async function wait(
  context: Context,
  { gateway, ports, journal }: Pick<Session, 'ports' | 'journal'> & { readonly gateway: Gateway },
  held: readonly RowResult[],
  timeoutMs: number | undefined,
  tally: Tally,
): Promise<{
  readonly polled: BatchPolled
  readonly counts: { executed: number; failed: number; pending: number }
}> {
  // A candidate of another gateway can only be asked for there.
  const [away, here] = [
    held.filter(({ elsewhere }) => elsewhere !== undefined),
    held.filter(({ elsewhere }) => elsewhere === undefined),
  ]
  const isDone = ({ candidate }: RowResult) => candidate?.status === 'executed'
  const gone = away.filter((one) => one.error === undefined && failureOf(one) !== undefined)
  const left = away.filter(
    (one) => one.candidate !== undefined && !isDone(one) && one.candidate.status !== 'failed',
  )
  for (const one of left)
    if (one.error === undefined) tally.add(placeText(one.row), notFollowed(one))
  const ids = here.flatMap(({ candidate }) =>
    candidate === undefined ? [] : [candidate.candidateId],
  )
  const polled = await waitForBatch(context, { ports, gateway, journal }, ids, timeoutMs).catch(
    (error: unknown): BatchPolled => {
      // What was admitted is reported whatever becomes of the polling.
      if (!(error instanceof ProposerError)) throw error
      return {
        candidates: ids.map((candidateId) => ({ candidateId, statusCode: null })),
        stopped: error,
      }
    },
  )
  for (const one of gone) tally.add(placeText(one.row), failureOf(one) ?? notFollowed(one))
  const counts = { executed: away.filter(isDone).length, failed: gone.length, pending: left.length }
  for (const one of polled.candidates) {
    if (one.end === 'executed') counts.executed++
    else if (one.end === 'failed') {
      counts.failed++
      tally.add(`candidate ${one.candidateId}`, rowFailedError(one))
    } else {
      counts.pending++
      tally.add(
        `candidate ${one.candidateId}`,
        one.error ?? pendingError(one, 'ask again with `proposer poll --all`'),
      )
    }
  }
  return { polled, counts }
}

/** Of a row whose candidate is known to have failed. */
const failureOf = ({ authorization, candidate }: RowResult) =>
  authorization === undefined || candidate === undefined
    ? undefined
    : failedBefore(authorization, candidate.status)

const notFollowed = ({ candidate, elsewhere }: RowResult) =>
  new UnavailableError(
    'other_origin',
    `candidate ${candidate?.candidateId} is held by ${elsewhere?.origin}, which is not the configured gateway`,
    {
      hint: `\`proposer poll ${candidate?.candidateId} ${elsewhere?.flag}\``,
    },
  )

function resultOf(result: RowResult, polled: PolledCandidate | undefined): object {
  const {
    row,
    outcome,
    statusCode,
    authorization,
    candidate,
    error,
    elsewhere,
    outOfBand,
    earlier,
  } = result
  const known = candidate && {
    candidate_id: candidate.candidateId,
    status: candidate.status || null,
    received_at: candidate.receivedAt || null,
    as_of: candidate.asOf,
  }
  return {
    client_ref: row.clientRef ?? null,
    identifier: row.identifier,
    outcome,
    status_code: statusCode,
    candidate: polled?.candidate ?? known ?? null,
    error: error === undefined ? null : { code: error.code, detail: error.detail },
    journal_id: authorization?.id ?? null,
    ...(elsewhere === undefined ? {} : { elsewhere }),
    ...(outOfBand === undefined ? {} : { out_of_band: outOfBandData(outOfBand) }),
    ...(earlier === undefined ? {} : { settled: settledData(earlier) }),
  }
}

function cellsOf(
  { row, outcome, candidate, error }: RowResult,
  polled: PolledCandidate | undefined,
): readonly string[] {
  // Without an answer to this run a status is what was last heard.
  const known =
    candidate === undefined
      ? ''
      : `${candidate.status}${candidate.asOf === 'journal' ? ' when last heard of' : ''}`
  const status = polled?.candidate?.status ?? known
  const failure = polled?.candidate?.failure
  return [
    outcome.padEnd(8),
    row.clientRef ?? row.identifier,
    candidate?.candidateId ?? '',
    status,
    error?.detail ?? failure?.detail ?? '',
  ]
}

function summaryText({ rows, ...counts }: Readonly<Record<string, number>>): string {
  const parts = Object.entries(counts).filter(([, count]) => count > 0)
  return `${rows} rows: ${parts.map(([name, count]) => `${count} ${name}`).join(', ')}`
}
