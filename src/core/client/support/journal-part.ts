/**
 * What a support bundle says of the journal (contract §6, `support-bundle`): an allow-list of
 * fields (R5). No payload, no signature and no digest. The permit nonce is in it: it is no secret,
 * the chain shows it once used, it gives no power without the signature, and whether its bit is set
 * is what support looks at first.
 */
import { instant } from '../../protocol/candidate.js'
import { outcomeOf } from '../../protocol/proposal.js'
import {
  type Attempt,
  type Authorization,
  classOf,
  isOfferOpen,
  type Offer,
  stateOf,
} from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'

/** Narrows what is told; both bounds hold together. */
export interface Wanted {
  /** A question id, or the identifier as it was asked for. */
  readonly question?: string
  /** Unix milliseconds: what was signed, given out or last sent before it is left out. */
  readonly sinceMs?: number
}

/** The newest so many are told (R17); a question or a time narrows further. */
export const bundleLimit = 1_000
/** Attempts of one authorization, the newest. */
const attemptLimit = 20

/**
 * Authorizations and offers as rows, newest last. `left_out`: how many more are wanted and were too
 * many. Throws nothing.
 */
export function journalPart(
  view: Pick<JournalView, 'authorizations' | 'offers'>,
  wanted: Wanted,
  nowMs: number,
) {
  const authorizations = view.authorizations.filter((one) =>
    isWanted(one.signed, lastMsOf(one), wanted),
  )
  const offers = view.offers.filter((one) => isWanted(one.offered, one.offered.offeredAtMs, wanted))
  const rows = [
    ...offers.slice(-bundleLimit).map((one) => offerRow(one, nowMs)),
    ...authorizations.slice(-bundleLimit).map((one) => authorizationRow(one, nowMs)),
  ].slice(-bundleLimit)
  return { authorizations: rows, left_out: authorizations.length + offers.length - rows.length }
}

/** The payloads' signatures: what must not be in a bundle, by their kind for people. */
export function journalSignatures(view: Pick<JournalView, 'authorizations'>): readonly string[] {
  return view.authorizations.flatMap(({ signed }) => {
    // In the body alone (journal records, `signed`); both forms of payload name it so.
    const found = /"signature"\s*:\s*"(0x[0-9a-f]+)"/i.exec(signed.body)?.[1]
    return found === undefined ? [] : [found]
  })
}

const lastMsOf = ({ signedAtMs, attempts, terminalAtMs = 0 }: Authorization): number =>
  Math.max(
    signedAtMs,
    terminalAtMs,
    ...attempts.slice(-attemptLimit).map(({ startedAtMs }) => startedAtMs),
  )

function isWanted(
  record: { readonly questionId: string; readonly identifier: string },
  lastMs: number,
  { question, sinceMs }: Wanted,
) {
  if (question !== undefined && record.questionId !== question && record.identifier !== question)
    return false
  return sinceMs === undefined || lastMs >= sinceMs
}

function authorizationRow(one: Authorization, nowMs: number) {
  const state = stateOf(one, nowMs)
  const executed = one.terminals.find(({ outcome }) => outcome === 'executed')
  const attempts = one.attempts.slice(-attemptLimit)
  return {
    journal_id: one.id,
    state: state.kind as typeof state.kind | 'offered',
    reason: state.kind === 'closed' ? state.reason : null,
    code: 'code' in state ? (state.code ?? null) : null,
    ...termsOf(one.signed),
    candidate_id: one.candidateId ?? null,
    signed_at: instant(one.signedAtMs) as string | null,
    received_at: one.receivedAt ?? null,
    ended_at: one.terminalAtMs === undefined ? null : instant(one.terminalAtMs),
    transaction_hash: (executed ?? one.terminal)?.transaction_hash ?? null,
    supersedes: one.signed.supersedes ?? null,
    superseded_by: one.supersededBy ?? null,
    attempts: attempts.map(attemptRow),
    attempts_left_out: one.attempts.length - attempts.length,
  }
}

function offerRow(
  { id, offered, supersededBy, ...rest }: Offer,
  nowMs: number,
): ReturnType<typeof authorizationRow> {
  const isOpen = isOfferOpen({ id, offered, ...rest }, nowMs)
  return {
    journal_id: id,
    state: isOpen ? 'offered' : 'closed',
    reason: isOpen ? null : (rest.terminals.at(-1)?.outcome ?? 'expired'),
    code: null,
    ...termsOf(offered),
    candidate_id: null,
    signed_at: null,
    received_at: null,
    ended_at: null,
    transaction_hash: null,
    supersedes: offered.supersedes ?? null,
    superseded_by: supersededBy ?? null,
    attempts: [],
    attempts_left_out: 0,
  }
}

function termsOf({
  questionId,
  identifier,
  clientRef,
  chainId,
  timestamp,
  terms,
}: Authorization['signed'] | Offer['offered']) {
  const { proposer, price, amount, nonce, deadline } = terms
  const outcome = outcomeOf(price) ?? null
  return {
    question_id: questionId,
    identifier,
    client_ref: clientRef ?? null,
    chain_id: chainId,
    round: timestamp ?? null,
    proposer,
    outcome,
    amount,
    nonce,
    deadline,
  }
}

const attemptRow = (attempt: Attempt) => ({
  started_at: instant(attempt.startedAtMs),
  origin: attempt.start.origin,
  form: attempt.start.form,
  class: classOf(attempt),
  http_status: attempt.end?.status ?? null,
  code: attempt.end?.code ?? null,
})
