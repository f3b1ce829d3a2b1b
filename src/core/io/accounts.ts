import { randomUUID } from 'node:crypto'
import type { Files } from '#ports'
import { jsonOf } from '#protocol/capped'
import { StorageError, UsageError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { joinPath, makeDurableDir, publishNew } from '#storage/durable'
import { errorCode } from '#storage/failures'
import { type ElsewhereAccount, elsewhereAccount } from './account-kinds.js'
import { signerOn } from './key-files.js'
import { addressOfKey } from './keys.js'
import { decryptKeystore, encryptKeystore, keystoreAddress } from './keystore.js'
import { quickestCurve } from './native-curve.js'

export interface AccountEntry {
  readonly name: string
  readonly address: Address | undefined
  readonly elsewhere?: ElsewhereAccount
}

export const readAccount = async (files: Files, home: string, name: string) =>
  entryOf(await readAccountText(files, home, name), name)

function entryOf(text: string, name: string): AccountEntry {
  const elsewhere = elsewhereAccount(jsonOf(text), name)
  if (elsewhere) return { name, address: elsewhere.address, elsewhere }
  return { name, address: keystoreAddress(text, keystoreOf(name)) }
}

const keystoreOf = (name: string) => `the keystore of account ${name}`

export async function listAccounts(files: Files, home: string) {
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

/** The caller disposes of it. */
export async function openAccountKey(
  files: Files,
  home: string,
  name: string,
  password: (name: string) => Promise<string>,
  signal?: AbortSignal,
) {
  const text = await readAccountText(files, home, name)
  const { elsewhere } = entryOf(text, name)
  if (elsewhere) return elsewhere.open(signal)
  const curve = await quickestCurve()
  return signerOn(curve, await decryptKeystore(text, await password(name), keystoreOf(name)))
}

export async function publishAccount(files: Files, home: string, name: string, text: string) {
  const path = pathOf(home, name)
  const folder = joinPath(home, 'keystores')
  try {
    await makeDurableDir(files, folder)
    await publishNew(files, folder, `${name}.json`, randomUUID(), text)
    return path
  } catch (cause) {
    if (errorCode(cause) === 'EEXIST') throw accountExists(name)
    throw new StorageError(
      'keystore_unusable',
      `the keystore ${path} cannot be written (${errorCode(cause) ?? 'unknown'})`,
      { hint: 'check permissions and free space of the home folder', cause },
    )
  }
}

export async function removeAccount(files: Files, home: string, name: string) {
  const path = pathOf(home, name)
  if (!(await files.exists(path))) throw accountNotFound(name)
  await files.remove(path)
  await files.syncDir(joinPath(home, 'keystores'))
  return path
}

/** A crash between the two steps leaves both names. */
export async function renameAccount(files: Files, home: string, from: string, to: string) {
  const [path, next] = [pathOf(home, from), pathOf(home, to)]
  if (!(await files.exists(path))) throw accountNotFound(from)
  try {
    await files.link(path, next)
  } catch (cause) {
    if (errorCode(cause) === 'EEXIST') throw accountExists(to)
    throw cause
  }
  await files.syncDir(joinPath(home, 'keystores'))
  await removeAccount(files, home, from)
  return next
}

export async function freeAccountPath(files: Files, home: string, name: string) {
  const path = pathOf(home, name)
  if (await files.exists(path)) throw accountExists(name)
  return path
}

const accountNotFound = (name: string) =>
  new UsageError(
    'account_not_found',
    `there is no account ${name}`,
    'see `proposer account list`, or create one with `proposer account new`',
  )

const accountExists = (name: string) =>
  new UsageError('account_exists', `there is an account ${name} already`, 'choose another name')

export async function accountNames(files: Files, home: string) {
  try {
    const found = await files.list(joinPath(home, 'keystores'))
    return found.sort().flatMap((file) => fileName.exec(file)?.[1] ?? [])
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return []
    throw error
  }
}

async function readAccountText(files: Files, home: string, name: string) {
  const path = pathOf(home, name)
  try {
    return new TextDecoder().decode(await files.read(path))
  } catch (cause) {
    const code = errorCode(cause) ?? 'unknown'
    if (code === 'ENOENT') throw accountNotFound(name)
    throw new UsageError('keystore_unreadable', `the keystore ${path} cannot be read (${code})`, {
      hint: 'check the path and its rights',
      cause,
    })
  }
}

const accountName = '[A-Za-z0-9][A-Za-z0-9._-]{0,63}'
const fileName = new RegExp(`^(${accountName})\\.json$`)

function pathOf(home: string, name: string) {
  if (new RegExp(`^${accountName}$`).test(name))
    return `${joinPath(home, 'keystores')}/${name}.json`
  throw new UsageError(
    'invalid_account_name',
    'an account name has 1 to 64 letters, digits, dots, hyphens or underscores',
    'choose another name',
  )
}

export async function createKeystore(
  files: Files,
  home: string,
  name: string,
  key: Uint8Array,
  password: string,
) {
  await freeAccountPath(files, home, name)
  if (password === '')
    throw new UsageError(
      'empty_password',
      'an empty password protects nothing',
      'choose a password',
    )
  const address = addressOfKey(key)
  const text = await encryptKeystore(key, password, address)
  return { address, path: await publishAccount(files, home, name, text) }
}
