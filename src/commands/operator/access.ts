/**
 * How an operator's command reaches a store: looking opens it read-only whoever holds it (R24);
 * acting goes through the gateway that serves it, or takes its lock for as long as the act takes
 * (R12).
 */
import { resolve } from 'node:path'
import type { Command } from 'commander'
import type { RegistryEntry } from '../../core/chain/questions.js'
import { compactLedger } from '../../core/gateway/ledger/compaction.js'
import type { Ledger } from '../../core/gateway/ledger/ledger.js'
import { knownKind } from '../../core/gateway/ledger/state.js'
import {
  foldLedger,
  ledgerReader,
  openLedger,
  storeFormat,
} from '../../core/gateway/ledger/store.js'
import type { ActName, ActResult } from '../../core/gateway/operator/acts.js'
import { shownRegistry } from '../../core/gateway/operator/registry.js'
import {
  expectedChain,
  type LoadedConfig,
  loadConfig,
  registryOf,
  settingsOf,
} from '../../core/host/config-file.js'
import { genesisOf } from '../../core/host/gateway-host.js'
import { deskOfChain } from '../../core/host/operator-service.js'
import {
  RejectedError,
  StorageError,
  UnavailableError,
  UsageError,
} from '../../core/protocol/errors.js'
import { isCandidateId } from '../../core/protocol/words.js'
import {
  acquireLock,
  holderText,
  type Lock,
  type LockHolder,
  readHolder,
} from '../../core/storage/lock.js'
import { openLog } from '../../core/storage/log.js'
import { openLogReader } from '../../core/storage/reader.js'
import type { StoredRecord } from '../../core/storage/record-log.js'
import { type DryRunFlag, showDryRun } from '../dry-run.js'
import { fromCwd } from '../session/paths.js'
import { type GlobalFlags, timeoutMs } from '../session/settings.js'
import type { Context } from '../terminal/context.js'
import { shellWord } from '../terminal/render.js'
import { postAct } from './remote.js'

export interface OperatorFlags extends GlobalFlags {
  readonly config?: string
}

export interface Site {
  readonly loaded: LoadedConfig
  /** The store's folder. */
  readonly store: string
  /** --timeout. */
  readonly timeoutMs: number | undefined
  /** Acts are told and not carried out. */
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
  const patience = timeoutMs(timeout)
  if (config === undefined && !(await context.files.exists(fromCwd(context.cwd, 'gateway.json')))) {
    throw new UsageError(
      'no_configuration',
      'there is no gateway.json in this folder, and no other one is named',
      {
        hint: 'give --config <gateway.json>, or run the command in its folder',
      },
    )
  }
  const loaded = await loadConfig(context, config ?? 'gateway.json')
  const flag = config === undefined ? '' : ` --config ${shellWord(config)}`
  return {
    loaded,
    store: resolve(loaded.folder, loaded.config.store),
    timeoutMs: patience,
    isDryRun: false,
    named: (text) => `\`proposer operator ${text}${flag}\``,
  }
}

export interface Looked {
  readonly ledger: Ledger
  readonly registry: readonly RegistryEntry[]
  /** Who works on the store now. */
  readonly holder: LockHolder | undefined
}

/**
 * Opens the store for looking, feeds every record to `collectors` too, and closes it after `work`.
 * Nothing is created or locked (R24). A slug that keeps a gateway from starting is told, and keeps
 * nobody from looking.
 */
export async function look<T>(
  context: Context,
  { loaded, store, named }: Site,
  collectors: readonly { onRecord(record: StoredRecord): void }[],
  work: (looked: Looked) => Promise<T>,
): Promise<T> {
  const { files, hash, liveness } = context
  const configured = await registryOf(context, loaded)
  const fold = foldLedger()
  const reader = await openLogReader({ files, hash }, store, {
    format: storeFormat,
    knownKinds: knownKind,
  })
  try {
    await reader.replay((record) => {
      fold.onRecord(record)
      for (const collector of collectors) collector.onRecord(record)
    })
    const ledger = ledgerReader(reader, fold.state, settingsOf(loaded.config, undefined))
    const holder = await readHolder({ files, liveness }, store)
    const { entries, conflict } = shownRegistry(configured, ledger.questions, named)
    if (conflict) {
      const { detail, meta } = conflict
      context.output.warning(
        conflict.code,
        `${detail}, so it is shown for neither and \`serve\` does not start: ${meta.hint ?? ''}`,
      )
    }
    return await work({ ledger, registry: entries, holder })
  } finally {
    await reader.close()
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

/**
 * Another operator's command holds the lock only for its act; one that takes longer than this is
 * named.
 */
const patienceMs = 20_000
/**
 * A gateway that starts takes acts once it has read its chain, which may be never: this long is
 * waited for it.
 */
const startMs = 5_000
const pauseMs = 25
const operatorRole = 'operator'
const startingRole = 'starting'

/**
 * Carries out one act: by the admin listener where a gateway serves, else under the store's own
 * lock. Two operators at once come one after the other; a gateway that is starting is waited for.
 * --timeout bounds the waiting and the gateway's answer, not an act that this process has begun
 * itself. `undefined` with --dry-run, which only tells what would be done. Rejects with what the
 * act rejects with, and with StorageError `store_locked` naming a holder that takes no acts.
 */
export async function act(
  context: Context,
  site: Site,
  name: ActName,
  body: object,
): Promise<Acted | undefined> {
  const { clock, files, liveness, random, signal } = context
  const beganMs = clock.monotonicMs()
  const leftMs = () =>
    site.timeoutMs === undefined
      ? undefined
      : Math.max(1, site.timeoutMs - (clock.monotonicMs() - beganMs))
  for (;;) {
    const holder = await readHolder({ files, liveness }, site.store)
    const url = adminUrlOf(holder)
    if (site.isDryRun) {
      const through = url === undefined ? 'store' : 'gateway'
      return showDryRun(context, `carry out ${name} on ${site.store}, through the ${through}`, {
        act: name,
        store: site.store,
        through,
        ...body,
      })
    }
    if (url !== undefined) {
      const answer = await postAct(context, {
        url,
        store: site.store,
        name,
        body,
        timeoutMs: leftMs(),
      })
      // Nobody listens there: the gateway has gone since its lock was read.
      if (answer !== undefined) return { result: answer, through: 'gateway' }
    } else {
      const lock = await acquireLock({ files, liveness, random }, site.store, operatorRole).catch(
        (error: unknown) => {
          if (error instanceof StorageError && error.code === 'store_locked') return error
          throw error
        },
      )
      if (!(lock instanceof StorageError))
        return { result: await withLock(context, site, lock, name, body), through: 'store' }
      const now = await readHolder({ files, liveness }, site.store)
      const isGone = now === undefined || now.state === 'free' || now.state === 'dead'
      if (!isGone && now.role === startingRole) {
        if (clock.monotonicMs() - beganMs > (site.timeoutMs ?? startMs))
          throw stillStarting(site, now)
      } else if (!isGone && now.role !== operatorRole && adminUrlOf(now) === undefined) throw lock
    }
    if (clock.monotonicMs() - beganMs > (site.timeoutMs ?? patienceMs))
      throw stillHeld(site, holder)
    await clock.sleep(pauseMs, signal)
  }
}

function stillStarting({ store }: Site, holder: LockHolder): StorageError {
  return new StorageError(
    'store_locked',
    `${store} is in use by ${holderText(holder)}: it takes acts once it has read its chain`,
    {
      hint: 'run the same command again when `serve` has printed its URL, or give --timeout with the seconds to wait for it; if it stays so, look at chain.rpc_urls',
    },
  )
}

function stillHeld({ store }: Site, holder: LockHolder | undefined): StorageError {
  const who = holder === undefined ? 'another process' : holderText(holder)
  return new StorageError('store_locked', `${store} is in use by ${who}`, {
    hint: 'wait until it is done, then run the same command again',
  })
}

/** Opens the store for writing under `lock`, acts, and lets both go. */
async function withLock(
  context: Context,
  { loaded, store }: Site,
  lock: Lock,
  name: ActName,
  body: object,
): Promise<ActResult> {
  const { clock, random, hash, files } = context
  const { config } = loaded
  try {
    const { requireLocalDisk } = await import('../../core/io/files.js')
    await requireLocalDisk(store)
    const configured = await registryOf(context, loaded)
    const fold = foldLedger()
    const log = await openLog(
      { files, clock, hash },
      store,
      { format: storeFormat, knownKinds: knownKind, fence: () => lock.fence() },
      fold.onRecord,
    )
    try {
      const chain = () => context.edges.chain(config.chain.rpc_urls, expectedChain(config))
      // Only a new store has to be told which chain it is for.
      const genesis =
        fold.state.info === undefined
          ? await genesisOf(context, await chain(), config, true, unreachable)
          : undefined
      const ledger = await openLedger(
        { clock, random },
        log,
        fold.state,
        settingsOf(config, genesis),
      )
      return await deskOfChain(
        context,
        {
          folder: store,
          log,
          ledger,
          configured,
          compact: (sinceMs) => compactLedger(log, fold.state, sinceMs),
        },
        loaded,
        chain,
      ).run(name, body)
    } finally {
      await log.close()
    }
  } finally {
    await lock.release()
  }
}

function unreachable(reason: string): never {
  throw new UnavailableError(
    'state_unavailable',
    `this store is new, and which chain it is for cannot be found out: ${reason}`,
    {
      hint: 'look at chain.rpc_urls, then run the same command again; nothing was changed',
    },
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
    `the store holds no candidate ${id.slice(0, 80)}`,
    {
      hint: `list them with ${site.named('candidates list')}, or give --config of the gateway that answered`,
    },
  )
}
