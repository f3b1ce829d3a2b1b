/** Judged as Permit2 judges accounts without code. */

import { secp256k1 } from '@noble/curves/secp256k1'
import type { Hex } from '#ports'
import { type Curve, type RecoverPublicKey, signerBy } from './recovered.js'
import type { Address } from './schema.js'

export function portableCurve(): Curve {
  return {
    recover: recoverWithNoble,
    sign(digest, key) {
      const signature = secp256k1.sign(digest, key, { lowS: true, prehash: false })
      return { compact: signature.toCompactRawBytes(), parity: signature.recovery === 1 ? 1 : 0 }
    },
    publicKey: (key) =>
      secp256k1.utils.isValidPrivateKey(key) ? secp256k1.getPublicKey(key, false) : undefined,
  }
}

export const recoverWithNoble: RecoverPublicKey = (digest, compact, parity) => {
  try {
    return secp256k1.Signature.fromCompact(compact)
      .addRecoveryBit(parity)
      .recoverPublicKey(digest)
      .toRawBytes(false)
  } catch {
    // r or s out of range, or no such point: nobody signed this.
    return undefined
  }
}

export const recoverSigner = (
  digest: Uint8Array,
  signature: Hex,
  recover: RecoverPublicKey = recoverWithNoble,
): Address | undefined => signerBy(recover, digest, signature)

export function isPoint(bytes: Uint8Array) {
  try {
    secp256k1.ProjectivePoint.fromHex(bytes).assertValidity()
    return true
  } catch {
    return false
  }
}

/** RFC 3279, 2.2.3: one value has one spelling. */
export function numbersOfDer(
  der: Uint8Array,
): { readonly r: bigint; readonly s: bigint } | undefined {
  try {
    return secp256k1.Signature.fromDER(der)
  } catch {
    return undefined
  }
}

const order = secp256k1.CURVE.n

/**
 * Low s (EIP-2): hardware modules and key services give back two numbers. `undefined` where
 * `address` did not sign it.
 */
export function completeSignature(
  digest: Uint8Array,
  { r, s }: { r: bigint; s: bigint },
  address: Address,
) {
  if (r >= order || s >= order) return undefined
  const low = s > order / 2n ? order - s : s
  const word = (number: bigint) => number.toString(16).padStart(64, '0')
  return (['1b', '1c'] as const)
    .map((v) => `0x${word(r)}${word(low)}${v}` as const)
    .find((signature) => recoverSigner(digest, signature) === address)
}
