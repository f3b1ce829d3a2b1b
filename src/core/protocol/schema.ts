/**
 * Every wire shape, once (spec §2, contract §2-4). Request schemas are strict; answer schemas let additions through, because another
 * gateway may add fields. Schemas are free of transforms, so that JSON Schema can show them; `proposal.ts` makes normal forms.
 */
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

// — requests —

export const Permit = z.strictObject({ amount: Uint256, nonce: Uint256, deadline: Uint256 }).meta({ id: 'Permit' })

export const SigningDataRequest = z
  .strictObject({ version: Version, proposer: NonzeroAddress, outcome: OutcomeKey, max_payment: z.literal('0'), permit: Permit })
  .meta({ id: 'SigningDataRequest' })
export type SigningDataRequest = z.infer<typeof SigningDataRequest>

export const SignedProposal = z.strictObject({ ...SigningDataRequest.shape, signature: Signature }).meta({ id: 'SignedProposal' })
export type SignedProposal = z.infer<typeof SignedProposal>

export const BatchPermit = z
  .strictObject({ amount: Uint256, nonce: Uint256, deadline: z.int().min(0) })
  .meta({ id: 'BatchPermit', description: 'deadline is a JSON integer here' })

export const BatchItem = z
  .strictObject({
    identifier: Identifier,
    client_ref: ClientRef.optional(),
    proposer: NonzeroAddress,
    proposed_price: Uint256,
    max_payment: z.literal('0'),
    permit: BatchPermit,
    signature: Signature,
  })
  .meta({ id: 'BatchItem' })
export type BatchItem = z.infer<typeof BatchItem>

const items = <T extends z.ZodType>(item: T) => z.array(item).min(1).max(limits.batchItems)

export const BatchSigningDataRequest = z.strictObject({ identifiers: items(Identifier) }).meta({ id: 'BatchSigningDataRequest' })
export const BatchSubmitRequest = z.strictObject({ proposals: items(BatchItem) }).meta({ id: 'BatchSubmitRequest' })
export const BatchStatusRequest = z.strictObject({ candidate_ids: items(Uuid) }).meta({ id: 'BatchStatusRequest' })

// — answers —

export const WireError = z.object({ code: z.string(), detail: z.string() }).meta({ id: 'WireError' })
export type WireError = z.infer<typeof WireError>

const FieldFault = z.object({ path: z.string(), code: z.string() }).meta({ id: 'FieldFault', description: 'Where a fault lies, and which' })
export const ErrorBody = z.object({ error: WireError, errors: z.array(FieldFault).optional() }).meta({ id: 'ErrorBody' })
export type ErrorBody = z.infer<typeof ErrorBody>

export const Eligibility = z.object({ version: Version, address: Address, eligible: z.boolean() }).meta({ id: 'Eligibility' })
export type Eligibility = z.infer<typeof Eligibility>

const TypedField = z.object({ name: z.string(), type: z.string() }).meta({ id: 'TypedField' })
const TypedDataTypes = z.record(z.string(), z.array(TypedField))

export const TypedData = z
  .object({
    domain: z.object({ name: z.literal('Permit2'), chainId: Uint256, verifyingContract: Address }),
    types: TypedDataTypes,
    primaryType: z.literal('PermitWitnessTransferFrom'),
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
  })
  .meta({ id: 'TypedData', description: 'EIP-712 payload; integers are decimal strings, domain.chainId too' })
export type TypedData = z.infer<typeof TypedData>

export const Outcome = z.object({ outcome: OutcomeKey, label: z.string(), price: Uint256, allowed: z.boolean() }).meta({ id: 'Outcome' })
export type Outcome = z.infer<typeof Outcome>

export const SigningData = z
  .object({
    version: Version,
    question_id: Bytes32,
    request: z.object({ oracle: Address, requester: Address, identifier: Bytes32, timestamp: Uint256, ancillary_data: Bytes }),
    proposal: z.object({ outcome: OutcomeKey, label: z.string(), price: Uint256, max_payment: z.literal('0') }),
    outcomes: z.array(Outcome),
    permit: z.object({ amount: Uint256, nonce: Uint256, deadline: Uint256 }),
    token: z.object({ address: Address, symbol: z.string(), decimals: z.int().min(0).max(255) }),
    economics: z.object({ total_bond: Uint256, max_authorization: Uint256 }),
    contracts: z.object({ permit2: Address, signed_proposer: Address }),
    typed_data: TypedData,
  })
  .meta({ id: 'SigningData' })
export type SigningData = z.infer<typeof SigningData>

export const CandidateState = z.enum(['received', 'validated', 'selected', 'executed', 'failed']).meta({ id: 'CandidateState' })
export const SubmissionState = z
  .enum(['prepared', 'submitted', 'confirmed', 'indexed', 'reverted', 'dropped'])
  .meta({ id: 'SubmissionState' })

export const Acknowledgement = z
  .object({ version: Version, candidate_id: Uuid, status: CandidateState, received_at: Instant, status_url: z.string() })
  .meta({ id: 'Acknowledgement' })
export type Acknowledgement = z.infer<typeof Acknowledgement>

export const Submission = z
  .object({
    status: SubmissionState,
    transaction_hash: Bytes32.nullable(),
    submitted_at: Instant.nullable(),
    confirmed_at: Instant.nullable(),
    indexed_at: Instant.nullable(),
    proposal_event_index: z.int().min(0).nullable(),
  })
  .meta({ id: 'Submission' })

export const Failure = z
  .object({
    stage: z.enum(['validation', 'selection', 'submission', 'confirmation', 'indexing']),
    code: z.string(),
    detail: z.string(),
    retryable: z.boolean(),
    can_resubmit: z.boolean(),
    next_action: z.string(),
  })
  .meta({ id: 'Failure' })

export const CandidateStatus = z
  .object({
    version: Version,
    candidate_id: Uuid,
    question_id: Bytes32,
    proposer: Address,
    outcome: OutcomeKey,
    price: Uint256,
    status: CandidateState,
    received_at: Instant,
    validated_at: Instant.nullable(),
    selected_at: Instant.nullable(),
    submission: Submission.nullable(),
    failure: Failure.nullable(),
  })
  .meta({ id: 'CandidateStatus' })
export type CandidateStatus = z.infer<typeof CandidateStatus>

export const BatchSigningData = z
  .object({
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
    contracts: z.object({ permit2: Address, signed_proposer: Address }),
    signing: z.object({
      chain_id: z.int().min(1),
      max_payment: z.literal('0'),
      primary_type: z.literal('PermitWitnessTransferFrom'),
      types: TypedDataTypes,
    }),
  })
  .meta({ id: 'BatchSigningData' })
export type BatchSigningData = z.infer<typeof BatchSigningData>

const StatusCode = z
  .int()
  .min(100)
  .max(599)
  .meta({ id: 'StatusCode', description: 'What the single route would have answered; only 2xx items carry a result, all others an error' })

// Results have names, so that generated clients have types for them.
const BatchSigningDataResult = z
  .object({ identifier: z.string(), status_code: StatusCode, signing_data: BatchSigningData.optional(), error: WireError.optional() })
  .meta({ id: 'BatchSigningDataResult' })

export const BatchSigningDataAnswer = z.object({ results: z.array(BatchSigningDataResult) }).meta({ id: 'BatchSigningDataAnswer' })
export type BatchSigningDataAnswer = z.infer<typeof BatchSigningDataAnswer>

export const BatchCandidate = z
  .object({ candidate_id: Uuid, status: CandidateState, received_at: Instant, status_url: z.string() })
  .meta({ id: 'BatchCandidate' })

const BatchSubmitResult = z
  .object({
    client_ref: z.string().nullable(),
    status_code: StatusCode,
    candidate: BatchCandidate.optional(),
    error: WireError.optional(),
  })
  .meta({ id: 'BatchSubmitResult' })

const BatchSummary = z
  .object({ accepted: z.int().min(0), replayed: z.int().min(0), rejected: z.int().min(0) })
  .meta({ id: 'BatchSummary', description: 'How many items were answered with 202, with 200 and with anything else' })

export const BatchSubmitAnswer = z.object({ results: z.array(BatchSubmitResult), summary: BatchSummary }).meta({ id: 'BatchSubmitAnswer' })
export type BatchSubmitAnswer = z.infer<typeof BatchSubmitAnswer>

export const BatchCandidateStatus = z
  .object({
    candidate_id: Uuid,
    status: CandidateState,
    received_at: Instant,
    submission: Submission.nullable(),
    failure: WireError.nullable(),
  })
  .meta({ id: 'BatchCandidateStatus' })

const BatchStatusResult = z
  .object({
    candidate_id: z.string(),
    status_code: StatusCode,
    candidate: BatchCandidateStatus.optional(),
    error: WireError.optional(),
  })
  .meta({ id: 'BatchStatusResult' })

export const BatchStatusAnswer = z.object({ results: z.array(BatchStatusResult) }).meta({ id: 'BatchStatusAnswer' })
export type BatchStatusAnswer = z.infer<typeof BatchStatusAnswer>
