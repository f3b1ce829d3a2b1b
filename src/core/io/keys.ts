import { addressOf } from '#protocol/recovered'
import { portableCurve } from '#protocol/signature'
import { type KeySigner, signerOn } from './key-files.js'
import { knownNative } from './native-curve.js'

export { type KeySigner, parseKey, readKeyFile, readPasswordFile } from './key-files.js'

export function signerFromKey(key: Uint8Array): KeySigner {
  return signerOn(systemCurve(), key)
}

export function addressOfKey(key: Uint8Array) {
  const publicKey = systemCurve().publicKey(key)
  if (publicKey === undefined) throw new RangeError('the private key is out of range')
  return addressOf(publicKey)
}

export const systemCurve = () => knownNative() ?? portableCurve()
