import { secp256k1 } from '@noble/curves/secp256k1'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { newRecovery, recoverWithNoble } from '../../src/core/protocol/signature.js'

const bytes32 = fc.uint8Array({ minLength: 32, maxLength: 32 }).map((bytes) => new Uint8Array(bytes))

test('domain §3.3, property: a recovery that remembers its last key answers what the plain one does, whoever signed and whatever was changed', () => {
  const keys = [1, 2].map((n) => new Uint8Array(32).fill(n))
  const remembering = newRecovery()
  const change = fc.constantFrom('none', 'none', 'none', 'parity', 'r', 's', 'high s', 'digest', 'zero r', 'zero s')
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
      if (changed === 'digest') asked = digest.map((byte, index) => (index === 0 ? byte ^ 1 : byte))
      expect(remembering(asked, compact, parity)).toEqual(recoverWithNoble(asked, compact, parity))
    }),
    { numRuns: 150 },
  )
})

test('a digest of zero and one above the group order recover like every other', () => {
  const key = new Uint8Array(32).fill(3)
  const remembering = newRecovery()
  for (const digest of [new Uint8Array(32).fill(9), new Uint8Array(32), new Uint8Array(32).fill(255), new Uint8Array(32)]) {
    const signature = secp256k1.sign(digest, key, { lowS: true })
    const compact = signature.toCompactRawBytes()
    const parity = signature.recovery as 0 | 1
    expect(remembering(digest, compact, parity)).toEqual(recoverWithNoble(digest, compact, parity))
    expect(remembering(digest, compact, parity)).toEqual(secp256k1.getPublicKey(key, false))
  }
})
