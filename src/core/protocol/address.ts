import { UsageError } from './errors.js'
import { keccak } from './keccak.js'
import type { Address } from './schema.js'

/** A capital is part of a checksum, which has to be right (EIP-55). */
export function givenAddress(text: string, from = 'the address', code = 'invalid_address') {
  if (!/^0x[0-9a-f]{40}$/i.test(text) || text.startsWith('0X')) {
    throw new UsageError(code, `${from} "${text}" is not an address`, 'give 0x and 40 hex digits')
  }
  const address = lowercased(text)
  if (address !== text || !hasCapitals(text)) return address as Address
  throw new UsageError(
    code,
    `${from} ${text} has a wrong checksum (EIP-55)`,
    'a character is mistyped: copy the address again',
  )
}

/** Unchanged where it is none, or its checksum is wrong. */
export function lowercased<T>(value: T): T | Address {
  if (typeof value !== 'string' || !hasCapitals(value)) return value
  const address = value.toLowerCase() as Address
  return value === checksummed(address) ? address : value
}

export const isMistyped = (value: unknown) =>
  typeof value === 'string' && hasCapitals(value) && lowercased(value) === value

/** Keys too. A wrong checksum stays, for a schema to refuse, or is told to `refuse`. */
export function lowercaseAddresses(
  json: unknown,
  refuse: (path: string, address: string) => void = () => undefined,
): unknown {
  const address = (text: unknown, path: readonly string[]) => {
    const lower = lowercased(text)
    if (typeof lower === 'string' && hasCapitals(lower)) refuse(path.join('.'), lower)
    return lower
  }
  const read = (value: unknown, path: readonly string[]): unknown => {
    if (Array.isArray(value)) return value.map((one, index) => read(one, [...path, String(index)]))
    if (typeof value !== 'object' || value === null) return address(value, path)
    return Object.fromEntries(
      Object.entries(value).map(([key, one]) => [address(key, path), read(one, [...path, key])]),
    )
  }
  return read(json, [])
}

export function checksummed(address: Address) {
  const hash = keccak(new TextEncoder().encode(address.slice(2)))
  const nibble = (index: number) => ((hash[index >> 1] ?? 0) >> (index % 2 === 0 ? 4 : 0)) & 15
  const digits = [...address.slice(2)]
  return `0x${digits.map((digit, index) => (nibble(index) >= 8 ? digit.toUpperCase() : digit)).join('')}`
}

const hasCapitals = (text: string) => /^0x(?=.*[A-F])[0-9a-fA-F]{40}$/.test(text)
