/**
 * A row a code: `error.code` (contract §2, robustness §4) and `failure.code` (contract §5).
 * OpenAPI, the reference page and the fuzzed answers are read from here.
 */
import { version } from './words.js'

export type OperationId =
  | 'eligibility'
  | 'signingData'
  | 'submit'
  | 'status'
  | 'batchSigningData'
  | 'batchSubmit'
  | 'batchStatus'
  | 'health'
  | 'readiness'
  | 'receiptKeys'
  | 'openapi'

interface WireFailure {
  readonly status: number
  readonly retryAfterSeconds?: number
  /** Whose calls are refused with it: all, those that are charged, those with a body, or these. */
  readonly by: 'connection' | 'charged' | 'body' | readonly OperationId[]
  readonly items?: readonly OperationId[]
  readonly when: string
  readonly next?: string
  readonly example: string
}

const terms = ['signingData', 'submit'] as const
const ofSubmissions = { by: ['submit'], items: ['batchSubmit'] } as const
const allowedAnswer = 'choose an answer that `proposer context <identifier>` shows as allowed'

export const wireFailures = {
  bad_request: {
    status: 400,
    by: 'connection',
    when: 'broken or ambiguous HTTP',
    example: 'exactly one Host header is required; 2 were sent',
  },
  bad_digest: {
    status: 400,
    by: 'body',
    when: 'the body is not the one that `Content-Digest` is of',
    example: 'the body is not the one that Content-Digest is of; send both again',
  },
  invalid_json: {
    status: 400,
    by: 'body',
    when: 'the body is not strict JSON',
    example: 'the body is not JSON: unexpected end at byte 17',
  },
  invalid_identifier: {
    status: 400,
    by: ['eligibility', 'signingData', 'submit', 'status'],
    when: 'a path parameter is malformed',
    example: 'address in the path must be a lowercase address, 0x and 40 hex digits',
  },
  unsupported_media_type: {
    status: 400,
    by: 'body',
    when: 'the content type is not JSON',
    example: 'the body must be JSON in UTF-8; send Content-Type: application/json',
  },
  unsupported_encoding: {
    status: 400,
    by: 'body',
    when: 'the body is compressed',
    example: 'compressed bodies are not supported; send plain JSON without Content-Encoding',
  },
  proposer_not_eligible: {
    status: 403,
    ...ofSubmissions,
    when: 'the wallet is not on the allowlist',
    example: 'this wallet is not on the allowlist; ask the operator to add it',
  },
  signature_not_authorized: {
    status: 403,
    ...ofSubmissions,
    when: 'the signature does not authorize this proposal',
    example:
      'the signature does not authorize these terms for this wallet; sign the current typed data',
  },
  question_not_found: {
    status: 404,
    by: ['signingData', 'submit', 'status'],
    items: ['batchSubmit', 'batchSigningData'],
    when: 'no trusted question has this ID or slug',
    next: 'check the identifier, and whether this gateway (--gateway) serves that question',
    example: 'no question has this id or slug; check it',
  },
  candidate_not_found: {
    status: 404,
    by: ['status'],
    items: ['batchStatus'],
    when: 'unknown, or of another question',
    next: 'check the candidate id, its question and the gateway: only the one that admitted it knows it',
    example: 'candidate not found; check the id',
  },
  route_not_found: {
    status: 404,
    by: ['eligibility', 'receiptKeys'],
    when: 'no such path',
    example:
      'route not found; paths are exact, without trailing slash, query or percent-encoding (see /openapi.json)',
  },
  method_not_allowed: {
    status: 405,
    by: [],
    when: '`Allow` names the right method',
    example: 'this route accepts GET only',
  },
  request_timeout: {
    status: 408,
    by: 'body',
    when: 'headers or body came too late; the connection is closed',
    example: 'the request did not arrive completely in time; send it again',
  },
  candidate_conflict: {
    status: 409,
    ...ofSubmissions,
    when: 'another active payload conflicts; the detail names it',
    example:
      'another payload is active in this round as candidate 018c2b9e-7f42-4d7a-9a51-6f0c3e8d2b14; poll that one',
  },
  request_not_open: {
    status: 409,
    by: ['signingData', 'submit'],
    items: ['batchSubmit', 'batchSigningData'],
    when: 'proposed, disputed, resolved, settled or paused',
    example: 'the request of this question is already proposed; wait for a new round',
  },
  round_advanced: {
    status: 409,
    ...ofSubmissions,
    when: 'this payload belongs to an earlier round',
    example: 'this payload belongs to an earlier round; poll its candidate id',
  },
  permit_nonce_used: {
    status: 409,
    ...ofSubmissions,
    when: 'the Permit2 nonce is gone',
    example: 'permit.nonce 78 is spent; sign again with another nonce',
  },
  payload_too_large: {
    status: 413,
    by: 'body',
    when: 'use smaller batches',
    example:
      'the body is larger than the 32768 bytes that this route accepts; send smaller batches',
  },
  ancillary_data_not_allowed: {
    status: 413,
    by: ['submit', 'batchSubmit'],
    when: 'leave out ancillary data',
    example:
      'ancillary data is not accepted at admission: the gateway reads it from the chain; remove every ancillary field',
  },
  expectation_failed: {
    status: 417,
    by: 'charged',
    when: '`Expect` is not 100-continue',
    example: 'the only supported Expect is 100-continue; send the request without it',
  },
  unsupported_version: {
    status: 422,
    by: terms,
    when: 'the version object has other values',
    example: `version is not supported; send and sign exactly ${JSON.stringify(version)}`,
  },
  invalid_amount: {
    status: 422,
    by: terms,
    when: 'a malformed integer, or `max_payment` is not 0',
    example:
      'permit.amount must be an unsigned 256-bit integer as a decimal string without leading zeros; correct it and send again',
  },
  invalid_signature_format: {
    status: 422,
    by: ['submit'],
    when: 'odd, upper case, empty or too long',
    example:
      'signature must be lowercase even-length hex of 1 to 8192 bytes, with 0x; correct it and send again',
  },
  schema_violation: {
    status: 422,
    by: 'body',
    when: 'another fault of shape; `errors` has paths',
    example:
      'proposer is missing; add it as a nonzero lowercase 20-byte address, 0x and 40 hex digits',
  },
  outcome_not_allowed: {
    status: 422,
    by: terms,
    when: 'the request does not allow this outcome',
    next: allowedAnswer,
    example: 'this question accepts p1 and p2 only',
  },
  price_not_allowed: {
    status: 422,
    by: [],
    items: ['batchSubmit'],
    when: "the same for a batch item's price",
    next: allowedAnswer,
    example: 'this question accepts the prices 0 and 1000000000000000000 only',
  },
  permit_amount_below_required_bond: {
    status: 422,
    by: terms,
    items: ['batchSubmit'],
    when: 'sign with at least the current bond',
    next: 'sign again: without --amount the current bond is authorized, `proposer context <identifier>` shows it',
    example:
      'permit.amount is 1; the current total bond is 750000000; sign again with an amount of at least 750000000',
  },
  permit_deadline_too_soon: {
    status: 422,
    by: terms,
    items: ['batchSubmit'],
    when: 'less than five minutes ahead',
    next: 'sign again with a later --deadline, or without one for an hour from now',
    example:
      'permit.deadline is 1; it must be 1795153980 or later (five minutes after admission); sign again with a later deadline',
  },
  rate_limited: {
    status: 429,
    by: 'charged',
    when: 'wait for `Retry-After`',
    example: 'rate limit reached: 120 items per window; retry in 17 seconds',
  },
  headers_too_large: {
    status: 431,
    by: 'connection',
    when: 'more than 64 headers or 16 KiB',
    example: '80 headers were sent; at most 64 are accepted',
  },
  internal_error: {
    status: 500,
    by: 'charged',
    when: 'a bug; the outcome of a submission is unknown',
    example:
      'the gateway failed and the outcome of this call is unknown; to settle a submission, replay exactly the same payload',
  },
  admission_disabled: {
    status: 503,
    retryAfterSeconds: 30,
    ...ofSubmissions,
    when: 'the operator has paused admission',
    example: 'admission is disabled',
  },
  state_unavailable: {
    status: 503,
    retryAfterSeconds: 2,
    by: ['signingData', 'submit', 'status'],
    items: ['batchSubmit', 'batchSigningData'],
    when: "the chain's state is not known, or a pinned contract runs other code",
    example: "the chain's state is not known: the head is older than 30 seconds",
  },
  store_unavailable: {
    status: 503,
    retryAfterSeconds: 5,
    by: 'charged',
    items: ['batchSubmit'],
    when: 'the store accepts no writes, or a shared one does not answer',
    example: 'the store does not accept writes now',
  },
  server_busy: {
    status: 503,
    retryAfterSeconds: 1,
    by: 'charged',
    items: ['batchSubmit'],
    when: 'too many calls or connections, a call that waited long, or shutdown',
    example: 'the gateway is shutting down',
  },
} as const satisfies Record<string, WireFailure>
export type WireCode = keyof typeof wireFailures
export const wireFailure = (code: WireCode): WireFailure => wireFailures[code]

export const failureStages = [
  'validation',
  'selection',
  'submission',
  'confirmation',
  'indexing',
] as const
export type FailureStage = (typeof failureStages)[number]
export const nextActions = [
  'none',
  'wait',
  'replay_same_payload',
  'fund_wallet',
  'approve_permit2',
  'sign_new_authorization',
  'wait_for_new_round',
  'contact_operator',
] as const
export type NextAction = (typeof nextActions)[number]

interface CandidateFailureCode {
  /** `undefined` where it depends on the decoded cause (domain §7). */
  readonly retryable: boolean | undefined
  readonly nextAction: NextAction
  readonly when: string
}

const signAgain = { retryable: false, nextAction: 'sign_new_authorization' } as const
const nextRound = { retryable: false, nextAction: 'wait_for_new_round' } as const
const byCause = { retryable: undefined, nextAction: 'contact_operator' } as const

export const failures = {
  insufficient_balance: {
    retryable: true,
    nextAction: 'fund_wallet',
    when: 'the wallet holds less than its active permits',
  },
  insufficient_allowance: {
    retryable: true,
    nextAction: 'approve_permit2',
    when: 'Permit2 may move less than the active permits',
  },
  bond_above_permit: { ...signAgain, when: 'the bond was raised above the permit' },
  permit_expired: { ...signAgain, when: 'the deadline passed' },
  permit_nonce_used: { ...signAgain, when: 'the nonce was used or cancelled elsewhere' },
  signature_not_authorized: { ...signAgain, when: 'Permit2 or the wallet refuses the signature' },
  proposer_not_whitelisted: {
    retryable: true,
    nextAction: 'contact_operator',
    when: 'the wallet is not listed, or the request is paused by a whitelist',
  },
  request_not_open: { ...nextRound, when: 'the request is in another state' },
  superseded: { ...nextRound, when: 'somebody else proposed first' },
  not_selected: { ...nextRound, when: 'another candidate of the round was executed' },
  round_advanced: { ...nextRound, when: 'the question has a new round' },
  simulation_reverted: {
    ...byCause,
    when: 'another revert in simulation; the detail has the reason',
  },
  execution_reverted: { ...byCause, when: 'another revert on chain; the detail has the reason' },
  token_blocked: { ...byCause, when: 'the token refuses a transfer' },
  operator_rejected: {
    retryable: false,
    nextAction: 'contact_operator',
    when: 'the operator rejected it',
  },
  submission_expired: { ...signAgain, when: 'it could not be mined before the deadline' },
} as const satisfies Record<string, CandidateFailureCode>
export type FailureCode = keyof typeof failures
