import { resolve } from 'node:path'
import { type Finding, fail, note, pass, warn } from '#checks/finding'
import { probeDigest } from '#io/account-kinds'
import { openAccountKey, readAccount } from '#io/accounts'
import { type KeySigner, readKeyFile, signerFromKey } from '#io/keys'
import type { Pkcs11Place } from '#io/pkcs11'
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

export type NamedKey =
  | { readonly account: string }
  | { readonly file: string }
  | { readonly signer: { readonly url: string; readonly address: Address } }
  | { readonly pkcs11: Pkcs11Place }

/** In order of precedence (contract §7, Executor key). */
export function namedKey(
  { config, folder }: LoadedConfig,
  { account, keyFile }: Pick<ExecutorKeySource, 'account' | 'keyFile'>,
): NamedKey | undefined {
  const { key_file, account: configured, signer, pkcs11 } = config.executor
  if (account !== undefined) return { account }
  if (keyFile !== undefined) return { file: keyFile }
  if (key_file !== undefined) return { file: resolve(folder, key_file) }
  if (configured !== undefined) return { account: configured }
  if (signer !== undefined) return { signer }
  if (pkcs11 === undefined) return undefined
  const { uri, module, pin_file } = pkcs11
  return { pkcs11: { uri, module: resolve(folder, module), pin_file: resolve(folder, pin_file) } }
}

export const signerOfFile = async (path: string) => signerFromKey(await readKeyFile(path))

export const signerOfAccount = (
  { files }: Pick<Machine, 'files'>,
  { home, password }: Pick<ExecutorKeySource, 'home' | 'password'>,
  name: string,
) => openAccountKey(files, home, name, password)

export async function signerOfToken(place: Pkcs11Place): Promise<KeySigner> {
  const { openPkcs11 } = await import('#io/pkcs11')
  return openPkcs11(place)
}

export async function executorSigner(
  machine: Pick<Machine, 'files'>,
  loaded: LoadedConfig,
  source: ExecutorKeySource,
): Promise<KeySigner | undefined> {
  const { pipeline, executor } = loaded.config
  if (!pipeline.enabled || !executor.enabled) return undefined
  const named = namedKey(loaded, source)
  if (named === undefined)
    throw new UsageError(
      'no_executor_key',
      'the executor is enabled but has no key',
      'set executor.key_file, executor.account, executor.signer or executor.pkcs11 in gateway.json, or PROPOSER_EXECUTOR_KEY_FILE, or executor.enabled=false',
    )
  if ('signer' in named) {
    const { openRemoteSigner } = await import('#io/remote-signer')
    return openRemoteSigner(named.signer)
  }
  if ('pkcs11' in named) return signerOfToken(named.pkcs11)
  return 'file' in named
    ? signerOfFile(named.file)
    : signerOfAccount(machine, source, named.account)
}

export interface CheckedKeySource extends ExecutorKeySource {
  /** A keystore is unlocked only then. */
  readonly isPasswordInFile: boolean
}

interface KeyChecked {
  readonly finding: Finding
  readonly executor: Address | undefined
}

const id = 'executor_key'
const unknown = (finding: Finding): KeyChecked => ({ finding, executor: undefined })

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
    return unknown(note(id, `${off}.enabled is false: candidates wait, and nothing is executed`))
  }
  const named = namedKey(loaded, source)
  if (named === undefined)
    return unknown(
      fail(
        id,
        'the executor is enabled but has no key',
        'set executor.key_file, executor.account, executor.signer or executor.pkcs11 in gateway.json, give --executor-account, or set PROPOSER_EXECUTOR_KEY_FILE or executor.enabled=false',
      ),
    )
  if ('signer' in named)
    return { finding: await checkRemoteSigner(named.signer), executor: named.signer.address }
  if ('file' in named) {
    const signer = await signerOfFile(named.file)
    return opened(
      signer,
      `the key file of the executor ${signer.address} is readable by its owner only`,
    )
  }
  if ('pkcs11' in named) {
    const signer = await signerOfToken(named.pkcs11)
    return signing(signer, `the key of the executor ${signer.address} in its PKCS#11 token signs`)
  }
  return checkAccount(machine, source, named.account)
}

async function checkAccount(machine: Machine, source: CheckedKeySource, name: string) {
  const { address, elsewhere } = await readAccount(machine.files, source.home, name)
  const open = () => signerOfAccount(machine, source, name)
  if (elsewhere !== undefined) {
    const signer = await open()
    const detail = `the account ${name} of the executor ${signer.address} signs in its ${elsewhere.holder}`
    return signing(signer, detail)
  }
  if (source.isPasswordInFile) {
    const signer = await open()
    const detail = `the keystore ${name} of the executor ${signer.address} opens with its password`
    return opened(signer, detail)
  }
  const of = address === undefined ? '' : ` of the executor ${address}`
  const finding = warn(
    id,
    `the keystore ${name}${of} exists; its password was not tried`,
    'give --executor-password-file <file>; a gateway without a terminal requires it',
  )
  return { finding, executor: address }
}

function opened(signer: KeySigner, detail: string) {
  signer.dispose()
  return { finding: pass(id, detail), executor: signer.address }
}

async function signing(signer: KeySigner, detail: string): Promise<KeyChecked> {
  try {
    await signer.signDigest(probeDigest)
  } finally {
    signer.dispose()
  }
  return { finding: pass(id, detail), executor: signer.address }
}

/** Nothing is signed, and its URL is not shown (R5). */
async function checkRemoteSigner(named: Extract<NamedKey, { readonly signer: unknown }>['signer']) {
  const { openRemoteSigner } = await import('#io/remote-signer')
  const signer = openRemoteSigner(named)
  const executor = `the executor ${named.address}`
  const unseen = 'that it signs shows only with the first transaction'
  try {
    const accounts = await signer.accounts()
    if (accounts?.includes(named.address) === true)
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
