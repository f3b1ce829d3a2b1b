import { createPublicKey, generateKeyPairSync, sign, verify } from 'node:crypto'
import * as fc from 'fast-check'
import { addressInService, type KeyService } from '#io/kms/key-service'
import { addressOf } from '#protocol/recovered'
import { numbersOfDer } from '#protocol/signature'

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

test.each(['3008020200010201011e', '300602010102010100', '3006020100020101', ''])(
  'RFC 3279: what is padded, goes on, is zero or is not there is no signature: %j',
  (hex) => expect(numbersOfDer(Buffer.from(hex, 'hex'))).toBeUndefined(),
)

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
