/**
 * A real `serve` over a store that outlives it, on a chain that costs nothing, with as many signed
 * proposals as anybody asks for: what is killed, starved of disk and started twice in the campaigns
 * of real faults. Its pipeline is off: candidates stay received.
 */
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Hex } from '#ports'
import { fromSingle, toBatchItem } from '#protocol/proposal'
import type { Address, BatchItem, SignedProposal } from '#protocol/schema'
import { witnessRound } from '#protocol/witness'
import { argvOf } from '../argv.js'
import type { Running, StartOptions, Workshop } from '../processes.js'

export interface House {
  readonly chain: { readonly url: string; readonly contracts: HouseContracts }
  readonly questionIds: readonly Hex[]
  readonly wallets: readonly { readonly address: Address; readonly privateKey: Hex }[]
  open(name: string, options?: StoreOptions): Promise<HouseStore>
  home(name: string, n?: number): Promise<Readonly<Record<string, string>>>
  close(): Promise<void>
}

interface StoreOptions {
  readonly store?: string
  readonly set?: readonly string[]
}

export interface HouseStore {
  readonly store: string
  readonly config: string
  serve(options?: StartOptions): Running
  next(): Payload
}

export interface Payload {
  readonly key: string
  readonly path: string
  readonly body: string
  readonly item: BatchItem
}

interface HouseContracts {
  readonly id: number
  readonly permit2: Address
  readonly signed_proposer: Address
  readonly oracles: readonly Address[]
  readonly requesters: readonly object[]
  readonly tokens: readonly Address[]
}
interface Wallet {
  readonly key: Uint8Array
  readonly address: Address
}
interface ChainServer {
  makeQuestions(count: number): { question_id: Hex; text: Hex }[]
  serveChain(questions: object, options: object): Promise<House['chain'] & { close(): void }>
}
interface Payloads {
  makeWallets(count: number): Wallet[]
  questionsOf(url: string, ids: readonly string[]): Promise<object[]>
  signAll(
    library: object,
    questions: readonly object[],
    wallets: readonly Wallet[],
  ): { path: string; body: string }[]
}
const bench = (name: string): Promise<unknown> =>
  import(new URL(`../../bench/${name}.js`, import.meta.url).href)

const homes = 8

export async function openHouse(
  shop: Workshop,
  { questions = 100, wallets: count = 200 } = {},
): Promise<House> {
  const { makeQuestions, serveChain } = (await bench('chain-server')) as ChainServer
  const { makeWallets, questionsOf, signAll } = (await bench('payloads')) as Payloads
  const folder = await shop.folder()
  const asked = makeQuestions(questions)
  const questionIds = asked.map(({ question_id }) => question_id)
  const chain = await serveChain(asked, { blockMs: 1_000, delayMs: 0, logsOf: () => [] })
  const wallets = makeWallets(count)
  const { contracts } = chain
  const chosen = { rpc_urls: [chain.url], ...contracts }
  const settings = {
    listen: { port: 0 },
    admin: { port: 0 },
    admission: { allowlist: wallets.map(({ address }) => address) },
    budget: { per_ip_items: 1_000_000_000, global_items: 1_000_000_000 },
    pipeline: { enabled: false },
  }
  const signer = wallets.slice(homes)
  const hexKey = (key: Uint8Array): Hex => `0x${Buffer.from(key).toString('hex')}`
  let contexts: readonly object[] = []

  const house: House = {
    chain,
    questionIds,
    wallets: wallets.map(({ address, key }) => ({ address, privateKey: hexKey(key) })),
    async open(name, options = {}) {
      const place = join(folder, name)
      await mkdir(place)
      const store = options.store ?? join(place, 'store')
      const config = join(place, 'gateway.json')
      await writeFile(config, JSON.stringify({ ...settings, store, chain: chosen }))
      const sets = (options.set ?? []).flatMap((assignment) => ['--set', assignment])
      const serve: HouseStore['serve'] = (more) =>
        shop.start(argvOf`serve --config ${config} --json --no-log ${sets}`, {
          judged: false,
          ...more,
        })
      let used = 0
      const waiting: Payload[] = []
      return {
        store,
        config,
        serve,
        next() {
          if (waiting.length === 0) {
            const wallet = signer[used++]
            if (wallet === undefined)
              throw new Error('every wallet has proposed for every question')
            waiting.push(...signAll({ witnessRound }, contexts, [wallet]).map(payloadOf))
          }
          return waiting.pop() as Payload
        },
      }
    },
    async home(name, n = 0) {
      const wallet = house.wallets[n]
      if (wallet === undefined || n >= homes) throw new RangeError(`no wallet ${n} for a home`)
      const home = join(folder, name)
      await mkdir(home, { mode: 0o700 })
      const { id, ...pins } = contracts
      await writeFile(
        join(home, 'trust.json'),
        JSON.stringify({ chain_id: id, ...pins, slugs: {} }),
      )
      await writeFile(join(home, 'proposer.key'), `${wallet.privateKey}\n`, { mode: 0o600 })
      return {
        PROPOSER_HOME: home,
        PROPOSER_KEY_FILE: join(home, 'proposer.key'),
        PROPOSER_TRUST: join(home, 'trust.json'),
      }
    },
    close: async () => chain.close(),
  }
  const first = (await house.open('first')).serve()
  const { url } = await first.line<{ url: string }>()
  while (contexts.length === 0) {
    contexts = await questionsOf(url, questionIds).catch((error: Error) => {
      if (!error.message.includes('server_busy')) throw error
      return []
    })
  }
  await first.stop()
  return house
}

function payloadOf({ path, body }: { path: string; body: string }): Payload {
  const proposal = JSON.parse(body) as SignedProposal
  const questionId = path.slice(path.lastIndexOf('/') + 1) as Hex
  const item = toBatchItem(questionId, fromSingle(questionId, proposal))
  return { key: keyOf(proposal.proposer, questionId, proposal.permit.nonce), path, body, item }
}

export const keyOf = (proposer: string, questionId: string, nonce: string): string =>
  `${proposer} ${questionId} ${nonce}`
