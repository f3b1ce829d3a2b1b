/** Following candidates to their end (spec §4.1 rule 4, contract §5). */
import { ConflictError, FailedError, InterruptedError, PendingError, ProposerError, UnavailableError } from '../protocol/errors.js'
import type { CandidateStatus } from '../protocol/schema.js'
import { acceptedValue, answerError, gravest, maxRetryAfterMs, type RateLimit } from './answer.js'
import type { GatewayClient } from './gateway-client.js'
import type { Journal, JournalPorts } from './journal.js'
import { backoffMs, isAborted } from './retry.js'

export const stages = ['validated', 'selected', 'submitted', 'confirmed', 'indexed'] as const
export type Stage = (typeof stages)[number]

export interface PollTarget {
  readonly candidateId: string
  /** Question ID or slug: the status route needs it. */
  readonly identifier: string
}

export interface PollParts {
  readonly ports: Pick<JournalPorts, 'clock' | 'random'>
  readonly gateway: GatewayClient
  /** Terminal outcomes of candidates it knows are journaled. */
  readonly journal?: Journal
}

export interface PollOptions {
  /** Default: until executed or failed. */
  readonly until?: Stage
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
  /** Told each status that differs from the one before. */
  readonly onStatus?: (status: CandidateStatus) => void
  /** Told before a wait that a 429, 503 or a lost answer made longer. */
  readonly onWait?: (event: { reason: string; waitMs: number }) => void
}

export interface PollResult {
  /** Last known statuses, in the order of the targets; a target never answered is absent. */
  readonly candidates: readonly CandidateStatus[]
  /** The gravest: FailedError 7, PendingError 8, a refusal such as 404 (3), or UnavailableError 75 where nothing answered. */
  readonly error?: ProposerError
}

const firstPauseMs = 500
const longestPauseMs = 5_000
/** Without an answer this many times in a row: nobody is there. */
const maxSilent = 8

interface Followed {
  readonly target: PollTarget
  status?: CandidateStatus
  error?: ProposerError
  /** Nothing more is to be asked. */
  done: boolean
}

/**
 * Polls until every target ended or reached `until`, one status call each a pass; waits longer by Retry-After, by the budget that the
 * answers tell, and where nothing changes. Interrupted: `error` is an InterruptedError. Rejects for journal faults and bad arguments only.
 */
export async function pollCandidates(parts: PollParts, targets: readonly PollTarget[], options: PollOptions = {}): Promise<PollResult> {
  const { clock } = parts.ports
  const followed = targets.map((target): Followed => ({ target, done: false }))
  const endMs = options.timeoutMs === undefined ? Number.POSITIVE_INFINITY : clock.monotonicMs() + options.timeoutMs
  let pauseMs = firstPauseMs
  let silent = 0
  for (;;) {
    let changed = false
    let budget: RateLimit | undefined
    let trouble: { reason: string; waitMs: number } | undefined
    for (const one of followed) {
      if (one.done || trouble !== undefined || isAborted(options.signal)) continue
      const answer = await parts.gateway.status(one.target.identifier, one.target.candidateId, options)
      budget = answer.rateLimit ?? budget
      if (answer.kind === 'accepted') {
        silent = 0
        changed = (await settle(parts, one, answer.value, options)) || changed
      } else if (answer.kind === 'refused' || answer.kind === 'reconcile') {
        one.error = answerError(answer, 'read')
        one.done = true
      } else {
        silent++
        const told = answer.retryAfterMs ?? 0
        if (told > maxRetryAfterMs || silent >= maxSilent) return result(followed, answerError(answer, 'read'))
        trouble = { reason: answer.detail, waitMs: Math.max(told, backoffMs(parts.ports.random, silent)) }
      }
    }
    if (isAborted(options.signal)) return result(followed, interrupted(options.signal))
    const waiting = followed.filter((one) => !one.done)
    if (waiting.length === 0) return result(followed)
    pauseMs = changed ? firstPauseMs : Math.min(longestPauseMs, pauseMs * 1.5)
    const budgetMs = budget !== undefined && budget.remaining < waiting.length ? budget.resetSeconds * 1_000 : 0
    const waitMs = Math.max(pauseMs, budgetMs, trouble?.waitMs ?? 0)
    const leftMs = endMs - clock.monotonicMs()
    if (leftMs <= 0 || (trouble !== undefined && leftMs < waitMs)) return result(followed, timedOut(waiting, trouble?.reason))
    if (trouble !== undefined || budgetMs > pauseMs) options.onWait?.({ reason: trouble?.reason ?? 'the budget is spent', waitMs })
    try {
      await clock.sleep(Math.min(waitMs, leftMs), options.signal)
    } catch (error) {
      if (!isAborted(options.signal)) throw error
      return result(followed, interrupted(options.signal))
    }
  }
}

/** Whether a status has reached the stage, or ended. `undefined`: the end. */
export function hasReached(status: CandidateStatus, until: Stage | undefined): boolean {
  if (status.status === 'executed' || status.status === 'failed') return true
  if (until === undefined) return false
  return stageOf(status) >= stages.indexOf(until)
}

/** Index in `stages`, -1 before the first. */
function stageOf(status: CandidateStatus): number {
  switch (status.submission?.status) {
    case 'indexed':
      return 4
    case 'confirmed':
      return 3
    case 'submitted':
      return 2
    default:
      return status.status === 'selected' ? 1 : status.status === 'validated' ? 0 : -1
  }
}

/** One status now (`status`); journals a terminal outcome. Throws the answer's error. */
export async function statusOnce(parts: PollParts, target: PollTarget, options: { signal?: AbortSignal } = {}): Promise<CandidateStatus> {
  const status = checkedStatus(target, acceptedValue(await parts.gateway.status(target.identifier, target.candidateId, options)))
  await journalEnd(parts.journal, status)
  return status
}

/** FailedError (exit 7) of a failed candidate: code, detail and what to do next. */
export function failedError(status: CandidateStatus): FailedError {
  const { failure, candidate_id: id } = status
  if (failure === null) return new FailedError('failed', `candidate ${id} failed`, { hint: 'ask the operator for the reason' })
  return new FailedError(failure.code, `candidate ${id} failed at ${failure.stage}: ${failure.detail}`, {
    hint: nextActions[failure.next_action] ?? `next: ${failure.next_action}`,
    retryable: failure.retryable,
  })
}

const nextActions: Readonly<Record<string, string>> = {
  none: 'nothing is left to do',
  wait: 'wait, then look at the status again',
  replay_same_payload: 'send the same payload again with `proposer replay`',
  fund_wallet: 'fund the wallet, then send the same payload again with `proposer replay`',
  approve_permit2: 'approve Permit2 for the token, then send the same payload again with `proposer replay`',
  sign_new_authorization: 'sign anew with `proposer submit`',
  wait_for_new_round: 'wait for a new round; `proposer reconcile <identifier>` shows the state',
  contact_operator: 'contact the operator with the candidate id',
}

async function settle(parts: PollParts, one: Followed, told: CandidateStatus, options: PollOptions): Promise<boolean> {
  const status = checkedStatus(one.target, told)
  const changed = JSON.stringify(status) !== JSON.stringify(one.status)
  one.status = status
  if (changed) options.onStatus?.(status)
  await journalEnd(parts.journal, status)
  if (status.status === 'failed') one.error = failedError(status)
  one.done = hasReached(status, options.until)
  return changed
}

/** An answer about another candidate than the one asked for is no answer. */
function checkedStatus(target: PollTarget, status: CandidateStatus): CandidateStatus {
  if (status.candidate_id === target.candidateId) return status
  throw new ConflictError(
    'candidate_mismatch',
    `the gateway answered about candidate ${status.candidate_id} instead of ${target.candidateId}`,
    {
      hint: 'do not trust this gateway until the operator has explained it',
    },
  )
}

/** Journals an end once, for authorizations that this home knows. */
async function journalEnd(journal: Journal | undefined, status: CandidateStatus): Promise<void> {
  if (journal === undefined || (status.status !== 'executed' && status.status !== 'failed')) return
  const known = (await journal.load()).byCandidate(status.candidate_id)
  if (known === undefined) return
  const code = status.failure?.code
  if (known.terminal?.outcome === status.status && known.terminal.code === code) return
  await journal.append([
    {
      kind: 'terminal',
      data: {
        id: known.id,
        outcome: status.status,
        ...(status.failure === null ? {} : { code: status.failure.code, retryable: status.failure.retryable }),
        transaction_hash: status.submission?.transaction_hash ?? null,
      },
    },
  ])
}

function result(followed: readonly Followed[], last?: ProposerError): PollResult {
  const error = gravest([...followed.map((one) => one.error), last])
  const candidates = followed.flatMap(({ status }) => (status === undefined ? [] : [status]))
  return error === undefined ? { candidates } : { candidates, error }
}

function timedOut(waiting: readonly Followed[], trouble: string | undefined): ProposerError {
  if (trouble !== undefined && waiting.every(({ status }) => status === undefined)) {
    return new UnavailableError('no_status', `the time ran out before any status was learned: ${trouble}`, {
      hint: 'check the gateway address, then run the same command again',
    })
  }
  const [first] = waiting
  const where = first?.status === undefined ? 'not known' : first.status.status
  const what = waiting.length === 1 ? `candidate ${first?.target.candidateId} is ${where}` : `${waiting.length} candidates are on their way`
  return new PendingError('still_pending', `the time ran out: ${what}`, { hint: 'poll again with `proposer poll`', retryable: true })
}

function interrupted(signal: AbortSignal | undefined): ProposerError {
  if (signal?.reason instanceof ProposerError) return signal.reason
  return new InterruptedError('interrupted', 'stopped while polling', { hint: 'poll again with `proposer poll`', retryable: true })
}
