/** What a batch tells of one row: of a sending, from the journal, or that its turn did not come. */
import {
  ConflictError,
  type ProposerError,
  RejectedError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
} from '../../protocol/errors.js'
import { outcomeOf } from '../../protocol/proposal.js'
import { shellWord } from '../../protocol/text.js'
import type { BatchRow } from '../input/input.js'
import { isUnsettled, type JournaledAuthorization, stateOf } from '../journal/authorizations.js'
import {
  type OtherGateway,
  type OutOfBand,
  sentElsewhere,
  supersededError,
} from '../journal/saved.js'
import type { SubmitParts } from './attempt.js'
import type { SubmissionResult } from './outcome.js'
import { type CurrentRound, knownOver } from './round-over.js'

/**
 * Everything but `accepted` and `replayed` carries an error; those do where another gateway holds
 * the candidate.
 */
export interface RowOutcome {
  readonly outcome: 'accepted' | 'replayed' | 'rejected' | 'unknown' | 'deferred'
  readonly statusCode: number | null
  readonly authorization?: JournaledAuthorization | undefined
  /** `asOf`: its status is that of an answer to this run, or the last one of the journal. */
  readonly candidate?: {
    readonly candidateId: string
    readonly status: string
    readonly receivedAt: string
    readonly asOf: 'answer' | 'journal'
  }
  readonly error?: ProposerError | undefined
  /** Another gateway has it, and it was not sent to this one (contract §6). */
  readonly elsewhere?: OtherGateway | undefined
  /** Its round is over, and no gateway will tell any more. */
  readonly outOfBand?: OutOfBand | undefined
}

const rowWords = {
  refused: 'rejected',
  conflict: 'rejected',
  unknown: 'unknown',
  deferred: 'deferred',
  interrupted: 'deferred',
} as const

export function sentOutcome(result: SubmissionResult): RowOutcome {
  const { authorization, statusCode } = result
  if (result.error === undefined) {
    const { outcome, candidateId, status, receivedAt } = result
    const candidate = { candidateId, status, receivedAt, asOf: 'answer' as const }
    return { outcome, statusCode, authorization, candidate }
  }
  const { error, outOfBand } = result
  const outcome = rowWords[result.outcome]
  // Accepted is not deferred (contract §1): an earlier run's acknowledgement stands.
  const known = outcome === 'deferred' ? candidateInJournal(authorization) : undefined
  return { outcome, statusCode, authorization, error, outOfBand, ...known }
}

export function refusedHere(row: BatchRow, error: ProposerError): RowOutcome {
  const outcome = error instanceof UnavailableError ? 'deferred' : 'rejected'
  const statusCode = error.meta.httpStatus ?? null
  return { outcome, statusCode, error: asItemError(row, error) }
}

function candidateInJournal({
  candidateId,
  attempts,
  terminal,
  receivedAt,
}: JournaledAuthorization) {
  if (candidateId === undefined) return undefined
  const end = terminal?.outcome
  // Runs are read in no order: a 200 says that these bytes were known before.
  const wasReplayed = attempts.some(({ end }) => end?.class === 'accepted' && end.status === 200)
  const statusCode = wasReplayed ? 200 : 202
  return {
    outcome: statusCode === 200 ? ('replayed' as const) : ('accepted' as const),
    statusCode,
    candidate: {
      candidateId,
      status: end === 'executed' || end === 'failed' ? end : 'received',
      receivedAt: receivedAt ?? '',
      asOf: 'journal' as const,
    },
  }
}

export function fromJournal(authorization: JournaledAuthorization, nowMs: number): RowOutcome {
  const known = candidateInJournal(authorization)
  if (known !== undefined) return { ...known, authorization }
  const state = stateOf(authorization, nowMs)
  const status = authorization.attempts.findLast((one) => one.end?.class === 'refused')?.end?.status
  const code = (state.kind === 'closed' ? (state.code ?? state.reason) : undefined) ?? 'closed'
  const Kind = status === 403 ? UnauthorizedError : RejectedError
  const error = new Kind(
    code,
    `${authorization.id} was closed before (${code}); nothing was sent`,
    {
      hint: 'run the batch without --resume to sign it anew',
      ...(status === undefined ? {} : { httpStatus: status }),
    },
  )
  return { outcome: 'rejected', statusCode: status ?? null, authorization, error }
}

/** A row whose turn did not come: it may have been admitted before. */
export function unsentOutcome(
  authorization: JournaledAuthorization | undefined,
  why: ProposerError,
  nowMs: number,
): RowOutcome {
  if (authorization !== undefined) {
    const isClosed = stateOf(authorization, nowMs).kind === 'closed'
    if (authorization.candidateId !== undefined || isClosed)
      return fromJournal(authorization, nowMs)
    if (isUnsettled(authorization)) return unasked(authorization)
  }
  const hint = 'continue later with --resume'
  const error = new UnavailableError('not_sent', `it was not sent: ${why.detail}`, { hint })
  return { outcome: 'deferred', statusCode: null, error, authorization }
}

function unasked(authorization: JournaledAuthorization): RowOutcome {
  const { id } = authorization
  const error = new UncertainError(
    'outcome_unknown',
    `${id} may have been admitted by an earlier attempt, and could not be asked about now`,
    {
      hint: `send the same bytes again with --resume, or with \`proposer replay ${id}\``,
      retryable: true,
    },
  )
  return { outcome: 'unknown', statusCode: null, authorization, error }
}

/**
 * In place of sending saved bytes: they were replaced (R8), went to another gateway (contract
 * §6), or
 * their round is over (§7 rule 3).
 */
export async function skippedOutcome(
  { ports, gateway }: Pick<SubmitParts, 'ports' | 'gateway'>,
  authorization: JournaledAuthorization,
  round?: CurrentRound,
): Promise<RowOutcome | undefined> {
  const superseded = supersededError(authorization)
  if (superseded !== undefined)
    return { outcome: 'rejected', statusCode: null, authorization, error: superseded }
  const away = sentElsewhere(authorization, gateway.origin, ports.clock.nowMs())
  if (away !== undefined) {
    const { error, origin, flag } = away
    const outcome = error instanceof UncertainError ? 'unknown' : 'deferred'
    const known = candidateInJournal(authorization) ?? { outcome, statusCode: null }
    return { ...known, authorization, error, elsewhere: { origin, flag } }
  }
  const over = await knownOver(authorization, round)
  return over && sentOutcome(over)
}

/** Exit 3, as one that the gateway refuses (contract §6); its hint offers what a batch has. */
export function asItemError(row: BatchRow, error: ProposerError): ProposerError {
  if (error instanceof UnavailableError || error instanceof UnauthorizedError) return error
  // What the user asked us to hold back is exit 2 for a row too (contract §9).
  if (heldBack.has(error.code)) return error
  const { httpStatus, hint, exitCode: _exitCode, ...meta } = error.meta
  const rest = {
    ...(hint === undefined ? {} : { hint: inBatch(row, hint) }),
    ...(httpStatus === undefined ? {} : { httpStatus }),
  }
  return error instanceof ConflictError
    ? new ConflictError(error.code, error.detail, { ...meta, ...rest })
    : new RejectedError(error.code, error.detail, rest)
}

const heldBack: ReadonlySet<string> = new Set(['rules_changed', 'check_failed', 'other_question'])

/** Flags of the verbs for one question become the command, or the row's field. */
function inBatch(row: BatchRow, hint: string): string {
  const outcome =
    row.kind === 'intent' ? row.outcome : (outcomeOf(row.item.proposed_price) ?? '<p1|p2|p3>')
  const replace = `\`proposer submit ${row.identifier} --outcome ${shellWord(outcome)} --supersede $1\``
  const outside = (text: string) =>
    text
      .replace(/--supersede ([0-9a-f]{12}-\d+)/, replace)
      .replace(/--(nonce|deadline|amount)\b/g, '$1')
  // Every second part is a command, whole as it stands.
  const parts = hint.split('`')
  return parts.map((part, at) => (at % 2 === 1 ? part : outside(part))).join('`')
}
