/** The words of the wire: numbers, addresses, identifiers, errors (spec §2, contract §2). Part of schema.ts, which most import. */
import { z } from 'zod'

/** The version object of v1 payloads and answers (§9). */
export const version = { api: 'v1', schema: 'signed-proposal-v1', witness: 'permit2-signed-proposer-v1' } as const

export const limits = {
  /** Items per batch call (§8). */
  batchItems: 100,
  /** Bytes of a signature (§8). */
  signatureBytes: 8192,
  slugLength: 200,
  /** Bytes of client_ref. */
  clientRefBytes: 256,
} as const

// abort: without it zod still runs the refinement on bad text, and BigInt throws instead of reporting.
export const Uint256 = z
  .string()
  .regex(/^(0|[1-9]\d{0,77})$/, { abort: true })
  .refine((text) => text.length < 78 || BigInt(text) < 2n ** 256n, { params: { code: 'uint256' } })
  .meta({ id: 'Uint256', description: 'Unsigned 256-bit integer as a decimal string' })

export const Address = z
  .string()
  .regex(/^0x[0-9a-f]{40}$/)
  .meta({ id: 'Address', description: 'Lowercase 20-byte address' })

const zeroAddress = `0x${'0'.repeat(40)}`
export const NonzeroAddress = Address.refine((text) => text !== zeroAddress, { params: { code: 'zero_address' } }).meta({
  id: 'NonzeroAddress',
  description: 'Lowercase 20-byte address, not zero',
  pattern: '^0x(?!0{40}$)[0-9a-f]{40}$',
})

export const Bytes32 = z
  .string()
  .regex(/^0x[0-9a-f]{64}$/)
  .meta({ id: 'Bytes32', description: 'Lowercase 32-byte hex' })

export const Bytes = z
  .string()
  .regex(/^0x([0-9a-f]{2})*$/)
  .meta({ id: 'Bytes', description: 'Lowercase even-length hex' })

// A plain class: one alternation with a bounded repeat over 16 KiB of text is slow in V8, so the length is judged apart.
export const Signature = z
  .string()
  .regex(/^0x[0-9a-f]+$/, { abort: true })
  .refine((text) => text.length % 2 === 0 && text.length <= 2 + 2 * limits.signatureBytes, { params: { code: 'signature_length' } })
  .meta({
    id: 'Signature',
    description: 'Lowercase even-length hex, 1 to 8,192 bytes',
    pattern: '^0x([0-9a-f]{2})+$',
    maxLength: 2 + 2 * limits.signatureBytes,
  })

const slug = /^[a-z0-9-]{1,200}$/
const bytes32 = /^0x[0-9a-f]{64}$/

/** Question ID (0x and 64 lowercase hex digits) or slug; whatever begins with 0x is meant as a question ID; `eligibility` is a route. */
export function isIdentifier(text: string): boolean {
  if (text.startsWith('0x')) return bytes32.test(text)
  return slug.test(text) && text !== 'eligibility'
}
export const isQuestionId = (text: string): boolean => bytes32.test(text)

export const Identifier = z
  .string()
  .max(limits.slugLength)
  .refine(isIdentifier, { params: { code: 'identifier' } })
  .meta({
    id: 'Identifier',
    description: 'Question ID (0x and 64 lowercase hex digits) or market slug (a-z, 0-9, hyphen; not `eligibility`)',
    pattern: '^(0x[0-9a-f]{64}|(?!0x|eligibility$)[a-z0-9-]{1,200})$',
  })

export const Uuid = z
  .string()
  .regex(/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/)
  .meta({ id: 'Uuid', description: 'Hyphenated lowercase UUID' })

export const Instant = z
  .string()
  .regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  .meta({ id: 'Instant', description: 'RFC 3339 UTC with milliseconds' })

const utf8Length = (text: string) => new TextEncoder().encode(text).length
export const ClientRef = z
  .string()
  .regex(/^[^\u0000-\u001f\u007f-\u009f]*$/)
  .refine((text) => utf8Length(text) <= limits.clientRefBytes, { params: { code: 'too_long' } })
  .meta({
    id: 'ClientRef',
    description: 'Caller correlation string, at most 256 bytes, no control characters',
    maxLength: limits.clientRefBytes,
  })

export const Version = z
  .strictObject({ api: z.literal(version.api), schema: z.literal(version.schema), witness: z.literal(version.witness) })
  .meta({ id: 'Version' })

export const OutcomeKey = z.enum(['p1', 'p2', 'p3']).meta({ id: 'OutcomeKey' })
export type OutcomeKey = z.infer<typeof OutcomeKey>

export const WireError = z.object({ code: z.string(), detail: z.string() }).meta({ id: 'WireError' })
export type WireError = z.infer<typeof WireError>

const FieldFault = z.object({ path: z.string(), code: z.string() }).meta({ id: 'FieldFault', description: 'Where a fault lies, and which' })
export const ErrorBody = z.object({ error: WireError, errors: z.array(FieldFault).optional() }).meta({ id: 'ErrorBody' })
export type ErrorBody = z.infer<typeof ErrorBody>
