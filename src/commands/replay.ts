/** Sending again (§4.1), and what is safe to do next (contract §6). */
import { gravest } from '#client/gateway/answer'
import { answerOf, labelOf, stateData } from '#client/journal/authorizations'
import { isContestedState } from '#client/positions/last-known'
import type { SentOutcome } from '#client/propose/send'
import { planReplay, replay, type Skipped } from '#client/propose/submit'
import type {
  GatewayWord,
  Reconciled,
  ReconciledEntry,
  RoundStanding,
} from '#client/wallet/reconcile'
import { ConflictError, InterruptedError, UnavailableError } from '#protocol/errors'
import { answerText, labelIn } from '#protocol/outcome-words'
import { outcomeOf } from '#protocol/proposal'
import type { Outcome } from '#protocol/schema'
import { elsewhereData, refuseIdsAndAll } from './poll.js'
import { retryNote } from './session/follow.js'
import { outOfBandData } from './session/intent.js'
import { contextSource, hasGateway, identify, requireIdentifier } from './session/question.js'
import { partsOf, sessionVerb } from './session/session.js'
import { executorFlags } from './session/settings.js'
import { apart, type Rows, together } from './terminal/output.js'
import { amountText, dateText, errorData, shellWord, visible } from './terminal/render.js'
import { dryRunFlag, showDryRun } from './terminal/verb.js'

export const replayCommand = sessionVerb({
  name: 'replay',
  about: 'resend saved payloads with unknown or deferred outcome; never signs',
  args: { '[journal-id...]': 'journal ids; default: all' },
  flags: {
    ...executorFlags,
    '--all': 'every one with unknown or deferred outcome',
    ...dryRunFlag,
  },
  examples: ['replay --all'],
  async run(session, flags, { journalId: ids }) {
    refuseIdsAndAll(flags, ids, 'journal ids')
    const { output, signal } = session
    const gateway = await session.gateway(flags.dryRun ? 'read' : 'run')
    const parts = { ports: session, journal: session.journal, gateway }
    const which = ids.length > 0 ? ids : 'all'
    // Named beside ids on the command line, another gateway is meant for these (contract §6).
    const redirect = ids.length > 0 && (flags.gateway ?? flags.local) !== undefined
    if (flags.dryRun) {
      const { chosen, elsewhere, skipped } = await planReplay(parts, which, { redirect })
      const journal_ids = chosen.map(({ id }) => id)
      const { origin } = gateway
      const would =
        journal_ids.length === 0
          ? 'send nothing'
          : `send the saved bytes of ${journal_ids.join(', ')} to ${origin} again`
      return showDryRun(session, would, {
        journal_ids,
        origin,
        elsewhere: elsewhere.map(elsewhereData),
        skipped: skipped.map(skippedData),
      })
    }
    const own = await partsOf(session)
    const contexts = await contextSource(session)
    const done = await output.during('sending again', () =>
      replay({ ...own, gateway, contexts }, which, {
        timeoutMs: session.settings.timeoutMs,
        signal,
        redirect,
        onRetry: retryNote(session),
      }),
    )
    const results = done.results.map(resultOf)
    const elsewhere = done.elsewhere.map(elsewhereData)
    const skipped = done.skipped.map(skippedData)
    for (const one of skipped) output.remark(leftText(one))
    const nothing =
      skipped.length > 0
        ? 'nothing was sent'
        : 'nothing to replay: no outcome is unknown or deferred'
    output.show(
      'replay',
      { results, elsewhere, skipped: skipped.length === 0 ? undefined : skipped },
      [
        results.length + elsewhere.length === 0 && nothing,
        apart([...results.map(sentRows), ...elsewhere.map(elsewhereRows)]),
      ],
      {
        items: [...results, ...elsewhere, ...skipped],
        summary: { sent: results.length, elsewhere: elsewhere.length },
      },
    )
    const error = gravest([...done.results, ...done.elsewhere].map((one) => one.error))
    if (error) throw error
  },
})

const skippedData = ({ authorization, reason, command }: Skipped) => ({
  journal_id: authorization.id,
  question_id: authorization.signed.questionId,
  skipped: reason,
  command,
})

const leftText = ({ journal_id: id, skipped, command }: ReturnType<typeof skippedData>) =>
  skipped === 'superseded'
    ? `${id} has an unknown outcome and was replaced, so it is not sent; \`${command}\` makes sure that it can never execute`
    : `${id} has failed and may still execute; \`${command}\` tries it again`

function wordOf({ outcome, error }: SentOutcome) {
  if (error instanceof InterruptedError) return 'interrupted'
  if (error instanceof UnavailableError) return 'deferred'
  if (outcome !== 'rejected') return outcome
  return error instanceof ConflictError ? 'conflict' : 'refused'
}

function resultOf(result: SentOutcome) {
  const { statusCode, authorization, candidate, error, outOfBand } = result
  return {
    journal_id: authorization.id,
    question_id: authorization.signed.questionId,
    outcome: wordOf(result),
    status_code: error ? (error.meta.httpStatus ?? null) : statusCode,
    candidate_id: (error ? authorization.candidateId : candidate?.candidateId) ?? null,
    error: errorData(error),
    out_of_band: outOfBand && outOfBandData(outOfBand),
  }
}

function sentRows({ outcome, question_id, error, ...one }: ReturnType<typeof resultOf>): Rows {
  const { journal_id: journal, candidate_id: candidate } = one
  // An acknowledgement is about the candidate; any other word about the authorization.
  const isAcknowledged = outcome === 'accepted' || outcome === 'replayed'
  return [
    [outcome, isAcknowledged ? candidate : journal],
    isAcknowledged ? ['journal', journal] : ['candidate', candidate],
    ['question', question_id],
    ['error', error?.detail],
  ]
}

const elsewhereRows = ({ journal_id, origin, flag }: ReturnType<typeof elsewhereData>): Rows => [
  ['not sent', journal_id],
  ['went to', origin],
  ['send with', flag],
]

const isContested = ({ position }: ReconciledEntry) =>
  position !== undefined && isContestedState(position.state)

export const reconcileCommand = sessionVerb({
  name: 'reconcile',
  about: 'compare journal, gateway and chain for a question, and show what is safe to do next',
  args: { '<identifier>': 'question id, slug or Polymarket URL' },
  flags: { '--dry-run': 'do not journal what finalized chain state proves' },
  help: 'Works with whatever is configured and reports what it could not check. Sends and signs nothing.',
  examples: ['reconcile some-slug --rpc-url http://127.0.0.1:8545'],
  async run(session, { dryRun = false }, { identifier: given }) {
    requireIdentifier(given)
    const [identifier = given] = await identify(session, [given])
    const { output, until: signal } = session
    const own = await partsOf(session)
    const gateway = hasGateway(session) ? await session.gateway('read') : undefined
    const parts = { ...own, signal, dryRun, gateway }
    const { reconcile } = await import('#client/wallet/reconcile')
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
      [apart(blocksOf(found, identifier, gateway?.origin))],
      { items, summary: { ...question, authorizations: items.length } },
    )
    // What a gateway says of something else is no clean look.
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
      ...stateData(state),
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
  const paused = chain?.round?.paused ? ', paused' : ''
  const head: Rows = [
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
  ]
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
  outcomes: readonly Outcome[] | undefined,
) {
  const outcome = outcomeOf(price)
  const answer =
    outcome === undefined ? `price ${price}` : answerText(outcome, labelIn(outcomes, outcome))
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
    [
      [id, `${state.kind}${why}${settled === undefined ? '' : ', journaled now'}`],
      ['answer', `${answerOf(record)} by ${record.terms.proposer}`],
      ['candidate', authorization?.candidateId],
      ['gateway', gateway && gatewayText(gateway)],
      [
        'position',
        position && [position.state, position.result ?? []].flat().join(', ').replaceAll('_', ' '),
      ],
      ['nonce', standing && nonce],
    ],
    ...nextLines(entry),
  ])
}

function gatewayText(word: GatewayWord) {
  if ('error' in word) return `${word.error.code}: ${word.error.detail}`
  const { status, submission, failure } = word.status
  return `${status}${submission === null || submission.status === '' ? '' : `, ${submission.status}`}${failure === null ? '' : ` (${failure.code})`}`
}

/** In the names of `positions` (contract §9); `null` where it is not known. */
function positionData({ position }: Pick<ReconciledEntry, 'position'>) {
  if (position === undefined) return null
  const { state, result, terms, hasNewRound } = position
  return {
    state,
    result,
    disputed_by: terms.disputer ?? null,
    new_round: hasNewRound,
    disputable_until: String(terms.disputableUntil),
    bond: String(terms.bondRaw),
    final_fee: String(terms.finalFeeRaw),
  }
}

function nextLines({
  next,
  rewardFell,
  standing,
}: Pick<ReconciledEntry, 'next' | 'rewardFell' | 'standing'>) {
  const { command } = next
  const amount = (raw: bigint) => amountText(raw, standing?.now.round?.token)
  return [
    rewardFell &&
      `the reward is ${amount(rewardFell.nowRaw)} now; it was ${amount(rewardFell.signedRaw)} when this was signed`,
    `next: ${next.text}`,
    command !== undefined && (() => `  ${visible(command)}`),
  ]
}
