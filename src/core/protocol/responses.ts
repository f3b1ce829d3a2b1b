import * as z from 'zod/mini'
import { failures, nextActions } from './codes.js'
import {
  Address,
  BatchSigningData,
  Bytes,
  Bytes32,
  Instant,
  Outcome,
  OutcomeKey,
  TypedData,
  Uint256,
  Uuid,
  Version,
  WireError,
} from './schema.js'
import { named, natural, zeroPayment } from './schema-building.js'

export const Eligibility = named(
  'Eligibility',
  z.object({ version: Version, address: Address, eligible: z.boolean() }),
)
export type Eligibility = z.infer<typeof Eligibility>

export const SigningData = named(
  'SigningData',
  z.object({
    version: Version,
    question_id: Bytes32,
    request: z.object({
      oracle: Address,
      requester: Address,
      identifier: Bytes32,
      timestamp: Uint256,
      ancillary_data: Bytes,
    }),
    proposal: z.object({
      outcome: OutcomeKey,
      label: z.string(),
      price: Uint256,
      max_payment: zeroPayment,
    }),
    outcomes: z.array(Outcome),
    permit: z.object({ amount: Uint256, nonce: Uint256, deadline: Uint256 }),
    token: z.object({
      address: Address,
      symbol: z.string(),
      decimals: z.int().check(z.minimum(0), z.maximum(255)),
    }),
    economics: z.object({ total_bond: Uint256, max_authorization: Uint256 }),
    contracts: BatchSigningData.shape.contracts,
    typed_data: TypedData,
  }),
)
export type SigningData = z.infer<typeof SigningData>

export const CandidateState = named(
  'CandidateState',
  z.enum(['received', 'validated', 'selected', 'executed', 'failed']),
)
export type CandidateState = z.infer<typeof CandidateState>
export const SubmissionState = named(
  'SubmissionState',
  z.enum(['prepared', 'submitted', 'confirmed', 'indexed', 'reverted', 'dropped']),
)
const admitted = { status: CandidateState, received_at: Instant }

export const Acknowledgement = named(
  'Acknowledgement',
  z.object({ version: Version, candidate_id: Uuid, ...admitted, status_url: z.string() }),
)
export type Acknowledgement = z.infer<typeof Acknowledgement>

export const Submission = named(
  'Submission',
  z.object({
    status: SubmissionState,
    transaction_hash: z.nullable(Bytes32),
    submitted_at: z.nullable(Instant),
    confirmed_at: z.nullable(Instant),
    indexed_at: z.nullable(Instant),
    proposal_event_index: z.nullable(natural()),
  }),
)

/** Words of which later versions, and other gateways, may have more. */
const openWords = (known: readonly string[]) => z.union([z.enum(known), z.string()])

export const Failure = named(
  'Failure',
  z.object({
    stage: z.enum(['validation', 'selection', 'submission', 'confirmation', 'indexing']),
    code: openWords(Object.keys(failures)),
    detail: z.string(),
    retryable: z.boolean(),
    can_resubmit: z.boolean(),
    next_action: openWords(nextActions),
  }),
)

export const CandidateStatus = named(
  'CandidateStatus',
  z.object({
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
  }),
)
export type CandidateStatus = z.infer<typeof CandidateStatus>

const StatusCode = named('StatusCode', z.int().check(z.minimum(100), z.maximum(599)), {
  description:
    'Status that the single route would have returned; 2xx items carry a result, all others an error',
})
const status_code = StatusCode
const error = z.optional(WireError)

// Results have names, so that generated clients have types for them.
const BatchSigningDataResult = named(
  'BatchSigningDataResult',
  z.object({
    identifier: z.string(),
    status_code,
    signing_data: z.optional(BatchSigningData),
    error,
  }),
)
export const BatchSigningDataAnswer = named(
  'BatchSigningDataAnswer',
  z.object({ results: z.array(BatchSigningDataResult) }),
)
export type BatchSigningDataAnswer = z.infer<typeof BatchSigningDataAnswer>

export const BatchCandidate = named(
  'BatchCandidate',
  z.object({ candidate_id: Uuid, ...admitted, status_url: z.string() }),
)
const BatchSubmitResult = named(
  'BatchSubmitResult',
  z.object({
    client_ref: z.nullable(z.string()),
    status_code,
    candidate: z.optional(BatchCandidate),
    error,
  }),
)
const BatchSummary = named(
  'BatchSummary',
  z.object({ accepted: natural(), replayed: natural(), rejected: natural() }),
  { description: 'Number of items with status 202, with 200 and with any other' },
)
export const BatchSubmitAnswer = named(
  'BatchSubmitAnswer',
  z.object({ results: z.array(BatchSubmitResult), summary: BatchSummary }),
)
export type BatchSubmitAnswer = z.infer<typeof BatchSubmitAnswer>

export const BatchCandidateStatus = named(
  'BatchCandidateStatus',
  z.object({
    candidate_id: Uuid,
    ...admitted,
    submission: z.nullable(Submission),
    failure: z.nullable(WireError),
  }),
)
const BatchStatusResult = named(
  'BatchStatusResult',
  z.object({
    candidate_id: z.string(),
    status_code,
    candidate: z.optional(BatchCandidateStatus),
    error,
  }),
)
export const BatchStatusAnswer = named(
  'BatchStatusAnswer',
  z.object({ results: z.array(BatchStatusResult) }),
)
export type BatchStatusAnswer = z.infer<typeof BatchStatusAnswer>
