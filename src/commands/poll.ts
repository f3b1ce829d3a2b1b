/** `poll` follows candidates to their ends, `status` looks at one once (spec §2.6, §4.1, contract §6). */
import type { PollResult } from '#client/follow/follow'
import { failedError, statusOnce } from '#client/follow/look'
import { endOf, stages } from '#client/follow/status'
import { gravest } from '#client/gateway/answer'
import {
  answerOf,
  type Elsewhere,
  type JournaledAuthorization,
  labelOf,
  type OtherGateway,
  otherGateway,
  questionOf,
  stateOf,
} from '#client/journal/authorizations'
import type { JournalView } from '#client/journal/journal'
import { isContestedState } from '#client/positions/last-known'
import type { SentOutcome } from '#client/propose/outcome'
import { planReplay, replay, type Skipped } from '#client/propose/replay'
import { reconcile } from '#client/wallet/reconcile'
import { ConflictError, InterruptedError, UnavailableError, UsageError } from '#protocol/errors'
import { isCandidateId } from '#protocol/words'
import { follow, outOfBandData, retryNote } from './session/follow.js'
import { contextSource, requireIdentifier } from './session/question.js'
import { type Session, sessionVerb, withSession } from './session/session.js'
import { executorFlags } from './session/settings.js'
import { noteFallenRewards } from './session/stakes.js'
import { openLive } from './terminal/live.js'
import { apart, rows, together } from './terminal/output.js'
import { candidateText, finalText, type Own } from './terminal/poll-table.js'
import { nextLines, positionData } from './terminal/position-text.js'
import { errorData, visible } from './terminal/render.js'
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
    if (flags.all === true && ids.length > 0)
      throw new UsageError(
        'ids_and_all',
        '--all and candidate ids cannot be used together',
        'omit --all or the ids',
      )
    const live = flags.quiet === true ? undefined : openLive(context)
    const shown = live === undefined ? context : { ...context, output: live.output }
    await withSession(shown, flags, async (session) => {
      const { output, clock } = shown
      const { ports, journal, settings } = session
      const view = await journal.load()
      const given = [...new Set(ids)].map((id) => targetOf(view, id, flags.question))
      const gateway = await session.gateway('run')
      const accepted = view.authorizations.filter(
        (one) => ids.length === 0 && stateOf(one, clock.nowMs()).kind === 'accepted',
      )
      const held = accepted.map((one) => ({ one, away: otherGateway(one, gateway.origin) }))
      const here = held.flatMap(({ one: { candidateId = '', signed }, away }) =>
        away === undefined ? [{ candidateId, identifier: signed.questionId }] : [],
      )
      const targets = ids.length > 0 ? given : here
      const elsewhere = held.flatMap(({ one, away }) =>
        away === undefined ? [] : [{ one, ...away }],
      )
      for (const each of elsewhere) output.note(awayText(each))
      const result = await follow(shown, { ports, gateway, journal }, targets, {
        timeoutMs: settings.timeoutMs,
        until: flags.until,
        // The document holds the whole of each status; it costs the same items (§8).
        full: !output.isForPeople && !output.isByLine,
        aboutOf: (id) => aboutText(view, id),
        live,
      })
      const { candidates, error, refusals } = result
      const away = elsewhere.length === 0 ? {} : { elsewhere: elsewhere.map(awayData) }
      const labelled = candidates.map((status) => ({
        ...status,
        label: ownOf(view, status.candidate_id)?.label ?? null,
      }))
      const counts = { summary: summaryOf(result), ...away }
      output.show('status', output.isByLine ? counts : { candidates: labelled, ...away }, [
        targets.length === 0
          ? 'nothing to poll: the journal has no unfinished candidate of this gateway'
          : () => finalText(targets, candidates, output, (id) => ownOf(view, id), refusals),
      ])
      const own = candidates.flatMap(
        (status) => view.byCandidate(status.candidate_id)?.signed ?? [],
      )
      await noteFallenRewards(shown, session, own)
      if (error) throw error
    })
  },
})

export const statusCommand = sessionVerb({
  name: 'status',
  about: 'show one candidate; exit 7 if it failed',
  args: { '<candidate-id>': 'id from the acknowledgement' },
  flags: { '--question <id>': 'its question, if the candidate is not in the journal' },
  examples: ['status 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f'],
  async run({ output }, session, { question }, { candidateId }) {
    const { ports, journal, signal } = session
    const view = await journal.load()
    const own = ownOf(view, candidateId)
    const target = targetOf(view, candidateId, question)
    const gateway = await session.gateway('read')
    const status = await statusOnce({ ports, gateway, journal }, target, { signal })
    const entry =
      own !== undefined && endOf(status) === 'executed'
        ? await onChain(session, status.question_id ?? target.identifier, own.journalId)
        : undefined
    const position = entry === undefined ? {} : { position: positionData(entry) }
    const text = () => candidateText(status, output, own)
    const next = entry?.position && together(nextLines(entry))
    const isContested = entry?.position !== undefined && isContestedState(entry.position.state)
    output.show(
      'status',
      { candidates: [{ ...status, label: own?.label ?? null, ...position }] },
      isContested ? [apart([next, text])] : [text, next],
    )
    if (endOf(status) === 'failed') throw failedError(status, own?.journalId)
  },
})

async function onChain(session: Session, question: string | undefined, journalId: string) {
  const chain = await session.chain()
  if (chain === undefined || question === undefined) return undefined
  const { ports, journal, signal } = session
  const parts = { ports, journal, trust: await session.trust(), chain, signal, dryRun: true }
  return (await reconcile(parts, question)).entries.find(({ id }) => id === journalId)
}

function ownOf(view: JournalView, candidateId: string): Own | undefined {
  const own = view.byCandidate(candidateId)
  if (own === undefined) return undefined
  const { signed, id: journalId } = own
  const { identifier, title, slug } = signed
  const named = { identifier: slug ?? identifier, title }
  return { journalId, label: labelOf(signed), answer: answerOf(signed), ...named }
}

function aboutText(view: JournalView, candidateId: string) {
  const signed = view.byCandidate(candidateId)?.signed
  return signed === undefined ? '' : `${questionOf(signed)}  ${answerOf(signed)}`
}

type Away = OtherGateway & { readonly one: JournaledAuthorization }

const awayText = ({ one, origin, flag }: Away) =>
  `note: not polled here: ${visible(questionOf(one.signed))}, ${visible(answerOf(one.signed))}, went to ${origin}: \`proposer poll ${one.candidateId} ${flag}\``

const awayData = ({ one, origin, flag }: Away) => ({
  candidate_id: one.candidateId ?? null,
  journal_id: one.id,
  origin,
  flag,
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

function requireStage(text: string) {
  const stage = stages.find((one) => one === text)
  if (stage !== undefined) return stage
  throw new UsageError(
    'bad_stage',
    `--until ${text} is not a stage`,
    `give one of ${stages.join(', ')}`,
  )
}

/**
 * A candidate and its question, from the journal unless `question` names it; without one the batch
 * route serves. UsageError `invalid_candidate_id`.
 */
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
  async run(context, session, flags, { journalId: ids }) {
    if (flags.all === true && ids.length > 0)
      throw new UsageError(
        'ids_and_all',
        '--all and journal ids cannot be used together',
        'omit --all or the ids',
      )
    const { output, signal } = context
    const gateway = await session.gateway(flags.dryRun === true ? 'read' : 'run')
    const parts = { ports: session.ports, journal: session.journal, gateway }
    const which = ids.length > 0 ? ids : 'all'
    // Named together with ids on the command line, another gateway is meant for these (contract §6).
    const redirect = ids.length > 0 && (flags.gateway ?? flags.local) !== undefined
    if (flags.dryRun === true) {
      const { chosen, elsewhere, skipped } = await planReplay(parts, which, { redirect })
      const journal_ids = chosen.map(({ id }) => id)
      const { origin } = gateway
      const would =
        journal_ids.length === 0
          ? 'send nothing'
          : `send the saved bytes of ${journal_ids.join(', ')} to ${origin} again`
      return showDryRun(context, would, {
        journal_ids,
        origin,
        elsewhere: elsewhere.map(elsewhereData),
        skipped: skipped.map(skippedData),
      })
    }
    const [trust, chain] = [await session.trust(), await session.chain()]
    const contexts = await contextSource(context, session)
    const done = await output.during('sending again', () =>
      replay({ ...parts, trust, chain, contexts }, which, {
        timeoutMs: session.settings.timeoutMs,
        signal,
        redirect,
        onRetry: retryNote(context),
      }),
    )
    const results = done.results.map(resultOf)
    const elsewhere = done.elsewhere.map(elsewhereData)
    const skipped = done.skipped.map(skippedData)
    for (const one of skipped) output.note(`note: ${leftText(one)}`)
    const nothing =
      skipped.length > 0
        ? 'nothing was sent'
        : 'nothing to replay: no outcome is unknown or deferred'
    output.show(
      'replay',
      { results, elsewhere, ...(skipped.length === 0 ? {} : { skipped }) },
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

const elsewhereData = ({ authorization, origin, flag }: Elsewhere) => ({
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

/** Of the sending, whatever was known of the candidate before. */
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
    ...(outOfBand ? { out_of_band: outOfBandData(outOfBand) } : {}),
  }
}

function sentRows({ outcome, question_id, error, ...one }: ReturnType<typeof resultOf>) {
  const { journal_id: journal, candidate_id: candidate } = one
  // The word of an acknowledgement is about the candidate; any other about the authorization.
  const isAcknowledged = outcome === 'accepted' || outcome === 'replayed'
  return rows([
    [outcome, isAcknowledged ? candidate : journal],
    isAcknowledged ? ['journal', journal] : ['candidate', candidate],
    ['question', question_id],
    ['error', error?.detail],
  ])
}

const elsewhereRows = ({ journal_id, origin, flag }: ReturnType<typeof elsewhereData>) =>
  rows([
    ['not sent', journal_id],
    ['went to', origin],
    ['send with', flag],
  ])
