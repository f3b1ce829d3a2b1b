/** Statuses by the batch route (§4.2 rule 6): a pass costs one budget item a candidate, as single calls would, in fewer calls. */
import { failures } from '../protocol/candidate.js'
import { InterruptedError, ProposerError } from '../protocol/errors.js'
import { type BatchStatusAnswer, isQuestionId, limits } from '../protocol/schema.js'
import { answerError, maxRetryAfterMs, plainCode, plainDetail, type Unaccepted } from './answer.js'
import type { GatewayClient } from './gateway-client.js'
import type { Journal, JournalPorts } from './journal.js'
import type { JournalEntry } from './journal-records.js'
import { backoffMs, isAborted } from './retry.js'

export type BatchCandidateStatus = NonNullable<BatchStatusAnswer['results'][number]['candidate']>

/** One candidate's last known status, or why there is none. */
export interface PolledCandidate {
  readonly candidateId: string
  readonly statusCode: number | null
  readonly candidate?: BatchCandidateStatus
  /** Of a definite refusal, such as 404; or of a lookup that brought nothing to the end. */
  readonly error?: ProposerError
}

export interface BatchPollParts {
  readonly ports: Pick<JournalPorts, 'clock' | 'random'>
  readonly gateway: GatewayClient
  /** Ends of candidates it knows are journaled. */
  readonly journal?: Journal
}

export interface BatchPollOptions {
  /** Once: one pass. Else until every candidate is executed or failed. */
  readonly once: boolean
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
  /** Told after each call. */
  readonly onPass?: (counts: { readonly done: number; readonly total: number }) => void
  readonly onWait?: (event: { readonly reason: string; readonly waitMs: number }) => void
}

export interface BatchPolled {
  /** In the order of the ids, each once. */
  readonly candidates: readonly PolledCandidate[]
  /** Why the polling ended before every candidate did: InterruptedError, or the last failure. Absent where only the time ran out. */
  readonly stopped?: ProposerError
}

const firstPauseMs = 500
const longestPauseMs = 5_000
/** Without an answer this many times in a row: nobody is there. */
const maxSilent = 8

/**
 * Asks for all ids, a hundred a call, and again for those that have not ended. Rejects for journal faults and malformed ids (UsageError)
 * only.
 */
export async function pollBatch(parts: BatchPollParts, ids: readonly string[], options: BatchPollOptions): Promise<BatchPolled> {
  const { clock, random } = parts.ports
  const known = new Map<string, PolledCandidate>([...new Set(ids)].map((candidateId) => [candidateId, { candidateId, statusCode: null }]))
  const endMs = options.timeoutMs === undefined ? Number.POSITIVE_INFINITY : clock.monotonicMs() + options.timeoutMs
  const callOptions = options.signal === undefined ? {} : { signal: options.signal }
  const done = (stopped?: ProposerError): BatchPolled => ({
    candidates: [...known.values()],
    ...(stopped === undefined ? {} : { stopped }),
  })
  let pauseMs = firstPauseMs
  let silent = 0
  for (;;) {
    let waiting = [...known.values()].filter((one) => !hasEnded(one)).map(({ candidateId }) => candidateId)
    let changed = false
    while (waiting.length > 0) {
      if (isAborted(options.signal)) return done(interrupted(options.signal))
      const some = waiting.slice(0, limits.batchItems)
      const answer = await parts.gateway.statuses(some, callOptions)
      if (answer.kind === 'accepted') {
        silent = 0
        waiting = waiting.slice(some.length)
        const changes = some.map((id, index) => resultOf(id, answer.value.results[index]))
        for (const one of changes) {
          changed ||= JSON.stringify(known.get(one.candidateId)?.candidate) !== JSON.stringify(one.candidate)
          known.set(one.candidateId, one)
        }
        await journalEnds(parts, changes)
        options.onPass?.({ done: [...known.values()].filter(hasEnded).length, total: known.size })
        continue
      }
      if (isAborted(options.signal)) return done(interrupted(options.signal))
      const error = answerError(answer, 'read')
      const waitMs = transientWaitMs(answer, ++silent)
      if (waitMs === undefined || clock.monotonicMs() + waitMs >= endMs) return done(error)
      options.onWait?.({ reason: answer.detail, waitMs })
      if (!(await slept(waitMs))) return done(interrupted(options.signal))
    }
    if (options.once || [...known.values()].every(hasEnded)) return done()
    pauseMs = changed ? firstPauseMs : Math.min(longestPauseMs, pauseMs * 1.5)
    const leftMs = endMs - clock.monotonicMs()
    if (leftMs <= 0) return done()
    if (!(await slept(Math.min(pauseMs, leftMs)))) return done(interrupted(options.signal))
  }

  function transientWaitMs(answer: Unaccepted, tries: number): number | undefined {
    if (answer.kind !== 'deferred' && answer.kind !== 'uncertain') return undefined
    const told = answer.retryAfterMs ?? 0
    return told > maxRetryAfterMs || tries >= maxSilent ? undefined : told + backoffMs(random, tries)
  }

  async function slept(ms: number): Promise<boolean> {
    try {
      await clock.sleep(ms, options.signal)
      return true
    } catch (error) {
      if (!isAborted(options.signal)) throw error
      return false
    }
  }
}

/** Nothing more is to be asked: executed, failed, or refused for good. */
function hasEnded({ candidate, error }: PolledCandidate): boolean {
  return candidate?.status === 'executed' || candidate?.status === 'failed' || error !== undefined
}

function resultOf(candidateId: string, result: BatchStatusAnswer['results'][number] | undefined): PolledCandidate {
  const wrong: Unaccepted = {
    kind: 'reconcile',
    httpStatus: 409,
    code: 'candidate_mismatch',
    detail: `the gateway answered about another candidate than ${candidateId}`,
  }
  if (result === undefined || result.candidate_id !== candidateId)
    return { candidateId, statusCode: null, error: answerError(wrong, 'read') }
  const { status_code: statusCode, candidate, error } = result
  if (candidate !== undefined && candidate.candidate_id !== candidateId)
    return { candidateId, statusCode, error: answerError(wrong, 'read') }
  if (statusCode === 200 && candidate !== undefined) return { candidateId, statusCode, candidate }
  const told = {
    code: plainCode(error?.code ?? 'gateway_body'),
    detail: plainDetail(error?.detail ?? 'the gateway answered without a candidate'),
  }
  // A 503 of one candidate passes; it is asked for again.
  if (![400, 403, 404, 405, 413, 422].includes(statusCode)) return { candidateId, statusCode }
  return { candidateId, statusCode, error: answerError({ kind: 'refused', httpStatus: statusCode, ...told }, 'read') }
}

/**
 * Journals ends once. Whether a failed payload may still execute is not told by the batch route: contract §5's table says it for most
 * codes, the single route for the others (contract §4); until then it stays open.
 */
async function journalEnds({ journal, gateway }: BatchPollParts, changes: readonly PolledCandidate[]): Promise<void> {
  if (journal === undefined) return
  const ended = changes.filter(({ candidate }) => candidate?.status === 'executed' || candidate?.status === 'failed')
  if (ended.length === 0) return
  const view = await journal.load()
  const entries: JournalEntry[] = []
  for (const { candidateId, candidate } of ended) {
    const one = view.byCandidate(candidateId)
    if (one === undefined || candidate === undefined || (candidate.status !== 'executed' && candidate.status !== 'failed')) continue
    const code = candidate.failure?.code
    if (one.terminal?.outcome === candidate.status && one.terminal.code === code) continue
    const retryable =
      code === undefined ? undefined : (retryableOf(code) ?? (await askRetryable(gateway, one.signed.questionId, candidateId)))
    entries.push({
      kind: 'terminal',
      data: {
        id: one.id,
        outcome: candidate.status,
        ...(code === undefined ? {} : { code }),
        ...(retryable === undefined ? {} : { retryable }),
        transaction_hash: candidate.submission?.transaction_hash ?? null,
      },
    })
  }
  if (entries.length > 0) await journal.append(entries)
}

function retryableOf(code: string): boolean | undefined {
  const rows: Readonly<Record<string, { readonly retryable: boolean | undefined }>> = failures
  return Object.hasOwn(rows, code) ? rows[code]?.retryable : undefined
}

async function askRetryable(gateway: GatewayClient, questionId: string, candidateId: string): Promise<boolean | undefined> {
  if (!isQuestionId(questionId)) return undefined
  const answer = await gateway.status(questionId, candidateId)
  return answer.kind === 'accepted' && answer.value.candidate_id === candidateId ? answer.value.failure?.retryable : undefined
}

function interrupted(signal: AbortSignal | undefined): ProposerError {
  if (signal?.reason instanceof ProposerError) return signal.reason
  return new InterruptedError('interrupted', 'stopped while polling', { hint: 'ask again with `proposer batch status`', retryable: true })
}
