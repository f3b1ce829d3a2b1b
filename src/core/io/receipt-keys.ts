/** A JWK set (RFC 7517, RFC 8037), the newest first (R5). */
import { basename, dirname } from 'node:path'
import type { Files, Hash, Random } from '#ports'
import { jsonOf } from '#protocol/capped'
import { UsageError } from '#protocol/errors'
import { objectOf } from '#protocol/json'
import { base64UrlOf, jwkOf, keyBytes, thumbprintOf } from '#protocol/receipt'
import { publishText } from '#storage/durable'
import { systemEd25519 } from './ed25519.js'
import { readReceiptKeyFile } from './key-files.js'

export type PrivateReceiptKey = ReturnType<typeof keyOf>

function keyOf(hash: Hash, seed: Uint8Array) {
  const { publicKey, sign } = systemEd25519.signer(seed)
  const x = base64UrlOf(publicKey)
  return { kid: thumbprintOf(hash, x), x, d: base64UrlOf(seed), sign }
}

export function newReceiptKey(ports: { readonly hash: Hash; readonly random: Random }) {
  const seed = ports.random.bytes(32)
  const key = keyOf(ports.hash, seed)
  seed.fill(0)
  return key
}

export async function readReceiptKeys(hash: Hash, path: string) {
  const refuse = () =>
    new UsageError(
      'invalid_receipt_key',
      `${path} holds no Ed25519 keys: a JWK set with private keys is expected`,
      'restore it from a backup, or copy it from another gateway on the same store; a new key is made by `proposer operator receipts rotate`',
    )
  const { keys } = objectOf(jsonOf(await readReceiptKeyFile(path))) ?? {}
  if (!Array.isArray(keys) || keys.length === 0) throw refuse()
  return keys.map((jwk: unknown) => {
    const { kty, crv, x, d } = objectOf(jwk) ?? {}
    const seed = typeof d === 'string' ? keyBytes(d) : undefined
    if (kty !== 'OKP' || crv !== 'Ed25519' || seed === undefined) throw refuse()
    const key = keyOf(hash, seed)
    seed.fill(0)
    if (x !== key.x) throw refuse()
    return key
  })
}

export const writeReceiptKeys = (files: Files, path: string, keys: readonly PrivateReceiptKey[]) =>
  publishText(
    files,
    dirname(path),
    basename(path),
    `${JSON.stringify({ keys: keys.map((key) => ({ ...jwkOf(key), d: key.d })) }, undefined, 2)}\n`,
  )
