/**
 * `executor.signer` end to end (contract §9): an anvil of its own holds the executor's key and signs
 * by `eth_signTransaction`; the gateway, on a dev chain, has no key at all.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { startAnvil } from '#devchain/dev-anvil'
import { devRpc } from '#devchain/dev-contracts'
import type { Hex } from '#ports'
import { argvOf } from '#support/argv'
import { type Running, workshop } from '#support/processes'
import {
  type Client,
  makeClient,
  proposals,
  questionOf,
  type ServeReady,
  untilExecuted,
  untilUnready,
} from '#support/proposing'
import { type AskedTransaction, startWallet, type WalletServer } from '#support/wallet-server'

const shop = workshop()
const secret = '/v1/SIGNERPATH17?key=SIGNERQUERY17'

let config: string
let dev: ServeReady['dev']
let signer: Awaited<ReturnType<typeof startSigner>>
let front: WalletServer
let before: (asked: AskedTransaction) => Promise<AskedTransaction> = async (asked) => asked
let address: Hex
let server: Running
let ready: ServeReady
let client: Client

const startSigner = () =>
  startAnvil(0, argvOf`--chain-id 31337 --accounts 1 --no-mining --hardfork prague`)

beforeAll(async () => {
  const { folder, ...started } = await shop.devChain(3)
  dev = started.dev
  signer = await startSigner()
  front = await startWallet(async ({ method, params }) => {
    const changed =
      method === 'eth_signTransaction' ? [await before(params[0] as AskedTransaction)] : params
    const response = await fetch(signer.rpcUrl, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: changed }),
    })
    return { raw: await response.text(), status: response.status }
  })
  const [account = '0x'] = await devRpc(signer.rpcUrl).request<Hex[]>('eth_accounts', [])
  address = account
  const granted = await shop.run(['devchain', 'grant', address, '--rpc-url', dev.rpc_url])
  if (granted.code !== 0) throw new Error(granted.stderr)
  const gateway = JSON.parse(await readFile(join(folder, 'gateway.json'), 'utf8'))
  gateway.executor = { signer: { url: `${front.url}${secret}`, address } }
  config = join(folder, 'remote.json')
  await writeFile(config, JSON.stringify(gateway))
  await serve()
})
afterAll(async () => {
  await shop.clean()
  await front.close()
  await signer.stop()
})

async function serve(): Promise<void> {
  server = shop.start(argvOf`serve --config ${config} --port 0 --json --log`)
  ready = await server.line<ServeReady>()
  client = await makeClient(shop, dev, {
    PROPOSER_GATEWAY: ready.url,
    PROPOSER_RPC_URL: dev.rpc_url,
  })
}

const sent = async () =>
  Number(await devRpc(dev.rpc_url).request<string>('eth_getTransactionCount', [address, 'latest']))
const proposed = async (known: readonly string[]) =>
  (await proposals(dev, client.proposer))
    .map(({ transactionHash }) => transactionHash)
    .filter((hash) => !known.includes(hash))

test('a proposal is executed by a transaction that the signer has signed; the gateway has no key', async () => {
  const { slug } = questionOf(dev, 0)
  const submitted = await client.ask('submit', slug, '--outcome', 'p2')
  const status = await untilExecuted(client, String(submitted.answer.candidate_id))
  const [hash, ...others] = await proposed([])
  expect(others).toEqual([])
  expect(status).toMatchObject({ status: 'executed', submission: { transaction_hash: hash } })
  expect(await devRpc(dev.rpc_url).request('eth_getTransactionByHash', [hash])).toMatchObject({
    from: address,
    nonce: '0x0',
    type: '0x2',
  })
  expect(await sent()).toBe(1)
})

test('R3: a signer that changes the nonce, dies in the middle of a slot, and comes back: executed once, under one nonce', async () => {
  const known = await proposed([])
  const nonce = await sent()
  before = async (asked) => ({ ...asked, nonce: '0x63' })
  const { slug } = questionOf(dev, 1)
  const submitted = await client.ask('submit', slug, '--outcome', 'p2')
  expect(submitted.code).toBe(0)
  expect(await untilUnready(ready, /does not sign/)).toBe(
    `the key of the executor ${address} does not sign: the remote signer's answer cannot be used: it changed nonce of the transaction: waiting`,
  )
  before = async (asked) => {
    await signer.stop()
    return asked
  }
  await untilUnready(ready, /does not sign: the connection to the remote signer broke/)
  await server.stop('SIGKILL')
  const first = server.stderr()
  const again = shop.start(argvOf`serve --config ${config} --port 0 --json --log`)
  const line = again.line<ServeReady>().then((found) => {
    ready = found
    return true
  })
  // It may be ready before it has looked at its slots.
  if ((await Promise.race([line, again.said(/does not sign/)])) === true)
    await untilUnready(ready, /does not sign/)
  expect(await sent()).toBe(nonce)
  expect(await proposed(known)).toEqual([])

  before = async (asked) => asked
  signer = await startSigner()
  server = again
  await line
  const status = await shop.run(
    argvOf`poll ${String(submitted.answer.candidate_id)} --timeout 60 --json`,
    { env: { ...client.env, PROPOSER_GATEWAY: ready.url } },
  )
  expect(status.code, status.stdout + status.stderr).toBe(0)
  const hashes = await proposed(known)
  expect(hashes).toHaveLength(1)
  expect(await devRpc(dev.rpc_url).request('eth_getTransactionByHash', [hashes[0]])).toMatchObject({
    from: address,
    nonce: `0x${nonce.toString(16)}`,
  })
  expect(await sent()).toBe(nonce + 1)
  const said = first + (await server.stop()).stderr
  expect(said).toContain('"slot.opened"')
  expect(said).not.toMatch(/SIGNERPATH17|SIGNERQUERY17/)
})
