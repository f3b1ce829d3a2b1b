/** Shapes of answers, each no wider than the rule that looks at it, so that one fault is told by one check. */
import * as z from 'zod'
import { Address, Bytes, Bytes32, Instant, Uint256, Uuid, version } from '../../protocol/schema.js'

/** §9: exactly these three. */
export const VersionObject = z.object({
  version: z.strictObject({ api: z.literal(version.api), schema: z.literal(version.schema), witness: z.literal(version.witness) }),
})

/** Integers as text or number, where another rule is about their form. */
const Integer = z.union([Uint256, z.int()])
const Text = z.string().min(1)

/** §2.4 without what other rules look at: version, integers' form, decimals, typed data. */
export const SigningDataFields = z.object({
  question_id: Bytes32,
  request: z.object({ oracle: Address, requester: Address, identifier: Bytes32, timestamp: Integer, ancillary_data: Bytes }),
  proposal: z.object({ outcome: Text, label: Text, price: Integer }),
  outcomes: z.array(z.object({ outcome: Text, label: Text, price: Integer })).min(1),
  permit: z.object({}),
  token: z.object({ address: Address, symbol: z.string(), decimals: z.unknown() }),
  economics: z.object({ total_bond: Integer, max_authorization: Integer }),
  contracts: z.object({ permit2: Address, signed_proposer: Address }),
  typed_data: z.object({ domain: z.object({}), types: z.object({}), message: z.object({}) }),
})

/** §1: what is a Solidity integer in a v1 answer. */
export const IntegersAsText = z.object({
  request: z.object({ timestamp: Uint256 }),
  proposal: z.object({ price: Uint256 }),
  outcomes: z.array(z.object({ price: Uint256 })),
  economics: z.object({ total_bond: Uint256, max_authorization: Uint256 }),
})

/** §2.5 without version and status_url. */
export const AcknowledgementFields = z.object({ candidate_id: Uuid, status: Text, received_at: z.string(), status_url: z.unknown() })

/** §2.6 without version; `submission` and `failure` are rules of their own. */
export const StatusFields = z.object({
  candidate_id: Uuid,
  outcome: z.enum(['p1', 'p2', 'p3']),
  price: Uint256,
  status: Text,
  received_at: z.string(),
  validated_at: z.string().nullable(),
  selected_at: z.string().nullable(),
  submission: z.object({}).nullable(),
  failure: z.object({}).nullable(),
})

/** §2.6, once there is one. */
export const SubmissionFields = z.object({
  status: Text,
  transaction_hash: Bytes32,
  submitted_at: Instant,
  confirmed_at: Instant,
  indexed_at: Instant,
})

/** §2.6, once there is one. */
export const FailureFields = z.object({
  stage: Text,
  code: Text,
  detail: Text,
  retryable: z.boolean(),
  can_resubmit: z.boolean(),
  next_action: Text,
})

/** §2.7, a result of a batch submission without what says how it went. */
export const BatchCandidateFields = z.object({ candidate_id: Uuid, status: Text, received_at: z.string(), status_url: z.string() })

/** §2.7. */
export const BatchStatusFields = z.object({ status: Text, submission: z.object({}).nullable(), failure: z.object({}).nullable() })

/** §7 rule 4. */
export const ItemError = z.object({ error: z.object({ code: Text, detail: Text }) })
