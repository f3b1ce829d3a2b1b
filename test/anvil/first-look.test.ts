import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type DevChain, startDevChain } from '#devchain/dev-chain'
import { loadConfig } from '#host/config-file'
import { openHostedGateway } from '#host/gateway-host'
import { createChain } from '#io/rpc/rpc'
import { fakeContext } from '#support/cli'
import { temporaryFolder } from '#support/folders'

const questions = 100

let dev: DevChain
const folder = temporaryFolder()
const ends: (() => Promise<unknown>)[] = []
beforeAll(async () => {
  dev = await startDevChain({ questions, proposers: 1 })
}, 60_000)
afterAll(async () => {
  for (const end of ends.reverse()) await end()
  await dev?.stop()
})

test(`batch signing data of ${questions} questions that the gateway has never seen: a few aggregated calls`, async () => {
  const { slugs: _, chain_id: id, ...trust } = dev.description.trust
  await writeFile(
    join(folder, 'gateway.json'),
    JSON.stringify({
      chain: { id, rpc_urls: [dev.rpcUrl], ...trust },
      admission: { allowlist: [] },
      executor: { enabled: false },
    }),
  )
  const chain = createChain([dev.rpcUrl], { expectedChainId: id })
  ends.push(() => chain.close())
  const { context } = fakeContext(folder, { chain })
  const loaded = await loadConfig(context, join(folder, 'gateway.json'))
  const hosted = await openHostedGateway(context, loaded, {
    executorKey: { home: folder, password: async () => '' },
  })
  ends.push(hosted.close)
  const ask = async (identifiers: readonly string[]) => {
    const response = await hosted.gateway.handle(
      new Request('http://gateway/propose/batch/signing-data', {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ identifiers }),
      }),
      { charged: false },
    )
    const { results } = (await response.json()) as { results: { status_code: number }[] }
    return results.map(({ status_code }) => status_code)
  }
  const before = chain.usage()
  const found = await ask(dev.description.questions.map(({ question_id }) => question_id))
  const after = chain.usage()
  expect(found).toEqual(found.map(() => 200))
  const contracts = after.methods.contracts - before.methods.contracts
  const requests = after.requests - before.requests
  // Two dependent reads of some 200 to 300 calls each and the token's, 200 at once and 128 KiB, and
  // what the gateway asks meanwhile for its own ends. One by one it would be 600.
  expect(contracts).toBeLessThanOrEqual(10)
  expect(requests).toBeLessThanOrEqual(10)
}, 60_000)

test('no page of a browser reads from the dev chain', async () => {
  const headers = { origin: 'https://page.example', 'content-type': 'application/json' }
  const body = '{"jsonrpc":"2.0","id":1,"method":"eth_accounts","params":[]}'
  for (const method of ['POST', 'OPTIONS']) {
    const answer = await fetch(dev.rpcUrl, {
      method,
      headers: { ...headers, 'access-control-request-method': 'POST' },
      ...(method === 'POST' ? { body } : {}),
    })
    expect(answer.headers.get('access-control-allow-origin')).toBe(null)
  }
})
