/** Payloads that were signed elsewhere: the journal may know better what they are for (R6-R8). */
import { jsonOf } from '#protocol/capped'
import { UsageError } from '#protocol/errors'
import {
  fromBatchItem,
  fromSingle,
  identityOf,
  outcomeOf,
  type Authorization as Proposal,
  priceOf,
} from '#protocol/proposal'
import { SignedProposal } from '#protocol/schema'
import { recoverSigner } from '#protocol/signature'
import { fromHex } from '#protocol/witness'
import type { ItemRow } from '../input/input.js'
import {
  type JournaledAuthorization,
  journalRecordOf,
  openFor,
  unknownId,
} from '../journal/authorizations.js'
import type { Journal, JournalPorts, JournalView } from '../journal/journal.js'
import type { Form, Offered, Signed } from '../journal/records.js'
import { type Trust, unpinnedSlug } from '../trust/trust.js'
import { authorizationOpen, knownQuestionId, offerOpen } from './intent.js'
import { savedBody } from './sign.js'

interface PayloadParts {
  readonly ports: Pick<JournalPorts, 'clock' | 'hash'>
  readonly trust: Trust
}

export type Payload = ReturnType<typeof readItem>

export function payloadRow(identifier: string, body: string, supersede?: string) {
  const payload = parsePayload(body)
  const { proposer, outcome, permit, signature } = payload
  const item = {
    ...{ identifier, proposer, proposed_price: priceOf[outcome], max_payment: '0' as const },
    ...{ permit: { ...permit, deadline: Number(permit.deadline) }, signature },
  }
  return { kind: 'item', line: 1, identifier, item, payload, body, supersede } as const
}

export function readItem(
  { ports, trust }: PayloadParts,
  { identifier, item, payload, body, clientRef, supersede }: ItemRow,
  view: JournalView,
) {
  const questionId = knownQuestionId(trust, identifier, view)
  if (questionId === undefined) throw unpinnedSlug(identifier)
  const proposal = payload ? fromSingle(questionId, payload) : fromBatchItem(questionId, item)
  const binding = { chainId: trust.chain_id, spender: trust.signed_proposer }
  const identity = identityOf(ports.hash, binding, proposal)
  const form: Form = payload ? 'single' : 'batch'
  const same = view.byIdentity(identity)
  return { identifier, form, proposal, body, clientRef, supersede, identity, same }
}

/** The typed data of ours that it answers; refuses what the journal holds otherwise (R6, R8). */
export function importable(
  { ports, trust }: PayloadParts,
  view: JournalView,
  { proposal, body, supersede }: Payload,
) {
  const { questionId, proposer, nonce } = proposal
  const wanted = { questionId, proposer, chainId: trust.chain_id }
  const isTheirs = (record: Signed | Offered) =>
    record.chainId === trust.chain_id && record.terms.proposer === proposer
  const elsewhere = view
    .bySignature(proposal.signature)
    .find(
      ({ signed }) =>
        signed.questionId !== questionId && isTheirs(signed) && isOf(signed, body, proposal),
    )
  if (elsewhere !== undefined) throw ofOtherQuestion(elsewhere, questionId)
  for (const one of view.isReserved(proposer, nonce) ? recordsOf(view) : []) {
    const record = journalRecordOf(one)
    const changes = changesOf(record, proposal)
    if (isTheirs(record) && record.terms.nonce === nonce && changes.length > 0)
      throw changed(one.id, nonce, changes)
  }
  const isOther = ({ id }: { readonly id: string }) => id !== supersede
  const nowMs = ports.clock.nowMs()
  const other = openFor(view.byQuestion(questionId), wanted, nowMs).findLast(isOther)
  if (other !== undefined) throw authorizationOpen(other)
  const offers = openFor(view.offers, wanted, nowMs)
  const answered = offers.find(
    ({ offered }) =>
      offered.terms.nonce === nonce &&
      changesOf(offered, proposal).length === 0 &&
      recovers(offered.digest, proposal),
  )
  const given = offers.findLast((one) => one !== answered && isOther(one))
  if (given !== undefined) throw offerOpen(given)
  return answered
}

const recordsOf = (view: JournalView) => [...view.authorizations, ...view.offers]

export function importRecord(
  parts: PayloadParts & { readonly journal: Journal },
  view: JournalView,
  payload: Payload,
): Signed {
  const { ports, journal, trust } = parts
  const { identifier, proposal, clientRef, supersede, identity, form, body } = payload
  const answered = importable(parts, view, payload)
  if (supersede !== undefined && !recordsOf(view).some(({ id }) => id === supersede))
    throw unknownId(supersede)
  // Of an answer to our own typed data the round is known.
  const { typedData: _typedData, offeredAtMs: _offeredAtMs, ...askedFor } = answered?.offered ?? {}
  const { questionId, signature: _signature, ...terms } = proposal
  return {
    ...askedFor,
    id: answered?.id ?? journal.nextId(),
    ...{ identifier, questionId, terms, identity, ...savedBody(ports, body, form) },
    chainId: trust.chain_id,
    spender: trust.signed_proposer,
    clientRef: clientRef ?? answered?.offered.clientRef,
    supersedes: supersede ?? answered?.offered.supersedes,
  }
}

const recovers = (digest: string, { signature, proposer }: Proposal) =>
  recoverSigner(fromHex(digest), signature) === proposer

/** A contract wallet may give the same signature for everything: nonce or digest has to agree. */
const isOf = (signed: Signed, body: string, proposal: Proposal) =>
  signed.body === body ||
  signed.terms.nonce === proposal.nonce ||
  (signed.digest !== undefined && recovers(signed.digest, proposal))

/** The signature is no field: it may be encoded in more than one way (R22). */
function changesOf({ questionId, terms }: Signed | Offered, proposal: Proposal) {
  const answer = (price: string) => outcomeOf(price) ?? price
  const fields = [
    ['question', questionId, proposal.questionId],
    ['outcome', answer(terms.price), answer(proposal.price)],
    ['amount', terms.amount, proposal.amount],
    ['deadline', terms.deadline, proposal.deadline],
  ] as const
  return fields.flatMap(([field, before, now]) =>
    before === now ? [] : [`${field} ${now}, not ${before}`],
  )
}

const ofOtherQuestion = ({ id, signed }: JournaledAuthorization, questionId: string) =>
  new UsageError(
    'payload_of_other_question',
    `this payload was signed for question ${signed.questionId} (${id}), not for ${questionId}`,
    `send it where it belongs: \`proposer submit ${signed.identifier} <file>\``,
  )

const changed = (id: string, nonce: string, changes: readonly string[]) =>
  new UsageError(
    'payload_changed',
    `nonce ${nonce} is already used by ${id}, and this payload differs: ${changes.join('; ')}`,
    `see \`proposer journal show ${id}\`; give its payload unchanged, or sign again with another nonce`,
  )

function parsePayload(body: string) {
  const parsed = SignedProposal.safeParse(jsonOf(body))
  if (parsed.success) return parsed.data
  const path = parsed.error.issues[0]?.path.join('.')
  const why = path ? `${path} is missing or malformed` : 'fields are missing or not known'
  throw new UsageError(
    'invalid_payload',
    `the payload is not a signed proposal: ${why}`,
    'create one with `proposer sign <identifier> --outcome <answer> -o <file>`',
  )
}
