import fc from 'fast-check'
import { type Abi, keccak256, stringToHex } from 'viem'
import { tooEarlyPrice, yesOrNoQuery } from '#chain/contracts'
import { StakeEvent, stakeEventOf, stakeFilter, stakeResultOf, stakesOf } from '#chain/stakes'
import type { ChainLog, Hex } from '#ports'
import { adapter, logOf, oracle, token } from '#support/fake-world'
import { oracleAbi } from '#support/whole-abis'

const wallet: Hex = `0x${'a1'.repeat(20)}`
const disputer: Hex = `0x${'d1'.repeat(20)}`
const none: Hex = `0x${'00'.repeat(20)}`
const text = stringToHex('q: title: Rain?, description: d')
const round = { requester: adapter, identifier: yesOrNoQuery, timestamp: 7n, ancillaryData: text }

let block = 100n
function log(eventName: string, args: Record<string, unknown>, transaction = 'tx'): ChainLog {
  return {
    ...logOf(oracle, oracleAbi as Abi, eventName, args),
    blockNumber: block++,
    blockHash: keccak256('0x01'),
    transactionHash: keccak256(stringToHex(transaction)),
    logIndex: 3,
  }
}
const proposed = (more = {}) =>
  log('ProposePrice', {
    ...{ ...round, proposer: wallet, proposedPrice: 10n ** 18n, expirationTimestamp: 9n },
    ...{ currency: token, ...more },
  })
const disputed = () =>
  log('DisputePrice', { ...round, proposer: wallet, disputer, proposedPrice: 10n ** 18n })
const settled = (price = 10n ** 18n, by = none, payout = 755n) =>
  log('Settle', { ...round, proposer: wallet, disputer: by, price, payout }, 'settle')
const deferred = (amount = 755n, transaction = 'settle') =>
  log('PayoutDeferred', { currency: token, deferredRecipient: wallet, amount }, transaction)
const claimed = (amount = 755n) =>
  log('ClaimedDeferredPayout', { currency: token, deferredRecipient: wallet, to: disputer, amount })
const fold = (...logs: ChainLog[]) => stakesOf(logs.flatMap((one) => stakeEventOf(one) ?? []))

test('the five events as plain data, which survive a file', () => {
  const events = [proposed(), disputed(), settled(0n, disputer), deferred(5n), claimed(5n)].map(
    stakeEventOf,
  )
  expect(StakeEvent.safeParse(JSON.parse(JSON.stringify(events[0]))).data).toEqual(events[0])
  expect(events).toMatchObject([
    {
      ...{ kind: 'proposed', oracle, wallet, requester: adapter, identifier: yesOrNoQuery },
      ...{ timestamp: '7', text: keccak256(text), ancillaryData: text, currency: token },
      ...{ price: String(10n ** 18n), disputableUntil: '9', index: 3 },
    },
    { kind: 'disputed', wallet, disputer, price: String(10n ** 18n) },
    { kind: 'settled', wallet, disputer, price: '0', payout: '755' },
    { kind: 'deferred', wallet, currency: token, amount: '5' },
    { kind: 'claimed', wallet, currency: token, amount: '5' },
  ])
  const early = stakeEventOf(settled(tooEarlyPrice, disputer))
  expect(StakeEvent.safeParse(early)).toMatchObject({ success: true })
  expect(stakeEventOf(settled())).not.toHaveProperty('disputer')
})

test('a log of any other form is none, and never an error', () => {
  const kinds = [...(stakeFilter([], []).topics[0] as Hex[]), `0x${'0'.repeat(64)}` as Hex]
  const hex = (length: number) =>
    fc
      .uint8Array({ minLength: length, maxLength: length })
      .map((bytes) => `0x${Buffer.from(bytes).toString('hex')}` as Hex)
  const strange = fc.record({
    kind: fc.constantFrom(...kinds),
    others: fc.array(hex(32), { maxLength: 3 }),
    data: fc.integer({ min: 0, max: 200 }).chain(hex),
  })
  fc.assert(
    fc.property(strange, ({ kind, others, data }) => {
      const found = stakeEventOf({ ...proposed(), topics: [kind, ...others], data })
      if (found !== undefined) expect(StakeEvent.safeParse(found).success).toBe(true)
    }),
  )
  expect(stakeEventOf({ ...proposed(), topics: [] })).toBeUndefined()
  expect(stakeEventOf({ ...proposed(), data: '0x' })).toBeUndefined()
})

test('domain §10: undisputed, won, lost, and too early', () => {
  const life = (...logs: ChainLog[]) => fold(proposed(), ...logs).stakes.map(stakeResultOf)
  expect(life()).toEqual([undefined])
  expect(life(disputed())).toEqual([undefined])
  expect(life(settled())).toEqual(['undisputed'])
  expect(life(disputed(), settled(10n ** 18n, disputer))).toEqual(['won'])
  expect(life(disputed(), settled(0n, disputer))).toEqual(['lost'])
  expect(life(disputed(), settled(tooEarlyPrice, disputer))).toEqual(['lost'])
  // Without its proposal the price is known from the dispute, or not at all.
  expect(fold(disputed(), settled(0n, disputer)).stakes.map(stakeResultOf)).toEqual(['lost'])
  expect(fold(settled(0n, disputer)).stakes.map(stakeResultOf)).toEqual([undefined])
})

test('a deferred payout is of the proposal that was settled with it, until it is claimed', () => {
  const [waiting] = fold(proposed(), deferred(), settled()).stakes
  expect(waiting).toMatchObject({ deferred: { amount: '755' }, claimed: undefined })
  const [fetched] = fold(proposed(), deferred(), settled(), claimed()).stakes
  expect(fetched).toMatchObject({ deferred: { amount: '755' }, claimed: { amount: '755' } })
  const other = fold(proposed(), disputed(), deferred(), settled(0n, disputer))
  expect(other.stakes[0]?.deferred).toBeUndefined()
  expect(other.others).toMatchObject([{ deferred: { amount: '755' }, claimed: undefined }])
  expect(fold(deferred(), claimed(), deferred(8n)).others).toMatchObject([
    { deferred: { amount: '755' }, claimed: { kind: 'claimed' } },
    { deferred: { amount: '8' }, claimed: undefined },
  ])
})

test('events in any order, and twice, tell the same lives', () => {
  const logs = [
    ...[proposed(), disputed(), deferred(), settled(10n ** 18n, disputer), claimed()],
    ...[proposed({ timestamp: 8n }), proposed({ proposer: disputer, timestamp: 9n })],
  ]
  const expected = fold(...logs)
  expect(expected.stakes).toHaveLength(3)
  fc.assert(
    fc.property(
      fc.shuffledSubarray([...logs, ...logs.slice(0, 3)], { minLength: 10, maxLength: 10 }),
      (shuffled) => {
        expect(fold(...shuffled)).toEqual(expected)
      },
    ),
  )
})
