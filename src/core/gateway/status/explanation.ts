import { type Candidate, type CandidateFailure, instant } from '#protocol/candidate'
import { failures } from '#protocol/codes'
import { labelIn } from '#protocol/outcome-words'
import { pick } from '#protocol/pick'
import type { Outcome } from '#protocol/schema'
import type { LedgerFacts } from '../ledger/ledger.js'
import { submissionOf } from '../validation/validation.js'
import { candidateRow, type Timeline, type TimelineEvent } from './timeline.js'

interface ExplanationFacts {
  readonly nowMs: number
  readonly slug: string | undefined
  readonly service: ServiceState
  readonly pipelineEnabled: boolean
  readonly executorEnabled: boolean
  readonly token: { readonly symbol: string; readonly decimals: number } | undefined
  readonly outcomes?: readonly Pick<Outcome, 'outcome' | 'label'>[] | undefined
}

export type ServiceState =
  | { readonly kind: 'none' }
  | { readonly kind: 'held'; readonly by: string }
  | { readonly kind: 'serves'; readonly reasons: readonly string[] | undefined }

export function explain(
  timeline: Timeline,
  candidate: Candidate,
  ledger: Pick<LedgerFacts, 'byRound' | 'slotOf'>,
  facts: ExplanationFacts,
) {
  const { id, round, deadline, sequence } = candidate
  const row = candidateRow(candidate, facts.slug)
  const rivals = ledger
    .byRound(round.key)
    .filter((entry) => entry.id !== id)
    .map((entry) => ({
      candidate_id: entry.id,
      sequence: entry.sequence,
      status: entry.status,
      is_before: entry.sequence < sequence,
    }))
  const slot = ledger.slotOf(id)
  return {
    ...pick(row, 'candidate_id', 'sequence', 'question_id', 'slug'),
    round: {
      timestamp: round.timestamp,
      opened_at: secondsText(round.timestamp),
      requester: round.requester,
      oracle: round.oracle,
    },
    ...pick(row, 'proposer', 'outcome'),
    label: labelIn(facts.outcomes, row.outcome),
    ...pick(row, 'price', 'amount'),
    token: facts.token ?? null,
    permit_nonce: row.permit_nonce,
    deadline: secondsText(deadline),
    deadline_in_seconds: Math.floor(Number(deadline) - facts.nowMs / 1000),
    ...pick(row, 'received_at', 'status', 'submission', 'transaction_hash'),
    executor_nonce: slot?.nonce ?? null,
    rivals,
    events: timeline.events.map(eventJson),
    next: nextSteps(timeline, candidate, rivals, slot !== undefined, facts),
  }
}
export type Explanation = ReturnType<typeof explain>

const secondsText = (seconds: string) => {
  const ms = Number(seconds) * 1000
  return Math.abs(ms) <= 8.64e15 ? instant(ms) : seconds
}

function eventJson({ atMs, kind, ...facts }: TimelineEvent) {
  return { at: atMs === undefined ? null : instant(atMs), event: kind, ...snakeCased(facts) }
}
function snakeCased(value: object): Record<string, unknown> {
  const isObject = (each: unknown): each is object =>
    typeof each === 'object' && each !== null && !Array.isArray(each)
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, each]) => each !== undefined)
      .map(([key, each]) => [
        key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
        isObject(each) ? snakeCased(each) : each,
      ]),
  )
}

type Rival = Readonly<{ candidate_id: string; status: string; is_before: boolean }>

function nextSteps(
  timeline: Timeline,
  candidate: Candidate,
  rivals: readonly Rival[],
  inSlot: boolean,
  facts: ExplanationFacts,
) {
  const { progress } = candidate
  if (progress.status === 'failed')
    return afterFailure(timeline, candidate, progress.failure, inSlot)
  if (progress.status === 'executed') {
    const expected = inSlot
      ? 'The proposal is on the chain; it is final once its block is.'
      : 'nothing; the proposal is final on the chain, and disputes are settled by the oracle.'
    return { expected, proposer: null, operator: null }
  }
  const proposer =
    facts.nowMs / 1000 > Number(candidate.deadline)
      ? 'The permit deadline has passed: sign a new authorization once this one has failed.'
      : 'Wait, and poll the status; sign nothing else for this round.'
  return { ...withService(whyWaiting(timeline, candidate, rivals, facts), facts.service), proposer }
}

function withService({ expected, operator }: ReturnType<typeof whyWaiting>, service: ServiceState) {
  if (service.kind === 'none')
    return {
      expected: `${expected} No gateway serves this store, so nothing happens yet.`,
      operator: 'No gateway serves this store: start one with `proposer serve`.',
    }
  if (service.kind === 'held') {
    const look = `The store is in use by ${service.by}: look there to see whether it executes.`
    return { expected, operator: operator ?? look }
  }
  if (service.reasons === undefined) {
    const look = 'The gateway does not respond: check its process and its log.'
    return { expected, operator: operator ?? look }
  }
  const more = service.reasons.filter((reason) => !operator?.includes(reason)).join('; ')
  if (more === '') return { expected, operator }
  return {
    expected: `${expected} The gateway is blocked: ${more}.`,
    operator: `${operator === null ? '' : `${operator} `}Fix this: ${more}.`,
  }
}

const switchedOff = (key: string, stage: string) => ({
  expected: `It stays ${stage}: ${key} is false in the configuration.`,
  operator: `To continue, set ${key} to true and restart the gateway.`,
})

function whyWaiting(
  { check }: Timeline,
  { progress }: Candidate,
  rivals: readonly Rival[],
  facts: ExplanationFacts,
) {
  if (!facts.pipelineEnabled) return switchedOff('pipeline.enabled', progress.status)
  const isHeldUp = check?.verdict === 'operator' || check?.verdict === 'wait'
  const cause = isHeldUp ? check.detail : null
  const operator = check?.verdict === 'operator' ? `Fix this: ${cause ?? 'see /readyz'}.` : null
  if (progress.status === 'received') {
    const expected = cause
      ? `Validation again with a later block: ${cause}`
      : 'Validation against the chain.'
    return { expected, operator }
  }
  if (progress.status === 'validated') {
    const expected = cause ? `Selection, once this is resolved: ${cause}` : selectionAfter(rivals)
    return { expected, operator: null }
  }
  if (!facts.executorEnabled) return switchedOff('executor.enabled', 'selected')
  const status = submissionOf(progress)?.status
  const expected =
    status === undefined && cause
      ? `A transaction, once this is resolved: ${cause}`
      : afterSelection[status ?? 'none']
  return { expected, operator }
}

function selectionAfter(rivals: readonly Rival[]) {
  const first =
    rivals.find(({ status }) => status === 'selected' || status === 'executed') ??
    rivals.find(({ status, is_before }) => is_before && status !== 'failed')
  return first === undefined
    ? 'Selection for execution.'
    : `On standby: candidate ${first.candidate_id} (${first.status}) is ahead of it in this round. If that one fails without a transaction that can still be mined, this one is next; otherwise it ends as not_selected.`
}

const dropped =
  'The transaction continues without it; once that is final, it is on standby again, or ends.'
const afterSelection = {
  none: 'A transaction that carries it.',
  prepared: 'Sending of the signed transaction.',
  submitted: 'Its transaction is mined and confirmed; if that takes long, a higher fee is tried.',
  confirmed: 'Its ProposePrice event is matched (indexed).',
  reverted:
    'Its transaction has reverted; once that is final, the cause is reported, or it is on standby again.',
  dropped,
  indexed: dropped,
} as const

/** A rejection may come too late: then the chain has the proposal all the same. */
function wasMinedAfterAll({ events }: Timeline) {
  const settled = events.flatMap((event) =>
    event.kind === 'nonce_settled' && event.outcome === 'executed' ? event.hash : [],
  )
  return events.some(
    (event) =>
      event.kind === 'signed' &&
      event.attempt.kind === 'propose' &&
      settled.includes(event.attempt.hash),
  )
}

function afterFailure(
  timeline: Timeline,
  { proposer, round }: Candidate,
  { code, retryable }: CandidateFailure,
  inSlot: boolean,
) {
  const isRejected = code === 'operator_rejected'
  if (isRejected && wasMinedAfterAll(timeline))
    return {
      expected:
        'nothing; its transaction was mined before it could be cancelled: the proposal is on the chain.',
      proposer: 'The proposal is on the chain; sign nothing else for this round.',
      operator: 'Tell the proposer; what is on the chain can only be disputed there.',
    }
  const again = retryable ? ' Then send the same payload again: it may still execute.' : ''
  const advice: Readonly<Record<string, string>> = {
    fund_wallet: `Fund the wallet ${proposer}.${again}`,
    approve_permit2: `Approve Permit2 for the token (\`proposer funds approve\`).${again}`,
    sign_new_authorization: 'Sign a new authorization; this one cannot execute any more.',
    wait_for_new_round: `Wait for a new round of question ${round.questionId}, then sign for it.`,
    contact_operator: retryable
      ? `Ask the operator.${again}`
      : 'Ask the operator; this authorization can no longer execute.',
  }
  const action = failures[code].nextAction
  const forOperator = isRejected
    ? 'Tell the proposer why; there is nothing else to do.'
    : 'Fix the cause above, and tell the proposer.'
  const rest = inSlot
    ? ' Its transaction is being cancelled, and may still be mined until that is final.'
    : ''
  return {
    expected: `${retryable ? 'nothing until the same payload is sent again.' : 'nothing; it has ended.'}${rest}`,
    proposer: advice[action] ?? 'See the failure above.',
    operator: action === 'contact_operator' ? forOperator : null,
  }
}
