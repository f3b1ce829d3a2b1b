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
  journalRecordOf,
  type Offered,
  openFor,
  type Recorded,
  type Signed,
  unknownId,
} from '../journal/authorizations.js'
import type { Journal, JournalPorts, JournalView } from '../journal/journal.js'
import { type Trust, unpinnedSlug } from '../trust/trust.js'
import { authorizationOpen, knownQuestionId } from './intent.js'
import { savedBody } from './sign.js'

interface PayloadParts {
  readonly ports: Pick<JournalPorts, 'clock' | 'hash'>
  readonly trust: Trust
}

export type Payload = ReturnType<typeof readItem>

export function payloadRow(identifier: string, body: string, supersede?: string) {
  const { data: payload, error } = SignedProposal.safeParse(jsonOf(body))
  if (!payload) {
    const path = error.issues[0]?.path.join('.')
    const why = path ? `${path} is missing or malformed` : 'fields are missing or not known'
    throw new UsageError(
      'invalid_payload',
      `the payload is not a signed proposal: ${why}`,
      'create one with `proposer sign <identifier> --outcome <answer> -o <file>`',
    )
  }
  const { proposer, outcome, permit, signature } = payload
  const item = {
    ...{ identifier, proposer, proposed_price: priceOf[outcome], max_payment: '0' as const },
    ...{ permit: { ...permit, deadline: Number(permit.deadline) }, signature },
  }
  return { kind: 'item', line: 1, identifier, item, payload, body, supersede } as const
}

export function readItem({ ports, trust }: PayloadParts, row: ItemRow, view: JournalView) {
  const { identifier, item, payload } = row
  const questionId = knownQuestionId(trust, identifier, view)
  if (!questionId) throw unpinnedSlug(identifier)
  const proposal = payload ? fromSingle(questionId, payload) : fromBatchItem(questionId, item)
  const binding = { chainId: trust.chain_id, spender: trust.signed_proposer }
  const identity = identityOf(ports.hash, binding, proposal)
  return { ...row, proposal, identity, same: view.byIdentity(identity) }
}

/** The typed data of ours that it answers; refuses what the journal holds otherwise (R6, R8). */
export function importable(
  { ports, trust }: PayloadParts,
  view: JournalView,
  { proposal, body, supersede }: Payload,
) {
  const { questionId, proposer, nonce } = proposal
  const chainId = trust.chain_id
  const isTheirs = (record: Signed | Offered) =>
    record.chainId === chainId && record.terms.proposer === proposer
  for (const { id, signed } of view.bySignature(proposal.signature))
    if (signed.questionId !== questionId && isTheirs(signed) && isOf(signed, body, proposal))
      throw new UsageError(
        'payload_of_other_question',
        `this payload was signed for question ${signed.questionId} (${id}), not for ${questionId}`,
        `send it with \`proposer submit ${signed.identifier} <file>\``,
      )
  for (const one of view.isReserved(proposer, nonce) ? recordsOf(view) : []) {
    const record = journalRecordOf(one)
    const changes = changesOf(record, proposal)
    if (isTheirs(record) && record.terms.nonce === nonce && changes.length > 0)
      throw new UsageError(
        'payload_changed',
        `nonce ${nonce} is already used by ${one.id}, and this payload differs: ${changes.join('; ')}`,
        `give it as \`proposer journal show ${one.id}\` has it, or sign again with another nonce`,
      )
  }
  const openOf = <T extends Recorded>(all: readonly T[]) =>
    openFor(all, { questionId, proposer, chainId }, ports.clock.nowMs())
  const offers = openOf(view.offers)
  const answered = offers.find(
    ({ offered }) =>
      offered.terms.nonce === nonce &&
      changesOf(offered, proposal).length === 0 &&
      recovers(offered.digest, proposal),
  )
  const isOther = (one: Recorded) => one !== answered && one.id !== supersede
  const other = openOf(view.byQuestion(questionId)).findLast(isOther) ?? offers.findLast(isOther)
  if (other) throw authorizationOpen(other)
  return answered
}

const recordsOf = (view: JournalView) => [...view.authorizations, ...view.offers]

export function importRecord(
  parts: PayloadParts & { readonly journal: Journal },
  view: JournalView,
  payload: Payload,
): Signed {
  const { ports, journal, trust } = parts
  const { identifier, proposal, clientRef, supersede, identity, body } = payload
  const answered = importable(parts, view, payload)
  if (supersede !== undefined && !recordsOf(view).some(({ id }) => id === supersede))
    throw unknownId(supersede)
  // Of an answer to our own typed data the round is known.
  const { typedData: _typedData, offeredAtMs: _offeredAtMs, ...askedFor } = answered?.offered ?? {}
  const { questionId, signature: _signature, ...terms } = proposal
  const saved = savedBody(ports, body, payload.payload ? 'single' : 'batch')
  return {
    ...{ ...askedFor, identifier, questionId, terms, identity, ...saved },
    id: answered?.id ?? journal.nextId(),
    chainId: trust.chain_id,
    spender: trust.signed_proposer,
    clientRef: clientRef ?? answered?.offered.clientRef,
    supersedes: supersede ?? answered?.offered.supersedes,
  }
}

const recovers = (digest: string, { signature, proposer }: Proposal) =>
  recoverSigner(fromHex(digest), signature) === proposer

/** A contract wallet may sign everything alike: nonce or digest has to agree. */
const isOf = (signed: Signed, body: string, proposal: Proposal) =>
  signed.body === body ||
  signed.terms.nonce === proposal.nonce ||
  (signed.digest !== undefined && recovers(signed.digest, proposal))

/** The signature is no field: it may be encoded in more than one way (R22). */
function changesOf({ questionId, terms }: Signed | Offered, proposal: Proposal) {
  const answer = (price: string) => outcomeOf(price) ?? price
  const change = (field: string, before: string, now: string) =>
    before === now ? [] : [`${field} ${now}, not ${before}`]
  return [
    ...change('question', questionId, proposal.questionId),
    ...change('outcome', answer(terms.price), answer(proposal.price)),
    ...change('amount', terms.amount, proposal.amount),
    ...change('deadline', terms.deadline, proposal.deadline),
  ]
}
