/** The curve at the edge: libsecp256k1 where its binding can be loaded, @noble/curves elsewhere. */
import { secp256k1 } from '@noble/curves/secp256k1'
import { recoverWithNoble } from '../protocol/signature.js'
import { type Curve, knownNative } from './native-curve.js'

/** @noble/curves. */
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

/** The quickest curve there is, for who cannot wait for `quickestCurve`. */
export function systemCurve(): Curve {
  return knownNative() ?? portableCurve()
}
