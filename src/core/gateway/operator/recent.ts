/**
 * The newest candidates of a running gateway, and the way of each, from memory and the store's own
 * records. No signature, no raw bytes (R5).
 */
import type { Hex } from '../../ports.js'
import { type Candidate, type CandidateState, failures, instant } from '../../protocol/candidate.js'
import { outcomeOf } from '../../protocol/proposal.js'
import type { CandidateCheck, Ledger, Slot } from '../ledger/ledger.js'
import { submissionOf } from '../validation/progress.js'
import { signedAs } from './history.js'

export interface RecentParts {
  readonly ledger: Pick<Ledger, 'get' | 'slots' | 'onChange'>
  /** At least the newest of what the ledger holds, read once. */
  readonly entries: Iterable<{ readonly id: string; readonly sequence: number }>
  readonly slugOf: (questionId: Hex) => string | undefined
}

/** A candidate as one line of the list. Times RFC 3339. */
export interface RecentRow {
  readonly candidate_id: string
  readonly received_at: string
  readonly status: CandidateState
  /** How far its transaction is, where it has one. */
  readonly submission: string | null
  readonly failure_code: string | null
  readonly question_id: Hex
  readonly slug: string | null
  readonly outcome: string
  readonly proposer: string
}

/** One thing that happened. `at` is null where the store does not keep when. */
export interface RecentStep {
  readonly at: string | null
  readonly what: string
  /** A hash, a cause, a figure. */
  readonly detail: string | null
}

export interface RecentDetail extends RecentRow {
  readonly amount: string
  readonly permit_nonce: string
  readonly deadline: string
  readonly transaction_hash: Hex | null
  readonly steps: readonly RecentStep[]
}

export interface Recent {
  /**
   * The newest first. The same array as before where nothing has changed. Rejects with StorageError
   * where the store cannot be read.
   */
  rows(): Promise<readonly RecentRow[]>
  /**
   * Any candidate of the store; `undefined` where it has none of this id. Rejects as `rows` does.
   */
  detail(id: string): Promise<RecentDetail | undefined>
  stop(): void
}

/** As many as a page shows, so that memory does not grow with the store (R17). */
export const recentKept = 25

/** Follows the ledger from now on. Source: contract §5, robustness R5, R17. */
export function followRecent({ ledger, entries, slugOf }: RecentParts): Recent {
  let newest = newestOf(entries)
  const rows = new Map<string, RecentRow>()
  const checks = new Map<string, CandidateCheck>()
  let listed: readonly RecentRow[] | undefined

  const stop = ledger.onChange((events) => {
    for (const event of events) {
      if (event.kind === 'candidate.received') {
        newest = [event.candidate.id, ...newest].slice(0, recentKept)
        listed = undefined
      } else if ('id' in event && newest.includes(event.id)) {
        if (event.kind === 'candidate.checked') checks.set(event.id, event.check)
        rows.delete(event.id)
        listed = undefined
      }
    }
  })

  const rowOf = async (id: string): Promise<readonly RecentRow[]> => {
    const known = rows.get(id)
    if (known) return [known]
    const candidate = await ledger.get(id)
    if (!candidate) return []
    const row = recentRow(candidate, slugOf(candidate.round.questionId))
    rows.set(id, row)
    return [row]
  }

  return {
    async rows() {
      if (listed) return listed
      const shown = newest
      const now = (await Promise.all(shown.map(rowOf))).flat()
      for (const kept of [rows, checks])
        for (const id of kept.keys()) if (!newest.includes(id)) kept.delete(id)
      // A change that came meanwhile is for the next look.
      if (shown === newest && now.every((row) => rows.get(row.candidate_id) === row)) listed = now
      return now
    },
    async detail(id) {
      const candidate = await ledger.get(id)
      if (!candidate) return undefined
      const slot = ledger.slots().find(({ candidateIds }) => candidateIds.includes(id))
      return {
        ...recentRow(candidate, slugOf(candidate.round.questionId)),
        amount: candidate.amount,
        permit_nonce: candidate.nonce,
        deadline: candidate.deadline,
        transaction_hash: submissionOf(candidate.progress)?.transactionHash ?? null,
        steps: stepsOf(candidate, slot, checks.get(id)),
      }
    },
    stop,
  }
}

/** One pass, whatever the order: a million entries must not be sorted for the sake of a few. */
function newestOf(entries: RecentParts['entries']): readonly string[] {
  let kept: { readonly id: string; readonly sequence: number }[] = []
  let lowest = -1
  for (const { id, sequence } of entries) {
    if (sequence <= lowest) continue
    kept.push({ id, sequence })
    if (kept.length < 2 * recentKept) continue
    kept = byNewest(kept).slice(0, recentKept)
    lowest = kept.at(-1)?.sequence ?? -1
  }
  return byNewest(kept)
    .slice(0, recentKept)
    .map(({ id }) => id)
}

const byNewest = <T extends { readonly sequence: number }>(some: readonly T[]) =>
  [...some].sort((one, other) => other.sequence - one.sequence)

function recentRow(
  { id, round, proposer, price, receivedAtMs, progress }: Candidate,
  slug: string | undefined,
): RecentRow {
  return {
    candidate_id: id,
    received_at: instant(receivedAtMs),
    status: progress.status,
    submission: submissionOf(progress)?.status ?? null,
    failure_code: progress.status === 'failed' ? progress.failure.code : null,
    question_id: round.questionId,
    slug: slug ?? null,
    outcome: outcomeOf(price) ?? price,
    proposer,
  }
}

const signings = {
  first: 'signed',
  fee_bump: 'signed again at a higher fee',
  trim: 'signed again with fewer proposals',
  anew: 'signed anew, as no node took it',
  cancel: 'cancellation signed',
} as const

/**
 * The way of a candidate by its newest record, and by the open slot that carries it: `proposer
 * operator candidates explain` reads the whole log for more, which a gateway that serves has no
 * time for.
 */
function stepsOf(
  candidate: Candidate,
  slot: Slot | undefined,
  check: CandidateCheck | undefined,
): readonly RecentStep[] {
  const { progress } = candidate
  const submission = submissionOf(progress)
  const hash = submission?.transactionHash ?? null
  const steps: { atMs: number; step: RecentStep }[] = []
  const add = (atMs: number | null | undefined, what: string, detail: string | null = null) => {
    if (atMs !== null && atMs !== undefined)
      steps.push({ atMs, step: { at: instant(atMs), what, detail } })
  }
  add(candidate.receivedAtMs, 'received')
  if ('validatedAtMs' in progress) add(progress.validatedAtMs, 'validated')
  if ('selectedAtMs' in progress) add(progress.selectedAtMs, 'selected for execution')
  for (const [index, attempt] of (slot?.attempts ?? []).entries()) {
    const before = slot?.attempts[index - 1]
    const as = signedAs(attempt, before && { ...before, sent: before.sentAtMs !== null })
    add(attempt.preparedAtMs, `${signings[as]} under nonce ${slot?.nonce}`, attempt.hash)
  }
  add(submission?.submittedAtMs, 'submitted', hash)
  add(submission?.confirmedAtMs, 'confirmed')
  const { proposalEventIndex = null } = submission ?? {}
  add(
    submission?.indexedAtMs,
    'on the chain',
    proposalEventIndex === null ? null : `ProposePrice is log ${proposalEventIndex} of its block`,
  )
  // By time, and as written where times are equal or a wall clock went back by less than it can
  // tell (R13).
  const told = steps.sort((one, other) => one.atMs - other.atMs).map(({ step }) => step)
  const end = endOf(candidate, check)
  return end === undefined ? told : [...told, end]
}

/** What it came to, or what it waits for; neither has a time of its own in the store. */
function endOf({ progress }: Candidate, check: CandidateCheck | undefined): RecentStep | undefined {
  if (progress.status === 'failed') {
    const { stage, code, detail, retryable } = progress.failure
    const fate = retryable
      ? 'the same payload may still execute'
      : 'this payload cannot execute any more'
    return {
      at: null,
      what: `failed in ${stage}: ${code}`,
      detail: `${detail} (${fate}; next action: ${failures[code].nextAction})`,
    }
  }
  if (
    progress.status === 'executed' ||
    (check?.verdict !== 'wait' && check?.verdict !== 'operator')
  )
    return undefined
  return {
    at: null,
    what: check.verdict === 'wait' ? 'waits' : 'held up by the gateway',
    detail: check.detail,
  }
}
