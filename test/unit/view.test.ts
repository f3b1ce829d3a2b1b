import { describe, expect, test } from 'vitest'
import { proposeCalldata } from '../../src/core/chain/propose.js'
import { createChainView, type LiveView } from '../../src/core/gateway/view/view.js'
import type { Address, Hex } from '../../src/core/ports.js'
import { createFakeChain, createFakeClock, type FakeChain, type FakeClock } from '../support/fake-chain.js'
import {
  ask,
  dispute,
  invalidateNonces,
  otherRelayerExecutes,
  questionText,
  rivalProposes,
  setCustomBond,
  setPaused,
} from '../support/fake-events.js'
import { fakeContracts, finalFeeRaw, token } from '../support/fake-world.js'
import { createPipelineWorld, testSigner } from '../support/pipeline-world.js'

const wallet: Address = testSigner(1).address

interface Setting {
  readonly chain: FakeChain
  readonly clock: FakeClock
  readonly view: LiveView
  readonly questionId: Hex
}

async function watched(ledger: Partial<Parameters<typeof createChainView>[2]> = {}, slug?: string): Promise<Setting> {
  const chain = createFakeChain()
  const clock = createFakeClock(chain)
  const questionId = ask(chain, questionText('Rain?'))
  chain.mine(5)
  const whole = { info: undefined, allowlist: new Set<Address>(), finalized: undefined, active: () => [], ...ledger }
  const entries = slug === undefined ? [] : [{ questionId, slug }]
  const view = createChainView({ clock, chain }, fakeContracts, whole, { maxHeadAgeSeconds: 30, entries })
  await view.poll()
  return { chain, clock, view, questionId }
}
const block = async ({ chain, clock, view }: Setting, count = 1) => {
  chain.mine(count)
  clock.monotonic += 2_000
  await view.poll()
}
const callsOf = ({ chain }: Setting) => [...chain.calls.values()].reduce((sum, count) => sum + count, 0)

describe('questions (contract §2)', () => {
  test('a question is read once and then comes from memory, by id and by slug', async () => {
    const setting = await watched({}, 'will-it-rain')
    const { view, questionId } = setting
    expect(view.known(questionId)).toBeUndefined()
    const question = await view.question('will-it-rain')
    expect(question).toMatchObject({ questionId, slug: 'will-it-rain', round: { state: 'requested' } })
    const before = callsOf(setting)
    expect(await view.question(questionId)).toBe(question)
    expect(view.known('will-it-rain')).toBe(question)
    expect(view.known('another-slug')).toBeUndefined()
    expect(callsOf(setting)).toBe(before)
  })

  test('many who ask at once cause one read', async () => {
    const setting = await watched()
    const before = callsOf(setting)
    const single = await watched()
    const singleBefore = callsOf(single)
    await single.view.question(single.questionId)
    await Promise.all(Array.from({ length: 8 }, () => setting.view.question(setting.questionId)))
    expect(callsOf(setting) - before).toBe(callsOf(single) - singleBefore)
  })

  test.each<[string, (setting: Setting) => void, object]>([
    ['a proposal', ({ chain, questionId }) => rivalProposes(chain, questionId, wallet), { state: 'proposed' }],
    ['a pause', ({ chain, questionId }) => setPaused(chain, questionId, true), { paused: true }],
    ['a custom bond', ({ chain, questionId }) => setCustomBond(chain, questionId, 1n), { totalBondRaw: 1n + finalFeeRaw }],
  ])('%s shows at the next look, and only named questions are read again', async (_title, change, expected) => {
    const setting = await watched()
    const other = ask(setting.chain, questionText('Snow?'))
    await block(setting)
    await setting.view.question(setting.questionId)
    const untouched = await setting.view.question(other)
    change(setting)
    await block(setting)
    expect(setting.view.known(setting.questionId)?.round).toMatchObject(expected)
    expect(setting.view.known(other)).toBe(untouched)
  })

  test('a dispute brings the new round, with another digest and another round key', async () => {
    const setting = await watched()
    const before = await setting.view.question(setting.questionId)
    dispute(setting.chain, setting.questionId)
    await block(setting)
    const after = setting.view.known(setting.questionId)
    expect(after?.round).toMatchObject({ state: 'requested', timestamp: String(setting.chain.head.timestamp) })
    expect(after?.ref.key).not.toBe(before?.ref.key)
    const terms = { price: '0', amount: '1', nonce: '1', deadline: '1' }
    expect(after?.witness.digest(terms)).not.toEqual(before?.witness.digest(terms))
  })

  test('a miss is remembered for ten seconds, and dropped at once when a log names the question', async () => {
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

  test('a block that comes in while a question is read leaves neither a wrong miss nor an old state', async () => {
    const setting = await watched()
    const { chain, view } = setting
    const { call } = chain
    /** Reads of the question wait until the next block has been followed. */
    const readMeanwhile = async (questionId: Hex) => {
      let open: () => void = () => undefined
      const gate = new Promise<void>((resolve) => {
        open = resolve
      })
      let asked: () => void = () => undefined
      const begun = new Promise<void>((resolve) => {
        asked = resolve
      })
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
    expect(await readMeanwhile(fog)).toBeUndefined()
    expect(await view.question(fog)).toMatchObject({ questionId: fog })
    rivalProposes(chain, setting.questionId, wallet)
    expect((await readMeanwhile(setting.questionId))?.round.state).toBe('requested')
    await block(setting)
    expect(view.known(setting.questionId)?.round.state).toBe('proposed')
  })

  test('where the chain does not answer, the question is not missing: state_unavailable', async () => {
    const { chain, view, questionId } = await watched()
    chain.fault('call', 'unavailable')
    await expect(view.question(questionId)).rejects.toMatchObject({ code: 'state_unavailable', meta: { httpStatus: 503 } })
    expect(await view.question(questionId)).toBeDefined()
  })

  test('R14: after a reorganisation everything is read again', async () => {
    const setting = await watched()
    const { chain, view, questionId } = setting
    await view.question(questionId)
    rivalProposes(chain, questionId, wallet)
    await block(setting)
    expect(view.known(questionId)?.round.state).toBe('proposed')
    chain.reorg(1)
    await block(setting, 2)
    expect(view.known(questionId)?.round.state).toBe('requested')
  })

  test('a long absence is caught up with, logs or not', async () => {
    const setting = await watched()
    await setting.view.question(setting.questionId)
    rivalProposes(setting.chain, setting.questionId, wallet)
    await block(setting, 300)
    expect(setting.view.known(setting.questionId)?.round.state).toBe('proposed')
  })

  test('blocks whose logs could not be read are read at the next look', async () => {
    const setting = await watched()
    await setting.view.question(setting.questionId)
    rivalProposes(setting.chain, setting.questionId, wallet)
    setting.chain.fault('logs', 'unavailable')
    await block(setting)
    expect(setting.view.known(setting.questionId)?.round.state).toBe('requested')
    await block(setting)
    expect(setting.view.known(setting.questionId)?.round.state).toBe('proposed')
  })

  test('a node that refuses a range of logs is asked for halves', async () => {
    const setting = await watched()
    await setting.view.question(setting.questionId)
    rivalProposes(setting.chain, setting.questionId, wallet)
    setting.chain.fault('logs', 'refused', { times: 2 })
    await block(setting, 8)
    expect(setting.view.known(setting.questionId)?.round.state).toBe('proposed')
  })
})

describe('what is not known closes everything (R16)', () => {
  test('before the first look, with an old head, with a head that stands still', async () => {
    const setting = await watched()
    const { chain, clock, view } = setting
    expect(view.faults()).toEqual([])
    clock.monotonic += 31_000
    expect(view.faults()).toEqual([expect.stringContaining('31 s old')])
    await block(setting)
    expect(view.faults()).toEqual([])
    const late = { ...clock, nowMs: () => (Number(chain.head.timestamp) + 40) * 1000, monotonicMs: () => 0 }
    const old = createChainView(
      { clock: late, chain },
      fakeContracts,
      { info: undefined, allowlist: new Set(), finalized: undefined, active: () => [] },
      { maxHeadAgeSeconds: 30, entries: [] },
    )
    expect(old.faults()).toEqual([expect.stringContaining('not been read yet')])
    await old.poll()
    expect(old.faults()).toEqual([expect.stringContaining('40 s old')])
    await expect(old.question(setting.questionId)).rejects.toMatchObject({ code: 'state_unavailable' })
  })

  test('a wrong chain id and a wrong first block', async () => {
    const other = await watched({ info: { storeId: 's', chainId: 31337, genesisHash: `0x${'1'.repeat(64)}` } })
    expect(other.view.faults()).toEqual([expect.stringContaining('begins with block')])
    const chain = createFakeChain()
    chain.mine(3)
    const view = createChainView(
      { clock: createFakeClock(chain), chain: { ...chain, chainId: async () => 5 } },
      fakeContracts,
      { info: undefined, allowlist: new Set(), finalized: undefined, active: () => [] },
      { maxHeadAgeSeconds: 30, entries: [] },
    )
    await view.poll()
    expect(view.faults()).toEqual(['the node is on chain 5, not on 31337'])
  })

  test('a head below the finalized block of the store', async () => {
    const { view } = await watched({ finalized: { number: 1_000n, hash: `0x${'1'.repeat(64)}` } })
    expect(view.faults()).toEqual([expect.stringContaining('below block 1000')])
  })

  test('a node that lags behind what was seen undoes nothing', async () => {
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

  test('now is the later of wall clock and head time', async () => {
    const { chain, clock, view } = await watched()
    expect(view.nowSeconds()).toBe(chain.head.timestamp)
    const ahead = clock.nowMs() + 5_000
    clock.nowMs = () => ahead
    expect(view.nowSeconds()).toBe(chain.head.timestamp + 5n)
    clock.nowMs = () => 0
    expect(view.nowSeconds()).toBe(chain.head.timestamp)
  })
})

describe('permit nonces (contract §2, permit_nonce_used)', () => {
  test('invalidations show by their bits, and a reorganisation forgets them', async () => {
    const setting = await watched()
    const { chain, view } = setting
    invalidateNonces(chain, wallet, 2n, 0b101n)
    await block(setting)
    expect([512n, 513n, 514n].map((nonce) => view.nonceKnownUsed(wallet, nonce))).toEqual([true, false, true])
    expect(view.nonceKnownUsed(testSigner(2).address, 512n)).toBe(false)
    chain.reorg(1)
    await block(setting, 2)
    expect(view.nonceKnownUsed(wallet, 512n)).toBe(false)
  })

  test('an execution spends the nonce of the candidate that it matches', async () => {
    const world = await createPipelineWorld({ config: { pipeline: { enabled: false } } })
    const questionId = await world.question()
    const candidate = await world.submit(questionId, { nonce: '77' })
    const question = world.view.known(questionId)
    if (!question) throw new Error('unknown question')
    const call = { request: question.round, token, proposer: candidate.proposer, terms: candidate, signature: candidate.signature }
    otherRelayerExecutes(world.chain, proposeCalldata(call), testSigner(9).address)
    world.chain.mine()
    await world.view.poll()
    expect(world.view.nonceKnownUsed(candidate.proposer, 77n)).toBe(true)
    expect(world.view.nonceKnownUsed(candidate.proposer, 78n)).toBe(false)
  })
})

describe('wallets with code (contract §2, domain §3.3)', () => {
  test('code of allowlisted wallets is in memory, and read again after a minute', async () => {
    const setting = await watched({ allowlist: new Set([wallet]) })
    const { chain, clock, view } = setting
    expect(view.knownCode(wallet)).toBe(false)
    expect(view.knownCode(testSigner(2).address)).toBeUndefined()
    chain.happen((world) => {
      world.wallets.set(wallet, true)
      return []
    })
    await block(setting)
    expect(view.knownCode(wallet)).toBe(false)
    clock.monotonic += 60_000
    await block(setting)
    expect(view.knownCode(wallet)).toBe(true)
    expect(await view.hasCode(testSigner(2).address)).toBe(false)
  })

  test('EIP-1271: yes, no, and no answer', async () => {
    const setting = await watched()
    const { chain, view } = setting
    chain.happen((world) => {
      world.wallets.set(wallet, true)
      world.wallets.set(testSigner(2).address, false)
      return []
    })
    await block(setting)
    const digest: Hex = `0x${'1'.repeat(64)}`
    expect(await view.authorizes(wallet, digest, '0x00')).toBe(true)
    expect(await view.authorizes(testSigner(2).address, digest, '0x00')).toBe(false)
    expect(await view.authorizes(testSigner(3).address, digest, '0x00')).toBe(false)
    chain.fault('call', 'reverted')
    expect(await view.authorizes(wallet, digest, '0x00')).toBe(false)
    chain.fault('call', 'unavailable')
    await expect(view.authorizes(wallet, digest, '0x00')).rejects.toMatchObject({ code: 'state_unavailable' })
  })
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
  const ledger = { info: undefined, allowlist: new Set<Address>(), finalized: undefined, active: () => [] }
  const live = createChainView({ clock: ticking, chain }, fakeContracts, ledger, { maxHeadAgeSeconds: 30, entries: [] })
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
