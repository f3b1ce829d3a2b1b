/**
 * What is told of a row that this run does not send: from the journal, or because its turn did not
 * come.
 */
import {
  type ProposerError,
  RejectedError,
  UnauthorizedError,
  UnavailableError,
  UncertainError,
} from '../../protocol/errors.js'
import { type Authorization, isUnsettled, stateOf } from '../journal/authorizations.js'
import type { JournalPorts } from '../journal/journal.js'
import type { Settled } from './settle.js'

interface Told {
  readonly ports: Pick<JournalPorts, 'clock'>
}

/** The candidate as an earlier run left it in the journal; `undefined` where none is known. */
export function candidateInJournal({ candidateId, attempts, terminal, receivedAt }: Authorization) {
  if (candidateId === undefined) return undefined
  const ended = terminal?.outcome === 'executed' || terminal?.outcome === 'failed'
  const statusCode = attempts.findLast(({ end }) => end?.class === 'accepted')?.end?.status ?? 202
  const outcome = statusCode === 200 ? ('replayed' as const) : ('accepted' as const)
  const status = ended ? terminal.outcome : 'received'
  return {
    outcome,
    statusCode,
    candidate: { candidateId, status, receivedAt: receivedAt ?? '', asOf: 'journal' as const },
  }
}

/** What an earlier run left in the journal. */
export function fromJournal({ ports }: Told, authorization: Authorization): Settled {
  const known = candidateInJournal(authorization)
  if (known !== undefined) return { ...known, authorization }
  const state = stateOf(authorization, ports.clock.nowMs())
  const end = authorization.attempts.findLast((one) => one.end?.class === 'refused')?.end
  const code = (state.kind === 'closed' ? (state.code ?? state.reason) : undefined) ?? 'closed'
  const detail = `${authorization.id} was closed before (${code}); nothing was sent`
  const rest = {
    hint: 'run the batch without --resume to sign it anew',
    ...(end?.status === undefined ? {} : { httpStatus: end.status }),
  }
  const error =
    end?.status === 403
      ? new UnauthorizedError(code, detail, rest)
      : new RejectedError(code, detail, rest)
  return { outcome: 'rejected', statusCode: end?.status ?? null, authorization, error }
}

/** A row of which nothing is journaled. */
export const notSent = (why: ProposerError): Settled => ({
  outcome: 'deferred',
  statusCode: null,
  error: new UnavailableError('not_sent', `it was not sent: ${why.detail}`, {
    hint: 'go on later with --resume',
  }),
})

/** A row with saved bytes that was not reached. */
export function unsentOf(parts: Told, authorization: Authorization, why: ProposerError): Settled {
  if (authorization.candidateId !== undefined) return fromJournal(parts, authorization)
  if (stateOf(authorization, parts.ports.clock.nowMs()).kind === 'closed')
    return fromJournal(parts, authorization)
  if (!isUnsettled(authorization)) return { ...notSent(why), authorization }
  const error = new UncertainError(
    'outcome_unknown',
    `${authorization.id} may have been admitted by an earlier attempt, and could not be asked about now`,
    {
      hint: `send the same bytes again with --resume, or with \`proposer replay ${authorization.id}\``,
      retryable: true,
    },
  )
  return { outcome: 'unknown', statusCode: null, authorization, error }
}
