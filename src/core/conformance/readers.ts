/** What contexts and signing data say, wherever the spec lets it stand. */
import { outcomeKeys } from '#protocol/proposal'
import type { BatchSigningData } from '#protocol/schema'
import { domainType, encodedTypes, primaryType, wireTypes } from '#protocol/witness'
import { at, integer, is, listAt, memberOf } from './answer.js'

const witnessTypes = wireTypes(false)
const ownTypes = { ...witnessTypes, ...domainType }

/** `identifier.raw`: §2.7 names it beside the request, §2.8 of the request. */
export const rawIdentifier = (data: unknown): unknown =>
  at(data, 'identifier.raw') ?? at(data, 'request.identifier.raw')

/** What the request of a context or of signing data says, in one form. */
export function requestFacts(request: unknown) {
  const identifier = at(request, 'identifier')
  return {
    oracle: at(request, 'oracle'),
    requester: at(request, 'requester'),
    identifier: is.text(identifier)
      ? identifier
      : (at(identifier, 'raw') ?? memberOf(request, /identifier/)),
    timestamp: integer(memberOf(request, /timestamp/)),
    ancillary_data: memberOf(request, /ancillary/),
  }
}

class Missing extends Error {}

/**
 * Our own form of a context, with our own types to sign by; the name of what is missing where it
 * cannot be signed from. Each fact must stand in its own place, unlike what the client proper
 * takes.
 */
export function readContext(data: unknown): (BatchSigningData & { source: 'gateway' }) | string {
  function need<T>(name: string, fits: (value: unknown) => value is T, value = at(data, name)) {
    const given = integer(value) ?? value
    if (fits(given)) return given
    throw new Missing(name)
  }
  const { timestamp, ancillary_data } = requestFacts(at(data, 'request'))
  try {
    const question_id = need('question_id', is.hash)
    const identifier = { raw: need('identifier.raw', is.hash, rawIdentifier(data)) }
    const prices = listAt(data, 'price.allowed_values')
    return {
      source: 'gateway',
      question_id,
      request: {
        question_id,
        oracle: need('request.oracle', is.address),
        requester: need('request.requester', is.address),
        identifier,
        timestamp: need('the timestamp of request', is.uint, timestamp),
        ancillary_data: need('the ancillary bytes of request', is.bytes, ancillary_data),
      },
      identifier,
      price: { allowed_values: prices.flatMap((price) => integer(price) ?? []) },
      bond: {
        token: need('bond.token', is.address),
        required_bond: need('bond.required_bond', is.uint),
      },
      contracts: {
        permit2: need('contracts.permit2', is.address),
        signed_proposer: need('contracts.signed_proposer', is.address),
      },
      signing: {
        chain_id: Number(need('signing.chain_id', is.uint)),
        max_payment: '0',
        primary_type: primaryType,
        types: witnessTypes,
      },
    }
  } catch (error) {
    if (error instanceof Missing) return error.message
    throw error
  }
}

/** Those that are reported must be right, and all but the domain's must be reported. */
export function sameTypes(actual: unknown) {
  if (!is.structure(actual)) return false
  const text = (types: unknown, name: string) =>
    JSON.stringify(listAt(types, name).map((one) => [at(one, 'name'), at(one, 'type')]))
  const names = new Set([...Object.keys(actual), ...Object.keys(witnessTypes)])
  return [...names].every(
    (name) => Object.hasOwn(ownTypes, name) && text(actual, name) === text(ownTypes, name),
  )
}

/** Type definitions under whatever name: as member lists, or as EIP-712 writes them in one text. */
export function typesStatus(signing: unknown): 'same' | 'missing' | 'other ones' {
  const values: readonly unknown[] = is.structure(signing) ? Object.values(signing) : []
  const lists = values.filter((one) => is.structure(one) && Object.values(one).some(Array.isArray))
  const texts = values.filter((one) => is.text(one) && one.includes('('))
  if (lists.length === 0 && texts.length === 0) return 'missing'
  const isSame =
    lists.length > 0
      ? lists.some(sameTypes)
      : texts.some((text) => String(text).includes(encodedTypes.proposal))
  return isSame ? 'same' : 'other ones'
}

/**
 * §2.2: labels and availability by key, as a list or an object; what is not listed beside others is
 * not available.
 */
export function outcomesIn(json: unknown) {
  const actual = at(json, 'outcomes')
  const keyOf = (one: unknown) =>
    at(one, 'outcome') ??
    outcomeKeys.find((key) => is.structure(one) && Object.values(one).includes(key))
  const entries = Array.isArray(actual)
    ? actual.map((one: unknown) => [keyOf(one), one] as const)
    : Object.entries(is.structure(actual) ? actual : {})
  return entries.flatMap(([word, one]) => {
    const key = outcomeKeys.find((each) => each === word)
    if (key === undefined) return []
    const price = memberOf(one, /price/)
    return [{ key, label: at(one, 'label'), price, isAllowed: isAllowed(one) }]
  })
}

function isAllowed(one: unknown) {
  if (!is.structure(one)) return undefined
  const flag = Object.entries(one)
    .filter(([name]) => !/outcome|key|label|price/.test(name))
    .find(([name, value]) => is.flag(value) || /avail|allow|enabl|state|status/.test(name))
  if (flag === undefined) return undefined
  const [, value] = flag
  return is.flag(value) ? value : !/^(un|no|dis|den|forb|closed)/i.test(String(value))
}
