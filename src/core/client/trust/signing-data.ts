/**
 * Facts of signing data (§2.4, §2.7, §2.8), wherever the spec lets them stand (contract §9). What
 * is signed is built from them by us (R9).
 */

import { type Json, objectOf } from '#protocol/json'
import type { BatchSigningData } from '#protocol/schema'
import { primaryType, witnessTypes } from '#protocol/witness'
import { isAddress, isBytes, isBytes32, isUint256 } from '#protocol/words'

export class FactError extends Error {
  constructor(readonly path: string) {
    super(`${path} is missing or malformed`)
  }
}

/** §2.7 names the oracle identifier and the ancillary bytes of a request, but not their fields. */
const oracleIdentifier = [
  'request.identifier.raw',
  'request.identifier',
  'request.oracle_identifier.raw',
  'request.oracle_identifier',
]
const ancillaryBytes = ['request.ancillary_data', 'request.ancillary_bytes', 'request.ancillary']

/**
 * Of what is written twice both are kept, for `checkContext` to compare. FactError names the
 * place looked at first.
 */
export function signingDataOf(json: unknown): BatchSigningData {
  const data = objectOf(json) ?? {}
  return {
    question_id: textAt(data, ['question_id', 'request.question_id'], isBytes32),
    request: {
      question_id: textAt(data, ['request.question_id', 'question_id'], isBytes32),
      oracle: textAt(data, ['request.oracle'], isAddress),
      requester: textAt(data, ['request.requester'], isAddress),
      identifier: { raw: textAt(data, [...oracleIdentifier, 'identifier.raw'], isBytes32) },
      timestamp: textAt(data, ['request.timestamp'], isUint256),
      ancillary_data: textAt(data, ancillaryBytes, isBytes),
    },
    identifier: { raw: textAt(data, ['identifier.raw', ...oracleIdentifier], isBytes32) },
    price: { allowed_values: allowedValues(data) },
    bond: {
      token: textAt(data, ['bond.token', 'token.address'], isAddress),
      required_bond: textAt(data, ['bond.required_bond', 'economics.total_bond'], isUint256),
    },
    contracts: {
      permit2: textAt(data, ['contracts.permit2'], isAddress),
      signed_proposer: textAt(data, ['contracts.signed_proposer'], isAddress),
    },
    signing: { chain_id: chainId(data), ...witnessOf(data) },
  }
}

export const valueAt = (data: Json, path: string) =>
  path.split('.').reduce<unknown>((at, name) => {
    const holder = objectOf(at)
    return holder !== undefined && Object.hasOwn(holder, name) ? holder[name] : undefined
  }, data)

const isText = (value: unknown): value is string => typeof value === 'string'

/** Text or a JSON number (contract §9). */
const asText = (data: Json, path: string) => {
  const value = valueAt(data, path)
  return Number.isSafeInteger(value) ? String(value) : value
}

/** A malformed value is not made good by the next place. */
function textAt<T extends string>(
  data: Json,
  places: readonly string[],
  isOne: ((text: string) => text is T) | ((text: string) => boolean),
) {
  const value = places
    .map((place) => asText(data, place))
    .find((each) => each != null && objectOf(each) === undefined)
  if (isText(value) && isOne(value)) return value as T
  throw new FactError(places[0] ?? '')
}

function chainId(data: Json) {
  const id = Number(textAt(data, ['signing.chain_id', 'typed_data.domain.chainId'], isUint256))
  if (Number.isSafeInteger(id) && id > 0) return id
  throw new FactError('signing.chain_id')
}

/** §2.7 lists prices; §2.4 lists outcomes, each with its price and its availability. */
function allowedValues(data: Json) {
  const { outcomes } = data
  const available = Array.isArray(outcomes)
    ? outcomes.filter((one) => objectOf(one)?.allowed === true).map(({ price }) => price)
    : undefined
  const values = valueAt(data, 'price.allowed_values') ?? available
  if (Array.isArray(values) && values.every((value) => isText(value) && isUint256(value)))
    return values
  throw new FactError('price.allowed_values')
}

/** What an answer says of the witness is kept to be compared. */
function witnessOf(data: Json) {
  const memberOf = (name: string, isOne: (value: unknown) => boolean) => {
    const value = asText(data, `signing.${name}`) ?? undefined
    if (value !== undefined && !isOne(value)) throw new FactError(`signing.${name}`)
    return value
  }
  const witness = {
    max_payment: memberOf('max_payment', isText) ?? '0',
    primary_type: memberOf('primary_type', isText) ?? primaryType,
    types: memberOf('types', isTypes) ?? witnessTypes,
  }
  // `checkContext` compares them with the literals.
  return witness as Omit<BatchSigningData['signing'], 'chain_id'>
}

const isTypes = (value: unknown) => {
  const types = objectOf(value)
  const isMember = (one: unknown) => isText(objectOf(one)?.name) && isText(objectOf(one)?.type)
  return (
    types !== undefined &&
    Object.values(types).every((members) => Array.isArray(members) && members.every(isMember))
  )
}
