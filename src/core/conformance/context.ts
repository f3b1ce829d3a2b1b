/**
 * A question's context as another gateway may tell it (§2.7, §2.8): the same facts in other places,
 * names and forms.
 */
import { outcomeKeys } from '../protocol/proposal.js'
import type { BatchSigningData, OutcomeKey } from '../protocol/schema.js'
import { primaryType, wireTypes } from '../protocol/witness.js'
import { at, listAt } from './rule.js'
import { fitsAddress, fitsBytes, integer, isHash, isStructure, memberOf } from './shapes.js'

/** `identifier.raw`: §2.7 names it beside the request, §2.8 of the request. */
export const rawIdentifier = (data: unknown): unknown =>
  at(data, 'identifier', 'raw') ?? at(data, 'request', 'identifier', 'raw')

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
  if (!fitsAddress(oracle)) return 'request.oracle'
  if (!fitsAddress(requester)) return 'request.requester'
  if (timestamp === undefined) return 'the timestamp of request'
  if (!fitsBytes(ancillary_data)) return 'the ancillary bytes of request'
  if (!isHash(raw)) return 'identifier.raw'
  if (!fitsAddress(token)) return 'bond.token'
  if (required_bond === undefined) return 'bond.required_bond'
  if (!fitsAddress(permit2)) return 'contracts.permit2'
  if (!fitsAddress(signed_proposer)) return 'contracts.signed_proposer'
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

interface ListedOutcome {
  readonly key: OutcomeKey
  readonly label: unknown
  readonly price: unknown
  readonly isAllowed: boolean | undefined
}

/**
 * §2.2: labels and availability by key, as a list or an object; what is not listed beside others is
 * not available.
 */
export function outcomesIn(json: unknown): readonly ListedOutcome[] {
  const actual = at(json, 'outcomes')
  const keyOf = (one: unknown) =>
    at(one, 'outcome') ??
    outcomeKeys.find((key) => isStructure(one) && Object.values(one).includes(key))
  const entries = Array.isArray(actual)
    ? actual.map((one: unknown) => [keyOf(one), one] as const)
    : Object.entries(isStructure(actual) ? actual : {})
  return entries.flatMap(([word, one]) => {
    const key = outcomeKeys.find((each) => each === word)
    if (key === undefined) return []
    const price = memberOf(one, /price/)
    return [{ key, label: at(one, 'label'), price, isAllowed: isAllowed(one) }]
  })
}

function isAllowed(one: unknown): boolean | undefined {
  if (!isStructure(one)) return undefined
  const flag = Object.entries(one)
    .filter(([name]) => !/outcome|key|label|price/.test(name))
    .find(
      ([name, value]) => typeof value === 'boolean' || /avail|allow|enabl|state|status/.test(name),
    )
  if (flag === undefined) return undefined
  const [, value] = flag
  return typeof value === 'boolean' ? value : !/^(un|no|dis|den|forb|closed)/i.test(String(value))
}
