/** `submit`: journal first, sign only where it must, and send (contract §6). */
import type { Hex } from '../ports.js'
import { ProposerError, UnauthorizedError, UncertainError, UsageError } from '../protocol/errors.js'
import { fromSingle, identityOf, type Terms } from '../protocol/proposal.js'
import { SignedProposal } from '../protocol/schema.js'
import { recoverSigner } from '../protocol/signature.js'
import { fromHex } from '../protocol/witness.js'
import type { SubmitParts } from './attempt.js'
import { type Authorization, offersFor, openFor } from './authorizations.js'
import { type AuthorizeParts, authorizationOpen, authorize, type Intent, signInRound } from './authorize.js'
import type { JournalView } from './journal.js'
import type { Offered, Signed } from './journal-records.js'
import { offerOpen } from './outside.js'
import { unknownId } from './replay.js'
import { type SubmissionResult, type SubmitOptions, submitAuthorization } from './sending.js'
import { pinnedQuestionId, type Trust, untrusted } from './trust.js'

export { gravest } from './answer.js'
export type { SubmitParts } from './attempt.js'
export { replay } from './replay.js'
export { type SubmissionResult, type SubmitOptions, submitAuthorization } from './sending.js'

/**
 * `submit <identifier> --outcome` (contract §6): look-up, sign if need be, send. Where the saved bytes turn out to be of an earlier round,
 * that one is settled and a new one is signed and sent, once. Rejects like `authorize`.
 */
export async function submitIntent(
  parts: SubmitParts & AuthorizeParts,
  intent: Intent,
  options: SubmitOptions = {},
): Promise<SubmissionResult> {
  const first = await authorize(parts, intent)
  const result = await submitAuthorization(parts, first.authorization, options)
  if (!first.reused || !(await roundIsOver(parts, result))) return result
  const view = await parts.journal.load()
  parts.note?.(`${first.journalId} is of an earlier round`)
  const next = await signInRound({ ...parts, note: parts.note ?? (() => undefined) }, withoutSupersede(intent, view))
  return submitAuthorization(parts, next.authorization, options)
}

/** A superseding intent that was reused has done its work. */
function withoutSupersede(intent: Intent, view: JournalView): Intent {
  if (intent.supersede === undefined || view.find(intent.supersede)?.supersededBy === undefined) return intent
  const { supersede: _done, ...rest } = intent
  return rest
}

/** The gateway says so, or refuses a signature that names another round than the current one. */
async function roundIsOver(parts: AuthorizeParts, { authorization, error }: SubmissionResult): Promise<boolean> {
  if (error === undefined) return false
  if (error.code === 'round_advanced') return true
  const refused = error instanceof UnauthorizedError || (error instanceof UncertainError && error.meta.httpStatus === 403)
  if (!refused || authorization.signed.timestamp === undefined) return false
  try {
    return (await parts.context()).request.timestamp !== authorization.signed.timestamp
  } catch (cause) {
    // Not learned: the refusal stands as it is.
    if (cause instanceof ProposerError) return false
    throw cause
  }
}

/**
 * `submit <identifier> <payload>`: sends the file's exact bytes. A payload the journal holds goes by its own record; another open
 * authorization for the question: ConflictError `authorization_open` unless `supersede` names it. UsageError `invalid_payload`, and
 * `untrusted_slug` where neither trust nor journal tells the question.
 */
export async function submitPayload(
  parts: SubmitParts & { readonly trust: Trust },
  identifier: string,
  body: string,
  options: SubmitOptions & { readonly supersede?: string } = {},
): Promise<SubmissionResult> {
  const authorization = await parts.journal.exclusive((view) => importPayload(parts, identifier, body, options.supersede, view))
  return submitAuthorization(parts, authorization, options)
}

async function importPayload(
  parts: SubmitParts & { readonly trust: Trust },
  identifier: string,
  body: string,
  supersede: string | undefined,
  view: JournalView,
): Promise<Authorization> {
  const { ports, journal, trust } = parts
  const payload = parsePayload(body)
  const known = view.authorizations.findLast(({ signed }) => signed.identifier === identifier && signed.chainId === trust.chain_id)
  const questionId = pinnedQuestionId(trust, identifier) ?? (known?.signed.questionId as Hex | undefined)
  if (questionId === undefined) {
    throw untrusted('slug', `the slug ${identifier} is not pinned in the trust file`, 'give the question ID itself')
  }
  const { signature, ...terms } = { ...fromSingle(questionId, payload) }
  const binding = { chainId: trust.chain_id, spender: trust.signed_proposer as Hex }
  const identity = identityOf(ports.hash, binding, { ...terms, signature })
  const same = view.byIdentity(identity)
  if (same !== undefined) return same
  const wanted = { questionId, proposer: terms.proposer, chainId: trust.chain_id }
  const offers = offersFor(view.offers, wanted, ports.clock.nowMs())
  // What a wallet outside was asked for has come back as a whole payload: the same authorization, and its round is known.
  const asked = offers.find(
    ({ offered }) => recoverSigner(fromHex(offered.digest), signature) === terms.proposer && saysThe(offered, terms),
  )
  const open = openFor(view.authorizations, wanted, ports.clock.nowMs()).filter(({ id }) => id !== supersede)
  const other = open.at(-1)
  if (other !== undefined) throw authorizationOpen(other)
  const given = offers.findLast((one) => one !== asked && one.id !== supersede)
  if (given !== undefined) throw offerOpen(given)
  const replaceable = supersede === undefined || [...view.authorizations, ...view.offers].some(({ id }) => id === supersede)
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

const saysThe = ({ terms: given }: Offered, { proposer, price, amount, nonce, deadline }: Terms): boolean =>
  given.proposer === proposer && given.price === price && given.amount === amount && given.nonce === nonce && given.deadline === deadline

function parsePayload(body: string): SignedProposal {
  const invalid = (why: string) =>
    new UsageError('invalid_payload', `the payload is not a signed proposal: ${why}`, {
      hint: 'make one with `proposer sign <identifier> --outcome <p1|p2|p3> -o <file>`',
    })
  let json: unknown
  try {
    json = JSON.parse(body)
  } catch {
    throw invalid('it is not JSON')
  }
  const parsed = SignedProposal.safeParse(json)
  if (parsed.success) return parsed.data
  const path = parsed.error.issues[0]?.path.map(String).join('.') ?? ''
  throw invalid(path === '' ? 'fields are missing or not known' : `${path} is missing or malformed`)
}
