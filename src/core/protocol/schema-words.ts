/**
 * The words of the wire: numbers, addresses, identifiers, errors (spec §2, contract §2). Part of
 * schema.ts, which most import.
 */
import * as z from 'zod'
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

export { isIdentifier, isQuestionId, limits, version } from './words.js'

// abort: without it zod still runs the refinement on bad text, and BigInt throws instead of
// reporting.
export const Uint256 = z
  .string()
  .regex(patterns.uint256, { abort: true })
  .refine(fitsUint256, { params: { code: 'uint256' } })
  .meta({ id: 'Uint256', description: 'Unsigned 256-bit integer as a decimal string' })

export const Address = z
  .string()
  .regex(patterns.address)
  .meta({ id: 'Address', description: 'Lowercase 20-byte address' })

export const NonzeroAddress = Address.refine((text) => text !== zeroAddress, {
  params: { code: 'zero_address' },
}).meta({
  id: 'NonzeroAddress',
  description: 'Lowercase 20-byte address, not zero',
  pattern: '^0x(?!0{40}$)[0-9a-f]{40}$',
})

export const Bytes32 = z
  .string()
  .regex(patterns.bytes32)
  .meta({ id: 'Bytes32', description: 'Lowercase 32-byte hex' })

export const Bytes = z
  .string()
  .regex(patterns.bytes)
  .meta({ id: 'Bytes', description: 'Lowercase even-length hex' })

export const Signature = z
  .string()
  .regex(patterns.signature, { abort: true })
  .refine(fitsSignature, { params: { code: 'signature_length' } })
  .meta({
    id: 'Signature',
    description: 'Lowercase even-length hex, 1 to 8,192 bytes',
    pattern: '^0x([0-9a-f]{2})+$',
    maxLength: 2 + 2 * limits.signatureBytes,
  })

export const Identifier = z
  .string()
  .max(limits.slugLength)
  .refine(isIdentifier, { params: { code: 'identifier' } })
  .meta({
    id: 'Identifier',
    description:
      'Question id (0x and 64 lowercase hex digits) or market slug (a-z, 0-9, hyphen; not `eligibility`)',
    pattern: '^(?!eligibility$)[a-z0-9-]{1,200}$',
  })

export const Uuid = z
  .string()
  .regex(patterns.uuid)
  .meta({ id: 'Uuid', description: 'Hyphenated lowercase UUID' })

export const Instant = z
  .string()
  .regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  .meta({ id: 'Instant', description: 'RFC 3339 UTC with milliseconds' })

export const ClientRef = z
  .string()
  .regex(patterns.clientRef)
  .refine(fitsClientRef, { params: { code: 'too_long' } })
  .meta({
    id: 'ClientRef',
    // JSON Schema counts characters and cannot count bytes: the description does.
    description:
      'Caller correlation string, no control characters; at most 256 bytes of UTF-8, which is 256 characters only in ASCII',
    maxLength: limits.clientRefBytes,
  })

export const Version = z
  .strictObject({
    api: z.literal(version.api),
    schema: z.literal(version.schema),
    witness: z.literal(version.witness),
  })
  .meta({ id: 'Version' })

export const OutcomeKey = z.enum(['p1', 'p2', 'p3']).meta({ id: 'OutcomeKey' })
export type OutcomeKey = z.infer<typeof OutcomeKey>

export const WireError = z
  .object({ code: z.string(), detail: z.string() })
  .meta({ id: 'WireError' })
export type WireError = z.infer<typeof WireError>

const FieldFault = z
  .object({ path: z.string(), code: z.string() })
  .meta({ id: 'FieldFault', description: 'Where a fault lies, and which' })
export const ErrorBody = z
  .object({ error: WireError, errors: z.array(FieldFault).optional() })
  .meta({ id: 'ErrorBody' })
export type ErrorBody = z.infer<typeof ErrorBody>
