/**
 * `journal`: what this machine has signed and sent (robustness §2). Read-only (R24); a signature
 * only by --reveal-signature (R5).
 */
import { Command } from 'commander'
import { knownToken } from '../core/chain/profiles.js'
import {
  classOf,
  isOfferOpen,
  isOpen,
  type JournaledAuthorization,
  type Offer,
} from '../core/client/journal/authorizations.js'
import { attemptRow, instantOf, journalRow, originsOf } from '../core/client/journal/rows.js'
import { verifyJournal } from '../core/client/journal/verify.js'
import {
  isContestedState,
  type LastPosition,
  type LastPositions,
  lastPositions,
} from '../core/client/positions/last-known.js'
import { ProposerError, UsageError } from '../core/protocol/errors.js'
import { answerText } from '../core/protocol/outcome-words.js'
import { isQuestionId } from '../core/protocol/words.js'
import { wholeNumber } from './hosting/foreground.js'
import { loadJournal, receiptProofs } from './receipt.js'
import { addListFlags, type ListFlags, sinceMs } from './session/list-flags.js'
import type { SessionFlags } from './session/session.js'
import { type GlobalFlags, homeSetting, resolveSettings } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { csvText } from './terminal/csv.js'
import { contestedLines, positionText } from './terminal/position-text.js'
import {
  ageText,
  amountText,
  amountWithRaw,
  counted,
  dateText,
  fields,
  fold,
  jsonText,
  timeText,
  visible,
} from './terminal/render.js'
import { type Column, tableText } from './terminal/table.js'

export const journalCommand = (context: Context): Command =>
  new Command('journal')
    .description('list, show, verify and export what was signed and sent')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer journal list --open\n  proposer journal show 6208acd7ce14-1\n  proposer journal verify',
    )
    .addCommand(listCommand(context))
    .addCommand(showCommand(context))
    .addCommand(verifyCommand(context))
    .addCommand(exportCommand(context))

/** The states of an authorization, and how a closed one ended. */
const states = [
  ...['signed', 'offered', 'deferred', 'unknown', 'conflict', 'accepted', 'closed'],
  ...['executed', 'failed', 'refused', 'nonce_used', 'expired'],
]

const listCommand = (context: Context) =>
  addListFlags(new Command('list'), states)
    .description('list authorizations and their states, oldest first')
    .option('--open', 'only what may still execute or be sent')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer journal list --open --json\n  proposer journal list --state failed --since 24h',
    )
    .action(async (own: ListFlags & { open?: boolean }, command: Command) => {
      const nowMs = context.clock.nowMs()
      const since = sinceMs(own.since, nowMs)
      const limit =
        own.limit === undefined ? undefined : wholeNumber('--limit', own.limit, 1, 1_000_000)
      const { authorizations, offers } = await loadJournal(context, homeOf(context, command))
      const last = await lastOf(context, command)
      const isAsked = ({ state, reason, identifier, slug, question_id: id, signed_at }: Entry) =>
        (own.state === undefined || own.state === state || own.state === reason) &&
        (own.question === undefined || [identifier, slug, id].includes(own.question)) &&
        (signed_at === null || Date.parse(signed_at) >= since)
      const entries = [
        ...authorizations.filter((one) => own.open !== true || isOpen(one, nowMs)),
        ...offers.filter((one) => isOfferOpen(one, nowMs)),
      ].map((one) => entryOf(one, nowMs, last))
      const slugs = entries.some(({ identifier }) => isQuestionId(identifier))
        ? await pinnedSlugs(context, command.optsWithGlobals<GlobalFlags>())
        : new Map<string, string>()
      const found = entries.map((one) => ({ ...one, slug: slugIn(one, slugs) })).filter(isAsked)
      const shown = limit === undefined ? found : found.slice(-limit)
      const { output } = context
      if (output.mode === 'ndjson') {
        for (const one of shown) output.line(one)
        output.result('journal', { summary: { authorizations: shown.length } }, () => '')
        return
      }
      output.result('journal', { authorizations: shown }, () => {
        if (shown.length === 0) return emptyText(authorizations.length, own)
        const older = found.length - shown.length
        return [
          ...contestedLines(last, output.columns),
          tableText(listColumns(nowMs), shown, output, own.wide === true),
          ...(older === 0 ? [] : [`and ${older} older; --limit ${found.length} shows them`]),
        ].join('\n')
      })
    })

type Entry = ReturnType<typeof entryOf>

/** As it was signed, else as it is pinned now, else as its sheet had it. */
const slugIn = (
  { identifier, question_id: id, slug }: Entry,
  slugs: ReadonlyMap<string, string>,
): string | null => (isQuestionId(identifier) ? (slugs.get(id) ?? slug) : identifier)

const listColumns = (nowMs: number): readonly Column<Entry>[] => [
  { head: 'question', cell: (one) => one.title ?? one.slug ?? one.identifier, least: 12 },
  { head: 'answer', cell: answerOf, least: 8 },
  { head: 'state', cell: stateText, least: 8, colour: stateColour },
  { head: 'amount', cell: entryAmount, right: true, rank: 1 },
  {
    head: 'signed',
    cell: ({ signed_at: at }) => at && `${ageText((nowMs - Date.parse(at)) / 1_000)} ago`,
    rank: 2,
  },
  { head: 'journal id', cell: (one) => one.journal_id },
  { head: 'candidate', cell: (one) => one.candidate_id, wide: true },
  { head: 'proposer', cell: (one) => one.proposer, wide: true },
  { head: 'deadline', cell: (one) => dateText(one.deadline), wide: true },
  { head: 'sent to', cell: (one) => one.origins.join(', '), wide: true },
  { head: 'question id', cell: (one) => one.question_id, wide: true },
]

/** A closed one is told by how it ended, with the cause of a failure, or what became of its bond. */
function stateText({ state, reason, code, position }: Entry): string {
  const word = (reason ?? state).replaceAll('_', ' ')
  if (position !== null) {
    const { state: standing, result } = position
    // A bond that waits is no news, and "open" says something else in this list.
    const told = isContestedState(standing) || standing === 'deferred' ? standing : result
    return told ?? word
  }
  return code === null || code === reason ? word : `${word}: ${code}`
}

function stateColour(entry: Entry): 'green' | 'red' | 'yellow' | 'cyan' | 'white' {
  const { state, reason, position } = entry
  if (position !== null && (isContestedState(position.state) || position.result === 'lost'))
    return 'red'
  if (reason !== null) return reason === 'executed' ? 'green' : 'red'
  if (state === 'unknown' || state === 'conflict') return 'yellow'
  return state === 'accepted' ? 'cyan' : 'white'
}

const answerOf = ({ outcome, label, price }: Pick<Entry, 'outcome' | 'label' | 'price'>) =>
  answerText(outcome ?? price, label)

const entryAmount = ({ amount, chain_id: chainId, token }: Entry) =>
  amountText(amount, knownToken(chainId, token ?? ''))

const showCommand = (context: Context) =>
  new Command('show')
    .description('show one authorization with its attempts')
    .argument('<id>', 'journal id or candidate id')
    .option('--reveal-signature', 'include the payload and its signature')
    .option('--verify', 'prove the receipts of its answers; exit 2 if none holds')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer journal show 6208acd7ce14-1 --reveal-signature --json\n  proposer journal show 6208acd7ce14-1 --verify',
    )
    .action(async (id: string, own: ShowFlags, command: Command) => {
      const view = await loadJournal(context, homeOf(context, command))
      const found =
        view.find(id) ?? view.byCandidate(id) ?? view.offers.find((one) => one.id === id)
      if (!found)
        throw new UsageError('unknown_journal_id', `journal entry "${id}" not found`, {
          hint: 'list the entries with `proposer journal list`',
        })
      const [attempts, body] =
        'signed' in found ? [found.attempts, found.signed.body] : [[], undefined]
      const revealed = own.revealSignature === true ? body : undefined
      const proofs =
        own.verify === true
          ? await receiptProofs(context, command.optsWithGlobals<SessionFlags>(), attempts)
          : undefined
      const entry = {
        ...entryOf(found, context.clock.nowMs(), await lastOf(context, command)),
        attempts: attempts.map((one) => ({
          ...attemptRow(one),
          sha256: one.start.sha256,
          ...(proofs && { proof: proofs.document(one, found.id) }),
        })),
      }
      const shown =
        revealed === undefined ? entry : { ...entry, payload: JSON.parse(revealed) as object }
      context.output.result('journal-entry', shown, () =>
        [
          entryText(entry, context.output.columns),
          ...entry.attempts.map((one) =>
            fields(
              [
                ['attempt', timeText(one.started_at)],
                ['to', one.origin],
                ['class', one.class],
                ['status', one.http_status?.toString()],
                ['code', one.code],
                ['receipt', one.receipt && receiptText(one.receipt)],
              ],
              context.output.columns,
            ),
          ),
          ...(proofs?.texts(context.output.columns) ?? []),
          ...(revealed === undefined ? [] : [revealed]),
        ].join('\n\n'),
      )
      proofs?.requireOne(found.id)
    })

interface ShowFlags {
  readonly revealSignature?: boolean
  readonly verify?: boolean
}

const receiptText = ({ result, code }: { result: string; code: string | null }) =>
  code === null ? result : `${result} (${code})`

const verifyCommand = (context: Context) =>
  new Command('verify')
    .description('verify checksums, saved hashes and nonces; exit 74 on damage')
    .addHelpText('after', '\nExample:\n  proposer journal verify')
    .action(async (_own: unknown, command: Command) => {
      const proof = await verifyJournal(context, homeOf(context, command))
      context.output.result('journal-proof', proof, () =>
        [
          `sound: ${counted(proof.authorizations, 'authorization')}, ${counted(proof.records, 'record')}, ${counted(proof.runs, 'run')}`,
          `${counted(proof.hashes, 'payload')} as recorded; ${counted(proof.nonces, 'nonce')}, each of one authorization`,
        ]
          .map((line) => fold(line, context.output.columns, '  '))
          .join('\n'),
      )
    })

const homeOf = (context: Context, command: Command) =>
  homeSetting(context, command.optsWithGlobals<GlobalFlags>()).value

/**
 * Slugs by question id, as the trust file pins them. The journal is shown without them where that
 * cannot be read, and a note says why.
 */
async function pinnedSlugs(
  context: Context,
  flags: GlobalFlags,
): Promise<ReadonlyMap<string, string>> {
  const { loadTrust } = await import('./session/session.js')
  try {
    const { slugs } = await loadTrust(context, await resolveSettings(context, flags))
    return new Map(Object.entries(slugs).map(([slug, id]) => [id, slug]))
  } catch (error) {
    if (!(error instanceof ProposerError)) throw error
    if (error.code !== 'no_trust') context.output.note(`note: without slugs: ${error.detail}`)
    return new Map()
  }
}

const lastOf = (context: Context, command: Command) =>
  lastPositions({ files: context.files, home: homeOf(context, command) }, (text) =>
    context.output.note(`note: ${visible(text)}`),
  )

function emptyText(held: number, { open, state, since, question }: ListFlags & { open?: boolean }) {
  if (held === 0) return 'the journal is empty'
  if (open === true && (state ?? since ?? question) === undefined)
    return `nothing is open; ${held} ${held === 1 ? 'is' : 'are'} closed: \`proposer journal list\``
  return `nothing matches; the journal holds ${counted(held, 'authorization')}`
}

/** As it is listed. An offer that has expired unsigned is shown as what it was. */
function entryOf(one: JournaledAuthorization | Offer, nowMs: number, last: LastPositions) {
  const {
    supersedes: _supersedes,
    ended_at: _endedAt,
    transaction_hash: _hash,
    ...row
  } = journalRow(one, nowMs)
  return {
    ...row,
    slug: ('signed' in one ? one.signed : one.offered).slug ?? null,
    ...('signed' in one ? {} : { state: 'offered' as const, reason: null }),
    sent: 'signed' in one ? one.attempts.length : 0,
    origins: originsOf(one),
    position: last.get(one.id) ?? null,
  }
}

function entryText(entry: ReturnType<typeof entryOf>, columns: number): string {
  const why = entry.reason ?? entry.code
  const name = entry.identifier === entry.question_id ? entry.slug : entry.identifier
  return fields(
    [
      ['question', entry.title ?? name ?? entry.question_id],
      ['answer', answerOf(entry)],
      [entry.state, `${entry.journal_id}${why === null ? '' : ` (${why})`}`],
      ['authorizes', amountWithRaw(entry.amount, knownToken(entry.chain_id, entry.token ?? ''))],
      ['deadline', dateText(entry.deadline)],
      ['proposer', entry.proposer],
      ['signed', entry.signed_at && timeText(entry.signed_at)],
      ['candidate', entry.candidate_id],
      ['sent to', entry.origins.length === 0 ? 'never sent' : entry.origins.join(', ')],
      ['replaced by', entry.superseded_by],
      ['slug', entry.title === null ? null : name],
      ['question id', entry.question_id],
      ['position', entry.position && positionText(entry.position)],
    ],
    columns,
  )
}

const exportCommand = (context: Context) =>
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
      const { authorizations, offers } = await loadJournal(context, homeOf(context, command))
      const isRevealed = own.revealSignature === true
      const last = await lastOf(context, command)
      const rows = [...authorizations, ...offers].map((one) => {
        const row = exportRow(one, nowMs, last)
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
        return output.text(
          csvText(isRevealed ? [...exportColumns, 'payload'] : exportColumns, rows),
        )
      if (output.mode === 'json')
        return output.result('journal-export', { authorizations: rows }, () => '')
      for (const row of rows) output.text(`${jsonText(row, 0)}\n`)
      if (output.mode === 'ndjson')
        output.result('journal-export', { summary: { authorizations: rows.length } }, () => '')
    })

/** In this order. */
const exportColumns = (
  'journal_id signed_at question_id identifier client_ref proposer outcome price amount token ' +
  'nonce deadline round chain_id digest state reason code candidate_id received_at ' +
  'first_sent_at last_sent_at attempts last_class origins closed_at transaction_hash ' +
  'event_index supersedes superseded_by ' +
  'position result disputed_at disputed_by settled_at payout reward position_as_of'
).split(' ')
type ExportRow = Readonly<Record<string, string | number | object | null>>

/** Nothing of it changes any more. */
const isOver = (position: LastPosition | undefined) => position?.state === 'settled'

function exportRow(
  one: JournaledAuthorization | Offer,
  nowMs: number,
  positions: LastPositions,
): ExportRow {
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
  const all: ExportRow = {
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
  return Object.fromEntries(exportColumns.map((name) => [name, all[name] ?? null]))
}

const payloadOf = (one: JournaledAuthorization | Offer): object =>
  'signed' in one ? (JSON.parse(one.signed.body) as object) : {}
