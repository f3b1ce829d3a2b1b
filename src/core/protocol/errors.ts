import { withoutPasswords } from './url-secrets.js'

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

export interface ErrorMeta {
  readonly exitCode: ExitCode
  readonly hint?: string | undefined
  /** The line, or element of an array. */
  readonly at?: number
  readonly httpStatus?: number | undefined
  readonly retryAfterMs?: number | undefined
  readonly retryable?: boolean | undefined
  /** Outside text: escape before showing (R20). */
  readonly errors?: readonly FieldFault[]
  readonly lines?: readonly string[]
  readonly cause?: unknown
}

export interface FieldFault {
  readonly path: string
  readonly code: string
}

/** `code` is stable, `detail` a sentence for a person, without the password of a URL. */
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

/** The same error in other words, for whoever prints its stack too. */
export function reworded(error: ProposerError, detail: string, meta = error.meta): ProposerError {
  const stack = error.stack?.replace(error.message, () => detail)
  return Object.assign(Object.create(error), { message: detail, detail, meta, stack })
}

type Rest = string | Omit<ErrorMeta, 'exitCode'>

const metaOf = (rest: Rest) => (typeof rest === 'string' ? { hint: rest } : rest)

const endingWith = (exitCode: ExitCode) =>
  class extends ProposerError {
    constructor(code: string, detail: string, rest: Rest = {}) {
      super(code, detail, { ...metaOf(rest), exitCode })
    }
  }

/** Refused before anything was sent. Exit 2. */
export class UsageError extends endingWith(exit.usage) {}
/** The gateway refused: correct the request. Exit 3. */
export class RejectedError extends endingWith(exit.refused) {}
/** 403: the wallet is not eligible or the signature does not authorize. Exit 4. */
export class UnauthorizedError extends endingWith(exit.unauthorized) {}
/** 409, or our own `authorization_open`: reconcile the existing candidate first. Exit 5. */
export class ConflictError extends endingWith(exit.reconcile) {}
/** It may have been admitted: replay the saved payload, never sign again (§7 rule 2). Exit 6. */
export class UncertainError extends endingWith(exit.unknown) {}
export class FailedError extends endingWith(exit.failed) {}
export class PendingError extends endingWith(exit.pending) {}
/** Store or journal damaged, locked or not writable. Exit 74. */
export class StorageError extends endingWith(exit.storage) {}
/** Stopped by the user with nothing unknown. Exit 130. */
export class InterruptedError extends endingWith(exit.interrupted) {}

/** Not admitted as far as the response says; the same call later sends the same bytes. Exit 75. */
export class UnavailableError extends endingWith(exit.deferred) {
  constructor(code: string, detail: string, rest: Rest = {}) {
    super(code, detail, { retryable: true, ...metaOf(rest) })
  }
}
