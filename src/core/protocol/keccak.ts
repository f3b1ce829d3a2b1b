/** keccak256, the one hash of everything that is signed. The portable one until the edge has put a quicker one in its place. */
import { keccak_256 } from '@noble/hashes/sha3'

/** Any bytes → a fresh array of 32. */
export type Keccak = (bytes: Uint8Array) => Uint8Array

let current: Keccak = keccak_256

/** keccak256 of `bytes`. */
export const keccak: Keccak = (bytes) => current(bytes)

/** Around the edges of one and two blocks (136 bytes each), what is hashed here, and a question's text. */
const triedLengths = [0, 1, 14, 31, 32, 64, 66, 96, 135, 136, 137, 192, 256, 271, 272, 273, 1434]

/** `trialOf` keccak256, written down: the portable one, which is slow until it is warm, would take longer for it than `sign` for the rest. */
export const soundTrial = 'f30546443debd27ee1e16611c10c24c55d9dee950160db628d2e9390594357fa'

/** The hash of the hashes of some texts, in hex. RangeError where one is not 32 bytes. */
export function trialOf(hash: Keccak): string {
  const hashes = new Uint8Array(triedLengths.length * 32)
  for (const [index, length] of triedLengths.entries()) {
    const one = hash(new Uint8Array(length).map((_, at) => (at * 31 + length) & 0xff))
    if (one.length !== 32) throw new RangeError(`this is no keccak256: it gives ${one.length} bytes`)
    hashes.set(one, index * 32)
  }
  return [...hash(hashes)].map((byte) => byte.toString(16).padStart(2, '0')).join('')
}

/**
 * Puts `quicker` in the place of the portable one for the whole process. RangeError, and nothing changes, where it hashes
 * any of some texts otherwise.
 */
export function replaceKeccak(quicker: Keccak): void {
  if (trialOf(quicker) !== soundTrial) throw new RangeError('this is no keccak256: it hashes otherwise')
  current = quicker
}
