import { chainErrorOf, type RpcErrorObject } from '#io/rpc/rpc-errors'
import { ChainError, type Hex } from '#ports'
import type { Candidate } from '#protocol/candidate'
import { rivalProposes } from '#support/fake-events'
import {
  oneCandidate,
  type PipelineWorld,
  proposals,
  testSigner,
  type WorldOptions,
} from '#support/pipeline-world'
import { type SendWatch, watchSends } from '#support/reorg-watch'

let world: PipelineWorld
let questionId: Hex
let candidate: Candidate
let watch: SendWatch
let prepared: { readonly error: RpcErrorObject; readonly taken: boolean } | undefined

async function open(options: WorldOptions = {}): Promise<void> {
  const made = await oneCandidate(options)
  world = made.world
  questionId = made.questionId
  candidate = made.candidate
  prepared = undefined
  const { send } = world.chain
  world.chain.send = async (raw) => {
    const now = prepared
    prepared = undefined
    if (now === undefined) return send(raw)
    if (now.taken) await send(raw)
    throw chainErrorOf('eth_sendRawTransaction', now.error)
  }
  watch = watchSends(world.chain, world.executor.address)
}
beforeEach(() => open())

/**
 * JSON-RPC codes: -32000 is what geth and its kin use for nearly everything, -32003 anvil's for
 * refused transactions.
 */
type Answer = readonly [node: string, error: RpcErrorObject]
const said = (node: string, message: string, code = -32_000): Answer => [node, { code, message }]

function answer(error: RpcErrorObject, { taken = false } = {}): void {
  prepared = { error, taken }
}

/** Status and that of the submission, such as `selected prepared`. */
async function submission() {
  const { progress } = await world.now(candidate)
  const { submission } = { submission: null, ...progress }
  return `${progress.status} ${submission?.status}`
}

const turnTo = async (state: string) => {
  await world.turn()
  expect(await submission()).toBe(state)
}

async function expectExecutedByTheFirstBytes(): Promise<void> {
  const [slot] = world.ledger.slots()
  world.clock.monotonic += 29_000
  await world.turn()
  await world.pass(5)
  expect(await submission()).toBe('executed indexed')
  expect(watch.handed.map(({ hash }) => hash)).toEqual(slot?.attempts.map(({ hash }) => hash))
  expect(watch.handed).toHaveLength(1)
  expect(world.pipeline.faults()).toEqual([])
}

describe('row 1, "already known / same hash imported": treat as sent; watch', () => {
  test.each([
    said('geth, bor', 'already known'),
    said('erigon', 'ALREADY_EXISTS: already known'),
    said('nethermind', 'AlreadyKnown, Hash: 0x00', -32_010),
    said('besu', 'Known transaction', -32_000),
    said('reth', 'already known'),
    said('anvil', 'transaction already imported', -32_003),
    said('an older parity', 'Transaction with the same hash was already imported.', -32_010),
  ])('%s', async (_node, error) => {
    answer(error, { taken: true })
    await turnTo('selected submitted')
    await expectExecutedByTheFirstBytes()
  })

  test('and where the node does not have it after all, the same bytes again', async () => {
    answer({ code: -32_000, message: 'already known' })
    await turnTo('selected submitted')
    await expectExecutedByTheFirstBytes()
  })
})

const nonceTooLow = [
  said('geth, bor', 'nonce too low: next nonce 1, tx nonce 0'),
  said('erigon', 'nonce too low'),
  said('nethermind', 'OldNonce, Current nonce: 1, nonce of rejected tx: 0', -32_010),
  said('besu', 'Nonce too low', -32_001),
  said('anvil', 'nonce too low', -32_003),
]

describe('row 2, "nonce too low": no new nonce; receipts of all slot hashes, then the finalized nonce', () => {
  test.each(nonceTooLow)(
    '%s: our own transaction was mined, and is followed',
    async (_node, error) => {
      const { send } = world.chain
      world.chain.send = async (raw) => {
        world.chain.send = send
        await send(raw)
        world.chain.mine()
        throw chainErrorOf('eth_sendRawTransaction', error)
      }
      await turnTo('selected prepared')
      await world.pass(1)
      expect(await submission()).toBe('selected submitted')
      await expectExecutedByTheFirstBytes()
    },
  )

  test.each(nonceTooLow)(
    '%s: nothing took the nonce, and the same bytes go out again',
    async (_node, error) => {
      answer(error)
      await turnTo('selected prepared')
      expect(world.ledger.slots().map(({ nonce }) => nonce)).toEqual([0])
      await expectExecutedByTheFirstBytes()
    },
  )
})

describe('row 3, "replacement underpriced": our transaction is pending; watch, raise the fee later under the same nonce', () => {
  const underpriced = [
    said('geth, bor', 'replacement transaction underpriced: new tx gas fee cap 1 <= 2 queued'),
    said('erigon', 'could not replace existing tx'),
    said('nethermind', 'ReplacementNotAllowed', -32_010),
    said('besu', 'Replacement transaction underpriced'),
    said('anvil', 'replacement transaction underpriced', -32_003),
  ]
  test.each(underpriced)('%s', async (_node, error) => {
    answer(error, { taken: true })
    await turnTo('selected prepared')
    await turnTo('selected submitted')
    await expectExecutedByTheFirstBytes()
  })

  test('while it stays pending: 12.5 % more, same nonce, same calldata, five times at most', async () => {
    await world.turn()
    for (let block = 0; block < 90; block += 1) {
      world.chain.mine(1, { empty: true })
      world.clock.monotonic += 31_000
      await world.turn()
    }
    const fees = world.ledger
      .slots()
      .flatMap(({ attempts }) => attempts.map(({ maxFeePerGas }) => BigInt(maxFeePerGas)))
    expect(fees).toHaveLength(6)
    for (const [index, fee] of fees.entries()) {
      const before = fees[index - 1]
      if (before !== undefined) expect(fee * 8n).toBeGreaterThanOrEqual(before * 9n)
    }
    expect(new Set(proposals(world).map(({ data, nonce }) => `${nonce} ${data}`)).size).toBe(1)
    expect(watch.faults).toEqual([])
    expect(world.pipeline.faults(), 'R17').toEqual([
      expect.stringMatching(/nonce 0 is not mined.*raised as often as allowed/),
    ])
    await world.pass(4)
    expect(world.pipeline.faults()).toEqual([])
  })
})

describe('row 4, "nonce too high": wait for the lower slot; after 3 blocks it shows, and no gap is filled with a new proposal', () => {
  const tooHigh = [
    said('geth, bor', 'nonce too high: address 0x00, tx: 3 state: 0'),
    said('erigon', 'nonce too high'),
    said('nethermind', 'NonceGap, Future nonce. Expected nonce: 0', -32_010),
    said('besu', 'Transaction nonce is too distant from current sender nonce'),
    said('reth', 'nonce too high: max tx nonce'),
    said('geth, a delegated account', 'in-flight transaction limit reached for delegated accounts'),
  ]
  test.each(tooHigh)('%s: the same bytes again', async (_node, error) => {
    answer(error)
    await turnTo('selected prepared')
    await expectExecutedByTheFirstBytes()
  })

  test('for 3 blocks and more: readiness names the nonce, and the fault goes with the gap', async () => {
    const { send } = world.chain
    world.chain.send = async () => {
      throw chainErrorOf('eth_sendRawTransaction', { code: -32_000, message: 'nonce too high' })
    }
    await world.turn()
    for (let block = 0; block < 4; block += 1) {
      world.chain.mine()
      world.clock.monotonic += 16_000
      await world.turn()
    }
    expect(world.pipeline.faults()).toEqual([expect.stringContaining('a nonce below 0')])
    world.chain.send = send
    await expectExecutedByTheFirstBytes()
  })
})

describe('row 5, "time-out, reset, 429, 5xx, bad JSON": unknown; the same bytes again, after 1 to 30 seconds', () => {
  const unknown = [
    said('a node with a limit', 'Too Many Requests', 429),
    said('a provider', 'daily request count exceeded, request rate limited', -32_005),
    said('geth behind', 'header not found'),
    said("a provider's proxy", 'request timed out', -32_603),
    said('erigon', 'missing trie node 0 (path )'),
  ]
  test.each(unknown)('%s: lost before the node took it', async (_node, error) => {
    answer(error)
    await turnTo('selected prepared')
    await expectExecutedByTheFirstBytes()
  })

  test.each(unknown)('%s: lost after the node took it', async (_node, error) => {
    answer(error, { taken: true })
    await turnTo('selected prepared')
    await turnTo('selected submitted')
    await expectExecutedByTheFirstBytes()
  })

  test('pauses are between 1 and 30 seconds, and grow', async () => {
    const sentAtMs: number[] = []
    world.chain.send = async () => {
      sentAtMs.push(world.clock.monotonic)
      throw new ChainError('unavailable', 'no response')
    }
    await world.turn()
    for (let tenths = 0; tenths < 3_000; tenths += 1) {
      world.clock.monotonic += 100
      if (tenths % 20 === 0) world.chain.mine()
      await world.turn()
    }
    const pauses = sentAtMs.slice(1).map((at, index) => at - (sentAtMs[index] ?? 0))
    expect(Math.min(...pauses)).toBeGreaterThanOrEqual(1_000)
    expect(Math.max(...pauses)).toBeLessThanOrEqual(30_100)
    expect(pauses.length).toBeGreaterThan(300 / 31)
    expect(watch.faults).toEqual([])
  })
})

describe('row 6, "revert in simulation, insufficient funds, wrong role": failure or halt, and the nonce is not taken', () => {
  test.each([
    said(
      'geth, bor',
      'insufficient funds for gas * price + value: balance 0, tx cost 1, overshot 1',
    ),
    said('erigon', 'insufficient funds for gas * price + value'),
    said('nethermind', 'InsufficientFunds, Account balance: 0', -32_010),
    said('besu', 'Upfront cost exceeds account balance', -32_004),
    said('anvil', 'Insufficient funds for gas * price + value', -32_003),
  ])(
    '%s: insufficient funds when it is sent: the candidate waits, readiness says what to do, and it goes on',
    async (_node, error) => {
      answer(error)
      await turnTo('selected prepared')
      expect(world.pipeline.faults()).toEqual([expect.stringMatching(/cannot pay.*fund it/)])
      await expectExecutedByTheFirstBytes()
    },
  )

  test('an executor that is known to hold too little takes no nonce', async () => {
    world.chain.fund(world.executor.address, 1n)
    await world.turn()
    expect(world.ledger.highestNonce(world.executor.address)).toBe(-1)
    expect(world.pipeline.faults()).toEqual([expect.stringContaining('fund it')])
    expect(await world.end(candidate)).toBe('selected')
  })
})

describe('row 7, a receipt that is gone: still submitted, the same bytes again', () => {
  test('by a reorganisation that no node keeps the transaction through', async () => {
    await world.turn()
    await world.pass(1)
    expect(await submission()).toBe('selected submitted')
    world.chain.reorg(1, { drop: true })
    world.chain.mine(2, { empty: true })
    await turnTo('selected submitted')
    await expectExecutedByTheFirstBytes()
  })
})

describe('answers that the table does not name', () => {
  test.each([
    said('geth', 'intrinsic gas too low: gas 1, minimum needed 21000'),
    said('bor', 'transaction type not supported'),
    said('anvil', 'Odd number of digits', -32_602),
  ])(
    '%s "$message": refused; readiness says what the node said, and the same bytes go out again',
    async (_node, error) => {
      answer(error)
      await turnTo('selected prepared')
      expect(world.pipeline.faults()).toEqual([expect.stringContaining(error.message ?? '')])
      await expectExecutedByTheFirstBytes()
    },
  )

  test.each([
    said('geth', 'exceeds block gas limit'),
    said('geth', 'transaction gas limit too high (cap: 16777216, tx: 20000000)'),
    said('anvil', 'tx.gas_limit > block.gas_limit', -32_003),
    said(
      'bor',
      'transaction gas price below minimum: gas tip cap 1000000000, minimum needed 25000000000',
    ),
    said('geth', 'transaction underpriced: gas tip cap 1, minimum needed 2'),
    said('erigon', 'underpriced'),
    said('nethermind', 'FeeTooLow, MaxFeePerGas too low', -32_010),
    said('besu', 'Gas price below configured minimum gas price', -32_009),
    said('anvil', 'max fee per gas less than block base fee', -32_003),
  ])(
    '%s: its gas limit is too high, or its fee too low: another at once, same nonce and calldata',
    async (_node, error) => {
      answer(error)
      await world.turn()
      const [slot] = world.ledger.slots()
      expect(slot?.attempts).toHaveLength(2)
      await world.pass(4)
      expect(await submission()).toBe('executed indexed')
      expect(watch.faults).toEqual([])
      expect(watch.handed.map(({ nonce }) => nonce)).toEqual([0, 0])
      expect(new Set(watch.handed.map(({ calls }) => `${calls}`)).size).toBe(1)
      expect(world.pipeline.faults()).toEqual([])
    },
  )
})

test('row 2: a foreign transaction took the nonce: the slot is dead once that is final, and the candidate is selected again', async () => {
  const { signTransaction } = await import('#chain/transaction')
  const fees = { maxFeePerGas: 10n ** 12n, maxPriorityFeePerGas: 10n ** 11n }
  const foreign = await signTransaction(world.executor, {
    chainId: 31337,
    nonce: 0,
    to: testSigner(3).address,
    data: '0x',
    gas: 21_000n,
    ...fees,
  })
  const { send } = world.chain
  world.chain.send = async (raw) => {
    world.chain.send = send
    await send(foreign.raw)
    world.chain.mine()
    return send(raw)
  }
  await turnTo('selected prepared')
  await world.pass(9)
  expect(await submission()).toBe('executed indexed')
  expect(watch.faults).toEqual([])
  expect([...watch.noncesByRound().values()].map((nonces) => [...nonces])).toEqual([[0, 1]])
})

test('rows 1 to 6 never lead to a second nonce while a rival takes the round: it ends as superseded', async () => {
  answer({ code: -32_000, message: 'nonce too low' })
  await world.turn()
  rivalProposes(world.chain, questionId, testSigner(9).address)
  await world.pass(1)
  world.clock.monotonic += 29_000
  await world.turn()
  await world.pass(5)
  expect(await world.end(candidate)).toBe('superseded')
  expect(watch.faults).toEqual([])
  expect(new Set(watch.handed.map(({ nonce }) => nonce))).toEqual(new Set([0]))
})

test('a node that keeps no state of the block any more: a revert that is final ends the candidate all the same (domain §9, After sending)', async () => {
  await world.turn()
  world.chain.happen((state) => state.balances.set(candidate.proposer, 1n))
  await world.pass(1)
  expect(await submission()).toBe('selected submitted')
  // The gateway is down for longer than a full node keeps states.
  world.chain.mine(200)
  const { call } = world.chain
  world.chain.call = async (wanted, at = 'latest') => {
    if (typeof at === 'bigint' && at + 128n < world.chain.head.number) {
      throw chainErrorOf('eth_call', {
        code: -32_000,
        message: 'missing trie node 0 (path ) state is not available',
      })
    }
    return call(wanted, at)
  }
  await world.restart()
  await world.pass(20)
  expect(await world.progress(candidate)).toMatchObject({
    status: 'failed',
    failure: { stage: 'confirmation', retryable: true },
  })
  expect(world.ledger.slots()).toEqual([])
})
