import type { Hex } from '../ports.js'
import { addressOf } from '../protocol/recovered.js'
import { type KeySigner, signerOn } from './key-files.js'
import { systemCurve } from './secp256k1.js'

export { type KeySigner, parseKey, readKeyFile, readPasswordFile } from './key-files.js'

/** Takes over `key` (32 bytes) and zeroes it on `dispose`. */
export function signerFromKey(key: Uint8Array): KeySigner {
  return signerOn(systemCurve(), key)
}

/** For showing; the key stays the caller's. */
export function addressOfKey(key: Uint8Array): Hex {
  const publicKey = systemCurve().publicKey(key)
  if (publicKey === undefined) throw new RangeError('the private key is out of range')
  return addressOf(publicKey)
}
