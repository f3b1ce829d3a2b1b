/**
 * What is signed and what it is signed from (spec §2.4, §2.7, contract §3, §4). Part of schema.ts,
 * which most import.
 */
import * as z from 'zod'
import { Address, Bytes, Bytes32, OutcomeKey, Uint256 } from './schema-words.js'

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
  .meta({
    id: 'TypedData',
    description: 'EIP-712 payload; integers are decimal strings, domain.chainId too',
  })
export type TypedData = z.infer<typeof TypedData>

export const Outcome = z
  .object({ outcome: OutcomeKey, label: z.string(), price: Uint256, allowed: z.boolean() })
  .meta({ id: 'Outcome' })
export type Outcome = z.infer<typeof Outcome>

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
