/** Why an operator acts, and who it is: kept with the change, and shown with it. */
import { defaultReason } from '../../core/gateway/operator/acts.js'
import { UsageError } from '../../core/protocol/errors.js'
import type { Context } from '../terminal/context.js'

export interface SaidFlags {
  readonly reason?: string
  readonly by?: string
}

export const reasonOption = [
  '--reason <text>',
  'reason, stored with the change; default: by operator',
] as const
export const byOption = [
  '--by <who>',
  'who makes the change, stored with it; default: SUDO_USER, or the system user',
] as const

/**
 * Reason and name as an act takes them. UsageError `bad_reason` or `bad_value` before anything is
 * opened. The default name is what the system says, which proves nothing.
 */
export function saidFlags(
  { env, user }: Pick<Context, 'env' | 'user'>,
  { reason, by = (env.SUDO_USER || user)?.slice(0, 100) }: SaidFlags,
): SaidFlags {
  if (reason !== undefined && (reason.trim() === '' || reason.length > 500))
    throw new UsageError('bad_reason', '--reason must be a text of 1 to 500 characters', {
      hint: 'give the reason in a sentence',
    })
  if (by !== undefined && (by.trim() === '' || by.length > 100))
    throw new UsageError('bad_value', '--by must be a text of 1 to 100 characters', {
      hint: 'give a name, such as --by alice',
    })
  return { ...(reason !== undefined && { reason }), ...(by !== undefined && { by }) }
}

/** Both in words; a default reason says nothing beside a name. Outside text is not escaped. */
export function saidText(reason: string, by: string | null | undefined): string {
  if (by === null || by === undefined) return reason
  return reason === defaultReason ? `by ${by}` : `${reason} (by ${by})`
}
