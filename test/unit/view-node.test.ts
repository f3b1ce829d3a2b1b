import { chainErrorOf } from '#io/rpc/rpc-errors'
import type { Chain } from '#ports'
import { chainView } from '#support/chain-view'
import { createFakeChain, createFakeClock } from '#support/fake-chain'
import { ask, questionText, rivalProposes } from '#support/fake-events'

async function viewOf(change: (chain: Chain) => void) {
  const chain = createFakeChain()
  const clock = createFakeClock(chain)
  const questionId = ask(chain, questionText('Rain?'))
  chain.mine(5)
  change(chain)
  const view = chainView(chain, { clock })
  await view.poll()
  return { chain, clock, view, questionId }
}

test.each<[string, (chain: Chain) => Promise<null>]>([
  ['says that there is none', async () => null],
  [
    'does not know the tag',
    async () => {
      throw chainErrorOf('eth_getBlockByNumber', {
        code: -32602,
        message: 'invalid argument 0: hex string without 0x prefix',
      })
    },
  ],
  [
    'has none yet',
    async () => {
      throw chainErrorOf('eth_getBlockByNumber', {
        code: -39001,
        message: 'finalized block not found',
      })
    },
  ],
  [
    'takes the tag for a block that it lacks',
    async () => {
      throw chainErrorOf('eth_getBlockByNumber', { code: -39001, message: 'Unknown block' })
    },
  ],
])(
  'R16: a node that %s when asked for the finalized block closes the view, and the fault says what is needed',
  async (_title, answer) => {
    const { view } = await viewOf((chain) => {
      const { block } = chain
      chain.block = async (at) => (at === 'finalized' ? answer(chain) : block(at))
    })
    expect(view.heads()).toBeUndefined()
    const [fault] = view.faults()
    expect(fault).toContain('the node reports no finalized block, which the gateway requires')
  },
)

test('R16: a node that is silent is told as silent, not as one without finalized blocks', async () => {
  const { view } = await viewOf((chain) => {
    const { block } = chain
    chain.block = async (at) => {
      if (at === 'finalized')
        throw chainErrorOf('eth_getBlockByNumber', { code: 429, message: 'Too Many Requests' })
      return block(at)
    }
  })
  expect(view.faults()).toEqual([expect.stringContaining('Too Many Requests')])
  expect(view.faults()[0]).not.toContain('finalized')
})

test.each([
  [-32005, 'query returned more than 2 results'],
  [-32000, 'Block range limit exceeded'],
  [-32602, 'Log response size exceeded'],
])(
  'a node that tells logs of two blocks at most (%i %s) is asked for parts',
  async (code, message) => {
    const { chain, clock, view, questionId } = await viewOf((fake) => {
      const { logs } = fake
      fake.logs = async (filter) => {
        if (filter.toBlock - filter.fromBlock >= 2n)
          throw chainErrorOf('eth_getLogs', { code, message })
        return logs(filter)
      }
    })
    await view.question(questionId)
    rivalProposes(chain, questionId, `0x${'9'.repeat(40)}`)
    chain.mine(16)
    clock.monotonic += 2_000
    await view.poll()
    expect(view.faults()).toEqual([])
    expect(view.known(questionId)?.round.state).toBe('proposed')
  },
)

describe('domain §3.3: a wallet whose code comes to a bad end has refused; a node in trouble has said nothing', () => {
  const asked = async (code: number, message: string) => {
    const { view } = await viewOf((chain) => {
      chain.call = async () => {
        throw chainErrorOf('eth_call', { code, message })
      }
    })
    return view.authorizes(`0x${'9'.repeat(40)}`, `0x${'11'.repeat(32)}`, '0x1234')
  }

  test.each([
    [-32603, 'EVM error InvalidJump'],
    [-32000, 'invalid jump destination'],
    [-32000, 'stack limit reached 1024 (1023)'],
    [-32015, 'VM execution error.'],
    [-32000, 'execution reverted: header not found'],
  ])('%i %s: no', async (code, message) => {
    expect(await asked(code, message)).toBe(false)
  })

  test.each([
    [-32000, 'header not found'],
    [-32603, 'EVM error FatalExternalError'],
    [-32601, 'the method eth_call does not exist'],
  ])('%i %s: come back later', async (code, message) => {
    await expect(asked(code, message)).rejects.toMatchObject({ code: 'state_unavailable' })
  })
})
