/**
 * A gateway with its real edges: store, lock, chain and executor key, put together as gateway.json
 * says (contract §7). `serve` puts a listener before it; `--local` hands its handler to the client
 * instead of a socket. Nothing else differs between the two.
 */
import { dirname, resolve } from 'node:path'
import { aggregating } from '../../core/chain/aggregate.js'
import type { RegistryEntry } from '../../core/chain/questions.js'
import type { Contracts } from '../../core/chain/round.js'
import { contractsOf, type GatewayConfig, parseConfig } from '../../core/gateway/config.js'
import { createGateway, type Gateway } from '../../core/gateway/gateway.js'
import type { Ledger } from '../../core/gateway/ledger/ledger.js'
import { knownKind } from '../../core/gateway/ledger/state.js'
import {
  foldLedger,
  type LedgerSettings,
  ledgerReader,
  openLedger,
  storeFormat,
} from '../../core/gateway/ledger/store.js'
import type { Desk } from '../../core/gateway/operator/desk.js'
import { followRecent, type Recent, recentKept } from '../../core/gateway/operator/recent.js'
import { mergedRegistry } from '../../core/gateway/operator/registry.js'
import { createPipeline } from '../../core/gateway/pipeline/pipeline.js'
import { parseRegistry } from '../../core/gateway/registry.js'
import type { ChainView } from '../../core/gateway/view/chain-view.js'
import { createSlugs, namedBySlugs } from '../../core/gateway/view/slugs.js'
import { createChainView, type LiveView } from '../../core/gateway/view/view.js'
import { followLedger } from '../../core/gateway/vitals.js'
import {
  type Chain,
  ChainError,
  type ExpectedChain,
  type Fetch,
  type Hex,
  type Signer,
} from '../../core/ports.js'
import type { RequestRecord } from '../../core/protocol/call.js'
import { UsageError } from '../../core/protocol/errors.js'
import type { Observation, StateLine, Vitals } from '../../core/protocol/vitals.js'
import { acquireLock, type Lock, type LockUse } from '../../core/storage/lock.js'
import { openLog } from '../../core/storage/log.js'
import { openLogReader } from '../../core/storage/reader.js'
import { readOwnJson } from '../session/inputs.js'
import { readPassword } from '../session/key-source.js'
import { fromCwd } from '../session/paths.js'
import type { Context } from '../terminal/context.js'
import { shellWord } from '../terminal/render.js'
import { deskOfView } from './operator-desk.js'
import { createVitalSigns, nodesOf } from './vital-signs.js'
import { watchedChain, watchedFiles } from './watched-edges.js'

/** A configuration, and the folder that its paths are relative to. */
export interface LoadedConfig {
  readonly config: GatewayConfig
  readonly folder: string
  /** The file, as it was named. */
  readonly path: string
}

/** An operator's command as it can be pasted: for the same configuration. */
export const operatorCommand =
  ({ path }: Pick<LoadedConfig, 'path'>) =>
  (command: string): string =>
    `\`proposer operator ${command} --config ${shellWord(path)}\``

/** Reads gateway.json. Throws UsageError naming the file and the key. */
export async function loadConfig(context: Context, path: string): Promise<LoadedConfig> {
  const file = fromCwd(context.cwd, path)
  return {
    config: parseConfig(
      await readOwnJson(context, path, 'give --config with the path of a gateway.json'),
      path,
    ),
    folder: dirname(file),
    path,
  }
}

export interface HostOptions {
  /** Home folder with the keystores, for an executor key that names an account. */
  readonly home: string
  readonly executorAccount?: string | undefined
  readonly executorPasswordFile?: string | undefined
  /** Told of each call that was answered. */
  readonly onRequest?: (record: RequestRecord) => void
  /** Told of what is to be counted, and of each change of state. */
  readonly onObservation?: (observation: Observation) => void
  readonly onState?: (line: StateLine) => void
  readonly overloaded?: () => boolean
  /** Told why nothing can start yet, once per reason. */
  readonly onWait?: (reason: string) => void
}

/** A running gateway without a listener. */
export interface HostedGateway {
  readonly gateway: Gateway
  readonly ledger: Ledger
  readonly view: LiveView
  readonly contracts: Contracts
  /** Where the operator's acts are carried out while this process holds the store. */
  readonly desk: Desk
  /** How it does now; from memory. */
  vitals(): Vitals
  /** The newest candidates from now on, until they are stopped. */
  followRecent(): Recent
  /**
   * Looks for changes that nothing tells of by itself, of nodes and readiness; to be called every
   * second or so.
   */
  look(): void
  /** Replaces what others read in the lock: who runs here and where its admin listener is. */
  setUse(use: LockUse): Promise<void>
  /**
   * Resolves with the reason when the store can no longer be written (R10, R12); never otherwise.
   */
  readonly broken: Promise<Error>
  /**
   * Drains for up to ten seconds, stops the pipeline, closes the store and lets the lock go (R23).
   */
  close(): Promise<void>
}

const drainMs = 10_000

/**
 * Takes the store's lock and runs the whole gateway. Rejects with UsageError (exit 2) or
 * StorageError (exit 74).
 */
export async function openGateway(
  context: Context,
  loaded: LoadedConfig,
  options: HostOptions,
): Promise<HostedGateway> {
  const { config, folder } = loaded
  const { clock, random, hash, files, liveness } = context
  const contracts = contractsOf(config)
  const signer = await executorSigner(context, loaded, options)
  const configured = await registryOf(context, loaded)
  const store = resolve(folder, config.store)
  const [{ requireLocalDisk }, { breathe }, { systemCurve }] = await Promise.all([
    import('../../core/io/files.js'),
    import('../../core/io/serving/load.js'),
    import('../../core/io/secp256k1.js'),
  ])
  await requireLocalDisk(store)
  const closers: (() => Promise<void>)[] = []
  const closeAll = async () => {
    for (const close of closers.splice(0).reverse()) await close()
  }
  try {
    if (signer) closers.push(async () => signer.dispose())
    const lock = await acquireLock({ files, liveness, random }, store, 'starting')
    closers.push(() => lock.release())
    const observe = options.onObservation ?? (() => undefined)
    const edge = await context.edges.chain(config.chain.rpc_urls, expectedChain(config))
    const nodes = nodesOf(edge)
    const { chain, readings } = watchedChain(edge, signer?.address, observe)
    const fold = foldLedger()
    const onNote = (text: string) => context.output.warning('high_water_unreadable', text)
    const log = await openLog(
      { files: watchedFiles(files, clock, observe), clock, hash },
      store,
      { format: storeFormat, knownKinds: knownKind, fence: () => lock.fence(), onNote },
      fold.onRecord,
    )
    closers.push(() => log.close())
    const broken = new Promise<Error>((tell) => log.onFailure(tell))
    const genesisHash = await genesisOf(
      context,
      chain,
      config,
      fold.state.info === undefined,
      options.onWait,
    )
    const ledger = await openLedger(
      { clock, random },
      log,
      fold.state,
      settingsOf(config, genesisHash),
    )
    closers.push(() => ledger.close())
    const following = followLedger({
      clock,
      ledger,
      onObservation: options.onObservation,
      onState: options.onState,
    })
    closers.push(async () => following.stop())
    const entries = mergedRegistry(configured, ledger.questions, operatorCommand(loaded))
    const registered = slugsOf(entries)
    const reads = aggregating(chain, breathe)
    const view = createChainView({ clock, chain: reads }, contracts, ledger, {
      maxHeadAgeSeconds: config.chain.max_head_age_seconds,
      entries,
    })
    closers.push(() => view.stop())
    const pipeline = createPipeline({
      ports: { clock, random },
      ledger,
      view,
      chain: fenced(reads, lock),
      signer,
      contracts,
      config,
      failpoint: context.failpoint,
    })
    closers.push(() => pipeline.stop())
    const gateway = createGateway({
      ports: { clock, random, hash },
      config,
      ledger,
      view: await namedView(context, config, registered, view),
      pipeline,
      recover: systemCurve().recover,
      breathe,
      onRequest: options.onRequest,
      overloaded: options.overloaded,
      nodes,
    })
    closers.push(() => drain(context, gateway))
    const signs = createVitalSigns({
      clock,
      chainId: config.chain.id,
      maxFeeGwei: config.executor.max_fee_gwei,
      ledger,
      following,
      heads: view.heads,
      questions: view.counts,
      readings,
      executor: signer?.address,
      nodes,
      onState: options.onState,
    })
    const desk = deskOfView(
      context,
      { folder: store, log, state: fold.state, ledger, configured },
      view,
      registered,
    )
    await view.start()
    pipeline.start()
    return {
      gateway,
      ledger,
      view,
      contracts,
      desk,
      broken,
      vitals: signs.now,
      followRecent: () =>
        followRecent({
          ledger,
          entries: fold.state.entries.newest(recentKept),
          slugOf: (id) => view.entry(id)?.slug,
        }),
      look: () => signs.look(gateway.readiness()),
      setUse: (use) => lock.setUse(use),
      close: closeAll,
    }
  } catch (error) {
    await closeAll()
    throw error
  }
}

/**
 * The gateway behind `--local` (contract §6): a fetch that is its handler. No budget is charged.
 */
export interface LocalGateway {
  readonly fetch: Fetch
  /** `local:<store id>`; the journal's origin. */
  readonly origin: string
  close(): Promise<void>
}

/**
 * `run` takes the store's lock and executes until closed; `read` opens the store for looking only,
 * runs no pipeline, and works while another process serves (R24). A store that does not exist yet
 * reads as empty; nothing is created.
 */
export async function openLocalGateway(
  context: Context,
  path: string,
  mode: 'run' | 'read',
  options: HostOptions,
): Promise<LocalGateway> {
  const loaded = await loadConfig(context, path)
  const opened =
    mode === 'run'
      ? await openNoted(context, loaded, options)
      : await openForLooking(context, loaded)
  const peer = { charged: false } as const
  return {
    fetch: (input, init) => opened.gateway.handle(new Request(input, init), peer),
    origin: `local:${opened.ledger.info?.storeId ?? 'new'}`,
    close: () => opened.close(),
  }
}

/** Others that look at the lock are told what holds it, and that it takes no acts. */
async function openNoted(
  context: Context,
  loaded: LoadedConfig,
  options: HostOptions,
): Promise<HostedGateway> {
  const hosted = await openGateway(context, loaded, options)
  try {
    await hosted.setUse({ role: 'a command with --local' })
    return hosted
  } catch (error) {
    await hosted.close()
    throw error
  }
}

async function openForLooking(
  context: Context,
  loaded: LoadedConfig,
): Promise<Pick<HostedGateway, 'gateway' | 'ledger' | 'close'>> {
  const { config, folder } = loaded
  const { clock, random, hash, files } = context
  const contracts = contractsOf(config)
  const configured = await registryOf(context, loaded)
  const fold = foldLedger()
  const reader = await openLogReader({ files, hash }, resolve(folder, config.store), {
    format: storeFormat,
    knownKinds: knownKind,
  })
  try {
    await reader.replay(fold.onRecord)
    const ledger = ledgerReader(reader, fold.state, settingsOf(config, undefined))
    const entries = mergedRegistry(configured, ledger.questions, operatorCommand(loaded))
    const chain = await context.edges.chain(config.chain.rpc_urls, expectedChain(config))
    const { breathe } = await import('../../core/io/serving/load.js')
    const reads = aggregating(chain, breathe)
    const view = createChainView({ clock, chain: reads }, contracts, ledger, {
      maxHeadAgeSeconds: config.chain.max_head_age_seconds,
      entries,
    })
    const named = await namedView(context, config, slugsOf(entries), view)
    const gateway = createGateway({ ports: { clock, random, hash }, config, ledger, view: named })
    await view.start()
    return {
      gateway,
      ledger,
      async close() {
        await view.stop()
        await ledger.close()
      },
    }
  } catch (error) {
    await reader.close()
    throw error
  }
}

export function expectedChain({ chain }: GatewayConfig): ExpectedChain {
  return { expectedChainId: chain.id, maxHeadAgeSeconds: chain.max_head_age_seconds }
}

export function settingsOf(config: GatewayConfig, genesisHash: Hex | undefined): LedgerSettings {
  return {
    chainId: config.chain.id,
    genesisHash,
    allowlist: config.admission.allowlist as Hex[],
    admissionEnabled: config.admission.enabled,
  }
}

/** The question registry of a configuration. Throws UsageError for a file that cannot be read. */
export async function registryOf(
  context: Context,
  { config, folder }: LoadedConfig,
): Promise<readonly RegistryEntry[]> {
  if (config.questions === null) return []
  const path = resolve(folder, config.questions)
  return parseRegistry(
    await readOwnJson(context, path, 'write that file, or correct "questions" in gateway.json'),
    path,
  )
}

const slugsOf = (entries: readonly RegistryEntry[]) =>
  new Set(entries.flatMap(({ slug }) => slug ?? []))

/**
 * The view as callers name questions: slugs that the registry does not have come from Gamma, where
 * the configuration says so.
 */
async function namedView(
  context: Context,
  { slugs }: GatewayConfig,
  registered: ReadonlySet<string>,
  view: LiveView,
): Promise<ChainView> {
  if (slugs.source === 'registry') return view
  const { gammaLookUp } = await import('../../core/io/gamma.js')
  const lookUp = gammaLookUp(await context.edges.fetch(), slugs.url)
  return namedBySlugs(view, createSlugs(context.clock, lookUp), registered, context.clock)
}

/**
 * The hash of block 0, which a new store records. Waits for a node as long as the store is new,
 * because it cannot be written without; an existing one is served at once, and the view goes on
 * asking. Throws UsageError `wrong_chain` where a node is on another chain.
 */
export async function genesisOf(
  context: Context,
  chain: Chain,
  config: GatewayConfig,
  isNew: boolean,
  onWait: HostOptions['onWait'],
): Promise<Hex | undefined> {
  let told: string | undefined
  for (;;) {
    try {
      const chainId = await chain.chainId()
      if (chainId !== config.chain.id) {
        throw new UsageError(
          'wrong_chain',
          `the node of chain.rpc_urls is on chain ${chainId}, chain.id is ${config.chain.id}`,
          {
            hint: 'correct chain.id or chain.rpc_urls in the configuration',
          },
        )
      }
      const genesis = await chain.block(0n)
      if (genesis) return genesis.hash
      throw new ChainError('unavailable', 'the node does not know block 0')
    } catch (error) {
      if (!(error instanceof ChainError)) throw error
      if (!isNew) return undefined
      if (told !== error.message) onWait?.(`the chain cannot be read: ${error.message}`)
      told = error.message
      await context.clock.sleep(500, context.signal)
    }
  }
}

/** No transaction leaves a process that has lost its store (robustness §2, Lock). */
function fenced(chain: Chain, lock: Lock): Chain {
  return {
    ...chain,
    async send(raw) {
      await lock.fence()
      return chain.send(raw)
    },
  }
}

/** Answers what is in flight, but for no longer than ten seconds. */
async function drain(context: Context, gateway: Gateway): Promise<void> {
  const done = new AbortController()
  const ended = gateway.drain().finally(() => done.abort())
  const late = context.clock.sleep(drainMs, done.signal).catch((error: unknown) => {
    // Aborted because everything has been answered in time.
    if (!done.signal.aborted) throw error
  })
  await Promise.race([ended, late])
}

/**
 * Executor key: keystore flag, then PROPOSER_EXECUTOR_KEY_FILE, then gateway.json (contract §7).
 */
async function executorSigner(
  context: Context,
  { config, folder }: LoadedConfig,
  options: HostOptions,
): Promise<(Signer & { dispose(): void }) | undefined> {
  if (!config.pipeline.enabled || !config.executor.enabled) return undefined
  const { readKeyFile, signerFromKey } = await import('../../core/io/keys.js')
  const fromKeystore = async (name: string) => {
    const { readKeystore, unlockKeystore } = await import('../../core/io/keystore.js')
    await readKeystore(context.files, options.home, name)
    const password = await readPassword(
      context,
      options.executorPasswordFile,
      `Password of the executor ${name}: `,
      '--executor-password-file',
    )
    return signerFromKey(await unlockKeystore(context.files, options.home, name, password))
  }
  if (options.executorAccount !== undefined) return fromKeystore(options.executorAccount)
  const variable = context.env.PROPOSER_EXECUTOR_KEY_FILE
  if (variable !== undefined && variable !== '')
    return signerFromKey(await readKeyFile(fromCwd(context.cwd, variable)))
  if (config.executor.key_file !== undefined)
    return signerFromKey(await readKeyFile(resolve(folder, config.executor.key_file)))
  if (config.executor.account !== undefined) return fromKeystore(config.executor.account)
  throw new UsageError('no_executor_key', 'the executor is enabled and has no key', {
    hint: 'set executor.key_file or executor.account in gateway.json, or PROPOSER_EXECUTOR_KEY_FILE, or executor.enabled=false',
  })
}
