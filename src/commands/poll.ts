/** What became of what was sent (spec §2.6, contract §6). */
import { type PollResult, statusOnce } from '#client/follow/follow'
import { endOf, failedError, type Stage, stages } from '#client/follow/look'
import {
  answerOf,
  type Elsewhere,
  labelOf,
  type OtherGateway,
  otherGateway,
  questionOf,
  stateOf,
} from '#client/journal/authorizations'
import type { JournalView } from '#client/journal/journal'
import { UsageError } from '#protocol/errors'
import { requireIdentifier } from '#protocol/market-url'
import { isCandidateId } from '#protocol/words'
import { follow } from './session/follow.js'
import { sessionVerb, withSession } from './session/session.js'
import { executorFlags, type SessionFlags } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { openLive } from './terminal/output.js'
import { candidateText, finalText } from './terminal/poll-table.js'
import { errorData, visible } from './terminal/render.js'
import { verb } from './terminal/verb.js'

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

export function refuseIdsAndAll(
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

export const elsewhereData = ({ authorization, origin, flag }: Away) => ({
  journal_id: authorization.id,
  origin,
  flag,
})
