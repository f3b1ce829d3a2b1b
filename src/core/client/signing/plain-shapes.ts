/**
 * What `sign` reads, without zod (see plain.ts). Each says what a schema says, of schema-signing.ts or trust-file.ts; a test holds them
 * equal.
 */
import { requesterKinds } from '../../chain/round.js'
import { anything, integer, list, maybe, members, oneOf, type Read, record, text } from '../../protocol/plain.js'
import type { BatchSigningData } from '../../protocol/schema-signing.js'
import { isAddress, isBytes, isBytes32, isUint256 } from '../../protocol/words.js'
import type { Trust } from './trust-file.js'

const [address, bytes, bytes32, uint256] = [text(isAddress), text(isBytes), text(isBytes32), text(isUint256)]
const identifier = members({ raw: bytes32 })

const signingData = {
  question_id: bytes32,
  request: members({
    question_id: bytes32,
    oracle: address,
    requester: address,
    identifier,
    timestamp: uint256,
    ancillary_data: bytes,
  }),
  identifier,
  price: members({ allowed_values: list(uint256) }),
  bond: members({ token: address, required_bond: uint256 }),
  contracts: members({ permit2: address, signed_proposer: address }),
  signing: members({
    chain_id: integer(1),
    max_payment: oneOf('0'),
    primary_type: oneOf('PermitWitnessTransferFrom'),
    types: record(list(members({ name: text(), type: text() }))),
  }),
}

/** As the schema BatchSigningData. Throws ShapeError. */
export const readSigningData: Read<BatchSigningData> = members(signingData)

/** Signing data as a file holds it, with what `context --json` adds. Throws ShapeError. */
export const readFileContext = members({
  ...signingData,
  slug: maybe(text()),
  token: maybe(members({ address: text(), symbol: text(), decimals: integer() })),
  typed_data: anything,
})

/** As the schema Trust. Throws ShapeError. */
export const readTrust: Read<Trust> = members(
  {
    chain_id: integer(1),
    permit2: address,
    signed_proposer: address,
    oracles: list(address, 1),
    requesters: list(members({ address, kind: oneOf(...requesterKinds) }, { strict: true }), 1),
    tokens: list(address, 1),
    slugs: (value) => (value === undefined ? {} : record(bytes32)(value)),
  },
  { strict: true },
)
