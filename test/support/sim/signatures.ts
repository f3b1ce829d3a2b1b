/**
 * Signatures are the dear part of a schedule. A key's signature of a digest is the same every time
 * (RFC 6979): it is made once.
 */
import { signerFromKey } from '#io/keys'
import type { Hex, Signer } from '#ports'
import { noteMaker } from './makers.js'

const made = new Map<string, Hex>()
const signers = new Map<number, Signer>()

export function rememberingSigner(n: number): Signer {
  const known = signers.get(n)
  if (known) return known
  const signer = signerFromKey(new Uint8Array(32).fill(n + 1))
  const remembering: Signer = {
    address: signer.address,
    async signDigest(digest) {
      const key = `${signer.address} ${digest}`
      const signature = made.get(key) ?? (await signer.signDigest(digest))
      made.set(key, signature)
      noteMaker(digest, signature, signer.address)
      return signature
    },
  }
  signers.set(n, remembering)
  return remembering
}
