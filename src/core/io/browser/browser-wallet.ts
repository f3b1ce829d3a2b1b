/**
 * A wallet in a browser of this machine (contract §9, `--browser`). The caller checks what it
 * answers; account and chain are checked here.
 */

import { spawn } from 'node:child_process'
import { randomBytes, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { platform } from 'node:os'
import * as z from 'zod/mini'
import { walletPage } from '#page/pages'
import type { ShownRow, Signer } from '#ports'
import { UnavailableError, UsageError } from '#protocol/errors'
import { safeText } from '#protocol/node-words'
import type { Address } from '#protocol/schema'
import { jsonLook, type Look, listenForLooks, refused, withJson } from '../serving/looks.js'

export interface BrowserWallet {
  account(): Promise<Address>
  signer(address: Address): Signer
  expect(total: number): void
  close(): Promise<void>
}

export interface BrowserWalletOptions {
  readonly timeoutMs: number
  readonly signal: AbortSignal
  readonly onPage: (url: string) => Promise<void>
  readonly onProblem: (text: string) => void
}

type Task =
  | { readonly kind: 'connect' }
  | { readonly kind: 'sign'; readonly document: object }
  | { readonly kind: 'send'; readonly transaction: object }

interface Wanted {
  readonly task: Task
  readonly summary: readonly ShownRow[]
  readonly account?: Address
  readonly chainId?: number
}

interface Asking extends Wanted {
  settle(answer: string | Error): void
}

const longPollMs = 20_000

const address = z.string().check(z.regex(/^0x[0-9a-f]{40}$/))
const id = z.int().check(z.minimum(0))
const Answer = z.union([
  z.strictObject({
    id,
    account: address,
    chain_id: z.int().check(z.minimum(0)),
    result: z.nullable(z.string()),
  }),
  z.strictObject({ id, refused: z.string() }),
])
const Problem = z.strictObject({ id, problem: z.string() })
const Next = z.strictObject({ seen: id })

/** Listens when it is first needed. `signer_timed_out`: the wallet may sign yet. */
export function openBrowserWallet(options: BrowserWalletOptions): BrowserWallet {
  const page = newPage(options)
  const { ask } = page
  return {
    async account() {
      const wanted = { task: { kind: 'connect' }, summary: connectRows } as const
      return (await ask(wanted)) as Address
    },
    signer: (account) => ({
      address: account,
      async signDigest() {
        throw new UsageError(
          'signer_needs_typed_data',
          'a browser wallet cannot sign a bare digest',
          'use --account for this command',
        )
      },
      signTypedData: (document, summary = []) =>
        ask({ task: { kind: 'sign', document }, summary, account, chainId: chainOf(document) }),
      sendTransaction: ({ chainId, from, to, data }, summary) =>
        ask({
          task: { kind: 'send', transaction: { from, to, data, value: '0x0' } },
          summary,
          account,
          chainId,
        }),
    }),
    expect: page.expect,
    close: page.close,
  }
}

const connectRows: readonly ShownRow[] = [
  ['account', 'The account that the wallet shows to this page first is the proposer.'],
]

const chainOf = (document: object) =>
  Number((document as { readonly domain?: { readonly chainId?: unknown } }).domain?.chainId)

function newPage({ timeoutMs, signal, onPage, onProblem }: BrowserWalletOptions) {
  let listener: Promise<WalletListener> | undefined
  let asking: Asking | undefined
  let number = 0
  let total = 0
  let version = 0
  let isOpened = false
  let isClosed = false
  const watchers = new Set<() => void>()
  const changed = () => {
    version++
    for (const wake of [...watchers]) wake()
  }

  const shown = () => {
    if (isClosed) return { kind: 'end' }
    if (asking === undefined) return { kind: 'wait', id: version }
    const { task, summary, account, chainId } = asking
    return { ...task, id: version, summary, account, chain_id: chainId, number, total }
  }

  const next = async (body: unknown, gone: AbortSignal) => {
    const read = Next.safeParse(body)
    if (!read.success) return badCall()
    if (read.data.seen === version && !isClosed)
      await new Promise<void>((resolve) => {
        const timer = setTimeout(done, longPollMs)
        function done() {
          clearTimeout(timer)
          watchers.delete(done)
          gone.removeEventListener('abort', done)
          resolve()
        }
        watchers.add(done)
        gone.addEventListener('abort', done)
      })
    return jsonLook(read.data.seen === version && !isClosed ? { kind: 'same' } : shown())
  }

  const answer = async (body: unknown): Promise<Look> => {
    const read = Answer.safeParse(body)
    if (!read.success) return badCall()
    if (asking === undefined || read.data.id !== version)
      return refused(409, 'stale', 'the command no longer waits for this answer')
    asking.settle('refused' in read.data ? saidNo(read.data.refused) : resultOf(asking, read.data))
    return jsonLook({ ok: true })
  }

  const problem = async (body: unknown) => {
    const read = Problem.safeParse(body)
    if (!read.success) return badCall()
    if (asking !== undefined && read.data.id === version) onProblem(safeText(read.data.problem))
    return jsonLook({ ok: true })
  }

  const opened = () => {
    isOpened = true
  }
  const listen = async () => {
    const made = await listenForWallet({ opened, calls: { next, answer, problem } })
    await onPage(made.url)
    return made
  }

  return {
    expect(count: number) {
      total = count
    },
    async ask(wanted: Wanted) {
      signal.throwIfAborted()
      listener ??= listen()
      await listener
      if (wanted.task.kind !== 'connect') number++
      const overdue = AbortSignal.timeout(timeoutMs)
      const result = await new Promise<string | Error>((settle) => {
        asking = { ...wanted, settle }
        signal.addEventListener('abort', () => settle(signal.reason as Error), { once: true })
        overdue.addEventListener('abort', () => settle(late(timeoutMs, isOpened)), { once: true })
        changed()
      })
      asking = undefined
      changed()
      if (typeof result !== 'string') throw result
      return result
    },
    async close() {
      isClosed = true
      changed()
      await (await listener)?.close()
    },
  }
}

function resultOf(
  { task, account, chainId }: Wanted,
  given: { readonly account: string; readonly chain_id: number; readonly result: string | null },
) {
  if (task.kind === 'connect') return given.account
  if (given.account !== account)
    return new UsageError(
      'wrong_account',
      `the browser wallet answered with account ${given.account}, not ${account}`,
      'choose that account in the wallet, then rerun the command',
    )
  if (given.chain_id !== chainId)
    return new UsageError(
      'wrong_chain',
      `the browser wallet is on chain ${given.chain_id}, not ${chainId}`,
      `switch the wallet to chain ${chainId}, then rerun the command`,
    )
  if (given.result !== null && given.result !== '0x') return given.result
  return new UsageError(
    'signer_answer',
    `the browser wallet cannot be used: its response holds no ${task.kind === 'send' ? 'transaction hash' : 'signature'}`,
    'retry with another wallet in the browser',
  )
}

const saidNo = (words: string) =>
  new UsageError(
    'signer_refused',
    `the browser wallet refused: ${safeText(words)}`,
    "approve in the wallet, and check that it holds the proposer's account; then retry",
  )

const late = (timeoutMs: number, isOpened: boolean) =>
  isOpened
    ? new UnavailableError(
        'signer_timed_out',
        `the browser wallet did not respond within ${Math.ceil(timeoutMs / 1_000)} s; it may still sign`,
        'check the wallet: it may be waiting for you. Then retry: it is asked for the same document',
      )
    : new UnavailableError(
        'signer_unreachable',
        `nobody opened the wallet page within ${Math.ceil(timeoutMs / 1_000)} s`,
        'rerun the command, and open the address that it prints in the browser that has the wallet',
      )

const badCall = () => refused(422, 'schema_violation', 'the call is not one of this page')

interface WalletRoutes {
  opened(): void
  readonly calls: Readonly<Record<string, (body: unknown, gone: AbortSignal) => Promise<Look>>>
}

interface WalletListener {
  readonly url: string
  close(): Promise<void>
}

const limitBytes = 64 * 1024
const cookieName = 'proposer-wallet'

interface Place {
  origin: string
  readonly path: string
  readonly cookie: string
  isTaken: boolean
}

/**
 * Under a random path, for the browser that opens it first, which gets a cookie: other users may
 * read addresses in a list of processes.
 */
async function listenForWallet(routes: WalletRoutes) {
  const secret = () => randomBytes(32).toString('base64url')
  const place: Place = { origin: '', path: `/${secret()}/`, cookie: secret(), isTaken: false }
  let inFlight = 0
  let onIdle: (() => void) | undefined
  const listener = await listenForLooks({
    host: '127.0.0.1',
    port: 0,
    timeoutMs: 0,
    closes: true,
    route(incoming, response) {
      inFlight++
      response.once('close', () => {
        inFlight--
        if (inFlight === 0) onIdle?.()
      })
      return refusalOf(place, incoming) ?? answer(place, routes, incoming, response)
    },
  })
  place.origin = listener.url
  return {
    url: `${place.origin}${place.path}`,
    async close() {
      // A browser keeps idle connections ready.
      if (inFlight > 0)
        await new Promise<void>((idle) => {
          onIdle = idle
        })
      await listener.close()
    },
  }
}

/** Another site, another program, another user. */
function refusalOf(place: Place, incoming: IncomingMessage) {
  const { rawHeaders, headers, url = '', method } = incoming
  const hosts = rawHeaders.filter((name, at) => at % 2 === 0 && /^host$/i.test(name))
  if (hosts.length !== 1 || `http://${headers.host}` !== place.origin)
    return refused(400, 'bad_request', 'open the address as the command printed it')
  const site = headers['sec-fetch-site']
  const isForeign =
    (headers.origin !== undefined && headers.origin !== place.origin) ||
    (site !== undefined && site !== 'same-origin' && site !== 'none')
  if (isForeign) return refused(403, 'bad_request', 'this page is not for other sites')
  if (method === 'POST' && headers.origin !== place.origin)
    return refused(403, 'bad_request', 'a call must say that it comes from this page')
  if (!equal(url.slice(0, place.path.length), place.path))
    return refused(404, 'route_not_found', 'there is no such page; the command printed the address')
  const isFirst = !place.isTaken && method === 'GET' && url === place.path
  if (isFirst || showsCookie(place, headers.cookie)) return undefined
  return refused(
    403,
    'page_taken',
    place.isTaken
      ? 'this address is open in another browser; if that was not you, end the command and run it again'
      : 'open the page first',
  )
}

async function answer(
  place: Place,
  { opened, calls }: WalletRoutes,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<Look> {
  const { url = '', method, headers } = incoming
  const name = url.slice(place.path.length)
  const file = Object.hasOwn(walletPage, name) ? walletPage[name] : undefined
  if (file !== undefined && method === 'GET') {
    const isFirst = !place.isTaken
    place.isTaken = true
    if (isFirst) opened()
    const attributes = `Path=${place.path}; HttpOnly; SameSite=Strict`
    const cookie = { 'set-cookie': `${cookieName}=${place.cookie}; ${attributes}` }
    return { status: 200, body: file.body, headers: { ...file.headers, ...(isFirst && cookie) } }
  }
  const call = Object.hasOwn(calls, name) ? calls[name] : undefined
  if (call === undefined || method !== 'POST')
    return refused(404, 'route_not_found', 'the wallet page has no such call')
  if (headers['content-type'] !== 'application/json')
    return refused(400, 'unsupported_media_type', 'a call is application/json')
  const gone = new AbortController()
  response.once('close', () => gone.abort())
  const tooLarge = `a call has at most ${limitBytes} bytes`
  return withJson(incoming, response, limitBytes, tooLarge, (body) => call(body, gone.signal))
}

function showsCookie(place: Place, header: string | undefined) {
  const given = (header ?? '')
    .split(';')
    .map((one) => one.trim().split('='))
    .filter(([name]) => name === cookieName)
  return given.some(([, value = '']) => equal(value, place.cookie))
}

function equal(given: string, wanted: string) {
  const [one, other] = [given, wanted].map((text) => Buffer.from(text)) as [Buffer, Buffer]
  return one.length === other.length && timingSafeEqual(one, other)
}

/** An opener would show a text browser in the terminal. */
export function systemOpener(
  env: Readonly<Record<string, string | undefined>>,
  system: string = platform(),
) {
  if (system === 'darwin') return 'open'
  const display = (env.DISPLAY ?? '') !== '' || (env.WAYLAND_DISPLAY ?? '') !== ''
  return system !== 'win32' && display ? 'xdg-open' : undefined
}

const passedOn =
  /^(PATH|HOME|USER|LOGNAME|LANG|LC_\w+|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|XDG_\w+|DBUS_SESSION_BUS_ADDRESS|BROWSER|KDE_\w+|DESKTOP_SESSION|TMPDIR)$/

export function openInBrowser(
  opener: string,
  url: string,
  env: Readonly<Record<string, string | undefined>>,
) {
  const kept = Object.fromEntries(Object.entries(env).filter(([name]) => passedOn.test(name)))
  return new Promise((resolve) => {
    const child = spawn(opener, [url], { env: kept, stdio: 'ignore', detached: true })
    child.once('error', () => resolve(false))
    child.once('spawn', () => {
      child.unref()
      resolve(true)
    })
  })
}
