/**
 * libsecp256k1, an optional package. Its portable fallback is another library and must verify
 * nothing. @noble/curves is not loaded: it takes longer than one signature.
 */
import { createRequire } from 'node:module'
import type { Curve, RecoverPublicKey } from '#protocol/recovered'
import { fromHex, toHex } from '#protocol/witness'

interface Binding {
  ecdsaRecover(
    compact: Uint8Array,
    parity: number,
    digest: Uint8Array,
    isCompressed: boolean,
  ): Uint8Array
  ecdsaSign(
    digest: Uint8Array,
    key: Uint8Array,
  ): { readonly signature: Uint8Array; readonly recid: number }
  privateKeyVerify(key: Uint8Array): boolean
  publicKeyCreate(key: Uint8Array, isCompressed: boolean): Uint8Array
}

/** `bindings.js` searches many folders: a third of the time it takes. */
function bindingOf() {
  const load = createRequire(import.meta.url)
  try {
    const { Secp256k1 } = load('secp256k1/prebuilds/linux-x64/secp256k1.glibc.node')
    return load('secp256k1/lib/index.js')(new Secp256k1())
  } catch {
    return load('secp256k1/bindings.js')
  }
}

export function nativeCurve(load: () => unknown = bindingOf): Curve | undefined {
  try {
    const curve = curveOf(load() as Binding)
    return isSound(curve) ? curve : undefined
  } catch {
    // No binary for this platform.
    return undefined
  }
}

function curveOf(binding: Binding): Curve {
  const recover: RecoverPublicKey = (digest, compact, parity) => {
    try {
      return binding.ecdsaRecover(compact, parity, digest, false)
    } catch {
      return undefined
    }
  }
  return {
    recover,
    sign(digest, key) {
      const { signature, recid } = binding.ecdsaSign(digest, key)
      return { compact: signature, parity: recid === 1 ? 1 : 0 }
    },
    publicKey: (key) =>
      key.length === 32 && binding.privateKeyVerify(key)
        ? binding.publicKeyCreate(key, false)
        : undefined,
  }
}

/** Written down: the first signature of @noble/curves takes longer than the rest of `sign`. */
export const probe = {
  key: fromHex(`0x${'46'.repeat(32)}`),
  digest: fromHex(`0x${'a7'.repeat(32)}`),
  compact:
    '0x7f8071ffbc587be005bd832c35bd1884601d1008bf48c5c49445f81534ae269a1c71e983f76502b09aa15ffb97ed43862b0955a6bb580574cf2c96246367e875',
  parity: 1,
  publicKey:
    '0x044bc2a31265153f07e70e0bab08724e6b85e217f8cd628ceb62974247bb493382ce28cab79ad7119ee1ad3ebcdb98a16805211530ecc6cfefa1b88e6dff99232a',
} as const

function isSound(curve: Curve) {
  const { compact, parity } = curve.sign(probe.digest, probe.key)
  const keys = [curve.recover(probe.digest, compact, parity), curve.publicKey(probe.key)]
  return (
    toHex(compact) === probe.compact &&
    parity === probe.parity &&
    keys.every((key) => key && toHex(key) === probe.publicKey)
  )
}

let known: { readonly native: Curve | undefined } | undefined

export function knownNative() {
  known ??= { native: nativeCurve() }
  return known.native
}

export async function quickestCurve() {
  return knownNative() ?? (await import('#protocol/signature')).portableCurve()
}
