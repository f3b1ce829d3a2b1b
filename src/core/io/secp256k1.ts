/**
 * The curve at the edge: libsecp256k1 where its binding can be loaded (an optional package with binaries inside), @noble/curves
 * elsewhere. The package is entered by its binding alone: its portable fallback is another library and must verify nothing.
 */
import { createRequire } from 'node:module'
import { secp256k1 } from '@noble/curves/secp256k1'
import { newRecovery, type RecoverPublicKey, recoverWithNoble } from '../protocol/signature.js'
import { fromHex, toHex } from '../protocol/witness.js'

export interface Curve {
  readonly recover: RecoverPublicKey
  /** One for many signatures of one key. */
  recoveryOfOneKey(): RecoverPublicKey
  /** r‖s with low s, deterministic (RFC 6979), and the parity of R. The key is 32 bytes and in range. */
  sign(digest: Uint8Array, key: Uint8Array): { readonly compact: Uint8Array; readonly parity: 0 | 1 }
}

/** The part of the binding that is used. */
interface Binding {
  ecdsaRecover(compact: Uint8Array, parity: number, digest: Uint8Array, isCompressed: boolean): Uint8Array
  ecdsaSign(digest: Uint8Array, key: Uint8Array): { readonly signature: Uint8Array; readonly recid: number }
}

const bindingOf = (): unknown => createRequire(import.meta.url)('secp256k1/bindings.js')

/**
 * libsecp256k1, or `undefined` where `load` fails or what it loaded does not do what is asked of it: a signature of it is compared with
 * one made here before it is believed. Throws nothing.
 */
export function nativeCurve(load: () => unknown = bindingOf): Curve | undefined {
  try {
    const curve = curveOf(load() as Binding)
    return isSound(curve) ? curve : undefined
  } catch {
    // No binary for this platform, or the package was left out: the portable curve gives the same answers, more slowly.
    return undefined
  }
}

function curveOf(binding: Binding): Curve {
  const recover: RecoverPublicKey = (digest, compact, parity) => {
    try {
      return binding.ecdsaRecover(compact, parity, digest, false)
    } catch {
      // r or s out of range, or no such point: nobody signed this, as in `recoverWithNoble`.
      return undefined
    }
  }
  return {
    recover,
    recoveryOfOneKey: () => recover,
    sign(digest, key) {
      const { signature, recid } = binding.ecdsaSign(digest, key)
      return { compact: signature, parity: recid === 1 ? 1 : 0 }
    },
  }
}

/** A fixed key and digest, with the signature and the public key that any sound curve finds for them. */
const probe = {
  key: fromHex(`0x${'46'.repeat(32)}`),
  digest: fromHex(`0x${'a7'.repeat(32)}`),
} as const

function isSound(curve: Curve): boolean {
  const ours = portableCurve().sign(probe.digest, probe.key)
  const theirs = curve.sign(probe.digest, probe.key)
  if (toHex(ours.compact) !== toHex(theirs.compact) || ours.parity !== theirs.parity) return false
  const found = curve.recover(probe.digest, theirs.compact, theirs.parity)
  return found !== undefined && toHex(found) === toHex(secp256k1.getPublicKey(probe.key, false))
}

/** @noble/curves. */
export function portableCurve(): Curve {
  return {
    recover: recoverWithNoble,
    recoveryOfOneKey: newRecovery,
    sign(digest, key) {
      const signature = secp256k1.sign(digest, key, { lowS: true, prehash: false })
      return { compact: signature.toCompactRawBytes(), parity: signature.recovery === 1 ? 1 : 0 }
    },
  }
}

let quickest: Curve | undefined

/** The quickest curve there is, chosen once per process. */
export function systemCurve(): Curve {
  quickest ??= nativeCurve() ?? portableCurve()
  return quickest
}
