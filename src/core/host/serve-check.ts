/** `serve --check` (contract §6): takes no store, sends nothing and makes no file. */
import { unconfirmedAmong } from '#chain/profiles'
import type { RegistryEntry } from '#chain/questions'
import { checkContracts, checkExecutor, checkNodes, nodeFix } from '#checks/chain'
import { type Finding, type Found, fail, guarded, note, pass, warn } from '#checks/finding'
import { checkStore } from '#checks/store'
import { configFaults } from '#gateway/config'
import type { Ledger } from '#gateway/ledger/ledger'
import { probePort } from '#io/probes'
import { ChainError, type Machine, SlugLookUpError } from '#ports'
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
import { checkExecutorKey, type ExecutorKeySource } from './executor-key.js'
import { heldReceiptKeys } from './receipts.js'

/** Throws UsageError only for what is wrong on the command line itself. */
export async function checkGateway(
  machine: Machine,
  path: string,
  options: ConfigChanges & { readonly executorKey: ExecutorKeySource },
): Promise<readonly Finding[]> {
  const wrongKeys = async () => {
    const { raw, named } = await readConfigFile(machine, path)
    return configFaults(raw).map((fault) =>
      fail('config', `${named(fault.path)}: ${fault.detail}`, `correct ${path}`),
    )
  }
  const faults = await guarded('config', wrongKeys, 'correct gateway.json')
  if (faults.length > 0) return faults
  const loaded = await configure(machine, path, options)
  const { config, place } = loaded
  const { profile, requesters } = config.chain
  const of = profile === undefined ? '' : `, with the contracts of profile ${profile}`
  const addresses = requesters.map(({ address }) => address)
  const findings = [
    pass('config', `${path} is a configuration${of}`),
    ...[storeNote(loaded) ?? []].flat().map((detail) => note('store_place', detail)),
    ...unconfirmedAmong(profile, addresses).map((detail) => note('profile', detail)),
  ]
  const check = async (id: string, run: () => Promise<Found>, fix = 'correct gateway.json') => {
    const ofNode = (error: unknown) => {
      if (!(error instanceof ChainError)) throw error
      const { kind, message } = error
      return kind === 'unavailable'
        ? fail('node', `the chain cannot be read: ${message}`, nodeFix)
        : fail(id, `the node refuses what is read of the chain: ${message}`, fix)
    }
    findings.push(...(await guarded(id, () => run().catch(ofNode), fix)))
  }
  let questions: readonly RegistryEntry[] | undefined
  await check('questions', async () => {
    questions = await registryOf(machine, loaded)
    return questionFindings(loaded, questions)
  })
  await check('slugs', () => checkSlugs(machine, loaded))
  let executor: Awaited<ReturnType<typeof checkExecutorKey>>['executor']
  await check('executor_key', async () => {
    const checked = await checkExecutorKey(machine, loaded, options.executorKey)
    executor = checked.executor
    return checked.finding
  })
  let read: Awaited<ReturnType<typeof checkNodes>>['read']
  await check('node', async () => {
    const nodes = await checkNodes(machine, config)
    read = nodes.read
    return nodes.findings
  })
  const store = await checkStore(machine, {
    ...{ place, questions, executor, seenFile: seenFile(loaded) },
    command: pastedCommand(loaded),
    settings: settingsOf(config, read?.genesisHash),
    head: read?.head,
  })
  const { ledger, holder } = store
  const allowlist = [...(ledger?.allowlist ?? config.admission.allowlist)]
  await check(
    'contracts',
    async () =>
      read && checkContracts(read, config, allowlist, ledger?.implementations ?? new Map()),
    'correct the chain section of gateway.json',
  )
  await check(
    'executor',
    async () => read && executor && checkExecutor(read, config, executor),
    nodeFix,
  )
  if (!store.findings.some(({ result }) => result === 'fail'))
    await check(
      'receipts',
      () => checkReceipts(machine, loaded, ledger),
      'correct receipts in gateway.json',
    )
  findings.push(...admissionFindings(loaded, allowlist, ledger), ...store.findings)
  findings.push(...(await checkPorts(loaded, holder)))
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

async function checkSlugs(machine: Machine, { config: { slugs } }: LoadedConfig) {
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

async function checkReceipts(machine: Machine, loaded: LoadedConfig, ledger: Ledger | undefined) {
  const key = await heldReceiptKeys(machine, loaded, ledger?.receiptKeys ?? new Map())
  if (key === undefined) return undefined
  const { path, kid } = key
  const made = `${path} does not exist yet: the first start makes it`
  return pass('receipts', kid === undefined ? made : `answers are signed with the key ${kid}`)
}

function admissionFindings(
  loaded: LoadedConfig,
  { length }: readonly unknown[],
  ledger: Ledger | undefined,
) {
  const wallets =
    length > 0
      ? pass('allowlist', `${counted(length, 'wallet')} may propose`)
      : warn(
          'allowlist',
          'nobody may propose: admission.allowlist and the allowlist of the store are both empty',
          'set admission.allowlist to the wallets that may propose here',
        )
  if (!loaded.config.admission.enabled)
    return [wallets, note('admission', 'admission.enabled is false: nobody is admitted')]
  if (ledger?.admissionSwitch !== false) return [wallets]
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
    ['listen', listen.host, listen.port],
    ['admin', '127.0.0.1', admin.port],
    ...(metrics ? [['metrics', metrics.host, metrics.port] as const] : []),
  ] as const
  const findings: Finding[] = []
  const isRunning = holder?.state === 'alive' && holder.adminUrl?.endsWith(`:${admin.port}`)
  for (const [at, [id, host, port]] of ports.entries()) {
    const where = `${host}:${port}`
    const [other] = ports.slice(0, at).find(([, , taken]) => taken === port && port !== 0) ?? []
    const code = other === undefined ? await probePort(host, port) : undefined
    const isTaken = code === 'EADDRINUSE'
    if (other !== undefined) {
      const fix = `set ${other}.port and ${id}.port to different ports`
      findings.push(fail(id, `${other}.port and ${id}.port are both ${port}`, fix))
    } else if (code === undefined)
      findings.push(pass(id, port === 0 ? `${host}: a free port` : `${where} is free`))
    else if (isRunning && isTaken) {
      const detail = `${where} is in use by process ${holder.pid}, which has the store open`
      findings.push(note(id, detail))
    } else {
      const why = isTaken ? 'another process listens there' : code
      const fix = isTaken
        ? `stop the process that listens there, or set another ${id}.port`
        : `set ${id} to an address and a port that this user may listen on`
      findings.push(fail(id, `${where} cannot be listened on: ${why}`, fix))
    }
  }
  return findings
}
