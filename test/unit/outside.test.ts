import type { Intent } from '#client/propose/intent'
import { bringIn, importSignature, walletTypedData } from '#client/propose/sign'
import { authorize, intentRow, offerTypedData } from '#client/propose/sign-rows'
import { submitRows } from '#client/propose/submit'
import { signerFromKey } from '#io/keys'
import type { Hex, Signer } from '#ports'
import { ProposerError } from '#protocol/errors'
import type { TypedData } from '#protocol/schema'
import { keyBytes, makeWorld, nextRound, sendAgain, type World } from '#support/client-world'
import { refusal } from '#support/refusal'

const key = signerFromKey(keyBytes(7))

const walletSigner = (signTypedData: (document: object) => Promise<string>): Signer => ({
  address: key.address,
  signDigest: () => Promise.reject(new Error('a wallet signs no bare digest')),
  signTypedData,
})
async function offered() {
  const world = makeWorld()
  const run = world.run()
  const { offer } = await world.drive(offerTypedData(run.parts, run.intent))
  return { world, run, offer }
}
const reading = (world: World) => world.journal()

test('the document for wallets has a number for its chain, everything else is as it is on the wire', () => {
  const document = {
    domain: { name: 'Permit2', chainId: '137', verifyingContract: '0x1' },
    message: { nonce: '1' },
  } as unknown as TypedData
  expect(walletTypedData(document)).toEqual({
    domain: { name: 'Permit2', chainId: 137, verifyingContract: '0x1' },
    message: { nonce: '1' },
  })
})

test('R6: a crash after it leaves its nonce reserved and its question held; the next run gives out the same', async () => {
  const world = makeWorld()
  const first = world.run()
  const { offer } = await world.drive(offerTypedData(first.parts, first.intent))
  world.host.kill(1)
  world.sim.crash(3)
  const second = world.run()
  const again = await world.drive(offerTypedData(second.parts, second.intent))
  expect(again).toEqual({ reused: true, offer })
  const view = await reading(world)
  expect(view.isReserved(first.intent.proposer, offer.offered.terms.nonce)).toBe(true)
  expect(
    await refusal(world.drive(authorize(second.parts, { ...second.intent, outcome: 'p1' }))),
  ).toMatchObject({
    code: 'authorization_open',
    meta: { exitCode: 5 },
  })
  expect(world.signatures).toEqual([])
})

test('R8: of two processes that give out at once, both give out the same', async () => {
  const world = makeWorld()
  const runs = [world.run(), world.run(), world.run()]
  const given = await world.drive(
    Promise.all(runs.map(({ parts, intent }) => offerTypedData(parts, intent))),
  )
  expect(new Set(given.map(({ offer }) => offer.id)).size).toBe(1)
  expect((await reading(world)).offers).toHaveLength(1)
})

test('R6: two processes that bring back one signature have one authorization', async () => {
  const world = makeWorld()
  const runs = [world.run(), world.run()]
  const [first] = runs
  if (first === undefined) throw new Error('no run')
  const { offer } = await world.drive(offerTypedData(first.parts, first.intent))
  const signature = await key.signDigest(offer.offered.digest as Hex)
  const wanted = { identifier: first.intent.identifier }
  const brought = await world.drive(
    Promise.all(runs.map(({ parts }) => importSignature(parts, wanted, signature))),
  )
  expect(new Set(brought.map(({ authorization }) => authorization.id))).toEqual(new Set([offer.id]))
  const view = await reading(world)
  expect(view.authorizations).toHaveLength(1)
  expect(view.offers).toEqual([])
})

test('R4: what another process signed for our offer is on our own record before we send it', async () => {
  const world = makeWorld()
  const [giver, bringer] = [world.run(), world.run()]
  const { offer } = await world.drive(offerTypedData(giver.parts, giver.intent))
  const signature = await key.signDigest(offer.offered.digest as Hex)
  const brought = importSignature(bringer.parts, { identifier: giver.intent.identifier }, signature)
  const { authorization } = await world.drive(brought)
  expect(giver.journal.hasSigned(authorization.id)).toBe(false)
  expect(await world.drive(sendAgain(giver.parts, authorization))).toMatchObject({
    outcome: 'accepted',
  })
  expect(
    world.sim
      .durableLines(authorization.signed.sha256)
      .filter((line) => line.includes('"k":"signed"')),
  ).toHaveLength(2)
})

test('R8: an offer that replaced an authorization and was given up leaves the authorization as it was', async () => {
  const world = makeWorld()
  const run = world.run()
  const first = await world.drive(authorize(run.parts, run.intent))
  const intent: Intent = { ...run.intent, outcome: 'p1', supersede: first.authorization.id }
  const refusing = walletSigner(() =>
    Promise.reject(new ProposerError('signer_refused', 'no', { exitCode: 2 })),
  )
  expect(
    await refusal(world.drive(authorize({ ...run.parts, signer: async () => refusing }, intent))),
  ).toMatchObject({
    code: 'signer_refused',
  })
  const view = await reading(world)
  expect(view.offers).toEqual([])
  expect(view.find(first.authorization.id)?.supersededBy).toBeUndefined()
  const { supersede: _named, ...unnamed } = intent
  expect(await refusal(world.drive(authorize(run.parts, unnamed)))).toMatchObject({
    code: 'authorization_open',
  })
})

test('R8: a wallet that did not answer may sign yet: its question stays held, and the same intent asks for the same document', async () => {
  for (const code of ['signer_timed_out', 'signer_lost']) {
    const world = makeWorld()
    const run = world.run()
    const asked: object[] = []
    const silent = walletSigner((document) => {
      asked.push(document)
      return Promise.reject(new ProposerError(code, 'no response', { exitCode: 75 }))
    })
    const parts = { ...run.parts, signer: async () => silent }
    expect(await refusal(world.drive(authorize(parts, run.intent)))).toMatchObject({ code })
    const [offer] = (await reading(world)).offers
    expect(
      await refusal(world.drive(authorize(parts, { ...run.intent, outcome: 'p1' }))),
    ).toMatchObject({
      code: 'authorization_open',
      meta: { exitCode: 5, hint: expect.stringContaining(`--supersede ${offer?.id}`) },
    })
    await refusal(world.drive(authorize(parts, run.intent)))
    expect(asked).toHaveLength(2)
    expect(asked[1]).toEqual(asked[0])
  }
})

test('sign --help: the same signature brought twice gives the same saved payload, while it is open', async () => {
  const { world, run, offer } = await offered()
  const signature = await key.signDigest(offer.offered.digest as Hex)
  const wanted = { identifier: run.intent.identifier }
  const first = await world.drive(importSignature(run.parts, wanted, signature))
  const again = await world.drive(
    importSignature(world.run().parts, wanted, ` ${signature.toUpperCase().replace('0X', '0x')}`),
  )
  expect([first.reused, again.reused]).toEqual([false, true])
  expect(again.authorization.signed.body).toBe(first.authorization.signed.body)
  const other = await key.signDigest(`0x${'1'.repeat(64)}`)
  expect(await refusal(world.drive(importSignature(run.parts, wanted, other)))).toMatchObject({
    code: 'no_offer',
  })
  const late = {
    ...run.parts,
    ports: {
      ...run.parts.ports,
      clock: { ...world.clock, nowMs: () => world.clock.nowMs() + 10 * 3_600_000 },
    },
  }
  expect(await refusal(world.drive(importSignature(late, wanted, signature)))).toMatchObject({
    code: 'no_offer',
  })
})

test('a wallet that takes its time keeps no other process waiting, and its question all the same', async () => {
  const world = makeWorld()
  const [slow, other] = [world.run(), world.run()]
  let agree: (() => void) | undefined
  const asked = new Promise<void>((resolve) => {
    agree = resolve
  })
  let atWallet: (() => void) | undefined
  const waiting = new Promise<void>((resolve) => {
    atWallet = resolve
  })
  const wallet = walletSigner(async () => {
    atWallet?.()
    await asked
    const [offer] = (await slow.journal.load()).offers
    return key.signDigest(offer?.offered.digest as Hex)
  })
  const signing = authorize({ ...slow.parts, signer: async () => wallet }, slow.intent)
  await world.drive(waiting)
  const differing = { ...other.intent, outcome: 'p1' as const }
  expect(await refusal(world.drive(authorize(other.parts, differing)))).toMatchObject({
    code: 'authorization_open',
  })
  agree?.()
  const signed = await world.drive(signing)
  expect((await world.drive(authorize(other.parts, other.intent))).authorization.id).toBe(
    signed.authorization.id,
  )
  expect(world.signatures).toEqual([])
})

test('a round that advances frees the question: what was given out for the old one cannot execute', async () => {
  const { world, run, offer } = await offered()
  nextRound(world.gateway)
  const next = await world.drive(authorize(run.parts, run.intent))
  expect(next.authorization.id).not.toBe(offer.id)
  expect(next.reused).toBe(false)
})

test('a deadline that is near is not signed for any more; --supersede gives out anew', async () => {
  const { world, run, offer } = await offered()
  world.clock.setMs(world.clock.nowMs() + 3_400_000)
  expect(await refusal(world.drive(offerTypedData(run.parts, run.intent)))).toMatchObject({
    code: 'authorization_open',
  })
  const anew = await world.drive(offerTypedData(run.parts, { ...run.intent, supersede: offer.id }))
  expect(anew.offer.offered.terms.nonce).not.toBe(offer.offered.terms.nonce)
  const late = await key.signDigest(offer.offered.digest as Hex)
  expect(
    await refusal(
      world.drive(importSignature(run.parts, { identifier: run.intent.identifier }, late)),
    ),
  ).toMatchObject({
    code: 'bad_signature',
  })
})

test('R9: a signature for an offer that was given up meanwhile is not taken', async () => {
  const { world, run, offer } = await offered()
  await world.drive(
    run.journal.append([{ kind: 'abandoned', data: { id: offer.id, reason: 'test' } }]),
  )
  const signature = await key.signDigest(offer.offered.digest as Hex)
  expect(await refusal(world.drive(bringIn(run.parts, offer, signature)))).toMatchObject({
    code: 'no_offer',
  })
})

test('R8: what was replaced after its row was planned is neither asked for nor taken', async () => {
  const { world, run, offer } = await offered()
  const replacing = { ...run.intent, outcome: 'p1' as const, supersede: offer.id }
  const signer = async () => {
    await authorize(world.run().parts, replacing)
    return walletSigner(() => Promise.reject(new Error('asked')))
  }
  const rows = submitRows({ ...run.parts, signer }, [intentRow(run.intent)])
  expect((await world.drive(rows.next())).value).toMatchObject([
    { outcome: 'rejected', error: { code: 'authorization_open', meta: { exitCode: 5 } } },
  ])
  const late = await key.signDigest(offer.offered.digest as Hex)
  expect(await refusal(world.drive(bringIn(run.parts, offer, late)))).toMatchObject({
    code: 'superseded',
  })
})
