/** Flags that every list has: which rows, how many, how wide (contract §9). */
import { type Command, Option } from 'commander'
import { UsageError } from '../../core/protocol/errors.js'
import { wideOption } from '../terminal/table.js'

export interface ListFlags {
  readonly state?: string
  readonly since?: string
  readonly question?: string
  readonly limit?: string
  readonly wide?: boolean
}

/** Adds them. `states`: what --state takes; `limit`: the default one, where there is one. */
export function addListFlags(command: Command, states: readonly string[], limit?: string): Command {
  return command
    .addOption(new Option('--state <state>', 'only rows in this state').choices(states))
    .option('--since <time>', 'only rows since then: an age such as 24h, or Unix seconds')
    .option('--question <id|slug>', 'only rows of this question')
    .option('--limit <number>', 'maximum number of rows, the newest', limit)
    .option(...wideOption)
}

const unitMs = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/**
 * The instant that --since names, Unix milliseconds; 0 without one. UsageError `bad_since` (exit 2).
 */
export function sinceMs(text: string | undefined, nowMs: number): number {
  if (text === undefined) return 0
  if (/^\d{1,12}$/.test(text)) return Number(text) * 1_000
  if (/^(\d{1,9}[smhd])+$/.test(text)) {
    const parts = [...text.matchAll(/(\d+)([smhd])/g)]
    return parts.reduce(
      (at, [, digits, unit]) => at - Number(digits) * unitMs[unit as keyof typeof unitMs],
      nowMs,
    )
  }
  throw new UsageError('bad_since', `--since ${text} is neither an age nor Unix seconds`, {
    hint: 'give an age such as --since 24h or --since 2h30m, or Unix seconds',
  })
}
