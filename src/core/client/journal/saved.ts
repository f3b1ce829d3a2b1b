import { instant } from '../../protocol/candidate.js'
import {
  ConflictError,
  type ProposerError,
  UnavailableError,
  UncertainError,
  UsageError,
} from '../../protocol/errors.js'
import { outcomeOf } from '../../protocol/proposal.js'
import { classOf, type JournaledAuthorization, stateOf } from './authorizations.js'
import type { Offered } from './records.js'

export const unknownId = (id: string): UsageError =>
  new UsageError(
    'unknown_journal_id',
    `authorization ${JSON.stringify(id)} not found in the journal`,
    {
      hint: 'see `proposer journal list`',
    },
  )

/** ConflictError `superseded`: two authorizations of one round must never both be sent (R8). */
export function supersededError(authorization: JournaledAuthorization): ConflictError | undefined {
  const { id, signed, supersededBy } = authorization
  if (supersededBy === undefined) return undefined
  return new ConflictError(
    'superseded',
    `${id} was replaced by ${supersededBy} and is no longer sent`,
    {
      hint: `see both with \`proposer reconcile ${signed.questionId}\`; \`proposer revoke ${id}\` makes sure that it can never execute`,
    },
  )
}

/** The command by which the next owner of a Safe goes on with what others have signed. */
export const nextOwner = ({ identifier, terms }: Offered): string =>
  `proposer sign ${identifier} --outcome ${outcomeOf(terms.price)} --safe ${terms.proposer} --as-owner`

export interface OtherGateway {
  readonly origin: string
  readonly flag: string
}

export interface Elsewhere extends OtherGateway {
  readonly authorization: JournaledAuthorization
  readonly error: ProposerError
}

/**
 * The other gateway that the bytes went to; `undefined` where they went `here` or nowhere. A
 * gateway that accepted them comes first, `here` if it is one of several; then one whose answer is
 * not known; then the last one.
 */
export function otherGateway(
  { attempts, candidateId }: JournaledAuthorization,
  here: string,
): OtherGateway | undefined {
  const accepted =
    candidateId === undefined ? [] : attempts.filter((one) => classOf(one) === 'accepted')
  const holder =
    accepted.find(({ start }) => start.origin === here) ??
    accepted.at(-1) ??
    attempts.findLast((one) => classOf(one) === 'uncertain') ??
    attempts.at(-1)
  const origin = holder?.start.origin
  if (origin === undefined || origin === here) return undefined
  // The path of a base URL is not journaled (R5), so the origin is what can be named.
  return {
    origin,
    flag: origin.startsWith('local:') ? '--local <gateway.json>' : `--gateway ${origin}`,
  }
}

/**
 * What is reported where the bytes of an open authorization went to another gateway than `here`. An
 * UncertainError (exit 6) where the outcome is unknown, else an UnavailableError (75). Source:
 * contract §6, R7.
 */
export function sentElsewhere(
  authorization: JournaledAuthorization,
  here: string,
  nowMs: number,
): Elsewhere | undefined {
  const { kind } = stateOf(authorization, nowMs)
  const other = kind === 'closed' ? undefined : otherGateway(authorization, here)
  if (other === undefined) return undefined
  const detail = `${authorization.id} was sent to ${other.origin}, which is not the configured gateway`
  const hint = `\`proposer replay ${authorization.id} ${other.flag}\``
  const error =
    kind === 'unknown'
      ? new UncertainError('other_origin', detail, { hint, retryable: true })
      : new UnavailableError('other_origin', detail, { hint })
  return { authorization, ...other, error }
}

export interface OutOfBand {
  readonly questionId: string
  readonly clientRef: string | undefined
  /** When the first attempt began that may have been admitted; Unix milliseconds. */
  readonly submittedAtMs: number
}

/** Question, client_ref and the time under which the operator finds the candidate. */
export function outOfBandOf({ signed, attempts, signedAtMs }: JournaledAuthorization): OutOfBand {
  const admitting = attempts.find((one) => ['uncertain', 'accepted'].includes(classOf(one)))
  return {
    questionId: signed.questionId,
    clientRef: signed.clientRef,
    submittedAtMs: (admitting ?? attempts[0])?.startedAtMs ?? signedAtMs,
  }
}

/** What `outOfBandOf` tells, for people. */
export function outOfBandLine(authorization: JournaledAuthorization): string {
  const { questionId, clientRef, submittedAtMs } = outOfBandOf(authorization)
  const ref = clientRef === undefined ? 'no client_ref' : `client_ref ${JSON.stringify(clientRef)}`
  return `the outcome of ${authorization.id} cannot be learned from here, its round has ended: ask the operator out of band about question ${questionId}, ${ref}, submitted at ${instant(submittedAtMs)} (never send the signature)`
}
