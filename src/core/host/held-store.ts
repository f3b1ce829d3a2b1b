/**
 * The store that a gateway writes, and who executes on it: in a folder the process that holds its
 * lock, in a database the gateway that holds the lease. Or who only looks into it.
 */

import { configuredContracts } from '#gateway/config'
import { type Budget, mostSharedItems, sharedBudget } from '#gateway/front/budget'
import { budgetLimits } from '#gateway/gateway'
import type { Ledger, LedgerSettings } from '#gateway/ledger/ledger'
import {
  type OpenStore,
  openSharedStore,
  openStore,
  readSharedStore,
  readStore,
} from '#gateway/ledger/store'
import { mergedRegistry } from '#gateway/operator/registry'
import type { Pipeline } from '#gateway/pipeline/pipeline'
import { instrumentedFiles } from '#gateway/status/health'
import { pause } from '#gateway/view/view'
import { type Closers, opening } from '#io/closers'
import { permissionsOf, requireLocalDisk } from '#io/files'
import type { Clock, Files, Machine, Signer, SqlDatabase } from '#ports'
import { StorageError } from '#protocol/errors'
import type { StatusDocument } from '#protocol/status-document'
import { programVersion } from '#protocol/version'
import type { Observation } from '#protocol/vitals'
import { joinPath, sizeOf } from '#storage/durable'
import { errorCode, storageErrorOf } from '#storage/failures'
import { acquireLock, holderText, type LockUse } from '#storage/lock'
import { type Leadership, type Lease, leaseOf, startLeadership } from '#storage/postgres/leadership'
import {
  isGone,
  joinStore,
  type MemberBudget,
  membersOf,
  otherBudget,
} from '#storage/postgres/members'
import { openStoreTables, requireTables } from '#storage/postgres/schema'
import { keepSeen, readSeen, type SeenFile } from '#storage/postgres/seen'
import { isAway } from '#storage/postgres/session'
import type { SharedLog } from '#storage/postgres/shared-log'
import { openWindows, type SharedWindows } from '#storage/postgres/windows'
import type { StoredRecord } from '#storage/record-log'
import {
  expectedChain,
  type LoadedConfig,
  loadConfig,
  pastedCommand,
  registryOf,
  settingsOf,
} from './config-file.js'

export interface HeldStore extends OpenStore {
  bytes(): Promise<number>
  setUse(use: LockUse): Promise<void>
  readonly budget: Budget | undefined
  readonly cluster:
    | {
        readonly id: string
        epoch(): number | undefined
        /** `undefined` while the database cannot be asked. */
        standing(): StatusDocument['cluster']
      }
    | undefined
  execution(
    make: (ledger: Ledger, fence: () => Promise<void>) => Pipeline,
  ): Pick<Pipeline, 'faults' | 'start' | 'stop'>
}

export interface HoldOptions {
  readonly signer: Signer | undefined
  readonly onObservation?: ((observation: Observation) => void) | undefined
  readonly onWarning?: ((code: string, detail: string) => void) | undefined
  /** Without it a database that is away is an error. */
  readonly onWait?: ((reason: string) => void) | undefined
  readonly seenFile?: SeenFile | undefined
  settings(isNew: boolean): Promise<LedgerSettings>
}

export async function holdFolder(
  machine: Machine,
  folder: string,
  { onObservation, onWarning, settings }: HoldOptions,
  closers: Closers,
): Promise<HeldStore> {
  await requireLocalDisk(folder)
  const lock = await acquireLock(machine, folder, 'starting')
  closers.add(lock.release)
  if (lock.leftBy !== undefined)
    onWarning?.(
      'lock_left_behind',
      `${holderText(lock.leftBy)} ended without freeing ${folder}: what it had acknowledged is served again`,
    )
  const { files, clock } = machine
  const watched = { ...machine, files: instrumentedFiles(files, clock, onObservation) }
  const onNote = (text: string) => onWarning?.('high_water_unreadable', text)
  const store = await openStore(watched, folder, { fence: lock.fence, onNote, settings })
  const mode = (await permissionsOf(folder)) ?? 0
  if ((mode & 0o022) !== 0)
    onWarning?.(
      'store_writable',
      `${folder} can be changed by others: its mode is ${mode.toString(8)}; give it to one user alone: chmod 700 ${folder}`,
    )
  closers.add(() => store.ledger.close())
  return {
    ...store,
    bytes: () => folderBytes(files, folder),
    setUse: lock.setUse,
    budget: undefined,
    cluster: undefined,
    execution: (make) => make(store.ledger, lock.fence),
  }
}

/** `store_rolled_back` where it lacks what this machine has seen. */
export async function holdDatabase(
  machine: Machine,
  url: string,
  { config }: LoadedConfig,
  options: HoldOptions,
  closers: Closers,
): Promise<HeldStore> {
  const { clock, random } = machine
  const { signer, onObservation, onWait, onWarning, seenFile } = options
  const database = await machine.edges.database(url)
  const store = await onceReachable(
    machine,
    () => openSeenStore(machine, database, options),
    (error) => (onWait !== undefined && isAway(error) ? error.detail : undefined),
    onWait,
  )
  const { ledger, log } = store
  closers.add(() => ledger.close())
  const storeId = ledger.info?.storeId
  if (seenFile !== undefined && storeId !== undefined) {
    const onNote = (text: string) => onWarning?.('seen_not_written', text)
    const keeper = await keepSeen(machine, seenFile, { log, storeId }, onNote)
    closers.add(keeper.stop)
  }
  const limits = budgetLimits(config)
  const other = otherBudget(await membersOf(log), limits)
  if (other !== undefined)
    onWarning?.(
      'budgets_differ',
      `another gateway of ${database.name} allows ${budgetWords(other)}, this one ${budgetWords(limits)}: they charge the same windows; give all the same "budget"`,
    )
  const id = random.uuid()
  const { host } = machine.liveness
  const member = await joinStore(
    { clock, log },
    {
      ...{ id, host, version: programVersion, budget: limits },
      ...{ adminUrl: undefined, executor: signer?.address },
    },
  )
  closers.add(member.stop)
  const windows = openWindows(database, { ...limits, mostSharedItems })
  closers.add(async () => windows.close())
  let leadership: Leadership | undefined
  const watch = watchCluster({ clock, log }, () => leadership?.epoch !== undefined)
  closers.add(watch.stop)
  return {
    ...store,
    setUse: ({ adminUrl }) => member.setAdminUrl(adminUrl),
    budget: sharedBudget(
      limits,
      checkedCharge(windows, log, clock, onObservation),
      clock.monotonicMs,
    ),
    cluster: { id, epoch: () => leadership?.epoch, standing: watch.now },
    execution: (make) => {
      let pipeline: Pipeline | undefined
      return {
        start() {
          leadership ??= startLeadership({
            clock,
            random,
            log,
            id,
            standsBack: signer === undefined,
            obstacle: () => otherExecutor(ledger, signer),
            hasFailed: () => pipeline?.ended,
            onGained(epoch) {
              pipeline = make(underEpoch(ledger, epoch), () => fenceOf(leadership))
              pipeline.start()
            },
            async onLost() {
              await pipeline?.stop()
              pipeline = undefined
            },
          })
        },
        faults() {
          const obstacle = leadership?.obstacle
          return obstacle === undefined ? (pipeline?.faults() ?? []) : [obstacle]
        },
        stop: async () => leadership?.stop(),
      }
    },
  }
}

const watchMs = 3_000

function watchCluster({ clock, log }: { clock: Clock; log: SharedLog }, leads: () => boolean) {
  let heard: { readonly lease: Lease; readonly gateways: number } | undefined
  const stopping = new AbortController()
  const look = async () => {
    const members = await membersOf(log)
    const gateways = members.filter((one) => !isGone(one)).length
    heard = { lease: await leaseOf(log), gateways }
  }
  const loop = (async () => {
    while (!stopping.signal.aborted) {
      await look().catch((error: unknown) => {
        if (!(error instanceof StorageError)) throw error
        heard = undefined
      })
      await pause(clock, watchMs, stopping.signal)
    }
  })()
  return {
    now: () =>
      heard && {
        leads: leads(),
        leader: heard.lease.leader ?? null,
        epoch: heard.lease.epoch,
        lag_records: Math.max(0, heard.lease.n - log.applied),
        gateways: heard.gateways,
      },
    async stop() {
      stopping.abort()
      await loop
    },
  }
}

const budgetWords = ({ windowMs, perClientItems, globalItems }: MemberBudget) =>
  `${perClientItems} items of one address and ${globalItems} of all in ${windowMs / 1_000} s`

async function openSeenStore(
  machine: Machine,
  database: SqlDatabase,
  { seenFile, settings, onObservation }: HoldOptions,
) {
  const seen = seenFile && (await readSeen(machine, seenFile))
  if (seen === undefined) await openStoreTables(database)
  else await requireTables(database, seen)
  return openSharedStore(machine, database, { settings, onObservation, seen })
}

const retryMs = 500

export async function onceReachable<T>(
  { clock, signal }: Pick<Machine, 'clock' | 'signal'>,
  work: () => Promise<T>,
  reasonOf: (error: unknown) => string | undefined,
  onWait?: (reason: string) => void,
) {
  let told: string | undefined
  for (;;) {
    try {
      return await work()
    } catch (error) {
      const reason = reasonOf(error)
      if (reason === undefined) throw error
      if (told !== reason) onWait?.(reason)
      told = reason
      await clock.sleep(retryMs, signal)
    }
  }
}

export async function readPlaced(
  machine: Machine,
  { place }: Pick<LoadedConfig, 'place'>,
  settings: LedgerSettings,
  onRecord?: (record: StoredRecord) => void,
): Promise<Ledger> {
  if (place.kind === 'folder') return readStore(machine, place.folder, settings, onRecord)
  const database = await machine.edges.database(place.url)
  await requireTables(database)
  return readSharedStore(machine, database, settings, onRecord && { onRecord })
}

/** Who has seen more than the database holds says nothing from memory (R10). */
const checkedCharge =
  (
    windows: SharedWindows,
    log: SharedLog,
    { monotonicMs }: Clock,
    onObservation: HoldOptions['onObservation'],
  ): SharedWindows['charge'] =>
  async (client, items) => {
    const seen = log.applied
    const startMs = monotonicMs()
    const charged = await windows.charge(client, items)
    onObservation?.({ kind: 'charged', seconds: (monotonicMs() - startMs) / 1_000 })
    if (charged.end < seen) await log.catchUp()
    return charged
  }

const fenceOf = (leadership: Leadership | undefined) => leadership?.fence() ?? Promise.resolve()

/** Commits are fenced off once another leads. */
const underEpoch = (ledger: Ledger, epoch: number) =>
  Object.create(ledger, {
    commit: {
      value: (...[changes, basis]: Parameters<Ledger['commit']>) =>
        ledger.commit(changes, basis, epoch),
    },
  }) as Ledger

/** Nonces of another key cannot be driven by this one (R3). */
function otherExecutor(ledger: Ledger, signer: Signer | undefined) {
  const other = ledger.slots().find(({ executor }) => executor !== signer?.address)
  return (
    other &&
    `transactions of the executor ${other.executor} are open, but this gateway has ${signer ? `the key of ${signer.address}` : 'no executor key'}`
  )
}

/** Records and snapshots: they are what grows. */
export async function folderBytes(files: Files, folder: string) {
  try {
    const names = (await files.list(folder)).filter((name) => /^(log|snap|torn)-/.test(name))
    const sizes = names.map((name) =>
      sizeOf(files, joinPath(folder, name)).catch((error: unknown) => {
        if (errorCode(error) === 'ENOENT') return 0
        throw error
      }),
    )
    return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
  } catch (error) {
    throw storageErrorOf(`${folder} cannot be measured`, error)
  }
}

export type ToLook = Awaited<ReturnType<typeof openToLook>>

export const openToLook = (machine: Machine, loaded: LoadedConfig) =>
  opening(async (closers) => {
    const { config } = loaded
    const configured = await registryOf(machine, loaded)
    const ledger = await readPlaced(machine, loaded, settingsOf(config, undefined))
    closers.add(ledger.close)
    const entries = mergedRegistry(configured, ledger.questions, pastedCommand(loaded))
    const chain = await machine.edges.chain(config.chain.rpc_urls, expectedChain(config))
    return { ledger, entries, chain, contracts: configuredContracts(config), close: closers.close }
  })

export async function readRegistry(machine: Machine, path: string) {
  const { close, ...known } = await openToLook(machine, await loadConfig(machine, path))
  await close()
  return known
}
