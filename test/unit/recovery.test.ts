import { secp256k1 } from '@noble/curves/secp256k1'
import fc from 'fast-check'
import { nativeCurve, probe } from '#io/native-curve'
import type { Curve } from '#protocol/recovered'
import { completeSignature, portableCurve, recoverWithNoble } from '#protocol/signature'
import { fromHex, toHex } from '#protocol/witness'
import { testSigner } from '#support/pipeline-world'

const bytes32 = fc
  .uint8Array({ minLength: 32, maxLength: 32 })
  .map((bytes) => new Uint8Array(bytes))

/**
 * Without the binary this fails: on the platforms that CI knows it is there, and the gateway's
 * speed rests on it.
 */
function native(): Curve {
  const curve = nativeCurve()
  if (curve === undefined) throw new Error('libsecp256k1 cannot be loaded here')
  return curve
}

const recoveries = [['libsecp256k1', () => native().recover]] as const

describe.each(recoveries)('recovery: %s', (_, create) => {
  test('domain §3.3, property: it answers what the plain recovery does, whoever signed and whatever was changed', () => {
    const keys = [1, 2].map((n) => new Uint8Array(32).fill(n))
    const recover = create()
    const change = fc.constantFrom(
      'none',
      'none',
      'none',
      'parity',
      'r',
      's',
      'high s',
      'digest',
      'zero r',
      'zero s',
    )
    fc.assert(
      fc.property(bytes32, fc.constantFrom(0, 0, 0, 1), change, (digest, who, changed) => {
        const signature = secp256k1.sign(digest, keys[who] ?? digest, { lowS: true })
        const compact = signature.toCompactRawBytes()
        let parity = signature.recovery as 0 | 1
        let asked = digest
        if (changed === 'parity') parity = parity === 0 ? 1 : 0
        if (changed === 'r') compact[31] = (compact[31] ?? 0) ^ 1
        if (changed === 's') compact[63] = (compact[63] ?? 0) ^ 1
        if (changed === 'zero r') compact.fill(0, 0, 32)
        if (changed === 'zero s') compact.fill(0, 32)
        if (changed === 'high s') {
          const high = secp256k1.CURVE.n - signature.s
          compact.set(Uint8Array.from(Buffer.from(high.toString(16).padStart(64, '0'), 'hex')), 32)
          parity = parity === 0 ? 1 : 0
        }
        if (changed === 'digest')
          asked = digest.map((byte, index) => (index === 0 ? byte ^ 1 : byte))
        expect(recover(asked, compact, parity)).toEqual(recoverWithNoble(asked, compact, parity))
      }),
      { numRuns: 300 },
    )
  })

  test('a digest of zero and one above the group order recover like every other', () => {
    const key = new Uint8Array(32).fill(3)
    const recover = create()
    for (const digest of [
      new Uint8Array(32).fill(9),
      new Uint8Array(32),
      new Uint8Array(32).fill(255),
      new Uint8Array(32),
    ]) {
      const signature = secp256k1.sign(digest, key, { lowS: true })
      const compact = signature.toCompactRawBytes()
      const parity = signature.recovery as 0 | 1
      expect(recover(digest, compact, parity)).toEqual(recoverWithNoble(digest, compact, parity))
      expect(recover(digest, compact, parity)).toEqual(secp256k1.getPublicKey(key, false))
    }
  })
})

test('domain §3.3, property: libsecp256k1 signs byte for byte what @noble/curves signs', () => {
  const [one, other] = [native(), portableCurve()]
  fc.assert(
    fc.property(bytes32, bytes32.filter(secp256k1.utils.isValidPrivateKey), (digest, key) => {
      expect(one.sign(digest, key)).toEqual(other.sign(digest, key))
    }),
    { numRuns: 200 },
  )
})

test('domain §3.3: r or s at the edges of the group order and of the field', () => {
  const digest = new Uint8Array(32).fill(9)
  const { n, p } = { n: secp256k1.CURVE.n, p: secp256k1.CURVE.Fp.ORDER }
  const edges = [0n, 1n, 2n, n / 2n, n / 2n + 1n, n - 1n, n, n + 1n, p - 1n, p, 2n ** 256n - 1n]
  for (const r of edges) {
    for (const s of edges) {
      const compact = Uint8Array.from(
        Buffer.from([r, s].map((value) => value.toString(16).padStart(64, '0')).join(''), 'hex'),
      )
      for (const parity of [0, 1] as const)
        expect(native().recover(digest, compact, parity)).toEqual(
          recoverWithNoble(digest, compact, parity),
        )
    }
  }
})

test('what a binding is judged by is what @noble/curves finds', () => {
  const { key, digest, compact, parity, publicKey } = probe
  const signed = portableCurve().sign(digest, key)
  expect({ compact: toHex(signed.compact), parity: signed.parity }).toEqual({ compact, parity })
  expect(toHex(secp256k1.getPublicKey(key, false))).toBe(publicKey)
})

test('property: libsecp256k1 makes the public keys of @noble/curves, and refuses the keys that it refuses', () => {
  const [one, other] = [native(), portableCurve()]
  const order = secp256k1.CURVE.n
  const edges = [0n, 1n, order - 1n, order, 2n ** 256n - 1n].map((value) =>
    fromHex(`0x${value.toString(16).padStart(64, '0')}`),
  )
  for (const key of [...edges, new Uint8Array(31).fill(1), new Uint8Array(33).fill(1)]) {
    expect(one.publicKey(key)).toEqual(other.publicKey(key))
  }
  fc.assert(
    fc.property(bytes32, (key) => {
      expect(one.publicKey(key)).toEqual(other.publicKey(key))
    }),
    { numRuns: 50 },
  )
})

test('a binding that is missing, or that answers anything else than the curve does, is not used', () => {
  const other = {
    ecdsaSign: () => ({ signature: new Uint8Array(64), recid: 0 }),
    ecdsaRecover: () => new Uint8Array(65),
    privateKeyVerify: () => true,
    publicKeyCreate: () => new Uint8Array(65),
  }
  const missing = () => {
    throw new Error('No native build was found')
  }
  for (const load of [missing, () => undefined, () => ({}), () => other])
    expect(nativeCurve(load)).toBeUndefined()
})

test('property: r and s without parity, low or high, become the signature of the key that made them; of another account, or out of range, none', async () => {
  const [signer, other] = [testSigner(1), testSigner(2)]
  const order = secp256k1.CURVE.n
  await fc.assert(
    fc.asyncProperty(bytes32, fc.boolean(), async (digest, high) => {
      const ours = await signer.signDigest(toHex(digest))
      const r = BigInt(`0x${ours.slice(2, 66)}`)
      const low = BigInt(`0x${ours.slice(66, 130)}`)
      const numbers = { r, s: high ? order - low : low }
      expect(completeSignature(digest, numbers, signer.address)).toBe(ours)
      expect(completeSignature(digest, numbers, other.address)).toBeUndefined()
      expect(completeSignature(digest, { r: r + (1n << 256n), s: low }, signer.address)).toBe(
        undefined,
      )
      expect(completeSignature(digest, { r: 0n, s: low }, signer.address)).toBeUndefined()
    }),
  )
})
