/** What following takes from the journal, and leaves in it. */
import { isBytes32 } from '../../protocol/words.js'
import { keptAnswer } from '../gateway/reading.js'
import type { Journal } from '../journal/journal.js'
import type { JournalEntry } from '../journal/records.js'
import { endOf, isCertain, type PolledStatus, type PollTarget } from './status.js'

/** Each target once, with what the journal knows of it: what was signed, and when it was sent. */
export async function knownTargets(
  journal: Journal | undefined,
  targets: readonly PollTarget[],
): Promise<readonly PollTarget[]> {
  const view = await journal?.load()
  const once = new Map(targets.map((target) => [target.candidateId, target]))
  return [...once.values()].map((target) => {
    const one = view?.byCandidate(target.candidateId)
    return {
      ...target,
      sentAtMs: target.sentAtMs ?? one?.attempts.at(-1)?.startedAtMs,
      identifier: target.identifier ?? one?.signed.questionId,
      signed: target.signed ?? one?.signed,
    }
  })
}

/**
 * Journals ends once each, for authorizations that this home knows. Two ends leave it open. A
 * failure that does not tell whether it may be retried (contract §4). An execution in words of
 * another gateway, which a node or the deadline has to confirm (R8). StorageError 74.
 */
export async function journalEnds(
  journal: Journal | undefined,
  statuses: readonly PolledStatus[],
): Promise<void> {
  const ended = statuses.flatMap((status) => {
    const outcome = endOf(status)
    return outcome === 'failed' || (outcome && isCertain(status)) ? [{ status, outcome }] : []
  })
  if (journal === undefined || ended.length === 0) return
  const view = await journal.load()
  const entries = ended.flatMap(({ status, outcome }): JournalEntry[] => {
    const known = view.byCandidate(status.candidate_id)
    const { code, retryable } = (outcome === 'failed' && status.failure) || {}
    const last = known?.terminal
    const isNews = retryable !== undefined && retryable !== last?.retryable
    if (known === undefined || (last?.outcome === outcome && last.code === code && !isNews))
      return []
    const hash = status.submission?.transaction_hash?.toLowerCase() ?? ''
    const data = {
      id: known.id,
      outcome,
      code,
      retryable,
      transaction_hash: isBytes32(hash) ? hash : null,
      event_index: status.submission?.proposal_event_index ?? null,
      ...(status.status === outcome ? {} : keptAnswer(status)),
    }
    return [{ kind: 'terminal', data }]
  })
  if (entries.length > 0) await journal.append(entries)
}
