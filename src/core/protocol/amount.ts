import { UsageError } from './errors.js'

export interface TokenUnits {
  readonly decimals: number
  readonly symbol: string
}

/** `15,750.5 USDC.e` */
export function amountText(amount: string | bigint, token?: TokenUnits) {
  const raw = String(amount)
  if (!token || !/^\d+$/.test(raw)) return `${raw} (raw units)`
  const digits = raw.padStart(token.decimals + 1, '0')
  const whole = digits.slice(0, digits.length - token.decimals)
  const fraction = digits.slice(digits.length - token.decimals).replace(/0+$/, '')
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ',')
  return `${grouped}${fraction === '' ? '' : `.${fraction}`} ${token.symbol}`
}

/** `750 USDC.e (750000000 raw)` */
export const amountWithRaw = (raw: string | bigint, token?: TokenUnits) =>
  token === undefined ? amountText(raw) : `${amountText(raw, token)} (${raw} raw)`

/** Its symbol in lower case up to a dot (contract §9). */
export const unitOf = ({ symbol }: TokenUnits) => (symbol.split('.')[0] ?? '').toLowerCase()

export interface WrittenAmount {
  readonly text: string
  readonly from: string
  readonly whole: string
  readonly fraction: string
  readonly unit: string
}

/** `750usdc`, `0.5usdc` or `750000000raw` (contract §9). */
export function parseAmount(
  text: string,
  from: string,
  bareIsRaw = false,
  unit = 'usdc',
): WrittenAmount {
  const [, whole, fraction = '', word = ''] =
    /^(0|[1-9]\d{0,77})(?:\.(\d{1,77}))?([a-z]\w{0,31})?$/i.exec(text) ?? []
  const isBare = word === ''
  if (whole === undefined || (isBare && (fraction !== '' || isTooLarge(BigInt(whole)))))
    throw badNumber(from, text)
  if (isBare && !bareIsRaw) {
    throw new UsageError(
      'unit_missing',
      `${from} ${text} has no unit: it could mean ${text} tokens or ${text} raw units`,
      `add the unit to the number: ${text}${unit}, or ${text}raw for raw units`,
    )
  }
  return { text, from, whole, fraction, unit: word.toLowerCase() || 'raw' }
}

export function toRaw<T extends TokenUnits>(
  { text, from, whole, fraction, unit }: WrittenAmount,
  tokens: readonly T[],
): { readonly raw: bigint; readonly tokens: readonly T[] } {
  const isRaw = unit === 'raw'
  const named = isRaw ? tokens : tokens.filter((token) => unitOf(token) === unit)
  const [token] = isRaw ? [{ decimals: 0, symbol: 'a raw amount' }] : named
  if (token === undefined) throw unknownUnit(from, text, tokens)
  const { decimals, symbol } = token
  if (!isRaw && named.some((other) => other.decimals !== decimals))
    throw new UsageError(
      'unknown_unit',
      `${from} ${text}: tokens of this name have different decimals`,
      'give raw units, such as 750000000raw',
    )
  if (fraction.length > decimals)
    throw new UsageError(
      'too_many_decimals',
      `${from} ${text} has ${fraction.length} decimals, ${symbol} has ${decimals}`,
      decimals === 0 ? 'give a whole number' : `give at most ${decimals} decimals`,
    )
  const raw = BigInt(whole + fraction.padEnd(decimals, '0'))
  if (isTooLarge(raw)) throw badNumber(from, text)
  return { raw, tokens: named }
}

const isTooLarge = (raw: bigint) => raw >= 2n ** 256n

const badNumber = (from: string, text: string) =>
  new UsageError(
    'bad_number',
    `${from} ${text} is not an amount below 2^256 raw units`,
    'give a number and its unit, such as 750usdc, 0.5usdc or 750000000raw',
  )

function unknownUnit(from: string, text: string, tokens: readonly TokenUnits[]) {
  const units = [...new Set(tokens.map(unitOf))]
  return new UsageError(
    'unknown_unit',
    `${from} ${text}: ${units.length === 0 ? 'the decimals of the token are not known' : `the token is ${units.join(' or ')}`}`,
    units.length === 0
      ? 'give raw units, such as 750000000raw, set a node with --rpc-url, or add the token to token_info of the trust file'
      : `give the amount in ${units.join(' or ')}, or in raw units, such as 750000000raw`,
  )
}
