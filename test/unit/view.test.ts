import fc from 'fast-check'
import { type Abi, encodeFunctionData, toEventSelector } from 'viem'
import { implementationSlot, topics, yesOrNoQuery } from '#chain/contracts'
import { type Implementation, implementationsOf } from '#chain/implementations'
import { createRoundReader, type RegistryEntry } from '#chain/questions'
import { readWhitelist } from '#chain/wallets'
import { followedTopics } from '#gateway/view/state'
import type { LiveView } from '#gateway/view/view'
import { ChainError, type Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { chainView } from '#support/chain-view'
import { deferred } from '#support/deferred'
import {
  createFakeChain,
  createFakeClock,
  type FakeChain,
  type FakeClock,
} from '#support/fake-chain'
import {
  ask,
  dispute,
  invalidateNonces,
  questionText,
  rivalProposes,
  setCustomBond,
  setPaused,
  upgrade,
} from '#support/fake-events'
import {
  adapter,
  emptyList,
  type FakeLog,
  fakeContracts,
  finalFeeRaw,
  logOf,
  managedOf,
  oracle,
  questionOf,
  requestOf,
  token,
} from '#support/fake-world'
import { createPipelineWorld, testSigner } from '#support/pipeline-world'
import { ctfAdapterAbi, oracleAbi, oracleV3Abi } from '#support/whole-abis'

const wallet: Address = testSigner(1).address

interface Setting {
  readonly chain: FakeChain
  readonly clock: FakeClock
  readonly view: LiveView
  readonly questionId: Hex
}

async function watched(
  ledger: NonNullable<Parameters<typeof chainView>[1]>['ledger'] = {},
  slug?: string,
  more: readonly RegistryEntry[] = [],
): Promise<Setting> {
  const chain = createFakeChain()
  const clock = createFakeClock(chain)
  const questionId = ask(chain, questionText('Rain?'))
  chain.mine(5)
  const entries = slug === undefined ? more : [{ questionId, slug }, ...more]
  const view = chainView(chain, { clock, ledger, entries })
  await view.poll()
  return { chain, clock, view, questionId }
}
const block = async ({ chain, clock, view }: Setting, count = 1) => {
  chain.mine(count)
  clock.monotonic += 2_000
  await view.poll()
}
const callsOf = ({ chain }: Setting) =>
  [...chain.calls.values()].reduce((sum, count) => sum + count, 0)

test('contract §2: all who ask for a question that is younger than the followed head hear of it', async () => {
  const setting = await watched()
  const young = ask(setting.chain, questionText('young'))
  setting.chain.mine()
  const one = setting.view.question(young)
  const { block: read } = setting.chain
  await new Promise<void>((resolve) => {
    setting.chain.block = (at) => {
      setting.chain.block = read
      resolve()
      return read(at)
    }
  })
  const two = setting.view.question(young)
  await setting.view.poll()
  expect((await Promise.all([one, two])).map((found) => found?.questionId)).toEqual([young, young])
})

test('contract §2: a question is read once and then comes from memory, by id and by slug', async () => {
  const setting = await watched({}, 'will-it-rain')
  const { view, questionId } = setting
  expect(view.known(questionId)).toBeUndefined()
  const question = await view.question('will-it-rain')
  expect(question).toMatchObject({
    questionId,
    slug: 'will-it-rain',
    round: { state: 'requested' },
  })
  const before = callsOf(setting)
  expect(await view.question(questionId)).toBe(question)
  expect(view.known('will-it-rain')).toBe(question)
  expect(view.known('another-slug')).toBeUndefined()
  expect(callsOf(setting)).toBe(before)
})

test('contract §2: many who ask at once cause one read', async () => {
  const setting = await watched()
  const before = callsOf(setting)
  const single = await watched()
  const singleBefore = callsOf(single)
  await single.view.question(single.questionId)
  await Promise.all(Array.from({ length: 8 }, () => setting.view.question(setting.questionId)))
  expect(callsOf(setting) - before).toBe(callsOf(single) - singleBefore)
})

test('contract §2: a miss is remembered for ten seconds, and dropped at once when a log names the question', async () => {
  const setting = await watched()
  const text = questionText('Fog?')
  const { chain, clock, view } = setting
  const questionId = ask(createFakeChain(), text)
  expect(await view.question(questionId)).toBeUndefined()
  const before = callsOf(setting)
  expect(await view.question(questionId)).toBeUndefined()
  expect(callsOf(setting)).toBe(before)
  clock.monotonic += 10_001
  expect(await view.question(questionId)).toBeUndefined()
  expect(callsOf(setting)).toBeGreaterThan(before)
  ask(chain, text)
  await block(setting)
  expect(await view.question(questionId)).toMatchObject({ questionId })
})

test('contract §2: a block that comes in while a question is read leaves neither a wrong miss nor an old state', async () => {
  const setting = await watched()
  const { chain, view } = setting
  const { call } = chain
  const readMeanwhile = async (questionId: Hex) => {
    const { promise: gate, resolve: open } = deferred()
    const { promise: begun, resolve: asked } = deferred()
    chain.call = async (one, at) => {
      asked()
      await gate
      return call(one, at)
    }
    const reading = view.question(questionId)
    await begun
    chain.call = call
    await block(setting)
    open()
    return reading
  }
  const text = questionText('Fog?')
  const fog = ask(chain, text)
  expect(await readMeanwhile(fog)).toMatchObject({ questionId: fog })
  rivalProposes(chain, setting.questionId, wallet)
  expect((await readMeanwhile(setting.questionId))?.round.state).toBe('proposed')
  expect(view.known(setting.questionId)?.round.state).toBe('proposed')
})

test('contract §2: a long absence is caught up with, logs or not', async () => {
  const setting = await watched()
  await setting.view.question(setting.questionId)
  rivalProposes(setting.chain, setting.questionId, wallet)
  await block(setting, 300)
  expect(setting.view.known(setting.questionId)?.round.state).toBe('proposed')
})

function countReads({ chain }: Setting): Hex[] {
  const reads: Hex[] = []
  const { call } = chain
  const selector = encodeFunctionData({
    abi: ctfAdapterAbi,
    functionName: 'getQuestion',
    args: [`0x${'0'.repeat(64)}`],
  }).slice(0, 10)
  chain.call = async (one, at) => {
    if (one.data.startsWith(selector)) reads.push(`0x${one.data.slice(10)}`)
    return call(one, at)
  }
  return reads
}

async function held(setting: Setting, count: number): Promise<Hex[]> {
  const ids = Array.from({ length: count }, (_, n) =>
    ask(setting.chain, questionText(`Question ${n}?`)),
  )
  await block(setting)
  for (const questionId of ids) await setting.view.question(questionId)
  return ids
}

const isFresh =
  ({ view }: Setting) =>
  (questionId: Hex) =>
    view.known(questionId) !== undefined

describe('every log that can change a question makes it be read again (contract §2, domain §4, §5)', () => {
  const requestFields = (setting: Setting) => {
    const { ancillaryData, timestamp } = questionOf(setting.chain.world, setting.questionId)
    return {
      requester: adapter,
      identifier: yesOrNoQuery,
      timestamp,
      ancillaryData,
      proposer: wallet,
      disputer: wallet,
      currency: token,
    }
  }
  const managedIdOf = (setting: Setting) => managedOf(setting.chain.world, setting.questionId)
  const oracleLog = (name: string, more: object) => (setting: Setting) =>
    logOf(oracle, oracleAbi as Abi, name, {
      ...requestFields(setting),
      managedRequestId: managedIdOf(setting),
      ...more,
    })
  const adapterLog = (topic: Hex) => (setting: Setting) => ({
    address: adapter,
    topics: [topic, setting.questionId],
    data: '0x' as Hex,
  })
  const logs = new Map<Hex, (setting: Setting) => FakeLog>([
    [topics.requestPrice, oracleLog('RequestPrice', { reward: 0n, finalFee: 0n })],
    [
      topics.proposePrice,
      oracleLog('ProposePrice', { proposedPrice: 0n, expirationTimestamp: 0n }),
    ],
    [topics.disputePrice, oracleLog('DisputePrice', { proposedPrice: 0n })],
    [topics.settle, oracleLog('Settle', { price: 0n, payout: 0n })],
    [topics.customBondSet, oracleLog('CustomBondSet', { bond: 1n })],
    [
      topics.customProposerWhitelistSet,
      oracleLog('CustomProposerWhitelistSet', { newWhitelist: emptyList }),
    ],
    [topics.customLivenessSet, oracleLog('CustomLivenessSet', { customLiveness: 1n })],
    ...(
      [
        ['rewardUpdated', { oldReward: 5n, newReward: 0n }],
        ['bondUpdated', { oldBond: 5n, newBond: 1n }],
        ['customLivenessUpdated', { oldLiveness: 5n, newLiveness: 1n }],
      ] as const
    ).map(([name, more]) => {
      const event = `${name[0]?.toUpperCase()}${name.slice(1)}`
      const log = (setting: Setting) =>
        logOf(oracle, oracleV3Abi as Abi, event, { ...requestFields(setting), ...more })
      return [topics[name], log] as const
    }),
    ...(
      [
        'questionInitialized',
        'questionReset',
        'questionPaused',
        'questionUnpaused',
        'questionFlagged',
        'questionUnflagged',
        'questionResolved',
        'requestRegistered',
        'requestInitialized',
        'requestRerequested',
        'requestResolved',
      ] as const
    ).map((name) => [topics[name], adapterLog(topics[name])] as const),
  ])
  const names = new Map(Object.entries(topics).map(([name, topic]) => [topic as Hex, name]))

  test.each([...logs].map(([topic, log]) => [names.get(topic), log] as const))(
    '%s',
    async (_name, log) => {
      const setting = await watched()
      const other = ask(setting.chain, questionText('Snow?'))
      await block(setting)
      await setting.view.question(setting.questionId)
      await setting.view.question(other)
      const reads = countReads(setting)
      setting.chain.happen((world) => {
        requestOf(world, setting.questionId).bondRaw = 1n
        return [log(setting)]
      })
      await block(setting)
      expect(reads).toEqual([setting.questionId])
      expect(setting.view.known(setting.questionId)?.round.totalBondRaw).toBe(1n + finalFeeRaw)
    },
  )

  test('all topics that are followed are among these, but for the one that speaks of nonces', () => {
    const others: readonly Hex[] = [
      topics.unorderedNonceInvalidation,
      topics.requestRulesUpdated,
      topics.upgraded,
    ]
    expect([...followedTopics].sort()).toEqual([...logs.keys(), ...others].sort())
  })

  test.each([
    ['RequestRulesUpdated', topics.requestRulesUpdated, '0x'],
    ['RewardUpdated of another layout', topics.rewardUpdated, `0x${'00'.repeat(32)}`],
  ] as const)(
    'domain §10: %s names no question that can be read: all of its requester are read again',
    async (_name, topic, data) => {
      const setting = await watched()
      const other = ask(setting.chain, questionText('Snow?'))
      await block(setting)
      await setting.view.question(setting.questionId)
      await setting.view.question(other)
      const reads = countReads(setting)
      const happen = async (requester: Address) => {
        const topics = [topic, `0x${'0'.repeat(24)}${requester.slice(2)}`] as const
        setting.chain.happen(() => [{ address: oracle, topics, data }])
        await block(setting)
      }
      await happen(wallet)
      expect(reads).toEqual([])
      await happen(adapter)
      expect([...reads].sort()).toEqual([setting.questionId, other].sort())
    },
  )

  describe('contract §9: the code that is pinned', () => {
    const [first, second] = [`0x${'a'.repeat(40)}`, `0x${'b'.repeat(40)}`] as const

    async function pinned() {
      const setting = await watched()
      upgrade(setting.chain, oracle, first)
      setting.chain.mine()
      const { chain, clock } = setting
      const pins = await implementationsOf(chain, [oracle, token], 'latest')
      const set = new Map<Address, Implementation>()
      const view = chainView(chain, {
        clock,
        ledger: { implementations: set },
        implementations: pins,
      })
      await view.poll()
      const next = async () => {
        chain.mine()
        clock.monotonic += 2_000
        await view.poll()
      }
      return { chain, clock, view, set, pins, next }
    }
    const changed = `the contract ${oracle} runs ${second} now, pinned is ${first}: the operator must pin it again`

    test('an upgrade is a fault with the block that logs it, and none once it is pinned', async () => {
      const { chain, view, set, next } = await pinned()
      expect(view.faults()).toEqual([])
      upgrade(chain, oracle, second)
      await next()
      expect(view.faults()).toEqual([changed])
      expect(view.codeFaults()).toEqual([changed])
      const now = (await view.codeNow())[oracle]
      if (now === undefined) throw new Error('the oracle runs nothing')
      set.set(oracle, now)
      view.pinned()
      await view.poll()
      expect(view.faults()).toEqual([])
    })

    test('R14: an upgrade that is undone is none any more', async () => {
      const { chain, view, next } = await pinned()
      upgrade(chain, oracle, second)
      await next()
      chain.reorg(1)
      chain.mine()
      await next()
      expect(view.faults()).toEqual([])
    })

    test('one that no log tells is found by the slot within a minute, and no block costs a read', async () => {
      const { chain, clock, view, next } = await pinned()
      await next()
      chain.calls.clear()
      await next()
      await next()
      expect([chain.calls.get('storage'), chain.calls.get('code')]).toEqual([undefined, undefined])
      chain.happen(({ storage }) =>
        storage.set(`${oracle}|${implementationSlot}`, `0x${'0'.repeat(24)}${second.slice(2)}`),
      )
      await next()
      expect(view.faults()).toEqual([])
      clock.monotonic += 60_000
      await next()
      expect(view.faults()).toEqual([changed])
    })

    test('R16: until it has been read at the start, and while a log tells of an upgrade, nothing is taken for sound', async () => {
      const { chain, view, next } = await pinned()
      upgrade(chain, oracle, second)
      chain.fault('storage', 'unavailable', { times: 2 })
      await next()
      expect(view.faults()).toEqual(['a pinned contract was upgraded: its new code is being read'])
      chain.clearFaults()
      await next()
      expect(view.faults()).toEqual([changed])
    })
  })

  test('whitelists are not followed: validation reads them at its own block', async () => {
    const updated = 'event DefaultProposerWhitelistUpdated(address indexed newWhitelist)'
    expect(followedTopics).not.toContain(toEventSelector(updated))
    const setting = await watched()
    const question = await setting.view.question(setting.questionId)
    if (!question) throw new Error('the question is unknown')
    const listOf = () =>
      readWhitelist(
        { chain: setting.chain, contracts: fakeContracts },
        question.round,
        wallet,
        setting.chain.head.number,
      )
    expect(await listOf()).toMatchObject({ custom: false, spenderListed: true })
    setting.chain.happen((world) =>
      world.customLists.set(managedOf(world, setting.questionId), emptyList),
    )
    setting.chain.mine()
    expect(await listOf()).toMatchObject({ custom: true, spenderListed: false })
  })

  test('two rounds of one request in the registry are both read again, and doubted together', async () => {
    const chain = createFakeChain()
    const clock = createFakeClock(chain)
    const questionId = ask(chain, questionText('Rain?'))
    chain.mine(5)
    const { ancillaryData, timestamp } = questionOf(chain.world, questionId)
    const request = {
      oracle,
      requester: adapter,
      identifier: yesOrNoQuery,
      timestamp: String(timestamp),
      ancillaryData,
    }
    const ids = [1, 2].map((n): Hex => `0x${String(n).repeat(64)}`)
    const contracts = {
      ...fakeContracts,
      requesters: [{ address: adapter, kind: 'direct' as const }],
    }
    const entries = ids.map((id) => ({ questionId: id, request }))
    const view = chainView(chain, { clock, contracts, entries })
    await view.poll()
    for (const id of ids) await view.question(id)
    rivalProposes(chain, questionId, wallet)
    await block({ chain, clock, view, questionId })
    expect(ids.map((id) => view.known(id)?.round.state)).toEqual(['proposed', 'proposed'])
    if (ids[0]) view.doubt(ids[0])
    expect(ids.map((id) => view.known(id))).toEqual([undefined, undefined])
  })
})

const spent = ({ chain }: Setting, before: ReadonlyMap<string, number>) =>
  Object.fromEntries(
    [...chain.calls]
      .map(([method, count]) => [method, count - (before.get(method) ?? 0)])
      .filter(([, count]) => count !== 0),
  )
const snapshot = ({ chain }: Setting) => new Map(chain.calls)

test('R17: a look at the same head: the chain id and two headers', async () => {
  const setting = await watched()
  await held(setting, 100)
  await setting.view.poll()
  const before = snapshot(setting)
  await setting.view.poll()
  expect(spent(setting, before)).toEqual({ chainId: 1, block: 2 })
})

test('R17: a new block: its logs more; a skipped block: two headers more; questions that no log names cost nothing', async () => {
  const setting = await watched()
  await held(setting, 100)
  const before = snapshot(setting)
  await block(setting)
  expect(spent(setting, before)).toEqual({ chainId: 1, block: 2, logs: 1 })
  const skipping = snapshot(setting)
  await block(setting, 3)
  expect(spent(setting, skipping)).toEqual({ chainId: 1, block: 4, logs: 1 })
})

test('a range of logs that a node refuses is asked for in halves, and questions cost nothing', async () => {
  const setting = await watched()
  await held(setting, 100)
  const { logs } = setting.chain
  setting.chain.logs = async (filter) => {
    if (filter.toBlock > filter.fromBlock) throw new ChainError('refused', 'too many')
    return logs(filter)
  }
  const before = snapshot(setting)
  await block(setting, 3)
  expect(spent(setting, before)).toEqual({ chainId: 1, block: 4, logs: 3 })
})

test('R17: of a block that names 200 questions, 64 are read at its look, the others at the next ones', async () => {
  const setting = await watched()
  const ids = await held(setting, 200)
  const reads = countReads(setting)
  for (const questionId of ids) rivalProposes(setting.chain, questionId, wallet)
  const found: number[] = []
  await block(setting)
  found.push(reads.length)
  while (reads.length < 200) {
    await setting.view.poll()
    found.push(reads.length)
  }
  expect(found).toEqual([64, 128, 192, 200])
  expect(new Set(reads)).toEqual(new Set(ids))
  expect(ids.map((id) => setting.view.known(id)?.round.state)).toEqual(ids.map(() => 'proposed'))
})

test('R17: a question that is due is never judged by its old state: it is read for who asks, or there is no answer', async () => {
  const setting = await watched()
  const { chain, view } = setting
  const ids = await held(setting, 100)
  for (const questionId of ids) rivalProposes(chain, questionId, wallet)
  await block(setting)
  const stale = ids.filter((id) => !isFresh(setting)(id))
  expect(stale).toHaveLength(36)
  const [first = '0x', second = '0x'] = stale
  chain.fault('call', 'unavailable')
  await expect(view.question(first)).rejects.toMatchObject({
    code: 'state_unavailable',
    meta: { httpStatus: 503 },
  })
  expect(view.known(first)).toBeUndefined()
  expect((await view.question(second))?.round.state).toBe('proposed')
  const before = callsOf(setting)
  expect(view.known(second)?.round.state).toBe('proposed')
  expect(await view.question(second)).toBe(view.known(second))
  expect(callsOf(setting)).toBe(before)
})

test('R17: where reads fail, the head moves on and the questions stay due', async () => {
  const setting = await watched()
  const { chain, view, questionId } = setting
  await view.question(questionId)
  rivalProposes(chain, questionId, wallet)
  chain.fault('call', 'unavailable')
  await block(setting)
  expect(view.heads()?.latest.hash).toBe(chain.head.hash)
  expect(view.faults()).toEqual([])
  expect(view.known(questionId)).toBeUndefined()
  await view.poll()
  expect(view.known(questionId)?.round.state).toBe('proposed')
})

test('R17: questions with active candidates are read first, then those asked for last', async () => {
  const world = await createPipelineWorld({ config: { pipeline: { enabled: false } } })
  const { chain, clock, view } = world
  const setting: Setting = { chain, clock, view, questionId: await world.question() }
  await world.submit(setting.questionId)
  const ids = await held(setting, 130)
  const lately = ids.slice(10, 73)
  for (const questionId of lately) view.known(questionId)
  for (const questionId of [setting.questionId, ...ids]) rivalProposes(chain, questionId, wallet)
  const reads = countReads(setting)
  await block(setting)
  expect(reads).toEqual([setting.questionId, ...[...lately].reverse()])
})

test('R17: registered questions are read ahead 64 at a look, and not before the first one', async () => {
  const chain = createFakeChain()
  const ids = Array.from({ length: 150 }, (_, n) => ask(chain, questionText(`Question ${n}?`)))
  chain.mine(5)
  const base = createFakeClock(chain)
  const sleepers: (() => void)[] = []
  const clock = {
    ...base,
    sleep: (ms: number, signal?: AbortSignal) =>
      new Promise<void>((resolve, reject) => {
        signal?.addEventListener('abort', () => reject(signal.reason), { once: true })
        // Only the pause between looks ends; nothing takes as long as reads may.
        if (ms < 3_000) sleepers.push(resolve)
      }),
  }
  const entries = ids.map((questionId) => ({ questionId }))
  const view = chainView(chain, { clock, entries })
  const reads = countReads({ chain, clock: base, view, questionId: ids[0] ?? '0x' })
  const paused = async () => {
    while (sleepers.length === 0) await new Promise((resolve) => setImmediate(resolve))
    return reads.length
  }
  await view.start()
  expect(view.faults()).toEqual([])
  const found: number[] = []
  for (let look = 0; look < 4; look += 1) {
    found.push(await paused())
    sleepers.shift()?.()
  }
  await paused()
  await view.stop()
  expect(found).toEqual([64, 128, 150, 150])
  expect(ids.every((id) => view.known(id) !== undefined)).toBe(true)
})

test('R17: a question that is over and that nobody has asked for in ten minutes is forgotten', async () => {
  const setting = await watched()
  const { chain, clock, view, questionId } = setting
  const [settled = '0x', open = '0x'] = await held(setting, 2)
  await view.question(questionId)
  for (const id of [questionId, settled]) {
    chain.happen((world) => {
      Object.assign(requestOf(world, id), { state: 6, proposer: adapter })
      return [{ address: adapter, topics: [topics.questionResolved, id], data: '0x' }]
    })
  }
  await block(setting)
  clock.monotonic += 598_000
  expect(view.known(questionId)?.round.state).toBe('settled')
  await block(setting)
  const reads = countReads(setting)
  for (const id of [questionId, settled, open]) await view.question(id)
  expect(reads).toEqual([settled])
})

test('R14: everything is due and read in slices', async () => {
  const { chain, clock } = await watched()
  const ids = Array.from({ length: 100 }, (_, n) => ask(chain, questionText(`Question ${n}?`)))
  chain.finalityLag = 100
  chain.mine(40)
  const view = chainView(chain, { clock })
  const [first = '0x'] = ids
  const setting = { chain, clock, view, questionId: first }
  await view.poll()
  for (const questionId of ids) await view.question(questionId)
  chain.reorg(20)
  rivalProposes(chain, first, wallet)
  await block(setting, 25)
  expect(ids.filter((id) => !isFresh(setting)(id))).toHaveLength(36)
  await view.poll()
  expect(ids.every(isFresh(setting))).toBe(true)
  expect(view.known(first)?.round.state).toBe('proposed')
})

test('R14: a read that began on an undone branch is made again on the new one', async () => {
  const setting = await watched()
  const { chain, view, questionId } = setting
  rivalProposes(chain, questionId, wallet)
  await block(setting)
  const { call } = chain
  const { promise: gate, resolve: open } = deferred()
  const begun = new Promise<void>((tell) => {
    chain.call = async (one, at) => {
      const answer = await call(one, at)
      tell()
      await gate
      return answer
    }
  })
  const reading = view.question(questionId)
  await begun
  chain.call = call
  chain.reorg(1)
  await block(setting, 2)
  open()
  expect((await reading)?.round.state).toBe('requested')
})

test('R14: logs of one branch are not taken for those of another: the look is made again', async () => {
  const setting = await watched()
  const { chain, view, questionId } = setting
  await view.question(questionId)
  const { logs } = chain
  chain.logs = async (filter) => {
    // While the node is asked it changes to a branch on which somebody has proposed: of the block
    // that is asked for by its hash it knows no logs any more.
    chain.logs = logs
    chain.reorg(1)
    rivalProposes(chain, questionId, wallet)
    chain.mine()
    return logs(filter)
  }
  const before = view.heads()
  await block(setting)
  expect(view.heads()).toBe(before)
  await block(setting)
  expect(view.known(questionId)?.round.state).toBe('proposed')
})

test('R14: property: whatever happens to blocks, questions and node, what is known is the state at the head', async () => {
  const step = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        kind: fc.constant('mine' as const),
        blocks: fc.integer({ min: 1, max: 3 }),
      }),
    },
    {
      weight: 6,
      arbitrary: fc.record({
        kind: fc.constant('change' as const),
        which: fc.nat(3),
        how: fc.nat(2),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        kind: fc.constant('reorg' as const),
        depth: fc.integer({ min: 1, max: 6 }),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        kind: fc.constant('fault' as const),
        method: fc.constantFrom('call', 'logs', 'block'),
      }),
    },
    { weight: 3, arbitrary: fc.record({ kind: fc.constant('ask' as const), which: fc.nat(3) }) },
    { weight: 6, arbitrary: fc.record({ kind: fc.constant('look' as const) }) },
  )
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const setting = await watched()
      const { chain, view } = setting
      const ids = await held(setting, 4)
      chain.finalityLag = 50
      const idOf = (which: number) => ids[which] ?? '0x'
      const compare = async () => {
        const head = view.heads()?.latest
        if (head === undefined || (await chain.block(head.number))?.hash !== head.hash) return
        for (const id of ids) {
          const known = view.known(id)
          if (known === undefined) continue
          const now = await createRoundReader(chain, fakeContracts).read(id, undefined, head.number)
          expect({ ...known.round, blockNumber: 0n }).toEqual({ ...now, blockNumber: 0n })
        }
      }
      for (const one of steps) {
        if (one.kind === 'mine') chain.mine(one.blocks)
        else if (one.kind === 'reorg')
          chain.reorg(Math.min(one.depth, Math.max(0, Number(chain.head.number) - 6)))
        else if (one.kind === 'fault') chain.fault(one.method as 'call', 'unavailable')
        else if (one.kind === 'ask') await view.question(idOf(one.which)).catch(() => undefined)
        else if (one.kind === 'look') await view.poll()
        else {
          const id = idOf(one.which)
          if (one.how === 0) setPaused(chain, id, !questionOf(chain.world, id).paused)
          else if (one.how === 1) setCustomBond(chain, id, BigInt(chain.head.number))
          else dispute(chain, id)
        }
        if (one.kind === 'look' || one.kind === 'ask') {
          chain.clearFaults()
          await compare()
        }
      }
      chain.clearFaults()
      chain.mine(10)
      await view.poll()
      expect(view.heads()?.latest.hash).toBe(chain.head.hash)
      await compare()
    }),
    { numRuns: 60 },
  )
})

test('R16: before the first look, with an old head, with a head that stands still', async () => {
  const setting = await watched()
  const { chain, clock, view } = setting
  expect(view.faults()).toEqual([])
  clock.monotonic += 31_000
  expect(view.faults()).toEqual([expect.stringContaining('31 s old')])
  await block(setting)
  expect(view.faults()).toEqual([])
  const late = {
    ...clock,
    nowMs: () => (Number(chain.head.timestamp) + 40) * 1000,
    monotonicMs: () => 0,
  }
  const old = chainView(chain, { clock: late })
  expect(old.faults()).toEqual([expect.stringContaining('not been read yet')])
  await old.poll()
  expect(old.faults()).toEqual([expect.stringContaining('40 s old')])
  await expect(old.question(setting.questionId)).rejects.toMatchObject({
    code: 'state_unavailable',
  })
})

test('R16: a wrong chain id and a wrong first block', async () => {
  const other = await watched({
    info: { storeId: 's', chainId: 31337, genesisHash: `0x${'1'.repeat(64)}` },
  })
  expect(other.view.faults()).toEqual([expect.stringContaining('begins with block')])
  const chain = createFakeChain()
  chain.mine(3)
  const view = chainView({ ...chain, chainId: async () => 5 })
  await view.poll()
  expect(view.faults()).toEqual(['the node is on chain 5, not on 31337'])
})

test('R16: a head below the finalized block of the store', async () => {
  const { view } = await watched({ finalized: { number: 1_000n, hash: `0x${'1'.repeat(64)}` } })
  expect(view.faults()).toEqual([expect.stringContaining('below block 1000')])
})

test('R16: a node that lags behind what was seen undoes nothing', async () => {
  const setting = await watched()
  await block(setting, 3)
  await block(setting)
  const { chain, view } = setting
  const newest = view.heads()
  const older = await chain.block(chain.head.number - 1n)
  const block0 = chain.block
  chain.block = async (at) => (at === 'latest' ? older : block0(at))
  await view.poll()
  expect(view.heads()).toBe(newest)
})

test('R16: now is the later of wall clock and head time', async () => {
  const { chain, clock, view } = await watched()
  expect(view.nowSeconds()).toBe(chain.head.timestamp)
  const ahead = clock.nowMs() + 5_000
  clock.nowMs = () => ahead
  expect(view.nowSeconds()).toBe(chain.head.timestamp + 5n)
  // A deadline of five minutes beyond the second before would be 299.999 s away (§8).
  clock.nowMs = () => ahead + 1
  expect(view.nowSeconds()).toBe(chain.head.timestamp + 6n)
  clock.nowMs = () => 0
  expect(view.nowSeconds()).toBe(chain.head.timestamp)
})

test('contract §2: invalidations show by their bits, and a reorganisation forgets them', async () => {
  const setting = await watched()
  const { chain, view } = setting
  invalidateNonces(chain, wallet, 2n, 0b101n)
  await block(setting)
  expect([512n, 513n, 514n].map((nonce) => view.nonceKnownUsed(wallet, nonce))).toEqual([
    true,
    false,
    true,
  ])
  expect(view.nonceKnownUsed(testSigner(2).address, 512n)).toBe(false)
  chain.reorg(1)
  await block(setting, 2)
  expect(view.nonceKnownUsed(wallet, 512n)).toBe(false)
})

test('contract §2: an execution spends the nonce of its candidate, and of no other that looks like it', async () => {
  const world = await createPipelineWorld()
  const questionIds = [ask(world.chain, questionText('one')), ask(world.chain, questionText('two'))]
  world.chain.mine()
  await world.view.poll()
  // Two questions of one block have one timestamp.
  const first = await world.submit(questionIds[0] ?? '0x', { nonce: '77' })
  await world.turn()
  const second = await world.submit(questionIds[1] ?? '0x', { nonce: '78' })
  expect(second.round.timestamp).toBe(first.round.timestamp)
  world.chain.mine()
  await world.view.poll()
  expect(world.view.nonceKnownUsed(second.proposer, 78n)).toBe(false)
  await world.turn()
  await world.pass(6)
  expect([(await world.progress(first)).status, (await world.progress(second)).status]).toEqual([
    'executed',
    'executed',
  ])
  expect(world.view.nonceKnownUsed(first.proposer, 77n)).toBe(true)
  expect(world.chain.taken.filter(({ to }) => to === world.executor.address)).toEqual([])
})

test('contract §2: code of allowlisted wallets is in memory, and read again after a minute', async () => {
  const setting = await watched({ allowlist: new Set([wallet]) })
  const { chain, clock, view } = setting
  expect(view.knownCode(wallet)).toBe(false)
  expect(view.knownCode(testSigner(2).address)).toBeUndefined()
  chain.happen((world) => world.wallets.set(wallet, true))
  await block(setting)
  expect(view.knownCode(wallet)).toBe(false)
  clock.monotonic += 60_000
  await block(setting)
  expect(view.knownCode(wallet)).toBe(true)
  expect(await view.hasCode(testSigner(2).address)).toBe(false)
})

test('the view started goes on looking until it is stopped', async () => {
  const { chain, view } = await watched()
  let wakeUp: (() => void) | undefined
  const clock = createFakeClock(chain)
  const ticking = {
    ...clock,
    sleep: (_ms: number, signal?: AbortSignal) =>
      new Promise<void>((resolve, reject) => {
        wakeUp = resolve
        signal?.addEventListener('abort', () => reject(signal.reason), { once: true })
      }),
  }
  const live = chainView(chain, { clock: ticking })
  await live.start()
  expect(live.heads()?.latest.number).toBe(view.heads()?.latest.number)
  chain.mine()
  const seen = new Promise<void>((resolve) => {
    live.onHead(resolve)
  })
  while (wakeUp === undefined) await Promise.resolve()
  wakeUp()
  await seen
  expect(live.heads()?.latest.number).toBe(chain.head.number)
  await live.stop()
})
