/** What a signature and the journal are made of: `sign` and `journal` wait for it, and for no more. */
import * as z from 'zod/mini'
import type { Hex } from '#ports'
import { described, fitting, hex, matching, zeroPayment } from './schema-building.js'
import { fitsUint256, patterns, zeroAddress } from './words.js'

// abort: else the refinement would run on bad text too, and BigInt throws.
export const Uint256 = described(
  'Unsigned 256-bit integer as a decimal string',
  matching(patterns.uint256, true).check(fitting('uint256', fitsUint256)),
)
export const Address = hex('Lowercase 20-byte address', matching(patterns.address))
export type Address = Hex
export const NonzeroAddress = described(
  'Lowercase 20-byte address, not zero',
  Address.check(
    z.refine<Hex>((text) => text !== zeroAddress, { params: { code: 'zero_address' } }),
  ),
  { type: 'string', pattern: '^0x(?!0{40}$)[0-9a-f]{40}$' },
)
export const Bytes32 = hex('Lowercase 32-byte hex', matching(patterns.bytes32))
export const Bytes = hex('Lowercase even-length hex', matching(patterns.bytes))
export const TypedField = z.object({ name: z.string(), type: z.string() })
const TypedDataTypes = z.record(z.string(), z.array(TypedField))
const primaryType = z.literal('PermitWitnessTransferFrom')

export const TypedData = described(
  'EIP-712 payload; integers, including domain.chainId, are decimal strings',
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
)
export type TypedData = z.infer<typeof TypedData>

export const contracts = z.object({ permit2: Address, signed_proposer: Address })

export const round = {
  oracle: Address,
  requester: Address,
  identifier: Bytes32,
  timestamp: Uint256,
  ancillary_data: Bytes,
}

const identifier = z.object({ raw: Bytes32 })
export const BatchSigningData = z.object({
  question_id: Bytes32,
  request: z.object({ question_id: Bytes32, ...round, identifier }),
  identifier,
  price: z.object({ allowed_values: z.array(Uint256) }),
  bond: z.object({ token: Address, required_bond: Uint256 }),
  contracts,
  signing: z.object({
    chain_id: z.int().check(z.minimum(1)),
    max_payment: zeroPayment,
    primary_type: primaryType,
    types: TypedDataTypes,
  }),
})
export type BatchSigningData = z.infer<typeof BatchSigningData>

const text = z.optional(z.string())

/** `unchecked`: no key was pinned. A body that is too large is absent. */
export const KeptReceipt = z.object({
  method: z.string(),
  path: z.string(),
  status: z.int(),
  requestDigest: text,
  contentDigest: text,
  signatureInput: text,
  signature: text,
  body: text,
  result: z.enum(['proven', 'unproven', 'unchecked']),
  code: text,
})
export type KeptReceipt = z.infer<typeof KeptReceipt>

export const base64UrlOf = (bytes: Uint8Array) =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replace(/=+$/, '')

export function keyBytes(text: string): Uint8Array | undefined {
  if (!/^[A-Za-z0-9_-]{43}$/.test(text)) return undefined
  const base64 = text.replaceAll('-', '+').replaceAll('_', '/')
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))
  // Bits that stand for nothing must be zero, else two texts would be the same key or signature.
  return base64UrlOf(bytes) === text ? bytes : undefined
}

/** RFC 8037; Unix seconds, absent where there is no bound. */
export const receiptJwk = {
  kty: z.literal('OKP'),
  crv: z.literal('Ed25519'),
  x: z.string().check(z.refine((text) => keyBytes(text) !== undefined)),
  nbf: z.optional(z.int()),
  exp: z.optional(z.int()),
}
export const KeyId = z.string().check(z.regex(/^[\x21-\x7e]{1,200}$/))
