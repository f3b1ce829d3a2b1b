/**
 * `journal`: what this machine has signed and sent (robustness §2). Read-only (R24); a signature
 * only by --reveal-signature (R5).
 */
import { Command } from 'commander'
import { knownToken } from '../core/chain/profiles.js'
import {
  isOfferOpen,
  isOpen,
  type JournaledAuthorization,
  type Offer,
} from '../core/client/journal/authorizations.js'
import { openJournal } from '../core/client/journal/journal.js'
import { attemptRow, journalRow, originsOf } from '../core/client/journal/rows.js'
import { verifyJournal } from '../core/client/journal/verify.js'
import { UsageError } from '../core/protocol/errors.js'
import { exportCommand } from './journal-export.js'
import { type GlobalFlags, homeSetting } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { amountWithRaw, counted, dateText, fields, fold, timeText } from './terminal/render.js'
import { ruleLines } from './terminal/rules.js'

export const journalCommand = (context: Context): Command =>
  new Command('journal')
    .description('look at what this machine has signed and sent')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer journal list --open\n  proposer journal show 6208acd7ce14-1\n  proposer journal verify',
    )
    .addCommand(listCommand(context))
    .addCommand(showCommand(context))
    .addCommand(verifyCommand(context))
    .addCommand(exportCommand(context, (command) => loadJournal(context, command)))

const listCommand = (context: Context) =>
  new Command('list')
    .description('every authorization and its state, oldest first')
    .option('--open', 'only what may still execute or be sent')
    .addHelpText('after', '\nExample:\n  proposer journal list --open --json')
    .action(async (own: { open?: boolean }, command: Command) => {
      const nowMs = context.clock.nowMs()
      const { authorizations, offers } = await loadJournal(context, command)
      const shown = [
        ...authorizations.filter((one) => own.open !== true || isOpen(one, nowMs)),
        ...offers.filter((one) => isOfferOpen(one, nowMs)),
      ].map((one) => entryOf(one, nowMs))
      const { output } = context
      if (output.mode === 'ndjson') {
        for (const one of shown) output.line(one)
        output.result('journal', { summary: { authorizations: shown.length } }, () => '')
        return
      }
      output.result('journal', { authorizations: shown }, () =>
        shown.length === 0
          ? emptyText(authorizations.length)
          : shown.map((one) => entryText(one, output.columns)).join('\n\n'),
      )
    })

const showCommand = (context: Context) =>
  new Command('show')
    .description('one authorization with its attempts')
    .argument('<id>', 'journal id or candidate id')
    .option('--reveal-signature', 'the payload too, with its signature')
    .addHelpText(
      'after',
      '\nExample:\n  proposer journal show 6208acd7ce14-1 --reveal-signature --json',
    )
    .action(async (id: string, own: { revealSignature?: boolean }, command: Command) => {
      const view = await loadJournal(context, command)
      const found =
        view.find(id) ?? view.byCandidate(id) ?? view.offers.find((one) => one.id === id)
      if (!found)
        throw new UsageError('unknown_journal_id', `the journal holds no "${id}"`, {
          hint: 'list what it holds with `proposer journal list`',
        })
      const [attempts, body] =
        'signed' in found ? [found.attempts, found.signed.body] : [[], undefined]
      const revealed = own.revealSignature === true ? body : undefined
      const entry = {
        ...entryOf(found, context.clock.nowMs()),
        attempts: attempts.map((one) => ({ ...attemptRow(one), sha256: one.start.sha256 })),
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
              ],
              context.output.columns,
            ),
          ),
          ...(revealed === undefined ? [] : [revealed]),
        ].join('\n\n'),
      )
    })

const verifyCommand = (context: Context) =>
  new Command('verify')
    .description(
      'prove every checksum, and that no rule of signing and sending was broken; exit 74 names the damaged file, or rule and ids',
    )
    .addHelpText('after', '\nExample:\n  proposer journal verify')
    .action(async (_own: unknown, command: Command) => {
      const proof = await verifyJournal(context, homeOf(context, command))
      context.output.result('journal-proof', proof, () =>
        [
          `sound: ${counted(proof.authorizations, 'authorization')}, ${counted(proof.records, 'record')}, ${counted(proof.runs, 'run')}`,
          ...ruleLines(proof.rules, proof.unordered),
        ]
          .map((line) => fold(line, context.output.columns, '  '))
          .join('\n'),
      )
    })

const homeOf = (context: Context, command: Command) =>
  homeSetting(context, command.optsWithGlobals<GlobalFlags>()).value

async function loadJournal(context: Context, command: Command) {
  const journal = openJournal(context, homeOf(context, command))
  try {
    return await journal.load()
  } finally {
    await journal.close()
  }
}

const emptyText = (closed: number): string =>
  closed === 0
    ? 'the journal is empty'
    : `nothing is open; ${closed} ${closed === 1 ? 'is' : 'are'} closed: \`proposer journal list\``

/** As it is listed. An offer that has expired unsigned is shown as what it was. */
function entryOf(one: JournaledAuthorization | Offer, nowMs: number) {
  const {
    supersedes: _supersedes,
    ended_at: _endedAt,
    transaction_hash: _hash,
    ...row
  } = journalRow(one, nowMs)
  return {
    ...row,
    ...('signed' in one ? {} : { state: 'offered' as const, reason: null }),
    sent: 'signed' in one ? one.attempts.length : 0,
    origins: originsOf(one),
  }
}

function entryText(entry: ReturnType<typeof entryOf>, columns: number): string {
  const why = entry.reason ?? entry.code
  return fields(
    [
      [entry.state, `${entry.journal_id}${why === null ? '' : ` (${why})`}`],
      [
        'question',
        entry.identifier === entry.question_id
          ? entry.question_id
          : `${entry.identifier} ${entry.question_id}`,
      ],
      ['answer', entry.outcome ?? entry.price],
      ['authorizes', amountWithRaw(entry.amount, knownToken(entry.chain_id, entry.token ?? ''))],
      ['deadline', dateText(entry.deadline)],
      ['proposer', entry.proposer],
      ['signed', entry.signed_at && timeText(entry.signed_at)],
      ['candidate', entry.candidate_id],
      ['sent to', entry.origins.length === 0 ? 'never sent' : entry.origins.join(', ')],
      ['replaced by', entry.superseded_by],
    ],
    columns,
  )
}
