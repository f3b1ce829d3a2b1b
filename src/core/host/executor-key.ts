import { resolve } from 'node:path'
import { type Finding, fail, note, pass, warn } from '#checks/finding'
import { probeDigest } from '#io/account-kinds'
import { openAccountKey, readAccount } from '#io/accounts'
import { type KeySigner, readKeyFile, signerFromKey } from '#io/keys'
import type { Machine } from '#ports'
import { ProposerError, UsageError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { counted } from '#protocol/text'
import type { LoadedConfig } from './config-file.js'

export interface ExecutorKeySource {
  readonly home: string
  readonly account?: string | undefined
  /** Absolute. Stands before what gateway.json names. */
  readonly keyFile?: string | undefined
  readonly password: (name: string) => Promise<string>
}

/** The key that is named, in order of precedence (contract §7, Executor key). */
function namedKey(
  { files }: Pick<Machine, 'files'>,
  { config, folder }: LoadedConfig,
  { home, account, keyFile, password }: ExecutorKeySource,
) {
  const { key_file, account: configured, signer, pkcs11 } = config.executor
  const file = keyFile ?? (key_file === undefined ? undefined : resolve(folder, key_file))
  if (account === undefined && file !== undefined)
    return { kind: 'file', open: async () => signerFromKey(await readKeyFile(file)) } as const
  const name = account ?? configured
  if (name !== undefined)
    return {
      kind: 'account',
      name,
      open: () => openAccountKey(files, home, name, password),
    } as const
  if (signer !== undefined) {
    const open = async () => (await import('#io/remote-signer')).openRemoteSigner(signer)
    return { kind: 'signer', address: signer.address, open } as const
  }
  if (pkcs11 === undefined) return undefined
  const { uri, module, pin_file } = pkcs11
  const place = { uri, module: resolve(folder, module), pin_file: resolve(folder, pin_file) }
  return {
    kind: 'token',
    open: async () => (await import('#io/pkcs11')).openPkcs11(place),
  } as const
}
type NamedKey = NonNullable<ReturnType<typeof namedKey>>

export async function executorSigner(
  machine: Pick<Machine, 'files'>,
  loaded: LoadedConfig,
  source: ExecutorKeySource,
): Promise<KeySigner | undefined> {
  const { pipeline, executor } = loaded.config
  if (!pipeline.enabled || !executor.enabled) return undefined
  const named = namedKey(machine, loaded, source)
  if (named !== undefined) return named.open()
  throw new UsageError(
    'no_executor_key',
    'the executor is enabled but has no key',
    'set executor.key_file, executor.account, executor.signer or executor.pkcs11 in gateway.json, or PROPOSER_EXECUTOR_KEY_FILE, or executor.enabled=false',
  )
}

export interface CheckedKeySource extends ExecutorKeySource {
  /** A keystore is unlocked only then. */
  readonly isPasswordInFile: boolean
}

interface KeyChecked {
  readonly finding: Finding
  readonly executor?: Address | undefined
}

const id = 'executor_key'

/**
 * One in a token or a key service signs once, a digest that is of nothing; a remote signer is
 * asked for its accounts alone.
 */
export async function checkExecutorKey(
  machine: Machine,
  loaded: LoadedConfig,
  source: CheckedKeySource,
): Promise<KeyChecked> {
  const { pipeline, executor } = loaded.config
  if (!pipeline.enabled || !executor.enabled) {
    const off = pipeline.enabled ? 'executor' : 'pipeline'
    const finding = note(id, `${off}.enabled is false: candidates wait, and nothing is executed`)
    return { finding }
  }
  const named = namedKey(machine, loaded, source)
  if (named === undefined) {
    const fix =
      'set executor.key_file, executor.account, executor.signer or executor.pkcs11 in gateway.json, give --executor-account, or set PROPOSER_EXECUTOR_KEY_FILE or executor.enabled=false'
    return { finding: fail(id, 'the executor is enabled but has no key', fix) }
  }
  if (named.kind === 'signer')
    return { finding: await checkRemoteSigner(named), executor: named.address }
  if (named.kind === 'file')
    return opened(
      await named.open(),
      (executor) => `the key file of ${executor} is readable by its owner only`,
    )
  if (named.kind === 'token')
    return opened(
      await named.open(),
      (executor) => `the key of ${executor} in its PKCS#11 token signs`,
      true,
    )
  const { name, open } = named
  const { address, elsewhere } = await readAccount(machine.files, source.home, name)
  if (elsewhere !== undefined)
    return opened(
      await open(),
      (executor) => `the account ${name} of ${executor} signs in its ${elsewhere.holder}`,
      true,
    )
  if (source.isPasswordInFile)
    return opened(
      await open(),
      (executor) => `the keystore ${name} of ${executor} opens with its password`,
    )
  const of = address === undefined ? '' : ` of the executor ${address}`
  const finding = warn(
    id,
    `the keystore ${name}${of} exists; its password was not tried`,
    'give --executor-password-file <file>; a gateway without a terminal requires it',
  )
  return { finding, executor: address }
}

async function opened(
  signer: KeySigner,
  detailOf: (executor: string) => string,
  isSigning = false,
) {
  try {
    if (isSigning) await signer.signDigest(probeDigest)
  } finally {
    signer.dispose()
  }
  const { address: executor } = signer
  return { finding: pass(id, detailOf(`the executor ${executor}`)), executor }
}

/** Nothing is signed, and its URL is not shown (R5). */
async function checkRemoteSigner({
  open,
  address,
}: Extract<NamedKey, { readonly kind: 'signer' }>) {
  const signer = await open()
  const executor = `the executor ${address}`
  const unseen = 'that it signs shows only with the first transaction'
  try {
    const accounts = await signer.accounts()
    if (accounts?.includes(address) === true)
      return pass(id, `the remote signer answers and lists ${executor}`)
    if (accounts === undefined)
      return note(id, `the remote signer of ${executor} answers, and lists no accounts: ${unseen}`)
    return fail(
      id,
      `the remote signer lists ${counted(accounts.length, 'account')}, not ${executor}`,
      'give the signer the key of that account, or correct executor.signer.address',
    )
  } catch (error) {
    if (!(error instanceof ProposerError)) throw error
    // Clef asks its rules before it lists.
    if (error.code === 'signer_refused')
      return warn(id, `${error.detail}: ${unseen}`, 'let the signer list its accounts')
    return fail(id, error.detail, error.meta.hint ?? 'check executor.signer in gateway.json')
  } finally {
    signer.dispose()
  }
}
