/** Asking for many candidates with something to look at, as `batch submit --wait` and `batch status` do. */
import { type BatchLookOptions, type BatchPolled, followBatch, lookOnce, type PolledCandidate } from '../../core/client/batch/poll.js'
import type { PollParts } from '../../core/client/polling/polling.js'
import { FailedError } from '../../core/protocol/errors.js'
import type { Context } from '../context.js'
import { visible } from '../view/render.js'
import { progressText } from './text.js'

/** Follows the ids to their ends. Rejects as `followBatch`. */
export const waitForBatch = (context: Context, parts: PollParts, ids: readonly string[], timeoutMs: number | undefined) =>
  shown(context, ids.length, (shows) =>
    followBatch(parts, ids, { ...shows, signal: context.signal, ...(timeoutMs === undefined ? {} : { timeoutMs }) }),
  )

/** Asks for each id once. Rejects as `lookOnce`. */
export const lookAtBatch = (context: Context, parts: PollParts, ids: readonly string[], signal: AbortSignal) =>
  shown(context, ids.length, (shows) => lookOnce(parts, ids, { ...shows, signal }))

/** FailedError (exit 7) of a candidate that failed. The batch route tells no next action (§4.2 rule 7). */
export function failedError({ candidateId, candidate, retryable }: PolledCandidate): FailedError {
  const { code, detail } = candidate?.failure ?? { code: 'failed', detail: 'no reason was given' }
  return new FailedError(code, detail, {
    hint: `see \`proposer status ${candidateId}\` for what to do next`,
    ...(retryable === undefined ? {} : { retryable }),
  })
}

async function shown(
  { output }: Context,
  total: number,
  ask: (shows: Pick<BatchLookOptions, 'onLook' | 'onWait'>) => Promise<BatchPolled>,
): Promise<BatchPolled> {
  const progress = output.progress(progressText(0, total, []))
  let isBudgetTold = false
  try {
    return await ask({
      onLook: ({ done, total: of }) => progress.update(progressText(done, of, [])),
      onWait: ({ kind, reason, waitMs }) => {
        // A long list waits for one window after another.
        if (kind === 'trouble' || !isBudgetTold) output.note(`${visible(reason)}; asking again in ${Math.ceil(waitMs / 1000)} s`)
        isBudgetTold ||= kind === 'budget'
      },
    })
  } finally {
    progress.stop()
  }
}
