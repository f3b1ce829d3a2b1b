/**
 * Asking for many candidates with something to look at, as `batch submit --wait` and `batch status`
 * do.
 */

import {
  type BatchFollowOptions,
  type BatchPolled,
  followBatch,
  lookOnce,
  type PolledCandidate,
} from '../../core/client/follow/batch.js'
import type { PollParts } from '../../core/client/follow/look.js'
import type { JournaledAuthorization } from '../../core/client/journal/authorizations.js'
import { FailedError, PendingError } from '../../core/protocol/errors.js'
import type { Context } from '../terminal/context.js'
import { isNews, reasonText, retriedText } from '../terminal/poll-table.js'
import { progressText } from './failures.js'

export const waitForBatch = (
  context: Context,
  parts: PollParts,
  ids: readonly string[],
  timeoutMs: number | undefined,
) =>
  shown(context, ids.length, (shows) =>
    followBatch(parts, ids, {
      ...shows,
      signal: context.signal,
      timeoutMs,
    }),
  )

export const lookAtBatch = (
  context: Context,
  parts: PollParts,
  ids: readonly string[],
  signal: AbortSignal,
) => shown(context, ids.length, (shows) => lookOnce(parts, ids, { ...shows, signal }))

/** The batch route tells no next action (§4.2 rule 7). */
export function rowFailedError({
  candidateId,
  candidate,
  retryable,
}: PolledCandidate): FailedError {
  const { code, detail } = candidate?.failure ?? { code: 'failed', detail: '' }
  return new FailedError(code, detail || 'no reason was given', {
    hint: `see \`proposer status ${candidateId}\` for what to do next`,
    ...(retryable === undefined ? {} : { retryable }),
  })
}

/**
 * Of a candidate that the journal, or a replay's answer, has as failed; `undefined` of any other.
 */
export function failedBefore(
  { candidateId, terminal }: JournaledAuthorization,
  status: string | undefined = terminal?.outcome,
): FailedError | undefined {
  if (candidateId === undefined || status !== 'failed') return undefined
  return new FailedError(
    terminal?.code ?? 'failed',
    `candidate ${candidateId} has failed${terminal?.code === undefined ? '' : ` (${terminal.code})`}`,
    {
      hint: `see \`proposer status ${candidateId}\` for what to do next`,
      ...(terminal?.retryable === undefined ? {} : { retryable: terminal.retryable }),
    },
  )
}

export const pendingError = ({ candidate }: PolledCandidate, hint: string): PendingError =>
  new PendingError('still_pending', `it is ${candidate?.status ?? 'not known'} yet`, {
    hint,
    retryable: true,
  })

async function shown(
  { output, clock }: Context,
  total: number,
  ask: (shows: Pick<BatchFollowOptions, 'onLook' | 'onWait'>) => Promise<BatchPolled>,
): Promise<BatchPolled> {
  const text = (done: number, of: number) => `waiting: ${progressText(done, of, [])}`
  let counts = text(0, total)
  const progress = output.progress(counts)
  let isBudgetTold = false
  try {
    return await ask({
      onLook: ({ done, total: of }) => {
        counts = text(done, of)
        progress.update(counts)
      },
      onWait: (event) => {
        const { kind, waitMs } = event
        progress.update(counts + retriedText(event))
        // A long list waits for one window after another: in a log the first of them is enough.
        if (isNews(event, isBudgetTold) || output.notesAreTerminal)
          output.countdown(`${reasonText(event)}; next request`, { nowMs: clock.nowMs(), waitMs })
        isBudgetTold ||= kind === 'budget'
      },
    })
  } finally {
    progress.stop()
  }
}
