/**
 * Who signed a digest, judged as Permit2 judges accounts without code (domain §3.3); @noble/curves
 * unless told otherwise.
 */
import { invert } from '@noble/curves/abstract/modular'
import { secp256k1 } from '@noble/curves/secp256k1'
import type { Address, Hex } from '../ports.js'
import { type RecoverPublicKey, signerBy } from './recovered.js'
import { toHex } from './witness.js'

export type { RecoverPublicKey } from './recovered.js'

/** The portable recovery, @noble/curves. */
export const recoverWithNoble: RecoverPublicKey = (digest, compact, parity) => {
  try {
    return secp256k1.Signature.fromCompact(compact)
      .addRecoveryBit(parity)
      .recoverPublicKey(digest)
      .toRawBytes(false)
  } catch {
    // r or s out of range, or no such point: nobody signed this, which is an answer and not a
    // failure
    return undefined
  }
}

/**
 * A recovery that remembers the last key it found and asks first whether that one made the next
 * signature too, with multiples of it prepared: five times as quick for a batch of one wallet. It
 * answers exactly what `recoverWithNoble` does.
 */
export function newRecovery(): RecoverPublicKey {
  let known:
    | {
        readonly key: Uint8Array
        readonly madeBy: (digest: Uint8Array, compact: Uint8Array, parity: 0 | 1) => boolean
      }
    | undefined
  return (digest, compact, parity) => {
    if (known?.madeBy(digest, compact, parity)) return known.key
    const key = recoverWithNoble(digest, compact, parity)
    if (key !== undefined) known = { key, madeBy: preparedCheck(key) }
    return key
  }
}

/**
 * Whether u1·G + u2·Q is the very point R that r and the parity name: then recovery gives Q (SEC 1
 * §4.1.4, §4.1.6).
 */
function preparedCheck(
  key: Uint8Array,
): (digest: Uint8Array, compact: Uint8Array, parity: 0 | 1) => boolean {
  const { ProjectivePoint, CURVE, utils } = secp256k1
  let point: typeof ProjectivePoint.BASE | undefined
  return (digest, compact, parity) => {
    const [r, s, z] = [compact.subarray(0, 32), compact.subarray(32), digest].map((bytes) =>
      BigInt(toHex(bytes)),
    )
    if (
      r === undefined ||
      s === undefined ||
      z === undefined ||
      r === 0n ||
      s === 0n ||
      r >= CURVE.n ||
      s >= CURVE.n
    )
      return false
    // Prepared only once a second signature comes: it costs as much as some recoveries.
    point ??= utils.precompute(5, ProjectivePoint.fromHex(key))
    const inverse = invert(s, CURVE.n)
    const [u1, u2] = [(z * inverse) % CURVE.n, (r * inverse) % CURVE.n]
    if (u1 === 0n) return false
    const sum = ProjectivePoint.BASE.multiply(u1).add(point.multiply(u2))
    if (sum.equals(ProjectivePoint.ZERO)) return false
    const { x, y } = sum.toAffine()
    return x === r && (y & 1n) === BigInt(parity)
  }
}

/**
 * The address that signed `digest`, or `undefined` where the chain's recovery would yield none: 65
 * bytes r‖s‖v with v 27 or 28, or 64 bytes r‖yParityAndS (EIP-2098). Any other length, or v 0 or 1,
 * is refused by Permit2 too.
 */
export function recoverSigner(
  digest: Uint8Array,
  signature: Hex,
  recover: RecoverPublicKey = recoverWithNoble,
): Address | undefined {
  return signerBy(recover, digest, signature)
}
