import type { Address } from '#protocol/schema'
import { chainView } from '#support/chain-view'
import { createFakeChain, createFakeClock } from '#support/fake-chain'
import { ask, questionText } from '#support/fake-events'
import { signedBody, signedItem } from '#support/fake-view'
import { fakeContracts } from '#support/fake-world'
import { codeOf, openFront } from '#support/front'

const { chainId, signedProposer, oracles, requesters, tokens } = fakeContracts
const gatewayConfig = {
  chain: {
    id: chainId,
    rpc_urls: ['http://127.0.0.1:1'],
    signed_proposer: signedProposer,
    oracles,
    requesters,
    tokens,
  },
}

async function openOnChain() {
  const chain = createFakeChain()
  const clock = createFakeClock(chain)
  const allowlist = new Set<Address>()
  const view = chainView(chain, { clock, ledger: { allowlist } })
  const front = await openFront({ config: gatewayConfig, parts: { view } })
  const [wallet] = front.wallets
  allowlist.add(wallet.address)
  const questionId = ask(chain, questionText('Rain?'))
  chain.mine(5)
  await view.poll()
  const question = await view.question(questionId)
  if (!question) throw new Error('the view does not know the question')
  const terms = { deadline: String(chain.head.timestamp + 3_600n) }
  const answer = async (response: Response) =>
    response.ok ? response.status : await codeOf(response)
  return {
    chain,
    clock,
    view,
    front,
    wallet,
    body: () => signedBody(wallet, question, 'p2', terms),
    single: async (body: object) => answer(await front.post(`/v1/proposals/${questionId}`, body)),
    async batch(signature?: string) {
      const item = await signedItem(wallet, question, 'p2', terms)
      const response = await front.post('/propose/batch', {
        proposals: [signature === undefined ? item : { ...item, signature }],
      })
      const { results } = (await response.json()) as {
        results: { status_code: number; error?: { code: string } }[]
      }
      return results[0]?.error?.code ?? results[0]?.status_code
    },
  }
}
type Open = Awaited<ReturnType<typeof openOnChain>>

function setCode({ chain, clock, wallet: { address } }: Open, has: boolean) {
  chain.happen((world) => {
    if (has) world.wallets.set(address, true)
    else world.wallets.delete(address)
  })
  chain.mine()
  clock.monotonic += 2_000
}
const someSignature = `0x${'ab'.repeat(80)}`
const singly = async ({ single, body }: Open, signature?: string) =>
  single({ ...(await body()), ...(signature && { signature }) })
const inBatch = ({ batch }: Open, signature?: string) => batch(signature)

describe.each([
  ['single', singly],
  ['batch', inBatch],
])('contract §2: the code of a wallet, %s', (_form, submit) => {
  test('a wallet that has just got code is asked by EIP-1271', async () => {
    const open = await openOnChain()
    setCode(open, true)
    expect(await submit(open, someSignature)).toBe(202)
  })

  test('a wallet that has just lost its code signs for itself', async () => {
    const open = await openOnChain()
    setCode(open, true)
    open.clock.monotonic += 61_000
    await open.view.poll()
    expect(open.view.knownCode(open.wallet.address)).toBe(true)
    setCode(open, false)
    expect(await submit(open)).toBe(202)
  })

  test('R16: where the code cannot be read anew nobody is refused for good: 503 state_unavailable', async () => {
    const open = await openOnChain()
    open.clock.monotonic += 1_000
    open.chain.fault('code', 'unavailable')
    expect(await submit(open, someSignature)).toBe('state_unavailable')
    expect(await submit(open, someSignature)).toBe('signature_not_authorized')
  })
})

test('R19: a wallet of which bad signatures come has its code read once for all of them, and again half a second later', async () => {
  const open = await openOnChain()
  const reads = () => open.chain.calls.get('code') ?? 0
  open.clock.monotonic += 1_000
  const before = reads()
  expect(
    new Set(await Promise.all(Array.from({ length: 20 }, () => singly(open, someSignature)))),
  ).toEqual(new Set(['signature_not_authorized']))
  expect(reads() - before).toBe(1)
  const bad = { ...(await open.body()), proposer: `0x${'9'.repeat(40)}` }
  expect(await open.single(bad)).toBe('proposer_not_eligible')
  expect(reads() - before).toBe(1)
  open.clock.monotonic += 500
  expect(await singly(open, someSignature)).toBe('signature_not_authorized')
  expect(reads() - before).toBe(2)
})

describe('contract §2: a question that is younger than what the view has followed', () => {
  const found = async ({ front }: Open, id: string) => {
    const response = await front.post('/propose/batch/signing-data', { identifiers: [id] })
    const { results } = (await response.json()) as { results: { status_code: number }[] }
    return results[0]?.status_code
  }

  /**
   * The view looks when the chain is first asked for its head: before that answer, or some time
   * after it.
   */
  const lookWhenAsked = ({ chain, view }: Open, when: 'before' | 'after') => {
    const { block } = chain
    chain.block = async (at) => {
      chain.block = block
      if (when === 'before') await view.poll()
      else setImmediate(() => void view.poll())
      return block(at)
    }
  }

  test.each(['before', 'after'] as const)(
    'is found, where the view looks %s the chain tells its head',
    async (when) => {
      const open = await openOnChain()
      const questionId = ask(open.chain, questionText('Snow?'))
      open.chain.mine()
      lookWhenAsked(open, when)
      expect(await found(open, questionId)).toBe(200)
    },
  )

  test('an unknown one is 404, also where the view is behind', async () => {
    const open = await openOnChain()
    expect(await found(open, `0x${'e'.repeat(64)}`)).toBe(404)
    open.chain.mine()
    lookWhenAsked(open, 'after')
    expect(await found(open, `0x${'f'.repeat(64)}`)).toBe(404)
  })
})
