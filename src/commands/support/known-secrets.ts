/**
 * Every secret that a run of `support-bundle` can know (R5): what it writes is compared with each
 * of them. They go nowhere else.
 */
import { join, resolve } from 'node:path'
import type { JournalView } from '#client/journal/journal'
import { journalSignatures, type Secret, urlCredentials } from '#client/support/secret-scan'
import { adminTokenFile, type LoadedConfig } from '#host/config-file'
import { receiptKeyFile } from '#host/receipts'
import { accountPinFiles } from '#io/accounts'
import { fromCwd, homePaths } from '#io/home'
import type { Settings } from '../session/settings.js'
import type { Context } from '../terminal/context.js'

/**
 * Keys, password-like variables, keystores, PINs, the parts of URLs that look like credentials,
 * signatures of the journal.
 */
export async function clientSecrets(
  context: Context,
  settings: Settings,
  view: Pick<JournalView, 'authorizations' | 'offers'> | undefined,
): Promise<readonly Secret[]> {
  const { gateway, rpcUrl } = settings
  const keyFile = context.env.PROPOSER_KEY_FILE
  return [
    ...secretsOf('the key in PROPOSER_PRIVATE_KEY', [context.environmentKey]),
    ...secretsOf(
      'the key in PROPOSER_KEY_FILE',
      keyFile ? [await contentOf(context, fromCwd(context.cwd, keyFile))] : [],
    ),
    ...(await keystoreSecrets(context, settings.home.value)),
    ...secretsOf(
      'the PIN of a token',
      await Promise.all(
        (await accountPinFiles(context.files, settings.home.value)).map((path) =>
          contentOf(context, path),
        ),
      ),
    ),
    ...secretsOf(
      'a credential in the RPC URL',
      urlCredentials(rpcUrl === undefined ? [] : [rpcUrl.value]),
    ),
    ...secretsOf(
      'a credential in the gateway URL',
      urlCredentials(gateway === undefined ? [] : [gateway.value]),
    ),
    ...secretsOf('a signature of the journal', view === undefined ? [] : journalSignatures(view)),
    ...variableSecrets(context.env),
  ]
}

/** The same of a gateway's configuration. */
export async function gatewaySecrets(
  context: Context,
  loaded: LoadedConfig,
): Promise<readonly Secret[]> {
  const { config, folder, place } = loaded
  const { slugs, executor } = config
  const read = (path: string | undefined) =>
    path === undefined ? undefined : contentOf(context, resolve(folder, path))
  const keyFile = context.env.PROPOSER_EXECUTOR_KEY_FILE
  const receipts = (await read(receiptKeyFile(loaded))) ?? ''
  const password =
    place.kind === 'database' ? /:\/\/[^:@/]*:([^@/]*)@/.exec(place.url)?.[1] : undefined
  return [
    ...secretsOf('a credential in chain.rpc_urls', urlCredentials(config.chain.rpc_urls)),
    ...secretsOf(
      'a credential in slugs.url',
      urlCredentials(slugs.source === 'gamma' ? [slugs.url] : []),
    ),
    ...secretsOf(
      'a credential in executor.signer.url',
      urlCredentials(executor.signer ? [executor.signer.url] : []),
    ),
    ...secretsOf('the PIN of a token', [await read(executor.pkcs11?.pin_file)]),
    ...secretsOf("the executor's key", [
      keyFile ? await contentOf(context, resolve(context.cwd, keyFile)) : '',
      await read(executor.key_file),
    ]),
    ...secretsOf(
      'a receipt key',
      [...receipts.matchAll(/"d"\s*:\s*"([\w-]+)"/g)].map(([, half]) => half),
    ),
    ...secretsOf('the admin token', [await read(adminTokenFile(loaded))]),
    ...secretsOf('the password of the store', [password, password && decodeURIComponent(password)]),
  ]
}

/**
 * What a file holds without its last line end; `undefined` where nobody could have read it either.
 */
async function contentOf({ files }: Context, path: string): Promise<string | undefined> {
  try {
    return new TextDecoder().decode(await files.read(path)).trim()
  } catch {
    // What this process cannot read, it cannot have written into a bundle; that the file is missing
    // is what `doctor` tells.
    return undefined
  }
}

/** Secrets of one kind; what is empty or missing is none. */
const secretsOf = (kind: string, texts: readonly (string | undefined)[]): readonly Secret[] =>
  texts.flatMap((text) => (text === undefined || text === '' ? [] : [{ kind, text }]))

/**
 * Words in the names of variables that hold secrets, the short ones only as a word of their own.
 */
const telling =
  /(?:KEY|SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|MNEMONIC|CREDENTIAL)S?\d*$|^(?:PASS|PW|PWD|PAT|AUTH|SEED|CREDS?)\d*$/i
/** What such a secret is kept in, or reported about it, is none itself. */
const about = /_(?:FILE|PATH|DIR|URL|HOST|USER|NAME|TYPE|SOCK)$/i
/** A path, or a public address, is none; what is this short is in every text. */
const harmless = /^(?:[./~].*|0x[0-9a-fA-F]{40}|.{0,7})$/s

const isTelling = (name: string) =>
  !about.test(name) && name.split(/[^A-Za-z0-9]+/).some((word) => telling.test(word))

/** What the kind of such a secret begins with; the name follows. */
export const variableKind = 'the variable '

function variableSecrets(env: Context['env']): readonly Secret[] {
  return Object.entries(env).flatMap(([name, value = '']) =>
    isTelling(name) && !harmless.test(value) ? secretsOf(`${variableKind}${name}`, [value]) : [],
  )
}

/** Ciphertext and check sum of every keystore: with a weak password they are the key. */
async function keystoreSecrets(context: Context, home: string): Promise<readonly Secret[]> {
  const folder = homePaths.keystores(home)
  if (!(await context.files.exists(folder))) return []
  const secrets: Secret[] = []
  for (const name of await context.files.list(folder)) {
    const text = await contentOf(context, join(folder, name))
    const found = [...(text ?? '').matchAll(/"(?:ciphertext|mac)"\s*:\s*"([0-9a-f]+)"/gi)].map(
      ([, hex]) => hex,
    )
    secrets.push(...secretsOf('a keystore', found))
  }
  return secrets
}
