/**
 * `account`: encrypted keystores of proposers, Web3 v3 (contract §6, §7), and keys that are
 * elsewhere (§9). A password never stands in argv (robustness §6).
 */

import { Command } from 'commander'
import { coinText } from '../core/chain/profiles.js'
import { freeAccountPath, removeAccount, renameAccount } from '../core/io/account-files.js'
import { type AccountEntry, listAccounts, readAccount } from '../core/io/accounts.js'
import { fromCwd, homePaths } from '../core/io/home-paths.js'
import { parseKey, readKeyFile, signerFromKey } from '../core/io/keys.js'
import { createKeystore, decryptKeystore } from '../core/io/keystore.js'
import { ProposerError, UsageError } from '../core/protocol/errors.js'
import type { Address } from '../core/protocol/schema.js'
import { addKmsCommand, addPkcs11Command } from './account-elsewhere.js'
import { askHidden, confirm, readInput } from './session/inputs.js'
import { namedPasswordFile, readPassword } from './session/key-source.js'
import { type Session, withSession } from './session/session.js'
import { type GlobalFlags, homeSetting, preferenceTree } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { type DryRunFlag, dryRunOption, showDryRun } from './terminal/dry-run.js'
import { amountText, fields, foldAround, visible } from './terminal/render.js'

interface AccountFlags extends GlobalFlags, DryRunFlag {
  readonly passwordFile?: string
  readonly keyFile?: string
  readonly keystore?: string
  readonly keystorePasswordFile?: string
}

export const accountCommand = (context: Context): Command =>
  new Command('account')
    .description('manage proposer keys: encrypted here, in a token, or in a key service')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer account new hot\n  proposer account import cold --key-file ./key\n  proposer account list',
    )
    .addCommand(newCommand(context))
    .addCommand(importCommand(context))
    .addCommand(addPkcs11Command(context, show))
    .addCommand(addKmsCommand(context, show))
    .addCommand(listCommand(context))
    .addCommand(showCommand(context))
    .addCommand(renameCommand(context))
    .addCommand(removeCommand(context))

const newCommand = (context: Context) =>
  new Command('new')
    .description('create a key in an encrypted keystore')
    .argument('<name>')
    .option('--password-file <file>', 'file with the keystore password; default: prompt')
    .option(...dryRunOption)
    .addHelpText('after', '\nExample:\n  proposer account new hot --password-file ./password')
    .action(async (name: string, _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<AccountFlags>()
      if (flags.dryRun === true) {
        const path = await freeAccountPath(context.files, homeSetting(context, flags).value, name)
        return showDryRun(context, `make a key and write it to ${path}`, { name, path })
      }
      await store(context, flags, name, context.random.bytes(32))
    })

const importCommand = (context: Context) =>
  new Command('import')
    .description('import a key into an encrypted keystore; prompts for it unless a file is given')
    .argument('<name>')
    .option('--key-file <file>', 'key file (mode 0600): 0x and 64 hex digits')
    .option('--keystore <file>', 'Web3 v3 keystore to import')
    .option('--keystore-password-file <file>', 'file with its password')
    .option('--password-file <file>', 'file with the password of the new keystore')
    .option(...dryRunOption)
    .addHelpText(
      'after',
      '\nExample:\n  proposer account import cold --key-file ./key --password-file ./password',
    )
    .action(async (name: string, _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<AccountFlags>()
      if (flags.keyFile !== undefined && flags.keystore !== undefined) {
        throw new UsageError('two_keys', '--key-file and --keystore cannot be used together', {
          hint: 'omit one of them',
        })
      }
      await store(context, flags, name, await givenKey(context, flags))
    })

async function givenKey(context: Context, flags: AccountFlags): Promise<Uint8Array> {
  if (flags.keyFile !== undefined) return readKeyFile(fromCwd(context.cwd, flags.keyFile))
  if (flags.keystore === undefined)
    return parseKey(
      await askHidden(context, 'Private key: ', '--key-file <file> or --keystore <file>'),
      'the key',
    )
  const text = new TextDecoder().decode(await readInput(context, flags.keystore))
  const question = 'Password of that keystore: '
  const password =
    flags.keystorePasswordFile === undefined
      ? await askHidden(context, question, '--keystore-password-file <file>')
      : await readPassword(context, flags.keystorePasswordFile, question)
  return decryptKeystore(text, password, flags.keystore)
}

/** Encrypts and writes the key, then overwrites it. */
async function store(
  context: Context,
  flags: AccountFlags,
  name: string,
  key: Uint8Array,
): Promise<void> {
  const home = homeSetting(context, flags).value
  const signer = signerFromKey(key)
  try {
    if (flags.dryRun === true) {
      const path = await freeAccountPath(context.files, home, name)
      return showDryRun(context, `write the key of ${signer.address} to ${path}`, {
        name,
        path,
        address: signer.address,
      })
    }
    const password = await newPassword(context, flags.passwordFile)
    const { address } = signer
    await createKeystore(context.files, home, name, key, password)
    show(context, home, { name, address })
  } finally {
    signer.dispose()
    key.fill(0)
  }
}

async function newPassword(context: Context, passwordFile: string | undefined): Promise<string> {
  const password = await readPassword(context, passwordFile, 'New password: ')
  if ((passwordFile ?? namedPasswordFile(context)) !== undefined) return password
  if (password === '')
    throw new UsageError('password_empty', 'the password is empty', {
      hint: 'run the command again with a password',
    })
  if (password === (await askHidden(context, 'Repeat password: ', '--password-file <file>')))
    return password
  throw new UsageError('password_differs', 'the passwords do not match; nothing was written', {
    hint: 'run the command again',
  })
}

const listCommand = (context: Context) =>
  new Command('list')
    .description('list accounts and addresses, with balances if a node is configured')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer account list\n  proposer account list --rpc-url http://127.0.0.1:8545',
    )
    .action(async (_own: unknown, command: Command) => {
      await withSession(context, command.optsWithGlobals<GlobalFlags>(), async (session) => {
        const { account, home } = session.settings
        const kept = await listAccounts(context.files, home.value)
        const balancesOf = await balanceReader(context, session)
        const rows = await Promise.all(
          kept.map(async (entry) => {
            const isDefault = entry.name === account?.value
            const held = { default: isDefault, ...(await balancesOf?.(entry.address)) }
            return { entry, held }
          }),
        )
        const accounts = rows.map(({ entry, held }) => ({ ...shownEntry(entry), ...held }))
        context.output.result('accounts', { accounts }, () =>
          accounts.length === 0
            ? foldAround(
                'no accounts; create one with `proposer account new <name>`',
                context.output.columns,
                '  ',
              )
            : fields(rows.map(accountRow), context.output.columns),
        )
      })
    })

interface Balances {
  /** Wei. */
  readonly gas_balance: string
  readonly balances: readonly {
    readonly token: Address
    readonly symbol: string
    readonly decimals: number
    readonly balance: string
  }[]
  readonly chain_id: number
}

const accountRow = ({
  entry,
  held,
}: {
  readonly entry: AccountEntry
  readonly held: { readonly default: boolean } & Partial<Balances>
}) => {
  const gas =
    held.gas_balance === undefined || held.chain_id === undefined
      ? []
      : [coinText(BigInt(held.gas_balance), held.chain_id)]
  const tokens = (held.balances ?? []).map((one) => amountText(one.balance, one))
  const parts = [addressText(entry), ...tokens, ...gas]
  return [entry.name, `${parts.join('  ')}${held.default ? '  (default)' : ''}`] as const
}

/** Reads what an address holds; `undefined` without a node or pins. What does not answer is noted. */
async function balanceReader(
  context: Context,
  session: Session,
): Promise<((address: Address | undefined) => Promise<Balances | undefined>) | undefined> {
  const chain = await session.chain()
  if (chain === undefined) return undefined
  const { walletFunds } = await import('../core/client/funds/funds.js')
  const nothing = { authorizations: [], offers: [] }
  let isNoted = false
  return async (address) => {
    if (address === undefined) return undefined
    try {
      const trust = await session.trust()
      const { gasWei, tokens } = await walletFunds(chain, trust, nothing, address)
      const balances = tokens.map(({ token, symbol, decimals, balanceRaw }) => ({
        ...{ token, symbol, decimals },
        balance: String(balanceRaw),
      }))
      return { gas_balance: String(gasWei), balances, chain_id: trust.chain_id }
    } catch (error) {
      if (!(error instanceof ProposerError)) throw error
      if (!isNoted) context.output.note(`note: no balances: ${visible(error.detail)}`)
      isNoted = true
      return undefined
    }
  }
}

const damaged: ReadonlySet<string> = new Set(['invalid_keystore', 'invalid_account'])

const removeCommand = (context: Context) =>
  new Command('remove')
    .description('delete an account, with its key if a keystore holds it')
    .argument('<name>')
    .option(...dryRunOption)
    .addHelpText('after', '\nExample:\n  proposer account remove hot --yes')
    .action(async (name: string, _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<AccountFlags>()
      const home = homeSetting(context, flags).value
      const entry = await readAccount(context.files, home, name).catch((error): AccountEntry => {
        // A damaged one can be removed too.
        if (error instanceof UsageError && damaged.has(error.code))
          return { name, address: undefined }
        throw error
      })
      const { address = null, elsewhere } = entry
      const what = elsewhere === undefined ? `the key of ${address ?? name}` : `account ${name}`
      const after = elsewhere
        ? `Its key stays where it is: ${elsewhere.holder}.`
        : 'Without a copy it is lost.'
      const asked = { name, address }
      if (flags.dryRun === true) return showDryRun(context, `delete ${what}`, asked)
      await confirm(context, `Delete ${what}? ${after}`, flags.yes === true)
      const path = await removeAccount(context.files, home, name)
      const removed = { ...asked, path, removed: true }
      context.output.result('account', removed, () => `Removed account ${name}`)
    })

const renameCommand = (context: Context) =>
  new Command('rename')
    .description('rename an account, including in profiles that use it')
    .argument('<name>')
    .argument('<new-name>')
    .option(...dryRunOption)
    .addHelpText('after', '\nExample:\n  proposer account rename hot spare')
    .action(async (name: string, next: string, _own: unknown, command: Command) => {
      const flags = command.optsWithGlobals<AccountFlags>()
      const home = homeSetting(context, flags).value
      const { address = null } = await readAccount(context.files, home, name)
      const { profiles: held = {} } = await preferenceTree(context, home)
      const profiles = Object.entries(held as Record<string, { account?: unknown } | null>)
        .filter(([, profile]) => profile?.account === name)
        .map(([profile]) => profile)
      const renamed = { name: next, address, renamed_from: name, profiles }
      if (flags.dryRun === true) {
        await freeAccountPath(context.files, home, next)
        return showDryRun(context, `rename ${name} to ${next}`, renamed)
      }
      await renameAccount(context.files, home, name, next)
      if (profiles.length > 0) {
        const preferences = await context.edges.preferences(home)
        for (const profile of profiles) await preferences.set(`profiles.${profile}.account`, next)
      }
      context.output.result('account', renamed, () => `Renamed account ${name} to ${next}`)
    })

const showCommand = (context: Context) =>
  new Command('show')
    .description('show the address of an account')
    .argument('<name>')
    .addHelpText('after', '\nExample:\n  proposer account show hot')
    .action(async (name: string, _own: unknown, command: Command) => {
      const home = homeSetting(context, command.optsWithGlobals<GlobalFlags>()).value
      show(context, home, await readAccount(context.files, home, name))
    })

const shownEntry = ({ name, address, elsewhere }: AccountEntry) => ({
  name,
  address: address ?? null,
  kind: elsewhere?.kind ?? 'keystore',
  ...elsewhere?.place,
})

const addressText = ({ address, elsewhere }: AccountEntry) => {
  const holder = elsewhere === undefined ? '' : `  (${elsewhere.holder})`
  return `${address ?? '(no address in the file)'}${holder}`
}

function show(context: Context, home: string, entry: AccountEntry): void {
  const shown = { ...shownEntry(entry), folder: homePaths.keystores(home) }
  const rows = Object.entries(entry.elsewhere?.place ?? {}).map(
    ([key, value]) => [key.replaceAll('_', ' '), visible(value)] as const,
  )
  context.output.result('account', shown, () =>
    fields([[visible(shown.name), addressText(entry)], ...rows], context.output.columns),
  )
}
