import { ProposerError, StorageError } from '#protocol/errors'

export function errorCode(error: unknown) {
  return error instanceof Error && 'code' in error && typeof error.code === 'string'
    ? error.code
    : undefined
}

/** Undone and tried again later, where an I/O error ends everything (R10). */
export const isFull = (error: unknown) =>
  ['ENOSPC', 'EDQUOT', 'EFBIG'].includes(errorCode(error) ?? '')

export const isShortOfFiles = (error: unknown) =>
  ['EMFILE', 'ENFILE'].includes(errorCode(error) ?? '')

/** Exit 74; nothing has been changed (R11). */
export function damaged(path: string, offset: number, what: string) {
  return new StorageError('store_damaged', `${path} is damaged at byte ${offset}: ${what}`, {
    httpStatus: 503,
    hint:
      offset === 0
        ? 'restore the folder from a backup, and keep this one: its other files may be intact'
        : 'restore the folder from a backup, and keep this one: everything before that byte is intact',
  })
}

export function unavailable(
  detail: string,
  cause?: unknown,
  hint = diskCodes.has(errorCode(cause) ?? '') ? diskHint : undefined,
) {
  return new StorageError(
    'store_unavailable',
    cause === undefined ? detail : `${detail}: ${messageOf(cause)}`,
    {
      httpStatus: 503,
      cause,
      ...(hint && { hint }),
    },
  )
}

const diskHint = 'check permissions and free disk space, then retry'
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

export function storageErrorOf(detail: string, error: unknown, hint?: string): unknown {
  return error instanceof ProposerError || errorCode(error) === undefined
    ? error
    : unavailable(detail, error, hint)
}

export function failedForGood(detail: string, cause: unknown) {
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

export function outOfSpace(folder: string) {
  return new StorageError('store_unavailable', `there is no space for ${folder}`, {
    httpStatus: 503,
    retryAfterMs: 5_000,
    retryable: true,
    hint: 'free some disk space, then retry',
  })
}

/** Definitely not committed: more than the queue holds is waiting already (R17). */
export const busy = (folder: string) =>
  new StorageError('server_busy', `too many writes are waiting for the disk of ${folder}`, {
    httpStatus: 503,
    retryAfterMs: 1_000,
    retryable: true,
  })

export const notOurs = (kind: string) =>
  new StorageError('record_invalid', `"${kind}" is not a kind of this log`, { httpStatus: 500 })

export const messageOf = (error: unknown) =>
  error instanceof Error ? error.message : String(error)
