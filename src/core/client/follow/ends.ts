/** What polling takes from the journal and leaves in it. */

import { isBytes32 } from '../../protocol/words.js'
import { keptAnswer } from '../gateway/reading.js'
import type { Journal } from '../journal/journal.js'
import type { JournalEntry } from '../journal/records.js'
import { endOf, hasEnded, isCertain, type PolledStatus, type PollTarget } from './status.js'

/** Each target once, with what the journal knows of it: its question, and when it was sent. */
export async function knownTargets(
  journal: Journal | undefined,
  targets: readonly PollTarget[],
): Promise<readonly PollTarget[]> {
  const once = [...new Map(targets.map((target) => [target.candidateId, target])).values()]
  if (journal === undefined) return once
  const view = await journal.load()
  return once.map((target) => {
    const one = view.byCandidate(target.candidateId)
    const sentAtMs = target.sentAtMs ?? one?.attempts.at(-1)?.startedAtMs
    const identifier = target.identifier ?? one?.signed.questionId
    return {
      ...target,
      ...(sentAtMs === undefined ? {} : { sentAtMs }),
      ...(identifier === undefined ? {} : { identifier }),
    }
  })
}

/**
 * Journals ends once each, for authorizations that this home knows. A failure that does not tell
 * whether it may be retried leaves its authorization open (contract §4). So does an execution in
 * words of another gateway: a node or the deadline has to confirm it (R8). Rejects for journal
 * faults (StorageError 74).
 */
export async function journalEnds(
  journal: Journal | undefined,
  statuses: readonly PolledStatus[],
): Promise<void> {
  const ended = statuses.filter(
    (status) => endOf(status) === 'failed' || (hasEnded(status) && isCertain(status)),
  )
  if (journal === undefined || ended.length === 0) return
  const view = await journal.load()
  const entries = ended.flatMap((status): JournalEntry[] => {
    const known = view.byCandidate(status.candidate_id)
    const outcome = endOf(status) ?? 'failed'
    const { code, retryable } = (outcome === 'failed' ? status.failure : undefined) ?? {}
    const last = known?.terminal
    const isNews = retryable !== undefined && retryable !== last?.retryable
    if (known === undefined || (last?.outcome === outcome && last.code === code && !isNews))
      return []
    const hash = status.submission?.transaction_hash?.toLowerCase()
    return [
      {
        kind: 'terminal',
        data: {
          id: known.id,
          outcome,
          ...(code === undefined ? {} : { code }),
          ...(retryable === undefined ? {} : { retryable }),
          transaction_hash: hash != null && isBytes32(hash) ? hash : null,
          event_index: status.submission?.proposal_event_index ?? null,
          ...(status.status === outcome ? {} : keptAnswer(status)),
        },
      },
    ]
  })
  if (entries.length > 0) await journal.append(entries)
}
