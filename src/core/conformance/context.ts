/**
 * A question's context as another gateway may tell it (§2.7, §2.8): the same facts in other places,
 * names and forms.
 */
import type { BatchSigningData } from '../protocol/schema.js'
import { primaryType, wireTypes } from '../protocol/witness.js'
import { at, listAt } from './rule.js'
import { integer, isAddress, isBytes, isHash, memberOf } from './shapes.js'

/** `identifier.raw`: §2.7 names it beside the request, §2.8 of the request. */
export const rawIdentifier = (data: unknown): unknown =>
  at(data, 'identifier', 'raw') ?? at(data, 'request', 'identifier', 'raw')

/**
 * What the request of a context or of signing data says, in one form. Absent facts are `undefined`.
 */
export function requestFacts(request: unknown) {
  const identifier = at(request, 'identifier')
  return {
    oracle: at(request, 'oracle'),
    requester: at(request, 'requester'),
    identifier:
      typeof identifier === 'string'
        ? identifier
        : (at(identifier, 'raw') ?? memberOf(request, /identifier/)),
    timestamp: integer(memberOf(request, /timestamp/)),
    ancillary_data: memberOf(request, /ancillary/),
  }
}

/**
 * Our own form of a context, with our own types to sign by; the name of what is missing where it
 * cannot be signed from.
 */
export function readContext(data: unknown): BatchSigningData | string {
  const request = at(data, 'request')
  const { oracle, requester, timestamp, ancillary_data } = requestFacts(request)
  const raw = rawIdentifier(data)
  const question_id = at(data, 'question_id')
  const token = at(data, 'bond', 'token')
  const required_bond = integer(at(data, 'bond', 'required_bond'))
  const permit2 = at(data, 'contracts', 'permit2')
  const signed_proposer = at(data, 'contracts', 'signed_proposer')
  const chainId = integer(at(data, 'signing', 'chain_id'))
  if (!isHash(question_id)) return 'question_id'
  if (!isAddress(oracle)) return 'request.oracle'
  if (!isAddress(requester)) return 'request.requester'
  if (timestamp === undefined) return 'the timestamp of request'
  if (!isBytes(ancillary_data)) return 'the ancillary bytes of request'
  if (!isHash(raw)) return 'identifier.raw'
  if (!isAddress(token)) return 'bond.token'
  if (required_bond === undefined) return 'bond.required_bond'
  if (!isAddress(permit2)) return 'contracts.permit2'
  if (!isAddress(signed_proposer)) return 'contracts.signed_proposer'
  if (chainId === undefined) return 'signing.chain_id'
  return {
    question_id,
    request: { question_id, oracle, requester, identifier: { raw }, timestamp, ancillary_data },
    identifier: { raw },
    price: {
      allowed_values: listAt(data, 'price', 'allowed_values').flatMap(
        (price) => integer(price) ?? [],
      ),
    },
    bond: { token, required_bond },
    contracts: { permit2, signed_proposer },
    signing: {
      chain_id: Number(chainId),
      max_payment: '0',
      primary_type: primaryType,
      types: wireTypes(false),
    },
  }
}
