/** `account` and `config` (contract §6, §7, §9); a password never stands in argv (robustness §6). */
import { accountFileText, probeDigest } from '#io/account-kinds'
import {
  type AccountEntry,
  createKeystore,
  freeAccountPath,
  listAccounts,
  publishAccount,
  readAccount,
  removeAccount,
  renameAccount,
} from '#io/accounts'
import { fromCwd, homePaths } from '#io/home'
import type { KeySigner } from '#io/key-files'
import { addressOfKey, parseKey, readKeyFile } from '#io/keys'
import { decryptKeystore } from '#io/keystore'
import { UsageError } from '#protocol/errors'
import type { Address } from '#protocol/schema'
import { askHidden, confirm, namedPasswordFile, readPassword, readText } from './session/inputs.js'
import {
  allowedHttp,
  type GlobalFlags,
  homeSetting,
  keyNames,
  preferenceTree,
  profileSetting,
  requireKnownProfile,
  requireProfileName,
  resolveSettings,
  type Setting,
  settingOf,
  specOf,
} from './session/settings.js'
import type { Context } from './terminal/context.js'
import { counted, publicUrl, visible } from './terminal/render.js'
import { dryRunFlag, type FlagsOf, showDryRun, verb } from './terminal/verb.js'

const storeFlags = {
  '--password-file <file>': 'file with the keystore password; default: prompt',
  ...dryRunFlag,
} as const

const importFlags = {
  '--key-file <file>': {
    about: 'key file (mode 0600): 0x and 64 hex digits',
    conflicts: ['--keystore'],
  },
  '--keystore <file>': 'Web3 v3 keystore to import',
  '--keystore-password-file <file>': 'file with its password',
  '--password-file <file>': 'file with the password of the new keystore',
  ...dryRunFlag,
} as const

const newVerb = verb({
  name: 'new',
  about: 'create a key in an encrypted keystore',
  args: { '<name>': '' },
  flags: storeFlags,
  examples: ['account new hot --password-file ./password'],
  run: (context, flags, { name }) => store(context, flags, name, context.random.bytes(32)),
})

const importVerb = verb({
  name: 'import',
  about: 'import a key into an encrypted keystore; prompts for it unless a file is given',
  args: { '<name>': '' },
  flags: importFlags,
  examples: ['account import cold --key-file ./key --password-file ./password'],
  async run(context, flags, { name }) {
    const key = await givenKey(context, flags)
    await store(context, flags, name, key, addressOfKey(key))
  },
})

async function givenKey(context: Context, flags: FlagsOf<typeof importFlags>) {
  if (flags.keyFile !== undefined) return readKeyFile(fromCwd(context.cwd, flags.keyFile))
  if (flags.keystore === undefined)
    return parseKey(
      await askHidden(context, 'Private key: ', '--key-file <file> or --keystore <file>'),
      'the key',
    )
  const text = await readText(context, flags.keystore)
  const password = await readPassword(
    context,
    flags.keystorePasswordFile,
    'Password of that keystore: ',
    '--keystore-password-file',
  )
  return decryptKeystore(text, password, flags.keystore)
}

type PreviewFlags = GlobalFlags & FlagsOf<typeof dryRunFlag>

async function put(
  context: Context,
  flags: PreviewFlags,
  name: string,
  plan: () => Promise<{ would: string; data: object; write(home: string): Promise<unknown> }>,
) {
  const home = homeSetting(context, flags).value
  const path = await freeAccountPath(context.files, home, name)
  const { would, data, write } = await plan()
  if (flags.dryRun) return showDryRun(context, `${would} to ${path}`, { name, path, ...data })
  await write(home)
  show(context, home, await readAccount(context.files, home, name))
}

async function store(
  context: Context,
  flags: PreviewFlags & FlagsOf<typeof storeFlags>,
  name: string,
  key: Uint8Array,
  address?: Address,
) {
  try {
    await put(context, flags, name, async () => ({
      would: address === undefined ? 'make a key and write it' : `write the key of ${address}`,
      data: { address },
      async write(home) {
        const password = await newPassword(context, flags.passwordFile)
        await createKeystore(context.files, home, name, key, password)
      },
    }))
  } finally {
    key.fill(0)
  }
}

/** Whoever copies the keystore may try as many as they like. */
const leastPasswordLength = 12

async function newPassword(context: Context, passwordFile: string | undefined) {
  const password = await readPassword(context, passwordFile, 'New password: ')
  if (password !== '' && password.length < leastPasswordLength)
    context.output.warning(
      'password_weak',
      `the password has ${counted(password.length, 'character')}: whoever copies the keystore can guess it; take ${leastPasswordLength} or more`,
    )
  if ((passwordFile ?? namedPasswordFile(context)) !== undefined) return password
  if (password === '')
    throw new UsageError(
      'password_empty',
      'the password is empty',
      'run the command again with a password',
    )
  if (password === (await askHidden(context, 'Repeat password: ', '--password-file <file>')))
    return password
  throw new UsageError(
    'password_differs',
    'the passwords do not match; nothing was written',
    'run the command again',
  )
}

const addPkcs11Verb = verb({
  name: 'add-pkcs11',
  about: 'add a key in a PKCS#11 token as an account; it never leaves the token',
  args: { '<name>': '' },
  flags: {
    '--uri <uri>': {
      about: 'pkcs11: URI of the key (RFC 7512), without a PIN',
      required: true,
    },
    '--module <file>': { about: "the token's PKCS#11 module, a .so file", required: true },
    '--pin-file <file>': { about: 'file with the PIN (mode 0600)', required: true },
    ...dryRunFlag,
  },
  examples: [
    "account add-pkcs11 hsm --uri 'pkcs11:token=proposer;object=main' --module /usr/lib/softhsm/libsofthsm2.so --pin-file ./pin",
  ],
  async run(context, flags, { name }) {
    const place = {
      uri: flags.uri,
      module: fromCwd(context.cwd, flags.module),
      pin_file: fromCwd(context.cwd, flags.pinFile),
    }
    const { openPkcs11 } = await import('#io/pkcs11')
    const open = () => openPkcs11(place, { signal: context.signal })
    await add(context, flags, name, 'pkcs11', place, open)
  },
})

const addKmsVerb = verb({
  name: 'add-kms',
  about: 'add a key in AWS KMS or Google Cloud KMS as an account; it never leaves the service',
  args: { '<name>': '' },
  flags: {
    '--key <id>': {
      about: 'AWS: key id, key ARN or alias/…; Google Cloud: projects/…/cryptoKeyVersions/<n>',
      required: true,
    },
    ...dryRunFlag,
  },
  examples: ['account add-kms hot --key alias/proposer'],
  async run(context, flags, { name }) {
    const { kmsPlaceOf, openKms } = await import('#io/kms-accounts')
    const { kind, place } = await kmsPlaceOf(flags.key)
    await add(context, flags, name, kind, place, () => openKms(place))
  },
})

/** The key signs once before its account is made (contract §9). */
const add = (
  context: Context,
  flags: PreviewFlags,
  name: string,
  kind: string,
  place: Readonly<Record<string, string>>,
  open: () => Promise<KeySigner>,
) =>
  put(context, flags, name, async () => {
    const signer = await open()
    const { address } = signer
    await signer.signDigest(probeDigest).finally(signer.dispose)
    return {
      would: `write where the key of ${address} is`,
      data: { address, kind, ...place },
      write: (home) =>
        publishAccount(context.files, home, name, accountFileText(kind, address, place)),
    }
  })

const accountsVerb = verb({
  name: 'list',
  about: 'list accounts and addresses',
  examples: ['account list'],
  async run(context, flags) {
    const { account, home } = await resolveSettings(context, flags)
    const kept = await listAccounts(context.files, home.value)
    const isDefault = ({ name }: AccountEntry) => name === account?.value
    const accounts = kept.map((one) => ({ ...shownEntry(one), default: isDefault(one) }))
    context.output.show('accounts', { accounts }, [
      kept.length === 0
        ? 'no accounts; create one with `proposer account new <name>`'
        : kept.map(
            (one) =>
              [one.name, `${addressText(one)}${isDefault(one) ? '  (default)' : ''}`] as const,
          ),
    ])
  },
})

const damaged: ReadonlySet<string> = new Set(['invalid_keystore', 'invalid_account'])

const removeVerb = verb({
  name: 'remove',
  about: 'delete an account, with its key if a keystore holds it',
  args: { '<name>': '' },
  flags: dryRunFlag,
  examples: ['account remove hot --yes'],
  async run(context, flags, { name }) {
    const home = homeSetting(context, flags).value
    const entry = await readAccount(context.files, home, name).catch((error): AccountEntry => {
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
    if (flags.dryRun) return showDryRun(context, `delete ${what}`, asked)
    await confirm(context, `Delete ${what}? ${after}`, flags.yes === true)
    const path = await removeAccount(context.files, home, name)
    const removed = { ...asked, path, removed: true }
    context.output.show('account', removed, [`Removed account ${name}`])
  },
})

const renameVerb = verb({
  name: 'rename',
  about: 'rename an account, including in profiles that use it',
  args: { '<name>': '', '<new-name>': '' },
  flags: dryRunFlag,
  examples: ['account rename hot spare'],
  async run(context, flags, { name, newName: next }) {
    const home = homeSetting(context, flags).value
    const { address = null } = await readAccount(context.files, home, name)
    const { profiles: held = {} } = await preferenceTree(context, home)
    const profiles = Object.entries(held as Record<string, { account?: unknown } | null>)
      .filter(([, profile]) => profile?.account === name)
      .map(([profile]) => profile)
    const renamed = { name: next, address, renamed_from: name, profiles }
    if (flags.dryRun) {
      await freeAccountPath(context.files, home, next)
      return showDryRun(context, `rename ${name} to ${next}`, renamed)
    }
    await renameAccount(context.files, home, name, next)
    if (profiles.length > 0) {
      const preferences = await context.edges.preferences(home)
      for (const profile of profiles) await preferences.set(`profiles.${profile}.account`, next)
    }
    context.output.show('account', renamed, [`Renamed account ${name} to ${next}`])
  },
})

const showVerb = verb({
  name: 'show',
  about: 'show the address of an account',
  args: { '<name>': '' },
  examples: ['account show hot'],
  async run(context, flags, { name }) {
    const home = homeSetting(context, flags).value
    show(context, home, await readAccount(context.files, home, name))
  },
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

function show({ output }: Context, home: string, entry: AccountEntry) {
  const shown = { ...shownEntry(entry), folder: homePaths.keystores(home) }
  const places = Object.entries(entry.elsewhere?.place ?? {})
  output.show('account', shown, [
    [
      [visible(shown.name), addressText(entry)],
      ...places.map(([key, value]) => [key.replaceAll('_', ' '), value] as const),
    ],
  ])
}

export const accountCommand = verb({
  name: 'account',
  about: 'manage proposer keys: encrypted here, in a token, or in a key service',
  examples: ['account new hot', 'account import cold --key-file ./key', 'account list'],
  verbs: [
    ...[newVerb, importVerb, addPkcs11Verb, addKmsVerb],
    ...[accountsVerb, showVerb, renameVerb, removeVerb],
  ],
})

const keyArg = { '<key>': { about: `one of ${keyNames.join(', ')}`, parse: knownKey } } as const

const getVerb = verb({
  name: 'get',
  about: 'show the effective value of a key',
  args: keyArg,
  examples: ['config get gateway'],
  async run(context, flags, { key }) {
    const setting = settingOf(await resolveSettings(context, flags), key)
    if (!setting)
      throw new UsageError(
        'config_unset',
        `${key} is not set`,
        `set it with \`proposer config set ${key} <value>\``,
      )
    const shown = { key, ...publicSetting(key, setting) }
    context.output.show('config', shown, [() => visible(shown.value)])
  },
})

const setVerb = verb({
  name: 'set',
  about: 'set a value in the selected profile; creates the profile if needed',
  args: { ...keyArg, '<value>': '' },
  flags: dryRunFlag,
  examples: [
    'config set gateway https://gateway.example',
    'config set --profile test rpc-url http://127.0.0.1:8545',
  ],
  async run(context, flags, { key, value }) {
    if (key === 'profile') requireProfileName(value, 'the value')
    if (value === '') {
      throw new UsageError(
        'bad_value',
        `the value of ${key} is empty`,
        `to remove it, run \`proposer config unset ${key}\``,
      )
    }
    await requireValue(context, flags, key, value)
    await change(context, flags, key, specOf(key)?.isPath ? fromCwd(context.cwd, value) : value)
  },
})

const unsetVerb = verb({
  name: 'unset',
  about: 'unset a value of the selected profile',
  args: keyArg,
  flags: dryRunFlag,
  examples: ['config unset rpc-url'],
  run: (context, flags, { key }) => change(context, flags, key),
})

async function change(context: Context, flags: PreviewFlags, key: string, value?: string) {
  const home = homeSetting(context, flags).value
  const path = homePaths.config(home)
  // What is damaged beside the key, or under it, must not keep it from being mended.
  const tree = key === 'profile' ? {} : await preferenceTree(context, home)
  const profile = key === 'profile' ? undefined : profileSetting(context, flags, home, tree)
  if (profile !== undefined && value === undefined)
    await requireKnownProfile(context, home, tree, profile)
  const name = profile === undefined ? 'profile' : `profiles.${profile.value}.${key}`
  const changed = { key: name, set: value !== undefined, path }
  if (flags.dryRun) {
    const act = value === undefined ? 'unset' : 'set'
    return showDryRun(context, `${act} ${name} in ${path}`, changed)
  }
  if (value !== undefined || (await context.files.exists(path))) {
    await context.files.makeDir(home)
    const preferences = await context.edges.preferences(home)
    await preferences.set(name, value)
  }
  context.output.show('config', changed, [
    value === undefined ? `unset ${name}` : `${name} is set in ${path}`,
  ])
}

const settingsVerb = verb({
  name: 'list',
  about: 'list effective settings',
  flags: { '--origin': 'show where each value comes from' },
  examples: ['config list --origin'],
  async run(context, flags) {
    const settings = await resolveSettings(context, flags)
    const { unconfirmedCapRaw } = await import('#client/propose/intent')
    const inForce: Readonly<Record<string, string>> = {
      'headroom-percent': '0',
      ...(settings.rpcUrl === undefined && { 'max-amount': String(unconfirmedCapRaw) }),
    }
    const found = ['home', ...keyNames].map((key) => {
      const value = inForce[key]
      const byDefault = value && ({ value, origin: 'default', from: 'default' } as const)
      const setting = settingOf(settings, key) ?? byDefault
      return { key, ...(setting && publicSetting(key, setting)) }
    })
    const entries = found.filter(({ value }) => value !== undefined)
    const unset = found.filter(({ value }) => value === undefined).map(({ key }) => key)
    const rows = found.map(({ key, value = 'not set', origin, from }) => {
      const source = origin === from ? origin : `${origin}: ${from}`
      return [key, flags.origin && source ? `${value}  (${source})` : value] as const
    })
    context.output.show('config', { settings: entries, unset }, [rows])
  },
})

const pathVerb = verb({
  name: 'path',
  about: 'print the path of config.json',
  examples: ['config path'],
  run(context, flags) {
    const path = homePaths.config(homeSetting(context, flags).value)
    context.output.show('config', { path }, [() => visible(path)])
  },
})

export const configCommand = verb({
  name: 'config',
  about: `read and set preferences: ${keyNames.join(', ')}`,
  examples: ['config set gateway https://gateway.example', 'config list --origin'],
  verbs: [getVerb, setVerb, unsetVerb, settingsVerb, pathVerb],
})

async function requireValue(context: Context, flags: GlobalFlags, key: string, value: string) {
  if (key === 'gateway') {
    const { parseBaseUrl } = await import('#client/gateway/gateway-client')
    const isPlain = /^http:/i.test(value)
    const settings = isPlain && (await resolveSettings(context, { ...flags, makesProfile: true }))
    parseBaseUrl(value, settings ? allowedHttp(settings.allowHttp) : undefined)
  }
  specOf(key)?.read?.({ value, from: key })
}

function knownKey(key: string) {
  if (keyNames.includes(key)) return key
  throw new UsageError(
    'unknown_key',
    `unknown setting "${key}"`,
    `the known settings are ${keyNames.join(', ')}`,
  )
}

/** A node's URL often is a credential, a gateway's may hold one (R5). */
function publicSetting(key: string, setting: Setting): Setting {
  return specOf(key)?.isSecret ? { ...setting, value: publicUrl(setting.value) } : setting
}
