import type { RegistryEntry } from '#chain/questions'
import type { GatewayConfig } from '#gateway/config'
import type { Ledger, LedgerFacts, LedgerSettings } from '#gateway/ledger/ledger'
import { readStore, storeLog } from '#gateway/ledger/open-store'
import { mergedRegistry } from '#gateway/operator/registry'
import { permissionsOf, requireLocalDisk } from '#io/files'
import { freeBytes, probeFolder } from '#io/probes'
import { readAdminToken } from '#io/serving/admin-token'
import type { BlockHeader, Machine } from '#ports'
import { ProposerError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { counted } from '#protocol/text'
import { joinPath } from '#storage/durable'
import { holderText, type LockHolder, readHolder } from '#storage/lock'
import { readFormat } from '#storage/manifest'
import { type Finding, fail, guarded, note, pass, warn } from './finding.js'

export interface StoreChecked {
  readonly findings: readonly Finding[]
  /** Who may propose: the store's list over gateway.json's (contract §7). */
  readonly allowlist: readonly Address[]
  readonly holder: LockHolder | undefined
  /** False where an operator has paused admission. */
  readonly admissionEnabled: boolean
  readonly implementations: LedgerFacts['implementations']
}

export type StoreContent = Pick<StoreChecked, 'allowlist' | 'admissionEnabled' | 'implementations'>

/** The store, and what it is compared with; absent what is not known. */
export interface StoreToCheck {
  readonly folder: string
  readonly config: GatewayConfig
  readonly command: (text: string) => string
  /** Without the genesis hash only the chain id is compared. */
  readonly settings: LedgerSettings
  readonly head: BlockHeader | undefined
  readonly questions: readonly RegistryEntry[] | undefined
  readonly executor: Address | undefined
}

/** What holds as long as no store says otherwise. */
export const unread = (
  { admission: { allowlist } }: GatewayConfig,
  findings: readonly Finding[],
) => ({
  ...{ findings, allowlist, holder: undefined, admissionEnabled: true },
  implementations: new Map(),
})

/** Throws nothing that the store or the disk is to blame for. */
export async function checkStore(machine: Machine, store: StoreToCheck) {
  const { folder, config } = store
  const findings: Finding[] = []
  const found = unread(config, findings)
  let holder: LockHolder | undefined
  try {
    const state = await probeFolder(folder, machine.files.list)
    if (state.kind === 'unusable') {
      const detail = `${folder} cannot be written: ${state.path} (${state.code})`
      const fix = `give the user of the gateway the right to write ${state.path}, or set store to another folder`
      return { ...found, findings: [fail('store', detail, fix)] }
    }
    await requireLocalDisk(folder)
    const space = spaceFindings(folder, await freeBytes(folder))
    if (state.kind === 'new') {
      const detail = `${folder} does not exist yet and can be created`
      return { ...found, findings: [pass('store', detail), ...space] }
    }
    findings.push(...space, ...(await tokenFindings(machine, folder)))
    holder = await readHolder(machine, folder)
    findings.push(...holderFindings(holder))
    // A reader is content with less than a writer.
    await readFormat(machine.files, folder, storeLog.format, 'write')
    const ledger = await readStore(machine, folder, store.settings)
    const content = await closedContent(ledger)
    findings.push(...contentFindings(ledger, `${folder} is sound and can be written`))
    findings.push(...(await privacy(folder)), ...(await stateFindings(ledger, store)))
    return { ...found, ...content, holder }
  } catch (error) {
    return { ...found, findings: [...findings, storeFault(error)], holder }
  }
}

export function contentFindings(ledger: Ledger, isSound: string) {
  const held = Object.values(ledger.counts()).reduce((sum, count) => sum + count, 0)
  const found = pass('store', `${isSound}; it holds ${counted(held, 'candidate')}`)
  if (!ledger.info) return [found]
  const { chainId, genesisHash } = ledger.info
  const detail = `the store belongs to chain ${chainId} (genesis ${genesisHash})`
  return [found, pass('store_chain', detail)]
}

export async function closedContent(ledger: Ledger) {
  await ledger.close()
  return {
    allowlist: [...ledger.allowlist],
    admissionEnabled: ledger.admissionSwitch,
    implementations: ledger.implementations,
  }
}

/** A gateway probes with that much before it writes again (robustness §2, Write error). */
const leastFreeBytes = 1024 * 1024

export function spaceFindings(store: string, free: number | undefined) {
  if (free === undefined || free >= leastFreeBytes) return []
  const fix = 'free some space there, or set store to a folder on another disk'
  return [fail('disk', `the disk of ${store} is full: ${free} bytes are free`, fix)]
}

/** A gateway does not start with one that may be known to others (R5). */
async function tokenFindings({ files }: Machine, store: string) {
  if (!(await files.exists(joinPath(store, 'admin.token')))) return []
  return guarded('admin_token', async () => {
    await readAdminToken(joinPath(store, 'admin.token'))
    return []
  })
}

function holderFindings(holder: LockHolder | undefined) {
  if (holder?.state !== 'alive' && holder?.state !== 'unknown') return []
  const who = `process ${holder.pid} on ${holder.host}`
  if (holder.state === 'alive')
    return [note('store_holder', `${holderText(holder)} has the store open now`)]
  const detail = `${who} may still have the store open`
  const fix = 'make sure that process is gone; `proposer serve` shows how to release its lock'
  return [warn('store_holder', detail, fix)]
}

/** What a store holds, beside the configuration and the chain that it is to be served with. */
export async function stateFindings(
  { finalized, questions: changes, slots }: LedgerFacts,
  { head, questions, executor, command }: Omit<StoreToCheck, 'folder'>,
) {
  const registry =
    questions === undefined
      ? []
      : await guarded('questions', async () => {
          mergedRegistry(questions, changes, command)
          return []
        })
  const finality =
    finalized === undefined || head === undefined || head.number >= finalized.number
      ? []
      : [
          fail(
            'finality',
            `the node's head ${head.number} is below block ${finalized.number}, which was final when the store was last in use`,
            'that node lags or is wrong: replace it in chain.rpc_urls',
          ),
        ]
  const former = slots().filter((slot) => executor !== undefined && slot.executor !== executor)
  return [
    ...registry,
    ...finality,
    ...former.map((slot) =>
      warn(
        'former_executor',
        `nonce ${slot.nonce} of the former executor ${slot.executor} is not settled yet; until then the gateway is not ready`,
        'start once more with the old key, until its transactions are final',
      ),
    ),
  ]
}

/** Others on this machine have no business with signatures (R5). */
async function privacy(store: string) {
  const mode = await permissionsOf(store)
  return mode === undefined || (mode & 0o077) === 0
    ? []
    : [
        warn(
          'store',
          `other users can ${(mode & 0o022) === 0 ? 'read' : 'change'} ${store}`,
          `chmod 700 ${store}`,
        ),
      ]
}

/** The finding that an error of ours amounts to; another one is thrown. */
export function storeFault(error: unknown) {
  if (!(error instanceof ProposerError)) throw error
  const { code, detail, meta } = error
  const fix = meta.hint ?? 'check the folder set as store in gateway.json'
  return fail(code === 'store_other_chain' ? 'store_chain' : 'store', detail, fix)
}
