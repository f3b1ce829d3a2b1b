/**
 * `serve --check` (contract §6): everything that would keep a gateway from its work, without
 * taking the store, sending anything or making a file.
 */

import { unconfirmedAmong } from '#chain/profiles'
import type { RegistryEntry } from '#chain/questions'
import { checkContracts, checkExecutor, checkNodes } from '#checks/chain'
import { type Finding, type Found, fail, guarded, note, pass, warn } from '#checks/finding'
import { checkSharedStore, checkStore, type StoreContent } from '#checks/store'
import { configFaults } from '#gateway/config'
import { probePort } from '#io/probes'
import { type Machine, SlugLookUpError } from '#ports'
import type { Address } from '#protocol/schema'
import { counted } from '#protocol/text'
import type { LockHolder } from '#storage/lock'
import {
  type ConfigChanges,
  configure,
  type LoadedConfig,
  pastedCommand,
  readConfigFile,
  registryOf,
  seenFile,
  settingsOf,
  storeNote,
} from './config-file.js'
import { type CheckedKeySource, checkExecutorKey } from './executor-key.js'
import { receiptKeyOf } from './receipts.js'

export interface ServeCheckOptions extends ConfigChanges {
  readonly executorKey: CheckedKeySource
}

/** Throws UsageError only for what is wrong on the command line itself. */
export async function checkGateway(
  machine: Machine,
  path: string,
  options: ServeCheckOptions,
): Promise<readonly Finding[]> {
  // Every key that is wrong is a finding of its own.
  const wrongKeys = async () => {
    const { raw, named } = await readConfigFile(machine, path)
    return configFaults(raw).map((fault) =>
      fail('config', `${named(fault.path)}: ${fault.detail}`, `correct ${path}`),
    )
  }
  const faults = await guarded('config', wrongKeys, 'correct gateway.json')
  // Nothing can be said of what no configuration names.
  if (faults.length > 0) return faults
  const loaded = await configure(machine, path, options)
  const { profile, requesters } = loaded.config.chain
  const of = profile === undefined ? '' : `, with the contracts of profile ${profile}`
  const addresses = requesters.map(({ address }) => address)
  const findings = [
    pass('config', `${path} is a configuration${of}`),
    ...[storeNote(loaded) ?? []].flat().map((detail) => note('store_place', detail)),
    ...unconfirmedAmong(profile, addresses).map((detail) => note('profile', detail)),
  ]
  // In the order in which an operator mends what they find; `fix` is for an error that names none.
  const check = async (id: string, fix: string, run: () => Promise<Found>) => {
    findings.push(...(await guarded(id, run, fix)))
  }
  const wrong = 'correct gateway.json'
  const { config, place } = loaded
  let questions: readonly RegistryEntry[] | undefined
  let executor: Address | undefined
  let read: Awaited<ReturnType<typeof checkNodes>>['read']
  let store: Awaited<ReturnType<typeof checkStore>> | undefined
  await check('questions', wrong, async () => {
    questions = await registryOf(machine, loaded)
    return questionFindings(loaded, questions)
  })
  await check('slugs', wrong, () => checkSlugs(machine, loaded))
  await check('executor_key', wrong, async () => {
    const checked = await checkExecutorKey(machine, loaded, options.executorKey)
    executor = checked.executor
    return checked.finding
  })
  await check('node', 'check chain.rpc_urls', async () => {
    const nodes = await checkNodes(machine, config)
    read = nodes.read
    return nodes.findings
  })
  await check('contracts', 'correct the chain section of gateway.json', async () => {
    const toCheck = {
      ...{ config, questions, executor },
      command: pastedCommand(loaded),
      settings: settingsOf(config, read?.genesisHash),
      head: read?.head,
    }
    store =
      place.kind === 'folder'
        ? await checkStore(machine, { ...toCheck, folder: place.folder })
        : await checkSharedStore(machine, {
            ...toCheck,
            database: await machine.edges.database(place.url),
            seenFile: seenFile(loaded),
          })
    if (read === undefined) return undefined
    const contracts = await checkContracts(read, config, store)
    return executor === undefined
      ? contracts
      : [...contracts, ...(await checkExecutor(read, config, executor))]
  })
  await check('receipts', 'correct receipts in gateway.json', async () =>
    // What is wrong with the store is said of the store.
    store === undefined || store.findings.some(({ result }) => result === 'fail')
      ? undefined
      : checkReceipts(machine, loaded, store),
  )
  await check('admission', '', async () => admissionFindings(loaded, store))
  await check('store', '', async () => store?.findings)
  await check('listen', '', () => checkPorts(loaded, store?.holder))
  return findings
}

function questionFindings(
  { config: { chain, questions } }: LoadedConfig,
  entries: readonly RegistryEntry[],
) {
  const id = 'questions'
  if (questions === null)
    return pass(id, 'no questions file; none is needed for questions of the listed adapters')
  const trusted = new Set(chain.requesters.map(({ address }) => address))
  const [foreign, ...others] = entries.filter(({ request, requester }) => {
    const named = request?.requester ?? requester
    return named !== undefined && !trusted.has(named)
  })
  const slugs = entries.filter(({ slug }) => slug !== undefined).length
  const holds = `${counted(entries.length, 'question')}, ${counted(slugs, 'slug')}`
  const passed = pass(id, `${questions}: ${holds}`)
  if (foreign === undefined) return passed
  const detail = `${others.length + 1} of ${entries.length} questions name a requester that chain.requesters does not list; the first: ${foreign.questionId}`
  const fix = 'add that requester with its kind to chain.requesters, or remove the entry'
  return [warn(id, detail, fix), passed]
}

/** A slug of nobody: that it is unknown is an answer. */
const probeSlug = 'serve-check'
const gammaLimitMs = 5_000

async function checkSlugs(machine: Machine, loaded: LoadedConfig) {
  const { slugs } = loaded.config
  if (slugs.source === 'registry') return undefined
  const { gammaLookUp } = await import('#io/gamma')
  const signal = AbortSignal.any([machine.signal, AbortSignal.timeout(gammaLimitMs)])
  try {
    await gammaLookUp(await machine.edges.fetch(), slugs.url)(probeSlug, signal)
    return pass('slugs', 'slugs.url answers')
  } catch (error) {
    if (!(error instanceof SlugLookUpError)) throw error
    const fix =
      'check slugs.url and the network; question ids and the slugs of the questions file keep working'
    return warn('slugs', `slugs.url: ${error.message}`, fix)
  }
}

async function checkReceipts(machine: Machine, loaded: LoadedConfig, store: StoreContent) {
  const key = await receiptKeyOf(machine, loaded, store.receiptKeys)
  if (key === undefined) return undefined
  const { path, kid } = key
  const detail =
    kid === undefined
      ? `${path} does not exist yet: the first start makes it`
      : `answers are signed with the key ${kid}`
  return pass('receipts', detail)
}

function admissionFindings(loaded: LoadedConfig, store: StoreContent | undefined) {
  const { allowlist = [], admissionEnabled = true } = store ?? {}
  const wallets =
    allowlist.length > 0
      ? pass('allowlist', `${counted(allowlist.length, 'wallet')} may propose`)
      : warn(
          'allowlist',
          'nobody may propose: admission.allowlist and the allowlist of the store are both empty',
          'set admission.allowlist to the wallets that may propose here',
        )
  if (!loaded.config.admission.enabled)
    return [wallets, note('admission', 'admission.enabled is false: nobody is admitted')]
  if (admissionEnabled) return wallets
  const resume = pastedCommand(loaded)('resume')
  const detail = `an operator has paused admission: nobody is admitted until ${resume}`
  return [wallets, note('admission', detail)]
}

/** What the process that has the store open listens on itself is no fault. */
async function checkPorts(
  { config: { listen, admin, metrics } }: LoadedConfig,
  holder: LockHolder | undefined,
) {
  const ports = [
    ['listen', listen.host, listen.port, 'set listen.host and listen.port, or give --port'],
    ['admin', '127.0.0.1', admin.port, 'set admin.port'],
    ...(metrics ? [['metrics', metrics.host, metrics.port, 'set metrics.port'] as const] : []),
  ] as const
  for (const [at, [id, , port]] of ports.entries()) {
    const [other] = ports.slice(0, at).find(([, , taken]) => taken === port && port !== 0) ?? []
    if (other === undefined) continue
    const fix = `set ${other}.port and ${id}.port to different ports`
    return fail(id, `${other}.port and ${id}.port are both ${port}`, fix)
  }
  const isRunning = holder?.state === 'alive' && holder.adminUrl?.endsWith(`:${admin.port}`)
  const look = async ([id, host, port, free]: (typeof ports)[number]) => {
    const where = `${host}:${port}`
    const code = await probePort(host, port)
    if (code === undefined)
      return pass(id, port === 0 ? `${host}: a free port` : `${where} is free`)
    if (isRunning && code === 'EADDRINUSE')
      return note(id, `${where} is in use by process ${holder.pid}, which has the store open`)
    const why = code === 'EADDRINUSE' ? 'another process listens there' : code
    const fix = `stop the process that listens there, or ${free}`
    return fail(id, `${where} cannot be listened on: ${why}`, fix)
  }
  const findings: Finding[] = []
  for (const port of ports) findings.push(await look(port))
  return findings
}
