/**
 * `journal export`: one line an authorization, for accounting. Never a signature unless
 * --reveal-signature (R5).
 */
import { Command } from 'commander'
import {
  classOf,
  type JournaledAuthorization,
  type Offer,
} from '../core/client/journal/authorizations.js'
import type { JournalView } from '../core/client/journal/fold.js'
import { instantOf, journalRow, originsOf } from '../core/client/journal/rows.js'
import type { LastPosition, LastPositions } from '../core/client/positions/last-known.js'
import type { Context } from './terminal/context.js'
import { csvText } from './terminal/csv.js'
import { jsonText } from './terminal/render.js'

export const exportCommand = (
  context: Context,
  load: (command: Command) => Promise<JournalView>,
  lastOf: (command: Command) => Promise<LastPositions>,
): Command =>
  new Command('export')
    .description('export authorizations as NDJSON or CSV, oldest first')
    .option('--csv', 'print CSV (RFC 4180) with a header')
    .option('--reveal-signature', 'include payloads and their signatures')
    .addHelpText(
      'after',
      '\nAmounts are raw token units, times UTC. What became of executed proposals is as `proposer positions` last read it.\n\nExamples:\n  proposer journal export > journal.ndjson\n  proposer journal export --csv > journal.csv',
    )
    .action(async (own: { csv?: boolean; revealSignature?: boolean }, command: Command) => {
      const nowMs = context.clock.nowMs()
      const { authorizations, offers } = await load(command)
      const isRevealed = own.revealSignature === true
      const last = await lastOf(command)
      const rows = [...authorizations, ...offers].map((one) => {
        const row = rowOf(one, nowMs, last)
        return isRevealed ? { ...row, payload: payloadOf(one) } : row
      })
      const unread = authorizations.filter(
        ({ id, terminals }) =>
          terminals.some(({ outcome }) => outcome === 'executed') && !isOver(last.get(id)),
      )
      const { output } = context
      if (unread.length > 0)
        output.note(
          `note: ${unread.length} executed ${unread.length === 1 ? 'proposal has' : 'proposals have'} no settlement here; \`proposer positions\` reads the chain`,
        )
      if (own.csv === true)
        return output.text(csvText(isRevealed ? [...columns, 'payload'] : columns, rows))
      if (output.mode === 'json')
        return output.result('journal-export', { authorizations: rows }, () => '')
      for (const row of rows) output.text(`${jsonText(row, 0)}\n`)
      if (output.mode === 'ndjson')
        output.result('journal-export', { summary: { authorizations: rows.length } }, () => '')
    })

/** In this order. */
const columns = (
  'journal_id signed_at question_id identifier client_ref proposer outcome price amount token ' +
  'nonce deadline round chain_id digest state reason code candidate_id received_at ' +
  'first_sent_at last_sent_at attempts last_class origins closed_at transaction_hash ' +
  'event_index supersedes superseded_by ' +
  'position result disputed_at disputed_by settled_at payout reward position_as_of'
).split(' ')
type Row = Readonly<Record<string, string | number | object | null>>

/** Nothing of it changes any more. */
const isOver = (position: LastPosition | undefined) => position?.state === 'settled'

function rowOf(one: JournaledAuthorization | Offer, nowMs: number, positions: LastPositions): Row {
  const {
    state: position = null,
    as_of: position_as_of = null,
    new_round: _newRound,
    ...settlement
  } = positions.get(one.id) ?? {}
  const attempts = 'signed' in one ? one.attempts : []
  const [first, last] = [attempts[0], attempts.at(-1)]
  const { ended_at, ...row } = journalRow(one, nowMs)
  const executed = one.terminals.find(({ outcome }) => outcome === 'executed')
  const all: Row = {
    ...settlement,
    ...row,
    position,
    position_as_of,
    first_sent_at: instantOf(first?.startedAtMs),
    last_sent_at: instantOf(last?.startedAtMs),
    attempts: attempts.length,
    last_class: last === undefined ? null : classOf(last),
    origins: originsOf(one),
    closed_at: row.state === 'closed' ? ended_at : null,
    event_index: ('signed' in one ? executed?.event_index : null) ?? null,
  }
  return Object.fromEntries(columns.map((name) => [name, all[name] ?? null]))
}

const payloadOf = (one: JournaledAuthorization | Offer): object =>
  'signed' in one ? (JSON.parse(one.signed.body) as object) : {}
