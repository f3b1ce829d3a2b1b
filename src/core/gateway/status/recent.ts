/**
 * The newest candidates of a running gateway, and the steps of each, from memory and the store's
 * own records. No signature, no raw bytes (R5).
 */
import type { Hex } from '../../ports.js'
import { type Candidate, instant } from '../../protocol/candidate.js'
import type { CandidateCheck, Ledger, Slot } from '../ledger/ledger.js'
import { signedAs } from '../ledger/slots.js'
import { type CandidateRow, candidateRow } from './listing.js'
import { progressEvents, type TimelineEvent } from './timeline.js'

/** A candidate as one line of the list. */
export type RecentRow = Pick<
  CandidateRow,
  | 'candidate_id'
  | 'received_at'
  | 'status'
  | 'submission'
  | 'failure_code'
  | 'question_id'
  | 'slug'
  | 'proposer'
> & { readonly outcome: string }

/** One thing that happened. `at` is null where the store does not keep when. */
export interface RecentStep {
  readonly at: string | null
  readonly what: string
  /** A hash, a cause, a figure. */
  readonly detail: string | null
}

export type RecentDetail = RecentRow &
  Pick<CandidateRow, 'amount' | 'permit_nonce' | 'deadline' | 'transaction_hash'> & {
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
export function followRecent(
  ledger: Pick<Ledger, 'get' | 'newest' | 'slotOf' | 'onChange'>,
  slugOf: (questionId: Hex) => string | undefined,
): Recent {
  let newest = [...ledger.newest(recentKept)].map(({ id }) => id)
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
    const row = recentRow(candidateRow(candidate, slugOf(candidate.round.questionId)))
    rows.set(id, row)
    return [row]
  }

  return {
    async rows() {
      if (listed) return listed
      const ids = newest
      const now = (await Promise.all(ids.map(rowOf))).flat()
      for (const kept of [rows, checks])
        for (const id of kept.keys()) if (!newest.includes(id)) kept.delete(id)
      // A change that came meanwhile is for the next look.
      if (ids === newest && now.every((row) => rows.get(row.candidate_id) === row)) listed = now
      return now
    },
    async detail(id) {
      const candidate = await ledger.get(id)
      if (!candidate) return undefined
      const row = candidateRow(candidate, slugOf(candidate.round.questionId))
      const { amount, permit_nonce, deadline, transaction_hash } = row
      const steps = stepsOf(candidate, ledger.slotOf(id), checks.get(id))
      return { ...recentRow(row), amount, permit_nonce, deadline, transaction_hash, steps }
    },
    stop,
  }
}

const recentRow = ({
  candidate_id,
  received_at,
  status,
  submission,
  failure_code,
  question_id,
  slug,
  outcome,
  price,
  proposer,
}: CandidateRow): RecentRow => ({
  candidate_id,
  received_at,
  status,
  submission,
  failure_code,
  question_id,
  slug,
  outcome: outcome ?? price,
  proposer,
})

const signings = {
  first: 'signed',
  fee_bump: 'signed again at a higher fee',
  trim: 'signed again with fewer proposals',
  anew: 'signed again, as no node took it',
  cancel: 'cancellation signed',
} as const

/**
 * The steps of a candidate by its newest record, and by the open slot that carries it. `proposer
 * operator candidates explain` reads the whole log for more, which a gateway that serves has no
 * time for.
 */
function stepsOf(
  { receivedAtMs, progress }: Candidate,
  slot: Slot | undefined,
  check: CandidateCheck | undefined,
): readonly RecentStep[] {
  const signed = (slot?.attempts ?? []).map((attempt) => ({
    atMs: attempt.preparedAtMs,
    what: `${slot ? signings[signedAs(slot, attempt)] : ''} under nonce ${slot?.nonce}`,
    detail: attempt.hash,
  }))
  const events = progressEvents(progress)
  const early = events.filter(({ kind }) => kind === 'validated' || kind === 'selected').length
  const texts = events.map((event) => ({ atMs: event.atMs, ...textOf(event) }))
  // By time, and as written where times are equal or a wall clock went back by less than it can
  // tell (R13).
  const steps = [
    { atMs: receivedAtMs, what: 'received', detail: null },
    ...texts.slice(0, early),
    ...signed,
    ...texts.slice(early),
  ]
    .sort((one, other) => timeOf(one) - timeOf(other))
    .map(({ atMs, ...text }) => ({ at: atMs === undefined ? null : instant(atMs), ...text }))
  const isHeldUp = check?.verdict === 'wait' || check?.verdict === 'operator'
  if (progress.status === 'executed' || progress.status === 'failed' || !isHeldUp) return steps
  const what = check.verdict === 'wait' ? 'waits' : 'held up by the gateway'
  return [...steps, { at: null, what, detail: check.detail }]
}

/** What has no time of its own in the store comes last. */
const timeOf = ({ atMs = Number.MAX_VALUE }: { readonly atMs: number | undefined }) => atMs

function textOf(event: TimelineEvent): Pick<RecentStep, 'what' | 'detail'> {
  switch (event.kind) {
    case 'selected':
      return { what: 'selected for execution', detail: null }
    case 'submitted':
      return { what: 'submitted', detail: event.hash }
    case 'indexed': {
      const { eventIndex } = event
      const where = `ProposePrice is log ${eventIndex} of its block`
      return { what: 'on the chain', detail: eventIndex === null ? null : where }
    }
    case 'failed':
    case 'rejected': {
      const { stage, code, detail, retryable } = event.failure
      const fate = retryable
        ? 'the same payload may still execute'
        : 'this payload cannot execute any more'
      return {
        what: `failed in ${stage}: ${code}`,
        detail: `${detail} (${fate}; next action: ${event.nextAction})`,
      }
    }
    default:
      return { what: event.kind, detail: null }
  }
}
