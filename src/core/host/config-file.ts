import { basename, dirname, join, resolve } from 'node:path'
import { applySet, type GatewayConfig, parseConfig } from '#gateway/config'
import type { LedgerSettings } from '#gateway/ledger/ledger'
import { parseRegistry } from '#gateway/operator/registry'
import { parseCommentedJson } from '#io/commented-json'
import { readInputFile, readJsonFile } from '#io/json-file'
import { readStoreUrl } from '#io/key-files'
import type { ExpectedChain, Hex, Machine } from '#ports'
import { UsageError } from '#protocol/errors'
import { shellWord } from '#protocol/text'
import { isDatabaseUrl } from '#protocol/url-secrets'
import type { SeenFile } from '#storage/postgres/seen'

export interface LoadedConfig {
  readonly config: GatewayConfig
  readonly folder: string
  readonly path: string
  readonly place: StorePlace
}

export type StorePlace =
  | { readonly kind: 'folder'; readonly folder: string }
  | { readonly kind: 'database'; readonly url: string; readonly isFromVariable?: true }

export const storeNote = ({ place }: Pick<LoadedConfig, 'place'>) =>
  place.kind === 'database' && place.isFromVariable
    ? 'the store is the database that PROPOSER_STORE_URL_FILE names; `store` and `store_file` of gateway.json are not used'
    : undefined

export interface ConfigChanges {
  readonly assignments: readonly string[]
  readonly port?: number | undefined
  readonly host?: string | undefined
}

type FileAccess = Pick<Machine, 'files' | 'cwd' | 'storeUrlFile'>

export async function readConfigFile(machine: FileAccess, path: string) {
  const missing =
    'name a gateway.json that is there: --local <file>, or --config <file> of `serve` and `operator`'
  const { value, placeOf } = parseCommentedJson(await readInputFile(machine, path, missing), path)
  return { raw: value, named: (part: readonly PropertyKey[]) => `${path}:${placeOf(part)}` }
}

/** A variable that names the store outranks the file. */
export const loadConfig = (machine: FileAccess, path: string) =>
  configure(machine, path, { assignments: [] })

/** A store in --set outranks the variable. */
export async function configure(
  machine: FileAccess,
  path: string,
  { assignments, host, port }: ConfigChanges,
): Promise<LoadedConfig> {
  const { raw, named } = await readConfigFile(machine, path)
  const parsed = parseConfig(raw, path, named)
  const folder = dirname(resolve(machine.cwd, path))
  const set = assignments.length === 0 ? parsed : applySet(parsed, ...assignments)
  const listen = { ...set.listen, host: host ?? set.listen.host, port: port ?? set.listen.port }
  const admin = port === 0 ? { ...set.admin, port } : set.admin
  const metrics = port === 0 ? set.metrics && { ...set.metrics, port } : set.metrics
  const isSet = assignments.some((one) => /^store(_file)?=/.test(one))
  const files = isSet ? { ...machine, storeUrlFile: undefined } : machine
  const place = await placeOf(files, set, folder)
  return { config: { ...set, listen, admin, ...(metrics && { metrics }) }, folder, path, place }
}

/** A dev chain is not started for a key that nothing has. */
export function refuseBadAssignments(assignments: readonly string[]) {
  const chain = { profile: 'dev', rpc_urls: ['http://127.0.0.1'] }
  applySet(parseConfig({ chain }, 'the dev configuration'), ...assignments)
}

export async function registryOf(machine: FileAccess, { config, folder }: LoadedConfig) {
  if (config.questions === null) return []
  const missing = 'create that file, or correct "questions" in gateway.json'
  return readQuestions(machine, resolve(folder, config.questions), missing)
}

export const readQuestions = async (machine: FileAccess, path: string, missing: string) =>
  parseRegistry(await readJsonFile(machine, path, missing), path)

async function placeOf(
  { storeUrlFile: named, cwd }: FileAccess,
  { store, store_file: file }: GatewayConfig,
  folder: string,
): Promise<StorePlace> {
  if (named !== undefined)
    return { kind: 'database', url: await readStoreUrl(resolve(cwd, named)), isFromVariable: true }
  if (file !== undefined)
    return { kind: 'database', url: await readStoreUrl(resolve(folder, file)) }
  return isDatabaseUrl(store)
    ? { kind: 'database', url: store }
    : { kind: 'folder', folder: resolve(folder, store) }
}

export function storeFolder({ place }: Pick<LoadedConfig, 'place'>) {
  if (place.kind === 'folder') return place.folder
  throw new UsageError(
    'shared_store',
    'this command works on a store in a folder only',
    'use the tools of the database instead: pg_basebackup, pg_dump, pg_amcheck',
  )
}

export const adminTokenFile = ({ config, folder, place }: LoadedConfig) =>
  place.kind === 'folder'
    ? join(place.folder, 'admin.token')
    : resolve(folder, config.admin.token_file ?? './admin.token')

export const seenFile = (loaded: LoadedConfig): SeenFile => ({
  folder: dirname(adminTokenFile(loaded)),
  name: `${basename(loaded.path).replace(/\.json$/, '')}.seen`,
})

export const pastedCommand =
  ({ path }: Pick<LoadedConfig, 'path'>) =>
  (command: string) =>
    `\`proposer operator ${command} --config ${shellWord(path)}\``

export const expectedChain = ({ chain }: GatewayConfig): ExpectedChain => ({
  expectedChainId: chain.id,
  maxHeadAgeSeconds: chain.max_head_age_seconds,
})

export const settingsOf = (
  { chain, admission: { allowlist, enabled: admissionEnabled } }: GatewayConfig,
  genesisHash: Hex | undefined,
): LedgerSettings => ({ chainId: chain.id, genesisHash, allowlist, admissionEnabled })
