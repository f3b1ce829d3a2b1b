/**
 * Lies of a gateway about what is to be signed (R9, T11): each changes one thing of honest signing
 * data, in itself or consistently.
 */
import { yesOrNoQuery } from '#chain/contracts'
import { keccakHex } from '#chain/round'
import type { Hex } from '#ports'
import type { BatchSigningData } from '#protocol/schema'

export const other = (digit: string, bytes = 20): Hex => `0x${digit.repeat(bytes * 2)}`

export type Lie = (data: Mutable<BatchSigningData>) => void
type Mutable<T> = { -readonly [K in keyof T]: T[K] extends object ? Mutable<T[K]> : T[K] }

export const textOf = (text: string): Hex => `0x${Buffer.from(text).toString('hex')}`

const set =
  (path: string, value: unknown): Lie =>
  (data) => {
    const names = path.split('.')
    const last = names.pop() ?? ''
    const holder = names.reduce(
      (at, name) => (at as Record<string, unknown>)[name],
      data as unknown,
    ) as Record<string, unknown>
    if (value === undefined) delete holder[last]
    else holder[last] = value
  }

const both =
  (...all: readonly Lie[]): Lie =>
  (data) => {
    for (const one of all) one(data)
  }

const asOtherQuestion: Lie = (data) => {
  data.request.ancillary_data = textOf('q: title: another, res_data: p1: 0, p2: 1, p3: 0.5')
  data.question_id = keccakHex(data.request.ancillary_data as Hex)
  data.request.question_id = data.question_id
}

const bothIdentifiers: Lie = (data) => {
  data.identifier.raw = other('9', 32)
  data.request.identifier.raw = other('9', 32)
}

export const lies: readonly [field: string, code: string, lie: Lie][] = [
  ['signing.chain_id', 'untrusted_chain_id', set('signing.chain_id', 137)],
  ['contracts.permit2', 'untrusted_permit2', set('contracts.permit2', other('9'))],
  [
    'contracts.signed_proposer',
    'untrusted_signed_proposer',
    set('contracts.signed_proposer', other('9')),
  ],
  ['request.oracle', 'untrusted_oracle', set('request.oracle', other('9'))],
  ['request.requester', 'untrusted_requester', set('request.requester', other('9'))],
  ['bond.token', 'untrusted_token', set('bond.token', other('9'))],
  ['bond.token', 'untrusted_token', set('bond.token', undefined)],
  ['signing.max_payment', 'untrusted_max_payment', set('signing.max_payment', '1')],
  [
    'signing.primary_type',
    'untrusted_primary_type',
    set('signing.primary_type', 'PermitTransferFrom'),
  ],
  ['request.question_id', 'untrusted_question_id', set('request.question_id', other('9', 32))],
  ['question_id', 'untrusted_question_id', asOtherQuestion],
  ['identifier.raw', 'untrusted_identifier', set('identifier.raw', other('9', 32))],
  ['identifier.raw', 'untrusted_identifier', bothIdentifiers],
  [
    'request.ancillary_data',
    'untrusted_ancillary_data',
    set('request.ancillary_data', textOf('q: another text')),
  ],
  ['request.ancillary_data', 'untrusted_ancillary_data', set('request.ancillary_data', '0xA')],
  ['request.timestamp', 'untrusted_timestamp', set('request.timestamp', '1760009000')],
  ['request.timestamp', 'untrusted_timestamp', set('request.timestamp', '-1')],
  ['signing.types', 'untrusted_types', (data) => data.signing.types.Proposal?.reverse()],
  [
    'signing.types',
    'untrusted_types',
    set('signing.types.Extra', [{ name: 'a', type: 'uint256' }]),
  ],
  ['signing.types', 'untrusted_types', set('signing.types.Extra', [])],
  ['signing.types', 'untrusted_types', set('signing.types.constructor', [])],
  [
    'signing.types',
    'untrusted_types',
    set('signing.types.EIP712Domain', [{ name: 'version', type: 'string' }]),
  ],
  ['price.allowed_values', 'outcome_not_allowed', set('price.allowed_values', ['0'])],
  ['bond.required_bond', 'amount_above_cap', set('bond.required_bond', '999999999999')],
  ['request.requester', 'untrusted_requester', set('request.requester', undefined)],
  ['request.oracle', 'untrusted_oracle', set('request.oracle', `0x${'A'.repeat(40)}`)],
  ['request.ancillary_data', 'untrusted_ancillary_data', set('request.ancillary_data', '0x')],
  ['request.timestamp', 'untrusted_timestamp', set('request.timestamp', String(2n ** 256n))],
  [
    'contracts.permit2',
    'untrusted_permit2',
    set('contracts.permit2', `0x000000000022D473030F116dDEE9F6B43aC78BA3`),
  ],
  [
    'contracts.signed_proposer',
    'untrusted_signed_proposer',
    set('contracts.signed_proposer', null),
  ],
  ['bond.token', 'untrusted_token', set('bond.token', `0x${'0'.repeat(40)}`)],
  ['bond.required_bond', 'untrusted_required_bond', set('bond.required_bond', '-1')],
  ['bond.required_bond', 'untrusted_required_bond', set('bond.required_bond', String(2n ** 256n))],
  ['bond.required_bond', 'untrusted_required_bond', set('bond.required_bond', 2 ** 60)],
  ['signing.chain_id', 'untrusted_chain_id', set('signing.chain_id', 31337.5)],
  ['signing.max_payment', 'untrusted_max_payment', set('signing.max_payment', 1)],
  ['signing.primary_type', 'untrusted_primary_type', set('signing.primary_type', 'Proposal')],
  ['signing.types', 'untrusted_types', set('signing.types.PermitWitnessTransferFrom', [])],
  [
    'signing.types',
    'untrusted_types',
    set('signing.types.Proposal', [{ name: 'oracle', type: 'uint256' }]),
  ],
  [
    'signing.types',
    'untrusted_types',
    set('signing.types.TokenPermissions', [
      { name: 'amount', type: 'uint256' },
      { name: 'token', type: 'address' },
    ]),
  ],
  ['price.allowed_values', 'outcome_not_allowed', set('price.allowed_values', [])],
  ['price.allowed_values', 'untrusted_allowed_values', set('price.allowed_values', ['1', -1])],
  ['question_id', 'untrusted_question_id', set('question_id', 'a slug')],
  ['request.timestamp', 'untrusted_timestamp', set('request.timestamp', 1_760_009_000)],
  ['request.timestamp', 'untrusted_timestamp', set('request.timestamp', 1_760_000_000.5)],
  ['signing.chain_id', 'untrusted_chain_id', set('signing.chain_id', '137')],
  ['signing.chain_id', 'untrusted_chain_id', set('signing.chain_id', '0x7a69')],
  ['signing.chain_id', 'untrusted_chain_id', set('signing.chain_id', undefined)],
  [
    'signing.max_payment',
    'untrusted_max_payment',
    both(set('signing.primary_type', undefined), set('signing.max_payment', '1')),
  ],
  [
    'identifier.raw',
    'untrusted_identifier',
    both(set('request.identifier', undefined), set('identifier.raw', other('9', 32))),
  ],
  [
    'identifier.raw',
    'untrusted_identifier',
    both(set('identifier', undefined), set('request.identifier.raw', other('9', 32))),
  ],
  [
    'question_id',
    'untrusted_question_id',
    both(set('question_id', undefined), set('request.question_id', other('9', 32))),
  ],
  [
    'question_id',
    'untrusted_question_id',
    both(set('question_id', undefined), set('request.question_id', undefined)),
  ],
  [
    'signing.types',
    'untrusted_types',
    set('signing.types', 'PermitWitnessTransferFrom(address token)'),
  ],
]

/**
 * Contract §9: the same facts in other places and forms, or not told where we build them ourselves.
 * What is signed stays the same.
 */
export const liberties: readonly [what: string, liberty: Lie][] = [
  ['chain_id as text', set('signing.chain_id', '31337')],
  ['timestamp as a number', set('request.timestamp', 1_760_000_000)],
  ['question_id at the top alone', set('request.question_id', undefined)],
  ['question_id in the request alone', set('question_id', undefined)],
  ['the oracle identifier at the top alone', set('request.identifier', undefined)],
  ['the oracle identifier in the request alone', set('identifier', undefined)],
  ['the oracle identifier as text', set('request.identifier', yesOrNoQuery)],
  [
    'the oracle identifier by the name that §2.7 has for it',
    both(
      set('request.identifier', undefined),
      set('identifier', undefined),
      set('request.oracle_identifier', yesOrNoQuery),
    ),
  ],
  ['no primary type', set('signing.primary_type', undefined)],
  ['no types', set('signing.types', undefined)],
  ['the types of the witness alone', set('signing.types.TokenPermissions', undefined)],
  [
    'types by another name',
    both(set('signing.types', undefined), set('signing.witness_types', { Proposal: [] })),
  ],
  [
    'bond and maximum payment as numbers',
    both(set('bond.required_bond', 750_000_000), set('signing.max_payment', 0)),
  ],
  ['no maximum payment', set('signing.max_payment', undefined)],
  [
    'fields of its own',
    both(set('region', 'eu'), set('request.region', 'eu'), set('signing.region', 'eu')),
  ],
]
