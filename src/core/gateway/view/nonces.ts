/**
 * Permit2 nonces known to be gone, from logs and from reads of the bitmap; bounded (R17, domain
 * §3.2).
 */
import type { Address } from '../../ports.js'
import { nonceBit } from '../../protocol/permit.js'

export interface SpentNonces {
  has(owner: Address, nonce: bigint): boolean
  /** Adds the bits of `mask` to what is known of a word. */
  add(owner: Address, word: bigint, mask: bigint): void
  /**
   * Forgets everything: after a reorganisation nothing that logs said is certain, and validation
   * reads the bitmap anyway.
   */
  clear(): void
}

/** Remembers at most `limit` bitmap words, the oldest leave first. */
export function createSpentNonces(limit = 50_000): SpentNonces {
  const words = new Map<string, bigint>()
  const keyOf = (owner: Address, word: bigint) => `${owner}|${word}`
  return {
    has(owner, nonce) {
      const { word, mask } = nonceBit(nonce)
      return ((words.get(keyOf(owner, word)) ?? 0n) & mask) !== 0n
    },
    add(owner, word, mask) {
      if (mask === 0n) return
      const key = keyOf(owner, word)
      const known = words.get(key) ?? 0n
      words.delete(key)
      words.set(key, known | mask)
      const [oldest] = words.keys()
      if (words.size > limit && oldest !== undefined) words.delete(oldest)
    },
    clear: () => words.clear(),
  }
}
