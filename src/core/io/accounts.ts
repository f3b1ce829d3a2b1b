import type { Files } from '#ports'
import { jsonOf } from '#protocol/capped'
import { UsageError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { accountNames, readAccountText } from './account-files.js'
import { type ElsewhereAccount, elsewhereAccount } from './account-kinds.js'
import { type KeySigner, signerOn } from './key-files.js'
import { decryptKeystore, keystoreAddress } from './keystore.js'
import { quickestCurve } from './native-curve.js'

export interface AccountEntry {
  readonly name: string
  readonly address: Address | undefined
  /** No password opens the account then. */
  readonly elsewhere?: ElsewhereAccount
}

export const readAccount = async (
  files: Files,
  home: string,
  name: string,
): Promise<AccountEntry> => entryOf(await readAccountText(files, home, name), name)

function entryOf(text: string, name: string): AccountEntry {
  const elsewhere = elsewhereAccount(jsonOf(text), name)
  if (elsewhere) return { name, address: elsewhere.address, elsewhere }
  return { name, address: keystoreAddress(text, keystoreOf(name)) }
}

const keystoreOf = (name: string) => `the keystore of account ${name}`

export async function listAccounts(files: Files, home: string): Promise<readonly AccountEntry[]> {
  const entries: AccountEntry[] = []
  for (const name of await accountNames(files, home)) {
    try {
      entries.push(await readAccount(files, home, name))
    } catch (error) {
      if (!(error instanceof UsageError)) throw error
    }
  }
  return entries
}

export const accountPinFiles = async (files: Files, home: string) =>
  (await listAccounts(files, home)).flatMap(({ elsewhere }) => elsewhere?.place.pin_file ?? [])

/** The caller disposes of it. `password` is asked for a keystore's alone. */
export async function openAccountKey(
  files: Files,
  home: string,
  name: string,
  password: (name: string) => Promise<string>,
  signal?: AbortSignal,
): Promise<KeySigner> {
  const text = await readAccountText(files, home, name)
  const { elsewhere } = entryOf(text, name)
  if (elsewhere) return elsewhere.open(signal)
  const curve = await quickestCurve()
  return signerOn(curve, await decryptKeystore(text, await password(name), keystoreOf(name)))
}
