/** A gateway with its real edges, put together as gateway.json says (contract §7). */
import { aggregating } from '#chain/aggregate'
import { knownToken } from '#chain/profiles'
import type { RegistryEntry } from '#chain/questions'
import { configuredContracts, type GatewayConfig } from '#gateway/config'
import { createBudget } from '#gateway/front/budget'
import { budgetLimits, createGateway, type Gateway } from '#gateway/gateway'
import type { Ledger } from '#gateway/ledger/ledger'
import { openSharedStore } from '#gateway/ledger/store'
import { mergedRegistry, shownRegistry } from '#gateway/operator/registry'
import { createOperatorService } from '#gateway/operator/service'
import { createPipeline } from '#gateway/pipeline/pipeline'
import { fenced, followLedger, instrumentedChain } from '#gateway/status/health'
import { followRecent } from '#gateway/status/recent'
import { createSlugs, namedBySlugs } from '#gateway/view/slugs'
import { awaited, createChainView, type LiveView, pause } from '#gateway/view/view'
import { type Closers, opening } from '#io/closers'
import { systemCurve } from '#io/keys'
import type { RpcChain } from '#io/rpc/rpc'
import { createTurns, yieldToEvents } from '#io/serving/load'
import { type Chain, ChainError, type Fetch, type Hex, type Machine } from '#ports'
import type { RequestRecord } from '#protocol/call'
import { UnavailableError, UsageError } from '#protocol/errors'
import { once } from '#protocol/once'
import type { StateLine } from '#protocol/vitals'
import { requireTables } from '#storage/postgres/schema'
import {
  expectedChain,
  type LoadedConfig,
  loadConfig,
  pastedCommand,
  registryOf,
  seenFile,
  settingsOf,
} from './config-file.js'
import { type ExecutorKeySource, executorSigner } from './executor-key.js'
import {
  type HeldStore,
  type HoldOptions,
  holdDatabase,
  holdFolder,
  onceReachable,
  openToLook,
  type ToLook,
} from './held-store.js'
import { openReceipts } from './receipts.js'
import { createStatus, nodesOf } from './status.js'

export interface HostOptions extends Pick<HoldOptions, 'onObservation' | 'onWait' | 'onWarning'> {
  readonly executorKey: ExecutorKeySource
  readonly onRequest?: ((record: RequestRecord) => void) | undefined
  readonly onState?: ((line: StateLine) => void) | undefined
  readonly unreadMs?: (() => number) | undefined
}

export type HostedGateway = Awaited<ReturnType<typeof openHostedGateway>>

const drainMs = 10_000

export const openHostedGateway = (machine: Machine, loaded: LoadedConfig, options: HostOptions) =>
  opening(async (closers) => {
    const edges = await openEdges(machine, loaded, options, closers)
    const { store, nodes, rpc, chain, turn, readings, signer, configured } = edges
    const { clock } = machine
    const { config } = loaded
    const { ledger, log } = store
    const broken = new Promise<Error>((tell) => log.onFailure(tell))
    const following = followLedger({ ...options, clock, ledger })
    closers.add(following.stop)
    const entries = mergedRegistry(configured, ledger.questions, pastedCommand(loaded))
    const view = viewOf({ clock, chain, turn }, config, ledger, entries, awaited(ledger))
    closers.add(view.stop)
    closers.add(ledger.onChange(view.follow))
    const execution = store.execution((leading, fence) =>
      createPipeline({
        ports: machine,
        ...{ ledger: leading, view, signer, config, turn },
        contracts: configuredContracts(config),
        chain: fenced(chain, fence),
        recover: systemCurve().recover,
        failpoint: machine.failpoint,
      }),
    )
    closers.add(execution.stop)
    const receipts = await openReceipts(machine, loaded, ledger)
    const budget = store.budget ?? createBudget(budgetLimits(config))
    const gateway = createGateway({
      ports: machine,
      config,
      ledger,
      receipts,
      view: await namedView(machine, config, view),
      budget,
      pipeline: execution,
      recover: systemCurve().recover,
      yieldToEvents,
      onRequest: options.onRequest,
      unreadMs: options.unreadMs,
      nodes,
    })
    closers.add(() => drain(machine, gateway))
    const status = createStatus({
      ...{ clock, config, ledger, following, view, budget, readings, nodes, rpc },
      readiness: gateway.readiness,
      executor: signer?.address,
      cluster: store.cluster,
      onState: options.onState,
    })
    await view.start()
    execution.start()
    return {
      ...{ gateway, ledger, view, broken, nodes },
      operator: operatorServiceOn(machine, store, configured, () => view),
      status: status.now,
      followRecent: () => followRecent(ledger, clock, (id) => knownQuestion(config, view, id)),
      look() {
        receipts?.look()
        status.look(gateway.readiness())
      },
      storeBytes: store.bytes,
      setUse: store.setUse,
      stopExecuting: execution.stop,
      /** Drains for up to ten seconds (R23). */
      close: closers.close,
    }
  })

function knownQuestion({ chain }: GatewayConfig, view: LiveView, id: Hex) {
  const round = view.peek(id)?.round
  const token = round?.token ?? knownToken(chain.id, chain.tokens[0] ?? '')
  return { slug: view.entry(id)?.slug, outcomes: round?.outcomes, token }
}

async function openEdges(
  machine: Machine,
  loaded: LoadedConfig,
  { executorKey, onObservation, onWait, onWarning }: HostOptions,
  closers: Closers,
) {
  const { config } = loaded
  const signer = await executorSigner(machine, loaded, executorKey)
  if (signer) closers.add(signer.dispose)
  const configured = await registryOf(machine, loaded)
  const edge = await machine.edges.chain(config.chain.rpc_urls, expectedChain(config))
  const { chain, readings } = instrumentedChain(edge, signer?.address, onObservation)
  const hold: HoldOptions = {
    signer,
    onObservation,
    onWarning,
    onWait,
    seenFile: seenFile(loaded),
    // A new store waits for a node; an existing one is served at once.
    async settings(isNew) {
      const read = () => genesisOf(chain, config)
      const reasonOf = (error: unknown) =>
        isNew && error instanceof ChainError
          ? `the chain cannot be read: ${error.message}`
          : undefined
      const genesis = onceReachable(machine, read, reasonOf, onWait)
      return settingsOf(config, await genesis.catch(unlessUnread))
    },
  }
  const { place } = loaded
  const store =
    place.kind === 'folder'
      ? await holdFolder(machine, place.folder, hold, closers)
      : await holdDatabase(machine, place.url, loaded, hold, closers)
  const turn = createTurns()
  const reads = aggregating(chain, turn)
  const rpc = 'usage' in edge ? (edge as RpcChain).usage : undefined
  return { signer, configured, store, chain: reads, turn, nodes: nodesOf(edge), rpc, readings }
}

/** Behind `--local` (contract §6): no budget is charged. `read` only looks (R24). */
export async function openLocalGateway(
  machine: Machine,
  path: string,
  mode: 'run' | 'read',
  options: HostOptions,
) {
  const loaded = await loadConfig(machine, path)
  const { gateway, ledger, close } =
    mode === 'run'
      ? await openNoted(machine, loaded, options, 'a command with --local')
      : await openForLooking(machine, loaded)
  const fetch: Fetch = (input, init) => gateway.handle(new Request(input, init), { charged: false })
  return { fetch, origin: `local:${ledger.info?.storeId ?? 'new'}`, close }
}

export const openNoted = (
  machine: Machine,
  loaded: LoadedConfig,
  options: HostOptions,
  role: string,
) =>
  opening(async (closers) => {
    const hosted = await openHostedGateway(machine, loaded, options)
    closers.add(hosted.close)
    await hosted.setUse({ role })
    return hosted
  })

const openForLooking = (machine: Machine, loaded: LoadedConfig) =>
  opening(async (closers) => {
    const { config } = loaded
    const looked = await openToLook(machine, loaded)
    closers.add(looked.close)
    const { ledger } = looked
    const open = await lookThrough(machine, config, looked, closers)
    const view = await namedView(machine, config, open)
    const gateway = createGateway({ ports: machine, config, ledger, view })
    return { gateway, ledger, close: closers.close }
  })

async function lookThrough(
  { clock }: Machine,
  config: GatewayConfig,
  { ledger, entries, chain }: Pick<ToLook, 'ledger' | 'entries' | 'chain'>,
  closers: Closers,
) {
  const ports = { clock, chain: aggregating(chain, yieldToEvents) }
  const view = viewOf(ports, config, ledger, entries, () => false)
  closers.add(view.stop)
  await view.start()
  return view
}

export const openToAct = (machine: Machine, loaded: LoadedConfig) =>
  opening(async (closers) => {
    const { edges } = machine
    const { config, place } = loaded
    const configured = await registryOf(machine, loaded)
    const open = () => edges.chain(config.chain.rpc_urls, expectedChain(config))
    const silent = (error: unknown) => chainSilent('block 0 for this new store', error)
    const settings = async (isNew: boolean) =>
      settingsOf(config, isNew ? await genesisOf(await open(), config).catch(silent) : undefined)
    let store: Parameters<typeof operatorServiceOn>[1]
    if (place.kind === 'database') {
      const database = await edges.database(place.url)
      await requireTables(database)
      store = await openSharedStore(machine, database, { settings })
      closers.add(store.ledger.close)
    } else {
      const hold = { signer: undefined, settings }
      const held = await holdFolder(machine, place.folder, hold, closers)
      await held.setUse({ role: 'operator' })
      store = held
    }
    const { ledger } = store
    const look = once(async () => {
      const { entries } = shownRegistry(configured, ledger.questions)
      return lookThrough(machine, config, { ledger, entries, chain: await open() }, closers)
    })
    const operator = operatorServiceOn(machine, store, configured, look)
    return { operator, close: closers.close }
  })

/** The chain is looked at only where an act needs it. */
function operatorServiceOn(
  { clock }: Machine,
  { ledger, compact, bytes }: Pick<HeldStore, 'ledger' | 'compact' | 'bytes'>,
  configured: readonly RegistryEntry[],
  viewed: () => LiveView | Promise<LiveView>,
) {
  const from = async <T>(what: string, ask: (view: LiveView) => Promise<T>): Promise<T> => {
    try {
      return await ask(await viewed())
    } catch (error) {
      return chainSilent(what, error)
    }
  }
  return createOperatorService({
    clock,
    ledger,
    configured,
    isKnown: (entry) =>
      from('the question', async ({ heads, faults, rounds }) => {
        const head = heads()?.latest.number
        const [fault] = faults()
        if (head === undefined || fault !== undefined)
          throw new ChainError('unavailable', fault ?? 'the chain has not been read yet')
        return (await rounds.read(entry.questionId, entry, head)) !== undefined
      }),
    code: () =>
      from('the contracts', async ({ pins, codeNow }) => ({ pins: pins(), now: await codeNow() })),
    async compact(keepSinceMs) {
      const before = await bytes()
      await compact(keepSinceMs)
      return { before, after: await bytes() }
    },
  })
}

function chainSilent(what: string, cause: unknown): never {
  if (!(cause instanceof ChainError)) throw cause
  const detail = `${what} cannot be read from the chain now: ${cause.message}`
  const hint = 'nothing was changed; check chain.rpc_urls, then retry'
  throw new UnavailableError('state_unavailable', detail, { httpStatus: 503, cause, hint })
}

function unlessUnread(error: unknown) {
  if (error instanceof ChainError) return undefined
  throw error
}

const viewOf = (
  ports: Parameters<typeof createChainView>[0],
  config: GatewayConfig,
  ledger: Ledger,
  entries: readonly RegistryEntry[],
  waits: () => boolean,
) =>
  createChainView(ports, configuredContracts(config), ledger, {
    maxHeadAgeSeconds: config.chain.max_head_age_seconds,
    implementations: config.chain.implementations,
    entries,
    waits,
  })

async function namedView({ clock, edges }: Machine, { slugs }: GatewayConfig, view: LiveView) {
  if (slugs.source === 'registry') return view
  const { gammaLookUp } = await import('#io/gamma')
  const lookUp = gammaLookUp(await edges.fetch(), slugs.url)
  return namedBySlugs(view, createSlugs(clock, lookUp), clock)
}

async function genesisOf(chain: Chain, { chain: { id } }: GatewayConfig) {
  const chainId = await chain.chainId()
  if (chainId !== id)
    throw new UsageError(
      'wrong_chain',
      `the node of chain.rpc_urls is on chain ${chainId}, chain.id is ${id}`,
      'correct chain.id or chain.rpc_urls in the configuration',
    )
  const genesis = await chain.block(0n)
  if (genesis) return genesis.hash
  throw new ChainError('unavailable', 'the node does not know block 0')
}

async function drain({ clock }: Machine, gateway: Gateway) {
  const done = new AbortController()
  const late = pause(clock, drainMs, done.signal)
  await Promise.race([gateway.drain().finally(() => done.abort()), late])
}
