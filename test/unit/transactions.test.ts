import {
  type PlannedTransaction,
  planTransactions,
  sendTransactions,
} from '#client/wallet/transactions'
import { signerFromKey } from '#io/keys'
import type { Clock, Hex } from '#ports'
import { InterruptedError } from '#protocol/errors'
import { createFakeChain, type FakeChain } from '#support/fake-chain'
import { fakeContracts } from '#support/fake-world'
import { refusal } from '#support/refusal'

const signer = signerFromKey(new Uint8Array(32).fill(9))
const from = signer.address
const approve = { to: `0x${'c'.repeat(40)}` as Hex, data: '0x095ea7b3' as Hex, what: 'approve' }

function setUp(whileWaiting: (chain: FakeChain, waits: number) => void = (chain) => chain.mine()) {
  const chain = createFakeChain()
  chain.mine(3)
  chain.fund(from, 10n ** 18n)
  let nowMs = 0
  let waits = 0
  const clock: Clock = {
    nowMs: () => nowMs,
    monotonicMs: () => nowMs,
    sleep: async (ms, signal) => {
      signal?.throwIfAborted()
      nowMs += ms
      whileWaiting(chain, ++waits)
    },
  }
  return { chain, parts: { chain, clock } }
}
const plan = (chain: FakeChain, count = 1) =>
  planTransactions(chain, fakeContracts.chainId, from, Array<typeof approve>(count).fill(approve))

test('domain §8: estimate and a fifth, twice the base fee and the tip, which is 25 gwei at least on Polygon', async () => {
  const { chain } = setUp()
  const [one, two] = await planTransactions(chain, 137, from, [approve, approve])
  expect(one).toMatchObject({
    nonce: 0,
    gas: 25_200n,
    maxPriorityFeePerGas: 25_000_000_000n,
    maxFeePerGas: 45_000_000_000n,
  })
  expect(two).toMatchObject({ nonce: 1 })
  expect((await planTransactions(chain, 31337, from, [approve]))[0]).toMatchObject({
    maxPriorityFeePerGas: 1_000_000_000n,
  })
})

test('what the chain would refuse, and an account without money for gas, are told before anything is signed', async () => {
  const { chain } = setUp()
  const bad = { ...approve, to: fakeContracts.signedProposer as Hex, data: '0x12345678' as Hex }
  chain.fault('estimateGas', 'reverted')
  expect(await refusal(planTransactions(chain, fakeContracts.chainId, from, [bad]))).toMatchObject({
    code: 'transaction_would_revert',
    meta: { exitCode: 2 },
  })
  chain.fund(from, 1n)
  expect(await refusal(plan(chain))).toMatchObject({
    code: 'no_gas_money',
    meta: { exitCode: 2 },
  })
  chain.fault('tip', 'unavailable')
  expect(await refusal(plan(chain))).toMatchObject({
    code: 'chain_unavailable',
    meta: { exitCode: 75 },
  })
  expect(chain.taken).toEqual([])
})

test('each is mined before the next is sent', async () => {
  const { chain, parts } = setUp()
  const sent = await sendTransactions(parts, signer, await plan(chain, 2))
  expect(sent.map(({ receipt }) => receipt.status)).toEqual(['success', 'success'])
  expect(sent[0]?.receipt.blockNumber).not.toBe(sent[1]?.receipt.blockNumber)
  expect(chain.taken.map(({ nonce, from: sender }) => [nonce, sender])).toEqual([
    [0, from],
    [1, from],
  ])
})

test.each([
  ['the answer is lost, and the node has it', { applied: true }],
  ['the node has not got it', {}],
])(
  'robustness §3: unknown (%s): the same bytes again, never another transaction',
  async (_how, options) => {
    const { chain, parts } = setUp()
    const planned = await plan(chain)
    chain.fault('send', 'unavailable', options)
    const [sent] = await sendTransactions(parts, signer, planned)
    expect(sent?.receipt.status).toBe('success')
    expect(chain.taken).toHaveLength(1)
  },
)

test('robustness §3: a transaction that the pool dropped is handed over again', async () => {
  const { chain, parts } = setUp((of, waits) => (waits === 1 ? of.clearPool() : of.mine()))
  const [sent] = await sendTransactions(parts, signer, await plan(chain))
  expect(sent?.receipt.status).toBe('success')
  expect(chain.taken).toHaveLength(1)
})

test('robustness §3: another transaction of the account was quicker: nothing of ours can be mined, exit 75', async () => {
  const { chain, parts } = setUp()
  const [planned] = await plan(chain)
  const other: PlannedTransaction = { ...(planned as PlannedTransaction), data: '0x' }
  await sendTransactions(parts, signer, [other])
  expect(
    await refusal(sendTransactions(parts, signer, [planned as PlannedTransaction])),
  ).toMatchObject({
    code: 'account_busy',
    meta: { exitCode: 75 },
  })
})

test('the time runs out: exit 8 names the transaction; stopped by Ctrl-C likewise: 130', async () => {
  const stop = new AbortController()
  const interrupt = () =>
    stop.abort(new InterruptedError('interrupted', 'stopped by SIGINT', { hint: 'x' }))
  const { chain, parts } = setUp((_chain, waits) => (waits > 20 ? interrupt() : undefined))
  const pending = await refusal(
    sendTransactions({ ...parts, timeoutMs: 5_000 }, signer, await plan(chain)),
  )
  expect(pending).toMatchObject({ code: 'transaction_pending', meta: { exitCode: 8 } })
  expect(pending.detail).toContain(chain.taken[0]?.hash)
  const stopped = await refusal(
    sendTransactions({ ...parts, signal: stop.signal }, signer, await plan(chain)),
  )
  expect(stopped).toMatchObject({ meta: { exitCode: 130 } })
  expect(stopped.detail).toContain(chain.taken[0]?.hash)
  const before = chain.calls.get('send')
  expect(
    await refusal(sendTransactions({ ...parts, signal: stop.signal }, signer, await plan(chain))),
  ).toBe(stop.signal.reason)
  expect(chain.calls.get('send')).toBe(before)
})

test('a mined revert is no success', async () => {
  const { chain, parts } = setUp()
  const [planned] = await plan(chain)
  const bad = {
    ...(planned as PlannedTransaction),
    to: fakeContracts.signedProposer as Hex,
    data: proposeSelector,
    gas: 100_000n,
  }
  expect(await refusal(sendTransactions(parts, signer, [bad]))).toMatchObject({
    code: 'transaction_reverted',
    meta: { exitCode: 2 },
  })
})

/** tryMulticall([]), which the model of SignedProposer reverts on. */
const proposeSelector: Hex = `0x437b9116${'20'.padStart(64, '0')}${''.padStart(64, '0')}`
