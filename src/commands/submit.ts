/**
 * `submit`: sends a saved or given payload, signing first where there is none; the outcome is
 * settled or said to be unknown (R7).
 */
import { Command } from 'commander'
import { knownToken } from '../core/chain/profiles.js'
import { answerOf, executedText, labelOf } from '../core/client/journal/authorizations.js'
import { uncheckedOf } from '../core/client/journal/records.js'
import type { SettledEarlier } from '../core/client/propose/earlier.js'
import { executedBefore, type IntentInWords } from '../core/client/propose/intent.js'
import type { SubmissionResult } from '../core/client/propose/outcome.js'
import { readPayload } from '../core/client/propose/payload.js'
import { submitIntent, submitPayload } from '../core/client/propose/submission.js'
import type { Trust } from '../core/client/trust/trust.js'
import { PendingError, type ProposerError, UsageError } from '../core/protocol/errors.js'
import { follow } from './follow.js'
import { identify } from './session/identify.js'
import { parseJson, readInput } from './session/inputs.js'
import {
  addIntentFlags,
  authorizeParts,
  type IntentFlags,
  parseIntent,
  showPreview,
  signingFlags,
} from './session/intent.js'
import { requireIdentifier } from './session/question.js'
import { collector, retryNote, roundNow, settledData, withSettled } from './session/rounds.js'
import { addExecutorFlags, type Session, withSession } from './session/session.js'
import { noteFallenRewards } from './session/stakes.js'
import { candidateText, failureLines } from './terminal/candidate-text.js'
import type { Context } from './terminal/context.js'
import {
  amountText,
  amountWithRaw,
  fields,
  fold,
  type TokenUnits,
  timeText,
} from './terminal/render.js'

interface SubmitFlags extends IntentFlags {
  readonly wait?: boolean
  readonly verbose?: boolean
}

export const submitCommand = (context: Context): Command =>
  addExecutorFlags(
    addIntentFlags(
      new Command('submit')
        .description('send a proposal; sign it first unless a payload is given')
        .argument('<identifier>', 'question id, slug or Polymarket URL')
        .argument('[payload]', 'a signed payload, - for stdin')
        .option('--wait', 'wait until the candidate is executed or failed')
        .option('--details', 'show everything that is signed and returned; --verbose implies it'),
    ),
  )
    .addHelpText(
      'after',
      '\nExit 6: the outcome is unknown. Run `proposer replay`; never sign again.\n\nExamples:\n  proposer submit some-slug --outcome p2 --wait\n  proposer submit some-slug payload.json',
    )
    .action(async (given: string, payload: string | undefined, _own: unknown, command: Command) => {
      const options = command.optsWithGlobals<SubmitFlags>()
      const details = options.details === true || options.verbose === true
      const flags = { ...options, details }
      requireIdentifier(given)
      if (payload === undefined) await parseIntent(context, given, flags, '0x')
      else refuseSigningFlags(flags)
      const settled: SettledEarlier[] = []
      try {
        await withSession(context, flags, async (session) => {
          const [identifier = given] = await identify(context, session, [given])
          await submit(context, session, flags, { identifier, payload, settled })
        })
      } catch (error) {
        throw context.output.mode === 'human' ? error : withSettled(error, settled)
      }
    })

/** `--dry-run`, where what was executed before is no fault either. */
async function previewIntent(
  context: Context,
  session: Session,
  flags: SubmitFlags,
  intent: IntentInWords,
): Promise<void> {
  const parts = await authorizeParts(context, session, flags, intent.identifier)
  try {
    await showPreview(context, session, flags, parts, intent)
  } catch (error) {
    const { gateway } = parts
    const executed = gateway && (await executedBefore({ ...parts, gateway }, intent, error))
    if (executed === undefined) throw error
    const { id, signed } = executed
    const { questionId: question_id, identifier, digest = null } = signed
    const shown = { dry_run: true, executed: id, question_id, identifier, digest }
    context.output.result('preview', shown, () =>
      fold(`${executedText(executed)}; nothing would be signed`, context.output.columns, '  '),
    )
  }
}

function refuseSigningFlags(flags: SubmitFlags): void {
  const given = signingFlags.find((flag) => flags[flag] !== undefined)
  if (given === undefined) return
  const name = `--${given.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`
  throw new UsageError('flag_without_meaning', `${name} cannot be used with a signed payload`, {
    hint: `omit ${name}, or omit the payload to have a new one signed`,
  })
}

async function submit(
  context: Context,
  session: Session,
  flags: SubmitFlags,
  {
    identifier,
    payload,
    settled,
  }: { identifier: string; payload: string | undefined; settled: SettledEarlier[] },
): Promise<void> {
  const { output, clock } = context
  const startedMs = clock.monotonicMs()
  const body = payload === undefined ? undefined : await payloadText(context, payload)
  const intent =
    body === undefined
      ? await parseIntent(context, identifier, flags, await session.account.address(), session)
      : undefined
  if (flags.dryRun === true) {
    if (intent) return previewIntent(context, session, flags, intent)
    return showPayload(context, session, identifier, body ?? '')
  }
  const trust = await session.trust()
  const gateway = await session.gateway('run')
  const progress = output.progress('sending')
  const { timeoutMs } = session.settings
  const options = {
    timeoutMs,
    signal: context.signal,
    onRetry: retryNote(context),
  }
  const parts = {
    ports: session.ports,
    journal: session.journal,
    gateway,
    onSettled: collector(context, flags.quiet === true, settled),
  }
  let result: SubmissionResult
  let isShown = false
  const beforeSigning = () => {
    progress.stop()
    isShown = true
  }
  try {
    result = intent
      ? await submitIntent(
          {
            ...parts,
            ...(await quietWhileSigning(context, session, flags, identifier, beforeSigning)),
          },
          intent,
          options,
        )
      : await submitPayload({ ...parts, trust }, identifier, body ?? '', {
          ...options,
          round: roundNow(context, session),
          supersede: flags.supersede,
        })
  } finally {
    progress.stop()
  }
  if (result.error) throw result.error
  const accepted = acceptedOf(result, settled)
  if (flags.wait !== true) {
    output.result('submitted', accepted, () =>
      flags.details === true
        ? submittedText(accepted, output.columns, executedText(result.authorization))
        : briefText(result, accepted.outcome, output.columns, isShown),
    )
    return
  }
  if (output.mode === 'ndjson') output.line({ schema: 'proposer.submitted/1', ...accepted })
  const left =
    timeoutMs === undefined ? undefined : Math.max(1, timeoutMs - (clock.monotonicMs() - startedMs))
  const polled = await follow(
    context,
    parts,
    [{ candidateId: result.candidateId, identifier: result.questionId }],
    { timeoutMs: left },
  )
  const [last] = polled.candidates
  output.result(
    'submitted',
    { ...accepted, status: last?.status ?? accepted.status, candidate: last ?? null },
    () =>
      followedText(context, result, accepted, polled.candidates, flags.details === true, isShown),
  )
  await noteFallenRewards(context, session, [result.authorization.signed])
  if (polled.error) throw stillPending(polled.error, accepted)
}

type Admitted = Extract<SubmissionResult, { candidateId: string }>

const acceptedOf = (result: Admitted, settled: SettledEarlier[]) => ({
  journal_id: result.journalId,
  outcome: result.outcome,
  candidate_id: result.candidateId,
  status: result.status || null,
  question_id: result.questionId,
  received_at: result.receivedAt || null,
  unchecked: uncheckedOf(result.authorization.signed),
  ...(settled.length === 0 ? {} : { settled: settledData(settled) }),
})

function followedText(
  { output }: Context,
  result: Admitted,
  accepted: ReturnType<typeof acceptedOf>,
  candidates: Awaited<ReturnType<typeof follow>>['candidates'],
  hasDetails: boolean,
  isShown: boolean,
): string {
  const [last] = candidates
  const executed = executedText(result.authorization)
  if (!hasDetails) {
    const { submission } = last ?? {}
    const state = last?.status ?? accepted.outcome
    const where = submission?.transaction_hash
    return [
      briefText(result, state, output.columns, isShown, where),
      ...(last === undefined ? [] : failureLines(last, output, accepted.journal_id)),
    ].join('\n')
  }
  return [
    fields(
      [
        ['executed', executed],
        [accepted.outcome, accepted.candidate_id],
        ['journal', accepted.journal_id],
      ],
      output.columns,
    ),
    ...candidates.map((one) =>
      candidateText(one, output, {
        journalId: accepted.journal_id,
        label: labelOf(result.authorization.signed),
        identifier: result.authorization.signed.identifier,
      }),
    ),
  ].join('\n')
}

/** What was admitted is on its way: exit 75 would say that it was not admitted (contract §6). */
function stillPending(
  error: ProposerError,
  { candidate_id: id, status }: Pick<Accepted, 'candidate_id' | 'status'>,
): ProposerError {
  if (error.code !== 'no_status') return error
  return new PendingError(
    'still_pending',
    `candidate ${id} was ${status ?? 'not checked yet'} when it was admitted; ${error.detail}`,
    {
      hint: `continue with \`proposer poll ${id}\``,
      retryable: true,
    },
  )
}

/** The spinner makes room for what is shown before signing, and for a password. */
async function quietWhileSigning(
  context: Context,
  session: Session,
  flags: SubmitFlags,
  identifier: string,
  makeRoom: () => void,
) {
  const parts = await authorizeParts(context, session, flags, identifier)
  const { confirm, signer } = parts
  return {
    ...parts,
    confirm: async (shown: Parameters<NonNullable<typeof confirm>>[0]) => {
      makeRoom()
      await confirm?.(shown)
    },
    signer: () => {
      makeRoom()
      return signer()
    },
  }
}

async function payloadText(context: Context, path: string): Promise<string> {
  const bytes = await readInput(context, path)
  parseJson(bytes, path)
  return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
}

/** `--dry-run` with a payload: without its signature. Refuses what the sending would refuse. */
async function showPayload(
  context: Context,
  session: Session,
  identifier: string,
  body: string,
): Promise<void> {
  const parts = { ports: session.ports, trust: await session.trust() }
  const { payload } = readPayload(parts, identifier, body, await session.journal.load())
  const { origin } = await session.gateway('read')
  const { proposer, outcome, permit } = payload
  const shown = {
    dry_run: true,
    identifier,
    origin,
    bytes: new TextEncoder().encode(body).length,
    proposer,
    outcome,
    permit,
  }
  context.output.result('preview', shown, () =>
    fields(
      [
        ['would send', `${shown.bytes} bytes to ${origin}`],
        ['question', identifier],
        ['proposer', proposer],
        ['answer', outcome],
        ['authorizes', amountWithRaw(permit.amount, unitsOfAll(parts.trust))],
        ['deadline', permit.deadline],
      ],
      context.output.columns,
    ),
  )
}

/** A payload names no token: it is known where only one is pinned. */
const unitsOfAll = ({
  chain_id: chainId,
  tokens: [token, ...others],
}: Trust): TokenUnits | undefined =>
  token !== undefined && others.length === 0 ? knownToken(chainId, token) : undefined

interface Accepted {
  readonly journal_id: string
  readonly outcome: string
  readonly candidate_id: string
  readonly status: string | null
  readonly question_id: string
  readonly received_at: string | null
}

/** Before the state question, answer and amount, unless they were shown before signing. */
function briefText(
  { authorization, candidateId }: Extract<SubmissionResult, { candidateId: string }>,
  state: string,
  columns: number,
  isShown: boolean,
  transaction?: string | null,
): string {
  const { id, signed } = authorization
  const units = knownToken(signed.chainId, signed.token ?? '')
  const executed = executedText(authorization)
  const where = transaction == null ? '' : ` in transaction ${transaction}`
  return [
    ...(isShown
      ? []
      : [signed.identifier, `${answerOf(signed)}, ${amountText(signed.terms.amount, units)}`]),
    executed === undefined
      ? `${state} ${candidateId} (journal ${id})${where}`
      : `${executed} (candidate ${candidateId}, journal ${id})`,
  ]
    .map((line) => fold(line, columns, '  '))
    .join('\n')
}

function submittedText(accepted: Accepted, columns: number, executed?: string): string {
  return fields(
    [
      ['executed', executed],
      [accepted.outcome, accepted.candidate_id],
      ['status', accepted.status],
      ['question', accepted.question_id],
      ['received', accepted.received_at && timeText(accepted.received_at)],
      ['journal', accepted.journal_id],
      ['next', `proposer poll ${accepted.candidate_id}`],
    ],
    columns,
  )
}
