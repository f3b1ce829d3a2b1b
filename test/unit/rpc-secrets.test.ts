import { createChain } from '#io/rpc/rpc'
import { ChainError } from '#ports'
import { quoteWords, withoutNodeWords } from '#protocol/node-words'
import { refuse } from '#protocol/refusal'
import { openFront } from '#support/front'
import { serveHttp } from '#support/http-server'

const secrets = [
  'SECRETPATH',
  'SECRET QUERY',
  'SECRET%20QUERY',
  'SECRETUSER',
  'SECRET@PASS',
  'SECRET%40PASS',
  'pw',
]
const leaks = new RegExp(
  `SECRET|\\bpw\\b|${Buffer.from('SECRETUSER:SECRET@PASS').toString('base64')}`,
  'i',
)
const echo = `daily limit of project secretpath exceeded: ${secrets.join(', ')}`

const open: { close(): Promise<unknown> }[] = []
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close()
})

async function echoing(answer: (id: number) => { status?: number; body: unknown }) {
  const server = await serveHttp((_request, text, response) => {
    const asked = JSON.parse(text)
    const all = [asked].flat().map(({ id }) => answer(id))
    response.statusCode = all[0]?.status ?? 200
    response.end(JSON.stringify(Array.isArray(asked) ? all.map(({ body }) => body) : all[0]?.body))
  })
  const secretUrl = server.url.replace('//', '//SECRETUSER:SECRET%40PASS@')
  const chain = createChain([`${secretUrl}/v2/SECRETPATH?key=SECRET%20QUERY&k=pw`])
  open.push(server, chain)
  return chain
}
const failure = (work: Promise<unknown>): Promise<ChainError> =>
  work.then(
    () => {
      throw new Error('it was answered')
    },
    (error: unknown) => {
      if (error instanceof ChainError) return error
      throw error
    },
  )

describe('R5: a node that repeats its path, its key, its user and its password', () => {
  test('says none of them in an error, whichever call it refuses', async () => {
    const chain = await echoing((id) => ({
      body: { jsonrpc: '2.0', id, error: { code: -32000, message: echo } },
    }))
    const errors = await Promise.all([
      failure(chain.logs({ fromBlock: 1n, toBlock: 2n, addresses: [`0x${'1'.repeat(40)}`] })),
      failure(chain.send('0x02')),
      failure(chain.chainId()),
      failure(chain.tip()),
    ])
    for (const { message } of errors) {
      expect(message).toMatch(/daily limit of project \[hidden\] exceeded/)
      expect(message).not.toMatch(leaks)
      expect(withoutNodeWords(message)).toMatch(/^eth_\w+: the node answered code -32000$/)
    }
  })

  test('nor where it refuses the whole request, whose status is told', async () => {
    const worded = await echoing(() => ({
      status: 403,
      body: { error: { code: 7, message: echo } },
    }))
    const { message } = await failure(worded.chainId())
    expect(message).not.toMatch(leaks)
    expect(withoutNodeWords(message)).toBe('the RPC node: HTTP 403')
    const bare = await echoing(() => ({ status: 403, body: { forbidden: echo } }))
    expect((await failure(bare.chainId())).message).toBe('the RPC node: HTTP 403')
  })

  test('nor where the cut of a long message goes through one of them', async () => {
    const chain = await echoing((id) => ({
      body: {
        jsonrpc: '2.0',
        id,
        error: {
          code: -32000,
          message: `https://${'x'.repeat(3990)} SECRETPATH ${'0x'}${'a'.repeat(9000)}SECRETPATH`,
        },
      },
    }))
    expect((await failure(chain.tip())).message).not.toMatch(/SEC/)
  })
})

describe('R5: what anybody may read', () => {
  const words = quoteWords('project of “ACME” is out of credit')
  test("has method and code of a node's refusal, and none of its words", async () => {
    const front = await openFront()
    front.view.faultList.push(
      `the chain cannot be read: eth_getLogs: the node answered code -32000: ${words}`,
    )
    const response = await front.get('/readyz')
    expect(await response.json()).toEqual({
      ready: false,
      reasons: ['the chain cannot be read: eth_getLogs: the node answered code -32000'],
    })
    expect(front.gateway.readiness().join()).toContain('is out of credit')
    expect(
      refuse('state_unavailable', `the chain's state is not known: ${words}`).detail,
    ).not.toContain('ACME')
  })

  test('loses the words of several nodes, and of one whose quotation was cut', () => {
    expect(withoutNodeWords(`none (1: a: ${words}; 2: b: ${words})`)).toBe('none (1: a; 2: b)')
    expect(withoutNodeWords(`a: ${words.slice(0, -1)}`)).toBe('a')
  })
})
