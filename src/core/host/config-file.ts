/** gateway.json, and the files that it names. */

import { dirname, resolve } from 'node:path'
import type { RegistryEntry } from '../chain/questions.js'
import { applySet, type GatewayConfig, parseConfig } from '../gateway/config.js'
import type { LedgerSettings } from '../gateway/ledger/store.js'
import { parseRegistry } from '../gateway/operator/registry.js'
import { readJsonFile } from '../io/json-file.js'
import type { ExpectedChain, Hex, Machine } from '../ports.js'
import type { Address } from '../protocol/schema.js'
import { shellWord } from '../protocol/text.js'

/** A configuration, and the folder that its paths are relative to. */
export interface LoadedConfig {
  readonly config: GatewayConfig
  readonly folder: string
  /** The file, as it was named. */
  readonly path: string
}

/** What command line flags change of a configuration. */
export interface ConfigChanges {
  /** `key=value`, dotted keys of gateway.json. */
  readonly assignments: readonly string[]
  /** 0 takes free ports, the admin's too. */
  readonly port?: number | undefined
  readonly host?: string | undefined
}

type FileAccess = Pick<Machine, 'files' | 'cwd'>

/** gateway.json as JSON. Throws UsageError naming the file. */
export const readConfigFile = (machine: FileAccess, path: string): Promise<unknown> =>
  readJsonFile(machine, path, 'give --config with the path of a gateway.json')

/** Reads gateway.json. Throws UsageError naming the file and the key. */
export async function loadConfig(machine: FileAccess, path: string): Promise<LoadedConfig> {
  const config = parseConfig(await readConfigFile(machine, path), path)
  return { config, folder: dirname(resolve(machine.cwd, path)), path }
}

/** What gateway.json, --set, --port and --host come to. Throws UsageError naming file and key. */
export async function configure(
  machine: FileAccess,
  path: string,
  { assignments, host, port }: ConfigChanges,
): Promise<LoadedConfig> {
  const loaded = await loadConfig(machine, path)
  const set = assignments.length === 0 ? loaded.config : applySet(loaded.config, ...assignments)
  const listen = { host: host ?? set.listen.host, port: port ?? set.listen.port }
  return { ...loaded, config: { ...set, listen, admin: port === 0 ? { port } : set.admin } }
}

/**
 * Judges --set before there is a configuration to set it in: a dev chain is not started for a key
 * that nothing has. UsageError.
 */
export function refuseBadAssignments(assignments: readonly string[]): void {
  const address = `0x${'11'.repeat(20)}`
  const chain = {
    rpc_urls: ['http://127.0.0.1'],
    signed_proposer: address,
    oracles: [address],
    requesters: [{ address, kind: 'uma-ctf-adapter' }],
    tokens: [address],
  }
  applySet(parseConfig({ chain }, 'the dev configuration'), ...assignments)
}

/** The question registry of a configuration. Throws UsageError for a file that cannot be read. */
export async function registryOf(
  machine: FileAccess,
  { config, folder }: LoadedConfig,
): Promise<readonly RegistryEntry[]> {
  if (config.questions === null) return []
  const path = resolve(folder, config.questions)
  const missing = 'write that file, or correct "questions" in gateway.json'
  return parseRegistry(await readJsonFile(machine, path, missing), path)
}

/** The absolute path of the store. */
export const storeFolder = ({ config, folder }: LoadedConfig): string =>
  resolve(folder, config.store)

/** An operator's command as it can be pasted: for the same configuration. */
export const pastedCommand =
  ({ path }: Pick<LoadedConfig, 'path'>) =>
  (command: string): string =>
    `\`proposer operator ${command} --config ${shellWord(path)}\``

/** What the configuration says of its chain. Throws nothing. */
export function expectedChain({ chain }: GatewayConfig): ExpectedChain {
  return { expectedChainId: chain.id, maxHeadAgeSeconds: chain.max_head_age_seconds }
}

/** What a configuration, and the chain where it was asked, say of the store. */
export function settingsOf(config: GatewayConfig, genesisHash: Hex | undefined): LedgerSettings {
  return {
    chainId: config.chain.id,
    genesisHash,
    allowlist: config.admission.allowlist as Address[],
    admissionEnabled: config.admission.enabled,
  }
}
