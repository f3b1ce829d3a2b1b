import { ProposerError, StorageError } from '../protocol/errors.js'

/** Node's `code` of a failed call. */
export function errorCode(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string'
    ? error.code
    : undefined
}

/**
 * A write that was not taken for want of room: undone and tried again later, where an I/O error
 * ends everything (R10).
 */
export const isFull = (error: unknown): boolean =>
  ['ENOSPC', 'EDQUOT', 'EFBIG'].includes(errorCode(error) ?? '')

/** The process, or the machine, has no descriptor left for another file. */
export const isShortOfFiles = (error: unknown): boolean =>
  ['EMFILE', 'ENFILE'].includes(errorCode(error) ?? '')

/**
 * Damage that no rule allows to pass over: exit 74, naming file and offset; nothing has been
 * changed (R11).
 */
export function damaged(path: string, offset: number, what: string): StorageError {
  return new StorageError('store_damaged', `${path} is damaged at byte ${offset}: ${what}`, {
    httpStatus: 503,
    hint:
      offset === 0
        ? 'restore the folder from a backup, and keep this one: its other files may be intact'
        : 'restore the folder from a backup, and keep this one: everything before that byte is intact',
  })
}

/** Definitely not committed: the log cannot take anything now. */
export function unavailable(detail: string, cause?: unknown): StorageError {
  return new StorageError(
    'store_unavailable',
    cause === undefined ? detail : `${detail}: ${messageOf(cause)}`,
    {
      httpStatus: 503,
      cause,
      ...(diskCodes.has(errorCode(cause) ?? '') && {
        hint: 'check permissions and free disk space, then retry',
      }),
    },
  )
}

const diskCodes = new Set([
  'EACCES',
  'EPERM',
  'EROFS',
  'ENOSPC',
  'EDQUOT',
  'EFBIG',
  'EIO',
  'EMFILE',
])

/**
 * What to throw for a failed call of the disk: an error of ours as it is, one with Node's `code` as
 * `store_unavailable`.
 */
export function storageErrorOf(detail: string, error: unknown): unknown {
  return error instanceof ProposerError || errorCode(error) === undefined
    ? error
    : unavailable(detail, error)
}

/** Outcome unknown, never to be retried (R10): the log is dead. */
export function failedForGood(detail: string, cause: unknown): StorageError {
  if (
    cause instanceof StorageError &&
    ['store_fenced', 'store_failed', 'store_rolled_back'].includes(cause.code)
  )
    return cause
  return new StorageError('store_failed', `${detail}: ${messageOf(cause)}`, {
    httpStatus: 500,
    cause,
  })
}

/** Definitely not committed, and worth another try once there is room. */
export function outOfSpace(folder: string): StorageError {
  return new StorageError('store_unavailable', `there is no space for ${folder}`, {
    httpStatus: 503,
    retryAfterMs: 5_000,
    retryable: true,
    hint: 'free some disk space, then retry',
  })
}

/** Definitely not committed: more than the queue holds is waiting already (R17). */
export const busy = (folder: string): StorageError =>
  new StorageError('server_busy', `too many writes are waiting for the disk of ${folder}`, {
    httpStatus: 503,
    retryAfterMs: 1_000,
    retryable: true,
  })

/** A kind that this log's own reader would refuse. */
export const notOurs = (kind: string): StorageError =>
  new StorageError('record_invalid', `"${kind}" is not a kind of this log`, { httpStatus: 500 })

export const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error)
