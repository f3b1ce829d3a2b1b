/**
 * Handlers, OpenAPI and the faults of `serve --dev --faults` are bound to it (§4, contract §3,
 * §4).
 */
import * as z from 'zod/mini'
import type { OperationId } from './codes.js'
import { receiptDirectory } from './receipt.js'
import * as schema from './schema.js'
import { named } from './schema-building.js'

/** Malformed is 400 `invalid_identifier`. */
export const parameters = {
  address: {
    type: schema.Address,
    description: 'Wallet address',
    form: 'a lowercase address, 0x and 40 hex digits',
  },
  identifier: {
    type: schema.Identifier,
    description: 'Question id or slug',
    form: 'a question id (0x and 64 lowercase hex digits) or a slug (a-z, 0-9 and hyphen, at most 200)',
  },
  candidate_id: {
    type: schema.Uuid,
    description: 'Candidate id from the acknowledgement',
    form: 'a hyphenated lowercase UUID',
  },
} as const
export type ParameterName = keyof typeof parameters

interface RequestBody {
  readonly type: z.ZodMiniType
  /** 100 maximal items are 1.73 MB (robustness §5). */
  readonly limitBytes: number
  /** Ancillary data must not be in it (§4.1 rule 3). */
  readonly admission?: true
  /** Its entries are charged; one item without it (§8 rule 2). */
  readonly list?: string
}

export interface Operation {
  readonly method: 'GET' | 'POST'
  readonly path: string
  readonly word?: string
  readonly summary: string
  readonly description?: string
  /** Those of `Gateway` are free of charge and never shed. */
  readonly tag: keyof typeof tags
  readonly body?: RequestBody
  readonly answers: Readonly<Record<number, readonly [z.ZodMiniType, string]>>
}

/** Generators make a class of each. */
export const tags = {
  Proposals: 'One proposal at a time (v1)',
  Batch: 'Up to 100 items per call; each item has its own status_code',
  Gateway: 'Health, readiness and this document; never rate-limited',
} as const

const Health = z.object({ status: z.literal('ok') })
const Readiness = z.object({ ready: z.boolean(), reasons: z.array(z.string()) })
const ReceiptKeys = z.object({
  keys: z.array(
    z.object({
      kty: z.literal('OKP'),
      crv: z.literal('Ed25519'),
      kid: z.string(),
      x: z.string(),
      use: z.literal('sig'),
      nbf: z.optional(z.int()),
      exp: z.optional(z.int()),
    }),
  ),
})

named({ Health, Readiness, ReceiptKeys })

/** Of two paths that fit, the first is meant. */
export const operations = {
  eligibility: {
    method: 'GET',
    path: '/v1/proposals/eligibility/{address}',
    word: 'eligibility',
    summary: 'Check whether a wallet may propose now',
    tag: 'Proposals',
    answers: { 200: [schema.Eligibility, 'Eligibility of this wallet'] },
  },
  signingData: {
    method: 'POST',
    path: '/v1/proposals/{identifier}/signing-data',
    word: 'signing-data',
    summary: 'Prepare the typed data of one proposal',
    description:
      'Stateless. Checks the outcome, the amount, the deadline and that the request is open; does not check eligibility. Build or check the typed data yourself before you sign.',
    tag: 'Proposals',
    body: { type: schema.SigningDataRequest, limitBytes: 8 * 1024 },
    answers: { 200: [schema.SigningData, 'Typed data to sign, and the values in it'] },
  },
  submit: {
    method: 'POST',
    path: '/v1/proposals/{identifier}',
    word: 'submit',
    summary: 'Submit a signed proposal',
    description:
      'After a lost response, a 408 or a 500, send exactly the same bytes again: the same payload is the same candidate. Never sign again because of a timeout.',
    tag: 'Proposals',
    body: { type: schema.SignedProposal, limitBytes: 32 * 1024, admission: true },
    answers: {
      202: [
        schema.Acknowledgement,
        'Admitted: durable and queued. Only status `executed` means that it is on chain.',
      ],
      200: [
        schema.Acknowledgement,
        'An exact replay in the current round: returns the existing candidate',
      ],
    },
  },
  status: {
    method: 'GET',
    path: '/v1/proposals/{identifier}/status/{candidate_id}',
    word: 'status',
    summary: 'Get the status of a candidate',
    tag: 'Proposals',
    answers: {
      200: [schema.CandidateStatus, 'The candidate; times of stages not yet reached are null'],
    },
  },
  batchSigningData: {
    method: 'POST',
    path: '/propose/batch/signing-data',
    word: 'batch signing-data',
    summary: 'Get the signing context of 1 to 100 questions',
    tag: 'Batch',
    body: { type: schema.BatchSigningDataRequest, limitBytes: 64 * 1024, list: 'identifiers' },
    answers: {
      200: [
        schema.BatchSigningDataAnswer,
        'One result per identifier, in the order of the request',
      ],
    },
  },
  batchSubmit: {
    method: 'POST',
    path: '/propose/batch',
    word: 'batch submit',
    summary: 'Submit 1 to 100 signed proposals',
    description:
      'If any item is malformed, the whole call is rejected. Otherwise each item is handled independently: read its status_code.',
    tag: 'Batch',
    body: {
      type: schema.BatchSubmitRequest,
      limitBytes: 2 * 1024 * 1024,
      admission: true,
      list: 'proposals',
    },
    answers: {
      200: [schema.BatchSubmitAnswer, 'One result per proposal, in the order of the request'],
    },
  },
  batchStatus: {
    method: 'POST',
    path: '/propose/batch/status',
    word: 'batch status',
    summary: 'Get the status of 1 to 100 candidates',
    tag: 'Batch',
    body: { type: schema.BatchStatusRequest, limitBytes: 8 * 1024, list: 'candidate_ids' },
    answers: {
      200: [schema.BatchStatusAnswer, 'One result per candidate id, in the order of the request'],
    },
  },
  health: {
    method: 'GET',
    path: '/healthz',
    summary: 'Check that the process is up',
    tag: 'Gateway',
    answers: { 200: [Health, 'The process is up'] },
  },
  readiness: {
    method: 'GET',
    path: '/readyz',
    summary: 'Check that store, chain and executor are ready',
    tag: 'Gateway',
    answers: {
      200: [Readiness, 'Ready'],
      503: [Readiness, 'Not ready, with the reasons'],
    },
  },
  receiptKeys: {
    method: 'GET',
    path: receiptDirectory,
    summary: 'Public keys that answers are signed with (RFC 9421), ended ones too',
    tag: 'Gateway',
    answers: { 200: [ReceiptKeys, 'A JWK set (RFC 7517, RFC 8037)'] },
  },
  openapi: {
    method: 'GET',
    path: '/openapi.json',
    summary: 'Get this OpenAPI document',
    tag: 'Gateway',
    answers: { 200: [z.looseObject({}), 'OpenAPI 3.1'] },
  },
} as const satisfies Record<OperationId, Operation>
