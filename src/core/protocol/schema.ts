/**
 * OpenAPI takes the names of exports (spec §2, contract §2-4). Nothing is transformed, so that JSON
 * Schema can show it.
 */
import * as z from 'zod/mini'
import { failureStages, failures, nextActions } from './codes.js'
import {
  Address,
  BatchSigningData,
  Bytes32,
  contracts,
  NonzeroAddress,
  round,
  TypedData,
  TypedField,
  Uint256,
} from './fields.js'
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
import { fitsClientRef, fitsSignature, isIdentifier, limits, patterns, version } from './words.js'

export {
  Address,
  BatchSigningData,
  Bytes,
  Bytes32,
  NonzeroAddress,
  TypedData,
  Uint256,
} from './fields.js'

export const Signature = hex(
  'Lowercase even-length hex, 1 to 8,192 bytes',
  matching(patterns.signature, true).check(fitting('signature_length', fitsSignature)),
  { pattern: '^0x([0-9a-f]{2})+$', maxLength: 2 + 2 * limits.signatureBytes },
)
export const Identifier = described(
  'Question id (0x and 64 lowercase hex digits) or market slug (a-z, 0-9, hyphen; not `eligibility`)',
  z.string().check(z.maxLength(limits.slugLength), fitting('identifier', isIdentifier)),
  { pattern: '^(?!eligibility$)[a-z0-9-]{1,200}$' },
)
export const Uuid = described('Hyphenated lowercase UUID', matching(patterns.uuid))
export const Instant = described(
  'RFC 3339 UTC with milliseconds',
  matching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
)
export const ClientRef = described(
  // JSON Schema cannot count bytes: the description does.
  'Correlation string of the caller, without control characters; at most 256 bytes of UTF-8, so 256 characters only in ASCII',
  matching(patterns.clientRef).check(fitting('too_long', fitsClientRef)),
  { maxLength: limits.clientRefBytes },
)
export const Version = z.strictObject({
  api: z.literal(version.api),
  schema: z.literal(version.schema),
  witness: z.literal(version.witness),
})
export const OutcomeKey = z.enum(['p1', 'p2', 'p3'])
export type OutcomeKey = z.infer<typeof OutcomeKey>

export const WireError = z.object({ code: z.string(), detail: z.string() })
export type WireError = z.infer<typeof WireError>
const FieldFault = described(
  'Path and kind of a fault',
  z.object({ path: z.string(), code: z.string() }),
)
export const ErrorBody = z.object({ error: WireError, errors: z.optional(z.array(FieldFault)) })
export type ErrorBody = z.infer<typeof ErrorBody>

const answer = { outcome: OutcomeKey, label: z.string(), price: Uint256 }
export const Outcome = z.object({ ...answer, allowed: z.boolean() })
export type Outcome = z.infer<typeof Outcome>

export const Permit = z.strictObject({ amount: Uint256, nonce: Uint256, deadline: Uint256 })

export const SigningData = z.object({
  version: Version,
  question_id: Bytes32,
  request: z.object(round),
  proposal: z.object({ ...answer, max_payment: zeroPayment }),
  outcomes: z.array(Outcome),
  permit: z.object(Permit.shape),
  token: z.object({
    address: Address,
    symbol: z.string(),
    decimals: z.int().check(z.minimum(0), z.maximum(255)),
  }),
  economics: z.object({ total_bond: Uint256, max_authorization: Uint256 }),
  contracts,
  typed_data: TypedData,
})
export type SigningData = z.infer<typeof SigningData>

export const SigningDataRequest = z.strictObject({
  version: Version,
  proposer: NonzeroAddress,
  outcome: OutcomeKey,
  max_payment: zeroPayment,
  permit: Permit,
})
export type SigningDataRequest = z.infer<typeof SigningDataRequest>

export const SignedProposal = z.strictObject({ ...SigningDataRequest.shape, signature: Signature })
export type SignedProposal = z.infer<typeof SignedProposal>

export const BatchPermit = described(
  'Here the deadline is a JSON integer',
  z.strictObject({ amount: Uint256, nonce: Uint256, deadline: natural() }),
)
export const BatchItem = z.strictObject({
  identifier: Identifier,
  client_ref: z.optional(ClientRef),
  proposer: NonzeroAddress,
  proposed_price: Uint256,
  max_payment: zeroPayment,
  permit: BatchPermit,
  signature: Signature,
})
export type BatchItem = z.infer<typeof BatchItem>

export const BatchSigningDataRequest = z.strictObject({ identifiers: listOf(Identifier) })
export const BatchSubmitRequest = z.strictObject({ proposals: listOf(BatchItem) })
export const BatchStatusRequest = z.strictObject({ candidate_ids: listOf(Uuid) })

export const Eligibility = z.object({ version: Version, address: Address, eligible: z.boolean() })
export type Eligibility = z.infer<typeof Eligibility>

export const CandidateState = z.enum(['received', 'validated', 'selected', 'executed', 'failed'])
export type CandidateState = z.infer<typeof CandidateState>
export const SubmissionState = z.enum([
  'prepared',
  'submitted',
  'confirmed',
  'indexed',
  'reverted',
  'dropped',
])
const admitted = { status: CandidateState, received_at: Instant }

export const Acknowledgement = z.object({
  version: Version,
  candidate_id: Uuid,
  ...admitted,
  status_url: z.string(),
})
export type Acknowledgement = z.infer<typeof Acknowledgement>

export const Submission = z.object({
  status: SubmissionState,
  transaction_hash: z.nullable(Bytes32),
  submitted_at: z.nullable(Instant),
  confirmed_at: z.nullable(Instant),
  indexed_at: z.nullable(Instant),
  proposal_event_index: z.nullable(natural()),
})

const openWords = (known: readonly string[]) => z.union([z.enum(known), z.string()])

export const Failure = z.object({
  stage: z.enum(failureStages),
  code: openWords(Object.keys(failures)),
  detail: z.string(),
  retryable: z.boolean(),
  can_resubmit: z.boolean(),
  next_action: openWords(nextActions),
})

export const CandidateStatus = z.object({
  version: Version,
  candidate_id: Uuid,
  question_id: Bytes32,
  proposer: Address,
  outcome: OutcomeKey,
  price: Uint256,
  ...admitted,
  validated_at: z.nullable(Instant),
  selected_at: z.nullable(Instant),
  submission: z.nullable(Submission),
  failure: z.nullable(Failure),
})
export type CandidateStatus = z.infer<typeof CandidateStatus>

const StatusCode = described(
  'Status that the single route would have returned; 2xx items carry a result, all others an error',
  z.int().check(z.minimum(100), z.maximum(599)),
)
const status_code = StatusCode
const error = z.optional(WireError)

const BatchSigningDataResult = z.object({
  identifier: z.string(),
  status_code,
  signing_data: z.optional(BatchSigningData),
  error,
})
export const BatchSigningDataAnswer = z.object({ results: z.array(BatchSigningDataResult) })
export type BatchSigningDataAnswer = z.infer<typeof BatchSigningDataAnswer>

export const BatchCandidate = z.object({ candidate_id: Uuid, ...admitted, status_url: z.string() })
const BatchSubmitResult = z.object({
  client_ref: z.nullable(z.string()),
  status_code,
  candidate: z.optional(BatchCandidate),
  error,
})
const BatchSummary = described(
  'Number of items with status 202, with 200 and with any other',
  z.object({ accepted: natural(), replayed: natural(), rejected: natural() }),
)
export const BatchSubmitAnswer = z.object({
  results: z.array(BatchSubmitResult),
  summary: BatchSummary,
})
export type BatchSubmitAnswer = z.infer<typeof BatchSubmitAnswer>

export const BatchCandidateStatus = z.object({
  candidate_id: Uuid,
  ...admitted,
  submission: z.nullable(Submission),
  failure: z.nullable(WireError),
})
const BatchStatusResult = z.object({
  candidate_id: z.string(),
  status_code,
  candidate: z.optional(BatchCandidateStatus),
  error,
})
export const BatchStatusAnswer = z.object({ results: z.array(BatchStatusResult) })
export type BatchStatusAnswer = z.infer<typeof BatchStatusAnswer>

named({
  BatchSigningDataResult,
  BatchStatusResult,
  BatchSubmitResult,
  BatchSummary,
  FieldFault,
  StatusCode,
  TypedField,
})
