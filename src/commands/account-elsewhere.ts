/**
 * `account add-…`: accounts whose key is not here (contract §9). The key signs once before the
 * account is made.
 */
import { freeAccountPath, publishAccount } from '#io/account-files'
import { accountFileText, probeDigest } from '#io/account-kinds'
import { type AccountEntry, readAccount } from '#io/accounts'
import { fromCwd } from '#io/home'
import type { KeySigner } from '#io/key-files'
import { type GlobalFlags, homeSetting } from './session/settings.js'
import type { Context } from './terminal/context.js'
import { dryRunFlag, showDryRun } from './terminal/dry-run.js'
import { verb } from './terminal/verb.js'

type Show = (context: Context, home: string, entry: AccountEntry) => void

export const addPkcs11Verb = (show: Show) =>
  verb({
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
      await add(context, flags, { name, kind: 'pkcs11', place, open }, show)
    },
  })

export const addKmsVerb = (show: Show) =>
  verb({
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
      await add(context, flags, { name, kind, place, open: () => openKms(place) }, show)
    },
  })

interface Added {
  readonly name: string
  readonly kind: string
  readonly place: Readonly<Record<string, string>>
  readonly open: () => Promise<KeySigner>
}

async function add(
  context: Context,
  flags: GlobalFlags & { readonly dryRun?: boolean },
  { name, kind, place, open }: Added,
  show: Show,
) {
  const home = homeSetting(context, flags).value
  const path = await freeAccountPath(context.files, home, name)
  const signer = await open()
  try {
    const { address } = signer
    await signer.signDigest(probeDigest)
    const planned = { name, path, address, kind, ...place }
    if (flags.dryRun === true)
      return showDryRun(context, `write where the key of ${address} is to ${path}`, planned)
    await publishAccount(context.files, home, name, accountFileText(kind, address, place))
    show(context, home, await readAccount(context.files, home, name))
  } finally {
    signer.dispose()
  }
}
