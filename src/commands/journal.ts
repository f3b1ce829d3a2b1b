/**
 * `journal`: what this machine has signed and sent (robustness §2). Read-only (R24); a signature
 * only by --reveal-signature (R5).
 */
import { Command } from 'commander'
import { knownToken } from '../core/chain/profiles.js'
import {
  type Attempt,
  type Authorization,
  classOf,
  isOfferOpen,
  isOpen,
  type Offer,
  stateOf,
} from '../core/client/journal/authorizations.js'
import { type JournalPorts, openJournal, verifyJournal } from '../core/client/journal/journal.js'
import { UsageError } from '../core/protocol/errors.js'
import { outcomeOf } from '../core/protocol/proposal.js'
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
        ...authorizations
          .filter((one) => own.open !== true || isOpen(one, nowMs))
          .map((one) => entryOf(one, nowMs)),
        ...offers.filter((one) => isOfferOpen(one, nowMs)).map(offerEntry),
      ]
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
      const found = view.find(id) ?? view.byCandidate(id)
      const offer = view.offers.find((one) => one.id === id)
      if (!found && offer) {
        const shown = { ...offerEntry(offer), attempts: [] }
        context.output.result('journal-entry', shown, () =>
          entryText(shown, context.output.columns),
        )
        return
      }
      if (!found) {
        throw new UsageError('unknown_journal_id', `the journal holds no "${id}"`, {
          hint: 'list what it holds with `proposer journal list`',
        })
      }
      const entry = {
        ...entryOf(found, context.clock.nowMs()),
        attempts: found.attempts.map(attemptOf),
      }
      const shown =
        own.revealSignature === true
          ? { ...entry, payload: JSON.parse(found.signed.body) as object }
          : entry
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
          ...(own.revealSignature === true ? [found.signed.body] : []),
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
      const proof = await verifyJournal(portsOf(context), homeOf(context, command))
      context.output.result('journal-proof', proof, () =>
        [
          `sound: ${counted(proof.authorizations, 'authorization')}, ${counted(proof.records, 'record')}, ${counted(proof.runs, 'run')}`,
          ...ruleLines(proof.rules, proof.unordered),
        ]
          .map((line) => fold(line, context.output.columns, '  '))
          .join('\n'),
      )
    })

const portsOf = ({ clock, random, hash, files, liveness }: Context): JournalPorts => ({
  clock,
  random,
  hash,
  files,
  liveness,
})
const homeOf = (context: Context, command: Command) =>
  homeSetting(context, command.optsWithGlobals<GlobalFlags>()).value

async function loadJournal(context: Context, command: Command) {
  const journal = openJournal(portsOf(context), homeOf(context, command))
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

/** What both a signature and an offer are about. */
function termsOf({
  questionId,
  identifier,
  terms,
  token,
  timestamp,
  chainId,
  digest,
  clientRef,
}: Authorization['signed'] | Offer['offered']) {
  const { proposer, price, amount, nonce, deadline } = terms
  return {
    question_id: questionId,
    identifier,
    proposer,
    outcome: outcomeOf(price) ?? null,
    price,
    amount,
    token: token ?? null,
    nonce,
    deadline,
    round: timestamp ?? null,
    chain_id: chainId,
    digest: digest ?? null,
    client_ref: clientRef ?? null,
  }
}

function entryOf(one: Authorization, nowMs: number) {
  const state = stateOf(one, nowMs)
  return {
    journal_id: one.id,
    state: state.kind as typeof state.kind | 'offered',
    reason: state.kind === 'closed' ? state.reason : null,
    code: 'code' in state ? (state.code ?? null) : null,
    ...termsOf(one.signed),
    candidate_id: one.candidateId ?? null,
    received_at: one.receivedAt ?? null,
    signed_at: new Date(one.signedAtMs).toISOString() as string | null,
    superseded_by: one.supersededBy ?? null,
    sent: one.attempts.length,
    origins: [...new Set(one.attempts.map(({ start }) => start.origin))],
  }
}

/**
 * Typed data in the hands of a wallet outside: it holds its question, so it is listed, although
 * nothing is signed yet.
 */
const offerEntry = ({ id, offered, supersededBy }: Offer): ReturnType<typeof entryOf> => ({
  journal_id: id,
  state: 'offered',
  reason: null,
  code: null,
  ...termsOf(offered),
  candidate_id: null,
  received_at: null,
  signed_at: null,
  superseded_by: supersededBy ?? null,
  sent: 0,
  origins: [],
})

function attemptOf(attempt: Attempt) {
  return {
    started_at: new Date(attempt.startedAtMs).toISOString(),
    origin: attempt.start.origin,
    sha256: attempt.start.sha256,
    class: classOf(attempt),
    http_status: attempt.end?.status ?? null,
    code: attempt.end?.code ?? null,
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
