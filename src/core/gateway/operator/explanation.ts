/**
 * The answer to "what happened to my proposal?": one document from the records of a store, for
 * people and programs alike (contract §6). Neither signatures nor raw transactions are part of it
 * (R5).
 */
import { type Candidate, failures, instant } from '../../protocol/candidate.js'
import { outcomeOf } from '../../protocol/proposal.js'
import type { LedgerState } from '../ledger/state.js'
import { submissionOf } from '../validation/progress.js'
import type { History, HistoryEvent } from './history.js'

export interface ExplanationFacts {
  readonly nowMs: number
  readonly slug: string | undefined
  readonly service: Service
  readonly pipelineEnabled: boolean
  readonly executorEnabled: boolean
  /** As the chain tells it, where it could be asked. */
  readonly token: { readonly symbol: string; readonly decimals: number } | undefined
}

/**
 * Who works on the store now. `reasons`: what its /readyz gives; `undefined` where it did not
 * answer.
 */
export type Service =
  | { readonly kind: 'none' }
  | { readonly kind: 'held'; readonly by: string }
  | { readonly kind: 'serves'; readonly reasons: readonly string[] | undefined }

/** What is to come, and who has to do what for it; `null` where nothing is. */
export interface NextSteps {
  readonly expected: string
  readonly proposer: string | null
  readonly operator: string | null
}

/** The document. Amounts in raw units, fees in wei, as decimal strings; times RFC 3339. */
export function explain(
  history: History,
  candidate: Candidate,
  state: LedgerState,
  facts: ExplanationFacts,
) {
  const { id, round, proposer, price, amount, nonce, deadline, sequence, progress } = candidate
  const rivals = [...state.entries.values()]
    .filter((entry) => entry.roundKey === round.key && entry.id !== id)
    .map((entry) => ({
      candidate_id: entry.id,
      sequence: entry.sequence,
      status: entry.status,
      is_before: entry.sequence < sequence,
    }))
    .sort((one, other) => one.sequence - other.sequence)
  const slot = state.slotOf.get(id)
  return {
    candidate_id: id,
    sequence,
    question_id: round.questionId,
    slug: facts.slug ?? null,
    round: {
      timestamp: round.timestamp,
      opened_at: secondsText(round.timestamp),
      requester: round.requester,
      oracle: round.oracle,
    },
    proposer,
    outcome: outcomeOf(price) ?? null,
    price,
    amount,
    token: facts.token ?? null,
    permit_nonce: nonce,
    deadline: secondsText(deadline),
    deadline_in_seconds: Math.floor(Number(deadline) - facts.nowMs / 1000),
    received_at: instant(candidate.receivedAtMs),
    status: progress.status,
    submission: submissionOf(progress)?.status ?? null,
    transaction_hash: submissionOf(progress)?.transactionHash ?? null,
    executor_nonce: slot?.nonce ?? null,
    rivals,
    events: history.events.map(eventJson),
    next: nextSteps(history, candidate, rivals, slot !== undefined, facts),
  }
}
export type Explanation = ReturnType<typeof explain>

const secondsText = (seconds: string): string => {
  const ms = Number(seconds) * 1000
  return Math.abs(ms) <= 8.64e15 ? instant(ms) : seconds
}

/** An event on the wire: `{at, event, …facts}`. */
function eventJson(event: HistoryEvent) {
  const at = event.atMs === undefined ? null : instant(event.atMs)
  const { atMs: _atMs, kind, ...rest } = event
  return { at, event: kind, ...snaked(rest) }
}
export type ExplainedEvent = {
  readonly at: string | null
  readonly event: HistoryEvent['kind']
} & Readonly<Record<string, unknown>>

/** Keys as the wire has them; the figures of a check have theirs already. */
function snaked(value: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, each]) => each !== undefined)
      .map(([key, each]) => [
        key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
        typeof each === 'object' && each !== null && !Array.isArray(each)
          ? snaked(each as object)
          : each,
      ]),
  )
}

type Rival = { readonly candidate_id: string; readonly status: string; readonly is_before: boolean }

function nextSteps(
  history: History,
  candidate: Candidate,
  rivals: readonly Rival[],
  inSlot: boolean,
  facts: ExplanationFacts,
): NextSteps {
  const { progress } = candidate
  if (progress.status === 'failed') return afterFailure(history, candidate, inSlot)
  if (progress.status === 'executed') {
    return inSlot
      ? {
          expected: 'The proposal is on the chain; it is final once its block is.',
          proposer: null,
          operator: null,
        }
      : {
          expected:
            'nothing; the proposal is on the chain for good, and disputes are for the oracle to settle.',
          proposer: null,
          operator: null,
        }
  }
  const waits = whyWaiting(history, candidate, rivals, facts)
  const proposer =
    facts.nowMs / 1000 > Number(candidate.deadline)
      ? 'The permit deadline has passed: sign a new authorization once this one has failed.'
      : 'Wait, and poll the status; sign nothing else for this round.'
  return { ...heldUp(waits, facts.service), proposer }
}

interface Waiting {
  readonly expected: string
  readonly operator: string | null
}

/** What holds up the whole gateway holds up this candidate too, whatever its own records say. */
function heldUp({ expected, operator }: Waiting, service: Service): Waiting {
  switch (service.kind) {
    case 'none':
      return {
        expected: `${expected} Not before a gateway runs: nothing serves this store.`,
        operator: 'Nothing serves this store: start it with `proposer serve`.',
      }
    case 'held':
      return {
        expected,
        operator:
          operator ?? `The store is held by ${service.by}: whether that executes shows there.`,
      }
    case 'serves': {
      if (service.reasons === undefined)
        return {
          expected,
          operator: operator ?? 'The gateway does not answer: look at its process and its log.',
        }
      // A cause that the newest check names already is said once.
      const more = service.reasons.filter((reason) => operator?.includes(reason) !== true)
      const wholly =
        more.length === 0 ? expected : `${expected} The gateway is held up: ${more.join('; ')}.`
      const rights = [
        ...(operator === null ? [] : [operator]),
        ...(more.length === 0 ? [] : [`Put this right: ${more.join('; ')}.`]),
      ]
      return { expected: wholly, operator: rights.length === 0 ? null : rights.join(' ') }
    }
  }
}

function whyWaiting(
  { check }: History,
  { progress }: Candidate,
  rivals: readonly Rival[],
  facts: ExplanationFacts,
): Waiting {
  const off = (key: string, stage: string) => ({
    expected: `It stays ${stage}: ${key} is false in the configuration.`,
    operator: `Set ${key} to true and start the gateway again, if it shall go on.`,
  })
  if (!facts.pipelineEnabled) return off('pipeline.enabled', progress.status)
  const held =
    check?.verdict === 'operator' || check?.verdict === 'wait'
      ? (check.detail ?? undefined)
      : undefined
  const fault = check?.verdict === 'operator' ? `Put this right: ${held ?? 'see /readyz'}.` : null
  switch (progress.status) {
    case 'received':
      return {
        expected:
          held === undefined
            ? 'Validation against the chain.'
            : `Validation again with a later block: ${held}`,
        operator: fault,
      }
    case 'validated': {
      const first =
        rivals.find(({ status }) => status === 'selected' || status === 'executed') ??
        rivals.find(isAhead)
      if (first === undefined) return { expected: 'Selection for execution.', operator: null }
      return {
        expected: `It stands in: candidate ${first.candidate_id} (${first.status}) is before it in this round. If that one dies without a transaction that can still be mined, this one is next; else it ends as not_selected.`,
        operator: null,
      }
    }
    default:
      if (!facts.executorEnabled) return off('executor.enabled', 'selected')
      return { expected: afterSelection(progress, held), operator: fault }
  }
}

const isAhead = ({ status, is_before }: Rival) =>
  is_before && (status === 'received' || status === 'validated')

function afterSelection(progress: Candidate['progress'], held: string | undefined): string {
  switch (submissionOf(progress)?.status) {
    case undefined:
      return held === undefined
        ? 'A transaction that carries it.'
        : `A transaction, once this is over: ${held}`
    case 'prepared':
      return 'Sending of the signed transaction.'
    case 'submitted':
      return 'Its transaction is mined and confirmed; a higher fee is tried where that takes long.'
    case 'confirmed':
      return 'Its ProposePrice event is matched (indexed).'
    case 'reverted':
      return 'Its transaction has reverted; once that is final the cause is told, or it stands in again.'
    default:
      return 'The transaction goes without it; once that is final it stands in again, or ends.'
  }
}

/** A rejection may come too late: then the chain has the proposal all the same. */
function minedAfterAll({ events }: History): boolean {
  const carrying = new Set(
    events.flatMap((event) =>
      event.kind === 'signed' && event.attempt.kind === 'propose' ? event.attempt.hash : [],
    ),
  )
  return events.some(
    (event) =>
      event.kind === 'nonce_settled' &&
      event.outcome === 'executed' &&
      event.hash !== null &&
      carrying.has(event.hash),
  )
}

function afterFailure(history: History, candidate: Candidate, inSlot: boolean): NextSteps {
  const { id, progress, round } = candidate
  if (progress.status !== 'failed') throw new RangeError(`candidate ${id} has not failed`)
  const { code, retryable } = progress.failure
  const action = failures[code].nextAction
  if (code === 'operator_rejected' && minedAfterAll(history)) {
    return {
      expected:
        'nothing; its transaction was mined before it could be taken back: the proposal is on the chain.',
      proposer: 'The proposal stands on the chain; sign nothing else for this round.',
      operator: 'Tell the proposer; what is on the chain can only be disputed there.',
    }
  }
  const again = retryable ? ' Then send the same payload again: it may still execute.' : ''
  const byAction: Readonly<Record<string, readonly [string, string | null]>> = {
    fund_wallet: [`Fund the wallet ${candidate.proposer}.${again}`, null],
    approve_permit2: [`Let Permit2 move the token (\`proposer funds approve\`).${again}`, null],
    sign_new_authorization: ['Sign a new authorization; this one cannot execute any more.', null],
    wait_for_new_round: [
      `Wait for a new round of question ${round.questionId}, then sign for it.`,
      null,
    ],
    contact_operator: [
      retryable
        ? `Ask the operator.${again}`
        : 'Ask the operator; this authorization cannot execute any more.',
      code === 'operator_rejected'
        ? 'Tell the proposer why; nothing else is left to do.'
        : 'Look at the cause above, put it right, and tell the proposer.',
    ],
  }
  const [proposer, operator] = byAction[action] ?? ['Look at the failure above.', null]
  const rest = inSlot
    ? ' Its transaction is being taken back, and may still be mined until that is final.'
    : ''
  return {
    expected: `${retryable ? 'nothing until the same payload comes again.' : 'nothing; it has ended.'}${rest}`,
    proposer,
    operator,
  }
}
