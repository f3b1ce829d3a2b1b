/** Polling with something to look at: a live table on a terminal, a line a status with --ndjson. */
import { type PollOptions, type PollParts, type PollResult, type PollTarget, pollCandidates, type Stage } from '../core/client/polling.js'
import type { CandidateStatus } from '../core/protocol/schema.js'
import { stateLine } from './candidate-text.js'
import type { Context } from './context.js'
import { visible } from './render.js'

/** Polls with progress on stderr; with --ndjson each new status is a line on stdout. */
export async function follow(
  context: Context,
  parts: PollParts,
  targets: readonly PollTarget[],
  { timeoutMs, until }: { readonly timeoutMs?: number | undefined; readonly until?: Stage | undefined },
): Promise<PollResult> {
  const { output } = context
  const latest = new Map<string, CandidateStatus>()
  const table = () => targets.map(({ candidateId }) => stateLine(candidateId, latest.get(candidateId))).join('\n')
  const progress = output.progress(table())
  try {
    const options: PollOptions = {
      ...(until === undefined ? {} : { until }),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
      signal: context.signal,
      onStatus: (status) => {
        latest.set(status.candidate_id, status)
        if (output.mode === 'ndjson') output.line(status)
        progress.update(table())
      },
      onWait: ({ reason, waitMs }) => output.note(`${visible(reason)}; asking again in ${Math.ceil(waitMs / 1000)} s`),
    }
    return await pollCandidates(parts, targets, options)
  } finally {
    progress.stop()
  }
}
