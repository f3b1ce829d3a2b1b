/** Permit2 nonces that never collide (R6; robustness §2 Nonces; domain §3.2). */

import { type Address, type Chain, ChainError, type Random } from '../../ports.js'
import { nonceBit, nonceUsed } from '../../protocol/permit.js'
import { onChain } from '../trust/context.js'

/**
 * One per process run: 31 random bytes name the word, bits 0-255 follow in order, then a new word.
 * Gives each nonce once.
 */
export interface NonceSource {
  next(): bigint
}

/**
 * A random word cannot meet that of another machine or of a restored backup; counting within it is
 * cheaper on chain than random nonces (domain §3.2). The caller reserves a nonce durably before
 * signing.
 */
export function createNonces(random: Random): NonceSource {
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

/**
 * Whether the owner's bitmap has the nonce spent or cancelled. UnavailableError where the chain
 * does not answer.
 */
export async function nonceSpentOnChain(
  chain: Chain,
  permit2: Address,
  owner: Address,
  nonce: bigint,
): Promise<boolean> {
  // A journal without a chain needs neither.
  const [{ permit2Abi }, { readContract }] = await Promise.all([
    import('../../chain/contracts.js'),
    import('../../chain/reading.js'),
  ])
  return onChain(async () => {
    const head = await chain.block('latest')
    if (head === null) throw new ChainError('unavailable', 'the chain has no head')
    const bitmap = await readContract(chain, head.number, permit2, permit2Abi, 'nonceBitmap', [
      owner,
      nonceBit(nonce).word,
    ])
    return nonceUsed(nonce, bitmap)
  })
}
