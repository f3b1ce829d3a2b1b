/** `serve --check` on the store: could it be opened for this chain? It is opened for looking only, and nothing is made (R24). */
import { resolve } from 'node:path'
import { knownKind } from '../../core/gateway/ledger/state.js'
import { foldLedger, ledgerReader, storeFormat } from '../../core/gateway/ledger/store.js'
import type { Hex } from '../../core/ports.js'
import { ProposerError } from '../../core/protocol/errors.js'
import { type LockHolder, readHolder } from '../../core/storage/lock.js'
import { readFormat } from '../../core/storage/manifest.js'
import { openLogReader } from '../../core/storage/reader.js'
import type { Context } from '../context.js'
import { type Finding, fault, right, told, warning } from './findings.js'
import type { LoadedConfig } from './gateway-host.js'

export interface StoreChecked {
  readonly findings: readonly Finding[]
  /** Who may propose: the store's list over gateway.json's (contract §7). */
  readonly allowlist: readonly Hex[]
  /** Who runs on it now. */
  readonly holder: LockHolder | undefined
}

/** `genesisHash` of the chain that gateway.json names, where a node told it; without it only the chain id is compared. */
export async function checkStore(context: Context, { config, folder }: LoadedConfig, genesisHash: Hex | undefined): Promise<StoreChecked> {
  const { files, liveness, hash } = context
  const store = resolve(folder, config.store)
  const configured = config.admission.allowlist as Hex[]
  const without = (...findings: Finding[]): StoreChecked => ({ findings, allowlist: configured, holder: undefined })
  const [{ requireLocalDisk }, { probeFolder }] = await Promise.all([import('../../core/io/files.js'), import('../../core/io/probes.js')])
  try {
    const state = await probeFolder(store, files.list)
    if (state.kind === 'unusable') {
      const hint = `give the user of the gateway the right to write ${state.path}, or set store to another folder`
      return without(fault('store', `${store} cannot be written: ${state.path} (${state.code})`, hint))
    }
    await requireLocalDisk(store)
    if (state.kind === 'new') return without(right('store', `${store} does not exist yet and can be made`))

    const findings: Finding[] = []
    const holder = await readHolder({ files, liveness }, store)
    if (holder?.state === 'alive') {
      findings.push(told('store_holder', `process ${holder.pid} on ${holder.host} has the store open now (${holder.note})`))
    } else if (holder?.state === 'unknown') {
      const detail = `whether process ${holder.pid} on ${holder.host} still has the store open cannot be told`
      findings.push(warning('store_holder', detail, 'make sure that that process is gone: `proposer serve` says how its lock is released'))
    }
    // A reader is content with less than a writer.
    await readFormat(files, store, storeFormat, 'write')
    const fold = foldLedger()
    const reader = await openLogReader({ files, hash }, store, { format: storeFormat, knownKinds: knownKind })
    try {
      await reader.replay(fold.onRecord)
      const { info, entries } = fold.state
      const settings = { chainId: config.chain.id, genesisHash, allowlist: configured, admissionEnabled: config.admission.enabled }
      const { allowlist } = ledgerReader(reader, fold.state, settings)
      findings.push(right('store', `${store} is sound and can be written; it holds ${entries.size} candidates`))
      if (info) findings.push(right('store_chain', `the store belongs to chain ${info.chainId} (genesis ${info.genesisHash})`))
      findings.push(...(await privacy(store)))
      return { findings, allowlist: [...allowlist], holder }
    } catch (error) {
      return { findings: [...findings, storeFault(error)], allowlist: configured, holder }
    } finally {
      await reader.close()
    }
  } catch (error) {
    return without(storeFault(error))
  }
}

/** Others on this machine have no business with signatures (R5). */
async function privacy(store: string): Promise<readonly Finding[]> {
  const { permissionsOf } = await import('../../core/io/file-modes.js')
  const mode = await permissionsOf(store)
  return mode === undefined || (mode & 0o077) === 0 ? [] : [warning('store', `others may look into ${store}`, `chmod 700 ${store}`)]
}

function storeFault(error: unknown): Finding {
  if (!(error instanceof ProposerError)) throw error
  const check = error.code === 'store_other_chain' ? 'store_chain' : 'store'
  return fault(check, error.detail, error.meta.hint ?? 'look at the folder that store names in gateway.json')
}
