import { resolve } from 'node:path'
import type { KeySigner } from '../io/keys.js'
import type { Pkcs11Place } from '../io/pkcs11.js'
import type { Machine } from '../ports.js'
import { UsageError } from '../protocol/errors.js'
import type { Address } from '../protocol/schema.js'
import type { LoadedConfig } from './config-file.js'

export interface ExecutorKeySource {
  readonly home: string
  /** Stands before all else. */
  readonly account?: string | undefined
  /** Absolute. Stands before what gateway.json names. */
  readonly keyFile?: string | undefined
  /** Asked for a keystore alone. */
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

export async function signerOfFile(path: string): Promise<KeySigner> {
  const { readKeyFile, signerFromKey } = await import('../io/keys.js')
  return signerFromKey(await readKeyFile(path))
}

export async function signerOfAccount(
  { files }: Pick<Machine, 'files'>,
  { home, password }: Pick<ExecutorKeySource, 'home' | 'password'>,
  name: string,
): Promise<KeySigner> {
  const { openAccountKey } = await import('../io/accounts.js')
  return openAccountKey(files, home, name, password)
}

export async function signerOfToken(place: Pkcs11Place): Promise<KeySigner> {
  const { openPkcs11 } = await import('../io/pkcs11.js')
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
    throw new UsageError('no_executor_key', 'the executor is enabled but has no key', {
      hint: 'set executor.key_file, executor.account, executor.signer or executor.pkcs11 in gateway.json, or PROPOSER_EXECUTOR_KEY_FILE, or executor.enabled=false',
    })
  if ('signer' in named) {
    const { openRemoteSigner } = await import('../io/remote-signer.js')
    return openRemoteSigner(named.signer)
  }
  if ('pkcs11' in named) return signerOfToken(named.pkcs11)
  return 'file' in named
    ? signerOfFile(named.file)
    : signerOfAccount(machine, source, named.account)
}
