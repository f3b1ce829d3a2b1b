/** Amounts of a token for people. They are signed and sent in raw units (§2.1). */

/** How the amounts of a token are written. */
export interface TokenUnits {
  readonly decimals: number
  readonly symbol: string
}

/**
 * Raw token units as people read them: `750.5 USDC.e`, or the raw number where the token is
 * unknown.
 */
export function amountText(raw: string, token?: TokenUnits): string {
  if (!token || !/^\d+$/.test(raw)) return `${raw} (raw units)`
  const digits = raw.padStart(token.decimals + 1, '0')
  const whole = digits.slice(0, digits.length - token.decimals)
  const fraction = digits.slice(digits.length - token.decimals).replace(/0+$/, '')
  return `${whole}${fraction === '' ? '' : `.${fraction}`} ${token.symbol}`
}

/**
 * `750 USDC.e (750000000 raw)`: where a number is signed, or given as a flag, both forms are
 * wanted.
 */
export const amountWithRaw = (raw: string, token?: TokenUnits): string =>
  token === undefined ? amountText(raw) : `${amountText(raw, token)} (${raw} raw)`
