/** Web3 Secret Storage v3, as Foundry's `cast` and others have it (contract §6). */

import {
  createCipheriv,
  createDecipheriv,
  pbkdf2,
  randomBytes,
  randomUUID,
  scrypt,
  timingSafeEqual,
} from 'node:crypto'
import { promisify } from 'node:util'
import * as z from 'zod/mini'
import { jsonOf } from '#protocol/capped'
import { UsageError } from '#protocol/errors'
import { keccak } from '#protocol/keccak'
import type { Address } from '#protocol/schema'
import { fromHex, toHex } from '#protocol/witness'
import { addressOfKey } from './keys.js'

/** N·r·p: 256 MiB at most (robustness §6). */
const maxScryptCost = 2 ** 21
const maxIterations = 10_000_000
/** 128 MiB, half a second. */
const ours = { n: 2 ** 17, r: 8, p: 1, dklen: 32 } as const

const digits = (pattern: string) => z.string().check(z.regex(new RegExp(`^${pattern}$`)))
const hex = (bytes: number) => digits(`[0-9a-fA-F]{${bytes * 2}}`)
const salt = digits('([0-9a-fA-F]{2}){1,64}')
const cost = z.int().check(z.minimum(1), z.maximum(2 ** 31))
const shared = { dklen: z.literal(32), salt }
const Crypto = z.object({
  cipher: z.literal('aes-128-ctr'),
  cipherparams: z.object({ iv: hex(16) }),
  ciphertext: hex(32),
  mac: hex(32),
  kdf: z.enum(['scrypt', 'pbkdf2']),
  kdfparams: z.union([
    z.object({ n: cost, r: cost, p: cost, ...shared }),
    z.object({ c: cost, prf: z.literal('hmac-sha256'), ...shared }),
  ]),
})
const Keystore = z.object({
  version: z.literal(3),
  crypto: Crypto,
  address: z.optional(z.string()),
})
type Keystore = z.infer<typeof Keystore>

const bytesOf = (text: string) => fromHex(`0x${text.toLowerCase()}`)
const hexOf = (bytes: Uint8Array) => toHex(bytes).slice(2)

export const keystoreAddress = (text: string, where: string) =>
  canonical(parse(text, where).address)

export async function decryptKeystore(text: string, password: string, where: string) {
  const { crypto, address } = parse(text, where)
  const derived = await derive(crypto, password, where)
  try {
    const ciphertext = bytesOf(crypto.ciphertext)
    if (!timingSafeEqual(macOf(derived, ciphertext), bytesOf(crypto.mac))) {
      throw new UsageError(
        'wrong_password',
        `the password does not open ${where}`,
        'try again, or check the file of --password-file; the executor has --executor-password-file',
      )
    }
    const iv = bytesOf(crypto.cipherparams.iv)
    const key = new Uint8Array(
      createDecipheriv('aes-128-ctr', derived.subarray(0, 16), iv).update(ciphertext),
    )
    const named = canonical(address)
    if (named === undefined || named === addressOfKey(key)) return key
    key.fill(0)
    throw invalid(where, 'its address is not that of its key')
  } finally {
    derived.fill(0)
  }
}

export async function encryptKeystore(key: Uint8Array, password: string, address: Address) {
  const saltBytes = randomBytes(32)
  const iv = randomBytes(16)
  const derived = await scryptKey(password, saltBytes, ours)
  try {
    const cipher = createCipheriv('aes-128-ctr', derived.subarray(0, 16), iv)
    const ciphertext = new Uint8Array(cipher.update(key))
    const crypto = {
      cipher: 'aes-128-ctr',
      cipherparams: { iv: hexOf(iv) },
      ciphertext: hexOf(ciphertext),
      kdf: 'scrypt',
      kdfparams: { ...ours, salt: hexOf(saltBytes) },
      mac: hexOf(macOf(derived, ciphertext)),
    }
    const id = randomUUID()
    return `${JSON.stringify({ version: 3, id, address: address.slice(2), crypto })}\n`
  } finally {
    derived.fill(0)
  }
}

function macOf(derived: Uint8Array, ciphertext: Uint8Array) {
  const input = new Uint8Array(16 + ciphertext.length)
  input.set(derived.subarray(16, 32), 0)
  input.set(ciphertext, 16)
  return keccak(input)
}

async function derive({ kdfparams, kdf }: Keystore['crypto'], password: string, where: string) {
  const saltBytes = bytesOf(kdfparams.salt)
  if (kdf === 'scrypt' && 'n' in kdfparams) {
    const { n, r, p } = kdfparams
    if ((n & (n - 1)) !== 0 || n < 2 || n * r * p > maxScryptCost)
      throw invalid(
        where,
        `its scrypt cost is n ${n}, r ${r}, p ${p}; n is to be a power of two and n·r·p at most ${maxScryptCost}`,
      )
    return scryptKey(password, saltBytes, kdfparams)
  }
  if (kdf === 'pbkdf2' && 'c' in kdfparams) {
    const { c } = kdfparams
    if (c > maxIterations)
      throw invalid(where, `its pbkdf2 cost is ${c}; it is to be at most ${maxIterations}`)
    return new Uint8Array(await promisify(pbkdf2)(password, saltBytes, c, 32, 'sha256'))
  }
  throw invalid(where, 'its kdfparams are not those of its kdf')
}

async function scryptKey(
  password: string,
  saltBytes: Uint8Array,
  { n, r, p }: { n: number; r: number; p: number },
): Promise<Uint8Array> {
  if (n >= 2 ** (16 * r)) {
    // OpenSSL holds to RFC 7914; older Python tools wrote n 2^18 with r 1.
    const { scryptAsync } = await import('@noble/hashes/scrypt')
    return scryptAsync(password, saltBytes, { N: n, r, p, dkLen: 32 })
  }
  return new Promise((resolve, reject) => {
    const options = { N: n, r, p, maxmem: 128 * r * (n + p + 2) + 1024 * 1024 }
    scrypt(password, saltBytes, 32, options, (error, key) => {
      if (error === null) resolve(new Uint8Array(key.buffer, key.byteOffset, key.length))
      else reject(error)
    })
  })
}

function parse(text: string, where: string): Keystore {
  let json = jsonOf(text)
  if (json === undefined) throw invalid(where, 'it is not JSON')
  if (typeof json === 'object' && json !== null && !('crypto' in json) && 'Crypto' in json)
    json = { ...json, crypto: json.Crypto }
  const parsed = Keystore.safeParse(json)
  if (parsed.success) return parsed.data
  const field = parsed.error.issues[0]?.path.map(String).join('.') || 'it'
  throw invalid(where, `${field} is missing or not as version 3 has it`)
}

function canonical(address: string | undefined): Address | undefined {
  const digits = /^(?:0x)?([0-9a-fA-F]{40})$/.exec(address ?? '')?.[1]
  return digits === undefined ? undefined : `0x${digits.toLowerCase()}`
}

const invalid = (where: string, why: string) =>
  new UsageError(
    'invalid_keystore',
    `${where} cannot be used: ${why}`,
    'a Web3 Secret Storage file of version 3 is expected',
  )
