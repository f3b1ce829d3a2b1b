/**
 * `journal export`: one line an authorization, for accounting. Never a signature unless
 * --reveal-signature (R5).
 */
import { Command } from 'commander'
import {
  type Authorization,
  classOf,
  isOfferOpen,
  type Offer,
  stateOf,
} from '../core/client/journal/authorizations.js'
import type { JournalView } from '../core/client/journal/journal.js'
import { instant } from '../core/protocol/candidate.js'
import { outcomeOf } from '../core/protocol/proposal.js'
import type { Context } from './terminal/context.js'
import { jsonText, visible } from './terminal/render.js'

export const exportCommand = (
  context: Context,
  load: (command: Command) => Promise<JournalView>,
): Command =>
  new Command('export')
    .description('one line of JSON an authorization, or CSV, oldest first')
    .option('--csv', 'comma-separated values (RFC 4180) with a header')
    .option('--reveal-signature', 'the payloads too, with their signatures')
    .addHelpText(
      'after',
      '\nAmounts are raw token units, times UTC.\n\nExamples:\n  proposer journal export > journal.ndjson\n  proposer journal export --csv > journal.csv',
    )
    .action(async (own: { csv?: boolean; revealSignature?: boolean }, command: Command) => {
      const nowMs = context.clock.nowMs()
      const view = await load(command)
      const rows = [
        ...view.authorizations.map((one) => rowOf(one, nowMs, own.revealSignature === true)),
        ...view.offers.map((one) => offerRow(one, nowMs, own.revealSignature === true)),
      ]
      const { output } = context
      if (own.csv === true) return output.text(csvOf(rows, own.revealSignature === true))
      if (output.mode === 'json')
        return output.result('journal-export', { authorizations: rows }, () => '')
      for (const row of rows) output.text(`${jsonText(row, 0)}\n`)
      if (output.mode === 'ndjson')
        output.result('journal-export', { summary: { authorizations: rows.length } }, () => '')
    })

const columns = [
  'journal_id',
  'signed_at',
  'question_id',
  'identifier',
  'client_ref',
  'proposer',
  'outcome',
  'price',
  'amount',
  'token',
  'nonce',
  'deadline',
  'round',
  'chain_id',
  'digest',
  'state',
  'reason',
  'code',
  'candidate_id',
  'received_at',
  'first_sent_at',
  'last_sent_at',
  'attempts',
  'last_class',
  'origins',
  'closed_at',
  'transaction_hash',
  'event_index',
  'supersedes',
  'superseded_by',
] as const
type Row = Readonly<
  Record<(typeof columns)[number], string | number | readonly string[] | null>
> & { readonly payload?: object }

function rowOf(one: Authorization, nowMs: number, withSignature: boolean): Row {
  const { signed, attempts } = one
  const state = stateOf(one, nowMs)
  const [first, last] = [attempts[0], attempts.at(-1)]
  const executed = one.terminals.find(({ outcome }) => outcome === 'executed')
  return {
    journal_id: one.id,
    signed_at: instant(one.signedAtMs),
    ...recordOf(signed),
    state: state.kind,
    reason: state.kind === 'closed' ? state.reason : null,
    code: 'code' in state ? (state.code ?? null) : null,
    candidate_id: one.candidateId ?? null,
    received_at: one.receivedAt ?? null,
    first_sent_at: first === undefined ? null : instant(first.startedAtMs),
    last_sent_at: last === undefined ? null : instant(last.startedAtMs),
    attempts: attempts.length,
    last_class: last === undefined ? null : classOf(last),
    origins: [...new Set(attempts.map(({ start }) => start.origin))],
    closed_at:
      state.kind === 'closed' && one.terminalAtMs !== undefined ? instant(one.terminalAtMs) : null,
    transaction_hash: (executed ?? one.terminal)?.transaction_hash ?? null,
    event_index: executed?.event_index ?? null,
    supersedes: signed.supersedes ?? null,
    superseded_by: one.supersededBy ?? null,
    ...(withSignature ? { payload: JSON.parse(signed.body) as object } : {}),
  }
}

/**
 * Typed data that a wallet outside holds: it is not signed as far as this journal knows, and its
 * time is that of giving it out.
 */
function offerRow(
  { id, offered, terminals, supersededBy }: Offer,
  nowMs: number,
  withSignature: boolean,
): Row {
  const isOpen = isOfferOpen({ id, offered, terminals }, nowMs)
  return {
    journal_id: id,
    signed_at: null,
    ...recordOf(offered),
    state: isOpen ? 'offered' : 'closed',
    reason: isOpen ? null : (terminals.at(-1)?.outcome ?? 'expired'),
    code: null,
    candidate_id: null,
    received_at: null,
    first_sent_at: null,
    last_sent_at: null,
    attempts: 0,
    last_class: null,
    origins: [],
    closed_at: null,
    transaction_hash: null,
    event_index: null,
    supersedes: offered.supersedes ?? null,
    superseded_by: supersededBy ?? null,
    ...(withSignature ? { payload: {} } : {}),
  }
}

function recordOf(record: Authorization['signed'] | Offer['offered']) {
  const { terms } = record
  return {
    question_id: record.questionId,
    identifier: record.identifier,
    client_ref: record.clientRef ?? null,
    proposer: terms.proposer,
    outcome: outcomeOf(terms.price) ?? null,
    price: terms.price,
    amount: terms.amount,
    token: record.token ?? null,
    nonce: terms.nonce,
    deadline: terms.deadline,
    round: record.timestamp ?? null,
    chain_id: record.chainId,
    digest: record.digest ?? null,
  }
}

/** RFC 4180, lines ended by CRLF. */
function csvOf(rows: readonly Row[], withSignature: boolean): string {
  const names = withSignature ? [...columns, 'payload'] : [...columns]
  const lines = rows.map((row) => names.map((name) => cell(row[name as keyof Row])).join(','))
  return [names.join(','), ...lines].map((line) => `${line}\r\n`).join('')
}

function cell(value: string | number | object | readonly string[] | null | undefined): string {
  if (value === null || value === undefined) return ''
  const text = visible(
    Array.isArray(value)
      ? value.join(' ')
      : typeof value === 'object'
        ? JSON.stringify(value)
        : String(value),
  )
  // A spreadsheet would run what begins like a formula (robustness §6, CSV out); a tab is spelled
  // out already.
  const guarded = /^[=+\-@]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded
}
