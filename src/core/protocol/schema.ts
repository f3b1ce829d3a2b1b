/**
 * Every wire shape, once (spec §2, contract §2-4). Request schemas are strict; answer schemas let
 * additions through, because another gateway may add fields. Schemas are free of transforms, so
 * that JSON Schema can show them; `proposal.ts` makes normal forms.
 */
import * as z from 'zod'
import { failures, nextActions } from './candidate.js'
import { BatchSigningData, Outcome, TypedData } from './schema-signing.js'
import {
  Address,
  Bytes,
  Bytes32,
  ClientRef,
  Identifier,
  Instant,
  limits,
  NonzeroAddress,
  OutcomeKey,
  Signature,
  Uint256,
  Uuid,
  Version,
  WireError,
} from './schema-words.js'

export * from './schema-signing.js'
export * from './schema-words.js'

// — requests —

export const Permit = z
  .strictObject({ amount: Uint256, nonce: Uint256, deadline: Uint256 })
  .meta({ id: 'Permit' })

export const SigningDataRequest = z
  .strictObject({
    version: Version,
    proposer: NonzeroAddress,
    outcome: OutcomeKey,
    max_payment: z.literal('0'),
    permit: Permit,
  })
  .meta({ id: 'SigningDataRequest' })
export type SigningDataRequest = z.infer<typeof SigningDataRequest>

export const SignedProposal = z
  .strictObject({ ...SigningDataRequest.shape, signature: Signature })
  .meta({ id: 'SignedProposal' })
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

export const BatchSigningDataRequest = z
  .strictObject({ identifiers: items(Identifier) })
  .meta({ id: 'BatchSigningDataRequest' })
export const BatchSubmitRequest = z
  .strictObject({ proposals: items(BatchItem) })
  .meta({ id: 'BatchSubmitRequest' })
export const BatchStatusRequest = z
  .strictObject({ candidate_ids: items(Uuid) })
  .meta({ id: 'BatchStatusRequest' })

// — answers —

export const Eligibility = z
  .object({ version: Version, address: Address, eligible: z.boolean() })
  .meta({ id: 'Eligibility' })
export type Eligibility = z.infer<typeof Eligibility>

export const SigningData = z
  .object({
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
      max_payment: z.literal('0'),
    }),
    outcomes: z.array(Outcome),
    permit: z.object({ amount: Uint256, nonce: Uint256, deadline: Uint256 }),
    token: z.object({ address: Address, symbol: z.string(), decimals: z.int().min(0).max(255) }),
    economics: z.object({ total_bond: Uint256, max_authorization: Uint256 }),
    contracts: z.object({ permit2: Address, signed_proposer: Address }),
    typed_data: TypedData,
  })
  .meta({ id: 'SigningData' })
export type SigningData = z.infer<typeof SigningData>

export const CandidateState = z
  .enum(['received', 'validated', 'selected', 'executed', 'failed'])
  .meta({ id: 'CandidateState' })
export const SubmissionState = z
  .enum(['prepared', 'submitted', 'confirmed', 'indexed', 'reverted', 'dropped'])
  .meta({ id: 'SubmissionState' })

export const Acknowledgement = z
  .object({
    version: Version,
    candidate_id: Uuid,
    status: CandidateState,
    received_at: Instant,
    status_url: z.string(),
  })
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

/**
 * Words of which later versions, and other gateways, may have more: the known ones are there to be
 * read.
 */
const openWords = (known: readonly string[]) => z.union([z.enum(known), z.string()])

export const Failure = z
  .object({
    stage: z.enum(['validation', 'selection', 'submission', 'confirmation', 'indexing']),
    code: openWords(Object.keys(failures)),
    detail: z.string(),
    retryable: z.boolean(),
    can_resubmit: z.boolean(),
    next_action: openWords(nextActions),
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

const StatusCode = z.int().min(100).max(599).meta({
  id: 'StatusCode',
  description:
    'What the single route would have answered; only 2xx items carry a result, all others an error',
})

// Results have names, so that generated clients have types for them.
const BatchSigningDataResult = z
  .object({
    identifier: z.string(),
    status_code: StatusCode,
    signing_data: BatchSigningData.optional(),
    error: WireError.optional(),
  })
  .meta({ id: 'BatchSigningDataResult' })

export const BatchSigningDataAnswer = z
  .object({ results: z.array(BatchSigningDataResult) })
  .meta({ id: 'BatchSigningDataAnswer' })
export type BatchSigningDataAnswer = z.infer<typeof BatchSigningDataAnswer>

export const BatchCandidate = z
  .object({
    candidate_id: Uuid,
    status: CandidateState,
    received_at: Instant,
    status_url: z.string(),
  })
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
  .meta({
    id: 'BatchSummary',
    description: 'How many items were answered with 202, with 200 and with anything else',
  })

export const BatchSubmitAnswer = z
  .object({ results: z.array(BatchSubmitResult), summary: BatchSummary })
  .meta({ id: 'BatchSubmitAnswer' })
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

export const BatchStatusAnswer = z
  .object({ results: z.array(BatchStatusResult) })
  .meta({ id: 'BatchStatusAnswer' })
export type BatchStatusAnswer = z.infer<typeof BatchStatusAnswer>
