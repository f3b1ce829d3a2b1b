import type { Hex } from '#ports'
import { compileKeccak, keccak } from './keccak.js'
import type { Address } from './schema.js'
import { fromHex, toHex } from './witness.js'

compileKeccak()

export interface Curve {
  readonly recover: RecoverPublicKey
  /** r‖s with low s, deterministic (RFC 6979), of a key in range. */
  sign(
    digest: Uint8Array,
    key: Uint8Array,
  ): { readonly compact: Uint8Array; readonly parity: 0 | 1 }
  publicKey(key: Uint8Array): Uint8Array | undefined
}

/** 65 bytes, leading 4. High s is accepted, as ecrecover does. */
export type RecoverPublicKey = (
  digest: Uint8Array,
  compact: Uint8Array,
  parity: 0 | 1,
) => Uint8Array | undefined

export const addressOf = (publicKey: Uint8Array): Address =>
  toHex(keccak(publicKey.subarray(1)).subarray(12))

export function signerBy(
  recover: RecoverPublicKey,
  digest: Uint8Array,
  signature: Hex,
): Address | undefined {
  const split = splitSignature(signature)
  const key = split && recover(digest, ...split)
  return key && addressOf(key)
}

/**
 * 65 bytes r‖s‖v with v 27 or 28, or 64 bytes r‖yParityAndS (EIP-2098): Permit2 refuses all else,
 * too.
 */
export function splitSignature(signature: Hex): [compact: Uint8Array, parity: 0 | 1] | undefined {
  const bytes = fromHex(signature)
  const v = bytes[64]
  if (bytes.length === 65 && (v === 27 || v === 28))
    return [bytes.subarray(0, 64), v === 28 ? 1 : 0]
  if (bytes.length !== 64) return undefined
  const compact = bytes.slice()
  const top = compact[32] ?? 0
  compact[32] = top & 0x7f
  return [compact, top & 0x80 ? 1 : 0]
}
