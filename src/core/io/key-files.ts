/** Private keys at the edge (contract §7). No message ever holds a key (R5). */
import type { Signer } from '#ports'
import { UsageError } from '#protocol/errors'
import { addressOf, type Curve } from '#protocol/recovered'
import { fromHex, toHex } from '#protocol/witness'
import { errorCode } from '#storage/failures'
import { readNamed } from './files.js'

export interface KeySigner extends Signer {
  dispose(): void
}

/** Takes over `key`. */
export function signerOn(curve: Curve, key: Uint8Array): KeySigner {
  const publicKey = curve.publicKey(key)
  if (publicKey === undefined) {
    key.fill(0)
    throw new UsageError(
      'invalid_key',
      'the private key is not a valid secp256k1 key',
      'create one with `proposer account new`',
    )
  }
  let disposed = false
  return {
    address: addressOf(publicKey),
    async signDigest(digest) {
      if (disposed) throw new Error('the signer has been disposed of')
      // Permit2 takes v 27 and 28 only (domain §3.3).
      const { compact, parity } = curve.sign(fromHex(digest), key)
      const bytes = new Uint8Array(65)
      bytes.set(compact, 0)
      bytes[64] = 27 + parity
      return toHex(bytes)
    },
    dispose() {
      disposed = true
      key.fill(0)
    },
  }
}

export function parseKey(text: string, where: string) {
  const match = /^0x([0-9a-fA-F]{64})\r?\n?$/.exec(text)
  if (match === null) {
    const why = `${where} does not hold a private key: 0x and 64 hex digits are expected`
    const hint = 'check the file, or make an account with `proposer account new`'
    throw new UsageError('invalid_key', why, hint)
  }
  return fromHex(`0x${match[1]?.toLowerCase()}`)
}

export const readKeyFile = (path: string) =>
  readSecretFile(path, 'key file', (text) => parseKey(text, path))

export const readPasswordFile = (path: string) =>
  readSecretFile(path, 'password file', (text) => text.replace(/\r?\n$/, ''))

export const readStoreUrl = (path: string) =>
  readSecretFile(path, 'store URL file', (text) => {
    if (/^postgres(ql)?:\/\//.test(text)) return text.trim()
    throw new UsageError(
      'invalid_store_url',
      `${path} holds no postgres:// URL`,
      'write the URL of the store into it, and nothing else',
    )
  })

export const readReceiptKeyFile = (path: string) =>
  readSecretFile(path, 'receipt key file', (text) => text)

/** The caller zeroes it. */
export const readPinFile = (path: string) =>
  readSecretBytes(path, 'PIN file', (secret) => {
    const newline = secret.at(-1) === 10 ? (secret.at(-2) === 13 ? 2 : 1) : 0
    if (secret.length > newline) return secret.slice(0, secret.length - newline)
    throw new UsageError(
      'pin_empty',
      `${path} holds no PIN`,
      'write the PIN into the file, on one line',
    )
  })

const maxSecretBytes = 4_096

type SecretFile = 'key file' | 'password file' | 'store URL file' | 'receipt key file' | 'PIN file'

const readSecretFile = <T>(path: string, what: SecretFile, use: (text: string) => T) =>
  readSecretBytes(path, what, (secret) => use(new TextDecoder().decode(secret)))

async function readSecretBytes<T>(path: string, what: SecretFile, use: (secret: Uint8Array) => T) {
  const name = what.toLowerCase().replaceAll(' ', '_')
  const refuse = (kind: string, why: string, hint: string, cause?: unknown) =>
    new UsageError(`${name}_${kind}`, `the ${what} ${path} ${why}`, { hint, cause })
  const secret = await readNamed(path, maxSecretBytes, (stat) => {
    if (!stat.isFile() || process.platform === 'win32' || (stat.mode & 0o077) === 0) return
    const mode = (stat.mode & 0o777).toString(8)
    throw refuse('mode', `may be read by others (mode ${mode})`, `chmod 600 ${path}`)
  }).catch((cause: unknown) => {
    if (cause instanceof UsageError) throw cause
    const code = errorCode(cause) ?? 'unknown'
    throw refuse('unreadable', `cannot be read (${code})`, 'check the path and its rights', cause)
  })
  try {
    if (secret.length > maxSecretBytes)
      throw refuse('unreadable', 'is too long to be one', 'check the path')
    return use(secret)
  } finally {
    secret.fill(0)
  }
}
