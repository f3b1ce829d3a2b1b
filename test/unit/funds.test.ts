import fc from 'fast-check'
import { clockCheck, codeCheck, fundsChecks, openCheck, rpcCheck } from '#checks/doctor'
import { guarded } from '#checks/finding'
import { fundsOf, type OpenClaim, reservedRaw } from '#client/funds/funds'
import type { Intent } from '#client/propose/intent'
import { authorize } from '#client/propose/sign-rows'
import { chainContexts } from '#client/trust/context'
import type { Chain, Hex } from '#ports'
import type { Address } from '#protocol/schema'
import { makeWorld } from '#support/client-world'
import { ask, createFakeChain, endow, invalidateNonces, questionText } from '#support/fake-chain'
import { fakeContracts, fakeTrust } from '#support/fake-world'

const trust = fakeTrust
const token = trust.tokens[0] as Address

const claim = (id: string, amountRaw: bigint, round: string | undefined): OpenClaim => ({
  ...{ id, owner: '0x1', chainId: 1, token: '0x2', questionId: '0x3' },
  ...{ round, amountRaw, nonce: 0n, deadlineSeconds: 0n, price: '0' },
})

test('spec §5: the sum over all that could execute; a round takes one, so its largest counts once', () => {
  expect(reservedRaw([])).toBe(0n)
  expect(reservedRaw([claim('a', 5n, 'r'), claim('b', 7n, 's')])).toBe(12n)
  expect(reservedRaw([claim('a', 5n, 'r'), claim('b', 7n, 'r'), claim('c', 6n, 'r')])).toBe(7n)
  expect(reservedRaw([claim('a', 5n, undefined), claim('b', 5n, undefined)])).toBe(10n)
})

test('spec §5: no choice of one claim a round takes more than what is reserved', () => {
  const claims = fc.array(
    fc.tuple(fc.bigInt(0n, 100n), fc.constantFrom('r', 's', 't', undefined)),
    { maxLength: 12 },
  )
  fc.assert(
    fc.property(claims, fc.infiniteStream(fc.nat()), (drawn, choices) => {
      const all = drawn.map(([amountRaw, round], index) => claim(String(index), amountRaw, round))
      const executed = new Map<string, OpenClaim>()
      for (const one of all) {
        const key = one.round ?? one.id
        const before = executed.get(key)
        if (before === undefined || (choices.next().value ?? 0) % 2 === 0) executed.set(key, one)
      }
      const taken = [...executed.values()].reduce((sum, { amountRaw }) => sum + amountRaw, 0n)
      expect(taken <= reservedRaw(all)).toBe(true)
    }),
  )
})

async function setUp(questions = 2) {
  const world = makeWorld()
  const run = world.run()
  const chain = createFakeChain()
  const ids = Array.from({ length: questions }, (_, index) =>
    ask(chain, questionText(`Question ${index}?`)),
  )
  const owner = run.intent.proposer
  endow(chain, owner, 2_000_000_000n)
  chain.mine(3)
  const sign = (questionId: Hex, more: Partial<Intent> = {}) => {
    world.clock.setMs(Number(chain.head.timestamp) * 1_000)
    const contexts = chainContexts(chain, trust, world.clock)
    return world.drive(
      authorize(
        { ...run.parts, trust, chain, contexts, contextsAreFree: true },
        { ...run.intent, identifier: questionId, ...more },
      ),
    )
  }
  const funds = async (except?: string) =>
    fundsOf(chain, trust, await world.drive(run.journal.load()), owner, token, except)
  return { world, run, chain, ids, owner, sign, funds }
}

test('spec §5: what open authorizations may take is not free', async () => {
  const { ids, sign, funds } = await setUp()
  const first = await sign(ids[0] as Hex)
  await sign(ids[1] as Hex)
  expect(await funds()).toMatchObject({
    balanceRaw: 2_000_000_000n,
    reservedRaw: 1_500_000_000n,
    freeRaw: 500_000_000n,
  })
  expect(await funds(first.authorization.id)).toMatchObject({
    reservedRaw: 750_000_000n,
    freeRaw: 1_250_000_000n,
  })
})

test('a claim counts for its owner, chain and token; one of an unknown token for every token', async () => {
  const { chain, ids, owner, sign } = await setUp(1)
  const { authorization: own } = await sign(ids[0] as Hex)
  const reserved = async (more: object, whose = owner) => {
    const authorizations = [{ ...own, signed: { ...own.signed, ...more } }]
    return (await fundsOf(chain, trust, { authorizations, offers: [] }, whose, token)).reservedRaw
  }
  for (const known of [{}, { token: undefined }]) expect(await reserved(known)).toBe(750_000_000n)
  for (const other of [{ chainId: 2 }, { token: owner }]) expect(await reserved(other)).toBe(0n)
  expect(await reserved({}, token)).toBe(0n)
})

test('R14: what the chain shows as spent takes nothing more, whatever the journal knows yet', async () => {
  const { chain, ids, owner, sign, funds } = await setUp(1)
  const { authorization } = await sign(ids[0] as Hex)
  const nonce = BigInt(authorization.signed.terms.nonce)
  invalidateNonces(chain, owner, nonce >> 8n, 1n << (nonce & 255n))
  chain.mine()
  expect(await funds()).toMatchObject({ reservedRaw: 0n, freeRaw: 2_000_000_000n, claims: [] })
})

test('R13: a deadline frees what it held once finalized chain time has passed it', async () => {
  const { chain, ids, sign, funds } = await setUp(1)
  await sign(ids[0] as Hex, { deadlineSeconds: chain.head.timestamp + 301n })
  expect(await funds()).toMatchObject({ reservedRaw: 750_000_000n })
  chain.mine(160)
  expect(await funds()).toMatchObject({ reservedRaw: 0n })
})

test('domain §3.3: the allowance bounds what may still be authorized; nothing is ever below 0', async () => {
  const { chain, ids, owner, sign, funds } = await setUp(1)
  await sign(ids[0] as Hex)
  endow(chain, owner, 2_000_000_000n, 800_000_000n)
  chain.mine()
  expect(await funds()).toMatchObject({ freeRaw: 1_250_000_000n, spendableRaw: 50_000_000n })
  endow(chain, owner, 1n, 0n)
  chain.mine()
  expect(await funds()).toMatchObject({ freeRaw: 0n, spendableRaw: 0n })
})

test('contract §6: balance and allowance are judged against what is open', async () => {
  const { world, run, chain, ids, owner, sign } = await setUp(1)
  const judge = async (balanceRaw: bigint, allowanceRaw: bigint) => {
    endow(chain, owner, balanceRaw, allowanceRaw)
    chain.mine()
    const view = await world.drive(run.journal.load())
    return (await fundsChecks(chain, trust, view, owner)).map(({ id, result }) => `${id} ${result}`)
  }
  expect(await judge(2_000_000_000n, 0n)).toEqual(['balance pass', 'allowance fail'])
  await judge(2_000_000_000n, 2n ** 255n)
  await sign(ids[0] as Hex)
  expect(await judge(2_000_000_000n, 2n ** 255n)).toEqual(['balance pass', 'allowance pass'])
  expect(await judge(750_000_000n, 750_000_000n)).toEqual(['balance warn', 'allowance pass'])
  expect(await judge(2_000_000_000n, 800_000_000n)).toEqual(['balance pass', 'allowance warn'])
  expect(await judge(700_000_000n, 700_000_000n)).toEqual(['balance fail', 'allowance fail'])
  const view = await world.drive(run.journal.load())
  expect(openCheck(view, world.clock.nowMs())).toMatchObject({
    result: 'pass',
    detail: '1 signed',
  })
})

test('domain §3.3: code at the account is told apart: delegated, contract wallet, none', async () => {
  const chain = createFakeChain()
  const having = (code: Hex): Chain => ({ ...chain, code: async () => code })
  expect(await codeCheck(having('0x'), token)).toMatchObject({ result: 'pass' })
  expect(await codeCheck(having('0x6080'), token)).toMatchObject({
    result: 'warn',
    detail: expect.stringContaining('contract wallet'),
  })
  expect(await codeCheck(having(`0xef0100${'ab'.repeat(20)}`), token)).toMatchObject({
    result: 'warn',
    detail: expect.stringContaining(`0x${'ab'.repeat(20)} (EIP-7702)`),
  })
})

test('R16: a head that is old warns, then fails; another chain fails', async () => {
  const chain = createFakeChain()
  const headMs = Number(chain.head.timestamp) * 1_000
  const judge = async (ageMs: number, chainId = fakeContracts.chainId) =>
    (await guarded('rpc', () => rpcCheck(chain, chainId, headMs + ageMs)))[0]?.result
  expect(await judge(30_000)).toBe('pass')
  expect(await judge(60_000)).toBe('warn')
  expect(await judge(600_000)).toBe('fail')
  expect(await judge(0, 1)).toBe('fail')
  chain.fault('chainId', 'unavailable')
  expect(await judge(0)).toBe('fail')
})

test('contract §6: the Date header has a resolution of a second, and the call takes its time: neither is skew', () => {
  const at = Date.parse('Fri, 20 Nov 2026 08:00:00 GMT')
  const date = new Date(at).toUTCString()
  expect(clockCheck(date, at, at + 900).result).toBe('pass')
  expect(clockCheck(date, at - 45_000, at + 900).result).toBe('pass')
  expect(clockCheck(date, at + 32_000, at + 32_100).result).toBe('warn')
  expect(clockCheck(date, at - 300_000, at - 299_000).result).toBe('fail')
  expect(clockCheck(null, at, at).result).toBe('skip')
  expect(clockCheck('yesterday', at, at).result).toBe('skip')
})
