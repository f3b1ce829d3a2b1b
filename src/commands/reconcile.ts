/**
 * `reconcile`: journal, gateway and chain side by side, and what is safe to do next (contract §6).
 */
import { answerOf, labelOf } from '#client/journal/authorizations'
import { isContestedState } from '#client/positions/last-known'
import type { GatewayWord, ReconciledEntry } from '#client/wallet/advice'
import { type Reconciled, reconcile } from '#client/wallet/reconcile'
import type { RoundStanding } from '#client/wallet/standing'
import { answerText } from '#protocol/outcome-words'
import { outcomeOf } from '#protocol/proposal'
import type { Outcome } from '#protocol/schema'
import { identify } from './session/identify.js'
import { requireIdentifier } from './session/question.js'
import { sessionVerb } from './session/session.js'
import { apart, rows, together } from './terminal/output.js'
import { nextLines, positionData } from './terminal/position-text.js'
import { dateText, errorData, shellWord } from './terminal/render.js'

export const reconcileCommand = sessionVerb({
  name: 'reconcile',
  about: 'compare journal, gateway and chain for a question, and show what is safe to do next',
  args: { '<identifier>': 'question id, slug or Polymarket URL' },
  flags: { '--dry-run': 'do not journal what finalized chain state proves' },
  help: 'Works with whatever is configured and reports what it could not check. Sends and signs nothing.',
  examples: ['reconcile some-slug --rpc-url http://127.0.0.1:8545'],
  async run(context, session, { dryRun = false }, { identifier: given }) {
    requireIdentifier(given)
    const { output } = context
    const [identifier = given] = await identify(context, session, [given])
    const { ports, journal, signal, settings } = session
    const [trust, chain] = [await session.trust(), await session.chain()]
    const gateway =
      (settings.gateway ?? settings.local) === undefined ? undefined : await session.gateway('read')
    const parts = { ports, journal, trust, signal, dryRun, gateway, chain }
    const found = await output.during('looking', () => reconcile(parts, identifier))
    const items = found.entries.map(entryData)
    const question = { identifier, ...questionData(found) }
    output.show(
      'reconcile',
      {
        ...question,
        gateway: gateway === undefined ? null : { origin: gateway.origin },
        authorizations: items,
      },
      () => [apart(blocksOf(found, identifier, gateway?.origin))],
      { items, summary: { ...question, authorizations: items.length } },
    )
    // What a gateway says of something else is not believed, and never passes for a clean look.
    for (const { gateway: word } of found.entries)
      if (word !== undefined && 'error' in word && word.error.code === 'candidate_mismatch')
        throw word.error
  },
})

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
  if ('error' in word) return { error: errorData(word.error) }
  const { status, submission, failure } = word.status
  return { status, submission, failure }
}

function blocksOf(found: Reconciled, identifier: string, gateway: string | undefined) {
  const { chain, entries, sharing } = found
  const proposal = chain?.current?.proposal
  const paused = chain?.round?.paused === true ? ', paused' : ''
  const head = rows([
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
  ])
  const isContested = ({ position }: ReconciledEntry) =>
    position !== undefined && isContestedState(position.state)
  const next =
    proposal === undefined
      ? 'nothing is signed here, so nothing can be sent twice'
      : 'nothing is in progress on this machine'
  return [
    // Contested money comes first, before the question.
    ...entries.filter(isContested).map(entryBlock),
    head,
    ...entries.filter((one) => !isContested(one)).map(entryBlock),
    ...sharing.map(({ id, signed: { questionId } }) =>
      together([
        `${id} is open for question ${questionId}, which shares this round: one proposal answers both`,
        () => `  proposer reconcile ${questionId}`,
      ]),
    ),
    entries.length + sharing.length === 0 &&
      together([
        'the journal holds nothing for this question',
        `next: ${next}; check the question first`,
        () => `  proposer context ${shellWord(identifier)}`,
      ]),
    ...found.notLookedAt.map((note) => `not checked: ${note}`),
  ]
}

function proposalText(
  { price, isFinal }: { readonly price: string; readonly isFinal: boolean },
  outcomes: readonly Outcome[] = [],
) {
  const outcome = outcomeOf(price)
  const label = outcomes.find((one) => one.outcome === outcome)?.label
  const answer = outcome === undefined ? `price ${price}` : answerText(outcome, label)
  return `${answer}${isFinal ? '' : ', not final yet'}`
}

function entryBlock(entry: ReconciledEntry) {
  const { id, state, record, authorization, gateway, standing, settled, position } = entry
  const why = 'reason' in state ? ` (${state.reason})` : ''
  const nonce = standing?.nonceSpentFinal
    ? 'spent'
    : standing?.nonceSpent
      ? 'spent, not final yet'
      : 'free'
  return together([
    rows([
      [id, `${state.kind}${why}${settled === undefined ? '' : ', journaled now'}`],
      ['answer', `${answerOf(record)} by ${record.terms.proposer}`],
      ['candidate', authorization?.candidateId],
      ['gateway', gateway && gatewayText(gateway)],
      [
        'position',
        position && `${position.state}${position.result === null ? '' : `, ${position.result}`}`,
      ],
      ['nonce', standing && nonce],
    ]),
    ...nextLines(entry),
  ])
}

function gatewayText(word: GatewayWord) {
  if ('error' in word) return `${word.error.code}: ${word.error.detail}`
  const { status, submission, failure } = word.status
  return `${status}${submission === null || submission.status === '' ? '' : `, ${submission.status}`}${failure === null ? '' : ` (${failure.code})`}`
}
