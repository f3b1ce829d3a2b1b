/**
 * `serve --check` (contract §6): everything that would keep a gateway from its work, in one run,
 * without taking the store, sending anything or making a file. Each fault says how it is mended.
 */
import { resolve } from 'node:path'
import { unconfirmedAmong } from '../../core/chain/profiles.js'
import type { RegistryEntry } from '../../core/chain/questions.js'
import { configFaults } from '../../core/gateway/config.js'
import { type Address, SlugLookUpError } from '../../core/ports.js'
import type { LockHolder } from '../../core/storage/lock.js'
import { readOwnJson } from '../session/inputs.js'
import { readPassword } from '../session/key-source.js'
import { fromCwd } from '../session/paths.js'
import type { Context } from '../terminal/context.js'
import { counted } from '../terminal/render.js'
import { checkContracts, checkExecutor, checkNodes } from './check-chain.js'
import { checkStore } from './check-store.js'
import { type Finding, fault, orFault, right, told, warning } from './findings.js'
import { type LoadedConfig, operatorCommand, registryOf } from './gateway-host.js'
import { configure, type ServerOptions } from './server.js'

/**
 * All findings, in the order in which an operator mends them. Throws UsageError only for what is
 * wrong on the command line itself.
 */
export async function checkGateway(
  context: Context,
  path: string,
  options: ServerOptions,
): Promise<readonly Finding[]> {
  const findings: Finding[] = []
  const loaded = await configuration(context, path, options, findings)
  // Nothing can be said of what no configuration names.
  if (loaded === undefined) return findings
  const { config } = loaded
  const questions = await questionEntries(context, loaded, findings)
  findings.push(...(await slugFindings(context, loaded)))
  const executor = await executorAddress(context, loaded, options, findings)
  const nodes = await checkNodes(context, config)
  findings.push(...nodes.findings)
  const { chain, head, genesisHash } = nodes
  const store = await checkStore(context, loaded, { genesisHash, head, questions, executor })
  if (chain && head) {
    findings.push(...(await checkContracts(chain, config, head, store.allowlist)))
    if (executor !== undefined)
      findings.push(...(await checkExecutor(chain, config, head, executor)))
  }
  if (store.allowlist.length === 0) {
    const hint = 'set admission.allowlist to the wallets that may propose here'
    findings.push(
      warning(
        'allowlist',
        'nobody may propose: admission.allowlist is empty, and so is that of the store',
        hint,
      ),
    )
  } else
    findings.push(right('allowlist', `${counted(store.allowlist.length, 'wallet')} may propose`))
  if (!config.admission.enabled)
    findings.push(told('admission', 'admission.enabled is false: nobody is admitted'))
  else if (!store.admissionEnabled) {
    findings.push(
      told(
        'admission',
        `an operator has paused admission: nobody is admitted before ${operatorCommand(loaded)('resume')}`,
      ),
    )
  }
  findings.push(...store.findings, ...(await portFindings(loaded, store.holder)))
  return findings
}

/**
 * gateway.json with --set, --port and --host; every key that is wrong in it is a fault of its own.
 */
async function configuration(
  context: Context,
  path: string,
  options: ServerOptions,
  findings: Finding[],
): Promise<LoadedConfig | undefined> {
  const raw = await orFault('config', findings, () =>
    readOwnJson(context, path, 'give --config with the path of a gateway.json'),
  )
  if (raw === undefined) return undefined
  for (const detail of configFaults(raw)) {
    findings.push(fault('config', `${path}: ${detail}`, `correct ${path}`))
  }
  if (findings.length > 0) return undefined
  const loaded = await configure(context, path, options)
  const { profile, requesters } = loaded.config.chain
  findings.push(
    right(
      'config',
      `${path} is a configuration${profile === undefined ? '' : `, with the contracts of profile ${profile}`}`,
    ),
  )
  const addresses = requesters.map(({ address }) => address)
  for (const detail of unconfirmedAmong(profile, addresses)) findings.push(told('profile', detail))
  return loaded
}

/** What the questions file holds; `undefined` where it is faulty. */
async function questionEntries(
  context: Context,
  loaded: LoadedConfig,
  findings: Finding[],
): Promise<readonly RegistryEntry[] | undefined> {
  const { chain, questions } = loaded.config
  const entries = await orFault('questions', findings, () => registryOf(context, loaded))
  if (entries === undefined) return undefined
  if (questions === null) {
    findings.push(
      right('questions', 'no questions file: questions of the listed adapters need none'),
    )
    return entries
  }
  const trusted = new Set(chain.requesters.map(({ address }) => address))
  const foreign = entries.filter((entry) => {
    const requester = entry.request?.requester ?? entry.requester
    return requester !== undefined && !trusted.has(requester)
  })
  if (foreign.length > 0) {
    const detail = `${foreign.length} of ${entries.length} questions name a requester that chain.requesters does not list; the first: ${foreign[0]?.questionId}`
    findings.push(
      warning(
        'questions',
        detail,
        'add that requester with its kind to chain.requesters, or take the entry out',
      ),
    )
  }
  const slugs = entries.filter(({ slug }) => slug !== undefined).length
  findings.push(
    right(
      'questions',
      `${questions}: ${counted(entries.length, 'question')}, ${counted(slugs, 'slug')}`,
    ),
  )
  return entries
}

/** A slug of nobody: that it is unknown is an answer. */
const probeSlug = 'serve-check'
const gammaLimitMs = 5_000

async function slugFindings(
  context: Context,
  { config: { slugs } }: LoadedConfig,
): Promise<readonly Finding[]> {
  if (slugs.source === 'registry') return []
  const { gammaLookUp } = await import('../../core/io/gamma.js')
  try {
    await gammaLookUp(await context.edges.fetch(), slugs.url)(
      probeSlug,
      AbortSignal.any([context.signal, AbortSignal.timeout(gammaLimitMs)]),
    )
    return [right('slugs', 'slugs.url answers')]
  } catch (error) {
    if (!(error instanceof SlugLookUpError)) throw error
    const hint =
      'look at slugs.url and the network; question ids and the slugs of the questions file go on working'
    return [warning('slugs', `slugs.url cannot be asked: ${error.message}`, hint)]
  }
}

/**
 * Whose key would sign (contract §7, Executor key). A keystore is unlocked only where its password
 * is in a file.
 */
async function executorAddress(
  context: Context,
  loaded: LoadedConfig,
  options: ServerOptions,
  findings: Finding[],
): Promise<Address | undefined> {
  const check = 'executor_key'
  const { pipeline, executor } = loaded.config
  if (!pipeline.enabled || !executor.enabled) {
    findings.push(
      told(
        check,
        `${pipeline.enabled ? 'executor' : 'pipeline'}.enabled is false: candidates wait and nothing is executed`,
      ),
    )
    return undefined
  }
  const variable = context.env.PROPOSER_EXECUTOR_KEY_FILE
  const file =
    variable !== undefined && variable !== '' ? fromCwd(context.cwd, variable) : executor.key_file
  if (options.executorAccount === undefined && file !== undefined) {
    const address = await orFault(check, findings, () =>
      addressInFile(resolve(loaded.folder, file)),
    )
    if (address !== undefined)
      findings.push(right(check, `the key file of the executor ${address} is its owner's alone`))
    return address
  }
  const name = options.executorAccount ?? executor.account
  if (name === undefined) {
    const hint =
      'set executor.key_file or executor.account in gateway.json, give --executor-account, or set PROPOSER_EXECUTOR_KEY_FILE or executor.enabled=false'
    findings.push(fault(check, 'the executor is enabled and has no key', hint))
    return undefined
  }
  return orFault(check, findings, () => addressInKeystore(context, options, name, findings))
}

async function addressInFile(path: string): Promise<Address> {
  const { readKeyFile, signerFromKey } = await import('../../core/io/keys.js')
  const signer = signerFromKey(await readKeyFile(path))
  signer.dispose()
  return signer.address
}

async function addressInKeystore(
  context: Context,
  { home, executorPasswordFile }: ServerOptions,
  name: string,
  findings: Finding[],
): Promise<Address | undefined> {
  const { readKeystore, unlockKeystore } = await import('../../core/io/keystore.js')
  const { address } = await readKeystore(context.files, home, name)
  if (executorPasswordFile === undefined) {
    const detail = `the keystore ${name}${address === undefined ? '' : ` of the executor ${address}`} is there; its password was not tried`
    findings.push(
      warning(
        'executor_key',
        detail,
        'give --executor-password-file <file>, which a gateway without a terminal needs',
      ),
    )
    return address
  }
  const { signerFromKey } = await import('../../core/io/keys.js')
  const password = await readPassword(context, executorPasswordFile, '')
  const signer = signerFromKey(await unlockKeystore(context.files, home, name, password))
  signer.dispose()
  findings.push(
    right(
      'executor_key',
      `the keystore ${name} of the executor ${signer.address} opens with its password`,
    ),
  )
  return signer.address
}

/**
 * Where the gateway would listen. What the process that has the store open listens on itself is no
 * fault.
 */
async function portFindings(
  { config }: LoadedConfig,
  holder: LockHolder | undefined,
): Promise<readonly Finding[]> {
  const { probePort } = await import('../../core/io/probes.js')
  const { listen, admin } = config
  if (listen.port === admin.port && listen.port !== 0) {
    const hint = 'give listen.port and admin.port two numbers'
    return [fault('admin', `listen.port and admin.port are both ${admin.port}`, hint)]
  }
  const isRunning = holder?.state === 'alive' && holder.adminUrl?.endsWith(`:${admin.port}`)
  const look = async (check: 'listen' | 'admin', host: string, port: number): Promise<Finding> => {
    const where = `${host}:${port}`
    const code = await probePort(host, port)
    if (code === undefined)
      return right(check, port === 0 ? `${host}: a free port` : `${where} is free`)
    if (isRunning && code === 'EADDRINUSE')
      return told(
        check,
        `${where} is in use, as by the process ${holder.pid} that has the store open`,
      )
    const free =
      check === 'listen' ? 'set listen.host and listen.port, or give --port' : 'set admin.port'
    const why = code === 'EADDRINUSE' ? 'another process listens there' : code
    return fault(
      check,
      `${where} cannot be listened on: ${why}`,
      `end what listens there, or ${free}`,
    )
  }
  return [
    await look('listen', listen.host, listen.port),
    await look('admin', '127.0.0.1', admin.port),
  ]
}
