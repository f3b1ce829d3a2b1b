import fc from 'fast-check'
import {
  bytesToHex,
  hexToBytes,
  keccak256,
  parseTransaction,
  recoverTransactionAddress,
  serializeTransaction,
  type TransactionSerializedEIP1559,
} from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { readTransaction, signTransaction } from '#chain/transaction'
import { feesFor } from '#gateway/executor/state'
import type { Signer } from '#ports'
import { UsageError } from '#protocol/errors'
import { lowercase } from '#protocol/words'
import { testSigner } from '#support/pipeline-world'

const gwei = 10n ** 9n
const base = (fee: bigint) => ({ baseFeePerGas: fee })
const propose = { kind: 'propose' } as const
const unsigned = {
  chainId: 137,
  nonce: 5,
  to: `0x${'12'.repeat(20)}` as const,
  data: '0xb762b23c00' as const,
  gas: 500_000n,
  maxFeePerGas: 80n * gwei,
  maxPriorityFeePerGas: 25n * gwei,
}

test('domain §8: on Polygon the tip is at least 25 gwei, elsewhere what the node says', () => {
  expect(feesFor(137, base(30n * gwei), 1n * gwei, 1000n * gwei, propose)).toEqual({
    maxFeePerGas: 85n * gwei,
    maxPriorityFeePerGas: 25n * gwei,
  })
  expect(
    feesFor(137, base(30n * gwei), 40n * gwei, 1000n * gwei, propose)?.maxPriorityFeePerGas,
  ).toBe(40n * gwei)
  expect(feesFor(31337, base(10n * gwei), 1n, 1000n * gwei, propose)).toEqual({
    maxFeePerGas: 20n * gwei + 1n,
    maxPriorityFeePerGas: 1n,
  })
})

test('domain §8: a replacement pays at least 12.5 % more on both, or is not made at all', () => {
  const wei = fc.bigInt({ min: 1n, max: 10n ** 13n })
  fc.assert(
    fc.property(
      wei,
      wei,
      wei,
      wei,
      wei,
      fc.constantFrom('propose', 'cancel'),
      (fee, tip, oldTip, room, ceiling, kind) => {
        const old = { maxFeePerGas: oldTip + room, maxPriorityFeePerGas: oldTip }
        const made = feesFor(1, base(fee), tip, ceiling, { kind, replacing: old })
        if (made === undefined) return
        expect(made.maxFeePerGas * 1000n).toBeGreaterThanOrEqual(old.maxFeePerGas * 1125n)
        expect(made.maxPriorityFeePerGas * 1000n).toBeGreaterThanOrEqual(
          old.maxPriorityFeePerGas * 1125n,
        )
        expect(made.maxFeePerGas).toBeLessThanOrEqual(ceiling)
        expect(made.maxFeePerGas).toBeGreaterThanOrEqual(made.maxPriorityFeePerGas)
      },
    ),
  )
})

test('EIP-1559: the same bytes as another implementation makes of the same key and fields', async () => {
  const account = privateKeyToAccount(`0x${'01'.repeat(32)}`)
  const theirs = await account.signTransaction({ type: 'eip1559', value: 0n, ...unsigned })
  const ours = await signTransaction(testSigner(0), unsigned)
  expect(ours).toEqual({ raw: theirs, hash: keccak256(theirs) })
})

test('EIP-1559: whatever the nonce, the raw bytes recover to the signer and read back', async () => {
  const signer = testSigner(0)
  for (let nonce = 0; nonce < 12; nonce += 1) {
    const { raw } = await signTransaction(signer, { ...unsigned, nonce })
    const serializedTransaction = raw as TransactionSerializedEIP1559
    expect((await recoverTransactionAddress({ serializedTransaction })).toLowerCase()).toBe(
      signer.address,
    )
    expect(parseTransaction(serializedTransaction)).toMatchObject({ nonce, chainId: 137 })
    expect(readTransaction(raw)).toEqual({
      to: unsigned.to,
      data: unsigned.data,
      gas: unsigned.gas,
    })
  }
})

describe('a remote signer (contract §9, executor.signer)', () => {
  const account = privateKeyToAccount(`0x${'01'.repeat(32)}`)
  const whole = { type: 'eip1559', value: 0n, ...unsigned } as const
  const answering = (answer: string): Signer => ({
    address: lowercase(account.address),
    signDigest: () => Promise.reject(new Error('a digest was to be signed')),
    signTransaction: async () => answer,
  })

  const changes = {
    chainId: 1,
    nonce: 6,
    to: `0x${'13'.repeat(20)}`,
    value: 1n,
    data: '0xb762b23c01',
    gas: 500_001n,
    maxFeePerGas: 81n * gwei,
    maxPriorityFeePerGas: 24n * gwei,
    accessList: [{ address: `0x${'13'.repeat(20)}`, storageKeys: [] }],
  } as const
  test.each(Object.entries(changes))('one that changes %s is refused', async (field, value) => {
    const raw = await account.signTransaction({ ...whole, [field]: value })
    await expect(signTransaction(answering(raw), unsigned)).rejects.toMatchObject({
      code: 'signer_answer',
      detail: expect.stringContaining(`changed ${field} `),
    })
  })

  test('property: whatever bytes it gives back, they are our transaction or refused', async () => {
    const raw = await account.signTransaction(whole)
    const made = { raw, hash: keccak256(raw) }
    const bytes = hexToBytes(raw)
    const change = fc.record({
      at: fc.nat(bytes.length - 1),
      removed: fc.nat(3),
      added: fc.uint8Array({ maxLength: 3 }),
    })
    const changed = fc
      .array(change, { minLength: 1, maxLength: 3 })
      .map((changes) =>
        changes.reduce<Uint8Array>(
          (sum, { at, removed, added }) =>
            Uint8Array.from([...sum.slice(0, at), ...added, ...sum.slice(at + removed)]),
          bytes,
        ),
      )
    const junk = fc.uint8Array({ maxLength: 200 }).map((rest) => Uint8Array.from([2, ...rest]))
    await fc.assert(
      fc.asyncProperty(fc.oneof(changed, junk), async (answer) => {
        const result = await signTransaction(answering(bytesToHex(answer)), unsigned).catch(
          (error: unknown) => error,
        )
        if (result instanceof UsageError) expect(result.code).toBe('signer_answer')
        else expect(result).toEqual(made)
      }),
      { numRuns: 1_000 },
    )
  })

  test('another type, another account, no signature, a high s and junk are refused', async () => {
    const other = privateKeyToAccount(`0x${'02'.repeat(32)}`)
    const raw = await account.signTransaction(whole)
    const { r, s, yParity } = parseTransaction(raw)
    if (r === undefined || s === undefined) throw new Error('nothing was signed')
    const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n
    const high = {
      r,
      s: `0x${(order - BigInt(s)).toString(16)}`,
      yParity: 1 - (yParity ?? 0),
    } as const
    const { maxFeePerGas, maxPriorityFeePerGas, ...rest } = unsigned
    const legacy = { type: 'legacy', gasPrice: maxFeePerGas, ...rest } as const
    const answers = {
      'changed type': await account.signTransaction(legacy),
      [`signed as ${lowercase(other.address)}`]: await other.signTransaction(whole),
      'not signed': serializeTransaction(whole),
      'high s': serializeTransaction(whole, high),
      'as nobody': serializeTransaction(whole, { ...high, r: '0x0', s }),
      'not a transaction': '0x02junk',
      'is not a transaction': '',
      'a transaction': raw.slice(0, -2),
    }
    for (const [why, answer] of Object.entries(answers))
      await expect(signTransaction(answering(answer), unsigned), why).rejects.toMatchObject({
        code: 'signer_answer',
        detail: expect.stringContaining(why),
      })
  })
})
