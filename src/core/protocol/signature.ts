/** Who signed a digest, judged as Permit2 judges accounts without code, by @noble/curves. */

import { secp256k1 } from '@noble/curves/secp256k1'
import type { Hex } from '../ports.js'
import { type RecoverPublicKey, signerBy } from './recovered.js'
import type { Address } from './schema.js'

export type { RecoverPublicKey } from './recovered.js'

/** The portable recovery, @noble/curves. */
export const recoverWithNoble: RecoverPublicKey = (digest, compact, parity) => {
  try {
    return secp256k1.Signature.fromCompact(compact)
      .addRecoveryBit(parity)
      .recoverPublicKey(digest)
      .toRawBytes(false)
  } catch {
    // r or s out of range, or no such point: nobody signed this, which is no failure.
    return undefined
  }
}

/** See `signerBy`. */
export const recoverSigner = (
  digest: Uint8Array,
  signature: Hex,
  recover: RecoverPublicKey = recoverWithNoble,
): Address | undefined => signerBy(recover, digest, signature)
