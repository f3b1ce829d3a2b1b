import fc from 'fast-check'
import {
  keccak256,
  parseTransaction,
  recoverTransactionAddress,
  type TransactionSerializedEIP1559,
} from 'viem'
import { privateKeyToAccount } from 'viem/accounts'
import { describe, expect, test } from 'vitest'
import {
  feesFor,
  gasLimit,
  readTransaction,
  signTransaction,
} from '../../src/core/gateway/executor/transaction.js'
import { testSigner } from '../support/pipeline-world.js'

const gwei = 10n ** 9n
const base = (fee: bigint) => ({ baseFeePerGas: fee })
const propose = { kind: 'propose' } as const

describe('fees (domain §8)', () => {
  test('on Polygon the tip is at least 25 gwei, elsewhere what the node says', () => {
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

  test('the ceiling cuts the cap, and holds everything back where it does not cover the next block', () => {
    expect(feesFor(137, base(400n * gwei), 25n * gwei, 540n * gwei, propose)?.maxFeePerGas).toBe(
      480n * gwei,
    )
    expect(feesFor(137, base(480n * gwei), 25n * gwei, 500n * gwei, propose)).toBeUndefined()
  })

  test('a replacement pays at least 12.5 % more on both, or is not made at all', () => {
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

  test('a proposal at the ceiling can still be cancelled, even where the next block is too dear', () => {
    const wei = fc.bigInt({ min: 1_000_000n, max: 10n ** 13n })
    fc.assert(
      fc.property(wei, wei, wei, wei, (fee, later, tip, ceiling) => {
        const sent = feesFor(1, base(fee), tip, ceiling, propose)
        if (sent === undefined) return
        const cancelled = feesFor(1, base(later), tip, ceiling, { kind: 'cancel', replacing: sent })
        expect(cancelled?.maxFeePerGas).toBeLessThanOrEqual(ceiling)
        expect(
          feesFor(1, base(10n ** 14n), tip, ceiling, { kind: 'cancel', replacing: sent }),
        ).toBeDefined()
      }),
    )
  })

  test('the gas limit is the estimate and 20 %', () => {
    expect(gasLimit(419_000n)).toBe(502_800n)
    expect(gasLimit(1n)).toBe(2n)
  })
})

describe('signing (EIP-1559)', () => {
  const unsigned = {
    chainId: 137,
    nonce: 5,
    to: `0x${'12'.repeat(20)}` as const,
    data: '0xb762b23c00' as const,
    gas: 500_000n,
    maxFeePerGas: 80n * gwei,
    maxPriorityFeePerGas: 25n * gwei,
  }

  test('the same bytes as another implementation makes of the same key and fields', async () => {
    const account = privateKeyToAccount(`0x${'01'.repeat(32)}`)
    const theirs = await account.signTransaction({ type: 'eip1559', value: 0n, ...unsigned })
    const ours = await signTransaction(testSigner(0), unsigned)
    expect(ours).toEqual({ raw: theirs, hash: keccak256(theirs) })
  })

  test('whatever the nonce, the raw bytes recover to the signer and read back', async () => {
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
})
