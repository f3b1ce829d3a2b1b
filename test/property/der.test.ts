import { createPublicKey, generateKeyPairSync, sign, verify } from 'node:crypto'
import { secp256k1 } from '@noble/curves/secp256k1'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { addressInService, type KeyService } from '#io/kms/key-service'
import { addressOf } from '#protocol/recovered'
import { numbersOfDer } from '#protocol/signature'

const order = secp256k1.CURVE.n
const numbers = fc.bigInt(1n, order - 1n)
const edges = fc.constantFrom(1n, 127n, 128n, 255n, 256n, order / 2n, order - 1n, 1n << 255n)
const number = fc.oneof(numbers, edges, fc.bigInt(1n, 1n << 40n))
const derOf = (r: bigint, s: bigint) => new secp256k1.Signature(r, s).toDERRawBytes()
const word = (value: bigint) => value.toString(16).padStart(64, '0')

test('RFC 3279: what node:crypto signed verifies by the two numbers that are read of it', () => {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'secp256k1' })
  void fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (message) => {
      const { r = 0n, s = 0n } = numbersOfDer(sign('sha256', message, privateKey)) ?? {}
      const raw = Buffer.from(word(r) + word(s), 'hex')
      const key = { key: publicKey, dsaEncoding: 'ieee-p1363' as const }
      expect(verify('sha256', message, key, raw)).toBe(true)
    }),
  )
})

test('RFC 3279: one spelling a signature: bytes that are read are the bytes that its numbers are written as', () => {
  const changed = fc
    .tuple(number, number, fc.nat(71), fc.integer({ min: 1, max: 255 }))
    .map(([r, s, at, by]) => {
      const der = derOf(r, s)
      der[at % der.length] = (der[at % der.length] ?? 0) ^ by
      return der
    })
  const anything = fc.oneof(changed, fc.uint8Array({ maxLength: 80 }))
  void fc.assert(
    fc.property(anything, (der) => {
      const read = numbersOfDer(der)
      fc.pre(read !== undefined && read.r < order && read.s < order)
      expect(Buffer.from(derOf(read?.r ?? 0n, read?.s ?? 0n))).toEqual(Buffer.from(der))
    }),
    { numRuns: 2_000, maxSkipsPerRun: 1_000 },
  )
})

test.each([
  ['a padded number', '3008020200010201011e'],
  ['a padded number of the right length', '300702020001020101'],
  ['a negative number', '3006020180020101'],
  ['zero', '3006020100020101'],
  ['a number without bytes', '30050200020101'],
  ['bytes behind it', '300602010102010100'],
  ['a length that is too long', '3007020101020101'],
  ['a length in two bytes', '308106020101020101'],
  ['a second number that ends beyond it', '3006020101020201'],
  ['one number', '3003020101'],
  ['a number of 34 bytes', `3027022201${'00'.repeat(33)}020101`],
  ['a number above 2^256', `3026022101${'00'.repeat(32)}020101`],
  ['another tag', '3106020101020101'],
  ['nothing', ''],
])('RFC 3279: %s is refused', (_, hex) => {
  expect(numbersOfDer(Buffer.from(hex, 'hex'))).toBeUndefined()
})

const addressIn = (der: Uint8Array) =>
  addressInService({
    name: 'a service',
    key: 'a key',
    publicKey: async () => der,
  } as unknown as KeyService)

test('RFC 5480: the point of a key that node:crypto wrote', async () => {
  for (let round = 0; round < 20; round += 1) {
    const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'secp256k1' })
    const { x = '', y = '' } = publicKey.export({ format: 'jwk' })
    const point = [Buffer.from([4]), Buffer.from(x, 'base64url'), Buffer.from(y, 'base64url')]
    const address = addressIn(publicKey.export({ type: 'spki', format: 'der' }))
    expect(await address).toBe(addressOf(Buffer.concat(point)))
  }
})

test('RFC 5480: other curves, other kinds and other lengths are refused', async () => {
  const others = [
    generateKeyPairSync('ec', { namedCurve: 'prime256v1' }),
    generateKeyPairSync('ec', { namedCurve: 'secp384r1' }),
    generateKeyPairSync('ed25519'),
  ].map(({ publicKey }) => publicKey.export({ type: 'spki', format: 'der' }))
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'secp256k1' })
  const own = publicKey.export({ type: 'spki', format: 'der' })
  expect(createPublicKey({ key: own, format: 'der', type: 'spki' }).asymmetricKeyType).toBe('ec')
  for (const der of [...others, own.subarray(0, -1), Buffer.concat([own, own.subarray(0, 1)])])
    await expect(addressIn(der)).rejects.toMatchObject({ code: 'kms_wrong_key' })
})
