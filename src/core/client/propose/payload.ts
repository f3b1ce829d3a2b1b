/**
 * A payload that the user hands over: what it says, and whether the journal knows better what it is
 * for (R6, R7).
 */
import type { Hash, Hex } from '../../ports.js'
import { UsageError } from '../../protocol/errors.js'
import {
  fromSingle,
  identityOf,
  outcomeOf,
  type Authorization as Proposal,
} from '../../protocol/proposal.js'
import { SignedProposal } from '../../protocol/schema.js'
import { recoverSigner } from '../../protocol/signature.js'
import { fromHex } from '../../protocol/witness.js'
import type { Authorization, Offer } from '../journal/authorizations.js'
import type { JournalView } from '../journal/journal.js'
import type { Offered, Signed } from '../journal/records.js'
import { pinnedQuestionId, type Trust, unpinnedSlug } from '../trust/trust.js'

/** What a payload says, but its signature. */
type Terms = Omit<Proposal, 'signature'>

export interface Payload {
  readonly payload: SignedProposal
  readonly questionId: Hex
  readonly terms: Terms
  readonly signature: Hex
  /** R22. */
  readonly identity: string
  /** The journal holds this very payload for this question. */
  readonly same: Authorization | undefined
}

/**
 * Reads the JSON of a signed v1 proposal that is to be sent for `identifier`. UsageError (exit 2):
 * `invalid_payload`; `untrusted_slug` where neither trust nor journal tells the question;
 * `payload_of_other_question` where the journal holds these bytes or this signature for another
 * one; `payload_changed` where the nonce serves a journaled authorization with other fields (R6).
 */
export function readPayload(
  parts: { readonly ports: { readonly hash: Hash }; readonly trust: Trust },
  identifier: string,
  body: string,
  view: JournalView,
): Payload {
  const { ports, trust } = parts
  const payload = parsePayload(body)
  const known = view.authorizations.findLast(
    ({ signed }) => signed.identifier === identifier && signed.chainId === trust.chain_id,
  )
  const questionId =
    pinnedQuestionId(trust, identifier) ?? (known?.signed.questionId as Hex | undefined)
  if (questionId === undefined) {
    throw unpinnedSlug(identifier)
  }
  const { signature, ...terms } = fromSingle(questionId, payload)
  const binding = { chainId: trust.chain_id, spender: trust.signed_proposer as Hex }
  const identity = identityOf(ports.hash, binding, { ...terms, signature })
  const same = view.byIdentity(identity)
  if (same === undefined) newMisplaced(trust.chain_id, view)(body, terms, signature)
  return { payload, questionId, terms, signature, identity, same }
}

/**
 * What refuses a payload that the journal does not hold as it is: `payload_of_other_question`,
 * `payload_changed` (R6). The journal is indexed on first use, so that a batch may ask for each of
 * its items.
 */
export function newMisplaced(
  chainId: number,
  view: JournalView,
): (body: string, terms: Terms, signature: string) => void {
  let index:
    | { readonly signatures: Map<string, Authorization[]>; readonly nonces: Map<string, Holder[]> }
    | undefined
  const indexed = () => {
    const signatures = new Map<string, Authorization[]>()
    const nonces = new Map<string, Holder[]>()
    for (const one of view.authorizations) {
      if (one.signed.chainId !== chainId) continue
      put(signatures, signatureIn(one.signed.body), one)
      put(nonces, nonceKey(one.signed.terms), { id: one.id, record: one.signed })
    }
    for (const { id, offered: record } of view.offers)
      if (record.chainId === chainId) put(nonces, nonceKey(record.terms), { id, record })
    return { signatures, nonces }
  }
  return (body, terms, signature) => {
    index ??= indexed()
    const elsewhere = (index.signatures.get(signature) ?? []).find(
      ({ signed }) =>
        signed.terms.proposer === terms.proposer &&
        signed.questionId !== terms.questionId &&
        isOf(signed, body, terms, signature),
    )
    if (elsewhere !== undefined) throw ofOtherQuestion(elsewhere, terms.questionId)
    for (const { id, record } of index.nonces.get(nonceKey(terms)) ?? []) {
      const changes = changesOf(record, terms)
      if (changes.length > 0) throw changed(id, terms.nonce, changes)
    }
  }
}

interface Holder {
  readonly id: string
  readonly record: Signed | Offered
}

const nonceKey = ({ proposer, nonce }: Pick<Terms, 'nonce'> & { readonly proposer: string }) =>
  `${proposer} ${nonce}`

/** Of either form; found without parsing a whole journal. */
const signatureIn = (body: string): string =>
  /"signature"\s*:\s*"(0x[0-9a-f]*)"/.exec(body)?.[1] ?? ''

function put<T>(index: Map<string, T[]>, key: string, value: T): void {
  const known = index.get(key)
  if (known === undefined) index.set(key, [value])
  else known.push(value)
}

/**
 * Typed data that was given out and whose answer this is: the same authorization, and its round is
 * known.
 */
export const offerAnswered = (
  offers: readonly Offer[],
  terms: Terms,
  signature: string,
): Offer | undefined =>
  offers.find(
    ({ offered }) =>
      offered.questionId === terms.questionId &&
      offered.terms.nonce === terms.nonce &&
      changesOf(offered, terms).length === 0 &&
      recoverSigner(fromHex(offered.digest), signature as Hex) === terms.proposer,
  )

/**
 * Whether a payload with its signature is this authorization, sent to the wrong question. A
 * signature alone does not tell for a contract wallet, which may give the same one for everything;
 * with the nonce, or where it recovers over our digest, it does.
 */
function isOf(signed: Signed, body: string, terms: Terms, signature: string): boolean {
  if (signed.body === body) return true
  if (signed.terms.nonce === terms.nonce) return true
  return (
    signed.digest !== undefined &&
    recoverSigner(fromHex(signed.digest), signature as Hex) === terms.proposer
  )
}

/**
 * What a payload says otherwise than the record with its nonce. The signature is no field: it may
 * be encoded in more than one way (R22).
 */
function changesOf(record: Signed | Offered, terms: Terms): readonly string[] {
  const say = (field: string, before: string, now: string) =>
    before === now ? [] : [`${field} ${now}, not ${before}`]
  const answer = (price: string) => outcomeOf(price) ?? price
  return [
    ...say('question', record.questionId, terms.questionId),
    ...say('outcome', answer(record.terms.price), answer(terms.price)),
    ...say('amount', record.terms.amount, terms.amount),
    ...say('deadline', record.terms.deadline, terms.deadline),
  ]
}

const ofOtherQuestion = ({ id, signed }: Authorization, questionId: string) =>
  new UsageError(
    'payload_of_other_question',
    `this payload was signed for question ${signed.questionId} (${id}), not for ${questionId}`,
    {
      hint: `send it where it belongs: \`proposer submit ${signed.identifier} <file>\``,
    },
  )

const changed = (id: string, nonce: string, changes: readonly string[]) =>
  new UsageError(
    'payload_changed',
    `nonce ${nonce} serves ${id} already, and this payload says otherwise: ${changes.join('; ')}`,
    {
      hint: `see \`proposer journal show ${id}\`; give its payload unchanged, or sign anew with a nonce of its own`,
    },
  )

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
