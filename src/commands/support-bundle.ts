/**
 * `support-bundle` (contract §6): an allow-list, read-only, that asks nobody but a gateway's own
 * loopback listener. It is compared with every known secret before a byte of it leaves (R5).
 */

import { arch, platform, release } from 'node:os'
import { join, resolve } from 'node:path'
import { version as nodeVersion } from 'node:process'
import type { JournalView } from '#client/journal/journal'
import {
  findSecrets,
  journalPart,
  journalSignatures,
  type Secret,
  urlCredentials,
  webUrl,
} from '#client/support/secret-scan'
import type { Trust } from '#client/trust/trust'
import { adminTokenFile, type LoadedConfig } from '#host/config-file'
import { receiptKeyFile } from '#host/receipts'
import { accountPinFiles } from '#io/accounts'
import { fromCwd, homePaths } from '#io/home'
import { instant } from '#protocol/candidate'
import { ProposerError, UsageError } from '#protocol/errors'
import { withoutNodeWords } from '#protocol/node-words'
import { programVersion } from '#protocol/version'
import { namesIn } from '#storage/durable'
import { examine } from './doctor.js'
import { confirm, writeText } from './session/inputs.js'
import { requireIdentifier } from './session/question.js'
import { type Session, sessionVerb } from './session/session.js'
import {
  keyNames,
  type SessionFlags,
  type Settings,
  settingOf,
  sinceMs,
  specOf,
} from './session/settings.js'
import type { Context } from './terminal/context.js'
import { counted, jsonText, visible } from './terminal/render.js'
import { dryRunFlag, type FlagsOf, showDryRun } from './terminal/verb.js'

const flagTable = {
  '-o, --output <file>':
    'output file; - for stdout; default: proposer-support-<time>.json in this folder',
  '--config <gateway.json>':
    "add an operator's part: what `operator status --json` tells of the running gateway",
  ...dryRunFlag,
  '--question <id|slug>': { about: 'only entries about this question', parse: requireIdentifier },
  '--since <time>': 'only entries since this time: 2026-11-20T05:38:00Z, or a span such as 24h',
} as const
type BundleFlags = FlagsOf<typeof flagTable> & SessionFlags

export const supportBundleCommand = sessionVerb({
  name: 'support-bundle',
  about: 'collect diagnostics in one file without secrets: versions, settings, journal, gateway',
  flags: flagTable,
  help: "The file has no key, password, signature, payload, token, nor path, query or user of a URL. It is searched for every secret in this machine's settings before it is written; no other secret can be found, so read it before you send it.",
  examples: [
    'support-bundle --question some-slug',
    'support-bundle --config gateway.json --since 24h -o bundle.json',
  ],
  async run(session, flags) {
    const { document, secrets } = await collect(session, flags)
    const found = findSecrets(document, secrets).map(({ field, kind }) => `${field} holds ${kind}`)
    if (found.length === 0) return give(session, flags, document)
    throw new UsageError(
      'bundle_holds_secret',
      `nothing was written: ${found.slice(0, 5).join('; ')}`,
      'where you gave that text yourself (a client reference, a name), leave it out with --question or --since; where a plain word is taken for a secret, unset its variable or give another URL for this one run; anything else please report by the name of the field',
    )
  },
})

async function collect(session: Session, flags: BundleFlags) {
  const { question, since } = flags
  const nowMs = session.clock.nowMs()
  const fromMs = since === undefined ? undefined : sinceMs(since, nowMs)
  const { findings, view, proof, trust } = await examine(session, [
    ...['trust', 'key_files', 'journal', 'open'],
  ])
  const operator = flags.config === undefined ? undefined : await operatorPart(session, flags)
  const document = {
    id: session.random.uuid(),
    made_at: instant(nowMs),
    narrowed: {
      question: question ?? null,
      since: fromMs === undefined ? null : instant(fromMs),
    },
    versions: {
      proposer: programVersion,
      node: nodeVersion,
      platform: platform(),
      release: release(),
      arch: arch(),
    },
    settings: settingsPart(session.settings),
    variables: Object.keys(session.env).filter((name) => /^PROPOSER_[A-Z_]+$/.test(name)),
    checks: findings.map(({ id, result, detail }) => ({ id, result, detail })),
    trust: trust === undefined ? null : trustPart(trust),
    journal: {
      sound: proof !== undefined,
      runs: proof?.runs ?? null,
      records: proof?.records ?? null,
      ...journalPart(view ?? { authorizations: [], offers: [] }, { question, fromMs }, nowMs),
    },
    gateway: operator?.part ?? null,
  }
  const secrets = [...(await clientSecrets(session, view)), ...(operator?.secrets ?? [])]
  return { document, secrets }
}
type Bundle = Awaited<ReturnType<typeof collect>>['document']

async function operatorPart(context: Context, flags: BundleFlags) {
  const { askStatus, siteOf } = await import('./operator/access.js')
  const site = await siteOf(context, flags)
  const secrets = await gatewaySecrets(context, site.loaded)
  try {
    const { document, status } = await askStatus(site)
    // A node's own words may name whose account it is.
    return { secrets, part: { ...document, reasons: status.reasons.map(withoutNodeWords) } }
  } catch (error) {
    if (!(error instanceof ProposerError)) throw error
    return { secrets, part: { error: error.code } }
  }
}

/** Slugs are counted: which ones are looked at is nobody's business. */
function trustPart({ slugs, implementations, ...pins }: Trust) {
  const code = Object.entries(implementations ?? {}).map(([of, { implementation }]) => [
    of,
    implementation,
  ])
  return {
    ...pins,
    ...(implementations && { implementations: Object.fromEntries(code) }),
    slugs: Object.keys(slugs).length,
  }
}

async function give(session: Session, flags: BundleFlags, document: Bundle) {
  const { output } = session
  const text = `${jsonText({ schema: 'proposer.support-bundle/1', ...document }, 2)}\n`
  if (flags.output === '-' && flags.dryRun !== true) return output.text(text)
  const named =
    (flags.output === '-' ? undefined : flags.output) ??
    (output.isForPeople
      ? `proposer-support-${document.made_at.replace(/[-:]|\.\d+/g, '')}.json`
      : undefined)
  const file = named === undefined ? undefined : fromCwd(session.cwd, named)
  if (flags.dryRun) {
    const bytes = new TextEncoder().encode(text).length
    return showDryRun(
      session,
      `write ${bytes} bytes to ${file ?? 'stdout'}; no known secret is in them`,
      { file: file ?? null, bytes },
    )
  }
  if (file !== undefined) {
    if (await session.files.exists(file))
      await confirm(session, visible(`${named} already exists. Replace it?`), session.settings.yes)
    await writeText(session, file, text)
  }
  const { journal, gateway } = document
  const older = journal.left_out > 0 ? `, ${journal.left_out} older ones left out` : ''
  output.show('support-bundle', document, [
    [
      ['written', file],
      ['journal', `${counted(journal.authorizations.length, 'authorization')}${older}`],
      ['gateway', gateway === null ? 'none: --config adds it' : 'what `operator status` tells'],
      [
        'not in it',
        'keys, passwords, signatures, payloads, tokens: it was searched for the known ones. Read it before you send it',
      ],
    ],
  ])
}

async function clientSecrets(context: Session, view: JournalView | undefined) {
  const { gateway, rpcUrl, home } = context.settings
  const keyFile = context.env.PROPOSER_KEY_FILE
  const read = (path: string) => contentOf(context, path)
  const pins = await accountPinFiles(context.files, home.value)
  return secretsIn([
    ['the key in PROPOSER_PRIVATE_KEY', [context.environmentKey]],
    ['the key in PROPOSER_KEY_FILE', keyFile ? [await read(fromCwd(context.cwd, keyFile))] : []],
    ['a keystore', await keystoreSecrets(context, home.value)],
    ['the PIN of a token', await Promise.all(pins.map(read))],
    ['a credential in the RPC URL', urlCredentials(rpcUrl ? [rpcUrl.value] : [])],
    ['a credential in the gateway URL', urlCredentials(gateway ? [gateway.value] : [])],
    ['a signature of the journal', view === undefined ? [] : journalSignatures(view)],
    ...variableSecrets(context.env),
  ])
}

async function gatewaySecrets(context: Context, loaded: LoadedConfig) {
  const { config, folder, place } = loaded
  const { slugs, executor } = config
  const read = (path: string | undefined) =>
    path === undefined ? undefined : contentOf(context, resolve(folder, path))
  const keyFile = context.env.PROPOSER_EXECUTOR_KEY_FILE
  const receipts = (await read(receiptKeyFile(loaded))) ?? ''
  const password =
    place.kind === 'database' ? /:\/\/[^:@/]*:([^@/]*)@/.exec(place.url)?.[1] : undefined
  const signer = executor.signer ? [executor.signer.url] : []
  return secretsIn([
    ['a credential in chain.rpc_urls', urlCredentials(config.chain.rpc_urls)],
    ['a credential in slugs.url', urlCredentials(slugs.source === 'gamma' ? [slugs.url] : [])],
    ['a credential in executor.signer.url', urlCredentials(signer)],
    ['the PIN of a token', [await read(executor.pkcs11?.pin_file)]],
    [
      "the executor's key",
      [
        keyFile && (await contentOf(context, resolve(context.cwd, keyFile))),
        await read(executor.key_file),
      ],
    ],
    ['a receipt key', [...receipts.matchAll(/"d"\s*:\s*"([\w-]+)"/g)].map(([, half]) => half)],
    ['the admin token', [await read(adminTokenFile(loaded))]],
    ['the password of the store', [password, password && decodeURIComponent(password)]],
  ])
}

async function contentOf({ files }: Context, path: string) {
  try {
    return new TextDecoder().decode(await files.read(path)).trim()
  } catch {
    // What this process cannot read, it cannot have written into a bundle.
    return undefined
  }
}

type Kept = readonly [kind: string, texts: readonly (string | undefined)[]]

const secretsIn = (kept: readonly Kept[]): readonly Secret[] =>
  kept.flatMap(([kind, texts]) => texts.flatMap((text) => (text ? { kind, text } : [])))

const telling =
  /(?:KEY|SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|MNEMONIC|CRED(?:ENTIAL)?|PASS|PW|PWD|PAT|AUTH|SEED)S?\d*$/i
const about = /_(?:FILE|PATH|DIR|URL|HOST|USER|NAME|TYPE|SOCK)$/i
/** A path, an address, or too short to be found in a text. */
const harmless = /^(?:[./~].*|0x[0-9a-fA-F]{40}|.{0,7})$/s

const isTelling = (name: string) =>
  !about.test(name) && name.split(/[^A-Za-z0-9]+/).some((word) => telling.test(word))

const variableSecrets = (env: Context['env']) =>
  Object.entries(env).flatMap(([name, value = '']): Kept[] =>
    isTelling(name) && !harmless.test(value) ? [[`the variable ${name}`, [value]]] : [],
  )

/** Ciphertext and check sum of every keystore: with a weak password they are the key. */
async function keystoreSecrets(context: Context, home: string) {
  const folder = homePaths.keystores(home)
  const names = await namesIn(context.files, folder)
  const texts = await Promise.all(names.map((name) => contentOf(context, join(folder, name))))
  return texts.flatMap((text = '') =>
    [...text.matchAll(/"(?:ciphertext|mac)"\s*:\s*"([0-9a-f]+)"/gi)].map(([, hex]) => hex),
  )
}

function hostOf(text: string) {
  // Of `user:password@host` the user would be the scheme.
  const url = webUrl(text)
  if (url === undefined) return { url: '(not a URL)', removed: [] }
  const { protocol, host, username, password, pathname, search, hash } = url
  const parts = {
    user: username + password,
    path: pathname.slice(1),
    query: search,
    fragment: hash,
  }
  const removed = Object.entries(parts).flatMap(([name, text]) => (text === '' ? [] : [name]))
  return { url: `${protocol}//${host}`, removed }
}

const settingsPart = (settings: Settings) =>
  ['home', ...keyNames].flatMap((key) => {
    const { value, origin, from } = settingOf(settings, key) ?? {}
    if (value === undefined) return []
    return [{ key, value: specOf(key)?.isSecret ? hostOf(value) : value, origin, from }]
  })
