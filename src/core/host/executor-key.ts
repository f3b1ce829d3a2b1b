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
  readonly isPasswordInFile?: boolean
}

interface NamedKey {
  open(): Promise<KeySigner>
  check(): Promise<{ readonly finding: Finding; readonly executor?: Address | undefined }>
}

const id = 'executor_key'

/** One that is elsewhere signs once in a check, a digest that is of nothing. */
const opened = (
  open: NamedKey['open'],
  seen: (executor: string) => string,
  isElsewhere = false,
): NamedKey => ({
  open,
  async check() {
    const signer = await open()
    try {
      if (isElsewhere) await signer.signDigest(probeDigest)
    } finally {
      signer.dispose()
    }
    const { address: executor } = signer
    return { finding: pass(id, seen(`the executor ${executor}`)), executor }
  },
})

/** The key that is named, in order of precedence (contract §7, Executor key). */
function namedKey(
  { files }: Pick<Machine, 'files'>,
  { config, folder }: LoadedConfig,
  source: ExecutorKeySource,
): NamedKey {
  const { key_file, account: configured, signer, pkcs11 } = config.executor
  const file = source.keyFile ?? (key_file === undefined ? undefined : resolve(folder, key_file))
  if (source.account === undefined && file !== undefined)
    return opened(
      async () => signerFromKey(await readKeyFile(file)),
      (executor) => `the key file of ${executor} is readable by its owner only`,
    )
  const name = source.account ?? configured
  if (name !== undefined) return accountKey(files, name, source)
  if (signer !== undefined) return remoteKey(signer)
  if (pkcs11 !== undefined) {
    const { uri, module, pin_file } = pkcs11
    const place = { uri, module: resolve(folder, module), pin_file: resolve(folder, pin_file) }
    return opened(
      async () => (await import('#io/pkcs11')).openPkcs11(place),
      (executor) => `the key of ${executor} in its PKCS#11 token signs`,
      true,
    )
  }
  throw new UsageError(
    'no_executor_key',
    'the executor is enabled but has no key',
    'set executor.key_file, executor.account, executor.signer or executor.pkcs11 in gateway.json, or PROPOSER_EXECUTOR_KEY_FILE, or executor.enabled=false',
  )
}

function accountKey(
  files: Machine['files'],
  name: string,
  { home, password, isPasswordInFile = false }: ExecutorKeySource,
): NamedKey {
  const open = () => openAccountKey(files, home, name, password)
  return {
    open,
    async check() {
      const { address, elsewhere } = await readAccount(files, home, name)
      const seen = (executor: string) =>
        elsewhere
          ? `the account ${name} of ${executor} signs in its ${elsewhere.holder}`
          : `the keystore ${name} of ${executor} opens with its password`
      if (elsewhere || isPasswordInFile) return opened(open, seen, elsewhere !== undefined).check()
      const of = address === undefined ? '' : ` of the executor ${address}`
      const finding = warn(
        id,
        `the keystore ${name}${of} exists; its password was not tried`,
        'give --executor-password-file <file>; a gateway without a terminal requires it',
      )
      return { finding, executor: address }
    },
  }
}

/** It is asked for its accounts alone, and its URL is not shown (R5). */
function remoteKey(at: NonNullable<LoadedConfig['config']['executor']['signer']>): NamedKey {
  const { address } = at
  const open = async () => (await import('#io/remote-signer')).openRemoteSigner(at)
  const look = async () => {
    const signer = await open()
    const executor = `the executor ${address}`
    const unseen = 'that it signs shows only with the first transaction'
    try {
      const accounts = await signer.accounts()
      if (accounts === undefined)
        return note(
          id,
          `the remote signer of ${executor} answers, and lists no accounts: ${unseen}`,
        )
      return accounts.includes(address)
        ? pass(id, `the remote signer answers and lists ${executor}`)
        : fail(
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
  return { open, check: async () => ({ finding: await look(), executor: address }) }
}

const whatIsOff = ({ config: { pipeline, executor } }: LoadedConfig) =>
  !pipeline.enabled ? 'pipeline' : executor.enabled ? undefined : 'executor'

export async function executorSigner(
  machine: Pick<Machine, 'files'>,
  loaded: LoadedConfig,
  source: ExecutorKeySource,
) {
  return whatIsOff(loaded) ? undefined : namedKey(machine, loaded, source).open()
}

export async function checkExecutorKey(
  machine: Machine,
  loaded: LoadedConfig,
  source: ExecutorKeySource,
): ReturnType<NamedKey['check']> {
  const off = whatIsOff(loaded)
  if (off === undefined) return namedKey(machine, loaded, source).check()
  return { finding: note(id, `${off}.enabled is false: candidates wait, and nothing is executed`) }
}
