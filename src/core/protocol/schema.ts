/**
 * Every shape of the wire, once (spec §2, contract §2-4); `responses.ts` has the answers. Nothing
 * is transformed, so that JSON Schema can show it. zod/mini, because `sign` waits for it.
 */

import * as z from 'zod/mini'
import type { Hex } from '#ports'
import {
  described,
  fitting,
  hex,
  listOf,
  matching,
  named,
  natural,
  zeroPayment,
} from './schema-building.js'
import {
  fitsClientRef,
  fitsSignature,
  fitsUint256,
  isIdentifier,
  limits,
  patterns,
  version,
  zeroAddress,
} from './words.js'

// abort: without it the refinement would run on bad text too, and BigInt throws.
export const Uint256 = described(
  'Uint256',
  'Unsigned 256-bit integer as a decimal string',
  matching(patterns.uint256, true).check(fitting('uint256', fitsUint256)),
)
export const Address = hex(
  described('Address', 'Lowercase 20-byte address', matching(patterns.address)),
)
export type Address = Hex
export const NonzeroAddress = named(
  'NonzeroAddress',
  Address.check(
    z.refine<Hex>((text) => text !== zeroAddress, { params: { code: 'zero_address' } }),
  ),
  {
    description: 'Lowercase 20-byte address, not zero',
    type: 'string',
    pattern: '^0x(?!0{40}$)[0-9a-f]{40}$',
  },
)
export const Bytes32 = hex(
  described('Bytes32', 'Lowercase 32-byte hex', matching(patterns.bytes32)),
)
export const Bytes = hex(described('Bytes', 'Lowercase even-length hex', matching(patterns.bytes)))
export const Signature = hex(
  described(
    'Signature',
    'Lowercase even-length hex, 1 to 8,192 bytes',
    matching(patterns.signature, true).check(fitting('signature_length', fitsSignature)),
    { pattern: '^0x([0-9a-f]{2})+$', maxLength: 2 + 2 * limits.signatureBytes },
  ),
)
export const Identifier = described(
  'Identifier',
  'Question id (0x and 64 lowercase hex digits) or market slug (a-z, 0-9, hyphen; not `eligibility`)',
  z.string().check(z.maxLength(limits.slugLength), fitting('identifier', isIdentifier)),
  { pattern: '^(?!eligibility$)[a-z0-9-]{1,200}$' },
)
export const Uuid = described('Uuid', 'Hyphenated lowercase UUID', matching(patterns.uuid))
export const Instant = described(
  'Instant',
  'RFC 3339 UTC with milliseconds',
  matching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
)
export const ClientRef = described(
  'ClientRef',
  // JSON Schema counts characters and cannot count bytes: the description does.
  'Correlation string of the caller, without control characters; at most 256 bytes of UTF-8, so 256 characters only in ASCII',
  matching(patterns.clientRef).check(fitting('too_long', fitsClientRef)),
  { maxLength: limits.clientRefBytes },
)
export const Version = named(
  'Version',
  z.strictObject({
    api: z.literal(version.api),
    schema: z.literal(version.schema),
    witness: z.literal(version.witness),
  }),
)
export const OutcomeKey = named('OutcomeKey', z.enum(['p1', 'p2', 'p3']))
export type OutcomeKey = z.infer<typeof OutcomeKey>

export const WireError = named('WireError', z.object({ code: z.string(), detail: z.string() }))
export type WireError = z.infer<typeof WireError>
const FieldFault = named('FieldFault', z.object({ path: z.string(), code: z.string() }), {
  description: 'Path and kind of a fault',
})
export const ErrorBody = named(
  'ErrorBody',
  z.object({ error: WireError, errors: z.optional(z.array(FieldFault)) }),
)
export type ErrorBody = z.infer<typeof ErrorBody>

const TypedField = named('TypedField', z.object({ name: z.string(), type: z.string() }))
const TypedDataTypes = z.record(z.string(), z.array(TypedField))
const primaryType = z.literal('PermitWitnessTransferFrom')

export const TypedData = named(
  'TypedData',
  z.object({
    domain: z.object({ name: z.literal('Permit2'), chainId: Uint256, verifyingContract: Address }),
    types: TypedDataTypes,
    primaryType,
    message: z.object({
      permitted: z.object({ token: Address, amount: Uint256 }),
      spender: Address,
      nonce: Uint256,
      deadline: Uint256,
      witness: z.object({
        oracle: Address,
        requester: Address,
        identifier: Bytes32,
        timestamp: Uint256,
        ancillaryData: Bytes,
        proposedPrice: Uint256,
        maxPayment: Uint256,
      }),
    }),
  }),
  { description: 'EIP-712 payload; integers, including domain.chainId, are decimal strings' },
)
export type TypedData = z.infer<typeof TypedData>

export const Outcome = named(
  'Outcome',
  z.object({ outcome: OutcomeKey, label: z.string(), price: Uint256, allowed: z.boolean() }),
)
export type Outcome = z.infer<typeof Outcome>

const contracts = z.object({ permit2: Address, signed_proposer: Address })

export const BatchSigningData = named(
  'BatchSigningData',
  z.object({
    question_id: Bytes32,
    request: z.object({
      question_id: Bytes32,
      oracle: Address,
      requester: Address,
      identifier: z.object({ raw: Bytes32 }),
      timestamp: Uint256,
      ancillary_data: Bytes,
    }),
    identifier: z.object({ raw: Bytes32 }),
    price: z.object({ allowed_values: z.array(Uint256) }),
    bond: z.object({ token: Address, required_bond: Uint256 }),
    contracts,
    signing: z.object({
      chain_id: z.int().check(z.minimum(1)),
      max_payment: zeroPayment,
      primary_type: primaryType,
      types: TypedDataTypes,
    }),
  }),
)
export type BatchSigningData = z.infer<typeof BatchSigningData>

export const Permit = named(
  'Permit',
  z.strictObject({ amount: Uint256, nonce: Uint256, deadline: Uint256 }),
)
export const SigningDataRequest = named(
  'SigningDataRequest',
  z.strictObject({
    version: Version,
    proposer: NonzeroAddress,
    outcome: OutcomeKey,
    max_payment: zeroPayment,
    permit: Permit,
  }),
)
export type SigningDataRequest = z.infer<typeof SigningDataRequest>

export const SignedProposal = named(
  'SignedProposal',
  z.strictObject({ ...SigningDataRequest.shape, signature: Signature }),
)
export type SignedProposal = z.infer<typeof SignedProposal>

export const BatchPermit = named(
  'BatchPermit',
  z.strictObject({ amount: Uint256, nonce: Uint256, deadline: natural() }),
  { description: 'Here the deadline is a JSON integer' },
)
export const BatchItem = named(
  'BatchItem',
  z.strictObject({
    identifier: Identifier,
    client_ref: z.optional(ClientRef),
    proposer: NonzeroAddress,
    proposed_price: Uint256,
    max_payment: zeroPayment,
    permit: BatchPermit,
    signature: Signature,
  }),
)
export type BatchItem = z.infer<typeof BatchItem>

export const BatchSigningDataRequest = named(
  'BatchSigningDataRequest',
  z.strictObject({ identifiers: listOf(Identifier) }),
)
export const BatchSubmitRequest = named(
  'BatchSubmitRequest',
  z.strictObject({ proposals: listOf(BatchItem) }),
)
export const BatchStatusRequest = named(
  'BatchStatusRequest',
  z.strictObject({ candidate_ids: listOf(Uuid) }),
)
