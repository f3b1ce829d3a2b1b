/** gateway.json (contract §7). */
import * as z from 'zod'
import { canonicalPermit2 } from '#chain/constants'
import { builtInProfile, defaultFailedGas, defaultProposalGas, profileNames } from '#chain/profiles'
import { type Contracts, requesterKinds } from '#chain/round'
import { isMistyped, lowercaseAddresses } from '#protocol/address'
import { connectionPlaces } from '#protocol/call'
import { UsageError } from '#protocol/errors'
import { didYouMean, nearest } from '#protocol/guess'
import { pick } from '#protocol/pick'
import { pkcs11UriFault } from '#protocol/pkcs11-uri'
import { urlFault } from '#protocol/plain-http'
import { Address as AddressText, Bytes32, NonzeroAddress } from '#protocol/schema'
import { isStorePlace } from '#protocol/url-secrets'
import { usualPorts } from '#protocol/words'
import { parseCidr } from './front/budget.js'

const port = z.int().min(0).max(65_535).describe('a port, 0 to 65535')
const host = z.string().min(1).describe('a host name or address')
const positive = z.int().min(1)
const path = z.string().min(1)
const flag = (usual: boolean) => z.boolean().default(usual).describe('true or false')
const within = (least: number, most: number, usual: number, what = 'an integer') =>
  z.int().min(least).max(most).default(usual).describe(`${what} from ${least} to ${most}`)
const atLeast1 = (usual: number, what: string) =>
  positive.default(usual).describe(`a number of ${what}, at least 1`)

const address = z.string().pipe(NonzeroAddress).meta({ pattern: '^0x(?!0{40}$)[0-9a-fA-F]{40}$' })
const contract = address.describe('a contract address (EIP-55 or lowercase)')
const distinct = (what: string) =>
  z
    .array(address)
    .min(1)
    .refine((list) => new Set(list).size === list.length)
    .describe(`a list of one or more distinct ${what} addresses (EIP-55 or lowercase)`)

const expecting = (key: string, expected: string) => ({ path: [key], params: { expected } })

const RemoteSignerSection = z
  .strictObject({
    url: z.string().describe('the URL of the signer'),
    address: address.describe('the address of the executor (EIP-55 or lowercase)'),
    allow_http: flag(false),
  })
  .refine(
    ({ url, allow_http }) =>
      urlFault(url, allow_http && URL.canParse(url) ? [new URL(url).hostname] : []) === undefined,
    expecting(
      'url',
      'an https URL without user name, password and fragment; http is for loopback names, or with "allow_http": true',
    ),
  )
  .describe('{"url", "address"} of a signer that answers eth_signTransaction')

const Pkcs11Section = z
  .strictObject({
    uri: z.string().describe('a pkcs11: URI (RFC 7512)'),
    module: path.describe("the path of the token's PKCS#11 module"),
    pin_file: path.describe('the path of a file of mode 0600 with the PIN'),
  })
  .superRefine(({ uri }, refinement) => {
    const fault = pkcs11UriFault(uri)
    const expected = `a pkcs11: URI of one key (RFC 7512): ${fault}`
    if (fault !== undefined) refinement.addIssue({ code: 'custom', ...expecting('uri', expected) })
  })
  .describe('{"uri", "module", "pin_file"} of a key in a PKCS#11 token')

const executorKeys = ['key_file', 'account', 'signer', 'pkcs11'] as const

const ExecutorSection = z
  .strictObject({
    enabled: flag(true),
    key_file: path.optional().describe('the path of a key file'),
    account: path.optional().describe('the name of an account'),
    signer: RemoteSignerSection.optional(),
    pkcs11: Pkcs11Section.optional(),
    max_fee_gwei: z
      .number()
      .positive()
      .max(1_000_000_000)
      .default(1000)
      .describe('a number of gwei above 0, at most 1000000000'),
    batch: within(1, 100, 25),
    in_flight: within(1, 64, 16),
    max_proposal_gas: within(100_000, 20_000_000, defaultProposalGas, 'an amount of gas'),
    failed_gas_per_wallet: z
      .int()
      .min(100_000)
      .max(1_000_000_000_000)
      .default(defaultFailedGas)
      .describe('an amount of gas a day, from max_proposal_gas to 1000000000000'),
  })
  .refine(
    (section) => section.failed_gas_per_wallet >= section.max_proposal_gas,
    expecting('failed_gas_per_wallet', 'an amount of gas a day, at least max_proposal_gas'),
  )
  .refine((section) => executorKeys.filter((key) => section[key] !== undefined).length < 2, {
    params: { expected: `an object with only one of ${executorKeys.join(', ')}` },
  })
  .prefault({})
  .describe(
    `an object with enabled, one of ${executorKeys.join(', ')}, max_fee_gwei, batch, in_flight, max_proposal_gas and failed_gas_per_wallet`,
  )

const ChainContent = z.strictObject({
  profile: z
    .enum(profileNames)
    .optional()
    .describe(`the name of a built-in profile: ${profileNames.join(' or ')}`),
  id: positive.default(137).describe('the chain id, an integer such as 137'),
  rpc_urls: z
    .array(z.url({ protocol: /^https?$/ }).meta({ pattern: '^https?:' }))
    .min(1)
    .describe('a list of one or more http(s) URLs of nodes'),
  permit2: contract.default(canonicalPermit2),
  signed_proposer: contract,
  oracles: distinct('contract'),
  requesters: z
    .array(
      z.strictObject({
        address: contract,
        kind: z
          .enum(requesterKinds)
          .describe('uma-ctf-adapter, uma-ctf-adapter-negrisk, oo-reporter or direct'),
      }),
    )
    .min(1)
    .describe('a list of one or more {"address", "kind"}'),
  tokens: distinct('token'),
  implementations: z
    .record(
      address,
      z.strictObject({
        implementation: address.describe('the address of the contract code'),
        code_hash: z
          .string()
          .pipe(Bytes32)
          .meta({ pattern: '^0x[0-9a-f]{64}$' })
          .describe('keccak256 of that code, 0x and 64 lowercase hex digits'),
      }),
    )
    .optional()
    .describe('{"0x…": {"implementation", "code_hash"}}, the code of each contract'),
  confirmations: z
    .literal('finalized')
    .default('finalized')
    .describe('"finalized", or omitted: a number of blocks is no longer possible'),
  max_head_age_seconds: atLeast1(30, 'seconds'),
})

const ChainSection = ChainContent.superRefine(({ profile, id }, refinement) => {
  const built = builtInProfile(profile)
  if (built === undefined || built.chainId === id) return
  const expected = `${built.chainId}, the chain of profile ${profile}, or omitted`
  refinement.addIssue({ code: 'custom', ...expecting('id', expected) })
})

/** Slugs decide what is read and shown: nobody on the way may change them. */
const plainBase = (text: string) => !/[?#]/.test(text) && urlFault(text) === undefined

const SlugsSection = z.discriminatedUnion('source', [
  z.strictObject({ source: z.literal('registry') }),
  z.strictObject({
    source: z.literal('gamma'),
    url: z
      .string()
      .refine(plainBase)
      .describe('an https URL (http on loopback names only) without user name, query and fragment'),
  }),
])

const exactOrigin = (text: string) =>
  /^https?:\/\/[a-z0-9.-]+(:\d{1,5})?$/.test(text) ||
  /^https?:\/\/\[[0-9a-f:]+\](:\d{1,5})?$/.test(text)

const defaultStore = './gateway-store'

export const ConfigFile = z.strictObject({
  $schema: z.string().optional().describe('the JSON Schema of this file, for editors'),
  listen: z
    .strictObject({
      host: host.default('127.0.0.1'),
      port: port.default(usualPorts.listen),
      drain_seconds: z
        .int()
        .min(0)
        .max(8)
        .default(3)
        .describe('a number of seconds from 0 to 8, for which a stopping gateway still answers'),
      connections_per_address: within(1, connectionPlaces, connectionPlaces),
    })
    .prefault({}),
  admin: z
    .strictObject({
      port: port.default(usualPorts.admin),
      connections: within(1, connectionPlaces, 64),
      token_file: path.optional().describe('the path of the admin token of a shared store'),
    })
    .prefault({}),
  store: path
    .refine(isStorePlace, {
      params: {
        expected:
          'a folder, or a postgres:// URL without a password; put a URL with a password into a file of mode 0600 and set "store_file" to it',
      },
    })
    .default(defaultStore)
    .describe('the path of a folder, or a postgres:// URL'),
  store_file: path
    .optional()
    .describe('the path of a file of mode 0600 with the postgres:// URL of the store'),
  chain: ChainSection.describe('the chain section (required)'),
  questions: path.nullable().default(null).describe('the path of a questions file, or null'),
  slugs: SlugsSection.default({ source: 'registry' }).describe(
    '{"source": "registry"} or {"source": "gamma", "url": "https://…"}',
  ),
  admission: z
    .strictObject({
      enabled: flag(true),
      allowlist: z
        .array(z.string().pipe(AddressText).meta({ pattern: '^0x[0-9a-fA-F]{40}$' }))
        .default([])
        .describe('a list of wallet addresses (EIP-55 or lowercase)'),
      stored_bytes_per_wallet: positive
        .default(8 * 1024 * 1024)
        .describe('a number of bytes, at least 1, that failed proposals of a wallet add in a day'),
    })
    .prefault({}),
  budget: z
    .strictObject({
      window_seconds: atLeast1(60, 'seconds'),
      per_ip_items: atLeast1(120, 'items'),
      global_items: atLeast1(1000, 'items'),
    })
    .prefault({}),
  cors: z
    .strictObject({
      origins: z
        .array(z.string().refine(exactOrigin))
        .default([])
        .describe('a list of origins such as "https://app.example"'),
    })
    .prefault({}),
  proxy: z
    .strictObject({
      trusted_cidrs: z
        .array(z.string().refine((text) => parseCidr(text) !== undefined))
        .default([])
        .describe('a list of address blocks such as "10.0.0.0/8"'),
    })
    .prefault({}),
  metrics: z
    .strictObject({ host, port })
    .optional()
    .describe('{"host", "port"} of a listener for /metrics, /healthz and /readyz alone'),
  pipeline: z.strictObject({ enabled: flag(true) }).prefault({}),
  executor: ExecutorSection,
  receipts: z
    .strictObject({
      key_file: path.default('./receipt-key.json').describe('the path of the key file'),
    })
    .optional()
    .describe('{"key_file"}: answers are signed with the key in that file'),
})

export type GatewayConfig = z.infer<typeof ConfigFile>

export function configuredContracts({ chain }: GatewayConfig): Contracts {
  const { id: chainId, signed_proposer: signedProposer } = chain
  return { chainId, signedProposer, ...pick(chain, 'permit2', 'oracles', 'requesters', 'tokens') }
}

export const ceilingsOf = ({ listen, admin, admission, executor }: GatewayConfig) => ({
  ...pick(listen, 'connections_per_address'),
  admin_connections: admin.connections,
  ...pick(admission, 'stored_bytes_per_wallet'),
  ...pick(executor, 'max_proposal_gas', 'failed_gas_per_wallet'),
})

/** Values are never repeated: URLs may carry credentials (R5). */
export function parseConfig(
  raw: unknown,
  source: string,
  named: (path: readonly PropertyKey[]) => string = () => source,
): GatewayConfig {
  const judged = judge(raw)
  if ('config' in judged) return judged.config
  const [fault = { path: [], detail: 'is not a gateway configuration' }] = judged.faults
  throw new UsageError(
    'config_invalid',
    `${named(fault.path)}: ${fault.detail}`,
    `correct ${source}, then run \`proposer serve --check\``,
  )
}

export function configFaults(raw: unknown) {
  const judged = judge(raw)
  return 'faults' in judged ? judged.faults : []
}

function judge(raw: unknown) {
  if (isRecord(raw) && raw.store !== undefined && raw.store_file !== undefined) {
    const detail = 'store_file must be omitted if "store" is given'
    return { faults: [{ path: ['store_file'], detail }] }
  }
  const whole = withProfile(lowercaseAddresses(raw))
  const parsed = ConfigFile.safeParse(whole)
  if (parsed.success) return { config: parsed.data }
  const isUnknown = ({ code }: z.core.$ZodIssue) => Number(code === 'unrecognized_keys')
  const issues = withoutMissingPins(parsed.error.issues).toSorted(
    (one, other) => isUnknown(other) - isUnknown(one),
  )
  return { faults: issues.flatMap((issue) => faultsOf(issue, whole)) }
}

function withoutMissingPins(issues: readonly z.core.$ZodIssue[]) {
  const keyOf = ({ path }: z.core.$ZodIssue) => path.join('.')
  if (!issues.some((issue) => keyOf(issue) === 'chain.profile')) return issues
  const pin = /^chain\.(permit2|signed_proposer|oracles|requesters|tokens)$/
  return issues.filter((issue) => issue.code !== 'invalid_type' || !pin.test(keyOf(issue)))
}

function withProfile(raw: unknown) {
  if (!isRecord(raw) || !isRecord(raw.chain)) return raw
  const { chain } = raw
  const profile = typeof chain.profile === 'string' ? builtInProfile(chain.profile) : undefined
  if (profile === undefined) return raw
  const { chainId: id, signedProposer: signed_proposer } = profile
  const pins = {
    ...{ id, ...pick(profile, 'permit2', 'oracles', 'requesters', 'tokens') },
    ...(signed_proposer && { signed_proposer }),
  }
  return { ...raw, chain: { ...pins, ...chain } }
}

/** Values are JSON where they parse. All are set before the whole is judged. */
export function applySet(config: GatewayConfig, ...assignments: readonly string[]): GatewayConfig {
  const next: unknown = structuredClone(config)
  const unset: (() => void)[] = []
  for (const assignment of assignments) {
    const split = assignment.indexOf('=')
    if (split < 1) throw invalidSetting(`--set requires key=value, such as budget.per_ip_items=500`)
    if (assignment.startsWith('chain.profile='))
      throw invalidSetting('--set chain.profile: set the profile in gateway.json itself')
    const keys = assignment.slice(0, split).split('.')
    const last = keys.pop()
    const parent = keys.reduce<unknown>((section, key) => {
      if (!isSection(section) || key === '__proto__') return undefined
      if (!Object.hasOwn(section, key)) section[key] = {}
      return section[key]
    }, next)
    if (!isSection(parent) || last === undefined || last === '__proto__') {
      throw invalidSetting(`--set ${assignment.slice(0, split)}: unknown configuration key`)
    }
    parent[last] = settingValue(assignment.slice(split + 1))
    if (parent[last] === null) unset.push(() => delete parent[last])
  }
  if (isRecord(next) && next.store === defaultStore && next.store_file !== undefined)
    delete next.store
  if (configFaults(next).length > 0) for (const take of unset) take()
  const judged = judge(next)
  if ('config' in judged) return judged.config
  throw invalidSetting(`--set: ${judged.faults[0]?.detail}`)
}

const isSection = (value: unknown): value is Record<string, unknown> =>
  isRecord(value) && !Array.isArray(value)

function settingValue(text: string) {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

const invalidSetting = (detail: string) =>
  new UsageError(
    'setting_invalid',
    detail,
    'dotted keys of gateway.json; lists and objects as JSON',
  )

interface ConfigFault {
  readonly path: readonly PropertyKey[]
  readonly detail: string
}

export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null

export const droppedKeys: Readonly<Record<string, string>> = {
  'chain.ws_urls':
    'Take it out: rpc_urls are asked every 0.5 s while something is awaited, else every 2 s.',
  webhooks: 'Take it out: /metrics and the alert rules of deploy/ tell of a gateway.',
}

function faultsOf(issue: z.core.$ZodIssue, raw: unknown): readonly ConfigFault[] {
  const { path } = issue
  if (issue.code !== 'unrecognized_keys') return [{ path, detail: valueFault(issue, raw) }]
  const known = Object.keys(shapeOf(schemasAlong(path).at(-1)))
  const whyUnknown = (name: string, key: string) => {
    const instead = Object.hasOwn(droppedKeys, key) ? droppedKeys[key] : undefined
    if (instead !== undefined) return `no longer a configuration key. ${instead}`
    if (known.includes(name))
      return `not a configuration key beside the others of ${path.join('.')}`
    const near = nearest(name, known).map((one) => [...path, one].join('.'))
    const meant = near.length === 0 ? `Known keys here: ${known.join(', ')}` : didYouMean(near)
    return `not a configuration key. ${meant}`
  }
  return issue.keys.map((name) => {
    const whole = [...path, name]
    const key = whole.join('.')
    return { path: whole, detail: `${JSON.stringify(key)} is ${whyUnknown(name, key)}` }
  })
}

function valueFault(issue: z.core.$ZodIssue, raw: unknown) {
  const key = issue.path.join('.')
  if (key === '') return 'it must be one JSON object'
  const valueAt = (keys: readonly PropertyKey[]) =>
    keys.reduce((value, part) => (isRecord(value) ? value[String(part)] : undefined), raw)
  const given = valueAt(issue.path)
  if (isMistyped(given))
    return `${key} has a wrong checksum (EIP-55): a character is mistyped; copy the address again`
  const own: unknown = issue.code === 'custom' ? issue.params?.expected : undefined
  const expected =
    typeof own === 'string' ? own : (describe(issue.path) ?? 'in the documented form')
  if (given !== undefined) return `${key} must be ${expected}`
  const missing = `${key} is missing; it must be ${expected}`
  return key === 'chain.signed_proposer' && valueAt(['chain', 'profile']) !== undefined
    ? `${missing}: there is no public source for the SignedProposer of this profile, so ask the operator of that contract`
    : missing
}

function bare(schema: unknown) {
  let inner = schema
  while (
    inner instanceof z.ZodDefault ||
    inner instanceof z.ZodPrefault ||
    inner instanceof z.ZodOptional ||
    inner instanceof z.ZodNullable
  ) {
    inner = inner.unwrap()
  }
  return inner
}

function shapeOf(schema: unknown): Record<PropertyKey, unknown> {
  const inner = bare(schema)
  if (inner instanceof z.ZodObject) return inner.shape
  const variants = inner instanceof z.ZodDiscriminatedUnion ? inner.options : []
  return Object.assign({}, ...variants.map(shapeOf))
}

function schemasAlong(keys: readonly PropertyKey[]) {
  const along: unknown[] = [ConfigFile]
  for (const key of keys) {
    const inner = bare(along.at(-1))
    if (inner instanceof z.ZodArray) along.push(inner.element)
    else if (inner instanceof z.ZodRecord) along.push(inner.valueType)
    else along.push(shapeOf(inner)[key])
  }
  return along
}

const describe = (keys: readonly PropertyKey[]) =>
  schemasAlong(keys)
    .flatMap((schema) => [bare(schema), schema])
    .map((one) => (one instanceof z.ZodType ? one.description : undefined))
    .findLast((text) => text !== undefined)
