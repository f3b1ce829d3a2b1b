/**
 * `poll`: follows candidates until they are done or reach a stage (spec §4.1 rule 4, contract §6).
 */
import { Command, Option } from 'commander'
import type { PollResult } from '../core/client/follow/follow.js'
import { endOf, type PollTarget, type Stage, stages } from '../core/client/follow/status.js'
import {
  answerOf,
  type JournaledAuthorization,
  labelOf,
  questionOf,
  stateOf,
} from '../core/client/journal/authorizations.js'
import type { JournalView } from '../core/client/journal/journal.js'
import { type OtherGateway, otherGateway } from '../core/client/journal/saved.js'
import { UsageError } from '../core/protocol/errors.js'
import { isCandidateId } from '../core/protocol/words.js'
import { follow } from './follow.js'
import { requireIdentifier } from './session/question.js'
import {
  addExecutorFlags,
  type Session,
  type SessionFlags,
  withSession,
} from './session/session.js'
import { noteFallenRewards } from './session/stakes.js'
import type { Own } from './terminal/candidate-text.js'
import type { Context } from './terminal/context.js'
import { type Live, openLive } from './terminal/live.js'
import { finalText } from './terminal/poll-table.js'
import { visible } from './terminal/render.js'

interface PollFlags extends SessionFlags {
  readonly all?: boolean
  readonly until?: string
  readonly question?: string
}

export const pollCommand = (context: Context): Command =>
  addExecutorFlags(new Command('poll'))
    .description(
      'follow candidates until they are executed or failed; exit 7 if one failed, 8 on timeout',
    )
    .argument('[candidate-id...]', 'candidate ids; default: --all')
    .option('--all', 'every accepted candidate of this gateway in the journal that is not finished')
    // Its own refusal, with its own code, is older than the choices.
    .addOption(
      new Option('--until <stage>', 'stop when all have reached this stage')
        .choices(stages)
        .argParser((text) => text),
    )
    .option('--question <id>', 'question of candidates that are not in the journal')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer poll --all --timeout 300\n  proposer poll 3f2b8c1e-8d5a-4a52-9c3d-0a1b2c3d4e5f --until confirmed',
    )
    .action(async (ids: string[], _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<PollFlags>()
      const until = requireStage(flags.until)
      if (flags.all === true && ids.length > 0) throw bothGiven()
      const live = flags.quiet === true ? undefined : openLive(context)
      const shown = live === undefined ? context : { ...context, output: live.output }
      await withSession(shown, flags, (session) =>
        poll(shown, session, { ids, until, question: flags.question, live }),
      )
    })

interface Wanted {
  readonly ids: readonly string[]
  readonly until: Stage | undefined
  readonly question: string | undefined
  readonly live: Live | undefined
}

async function poll(
  context: Context,
  session: Session,
  { ids, until, question, live }: Wanted,
): Promise<void> {
  const { output } = context
  const view = await session.journal.load()
  const given = [...new Set(ids)].map((id) => targetOf(view, id, question))
  const gateway = await session.gateway('run')
  const accepted = ids.length > 0 ? [] : acceptedIn(context, view)
  const held = accepted.map((one) => ({ one, away: otherGateway(one, gateway.origin) }))
  const here = held.flatMap(({ one: { candidateId = '', signed }, away }) =>
    away === undefined ? [{ candidateId, identifier: signed.questionId }] : [],
  )
  const targets = ids.length > 0 ? given : here
  const elsewhere = held.flatMap(({ one, away }) => (away === undefined ? [] : [{ one, ...away }]))
  for (const each of elsewhere) output.note(awayText(each))
  const result = await follow(
    context,
    { ports: session.ports, gateway, journal: session.journal },
    targets,
    {
      timeoutMs: session.settings.timeoutMs,
      until,
      // The document holds the whole of each status; it costs the same items (§8).
      full: output.mode === 'json',
      aboutOf: (id) => aboutText(view, id),
      live,
    },
  )
  const { candidates, error, refusals } = result
  const labelled = (status: (typeof candidates)[number]) => ({
    ...status,
    label: ownOf(view, status.candidate_id)?.label ?? null,
  })
  if (output.mode === 'ndjson')
    output.result('status', { summary: summaryOf(result), ...awayData(elsewhere) }, () => '')
  else
    output.result('status', { candidates: candidates.map(labelled), ...awayData(elsewhere) }, () =>
      targets.length === 0
        ? nothingText
        : finalText(targets, candidates, output, (id) => ownOf(view, id), refusals),
    )
  const own = candidates.flatMap((status) => view.byCandidate(status.candidate_id)?.signed ?? [])
  await noteFallenRewards(context, session, own)
  if (error) throw error
}

/** What the journal has of a candidate, for screens and documents. */
export function ownOf(view: JournalView, candidateId: string): Own | undefined {
  const own = view.byCandidate(candidateId)
  if (own === undefined) return undefined
  const { signed, id: journalId } = own
  const { identifier, title, slug } = signed
  const named = { identifier: slug ?? identifier, title }
  return { journalId, label: labelOf(signed), answer: answerOf(signed), ...named }
}

function aboutText(view: JournalView, candidateId: string): string {
  const signed = view.byCandidate(candidateId)?.signed
  return signed === undefined ? '' : `${questionOf(signed)}  ${answerOf(signed)}`
}

/** An unfinished candidate that another gateway has. */
type Away = OtherGateway & { readonly one: JournaledAuthorization }

const awayText = ({ one, origin, flag }: Away) =>
  `note: not polled here: ${visible(questionOf(one.signed))}, ${visible(answerOf(one.signed))}, went to ${origin}: \`proposer poll ${one.candidateId} ${flag}\``

const awayData = (elsewhere: readonly Away[]) =>
  elsewhere.length === 0
    ? {}
    : {
        elsewhere: elsewhere.map(({ one, origin, flag }) => ({
          candidate_id: one.candidateId ?? null,
          journal_id: one.id,
          origin,
          flag,
        })),
      }

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

const nothingText = 'nothing to poll: the journal has no unfinished candidate of this gateway'

function bothGiven(): UsageError {
  return new UsageError('ids_and_all', '--all and candidate ids cannot be used together', {
    hint: 'omit --all or the ids',
  })
}

function requireStage(text: string | undefined): Stage | undefined {
  if (text === undefined) return undefined
  const stage = stages.find((one) => one === text)
  if (stage !== undefined) return stage
  throw new UsageError('bad_stage', `--until ${text} is not a stage`, {
    hint: `give one of ${stages.join(', ')}`,
  })
}

/**
 * A candidate and its question, from the journal unless `question` names it; without one the batch
 * route serves. Throws UsageError `invalid_candidate_id` (exit 2).
 */
export function targetOf(
  view: JournalView,
  candidateId: string,
  question: string | undefined,
): PollTarget {
  if (!isCandidateId(candidateId)) {
    throw new UsageError('invalid_candidate_id', `"${candidateId}" is not a candidate id`, {
      hint: 'give the candidate_id of the acknowledgement; `proposer journal list` shows them',
    })
  }
  const known = view.byCandidate(candidateId)
  return {
    candidateId: known?.candidateId ?? candidateId,
    identifier: question === undefined ? known?.signed.questionId : requireIdentifier(question),
  }
}

function acceptedIn(context: Context, view: JournalView): readonly JournaledAuthorization[] {
  const nowMs = context.clock.nowMs()
  return view.authorizations.filter((one) => stateOf(one, nowMs).kind === 'accepted')
}
