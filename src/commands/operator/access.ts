/**
 * How an operator's command reaches a store. Looking opens it read-only whoever holds it (R24).
 * Acting goes through the gateway that serves it, or takes its lock for as long as the act takes
 * (R12).
 */
import type { Command } from 'commander'
import type { RegistryEntry } from '../../core/chain/questions.js'
import type { Ledger, LedgerSettings } from '../../core/gateway/ledger/ledger.js'
import { openSharedStore, openStore } from '../../core/gateway/ledger/open-store.js'
import type { ActName, ActResult } from '../../core/gateway/operator/acts.js'
import { shownRegistry } from '../../core/gateway/operator/registry.js'
import {
  adminTokenFile,
  expectedChain,
  type LoadedConfig,
  loadConfig,
  registryOf,
  settingsOf,
} from '../../core/host/config-file.js'
import { genesisOf } from '../../core/host/gateway-host.js'
import { readPlaced } from '../../core/host/held-store.js'
import { operatorServiceOfChain, type ServedStore } from '../../core/host/operator-service.js'
import { folderBytes } from '../../core/host/store-size.js'
import { createClosers } from '../../core/io/closers.js'
import { fromCwd } from '../../core/io/home-paths.js'
import type { SqlDatabase } from '../../core/ports.js'
import {
  RejectedError,
  StorageError,
  UnavailableError,
  UsageError,
} from '../../core/protocol/errors.js'
import { isCandidateId } from '../../core/protocol/words.js'
import { acquireLock, holderText, type LockHolder, readHolder } from '../../core/storage/lock.js'
import { requireTables } from '../../core/storage/postgres/schema.js'
import type { StoredRecord } from '../../core/storage/record-log.js'
import { type GlobalFlags, timeoutMs } from '../session/settings.js'
import type { Context } from '../terminal/context.js'
import { type DryRunFlag, showDryRun } from '../terminal/dry-run.js'
import { shellWord } from '../terminal/render.js'
import { postAct } from './remote.js'

export interface OperatorFlags extends GlobalFlags {
  readonly config?: string
}

export interface Site {
  readonly loaded: LoadedConfig
  /** The store's folder, or its database without user and password. */
  readonly store: string
  /** --timeout. */
  readonly timeoutMs: number | undefined
  /** Acts are reported and not carried out. */
  readonly isDryRun: boolean
  /** A command of this group as it can be pasted: for the same configuration. */
  named(command: string): string
}

/** What gateway.json names. UsageError where it cannot be read. */
export async function siteOf(context: Context, command: Command): Promise<Site> {
  const { config, timeout, dryRun } = command.optsWithGlobals<OperatorFlags & DryRunFlag>()
  return { ...(await siteAt(context, config, timeout)), isDryRun: dryRun === true }
}

/** The same by the flags' values. */
export async function siteAt(
  context: Context,
  config: string | undefined,
  timeout: string | undefined,
): Promise<Site> {
  const limitMs = timeoutMs(timeout)
  if (config === undefined && !(await context.files.exists(fromCwd(context.cwd, 'gateway.json'))))
    throw new UsageError('no_configuration', 'gateway.json not found in this folder', {
      hint: 'give --config <gateway.json>, or run the command in its folder',
    })
  const loaded = await loadConfig(context, config ?? 'gateway.json')
  const flag = config === undefined ? '' : ` --config ${shellWord(config)}`
  return {
    loaded,
    store: await storeName(context, loaded),
    timeoutMs: limitMs,
    isDryRun: false,
    named: (text) => `\`proposer operator ${text}${flag}\``,
  }
}

export interface StoreView {
  readonly ledger: Ledger
  readonly registry: readonly RegistryEntry[]
  /** Who works on the store now. */
  readonly holder: LockHolder | undefined
}

/**
 * Opens the store for looking, feeds every record to `collectors` too, and closes it after `work`.
 * Nothing is created or locked (R24). A slug that keeps a gateway from starting is a warning.
 */
export async function look<T>(
  context: Context,
  { loaded, store, named }: Site,
  collectors: readonly { onRecord(record: StoredRecord): void }[],
  work: (view: StoreView) => Promise<T>,
): Promise<T> {
  const configured = await registryOf(context, loaded)
  const settings = settingsOf(loaded.config, undefined)
  const collect = (record: StoredRecord) => {
    for (const collector of collectors) collector.onRecord(record)
  }
  const ledger = await readPlaced(context, loaded, settings, collect)
  try {
    const holder = loaded.place.kind === 'folder' ? await readHolder(context, store) : undefined
    const { entries, conflict } = shownRegistry(configured, ledger.questions, named)
    if (conflict)
      context.output.warning(
        conflict.code,
        `${conflict.detail}, so it is shown for neither and \`serve\` does not start: ${conflict.meta.hint ?? ''}`,
      )
    return await work({ ledger, registry: entries, holder })
  } finally {
    await ledger.close()
  }
}

/** The admin listener of the gateway that serves the store; `undefined` where none does. */
export const adminUrlOf = (holder: LockHolder | undefined): string | undefined =>
  holder?.state === 'alive' ? holder.adminUrl : undefined

export interface Acted {
  readonly result: ActResult
  /** Whether a serving gateway carried it out. */
  readonly through: 'gateway' | 'store'
}

/** Another operator's command holds the lock only for its act. */
const operatorLimitMs = 20_000
/** A gateway that starts takes acts once it has read its chain, which may be never. */
const startLimitMs = 5_000
const pauseMs = 25

/**
 * Carries out one act: by the admin listener where a gateway serves, else under the store's own
 * lock. Two operators at once come one after the other. A gateway that is starting is waited for.
 * --timeout bounds the waiting and the gateway's response, not an act that this process has begun
 * itself. `undefined` with --dry-run, which only shows what would be done. Rejects with what the
 * act rejects with, and with StorageError `store_locked` naming a holder that takes no acts.
 */
export async function act(
  context: Context,
  site: Site,
  name: ActName,
  body: object,
): Promise<Acted | undefined> {
  const { clock, signal } = context
  const { store, loaded } = site
  if (loaded.place.kind === 'database')
    return actOnShared(context, site, loaded.place.url, name, body)
  const beganMs = clock.monotonicMs()
  const spentMs = () => clock.monotonicMs() - beganMs
  for (;;) {
    const holder = await readHolder(context, store)
    const url = adminUrlOf(holder)
    if (site.isDryRun) {
      const through = url === undefined ? 'store' : 'gateway'
      const shown = { act: name, store, through, ...body }
      return showDryRun(context, `carry out ${name} on ${store}, through the ${through}`, shown)
    }
    if (url === undefined) {
      const result = await actOnStore(context, site, name, body, spentMs)
      if (result !== undefined) return { result, through: 'store' }
    } else {
      const left = site.timeoutMs && Math.max(1, site.timeoutMs - spentMs())
      const call = { url, tokenFile: adminTokenFile(loaded), name, body, timeoutMs: left }
      const result = await postAct(context, call)
      // Nobody listens there: the gateway has gone since its lock was read.
      if (result !== undefined) return { result, through: 'gateway' }
    }
    if (spentMs() > (site.timeoutMs ?? operatorLimitMs))
      throw inUse(
        store,
        holder === undefined ? 'another process' : holderText(holder),
        'wait until it is done, then retry',
      )
    await clock.sleep(pauseMs, signal)
  }
}

/** Where a gateway of this configuration takes acts on this machine, if one runs. */
export const adminUrlHere = ({ config }: LoadedConfig): string =>
  `http://127.0.0.1:${config.admin.port}`

/**
 * Where looks are answered: by the gateway that serves the store, else `undefined`. Gateways on one
 * database are asked on this machine alone.
 */
export async function servingUrl(
  context: Context,
  { store, loaded }: Site,
): Promise<{ readonly url: string | undefined; readonly holder: LockHolder | undefined }> {
  if (loaded.place.kind === 'database') return { url: adminUrlHere(loaded), holder: undefined }
  const holder = await readHolder(context, store)
  return { url: adminUrlOf(holder), holder }
}

/** By the admin listener of this machine where there is one, else by the store itself. */
async function actOnShared(
  context: Context,
  site: Site,
  storeUrl: string,
  name: ActName,
  body: object,
): Promise<Acted | undefined> {
  const { store, loaded, timeoutMs } = site
  const tokenFile = adminTokenFile(loaded)
  const url = adminUrlHere(loaded)
  if (site.isDryRun) {
    const shown = { act: name, store, ...body }
    return showDryRun(context, `carry out ${name} on ${store}`, shown)
  }
  if (await context.files.exists(tokenFile)) {
    const result = await postAct(context, { url, tokenFile, name, body, timeoutMs })
    if (result !== undefined) return { result, through: 'gateway' }
  }
  const database = await storeIn(context, storeUrl)
  const result = await actOnOpen(context, loaded, name, body, (settings) =>
    openSharedStore(context, database, { settings }),
  )
  return { result, through: 'store' }
}

/** A database whose tables are there. StorageError where they are not. */
async function storeIn(context: Context, url: string): Promise<SqlDatabase> {
  const database = await context.edges.database(url)
  await requireTables(database)
  return database
}

const storeName = async ({ edges }: Context, { place }: LoadedConfig): Promise<string> =>
  place.kind === 'folder' ? place.folder : (await edges.database(place.url)).name

/** `undefined` where the holder of the lock will be gone, or take acts, in a moment. */
async function actOnStore(
  context: Context,
  site: Site,
  name: ActName,
  body: object,
  spentMs: () => number,
): Promise<ActResult | undefined> {
  const { store } = site
  const closers = createClosers()
  try {
    const lock = await acquireLock(context, store, 'operator')
    closers.add(lock.release)
    return await actUnderLock(context, site, lock.fence, name, body)
  } catch (error) {
    if (!(error instanceof StorageError && error.code === 'store_locked')) throw error
    const holder = await readHolder(context, store)
    const isGone = holder === undefined || holder.state === 'free' || holder.state === 'dead'
    if (isGone || holder.role === 'operator' || adminUrlOf(holder) !== undefined) return undefined
    if (holder.role !== 'starting') throw error
    if (spentMs() <= (site.timeoutMs ?? startLimitMs)) return undefined
    throw inUse(
      store,
      `${holderText(holder)}: it accepts changes once it has read its chain`,
      'retry when `serve` has printed its URL, or set --timeout to wait for it; if that does not help, check chain.rpc_urls',
    )
  } finally {
    await closers.close()
  }
}

const inUse = (store: string, by: string, hint: string) =>
  new StorageError('store_locked', `${store} is in use by ${by}`, { hint })

async function actUnderLock(
  context: Context,
  { loaded, store }: Site,
  fence: () => Promise<void>,
  name: ActName,
  body: object,
): Promise<ActResult> {
  const { requireLocalDisk } = await import('../../core/io/files.js')
  await requireLocalDisk(store)
  return actOnOpen(context, loaded, name, body, async (settings) => ({
    ...(await openStore(context, store, { fence, settings })),
    bytes: () => folderBytes(context.files, store),
  }))
}

async function actOnOpen(
  context: Context,
  loaded: LoadedConfig,
  name: ActName,
  body: object,
  open: (settings: (isNew: boolean) => Promise<LedgerSettings>) => Promise<ServedStore>,
): Promise<ActResult> {
  const { config } = loaded
  const configured = await registryOf(context, loaded)
  const chain = () => context.edges.chain(config.chain.rpc_urls, expectedChain(config))
  // Only a new store has to know which chain it is for.
  const opened = await open(async (isNew) =>
    settingsOf(
      config,
      isNew ? await genesisOf(context, await chain(), config, true, unreachable) : undefined,
    ),
  )
  try {
    const served = { ...opened, configured }
    return await operatorServiceOfChain(context, served, loaded, chain).run(name, body)
  } finally {
    await opened.ledger.close()
  }
}

function unreachable(reason: string): never {
  throw new UnavailableError(
    'state_unavailable',
    `this store is new, and its chain cannot be determined: ${reason}`,
    { hint: 'check chain.rpc_urls, then retry; nothing was changed' },
  )
}

/**
 * The id of a candidate as the store writes it. UsageError `invalid_identifier` for what is none,
 * before anything is opened.
 */
export function candidateIdOf(text: string): string {
  const id = text.toLowerCase()
  if (isCandidateId(id)) return id
  throw new UsageError(
    'invalid_identifier',
    `<candidate-id> "${text.slice(0, 80)}" is not a candidate id`,
    {
      hint: 'give the UUID that the acknowledgement gave; `proposer operator candidates list` shows them',
    },
  )
}

/** A candidate that the store does not hold. Exit 3. */
export function unknownCandidate(site: Site, id: string): RejectedError {
  return new RejectedError(
    'candidate_not_found',
    `candidate ${id.slice(0, 80)} not found in the store`,
    {
      hint: `list them with ${site.named('candidates list')}, or give --config of the gateway that answered`,
    },
  )
}
