import { instant } from '../../protocol/candidate.js'
import { outcomeOf } from '../../protocol/proposal.js'
import {
  type Attempt,
  type AuthorizationState,
  type ClosedReason,
  classOf,
  isOfferOpen,
  type JournaledAuthorization,
  labelOf,
  type Offer,
  stateOf,
} from './authorizations.js'

/** Raw token units, UTC. No signature is part of it (R5). */
export function journalRow(one: JournaledAuthorization | Offer, nowMs: number) {
  const record = 'signed' in one ? one.signed : one.offered
  const authorization = 'signed' in one ? one : undefined
  const { candidateId, receivedAt, signedAtMs, terminal, terminalAtMs } = authorization ?? {}
  const { proposer, price, amount, nonce, deadline } = record.terms
  const executed = one.terminals.find(({ outcome }) => outcome === 'executed')
  return {
    journal_id: one.id,
    ...stateRow(one, nowMs),
    question_id: record.questionId,
    identifier: record.identifier,
    title: record.title ?? null,
    client_ref: record.clientRef ?? null,
    chain_id: record.chainId,
    round: record.timestamp ?? null,
    proposer,
    outcome: outcomeOf(price) ?? null,
    label: labelOf(record),
    price,
    amount,
    token: record.token ?? null,
    nonce,
    deadline,
    digest: record.digest ?? null,
    candidate_id: candidateId ?? null,
    signed_at: instantOf(signedAtMs),
    received_at: receivedAt ?? null,
    ended_at: instantOf(terminalAtMs),
    transaction_hash: (authorization && (executed ?? terminal)?.transaction_hash) ?? null,
    supersedes: record.supersedes ?? null,
    superseded_by: one.supersededBy ?? null,
    ...('parts' in one && one.parts.length > 0
      ? { owners_signed: one.parts.map(({ owner }) => owner) }
      : {}),
  }
}

interface StateRow {
  readonly state: AuthorizationState['kind'] | 'offered'
  readonly reason: ClosedReason | null
  readonly code: string | null
}

function stateRow(one: JournaledAuthorization | Offer, nowMs: number): StateRow {
  if ('signed' in one) {
    const state = stateOf(one, nowMs)
    return {
      state: state.kind,
      reason: 'reason' in state ? state.reason : null,
      code: 'code' in state ? (state.code ?? null) : null,
    }
  }
  if (isOfferOpen(one, nowMs)) return { state: 'offered', reason: null, code: null }
  return { state: 'closed', reason: one.terminals.at(-1)?.outcome ?? 'expired', code: null }
}

export const instantOf = (ms: number | undefined): string | null =>
  ms === undefined ? null : instant(ms)

export const attemptRow = ({ start, startedAtMs, end, receipt }: Attempt) => ({
  started_at: instant(startedAtMs),
  origin: start.origin,
  class: classOf({ start, startedAtMs, end }),
  http_status: end?.status ?? null,
  code: end?.code ?? null,
  receipt: receipt === undefined ? null : { result: receipt.result, code: receipt.code ?? null },
})

export const originsOf = (one: JournaledAuthorization | Offer): readonly string[] =>
  'signed' in one ? [...new Set(one.attempts.map(({ start }) => start.origin))] : []
