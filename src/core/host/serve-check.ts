/**
 * `serve --check` (contract §6): everything that would keep a gateway from its work, without
 * taking the store, sending anything or making a file.
 */

import { unconfirmedAmong } from '#chain/profiles'
import type { RegistryEntry } from '#chain/questions'
import { checkContracts, checkExecutor, checkNodes } from '#checks/chain'
import { type Finding, type Found, fail, guarded, note, pass, warn } from '#checks/finding'
import { checkSharedStore, checkStore } from '#checks/store'
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
import { readPlaced } from './held-store.js'
import { receiptKeyOf } from './receipts.js'

export interface ServeCheckOptions extends ConfigChanges {
  readonly executorKey: CheckedKeySource
}

interface Facts {
  readonly machine: Machine
  readonly loaded: LoadedConfig
  readonly options: ServeCheckOptions
  questions?: readonly RegistryEntry[]
  executor?: Address | undefined
  nodes?: Awaited<ReturnType<typeof checkNodes>>
  store?: Awaited<ReturnType<typeof checkStore | typeof checkSharedStore>>
}

interface Check {
  readonly id: string
  run(facts: Facts): Promise<Found>
  /** For an error that names none. */
  readonly fix: string
}

/** In the order in which an operator mends what they find. */
const checks: readonly Check[] = [
  { id: 'questions', run: checkQuestions, fix: 'correct gateway.json' },
  { id: 'slugs', run: checkSlugs, fix: 'correct gateway.json' },
  {
    id: 'executor_key',
    async run(facts) {
      const { finding, executor } = await checkExecutorKey(
        facts.machine,
        facts.loaded,
        facts.options.executorKey,
      )
      facts.executor = executor
      return finding
    },
    fix: 'correct gateway.json',
  },
  {
    id: 'node',
    async run(facts) {
      facts.nodes = await checkNodes(facts.machine, facts.loaded.config)
      return facts.nodes.findings
    },
    fix: 'check chain.rpc_urls',
  },
  {
    id: 'contracts',
    async run(facts) {
      const { machine, loaded, questions, executor } = facts
      const { config } = loaded
      const read = facts.nodes?.read
      const { place } = loaded
      const toCheck = {
        config,
        command: pastedCommand(loaded),
        settings: settingsOf(config, read?.genesisHash),
        head: read?.head,
        questions,
        executor,
      }
      facts.store =
        place.kind === 'folder'
          ? await checkStore(machine, { ...toCheck, folder: place.folder })
          : await checkSharedStore(machine, {
              ...toCheck,
              database: await machine.edges.database(place.url),
              seenFile: seenFile(loaded),
            })
      if (read === undefined) return []
      const contracts = await checkContracts(read, config, facts.store)
      return executor === undefined
        ? contracts
        : [...contracts, ...(await checkExecutor(read, config, executor))]
    },
    fix: 'correct the chain section of gateway.json',
  },
  { id: 'receipts', run: checkReceipts, fix: 'correct receipts in gateway.json' },
  { id: 'admission', run: async (facts) => admissionFindings(facts), fix: '' },
  { id: 'store', run: async ({ store }) => store?.findings, fix: '' },
  { id: 'listen', run: ({ loaded, store }) => checkPorts(loaded, store?.holder), fix: '' },
]

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
  const facts: Facts = { machine, loaded, options }
  for (const { id, run, fix } of checks)
    findings.push(...(await guarded(id, () => run(facts), fix)))
  return findings
}

async function checkQuestions(facts: Facts) {
  const { machine, loaded } = facts
  const { chain, questions } = loaded.config
  const entries = await registryOf(machine, loaded)
  facts.questions = entries
  const id = 'questions'
  if (questions === null)
    return [pass(id, 'no questions file; none is needed for questions of the listed adapters')]
  const trusted = new Set(chain.requesters.map(({ address }) => address))
  const [foreign, ...others] = entries.filter(({ request, requester }) => {
    const named = request?.requester ?? requester
    return named !== undefined && !trusted.has(named)
  })
  const slugs = entries.filter(({ slug }) => slug !== undefined).length
  const holds = `${counted(entries.length, 'question')}, ${counted(slugs, 'slug')}`
  const passed = pass(id, `${questions}: ${holds}`)
  if (foreign === undefined) return [passed]
  const detail = `${others.length + 1} of ${entries.length} questions name a requester that chain.requesters does not list; the first: ${foreign.questionId}`
  const fix = 'add that requester with its kind to chain.requesters, or remove the entry'
  return [warn(id, detail, fix), passed]
}

/** A slug of nobody: that it is unknown is an answer. */
const probeSlug = 'serve-check'
const gammaLimitMs = 5_000

async function checkSlugs({ machine, loaded }: Facts) {
  const { slugs } = loaded.config
  if (slugs.source === 'registry') return []
  const { gammaLookUp } = await import('#io/gamma')
  const signal = AbortSignal.any([machine.signal, AbortSignal.timeout(gammaLimitMs)])
  try {
    await gammaLookUp(await machine.edges.fetch(), slugs.url)(probeSlug, signal)
    return [pass('slugs', 'slugs.url answers')]
  } catch (error) {
    if (!(error instanceof SlugLookUpError)) throw error
    const fix =
      'check slugs.url and the network; question ids and the slugs of the questions file keep working'
    return [warn('slugs', `slugs.url: ${error.message}`, fix)]
  }
}

async function checkReceipts({ machine, loaded }: Facts) {
  if (loaded.config.receipts === undefined) return []
  const ledger = await readPlaced(machine, loaded, settingsOf(loaded.config, undefined))
  try {
    const key = await receiptKeyOf(machine, loaded, ledger.receiptKeys)
    const detail =
      key?.kid === undefined
        ? `${key?.path ?? ''} does not exist yet: the first start makes it`
        : `answers are signed with the key ${key.kid}`
    return [pass('receipts', detail)]
  } finally {
    await ledger.close()
  }
}

function admissionFindings({ loaded, store }: Facts) {
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
  if (admissionEnabled) return [wallets]
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
    return [fail(id, `${other}.port and ${id}.port are both ${port}`, fix)]
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
