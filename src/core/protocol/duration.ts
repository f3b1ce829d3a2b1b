/** Times as people give them in flags (contract §9). */

const unitMs = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000 } as const

/**
 * The milliseconds of `90m`, `2h30m` or `1d12h`, each unit (d, h, m, s) once and in this order. A
 * bare number is seconds; seconds may have up to three decimals. `undefined` for anything else.
 */
export function durationMs(text: string): number | undefined {
  const parts =
    /^(?!$)(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,12}(?:\.\d{1,3})?)s)?$/.exec(
      /^[\d.]+$/.test(text) ? `${text}s` : text,
    )
  if (parts === null) return undefined
  const [, ...numbers] = parts
  const units = Object.values(unitMs)
  return Math.round(
    numbers.reduce((sum, number, index) => sum + Number(number ?? 0) * (units[index] ?? 0), 0),
  )
}

/** The same with a unit only: for flags where a bare number is a time. */
export const spanMs = (text: string): number | undefined =>
  /[dhms]$/.test(text) ? durationMs(text) : undefined

/**
 * Unix milliseconds of `2026-11-20T05:38:00Z`, with any offset, or of a date, which begins at
 * midnight UTC. `undefined` for anything else.
 */
export function instantMs(text: string): number | undefined {
  if (!/^\d{4}-\d{2}-\d{2}(T[\d:.]+(Z|[+-]\d{2}:\d{2}))?$/.test(text)) return undefined
  const ms = Date.parse(text)
  return Number.isNaN(ms) ? undefined : ms
}
