/** Which permit nonces of a wallet are spent, by its bitmap at Permit2 (domain §3.2). */
import type { BlockHeader, Hex } from '../../ports.js'
import type { Candidate } from '../../protocol/candidate.js'
import { nonceBit } from '../../protocol/permit.js'
import type { Address } from '../../protocol/schema.js'

/** The words of a wallet's nonce bitmap that were read, and how to read another. */
export interface NonceBitmap {
  readonly known: ReadonlyMap<bigint, bigint>
  /** Into `known`. Rejects with `ChainError`. */
  read(word: bigint): Promise<void>
}

/** A bitmap of which no word was read yet; each is read once, unless that fails. */
export function nonceBitmap(readWord: (word: bigint) => Promise<bigint>): NonceBitmap {
  const known = new Map<bigint, bigint>()
  const reading = new Map<bigint, Promise<void>>()
  return {
    known,
    read(word) {
      const work =
        reading.get(word) ??
        readWord(word)
          .then((bits) => void known.set(word, bits))
          .finally(() => reading.delete(word))
      reading.set(word, work)
      return work
    },
  }
}

export interface NoncePorts {
  /** A wallet's nonce bitmap as of a block. */
  bitmapOf(owner: Address, at: bigint): Promise<NonceBitmap>
  /** Takes what the bitmap showed at a block, by its hash. */
  noteNonces(owner: Address, word: bigint, bitmap: bigint, at: Hex): void
}

/** Which of a wallet's candidates have their permit nonce spent; one read a word of the bitmap. */
export async function readUsedNonces(
  ports: NoncePorts,
  candidate: Candidate,
  competing: readonly Candidate[],
  at: BlockHeader,
): Promise<(candidate: Candidate) => boolean> {
  const { proposer } = candidate
  const { known, read } = await ports.bitmapOf(proposer, at.number)
  const words = new Set([candidate, ...competing].map((one) => bitOf(one).word))
  const missing = [...words].filter((word) => !known.has(word))
  if (missing.length > 0) await Promise.all(missing.map(read))
  const own = bitOf(candidate).word
  ports.noteNonces(proposer, own, known.get(own) ?? 0n, at.hash)
  return (one) => {
    const { word, mask } = bitOf(one)
    return ((known.get(word) ?? 0n) & mask) !== 0n
  }
}

/** Places of permit nonces, for as long as their candidates are held: a wallet may have many. */
const bits = new WeakMap<Candidate, ReturnType<typeof nonceBit>>()

function bitOf(candidate: Candidate): ReturnType<typeof nonceBit> {
  const bit = bits.get(candidate) ?? nonceBit(BigInt(candidate.nonce))
  bits.set(candidate, bit)
  return bit
}
