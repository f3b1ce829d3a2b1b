import fc from 'fast-check'
import {
  decodeFunctionData,
  decodeFunctionResult,
  type EncodeFunctionResultParameters,
  encodeErrorResult,
  encodeFunctionResult,
  stringToHex,
  toFunctionSelector,
} from 'viem'
import { oracleAbi, roles } from '#chain/contracts'
import { revertAbi } from '#chain/reverts'
import { takeTurn } from '#gateway/executor/state'
import type { LedgerEvent } from '#gateway/ledger/ledger'
import { ChainError, type Hex } from '#ports'
import type { Candidate } from '#protocol/candidate'
import type { Address } from '#protocol/schema'
import { endow, rivalProposes, setPaused } from '#support/fake-events'
import { fakeContracts, oracle, token } from '#support/fake-world'
import {
  createPipelineWorld,
  type PipelineWorld,
  proposals,
  testSigner,
} from '#support/pipeline-world'

const codeOf = ({ progress }: Candidate) =>
  progress.status === 'failed' ? progress.failure.code : progress.status
const names = (data: Hex, what: string) => data.includes(what.slice(2))
const late = (world: PipelineWorld) => ({ deadline: world.chain.head.timestamp + 100_000_000n })

function recorded(world: PipelineWorld): LedgerEvent[] {
  const events: LedgerEvent[] = []
  world.ledger.onChange((news) => events.push(...news))
  return events
}

function oddWallet(world: PipelineWorld, wallet: Address, on = () => true) {
  world.chain.happen((state) => state.wallets.set(wallet, true))
  const { call } = world.chain
  world.chain.call = async (asked, at) => {
    if (on() && asked.to === wallet)
      throw new ChainError('refused', 'eth_call: the node answered: invalid jump destination')
    return call(asked, at)
  }
}

async function walletWorld() {
  const world = await createPipelineWorld()
  const wallet = world.proposer(0).address
  world.chain.happen((state) => state.wallets.set(wallet, true))
  return { world, wallet }
}

const encode = (errorName: string, args: readonly unknown[]) =>
  encodeErrorResult({ abi: revertAbi, errorName, args } as unknown as Parameters<
    typeof encodeErrorResult
  >[0])

test.each<[string, Hex]>([
  [
    'a missing role',
    encode('AccessControlUnauthorizedAccount', [testSigner(0).address, roles.delegatedProposer]),
  ],
  ['an unlisted SignedProposer', encode('SenderNotWhitelisted', [])],
  ['a payment', encode('PaymentExceedsMaxPayment', [])],
])('domain §3.3: %s: no such data halts the queue', async (_title, raw) => {
  const { world, wallet } = await walletWorld()
  const { call } = world.chain
  world.chain.call = async (asked, at) => {
    if (asked.from !== undefined && names(asked.data, wallet))
      throw new ChainError('reverted', 'execution reverted', raw)
    return call(asked, at)
  }
  const hostile = await world.submit(await world.question('a'), { by: 0 })
  const honest = await world.submit(await world.question('b'), { by: 1 })
  await world.pass(8)
  expect(await world.end(honest)).toBe('executed')
  expect((await world.progress(hostile)).status).toBe('failed')
  expect(world.pipeline.faults()).toEqual([])
})

test('domain §3.3: a role that is missing indeed still halts the queue, and fails nobody', async () => {
  const { world } = await walletWorld()
  const candidate = await world.submit(await world.question(), { by: 0 })
  await world.turn()
  const next = await world.submit(await world.question('b'), { by: 0 })
  world.chain.happen((state) => state.relayers.delete(world.executor.address))
  world.chain.mine()
  await world.turn()
  expect(world.pipeline.faults()).toEqual([expect.stringContaining('DELEGATED_PROPOSER_ROLE')])
  expect(await world.end(candidate)).toBe('selected')
  expect(await world.end(next)).toBe('received')
})

const waiting = (sequence: number) => ({ id: `id-${sequence}`, sequence }) as Candidate

test('whoever waits has a turn within a round of those that were there, however many come after', () => {
  const most = 8
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 60 }),
      fc.integer({ min: 0, max: 6 }),
      fc.integer({ min: 0, max: 20 }),
      (count, fresh, arriving) => {
        const state = { candidates: new Map() }
        const queue = Array.from({ length: count }, (_, n) => waiting(n + 1))
        const had = new Map<string, number>()
        // A place a step is left for those that waited before, at least: twice the round, for one
        // may have begun just before.
        const steps = 2 * Math.ceil((count + 40 * arriving) / (most - fresh)) + 2
        for (let step = 0; step < steps; step += 1) {
          const { turn } = takeTurn(state, 'ended', queue, `${step}`, [most, fresh])
          expect(turn.length).toBe(Math.min(most, queue.length))
          expect(new Set(turn).size).toBe(turn.length)
          for (const { id } of turn) had.set(id, (had.get(id) ?? 0) + 1)
          if (step < 40) for (let n = 0; n < arriving; n += 1) queue.push(waiting(queue.length + 1))
        }
        for (let n = 1; n <= count; n += 1)
          expect(had.get(`id-${n}`) ?? 0).toBeGreaterThanOrEqual(2)
      },
    ),
    { numRuns: 60 },
  )
})

test.each([64, 90])(
  '%i candidates of paused questions in front do not keep one behind them from its turn',
  async (count) => {
    const world = await createPipelineWorld()
    endow(world.chain, world.proposer(0).address, 10n ** 15n)
    const questions: Hex[] = []
    for (let n = 0; n < count; n += 1) questions.push(await world.question(`q${n}`))
    const paused: Candidate[] = []
    for (const questionId of questions) paused.push(await world.submit(questionId, { by: 0 }))
    for (const questionId of questions) setPaused(world.chain, questionId, true)
    world.chain.mine()
    const honest = await world.submit(await world.question('honest'), { by: 1 })
    await world.turn()
    for (let steps = 0; steps < 3; steps += 1) await world.pipeline.step()
    expect(await world.end(honest)).toBe('selected')
    const newer = await world.submit(await world.question('newer'), { by: 2 })
    await world.turn()
    expect(await world.end(newer)).toBe('selected')
    await world.pass(4)
    expect(await world.ends([honest, newer])).toEqual(['executed', 'executed'])
    for (const questionId of questions) setPaused(world.chain, questionId, false)
    // A block a step, the most that a slow node allows: the paused ones have their turn too.
    await world.pass(20)
    expect(new Set(await world.ends(paused))).toEqual(new Set(['executed']))
  },
)

describe('a selected candidate that only waits (contract §5)', () => {
  test('makes room for the next stand-in of its round, and no nonce is bound twice (R3)', async () => {
    const world = await createPipelineWorld()
    let odd = false
    oddWallet(world, world.proposer(0).address, () => odd)
    const questionId = await world.question()
    const waits = await world.submit(questionId, { by: 0, ...late(world) })
    const standIn = await world.submit(questionId, { by: 1, ...late(world) })
    const last = await world.submit(questionId, { by: 2, ...late(world) })
    world.chain.fault('transactionCount', 'unavailable')
    await world.turn()
    odd = true
    await world.pass(2)
    expect(await world.ends([waits, standIn, last])).toEqual(['validated', 'selected', 'validated'])
    await world.pass(6)
    expect(await world.ends([waits, standIn, last])).toEqual([
      'not_selected',
      'executed',
      'not_selected',
    ])
    expect(proposals(world)).toHaveLength(1)
  })

  test.each([
    ['silent', '', undefined],
    ['told to be poor', toFunctionSelector('balanceOf(address)'), `0x${'0'.repeat(64)}`],
  ] as const)('R27: keeps its place where it is %s at one head', async (_what, read, answer) => {
    const world = await createPipelineWorld({ config: { executor: { in_flight: 1, batch: 1 } } })
    await world.submit(await world.question('before'), { by: 2 })
    const questionId = await world.question()
    const selected = await world.submit(questionId, { by: 0 })
    const standIn = await world.submit(questionId, { by: 1 })
    await world.turn()
    const { call } = world.chain
    let one: bigint | undefined
    world.chain.call = async (asked, at) => {
      const isMeant = asked.data.startsWith(read) && names(asked.data, selected.proposer)
      if (isMeant) one ??= world.chain.head.number
      if (!isMeant || one !== world.chain.head.number) return call(asked, at)
      if (answer) return answer
      throw new ChainError('unavailable', 'slow')
    }
    await world.pass(14)
    expect(await world.ends([selected, standIn])).toEqual(['executed', 'not_selected'])
  })

  test('keeps its place where the whole round waits, and nothing is written at each block', async () => {
    const world = await createPipelineWorld()
    const questionId = await world.question()
    const first = await world.submit(questionId, { by: 0 })
    const second = await world.submit(questionId, { by: 1 })
    world.failpoint = async (name) => {
      if (name !== 'selected') return
      setPaused(world.chain, questionId, true)
      world.chain.mine()
      await world.view.poll()
    }
    const { transactionCount } = world.chain
    world.chain.transactionCount = async () => {
      throw new ChainError('unavailable', 'not now')
    }
    await world.turn()
    world.chain.transactionCount = transactionCount
    await world.pass(2)
    const events = recorded(world)
    await world.pass(10)
    expect(await world.ends([first, second])).toEqual(['selected', 'validated'])
    expect(events.filter(({ kind }) => kind !== 'chain.finalized')).toEqual([])
    setPaused(world.chain, questionId, false)
    await world.pass(5)
    expect(await world.ends([first, second])).toEqual(['executed', 'not_selected'])
  })

  test('two that both only wait keep their places, and the one that can go goes', async () => {
    const world = await createPipelineWorld()
    const questionId = await world.question()
    const first = await world.submit(questionId, { by: 0, ...late(world) })
    const second = await world.submit(questionId, { by: 1, ...late(world) })
    const { estimateGas } = world.chain
    world.chain.gasNeeded = () => 900_000n
    world.chain.estimateGas = async () => {
      throw new ChainError('reverted', 'gas required exceeds allowance')
    }
    const events = recorded(world)
    await world.pass(100)
    const changes = events.filter(
      (event) => event.kind === 'candidate.progress' && event.progress.status === 'selected',
    )
    expect(changes.length).toBeLessThan(2)
    expect((await world.ends([first, second])).toSorted()).toEqual(['selected', 'validated'])
    world.chain.estimateGas = estimateGas
    await world.pass(6)
    expect((await world.ends([first, second])).toSorted()).toEqual(['executed', 'not_selected'])
    expect(proposals(world)).toHaveLength(1)
  })
})

test('an odd answer is on record as the reason why a candidate waits, once', async () => {
  const world = await createPipelineWorld()
  oddWallet(world, world.proposer(0).address)
  const candidate = await world.submit(await world.question(), { by: 0 })
  const events = recorded(world)
  await world.pass(5)
  const checks = events.flatMap((event) =>
    event.kind === 'candidate.checked' && event.id === candidate.id ? [event.check] : [],
  )
  expect(checks).toEqual([
    expect.objectContaining({
      verdict: 'wait',
      detail: expect.stringContaining('invalid jump destination'),
    }),
  ])
})

test('reasons that change with each block do not make the store grow with each block', async () => {
  const { world, wallet } = await walletWorld()
  const { call } = world.chain
  world.chain.call = async (asked, at) => {
    if (asked.to === wallet)
      throw new ChainError(
        'refused',
        `eth_call: the node answered: out of stack at ${world.chain.head.number}`,
      )
    return call(asked, at)
  }
  await world.submit(await world.question(), { by: 0, ...late(world) })
  const events = recorded(world)
  await world.pass(200)
  const checks = events.filter(({ kind }) => kind === 'candidate.checked')
  expect(checks.length).toBeGreaterThan(3)
  expect(checks.length).toBeLessThan(12)
})

describe.each([true, false])('a question that nobody can read any more, pipeline %s', (enabled) => {
  test.each<[boolean, string]>([
    [false, 'permit_expired'],
    [true, 'received'],
  ])(
    'R13, contract §5: the deadline is final; where the nonce is used (%s) it may have executed',
    async (used, code) => {
      const world = await createPipelineWorld({ config: { pipeline: { enabled } } })
      const questionId = await world.question()
      const candidate = await world.submit(questionId, {
        deadline: world.chain.head.timestamp + 5n,
      })
      if (used) {
        world.chain.happen((state) =>
          state.bitmaps.set(`${candidate.proposer}|0`, 1n << BigInt(candidate.nonce)),
        )
      }
      const { call } = world.chain
      world.chain.call = async (asked, at) => {
        if (names(asked.data, questionId))
          throw new ChainError('refused', 'eth_call: the node answered: no')
        return call(asked, at)
      }
      await world.pass(12)
      expect(await world.end(candidate)).toBe(code)
    },
  )
})

test('many closed rounds are ended in parts, several at once, and slots are followed in between', async () => {
  const world = await createPipelineWorld()
  endow(world.chain, world.proposer(0).address, 10n ** 15n)
  const questions: Hex[] = []
  for (let n = 0; n < 100; n += 1) questions.push(await world.question(`q${n}`))
  const candidates: Candidate[] = []
  for (const questionId of questions) candidates.push(await world.submit(questionId, { by: 0 }))
  for (const questionId of questions) rivalProposes(world.chain, questionId, testSigner(9).address)
  for (let mined = 0; mined < 6; mined += 1) {
    world.chain.mine()
    await world.view.poll()
  }
  const { call } = world.chain
  let now = 0
  let most = 0
  world.chain.call = async (asked, at) => {
    now += 1
    most = Math.max(most, now)
    try {
      return await call(asked, at)
    } finally {
      now -= 1
    }
  }
  const ended = async () =>
    (await Promise.all(candidates.map(world.now))).filter(
      (candidate) => codeOf(candidate) === 'superseded',
    ).length
  await world.pipeline.step()
  expect(await ended()).toBeGreaterThan(0)
  expect(await ended()).toBeLessThanOrEqual(32)
  expect(most).toBeGreaterThan(8)
  for (let steps = 0; steps < 4; steps += 1) await world.pipeline.step()
  expect(await ended()).toBe(100)
})

describe('funds are summed token by token (contract §5)', () => {
  const other: Address = `0x${'71'.padStart(40, '0')}`
  const tokens = fakeContracts.tokens as Address[]
  beforeAll(() => {
    tokens.push(other)
  })
  afterAll(() => {
    tokens.pop()
  })

  /**
   * Whatever is named "second" is asked in the other token; the wallet holds 750 of each: enough
   * for one in each, not for two in one.
   */
  async function worldOfTwo() {
    const world = await createPipelineWorld()
    const inSecond = stringToHex('second').slice(2)
    const { call } = world.chain
    world.chain.call = async (asked, at) => {
      if (asked.to === other) return call({ ...asked, to: token }, at)
      if (asked.from !== undefined && asked.data.includes(inSecond)) return '0x'
      const answer = await call(asked, at)
      if (asked.to !== oracle || !asked.data.includes(inSecond)) return answer
      const { functionName } = decodeFunctionData({ abi: oracleAbi, data: asked.data })
      if (functionName !== 'getRequest') return answer
      const request = decodeFunctionResult({ abi: oracleAbi, functionName, data: answer })
      const result = { ...request, currency: other }
      return encodeFunctionResult({
        abi: oracleAbi,
        functionName,
        result,
      } as unknown as EncodeFunctionResultParameters)
    }
    world.chain.estimateGas = async () => 300_000n
    endow(world.chain, world.proposer(0).address, 750_000_000n)
    world.chain.mine()
    return world
  }

  test('what is taken of one token leaves the other as it is', async () => {
    const world = await worldOfTwo()
    const first = await world.submit(await world.question('first'))
    const inOther = await world.submit(await world.question('second'))
    const third = await world.submit(await world.question('third'))
    await world.turn()
    expect(await world.ends([first, inOther, third])).toEqual([
      'selected',
      'selected',
      'insufficient_balance',
    ])
  })

  test('R23: after a restart our own calldata tells the token of what is on its way', async () => {
    const world = await worldOfTwo()
    const inOther = await world.submit(await world.question('second'))
    await world.turn()
    expect(world.ledger.slots()).toHaveLength(1)
    await world.restart()
    const first = await world.submit(await world.question('first'))
    expect(world.view.known(inOther.round.questionId)).toBeUndefined()
    await world.turn()
    expect(await world.end(first)).toBe('selected')
  })
})
