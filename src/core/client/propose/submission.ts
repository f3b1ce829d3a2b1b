/** `submit`: journal first, sign only where it must, and send (contract §6). */
import { ProposerError, UnauthorizedError, UncertainError } from '../../protocol/errors.js'
import type { Terms } from '../../protocol/proposal.js'
import { recoverSigner } from '../../protocol/signature.js'
import { fromHex } from '../../protocol/witness.js'
import { type Authorization, offersFor, openFor, stateOf } from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import type { Offered, Signed } from '../journal/records.js'
import { atRequester, mayBeAt, type Trust } from '../trust/trust.js'
import type { SubmitParts } from './attempt.js'
import {
  type AuthorizeParts,
  authorizationOpen,
  authorize,
  type Intent,
  signInRound,
} from './authorize.js'
import { offerOpen } from './outside.js'
import { readPayload } from './payload.js'
import { refuseSuperseded, sentElsewhere, unknownId } from './replay.js'
import { type CurrentRound, sendInRound } from './round-over.js'
import { type SubmissionResult, type SubmitOptions, submitAuthorization } from './sending.js'

export { gravest } from '../gateway/answer.js'
export type { SubmitParts } from './attempt.js'
export type { SettledEarlier } from './earlier.js'
export { replay, type Skipped } from './replay.js'
export type { CurrentRound } from './round-over.js'
export {
  type OutOfBand,
  type SubmissionResult,
  type SubmitOptions,
  submitAuthorization,
} from './sending.js'

/**
 * `submit <identifier> --outcome` (contract §6): look-up, sign if need be, send. Where the saved
 * bytes turn out to be of an earlier round, that one is settled and a new one is signed and sent,
 * once. Rejects like `authorize`, and with UncertainError `other_origin` where saved bytes of
 * unknown outcome went to another gateway: this one cannot tell about them (R7).
 */
export async function submitIntent(
  parts: SubmitParts & AuthorizeParts,
  intent: Intent,
  options: SubmitOptions = {},
): Promise<SubmissionResult> {
  const first = await authorize(parts, intent)
  refuseElsewhere(parts, first.authorization)
  const result = await sendInRound(parts, first.authorization, options)
  if (!first.reused || !(await roundIsOver(parts, result))) return result
  const view = await parts.journal.load()
  parts.note?.(`${first.journalId} is of an earlier round`)
  const next = await signInRound(
    { ...parts, note: parts.note ?? (() => undefined) },
    withoutSupersede(intent, view),
  )
  return submitAuthorization(parts, next.authorization, options)
}

function refuseElsewhere({ ports, gateway }: SubmitParts, authorization: Authorization): void {
  const nowMs = ports.clock.nowMs()
  if (stateOf(authorization, nowMs).kind !== 'unknown') return
  const away = sentElsewhere(authorization, gateway.origin, nowMs)
  if (away !== undefined) throw away.error
}

/** A superseding intent that was reused has done its work. */
function withoutSupersede(intent: Intent, view: JournalView): Intent {
  if (intent.supersede === undefined || view.find(intent.supersede)?.supersededBy === undefined)
    return intent
  const { supersede: _done, ...rest } = intent
  return rest
}

/** The gateway says so, or refuses a signature that names another round than the current one. */
async function roundIsOver(
  parts: AuthorizeParts,
  { authorization, error }: SubmissionResult,
): Promise<boolean> {
  if (error === undefined) return false
  if (error.code === 'round_advanced' || error.code === 'round_over') return true
  const refused =
    error instanceof UnauthorizedError ||
    (error instanceof UncertainError && error.meta.httpStatus === 403)
  if (!refused || authorization.signed.timestamp === undefined) return false
  try {
    const { request } = await parts.context()
    // Of another requester's round nothing follows for this one.
    return (
      mayBeAt(atRequester(parts.trust, request.requester), authorization.signed) &&
      request.timestamp !== authorization.signed.timestamp
    )
  } catch (cause) {
    // Not learned: the refusal stands as it is.
    if (cause instanceof ProposerError) return false
    throw cause
  }
}

/**
 * `submit <identifier> <payload>`: sends the file's exact bytes. A payload the journal holds goes
 * by its own record; another open authorization for the question: ConflictError
 * `authorization_open` unless `supersede` names it; `superseded` where it was replaced itself.
 * UsageError as `readPayload`, UncertainError `other_origin` as `submitIntent`.
 */
export async function submitPayload(
  parts: SubmitParts & { readonly trust: Trust },
  identifier: string,
  body: string,
  options: SubmitOptions & { readonly supersede?: string; readonly round?: CurrentRound } = {},
): Promise<SubmissionResult> {
  const { supersede, ...sending } = options
  const authorization = await parts.journal.exclusive((view) =>
    importPayload(parts, identifier, body, supersede, view),
  )
  refuseElsewhere(parts, authorization)
  return sendInRound(parts, authorization, sending)
}

async function importPayload(
  parts: SubmitParts & { readonly trust: Trust },
  identifier: string,
  body: string,
  supersede: string | undefined,
  view: JournalView,
): Promise<Authorization> {
  const { ports, journal, trust } = parts
  const { questionId, terms, signature, identity, same } = readPayload(
    parts,
    identifier,
    body,
    view,
  )
  if (same !== undefined) {
    refuseSuperseded(same)
    return same
  }
  const wanted = { questionId, proposer: terms.proposer, chainId: trust.chain_id }
  const offers = offersFor(view.offers, wanted, ports.clock.nowMs())
  // What a wallet outside was asked for has come back as a whole payload: the same authorization,
  // and its round is known.
  const asked = offers.find(
    ({ offered }) =>
      recoverSigner(fromHex(offered.digest), signature) === terms.proposer &&
      saysThe(offered, terms),
  )
  const open = openFor(view.authorizations, wanted, ports.clock.nowMs()).filter(
    ({ id }) => id !== supersede,
  )
  const other = open.at(-1)
  if (other !== undefined) throw authorizationOpen(other)
  const given = offers.findLast((one) => one !== asked && one.id !== supersede)
  if (given !== undefined) throw offerOpen(given)
  const replaceable =
    supersede === undefined ||
    [...view.authorizations, ...view.offers].some(({ id }) => id === supersede)
  if (!replaceable) throw unknownId(supersede)
  const { questionId: _question, ...permit } = terms
  const id = asked?.id ?? journal.nextId()
  const { typedData: _typedData, offeredAtMs: _offeredAtMs, ...askedFor } = asked?.offered ?? {}
  const signed: Signed = {
    ...askedFor,
    id,
    identifier,
    questionId,
    chainId: trust.chain_id,
    spender: trust.signed_proposer,
    terms: permit,
    identity,
    form: 'single',
    body,
    sha256: ports.hash.sha256(body),
    signedAtMs: Math.trunc(ports.clock.nowMs()),
    ...(supersede === undefined ? {} : { supersedes: supersede }),
  }
  await journal.append([{ kind: 'signed', data: signed }])
  return { id, signed, signedAtMs: signed.signedAtMs, attempts: [], terminals: [] }
}

const saysThe = (
  { terms: given }: Offered,
  { proposer, price, amount, nonce, deadline }: Terms,
): boolean =>
  given.proposer === proposer &&
  given.price === price &&
  given.amount === amount &&
  given.nonce === nonce &&
  given.deadline === deadline
