/** Flags that every list has: which rows, how many, how wide (contract §9). */
import { instantMs, spanMs } from '../../core/protocol/duration.js'
import { UsageError } from '../../core/protocol/errors.js'
import { plainIdentifier } from '../../core/protocol/market-url.js'
import { wideFlag } from '../terminal/table.js'

/** `states`: what --state takes; `limit`: the default one, where there is one. */
export const listFlags = (states: readonly string[], limit?: string) =>
  ({
    '--state <state>': { about: 'only rows in this state', choices: states },
    '--since <time>': 'only rows since then: an age such as 24h, or a time',
    '--question <id|slug>': {
      about: 'only rows of this question',
      parse: plainIdentifier,
    },
    '--limit <number>':
      limit === undefined
        ? 'maximum number of rows, the newest'
        : { about: 'maximum number of rows, the newest', default: limit },
    ...wideFlag,
  }) as const

/** Unix milliseconds; 0 without one. UsageError `bad_since` (contract §9, Durations). */
export const sinceMs = (text: string | undefined, nowMs: number): number =>
  flagInstantMs('--since', text, nowMs) ?? 0

/** An age or a time. UsageError `bad_since`. */
export function flagInstantMs(
  flag: string,
  text: string | undefined,
  nowMs: number,
): number | undefined {
  if (text === undefined) return undefined
  const span = spanMs(text)
  if (span !== undefined) return nowMs - span
  if (/^\d{1,12}$/.test(text)) return Number(text) * 1_000
  const at = instantMs(text)
  if (at !== undefined) return at
  throw new UsageError('bad_since', `${flag} ${text} is neither an age nor a time`, {
    hint: `give ${flag} 24h or 2h30m, a date, 2026-11-20T05:38:00Z, or Unix seconds`,
  })
}
