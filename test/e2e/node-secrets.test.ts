/**
 * A node that repeats its own URL in everything that it refuses, under a gateway with all its
 * outlets (R5).
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { argvOf } from '#support/argv'
import { serveHttp } from '#support/http-server'
import { workshop } from '#support/processes'
import { type Client, makeClient, questionOf, type ServeReady } from '#support/proposing'

const shop = workshop()
const patience = { timeout: 20_000, interval: 50 }
const secret = /SECRET/i
const words = 'daily limit of project SECRETPATH exceeded: SECRETUSER, SECRETPASS, SECRETKEY'
let folder = ''
let dev: ServeReady['dev']
let client: Client
let node: Awaited<ReturnType<typeof serveHttp>>
let refuses: (method: string) => boolean = () => false

interface Call {
  readonly id: number
  readonly method: string
}

beforeAll(async () => {
  ;({ dev, folder } = await shop.devChain(2))
  client = await makeClient(shop, dev, { PROPOSER_RPC_URL: dev.rpc_url })
  node = await serveHttp(async (_request, body, response) => {
    const asked = JSON.parse(body) as Call | Call[]
    const calls = [asked].flat()
    const honest = calls.filter(({ method }) => !refuses(method))
    const errors = calls.flatMap(({ id, method }) =>
      refuses(method) ? [{ jsonrpc: '2.0', id, error: { code: -32_000, message: words } }] : [],
    )
    const answers = [...(honest.length === 0 ? [] : await upstream(honest)), ...errors]
    response.end(JSON.stringify(Array.isArray(asked) ? answers : answers[0]))
  })
  const path = join(folder, 'gateway.json')
  const config = JSON.parse(readFileSync(path, 'utf8'))
  const secretUrl = node.url.replace('//', '//SECRETUSER:SECRETPASS@')
  config.chain.rpc_urls = [`${secretUrl}/v2/SECRETPATH?key=SECRETKEY`]
  config.chain.max_head_age_seconds = 2
  writeFileSync(path, JSON.stringify(config))
})
afterAll(async () => {
  await node.close()
})

async function upstream(calls: readonly Call[]): Promise<readonly unknown[]> {
  const response = await fetch(dev.rpc_url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(calls.map((call) => ({ jsonrpc: '2.0', ...call }))),
  })
  return (await response.json()) as unknown[]
}

const reasonsAt = async (url: string): Promise<string> => (await fetch(`${url}/readyz`)).text()

test('R5: tells the public method and code only, the operator its words, and nobody the URL', async () => {
  const server = shop.start(argvOf`serve --config ${join(folder, 'gateway.json')} --port 0
    --json --log`)
  const { url, admin_url: admin } = await server.line<ServeReady>()
  const outlets: string[] = []

  refuses = (method) => method === 'eth_sendRawTransaction'
  const submitted = await client.ask(
    'submit',
    questionOf(dev, 0).slug,
    '--outcome',
    'p2',
    '--gateway',
    url,
  )
  expect(submitted.code).toBe(0)
  await vi.waitFor(
    async () =>
      expect(await reasonsAt(admin)).toContain('daily limit of project [hidden] exceeded'),
    patience,
  )
  const open = await reasonsAt(url)
  expect(open).toContain('eth_sendRawTransaction: the node answered code -32000')
  expect(open).not.toContain('daily limit')
  const explained = await shop.run(
    argvOf`operator --config ${join(folder, 'gateway.json')} candidates explain
      ${String(submitted.answer.candidate_id)}`,
    { env: client.env },
  )
  outlets.push(open, await reasonsAt(admin), explained.stdout, explained.stderr)

  for (const method of ['eth_getLogs', 'eth_chainId', 'eth_getBlockByNumber']) {
    refuses = (asked) => asked === method
    await vi.waitFor(async () => expect((await fetch(`${url}/readyz`)).status).toBe(503), patience)
    await vi.waitFor(async () => expect(await reasonsAt(url)).toMatch(/node/), patience)
    const asked = await fetch(`${url}/v1/proposals/${questionOf(dev, 1).slug}/signing-data`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{}',
    })
    const shown = await reasonsAt(url)
    expect(shown).not.toContain('daily limit')
    outlets.push(
      shown,
      await reasonsAt(admin),
      await asked.text(),
      await (await fetch(`${admin}/metrics`)).text(),
    )
    const checked = await shop.run(
      argvOf`serve --config ${join(folder, 'gateway.json')} --port 0 --check`,
      { env: client.env },
    )
    outlets.push(checked.stdout, checked.stderr)
  }
  const ended = await server.stop()
  outlets.push(ended?.stdout ?? '', ended?.stderr ?? '')
  for (const outlet of outlets) expect(outlet).not.toMatch(secret)
})
