/**
 * `serve --check` on the store: could it be opened for this chain? It is opened for looking only,
 * and nothing is made (R24).
 */
import { join, resolve } from 'node:path'
import type { RegistryEntry } from '../../core/chain/questions.js'
import { knownKind, type LedgerState } from '../../core/gateway/ledger/state.js'
import { foldLedger, ledgerReader, storeFormat } from '../../core/gateway/ledger/store.js'
import { mergedRegistry } from '../../core/gateway/operator/registry.js'
import type { Address, BlockHeader, Hex } from '../../core/ports.js'
import { ProposerError } from '../../core/protocol/errors.js'
import { holderText, type LockHolder, readHolder } from '../../core/storage/lock.js'
import { readFormat } from '../../core/storage/manifest.js'
import { openLogReader } from '../../core/storage/reader.js'
import type { Context } from '../terminal/context.js'
import { counted } from '../terminal/render.js'
import { type Finding, fault, orFault, right, told, warning } from './findings.js'
import { type LoadedConfig, operatorCommand } from './gateway-host.js'

export interface StoreChecked {
  readonly findings: readonly Finding[]
  /** Who may propose: the store's list over gateway.json's (contract §7). */
  readonly allowlist: readonly Hex[]
  /** Who runs on it now. */
  readonly holder: LockHolder | undefined
  /** False where an operator has paused admission. */
  readonly admissionEnabled: boolean
}

/** What a store is compared with; absent what is not known. */
export interface StoreSurroundings {
  /** Of the chain that gateway.json names; without it only the chain id is compared. */
  readonly genesisHash: Hex | undefined
  readonly head: BlockHeader | undefined
  /** Of the questions file. */
  readonly questions: readonly RegistryEntry[] | undefined
  readonly executor: Address | undefined
}

/** Looks only. Throws nothing that the store or the disk is to blame for. */
export async function checkStore(
  context: Context,
  loaded: LoadedConfig,
  around: StoreSurroundings,
): Promise<StoreChecked> {
  const { config, folder } = loaded
  const { files, liveness, hash } = context
  const store = resolve(folder, config.store)
  const configured = config.admission.allowlist as Hex[]
  const unread = { allowlist: configured, holder: undefined, admissionEnabled: true }
  const without = (...findings: Finding[]): StoreChecked => ({ findings, ...unread })
  const [{ requireLocalDisk }, { probeFolder, freeBytes }] = await Promise.all([
    import('../../core/io/files.js'),
    import('../../core/io/probes.js'),
  ])
  try {
    const state = await probeFolder(store, files.list)
    if (state.kind === 'unusable') {
      const hint = `give the user of the gateway the right to write ${state.path}, or set store to another folder`
      return without(
        fault('store', `${store} cannot be written: ${state.path} (${state.code})`, hint),
      )
    }
    await requireLocalDisk(store)
    const space = spaceFindings(store, await freeBytes(store))
    if (state.kind === 'new')
      return without(right('store', `${store} does not exist yet and can be made`), ...space)

    const findings: Finding[] = [...space, ...(await tokenFindings(context, store))]
    const holder = await readHolder({ files, liveness }, store)
    if (holder?.state === 'alive') {
      findings.push(told('store_holder', `${holderText(holder)} has the store open now`))
    } else if (holder?.state === 'unknown') {
      const detail = `whether process ${holder.pid} on ${holder.host} still has the store open cannot be told`
      findings.push(
        warning(
          'store_holder',
          detail,
          'make sure that that process is gone: `proposer serve` says how its lock is released',
        ),
      )
    }
    // A reader is content with less than a writer.
    await readFormat(files, store, storeFormat, 'write')
    const fold = foldLedger()
    const reader = await openLogReader({ files, hash }, store, {
      format: storeFormat,
      knownKinds: knownKind,
    })
    try {
      await reader.replay(fold.onRecord)
      const { info, entries } = fold.state
      const settings = {
        chainId: config.chain.id,
        genesisHash: around.genesisHash,
        allowlist: configured,
        admissionEnabled: config.admission.enabled,
      }
      const { allowlist } = ledgerReader(reader, fold.state, settings)
      findings.push(
        right(
          'store',
          `${store} is sound and can be written; it holds ${counted(entries.size, 'candidate')}`,
        ),
      )
      if (info)
        findings.push(
          right(
            'store_chain',
            `the store belongs to chain ${info.chainId} (genesis ${info.genesisHash})`,
          ),
        )
      findings.push(...(await privacy(store)), ...(await stateFindings(fold.state, loaded, around)))
      return {
        findings,
        allowlist: [...allowlist],
        holder,
        admissionEnabled: fold.state.admissionEnabled,
      }
    } catch (error) {
      return { ...unread, findings: [...findings, storeFault(error)], holder }
    } finally {
      await reader.close()
    }
  } catch (error) {
    return without(storeFault(error))
  }
}

/**
 * With less than this a gateway takes nothing: it probes with that much before it writes again
 * (robustness §2, Write error).
 */
const leastFreeBytes = 1024 * 1024

/**
 * What the free space of its disk means for a store; nothing where there is enough, or where it is
 * not told.
 */
export function spaceFindings(store: string, freeBytes: number | undefined): readonly Finding[] {
  if (freeBytes === undefined || freeBytes >= leastFreeBytes) return []
  return [
    fault(
      'disk',
      `the disk of ${store} is full: ${freeBytes} bytes are left`,
      'make room there, or set store to a folder on another disk',
    ),
  ]
}

/**
 * A gateway makes the token where there is none, and does not start with one that may be known to
 * others (R5).
 */
async function tokenFindings({ files }: Context, store: string): Promise<readonly Finding[]> {
  if (!(await files.exists(join(store, 'admin.token')))) return []
  const { readAdminToken } = await import('../../core/io/serving/admin-token.js')
  const findings: Finding[] = []
  await orFault('admin_token', findings, () => readAdminToken(store))
  return findings
}

/** What the store holds, beside the configuration and the chain that it is to be served with. */
async function stateFindings(
  { finalized, questions: changes, slots }: LedgerState,
  loaded: LoadedConfig,
  { head, questions, executor }: StoreSurroundings,
): Promise<readonly Finding[]> {
  const findings: Finding[] = []
  if (questions !== undefined) {
    await orFault('questions', findings, async () =>
      mergedRegistry(questions, changes, operatorCommand(loaded)),
    )
  }
  if (finalized !== undefined && head !== undefined && head.number < finalized.number) {
    const detail = `the node's head ${head.number} is below block ${finalized.number}, which was final when the store was last served`
    findings.push(
      fault('finality', detail, 'that node lags or is wrong: replace it in chain.rpc_urls'),
    )
  }
  for (const slot of slots.values()) {
    if (executor === undefined || slot.executor === executor) continue
    const detail = `nonce ${slot.nonce} of the former executor ${slot.executor} is not settled yet; until then the gateway is not ready`
    findings.push(
      warning(
        'former_executor',
        detail,
        'start with the old key once more, until its transactions are final',
      ),
    )
  }
  return findings
}

/** Others on this machine have no business with signatures (R5). */
async function privacy(store: string): Promise<readonly Finding[]> {
  const { permissionsOf } = await import('../../core/io/file-modes.js')
  const mode = await permissionsOf(store)
  return mode === undefined || (mode & 0o077) === 0
    ? []
    : [warning('store', `others may look into ${store}`, `chmod 700 ${store}`)]
}

function storeFault(error: unknown): Finding {
  if (!(error instanceof ProposerError)) throw error
  const check = error.code === 'store_other_chain' ? 'store_chain' : 'store'
  return fault(
    check,
    error.detail,
    error.meta.hint ?? 'look at the folder that store names in gateway.json',
  )
}
