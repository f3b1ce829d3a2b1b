/**
 * `reconcile`: journal, gateway and chain side by side, and what is safe to do next (contract §6).
 */
import { Command } from 'commander'
import { answerOf, labelOf } from '../core/client/journal/authorizations.js'
import { isContestedState } from '../core/client/positions/last-known.js'
import type { GatewayWord, ReconciledEntry } from '../core/client/wallet/advice.js'
import type { RoundStanding } from '../core/client/wallet/position.js'
import { type Reconciled, reconcile } from '../core/client/wallet/reconcile.js'
import { answerText } from '../core/protocol/outcome-words.js'
import { outcomeOf } from '../core/protocol/proposal.js'
import type { Outcome } from '../core/protocol/schema.js'
import { identify } from './session/identify.js'
import { requireIdentifier } from './session/question.js'
import { type SessionFlags, withSession } from './session/session.js'
import type { Context } from './terminal/context.js'
import { nextLines, positionData } from './terminal/position-text.js'
import { dateText, fields, fold, shellWord } from './terminal/render.js'

export const reconcileCommand = (context: Context): Command =>
  new Command('reconcile')
    .description(
      'compare journal, gateway and chain for a question, and show what is safe to do next',
    )
    .argument('<identifier>', 'question id, slug or Polymarket URL')
    .option('--dry-run', 'do not journal what finalized chain state proves')
    .addHelpText(
      'after',
      '\nWorks with whatever is configured and reports what it could not check. Sends and signs nothing.\n\nExample:\n  proposer reconcile some-slug --rpc-url http://127.0.0.1:8545',
    )
    .action(async (given: string, _own: unknown, command: Command) => {
      requireIdentifier(given)
      const flags = command.optsWithGlobals<SessionFlags & { dryRun?: boolean }>()
      await withSession(context, flags, async (session) => {
        const { output } = context
        const [identifier = given] = await identify(context, session, [given])
        const trust = await session.trust()
        const chain = await session.chain()
        const { gateway, local } = session.settings
        const asked =
          gateway !== undefined || local !== undefined ? await session.gateway('read') : undefined
        const progress = output.progress('looking')
        const found = await reconcile(
          {
            ports: session.ports,
            journal: session.journal,
            trust,
            signal: session.signal,
            dryRun: flags.dryRun === true,
            gateway: asked,
            chain,
          },
          identifier,
        ).finally(() => progress.stop())
        const entries = found.entries.map(entryData)
        if (output.mode === 'ndjson') {
          for (const one of entries) output.line(one)
          output.result(
            'reconcile',
            { summary: { identifier, ...questionData(found), authorizations: entries.length } },
            () => '',
          )
          refuseMismatch(found)
          return
        }
        const result = {
          identifier,
          ...questionData(found),
          gateway: asked === undefined ? null : { origin: asked.origin },
          authorizations: entries,
        }
        output.result('reconcile', result, () =>
          textOf(found, { identifier, gateway: asked?.origin, columns: output.columns }),
        )
        refuseMismatch(found)
      })
    })

/** What a gateway says of something else is not believed, and never passes for a clean look. */
function refuseMismatch({ entries }: Reconciled): void {
  for (const { gateway } of entries)
    if (gateway !== undefined && 'error' in gateway && gateway.error.code === 'candidate_mismatch')
      throw gateway.error
}

function questionData({ questionId, chain, sharing, notLookedAt }: Reconciled) {
  const round = chain?.round
  return {
    question_id: questionId,
    round: round
      ? {
          timestamp: round.timestamp,
          paused: round.paused,
          required_bond: String(round.totalBondRaw),
          ...roundData(chain.current),
        }
      : null,
    chain: chain
      ? {
          latest: String(chain.latest.number),
          finalized: String(chain.finalized.number),
          finalized_time: String(chain.finalized.timestamp),
        }
      : null,
    shared_round: sharing.map(({ id, signed }) => ({
      journal_id: id,
      question_id: signed.questionId,
    })),
    not_looked_at: notLookedAt,
  }
}

function roundData(round: RoundStanding | undefined) {
  const { proposer, price, mined, isFinal, bySignature } = round?.proposal ?? {}
  return {
    state: round?.state ?? null,
    proposal:
      proposer === undefined
        ? null
        : {
            proposer,
            price,
            transaction_hash: mined?.transactionHash ?? null,
            block_number: mined ? String(mined.blockNumber) : null,
            event_index: mined?.eventIndex ?? null,
            final: isFinal,
            by_signature: bySignature,
          },
  }
}

function entryData(entry: ReconciledEntry) {
  const { id, state, record, authorization, standing, settled, next } = entry
  const { proposer, price, amount, nonce, deadline } = record.terms
  return {
    journal_id: id,
    journal: {
      state: state.kind,
      reason: 'reason' in state ? state.reason : null,
      code: 'code' in state ? (state.code ?? null) : null,
      proposer,
      outcome: outcomeOf(price) ?? null,
      label: labelOf(record),
      price,
      amount,
      nonce,
      deadline,
      round: record.timestamp ?? null,
      client_ref: record.clientRef ?? null,
      candidate_id: authorization?.candidateId ?? null,
      attempts: authorization?.attempts.length ?? 0,
      superseded_by: entry.supersededBy ?? null,
    },
    gateway: gatewayData(entry.gateway),
    chain: standing
      ? {
          nonce_spent: standing.nonceSpent,
          nonce_spent_final: standing.nonceSpentFinal,
          round_over: standing.roundIsOver ?? null,
          round: standing.round ? roundData(standing.round) : null,
        }
      : null,
    settled: settled ?? null,
    position: positionData(entry),
    reward_fell: entry.rewardFell
      ? { signed: String(entry.rewardFell.signedRaw), now: String(entry.rewardFell.nowRaw) }
      : null,
    next: { action: next.action, text: next.text, command: next.command ?? null },
  }
}

function gatewayData(word: GatewayWord | undefined) {
  if (word === undefined) return null
  if ('error' in word) return { error: { code: word.error.code, detail: word.error.detail } }
  const { status, submission, failure } = word.status
  return { status, submission, failure }
}

const hasContested = ({ position }: ReconciledEntry) =>
  position !== undefined && isContestedState(position.state)

interface Shown {
  readonly identifier: string
  /** Origin of the one that was asked. */
  readonly gateway: string | undefined
  readonly columns: number
}

function textOf(found: Reconciled, { identifier, gateway, columns }: Shown): string {
  const { chain } = found
  const proposal = chain?.current?.proposal
  const paused = chain?.round?.paused === true ? ', paused' : ''
  const head = fields(
    [
      ['question', found.questionId],
      ['round', chain?.round && dateText(chain.round.timestamp)],
      ['state', chain?.current && `${chain.current.state}${paused}`],
      ['proposed', proposal && proposalText(proposal, chain?.round?.outcomes)],
      [
        'by',
        proposal && `${proposal.proposer}${proposal.bySignature ? ' through SignedProposer' : ''}`,
      ],
      ['transaction', proposal?.mined?.transactionHash],
      ['gateway', gateway],
    ],
    columns,
  )
  // Contested money comes first, before the question.
  const contested = found.entries.filter(hasContested).map((one) => entryText(one, columns))
  const blocks = found.entries
    .filter((one) => !hasContested(one))
    .map((one) => entryText(one, columns))
  for (const { id, signed } of found.sharing)
    blocks.push(
      [
        fold(
          `${id} is open for question ${signed.questionId}, which shares this round: one proposal answers both`,
          columns,
        ),
        `  proposer reconcile ${signed.questionId}`,
      ].join('\n'),
    )
  if (found.entries.length === 0 && found.sharing.length === 0) {
    const next =
      proposal === undefined
        ? 'nothing is signed here, so nothing can be sent twice'
        : 'nothing is in progress on this machine'
    const command = `proposer context ${shellWord(identifier)}`
    blocks.push(
      [
        fold('the journal holds nothing for this question', columns),
        fold(`next: ${next}; check the question first`, columns, '  '),
        `  ${command}`,
      ].join('\n'),
    )
  }
  return [
    ...contested,
    head,
    ...blocks,
    ...found.notLookedAt.map((note) => fold(`not checked: ${note}`, columns, '  ')),
  ].join('\n\n')
}

function proposalText(
  { price, isFinal }: { readonly price: string; readonly isFinal: boolean },
  outcomes: readonly Outcome[] = [],
): string {
  const outcome = outcomeOf(price)
  const label = outcomes.find((one) => one.outcome === outcome)?.label
  const answer = outcome === undefined ? `price ${price}` : answerText(outcome, label)
  return `${answer}${isFinal ? '' : ', not final yet'}`
}

function entryText(entry: ReconciledEntry, columns: number): string {
  const { id, state, record, authorization, gateway, standing, settled, position } = entry
  const { proposer } = record.terms
  const why = 'reason' in state ? ` (${state.reason})` : ''
  const nonce = standing?.nonceSpentFinal
    ? 'spent'
    : standing?.nonceSpent
      ? 'spent, not final yet'
      : 'free'
  const rows = fields(
    [
      [id, `${state.kind}${why}${settled === undefined ? '' : ', journaled now'}`],
      ['answer', `${answerOf(record)} by ${proposer}`],
      ['candidate', authorization?.candidateId],
      ['gateway', gateway && gatewayText(gateway)],
      [
        'position',
        position && `${position.state}${position.result === null ? '' : `, ${position.result}`}`,
      ],
      ['nonce', standing && nonce],
    ],
    columns,
  )
  return [rows, ...nextLines(entry, columns)].join('\n')
}

function gatewayText(word: GatewayWord): string {
  if ('error' in word) return `${word.error.code}: ${word.error.detail}`
  const { status, submission, failure } = word.status
  return `${status}${submission === null || submission.status === '' ? '' : `, ${submission.status}`}${failure === null ? '' : ` (${failure.code})`}`
}
