/**
 * What comes in from outside a command: files, stdin, answers of the person at the terminal, and the
 * proposer's signatures (contract §7, §9); and the files that it writes.
 */
import { basename, dirname } from 'node:path'
import { Writable } from 'node:stream'
import type { ExecutorKeySource } from '#host/executor-key'
import { fromCwd } from '#io/home'
import {
  inputTooLarge,
  jsonHint,
  maximumInputBytes,
  parseJsonInput,
  readInputFile,
} from '#io/json-file'
import type { KeySigner } from '#io/key-files'
import { quickestCurve } from '#io/native-curve'
import type { Signer } from '#ports'
import { givenAddress } from '#protocol/address'
import { InterruptedError, UsageError } from '#protocol/errors'
import { once } from '#protocol/once'
import type { Address } from '#protocol/schema'
import { publishText } from '#storage/durable'
import type { Context, InputStream } from '../terminal/context.js'
import { fold, publicUrl } from '../terminal/render.js'
import type { FlagsOf } from '../terminal/verb.js'
import {
  type AccountFlags,
  allowedHttp,
  type Configured,
  type executorFlags,
  notTogether,
} from './settings.js'

export const readInput = (
  context: Context,
  path: string,
  hint = 'give the path of a readable file, or - for stdin',
  most: number = maximumInputBytes,
) => (path === '-' ? readStdin(context, most) : readInputFile(context, path, hint, most))

async function readStdin(context: Context, most: number) {
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of context.stdin) {
    const bytes = typeof chunk === 'string' ? new TextEncoder().encode(chunk) : chunk
    size += bytes.length
    if (size > most) throw inputTooLarge('stdin', most)
    chunks.push(bytes)
  }
  return Buffer.concat(chunks)
}

/** Whole or not at all, 0600. The path that it has. */
export async function writeText({ cwd, files }: Context, named: string, text: string) {
  const path = fromCwd(cwd, named)
  await publishText(files, dirname(path), basename(path), text)
  return path
}

export const parseJson = (
  bytes: Uint8Array,
  name: string,
  hint = 'give the file as this program printed it',
) => parseJsonInput(bytes, name === '-' ? 'stdin' : name, hint)

export const readText = async (context: Context, path: string) =>
  new TextDecoder().decode(await readInput(context, path))

export const inputJson = async (context: Context, path: string) =>
  parseJson(await readInput(context, path), path)

export const jsonIn = (text: string) =>
  [text, ...text.split('\n').filter((line) => line.startsWith('{'))].flatMap((one) => {
    try {
      return [JSON.parse(one)]
    } catch {
      // not this one; where none is JSON, whoever asks says so
      return []
    }
  })

export const readOwnJson = async (context: Context, path: string, missing?: string) =>
  parseJson(await readInput(context, path, missing), path, jsonHint)

export async function confirm(context: Context, question: string, yes: boolean) {
  if (yes) return
  if (!context.isInteractive)
    throw new UsageError(
      'confirmation_needed',
      `${question} There is no terminal to confirm it`,
      'add --yes to proceed',
    )
  const answer = await ask(context, `${question} [y/N] `, false)
  if (/^\s*y(es)?\s*$/i.test(answer)) return
  throw new UsageError('declined', 'declined; nothing was done', 'rerun the command and answer y')
}

/** On a terminal, unless the output is for programs (contract §9, Confirmation). */
export const asksPerson = (
  { isInteractive, output }: Context,
  flags: { readonly quiet?: boolean; readonly yes?: boolean; readonly dryRun?: boolean },
) =>
  isInteractive &&
  output.isForPeople &&
  flags.quiet !== true &&
  flags.yes !== true &&
  flags.dryRun !== true

const asking =
  (code: 'password_needed' | 'answer_needed') =>
  async (context: Context, question: string, flag: string) => {
    if (context.isInteractive) return ask(context, question, code === 'password_needed')
    throw new UsageError(
      code,
      `${question.replace(/:?\s*$/, '')} is required, and there is no terminal to prompt on`,
      `give ${flag}`,
    )
  }

export const askHidden = asking('password_needed')

export const askLine = asking('answer_needed')

/** Lines that came together with the one that was asked for. */
const ahead = new WeakMap<InputStream, string[]>()

/**
 * Prompts go to stderr (contract §6). Hidden input is read in raw mode, where keys are characters, and
 * Ctrl-C is one of them.
 */
async function ask(context: Context, question: string, hidden: boolean) {
  const { stdin, signal, output, streams } = context
  output.progress('').stop()
  const { createInterface } = await import('node:readline')
  const unseen = new Writable({ write: (_chunk, _encoding, done) => done() })
  const lines = ahead.get(stdin) ?? []
  ahead.set(stdin, lines)
  // Before the prompt: a quick typist must not be echoed.
  const reader = createInterface({ input: stdin, output: unseen, terminal: hidden, historySize: 0 })
  const asked = question.trimEnd().split('\n')
  streams.stderr.write(`${asked.map((line) => fold(line, output.columns)).join('\n')} `)
  let isCut = false
  let onAbort = () => {}
  try {
    await new Promise<void>((resolve, reject) => {
      onAbort = () => {
        isCut = true
        reject(signal.reason)
      }
      const onClose = () => {
        isCut = true
        // Ctrl-D and a lost terminal look the same; `signal` tells them apart one turn later.
        setImmediate(() => reject(signal.aborted ? signal.reason : stopped(UsageError, 'declined')))
      }
      reader
        .on('line', (line) => resolve(void lines.push(line)))
        .on('SIGINT', () => reject(stopped(InterruptedError, 'interrupted')))
        .on('error', onClose)
        .on('close', onClose)
      signal.addEventListener('abort', onAbort)
      if (signal.aborted) onAbort()
      else if (lines.length > 0) resolve()
      else if (!stdin.readable) onClose()
    })
    return lines.shift() ?? ''
  } finally {
    signal.removeEventListener('abort', onAbort)
    // The Enter that ended a hidden line was not echoed, and what is cut has none.
    const isOpen = hidden || isCut
    reader.close()
    if (isOpen) streams.stderr.write('\n')
  }
}

const stopped = (Kind: typeof UsageError | typeof InterruptedError, code: string) =>
  new Kind(
    code,
    `${Kind === UsageError ? 'no reply' : 'stopped'} at the prompt; nothing was done`,
    'rerun the command and answer',
  )

/** Nothing is read before it is asked for; a key is unlocked at most once. */
export interface Account {
  /** From the account's file, where it tells it: then no password is needed. */
  address(): Promise<Address>
  signer(total?: number): Promise<Signer>
  /** The proposer is this Safe, and `owner` is who signs for it here. */
  readonly safe?: {
    readonly address: Address
    readonly owner?: Pick<Account, 'address' | 'signer'>
  }
  dispose(): void
}

export function openAccount(context: Configured, flags: AccountFlags): Account {
  const { passwordFile } = flags
  if (flags.safe !== undefined) return safeAccount(context, flags, flags.safe)
  if (flags.asOwner !== undefined)
    throw new UsageError(
      'flag_without_meaning',
      '--as-owner belongs to a Safe',
      'add --safe <address>, or leave out --as-owner',
    )
  const named =
    flags.proposer === undefined
      ? undefined
      : givenAddress(flags.proposer, '--proposer', 'bad_proposer')
  requireOneSigner(context, flags)
  if (flags.signer !== undefined) return outsideAccount(context, flags.signer, named)
  if (flags.browser) return browserAccount(context, flags, named)
  let opened: KeySigner | undefined
  const unlock = once(async () => {
    opened = await unlockSource(context, passwordFile)
    return opened
  })
  return {
    async address() {
      if (named !== undefined) return named
      const name = accountName(context)
      if (name === undefined || opened) return (await unlock()).address
      const { readAccount } = await import('#io/accounts')
      return (
        (await readAccount(context.files, context.settings.home.value, name)).address ??
        (await unlock()).address
      )
    },
    signer: unlock,
    dispose() {
      opened?.dispose()
      opened = undefined
    },
  }
}

/** A Safe has no key: what signs here is the key of an owner. */
function safeAccount(
  context: Configured,
  { safe: _safe, asOwner, proposer, ...flags }: AccountFlags,
  given: string,
): Account {
  const address = givenAddress(given, '--safe', 'bad_proposer')
  if (proposer !== undefined && givenAddress(proposer, '--proposer', 'bad_proposer') !== address)
    throw new UsageError(
      'two_signers',
      '--safe and --proposer name two proposers',
      "leave out --proposer; the owner's address goes behind --as-owner",
    )
  const named = typeof asOwner === 'string' && { proposer: asOwner }
  const own = openAccount(context, { ...flags, ...named })
  return {
    address: async () => address,
    signer: async () => {
      throw new UsageError(
        'signer_outside',
        'a Safe signs proposals only, by its owners',
        'for a transaction add --print and make it in the Safe',
      )
    },
    safe: { address, ...(asOwner !== undefined && { owner: own }) },
    dispose: () => own.dispose(),
  }
}

function requireOneSigner(
  { settings: { account } }: Configured,
  { signer, browser }: AccountFlags,
) {
  const given = [
    ...(signer === undefined ? [] : ['--signer']),
    ...(browser ? ['--browser'] : []),
    ...(account?.origin === 'flag' ? ['--account'] : []),
  ]
  const [one, other] = given
  if (one !== undefined && other !== undefined) throw notTogether('two_signers', one, other)
}

interface Wallet {
  signer(address: Address): Signer
  expect?(total: number): void
  close(): Promise<void>
}

function walletAccount<One extends Wallet>(
  open: () => Promise<One>,
  accountOf: (wallet: One) => Promise<Address>,
  named: Address | undefined,
): Account {
  let opened: Promise<One> | undefined
  const wallet = () => {
    opened ??= open()
    return opened
  }
  const address = once(async () => named ?? accountOf(await wallet()))
  return {
    address,
    async signer(total = 0) {
      const one = await wallet()
      one.expect?.(total)
      return one.signer(await address())
    },
    dispose() {
      // Its page or its idle connections keep nobody waiting, and no key is held.
      opened?.then((one) => one.close()).catch(() => undefined)
    },
  }
}

/** No longer than the whole command has. */
const within = ({ settings: { timeoutMs = Infinity } }: Configured, mostMs: number) =>
  Math.min(mostMs, Math.max(1, Math.ceil(timeoutMs)))

const outsideAccount = (context: Configured, url: string, named: Address | undefined) =>
  walletAccount(
    async () => {
      const { openOutsideWallet } = await import('#io/external-signer')
      return openOutsideWallet(url, {
        // A person gets a minute to look and agree.
        timeoutMs: within(context, 60_000),
        signal: context.signal,
        allowHttp: allowedHttp(context.settings.allowHttp),
        traced: context.traced,
        onAsk: () =>
          context.output.note(`the wallet at ${publicUrl(url)} is asked to sign: approve it there`),
      })
    },
    async (wallet) => onlyAccount(await wallet.accounts()),
    named,
  )

const browserAccount = (
  context: Configured,
  { launch }: AccountFlags,
  named: Address | undefined,
) =>
  walletAccount(
    async () => {
      const { openBrowserWallet } = await import('#io/browser/browser-wallet')
      return openBrowserWallet({
        // A person reads, compares and agrees.
        timeoutMs: within(context, 600_000),
        signal: context.signal,
        onPage: (url) => showPage(context, url, launch !== false),
        onProblem: (text) => context.output.remark(`the wallet page says: ${text}`),
      })
    },
    (wallet) => wallet.account(),
    named,
  )

/** The address must be seen, by programs too: without it nothing goes on. */
async function showPage({ output, env, isInteractive }: Context, url: string, launches: boolean) {
  const words = 'open this page in the browser that has your wallet:'
  if (output.isForPeople) output.warn(`${words}\n${url}`)
  else output.warning('wallet_page', `${words} ${url}`)
  if (!launches || !isInteractive || !output.isForPeople) return
  const { openInBrowser, systemOpener } = await import('#io/browser/browser-wallet')
  const opener = systemOpener(env)
  if (opener !== undefined && !(await openInBrowser(opener, url, env)))
    output.remark(`${opener} could not be started; open the page yourself`)
}

function onlyAccount(accounts: readonly Address[]) {
  const [first] = accounts
  if (first !== undefined && accounts.length === 1) return first
  const why = first === undefined ? 'names no account' : `has ${accounts.length} accounts`
  throw new UsageError(
    'proposer_needed',
    `the wallet behind --signer ${why}, so the proposer must be named`,
    'add --proposer 0x…',
  )
}

export const keyVariable = ({ env, environmentKey }: Pick<Context, 'env' | 'environmentKey'>) =>
  env.PROPOSER_KEY_FILE ? 'PROPOSER_KEY_FILE' : environmentKey ? 'PROPOSER_PRIVATE_KEY' : undefined

/** A key in the environment outranks an account that only the profile names. */
function accountName(context: Configured) {
  const { account } = context.settings
  return account?.origin === 'profile' && keyVariable(context) ? undefined : account?.value
}

async function unlockSource(context: Configured, passwordFile: string | undefined) {
  const home = context.settings.home.value
  const name = accountName(context)
  if (name !== undefined) {
    const { openAccountKey } = await import('#io/accounts')
    const password = () => readPassword(context, passwordFile, `Password of ${name}: `)
    return openAccountKey(context.files, home, name, password, context.signal)
  }
  const { parseKey, readKeyFile, signerOn } = await import('#io/key-files')
  const curve = await quickestCurve()
  const keyFile = context.env.PROPOSER_KEY_FILE
  if (keyFile) return signerOn(curve, await readKeyFile(fromCwd(context.cwd, keyFile)))
  if (context.environmentKey) {
    context.output.warning(
      'key_in_environment',
      'the key comes from PROPOSER_PRIVATE_KEY; a keystore (`proposer account import`) is safer',
    )
    return signerOn(curve, parseKey(context.environmentKey, 'PROPOSER_PRIVATE_KEY'))
  }
  throw new UsageError(
    'no_account',
    'no proposer account selected',
    'create one with `proposer account new <name>` and give --account <name> (`proposer account list` shows them), set PROPOSER_KEY_FILE to a key file, or give --browser or --signer <url>',
  )
}

export const namedPasswordFile = ({ env }: Context) => env.PROPOSER_PASSWORD_FILE || undefined

/** Without a file's last line end. One that others may read is refused. */
export async function readPassword(
  context: Context,
  given: string | undefined,
  question: string,
  flag = '--password-file',
) {
  const passwordFile =
    given ?? (flag === '--password-file' ? namedPasswordFile(context) : undefined)
  if (passwordFile === undefined) return askHidden(context, question, `${flag} <file>`)
  const { readPasswordFile } = await import('#io/key-files')
  const password =
    passwordFile === '-'
      ? (await readText(context, passwordFile)).replace(/\r?\n$/, '')
      : await readPasswordFile(fromCwd(context.cwd, passwordFile))
  if (password !== '') return password
  throw new UsageError(
    'password_empty',
    `${passwordFile} holds no password`,
    'write the password into the file, on one line',
  )
}

/** What gateway.json names comes after both. */
export function executorKeyOf(
  context: Context,
  home: string,
  { executorAccount, executorPasswordFile }: FlagsOf<typeof executorFlags>,
): ExecutorKeySource {
  const variable = context.env.PROPOSER_EXECUTOR_KEY_FILE ?? ''
  return {
    home,
    account: executorAccount,
    keyFile: variable === '' ? undefined : fromCwd(context.cwd, variable),
    isPasswordInFile: executorPasswordFile !== undefined,
    password: (name) =>
      readPassword(
        context,
        executorPasswordFile,
        `Password of the executor ${name}: `,
        '--executor-password-file',
      ),
  }
}
