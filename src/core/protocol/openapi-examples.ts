/**
 * The witness vector `question text without p3` through all routes, so that readers can check their
 * own code.
 */
import type { Hex } from '#ports'
import { type WireCode, wireFailure } from './codes.js'
import { conventionalLabel, outcomeKeys, priceOf, toBatchItem, toSingle } from './proposal.js'
import { refuse, wireError } from './refusal.js'
import type * as schema from './schema.js'
import type { Address } from './schema.js'
import { primaryType, toHex, typedData, wireTypes } from './witness.js'
import { version } from './words.js'

const ancillaryText =
  'q: title: Will candidate A win?, description: Mutually exclusive group. market_id: 500001 res_data: p1: 0, p2: 1. Where p1 corresponds to No, p2 to Yes.,initializer:1e004205adad33ac1c574e26c27f5203fd9c05f8'

const questionId: Hex = '0x22827504779e99ea885e7264c656b1e93f10f2d901019058ba4fe8d3e43f7adf'
const slug = 'will-candidate-a-win'
const proposer: Address = '0x1563915e194d8cfba1943570603f7606a3115508'
const candidateId = '018c2b9e-7f42-4d7a-9a51-6f0c3e8d2b14'
const unknownId = '5d0cb0f4-3c1b-4a5e-8a52-0b7a0d2f9c66'
const contracts = {
  permit2: '0x000000000022d473030f116ddee9f6b43ac78ba3',
  signed_proposer: '0x322813fd9a801c5507c9de605d63cea4f2ce6c44',
} as const
const token: Address = '0x8a791620dd6260079bf849dc5567adc3f2fdc318'
const chainId = 137
const identifier: Hex = '0x5945535f4f525f4e4f5f51554552590000000000000000000000000000000000'
const round = {
  oracle: '0x3aa5ebb10dc797cac828524e59a333d0a371443c',
  requester: '0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc',
  timestamp: '1768486252',
  ancillary_data: toHex(new TextEncoder().encode(ancillaryText)),
} as const
const terms = {
  proposer,
  price: '0',
  amount: '750000000',
  nonce: '78',
  deadline: '1956528000',
} as const
const authorization = {
  ...terms,
  signature:
    '0xd072e7e0d487085c365463d9cc12b1ce2b34dd2eb476258bade21ad4cbd15c0d236b4728abd186a87d06be9db072917b11702f0e1cb01e206f237f254b5e838d1c',
} as const

export type Values = Readonly<Record<string, unknown>>

export const pathExamples: Readonly<Record<string, Values>> = {
  address: { wallet: proposer },
  identifier: { question_id: questionId, slug },
  candidate_id: { candidate: candidateId },
}

const signedProposal: schema.SignedProposal = toSingle(authorization)
const { signature: _, ...signingDataRequest } = signedProposal

const signingData: schema.SigningData = {
  version,
  question_id: questionId,
  request: { identifier, ...round },
  proposal: { outcome: 'p1', label: 'No', price: '0', max_payment: '0' },
  outcomes: outcomeKeys.map((outcome) => ({
    outcome,
    label: conventionalLabel[outcome],
    price: priceOf[outcome],
    allowed: outcome !== 'p3',
  })),
  permit: signedProposal.permit,
  token: { address: token, symbol: 'USDC.e', decimals: 6 },
  economics: { total_bond: '750000000', max_authorization: terms.amount },
  contracts,
  typed_data: typedData(
    { chainId, permit2: contracts.permit2, signedProposer: contracts.signed_proposer },
    { ...round, identifier, ancillaryData: round.ancillary_data },
    token,
    terms,
  ),
}

const batchSigningData: schema.BatchSigningData = {
  question_id: questionId,
  request: { question_id: questionId, ...round, identifier: { raw: identifier } },
  identifier: { raw: identifier },
  price: { allowed_values: [priceOf.p1, priceOf.p2] },
  bond: { token, required_bond: '750000000' },
  contracts,
  signing: {
    chain_id: chainId,
    max_payment: '0',
    primary_type: primaryType,
    types: wireTypes(false),
  },
}

const receivedAt = '2026-11-20T05:38:00.000Z'
const acknowledged = {
  candidate_id: candidateId,
  status: 'received',
  received_at: receivedAt,
} as const
const received = {
  version,
  ...acknowledged,
  status_url: `/v1/proposals/${questionId}/status/${candidateId}`,
} as const satisfies schema.Acknowledgement

const submission = {
  status: 'indexed',
  transaction_hash: '0x4b1d0a8c6a7f2f3f0d9f3c2b1a09e8d7c6b5a493827160f5e4d3c2b1a0987654',
  submitted_at: '2026-11-20T05:38:04.120Z',
  confirmed_at: '2026-11-20T05:38:09.480Z',
  indexed_at: '2026-11-20T05:38:09.510Z',
  proposal_event_index: 7,
} as const

const executed = {
  version,
  candidate_id: candidateId,
  question_id: questionId,
  proposer,
  outcome: 'p1',
  price: '0',
  status: 'executed',
  received_at: receivedAt,
  validated_at: '2026-11-20T05:38:01.205Z',
  selected_at: '2026-11-20T05:38:02.310Z',
  submission,
  failure: null,
} as const satisfies schema.CandidateStatus

const failed: schema.CandidateStatus = {
  ...executed,
  status: 'failed',
  validated_at: null,
  selected_at: null,
  submission: null,
  failure: {
    stage: 'validation',
    code: 'insufficient_allowance',
    detail: 'Permit2 may move 0, the active authorizations of this wallet need 750000000',
    retryable: true,
    can_resubmit: true,
    next_action: 'approve_permit2',
  },
}

export const errorExample = (code: WireCode): schema.ErrorBody => ({
  error: wireError(refuse(code, wireFailure(code).example)),
  ...(code === 'schema_violation' && { errors: [{ path: 'proposer', code: 'missing' }] }),
})

const itemError = (code: WireCode) => ({
  status_code: wireFailure(code).status,
  ...errorExample(code),
})

export const requestExamples: Readonly<Record<string, Values>> = {
  signingData: { no: signingDataRequest },
  submit: { no: signedProposal },
  batchSigningData: { by_id_and_slug: { identifiers: [questionId, 'another-question'] } },
  batchSubmit: { one: { proposals: [toBatchItem(slug, authorization, 'row-17')] } },
  batchStatus: { two: { candidate_ids: [candidateId, unknownId] } },
}

export const answerExamples: Readonly<Record<string, Readonly<Record<number, Values>>>> = {
  eligibility: { 200: { eligible: { version, address: proposer, eligible: true } } },
  signingData: { 200: { no: signingData } },
  submit: { 202: { admitted: received }, 200: { replayed: { ...received, status: 'validated' } } },
  status: { 200: { executed, failed } },
  batchSigningData: {
    200: {
      one_found: {
        results: [
          { identifier: questionId, status_code: 200, signing_data: batchSigningData },
          { identifier: 'another-question', ...itemError('question_not_found') },
        ],
      },
    },
  },
  batchSubmit: {
    200: {
      admitted: {
        results: [
          {
            client_ref: 'row-17',
            status_code: 202,
            candidate: { ...acknowledged, status_url: `/propose/status/${candidateId}` },
          },
        ],
        summary: { accepted: 1, replayed: 0, rejected: 0 },
      },
      refused: {
        results: [{ client_ref: null, ...itemError('request_not_open') }],
        summary: { accepted: 0, replayed: 0, rejected: 1 },
      },
    },
  },
  batchStatus: {
    200: {
      one_found: {
        results: [
          {
            candidate_id: candidateId,
            status_code: 200,
            candidate: { ...acknowledged, status: 'executed', submission, failure: null },
          },
          { candidate_id: unknownId, ...itemError('candidate_not_found') },
        ],
      },
    },
  },
  health: { 200: { up: { status: 'ok' } } },
  receiptKeys: {
    200: {
      one_key: {
        keys: [
          {
            kty: 'OKP',
            crv: 'Ed25519',
            kid: 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k',
            x: '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo',
            use: 'sig',
            nbf: 1790000000,
          },
        ],
      },
    },
  },
  readiness: {
    200: { ready: { ready: true, reasons: [] } },
    503: { starting: { ready: false, reasons: ['the chain has not been read yet'] } },
  },
  openapi: { 200: { beginning: { openapi: '3.1.0' } } },
}
