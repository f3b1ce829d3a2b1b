/**
 * The one catalogue of failures. Each code has one exit code (contract §6) and, where a gateway
 * answers with it, one HTTP status (contract §2, robustness §4). `named` marks the codes that the
 * service spec itself names; the others are ours.
 */
import { withoutPasswords } from './url-secrets.js'

/** Exit codes of the command line (contract §6). */
export const exit = {
  done: 0,
  bug: 1,
  usage: 2,
  refused: 3,
  unauthorized: 4,
  reconcile: 5,
  unknown: 6,
  failed: 7,
  pending: 8,
  storage: 74,
  deferred: 75,
  interrupted: 130,
} as const
export type ExitCode = (typeof exit)[keyof typeof exit]

interface WireFailure {
  readonly status: number
  /** Whether the same bytes may be accepted later without a change. */
  readonly retryable: boolean
  readonly named?: true
}

const fault = (status: number, retryable = false): WireFailure => ({ status, retryable })

/** Every `error.code` a gateway of ours answers with. */
export const wireFailures = {
  bad_request: fault(400),
  bad_digest: fault(400),
  invalid_json: fault(400),
  invalid_identifier: fault(400),
  unsupported_media_type: fault(400),
  unsupported_encoding: fault(400),
  proposer_not_eligible: fault(403),
  signature_not_authorized: fault(403),
  question_not_found: fault(404),
  candidate_not_found: fault(404),
  route_not_found: fault(404),
  method_not_allowed: fault(405),
  request_timeout: fault(408, true),
  candidate_conflict: fault(409),
  request_not_open: fault(409),
  round_advanced: fault(409),
  permit_nonce_used: fault(409),
  payload_too_large: fault(413),
  ancillary_data_not_allowed: fault(413),
  expectation_failed: fault(417),
  unsupported_version: fault(422),
  invalid_amount: fault(422),
  invalid_signature_format: fault(422),
  schema_violation: fault(422),
  outcome_not_allowed: fault(422),
  price_not_allowed: fault(422),
  permit_amount_below_required_bond: { status: 422, retryable: false, named: true },
  permit_deadline_too_soon: fault(422),
  rate_limited: fault(429, true),
  headers_too_large: fault(431),
  internal_error: fault(500),
  admission_disabled: fault(503, true),
  state_unavailable: fault(503, true),
  store_unavailable: fault(503, true),
  server_busy: fault(503, true),
} as const satisfies Record<string, WireFailure>
export type WireCode = keyof typeof wireFailures

export interface ErrorMeta {
  readonly exitCode: ExitCode
  /** What to do next: one sentence or a command. */
  readonly hint?: string
  /** The line, or element of an array, of an input that it is about. */
  readonly at?: number
  readonly httpStatus?: number
  readonly retryAfterMs?: number
  /** Whether the same call may succeed later without a change. */
  readonly retryable?: boolean
  /**
   * Faults of the request's fields, as the gateway reported them with a 422. Outside text: escape
   * before showing (R20).
   */
  readonly errors?: readonly FieldFault[]
  /** What more there is to the detail, a line each for people. */
  readonly lines?: readonly string[]
  readonly cause?: unknown
}

/** Where in a request a fault lies (dotted path, empty for the whole body) and which. */
export interface FieldFault {
  readonly path: string
  readonly code: string
}

/**
 * A failure with a stable `code`, a sentence for a person in `detail`, and what follows from it in
 * `meta`. The sentence holds no password of a URL.
 */
export class ProposerError extends Error {
  readonly detail: string
  constructor(
    readonly code: string,
    detail: string,
    readonly meta: ErrorMeta,
  ) {
    super(withoutPasswords(detail), meta.cause === undefined ? undefined : { cause: meta.cause })
    this.detail = this.message
    this.name = new.target.name
  }
}

/** The hint alone, or with more. */
type Rest = string | Omit<ErrorMeta, 'exitCode'>

/** A class of failures that end with one exit code. */
const endingWith = (exitCode: ExitCode) =>
  class extends ProposerError {
    constructor(code: string, detail: string, rest: Rest = {}) {
      super(code, detail, { ...(typeof rest === 'string' ? { hint: rest } : rest), exitCode })
    }
  }

/** Wrong usage, input file or configuration, or refused before anything was sent. Exit 2. */
export class UsageError extends endingWith(exit.usage) {}
/** The gateway refused: correct the request. Exit 3. */
export class RejectedError extends endingWith(exit.refused) {}
/** 403: the wallet is not eligible or the signature does not authorize. Exit 4. */
export class UnauthorizedError extends endingWith(exit.unauthorized) {}
/** 409, or our own `authorization_open`: reconcile the existing candidate first. Exit 5. */
export class ConflictError extends endingWith(exit.reconcile) {}
/** It may have been admitted: replay the saved payload, never sign again (§7 rule 2). Exit 6. */
export class UncertainError extends endingWith(exit.unknown) {}
/** The candidate ended in `failed`. Exit 7. */
export class FailedError extends endingWith(exit.failed) {}
/** Still pending when the time limit was reached. Exit 8. */
export class PendingError extends endingWith(exit.pending) {}
/** Store or journal damaged, locked or not writable. Exit 74. */
export class StorageError extends endingWith(exit.storage) {}
/** Stopped by the user with nothing unknown. Exit 130. */
export class InterruptedError extends endingWith(exit.interrupted) {}

/** Not admitted as far as the response says; the same call later sends the same bytes. Exit 75. */
export class UnavailableError extends endingWith(exit.deferred) {
  constructor(code: string, detail: string, rest: Rest = {}) {
    super(code, detail, { retryable: true, ...(typeof rest === 'string' ? { hint: rest } : rest) })
  }
}
