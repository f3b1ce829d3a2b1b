import type { RegistryEntry } from '#chain/questions'
import type { Ledger, LedgerFacts, LedgerSettings } from '#gateway/ledger/ledger'
import { readSharedStore, readStore } from '#gateway/ledger/store'
import { storeLog } from '#gateway/ledger/writer'
import { mergedRegistry } from '#gateway/operator/registry'
import { permissionsOf, requireLocalDisk } from '#io/files'
import { freeBytes, probeFolder } from '#io/probes'
import { readAdminToken } from '#io/serving/admin-token'
import type { BlockHeader, Machine, SqlRow, SqlSession } from '#ports'
import { ProposerError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { counted } from '#protocol/text'
import { joinPath } from '#storage/durable'
import { holderText, type LockHolder, readHolder } from '#storage/lock'
import { readFormat } from '#storage/manifest'
import {
  lackingRights,
  lookAtStore,
  requireTables,
  type StoreState,
} from '#storage/postgres/schema'
import { readSeen, type SeenFile } from '#storage/postgres/seen'
import { connectTo, notReached } from '#storage/postgres/session'
import { type Finding, type Found, fail, guarded, listed, note, pass, warn } from './finding.js'

export interface StoreToCheck {
  readonly place:
    | { readonly kind: 'folder'; readonly folder: string }
    | { readonly kind: 'database'; readonly url: string }
  readonly seenFile: SeenFile
  readonly command: (text: string) => string
  /** Without the genesis hash only the chain id is compared. */
  readonly settings: LedgerSettings
  readonly head: BlockHeader | undefined
  readonly questions: readonly RegistryEntry[] | undefined
  readonly executor: Address | undefined
}

interface CheckedStore {
  readonly findings: readonly Finding[]
  ledger?: Ledger
  holder?: LockHolder | undefined
}
type Look = (...found: readonly Found[]) => undefined

/** Throws nothing that the store is to blame for. */
export async function checkStore(machine: Machine, store: StoreToCheck): Promise<CheckedStore> {
  const findings: Finding[] = []
  const found: CheckedStore = { findings }
  const add: Look = (...more) => void findings.push(...more.flatMap(listed))
  const { place } = store
  try {
    const ledger =
      place.kind === 'folder'
        ? await lookIntoFolder(machine, place.folder, store, found, add)
        : await lookIntoDatabase(machine, place.url, store, add)
    if (ledger === undefined) return found
    await ledger.close()
    add(await stateFindings(ledger, store))
    return Object.assign(found, { ledger })
  } catch (error) {
    if (!(error instanceof ProposerError)) throw error
    const { code, detail, meta } = error
    const fix = meta.hint ?? 'check the folder set as store in gateway.json'
    add(fail(code === 'store_other_chain' ? 'store_chain' : 'store', detail, fix))
    return found
  }
}

async function lookIntoFolder(
  machine: Machine,
  folder: string,
  { settings }: StoreToCheck,
  found: CheckedStore,
  add: Look,
) {
  const state = await probeFolder(folder, machine.files.list)
  if (state.kind === 'unusable') {
    const detail = `${folder} cannot be written: ${state.path} (${state.code})`
    const fix = `give the user of the gateway the right to write ${state.path}, or set store to another folder`
    return add(fail('store', detail, fix))
  }
  await requireLocalDisk(folder)
  add(spaceFindings(folder, await freeBytes(folder)))
  if (state.kind === 'new')
    return add(pass('store', `${folder} does not exist yet and can be created`))
  add(await tokenFindings(machine, folder))
  found.holder = await readHolder(machine, folder)
  add(holderFinding(found.holder))
  // A reader is content with less.
  await readFormat(machine.files, folder, storeLog.format, 'write')
  const ledger = await readStore(machine, folder, settings)
  add(contentFindings(ledger, `${folder} is sound and can be written`))
  // Signatures are there (R5).
  const mode = (await permissionsOf(folder)) ?? 0
  const may = (mode & 0o022) === 0 ? 'read' : 'change'
  if ((mode & 0o077) !== 0)
    add(warn('store', `other users can ${may} ${folder}`, `chmod 700 ${folder}`))
  return ledger
}

function contentFindings({ counts, info }: LedgerFacts, isSound: string) {
  const held = Object.values(counts()).reduce((sum, count) => sum + count, 0)
  const of = info && `chain ${info.chainId} (genesis ${info.genesisHash})`
  return [
    pass('store', `${isSound}; it holds ${counted(held, 'candidate')}`),
    of === undefined ? undefined : pass('store_chain', `the store belongs to ${of}`),
  ]
}

/** A gateway probes with that much (robustness §2, Write error). */
const leastFreeBytes = 1024 * 1024

export function spaceFindings(store: string, free: number | undefined) {
  if (free === undefined || free >= leastFreeBytes) return []
  const fix = 'free some space there, or set store to a folder on another disk'
  return [fail('disk', `the disk of ${store} is full: ${free} bytes are free`, fix)]
}

/** A gateway does not start with it (R5). */
async function tokenFindings({ files }: Machine, store: string) {
  const token = joinPath(store, 'admin.token')
  if (!(await files.exists(token))) return undefined
  return guarded('admin_token', async () => void (await readAdminToken(token)))
}

function holderFinding(holder: LockHolder | undefined) {
  if (holder?.state !== 'alive' && holder?.state !== 'unknown') return undefined
  const id = 'store_holder'
  const who = holderText(holder)
  if (holder.state === 'alive') return note(id, `${who} has the store open now`)
  const fix = 'make sure that process is gone; `proposer serve` shows how to release its lock'
  return warn(id, `${who} may still have the store open`, fix)
}

async function stateFindings(
  { finalized, questions: changes, slots }: LedgerFacts,
  { head, questions, executor, command }: StoreToCheck,
) {
  const registry = await guarded(
    'questions',
    async () => void (questions && mergedRegistry(questions, changes, command)),
  )
  const former = slots().filter((slot) => executor !== undefined && slot.executor !== executor)
  const isBehind = finalized !== undefined && head !== undefined && head.number < finalized.number
  return [
    ...registry,
    isBehind
      ? fail(
          'finality',
          `the node's head ${head.number} is below block ${finalized.number}, which was final when the store was last in use`,
          'that node lags or is wrong: replace it in chain.rpc_urls',
        )
      : undefined,
    ...former.map((slot) =>
      warn(
        'former_executor',
        `nonce ${slot.nonce} of the former executor ${slot.executor} is not settled yet; until then the gateway is not ready`,
        'start once more with the old key, until its transactions are final',
      ),
    ),
  ]
}

async function lookIntoDatabase(
  machine: Machine,
  url: string,
  { seenFile, settings }: StoreToCheck,
  add: Look,
) {
  const database = await machine.edges.database(url)
  let session: SqlSession | undefined
  try {
    session = await connectTo(database)
    add(await serverFindings(session))
    const state = await lookAtStore(session, database.name)
    add(await tablesFinding(session, database.name, state))
    const seen = await readSeen(machine, seenFile)
    if (seen !== undefined && state.kind === 'empty') await requireTables(database, seen)
    if (state.kind !== 'current') return undefined
    const ledger = await readSharedStore(machine, database, settings, { seen })
    add(contentFindings(ledger, `${database.name} is sound`))
    return ledger
  } catch (error) {
    throw notReached(database.name, error)
  } finally {
    session?.destroy()
  }
}

const settingsQuery = `
SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('synchronous_standby_names') AS standby_names,
       (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS standbys,
       pg_has_role('pg_read_all_stats', 'USAGE') AS sees_standbys`

async function serverFindings(session: SqlSession) {
  const [row = {}] = await session.query(settingsQuery)
  const unsafe = ['fsync', 'full_page_writes', 'synchronous_commit'].filter(
    (name) => row[name] === 'off',
  )
  return [
    pass('store_server', `PostgreSQL ${String(row.version)}`),
    ...unsafe.map((name) =>
      fail(
        durability,
        `${name} is off: when the server fails, acknowledged admissions may be lost or damaged`,
        name === 'synchronous_commit'
          ? `set ${name} = on for the server, the database and its user, and reload`
          : `set ${name} = on in postgresql.conf, and reload`,
      ),
    ),
    unsafe.length > 0 ? undefined : promiseOf(row),
  ]
}

const durability = 'store_durability'

function promiseOf({ synchronous_commit: commit, standby_names: names, ...row }: SqlRow) {
  const here = 'an acknowledged admission survives a failure of the server and of its machine'
  if (names === '')
    return note(
      durability,
      `${here}, not the loss of its disk: no standby is synchronous; set one up where that is not enough`,
    )
  if (commit === 'local')
    return warn(
      durability,
      `synchronous_commit is local: ${here}, not the loss of its disk, although standbys are configured`,
      'set synchronous_commit = on for this user or database',
    )
  if (row.sees_standbys === true && Number(row.standbys) === 0)
    return fail(
      durability,
      `no synchronous standby of "${names}" is connected: every admission waits, and is not acknowledged`,
      'start the standby, or take it out of synchronous_standby_names',
    )
  const seen = row.sees_standbys === true ? '' : '; this user may not see whether one is connected'
  return pass(
    durability,
    `${here}, and the loss of its disk: a standby has it too (synchronous_commit = ${commit})${seen}`,
  )
}

const createQuery = "SELECT has_database_privilege(current_database(), 'CREATE') AS may"

async function tablesFinding(session: SqlSession, name: string, state: StoreState) {
  if (state.kind === 'older')
    return fail(
      'store',
      `the tables in ${name} have schema version ${state.version}, which is too old`,
      'run `proposer operator store upgrade`',
    )
  if (state.kind === 'current') {
    const id = 'store_rights'
    const lacking = (await lackingRights(session, name)).join(', ')
    if (lacking === '') return pass(id, `the user of ${name} has all rights that a gateway needs`)
    const detail = `the user of ${name} lacks a right: ${lacking}`
    return fail(id, detail, 'grant it as the owner of the tables')
  }
  const [row] = await session.query(createQuery)
  return row?.may === true
    ? pass('store', `${name} is empty, and the tables can be created`)
    : fail(
        'store',
        `${name} is empty, and its user may not create the tables`,
        'run `proposer operator store init` as the owner of the database, then grant the rights',
      )
}
