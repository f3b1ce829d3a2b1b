import { implementationsOf } from '#chain/implementations'
import type { Intent } from '#client/propose/intent'
import { newSpending } from '#client/propose/limits'
import { planRows } from '#client/propose/plan'
import { authorize, authorizePlans, intentRow } from '#client/propose/sign-rows'
import { chainContexts } from '#client/trust/context'
import type { QuestionContext, Trust } from '#client/trust/trust'
import { signerFromKey } from '#io/keys'
import type { Hex } from '#ports'
import { atHand, keyBytes, makeWorld, submitIntent } from '#support/client-world'
import {
  ask,
  createFakeChain,
  dispute,
  endow,
  type FakeChain,
  questionText,
  rivalProposes,
  setCustomBond,
  setPaused,
  upgrade,
} from '#support/fake-chain'
import { fakeTrust } from '#support/fake-world'
import { refusal } from '#support/refusal'

const trust: Trust = { ...fakeTrust, implementations: {} }

async function setUp() {
  const world = makeWorld()
  const run = world.run()
  const chain = createFakeChain()
  const questionId = ask(chain, questionText('Will it hold?'))
  endow(chain, run.intent.proposer)
  chain.mine(3)
  const head = await chain.block('latest')
  world.clock.setMs(Number(head?.timestamp ?? 0n) * 1_000)
  const intent: Intent = { ...run.intent, identifier: questionId }
  const read = async (): Promise<QuestionContext> => {
    const [result] = await chainContexts(chain, trust, world.clock).contexts([questionId])
    if (result === undefined) throw new Error('no response')
    if (result.error !== undefined) throw result.error
    return result.context
  }
  const contexts = chainContexts(chain, trust, world.clock)
  const parts = { ...run.parts, trust, chain, contexts, contextsAreFree: true }
  return { world, chain, questionId, intent, parts, read }
}

test('contract §9: an oracle that is upgraded between context and signature is refused, while saved bytes go on', async () => {
  const { world, chain, parts, intent } = await setUp()
  const [oracle = '0x'] = trust.oracles as Hex[]
  const [before, after] = [`0x${'a'.repeat(40)}`, `0x${'b'.repeat(40)}`] as const
  upgrade(chain, oracle, before)
  chain.mine()
  const pinned: Trust = {
    ...trust,
    implementations: await implementationsOf(chain, [oracle], 'latest'),
  }
  const confirm = async () => {
    upgrade(chain, oracle, after)
    chain.mine()
  }
  const asked = { ...parts, trust: pinned, confirm }
  const error = await refusal(world.drive(authorize(asked, intent)))
  expect(error).toMatchObject({
    code: 'implementation_changed',
    detail: `the contract ${oracle} runs ${after} now, pinned is ${before}`,
    meta: { exitCode: 2, hint: expect.stringContaining('proposer trust verify --repin') },
  })
  expect(world.signatures).toEqual([])
  const unaware = { ...parts, trust }
  const { authorization } = await world.drive(authorize(unaware, intent))
  const again = await world.drive(authorize({ ...parts, trust: pinned }, intent))
  expect([again.reused, again.authorization.signed.body]).toEqual([true, authorization.signed.body])
})

test('robustness §6: of rows that a person signs one by one each is read again before the wallet is asked', async () => {
  const { world, chain, parts, intent } = await setUp()
  const later = ask(chain, questionText('Will it hold again?'))
  chain.mine(3)
  const key = signerFromKey(keyBytes(7))
  let asked = 0
  const signTypedData = async () => {
    asked += 1
    setCustomBond(chain, later, 900_000_000n)
    chain.mine()
    const [offer] = (await parts.journal.load()).offers
    return key.signDigest(offer?.offered.digest as Hex)
  }
  const wallet = { address: key.address, signDigest: key.signDigest, signTypedData }
  const batch = { ...parts, form: 'batch', signer: async () => wallet } as const
  const rows = [intent, { ...intent, identifier: later }].map(intentRow)
  const signing = planRows(batch, rows).then((plans) =>
    authorizePlans(batch, plans, newSpending(batch, { fit: false })),
  )
  expect(await world.drive(signing)).toMatchObject([
    { kind: 'send' },
    { kind: 'rejected', error: { detail: expect.stringContaining('required_bond') } },
  ])
  expect(asked).toBe(1)
})

test('a round that is proposed on or paused is 409, a question nobody knows 404', async () => {
  const { chain, questionId, read, world } = await setUp()
  const [missing] = await chainContexts(chain, trust, world.clock).contexts([`0x${'9'.repeat(64)}`])
  expect(missing?.error).toMatchObject({ code: 'question_not_found', meta: { exitCode: 3 } })
  setPaused(chain, questionId, true)
  chain.mine()
  const paused = {
    exitCode: 5,
    hint: expect.stringMatching(/^wait until the question is unpaused;/),
  }
  expect(await refusal(read())).toMatchObject({ code: 'request_not_open', meta: paused })
  setPaused(chain, questionId, false)
  rivalProposes(chain, questionId, `0x${'9'.repeat(40)}`)
  chain.mine()
  const taken = { hint: expect.stringMatching(/^wait for a new round;/) }
  expect(await refusal(read())).toMatchObject({ code: 'request_not_open', meta: taken })
})

const lies: readonly [field: string, change: (context: QuestionContext) => QuestionContext][] = [
  [
    'timestamp',
    (context) => ({
      ...context,
      request: { ...context.request, timestamp: String(BigInt(context.request.timestamp) - 1n) },
    }),
  ],
  [
    'required_bond',
    (context) => ({ ...context, bond: { ...context.bond, required_bond: '750000001' } }),
  ],
]
test.each(lies)('R9: a wrong %s is found out and nothing is signed', async (field, change) => {
  const { world, parts, intent, read } = await setUp()
  const context = async () => change(await read())
  expect(
    await refusal(world.drive(submitIntent({ ...parts, ...atHand(parts, context) }, intent))),
  ).toMatchObject({
    code: `untrusted_${field}`,
    meta: { exitCode: 2 },
  })
  expect(world.signatures).toEqual([])
  expect(world.gateway.calls).toEqual([])
})

const failing = async (
  prepareChain: (chain: FakeChain, owner: Hex) => void,
  more: Partial<Intent> = {},
) => {
  const { world, chain, parts, intent } = await setUp()
  prepareChain(chain, intent.proposer)
  chain.mine()
  const error = await refusal(world.drive(authorize(parts, { ...intent, ...more })))
  expect((await world.journal()).authorizations).toEqual([])
  return error
}

test('domain §3.3: a wallet with code is asked whether it takes the signature', async () => {
  const withCode = (accepts: boolean) => (chain: FakeChain, owner: Hex) =>
    chain.happen((model) => model.wallets.set(owner, accepts))
  expect(await failing(withCode(false))).toMatchObject({ code: 'bad_signature' })
  const { world, chain, parts, intent } = await setUp()
  withCode(true)(chain, intent.proposer)
  chain.mine()
  expect((await world.drive(authorize(parts, intent))).reused).toBe(false)
})

test('contract §6: with an RPC a new round is seen before anything is sent, the older one settled and a new one signed', async () => {
  const { world, chain, parts, intent, questionId } = await setUp()
  const first = await world.drive(authorize(parts, intent))
  expect((await world.drive(authorize(parts, intent))).authorization.id).toBe(
    first.authorization.id,
  )
  dispute(chain, questionId)
  chain.mine(2)
  const second = await world.drive(authorize(parts, intent))
  expect(second.reused).toBe(false)
  expect(second.authorization.signed.round).not.toBe(first.authorization.signed.round)
})
