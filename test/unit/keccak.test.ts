import { keccak_256 } from '@noble/hashes/sha3'
import fc from 'fast-check'
import { afterEach, expect, test, vi } from 'vitest'

afterEach(() => vi.resetModules())

/** Which hash is in use is a matter of the whole process: each test has modules of its own. */
async function fresh() {
  vi.resetModules()
  const { quickenKeccak } = await import('../../src/core/io/keccak.js')
  return { quickenKeccak, ...(await import('../../src/core/protocol/keccak.js')) }
}

test('property: the quicker keccak256 hashes as the portable one does, and each hash is an array of its own', async () => {
  const { keccak, quickenKeccak } = await fresh()
  await Promise.all([quickenKeccak(), quickenKeccak()])
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 2_000 }), (bytes) => {
      expect(keccak(bytes)).toEqual(keccak_256(bytes))
    }),
  )
  const first = keccak(new Uint8Array(3))
  const copy = first.slice()
  keccak(new Uint8Array(5))
  expect(first).toEqual(copy)
})

test('what hashes otherwise does not become the hash, at whatever length it differs', async () => {
  const { keccak, replaceKeccak } = await fresh()
  const wrong = [
    () => new Uint8Array(32),
    (bytes: Uint8Array) => keccak_256(bytes).subarray(0, 31),
    (bytes: Uint8Array) => keccak_256(bytes.length === 136 ? bytes.subarray(1) : bytes),
  ]
  for (const one of wrong) expect(() => replaceKeccak(one)).toThrow(/is no keccak256/)
  expect(keccak(new Uint8Array(136))).toEqual(keccak_256(new Uint8Array(136)))
})

test('without WebAssembly the portable one stays', async () => {
  vi.stubGlobal('WebAssembly', { compile: () => Promise.reject(new RangeError('out of memory')) })
  try {
    const { keccak, quickenKeccak } = await fresh()
    await quickenKeccak()
    expect(keccak(new Uint8Array(7))).toEqual(keccak_256(new Uint8Array(7)))
  } finally {
    vi.unstubAllGlobals()
  }
})
