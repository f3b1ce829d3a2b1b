/** The logs bloom of a block header: says that a log is *not* in the block (yellow paper §4.3.1). */
import type { Hex } from '../../ports.js'
import { keccak } from '../../protocol/keccak.js'
import { fromHex } from '../../protocol/witness.js'
import type { WireLogFilter } from './shapes.js'

const bloomBytes = 256

/**
 * False where the block holds no log with this address or topic. A bloom of another size excludes
 * nothing.
 */
export function mayHold(bloom: Hex, addressOrTopic: Hex): boolean {
  const bits = bloom.length === 2 + 2 * bloomBytes ? fromHex(bloom) : undefined
  if (bits === undefined) return true
  const digest = keccak(fromHex(addressOrTopic))
  return [0, 2, 4].every((at) => {
    const bit = (((digest[at] ?? 0) << 8) | (digest[at + 1] ?? 0)) & 2047
    return ((bits[bloomBytes - 1 - (bit >> 3)] ?? 0) & (1 << (bit & 7))) !== 0
  })
}

type Filter = Pick<WireLogFilter, 'addresses' | 'topics'>

/** False where no log of the block can match the filter of `eth_getLogs`. */
export function mayMatch(bloom: Hex, { addresses, topics = [] }: Filter): boolean {
  return [addresses, ...topics].every((wanted) => {
    const any = typeof wanted === 'string' ? [wanted] : (wanted ?? [])
    return any.length === 0 || any.some((one) => mayHold(bloom, one))
  })
}
