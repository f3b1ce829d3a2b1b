/** What became of what was sent, and sending it again (spec §2.6, §4.1, contract §6). */
import { type PollResult, statusOnce } from '#client/follow/follow'
import { endOf, failedError, type Stage, stages } from '#client/follow/look'
import { gravest } from '#client/gateway/answer'
import {
  answerOf,
  type Elsewhere,
  labelOf,
  type OtherGateway,
  otherGateway,
  questionOf,
  stateData,
  stateOf,
} from '#client/journal/authorizations'
import type { JournalView } from '#client/journal/journal'
import { isContestedState } from '#client/positions/last-known'
import type { SentOutcome } from '#client/propose/send'
import { planReplay, replay, type Skipped } from '#client/propose/submit'
import type {
  GatewayWord,
  Reconciled,
  ReconciledEntry,
  RoundStanding,
} from '#client/wallet/reconcile'
import { ConflictError, InterruptedError, UnavailableError, UsageError } from '#protocol/errors'
import { answerText, labelIn } from '#protocol/outcome-words'
import { outcomeOf } from '#protocol/proposal'
import type { Outcome } from '#protocol/schema'
import { isCandidateId } from '#protocol/words'
import { follow, outOfBandData, retryNote } from './session/follow.js'
import { contextSource, hasGateway, identify, requireIdentifier } from './session/question.js'
import { partsOf, sessionVerb, withSession } from './session/session.js'
import { executorFlags, type SessionFlags } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { apart, openLive, type Rows, together } from './terminal/output.js'
import { candidateText, finalText, nextLines, positionData } from './terminal/poll-table.js'
import { dateText, errorData, shellWord, visible } from './terminal/render.js'
import { dryRunFlag, showDryRun, verb } from './terminal/verb.js'

export const pollCommand = verb({
  name: 'poll',
  about: 'follow candidates until they are executed or failed; exit 7 if one failed, 8 on timeout',
  args: { '[candidate-id...]': 'candidate ids; default: --all' },
  flags: {
    ...executorFlags,
    '--all': 'every accepted candidate of this gateway in the journal that is not finished',
    '--until <stage>': {
      about: 'stop when all have reached this stage',
      choices: stages,
      parse: requireStage,
    },
    '--question <id>': 'question of candidates that are not in the journal',
  },
  examples: [
    'poll --all --timeout 300',
    'poll 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f --until confirmed',
  ],
  async run(context, flags, { candidateId: ids }) {
    refuseIdsAndAll(flags, ids, 'candidate ids')
    await pollIds(context, flags, ids)
  },
})

type PollFlags = SessionFlags & {
  readonly quiet?: boolean
  readonly until?: Stage
  readonly question?: string
}

export async function pollIds(
  context: Context,
  flags: PollFlags,
  ids: readonly string[],
  batch?: 'once' | 'wait',
) {
  const once = batch === 'once'
  const live = flags.quiet ? undefined : openLive(context)
  const shown = live === undefined ? context : { ...context, output: live.output }
  await withSession(shown, flags, async (session) => {
    const { output, clock } = shown
    const { journal, settings } = session
    const view = await journal.load()
    const targets = [...new Set(ids)].map((id) => targetOf(view, id, flags.question))
    const gateway = await session.gateway(once ? 'read' : 'run')
    const elsewhere: Away[] = []
    for (const authorization of ids.length === 0 ? view.authorizations : []) {
      const state = stateOf(authorization, clock.nowMs())
      if (state.kind !== 'accepted') continue
      const { candidateId } = state
      const away = otherGateway(authorization, gateway.origin)
      if (away) elsewhere.push({ authorization, ...away })
      else targets.push({ candidateId, identifier: authorization.signed.questionId })
    }
    for (const each of elsewhere) output.note(awayText(each))
    const result = await follow(shown, { ports: session, gateway, journal }, targets, {
      timeoutMs: settings.timeoutMs,
      until: flags.until,
      // The document holds the whole of each status; it costs the same items (§8).
      full: batch === undefined && !output.isForPeople && !output.isByLine,
      brief: once,
      once,
      ownOf: (id) => ownOf(view, id),
      live,
    })
    const { candidates, error, refusals } = result
    const away = elsewhere.length === 0 ? {} : { elsewhere: elsewhere.map(awayData) }
    const labelled = candidates.map((status) => ({
      ...status,
      label: ownOf(view, status.candidate_id)?.label ?? null,
    }))
    const missing = result.missing.map(({ candidateId }) => ({
      candidate_id: candidateId,
      error: errorData(refusals.get(candidateId)),
    }))
    const counts = { summary: summaryOf(result), ...away }
    const more = batch && { ...(missing.length > 0 && { missing }), summary: counts.summary }
    const document = { candidates: labelled, ...more, ...away }
    if (once) {
      const inOrder = new Map<string, object>(targets.map((one) => [one.candidateId, one]))
      for (const row of [...missing, ...labelled]) inOrder.set(row.candidate_id, row)
      for (const row of inOrder.values()) output.item(row)
    }
    output.show('status', output.isByLine ? counts : document, [
      targets.length === 0
        ? 'nothing to poll: the journal has no unfinished candidate of this gateway'
        : finalText(targets, candidates, (id) => ownOf(view, id), refusals),
    ])
    if (error) throw error
  })
}

export const statusCommand = sessionVerb({
  name: 'status',
  about: 'show one candidate; exit 7 if it failed',
  args: { '<candidate-id>': 'candidate id, from `submit` or `journal show`' },
  flags: { '--question <id>': 'its question, if the candidate is not in the journal' },
  examples: ['status 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f'],
  async run(session, { question }, { candidateId }) {
    const { output, journal, until: signal } = session
    const view = await journal.load()
    const own = ownOf(view, candidateId)
    const target = targetOf(view, candidateId, question)
    const gateway = await session.gateway('read')
    const status = await statusOnce({ ports: session, gateway, journal }, target, { signal })
    output.show('status', { candidates: [{ ...status, label: own?.label ?? null }] }, [
      candidateText(status, own),
    ])
    if (endOf(status) === 'failed') throw failedError(status, own?.journalId)
  },
})

function ownOf(view: JournalView, candidateId: string) {
  const own = view.byCandidate(candidateId)
  if (own === undefined) return undefined
  const { signed, id: journalId } = own
  const { identifier, title, slug } = signed
  const named = { identifier: slug ?? identifier, title }
  return { journalId, label: labelOf(signed), answer: answerOf(signed), ...named }
}

type Away = OtherGateway & Pick<Elsewhere, 'authorization'>

const awayText = ({ authorization: { candidateId, signed }, origin, flag }: Away) =>
  `note: not polled here: ${visible(questionOf(signed))}, ${visible(answerOf(signed))}, went to ${origin}: \`proposer poll ${candidateId} ${flag}\``

const awayData = (away: Away) => ({
  candidate_id: away.authorization.candidateId ?? null,
  ...elsewhereData(away),
})

function summaryOf({ candidates, missing, items }: PollResult) {
  const count = (end: string) => candidates.filter((status) => endOf(status) === end).length
  return {
    candidates: candidates.length,
    executed: count('executed'),
    failed: count('failed'),
    missing: missing.length,
    items,
  }
}

function refuseIdsAndAll(
  { all = false }: { readonly all?: boolean },
  ids: readonly string[],
  what: string,
) {
  if (!all || ids.length === 0) return
  const detail = `--all and ${what} cannot be used together`
  throw new UsageError('ids_and_all', detail, 'omit --all or the ids')
}

function requireStage(text: string) {
  const stage = stages.find((one) => one === text)
  if (stage !== undefined) return stage
  throw new UsageError(
    'bad_stage',
    `--until ${text} is not a stage`,
    `give one of ${stages.join(', ')}`,
  )
}

function targetOf(view: JournalView, candidateId: string, question: string | undefined) {
  if (!isCandidateId(candidateId))
    throw new UsageError(
      'invalid_candidate_id',
      `"${candidateId}" is not a candidate id`,
      'give the candidate_id of the acknowledgement; `proposer journal list` shows them',
    )
  const known = view.byCandidate(candidateId)
  return {
    candidateId: known?.candidateId ?? candidateId,
    identifier: question === undefined ? known?.signed.questionId : requireIdentifier(question),
  }
}

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
    // Named together with ids on the command line, another gateway is meant for these (contract §6).
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

const elsewhereData = ({ authorization, origin, flag }: Away) => ({
  journal_id: authorization.id,
  origin,
  flag,
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
  // The word of an acknowledgement is about the candidate; any other about the authorization.
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
