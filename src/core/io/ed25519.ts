import { createPrivateKey, createPublicKey, sign, verify } from 'node:crypto'
import type { Ed25519 } from '#ports'

/** What stands before a seed in PKCS #8, and before a key in SPKI (RFC 8410). */
const privatePrefix = Buffer.from('302e020100300506032b657004220420', 'hex')
const publicPrefix = Buffer.from('302a300506032b6570032100', 'hex')

const imported = (key: Uint8Array) =>
  createPublicKey({ key: Buffer.concat([publicPrefix, key]), format: 'der', type: 'spki' })

const known = new Map<string, ReturnType<typeof imported>>()
const mostKnown = 100

export const systemEd25519: Ed25519 = {
  signer(seed) {
    const der = Buffer.concat([privatePrefix, seed])
    const key = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' })
    der.fill(0)
    const spki = createPublicKey(key).export({ format: 'der', type: 'spki' })
    return {
      publicKey: new Uint8Array(spki.subarray(publicPrefix.length)),
      sign: (message) => new Uint8Array(sign(null, message, key)),
    }
  },
  verify(publicKey, message, signature) {
    if (publicKey.length !== 32 || signature.length !== 64) return false
    const name = Buffer.from(publicKey).toString('hex')
    let key = known.get(name)
    if (key === undefined) {
      key = imported(publicKey)
      if (known.size >= mostKnown) known.clear()
      known.set(name, key)
    }
    return verify(null, message, key, signature)
  },
}
