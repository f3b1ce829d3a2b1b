/**
 * `journal`: what this machine has signed and sent (robustness §2). Read-only (R24); a signature
 * only by --reveal-signature (R5).
 */
import { knownToken } from '#chain/profiles'
import {
  attemptRow,
  classOf,
  instantOf,
  isOpen,
  journalRecordOf,
  journalRow,
  type Recorded,
} from '#client/journal/authorizations'
import { openJournal, verifyJournal } from '#client/journal/journal'
import {
  isContestedState,
  type LastPosition,
  type LastPositions,
} from '#client/positions/last-known'
import { ProposerError, UsageError } from '#protocol/errors'
import { answerText } from '#protocol/outcome-words'
import { isQuestionId } from '#protocol/words'
import {
  type GlobalFlags,
  homeSetting,
  listFlags,
  resolveSettings,
  sinceMs,
} from './session/settings.js'
import type { Context } from './terminal/context.js'
import { contestedLines, lastKnown } from './terminal/last-known.js'
import { apart, csvText, type Rows, table } from './terminal/output.js'
import {
  amountText,
  amountWithRaw,
  type Column,
  counted,
  dateText,
  durationText,
  timeText,
} from './terminal/render.js'
import { verb } from './terminal/verb.js'

async function read(context: Context, flags: GlobalFlags) {
  const home = homeSetting(context, flags).value
  return { view: await openJournal(context, home).load(), last: await lastKnown(context, home) }
}

const states = [
  ...['signed', 'offered', 'deferred', 'unknown', 'conflict', 'accepted', 'closed'],
  ...['executed', 'failed', 'refused', 'nonce_used', 'expired'],
]
const listVerb = verb({
  name: 'list',
  about: 'list authorizations and their states, oldest first',
  flags: { ...listFlags(states), '--open': 'only what may still execute or be sent' },
  examples: ['journal list --open --json', 'journal list --state failed --since 24h'],
  async run(context, flags) {
    const nowMs = context.clock.nowMs()
    const since = sinceMs(flags.since, nowMs)
    const { limit } = flags
    const { view, last } = await read(context, flags)
    const { authorizations, offers } = view
    const isWanted = ({ state, reason, slug, question_id: id, signed_at }: Entry) =>
      (flags.state === undefined || flags.state === state || flags.state === reason) &&
      (flags.question === undefined || [slug, id].includes(flags.question)) &&
      (signed_at === null || Date.parse(signed_at) >= since)
    const entries = [...authorizations, ...offers]
      .filter((one) => isOpen(one, nowMs) || (flags.open !== true && 'signed' in one))
      .map((one) => entryOf(one, nowMs, last))
    const slugs = entries.some(({ identifier }) => isQuestionId(identifier))
      ? await pinnedSlugs(context, flags)
      : new Map<string, string>()
    const nameOf = ({ identifier, question_id: id, slug }: Entry) =>
      isQuestionId(identifier) ? (slugs.get(id) ?? slug) : identifier
    const found = entries.map((one) => ({ ...one, slug: nameOf(one) })).filter(isWanted)
    const shown = limit === undefined ? found : found.slice(-limit)
    const older = found.length - shown.length
    context.output.show(
      'journal',
      { authorizations: shown },
      shown.length === 0
        ? [
            authorizations.length === 0
              ? 'the journal is empty'
              : `nothing matches; the journal holds ${counted(authorizations.length, 'authorization')}`,
          ]
        : [
            ...contestedLines(last),
            table(listColumns(nowMs), shown),
            older > 0 && `and ${older} older; --limit ${found.length} shows them`,
          ],
      { items: shown, summary: { authorizations: shown.length } },
    )
  },
})

type Entry = ReturnType<typeof entryOf>

const listColumns = (nowMs: number): readonly Column<Entry>[] => [
  { head: 'question', cell: (one) => one.title ?? one.slug ?? one.question_id, least: 12 },
  { head: 'answer', cell: answerOf, least: 8 },
  { head: 'state', cell: stateText, least: 8, colour: stateColour },
  { head: 'amount', cell: entryAmount, right: true, rank: 1 },
  {
    head: 'signed',
    cell: ({ signed_at: at }) => at && `${durationText((nowMs - Date.parse(at)) / 1_000, 1)} ago`,
    rank: 2,
  },
  { head: 'journal id', cell: (one) => one.journal_id },
]

function stateText({ state, reason, code, position }: Entry) {
  const word = (reason ?? state).replaceAll('_', ' ')
  if (position !== null) {
    const { state: standing, result } = position
    // A bond that waits is no news, and "open" says something else in this list.
    const told = isContestedState(standing) || standing === 'deferred' ? standing : result
    return told ?? word
  }
  return code === null || code === reason ? word : `${word}: ${code}`
}

function stateColour(entry: Entry) {
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

const showVerb = verb({
  name: 'show',
  about: 'show one authorization with its attempts',
  args: { '<id>': 'journal id or candidate id' },
  flags: {
    '--reveal-signature': 'include the payload and its signature',
    '--verify': 'prove the receipts of its answers; exit 2 if none holds',
  },
  examples: [
    'journal show 6208acd7ce14-1 --reveal-signature --json',
    'journal show 6208acd7ce14-1 --verify',
  ],
  async run(context, flags, { id }) {
    const { view, last } = await read(context, flags)
    const found = view.find(id) ?? view.byCandidate(id) ?? view.offers.find((one) => one.id === id)
    if (!found)
      throw new UsageError(
        'unknown_journal_id',
        `journal entry "${id}" not found`,
        'list the entries with `proposer journal list`',
      )
    const [attempts, body] =
      'signed' in found ? [found.attempts, found.signed.body] : [[], undefined]
    const revealed = flags.revealSignature ? body : undefined
    const proofs = flags.verify
      ? await (await import('./receipt.js')).receiptProofs(context, flags, attempts)
      : undefined
    const entry = {
      ...entryOf(found, context.clock.nowMs(), last),
      attempts: attempts.map((one) => ({
        ...attemptRow(one),
        sha256: one.start.sha256,
        proof: proofs?.document(one, found.id),
      })),
      payload: revealed === undefined ? undefined : (JSON.parse(revealed) as object),
    }
    context.output.show('journal-entry', entry, [
      apart([
        entryRows(entry),
        ...entry.attempts.map(
          (one): Rows => [
            ['attempt', timeText(one.started_at)],
            ['to', one.origin],
            ['class', one.class],
            ['status', one.http_status?.toString()],
            ['code', one.code],
            ['receipt', one.receipt && receiptText(one.receipt)],
          ],
        ),
        ...(proofs?.blocks ?? []),
        revealed !== undefined && (() => revealed),
      ]),
    ])
    proofs?.requireOne(found.id)
  },
})

const receiptText = ({ result, code }: { result: string; code: string | null }) =>
  code === null ? result : `${result} (${code})`

const verifyVerb = verb({
  name: 'verify',
  about: 'verify checksums, saved hashes and nonces; exit 74 on damage',
  examples: ['journal verify'],
  async run(context, flags) {
    const proof = await verifyJournal(context, homeSetting(context, flags).value)
    const { authorizations, records, runs, hashes, nonces } = proof
    context.output.show('journal-proof', proof, [
      `sound: ${counted(authorizations, 'authorization')}, ${counted(records, 'record')}, ${counted(runs, 'run')}`,
      `${counted(hashes, 'payload')} as recorded; ${counted(nonces, 'nonce')}, each of one authorization`,
    ])
  },
})

/** By question id; none where the trust file cannot be read. */
async function pinnedSlugs(context: Context, flags: GlobalFlags) {
  const { loadTrust, slugsById } = await import('./session/session.js')
  try {
    const { slugs } = await loadTrust({
      ...context,
      settings: await resolveSettings(context, flags),
    })
    return slugsById(slugs)
  } catch (error) {
    if (!(error instanceof ProposerError)) throw error
    if (error.code !== 'no_trust') context.output.note(`note: without slugs: ${error.detail}`)
    return new Map()
  }
}

function entryOf(one: Recorded, nowMs: number, last: LastPositions) {
  const { identifier, slug } = journalRecordOf(one)
  const attempts = 'signed' in one ? one.attempts : []
  return {
    ...journalRow(one, nowMs),
    slug: isQuestionId(identifier) ? (slug ?? null) : identifier,
    sent: attempts.length,
    origins: [...new Set(attempts.map(({ start }) => start.origin))],
    position: last.get(one.id) ?? null,
  }
}

function entryRows(entry: Entry): Rows {
  const why = entry.reason ?? entry.code
  return [
    ['question', entry.title ?? entry.slug ?? entry.question_id],
    ['answer', answerOf(entry)],
    [entry.state, `${entry.journal_id}${why === null ? '' : ` (${why})`}`],
    ['authorizes', amountWithRaw(entry.amount, knownToken(entry.chain_id, entry.token ?? ''))],
    ['deadline', dateText(entry.deadline)],
    ['proposer', entry.proposer],
    ['signed', entry.signed_at && timeText(entry.signed_at)],
    ['candidate', entry.candidate_id],
    ['sent to', entry.origins.length === 0 ? 'never sent' : entry.origins.join(', ')],
    ['replaced by', entry.superseded_by],
    ['slug', entry.title && entry.slug],
    ['question id', entry.question_id],
    ['position', entry.position && positionText(entry.position)],
  ]
}

function positionText({ state, result, disputed_by: by, as_of: at }: LastPosition) {
  const ended = result === null ? '' : `, ${result}`
  const whom = by === null ? '' : ` by ${by}`
  return `${state ?? 'not known'}${ended}${whom} (${timeText(at)})`.replaceAll('_', ' ')
}

const exportVerb = verb({
  name: 'export',
  about: 'export authorizations as NDJSON or CSV, oldest first',
  flags: {
    '--csv': 'print CSV (RFC 4180) with a header',
    '--reveal-signature': 'include payloads and their signatures',
  },
  help: 'Amounts are raw token units, times UTC. What became of executed proposals is as `proposer positions` last read it.',
  examples: ['journal export > journal.ndjson', 'journal export --csv > journal.csv'],
  async run(context, { csv, revealSignature, ...flags }) {
    const nowMs = context.clock.nowMs()
    const { view, last } = await read(context, flags)
    const items = [...view.authorizations, ...view.offers].map((one) => {
      const row = exportRow(one, nowMs, last)
      return revealSignature ? { ...row, payload: payloadOf(one) } : row
    })
    const { output } = context
    if (csv)
      return output.text(
        csvText(revealSignature ? [...exportColumns, 'payload'] : exportColumns, items),
      )
    if (output.isForPeople) for (const row of items) output.line(row)
    else
      output.show('journal-export', { authorizations: items }, [], {
        items,
        summary: { authorizations: items.length },
      })
  },
})

const exportColumns = (
  'journal_id signed_at question_id identifier client_ref proposer outcome price amount token ' +
  'nonce deadline round chain_id digest state reason code candidate_id received_at ' +
  'first_sent_at last_sent_at attempts last_class origins closed_at transaction_hash ' +
  'event_index supersedes superseded_by ' +
  'position result disputed_at disputed_by settled_at payout reward position_as_of'
).split(' ')
type ExportRow = Readonly<Record<string, string | number | object | null>>

function exportRow(one: Recorded, nowMs: number, positions: LastPositions) {
  const entry = entryOf(one, nowMs, positions)
  const { state: position, as_of: position_as_of, ...settlement } = entry.position ?? {}
  const attempts = 'signed' in one ? one.attempts : []
  const [first, last] = [attempts[0], attempts.at(-1)]
  const executed = one.terminals.find(({ outcome }) => outcome === 'executed')
  const all: Readonly<Record<string, unknown>> = {
    ...settlement,
    ...entry,
    position,
    position_as_of,
    first_sent_at: instantOf(first?.startedAtMs),
    last_sent_at: instantOf(last?.startedAtMs),
    attempts: attempts.length,
    last_class: last && classOf(last),
    closed_at: entry.state === 'closed' ? entry.ended_at : null,
    event_index: 'signed' in one ? executed?.event_index : null,
  }
  return Object.fromEntries(exportColumns.map((name) => [name, all[name] ?? null])) as ExportRow
}

const payloadOf = (one: Recorded) =>
  'signed' in one ? (JSON.parse(one.signed.body) as object) : {}

export const journalCommand = verb({
  name: 'journal',
  about: 'list, show, verify and export what was signed and sent',
  examples: ['journal list --open', 'journal show 6208acd7ce14-1', 'journal verify'],
  verbs: [listVerb, showVerb, verifyVerb, exportVerb],
})
