/**
 * `account`: encrypted keystores of proposers, Web3 v3 (contract §6, §7). A password never stands
 * in argv (robustness §6).
 */

import { Command } from 'commander'
import { fromCwd, homePaths } from '../core/io/home-paths.js'
import { parseKey, readKeyFile, signerFromKey } from '../core/io/keys.js'
import {
  createKeystore,
  decryptKeystore,
  freeKeystorePath,
  type KeystoreEntry,
  listKeystores,
  readKeystore,
} from '../core/io/keystore.js'
import { UsageError } from '../core/protocol/errors.js'
import type { Address } from '../core/protocol/schema.js'
import { askHidden, readInput } from './session/inputs.js'
import { readPassword } from './session/key-source.js'
import { type GlobalFlags, homeSetting } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { type DryRunFlag, dryRunOption, showDryRun } from './terminal/dry-run.js'
import { fields, visible } from './terminal/render.js'

interface AccountFlags extends GlobalFlags, DryRunFlag {
  readonly passwordFile?: string
  readonly keyFile?: string
  readonly keystore?: string
  readonly keystorePasswordFile?: string
}

export const accountCommand = (context: Context): Command =>
  new Command('account')
    .description('manage encrypted proposer keys')
    .addHelpText(
      'after',
      '\nExamples:\n  proposer account new hot\n  proposer account import cold --key-file ./key\n  proposer account list',
    )
    .addCommand(newCommand(context))
    .addCommand(importCommand(context))
    .addCommand(listCommand(context))
    .addCommand(showCommand(context))

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
        const path = await freeKeystorePath(context.files, homeSetting(context, flags).value, name)
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
        throw new UsageError('two_keys', '--key-file and --keystore name two keys', {
          hint: 'leave out one of them',
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
      const path = await freeKeystorePath(context.files, home, name)
      return showDryRun(context, `write the key of ${signer.address} to ${path}`, {
        name,
        path,
        address: signer.address,
      })
    }
    const password = await newPassword(context, flags.passwordFile)
    const { address } = signer
    const entry = await createKeystore(context.files, home, name, key, password)
    show(context, home, { name: entry.name, address })
  } finally {
    signer.dispose()
    key.fill(0)
  }
}

async function newPassword(context: Context, passwordFile: string | undefined): Promise<string> {
  const password = await readPassword(context, passwordFile, 'New password: ')
  if (passwordFile !== undefined) return password
  if (password === '')
    throw new UsageError('password_empty', 'the password is empty', {
      hint: 'run the command again with a password',
    })
  if (password === (await askHidden(context, 'Repeat password: ', '--password-file <file>')))
    return password
  throw new UsageError('password_differs', 'the two passwords differ; nothing was written', {
    hint: 'run the command again',
  })
}

const listCommand = (context: Context) =>
  new Command('list')
    .description('every account')
    .addHelpText('after', '\nExample:\n  proposer account list')
    .action(async (_own: unknown, command: Command) => {
      const home = homeSetting(context, command.optsWithGlobals<GlobalFlags>()).value
      const accounts = (await listKeystores(context.files, home)).map(shownEntry)
      const { output } = context
      output.result('accounts', { accounts }, () =>
        accounts.length === 0
          ? 'no accounts; make one with `proposer account new <name>`'
          : fields(
              accounts.map(({ name, address }) => [name, address ?? '(the file does not tell)']),
              output.columns,
            ),
      )
    })

const showCommand = (context: Context) =>
  new Command('show')
    .description('show the address of an account')
    .argument('<name>')
    .addHelpText('after', '\nExample:\n  proposer account show hot')
    .action(async (name: string, _own: unknown, command: Command) => {
      const home = homeSetting(context, command.optsWithGlobals<GlobalFlags>()).value
      show(context, home, await readKeystore(context.files, home, name))
    })

const shownEntry = ({
  name,
  address,
}: KeystoreEntry): { name: string; address: Address | null } => ({ name, address: address ?? null })

function show(context: Context, home: string, entry: KeystoreEntry): void {
  const shown = { ...shownEntry(entry), folder: homePaths.keystores(home) }
  context.output.result(
    'account',
    shown,
    () => `${visible(shown.name)}  ${shown.address ?? '(the file does not tell its address)'}`,
  )
}
