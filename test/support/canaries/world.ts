/**
 * A whole installation with a canary in every place that holds a secret: dev chain, a gateway that
 * serves, a client's home, and between them a node, a gateway and a wallet that repeat whatever
 * they can when they are told to refuse (R5, T12).
 */

import { randomBytes } from 'node:crypto'
import { cpSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { privateKeyToAccount } from 'viem/accounts'
import { openJournal } from '#client/journal/journal'
import { main } from '#commands/main'
import { systemHash, systemRandom } from '#io/clock'
import { systemFiles } from '#io/files'
import { newReceiptKey, writeReceiptKeys } from '#io/receipt-keys'
import { systemPorts } from '#io/system'
import type { Address } from '#protocol/schema'
import { argvOf } from '../argv.js'
import { fakeContext } from '../cli.js'
import { lackOf } from '../components.js'
import { keyVersion, startKms } from '../kms-server.js'
import { startPostgres } from '../postgres/server.js'
import type { Workshop } from '../processes.js'
import type { ServeReady } from '../proposing.js'
import { softHsm, testTokens } from '../softhsm.js'
import { honestWallet, startWallet } from '../wallet-server.js'

export type Mode = 'text' | 'json' | 'ndjson'

export interface Printed {
  readonly label: string
  readonly text: string
  readonly holdsPayload: boolean
}

export interface Canary {
  readonly kind: string
  readonly text: string
}

export type World = Awaited<ReturnType<typeof canaryWorld>>

const hexKey = (): `0x${string}` => `0x${randomBytes(32).toString('hex')}`
const canaryWord = (name: string): string => `CANARY${name}${randomBytes(5).toString('hex')}`

async function plantPart(
  shop: Workshop,
  { env, question }: { env: Record<string, string>; question: string },
): Promise<string> {
  const safe = privateKeyToAccount(hexKey()).address.toLowerCase()
  const sign = argvOf`sign ${question} --outcome p1 --proposer ${safe} --typed-data --json`
  const given = await shop.run(sign, { env: { ...env, PROPOSER_RPC_URL: '' } })
  if (given.code !== 0) throw new Error(`sign --typed-data: ${given.stderr}`)
  const { journal_id: id } = JSON.parse(given.stdout) as { journal_id: string }
  const digits = randomBytes(65).toString('hex')
  const ports = systemPorts()
  const journal = openJournal(ports, env.PROPOSER_HOME ?? '')
  const data = { id, owner: safe as Address, signature: `0x${digits}` as const }
  await journal.append([{ kind: 'safe.part', data }])
  await journal.close()
  return digits
}

export async function canaryWorld(shop: Workshop, questions: number) {
  const folder = await shop.folder()
  const home = join(folder, 'home')
  mkdirSync(home, { mode: 0o700 })
  const keys = { proposer: hexKey(), executor: hexKey(), environment: hexKey() }
  const words = {
    rpcUser: canaryWord('rpcuser'),
    rpcPassword: canaryWord('rpcpassword'),
    rpcPath: canaryWord('rpcpath'),
    rpcQuery: canaryWord('rpcquery'),
    basePath: canaryWord('basepath'),
    signerPath: canaryWord('signerpath'),
    signerQuery: canaryWord('signerquery'),
    password: canaryWord('password'),
    refusedUser: canaryWord('refuseduser'),
    storePassword: canaryWord('storepassword'),
  }
  const canaries: Canary[] = [
    ...Object.entries(keys).map(([kind, key]) => ({ kind: `${kind} key`, text: key.slice(2) })),
    ...Object.entries(words).map(([kind, text]) => ({ kind, text })),
    {
      kind: 'rpc credentials',
      text: Buffer.from(`${words.rpcUser}:${words.rpcPassword}`)
        .toString('base64')
        .replace(/=+$/, ''),
    },
  ]
  const nodeEcho = `refused: ${words.rpcUser}:${words.rpcPassword} /v2/${words.rpcPath.toUpperCase()}?key=${words.rpcQuery}`
  const walletEcho = `refused: /${words.signerPath}?key=${words.signerQuery}`
  let refused: 'all' | 'sends' | 'nothing' = 'nothing'

  const chain = shop.start(argvOf`devchain --port 0 --questions ${String(questions)} --write
    ${join(folder, 'dev')} --json`)
  const { dev } = await chain.line<ServeReady>()
  const node = await startProxy((request, response, body) => {
    const isSent = body.includes('eth_sendRawTransaction')
    if (refused === 'nothing' || (refused === 'sends' && !isSent))
      return forward(dev.rpc_url, request, response, body)
    const asked = [JSON.parse(body)].flat() as { id: number }[]
    const errors = asked.map(({ id }) => ({
      jsonrpc: '2.0',
      id,
      error: { code: -32_000, message: nodeEcho },
    }))
    return answer(response, 200, asked.length === 1 ? errors[0] : errors)
  })
  const rpcUrl = `http://${words.rpcUser}:${words.rpcPassword}@127.0.0.1:${node.port}/v2/${words.rpcPath}?key=${words.rpcQuery}`

  const file = (name: string, content: string) => {
    writeFileSync(join(folder, name), content, { mode: 0o600 })
    return join(folder, name)
  }
  const proposer = privateKeyToAccount(keys.proposer).address.toLowerCase()
  const config = join(folder, 'dev', 'gateway.json')
  const gatewayJson = JSON.parse(readFileSync(config, 'utf8'))
  gatewayJson.chain.rpc_urls = [rpcUrl]
  gatewayJson.executor.key_file = file('executor.key', `${keys.executor}\n`)
  const receiptKey = newReceiptKey({ hash: systemHash, random: systemRandom })
  await writeReceiptKeys(systemFiles, join(folder, 'receipt-key.json'), [receiptKey])
  canaries.push({ kind: 'receipt key', text: receiptKey.d })
  gatewayJson.receipts = { key_file: join(folder, 'receipt-key.json') }
  gatewayJson.admission.allowlist.push(proposer)
  gatewayJson.budget = { per_ip_items: 100_000, global_items: 100_000 }
  writeFileSync(config, JSON.stringify(gatewayJson))
  file(
    'bad-gateway.json',
    JSON.stringify({
      ...gatewayJson,
      chain: {
        ...gatewayJson.chain,
        rpc_urls: [rpcUrl.replace('http:', 'ftp:').replace(words.rpcUser, words.refusedUser)],
      },
    }),
  )
  file('password', `${words.password}\n`)
  const postgres = await startPostgres()
  const withPassword = (url: string) => url.replace('@', `:${words.storePassword}@`)
  file('store.url', withPassword(await postgres.createDatabase()))
  file('copy.url', withPassword(await postgres.createDatabase()))
  file('bad.url', withPassword('postgres://postgres@127.0.0.1:1/store'))
  const { store: _, ...unplaced } = gatewayJson
  for (const name of ['store', 'bad'])
    file(`${name}-shared.json`, JSON.stringify({ ...unplaced, store_file: `${name}.url` }))
  const small = join(import.meta.dirname, '../../../fixtures/v0.1/stores/small/gateway-store')
  cpSync(small, join(folder, 'old-store'), { recursive: true })

  const acts = [
    ['fund', proposer],
    ['grant', privateKeyToAccount(keys.executor).address.toLowerCase()],
  ]
  for (const act of acts) {
    const ended = await shop.run(argvOf`devchain ${act} --rpc-url ${dev.rpc_url} --json`)
    if (ended.code !== 0) throw new Error(`devchain ${act[0]}: ${ended.stderr}`)
  }
  const server = shop.start(argvOf`serve --config ${config} --port 0 --json --log`)
  const ready = await server.line<ServeReady>()
  const gateway = await startProxy((request, response, body) => {
    const path = request.url?.replace(`/${words.basePath}`, '') ?? ''
    if (refused !== 'all') return forward(`${ready.url}${path}`, request, response, body)
    const echo = `refused: ${request.url} ${body}`
    return answer(response, 422, {
      error: { code: 'schema_violation', detail: echo },
      errors: [{ path: echo, code: 'x' }],
    })
  })
  const wallet = await startWallet(async (asked) =>
    refused === 'all'
      ? { error: { code: 4001, message: walletEcho } }
      : honestWallet(keys.proposer)(asked),
  )
  const kms = await startKms(await shop.folder())
  const kmsKeys = ['alias/canary', keyVersion()] as const
  for (const key of kmsKeys) kms.point(key, keys.proposer)
  kms.instead(({ told }) =>
    refused === 'all'
      ? { status: 400, body: { __type: 'AccessDeniedException', message: told } }
      : undefined,
  )
  canaries.push(...kms.secrets.map((text) => ({ kind: 'credentials of a key service', text })))
  const { HOME: _home, ...kmsEnv } = kms.env
  Object.assign(process.env, kmsEnv)
  const signerUrl = `${wallet.url}/${words.signerPath}?key=${words.signerQuery}`
  const env = {
    PROPOSER_HOME: home,
    PROPOSER_KEY_FILE: file('proposer.key', `${keys.proposer}\n`),
    PROPOSER_TRUST: join(folder, 'dev', 'trust.json'),
    PROPOSER_RPC_URL: rpcUrl,
    PROPOSER_GATEWAY: `http://127.0.0.1:${gateway.port}/${words.basePath}`,
    ...kmsEnv,
  }
  const pin = canaryWord('pin')
  canaries.push({ kind: 'PIN', text: pin })
  file('token.pin', `${pin}\n`)
  const tokens = lackOf(softHsm) === undefined ? await testTokens(pin) : undefined
  tokens?.token('canary')
  tokens?.key('canary', 'canary')
  canaries.push({
    kind: 'part of a Safe',
    text: await plantPart(shop, { env, question: dev.questions[0]?.slug ?? '' }),
  })
  const printed: Printed[] = []
  return {
    ...{
      folder,
      home,
      dev,
      ready,
      server,
      env,
      config,
      proposer,
      signerUrl,
      kmsKeys,
      module: tokens?.module ?? '',
      devUrl: rpcUrl.replace(/\/\/.*@/, '//'),
      canaries,
      printed,
    },
    /**
     * `all`: node, gateway, wallet and key services refuse everything, and repeat what they were
     * told. `sends`: the node takes no transaction.
     */
    refuse(what: 'all' | 'sends' | 'nothing') {
      refused = what
    },
    async run(
      argv: readonly string[],
      mode: Mode,
      { stdin, holdsPayload = false }: { stdin?: string; holdsPayload?: boolean } = {},
    ) {
      const made = fakeContext(home, {
        env,
        cwd: folder,
        environmentKey: keys.environment,
        network: true,
        ...(stdin === undefined ? {} : { stdin }),
      })
      const code = await main(mode === 'text' ? argv : [...argv, `--${mode}`, '-v'], made.context)
      const text = `${made.stdout.written.join('')}\n${made.stderr.written.join('')}`
      printed.push({
        label: `${argv.join(' ')} (${mode}${refused === 'all' ? ', refused' : ''})`,
        text,
        holdsPayload,
      })
      return { code, text }
    },
    async close() {
      for (const name of Object.keys(kmsEnv)) delete process.env[name]
      const servers = [node, gateway, wallet, postgres, kms]
      await Promise.all([...servers.map((one) => one.close()), tokens?.remove()])
    },
  }
}

async function startProxy(
  handle: (request: IncomingMessage, response: ServerResponse, body: string) => Promise<void>,
) {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      handle(request, response, Buffer.concat(chunks).toString()).catch(() => response.destroy())
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise<void>((closed) => {
        server.close(() => closed())
        server.closeAllConnections()
      }),
  }
}

async function answer(response: ServerResponse, status: number, body: unknown): Promise<void> {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(JSON.stringify(body))
}

async function forward(
  url: string,
  { method = 'GET', headers: { 'content-digest': digest } }: IncomingMessage,
  response: ServerResponse,
  body: string,
): Promise<void> {
  const told = await fetch(url, {
    method,
    headers: { 'content-type': 'application/json', ...(digest && { 'content-digest': digest }) },
    ...(method === 'GET' ? {} : { body }),
  })
  response.writeHead(
    told.status,
    Object.fromEntries(
      [...told.headers].filter(([name]) =>
        /^(content-type|content-digest|signature|ratelimit|retry)/.test(name),
      ),
    ),
  )
  response.end(await told.text())
}

export function signaturesUnder(folder: string): readonly string[] {
  const found = new Set<string>()
  for (const path of filesUnder(folder)) {
    if (!/(log|snap)-\d+\.jsonl$/.test(path)) continue
    for (const [, hex = ''] of readFileSync(path, 'utf8').matchAll(
      /signature\\*":\\*"0x([0-9a-f]{128,})/gi,
    ))
      found.add(hex)
    for (const [, hex = ''] of readFileSync(path, 'utf8').matchAll(/"raw":"0x([0-9a-f]{128,})/gi))
      found.add(hex)
  }
  return [...found]
}

export function filesUnder(folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
}

export function modesUnder(folder: string): readonly (readonly [path: string, mode: number])[] {
  const inside = readdirSync(folder, { recursive: true, withFileTypes: true }).filter(
    (entry) => entry.isFile() || entry.isDirectory(),
  )
  return [folder, ...inside.map((entry) => join(entry.parentPath, entry.name))].map((path) => [
    path,
    statSync(path).mode & 0o777,
  ])
}
