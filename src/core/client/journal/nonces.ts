/** Permit2 nonces that never collide (R6; robustness §2; domain §3.2). */
import type { Random } from '../../ports.js'

/**
 * Gives each nonce of one run once. 31 random bytes name a word, bits 0 to 255 follow in order,
 * then comes a new word. A random word cannot meet that of another machine or of a restored backup;
 * counting within it is cheaper on chain. The caller reserves a nonce durably before signing.
 */
export function createNonces(random: Random): { next(): bigint } {
  let word = 0n
  let bit = 256n
  return {
    next() {
      if (bit === 256n) {
        word = random.bytes(31).reduce((value, byte) => (value << 8n) | BigInt(byte), 0n)
        bit = 0n
      }
      return (word << 8n) | bit++
    },
  }
}
