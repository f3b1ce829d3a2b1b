/** What v1 bodies and batch items both say (spec §2.1, §2.2, §2.7). */
import type { Hash, Hex } from '#ports'
import type { Address, BatchItem, OutcomeKey, SignedProposal } from './schema.js'
import type { WitnessTerms } from './witness.js'
import { version } from './words.js'

/** In 18-digit oracle fixed point (§2.2). */
export const priceOf = {
  p1: '0',
  p2: '1000000000000000000',
  p3: '500000000000000000',
} as const satisfies Record<OutcomeKey, string>

/** Where the request's text names none (§2.2, contract §3). */
export const conventionalLabel = { p1: 'No', p2: 'Yes', p3: 'Unknown' } as const satisfies Record<
  OutcomeKey,
  string
>

export const outcomeKeys: readonly OutcomeKey[] = ['p1', 'p2', 'p3']

export function outcomeOf(price: string): OutcomeKey | undefined {
  return outcomeKeys.find((key) => priceOf[key] === price)
}

export interface Terms extends WitnessTerms {
  readonly proposer: Address
}

export interface Authorization extends Terms {
  readonly questionId: Hex
  readonly signature: Hex
}

export function fromSingle(questionId: Hex, body: SignedProposal): Authorization {
  const { proposer, outcome, permit, signature } = body
  return { questionId, proposer, price: priceOf[outcome], ...permit, signature }
}

export function fromBatchItem(questionId: Hex, item: BatchItem): Authorization {
  const { proposer, proposed_price: price, permit, signature } = item
  return { questionId, proposer, price, ...permit, deadline: String(permit.deadline), signature }
}

export function toSingle(authorization: Omit<Authorization, 'questionId'>): SignedProposal {
  const { proposer, price, amount, nonce, deadline, signature } = authorization
  const outcome = outcomeOf(price)
  if (!outcome) throw new RangeError(`price ${price} has no outcome key`)
  const permit = { amount, nonce, deadline }
  return { version, proposer, outcome, max_payment: '0', permit, signature }
}

export function toBatchItem(
  identifier: string,
  authorization: Omit<Authorization, 'questionId'>,
  clientRef?: string,
): BatchItem {
  const { proposer, price, amount, nonce, signature } = authorization
  const deadline = Number(authorization.deadline)
  if (!Number.isSafeInteger(deadline))
    throw new RangeError(`deadline ${authorization.deadline} does not fit a JSON integer`)
  return {
    identifier,
    ...(clientRef === undefined ? {} : { client_ref: clientRef }),
    proposer,
    proposed_price: price,
    max_payment: '0',
    permit: { amount, nonce, deadline },
    signature,
  }
}

export interface Binding {
  readonly chainId: number
  readonly spender: Address
}

/**
 * 32 hex digits (R22). Neither client_ref, nor the spelling of the identifier, nor single or batch
 * form, nor the round is part of it.
 */
export function identityOf(hash: Hash, binding: Binding, authorization: Authorization) {
  const { chainId, spender } = binding
  const { questionId, proposer, price, amount, nonce, deadline, signature } = authorization
  const round = [chainId, spender, questionId]
  const parts = [...round, proposer, price, '0', amount, nonce, deadline, signature]
  return hash.sha256(parts.join('|')).slice(0, 32)
}
