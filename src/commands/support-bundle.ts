/**
 * `support-bundle` (contract §6): an allow-list, read-only, that asks nobody but a gateway's own
 * loopback listener. It is compared with every known secret before a byte of it leaves (R5).
 */

import { arch, platform, release } from 'node:os'
import { join, resolve } from 'node:path'
import { version as nodeVersion } from 'node:process'
import type { Implementations } from '#chain/implementations'
import { openCheck } from '#checks/doctor'
import { guarded, pass } from '#checks/finding'
import { createPlanner } from '#client/budget/planner'
import { parseBaseUrl } from '#client/gateway/gateway-client'
import { type JournalView, verifyJournal } from '#client/journal/journal'
import {
  type BundleScope,
  type FoundSecret,
  findSecrets,
  journalPart,
  journalSignatures,
  type Secret,
  urlCredentials,
  webUrl,
} from '#client/support/secret-scan'
import { adminTokenFile, type LoadedConfig } from '#host/config-file'
import { receiptKeyFile } from '#host/receipts'
import { accountPinFiles } from '#io/accounts'
import { fromCwd, homePaths } from '#io/home'
import { instant } from '#protocol/candidate'
import { ProposerError, UsageError } from '#protocol/errors'
import { withoutNodeWords } from '#protocol/node-words'
import { programVersion } from '#protocol/version'
import { secretChecks } from './doctor.js'
import { confirm, writeText } from './session/inputs.js'
import { requireIdentifier } from './session/question.js'
import { type Session, sessionVerb } from './session/session.js'
import { type SessionFlags, type Settings, settingOf, sinceMs, specOf } from './session/settings.js'
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
  about:
    'collect diagnostics in one file without secrets: versions, settings, journal, rate limit, gateway',
  flags: flagTable,
  help: "The file has no key, password, signature, payload, token, nor path, query or user of a URL. It is searched for every secret in this machine's settings before it is written; no other secret can be found, so read it before you send it.",
  examples: [
    'support-bundle --question some-slug',
    'support-bundle --config gateway.json --since 24h -o bundle.json',
  ],
  async run(session, flags) {
    const wanted = wantedOf(flags, session.clock.nowMs())
    const { document, secrets } = await collect(session, flags, wanted)
    const found = findSecrets(document, secrets)
    if (found.length > 0) throw refused(found)
    await give(session, flags, document)
  },
})

function refused(found: readonly FoundSecret[]) {
  const shown = found.slice(0, 5).map(({ field, kind }) => `${field} holds ${kind}`)
  const more = found.length > shown.length ? [`and ${found.length - shown.length} more`] : []
  return new UsageError(
    'bundle_holds_secret',
    `nothing was written: ${[...shown, ...more].join('; ')}`,
    hintFor(found),
  )
}

function hintFor(found: readonly FoundSecret[]) {
  const kinds = [...new Set(found.map(({ kind }) => kind))]
  const variables = kinds.filter((kind) => kind.startsWith(variableKind))
  const unset = variables.map((kind) => `-u ${kind.slice(variableKind.length)} `).join('')
  const word = 'is a plain word and no secret'
  return [
    'where you gave that text yourself (a client reference, a name), leave it out with --question or --since',
    unset !== '' && `where a variable ${word}, run \`env ${unset}proposer support-bundle\``,
    kinds.some((kind) => /URL|rpc_urls/.test(kind)) &&
      `where a part of a URL ${word}, give another --gateway or --rpc-url for this one run`,
    "anything else please report by the field's name",
  ]
    .filter((part) => part !== false)
    .join('; ')
}

async function collect(session: Session, flags: BundleFlags, wanted: BundleScope) {
  const { settings } = session
  const nowMs = session.clock.nowMs()
  const user = session.env.HOME ?? ''
  const short = (text: string) => (user.length > 1 ? text.replaceAll(user, '~') : text)
  const journal = await readJournal(session, wanted, nowMs)
  const trust = await trustPart(session)
  const checks = [...(await secretChecks(session)), ...journal.checks, ...trust.checks]
  const operator =
    flags.config === undefined
      ? undefined
      : await operatorPart(session, flags.config, flags.timeout)
  const document = {
    id: session.random.uuid(),
    made_at: instant(nowMs),
    narrowed: {
      question: wanted.question ?? null,
      since: wanted.sinceMs === undefined ? null : instant(wanted.sinceMs),
    },
    versions: {
      proposer: programVersion,
      node: nodeVersion,
      platform: platform(),
      release: release(),
      arch: arch(),
    },
    settings: settingsPart(settings, short),
    variables: Object.keys(session.env).filter((name) => /^PROPOSER_[A-Z_]+$/.test(name)),
    checks: checks.map(({ id, result, detail }) => ({ id, result, detail: short(detail) })),
    trust: trust.part,
    journal: journal.part,
    budget: await budgetPart(session),
    gateway: operator?.part ?? null,
  }
  const secrets: readonly Secret[] = [
    ...(await clientSecrets(session, journal.view)),
    ...(operator?.secrets ?? []),
  ]
  return { document, secrets }
}
type Bundle = Awaited<ReturnType<typeof collect>>['document']

/** Of a damaged one what can be read. */
async function readJournal(session: Session, wanted: BundleScope, nowMs: number) {
  const held: { view?: JournalView; proof?: Awaited<ReturnType<typeof verifyJournal>> } = {}
  const [check] = await guarded('journal', async () => {
    held.proof = await verifyJournal(session, session.settings.home.value)
    return pass('journal', 'every checksum holds')
  })
  // What breaks a rule can be read all the same, and is what support wants to see.
  const loaded = await guarded('journal', async () => {
    held.view = await session.journal.load()
    return check ?? []
  })
  const { view, proof } = held
  const nothing: Pick<JournalView, 'authorizations' | 'offers'> = { authorizations: [], offers: [] }
  return {
    view,
    checks: [...loaded, ...(view === undefined ? [] : [openCheck(view, nowMs)])],
    part: {
      sound: proof !== undefined && view !== undefined,
      runs: proof?.runs ?? null,
      records: proof?.records ?? null,
      ...journalPart(view ?? nothing, wanted, nowMs),
    },
  }
}

async function operatorPart(context: Context, config: string, timeout: string | undefined) {
  const { askStatus, siteOf } = await import('./operator/access.js')
  const site = await siteOf(context, { config, timeout })
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

/** Slugs are counted: which questions somebody looks at is nobody's business. */
async function trustPart(session: Session) {
  let part: object | null = null
  const checks = await guarded('trust', async () => {
    const { slugs, implementations, ...pins } = await session.trust()
    const code = implementations && { implementations: codeOf(implementations) }
    part = { ...pins, ...code, slugs: Object.keys(slugs).length }
    return pass('trust', `pins chain ${pins.chain_id}`)
  })
  return { part: part as object | null, checks }
}

async function budgetPart(session: Session) {
  const { gateway, home } = session.settings
  if (gateway === undefined) return null
  try {
    const { origin } = parseBaseUrl(gateway.value)
    const view = await createPlanner(session, home.value, origin).snapshot()
    return {
      origin,
      learnt: view.learnt,
      limit_items: view.limitItems,
      window_seconds: view.windowMs / 1_000,
      spent_items: view.spentItems,
      room_items: view.roomItems,
      ends_in_seconds: Math.ceil(view.endsInMs / 1_000),
      calls_in_flight: view.callsInFlight,
      granted_items: view.grantedItems,
      refusals: view.refusals,
    }
  } catch (error) {
    // What is wrong with the URL, or with the log, every other command says.
    if (error instanceof ProposerError) return null
    throw error
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
  const { journal, gateway, checks, budget } = document
  const passed = checks.filter(({ result }) => result === 'pass').length
  const older = journal.left_out > 0 ? `, ${journal.left_out} older ones left out` : ''
  output.show('support-bundle', document, [
    [
      ['written', file],
      ['versions, settings', 'URLs by host and port only'],
      ['checks', `${passed} of ${checks.length} pass`],
      ['journal', `${counted(journal.authorizations.length, 'authorization')}${older}`],
      ['budget', budget === null ? 'no gateway is configured' : budget.origin],
      [
        'gateway',
        gateway === null
          ? "none: --config adds the operator's side"
          : 'what `operator status` tells',
      ],
      [
        'not in it',
        'keys, passwords, signatures, payloads, tokens: it was searched for the known ones. Read it before you send it',
      ],
    ],
  ])
}

function wantedOf({ question, since }: BundleFlags, nowMs: number) {
  return {
    ...(question !== undefined && { question }),
    ...(since !== undefined && { sinceMs: sinceMs(since, nowMs) }),
  }
}

async function clientSecrets(
  context: Session,
  view: Pick<JournalView, 'authorizations' | 'offers'> | undefined,
) {
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

/** In names of variables that hold secrets; short ones as a word of their own. */
const telling =
  /(?:KEY|SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|MNEMONIC|CREDENTIAL)S?\d*$|^(?:PASS|PW|PWD|PAT|AUTH|SEED|CREDS?)\d*$/i
const about = /_(?:FILE|PATH|DIR|URL|HOST|USER|NAME|TYPE|SOCK)$/i
/** A path, an address, or too short to be found in a text. */
const harmless = /^(?:[./~].*|0x[0-9a-fA-F]{40}|.{0,7})$/s

const isTelling = (name: string) =>
  !about.test(name) && name.split(/[^A-Za-z0-9]+/).some((word) => telling.test(word))

const variableKind = 'the variable '

const variableSecrets = (env: Context['env']) =>
  Object.entries(env).flatMap(([name, value = '']): Kept[] =>
    isTelling(name) && !harmless.test(value) ? [[`${variableKind}${name}`, [value]]] : [],
  )

/** Ciphertext and check sum of every keystore: with a weak password they are the key. */
async function keystoreSecrets(context: Context, home: string) {
  const folder = homePaths.keystores(home)
  if (!(await context.files.exists(folder))) return []
  const names = await context.files.list(folder)
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
    user: username !== '' || password !== '',
    path: pathname.length > 1,
    query: search !== '',
    fragment: hash !== '',
  }
  const removed = (['user', 'path', 'query', 'fragment'] as const).filter((part) => parts[part])
  return { url: `${protocol}//${host}`, removed }
}

const toldKeys = [
  ...(['home', 'profile', 'gateway', 'local', 'account', 'rpc-url', 'trust'] as const),
  ...(['headroom-percent', 'max-amount', 'max-fee'] as const),
]

const settingsPart = (settings: Settings, short: (path: string) => string) =>
  toldKeys.flatMap((key) => {
    const setting = settingOf(settings, key)
    if (setting === undefined) return []
    const { isSecret, isPath = key === 'home' } = specOf(key) ?? {}
    const { value, origin, from } = setting
    return [{ key, value: isSecret ? hostOf(value) : isPath ? short(value) : value, origin, from }]
  })

/** Without the hash of the code, which could be taken for a secret. */
const codeOf = (pins: Implementations) =>
  Object.fromEntries(
    Object.entries(pins).map(([address, { implementation }]) => [address, implementation]),
  )
